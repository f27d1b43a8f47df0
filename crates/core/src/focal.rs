//! The focal weight, the paper's contribution: one factor per group that multiplies all advantages of the group. It works
//! with any estimator and any policy loss.

use crate::error::Error;
use crate::group::{Group, Rewards};

/// The default exponent, which is the paper's most frequent choice.
pub const DEFAULT_GAMMA: f64 = 0.5;

/// Returns the focal weight of one group, `g = (1 - success_rate)^gamma`.
///
/// `success_rate` is the fraction of correct completions, in `[0, 1]`.
/// `gamma = 0` gives 1 for every group, which is the plain estimator.
///
/// Source: F-GRPO, section "Focal Weight".
///
/// # Panics
/// If `success_rate` is outside `[0, 1]`, or `gamma` is negative or not finite.
pub fn focal_weight(success_rate: f64, gamma: f64) -> f64 {
    assert!((0.0..=1.0).contains(&success_rate), "success_rate {success_rate} is outside [0, 1]");
    assert!(gamma.is_finite() && gamma >= 0.0, "gamma {gamma} is negative or not finite");
    if gamma == 0.0 { 1.0 } else { (1.0 - success_rate).powf(gamma) }
}

/// Returns the fraction of the group's scored completions that are correct, `X / N`, or `None` if no completion is scored.
///
/// For binary rewards this is `(mean - R_w) / (R_c - R_w)`. Completions are counted, so the result is exact and doesn't
/// depend on their order.
///
/// Source: F-GRPO, section "Focal Weight", the empirical success rate.
/// Fails with [`Error::NonFiniteReward`], or with [`Error::GradedReward`] if `rewards` lacks a threshold and a reward is
/// neither correct nor wrong.
pub fn success_rate(group: &Group<'_>, rewards: &Rewards) -> Result<Option<f64>, Error> {
    let (correct, n) = (rewards.count(group)?, group.scored_len());
    Ok((n > 0).then(|| correct as f64 / n as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::group;
    use proptest::prelude::*;

    #[test]
    fn focal_weight_matches_values_worked_by_hand() {
        assert_eq!(focal_weight(0.75, 0.5), 0.5);
        assert_eq!(focal_weight(0.75, 2.0), 0.0625);
        assert_eq!(focal_weight(0.0, 1.0), 1.0);
        assert_eq!(focal_weight(1.0, 1.0), 0.0);
        assert_eq!(focal_weight(1.0, 0.0), 1.0);
    }

    #[test]
    fn success_rate_is_the_rescaled_mean_of_binary_rewards() {
        for (correct, wrong) in [(1.0, 0.0), (1.0, -1.0), (0.1, -0.3)] {
            let values = [correct, wrong, wrong, correct, wrong, 7.0, wrong];
            let scored = [true, true, true, true, true, false, true];
            let group = Group { scored: &scored, ..group(&values) };
            let rewards = Rewards { correct, wrong, threshold: None };
            let mean = (2.0 * correct + 4.0 * wrong) / 6.0;
            let rate = success_rate(&group, &rewards).unwrap().unwrap();
            assert_eq!(rate, 2.0 / 6.0);
            assert!((rate - (mean - wrong) / (correct - wrong)).abs() < 1e-12);
        }
    }

    #[test]
    fn group_without_a_scored_completion_has_no_success_rate() {
        let group = Group { scored: &[false], ..group(&[0.0]) };
        assert_eq!(success_rate(&group, &Rewards::default()).unwrap(), None);
    }

    #[test]
    #[should_panic(expected = "success_rate 1.5 is outside [0, 1]")]
    fn success_rate_above_one_is_a_bug() {
        focal_weight(1.5, 1.0);
    }

    proptest! {
        #[test]
        fn focal_weight_falls_with_success_and_with_gamma(p in 0.0f64..1.0, q in 0.0f64..1.0, g in 0.0f64..4.0, h in 0.0f64..4.0) {
            let (easy, hard) = (p.max(q), p.min(q));
            prop_assert!(focal_weight(easy, g) <= focal_weight(hard, g));
            prop_assert!(focal_weight(p, g.max(h)) <= focal_weight(p, g.min(h)));
            prop_assert!((0.0..=1.0).contains(&focal_weight(p, g)));
        }
    }
}
