//! The policy surrogates. Each takes a token's log-probability under the policy being updated and
//! under the one that sampled, and the completion's advantage.
//!
//! The losses don't know estimators or the focal weight: an advantage is a number.

use super::{beyond, log_ratio};
use crate::error::Error;

/// Bounds of CISPO's importance weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CispoBounds {
    /// `[1 - low, 1 + high]`, as the paper states them: (1, 5) is [0, 6].
    Around {
        /// Distance below 1.
        low: f64,
        /// Distance above 1.
        high: f64,
    },
    /// At most `high`, without a lower bound, like TRL's `epsilon_high`.
    Cap {
        /// The largest weight.
        high: f64,
    },
}

impl CispoBounds {
    const fn range(self) -> (f64, f64) {
        match self {
            Self::Around { low, high } => (1.0 - low, 1.0 + high),
            Self::Cap { high } => (f64::NEG_INFINITY, high),
        }
    }
}

/// A policy loss. `r = exp(clamp(logp - old_logp, -20, 20))`, `A` the advantage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PolicyLoss {
    /// `max(-A r, -A clip(r, 1 - low, 1 + high))`: PPO's clip; Clip-Higher if `high > low`.
    Clip {
        /// Distance of the lower clip from 1.
        low: f64,
        /// Distance of the upper clip from 1.
        high: f64,
        /// Dual clip: for `A < 0` the loss is at most `-A c`, c above 1.
        dual: Option<f64>,
    },
    /// `-stopgrad(clip(r)) A logp`.
    Cispo(CispoBounds),
    /// The clip on the sequence's ratio `s = exp(mean over tokens of logp - old_logp)`, where every token has the ratio
    /// `stopgrad(s) pi / stopgrad(pi)`. Its logarithm is clamped at 10.
    Gspo {
        /// Distance of the lower clip from 1.
        low: f64,
        /// Distance of the upper clip from 1.
        high: f64,
    },
    /// `-A g(r)` with the soft gate `g(r) = 4 / tau sigmoid(tau (r - 1))`, whose derivative at `r = 1` is 1. Source: SAPO
    /// (arXiv 2511.20347).
    Sapo {
        /// `tau` for advantages above 0.
        positive: f64,
        /// `tau` for the others.
        negative: f64,
    },
    /// `-A s` for every token, where `s` is the geometric mean over the completion of the tokens' ratios, each clipped to
    /// `[exp(-low), exp(high)]` on the side where the clip lowers the objective. With the aggregation
    /// `seq-mean-token-mean` it is GMPO (arXiv 2507.20673).
    Gmpo {
        /// Distance of the lower clip from 0, of the ratio's logarithm.
        low: f64,
        /// Distance of the upper clip from 0.
        high: f64,
    },
    /// `-stopgrad(min(r, cap)) A logp`, and 0 for tokens on which the policies already differ by more than the threshold
    /// in the direction of the advantage. Source: DPPO (arXiv 2602.04879).
    Dppo {
        /// How the difference is measured.
        divergence: Divergence,
        /// Threshold for advantages that lower the token's probability.
        low: f64,
        /// Threshold for advantages that raise it.
        high: f64,
        /// The largest ratio.
        cap: f64,
    },
    /// `-A r`, and `+ coef |logp - old_logp|` for the share of the mini-batch's tokens with the largest
    /// [covariance](super::covariance). Source: KL-Cov (arXiv 2505.22617).
    KlCov {
        /// Share of the tokens, from 0 to 1; at least one token.
        share: f64,
        /// Coefficient of the penalty.
        coef: f64,
    },
    /// PPO's clip, and 0 for some of the tokens with a [covariance](super::covariance) between the bounds. Source: Clip-Cov
    /// (arXiv 2505.22617).
    ClipCov {
        /// Distance of the lower clip from 1.
        low: f64,
        /// Distance of the upper clip from 1.
        high: f64,
        /// Largest share of the mini-batch's tokens that is dropped, from 0 to 1; at least one token.
        share: f64,
        /// Lower bound of the covariance.
        from: f64,
        /// Upper bound of the covariance.
        to: f64,
    },
}

/// The difference of two policies at a token, each reduced to two outcomes: the token, with probability `p` under the
/// policy being updated and `q` under the one that sampled, and any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divergence {
    /// Total variation, `|p - q|`.
    Tv,
    /// `q ln(q / p) + (1 - q) ln((1 - q + 1e-8) / (1 - p + 1e-8))`.
    Kl,
}

impl Divergence {
    fn of(self, logp: f64, old_logp: f64) -> f64 {
        let (p, q) = (logp.exp(), old_logp.exp());
        match self {
            Self::Tv => (p - q).abs(),
            Self::Kl => q * (old_logp - logp) + (1.0 - q) * ((1.0 - q + 1e-8) / (1.0 - p + 1e-8)).ln(),
        }
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
    pub const GRPO: Self = Self::Clip { low: 0.2, high: 0.2, dual: Some(3.0) };
    /// DAPO's Clip-Higher in the paper's setting: 0.2 below, 0.28 above, dual clip 3.
    pub const DAPO: Self = Self::Clip { low: 0.2, high: 0.28, dual: Some(3.0) };
    /// CISPO's largest weight in the paper's setting.
    pub const CISPO_MAX: f64 = 6.0;
    /// CISPO in the paper's setting: weights in [0, 6].
    pub const CISPO: Self = Self::Cispo(CispoBounds::Around { low: 1.0, high: Self::CISPO_MAX - 1.0 });
    /// The same upper bound, without a lower one.
    pub const CISPO_CAP: Self = Self::Cispo(CispoBounds::Cap { high: Self::CISPO_MAX });
    /// SAPO in its paper's setting.
    pub const SAPO: Self = Self::Sapo { positive: 1.0, negative: 1.05 };
    /// GMPO in its paper's setting.
    pub const GMPO: Self = Self::Gmpo { low: 0.4, high: 0.4 };
    /// DPPO by total variation, with verl's threshold.
    pub const DPPO_TV: Self = Self::Dppo { divergence: Divergence::Tv, low: 0.15, high: 0.15, cap: 20.0 };
    /// DPPO by KL divergence, with verl's threshold.
    pub const DPPO_KL: Self = Self::Dppo { divergence: Divergence::Kl, low: 0.05, high: 0.05, cap: 20.0 };
    /// KL-Cov with verl's values.
    pub const KL_COV: Self = Self::KlCov { share: 2e-4, coef: 1.0 };
    /// Clip-Cov with verl's values.
    pub const CLIP_COV: Self = Self::ClipCov { low: 0.2, high: 0.2, share: 2e-4, from: 1.0, to: 5.0 };
    /// GSPO in its paper's setting.
    pub const GSPO: Self = Self::Gspo { low: 3e-4, high: 4e-4 };

    /// Refuses bounds that clip every ratio or are not finite.
    ///
    /// # Errors
    /// [`Error::Setting`] names the key.
    pub fn check(&self) -> Result<(), Error> {
        let distance = |name, x: f64| match x.is_finite() && x >= 0.0 {
            true => Ok(()),
            false => Err(Error::setting(name, x, "a finite number of at least 0")),
        };
        let above_0 = |name, x: f64| match x.is_finite() && x > 0.0 {
            true => Ok(()),
            false => Err(Error::setting(name, x, "a finite number above 0")),
        };
        let share_of = |x: f64| match (0.0..=1.0).contains(&x) {
            true => Ok(()),
            false => Err(Error::setting("loss.share", x, "a number from 0 to 1")),
        };
        match *self {
            Self::Clip { low, high, dual } => {
                distance("loss.clip, low", low)?;
                distance("loss.clip, high", high)?;
                match dual {
                    Some(c) if !(c.is_finite() && c > 1.0) => {
                        Err(Error::setting("loss.dual_clip", c, "a finite number above 1"))
                    }
                    _ => Ok(()),
                }
            }
            Self::Gspo { low, high } | Self::Cispo(CispoBounds::Around { low, high }) => {
                distance("loss.clip, low", low)?;
                distance("loss.clip, high", high)
            }
            Self::Cispo(CispoBounds::Cap { high }) => above_0("loss.cap", high),
            Self::Sapo { positive, negative } => {
                match [positive, negative].iter().find(|tau| !(tau.is_finite() && **tau > 0.0)) {
                    Some(tau) => Err(Error::setting("loss.tau", tau, "a finite number above 0")),
                    None => Ok(()),
                }
            }
            Self::Gmpo { low, high } => {
                distance("loss.clip, low", low)?;
                distance("loss.clip, high", high)
            }
            Self::Dppo { low, high, cap, .. } => {
                distance("loss.clip, low", low)?;
                distance("loss.clip, high", high)?;
                above_0("loss.cap", cap)
            }
            Self::KlCov { share, coef } => {
                share_of(share)?;
                distance("loss.coef", coef)
            }
            Self::ClipCov { low, high, share, from, to } => {
                distance("loss.clip, low", low)?;
                distance("loss.clip, high", high)?;
                share_of(share)?;
                match from < to {
                    true => Ok(()),
                    false => {
                        Err(Error::setting("loss.covariance", format!("{from}, {to}"), "ascending numbers"))
                    }
                }
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
            Self::Gmpo { low, high } => {
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
            Self::Clip { low, high, dual } => clip(d.exp(), beyond, advantage, low, high, dual),
            Self::KlCov { .. } => {
                let ratio = d.exp();
                TokenLoss {
                    loss: -advantage * ratio,
                    dlogp: if beyond { 0.0 } else { -advantage * ratio },
                    ..TokenLoss::free(ratio)
                }
            }
            Self::ClipCov { low, high, .. } => clip(d.exp(), beyond, advantage, low, high, None),
            Self::Gspo { low, high } => {
                clip(sequence.min(10.0).exp(), sequence > 10.0, advantage, low, high, None)
            }
            Self::Cispo(bounds) => {
                let (low, high) = bounds.range();
                let ratio = d.exp();
                let weight = ratio.clamp(low, high);
                TokenLoss {
                    clipped_low: ratio < low,
                    clipped_high: ratio > high,
                    ..weighted(ratio, weight, advantage, logp)
                }
            }
            Self::Sapo { positive, negative } => {
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
            Self::Gmpo { low, high } => {
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
            Self::Dppo { divergence, low, high, cap } => {
                let ratio = d.exp();
                let difference = divergence.of(logp, old_logp);
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

/// PPO's clip at `ratio`. The ratio's derivative with respect to `logp` is the ratio itself, or 0 if it is `constant`.
fn clip(ratio: f64, constant: bool, advantage: f64, low: f64, high: f64, dual: Option<f64>) -> TokenLoss {
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
