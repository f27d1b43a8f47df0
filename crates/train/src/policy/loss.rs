//! Computes a loss of training data, and its gradient, in one pass of the engine.

use super::pack::{Packed, Sequence, pack};
use super::{Policy, SequenceScores, positive, refused};
use crate::config::AlgorithmConfig;
use fgrpo_core::loss::daro::Daro;
use fgrpo_core::loss::{
    Correction, Counts, Objective, PolicyLoss, TokenTerm, Tokens, covariance, high_entropy,
};
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::json;
use fgrpo_nn::{AdamW, Completion, FamilyScores, Scores, UpdateReport};

/// Inputs of a loss for one completion: its sequences, and values for each token in the loss.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Datum {
    /// Sequences of the completion: one, unless an environment's template rewrote earlier turns. They must all begin
    /// with the same token. Their targets are the tokens in the loss.
    pub sequences: Vec<Sequence>,
    /// Log-probabilities under the policy that sampled. Needed only by policy losses.
    pub logprobs: Vec<f32>,
    /// Advantages, or the weights of a cross-entropy.
    pub advantages: Vec<f64>,
    /// Entropies when the tokens were sampled, in nats. Needed only by an objective that selects tokens by entropy.
    pub entropy: Vec<f32>,
    /// Log-probabilities under the reference policy. Needed only by an objective with a KL penalty.
    pub ref_logprobs: Option<Vec<f32>>,
    /// Log-probabilities that the sampling engine reported, if it isn't the engine of the policy.
    pub sampler_logprobs: Option<Vec<f32>>,
    /// Level of the completion's group in DARO. If `None`, its policy loss has weight 0 in DARO.
    pub level: Option<usize>,
}

impl Datum {
    /// Makes the datum of a sampled completion with one advantage for all its tokens.
    pub fn of_completion(prompt: &[u32], completion: &Completion, advantage: f64) -> Self {
        Self {
            sequences: vec![Sequence::completion(prompt, &completion.tokens)],
            logprobs: completion.logp.clone(),
            advantages: vec![advantage; completion.tokens.len()],
            entropy: completion.entropy.clone(),
            ..Self::default()
        }
    }

    /// Makes the data of groups from the completions of each prompt and the advantage of each completion.
    pub fn of_groups<'a>(
        prompts: impl IntoIterator<Item = &'a [u32]>,
        groups: &[Vec<Completion>],
        advantages: &[Vec<f64>],
    ) -> Vec<Self> {
        let group = |((prompt, group), advantages): ((&[u32], &Vec<Completion>), &Vec<f64>)| {
            let completions = group.iter().zip(advantages);
            completions
                .map(|(completion, &advantage)| Self::of_completion(prompt, completion, advantage))
                .collect::<Vec<_>>()
        };
        prompts.into_iter().zip(groups).zip(advantages).flat_map(group).collect()
    }

    /// Returns the number of tokens in the loss.
    pub fn len(&self) -> usize {
        self.sequences.iter().map(|sequence| sequence.targets.len()).sum()
    }

    /// Returns whether the number of tokens in the loss is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether any advantage isn't 0.
    fn is_active(&self) -> bool {
        self.advantages.iter().any(|&advantage| advantage != 0.0)
    }
}

/// The loss that [`Policy::forward_backward`] differentiates.
#[derive(Debug, Clone)]
pub enum Loss {
    /// A policy objective whose means are over the data of the call. Groups with a derivative of 0 count in the
    /// denominators, but aren't computed.
    Policy {
        /// The objective.
        objective: Objective,
        /// DARO's weights of the levels, which replace the aggregation of the policy loss.
        daro: Option<Daro>,
    },
    /// Sum of policy losses over tokens. Each datum has one loss for all its tokens, or one for each token.
    TokenSum(Vec<Vec<PolicyLoss>>),
    /// Sum over tokens of `-advantage logp`: supervised learning, with the advantages as weights.
    CrossEntropy,
    /// Derivatives with respect to `logp` that the caller computed: one for each token in the loss of each datum.
    Derivatives(Vec<Vec<f32>>),
}

impl Loss {
    /// Returns GRPO's clipped loss, averaged over tokens, without an entropy bonus or a KL penalty.
    pub fn grpo() -> Self {
        Self::Policy { objective: Objective::GRPO, daro: None }
    }

    /// Makes a policy loss from settings named like the keys of the configuration's table `algorithm`.
    ///
    /// # Errors
    /// Bad input: an unknown key, a value out of range, or a KL penalty.
    pub fn policy(keys: serde_json::Value, max_len: usize) -> anyhow::Result<Self> {
        let algorithm: AlgorithmConfig = json::of_value(keys).or_bad_input()?;
        let objective = algorithm.objective(max_len);
        objective.check().map_err(anyhow::Error::from).or_bad_input()?;
        if objective.kl.is_some() {
            bad_input!("kl_coef: a KL penalty isn't supported here; add it to the advantages, or pass dlogp");
        }
        Ok(Self::Policy { objective, daro: None })
    }

    /// Returns the name and length of each field of a datum with one value per token, and whether this loss reads it.
    fn values(&self, index: usize, datum: &Datum) -> [(&'static str, usize, bool); 6] {
        let objective = if let Self::Policy { objective, .. } = self { Some(objective) } else { None };
        let length = |values: &Option<Vec<f32>>| values.as_ref().map_or(0, Vec::len);
        let dlogp = if let Self::Derivatives(all) = self { all.get(index).map_or(0, Vec::len) } else { 0 };
        let derivatives = matches!(self, Self::Derivatives(_));
        let sampled = objective.is_some() || matches!(self, Self::TokenSum(_));
        let entropy = objective.is_some_and(|objective| objective.top_entropy_quantile != 1.0);
        let (reference, sampler) = (&datum.ref_logprobs, &datum.sampler_logprobs);
        [
            ("dlogp", dlogp, derivatives),
            ("advantages", datum.advantages.len(), !derivatives),
            ("logprobs", datum.logprobs.len(), sampled),
            ("entropy", datum.entropy.len(), entropy),
            ("ref_logprobs", length(reference), objective.is_some_and(|objective| objective.kl.is_some())),
            ("sampler_logprobs", length(sampler), sampler.is_some()),
        ]
    }

    /// Returns whether the loss of each token depends only on that token.
    fn is_by_token(&self) -> bool {
        match self {
            Self::Policy { objective: Objective { policy, correction, .. }, .. } => {
                !matches!(policy, PolicyLoss::Gspo { .. } | PolicyLoss::Gmpo { .. })
                    && *correction == Correction::Off
            }
            _ => true,
        }
    }

    /// Returns whether the loss selects tokens by the log-probabilities of all data, which therefore have to be known before
    /// the pass that computes the gradient.
    fn selects(&self) -> bool {
        let Self::Policy { objective: Objective { policy, .. }, .. } = self else { return false };
        match policy {
            PolicyLoss::KlCov { coef, .. } => *coef != 0.0,
            PolicyLoss::ClipCov { .. } => true,
            _ => false,
        }
    }

    /// Returns whether data whose advantages are all 0 have a gradient of 0, so that their passes can be skipped.
    fn is_silent(&self) -> bool {
        let Self::Policy { objective: Objective { policy, entropy_coef, kl, .. }, .. } = self else {
            return false;
        };
        *entropy_coef == 0.0
            && kl.is_none()
            && !matches!(policy, PolicyLoss::KlCov { coef, .. } if *coef != 0.0)
    }
}

/// Sums over the tokens of a tree, a call or a step.
#[derive(Debug, Clone, Default)]
pub struct TokenSums {
    /// Number of tokens whose loss was computed. Data whose advantages are all 0 may be skipped, and then don't count.
    pub tokens: u64,
    /// Aggregated loss.
    pub loss: f64,
    /// Aggregated policy loss, without the entropy bonus and the KL penalty.
    pub policy_loss: f64,
    /// Policy loss of each of DARO's levels. Empty without DARO.
    pub level_losses: Vec<f64>,
    /// Sum of the KL estimates.
    pub kl: f64,
    /// Sum of the probability ratios.
    pub ratio: f64,
    /// Largest ratio.
    pub ratio_max: f64,
    /// Tokens clipped at the lower bound.
    pub clipped_low: u64,
    /// Tokens clipped at the upper bound.
    pub clipped_high: u64,
    /// Sum of `old_logp - logp`.
    pub kl_to_sampler: f64,
    /// Largest `|logp - old_logp|`.
    pub logp_difference_max: f64,
}

impl TokenSums {
    fn add_logp(&mut self, logp: &[f32], old_logp: &[f32]) {
        self.tokens += logp.len() as u64;
        for (new, old) in logp.iter().zip(old_logp) {
            let d = f64::from(*old) - f64::from(*new);
            self.kl_to_sampler += d;
            self.logp_difference_max = self.logp_difference_max.max(d.abs());
        }
    }

    /// Adds the tokens' probability ratios, for a loss that doesn't compute them.
    fn add_ratios(&mut self, logp: &[f32], old_logp: &[f32]) {
        for (new, old) in logp.iter().zip(old_logp) {
            let ratio = (f64::from(*new) - f64::from(*old)).exp();
            self.ratio += ratio;
            self.ratio_max = self.ratio_max.max(ratio);
        }
    }

    fn add_term(&mut self, term: &TokenTerm, level: Option<usize>) {
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

    /// Adds the sums `other`, which are over other tokens.
    pub fn add(&mut self, other: &Self) {
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

/// Result of a loss over data.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    /// Sums over all tokens that were computed.
    pub sums: TokenSums,
    /// For each datum, the log-probability of each of its tokens in the loss. Empty for data that were skipped.
    pub logp: Vec<Vec<f32>>,
}

impl Policy {
    /// Computes the log-probability and entropy of each target under `softmax(logits / temperature)`.
    ///
    /// ```
    /// # use fgrpo_train::policy::{Policy, Sequence};
    /// # fn example(policy: &mut Policy, prompt: &[u32], answer: &[u32]) -> anyhow::Result<()> {
    /// let scores = policy.score(&[Sequence::completion(prompt, answer)], 1.0)?;
    /// println!("{}", scores[0].logp.iter().sum::<f32>());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Bad input: a sequence that is empty, too long or has tokens outside the vocabulary; a temperature that isn't above 0. Errors from
    /// the engine.
    pub fn score(&mut self, sequences: &[Sequence], temperature: f32) -> anyhow::Result<Vec<SequenceScores>> {
        positive(temperature)?;
        for (index, sequence) in sequences.iter().enumerate() {
            self.check(&format!("sequences[{index}]"), &sequence.tokens)?;
        }
        let members: Vec<&[Sequence]> = sequences.iter().map(std::slice::from_ref).collect();
        let packed = pack(&members, self.pass_tokens, |_| true).expect("one sequence has one first token");
        let scores = self.scores(&packed, temperature)?;
        let both = packed.of_members(&scores.logp).into_iter().zip(packed.of_members(&scores.entropy));
        Ok(both.map(|(logp, entropy)| SequenceScores { logp, entropy }).collect())
    }

    fn scores(&mut self, packed: &Packed, temperature: f32) -> anyhow::Result<Scores> {
        if packed.batch.predictions.is_empty() {
            return Ok(Scores::default());
        }
        self.engine.score(&packed.batch, temperature).map_err(refused)
    }

    /// Adds the gradient of a loss over `data` to the accumulated gradient. Log-probabilities are computed from
    /// `softmax(logits / temperature)`, and means are over all data of the call. How the data are divided into passes
    /// changes the gradient only by rounding.
    ///
    /// ```
    /// # use fgrpo_train::policy::{Datum, Loss, Policy};
    /// # fn example(policy: &mut Policy, data: &[Datum]) -> anyhow::Result<()> {
    /// let losses = policy.forward_backward(data, &Loss::grpo(), 1.0)?;
    /// println!("{}", losses.sums.loss);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Bad input, with the index of the datum: tokens outside the model's limits, a field with another number of
    /// values than tokens, or several advantages if the loss reads whole sequences. If the engine fails, the
    /// accumulated gradient is reset to 0.
    pub fn forward_backward(
        &mut self,
        data: &[Datum],
        loss: &Loss,
        temperature: f32,
    ) -> anyhow::Result<Losses> {
        let packed = self.packed(data, loss, temperature)?;
        let logp = if loss.selects() {
            packed.of_members(&self.scores(&packed, temperature)?.logp)
        } else {
            Vec::new()
        };
        let terms = Terms::new(data, loss, &logp);
        self.accumulated = true;
        if packed.batch.predictions.is_empty() {
            return Ok(terms.losses(&packed, &Scores::default(), &[]));
        }
        let tree = |family: FamilyScores<'_>| {
            let mut sums = terms.zero();
            // A tree's predictions are consecutive in the batch, but the engine passes them in another order.
            let first = family.predictions.iter().copied().min().unwrap_or(0);
            let mut local = vec![0; family.predictions.len()];
            family.predictions.iter().enumerate().for_each(|(i, &prediction)| local[prediction - first] = i);
            for &index in &packed.trees[family.family] {
                let at: Vec<usize> = packed.places[index].iter().map(|&place| local[place - first]).collect();
                let select = |values: &[f32]| at.iter().map(|&i| values[i]).collect::<Vec<f32>>();
                let (logp, entropy) = (select(family.logp), select(family.entropy));
                terms.add_datum(index, &logp, &entropy, &mut sums, |t, dlogp, dentropy| {
                    // Several data may share a prediction.
                    family.dlogp[at[t]] += dlogp as f32;
                    family.dentropy[at[t]] += dentropy as f32;
                });
            }
            sums
        };
        match self.engine.accumulate(&packed.batch, temperature, &tree) {
            Ok((scores, sums)) => {
                self.engine.gather_gradient();
                Ok(terms.losses(&packed, &scores, &sums))
            }
            Err(error) => {
                self.zero_gradient();
                Err(refused(error))
            }
        }
    }

    /// Computes the loss of [`Policy::forward_backward`] without its gradient.
    ///
    /// # Errors
    /// As [`Policy::forward_backward`].
    pub fn forward(&mut self, data: &[Datum], loss: &Loss, temperature: f32) -> anyhow::Result<Losses> {
        let packed = self.packed(data, loss, temperature)?;
        let scores = self.scores(&packed, temperature)?;
        let (logp, entropy) = (packed.of_members(&scores.logp), packed.of_members(&scores.entropy));
        let terms = Terms::new(data, loss, &logp);
        let tree_sums = |tree: &Vec<usize>| {
            let mut sums = terms.zero();
            for &index in tree {
                terms.add_datum(index, &logp[index], &entropy[index], &mut sums, |_, _, _| {});
            }
            sums
        };
        let sums: Vec<TokenSums> = packed.trees.iter().map(tree_sums).collect();
        Ok(terms.losses(&packed, &scores, &sums))
    }

    /// Packs data into passes, after a check that the loss can be computed from them.
    fn packed(&self, data: &[Datum], loss: &Loss, temperature: f32) -> anyhow::Result<Packed> {
        positive(temperature)?;
        for (index, datum) in data.iter().enumerate() {
            for sequence in &datum.sequences {
                self.check(&format!("data[{index}].tokens"), &sequence.tokens)?;
            }
            for (name, values, needed) in loss.values(index, datum) {
                if needed && values != datum.len() {
                    bad_input!(
                        "data[{index}].{name}: expected {} values, one for each token in the loss, found {values}",
                        datum.len()
                    );
                }
            }
            let constant = datum.advantages.windows(2).all(|pair| pair[0] == pair[1]);
            if !constant && !loss.is_by_token() {
                bad_input!(
                    "data[{index}].advantages: the advantages must be equal, because this loss is computed for whole sequences"
                );
            }
        }
        let members: Vec<&[Sequence]> = data.iter().map(|datum| datum.sequences.as_slice()).collect();
        let silent = loss.is_silent();
        let packed = pack(&members, self.pass_tokens, |members| {
            !silent || members.iter().any(|&index| data[index].is_active())
        });
        packed.or_else(|index| {
            bad_input!(
                "data[{index}]: all sequences must begin with the same token; add a system prompt, or text to the row's prompt"
            )
        })
    }

    /// Drops the accumulated gradient.
    pub fn zero_gradient(&mut self) {
        self.engine.zero_gradient();
        self.accumulated = false;
    }

    /// Clips the accumulated gradient to the norm `max_norm`, updates the weights by it, and resets it to 0. If the
    /// gradient isn't finite, the weights don't change and `applied` is `false` in the report.
    ///
    /// ```
    /// # use fgrpo_train::policy::{AdamW, Policy};
    /// # fn example(policy: &mut Policy) -> anyhow::Result<()> {
    /// let update = policy.step(&AdamW { lr: 1e-5, ..AdamW::default() }, Some(1.0))?;
    /// assert!(update.applied, "the gradient's norm is {}", update.gradient_norm);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Bad input if no gradient was accumulated; errors from the engine.
    pub fn step(&mut self, adamw: &AdamW, max_norm: Option<f64>) -> anyhow::Result<UpdateReport> {
        if !self.accumulated {
            bad_input!("optim_step: there is no gradient; call forward_backward first");
        }
        self.accumulated = false;
        Ok(self.engine.update(adamw, max_norm)?)
    }
}

/// A loss, with the quantities that it computes from all data of a call.
struct Terms<'a> {
    data: &'a [Datum],
    loss: &'a Loss,
    counts: Counts,
    /// Tokens that the losses KL-Cov and Clip-Cov select by their covariance.
    selected: Option<Vec<Vec<bool>>>,
    /// Tokens that count in the policy loss. If `None`, all tokens count.
    high_entropy: Option<Vec<Vec<bool>>>,
    /// Number of tokens in each of DARO's levels.
    level_tokens: Vec<usize>,
}

impl<'a> Terms<'a> {
    /// `logp` has the log-probabilities of the data under the policy being updated, if the loss selects tokens by them.
    /// Data that aren't computed have those with which they were sampled.
    fn new(data: &'a [Datum], loss: &'a Loss, logp: &[Vec<f32>]) -> Self {
        let counts = Counts::of(data.iter().map(Datum::len));
        let mut terms =
            Self { data, loss, counts, selected: None, high_entropy: None, level_tokens: Vec::new() };
        if let Loss::Policy { objective, daro } = loss {
            let advantage = |datum: &Datum| datum.advantages.first().copied().unwrap_or(0.0);
            let new = |i: usize| logp.get(i).filter(|new| !new.is_empty()).unwrap_or(&data[i].logprobs);
            let all: Vec<(f64, &[f32], &[f32])> = data
                .iter()
                .enumerate()
                .map(|(i, datum)| (advantage(datum), new(i).as_slice(), datum.logprobs.as_slice()))
                .collect();
            terms.selected = covariance::selected(&objective.policy, &all);
            let entropies: Vec<&[f32]> = data.iter().map(|datum| datum.entropy.as_slice()).collect();
            terms.high_entropy = high_entropy::high_entropy(objective.top_entropy_quantile, &entropies);
            terms.level_tokens = level_tokens(data, daro.as_ref());
        }
        terms
    }

    fn zero(&self) -> TokenSums {
        TokenSums { level_losses: vec![0.0; self.level_tokens.len()], ..TokenSums::default() }
    }

    fn losses(&self, packed: &Packed, scores: &Scores, trees: &[TokenSums]) -> Losses {
        let mut sums = self.zero();
        trees.iter().for_each(|tree| sums.add(tree));
        Losses { sums, logp: packed.of_members(&scores.logp) }
    }

    /// Adds a datum's terms to `sums`, and calls `derivative` with each token's index and the derivatives of the loss with respect to its
    /// log-probability and entropy.
    fn add_datum(
        &self,
        index: usize,
        logp: &[f32],
        entropy: &[f32],
        sums: &mut TokenSums,
        mut derivative: impl FnMut(usize, f64, f64),
    ) {
        let datum = &self.data[index];
        sums.add_logp(logp, &datum.logprobs);
        if !matches!(self.loss, Loss::Policy { .. }) {
            sums.add_ratios(logp, &datum.logprobs);
        }
        let (objective, daro) = match self.loss {
            Loss::Derivatives(all) => {
                all[index].iter().enumerate().for_each(|(t, &dlogp)| derivative(t, f64::from(dlogp), 0.0));
                return;
            }
            Loss::CrossEntropy => {
                for (t, (&weight, &logp)) in datum.advantages.iter().zip(logp).enumerate() {
                    sums.loss -= weight * f64::from(logp);
                    derivative(t, -weight, 0.0);
                }
                return;
            }
            Loss::TokenSum(losses) => {
                let losses = &losses[index];
                for (t, &logp) in logp.iter().enumerate() {
                    let loss = losses[t.min(losses.len() - 1)];
                    let old = f64::from(datum.logprobs[t]);
                    let term = loss.token(f64::from(logp), old, datum.advantages[t]);
                    sums.loss += term.loss;
                    derivative(t, term.dlogp, 0.0);
                }
                return;
            }
            Loss::Policy { objective, daro } => (objective, daro),
        };
        let scale = objective.scale(logp.len(), &self.counts);
        let policy_scale = match (daro, datum.level) {
            (None, _) => scale,
            (Some(daro), level) => level.map_or(0.0, |l| daro.token_weight(l, self.level_tokens[l])),
        };
        // If the same engine samples and learns, the correction's weight is exactly 1.
        let sampler = datum.sampler_logprobs.as_ref().unwrap_or(&datum.logprobs);
        // Advantages may differ only if the loss is computed for each token separately.
        let constant = datum.advantages.windows(2).all(|pair| pair[0] == pair[1]);
        let step = if constant { logp.len() } else { 1 };
        for first in (0..logp.len()).step_by(step.max(1)) {
            let part = first..first + step;
            let tokens = Tokens {
                logp: &logp[part.clone()],
                old_logp: &datum.logprobs[part.clone()],
                entropy: Some(&entropy[part.clone()]),
                ref_logp: objective.kl.and(datum.ref_logprobs.as_ref()).map(|all| &all[part.clone()]),
                rollout_logp: (objective.correction != Correction::Off).then(|| &sampler[part.clone()]),
                advantage: datum.advantages[first],
                selected: self.selected.as_ref().map(|all| &all[index][part.clone()]),
                high_entropy: self.high_entropy.as_ref().map(|all| &all[index][part.clone()]),
            };
            objective.completion(&tokens, [policy_scale, scale], |t, term| {
                derivative(first + t, term.dlogp, term.dentropy);
                sums.add_term(&term, daro.as_ref().and(datum.level));
            });
        }
    }
}

/// Returns the number of tokens in the loss in each of DARO's levels, or an empty list without DARO.
pub fn level_tokens(data: &[Datum], daro: Option<&Daro>) -> Vec<usize> {
    let mut tokens = vec![0; daro.map_or(0, |daro| daro.raw.len())];
    for datum in data {
        if let Some(count) = datum.level.and_then(|level| tokens.get_mut(level)) {
            *count += datum.len();
        }
    }
    tokens
}
