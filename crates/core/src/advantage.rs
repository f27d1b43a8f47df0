//! Group advantages: one number per completion, later spread over its tokens.
//!
//! One enum, one arm per estimator. Estimators don't know losses; the focal weight ([`crate::focal`]) and the shaping
//! of rewards and advantages ([`crate::credit`]) can be combined with any of them.

use crate::error::Error;
use crate::group::{Group, Rewards};

/// How a completion's reward is compared with its group's.
///
/// Below, `R` is a completion's reward, `mu` and `s` the mean and standard deviation of the group's
/// `n` scored completions, `c` the number of correct ones.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
pub enum Advantage {
    /// `(R - mu) / (s + eps)`.
    Grpo {
        /// Added to the standard deviation.
        #[cfg_attr(feature = "serde", serde(default = "default::eps"))]
        eps: f64,
        /// Delta degrees of freedom: 1 divides by n - 1 (the sample standard deviation), 0 by n.
        #[cfg_attr(feature = "serde", serde(default = "default::ddof"))]
        ddof: usize,
    },
    /// `R - mu`.
    DrGrpo,
    /// `(R - mu) n / (n - 1)`, which is `R` minus the mean of the others.
    Rloo,
    /// `(u - mean u) / (mean u + 1e-6)`, where `u` is 1 for a correct and 0 for a wrong completion. All are 0 if no
    /// completion is correct. For rewards 1 and 0, `u` is the reward.
    MaxRl,
    /// `C(n-c, k-1) / C(n-1, k-1)` for correct completions, 0 for wrong ones: the leave-one-out gradient weight of
    /// pass@k. A group with fewer than `k` scored completions has no estimate and gets 0.
    Pkpo {
        /// The k of pass@k, from 1 to the group size.
        #[cfg_attr(feature = "serde", serde(default = "default::k"))]
        k: usize,
    },
}

/// The defaults of a table's settings.
#[cfg(feature = "serde")]
mod default {
    pub(super) fn eps() -> f64 {
        1e-6
    }

    pub(super) fn ddof() -> usize {
        1
    }

    pub(super) fn k() -> usize {
        4
    }
}

impl Default for Advantage {
    fn default() -> Self {
        Self::GRPO
    }
}

impl Advantage {
    /// The GRPO estimator with the constants of the paper's trainer: eps 1e-6, ddof 1.
    pub const GRPO: Self = Self::Grpo { eps: 1e-6, ddof: 1 };

    /// One of each estimator, with settings that fit every group of at least 2.
    pub const ALL: [Self; 5] = [Self::GRPO, Self::DrGrpo, Self::Rloo, Self::MaxRl, Self::Pkpo { k: 2 }];

    /// The name in a configuration.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Grpo { .. } => "grpo",
            Self::DrGrpo => "dr_grpo",
            Self::Rloo => "rloo",
            Self::MaxRl => "max_rl",
            Self::Pkpo { .. } => "pkpo",
        }
    }

    /// Whether the estimator uses the value of a reward, and not only whether the completion is correct.
    pub const fn reads_rewards(&self) -> bool {
        match self {
            Self::Grpo { .. } | Self::DrGrpo | Self::Rloo => true,
            Self::MaxRl | Self::Pkpo { .. } => false,
        }
    }

    /// Whether the estimator uses the lengths of completions. No estimator here does. Callers that don't know lengths, as the Python package, refuse
    /// those that do.
    pub const fn reads_lengths(&self) -> bool {
        match self {
            Self::Grpo { .. } | Self::DrGrpo | Self::Rloo | Self::MaxRl | Self::Pkpo { .. } => false,
        }
    }

    /// Refuses settings that can't work with groups of `group_size`.
    ///
    /// # Errors
    /// [`Error::Setting`]: a group of 1 (there is nothing to compare the completion with), a k outside 1..=group_size,
    /// an eps that is negative or not finite, a ddof above 1.
    pub fn check(&self, group_size: usize) -> Result<(), Error> {
        if group_size < 2 {
            let wanted = format!("at least 2: {} compares the completions of a group", self.name());
            return Err(Error::setting("group_size", group_size, wanted));
        }
        match *self {
            Self::Grpo { eps, .. } if !(eps.is_finite() && eps >= 0.0) => {
                Err(Error::setting("advantage.eps", eps, "a finite number of at least 0"))
            }
            Self::Grpo { ddof, .. } if ddof > 1 => Err(Error::setting("advantage.ddof", ddof, "0 or 1")),
            Self::Pkpo { k } if k < 1 || k > group_size => {
                Err(Error::setting("advantage.k", k, format!("1 to the group size, {group_size}")))
            }
            _ => Ok(()),
        }
    }

    /// The advantage of every completion of the group. It is 0 for unscorable completions, and for all if fewer than
    /// two are scored.
    ///
    /// Source: F-GRPO, equation "GRPO advantage" for `Grpo`; Dr. GRPO (arXiv 2503.20783), RLOO
    /// (arXiv 2402.14740), MaxRL (arXiv 2602.02710), PKPO (arXiv 2505.15201) for the others.
    ///
    /// # Errors
    /// A reward that is not finite; for `MaxRl` and `Pkpo` one that is neither correct nor wrong.
    ///
    /// # Panics
    /// If the group's slices differ in length.
    pub fn advantages(&self, group: &Group<'_>, rewards: &Rewards) -> Result<Vec<f64>, Error> {
        group.check()?;
        let n = group.scored_len();
        if n < 2 {
            return Ok(vec![0.0; group.len()]);
        }
        match *self {
            Self::Grpo { eps, ddof } => {
                let mean = mean(group);
                let squares: f64 = group.scored().map(|i| (group.rewards[i] - mean).powi(2)).sum();
                let scale = (squares / (n - ddof) as f64).sqrt() + eps;
                Ok(centred(group, mean, |x| x / scale))
            }
            Self::DrGrpo => Ok(centred(group, mean(group), |x| x)),
            Self::Rloo => {
                let factor = n as f64 / (n - 1) as f64;
                Ok(centred(group, mean(group), |x| x * factor))
            }
            Self::MaxRl => {
                let correct = rewards.correct(group)?;
                let c = correct.iter().filter(|&&u| u).count();
                let mean = c as f64 / n as f64;
                Ok(spread(group, |i| {
                    if c == 0 { 0.0 } else { (f64::from(u8::from(correct[i])) - mean) / (mean + 1e-6) }
                }))
            }
            Self::Pkpo { k } => {
                let correct = rewards.correct(group)?;
                let c = correct.iter().filter(|&&u| u).count();
                let weight = if k > n { 0.0 } else { pkpo_weight(n, c, k) };
                Ok(spread(group, |i| if correct[i] { weight } else { 0.0 }))
            }
        }
    }
}

fn mean(group: &Group<'_>) -> f64 {
    group.scored().map(|i| group.rewards[i]).sum::<f64>() / group.scored_len() as f64
}

fn spread(group: &Group<'_>, value: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut all = vec![0.0; group.len()];
    for i in group.scored() {
        all[i] = value(i);
    }
    all
}

/// `f(R - mean)`, and exactly 0 if all rewards are equal. (The mean of equal rewards may have a rounding error, which a
/// small `eps` would amplify.)
fn centred(group: &Group<'_>, mean: f64, f: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut rewards = group.scored().map(|i| group.rewards[i]);
    let first = rewards.next();
    if rewards.all(|r| Some(r) == first) {
        return vec![0.0; group.len()];
    }
    spread(group, |i| f(group.rewards[i] - mean))
}

/// `C(n-c, k-1) / C(n-1, k-1)` for `1 <= c <= n`, `1 <= k <= n`.
fn pkpo_weight(n: usize, c: usize, k: usize) -> f64 {
    if c == 0 || n - c < k - 1 {
        return 0.0;
    }
    (0..k - 1).map(|j| (n - c - j) as f64 / (n - 1 - j) as f64).product()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(estimator: Advantage, rewards: &[f64], scored: &[bool]) -> Vec<f64> {
        let n = rewards.len();
        let group = Group { rewards, lengths: &vec![1; n], mean_old_logp: &vec![-1.0; n], scored };
        estimator.advantages(&group, &Rewards::default()).unwrap()
    }

    fn assert_close(found: &[f64], wanted: &[f64]) {
        assert_eq!(found.len(), wanted.len());
        for (f, w) in found.iter().zip(wanted) {
            assert!((f - w).abs() < 1e-12, "found {found:?}, wanted {wanted:?}");
        }
    }

    #[test]
    fn estimators_match_values_worked_by_hand() {
        // One correct of four: mean 1/4, squares 3/4, sample deviation 1/2, population sqrt(3)/4.
        let (r, s) = ([1.0, 0.0, 0.0, 0.0], [true; 4]);
        assert_close(
            &of(Advantage::GRPO, &r, &s),
            &[0.75 / 0.500001, -0.25 / 0.500001, -0.25 / 0.500001, -0.25 / 0.500001],
        );
        let third = 1.0 / 3f64.sqrt();
        assert_close(
            &of(Advantage::Grpo { eps: 0.0, ddof: 0 }, &r, &s),
            &[3.0 * third, -third, -third, -third],
        );
        assert_close(&of(Advantage::DrGrpo, &r, &s), &[0.75, -0.25, -0.25, -0.25]);
        assert_close(&of(Advantage::Rloo, &r, &s), &[1.0, -1.0 / 3.0, -1.0 / 3.0, -1.0 / 3.0]);
        let d = 0.250001;
        assert_close(&of(Advantage::MaxRl, &r, &s), &[0.75 / d, -0.25 / d, -0.25 / d, -0.25 / d]);
        // Two correct of four, k = 3: C(2,2)/C(3,2) = 1/3. k = 2: C(2,1)/C(3,1) = 2/3. k = 4: none.
        let r = [1.0, 0.0, 1.0, 0.0];
        assert_close(&of(Advantage::Pkpo { k: 3 }, &r, &s), &[1.0 / 3.0, 0.0, 1.0 / 3.0, 0.0]);
        assert_close(&of(Advantage::Pkpo { k: 2 }, &r, &s), &[2.0 / 3.0, 0.0, 2.0 / 3.0, 0.0]);
        assert_close(&of(Advantage::Pkpo { k: 4 }, &r, &s), &[0.0; 4]);
    }

    #[test]
    fn rloo_is_the_reward_less_the_mean_of_the_others() {
        let r = [0.3, 0.9, -0.4, 1.0, 0.0];
        let found = of(Advantage::Rloo, &r, &[true; 5]);
        for i in 0..5 {
            let others = (r.iter().sum::<f64>() - r[i]) / 4.0;
            assert!((found[i] - (r[i] - others)).abs() < 1e-12);
        }
    }

    #[test]
    fn group_with_equal_rewards_gets_zero_advantage() {
        // 0.1 three times: the rounded mean differs from 0.1.
        for estimator in
            [Advantage::Grpo { eps: 0.0, ddof: 1 }, Advantage::GRPO, Advantage::DrGrpo, Advantage::Rloo]
        {
            assert_eq!(of(estimator, &[0.1; 3], &[true; 3]), [0.0; 3]);
        }
        for estimator in Advantage::ALL {
            assert_eq!(of(estimator, &[1.0; 3], &[true; 3]), [0.0; 3], "{estimator:?}, all correct");
            assert_eq!(of(estimator, &[0.0; 3], &[true; 3]), [0.0; 3], "{estimator:?}, none correct");
        }
    }

    #[test]
    fn unscorable_completions_leave_the_statistics_and_get_zero() {
        for estimator in Advantage::ALL {
            let found = of(estimator, &[1.0, f64::NAN, 0.0, 0.0], &[true, false, true, true]);
            let without = of(estimator, &[1.0, 0.0, 0.0], &[true; 3]);
            assert_eq!(found, [without[0], 0.0, without[1], without[2]], "{estimator:?}");
        }
    }

    #[test]
    fn group_shrunk_to_one_gets_zero_advantage() {
        for estimator in
            [Advantage::ALL.as_slice(), &[Advantage::Grpo { eps: 1e-6, ddof: 0 }, Advantage::Pkpo { k: 1 }]]
                .concat()
        {
            assert_eq!(of(estimator, &[1.0, 1.0, 0.0], &[true, false, false]), [0.0; 3], "{estimator:?}");
            assert_eq!(of(estimator, &[1.0, 1.0, 0.0], &[false; 3]), [0.0; 3], "{estimator:?}");
        }
    }

    #[test]
    fn group_shrunk_below_k_has_no_pass_at_k_estimate() {
        let scored = [true, true, true, false];
        assert_eq!(of(Advantage::Pkpo { k: 4 }, &[1.0, 0.0, 0.0, 0.0], &scored), [0.0; 4]);
        assert_eq!(of(Advantage::Pkpo { k: 3 }, &[1.0, 0.0, 0.0, 0.0], &scored), [1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn max_rl_reads_correctness_so_a_negative_wrong_reward_changes_nothing() {
        let signed = Rewards { wrong: -1.0, ..Rewards::default() };
        let group =
            |rewards| Group { rewards, lengths: &[1; 3], mean_old_logp: &[0.0; 3], scored: &[true; 3] };
        let found = Advantage::MaxRl.advantages(&group(&[1.0, -1.0, -1.0]), &signed).unwrap();
        assert_eq!(found, of(Advantage::MaxRl, &[1.0, 0.0, 0.0], &[true; 3]));
    }

    /// MaxRL's expected weight of a correct completion, over the outcomes of the others, is the population weight (1 -
    /// (1-p)^N) / p minus 1 for the baseline (here without the 1e-6).
    #[test]
    fn max_rl_has_the_population_weight_in_expectation() {
        let (n, p) = (6usize, 0.3f64);
        let mut correct = 0.0;
        for others in 0..1u32 << (n - 1) {
            let c = others.count_ones();
            let probability = p.powi(c as i32) * (1.0 - p).powi((n as u32 - 1 - c) as i32);
            let rewards: Vec<f64> =
                (0..n).map(|i| if i == 0 { 1.0 } else { f64::from(others >> (i - 1) & 1) }).collect();
            correct += probability * (of(Advantage::MaxRl, &rewards, &[true; 6])[0] + 1.0);
        }
        let wanted = (1.0 - (1.0 - p).powi(n as i32)) / p;
        assert!((correct - wanted).abs() < 1e-4, "found {correct}, wanted {wanted}");
    }

    /// PKPO's weights sum, over a group, to an unbiased estimate of p * d pass@k / dp; check the
    /// expectation k p (1-p)^(k-1) by enumeration.
    #[test]
    fn pkpo_is_an_unbiased_gradient_of_pass_at_k() {
        let (n, p, k) = (5usize, 0.35f64, 3usize);
        let mut mean = 0.0;
        for outcome in 0..1u32 << n {
            let c = outcome.count_ones() as i32;
            let probability = p.powi(c) * (1.0 - p).powi(n as i32 - c);
            let rewards: Vec<f64> = (0..n).map(|i| f64::from(outcome >> i & 1)).collect();
            mean +=
                probability * of(Advantage::Pkpo { k }, &rewards, &[true; 5]).iter().sum::<f64>() / n as f64;
        }
        let wanted = p * (1.0 - p).powi(k as i32 - 1);
        assert!((mean - wanted).abs() < 1e-12, "found {mean}, wanted {wanted}");
    }

    #[test]
    fn impossible_settings_are_refused_by_name() {
        let message = |a: Advantage, n| a.check(n).unwrap_err().to_string();
        assert!(message(Advantage::GRPO, 1).starts_with("group_size: found 1, wanted at least 2"));
        assert_eq!(
            message(Advantage::Pkpo { k: 9 }, 8),
            "advantage.k: found 9, wanted 1 to the group size, 8"
        );
        assert!(message(Advantage::Grpo { eps: -1.0, ddof: 1 }, 8).starts_with("advantage.eps"));
        assert!(message(Advantage::Grpo { eps: 0.0, ddof: 2 }, 8).starts_with("advantage.ddof"));
        assert!(Advantage::ALL.iter().all(|a| a.check(2).is_ok()));
    }

    #[test]
    fn a_reward_that_is_not_finite_is_refused() {
        let group = Group {
            rewards: &[1.0, f64::NAN],
            lengths: &[1; 2],
            mean_old_logp: &[0.0; 2],
            scored: &[true; 2],
        };
        for estimator in Advantage::ALL {
            let found = estimator.advantages(&group, &Rewards::default()).unwrap_err();
            assert!(matches!(found, Error::NonFiniteReward { completion: 1, .. }), "{estimator:?}");
        }
    }

    proptest! {
        #[test]
        fn reordering_a_group_reorders_its_advantages(
            outcome in prop::collection::vec((any::<bool>(), prop::bool::weighted(0.8)), 2..12),
            rotate in 0usize..12,
        ) {
            let rewards: Vec<f64> = outcome.iter().map(|o| f64::from(u8::from(o.0))).collect();
            let scored: Vec<bool> = outcome.iter().map(|o| o.1).collect();
            let turn = |v: &mut dyn FnMut(usize)| v(rotate % rewards.len());
            for estimator in Advantage::ALL {
                let mut wanted = of(estimator, &rewards, &scored);
                let (mut r, mut s) = (rewards.clone(), scored.clone());
                turn(&mut |k| { r.rotate_left(k); s.rotate_left(k); wanted.rotate_left(k); });
                // Sums of squares are rounded in the order of the group.
                for (found, wanted) in of(estimator, &r, &s).iter().zip(&wanted) {
                    prop_assert!((found - wanted).abs() < 1e-12);
                }
            }
        }

        #[test]
        fn centred_estimators_sum_to_zero(rewards in prop::collection::vec(-2.0f64..2.0, 2..20)) {
            let scored = vec![true; rewards.len()];
            for estimator in [Advantage::GRPO, Advantage::DrGrpo, Advantage::Rloo] {
                prop_assert!(of(estimator, &rewards, &scored).iter().sum::<f64>().abs() < 1e-9);
            }
        }

        #[test]
        fn grpo_does_not_see_shift_or_scale_of_the_rewards(
            rewards in prop::collection::vec(-1.0f64..1.0, 3..10), shift in -3.0f64..3.0, scale in 0.5f64..4.0,
        ) {
            let scored = vec![true; rewards.len()];
            let estimator = Advantage::Grpo { eps: 0.0, ddof: 1 };
            let moved: Vec<f64> = rewards.iter().map(|r| r * scale + shift).collect();
            for (a, b) in of(estimator, &rewards, &scored).iter().zip(of(estimator, &moved, &scored)) {
                prop_assert!((a - b).abs() < 1e-6 * (1.0 + a.abs()));
            }
        }
    }
}
