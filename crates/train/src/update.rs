//! From groups with advantages to optimizer updates: pack, loss, backward, step.
//!
//! The loss needs only per-token log-probabilities. `fgrpo-core` computes the loss and its derivative in closed form,
//! and the engine turns the derivative into a gradient. Completions of a group with a common prefix share rows of the
//! batch; the derivative of a shared row is the sum over its completions.

use crate::config::UpdateConfig;
use anyhow::bail;
use fgrpo_core::loss::daro::{Daro, Levels};
use fgrpo_core::loss::{Correction, Counts, Objective, TokenTerm, Tokens};
use fgrpo_nn::{AdamW, Batch, CHECK_LAYERS, Engine, Scores};
use serde::{Deserialize, Serialize};

/// A completion ready for the update.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Log-probabilities recorded during sampling.
    pub old_logp: Vec<f32>,
    /// Log-probabilities from the engine that sampled it, if that is another engine; otherwise empty.
    pub rollout_logp: Vec<f32>,
    /// Log-probabilities under the reference model; empty without a KL penalty.
    pub ref_logp: Vec<f32>,
    /// Its advantage, including the focal weight.
    pub advantage: f64,
    /// Whether the verifier gave a verdict; an unscorable completion doesn't contribute to the loss.
    pub scored: bool,
}

/// A prompt with its completions.
#[derive(Debug, Clone)]
pub struct SampleGroup {
    /// The prompt's token ids.
    pub prompt: Vec<u32>,
    /// Its completions.
    pub samples: Vec<Sample>,
    /// Fraction of its scored completions that are correct, if known. DARO's weights depend on it.
    pub success_rate: Option<f64>,
}

/// The objective of an update.
#[derive(Debug, Clone, Copy)]
pub struct LossSettings {
    /// The loss of a mini-batch.
    pub objective: Objective,
    /// Log-probabilities are of `softmax(logits / temperature)`.
    pub temperature: f32,
    /// Learning rate of DARO's weights. Without DARO, tokens are aggregated as the objective says.
    pub daro_lr: Option<f64>,
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
#[derive(Debug, Clone, Copy, Default)]
pub struct Sums {
    /// Completion tokens in the loss.
    pub tokens: u64,
    /// Aggregated policy loss, summed over updates.
    pub policy_loss: f64,
    /// KL estimates, summed over tokens.
    pub kl: f64,
    /// Ratios, summed over tokens.
    pub ratio: f64,
    /// Largest ratio.
    pub ratio_max: f64,
    /// Tokens clipped at the lower bound.
    pub clipped_low: u64,
    /// Tokens clipped at the upper bound.
    pub clipped_high: u64,
    /// `old_logp - logp`, summed over tokens.
    pub kl_to_sampler: f64,
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
///
/// # Errors
/// Errors from the engine, and rewards without a known success rate when DARO needs one.
pub fn update(
    engine: &mut Engine,
    groups: &[SampleGroup],
    loss: &LossSettings,
    config: &UpdateConfig,
    lr: f64,
    state: &mut UpdateState,
) -> anyhow::Result<Sums> {
    let mut sums = Sums::default();
    let objective = &loss.objective;
    if loss.daro_lr.is_some() {
        check_levels(groups)?;
    }
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
            let packed = Packed::new(mini_batch, objective, daro.as_ref(), config.micro_batch_tokens);
            let scores = packed.accumulate(engine, objective, loss.temperature)?;
            let first = sums.applied + sums.skipped == 0;
            let (finite, levels) = packed.add_to(&mut sums, objective, &scores, first);
            let report = if finite {
                engine.update(&adamw, Some(config.max_grad_norm))?
            } else {
                engine.zero_gradient();
                fgrpo_nn::UpdateReport { gradient_norm: f64::NAN, applied: false }
            };
            if report.applied {
                sums.applied += 1;
                sums.gradient_norm += report.gradient_norm;
                state.skipped_in_a_row = 0;
                if let (Some(mut daro), Some(levels), Some(lr)) = (daro, levels, loss.daro_lr) {
                    daro.step(&levels, lr);
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

/// Rejects groups with nonzero advantages and an unknown success rate.
fn check_levels(groups: &[SampleGroup]) -> anyhow::Result<()> {
    let unknown = |g: &&SampleGroup| g.success_rate.is_none() && g.samples.iter().any(|s| s.advantage != 0.0);
    if groups.iter().any(|g| unknown(&g)) {
        bail!(
            "algorithm.correct_threshold: found nothing, wanted the reward from which a completion is correct: the rewards are graded, and daro weighs groups by their success rate"
        );
    }
    Ok(())
}

/// Log-probabilities of every completion under `engine`, for the KL penalty.
///
/// # Errors
/// Errors from the engine.
pub fn reference_logp(
    engine: &mut Engine,
    groups: &mut [SampleGroup],
    temperature: f32,
) -> anyhow::Result<()> {
    // All groups in one call: the engine distributes them over its threads.
    let mut batch = Batch::default();
    let pushed: Vec<Vec<Vec<usize>>> = groups
        .iter()
        .map(|group| {
            let completions: Vec<&[u32]> = group.samples.iter().map(|s| s.tokens.as_slice()).collect();
            batch.push_group(&group.prompt, &completions)
        })
        .collect();
    let scores = engine.score(&batch, temperature)?;
    for (group, indices) in groups.iter_mut().zip(pushed) {
        for (sample, indices) in group.samples.iter_mut().zip(indices) {
            sample.ref_logp = indices.iter().map(|&i| scores.logp[i]).collect();
        }
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
    /// The family of each prediction.
    family_of: Vec<u32>,
    /// DARO's weights, and the number of tokens at each success rate.
    daro: Option<(&'a Daro, Vec<usize>)>,
}

/// A completion in a mini-batch.
struct Placed<'a> {
    sample: &'a Sample,
    /// The prediction index of each of its tokens.
    indices: Vec<usize>,
    /// Its group's DARO level; `None` for groups that are all correct or all wrong.
    level: Option<usize>,
}

impl<'a> Packed<'a> {
    fn new(groups: &'a [SampleGroup], objective: &Objective, daro: Option<&'a Daro>, budget: usize) -> Self {
        let scored = |g: &'a SampleGroup| g.samples.iter().filter(|s| s.scored && !s.tokens.is_empty());
        let counts = Counts::of(groups.iter().flat_map(scored).map(|s| s.tokens.len()));
        let level = |g: &SampleGroup| daro.and_then(|d| d.level(g.success_rate?));
        let mut level_tokens = daro.map(|d| vec![0; d.raw.len()]);
        for group in groups {
            if let (Some(tokens), Some(level)) = (&mut level_tokens, level(group)) {
                tokens[level] += scored(group).map(|s| s.tokens.len()).sum::<usize>();
            }
        }
        let mut packed = Self {
            daro: daro.zip(level_tokens),
            batch: Batch::default(),
            counts,
            completions: Vec::new(),
            families: Vec::new(),
            family_of: Vec::new(),
        };
        let silent = objective.entropy_coef == 0.0 && objective.kl.is_none();
        for group in groups {
            // A group without a derivative counts in the denominators but needs no computation.
            if silent && group.samples.iter().all(|s| s.advantage == 0.0) {
                continue;
            }
            let mut family: Vec<&Sample> = Vec::new();
            let mut tokens = group.prompt.len();
            for sample in scored(group) {
                if !family.is_empty() && tokens + sample.tokens.len() > budget {
                    packed.push_family(&group.prompt, &std::mem::take(&mut family), level(group));
                    tokens = group.prompt.len();
                }
                tokens += sample.tokens.len();
                family.push(sample);
            }
            if !family.is_empty() {
                packed.push_family(&group.prompt, &family, level(group));
            }
        }
        packed
    }

    fn push_family(&mut self, prompt: &[u32], samples: &[&'a Sample], level: Option<usize>) {
        let tokens: Vec<&[u32]> = samples.iter().map(|s| s.tokens.as_slice()).collect();
        let indices = self.batch.push_group(prompt, &tokens);
        let first = self.completions.len();
        let placed = samples.iter().zip(indices);
        self.completions.extend(placed.map(|(sample, indices)| Placed { sample, indices, level }));
        self.family_of.resize(self.batch.predictions.len(), self.families.len() as u32);
        self.families.push(first..self.completions.len());
    }

    fn accumulate(
        &self,
        engine: &mut Engine,
        objective: &Objective,
        temperature: f32,
    ) -> anyhow::Result<Scores> {
        if self.completions.is_empty() {
            return Ok(Scores { logp: Vec::new(), entropy: Vec::new() });
        }
        Ok(engine.accumulate(&self.batch, temperature, &|predictions, logp, entropy, dlogp, dentropy| {
            // The engine requests whole families; `place` maps a prediction to its index in the request.
            let low = predictions.iter().min().copied().unwrap_or(0);
            let high = predictions.iter().max().copied().unwrap_or(0);
            let mut place = vec![u32::MAX; high - low + 1];
            for (i, &p) in predictions.iter().enumerate() {
                place[p - low] = i as u32;
            }
            let mut families: Vec<u32> = predictions.iter().map(|&p| self.family_of[p]).collect();
            families.sort_unstable();
            families.dedup();
            for family in families {
                for placed in &self.completions[self.families[family as usize].clone()] {
                    let at = |i: usize| place[placed.indices[i] - low] as usize;
                    let own_logp: Vec<f32> = (0..placed.indices.len()).map(|i| logp[at(i)]).collect();
                    let own_entropy: Vec<f32> = (0..placed.indices.len()).map(|i| entropy[at(i)]).collect();
                    self.terms(objective, placed, &own_logp, &own_entropy, |t, term| {
                        dlogp[at(t)] += term.dlogp as f32;
                        dentropy[at(t)] += term.dentropy as f32;
                    });
                }
            }
        })?)
    }

    fn terms(
        &self,
        objective: &Objective,
        placed: &Placed<'_>,
        logp: &[f32],
        entropy: &[f32],
        each: impl FnMut(usize, TokenTerm),
    ) {
        let sample = placed.sample;
        let tokens = Tokens {
            logp,
            old_logp: &sample.old_logp,
            entropy: Some(entropy),
            ref_logp: objective.kl.is_some().then_some(&sample.ref_logp[..]),
            // If one engine both samples and learns, the correction's weight is exactly 1.
            rollout_logp: (objective.correction != Correction::Off).then_some(
                if sample.rollout_logp.is_empty() { &sample.old_logp } else { &sample.rollout_logp },
            ),
            advantage: sample.advantage,
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

    /// Adds this mini-batch to the sums, in the order of the completions, so the metrics don't depend on threads.
    /// Returns whether the loss is finite, and DARO's losses by success rate.
    fn add_to(
        &self,
        sums: &mut Sums,
        objective: &Objective,
        scores: &Scores,
        first: bool,
    ) -> (bool, Option<Levels>) {
        let mut loss = 0.0;
        let mut levels = self
            .daro
            .as_ref()
            .map(|(_, tokens)| Levels { loss: vec![0.0; tokens.len()], tokens: tokens.clone() });
        for placed in &self.completions {
            let sample = placed.sample;
            let logp: Vec<f32> = placed.indices.iter().map(|&i| scores.logp[i]).collect();
            let entropy: Vec<f32> = placed.indices.iter().map(|&i| scores.entropy[i]).collect();
            sums.tokens += logp.len() as u64;
            for (new, old) in logp.iter().zip(&sample.old_logp) {
                let d = f64::from(*old) - f64::from(*new);
                sums.kl_to_sampler += d;
                if first {
                    sums.logp_difference_max = sums.logp_difference_max.max(d.abs());
                }
            }
            self.terms(objective, placed, &logp, &entropy, |_, term| {
                if let (Some(levels), Some(level)) = (&mut levels, placed.level) {
                    levels.loss[level] += term.correction * term.policy.loss;
                }
                loss += term.loss;
                sums.policy_loss += term.policy_loss;
                sums.kl += term.kl;
                sums.ratio += term.policy.ratio;
                sums.ratio_max = sums.ratio_max.max(term.policy.ratio);
                sums.clipped_low += u64::from(term.policy.clipped_low);
                sums.clipped_high += u64::from(term.policy.clipped_high);
            });
        }
        (loss.is_finite(), levels)
    }
}

/// Fails if the last `limit` consecutive updates were all skipped.
///
/// # Errors
/// If `skipped_in_a_row` has reached `limit`.
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
