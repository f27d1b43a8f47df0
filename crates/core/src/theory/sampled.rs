//! The distinct mass that a group samples, given its number of correct completions.
//!
//! Given `X = k`, the `k` correct completions are independent draws from the policy restricted to the correct set, so
//! an action of conditional probability `q` is among them with probability `1 - (1 - q)^k`. More correct completions
//! cover more of the correct set, so `X / N` is a usable proxy for coverage.

use super::mass::Policy;
use super::{Error, group_size, require};
use crate::group::Rewards;

/// Expectations given `X = k`, that is, `k` correct completions in a group of `n`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampledMass {
    /// `E[P_pos | X = k]`, the mass of the distinct correct actions drawn. Never falls with `k`.
    pub correct: f64,
    /// `E[P_neg | X = k]`, the mass of the distinct wrong actions drawn. Never rises with `k`.
    pub wrong: f64,
    /// `E[S_R | X = k] = R_c E[P_pos] + R_w E[P_neg]`. Never falls with `k` if `R_c > 0 >= R_w`.
    pub baseline: f64,
}

/// Returns the expected distinct sampled masses for a group of `n` with `k` correct completions.
///
/// Source: F-GRPO, appendix "Monotonicity of Sampled Distinct Mass Conditioned on X", lemma and
/// corollary.
/// Fails if `n` is 0, `k > n`, a reward isn't finite, `R_c` isn't above `R_w`, or `X = k` has probability 0.
pub fn sampled_mass(policy: &Policy, n: u64, k: u64, rewards: Rewards) -> Result<SampledMass, Error> {
    rewards.check()?;
    group_size(n)?;
    let mass_of = |side: bool| policy.sum(|i| policy.correct()[i] == side, |p| p);
    let mass = |side: bool, draws: u64| {
        let total = mass_of(side);
        let covered = |p: f64| p * -(draws as f64 * (-(p / total).min(1.0)).ln_1p()).exp_m1();
        if draws == 0 || total == 0.0 { 0.0 } else { policy.sum(|i| policy.correct()[i] == side, covered) }
    };
    let possible = k <= n && (k == 0 || mass_of(true) != 0.0) && (k == n || mass_of(false) != 0.0);
    let draw = format_args!("{k} correct completions of {n}, which has probability 0");
    require(possible, "k", draw, "a number that this policy can draw")?;
    let (correct, wrong) = (mass(true, k), mass(false, n - k));
    Ok(SampledMass { correct, wrong, baseline: rewards.correct * correct + rewards.wrong * wrong })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theory::mass::Step;
    use proptest::prelude::*;

    const SIGNS: Rewards = Rewards { correct: 1.0, wrong: -1.0, threshold: None };

    #[test]
    fn expectations_equal_the_average_over_all_samples_with_that_count() {
        let policy =
            Policy::new(vec![0.4, 0.15, 0.05, 0.3, 0.1], vec![true, false, true, false, true]).unwrap();
        let n = 5u32;
        let mut sums = vec![(0.0, [0.0; 3]); n as usize + 1];
        for code in 0..5usize.pow(n) {
            let sample: Vec<usize> = (0..n).map(|i| code / 5usize.pow(i) % 5).collect();
            let p: f64 = sample.iter().map(|&i| policy.probabilities()[i]).product();
            let step = Step::new(&policy, &sample, SIGNS, 1.0).unwrap();
            let (chance, sum) = &mut sums[sample.iter().filter(|&&i| policy.correct()[i]).count()];
            *chance += p;
            for (sum, value) in sum.iter_mut().zip([step.p_pos, step.p_neg, step.baseline]) {
                *sum += p * value;
            }
        }
        for (k, (chance, sum)) in sums.into_iter().enumerate() {
            let mass = sampled_mass(&policy, n.into(), k as u64, SIGNS).unwrap();
            for (value, sum) in [mass.correct, mass.wrong, mass.baseline].into_iter().zip(sum) {
                assert!((value - sum / chance).abs() < 1e-13, "k = {k}: {value} against {}", sum / chance);
            }
        }
    }

    #[test]
    fn a_single_correct_action_is_drawn_surely_by_one_correct_completion() {
        let policy = Policy::new(vec![0.25, 0.75], vec![true, false]).unwrap();
        let mass = sampled_mass(&policy, 4, 1, SIGNS).unwrap();
        assert_eq!((mass.correct, mass.wrong), (0.25, 0.75));
    }

    #[test]
    fn counts_that_cannot_happen_are_refused() {
        let policy = Policy::new(vec![0.25, 0.75], vec![true, true]).unwrap();
        for (n, k, says) in [(4, 3, "found 3 correct"), (4, 5, "found 5 correct"), (0, 0, "found 0")] {
            let error = sampled_mass(&policy, n, k, SIGNS).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(sampled_mass(&policy, 4, 4, SIGNS).is_ok());
    }

    proptest! {
        #[test]
        fn more_correct_completions_cover_more_of_the_correct_set_and_less_of_the_rest(
            logits in prop::collection::vec(-8.0..8.0f64, 2..40),
            n in 1u64..300,
            reward in 0.01..2.0f64,
            penalty in -2.0..=0.0f64,
        ) {
            let correct = (0..logits.len()).map(|i| i % 2 == 0).collect();
            let policy = Policy::from_logits(&logits, correct).unwrap();
            let rewards = Rewards { correct: reward, wrong: penalty, threshold: None };
            let all: Vec<_> = (0..=n).map(|k| sampled_mass(&policy, n, k, rewards).unwrap()).collect();
            for w in all.windows(2) {
                prop_assert!(w[0].correct <= w[1].correct + 1e-15);
                prop_assert!(w[0].wrong >= w[1].wrong - 1e-15);
                prop_assert!(w[0].baseline <= w[1].baseline + 1e-15);
            }
        }
    }
}
