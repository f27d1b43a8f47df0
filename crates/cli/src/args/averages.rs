//! Flags for averages over benchmarks.

use super::named::named;
use fgrpo_eval::benchmarks::{Average, Averages, Domain, parse};

/// Which averages a table shows.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AverageArgs {
    /// What the models were trained on: no OOD average contains it.
    #[arg(long, value_parser = named::<Domain>(), default_value = "math")]
    trained_on: Domain,
    /// A further average, NAME=benchmark,benchmark,...
    #[arg(long = "average", value_name = "NAME=...", value_parser = parse)]
    averages: Vec<Average>,
}

impl AverageArgs {
    /// The averages as the library takes them.
    pub(crate) fn averages(&self) -> Averages {
        Averages { trained_on: self.trained_on, further: self.averages.clone() }
    }
}
