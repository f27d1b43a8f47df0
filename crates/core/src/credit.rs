//! Assigns credit to a group's completions: shapes the rewards, estimates advantages, shapes the advantages, and multiplies
//! them by the focal weight.
//!
//! [`Shaping::Unlikely`] and [`Shaping::Smoothing`] are controls of the paper. Departure from the Unlikely paper: equal
//! log-probabilities share their mean rank. Two samples of the same completion then get the same reward, and the order of
//! the group doesn't matter.

use crate::advantage::{Advantage, moments};
#[cfg(feature = "serde")]
use crate::default::{ratio, whole};
use crate::error::{Error, require};
use crate::focal::{focal_weight, success_rate};
use crate::group::{Group, Rewards};
use std::collections::VecDeque;

/// A change of the rewards before the estimator, or of the advantages after it. The defaults are the values of the
/// paper's controls.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(tag = "kind", rename_all = "snake_case"))]
pub enum Shaping {
    /// No change.
    #[default]
    None,
    /// Rewarding the Unlikely: a correct completion's reward becomes `R (1 - beta (G - rank) / G)`,
    /// where rank 1 is the most likely of the group's G completions by mean old log-probability per token. Source: arXiv
    /// 2506.02355, `ray_lean_trainer.py` of AndreHe02/rewarding-unlikely-release.
    Unlikely {
        /// Largest fraction of the reward that is removed, from 0 to 1.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 4>"))]
        beta: f64,
    },
    /// Differential smoothing: `A - correct * logp` for correct, `A + wrong * logp` for wrong completions, where `logp`
    /// is the mean old log-probability per token.
    Smoothing {
        /// Coefficient of correct completions.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 20>"))]
        correct: f64,
        /// Coefficient of wrong completions.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 20>"))]
        wrong: f64,
    },
    /// History-aware difficulty weighting: `A scale exp(-sign(A) (p - anchor))`, where `p` is the group's success rate, so
    /// that correct completions of hard prompts and wrong ones of easy prompts count more. Source: HA-DW
    /// (arXiv 2601.08521), equations of `D`, `M` and `Phi`.
    HaDw {
        /// Factor of all advantages.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<13, 10>"))]
        scale: f64,
        /// Step size of the running success rate, from 0 to 1.
        #[cfg_attr(feature = "serde", serde(default = "ratio::<1, 10>"))]
        eta: f64,
        /// Number of steps over which the standard deviation of the running success rate is taken.
        #[cfg_attr(feature = "serde", serde(default = "whole::<50>"))]
        window: usize,
        /// A fixed success rate that replaces the running one.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        anchor: Option<f64>,
    },
}

/// HA-DW's running estimate `C` of the policy's success rate. It starts at the success rate of the first batch. A batch with
/// success rate `y` moves it by `eta s (y - C)`, where `s` is the standard deviation (ddof 0) of the past values of `C` in
/// the window, or 1 if there are fewer than two.
///
/// Source: arXiv 2601.08521, "evolving difficulty anchor". The paper doesn't state the initial value.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Anchor(VecDeque<f64>);

impl Anchor {
    /// Returns the current estimate, or `None` before the first batch.
    pub fn value(&self) -> Option<f64> {
        self.0.back().copied()
    }

    /// Updates the estimate with a batch's success rate. If `rate` is `None`, the estimate doesn't change but is recorded
    /// once more in the window.
    pub fn update(&mut self, rate: Option<f64>, eta: f64, window: usize) {
        let Some(rate) = rate.or(self.value()) else { return };
        let next = self.value().map_or(rate, |last| {
            let deviation = if self.0.len() < 2 { 1.0 } else { moments(self.0.iter().copied(), 0).1 };
            last + eta * deviation * (rate - last)
        });
        self.push(next, window);
    }

    /// Appends an estimate to the window, for example from a checkpoint, and makes it the current one.
    pub fn push(&mut self, estimate: f64, window: usize) {
        self.0.push_back(estimate);
        while self.0.len() > window.max(1) {
            self.0.pop_front();
        }
    }
}

/// DAPO's soft overlong punishment (arXiv 2503.14476, equation 13). It is added to a completion's reward: 0 up to
/// `length - cache` tokens, then falling linearly to -1 at `length` tokens, and -1 above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Overlong {
    /// Completion length in tokens from which the punishment is -1.
    pub length: usize,
    /// Number of tokens before `length` over which the punishment falls from 0 to -1, from 1 to `length`.
    pub cache: usize,
}

impl Overlong {
    /// Returns the term that is added to the reward of a completion of `tokens` tokens, from -1 to 0.
    pub fn punishment(&self, tokens: usize) -> f64 {
        let above = tokens.saturating_sub(self.length - self.cache);
        -(above.min(self.cache) as f64) / self.cache as f64
    }

    fn check(&self) -> Result<(), Error> {
        let expected = format_args!("1 to {} (overlong.length)", self.length);
        require((1..=self.length).contains(&self.cache), "overlong.cache", self.cache, expected)
    }
}

/// The settings by which a group's rewards are turned into advantages.
#[derive(Debug, Clone, PartialEq)]
pub struct Credit {
    /// The estimator.
    pub advantage: Advantage,
    /// Rewards of correct and wrong completions.
    pub rewards: Rewards,
    /// Exponent of the focal weight, at least 0. With 0, the focal weight leaves every advantage unchanged, bit for bit.
    pub focal_gamma: f64,
    /// Shaping of the rewards or advantages.
    pub shaping: Shaping,
    /// The punishment of long completions, if any. It never turns a correct completion into a wrong one.
    pub overlong: Option<Overlong>,
}

/// Returns one advantage for each reward, including the focal weight. A reward of 1 is correct, 0 is wrong. Each group
/// is a separate batch, and each completion has one token.
///
/// ```
/// use fgrpo_core::{advantage::Advantage, credit::credit};
///
/// let advantages = credit(&[vec![1.0, 0.0, 0.0, 0.0]], &Advantage::GRPO, 0.5)?;
/// assert!(advantages[0][0] > 0.0 && advantages[0][1] < 0.0);
/// # Ok::<(), fgrpo_core::error::Error>(())
/// ```
///
/// Fails if the estimator's settings or `focal_gamma` are out of range, a reward isn't finite, or a reward is neither 1 nor
/// 0 and the focal weight or the estimator needs the success rate.
pub fn credit(rewards: &[Vec<f64>], advantage: &Advantage, focal_gamma: f64) -> Result<Vec<Vec<f64>>, Error> {
    let assignment = Credit {
        advantage: advantage.clone(),
        rewards: Rewards::default(),
        focal_gamma,
        shaping: Shaping::None,
        overlong: None,
    };
    assignment.check(rewards.iter().map(Vec::len).min().unwrap_or(0))?;
    let longest = rewards.iter().map(Vec::len).max().unwrap_or(0);
    let (lengths, logp, scored) = (vec![1; longest], vec![0.0; longest], vec![true; longest]);
    let group = |rewards: &'_ Vec<f64>| {
        let n = rewards.len();
        let group = Group {
            rewards,
            lengths: &lengths[..n],
            mean_old_logp: &logp[..n],
            scored: &scored[..n],
            parts: &[],
            clusters: &[],
        };
        assignment.assign(&group).map(|assigned| assigned.advantages)
    };
    rewards.iter().map(group).collect()
}

/// The advantages of one group.
#[derive(Debug, Clone, PartialEq)]
pub struct Assigned {
    /// One advantage per completion, including the focal weight.
    pub advantages: Vec<f64>,
    /// Fraction of correct completions. `None` if no completion is scored, or if the rewards are graded without a
    /// threshold and no setting needs the success rate.
    pub success_rate: Option<f64>,
    /// Focal weight of the group, in `[0, 1]`. The advantages include it.
    pub focal_weight: f64,
}

impl Credit {
    /// Returns an error that names the key if the settings don't work together or with groups of `group_size`.
    pub fn check(&self, group_size: usize) -> Result<(), Error> {
        self.advantage.check(group_size)?;
        self.rewards.check()?;
        let holds = self.focal_gamma.is_finite() && self.focal_gamma >= 0.0;
        require(holds, "focal_gamma", self.focal_gamma, "a finite number of at least 0")?;
        self.overlong.map_or(Ok(()), |overlong| overlong.check())?;
        if self.shapes_rewards() {
            let refuse = |expected| Err(Error::setting("advantage", self.advantage.name(), expected));
            match &self.advantage {
                a if !a.reads().rewards => refuse(
                    "an estimator that reads the values of rewards, such as grpo, dr_grpo or rloo, because rewards are shaped",
                )?,
                a if a.reads().correct => refuse(
                    "an estimator that doesn't depend on which completions are correct, because rewards are shaped",
                )?,
                a if a.reads().parts => {
                    refuse("an estimator of a single reward, because rewards are shaped")?
                }
                _ => {}
            }
        }
        match self.shaping {
            Shaping::None => Ok(()),
            Shaping::Unlikely { beta } => {
                let expected = "a number above 0 (the shaping removes a fraction of it)";
                require(self.rewards.correct > 0.0, "reward_correct", self.rewards.correct, expected)?;
                require((0.0..=1.0).contains(&beta), "shaping.beta", beta, "a number from 0 to 1")
            }
            Shaping::Smoothing { correct, wrong } => {
                require(correct.is_finite(), "shaping.correct", correct, "a finite number")?;
                require(wrong.is_finite(), "shaping.wrong", wrong, "a finite number")
            }
            Shaping::HaDw { scale, eta, window, anchor } => {
                let holds = scale.is_finite() && scale > 0.0;
                require(holds, "shaping.scale", scale, "a finite number above 0")?;
                require((0.0..=1.0).contains(&eta), "shaping.eta", eta, "a number from 0 to 1")?;
                require(window > 0, "shaping.window", window, "at least 1 step")?;
                let anchor = anchor.unwrap_or_default();
                require(
                    (0.0..=1.0).contains(&anchor),
                    "shaping.anchor",
                    anchor,
                    "a success rate, from 0 to 1",
                )
            }
        }
    }

    /// Returns whether the rewards are changed before the estimator reads them.
    fn shapes_rewards(&self) -> bool {
        self.overlong.is_some() || matches!(self.shaping, Shaping::Unlikely { .. })
    }

    /// Returns the advantages of a batch of one group. Fails as [`Credit::assign_batch`] does.
    pub fn assign(&self, group: &Group<'_>) -> Result<Assigned, Error> {
        self.assign_batch(&[*group]).map(|mut batch| batch.swap_remove(0)).map_err(|(_, e)| e)
    }

    /// Returns the advantages of all groups of a batch, the groups of one training step.
    ///
    /// Source: F-GRPO, section "Integration with Group-Relative Methods": `g(x) A_i`.
    /// Fails with the index of the first bad group and the error if a reward isn't finite, or if it is neither correct nor
    /// wrong and a setting needs to know which.
    pub fn assign_batch(&self, groups: &[Group<'_>]) -> Result<Vec<Assigned>, (usize, Error)> {
        let shape = |(g, group): (usize, &Group<'_>)| {
            let mut rewards = match self.shaping {
                Shaping::Unlikely { beta } => {
                    let correct = self.rewards.correct(group).map_err(|e| (g, e))?;
                    unlikely_rewards(group, &correct, beta)
                }
                _ => group.rewards.to_vec(),
            };
            if let Some(overlong) = self.overlong {
                let both = rewards.iter_mut().zip(group.lengths);
                both.for_each(|(reward, &tokens)| *reward += overlong.punishment(tokens));
            }
            Ok(rewards)
        };
        let batch = if self.shapes_rewards() {
            let shaped: Vec<Vec<f64>> = groups.iter().enumerate().map(shape).collect::<Result<_, _>>()?;
            let both = groups.iter().zip(&shaped);
            let shaped: Vec<Group<'_>> = both.map(|(group, rewards)| Group { rewards, ..*group }).collect();
            self.advantage.of_batch(&shaped, &self.rewards)?
        } else {
            self.advantage.of_batch(groups, &self.rewards)?
        };
        self.weigh_batch(groups, batch)
    }

    /// Shapes the advantages `batch` that an estimator gave the groups, and multiplies them by the focal weight.
    /// Fails as [`Credit::assign_batch`] does.
    pub fn weigh_batch(
        &self,
        groups: &[Group<'_>],
        batch: Vec<Vec<f64>>,
    ) -> Result<Vec<Assigned>, (usize, Error)> {
        let anchor = match self.shaping {
            Shaping::HaDw { anchor: None, .. } => self.batch_rate(groups)?,
            Shaping::HaDw { anchor, .. } => anchor,
            _ => None,
        };
        let weigh = |(g, advantages)| self.weigh(&groups[g], advantages, anchor).map_err(|e| (g, e));
        batch.into_iter().enumerate().map(weigh).collect()
    }

    /// Returns the fraction of a batch's scored completions that are correct, or `None` if no completion is scored.
    fn batch_rate(&self, groups: &[Group<'_>]) -> Result<Option<f64>, (usize, Error)> {
        let mut counts = (0, 0);
        for (g, group) in groups.iter().enumerate() {
            counts.0 += self.rewards.count(group).map_err(|e| (g, e))?;
            counts.1 += group.scored_len();
        }
        Ok((counts.1 > 0).then(|| counts.0 as f64 / counts.1 as f64))
    }

    /// Shapes one group's advantages and multiplies them by the focal weight.
    fn weigh(
        &self,
        group: &Group<'_>,
        mut advantages: Vec<f64>,
        anchor: Option<f64>,
    ) -> Result<Assigned, Error> {
        if let Shaping::Smoothing { correct, wrong } = self.shaping
            && group.scored_len() > 1
        {
            let is_correct = self.rewards.correct(group)?;
            for i in group.scored() {
                let sign = if is_correct[i] { -correct } else { wrong };
                advantages[i] += sign * group.mean_old_logp[i];
            }
        }
        if let Shaping::HaDw { scale, .. } = self.shaping
            && let (Some(p), Some(anchor)) = (success_rate(group, &self.rewards)?, anchor)
        {
            let factor = |a: f64| scale * (if a > 0.0 { anchor - p } else { p - anchor }).exp();
            advantages.iter_mut().filter(|a| **a != 0.0).for_each(|a| *a *= factor(*a));
        }
        // The focal weight depends on the original rewards, not on the shaped rewards.
        let rate = match success_rate(group, &self.rewards) {
            Err(Error::GradedReward { .. }) if self.focal_gamma == 0.0 => None,
            other => other?,
        };
        let weight = rate.map_or(1.0, |p| focal_weight(p, self.focal_gamma));
        if self.focal_gamma != 0.0 {
            advantages.iter_mut().for_each(|a| *a *= weight);
        }
        Ok(Assigned { advantages, success_rate: rate, focal_weight: weight })
    }
}

/// Returns the rewards of Rewarding the Unlikely (arXiv 2506.02355); see [`Shaping::Unlikely`].
fn unlikely_rewards(group: &Group<'_>, correct: &[bool], beta: f64) -> Vec<f64> {
    let n = group.scored_len() as f64;
    let mut rewards = group.rewards.to_vec();
    for i in group.scored().filter(|&i| correct[i]) {
        let mine = group.mean_old_logp[i];
        let above = group.scored().filter(|&j| group.mean_old_logp[j] > mine).count();
        let equal = group.scored().filter(|&j| group.mean_old_logp[j] == mine).count();
        let rank = above as f64 + (equal as f64 + 1.0) / 2.0;
        rewards[i] *= 1.0 - beta * (n - rank) / n;
    }
    rewards
}

#[cfg(test)]
mod tests {
    use super::Shaping::{HaDw, Smoothing, Unlikely};
    use super::*;
    use crate::advantage::Advantage::*;
    use proptest::prelude::*;

    const PLAIN: Credit = Credit {
        advantage: Advantage::GRPO,
        rewards: Rewards { correct: 1.0, wrong: 0.0, threshold: None },
        focal_gamma: 0.0,
        shaping: Shaping::None,
        overlong: None,
    };

    fn group<'a>(rewards: &'a [f64], mean_old_logp: &'a [f64]) -> Group<'a> {
        Group { mean_old_logp, ..crate::group::group(rewards) }
    }

    #[test]
    fn focal_weight_multiplies_every_advantage_of_the_group() {
        let g = group(&[1.0, 1.0, 1.0, 0.0], &[-1.0; 4]);
        let base = PLAIN.assign(&g).unwrap();
        let focal = Credit { focal_gamma: 0.5, ..PLAIN }.assign(&g).unwrap();
        assert_eq!((focal.success_rate, focal.focal_weight), (Some(0.75), 0.5));
        let halves: Vec<f64> = base.advantages.iter().map(|a| a * 0.5).collect();
        assert_eq!(focal.advantages, halves);
        assert!(focal.advantages.iter().all(|&a| a != 0.0));
    }

    #[test]
    fn shaping_that_passes_the_check_gives_credit() {
        let g = group(&[1.0, 1.0, 0.0, 0.0], &[-1.0, -2.0, -1.0, -2.0]);
        let shaping = Unlikely { beta: 0.25 };
        let all = Advantage::ALL.map(|advantage| Credit { advantage, shaping, ..PLAIN });
        let passed: Vec<&Credit> = all.iter().filter(|credit| credit.check(4).is_ok()).collect();
        passed.iter().for_each(|credit| drop(credit.assign(&g).unwrap()));
        assert!(passed.len() > 4 && passed.len() < all.len());
    }

    #[test]
    fn graded_rewards_without_a_threshold_are_refused_only_when_gamma_asks_for_a_success_rate() {
        let g = group(&[1.0, 0.4, 0.2], &[-1.0; 3]);
        let result = PLAIN.assign(&g).unwrap();
        assert_eq!((result.success_rate, result.focal_weight), (None, 1.0));
        assert_eq!(result.advantages, Advantage::GRPO.advantages(&g, &PLAIN.rewards).unwrap());
        let error = Credit { focal_gamma: 0.5, ..PLAIN }.assign(&g).unwrap_err();
        assert!(error.to_string().contains("threshold"), "{error}");
        let rewards = Rewards { threshold: Some(0.4), ..PLAIN.rewards };
        let graded = Credit { focal_gamma: 1.0, rewards, ..PLAIN }.assign(&g).unwrap();
        assert_eq!(graded.success_rate, Some(2.0 / 3.0));
    }

    #[test]
    fn unscorable_completions_do_not_count_in_the_success_rate() {
        let scored = [true, true, false, false];
        let g = Group { scored: &scored, ..group(&[1.0, 0.0, 0.0, 0.0], &[-1.0; 4]) };
        let result = Credit { focal_gamma: 1.0, ..PLAIN }.assign(&g).unwrap();
        assert_eq!((result.success_rate, result.focal_weight), (Some(0.5), 0.5));
        assert_eq!(result.advantages[2..], [0.0, 0.0]);
    }

    #[test]
    fn unlikely_rewards_match_values_worked_by_hand() {
        // Ranks by log-probability: 2, 1, 4, 3. Correct: 0, 1, 2.
        let g = group(&[1.0, 1.0, 1.0, 0.0], &[-2.0, -1.0, -4.0, -3.0]);
        let correct = PLAIN.rewards.correct(&g).unwrap();
        assert_eq!(unlikely_rewards(&g, &correct, 0.25), [1.0 - 0.125, 1.0 - 0.1875, 1.0, 0.0]);
        let shaped = Credit { advantage: DrGrpo, shaping: Unlikely { beta: 0.25 }, ..PLAIN };
        let mean = (0.875 + 0.8125 + 1.0) / 4.0;
        assert_eq!(shaped.assign(&g).unwrap().advantages, [0.875 - mean, 0.8125 - mean, 1.0 - mean, -mean]);
    }

    #[test]
    fn equal_log_probabilities_share_their_mean_rank() {
        let g = group(&[1.0, 1.0, 0.0, 1.0], &[-1.0, -1.0, -3.0, -2.0]);
        let correct = PLAIN.rewards.correct(&g).unwrap();
        let shared = 1.0 - 0.25 * (4.0 - 1.5) / 4.0;
        assert_eq!(unlikely_rewards(&g, &correct, 0.25), [shared, shared, 0.0, 1.0 - 0.0625]);
    }

    #[test]
    fn smoothing_moves_correct_and_wrong_completions_in_opposite_directions() {
        let g = group(&[1.0, 0.0], &[-2.0, -4.0]);
        let credit = Credit { advantage: DrGrpo, shaping: Smoothing { correct: 0.05, wrong: 0.05 }, ..PLAIN };
        assert_eq!(credit.assign(&g).unwrap().advantages, [0.5 + 0.1, -0.5 - 0.2]);
    }

    const OVERLONG: Overlong = Overlong { length: 20, cache: 8 };

    #[test]
    fn overlong_punishment_has_values_worked_by_hand_and_those_of_trl_and_verl() {
        for (tokens, expected) in
            [(1, 0.0), (12, 0.0), (13, -0.125), (16, -0.5), (20, -1.0), (21, -1.0), (400, -1.0)]
        {
            assert_eq!(OVERLONG.punishment(tokens), expected, "{tokens}");
        }
        // TRL's `get_soft_overlong_punishment` in three cases; verl's DAPO reward manager as a minimum, without a bound
        // beyond the length, which no completion exceeds there.
        for overlong in [OVERLONG, Overlong { length: 7, cache: 7 }, Overlong { length: 20480, cache: 4096 }]
        {
            let (length, cache) = (overlong.length as f64, overlong.cache as f64);
            for tokens in (1..2 * overlong.length).step_by(1 + overlong.length / 100) {
                let n = tokens as f64;
                let trl = match n {
                    n if n <= length - cache => 0.0,
                    n if n <= length => (length - cache - n) / cache,
                    _ => -1.0,
                };
                assert!((overlong.punishment(tokens) - trl).abs() < 1e-15, "{overlong:?} {tokens}");
                if tokens <= overlong.length {
                    let verl = (-(n - (length - cache)) / cache).min(0.0);
                    assert!((overlong.punishment(tokens) - verl).abs() < 1e-15, "{overlong:?} {tokens}");
                }
            }
        }
    }

    #[test]
    fn overlong_punishment_moves_advantages_but_no_success_rate() {
        let g = Group { lengths: &[4, 16, 20, 4], ..group(&[1.0, 1.0, 0.0, 0.0], &[-1.0; 4]) };
        let credit = Credit { advantage: DrGrpo, overlong: Some(OVERLONG), focal_gamma: 1.0, ..PLAIN };
        // Rewards 1, 0.5, -1, 0 with the mean 0.125; half are correct.
        let result = credit.assign(&g).unwrap();
        assert_eq!((result.success_rate, result.focal_weight), (Some(0.5), 0.5));
        assert_eq!(result.advantages, [0.4375, 0.1875, -0.5625, -0.0625]);
        let short = Group { lengths: &[12; 4], ..g };
        let plain = Credit { overlong: None, ..credit.clone() };
        assert_eq!(credit.assign(&short).unwrap(), plain.assign(&short).unwrap());
    }

    #[test]
    fn overlong_punishment_is_refused_where_it_would_be_lost_or_has_no_meaning() {
        let refusal = |advantage, overlong| {
            Credit { advantage, overlong: Some(overlong), ..PLAIN }.check(4).unwrap_err().to_string()
        };
        for cache in [0, 21] {
            let message = refusal(Advantage::GRPO, Overlong { cache, ..OVERLONG });
            assert!(
                message.starts_with("overlong.cache: ") && message.ends_with(&format!("found {cache}")),
                "{message}"
            );
        }
        for advantage in [MaxRl, Pkpo { k: 2 }, Avspo { eps: 1e-4 }, Gdpo { eps: 1e-4 }] {
            let message = refusal(advantage, OVERLONG);
            assert!(message.starts_with("advantage: "), "{message}");
        }
    }

    const HA_DW: Shaping = HaDw { scale: 1.3, eta: 0.1, window: 50, anchor: None };

    #[test]
    fn difficulty_weighting_favours_correct_completions_of_hard_prompts_and_wrong_ones_of_easy_prompts() {
        let (hard, easy) =
            (group(&[1.0, 0.0, 0.0, 0.0], &[-1.0; 4]), group(&[1.0, 1.0, 1.0, 0.0], &[-1.0; 4]));
        let credit = |shaping| Credit { advantage: DrGrpo, shaping, ..PLAIN };
        // Half of the batch is correct: p - anchor is -1/4 and 1/4.
        let (up, down) = (1.3 * 0.25f64.exp(), 1.3 * (-0.25f64).exp());
        let expected = [
            [0.75 * up, -0.25 * down, -0.25 * down, -0.25 * down],
            [0.25 * down, 0.25 * down, 0.25 * down, -0.75 * up],
        ];
        let close = |groups: &[Assigned]| {
            for (advantage, expected) in
                groups.iter().flat_map(|g| &g.advantages).zip(expected.as_flattened())
            {
                assert!((advantage - expected).abs() < 1e-12, "{advantage} instead of {expected}");
            }
        };
        close(&credit(HA_DW).assign_batch(&[hard, easy]).unwrap());
        // A fixed anchor doesn't depend on the batch.
        let set = HaDw { scale: 1.3, eta: 0.1, window: 50, anchor: Some(0.5) };
        close(&[credit(set).assign(&hard).unwrap(), credit(set).assign(&easy).unwrap()]);
        let graded = credit(HA_DW).assign(&group(&[1.0, 0.5], &[-1.0; 2])).unwrap_err();
        assert!(graded.to_string().contains("threshold"), "{graded}");
        for (name, shaping) in [
            ("scale", HaDw { scale: 0.0, eta: 0.1, window: 50, anchor: None }),
            ("eta", HaDw { scale: 1.0, eta: 1.5, window: 50, anchor: None }),
            ("window", HaDw { scale: 1.0, eta: 0.1, window: 0, anchor: None }),
            ("anchor", HaDw { scale: 1.0, eta: 0.1, window: 50, anchor: Some(-0.1) }),
        ] {
            let error = credit(shaping).check(8).unwrap_err().to_string();
            assert!(error.starts_with(&format!("shaping.{name}: ")), "{error}");
        }
    }

    #[test]
    fn the_anchor_begins_at_the_first_rate_and_moves_by_its_own_deviation() {
        let mut anchor = Anchor::default();
        assert_eq!(anchor.value(), None);
        anchor.update(None, 0.5, 2);
        assert_eq!(anchor.value(), None);
        anchor.update(Some(0.25), 0.5, 2);
        assert_eq!(anchor.value(), Some(0.25));
        // The deviation of a single value counts as 1.
        anchor.update(Some(0.75), 0.5, 2);
        assert_eq!(anchor.value(), Some(0.5));
        // The values 1/4 and 1/2 deviate by 1/8: 1/2 + 1/2 1/8 (1 - 1/2).
        anchor.update(Some(1.0), 0.5, 2);
        assert_eq!(anchor.value(), Some(0.53125));
        // The first value left the window: 1/2 and 17/32 deviate by 1/64.
        anchor.update(Some(0.0), 0.5, 2);
        assert_eq!(anchor.value(), Some(0.53125 - 0.53125 / 128.0));
    }

    #[test]
    fn shaping_that_the_estimator_cannot_see_is_refused() {
        let credit = Credit { advantage: MaxRl, shaping: Unlikely { beta: 0.25 }, ..PLAIN };
        assert!(credit.check(8).unwrap_err().to_string().contains("found max_rl"));
        let error = Credit { focal_gamma: -0.5, ..PLAIN }.check(8).unwrap_err();
        assert!(error.to_string().starts_with("focal_gamma"));
        assert!(PLAIN.check(8).is_ok());
    }

    proptest! {
        #[test]
        fn gamma_zero_is_bit_identical_to_the_estimator(
            correct in prop::collection::vec(any::<bool>(), 2..16), wrong in prop::sample::select(vec![0.0, -1.0]),
        ) {
            let rewards: Vec<f64> = correct.iter().map(|&c| if c { 1.0 } else { wrong }).collect();
            let logp = vec![-1.0; rewards.len()];
            let g = group(&rewards, &logp);
            let meaning = Rewards { wrong, ..PLAIN.rewards };
            for advantage in Advantage::ALL {
                let alone = advantage.advantages(&g, &meaning).unwrap();
                let credit = Credit { advantage, rewards: meaning, ..PLAIN };
                let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&credit.assign(&g).unwrap().advantages), bits(&alone));
            }
        }

        #[test]
        fn reordering_a_group_reorders_its_credit(
            completions in prop::collection::vec((any::<bool>(), 0u8..4), 2..12), rotate in 0usize..12, gamma in 0.0f64..2.0,
        ) {
            let rewards: Vec<f64> = completions.iter().map(|c| f64::from(u8::from(c.0))).collect();
            let logp: Vec<f64> = completions.iter().map(|c| -f64::from(c.1)).collect();
            let k = rotate % rewards.len();
            let turned = |v: &[f64]| { let mut v = v.to_vec(); v.rotate_left(k); v };
            for shaping in [Shaping::None, Unlikely { beta: 0.25 }, Smoothing { correct: 0.05, wrong: 0.05 }, HA_DW] {
                let credit = Credit { focal_gamma: gamma, shaping, ..PLAIN };
                let expected = turned(&credit.assign(&group(&rewards, &logp)).unwrap().advantages);
                let actual = credit.assign(&group(&turned(&rewards), &turned(&logp))).unwrap().advantages;
                for (f, w) in actual.iter().zip(&expected) {
                    prop_assert!((f - w).abs() < 1e-9);
                }
            }
        }
    }
}
