//! Exact measures of a policy on problems whose correct completions can all be listed, so that the measures need neither
//! samples nor an estimator.

use fgrpo_core::stats::mean;
use fgrpo_core::theory::solutions::Solutions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The paper's largest k, at which pass@k is always computed.
const LARGEST: u64 = 256;

/// Measures of a policy, each a mean over problems.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Exact {
    /// Number of correct completions.
    pub solutions: f64,
    /// Probability that a completion is correct, `Q_pos`. It equals pass@1.
    pub mass: f64,
    /// Expected probability mass of the correct completions that a group of the run's size doesn't sample, `Q_u,pos`.
    pub unsampled_mass: f64,
    /// Probability that a group of the run's size is active and doesn't sample a given correct completion, averaged over
    /// the correct completions (the paper's lemma 1).
    pub tail_miss: f64,
    /// Effective number of correct completions: the exponential of the entropy of their distribution.
    pub effective: f64,
    /// pass@k by k.
    pub pass_at_k: BTreeMap<u64, f64>,
    /// Fraction of the correct completions' initial probability that they retain, `M_ret`. `None` if the policy
    /// before RL wasn't measured on these problems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<f64>,
    /// Fraction of the correct completions with less than a tenth of their probability before RL, or `None` like
    /// `retained`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below_a_tenth: Option<f64>,
    /// Log-probability of each correct completion of each problem.
    pub logp: Vec<Vec<f32>>,
}

/// Builds the solutions of each problem from their log-probabilities.
fn solutions(logp: &[Vec<f32>]) -> anyhow::Result<Vec<Solutions>> {
    let one = |logp: &Vec<f32>| Ok(Solutions::new(logp.iter().map(|&l| f64::from(l)))?);
    logp.iter().map(one).collect()
}

impl Exact {
    /// Computes the measures from the log-probability of each solution of each problem. `start` has the
    /// log-probabilities under the policy before RL.
    ///
    /// Returns an error if a value isn't a log-probability.
    pub fn of(
        logp: &[Vec<f32>],
        start: Option<&[Vec<f32>]>,
        group_size: u64,
        ks: &[u64],
    ) -> anyhow::Result<Self> {
        let now = solutions(logp)?;
        let start = start.map(solutions).transpose()?;
        let average = |measure: &dyn Fn(&Solutions) -> f64| mean(now.iter().map(measure));
        let change = |measure: &dyn Fn(&Solutions, &Solutions) -> f64| {
            start.as_ref().map(|start| mean(now.iter().zip(start).map(|(now, then)| measure(now, then))))
        };
        let pass_at_k = ks.iter().chain([&LARGEST]).map(|&k| (k, average(&|s| s.pass_at_k(k))));
        Ok(Self {
            solutions: average(&|s| s.count() as f64),
            mass: average(&Solutions::mass),
            unsampled_mass: average(&|s| s.unsampled_mass(group_size)),
            tail_miss: average(&|s| s.tail_miss(group_size)),
            // NaN, a mean over no problem, becomes 0.
            effective: mean(now.iter().filter_map(Solutions::effective)).max(0.0),
            pass_at_k: pass_at_k.collect(),
            retained: change(&Solutions::retained),
            below_a_tenth: change(&|now, then| now.share_below(then, 0.1)),
            logp: logp.to_vec(),
        })
    }

    /// Lists each measure with its name in TensorBoard.
    pub fn scalars(&self, set: &str) -> Vec<(String, f64)> {
        let single = [
            ("mass", Some(self.mass)),
            ("unsampled_mass", Some(self.unsampled_mass)),
            ("tail_miss", Some(self.tail_miss)),
            ("effective_solutions", Some(self.effective)),
            ("retained_mass", self.retained),
            ("below_a_tenth", self.below_a_tenth),
        ];
        let single = single.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let curve = self.pass_at_k.iter().map(|(k, p)| (format!("pass@{k}"), *p));
        single.chain(curve).map(|(name, value)| (format!("{set}/exact/{name}"), value)).collect()
    }

    /// Formats the main measures in one line.
    pub fn in_short(&self) -> String {
        let retained = self.retained.map_or(String::new(), |r| format!(", retained {:.1} %", 100.0 * r));
        format!(
            "exact mass {:.1} %{retained}, {:.1} of {:.1} solutions",
            100.0 * self.mass,
            self.effective,
            self.solutions
        )
    }
}
