//! The policy surrogates. Each takes a token's log-probability under the policy being updated and
//! under the one that sampled, and the completion's advantage.
//!
//! The losses don't know estimators or the focal weight: an advantage is a number.

use super::{beyond, log_ratio};
use crate::error::{Error, require};

/// A policy loss, by the name of its method. `r = exp(clamp(logp - old_logp, -20, 20))`, `A` the advantage.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
pub enum PolicyLoss {
    /// Symmetric clip: `max(-A r, -A clip(r, 1 - low, 1 + high))`, PPO's. Dual clip with the constant `c` bounds it by
    /// `-A c` where `A < 0`.
    Grpo {
        /// Clip widths below and above 1.
        #[cfg_attr(feature = "serde", serde(default = "default::grpo", deserialize_with = "pair"))]
        clip: [f64; 2],
        /// Dual clip's constant for negative advantages, above 1; 0 is off.
        #[cfg_attr(feature = "serde", serde(default = "default::dual"))]
        dual_clip: f64,
    },
    /// Clip-higher: the same with a wider clip above.
    Dapo {
        /// Clip widths below and above 1.
        #[cfg_attr(feature = "serde", serde(default = "default::dapo", deserialize_with = "pair"))]
        clip: [f64; 2],
        /// Dual clip's constant for negative advantages, above 1; 0 is off.
        #[cfg_attr(feature = "serde", serde(default = "default::dual"))]
        dual_clip: f64,
    },
    /// Clips the importance weight of REINFORCE: `-stopgrad(clip(r)) A logp`. Widths 1 and 5 are weights from 0 to 6.
    Cispo {
        /// Clip widths below and above 1.
        #[cfg_attr(feature = "serde", serde(default = "default::cispo", deserialize_with = "pair"))]
        clip: [f64; 2],
    },
    /// The same, but with a cap on the ratio itself and no lower bound, like TRL's `epsilon_high`.
    CispoCap {
        /// The largest ratio.
        #[cfg_attr(feature = "serde", serde(default = "default::cap"))]
        cap: f64,
    },
    /// Clips the ratio of whole completions, `s = exp(mean over tokens of logp - old_logp)`, where every token has the
    /// ratio `stopgrad(s) pi / stopgrad(pi)`. Its logarithm is clamped at 10.
    Gspo {
        /// Clip widths below and above 1.
        #[cfg_attr(feature = "serde", serde(default = "default::gspo", deserialize_with = "pair"))]
        clip: [f64; 2],
    },
    /// A soft gate in place of the clip: `-A g(r)` with `g(r) = 4 / tau sigmoid(tau (r - 1))`, whose derivative at
    /// `r = 1` is 1. Source: SAPO (arXiv 2511.20347).
    Sapo {
        /// Temperatures of the gate for advantages above 0, and for the others.
        #[cfg_attr(feature = "serde", serde(default = "default::sapo", deserialize_with = "pair"))]
        tau: [f64; 2],
    },
    /// The geometric mean of a completion's clipped ratios: `-A s` for every token, where each ratio is clipped to
    /// `[exp(-low), exp(high)]` on the side where the clip lowers the objective. With the aggregation
    /// `seq-mean-token-mean` it is GMPO (arXiv 2507.20673).
    Gmpo {
        /// Clip widths below and above 0, of the ratio's logarithm.
        #[cfg_attr(feature = "serde", serde(default = "default::gmpo", deserialize_with = "pair"))]
        clip: [f64; 2],
    },
    /// Masks tokens by the total variation between the policies, `|p - q|`: `-stopgrad(min(r, cap)) A logp`, and 0 for
    /// tokens on which the policies already differ by more than the threshold in the direction of the advantage. Each
    /// policy is reduced to two outcomes: the token, with probability `p` under the policy being updated and `q` under the
    /// one that sampled, and any other. Source: DPPO (arXiv 2602.04879).
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
    /// A penalty on the tokens with the largest [covariance](super::covariance) of advantage and log-probability: `-A r`,
    /// and for these `+ coef |logp - old_logp|`. Source: KL-Cov (arXiv 2505.22617).
    KlCov {
        /// Share of a mini-batch's tokens that is held back, at least one token.
        #[cfg_attr(feature = "serde", serde(default = "default::cov_share"))]
        share: f64,
        /// Coefficient of the penalty.
        #[cfg_attr(feature = "serde", serde(default = "default::kl_cov"))]
        coef: f64,
    },
    /// Symmetric clip; drops some of the tokens whose [covariance](super::covariance) is between bounds. Source: Clip-Cov
    /// (arXiv 2505.22617).
    ClipCov {
        /// Clip widths below and above 1.
        #[cfg_attr(feature = "serde", serde(default = "default::grpo", deserialize_with = "pair"))]
        clip: [f64; 2],
        /// Share of a mini-batch's tokens that is held back, at least one token.
        #[cfg_attr(feature = "serde", serde(default = "default::cov_share"))]
        share: f64,
        /// Bounds of the covariance of a dropped token.
        #[cfg_attr(feature = "serde", serde(default = "default::clip_cov", deserialize_with = "pair"))]
        covariance: [f64; 2],
    },
}

/// The defaults of a table's settings.
#[cfg(feature = "serde")]
mod default {
    use super::PolicyLoss;

    /// A setting of one of the presets.
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

/// Exactly two numbers; a third one is an error.
#[cfg(feature = "serde")]
fn pair<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<[f64; 2], D::Error> {
    use serde::{Deserialize, de::Error};
    let numbers = Vec::<f64>::deserialize(deserializer)?;
    let found = numbers.len();
    numbers
        .try_into()
        .map_err(|_| D::Error::custom(format_args!("found a list of {found} numbers, wanted 2")))
}

impl Default for PolicyLoss {
    fn default() -> Self {
        Self::GRPO
    }
}

/// Value and derivative of one token's loss, before aggregation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenLoss {
    /// The loss.
    pub loss: f64,
    /// Its derivative with respect to `logp`; stop-gradients are constants.
    pub dlogp: f64,
    /// The importance ratio: the token's; for GSPO and GMPO the sequence's.
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
    /// The same upper bound, without a lower one.
    pub const CISPO_CAP: Self = Self::CispoCap { cap: 6.0 };
    /// SAPO in its paper's setting.
    pub const SAPO: Self = Self::Sapo { tau: [1.0, 1.05] };
    /// GMPO in its paper's setting.
    pub const GMPO: Self = Self::Gmpo { clip: [0.4, 0.4] };
    /// DPPO by total variation, with verl's threshold.
    pub const DPPO_TV: Self = Self::DppoTv { clip: [0.15, 0.15], cap: 20.0 };
    /// DPPO by KL divergence, with verl's threshold.
    pub const DPPO_KL: Self = Self::DppoKl { clip: [0.05, 0.05], cap: 20.0 };
    /// KL-Cov with verl's values.
    pub const KL_COV: Self = Self::KlCov { share: 2e-4, coef: 1.0 };
    /// Clip-Cov with verl's values.
    pub const CLIP_COV: Self = Self::ClipCov { clip: [0.2, 0.2], share: 2e-4, covariance: [1.0, 5.0] };
    /// GSPO in its paper's setting.
    pub const GSPO: Self = Self::Gspo { clip: [3e-4, 4e-4] };

    /// Refuses bounds that clip every ratio or are not finite.
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
                require(holds, "loss.dual_clip", dual_clip, "a finite number above 1")
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
                let found = format_args!("{from}, {to}");
                require(from < to, "loss.covariance", found, "ascending numbers")
            }
        }
    }

    /// The loss of one token. For GSPO and GMPO the token is taken as a whole sequence; use [`PolicyLoss::completion`] for
    /// longer ones.
    pub fn token(&self, logp: f64, old_logp: f64, advantage: f64) -> TokenLoss {
        self.at(logp, old_logp, self.part_of_sequence(logp, old_logp, advantage), advantage)
    }

    /// The losses of one completion's tokens, in order.
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

    /// The loss of a token that [`covariance::selected`](super::covariance::selected) selects, from its loss if it weren't.
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

    /// A token's part of the logarithm of the sequence's ratio, which is the mean of all parts; 0 for losses without one.
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

    /// The loss of a token, where `sequence` is the logarithm of the sequence's ratio.
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
    /// No loss, at a ratio that nothing clips.
    pub(super) const fn free(ratio: f64) -> Self {
        Self { loss: 0.0, dlogp: 0.0, ratio, clipped_low: false, clipped_high: false, clipped_dual: false }
    }
}

/// `-weight A logp`, where the weight is a constant.
fn weighted(ratio: f64, weight: f64, advantage: f64, logp: f64) -> TokenLoss {
    TokenLoss { loss: -weight * advantage * logp, dlogp: -weight * advantage, ..TokenLoss::free(ratio) }
}

/// `-clip(ratio, low, high) A logp`.
fn bounded(ratio: f64, low: f64, high: f64, advantage: f64, logp: f64) -> TokenLoss {
    TokenLoss {
        clipped_low: ratio < low,
        clipped_high: ratio > high,
        ..weighted(ratio, ratio.clamp(low, high), advantage, logp)
    }
}

/// PPO's clip at `ratio`. The ratio's derivative with respect to `logp` is the ratio itself, or 0 if it is `constant`.
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
