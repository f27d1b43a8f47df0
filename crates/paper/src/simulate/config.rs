//! The configuration of a simulated sweep.

use anyhow::Context;
use fgrpo_core::sim::{Setup, Simulation};
use fgrpo_train::config::{Override, read, typed};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::Path;

/// A sweep: every group size with every gamma and every seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Group sizes N: draws per step.
    pub group_sizes: Vec<u64>,
    /// Focal exponents. 0 turns the focal weight off. The first exponent's curve is solid, and other curves are dashed.
    pub gammas: Vec<f64>,
    /// Seeds. A number k means the seeds 0 to k - 1.
    #[serde(deserialize_with = "seeds")]
    pub seeds: Vec<u64>,
    /// Number of steps of a run.
    pub steps: u64,
    /// Number of steps between two recorded steps. The start and the last step are always recorded.
    pub record_every: u64,
    /// The policy and its update.
    #[serde(flatten)]
    pub setup: Setup,
}

impl Default for Config {
    /// Returns the paper's sweep.
    fn default() -> Self {
        Self {
            group_sizes: (1..=17).map(|i| 1 << i).collect(),
            gammas: vec![0.0, 1.0],
            seeds: vec![0, 1, 2, 3],
            steps: 1_000,
            record_every: 10,
            setup: Setup::default(),
        }
    }
}

impl Config {
    /// Reads a TOML file, applies `key=value` overrides and checks the result.
    pub fn load(path: &Path, overrides: &[String]) -> anyhow::Result<Self> {
        read(path, |text| Self::parse(text, overrides))
    }

    /// Parses TOML, applies `key=value` overrides and checks the result.
    pub fn parse(text: &str, overrides: &[String]) -> anyhow::Result<Self> {
        let config: Self = typed(text, &Override::all("", overrides)?, keys_like)?;
        config.check()?;
        Ok(config)
    }

    /// Returns the configuration as TOML, including defaults.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a configuration is always TOML")
    }

    fn check(&self) -> anyhow::Result<()> {
        let setup = &self.setup;
        setup.check()?;
        distinct("group_sizes", self.group_sizes.iter())?;
        distinct("gammas", self.gammas.iter().map(|g| g.to_bits()).collect::<Vec<_>>().iter())?;
        distinct("seeds", self.seeds.iter())?;
        if self.steps == 0 {
            bad_input!("steps: expected at least 1, found 0");
        }
        if self.record_every == 0 {
            bad_input!("record_every: expected at least 1, found 0");
        }
        for &n in &self.group_sizes {
            Simulation::new(setup, n, 0.0, 0).context("group_sizes")?;
        }
        for &gamma in &self.gammas {
            Simulation::new(setup, 1, gamma, 0).context("gammas")?;
        }
        Ok(())
    }

    /// Returns the number of runs in the sweep.
    pub fn runs(&self) -> usize {
        self.group_sizes.len() * self.gammas.len() * self.seeds.len()
    }

    /// Whether the policy is recorded after this step.
    pub fn records(&self, step: u64) -> bool {
        step.is_multiple_of(self.record_every) || step == self.steps
    }
}

/// Returns the keys of which `unknown` may be a misspelling, or all keys if it doesn't resemble any. Serde doesn't list
/// the keys of a flattened table.
fn keys_like(unknown: &str) -> Vec<String> {
    let table: toml::Table = Config::default().to_toml().parse().expect("a configuration is TOML");
    let (near, other): (Vec<_>, Vec<_>) = table.into_iter().map(|(key, _)| key).partition(|key| {
        strsim::damerau_levenshtein(key, unknown) <= (key.len().max(unknown.len()) / 4).max(1)
    });
    if near.is_empty() { other } else { near }
}

fn distinct<T: Ord + Clone>(key: &str, values: impl Iterator<Item = T>) -> anyhow::Result<()> {
    let mut all: Vec<T> = values.collect();
    let count = all.len();
    all.sort();
    all.dedup();
    if count == 0 {
        bad_input!("{key}: the list is empty; give at least one value");
    }
    if all.len() < count {
        bad_input!("{key}: a value is listed twice");
    }
    Ok(())
}

/// Maximum number of seeds of a sweep.
const MOST_SEEDS: u64 = 1_000_000;

/// Deserializes a list of seeds or the number of seeds.
fn seeds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a list of seeds, or a number of seeds")]
    enum Seeds {
        Count(u64),
        List(Vec<u64>),
    }
    Ok(match Seeds::deserialize(deserializer)? {
        Seeds::Count(n) if n > MOST_SEEDS => {
            return Err(D::Error::custom(format_args!("expected at most {MOST_SEEDS} seeds, found {n}")));
        }
        Seeds::Count(n) => (0..n).collect(),
        Seeds::List(list) => list,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_in_the_repository_is_the_default() {
        let text = include_str!("../../../../configs/simulation.toml");
        assert_eq!(Config::parse(text, &[]).unwrap(), Config::default());
        assert_eq!(Config::default().runs(), 136);
    }

    #[test]
    fn the_long_configuration_differs_by_rate_length_and_recording_only() {
        let text = include_str!("../../../../configs/simulation-long.toml");
        let config = Config::parse(text, &[]).unwrap();
        let setup = Setup { lr: 1e-3, ..Setup::default() };
        let expected =
            Config { setup, steps: 50_000, record_every: config.record_every, ..Config::default() };
        assert_eq!(config, expected);
    }
}
