//! Optimizer updates from groups with advantages.

use crate::config::{AlgorithmConfig, Truncated, UpdateConfig};
use crate::credit::Credited;
use crate::policy::{AdamW, Datum, Loss, Policy, TokenSums, level_tokens};
use anyhow::bail;
use fgrpo_core::loss::daro::Daro;
use fgrpo_core::loss::{Objective, PolicyLoss};
use fgrpo_nn::{CHECK_LAYERS, Finish, UpdateReport};
use serde::{Deserialize, Serialize};

/// The objective of an update.
#[derive(Debug, Clone, Copy)]
pub struct LossSettings {
    /// The loss of a mini-batch.
    pub objective: Objective,
    /// Log-probabilities are computed from `softmax(logits / temperature)`.
    pub temperature: f32,
    /// Whether the loss leaves out completions that the length limit cut off.
    pub mask_truncated: bool,
    /// Learning rate of DARO's weights, or `None` without DARO.
    pub daro_lr: Option<f64>,
    /// Coefficient of the teacher's term in the advantage of each token.
    pub teacher_coef: f64,
}

impl LossSettings {
    /// Returns the objective of a configuration.
    pub fn of(algorithm: &AlgorithmConfig, max_new_tokens: usize, temperature: f32) -> Self {
        let daro_lr = algorithm.daro.then_some(algorithm.daro_lr);
        let mask_truncated = algorithm.truncated == Truncated::Mask;
        let (objective, teacher_coef) = (algorithm.objective(max_new_tokens), algorithm.teacher_coef);
        Self { objective, temperature, mask_truncated, daro_lr, teacher_coef }
    }
}

impl LossSettings {
    /// Returns the objective after `updates` updates of a step.
    fn objective_after(&self, updates: u64) -> Objective {
        let mut objective = self.objective;
        // The penalty is 0 while the policy hasn't changed. Its gradient would only be the sign of rounding
        // differences.
        if let (PolicyLoss::KlCov { coef, .. }, 0) = (&mut objective.policy, updates) {
            *coef = 0.0;
        }
        objective
    }
}

/// State carried from one update to the next, besides the engine's weights and optimizer. It is stored in checkpoints.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateState {
    /// Consecutive updates skipped because the loss or gradient wasn't finite.
    pub skipped_in_a_row: u64,
    /// DARO's parameters before softplus, indexed by the number of correct completions, starting at 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daro: Option<Vec<f64>>,
}

/// Sums over a step's updates, for the metrics.
#[derive(Debug, Clone, Default)]
pub struct Sums {
    /// Sums over the tokens of all updates.
    pub tokens: TokenSums,
    /// Largest `|logp - old_logp|` in the first update.
    pub logp_difference_max: f64,
    /// Gradient norms before clipping, summed over updates.
    pub gradient_norm: f64,
    /// Number of applied optimizer updates.
    pub applied: u64,
    /// Number of optimizer updates skipped because the loss or gradient wasn't finite.
    pub skipped: u64,
}

impl UpdateState {
    /// Initialises DARO's weights to 1, unless the checkpoint has weights for this group size. `None` means no DARO.
    pub fn prepare(&mut self, group_size: Option<usize>) {
        self.daro = group_size.map(|group_size| {
            let saved = self.daro.take().filter(|raw| raw.len() + 1 == group_size);
            saved.unwrap_or_else(|| Daro::new(group_size).raw)
        });
    }

    /// Returns DARO's weights, indexed by the number of correct completions, starting at 1. Empty without DARO.
    pub fn daro_weights(&self) -> Vec<f64> {
        let daro = Daro { raw: self.daro.clone().unwrap_or_default() };
        (0..daro.raw.len()).map(|level| daro.weight(level)).collect()
    }
}

/// Runs the optimizer updates of one rollout batch: `epochs` passes over mini-batches of prompts.
///
/// A mini-batch without a graded completion makes no update. Returns early when `state.skipped_in_a_row` reaches
/// `max_skipped`; the caller must then stop the run. DARO's weights are updated after the model's, from the losses of the same forward pass.
pub fn update(
    policy: &mut Policy,
    groups: &[&Credited],
    loss: &LossSettings,
    config: &UpdateConfig,
    lr: f64,
    state: &mut UpdateState,
) -> anyhow::Result<Sums> {
    let mut sums = Sums::default();
    let size = even_size(groups.len(), config.mini_batch.unwrap_or(groups.len()));
    let UpdateConfig { betas: [beta1, beta2], eps, weight_decay, .. } = *config;
    let adamw = AdamW { lr, beta1, beta2, eps, weight_decay, ..AdamW::default() };
    policy.set_pass_tokens(config.micro_batch_tokens());
    for _ in 0..config.epochs {
        for mini_batch in groups.chunks(size) {
            let raw = state.daro.clone().filter(|_| loss.daro_lr.is_some());
            let daro = raw.map(|raw| Daro { raw });
            let data = data(mini_batch, loss, daro.as_ref());
            if data.is_empty() {
                // An update with gradient 0 would still move the policy, by momentum and weight decay.
                continue;
            }
            let tokens = level_tokens(&data, daro.as_ref());
            let objective = loss.objective_after(sums.applied);
            let policy_loss = Loss::Policy { objective, daro: daro.clone() };
            let batch = policy.forward_backward(&data, &policy_loss, loss.temperature)?.sums;
            if sums.applied + sums.skipped == 0 {
                sums.logp_difference_max = batch.logp_difference_max;
            }
            sums.tokens.add(&batch);
            let report = if batch.loss.is_finite() {
                policy.step(&adamw, Some(config.max_grad_norm))?
            } else {
                policy.zero_gradient();
                UpdateReport { gradient_norm: f64::NAN, applied: false }
            };
            if report.applied {
                sums.applied += 1;
                sums.gradient_norm += report.gradient_norm;
                state.skipped_in_a_row = 0;
                if let (Some(mut daro), Some(lr)) = (daro, loss.daro_lr) {
                    daro.step(&batch.level_losses, &tokens, lr);
                    state.daro = Some(daro.raw);
                }
            } else {
                sums.skipped += 1;
                state.skipped_in_a_row += 1;
                if state.skipped_in_a_row >= config.max_skipped {
                    return Ok(sums);
                }
            }
        }
    }
    Ok(sums)
}

/// Returns the size of mini-batches that divide the groups evenly over as few updates as `largest` allows. If groups were
/// dropped, no update then has only the last few.
fn even_size(groups: usize, largest: usize) -> usize {
    groups.div_ceil(groups.div_ceil(largest.max(1)).max(1)).max(1)
}

/// Returns the data of a mini-batch: its completions with a verdict and at least one token.
fn data(groups: &[&Credited], loss: &LossSettings, daro: Option<&Daro>) -> Vec<Datum> {
    let group_data = |group: &&Credited| {
        let (rollouts, assigned) = (&group.rollouts, &group.assigned);
        let level = daro.and_then(|daro| daro.level(assigned.success_rate?));
        let masked = |i: &usize| loss.mask_truncated && rollouts.completions[*i].finish == Finish::Length;
        let datum = |i: usize| Datum {
            sequences: rollouts.sequences(i),
            logprobs: rollouts.completions[i].logp.clone(),
            advantages: advantages(group, i, loss.teacher_coef),
            entropy: rollouts.completions[i].entropy.clone(),
            ref_logprobs: rollouts.ref_logp.as_ref().map(|all| all[i].clone()),
            sampler_logprobs: rollouts.sampler_logp.as_ref().map(|all| all[i].clone()),
            level,
        };
        let trained = group.scored().filter(|i| !masked(i) && group.length(*i) > 0);
        trained.map(datum).collect::<Vec<Datum>>()
    };
    groups.iter().flat_map(group_data).collect()
}

/// Returns the advantages of a completion's tokens: the advantage from its reward, plus `g coef (logp_teacher - logp)`
/// with a teacher, where `g` is the group's focal weight.
fn advantages(group: &Credited, completion: usize, teacher_coef: f64) -> Vec<f64> {
    let advantage = group.assigned.advantages[completion];
    let Some(teacher) = &group.rollouts.teacher_logp else {
        return vec![advantage; group.length(completion)];
    };
    let coef = teacher_coef * group.assigned.focal_weight;
    let (teacher, sampled) = (&teacher[completion], &group.rollouts.completions[completion].logp);
    assert_eq!(teacher.len(), sampled.len(), "the teacher scored other tokens than the policy sampled");
    let logp = teacher.iter().zip(sampled);
    logp.map(|(&teacher, &logp)| advantage + coef * (f64::from(teacher) - f64::from(logp))).collect()
}

/// Fails if `skipped_in_a_row` has reached `limit`.
pub fn check_skipped(skipped_in_a_row: u64, limit: u64) -> anyhow::Result<()> {
    if skipped_in_a_row >= limit {
        bail!(
            "{skipped_in_a_row} updates in a row had a loss or gradient that isn't finite; the run stopped and saved its state. Lower update.lr or raise update.max_skipped; set {CHECK_LAYERS}=on to find the first layer or tensor with such a number"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
