//! The policy surrogates. Each takes a token's log-probability under the policy being updated and under the policy that
//! sampled, and the completion's advantage. The losses don't depend on the estimator or the focal weight.

use super::{beyond, log_ratio};
use crate::error::{Error, require};

/// A policy loss. Below, `r = exp(clamp(logp - old_logp, -20, 20))` is the ratio and `A` the advantage.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
pub enum PolicyLoss {
    /// PPO's symmetric clip: `max(-A r, -A clip(r, 1 - low, 1 + high))`. The dual clip with the constant `c` bounds the loss by
    /// `-A c` if `A < 0`.
    Grpo {
        /// Clip widths below and above 1.
        #[cfg_attr(feature = "serde", serde(default = "default::grpo", deserialize_with = "pair"))]
        clip: [f64; 2],
        /// Constant of the dual clip for negative advantages, above 1. 0 turns the dual clip off.
        #[cfg_attr(feature = "serde", serde(default = "default::dual"))]
        dual_clip: f64,
    },
    /// Clip-higher: GRPO's clip with a wider upper bound.
    Dapo {
        /// Clip widths below and above 1.
        #[cfg_attr(feature = "serde", serde(default = "default::dapo", deserialize_with = "pair"))]
        clip: [f64; 2],
        /// Constant of the dual clip for negative advantages, above 1. 0 turns the dual clip off.
        #[cfg_attr(feature = "serde", serde(default = "default::dual"))]
        dual_clip: f64,
    },
    /// Clips the importance weight of REINFORCE: `-stopgrad(clip(r)) A logp`. Widths 1 and 5 bound the weights by 0 and 6.
    Cispo {
        /// Clip widths below and above 1.
        #[cfg_attr(feature = "serde", serde(default = "default::cispo", deserialize_with = "pair"))]
        clip: [f64; 2],
    },
    /// CISPO with an upper bound of the ratio itself and without a lower bound, like TRL's `epsilon_high`.
    CispoCap {
        /// The largest ratio.
        #[cfg_attr(feature = "serde", serde(default = "default::cap"))]
        cap: f64,
    },
    /// Clips the ratio of a whole completion, `s = exp(mean over tokens of logp - old_logp)`. Every token has the ratio
    /// `stopgrad(s) pi / stopgrad(pi)`. The logarithm of `s` is at most 10. With the aggregation `seq-mean-token-mean` it
    /// is GSPO (arXiv 2507.18071).
    Gspo {
        /// Clip widths below and above 1.
        #[cfg_attr(feature = "serde", serde(default = "default::gspo", deserialize_with = "pair"))]
        clip: [f64; 2],
    },
    /// A soft gate in place of the clip: `-A g(r)` with `g(r) = 4 / tau sigmoid(tau (r - 1))`, whose derivative at
    /// `r = 1` is 1. Source: SAPO (arXiv 2511.20347).
    Sapo {
        /// Temperatures of the gate, for advantages above 0 and for other advantages.
        #[cfg_attr(feature = "serde", serde(default = "default::sapo", deserialize_with = "pair"))]
        tau: [f64; 2],
    },
    /// The geometric mean of a completion's clipped ratios: `-A s` for every token, where each ratio is clipped to
    /// `[exp(-low), exp(high)]` on the side where the clip lowers the objective. With the aggregation
    /// `seq-mean-token-mean` it is GMPO (arXiv 2507.20673).
    Gmpo {
        /// Clip widths of the ratio's logarithm, below and above 0.
        #[cfg_attr(feature = "serde", serde(default = "default::gmpo", deserialize_with = "pair"))]
        clip: [f64; 2],
    },
    /// Masks tokens by the total variation between the policies, `|p - q|`: the loss is `-stopgrad(min(r, cap)) A logp`, but 0
    /// for tokens on which the policies already differ by more than the threshold in the direction of the advantage. Each
    /// policy is reduced to two outcomes, the token and any other token. The token's probability is `p` under the policy
    /// being updated and `q` under the policy that sampled. Source: DPPO (arXiv 2602.04879).
    DppoTv {
        /// Thresholds for advantages below and above 0.
        #[cfg_attr(feature = "serde", serde(default = "default::dppo_tv", deserialize_with = "pair"))]
        clip: [f64; 2],
        /// The largest ratio.
        #[cfg_attr(feature = "serde", serde(default = "default::dppo_cap"))]
        cap: f64,
    },
    /// Masks tokens by the KL divergence between the policies, `q ln(q / p) + (1 - q) ln((1 - q + 1e-8) / (1 - p + 1e-8))`.
    DppoKl {
        /// Thresholds for advantages below and above 0.
        #[cfg_attr(feature = "serde", serde(default = "default::dppo_kl", deserialize_with = "pair"))]
        clip: [f64; 2],
        /// The largest ratio.
        #[cfg_attr(feature = "serde", serde(default = "default::dppo_cap"))]
        cap: f64,
    },
    /// `-A r`, with the penalty `coef |logp - old_logp|` on the tokens with the largest [covariance](super::covariance) of
    /// advantage and log-probability. Source: KL-Cov (arXiv 2505.22617).
    KlCov {
        /// Fraction of a mini-batch's tokens that are selected, at least one token.
        #[cfg_attr(feature = "serde", serde(default = "default::cov_share"))]
        share: f64,
        /// Coefficient of the penalty.
        #[cfg_attr(feature = "serde", serde(default = "default::kl_cov"))]
        coef: f64,
    },
    /// Symmetric clip that also drops a random selection of the tokens that aren't clipped and whose
    /// [covariance](super::covariance) is between the bounds. Source: Clip-Cov (arXiv 2505.22617).
    ClipCov {
        /// Clip widths below and above 1.
        #[cfg_attr(feature = "serde", serde(default = "default::grpo", deserialize_with = "pair"))]
        clip: [f64; 2],
        /// Fraction of a mini-batch's tokens that are selected, at least one token.
        #[cfg_attr(feature = "serde", serde(default = "default::cov_share"))]
        share: f64,
        /// Bounds of the covariance of a dropped token.
        #[cfg_attr(feature = "serde", serde(default = "default::clip_cov", deserialize_with = "pair"))]
        covariance: [f64; 2],
    },
}

/// Default values of the settings, taken from the presets.
#[cfg(feature = "serde")]
mod default {
    use super::PolicyLoss;

    /// Defines functions that return a setting of a preset.
    macro_rules! of {
        ($($name:ident: $type:ty = $preset:ident.$variant:ident.$field:ident;)+) => {$(
            pub(super) fn $name() -> $type {
                match PolicyLoss::$preset {
                    PolicyLoss::$variant { $field, .. } => $field,
                    _ => unreachable!("a preset is of its own kind"),
                }
            }
        )+};
    }

    of! {
        grpo: [f64; 2] = GRPO.Grpo.clip;
        dual: f64 = GRPO.Grpo.dual_clip;
        dapo: [f64; 2] = DAPO.Dapo.clip;
        cispo: [f64; 2] = CISPO.Cispo.clip;
        cap: f64 = CISPO_CAP.CispoCap.cap;
        gspo: [f64; 2] = GSPO.Gspo.clip;
        sapo: [f64; 2] = SAPO.Sapo.tau;
        gmpo: [f64; 2] = GMPO.Gmpo.clip;
        dppo_tv: [f64; 2] = DPPO_TV.DppoTv.clip;
        dppo_kl: [f64; 2] = DPPO_KL.DppoKl.clip;
        dppo_cap: f64 = DPPO_TV.DppoTv.cap;
        cov_share: f64 = KL_COV.KlCov.share;
        kl_cov: f64 = KL_COV.KlCov.coef;
        clip_cov: [f64; 2] = CLIP_COV.ClipCov.covariance;
    }
}

/// Deserializes a list of exactly two numbers.
#[cfg(feature = "serde")]
fn pair<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<[f64; 2], D::Error> {
    use serde::{Deserialize, de::Error};
    let numbers = Vec::<f64>::deserialize(deserializer)?;
    let count = numbers.len();
    numbers
        .try_into()
        .map_err(|_| D::Error::custom(format_args!("the list must have 2 values, but it has {count}")))
}

impl Default for PolicyLoss {
    fn default() -> Self {
        Self::GRPO
    }
}

/// Value and derivative of one token's loss, before aggregation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenLoss {
    /// Value of the loss.
    pub loss: f64,
    /// Derivative of the loss with respect to `logp`. Stop-gradients are constants.
    pub dlogp: f64,
    /// Importance ratio of the token, or of the sequence for GSPO and GMPO.
    pub ratio: f64,
    /// Whether the lower clip applied.
    pub clipped_low: bool,
    /// Whether the upper clip applied.
    pub clipped_high: bool,
    /// Whether the dual clip applied.
    pub clipped_dual: bool,
}

impl PolicyLoss {
    /// GRPO in the paper's setting: 0.2 on both sides, dual clip 3.
    pub const GRPO: Self = Self::Grpo { clip: [0.2, 0.2], dual_clip: 3.0 };
    /// DAPO's Clip-Higher in the paper's setting: 0.2 below, 0.28 above, dual clip 3.
    pub const DAPO: Self = Self::Dapo { clip: [0.2, 0.28], dual_clip: 3.0 };
    /// CISPO in the paper's setting: weights in [0, 6].
    pub const CISPO: Self = Self::Cispo { clip: [1.0, 5.0] };
    /// CISPO with the paper's upper bound and without a lower bound.
    pub const CISPO_CAP: Self = Self::CispoCap { cap: 6.0 };
    /// SAPO in its paper's setting.
    pub const SAPO: Self = Self::Sapo { tau: [1.0, 1.05] };
    /// GMPO in its paper's setting.
    pub const GMPO: Self = Self::Gmpo { clip: [0.4, 0.4] };
    /// DPPO by total variation, with verl's threshold.
    pub const DPPO_TV: Self = Self::DppoTv { clip: [0.15, 0.15], cap: 20.0 };
    /// DPPO by KL divergence, with verl's threshold.
    pub const DPPO_KL: Self = Self::DppoKl { clip: [0.05, 0.05], cap: 20.0 };
    /// KL-Cov with the defaults of verl's function. In verl's configuration, `coef` is 0.1 by default.
    pub const KL_COV: Self = Self::KlCov { share: 2e-4, coef: 1.0 };
    /// Clip-Cov with verl's values.
    pub const CLIP_COV: Self = Self::ClipCov { clip: [0.2, 0.2], share: 2e-4, covariance: [1.0, 5.0] };
    /// GSPO in its paper's setting.
    pub const GSPO: Self = Self::Gspo { clip: [3e-4, 4e-4] };

    /// Returns an error that names the setting if one is out of range or not finite.
    pub fn check(&self) -> Result<(), Error> {
        let at_least_0 =
            |name, x: f64| require(x.is_finite() && x >= 0.0, name, x, "a finite number of at least 0");
        let above_0 = |name, x: f64| require(x.is_finite() && x > 0.0, name, x, "a finite number above 0");
        let share_of = |x: f64| require((0.0..=1.0).contains(&x), "loss.share", x, "a number from 0 to 1");
        let widths = |[low, high]: [f64; 2]| {
            at_least_0("loss.clip, low", low).and_then(|()| at_least_0("loss.clip, high", high))
        };
        match *self {
            Self::Grpo { clip, dual_clip } | Self::Dapo { clip, dual_clip } => {
                widths(clip)?;
                let holds = dual_clip == 0.0 || dual_clip.is_finite() && dual_clip > 1.0;
                require(holds, "loss.dual_clip", dual_clip, "0 or a finite number above 1")
            }
            Self::Cispo { clip } | Self::Gspo { clip } | Self::Gmpo { clip } => widths(clip),
            Self::CispoCap { cap } => above_0("loss.cap", cap),
            Self::Sapo { tau } => tau.into_iter().try_for_each(|tau| above_0("loss.tau", tau)),
            Self::DppoTv { clip, cap } | Self::DppoKl { clip, cap } => {
                widths(clip)?;
                above_0("loss.cap", cap)
            }
            Self::KlCov { share, coef } => {
                share_of(share)?;
                at_least_0("loss.coef", coef)
            }
            Self::ClipCov { clip, share, covariance: [from, to] } => {
                widths(clip)?;
                share_of(share)?;
                let bounds = format_args!("{from}, {to}");
                require(from < to, "loss.covariance", bounds, "ascending numbers")
            }
        }
    }

    /// Returns the loss of one token. GSPO and GMPO treat it as a sequence of one token; use [`PolicyLoss::completion`] for
    /// longer sequences.
    pub fn token(&self, logp: f64, old_logp: f64, advantage: f64) -> TokenLoss {
        self.at(logp, old_logp, self.part_of_sequence(logp, old_logp, advantage), advantage)
    }

    /// Returns the losses of one completion's tokens, in order.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn completion<'a, T>(
        &self,
        logp: &'a [T],
        old_logp: &'a [T],
        advantage: f64,
    ) -> impl Iterator<Item = TokenLoss> + use<'a, T>
    where
        T: Copy + Into<f64>,
    {
        assert_eq!(logp.len(), old_logp.len(), "logp and old_logp differ in length");
        let (this, n) = (*self, logp.len());
        let pairs = logp.iter().zip(old_logp).map(|(&a, &b)| (a.into(), b.into()));
        let parts = pairs.clone().map(|(a, b): (f64, f64)| this.part_of_sequence(a, b, advantage));
        let sequence = match this {
            Self::Gspo { .. } | Self::Gmpo { .. } => parts.sum::<f64>() / n as f64,
            _ => 0.0,
        };
        pairs.map(move |(a, b)| this.at(a, b, sequence, advantage))
    }

    /// Returns the loss of a token that [`covariance::selected`](super::covariance::selected) selects. `token` is the loss
    /// without the selection.
    pub fn of_selected(&self, token: TokenLoss, logp: f64, old_logp: f64) -> TokenLoss {
        match *self {
            Self::KlCov { coef, .. } => {
                let d = logp - old_logp;
                let slope = if d == 0.0 { 0.0 } else { coef * d.signum() };
                TokenLoss { loss: token.loss + coef * d.abs(), dlogp: token.dlogp + slope, ..token }
            }
            Self::ClipCov { .. } => TokenLoss { loss: 0.0, dlogp: 0.0, ..token },
            _ => token,
        }
    }

    /// Returns a token's term of the sequence's log-ratio, which is the mean of all terms, or 0 for losses without one.
    fn part_of_sequence(&self, logp: f64, old_logp: f64, advantage: f64) -> f64 {
        match *self {
            Self::Gspo { .. } => logp - old_logp,
            Self::Gmpo { clip: [low, high] } => {
                let d = log_ratio(logp, old_logp);
                if advantage > 0.0 { d.min(high) } else { d.max(-low) }
            }
            _ => 0.0,
        }
    }

    /// Returns the loss of a token. `sequence` is the logarithm of the sequence's ratio.
    fn at(&self, logp: f64, old_logp: f64, sequence: f64, advantage: f64) -> TokenLoss {
        let d = log_ratio(logp, old_logp);
        let beyond = beyond(logp, old_logp);
        match *self {
            Self::Grpo { clip, dual_clip } | Self::Dapo { clip, dual_clip } => {
                let dual = (dual_clip != 0.0).then_some(dual_clip);
                clipped(d.exp(), beyond, advantage, clip, dual)
            }
            Self::KlCov { .. } => {
                let ratio = d.exp();
                TokenLoss {
                    loss: -advantage * ratio,
                    dlogp: if beyond { 0.0 } else { -advantage * ratio },
                    ..TokenLoss::free(ratio)
                }
            }
            Self::ClipCov { clip, .. } => clipped(d.exp(), beyond, advantage, clip, None),
            Self::Gspo { clip } => clipped(sequence.min(10.0).exp(), sequence > 10.0, advantage, clip, None),
            Self::Cispo { clip: [low, high] } => bounded(d.exp(), 1.0 - low, 1.0 + high, advantage, logp),
            Self::CispoCap { cap } => bounded(d.exp(), f64::NEG_INFINITY, cap, advantage, logp),
            Self::Sapo { tau: [positive, negative] } => {
                let ratio = d.exp();
                let tau = if advantage > 0.0 { positive } else { negative };
                let gate = 1.0 / (1.0 + (-tau * (ratio - 1.0)).exp());
                let slope = 4.0 * gate * (1.0 - gate) * ratio;
                TokenLoss {
                    loss: -advantage * 4.0 / tau * gate,
                    dlogp: if beyond { 0.0 } else { -advantage * slope },
                    ..TokenLoss::free(ratio)
                }
            }
            Self::Gmpo { clip: [low, high] } => {
                let ratio = sequence.exp();
                let (clipped_low, clipped_high) = (advantage < 0.0 && d < -low, advantage > 0.0 && d > high);
                let constant = beyond || clipped_low || clipped_high;
                TokenLoss {
                    loss: -advantage * ratio,
                    dlogp: if constant { 0.0 } else { -advantage * ratio },
                    clipped_low,
                    clipped_high,
                    ..TokenLoss::free(ratio)
                }
            }
            Self::DppoTv { clip: [low, high], cap } | Self::DppoKl { clip: [low, high], cap } => {
                let ratio = d.exp();
                let (p, q) = (logp.exp(), old_logp.exp());
                let difference = match self {
                    Self::DppoTv { .. } => (p - q).abs(),
                    _ => q * (old_logp - logp) + (1.0 - q) * ((1.0 - q + 1e-8) / (1.0 - p + 1e-8)).ln(),
                };
                let clipped_low = advantage < 0.0 && logp < old_logp && difference > low;
                let clipped_high = advantage > 0.0 && logp > old_logp && difference > high;
                let weight = if clipped_low || clipped_high { 0.0 } else { ratio.min(cap) };
                TokenLoss { clipped_low, clipped_high, ..weighted(ratio, weight, advantage, logp) }
            }
        }
    }
}

impl TokenLoss {
    /// Returns a loss of 0 at a ratio that isn't clipped.
    pub(super) const fn free(ratio: f64) -> Self {
        Self { loss: 0.0, dlogp: 0.0, ratio, clipped_low: false, clipped_high: false, clipped_dual: false }
    }
}

/// Returns the loss `-weight A logp` with a constant weight.
fn weighted(ratio: f64, weight: f64, advantage: f64, logp: f64) -> TokenLoss {
    TokenLoss { loss: -weight * advantage * logp, dlogp: -weight * advantage, ..TokenLoss::free(ratio) }
}

/// Returns the loss `-stopgrad(clip(ratio, low, high)) A logp`.
fn bounded(ratio: f64, low: f64, high: f64, advantage: f64, logp: f64) -> TokenLoss {
    TokenLoss {
        clipped_low: ratio < low,
        clipped_high: ratio > high,
        ..weighted(ratio, ratio.clamp(low, high), advantage, logp)
    }
}

/// Returns the loss of PPO's clip at `ratio`. The ratio's derivative with respect to `logp` is the ratio itself, or 0 if
/// `constant`.
fn clipped(
    ratio: f64,
    constant: bool,
    advantage: f64,
    [low, high]: [f64; 2],
    dual: Option<f64>,
) -> TokenLoss {
    let clipped = ratio.clamp(1.0 - low, 1.0 + high);
    let free = -advantage * ratio;
    let bound = -advantage * clipped;
    let mut token = TokenLoss {
        loss: free.max(bound),
        dlogp: if constant { 0.0 } else { free },
        ratio,
        clipped_low: bound > free && ratio < 1.0 - low,
        clipped_high: bound > free && ratio > 1.0 + high,
        clipped_dual: false,
    };
    if bound > free {
        token.dlogp = 0.0;
    }
    if let Some(c) = dual
        && advantage < 0.0
        && token.loss > -advantage * c
    {
        token.loss = -advantage * c;
        token.dlogp = 0.0;
        token.clipped_dual = true;
    }
    token
}
