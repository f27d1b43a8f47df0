//! One surrogate step on a categorical policy, and the resulting change of probability mass.
//!
//! The policy is `p = softmax(z)` over a finite set of actions, some of them correct. `N` actions are drawn. Each
//! *distinct* drawn action gets its reward (`R_c` or `R_w`), each other action gets 0, and the step is
//! `dz_i = lr / N * p_i (R_i - S_R)`
//! with `S_R = R_c P_pos + R_w P_neg`, where `P_pos` and `P_neg` are the masses of the distinct correct and wrong
//! actions drawn. To first order in `dz`, the mass of any subset then changes by the subset-mass identity
//! ([`subset_change`]). For the correct actions, this gives the mass balance ([`Step::mass_balance`]), and for the correct
//! actions that weren't drawn, the paper's proposition ([`Step::unsampled_correct`]). Both are returned term by term.

use super::{Error, finite, probability, require};
use crate::group::Rewards;

/// A categorical policy and the correctness of each action.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    probabilities: Vec<f64>,
    correct: Vec<bool>,
}

impl Policy {
    /// Creates a policy from the probability of each action and whether it is correct.
    /// Fails if the lists are empty or differ in length, an entry isn't a probability, or the
    /// probabilities don't add up to 1 within 1e-9.
    pub fn new(probabilities: Vec<f64>, correct: Vec<bool>) -> Result<Self, Error> {
        length("correct", correct.len(), probabilities.len().max(1))?;
        for &p in &probabilities {
            probability("probabilities", p)?;
        }
        let sum: f64 = probabilities.iter().sum();
        let values = format_args!("numbers that add up to {sum}");
        require((sum - 1.0).abs() <= 1e-9, "probabilities", values, "a sum of 1 within 1e-9")?;
        Ok(Self { probabilities, correct })
    }

    /// Creates a policy from the logit of each action and whether it is correct.
    /// Fails if the lists are empty or differ in length, or a logit is not finite.
    pub fn from_logits(logits: &[f64], correct: Vec<bool>) -> Result<Self, Error> {
        length("correct", correct.len(), logits.len().max(1))?;
        for &z in logits {
            finite("logits", z)?;
        }
        let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logits.iter().map(|z| (z - top).exp()).collect();
        let sum: f64 = weights.iter().sum();
        Ok(Self { probabilities: weights.into_iter().map(|w| w / sum).collect(), correct })
    }

    /// Returns the probability of every action.
    pub fn probabilities(&self) -> &[f64] {
        &self.probabilities
    }

    /// Returns for every action whether it is correct.
    pub fn correct(&self) -> &[bool] {
        &self.correct
    }

    /// Returns the total mass of the correct actions, `Q_pos`.
    pub fn correct_mass(&self) -> f64 {
        self.sum(|i| self.correct[i], |p| p)
    }

    pub(super) fn sum(&self, includes: impl Fn(usize) -> bool, value: impl Fn(f64) -> f64) -> f64 {
        let p = self.probabilities.iter().enumerate();
        // Adding 0 turns -0, the sum of an empty iterator, into 0.
        p.filter(|&(i, _)| includes(i)).map(|(_, &p)| value(p)).sum::<f64>() + 0.0
    }
}

fn length(name: &'static str, count: usize, expected: usize) -> Result<(), Error> {
    require(count == expected, name, count, format_args!("{expected} entries"))
}

/// One step: a policy, the actions drawn, and the sums in the paper's formulas.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Number of draws, `N`.
    pub group_size: usize,
    /// Rewards of a correct and of a wrong action.
    pub rewards: Rewards,
    /// Learning rate `eta`.
    pub lr: f64,
    /// Mass of the correct actions, `Q_pos`.
    pub q_pos: f64,
    /// Mass of the wrong actions, `Q_neg`.
    pub q_neg: f64,
    /// Mass of the distinct correct actions drawn, `P_pos`.
    pub p_pos: f64,
    /// Mass of the distinct wrong actions drawn, `P_neg`.
    pub p_neg: f64,
    /// Mass of the correct actions not drawn, `Q_u,pos`.
    pub q_unsampled_pos: f64,
    /// Batch baseline `S_R = R_c P_pos + R_w P_neg`.
    pub baseline: f64,
    /// Sum of `p^2` over the correct actions drawn, `S_+,2`.
    pub sampled_pos2: f64,
    /// Sum of `p^2` over the wrong actions drawn, `S_-,2`.
    pub sampled_neg2: f64,
    /// Sum of `p^2` over the correct actions not drawn, `U_pos,2`.
    pub unsampled_pos2: f64,
    /// Sum of `p^2` over the wrong actions not drawn, `U_neg,2`.
    pub unsampled_neg2: f64,
    /// Change of the logits, `dz`, one entry per action.
    pub logit_change: Vec<f64>,
}

impl Step {
    /// Computes the step after drawing the actions `sample`, given by their indices, with repeats.
    /// Fails if `sample` is empty or has an index out of range, if `lr` or a reward isn't finite, or if `R_c` isn't above
    /// `R_w`.
    pub fn new(policy: &Policy, sample: &[usize], rewards: Rewards, lr: f64) -> Result<Self, Error> {
        rewards.check()?;
        finite("lr", lr)?;
        let actions = policy.probabilities.len();
        super::group_size(sample.len() as u64)?;
        let mut drawn = vec![false; actions];
        for &i in sample {
            let Some(drawn) = drawn.get_mut(i) else {
                let expected = format!("one of 0..{actions}");
                return Err(Error::setting("sample", format!("action {i}"), expected));
            };
            *drawn = true;
        }
        let square = |p: f64| p * p;
        let correct = |i: usize| policy.correct[i];
        let p_pos = policy.sum(|i| correct(i) && drawn[i], |p| p);
        let p_neg = policy.sum(|i| !correct(i) && drawn[i], |p| p);
        let baseline = rewards.correct * p_pos + rewards.wrong * p_neg;
        let rate = lr / sample.len() as f64;
        let logit_change = policy
            .probabilities
            .iter()
            .enumerate()
            .map(|(i, &p)| {
                let reward = match (drawn[i], correct(i)) {
                    (false, _) => 0.0,
                    (true, true) => rewards.correct,
                    (true, false) => rewards.wrong,
                };
                rate * p * (reward - baseline)
            })
            .collect();
        Ok(Self {
            group_size: sample.len(),
            rewards,
            lr,
            q_pos: policy.correct_mass(),
            q_neg: policy.sum(|i| !correct(i), |p| p),
            p_pos,
            p_neg,
            q_unsampled_pos: policy.sum(|i| correct(i) && !drawn[i], |p| p),
            baseline,
            sampled_pos2: policy.sum(|i| correct(i) && drawn[i], square),
            sampled_neg2: policy.sum(|i| !correct(i) && drawn[i], square),
            unsampled_pos2: policy.sum(|i| correct(i) && !drawn[i], square),
            unsampled_neg2: policy.sum(|i| !correct(i) && !drawn[i], square),
            logit_change,
        })
    }

    /// Computes the step of a policy of which only the correct actions and the drawn wrong ones are known, each as its
    /// probability and its number of draws. `U_neg,2` is estimated from the draws without bias and clamped to its
    /// range, from 0 to the square of the undrawn wrong mass; [`Step::logit_change`] is empty.
    /// Fails if nothing was drawn, if `lr` or a reward isn't finite, if `R_c` isn't above `R_w`, or if an entry
    /// isn't a probability.
    pub fn of_draws(
        correct: &[(f64, u64)],
        wrong: &[(f64, u64)],
        rewards: Rewards,
        lr: f64,
    ) -> Result<Self, Error> {
        rewards.check()?;
        finite("lr", lr)?;
        for &(p, _) in correct.iter().chain(wrong) {
            probability("probabilities", p)?;
        }
        let n: u64 = correct.iter().chain(wrong).map(|action| action.1).sum();
        super::group_size(n)?;
        let sum = |actions: &[(f64, u64)], drawn: bool, power: i32| {
            let chosen = actions.iter().filter(|action| (action.1 > 0) == drawn);
            chosen.map(|action| action.0.powi(power)).sum::<f64>() + 0.0
        };
        let (p_pos, p_neg) = (sum(correct, true, 1), sum(wrong, true, 1));
        let (q_unsampled_pos, sampled_neg2) = (sum(correct, false, 1), sum(wrong, true, 2));
        // The mean of p over the draws, counting 0 for correct ones, estimates the sum of p^2 over all wrong actions.
        let neg2 = wrong.iter().map(|&(p, draws)| p * draws as f64).sum::<f64>() / n as f64;
        let q_pos = (p_pos + q_unsampled_pos).min(1.0);
        let q_unsampled_neg = (1.0 - q_pos - p_neg).max(0.0);
        Ok(Self {
            group_size: n as usize,
            rewards,
            lr,
            q_pos,
            q_neg: 1.0 - q_pos,
            p_pos,
            p_neg,
            q_unsampled_pos,
            baseline: rewards.correct * p_pos + rewards.wrong * p_neg,
            sampled_pos2: sum(correct, true, 2),
            sampled_neg2,
            unsampled_pos2: sum(correct, false, 2),
            unsampled_neg2: (neg2 - sampled_neg2).clamp(0.0, q_unsampled_neg * q_unsampled_neg),
            logit_change: Vec::new(),
        })
    }

    fn rate(&self) -> f64 {
        self.lr / self.group_size as f64
    }

    /// Returns the first-order change of the total correct mass, `Delta Q_pos`, term by term.
    ///
    /// Source: F-GRPO, appendix "Categorical Policy Total-Mass Expression".
    pub fn mass_balance(&self) -> MassBalance {
        let (r, s) = (self.rewards, self.baseline);
        MassBalance {
            promotion: self.rate() * (r.correct - s) * self.q_neg * self.sampled_pos2,
            demotion: self.rate() * (s - r.wrong) * self.q_pos * self.sampled_neg2,
            coupling: self.rate() * s * (self.q_pos * self.unsampled_neg2 - self.q_neg * self.unsampled_pos2),
        }
    }

    /// Returns the first-order change of the mass of the correct actions not drawn, `Delta Q_u,pos`, term by term.
    ///
    /// Source: F-GRPO, proposition of section "Unsampled-correct mass under finite sampling", and the appendix on its
    /// normalization coupling.
    pub fn unsampled_correct(&self) -> UnsampledChange {
        let (r, s, q) = (self.rewards, self.baseline, self.q_unsampled_pos);
        UnsampledChange {
            direct_drift: -self.rate() * s * self.unsampled_pos2,
            from_promotion: -self.rate() * q * (r.correct - s) * self.sampled_pos2,
            from_demotion: -self.rate() * q * (r.wrong - s) * self.sampled_neg2,
            from_baseline: self.rate() * q * s * (self.unsampled_pos2 + self.unsampled_neg2),
        }
    }
}

/// The terms of `Delta Q_pos`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MassBalance {
    /// `lr/N (R_c - S_R) Q_neg S_+,2`: the gain of the drawn correct actions. Not negative if
    /// `R_w <= 0 <= R_c` and `|R_w| <= R_c`.
    pub promotion: f64,
    /// `lr/N (S_R - R_w) Q_pos S_-,2`: the effect of the probability that the drawn wrong actions lose.
    pub demotion: f64,
    /// `lr/N S_R (Q_pos U_neg,2 - Q_neg U_pos,2)`: the effect of the actions not drawn. May have either sign.
    pub coupling: f64,
}

impl MassBalance {
    /// Returns `Delta Q_pos`, the sum of the terms.
    pub fn total(&self) -> f64 {
        self.promotion + self.demotion + self.coupling
    }
}

/// The terms of `Delta Q_u,pos`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnsampledChange {
    /// `-lr/N S_R U_pos,2`: the effect of the baseline on the logits of the undrawn correct actions.
    pub direct_drift: f64,
    /// `-lr/N Q_u,pos (R_c - S_R) S_+,2`: the gain of the drawn correct actions lowers the probability of the undrawn ones.
    pub from_promotion: f64,
    /// `-lr/N Q_u,pos (R_w - S_R) S_-,2`: the drawn wrong actions lose probability, which raises
    /// the probability of the undrawn correct ones.
    pub from_demotion: f64,
    /// `lr/N Q_u,pos S_R (U_pos,2 + U_neg,2)`: the effect of the baseline on all undrawn actions.
    pub from_baseline: f64,
}

impl UnsampledChange {
    /// Returns the sum of the three parts of the normalization coupling.
    pub fn normalization_coupling(&self) -> f64 {
        self.from_promotion + self.from_demotion + self.from_baseline
    }

    /// Returns `Delta Q_u,pos`, the sum of the terms.
    pub fn total(&self) -> f64 {
        self.direct_drift + self.normalization_coupling()
    }
}

/// The two terms of the change of a subset's mass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SubsetChange {
    /// Change by the subset's logits, `sum over the subset of p_i dz_i`.
    pub direct: f64,
    /// Change by the normalization, `-Q_S sum over all actions of p_j dz_j`.
    pub normalization: f64,
}

impl SubsetChange {
    /// Returns the first-order change of the subset's mass.
    pub fn total(&self) -> f64 {
        self.direct + self.normalization
    }
}

/// Computes the change of the mass of the actions `in_subset` under a small change `dz` of the logits, by the first-order
/// subset-mass identity.
///
/// Source: F-GRPO, appendix "First-order Softmax Expansion and Subset-mass Identity".
/// Fails if `dz` doesn't have one finite entry per action.
pub fn subset_change(
    policy: &Policy,
    dz: &[f64],
    in_subset: impl Fn(usize) -> bool,
) -> Result<SubsetChange, Error> {
    let p = policy.probabilities();
    length("dz", dz.len(), p.len())?;
    let (mut direct, mut all, mut mass) = (0.0, 0.0, 0.0);
    for (i, (&p, &dz)) in p.iter().zip(dz).enumerate() {
        all += p * finite("dz", dz)?;
        if in_subset(i) {
            direct += p * dz;
            mass += p;
        }
    }
    Ok(SubsetChange { direct, normalization: -mass * all })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the exact mass of a subset after the logits have moved by `dz`.
    fn moved_mass(policy: &Policy, dz: &[f64], in_subset: impl Fn(usize) -> bool) -> f64 {
        let w: Vec<f64> = policy.probabilities().iter().zip(dz).map(|(p, d)| p * d.exp()).collect();
        let total: f64 = w.iter().sum();
        w.iter().enumerate().filter(|&(i, _)| in_subset(i)).map(|(_, w)| w).sum::<f64>() / total
    }

    fn policies() -> impl Strategy<Value = (Policy, Vec<usize>, Rewards)> {
        (2usize..12).prop_flat_map(|n| {
            let logits = prop::collection::vec(-3.0..3.0f64, n);
            let correct = prop::collection::vec(any::<bool>(), n);
            let sample = prop::collection::vec(0..n, 1..20);
            (logits, correct, sample, 0.1..2.0f64, -1.0..=0.0f64).prop_map(|(z, correct, sample, c, w)| {
                (
                    Policy::from_logits(&z, correct).unwrap(),
                    sample,
                    Rewards { correct: c, wrong: w, threshold: None },
                )
            })
        })
    }

    proptest! {
        #[test]
        fn both_balances_are_the_subset_identity_of_their_subset((policy, sample, rewards) in policies()) {
            let step = Step::new(&policy, &sample, rewards, 0.3).unwrap();
            let dz = &step.logit_change;
            let correct = |i: usize| policy.correct()[i];
            let all = subset_change(&policy, dz, correct).unwrap();
            prop_assert!((step.mass_balance().total() - all.total()).abs() < 1e-15);
            let unsampled = subset_change(&policy, dz, |i| correct(i) && !sample.contains(&i)).unwrap();
            let change = step.unsampled_correct();
            prop_assert!((change.direct_drift - unsampled.direct).abs() < 1e-15);
            prop_assert!((change.normalization_coupling() - unsampled.normalization).abs() < 1e-15);
        }

        #[test]
        fn balances_differ_from_the_true_softmax_change_by_second_order_only(
            (policy, sample, rewards) in policies()
        ) {
            let correct = |i: usize| policy.correct()[i];
            let unsampled = |i: usize| correct(i) && !sample.contains(&i);
            // Halving the step has to quarter the error, until rounding.
            for lr in [1e-2, 1e-3] {
                let step = Step::new(&policy, &sample, rewards, lr).unwrap();
                let size = step.logit_change.iter().fold(0.0f64, |m, d| m.max(d.abs()));
                let bound = 2.0 * size * size + 1e-15;
                let truth = moved_mass(&policy, &step.logit_change, correct) - step.q_pos;
                prop_assert!((step.mass_balance().total() - truth).abs() <= bound);
                let truth = moved_mass(&policy, &step.logit_change, unsampled) - step.q_unsampled_pos;
                prop_assert!((step.unsampled_correct().total() - truth).abs() <= bound);
            }
        }

        #[test]
        fn first_two_terms_of_the_balance_never_take_from_the_correct_set((policy, sample, rewards) in policies()) {
            let rewards = Rewards { wrong: rewards.wrong.max(-rewards.correct), ..rewards };
            let terms = Step::new(&policy, &sample, rewards, 1.0).unwrap().mass_balance();
            prop_assert!(terms.promotion >= 0.0 && terms.demotion >= 0.0, "{terms:?}");
        }
    }

    #[test]
    fn one_step_matches_values_worked_by_hand() {
        // p = (1/2, 1/4, 1/4), the first two correct, draws 0, 0, 2; R = 1 / -1.
        // S_R = 1/2 - 1/4 = 1/4; dz = 1/3 (1/2 * 3/4, -1/4 * 1/4, -1/4 * 5/4) = (1/8, -1/48, -5/48).
        let policy = Policy::new(vec![0.5, 0.25, 0.25], vec![true, true, false]).unwrap();
        let rewards = Rewards { wrong: -1.0, ..Rewards::default() };
        let step = Step::new(&policy, &[0, 0, 2], rewards, 1.0).unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-16, "{a} instead of {b}");
        close(step.baseline, 0.25);
        for (change, expected) in step.logit_change.iter().zip([1.0 / 8.0, -1.0 / 48.0, -5.0 / 48.0]) {
            close(*change, expected);
        }
        let balance = step.mass_balance();
        close(balance.promotion, 0.75 * 0.25 * 0.25 / 3.0);
        close(balance.demotion, 1.25 * 0.75 * 0.0625 / 3.0);
        close(balance.coupling, -0.25 * 0.25 * 0.0625 / 3.0);
        let change = step.unsampled_correct();
        close(change.direct_drift, -0.25 * 0.0625 / 3.0);
        close(change.from_promotion, -0.25 * 0.75 * 0.25 / 3.0);
        close(change.from_demotion, 0.25 * 1.25 * 0.0625 / 3.0);
        close(change.from_baseline, 0.25 * 0.25 * 0.0625 / 3.0);
    }

    #[test]
    fn draws_with_the_correct_actions_give_the_step_of_the_whole_policy() {
        let p = [0.3, 0.1, 0.05, 0.25, 0.2, 0.1];
        let correct: Vec<bool> = (0..6).map(|i| i < 3).collect();
        let policy = Policy::new(p.to_vec(), correct).unwrap();
        let (mut unsampled_neg2, mut estimate) = (0.0, 0.0);
        // Every sample of three draws, with its probability.
        for code in 0..6usize.pow(3) {
            let sample: Vec<usize> = (0..3).map(|i| code / 6usize.pow(i) % 6).collect();
            let draws = |i: usize| (p[i], sample.iter().filter(|&&drawn| drawn == i).count() as u64);
            let correct: Vec<_> = (0..3).map(draws).collect();
            let wrong: Vec<_> = (3..6).map(draws).filter(|action| action.1 > 0).collect();
            let whole = Step::new(&policy, &sample, Rewards::default(), 0.3).unwrap();
            let step = Step::of_draws(&correct, &wrong, Rewards::default(), 0.3).unwrap();
            let chance: f64 = sample.iter().map(|&i| p[i]).product();
            unsampled_neg2 += chance * whole.unsampled_neg2;
            let neg2: f64 = wrong.iter().map(|&(p, draws)| p * draws as f64 / 3.0 - p * p).sum();
            estimate += chance * neg2;
            let undrawn = 0.55 - wrong.iter().map(|action| action.0).sum::<f64>();
            assert!((step.unsampled_neg2 - neg2.max(0.0).min(undrawn * undrawn)).abs() < 1e-15);
            let step = Step { unsampled_neg2: whole.unsampled_neg2, ..step };
            assert!((step.unsampled_correct().total() - whole.unsampled_correct().total()).abs() < 1e-15);
            assert!((step.mass_balance().total() - whole.mass_balance().total()).abs() < 1e-15);
        }
        assert!((unsampled_neg2 - estimate).abs() < 1e-15, "{estimate} instead of {unsampled_neg2}");
        assert!(Step::of_draws(&[(0.5, 0)], &[], Rewards::default(), 1.0).is_err());
        assert!(Step::of_draws(&[(1.5, 1)], &[], Rewards::default(), 1.0).is_err());
    }

    #[test]
    fn correct_mass_can_grow_while_its_undrawn_part_shrinks() {
        // The paper's point: one likely correct action drawn, one rare correct action not.
        let policy = Policy::new(vec![0.6, 0.1, 0.3], vec![true, true, false]).unwrap();
        let step = Step::new(&policy, &[0, 2], Rewards { wrong: -1.0, ..Rewards::default() }, 0.1).unwrap();
        assert!(step.mass_balance().total() > 0.0);
        assert!(step.unsampled_correct().total() < 0.0);
    }

    #[test]
    fn bad_policies_and_samples_are_refused() {
        let text = |e: Error| e.to_string();
        let policy = |p: &[f64]| Policy::new(p.to_vec(), vec![true; p.len()]);
        assert!(text(policy(&[0.5, 0.4]).unwrap_err()).contains("add up to 0.9"));
        assert!(text(policy(&[1.5, -0.5]).unwrap_err()).contains("found 1.5"));
        assert!(policy(&[]).is_err() && policy(&[f64::NAN, 1.0]).is_err());
        assert!(Policy::new(vec![1.0], vec![]).is_err());
        assert!(Policy::from_logits(&[f64::INFINITY], vec![true]).is_err());
        let policy = policy(&[0.5, 0.5]).unwrap();
        let step = |sample: &[usize], rewards, lr| Step::new(&policy, sample, rewards, lr);
        assert!(text(step(&[], Rewards::default(), 1.0).unwrap_err()).starts_with("n: "));
        assert!(text(step(&[2], Rewards::default(), 1.0).unwrap_err()).contains("found action 2"));
        assert!(step(&[0], Rewards { correct: 0.0, wrong: 1.0, threshold: None }, 1.0).is_err());
        assert!(step(&[0], Rewards::default(), f64::NAN).is_err());
        assert!(subset_change(&policy, &[0.0], |_| true).is_err());
    }
}
