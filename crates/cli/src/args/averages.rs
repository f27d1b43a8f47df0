//! Flags for averages over benchmarks.

use super::named::named;
use fgrpo_eval::benchmarks::{Average, Averages, Domain, parse};

/// Averages that a table shows.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AverageArgs {
    /// Domain that the models were trained on; OOD averages leave it out.
    #[arg(long, value_parser = named::<Domain>(), default_value = "math")]
    trained_on: Domain,
    /// Add an average: NAME=benchmark,benchmark,...
    #[arg(long = "average", value_name = "NAME=...", value_parser = parse)]
    averages: Vec<Average>,
}

impl AverageArgs {
    pub(crate) fn averages(&self) -> Averages {
        Averages { trained_on: self.trained_on, further: self.averages.clone() }
    }
}
