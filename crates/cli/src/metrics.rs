//! One line of metrics a step; the table in `docs/metrics.md` explains each field.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The metrics of one RL step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// RL step, from 1.
    pub step: u64,
    /// Mean reward of the scored completions.
    pub reward_mean: f64,
    /// Share of groups whose rewards are not all equal.
    pub active_fraction: f64,
    /// Groups by success rate: 11 bins centred on 0, 0.1, ..., 1.
    pub success_rate_histogram: [u64; 11],
    /// Mean focal weight of the active groups.
    pub focal_weight_mean: f64,
    /// Mean absolute advantage of the scored completions.
    pub advantage_abs_mean: f64,
    /// Mean entropy of the sampled tokens' distributions, in nats.
    pub entropy: f64,
    /// Distinct completions among all of them, a share.
    pub distinct_fraction: f64,
    /// Aggregated policy loss, mean over the step's updates.
    pub policy_loss: f64,
    /// Aggregated KL penalty before its coefficient, mean over the step's updates.
    pub kl_loss: f64,
    /// Mean ratio `exp(logp - old_logp)` over the tokens of the update.
    pub ratio_mean: f64,
    /// Largest ratio.
    pub ratio_max: f64,
    /// Share of tokens clipped from below.
    pub clip_fraction_low: f64,
    /// Share of tokens clipped from above.
    pub clip_fraction_high: f64,
    /// Mean of `old_logp - logp` over the tokens of the update.
    pub kl_to_sampler: f64,
    /// Largest |logp - old_logp| in the first update, where sampler and learner are the same weights.
    pub logp_difference_max: f64,
    /// Global gradient norm before clipping, mean over the step's updates.
    pub gradient_norm: f64,
    /// Learning rate.
    pub lr: f64,
    /// Mean completion length in tokens.
    pub completion_length_mean: f64,
    /// Longest completion in tokens.
    pub completion_length_max: u64,
    /// Share of completions cut off by the length limit.
    pub truncated_fraction: f64,
    /// Completion tokens sampled a second.
    pub rollout_tokens_per_second: f64,
    /// Completion tokens learned from a second.
    pub update_tokens_per_second: f64,
    /// Seconds by phase.
    pub seconds: Seconds,
    /// Completions by verdict.
    pub verdicts: BTreeMap<String, u64>,
    /// Completions by the verifier's reason code.
    pub reasons: BTreeMap<String, u64>,
    /// Updates of this step skipped for a gradient that wasn't finite.
    pub skipped_updates: u64,
}

/// Seconds by phase of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seconds {
    /// Sampling.
    pub rollout: f64,
    /// Verifying.
    pub grade: f64,
    /// Forward, backward, optimizer.
    pub update: f64,
    /// Evaluation after the step.
    pub evaluate: f64,
    /// Checkpoint after the step.
    pub save: f64,
    /// The whole step.
    pub total: f64,
}

impl Metrics {
    /// The fields that are scalars, by name, for TensorBoard.
    pub fn scalars(&self) -> Vec<(String, f64)> {
        let mut out = Vec::new();
        flatten("", &serde_json::to_value(self).expect("metrics are JSON"), &mut out);
        out.retain(|(name, _)| name != "step");
        out
    }
}

fn flatten(prefix: &str, value: &serde_json::Value, out: &mut Vec<(String, f64)>) {
    match value {
        serde_json::Value::Number(n) => out.push((prefix.to_owned(), n.as_f64().unwrap_or(f64::NAN))),
        serde_json::Value::Object(map) => {
            for (key, v) in map {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}/{key}") };
                flatten(&name, v, out);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_flatten_nested_fields_and_leave_out_the_histogram() {
        let mut m = Metrics { step: 3, reward_mean: 0.5, ..Metrics::default() };
        m.verdicts.insert("correct".into(), 7);
        let scalars = m.scalars();
        assert!(scalars.contains(&("reward_mean".into(), 0.5)));
        assert!(scalars.contains(&("verdicts/correct".into(), 7.0)));
        assert!(!scalars.iter().any(|(n, _)| n.contains("histogram") || n == "step"));
    }
}
