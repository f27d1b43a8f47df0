//! A group, which is the completions sampled for one prompt in the form that estimators read.

use crate::error::{Error, require};

/// The completions of one prompt, in sampling order.
///
/// A completion whose verifier failed is *unscorable* (`scored[i]` is false): it is left out of the group's statistics,
/// gets advantage 0, and its reward is never read.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// Reward of each completion.
    pub rewards: &'a [f64],
    /// Length of each completion in tokens.
    pub lengths: &'a [usize],
    /// Mean log-probability per token of each completion, under the policy that sampled it.
    pub mean_old_logp: &'a [f64],
    /// Whether the completion has a verdict.
    pub scored: &'a [bool],
    /// The separate rewards of completions that have several. The list is empty if each completion has one reward.
    pub parts: &'a [Part<'a>],
    /// Cluster id of each completion, equal for equivalent completions. The list is empty if the clusters are unknown.
    pub clusters: &'a [usize],
}

/// One of the several rewards that every completion of a group has.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// Value of this reward for each completion.
    pub rewards: &'a [f64],
    /// Weight of this reward in the sum.
    pub weight: f64,
}

impl<'a> Group<'a> {
    /// Returns the number of completions, including unscorable ones.
    ///
    /// # Panics
    /// If `rewards`, `lengths`, `mean_old_logp` and `scored` differ in length.
    pub fn len(&self) -> usize {
        let n = self.rewards.len();
        assert!(
            self.lengths.len() == n && self.mean_old_logp.len() == n && self.scored.len() == n,
            "group: {n} rewards, {} lengths, {} mean_old_logp, {} scored",
            self.lengths.len(),
            self.mean_old_logp.len(),
            self.scored.len()
        );
        n
    }

    /// Returns whether the group is empty. Unscorable completions count.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the positions of the scored completions.
    pub fn scored(&self) -> impl Iterator<Item = usize> + Clone + use<'a> {
        let scored = self.scored;
        (0..self.len()).filter(move |&i| scored[i])
    }

    /// Returns the number of scored completions.
    pub fn scored_len(&self) -> usize {
        self.scored().count()
    }

    /// Returns [`Error::NonFiniteReward`] if a scored completion's reward is NaN or infinite.
    pub fn check(&self) -> Result<(), Error> {
        match self.scored().find(|&i| !self.rewards[i].is_finite()) {
            Some(i) => Err(Error::NonFiniteReward { completion: i, reward: self.rewards[i] }),
            None => Ok(()),
        }
    }
}

/// Rewards of a correct and of a wrong completion and, for graded rewards, the threshold of a correct completion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rewards {
    /// Reward of a correct completion, R_c.
    pub correct: f64,
    /// Reward of a wrong completion, R_w, usually 0 or -1.
    pub wrong: f64,
    /// Smallest reward of a correct completion, if rewards are graded.
    pub threshold: Option<f64>,
}

impl Default for Rewards {
    /// Returns the paper's binary rewards, 1 and 0.
    fn default() -> Self {
        Self { correct: 1.0, wrong: 0.0, threshold: None }
    }
}

impl Rewards {
    /// Returns [`Error::Setting`] unless `correct > wrong` and all values are finite.
    pub fn check(&self) -> Result<(), Error> {
        let holds = self.wrong.is_finite() && self.correct.is_finite() && self.correct > self.wrong;
        let expected = format_args!("a finite number above {}, the reward of a wrong completion", self.wrong);
        require(holds, "reward_correct", self.correct, expected)?;
        let threshold = self.threshold.unwrap_or_default();
        require(threshold.is_finite(), "reward_threshold", threshold, "a finite number")
    }

    /// Returns whether each completion of the group is correct. Unscorable completions aren't correct.
    ///
    /// Without a threshold, each reward must equal `correct` or `wrong` within a millionth of their difference, which
    /// allows for rounding to single precision, as [`lowest_correct`] does for a threshold.
    /// Fails with [`Error::GradedReward`] for any other reward, or with [`Error::NonFiniteReward`].
    pub fn correct(&self, group: &Group<'_>) -> Result<Vec<bool>, Error> {
        group.check()?;
        let mut correct = vec![false; group.len()];
        let slack = 1e-6 * (self.correct - self.wrong);
        for i in group.scored() {
            let reward = group.rewards[i];
            correct[i] = match self.threshold {
                Some(t) => reward >= lowest_correct(t),
                None if (reward - self.correct).abs() <= slack => true,
                None if (reward - self.wrong).abs() <= slack => false,
                None => {
                    let (correct, wrong) = (self.correct, self.wrong);
                    return Err(Error::GradedReward { completion: i, reward, correct, wrong });
                }
            };
        }
        Ok(correct)
    }

    /// Counts the correct completions of the group. Fails as [`Rewards::correct`] does.
    pub fn count(&self, group: &Group<'_>) -> Result<usize, Error> {
        Ok(self.correct(group)?.into_iter().filter(|&correct| correct).count())
    }
}

/// Returns the lowest reward of a correct completion: `threshold` less a millionth of it, or of 1 if it is smaller.
/// This allows for rounding to single precision, by which 0.9 and a sum of 0.7 and 0.2 become less than 0.9.
pub fn lowest_correct(threshold: f64) -> f64 {
    threshold - 1e-6 * threshold.abs().max(1.0)
}

/// Returns a group for tests: completions of one token, in one cluster and all scored.
#[cfg(test)]
pub(crate) fn group(rewards: &[f64]) -> Group<'_> {
    let n = rewards.len();
    Group {
        rewards,
        lengths: &[1; 16][..n],
        mean_old_logp: &[-1.0; 16][..n],
        scored: &[true; 16][..n],
        parts: &[],
        clusters: &[0; 16][..n],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reward_between_correct_and_wrong_is_refused_without_a_threshold() {
        let group = group(&[1.0, 0.5]);
        let error = Rewards::default().correct(&group).unwrap_err();
        assert!(error.to_string().starts_with("reward of completion 1: expected 1 (correct)"), "{error}");
        let graded = Rewards { threshold: Some(0.5), ..Rewards::default() };
        assert_eq!(graded.correct(&group).unwrap(), [true, true]);
        let unscored = Group { scored: &[true, false], ..group };
        assert_eq!(Rewards::default().correct(&unscored).unwrap(), [true, false]);
    }

    #[test]
    fn rewards_in_single_precision_reach_their_threshold() {
        for threshold in [0.0, 0.1, 0.7, 0.9, 0.95, -0.9, 1000.1] {
            let graded = Rewards { threshold: Some(threshold), ..Rewards::default() };
            let rewards = [f64::from(threshold as f32), threshold - 0.01];
            assert_eq!(graded.correct(&group(&rewards)).unwrap(), [true, false], "{threshold}");
        }
        let sum = f64::from(0.7_f32 + 0.2_f32);
        let graded = Rewards { threshold: Some(0.9), ..Rewards::default() };
        assert_eq!(graded.count(&group(&[sum, 0.2])).unwrap(), 1, "{sum}");
    }

    #[test]
    fn rewards_that_do_not_rise_with_correctness_are_refused() {
        assert!(Rewards { correct: 0.0, wrong: 0.0, threshold: None }.check().is_err());
        assert!(Rewards { correct: 1.0, wrong: -1.0, threshold: Some(f64::NAN) }.check().is_err());
        assert!(Rewards { correct: 1.0, wrong: -1.0, threshold: None }.check().is_ok());
    }
}
