//! From groups with advantages to optimizer updates: the trainer's client of the policy's loss.

use crate::config::{AlgorithmConfig, Truncated, UpdateConfig};
use crate::credit::Credited;
use crate::policy::{AdamW, Datum, Loss, Policy, Sequence, TokenSums, level_tokens};
use anyhow::bail;
use fgrpo_core::loss::daro::{Daro, Levels};
use fgrpo_core::loss::{Objective, PolicyLoss};
use fgrpo_nn::{CHECK_LAYERS, Finish, UpdateReport};
use serde::{Deserialize, Serialize};

/// The objective of an update.
#[derive(Debug, Clone, Copy)]
pub struct LossSettings {
    /// The loss of a mini-batch.
    pub objective: Objective,
    /// Log-probabilities are of `softmax(logits / temperature)`.
    pub temperature: f32,
    /// Whether completions that the length limit cut off are left out.
    pub mask_truncated: bool,
    /// Learning rate of DARO's weights. Without DARO, tokens are aggregated as the objective says.
    pub daro_lr: Option<f64>,
}

impl LossSettings {
    /// The objective of a configuration.
    pub fn of(algorithm: &AlgorithmConfig, max_new_tokens: usize, temperature: f32) -> Self {
        let daro_lr = algorithm.daro.then_some(algorithm.daro_lr);
        let mask_truncated = algorithm.truncated == Truncated::Mask;
        Self { objective: algorithm.objective(max_new_tokens), temperature, mask_truncated, daro_lr }
    }
}

impl LossSettings {
    /// The objective after so many updates of a step.
    fn objective_after(&self, updates: u64) -> Objective {
        let mut objective = self.objective;
        // The penalty on a policy that hasn't changed is 0; of log-probabilities that differ by rounding, it would take the
        // sign.
        if let (PolicyLoss::KlCov { coef, .. }, 0) = (&mut objective.policy, updates) {
            *coef = 0.0;
        }
        objective
    }
}

/// State carried from one update to the next, besides the engine's weights and optimizer; part of a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateState {
    /// Consecutive updates skipped because the loss or gradient wasn't finite.
    pub skipped_in_a_row: u64,
    /// DARO's parameters before softplus, by number of correct completions, starting at 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daro: Option<Vec<f64>>,
}

/// Sums over a step's updates, for the metrics.
#[derive(Debug, Clone, Default)]
pub struct Sums {
    /// Sums over the tokens of all updates.
    pub of_tokens: TokenSums,
    /// Largest `|logp - old_logp|` in the first update.
    pub logp_difference_max: f64,
    /// Gradient norms before clipping, summed over updates.
    pub gradient_norm: f64,
    /// Optimizer updates applied.
    pub applied: u64,
    /// Optimizer updates skipped because the gradient wasn't finite.
    pub skipped: u64,
}

impl UpdateState {
    /// Initialises DARO's weights to 1 for groups of this size, unless they already exist. A checkpoint made with
    /// another group size, or without DARO, has none. `None`: no DARO.
    pub fn prepare(&mut self, daro: Option<usize>) {
        self.daro = daro.map(|group_size| {
            let kept = self.daro.take().filter(|raw| raw.len() + 1 == group_size);
            kept.unwrap_or_else(|| Daro::new(group_size).raw)
        });
    }

    /// DARO's weights by number of correct completions, starting at 1; empty without DARO.
    pub fn daro_weights(&self) -> Vec<f64> {
        let daro = Daro { raw: self.daro.clone().unwrap_or_default() };
        (0..daro.raw.len()).map(|level| daro.weight(level)).collect()
    }
}

/// Runs the optimizer updates of one rollout batch: `epochs` passes over mini-batches of prompts.
///
/// `state.skipped_in_a_row` counts consecutive updates skipped because the loss or gradient wasn't finite. This
/// function returns early when it reaches `update.max_skipped`, and the caller must then stop the run. DARO's weights
/// are updated after the model's, from the losses of the same forward pass.
pub fn update(
    policy: &mut Policy,
    groups: &[&Credited],
    loss: &LossSettings,
    config: &UpdateConfig,
    lr: f64,
    state: &mut UpdateState,
) -> anyhow::Result<Sums> {
    let mut sums = Sums::default();
    let size = config.mini_batch.unwrap_or(groups.len()).max(1);
    let adamw = AdamW {
        lr,
        beta1: config.betas[0],
        beta2: config.betas[1],
        eps: config.eps,
        weight_decay: config.weight_decay,
        ..AdamW::default()
    };
    policy.set_pass_tokens(config.micro_batch_tokens());
    for _ in 0..config.epochs {
        for mini_batch in groups.chunks(size) {
            let raw = state.daro.clone().filter(|_| loss.daro_lr.is_some());
            let daro = raw.map(|raw| Daro { raw });
            let data = data(mini_batch, loss, daro.as_ref());
            let tokens = level_tokens(&data, daro.as_ref());
            let objective = loss.objective_after(sums.applied);
            let of_loss = Loss::Policy { objective, daro: daro.clone() };
            let found = policy.forward_backward(&data, &of_loss, loss.temperature)?.sums;
            if sums.applied + sums.skipped == 0 {
                sums.logp_difference_max = found.logp_difference_max;
            }
            sums.of_tokens.add(&found);
            let report = if found.loss.is_finite() {
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
                    daro.step(&Levels { loss: found.level_losses, tokens }, lr);
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

/// The data of a mini-batch: its completions with a verdict and at least one token.
fn data(groups: &[&Credited], loss: &LossSettings, daro: Option<&Daro>) -> Vec<Datum> {
    let of_group = |group: &&Credited| {
        let (rollouts, assigned) = (&group.rollouts, &group.assigned);
        let level = daro.and_then(|daro| daro.level(assigned.success_rate?));
        let masked = |i: &usize| loss.mask_truncated && rollouts.completions[*i].finish == Finish::Length;
        let of_completion = |i: usize| Datum {
            sequences: rollouts.sequences(i),
            logprobs: rollouts.completions[i].logp.clone(),
            advantages: vec![assigned.advantages[i]; group.length(i)],
            entropy: rollouts.completions[i].entropy.clone(),
            ref_logprobs: rollouts.ref_logp.as_ref().map(|all| all[i].clone()),
            sampler_logprobs: rollouts.sampler_logp.as_ref().map(|all| all[i].clone()),
            level,
        };
        let learned = group.scored().filter(|i| !masked(i) && group.length(*i) > 0);
        learned.map(of_completion).collect::<Vec<Datum>>()
    };
    groups.iter().flat_map(of_group).collect()
}

/// Adds the log-probabilities of every completion under the reference policy, for the KL penalty.
pub fn reference_logp(
    reference: &mut Policy,
    groups: &mut [&mut Credited],
    temperature: f32,
) -> anyhow::Result<()> {
    let of_group = |group: &&mut Credited| -> Vec<Vec<Sequence>> {
        (0..group.rollouts.completions.len()).map(|i| group.rollouts.sequences(i)).collect()
    };
    // All groups in one call: the engine distributes them over its threads.
    let sequences: Vec<Vec<Vec<Sequence>>> = groups.iter().map(of_group).collect();
    let all: Vec<Sequence> = sequences.iter().flatten().flatten().cloned().collect();
    let mut scores = reference.score(&all, temperature)?.into_iter();
    for (group, sequences) in groups.iter_mut().zip(sequences) {
        let mut of = |parts: Vec<Sequence>| scores.by_ref().take(parts.len()).flat_map(|s| s.logp).collect();
        group.rollouts.ref_logp = Some(sequences.into_iter().map(&mut of).collect());
    }
    Ok(())
}

/// Fails if `skipped_in_a_row` has reached `limit`.
pub fn check_skipped(skipped_in_a_row: u64, limit: u64) -> anyhow::Result<()> {
    if skipped_in_a_row >= limit {
        bail!(
            "{skipped_in_a_row} updates in a row had a loss or gradient that isn't finite; stopped with the state saved. Lower update.lr or raise update.max_skipped; {CHECK_LAYERS}=on names the layer or tensor where the first such number is"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
