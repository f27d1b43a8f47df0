//! Importance weights for tokens that another engine sampled: `w = exp(logp_trainer - logp_rollout)`, for each token or
//! for its whole completion.
//!
//! If the same engine samples and trains, both log-probabilities are equal and every weight is exactly 1 (a test checks
//! this), so the correction is off.

#[cfg(feature = "serde")]
use crate::default::ratio;
use crate::error::{Error, require};

/// The unit that has one importance weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Level {
    /// Each token has its own weight.
    #[default]
    Token,
    /// All tokens of a completion have the product of their weights, which is unbiased.
    Sequence,
}

/// The rule that bounds importance weights between two engines.
///
/// Source: truncated importance sampling (TIS) and masks (MIS, IcePop), as in verl's `rollout_corr_helper`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
pub enum Correction {
    /// Every weight is 1.
    #[default]
    Off,
    /// Truncated importance sampling, `min(w, cap)`.
    Tis {
        /// The largest weight.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<2, 1>"))]
        cap: f64,
        /// Whether each `token` has a weight, or each `sequence` has the product of its tokens' weights.
        #[cfg_attr(feature = "serde", serde(default))]
        level: Level,
    },
    /// `w` within the bounds, and 0 outside, which drops the token or completion.
    Mask {
        /// Smallest weight that isn't dropped.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 2>"))]
        low: f64,
        /// Largest weight that isn't dropped.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<2, 1>"))]
        high: f64,
        /// Whether each `token` has a weight, or each `sequence` has the product of its tokens' weights.
        #[cfg_attr(feature = "serde", serde(default))]
        level: Level,
    },
}

/// Weight of a token's policy loss. The update treats it as a constant, so its derivative is 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weight {
    /// Value of the weight.
    pub value: f64,
    /// Whether the importance weight was out of bounds.
    pub bounded: bool,
}

impl Correction {
    /// Returns an error if the bounds aren't finite or would drop every token.
    pub fn check(&self) -> Result<(), Error> {
        match *self {
            Self::Off => Ok(()),
            Self::Tis { cap, .. } => {
                require(cap.is_finite() && cap > 0.0, "correction.cap", cap, "a finite number above 0")
            }
            Self::Mask { low, high, .. } => {
                let holds = low >= 0.0 && high.is_finite() && low < high;
                let bounds = format_args!("{low}, {high}");
                require(holds, "correction.low, correction.high", bounds, "0 <= low < high")
            }
        }
    }

    /// Returns the weights of a completion's tokens. The logarithm of `w` is clamped to ±20.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn weights(&self, trainer_logp: &[f32], rollout_logp: &[f32]) -> Vec<Weight> {
        let n = trainer_logp.len();
        assert_eq!(n, rollout_logp.len(), "trainer_logp and rollout_logp differ in length");
        let (level, low, high) = match *self {
            Self::Off => return vec![Weight { value: 1.0, bounded: false }; n],
            Self::Tis { cap, level } => (level, f64::NEG_INFINITY, cap),
            Self::Mask { low, high, level } => (level, low, high),
        };
        let log = |(&a, &b): (&f32, &f32)| f64::from(a) - f64::from(b);
        let logs = trainer_logp.iter().zip(rollout_logp).map(log);
        let weight = |log: f64| {
            let w = super::log_ratio(log, 0.0).exp();
            let bounded = !(low..=high).contains(&w);
            let value = match self {
                Self::Tis { cap, .. } => w.min(*cap),
                _ if bounded => 0.0,
                _ => w,
            };
            Weight { value, bounded }
        };
        match level {
            Level::Token => logs.map(weight).collect(),
            Level::Sequence => vec![weight(logs.sum()); n],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_match_values_worked_by_hand() {
        let (half, double, eight) = (0.5f32.ln(), 2f32.ln(), 8f32.ln());
        let weights = |correction: Correction, logp: &[f32]| -> Vec<f64> {
            correction.weights(logp, &vec![0.0; logp.len()]).iter().map(|w| w.value).collect()
        };
        let close = |actual: Vec<f64>, expected: &[f64]| {
            assert!(actual.iter().zip(expected).all(|(f, w)| (f - w).abs() < 1e-6), "{actual:?}");
        };
        let (tokens, level) = ([half, double, eight, -eight], Level::Token);
        close(weights(Correction::Tis { cap: 2.0, level }, &tokens), &[0.5, 2.0, 2.0, 0.125]);
        close(weights(Correction::Mask { low: 0.4, high: 4.0, level }, &tokens), &[0.5, 2.0, 0.0, 0.0]);
        // The product of 1/2 and 8 is 4, of 2 and 8 is 16.
        let level = Level::Sequence;
        close(weights(Correction::Tis { cap: 5.0, level }, &[half, eight]), &[4.0, 4.0]);
        close(weights(Correction::Tis { cap: 5.0, level }, &[double, eight]), &[5.0, 5.0]);
        close(weights(Correction::Mask { low: 0.5, high: 5.0, level }, &[half, eight]), &[4.0, 4.0]);
        close(weights(Correction::Mask { low: 0.5, high: 5.0, level }, &[double, eight]), &[0.0, 0.0]);
        assert!(Correction::Mask { low: 0.5, high: 5.0, level }.weights(&[eight], &[0.0])[0].bounded);
    }

    #[test]
    fn one_engine_has_weight_one_exactly() {
        for level in [Level::Token, Level::Sequence] {
            let mask = Correction::Mask { low: 0.5, high: 2.0, level };
            for correction in [Correction::Off, Correction::Tis { cap: 2.0, level }, mask] {
                let logp = [-0.1, -3.7, -30.0];
                assert!(correction.weights(&logp, &logp).iter().all(|w| w.value == 1.0 && !w.bounded));
            }
        }
    }

    #[test]
    fn bounds_that_drop_every_token_are_refused() {
        assert!(Correction::Mask { low: 2.0, high: 1.0, level: Level::Token }.check().is_err());
        assert!(Correction::Tis { cap: 0.0, level: Level::Token }.check().is_err());
        assert!(Correction::Tis { cap: 2.0, level: Level::Sequence }.check().is_ok());
    }
}
