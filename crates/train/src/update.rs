//! From groups with advantages to optimizer updates: pack, loss, backward, step.
//!
//! The loss needs only per-token log-probabilities. `fgrpo-core` computes the loss and its derivative in closed form,
//! and the engine turns the derivative into a gradient. Completions of a group with a common prefix share rows of the
//! batch; the derivative of a shared row is the sum over its completions.

use crate::config::{AlgorithmConfig, Truncated, UpdateConfig};
use crate::credit::Credited;
use crate::rollout::Rollouts;
use anyhow::bail;
use fgrpo_core::loss::daro::{Daro, Levels};
use fgrpo_core::loss::{
    Correction, Counts, Objective, PolicyLoss, TokenTerm, Tokens, covariance, high_entropy,
};
use fgrpo_nn::{AdamW, Batch, CHECK_LAYERS, Engine, Finish};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

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

/// State carried from one update to the next, besides the engine's weights and optimizer; part of a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateState {
    /// Consecutive updates skipped because the loss or gradient wasn't finite.
    pub skipped_in_a_row: u64,
    /// DARO's parameters before softplus, by number of correct completions, starting at 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daro: Option<Vec<f64>>,
}

/// Sums over the tokens of a family, a mini-batch or a step.
#[derive(Debug, Clone, Default)]
pub struct TokenSums {
    /// Completion tokens in the loss.
    pub tokens: u64,
    /// Aggregated loss.
    pub loss: f64,
    /// Aggregated policy loss: without entropy bonus and KL penalty.
    pub policy_loss: f64,
    /// Policy losses by DARO's level; empty without DARO.
    pub level_losses: Vec<f64>,
    /// KL estimates.
    pub kl: f64,
    /// Ratios.
    pub ratio: f64,
    /// Largest ratio.
    pub ratio_max: f64,
    /// Tokens clipped at the lower bound.
    pub clipped_low: u64,
    /// Tokens clipped at the upper bound.
    pub clipped_high: u64,
    /// `old_logp - logp`.
    pub kl_to_sampler: f64,
    /// Largest `|logp - old_logp|`.
    pub logp_difference_max: f64,
}

impl TokenSums {
    pub(crate) fn add_logp(&mut self, logp: &[f32], old_logp: &[f32]) {
        self.tokens += logp.len() as u64;
        for (new, old) in logp.iter().zip(old_logp) {
            let d = f64::from(*old) - f64::from(*new);
            self.kl_to_sampler += d;
            self.logp_difference_max = self.logp_difference_max.max(d.abs());
        }
    }

    pub(crate) fn add_term(&mut self, term: &TokenTerm, level: Option<usize>) {
        self.loss += term.loss;
        self.policy_loss += term.policy_loss;
        if let Some(level) = level {
            self.level_losses[level] += term.correction * term.policy.loss;
        }
        self.kl += term.kl;
        self.ratio += term.policy.ratio;
        self.ratio_max = self.ratio_max.max(term.policy.ratio);
        self.clipped_low += u64::from(term.policy.clipped_low);
        self.clipped_high += u64::from(term.policy.clipped_high);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.loss += other.loss;
        self.policy_loss += other.policy_loss;
        self.level_losses.resize(other.level_losses.len(), 0.0);
        self.level_losses.iter_mut().zip(&other.level_losses).for_each(|(sum, loss)| *sum += loss);
        self.kl += other.kl;
        self.ratio += other.ratio;
        self.ratio_max = self.ratio_max.max(other.ratio_max);
        self.clipped_low += other.clipped_low;
        self.clipped_high += other.clipped_high;
        self.kl_to_sampler += other.kl_to_sampler;
        self.logp_difference_max = self.logp_difference_max.max(other.logp_difference_max);
    }
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
    engine: &mut Engine,
    groups: &[&Credited],
    loss: &LossSettings,
    config: &UpdateConfig,
    lr: f64,
    state: &mut UpdateState,
) -> anyhow::Result<Sums> {
    let mut sums = Sums::default();
    let objective = &loss.objective;
    let size = config.mini_batch.unwrap_or(groups.len()).max(1);
    let adamw = AdamW {
        lr,
        beta1: config.betas[0],
        beta2: config.betas[1],
        eps: config.eps,
        weight_decay: config.weight_decay,
        ..AdamW::default()
    };
    for _ in 0..config.epochs {
        for mini_batch in groups.chunks(size) {
            let daro = state.daro.as_ref().filter(|_| loss.daro_lr.is_some());
            let daro = daro.map(|raw| Daro { raw: raw.clone() });
            let packed =
                Packed::new(mini_batch, loss, daro.as_ref(), config.micro_batch_tokens(), sums.applied == 0)?;
            let found = packed.accumulate(engine, objective, loss.temperature)?;
            if sums.applied + sums.skipped == 0 {
                sums.logp_difference_max = found.logp_difference_max;
            }
            sums.of_tokens.add(&found);
            let report = if found.loss.is_finite() {
                engine.update(&adamw, Some(config.max_grad_norm))?
            } else {
                engine.zero_gradient();
                fgrpo_nn::UpdateReport { gradient_norm: f64::NAN, applied: false }
            };
            if report.applied {
                sums.applied += 1;
                sums.gradient_norm += report.gradient_norm;
                state.skipped_in_a_row = 0;
                if let (Some((daro, tokens)), Some(lr)) = (packed.daro, loss.daro_lr) {
                    let mut daro = daro.clone();
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

/// Log-probabilities of every completion under `engine`, for the KL penalty.
pub fn reference_logp(
    engine: &mut Engine,
    groups: &mut [&mut Credited],
    temperature: f32,
) -> anyhow::Result<()> {
    // All groups in one call: the engine distributes them over its threads.
    let mut batch = Batch::default();
    let pushed: Vec<Vec<Vec<usize>>> = groups
        .iter()
        .map(|group| {
            let all: Vec<usize> = (0..group.rollouts.completions.len()).collect();
            group.rollouts.push(&mut batch, &all)
        })
        .collect::<anyhow::Result<_>>()?;
    let scores = engine.score(&batch, temperature)?;
    for (group, indices) in groups.iter_mut().zip(pushed) {
        let of = |indices: Vec<usize>| indices.iter().map(|&i| scores.logp[i]).collect();
        group.rollouts.ref_logp = Some(indices.into_iter().map(of).collect());
    }
    Ok(())
}

/// A mini-batch in the engine's format.
struct Packed<'a> {
    batch: Batch,
    counts: Counts,
    /// Completions that contribute to the loss.
    completions: Vec<Placed<'a>>,
    /// The completions of each family, as a range of `completions`.
    families: Vec<std::ops::Range<usize>>,
    /// DARO's weights, and the number of tokens at each success rate.
    daro: Option<(&'a Daro, Vec<usize>)>,
}

/// A completion in a mini-batch.
struct Placed<'a> {
    group: &'a Credited,
    /// Its index in the group.
    sample: usize,
    /// The prediction of each of its tokens, counted from the family's first in the batch.
    predictions: Vec<usize>,
    /// Its group's DARO level; `None` for groups that are all correct or all wrong.
    level: Option<usize>,
    marks: Marks,
}

/// Which of a completion's tokens the loss treats differently; chosen among all tokens of the mini-batch.
#[derive(Default)]
struct Marks {
    /// The tokens with the largest covariance, for a loss that treats them differently.
    selected: Option<Vec<bool>>,
    /// Those that the policy loss counts; `None` for all.
    high_entropy: Option<Vec<bool>>,
}

impl<'a> Packed<'a> {
    /// `unchanged`: the policy is still the one that sampled.
    fn new(
        groups: &[&'a Credited],
        loss: &LossSettings,
        daro: Option<&'a Daro>,
        budget: usize,
        unchanged: bool,
    ) -> anyhow::Result<Self> {
        let objective = &loss.objective;
        // The completions in the loss: an unscorable or masked one doesn't contribute.
        let masked = |g: &Credited, i: usize| {
            loss.mask_truncated && g.rollouts.completions[i].finish == Finish::Length
        };
        let scored = |g: &'a Credited| {
            let learned = g.scored().filter(move |&i| !masked(g, i));
            learned.map(|i| (i, g.length(i))).filter(|(_, tokens)| *tokens > 0)
        };
        let counts = Counts::of(groups.iter().copied().flat_map(scored).map(|(_, tokens)| tokens));
        let level = |g: &Credited| daro.and_then(|d| d.level(g.assigned.success_rate?));
        let mut level_tokens = daro.map(|d| vec![0; d.raw.len()]);
        for &group in groups {
            if let (Some(tokens), Some(level)) = (&mut level_tokens, level(group)) {
                tokens[level] += scored(group).map(|(_, tokens)| tokens).sum::<usize>();
            }
        }
        let mut packed = Self {
            daro: daro.zip(level_tokens),
            batch: Batch::default(),
            counts,
            completions: Vec::new(),
            families: Vec::new(),
        };
        // The completions of the mini-batch, groups without a derivative included, as the loss selects among all tokens.
        let places: Vec<(usize, usize)> = groups
            .iter()
            .enumerate()
            .flat_map(|(g, group)| scored(group).map(move |(i, _)| (g, i)))
            .collect();
        let completion = |&(g, i): &(usize, usize)| &groups[g].rollouts.completions[i];
        let all: Vec<(f64, &[f32])> = places
            .iter()
            .map(|at| (groups[at.0].assigned.advantages[at.1], completion(at).logp.as_slice()))
            .collect();
        let mut selected = covariance::selected(&objective.policy, &all);
        // The penalty on a policy that hasn't changed is 0; of log-probabilities that differ by rounding, it would take the
        // sign.
        let kl_cov = matches!(objective.policy, PolicyLoss::KlCov { .. });
        if kl_cov && unchanged {
            selected.iter_mut().flatten().for_each(|tokens| tokens.fill(false));
        }
        let entropies: Vec<&[f32]> = places.iter().map(|at| completion(at).entropy.as_slice()).collect();
        let mut kept = high_entropy::high_entropy(objective.top_entropy_quantile, &entropies);
        let of =
            |marks: &mut Option<Vec<Vec<bool>>>, n: usize| marks.as_mut().map(|m| std::mem::take(&mut m[n]));
        let mut marks: HashMap<(usize, usize), Marks> = places
            .iter()
            .enumerate()
            .map(|(n, &at)| (at, Marks { selected: of(&mut selected, n), high_entropy: of(&mut kept, n) }))
            .collect();
        let silent = objective.entropy_coef == 0.0 && objective.kl.is_none() && (!kl_cov || unchanged);
        for (g, &group) in groups.iter().enumerate() {
            // A group without a derivative counts in the denominators but needs no computation.
            if silent && !group.assigned.active() {
                continue;
            }
            let prompt = group.rollouts.prompt.tokens.len();
            let mut family: Vec<(usize, Marks)> = Vec::new();
            let mut tokens = prompt;
            for (sample, _) in scored(group) {
                let length = group.rollouts.length(sample);
                if !family.is_empty() && tokens + length > budget {
                    packed.push_family(group, std::mem::take(&mut family), level(group))?;
                    tokens = prompt;
                }
                tokens += length;
                family.push((sample, marks.remove(&(g, sample)).unwrap_or_default()));
            }
            if !family.is_empty() {
                packed.push_family(group, family, level(group))?;
            }
        }
        Ok(packed)
    }

    fn push_family(
        &mut self,
        group: &'a Credited,
        samples: Vec<(usize, Marks)>,
        level: Option<usize>,
    ) -> anyhow::Result<()> {
        let numbers: Vec<usize> = samples.iter().map(|(sample, _)| *sample).collect();
        let earlier = self.batch.predictions.len();
        let indices = group.rollouts.push(&mut self.batch, &numbers)?;
        let first = self.completions.len();
        for ((sample, marks), indices) in samples.into_iter().zip(indices) {
            let predictions = indices.into_iter().map(|index| index - earlier).collect();
            self.completions.push(Placed { group, sample, predictions, level, marks });
        }
        self.families.push(first..self.completions.len());
        Ok(())
    }

    /// Adds the mini-batch's gradient to the engine's. The sums don't depend on threads: each family has its own, and they are added in order.
    fn accumulate(
        &self,
        engine: &mut Engine,
        objective: &Objective,
        temperature: f32,
    ) -> anyhow::Result<TokenSums> {
        let levels = self.daro.as_ref().map_or(0, |(daro, _)| daro.raw.len());
        let zero = || TokenSums { level_losses: vec![0.0; levels], ..TokenSums::default() };
        let mut all = zero();
        if self.completions.is_empty() {
            return Ok(all);
        }
        let (_, families) = engine.accumulate(&self.batch, temperature, &|family| {
            let mut sums = zero();
            // A family's predictions follow one another in the batch, and have another order in its pass.
            let first = family.predictions.iter().copied().min().unwrap_or(0);
            let mut place = vec![0; family.predictions.len()];
            family
                .predictions
                .iter()
                .enumerate()
                .for_each(|(at, &prediction)| place[prediction - first] = at);
            for placed in &self.completions[self.families[family.family].clone()] {
                let at: Vec<usize> = placed.predictions.iter().map(|&i| place[i]).collect();
                let of = |scores: &[f32]| at.iter().map(|&i| scores[i]).collect::<Vec<f32>>();
                let (logp, entropy) = (of(family.logp), of(family.entropy));
                sums.add_logp(&logp, &placed.group.rollouts.completions[placed.sample].logp);
                self.terms(objective, placed, &logp, &entropy, |t, term| {
                    // Several completions may share a prediction.
                    family.dlogp[at[t]] += term.dlogp as f32;
                    family.dentropy[at[t]] += term.dentropy as f32;
                    sums.add_term(&term, placed.level);
                });
            }
            sums
        })?;
        families.iter().for_each(|family| all.add(family));
        Ok(all)
    }

    fn terms(
        &self,
        objective: &Objective,
        placed: &Placed<'_>,
        logp: &[f32],
        entropy: &[f32],
        each: impl FnMut(usize, TokenTerm),
    ) {
        let Placed { group, sample, .. } = *placed;
        let Rollouts { completions, sampler_logp, ref_logp, .. } = &group.rollouts;
        let old_logp = &completions[sample].logp;
        let tokens = Tokens {
            logp,
            old_logp,
            entropy: Some(entropy),
            ref_logp: objective.kl.and(ref_logp.as_ref()).map(|all| all[sample].as_slice()),
            // If one engine both samples and learns, the correction's weight is exactly 1.
            rollout_logp: (objective.correction != Correction::Off)
                .then(|| sampler_logp.as_ref().map_or(old_logp, |all| &all[sample]).as_slice()),
            advantage: group.assigned.advantages[sample],
            selected: placed.marks.selected.as_deref(),
            high_entropy: placed.marks.high_entropy.as_deref(),
        };
        match &self.daro {
            None => objective.completion(&tokens, &self.counts, each),
            Some((daro, level_tokens)) => {
                let rest = objective.aggregation.weight(logp.len(), &self.counts);
                let policy = placed.level.map_or(0.0, |l| daro.token_weight(l, level_tokens[l]));
                objective.completion_scaled(&tokens, policy, rest, each);
            }
        }
    }
}

/// Fails if the last `limit` consecutive updates were all skipped.
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
