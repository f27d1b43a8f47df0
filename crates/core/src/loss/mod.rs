//! Computes losses in closed form: the value, and the derivative with respect to the log-probability of each sampled token.
//!
//! Every loss needs only log-probabilities and, for the entropy bonus, entropies, so it is written and tested without
//! tensors. [`policy`] has the surrogates, [`aggregate`] the factor of a token's loss in a mini-batch, [`kl`] the
//! divergence from a reference policy, [`correction`] the weight of tokens sampled by another engine, [`covariance`] the
//! token selection of two losses, [`high_entropy`] the restriction of the policy loss to tokens of high entropy, and [`daro`] the learned weights of one of the paper's controls. [`Objective`] combines them for one completion.

pub mod aggregate;
pub mod correction;
pub mod covariance;
pub mod daro;
pub mod high_entropy;
pub mod kl;
pub mod policy;

pub use aggregate::{Aggregation, Counts};
pub use correction::{Correction, Level};
pub use kl::Kl;
pub use policy::{PolicyLoss, TokenLoss};

use crate::error::{Error, require};

/// Returns `a - b`, clamped to ±20 so that the exponential is finite. The derivative with respect to `a` is 1 up to and
/// including the bounds, and 0 beyond them (see [`beyond`]).
///
/// # Examples
/// ```
/// assert_eq!(fgrpo_core::loss::log_ratio(-1.0, -3.0), 2.0);
/// assert_eq!(fgrpo_core::loss::log_ratio(-1.0, -300.0), 20.0);
/// ```
pub fn log_ratio(a: f64, b: f64) -> f64 {
    (a - b).clamp(-20.0, 20.0)
}

/// Returns whether [`log_ratio`] is clamped at these arguments, so that its derivative is 0.
pub fn beyond(a: f64, b: f64) -> bool {
    (a - b).abs() > 20.0
}

/// The loss of a mini-batch: `agg(policy) - entropy_coef agg(entropy) + kl_coef agg(kl)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    /// The policy surrogate.
    pub policy: PolicyLoss,
    /// Aggregation of the token losses.
    pub aggregation: Aggregation,
    /// Maximum length of a completion in tokens, by which [`Aggregation::SeqMeanTokenSumNorm`] divides.
    pub max_len: usize,
    /// Coefficient of the entropy bonus. 0 turns it off.
    pub entropy_coef: f64,
    /// The estimator of the KL divergence from the reference policy, and its coefficient.
    pub kl: Option<(Kl, f64)>,
    /// Weight of tokens that another engine sampled.
    pub correction: Correction,
    /// Fraction of the tokens, by highest entropy, that count in the policy loss. 1 counts all.
    pub top_entropy_quantile: f64,
}

/// The values of one completion, one for each token in the loss mask.
#[derive(Debug, Clone, Copy)]
pub struct Tokens<'a> {
    /// Log-probability under the policy being updated.
    pub logp: &'a [f32],
    /// Log-probability under the policy that sampled the token.
    pub old_logp: &'a [f32],
    /// Entropy of the policy being updated. Required if `entropy_coef` isn't 0.
    pub entropy: Option<&'a [f32]>,
    /// Log-probability under the reference policy. Required if `kl` is set.
    pub ref_logp: Option<&'a [f32]>,
    /// Log-probability reported by the other engine that sampled. Required unless the correction is off.
    pub rollout_logp: Option<&'a [f32]>,
    /// The completion's advantage.
    pub advantage: f64,
    /// Whether KL-Cov or Clip-Cov, which require it, selects each token ([`covariance::selected`]).
    pub selected: Option<&'a [bool]>,
    /// Whether each token counts in the policy loss ([`high_entropy::high_entropy`]). Required if `top_entropy_quantile`
    /// isn't 1.
    pub high_entropy: Option<&'a [bool]>,
}

/// The contribution of one token to the mini-batch's loss, and its derivatives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenTerm {
    /// The surrogate, before aggregation and correction.
    pub policy: TokenLoss,
    /// The policy's part of the total loss, after correction and aggregation.
    pub policy_loss: f64,
    /// The token's total loss: policy, entropy and KL.
    pub loss: f64,
    /// Derivative of the total loss with respect to this token's `logp`.
    pub dlogp: f64,
    /// Derivative of the total loss with respect to this token's entropy.
    pub dentropy: f64,
    /// The KL estimate, before coefficient and aggregation. 0 without a reference policy.
    pub kl: f64,
    /// The correction's weight. 1 if the correction is off.
    pub correction: f64,
}

impl Objective {
    /// GRPO's clipped loss, averaged over tokens, without an entropy bonus or a KL penalty.
    pub const GRPO: Self = Self {
        policy: PolicyLoss::GRPO,
        aggregation: Aggregation::TokenMean,
        max_len: 1,
        entropy_coef: 0.0,
        kl: None,
        correction: Correction::Off,
        top_entropy_quantile: 1.0,
    };

    /// Returns an error that names the setting if one is invalid.
    pub fn check(&self) -> Result<(), Error> {
        self.policy.check()?;
        let divides = self.max_len > 0 || self.aggregation != Aggregation::SeqMeanTokenSumNorm;
        require(divides, "max_new_tokens", 0, "at least 1 (the loss is divided by it)")?;
        self.correction.check()?;
        high_entropy::check(self.top_entropy_quantile)?;
        require(self.entropy_coef.is_finite(), "entropy_coef", self.entropy_coef, "a finite number")?;
        let coef = self.kl.map_or(0.0, |(_, coef)| coef);
        require(coef.is_finite(), "kl_coef", coef, "a finite number")
    }

    /// Returns the factor of each token's loss in a completion of `seq_len` tokens. `counts` covers the whole mini-batch,
    /// not a micro-batch, so the terms of all completions add up to the mini-batch's loss and gradient.
    pub fn scale(&self, seq_len: usize, counts: &Counts) -> f64 {
        self.aggregation.weight(seq_len, counts, self.max_len)
    }

    /// Calls `visit(token, term)` for every token of one completion. `policy_scale` is the factor of the policy loss,
    /// and `scale` the factor of the entropy and KL terms. Both are [`Objective::scale`], except that DARO weights the
    /// policy loss by success rate.
    ///
    /// # Panics
    /// If the slices differ in length, or if a slice that the settings require is missing.
    pub fn completion(
        &self,
        tokens: &Tokens<'_>,
        [policy_scale, scale]: [f64; 2],
        mut visit: impl FnMut(usize, TokenTerm),
    ) {
        let n = tokens.logp.len();
        let require = |name: &str, values: Option<&[f32]>, needed: bool| {
            assert!(values.is_some() || !needed, "{name} is required by the objective");
            assert!(
                values.is_none_or(|v| v.len() == n),
                "{name} has {} tokens, logp {n}",
                values.map_or(0, <[f32]>::len)
            );
        };
        require("entropy", tokens.entropy, self.entropy_coef != 0.0);
        require("ref_logp", tokens.ref_logp, self.kl.is_some());
        let selects = matches!(self.policy, PolicyLoss::KlCov { .. } | PolicyLoss::ClipCov { .. });
        assert!(!selects || tokens.selected.is_some(), "selected is required by the objective");
        assert!(tokens.selected.is_none_or(|s| s.len() == n), "selected and logp differ in length");
        let restricted = self.top_entropy_quantile != 1.0;
        assert!(!restricted || tokens.high_entropy.is_some(), "high_entropy is required by the objective");
        assert!(tokens.high_entropy.is_none_or(|h| h.len() == n), "high_entropy and logp differ in length");
        require("rollout_logp", tokens.rollout_logp, self.correction != Correction::Off);
        let corrections = tokens.rollout_logp.map(|r| self.correction.weights(tokens.old_logp, r));
        let losses = self.policy.completion(tokens.logp, tokens.old_logp, tokens.advantage);
        for (t, mut policy) in losses.enumerate() {
            if tokens.selected.is_some_and(|selected| selected[t]) {
                let (logp, old_logp) = (f64::from(tokens.logp[t]), f64::from(tokens.old_logp[t]));
                policy = self.policy.of_selected(policy, logp, old_logp);
            }
            if tokens.high_entropy.is_some_and(|mask| !mask[t]) {
                policy = TokenLoss::free(policy.ratio);
            }
            let correction = corrections.as_ref().map_or(1.0, |weights| weights[t].value);
            let policy_loss = policy_scale * correction * policy.loss;
            let mut term = TokenTerm {
                policy,
                policy_loss,
                loss: policy_loss,
                dlogp: policy_scale * correction * policy.dlogp,
                dentropy: 0.0,
                kl: 0.0,
                correction,
            };
            if let (Some(entropy), true) = (tokens.entropy, self.entropy_coef != 0.0) {
                term.loss -= scale * self.entropy_coef * f64::from(entropy[t]);
                term.dentropy = -scale * self.entropy_coef;
            }
            if let (Some((kl, coef)), Some(reference)) = (self.kl, tokens.ref_logp) {
                let (value, derivative) = kl.token(f64::from(tokens.logp[t]), f64::from(reference[t]));
                term.kl = value;
                term.loss += scale * coef * value;
                term.dlogp += scale * coef * derivative;
            }
            visit(t, term);
        }
    }
}

#[cfg(test)]
mod tests;
