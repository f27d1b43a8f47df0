//! From grades to advantages: rewards, estimator and focal weight of each group.

use crate::rollout::Rollouts;
use fgrpo_core::credit::{Assigned, Credit};
use fgrpo_core::group::Group;
use fgrpo_eval::graded::Graded;
use fgrpo_nn::Completion;
use fgrpo_verify::verdict::Verdict;

/// A prompt with its completions, their grades and the resulting advantages.
#[derive(Debug, Clone)]
pub struct Credited {
    /// The prompt and its completions.
    pub rollouts: Rollouts,
    /// One grade per completion.
    pub grades: Vec<Graded>,
    /// One reward per completion, as input to the estimator before shaping.
    pub rewards: Vec<f64>,
    /// Advantages, success rate and focal weight.
    pub assigned: Assigned,
}

impl Credited {
    /// Indices of the completions with a verdict.
    pub fn scored(&self) -> impl Iterator<Item = usize> {
        (0..self.grades.len()).filter(|&i| self.grades[i].verdict != Verdict::Unscorable)
    }

    /// Whether the rewards differ. DAPO's filter drops the other groups.
    pub fn has_mixed_rewards(&self) -> bool {
        let mut rewards = self.scored().map(|i| self.rewards[i]);
        let first = rewards.next();
        rewards.any(|reward| Some(reward) != first)
    }

    /// Number of tokens of a completion.
    pub fn length(&self, completion: usize) -> usize {
        self.rollouts.completions[completion].tokens.len()
    }
}

/// Rewards and advantages of every group.
///
/// # Errors
/// A reward that isn't finite, or graded rewards without a threshold for the focal weight.
pub fn credit(
    how: &Credit,
    rollouts: Vec<Rollouts>,
    grades: Vec<Vec<Graded>>,
) -> anyhow::Result<Vec<Credited>> {
    let rewards_of = |grades: &Vec<Graded>| -> Vec<f64> {
        let reward = |g: &Graded| match (g.reward, g.verdict) {
            (Some(reward), _) => reward,
            (None, Verdict::Correct) => how.rewards.correct,
            (None, _) => how.rewards.wrong,
        };
        grades.iter().map(reward).collect()
    };
    let rewards: Vec<Vec<f64>> = grades.iter().map(rewards_of).collect();
    let of = |rollouts: &Rollouts, grades: &Vec<Graded>| {
        let lengths: Vec<usize> = rollouts.completions.iter().map(|c| c.tokens.len()).collect();
        let mean_old_logp: Vec<f64> = rollouts.completions.iter().map(mean_logp).collect();
        let scored: Vec<bool> = grades.iter().map(|g| g.verdict != Verdict::Unscorable).collect();
        (lengths, mean_old_logp, scored)
    };
    let read: Vec<_> = rollouts.iter().zip(&grades).map(|(rollouts, grades)| of(rollouts, grades)).collect();
    let groups: Vec<Group<'_>> = rewards
        .iter()
        .zip(&read)
        .map(|(rewards, (lengths, mean_old_logp, scored))| Group { rewards, lengths, mean_old_logp, scored })
        .collect();
    let assigned = how.assign_batch(&groups).map_err(|(_, e)| e)?;
    let each = rollouts.into_iter().zip(grades).zip(rewards).zip(assigned);
    Ok(each
        .map(|(((rollouts, grades), rewards), assigned)| Credited { rollouts, grades, rewards, assigned })
        .collect())
}

/// Mean log-probability of a completion's tokens; 0 if it is empty.
pub fn mean_logp(completion: &Completion) -> f64 {
    let n = completion.logp.len().max(1) as f64;
    completion.logp.iter().map(|&l| f64::from(l)).sum::<f64>() / n
}
