//! A group: the completions sampled for one prompt, in the form that the estimators take.

use crate::error::{Error, require};

/// The completions of one prompt, in sampling order.
///
/// A completion whose verifier failed is *unscorable* (`scored[i]` is false): it is left out of the group's statistics,
/// gets advantage 0, and its reward is never read.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// Reward of each completion.
    pub rewards: &'a [f64],
    /// Tokens in each completion, at least 1.
    pub lengths: &'a [usize],
    /// Mean over its tokens of the log-probability under the policy that sampled it.
    pub mean_old_logp: &'a [f64],
    /// Whether the completion has a verdict.
    pub scored: &'a [bool],
    /// The rewards of which a completion has several, for an estimator that reads each; empty where it has one.
    pub parts: &'a [Part<'a>],
    /// The cluster of each completion, for an estimator that asks which are alike: the same number for those that are;
    /// empty where it isn't known.
    pub clusters: &'a [usize],
}

/// One of several rewards that each completion of a group has.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// This reward of each completion.
    pub rewards: &'a [f64],
    /// Its weight.
    pub weight: f64,
}

impl<'a> Group<'a> {
    /// The number of completions, including unscorable ones.
    ///
    /// # Panics
    /// If the four slices differ in length.
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

    /// Whether the group has no completion at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The positions of the scored completions.
    pub fn scored(&self) -> impl Iterator<Item = usize> + Clone + use<'a> {
        let scored = self.scored;
        (0..self.len()).filter(move |&i| scored[i])
    }

    /// How many completions are scored.
    pub fn scored_len(&self) -> usize {
        self.scored().count()
    }

    /// Refuses NaN and infinite rewards of scored completions.
    pub fn check(&self) -> Result<(), Error> {
        match self.scored().find(|&i| !self.rewards[i].is_finite()) {
            Some(i) => Err(Error::NonFiniteReward { completion: i, found: self.rewards[i] }),
            None => Ok(()),
        }
    }
}

/// The meaning of the rewards: R_c, R_w and, for graded rewards, the threshold of a correct completion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rewards {
    /// Reward of a correct completion, R_c.
    pub correct: f64,
    /// Reward of a wrong completion, R_w; usually 0 or -1.
    pub wrong: f64,
    /// With graded rewards: a completion is correct if its reward is at least this.
    pub threshold: Option<f64>,
}

impl Default for Rewards {
    /// The paper's binary rewards, 1 and 0.
    fn default() -> Self {
        Self { correct: 1.0, wrong: 0.0, threshold: None }
    }
}

impl Rewards {
    /// Refuses rewards that don't distinguish correct from wrong.
    /// Fails with [`Error::Setting`] unless `correct > wrong` and all are finite.
    pub fn check(&self) -> Result<(), Error> {
        let holds = self.wrong.is_finite() && self.correct.is_finite() && self.correct > self.wrong;
        let wanted = format_args!("a finite number above the wrong completion's {}", self.wrong);
        require(holds, "reward_correct", self.correct, wanted)?;
        let threshold = self.threshold.unwrap_or_default();
        require(threshold.is_finite(), "reward_threshold", threshold, "a finite number")
    }

    /// Whether each scored completion of the group is correct (unscorable ones count as not).
    ///
    /// Without a threshold the rewards must be `correct` or `wrong`, to within a millionth of their difference, which
    /// allows for rounding to single precision.
    /// Fails with [`Error::GradedReward`] for a reward in between, or [`Error::NonFiniteReward`].
    pub fn correct(&self, group: &Group<'_>) -> Result<Vec<bool>, Error> {
        group.check()?;
        let mut correct = vec![false; group.len()];
        let slack = 1e-6 * (self.correct - self.wrong);
        for i in group.scored() {
            let found = group.rewards[i];
            correct[i] = match self.threshold {
                Some(t) => found >= t,
                None if (found - self.correct).abs() <= slack => true,
                None if (found - self.wrong).abs() <= slack => false,
                None => {
                    let (correct, wrong) = (self.correct, self.wrong);
                    return Err(Error::GradedReward { completion: i, found, correct, wrong });
                }
            };
        }
        Ok(correct)
    }
}

/// A group for tests: completions of one token, alike and all scored.
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
        assert!(
            error.to_string().starts_with("reward of completion 1: found 0.5, wanted 1 (correct)"),
            "{error}"
        );
        let graded = Rewards { threshold: Some(0.5), ..Rewards::default() };
        assert_eq!(graded.correct(&group).unwrap(), [true, true]);
        let unscored = Group { scored: &[true, false], ..group };
        assert_eq!(Rewards::default().correct(&unscored).unwrap(), [true, false]);
    }

    #[test]
    fn rewards_that_do_not_rise_with_correctness_are_refused() {
        assert!(Rewards { correct: 0.0, wrong: 0.0, threshold: None }.check().is_err());
        assert!(Rewards { correct: 1.0, wrong: -1.0, threshold: Some(f64::NAN) }.check().is_err());
        assert!(Rewards { correct: 1.0, wrong: -1.0, threshold: None }.check().is_ok());
    }
}
