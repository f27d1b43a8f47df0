//! Computes advantages from grades: the rewards, the estimator and the focal weight of each group.

use crate::config::Truncated;
use crate::estimator::Estimator;
use crate::rollout::Rollouts;
use fgrpo_core::credit::{Assigned, Credit};
use fgrpo_core::group::{Group, Part};
use fgrpo_eval::graded::Graded;
use fgrpo_nn::{Completion, Finish};
use fgrpo_verify::verdict::Verdict;
use std::collections::BTreeMap;

/// A prompt with its completions, their grades and the resulting advantages.
#[derive(Debug, Clone)]
pub struct Credited {
    /// The prompt and its completions.
    pub rollouts: Rollouts,
    /// One grade per completion.
    pub grades: Vec<Graded>,
    /// One reward per completion, before shaping.
    pub rewards: Vec<f64>,
    /// If the estimator reads several rewards: each reward, for every completion.
    pub parts: Vec<Vec<f64>>,
    /// Advantages, success rate and focal weight.
    pub assigned: Assigned,
}

impl Credited {
    /// Returns the indices of the completions with a verdict.
    pub fn scored(&self) -> impl Iterator<Item = usize> {
        (0..self.grades.len()).filter(|&i| self.grades[i].verdict != Verdict::Unscorable)
    }

    /// Returns whether the rewards differ. DAPO's filter drops groups in which all rewards are equal.
    pub fn has_mixed_rewards(&self) -> bool {
        let mixed = |all: &[f64]| {
            let mut rewards = self.scored().map(|i| all[i]);
            let first = rewards.next();
            rewards.any(|reward| Some(reward) != first)
        };
        match self.parts.as_slice() {
            [] => mixed(&self.rewards),
            parts => parts.iter().any(|part| mixed(part)),
        }
    }

    /// Returns the number of tokens of a completion.
    pub fn length(&self, completion: usize) -> usize {
        self.rollouts.completions[completion].tokens.len()
    }
}

/// Computes rewards and advantages of every group. Returns `None` if interrupted while the custom `estimator` ran.
/// Fails if a reward isn't finite, or graded rewards lack the threshold for the focal weight. If the estimator reads
/// several rewards, also fails if completions have different rewards, or a weight names a missing reward.
pub fn credit(
    how: &Credit,
    truncated: Truncated,
    weights: &BTreeMap<String, f64>,
    estimator: Option<&Estimator>,
    rollouts: Vec<Rollouts>,
    grades: Vec<Vec<Graded>>,
) -> anyhow::Result<Option<Vec<Credited>>> {
    let names = if how.advantage.reads().parts { part_names(&grades, weights)? } else { Vec::new() };
    let read: Vec<Read> = rollouts
        .iter()
        .zip(&grades)
        .map(|(rollouts, grades)| Read::of((how, truncated), &names, rollouts, grades))
        .collect();
    let weight = |name: &String| weights.get(name).copied().unwrap_or(1.0);
    let parts: Vec<Vec<Part<'_>>> = read
        .iter()
        .map(|read| {
            let parts = names.iter().zip(&read.parts);
            parts.map(|(name, rewards)| Part { rewards, weight: weight(name) }).collect()
        })
        .collect();
    let groups: Vec<Group<'_>> = read.iter().zip(&parts).map(|(read, parts)| read.group(parts)).collect();
    let assigned = match estimator {
        None => how.assign_batch(&groups),
        Some(estimator) => match estimator.advantages(&groups, how)? {
            Some(advantages) => how.weigh_batch(&groups, advantages),
            None => return Ok(None),
        },
    };
    let assigned = assigned.map_err(|(_, e)| e)?;
    let all = rollouts.into_iter().zip(grades).zip(read).zip(assigned);
    let credited = |(((rollouts, grades), Read { rewards, parts, .. }), assigned)| Credited {
        rollouts,
        grades,
        rewards,
        parts,
        assigned,
    };
    Ok(Some(all.map(credited).collect()))
}

/// Inputs of an estimator for a group: one value per completion.
struct Read {
    rewards: Vec<f64>,
    lengths: Vec<usize>,
    mean_old_logp: Vec<f64>,
    scored: Vec<bool>,
    /// If the estimator reads several rewards: each reward, for every completion. A completion that the grader didn't
    /// see has the lowest value of its group, or the reward of a wrong completion if that is lower.
    parts: Vec<Vec<f64>>,
    clusters: Vec<usize>,
}

impl Read {
    fn of(
        (how, truncated): (&Credit, Truncated),
        names: &[String],
        rollouts: &Rollouts,
        grades: &[Graded],
    ) -> Self {
        let reward = |(g, completion): (&Graded, &Completion)| match truncated {
            Truncated::Reward { reward } if completion.finish == Finish::Length => reward,
            _ => g.reward_or(how.rewards.correct, how.rewards.wrong),
        };
        let part = |name: &String| {
            let given = grades.iter().filter_map(|g| g.rewards.get(name).copied());
            let lowest = given.fold(how.rewards.wrong, f64::min);
            grades.iter().map(|g| g.rewards.get(name).copied().unwrap_or(lowest)).collect()
        };
        Self {
            rewards: grades.iter().zip(&rollouts.completions).map(reward).collect(),
            lengths: rollouts.completions.iter().map(|c| c.tokens.len()).collect(),
            mean_old_logp: rollouts.completions.iter().map(mean_logp).collect(),
            scored: grades.iter().map(|g| g.verdict != Verdict::Unscorable).collect(),
            parts: names.iter().map(part).collect(),
            clusters: if how.advantage.reads().clusters {
                clusters(&rollouts.completions)
            } else {
                Vec::new()
            },
        }
    }

    fn group<'a>(&'a self, parts: &'a [Part<'a>]) -> Group<'a> {
        let Self { rewards, lengths, mean_old_logp, scored, clusters, .. } = self;
        Group { rewards, lengths, mean_old_logp, scored, parts, clusters }
    }
}

/// Returns the names of the rewards of every completion that the grader saw, or an empty list if it returned only totals.
/// The grader doesn't see a completion without an answer, which is unparsed.
fn part_names(grades: &[Vec<Graded>], weights: &BTreeMap<String, f64>) -> anyhow::Result<Vec<String>> {
    let seen = |g: &&Graded| !g.rewards.is_empty() || matches!(g.verdict, Verdict::Correct | Verdict::Wrong);
    let mut scored = grades.iter().flatten().filter(seen);
    let Some(first) = scored.next() else { return Ok(Vec::new()) };
    let names = |g: &Graded| g.rewards.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    if let Some(other) = scored.find(|g| !g.rewards.keys().eq(first.rewards.keys())) {
        bad_input!(
            "the grader (task.grader or task.verifier.command) returned the rewards {:?} for one completion and {:?} for another; algorithm.advantage needs the same rewards for all",
            names(first),
            names(other)
        );
    }
    if let Some(name) = weights.keys().find(|name| !first.rewards.contains_key(*name)) {
        bad_input!(
            "algorithm.reward_weights.{name}: the grader doesn't return this reward; it returns {}",
            names(first)
        );
    }
    Ok(first.rewards.keys().cloned().collect())
}

/// Returns, for each completion, the index of the first completion with the same tokens.
fn clusters(completions: &[Completion]) -> Vec<usize> {
    let first = |c: &Completion| completions.iter().position(|other| other.tokens == c.tokens).unwrap_or(0);
    completions.iter().map(first).collect()
}

/// Returns the mean log-probability of a completion's tokens, or 0 if the completion is empty.
pub fn mean_logp(completion: &Completion) -> f64 {
    let n = completion.logp.len().max(1) as f64;
    completion.logp.iter().map(|&l| f64::from(l)).sum::<f64>() / n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Prompt;
    use fgrpo_core::advantage::Advantage;
    use fgrpo_core::credit::{Overlong, Shaping};
    use fgrpo_core::group::Rewards;
    use fgrpo_nn::Finish;

    /// Credits a group whose last completion is truncated and wrong.
    fn credited(completions: [&[u32]; 4], truncated: Truncated, how: &Credit) -> Credited {
        let verdicts = [Verdict::Correct, Verdict::Correct, Verdict::Correct, Verdict::Wrong];
        credited_as(verdicts.map(|verdict| Graded::new(verdict, "none")), completions, truncated, how)
    }

    fn credited_as(
        grades: [Graded; 4],
        completions: [&[u32]; 4],
        truncated: Truncated,
        how: &Credit,
    ) -> Credited {
        let completion = |(sample, tokens): (usize, &[u32])| Completion {
            prompt: 0,
            sample,
            tokens: tokens.to_vec(),
            logp: vec![-1.0; tokens.len()],
            entropy: vec![0.0; tokens.len()],
            finish: if sample == 3 { Finish::Length } else { Finish::Stop },
            cached: 0,
        };
        let completions = completions.into_iter().enumerate().map(completion).collect();
        let rollouts = vec![Rollouts::new(Prompt::of_tokens(0, &[1]), completions)];
        credit(how, truncated, &BTreeMap::new(), None, rollouts, vec![grades.to_vec()])
            .unwrap()
            .unwrap()
            .swap_remove(0)
    }

    fn how(advantage: Advantage, overlong: Option<Overlong>) -> Credit {
        Credit { advantage, rewards: Rewards::default(), focal_gamma: 0.0, shaping: Shaping::None, overlong }
    }

    #[test]
    fn completions_that_the_grader_does_not_see_have_the_lowest_of_several_rewards() {
        let seen = |correct, short| {
            let verdict = if correct > 0.0 { Verdict::Correct } else { Verdict::Wrong };
            let rewards = BTreeMap::from([("correct".to_owned(), correct), ("short".to_owned(), short)]);
            Graded { rewards, ..Graded::new(verdict, "score") }
        };
        let unparsed = Graded::new(Verdict::Unparsed, "unfinished");
        let grades = [unparsed.clone(), seen(1.0, -0.5), unparsed, seen(1.0, 0.1)];
        let how = how(Advantage::Gdpo { eps: 1e-6 }, None);
        let found = credited_as(grades, [&[5], &[6], &[7], &[8]], Truncated::Grade, &how);
        assert_eq!(found.parts, [[0.0, 1.0, 0.0, 1.0], [-0.5, -0.5, -0.5, 0.1]]);
        assert!(found.assigned.advantages[0] < found.assigned.advantages[1]);
    }

    #[test]
    fn completions_of_the_same_tokens_share_the_credit_of_a_cluster() {
        let advantages = |advantage| {
            let completions: [&[u32]; 4] = [&[5, 0], &[5, 0], &[6, 0], &[7, 0]];
            credited(completions, Truncated::Grade, &how(advantage, None)).assigned.advantages
        };
        let (plain, shared) = (advantages(Advantage::GRPO), advantages(Advantage::CueGrpo { alpha: 1.0 }));
        for (i, factor) in [0.75, 0.75, 1.5, 1.0].into_iter().enumerate() {
            assert!((shared[i] - factor * plain[i]).abs() < 1e-12, "{shared:?} of {plain:?}");
        }
    }

    #[test]
    fn truncation_changes_the_reward_and_overlong_punishment_only_the_advantages() {
        let completions: [&[u32]; 4] = [&[5; 2], &[5; 5], &[5; 8], &[5; 3]];
        let how = how(Advantage::DrGrpo, Some(Overlong { length: 8, cache: 6 }));
        for (truncated, last) in
            [(Truncated::Grade, 0.0), (Truncated::Mask, 0.0), (Truncated::Reward { reward: -0.5 }, -0.5)]
        {
            let found = credited(completions, truncated, &how);
            assert_eq!(found.rewards, [1.0, 1.0, 1.0, last]);
            // DAPO's formula: no punishment up to 2 tokens, and 1 for all 8.
            let punished = [1.0, 1.0 - 3.0 / 6.0, 0.0, last - 1.0 / 6.0];
            let mean = punished.iter().sum::<f64>() / 4.0;
            for (advantage, reward) in found.assigned.advantages.iter().zip(punished) {
                assert!((advantage - (reward - mean)).abs() < 1e-12, "{:?}", found.assigned.advantages);
            }
        }
    }
}
