//! The configuration of a simulated sweep.

use anyhow::Context;
use fgrpo_core::sim::{Optimizer, Setup, Simulation, Surrogate};
use fgrpo_eval::bad_input;
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
    /// Focal exponents; 0 is no focal weight. The first is drawn solid, the others dashed.
    pub gammas: Vec<f64>,
    /// Seeds; a number k stands for 0, 1, ..., k - 1.
    #[serde(deserialize_with = "seeds")]
    pub seeds: Vec<u64>,
    /// Steps of a run.
    pub steps: u64,
    /// Steps between two recorded ones; the start and the last step always are.
    pub record_every: u64,
    /// Number of actions.
    pub actions: usize,
    /// Correct actions among them.
    pub correct: usize,
    /// Anchors among the correct ones: they start likelier.
    pub anchors: usize,
    /// Starting logit of an anchor.
    pub anchor_logit: f64,
    /// Starting logit of the other correct actions.
    pub correct_logit: f64,
    /// Starting logit of the wrong actions.
    pub wrong_logit: f64,
    /// Reward of a correct action.
    pub reward_correct: f64,
    /// Reward of a wrong action.
    pub reward_wrong: f64,
    /// "ratio": advantages times p / stopgrad(p); "probability": times p, as the paper prints it.
    pub surrogate: SurrogateName,
    /// "adamw" or "sgd".
    pub optimizer: OptimizerName,
    /// Learning rate.
    pub lr: f64,
    /// AdamW's decay of the gradient's mean.
    pub beta1: f64,
    /// AdamW's decay of the gradient's second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, of both optimizers.
    pub weight_decay: f64,
}

/// [`Surrogate`] by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SurrogateName {
    /// [`Surrogate::Ratio`].
    Ratio,
    /// [`Surrogate::Probability`].
    Probability,
}

/// [`Optimizer`] by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerName {
    /// [`Optimizer::AdamW`].
    AdamW,
    /// [`Optimizer::Sgd`].
    Sgd,
}

impl Default for Config {
    /// The paper's sweep.
    fn default() -> Self {
        let setup = Setup::default();
        let Optimizer::AdamW { beta1, beta2, eps } = setup.optimizer else {
            unreachable!("the paper's default is AdamW")
        };
        Self {
            group_sizes: (1..=17).map(|i| 1 << i).collect(),
            gammas: vec![0.0, 1.0],
            seeds: vec![0, 1, 2, 3],
            steps: 1_000,
            record_every: 10,
            actions: setup.actions,
            correct: setup.correct,
            anchors: setup.anchors,
            anchor_logit: setup.anchor_logit,
            correct_logit: setup.correct_logit,
            wrong_logit: setup.wrong_logit,
            reward_correct: setup.reward_correct,
            reward_wrong: setup.reward_wrong,
            surrogate: SurrogateName::Ratio,
            optimizer: OptimizerName::AdamW,
            lr: setup.lr,
            beta1,
            beta2,
            eps,
            weight_decay: setup.weight_decay,
        }
    }
}

impl Config {
    /// Reads a TOML file, applies `key=value` overrides and checks the result.
    ///
    /// # Errors
    /// Bad input, naming the file, the key, what was found and what was wanted.
    pub fn load(path: &Path, overrides: &[String]) -> anyhow::Result<Self> {
        read(path, |text| Self::parse(text, overrides))
    }

    /// [`Config::load`] on the text itself.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, overrides: &[String]) -> anyhow::Result<Self> {
        let config: Self = typed(text, &Override::of("--set", overrides), |_| Vec::new())?;
        config.check()?;
        Ok(config)
    }

    /// The resolved configuration, every default written out.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a configuration is always TOML")
    }

    fn check(&self) -> anyhow::Result<()> {
        let setup = self.setup();
        setup.check()?;
        distinct("group_sizes", self.group_sizes.iter())?;
        distinct("gammas", self.gammas.iter().map(|g| g.to_bits()).collect::<Vec<_>>().iter())?;
        distinct("seeds", self.seeds.iter())?;
        if self.steps == 0 {
            bad_input!("steps: found 0, wanted at least 1");
        }
        if self.record_every == 0 {
            bad_input!("record_every: found 0, wanted at least 1");
        }
        for &n in &self.group_sizes {
            Simulation::new(&setup, n, 0.0, 0).context("group_sizes")?;
        }
        for &gamma in &self.gammas {
            Simulation::new(&setup, 1, gamma, 0).context("gammas")?;
        }
        Ok(())
    }

    /// The policy and its update.
    pub fn setup(&self) -> Setup {
        Setup {
            actions: self.actions,
            correct: self.correct,
            anchors: self.anchors,
            anchor_logit: self.anchor_logit,
            correct_logit: self.correct_logit,
            wrong_logit: self.wrong_logit,
            reward_correct: self.reward_correct,
            reward_wrong: self.reward_wrong,
            surrogate: match self.surrogate {
                SurrogateName::Ratio => Surrogate::Ratio,
                SurrogateName::Probability => Surrogate::Probability,
            },
            optimizer: match self.optimizer {
                OptimizerName::AdamW => {
                    Optimizer::AdamW { beta1: self.beta1, beta2: self.beta2, eps: self.eps }
                }
                OptimizerName::Sgd => Optimizer::Sgd,
            },
            lr: self.lr,
            weight_decay: self.weight_decay,
        }
    }

    /// Number of runs in the sweep.
    pub fn runs(&self) -> usize {
        self.group_sizes.len() * self.gammas.len() * self.seeds.len()
    }

    /// Whether the policy is recorded after this step.
    pub fn records(&self, step: u64) -> bool {
        step.is_multiple_of(self.record_every) || step == self.steps
    }
}

fn distinct<T: Ord + Clone>(key: &str, values: impl Iterator<Item = T>) -> anyhow::Result<()> {
    let mut all: Vec<T> = values.collect();
    let count = all.len();
    all.sort();
    all.dedup();
    if count == 0 {
        bad_input!("{key}: found an empty list, wanted at least one value");
    }
    if all.len() < count {
        bad_input!("{key}: found a value twice, wanted distinct ones");
    }
    Ok(())
}

/// Most seeds of a sweep, each of which is a run.
const MOST_SEEDS: u64 = 1_000_000;

/// A list of seeds, or how many.
fn seeds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "wanted a list of seeds, or how many")]
    enum Seeds {
        Count(u64),
        List(Vec<u64>),
    }
    Ok(match Seeds::deserialize(deserializer)? {
        Seeds::Count(n) if n > MOST_SEEDS => {
            return Err(D::Error::custom(format_args!("found {n}, wanted at most {MOST_SEEDS} seeds")));
        }
        Seeds::Count(n) => (0..n).collect(),
        Seeds::List(list) => list,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(text: &str, overrides: &[&str]) -> String {
        let overrides: Vec<String> = overrides.iter().map(|s| (*s).to_owned()).collect();
        format!("{:#}", Config::parse(text, &overrides).unwrap_err())
    }

    #[test]
    fn the_configuration_in_the_repository_is_the_default() {
        let text = include_str!("../../../../configs/simulation.toml");
        assert_eq!(Config::parse(text, &[]).unwrap(), Config::default());
        assert_eq!(Config::default().runs(), 136);
    }

    #[test]
    fn the_long_configuration_differs_by_rate_length_and_recording_only() {
        let text = include_str!("../../../../configs/simulation-long.toml");
        let found = Config::parse(text, &[]).unwrap();
        assert_eq!((found.lr, found.steps), (1e-3, 50_000));
        let wanted =
            Config { lr: 1e-3, steps: 50_000, record_every: found.record_every, ..Config::default() };
        assert_eq!(found, wanted);
    }

    #[test]
    fn a_resolved_configuration_reads_back_as_itself() {
        let set: Vec<String> =
            ["lr=3e-3", "surrogate=probability", "group_sizes=2,4", "seeds=[7]", "optimizer=\"sgd\""]
                .map(str::to_owned)
                .to_vec();
        let config = Config::parse("steps = 5", &set).unwrap();
        assert_eq!((config.lr, config.steps, config.optimizer), (3e-3, 5, OptimizerName::Sgd));
        assert_eq!(
            (config.group_sizes.as_slice(), config.seeds.as_slice()),
            ([2, 4].as_slice(), [7].as_slice())
        );
        assert_eq!(Config::parse(&config.to_toml(), &[]).unwrap(), config);
        assert_eq!(Config::parse("seeds = 3", &[]).unwrap().seeds, [0, 1, 2]);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(refuse("learning_rate = 1", &[]).contains("learning_rate"));
        assert!(refuse("lr = nan", &[]).contains("lr: found NaN"));
        assert!(refuse("", &["correct=128001"]).contains("correct: found 128001"));
        assert!(refuse("", &["group_sizes=0,2"]).contains("group_size: found 0"));
        assert!(refuse("", &["group_sizes=[]"]).contains("group_sizes: found an empty list"));
        assert!(refuse("", &["gammas=nan"]).contains("gammas"));
        assert!(refuse("", &["gammas=[-1]"]).contains("gamma: found -1"));
        assert!(refuse("", &["seeds=[1,1]"]).contains("seeds: found a value twice"));
        assert!(refuse("", &["steps=0"]).contains("steps: found 0"));
        assert!(refuse("", &["record_every=0"]).contains("record_every: found 0"));
        assert!(refuse("", &["surrogate=log"]).contains("surrogate"));
        assert!(refuse("", &["lr"]).contains("wanted key=value"));
        assert!(refuse("", &["lr=fast"]).contains("lr"));
        assert!(refuse("seeds = -1", &[]).contains("seeds"));
    }
}
