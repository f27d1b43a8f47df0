//! The weight of tokens that another engine sampled: `w = exp(logp_trainer - logp_rollout)`.
//!
//! If one engine samples and learns, both log-probabilities are equal and every weight is exactly 1 (a test checks it),
//! so the correction is off.

use crate::error::Error;

/// How importance weights between two engines are kept within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
pub enum Correction {
    /// Every weight is 1.
    #[default]
    Off,
    /// Truncated importance sampling, `min(w, cap)`.
    Tis {
        /// The largest weight, usually 2.
        #[cfg_attr(feature = "serde", serde(default = "default::high"))]
        cap: f64,
    },
    /// `w` within the bounds, 0 outside: the token is dropped.
    Mask {
        /// The smallest weight kept.
        #[cfg_attr(feature = "serde", serde(default = "default::low"))]
        low: f64,
        /// The largest weight kept.
        #[cfg_attr(feature = "serde", serde(default = "default::high"))]
        high: f64,
    },
}

/// The defaults of a table's settings.
#[cfg(feature = "serde")]
mod default {
    pub(super) fn low() -> f64 {
        0.5
    }

    pub(super) fn high() -> f64 {
        2.0
    }
}

impl Correction {
    /// Refuses bounds that drop every token.
    ///
    /// # Errors
    /// [`Error::Setting`] names the key.
    pub fn check(&self) -> Result<(), Error> {
        match *self {
            Self::Tis { cap } if !(cap.is_finite() && cap > 0.0) => {
                Err(Error::setting("correction.cap", cap, "a finite number above 0"))
            }
            Self::Mask { low, high } if !(low >= 0.0 && high.is_finite() && low < high) => {
                Err(Error::setting(
                    "correction.low, correction.high",
                    format!("{low}, {high}"),
                    "0 <= low < high",
                ))
            }
            _ => Ok(()),
        }
    }

    /// The weight of one token's policy loss: a constant of the update, without a derivative.
    pub fn weight(&self, trainer_logp: f64, rollout_logp: f64) -> f64 {
        let w = || super::log_ratio(trainer_logp, rollout_logp).exp();
        match *self {
            Self::Off => 1.0,
            Self::Tis { cap } => w().min(cap),
            Self::Mask { low, high } => {
                let w = w();
                if (low..=high).contains(&w) { w } else { 0.0 }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_match_values_worked_by_hand() {
        let (half, double, eight) = (0.5f64.ln(), 2f64.ln(), 8f64.ln());
        let tis = Correction::Tis { cap: 2.0 };
        assert!((tis.weight(half, 0.0) - 0.5).abs() < 1e-15);
        assert_eq!(tis.weight(eight, 0.0), 2.0);
        let mask = Correction::Mask { low: 0.4, high: 4.0 };
        assert!((mask.weight(double, 0.0) - 2.0).abs() < 1e-15);
        assert_eq!(mask.weight(eight, 0.0), 0.0);
        assert_eq!(mask.weight(-eight, 0.0), 0.0);
    }

    #[test]
    fn one_engine_has_weight_one_exactly() {
        for correction in
            [Correction::Off, Correction::Tis { cap: 2.0 }, Correction::Mask { low: 0.5, high: 2.0 }]
        {
            for logp in [-0.1, -3.7, -30.0] {
                assert_eq!(correction.weight(logp, logp), 1.0);
            }
        }
    }

    #[test]
    fn bounds_that_drop_every_token_are_refused() {
        assert!(Correction::Mask { low: 2.0, high: 1.0 }.check().is_err());
        assert!(Correction::Tis { cap: 0.0 }.check().is_err());
        assert!(Correction::Tis { cap: 2.0 }.check().is_ok());
    }
}
