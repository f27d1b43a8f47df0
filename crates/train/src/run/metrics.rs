//! The metrics of a step, one line per step. `docs/metrics.md` explains every field.

use crate::credit::Credited;
use crate::evaluation::exact::MassMetrics;
use crate::problem::Task;
use crate::update::Sums;
use fgrpo_core::loss::Correction;
use fgrpo_core::stats::mean;
use fgrpo_eval::io::json::{self, Misfit};
use fgrpo_eval::io::lines;
use fgrpo_nn::Finish;
use fgrpo_verify::verdict::Verdict;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Fields that are null in a step without anything to measure: no scored completion, no active group, or no applied
/// update.
const OFTEN_NULL: [&str; 7] = [
    "reward_mean",
    "reward_by_part",
    "advantage_abs_mean",
    "focal_weight_mean",
    "gradient_norm",
    "unsampled_sign_agrees",
    "unsampled_sign_agrees_centred",
];

/// Maximum number of bins in the success-rate histogram. Smaller groups have one bin per possible success rate.
const MAX_BINS: usize = 33;

/// A measured number that was read from a line, or `None` if it wasn't finite, which JSON can't represent. Unlike an
/// `Option`, the field must be present, so that a renamed field is an error instead of a series of missing numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Number(pub Option<f64>);

/// A line of `metrics.jsonl`, used for both writing and reading. Measured numbers are `f64` when written, and
/// [`Number`] when read.
///
/// All fields are required. A field that is added later gets a serde default, so that lines of earlier versions can
/// be read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics<N> {
    /// RL step, from 1.
    pub step: u64,
    /// Mean reward of the scored completions.
    pub reward_mean: N,
    /// Mean reward by source of problems, if there are several.
    #[serde(default = "BTreeMap::new", skip_serializing_if = "BTreeMap::is_empty")]
    pub reward_by_part: BTreeMap<String, N>,
    /// Mean of each named reward, if the grader returns several.
    #[serde(default = "BTreeMap::new", skip_serializing_if = "BTreeMap::is_empty")]
    pub rewards: BTreeMap<String, N>,
    /// Fraction of groups whose rewards aren't all equal.
    pub active_fraction: N,
    /// Histogram of groups by success rate, with bins from 0 to 1: one per possible rate, at most 33, of which the first
    /// and the last have only the rates 0 and 1.
    pub success_rate_histogram: Vec<u64>,
    /// Mean focal weight of the active groups.
    pub focal_weight_mean: N,
    /// Mean absolute advantage of the scored completions, without a teacher's term.
    pub advantage_abs_mean: N,
    /// Mean entropy of the distributions of the sampled tokens, in nats.
    pub entropy: N,
    /// Fraction of completions that are distinct.
    pub distinct_fraction: N,
    /// Aggregated policy loss, averaged over the step's updates.
    pub policy_loss: N,
    /// Aggregated KL penalty before its coefficient, averaged over the step's updates.
    pub kl_loss: N,
    /// Mean ratio `exp(logp - old_logp)` over the tokens in the update.
    pub ratio_mean: N,
    /// Largest ratio.
    pub ratio_max: N,
    /// Fraction of tokens clipped at the lower bound.
    pub clip_fraction_low: N,
    /// Fraction of tokens clipped at the upper bound.
    pub clip_fraction_high: N,
    /// Mean of `old_logp - logp` over the tokens in the update.
    pub kl_to_sampler: N,
    /// Largest `|logp - old_logp|` in the first update, when sampler and learner have the same weights.
    pub logp_difference_max: N,
    /// Global gradient norm before clipping, averaged over the step's updates.
    pub gradient_norm: N,
    /// Learning rate.
    pub lr: N,
    /// Mean completion length in tokens.
    pub completion_length_mean: N,
    /// Longest completion in tokens.
    pub completion_length_max: u64,
    /// Fraction of completions cut off by the length limit.
    pub truncated_fraction: N,
    /// With an environment: mean number of the policy's turns in an episode.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub turns_mean: Option<N>,
    /// Completion tokens sampled per second.
    pub rollout_tokens_per_second: N,
    /// Completion tokens trained on per second.
    pub update_tokens_per_second: N,
    /// Seconds by phase.
    pub seconds: Seconds<N>,
    /// Completions by verdict.
    #[serde(deserialize_with = "counts")]
    pub verdicts: BTreeMap<String, u64>,
    /// Completions by the verifier's reason code.
    #[serde(deserialize_with = "counts")]
    pub reasons: BTreeMap<String, u64>,
    /// Correct completions by the verifier's reason code. Empty in older files.
    #[serde(default, deserialize_with = "counts", skip_serializing_if = "BTreeMap::is_empty")]
    pub correct_reasons: BTreeMap<String, u64>,
    /// Updates of this step that were skipped because the loss or gradient wasn't finite.
    pub skipped_updates: u64,
    /// DARO's weights after the step, indexed by the number of correct completions, starting at 1. Empty without DARO.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub daro_weights: Vec<N>,
    /// HA-DW's estimate of the policy's success rate after the step, if HA-DW is configured.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub difficulty_anchor: Option<N>,
    /// Scheduled values at the step, by key; a list has a key for each index.
    #[serde(default = "BTreeMap::new", skip_serializing_if = "BTreeMap::is_empty")]
    pub scheduled: BTreeMap<String, N>,
    /// If a server samples: differences between its log-probabilities and the trainer's.
    #[serde(flatten)]
    pub sampler: Option<SamplerMetrics<N>>,
    /// Differences between the teacher's log-probabilities and the policy's, if there is a teacher.
    #[serde(flatten)]
    pub teacher: Option<TeacherMetrics<N>>,
    /// With `eval.exact`, at the steps of an evaluation: changes by the update of the mass on correct completions.
    #[serde(flatten)]
    pub masses: Option<MassMetrics<N>>,
}

/// Reads counts by name, without null counts.
fn counts<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let counts = BTreeMap::<String, Option<u64>>::deserialize(deserializer)?;
    Ok(counts.into_iter().filter_map(|(name, count)| Some((name, count?))).collect())
}

/// The metrics of one RL step.
pub type Metrics = StepMetrics<f64>;

/// The metrics of one RL step, as read from its line.
pub type Logged = StepMetrics<Number>;

/// Differences between the server's log-probabilities and the trainer's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SamplerMetrics<N = f64> {
    /// Mean over tokens of |trainer's log-probability - server's|.
    pub sampler_logp_difference_mean: N,
    /// Largest such difference.
    pub sampler_logp_difference_max: N,
    /// Mean weight of the correction over tokens, as used in the loss, or 1 if the correction is off.
    pub correction_mean: N,
    /// Fraction of tokens whose weight was truncated (`tis`) or set to 0 (`mask`).
    pub correction_bounded_fraction: N,
}

impl SamplerMetrics {
    /// Computes the differences over a step's groups. Returns `None` if the trainer's engine sampled.
    pub fn of_step(groups: &[Credited], correction: Correction) -> Option<Self> {
        let (mut m, mut tokens) = (Self::default(), 0u64);
        for group in groups {
            let Some(sampler) = &group.rollouts.sampler_logp else { continue };
            for (completion, reported) in group.rollouts.completions.iter().zip(sampler) {
                for (logp, reported) in completion.logp.iter().zip(reported) {
                    let difference = (f64::from(*logp) - f64::from(*reported)).abs();
                    m.sampler_logp_difference_mean += difference;
                    m.sampler_logp_difference_max = m.sampler_logp_difference_max.max(difference);
                }
                for weight in correction.weights(&completion.logp, reported) {
                    m.correction_mean += weight.value;
                    m.correction_bounded_fraction += f64::from(u8::from(weight.bounded));
                }
                tokens += completion.logp.len() as u64;
            }
        }
        let n = tokens as f64;
        m.sampler_logp_difference_mean /= n;
        m.correction_mean /= n;
        m.correction_bounded_fraction /= n;
        (tokens > 0).then_some(m)
    }
}

/// Differences between a teacher's log-probabilities and the policy's, over the samples of the groups in the update.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TeacherMetrics<N = f64> {
    /// Mean over tokens of the policy's log-probability minus the teacher's, which estimates the reverse KL divergence
    /// of a token.
    pub teacher_kl: N,
    /// Fraction of tokens to which the teacher gives less than half of the policy's probability.
    pub teacher_disagreement: N,
}

impl TeacherMetrics {
    /// Averages over the tokens of a step's groups. Returns `None` if the teacher didn't score any.
    pub fn of_step(groups: &[Credited]) -> Option<Self> {
        let groups =
            groups.iter().filter_map(|g| Some((&g.rollouts.completions, g.rollouts.teacher_logp.as_ref()?)));
        let completions = groups.flat_map(|(completions, teacher)| completions.iter().zip(teacher));
        let tokens = completions.flat_map(|(completion, teacher)| completion.logp.iter().zip(teacher));
        let gaps: Vec<f64> = tokens.map(|(logp, teacher)| f64::from(*logp) - f64::from(*teacher)).collect();
        let disagrees = |gap: &f64| f64::from(u8::from(*gap > std::f64::consts::LN_2));
        (!gaps.is_empty()).then(|| Self {
            teacher_kl: mean(gaps.iter().copied()),
            teacher_disagreement: mean(gaps.iter().map(disagrees)),
        })
    }
}

/// Seconds by phase of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds<N = f64> {
    /// Sampling.
    pub rollout: N,
    /// Verifying.
    pub grade: N,
    /// Forward, backward, optimizer.
    pub update: N,
    /// The evaluation after the step.
    pub evaluate: N,
    /// Saving the checkpoint after the step.
    pub save: N,
    /// The whole step.
    pub total: N,
}

impl Metrics {
    /// Returns the number of completions with this verdict.
    pub fn count(&self, verdict: &str) -> u64 {
        self.verdicts.get(verdict).copied().unwrap_or(0)
    }

    /// Returns the number of completions.
    pub fn completions(&self) -> u64 {
        self.verdicts.values().sum()
    }

    /// Returns a summary of the step for the progress line.
    pub fn in_short(&self) -> String {
        let number = |value: f64, digits| {
            if value.is_nan() { "-".to_owned() } else { format!("{value:.digits$}") }
        };
        let [reward, entropy] = [self.reward_mean, self.entropy].map(|value| number(value, 3));
        format!("reward {reward} entropy {entropy} |g| {}", number(self.gradient_norm, 2))
    }

    /// Computes the metrics of a step from its groups and the update's sums. The times of evaluation and saving are
    /// added later.
    pub fn of_step(step: u64, lr: f64, groups: &[Credited], sums: &Sums, seconds: &Seconds) -> Self {
        let mut m = Self { step, lr, seconds: *seconds, ..Self::default() };
        let scored = || groups.iter().flat_map(|g| g.scored().map(move |i| (g, i)));
        m.reward_mean = mean(scored().map(|(g, i)| g.rewards[i]));
        m.advantage_abs_mean = mean(scored().map(|(g, i)| g.assigned.advantages[i].abs()));
        let active: Vec<&Credited> = groups.iter().filter(|g| g.has_mixed_rewards()).collect();
        m.active_fraction = active.len() as f64 / groups.len().max(1) as f64;
        m.focal_weight_mean = mean(active.iter().map(|g| g.assigned.focal_weight));
        let size = groups.iter().map(|g| g.grades.len()).max().unwrap_or(1);
        m.success_rate_histogram = vec![0; (size + 1).min(MAX_BINS)];
        // Without a threshold, graded rewards have no success rate, but completions still have verdicts.
        let by_verdicts = |g: &Credited| {
            let scored: Vec<usize> = g.scored().collect();
            let correct = scored.iter().filter(|&&i| g.grades[i].verdict == Verdict::Correct).count();
            (!scored.is_empty()).then(|| correct as f64 / scored.len() as f64)
        };
        for rate in groups.iter().filter_map(|g| g.assigned.success_rate.or_else(|| by_verdicts(g))) {
            let last = m.success_rate_histogram.len() - 1;
            let bin = (rate * last as f64).round() as usize;
            let bin = if 0.0 < rate && rate < 1.0 { bin.clamp(1, last - 1) } else { bin };
            m.success_rate_histogram[bin] += 1;
        }
        for g in groups.iter().flat_map(|g| &g.grades) {
            *m.verdicts.entry(g.verdict.name().to_owned()).or_default() += 1;
            *m.reasons.entry(g.reason.to_string()).or_default() += 1;
            if g.verdict == Verdict::Correct {
                *m.correct_reasons.entry(g.reason.to_string()).or_default() += 1;
            }
        }
        let completions = || groups.iter().flat_map(|g| &g.rollouts.completions);
        let n = completions().count().max(1) as f64;
        let tokens: usize = completions().map(|c| c.tokens.len()).sum();
        m.entropy = mean(completions().flat_map(|c| &c.entropy).map(|&e| f64::from(e)));
        m.completion_length_mean = tokens as f64 / n;
        m.completion_length_max = completions().map(|c| c.tokens.len()).max().unwrap_or(0) as u64;
        m.truncated_fraction = completions().filter(|c| c.finish == Finish::Length).count() as f64 / n;
        let episodes = || groups.iter().filter_map(|g| g.rollouts.episodes.as_ref()).flatten();
        m.turns_mean = episodes().next().map(|_| mean(episodes().map(|episode| episode.turns as f64)));
        let distinct =
            |g: &Credited| g.rollouts.completions.iter().map(|c| &c.tokens).collect::<BTreeSet<_>>().len();
        m.distinct_fraction = groups.iter().map(distinct).sum::<usize>() as f64 / n;
        let trained = &sums.tokens;
        let seen = trained.tokens.max(1) as f64;
        let updates = (sums.applied + sums.skipped).max(1) as f64;
        m.policy_loss = trained.policy_loss / updates;
        m.kl_loss = trained.kl / seen;
        m.ratio_mean = if trained.tokens == 0 { 1.0 } else { trained.ratio / seen };
        m.ratio_max = if trained.tokens == 0 { 1.0 } else { trained.ratio_max };
        m.clip_fraction_low = trained.clipped_low as f64 / seen;
        m.clip_fraction_high = trained.clipped_high as f64 / seen;
        m.kl_to_sampler = trained.kl_to_sampler / seen;
        m.logp_difference_max = sums.logp_difference_max;
        m.gradient_norm = sums.gradient_norm / sums.applied as f64;
        m.skipped_updates = sums.skipped;
        m.rollout_tokens_per_second = tokens as f64 / seconds.rollout.max(1e-9);
        m.update_tokens_per_second = tokens as f64 / seconds.update.max(1e-9);
        m
    }

    /// Returns the mean of each named reward over the scored completions that have it.
    pub fn named_rewards(groups: &[Credited]) -> BTreeMap<String, f64> {
        let mut by_name: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let grades = groups.iter().flat_map(|g| g.scored().map(move |i| &g.grades[i]));
        for (name, reward) in grades.flat_map(|grade| &grade.rewards) {
            by_name.entry(name).or_default().push(*reward);
        }
        by_name.into_iter().map(|(name, all)| (name.to_owned(), mean(all.into_iter()))).collect()
    }

    /// Returns the mean reward of the scored completions by source of problems, or an empty map if there is only one
    /// source.
    pub fn reward_by_part(task: &Task, groups: &[Credited]) -> BTreeMap<String, f64> {
        let mut rewards: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for group in groups {
            if let Some(part) = task.part(&group.rollouts.prompt) {
                let values = rewards.entry(part.to_owned()).or_default();
                values.extend(group.scored().map(|i| group.rewards[i]));
            }
        }
        rewards.into_iter().map(|(part, rewards)| (part, mean(rewards.into_iter()))).collect()
    }

    /// Returns the line to log. Non-finite values become null.
    pub fn line(&self) -> Value {
        serde_json::to_value(self).expect("metrics are JSON")
    }
}

/// Returns the scalar fields of a line, by name, for TensorBoard. Non-finite values are left out.
pub fn scalars(line: &Value) -> Vec<(String, f64)> {
    let measured = json::leaves(line, "/").into_iter().filter(|(name, _)| name != "step");
    measured.filter_map(|(name, value)| Some((name, value.as_f64()?))).collect()
}

/// Returns the names of the fields of a line that aren't finite, except those that had nothing to measure.
pub fn not_finite(line: &Value) -> Vec<String> {
    let names =
        json::leaves(line, "/").into_iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name);
    names.filter(|name| !OFTEN_NULL.contains(&name.split('/').next().unwrap_or(name))).collect()
}

/// Reads the lines of a run.
pub fn read(path: &Path) -> anyhow::Result<Vec<Logged>> {
    lines::read(path)
}

/// Converts a line to metrics. Non-finite values become 0. Fails if the line has another format.
pub fn of_line(mut line: Value) -> Result<Metrics, Misfit> {
    finite(&mut line);
    json::of_value(line)
}

fn finite(value: &mut Value) {
    match value {
        Value::Null => *value = Value::from(0),
        Value::Array(list) => list.iter_mut().for_each(finite),
        Value::Object(map) => map.values_mut().for_each(finite),
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
        m.ratio_max = f64::INFINITY;
        let line = m.line();
        let scalars = scalars(&line);
        assert_eq!(not_finite(&line), ["ratio_max"]);
        assert!(!scalars.iter().any(|(n, _)| n == "ratio_max"));
        assert!(scalars.contains(&("reward_mean".into(), 0.5)));
        assert!(scalars.contains(&("verdicts/correct".into(), 7.0)));
        assert!(!scalars.iter().any(|(n, _)| n.contains("histogram") || n == "step"));
    }

    #[test]
    fn a_step_without_a_scored_completion_or_an_update_has_no_means() {
        let m = Metrics::of_step(1, 0.1, &[], &Sums::default(), &Seconds::default());
        let line = m.line();
        for name in ["reward_mean", "advantage_abs_mean", "focal_weight_mean", "gradient_norm"] {
            assert!(line[name].is_null(), "{name}: {}", line[name]);
        }
        assert_eq!(not_finite(&line), ["entropy"]);
        assert_eq!(m.in_short(), "reward - entropy - |g| -");
    }
}
