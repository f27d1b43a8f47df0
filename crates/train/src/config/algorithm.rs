//! From rewards to the loss: advantages, focal weight, policy loss.

use super::kind::named_or_table;
use super::ranges::{coefficient, reward};
use super::scheduled::{self, ScheduledKey};
use super::schema;
use super::task::TaskConfig;
use fgrpo_core::advantage::Advantage;
use fgrpo_core::credit::{Credit, Overlong, Shaping};
use fgrpo_core::focal::DEFAULT_GAMMA;
use fgrpo_core::group::Rewards;
use fgrpo_core::loss::{Aggregation, Correction, Kl, Objective, PolicyLoss};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Advantages, focal weight and policy loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AlgorithmConfig {
    /// The advantage estimator, by its name or as a [function of yours](methods.md#your-own), `"FILE.py:FUNCTION"`.
    #[serde(deserialize_with = "named_or_table")]
    #[schemars(schema_with = "schema::kind::<Advantage>")]
    pub advantage: Advantage,
    /// Exponent of the focal weight `(1 - X/N)^gamma`; 0 is the estimator alone, bit for bit. 0.5 by default with the
    /// advantage `grpo`, and 0 with any other, so that it trains what its authors describe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focal_gamma: Option<f64>,
    /// Reward of a correct completion, `R_c`.
    pub reward_correct: f64,
    /// Reward of a wrong completion, `R_w`.
    pub reward_wrong: f64,
    /// For graded rewards, as of kinds `command` and `python`: the lowest that counts as correct, for the focal weight
    /// and DARO's levels; without it, the grader's `correct_from`. Needed where the graders of a mix differ in theirs.
    /// With any other kind, or part of a mix, it must be above `reward_wrong` and at most `reward_correct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correct_threshold: Option<f64>,
    /// `gdpo`: weight of the reward `NAME`, of the several that a grader gives; 1 without it.
    pub reward_weights: BTreeMap<String, f64>,
    /// The policy loss.
    #[serde(deserialize_with = "named_or_table")]
    #[schemars(schema_with = "schema::kind::<PolicyLoss>")]
    pub loss: PolicyLoss,
    /// How the losses of tokens are averaged.
    pub aggregation: AggregationName,
    /// Coefficient of the entropy bonus.
    pub entropy_coef: f64,
    /// Coefficient of the KL penalty against the model that RL started from.
    pub kl_coef: f64,
    /// Estimator of the KL penalty: `k1`, `k2` or `k3`. `k1` is reported as it is and has `k2`'s gradient, as its own has mean 0.
    #[schemars(schema_with = "schema::word::<Kl>")]
    pub kl: Kl,
    /// Drop groups whose rewards are all equal before the loss counts tokens, also where the estimator or shaping gives
    /// them advantages (DAPO's dynamic sampling without replacements).
    pub drop_inactive_groups: bool,
    /// Shaping of rewards before, or of advantages after the estimator.
    #[serde(deserialize_with = "named_or_table")]
    #[schemars(schema_with = "schema::kind::<Shaping>")]
    pub shaping: Shaping,
    /// What becomes of a completion that the length limit cut off. `grade`: it is graded as it is. `mask`: the loss leaves
    /// its tokens out, also of its means, and the group's statistics keep its reward. `reward`: its reward is
    /// `truncated.reward`, whatever its grade, and it is not correct.
    #[serde(deserialize_with = "named_or_table")]
    #[schemars(schema_with = "schema::kind::<Truncated>")]
    pub truncated: Truncated,
    /// DAPO's soft overlong punishment, added to rewards: 0 up to `length - cache` tokens, then linearly down to -1 at
    /// `length`. A punished completion stays correct or wrong. For estimators that read rewards, as `grpo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<Overlong>,
    /// DARO: the policy loss is the sum of `w L - ln w` over a mini-batch's success rates strictly between 0 and 1,
    /// where `L` is the token mean over the groups with that rate and `w` a learned weight, at first 1. Entropy and KL
    /// keep their token mean.
    pub daro: bool,
    /// Learning rate of DARO's weights, with one step of gradient descent per optimizer update; its paper states no
    /// value. A weight converges to `1 / L`; if `L` is not above 0, it grows.
    pub daro_lr: f64,
    /// Correction of tokens that another engine sampled, by their weight `w = exp(logp_trainer - logp_rollout)`. `off`:
    /// none; `tis`: `w` up to the cap; `mask`: `w` within the bounds, 0 outside. With the embedded engine `w` is
    /// exactly 1.
    #[serde(deserialize_with = "named_or_table")]
    #[schemars(schema_with = "schema::kind::<Correction>")]
    pub correction: Correction,
    /// Share of a mini-batch's tokens, those with the highest entropy when they were sampled, that the policy loss
    /// counts; the others stay in the denominators.
    pub top_entropy_quantile: f64,
    /// Numbers of this table that change over the steps.
    pub schedule: Vec<ScheduledKey>,
}

/// What becomes of completions that the length limit cut off.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Truncated {
    /// They are graded as they are.
    #[default]
    Grade,
    /// The loss leaves their tokens out.
    Mask,
    /// They get a reward of their own.
    Reward {
        /// The reward, below `reward_correct`.
        #[serde(default)]
        reward: f64,
    },
}

/// Names of the aggregation modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum AggregationName {
    TokenMean,
    SeqMeanTokenSum,
    SeqMeanTokenSumNorm,
    SeqMeanTokenMean,
}

impl Default for AlgorithmConfig {
    fn default() -> Self {
        Self {
            advantage: Advantage::default(),
            focal_gamma: None,
            reward_correct: 1.0,
            reward_wrong: 0.0,
            correct_threshold: None,
            reward_weights: BTreeMap::new(),
            loss: PolicyLoss::default(),
            aggregation: AggregationName::TokenMean,
            entropy_coef: 0.0,
            kl_coef: 0.0,
            kl: Kl::K3,
            drop_inactive_groups: false,
            shaping: Shaping::None,
            truncated: Truncated::Grade,
            overlong: None,
            daro: false,
            daro_lr: 0.01,
            correction: Correction::Off,
            top_entropy_quantile: 1.0,
            schedule: Vec::new(),
        }
    }
}

impl AlgorithmConfig {
    /// The focal weight's exponent, by default that of the estimator.
    pub fn focal_gamma(&self) -> f64 {
        let default = if matches!(self.advantage, Advantage::Grpo { .. }) { DEFAULT_GAMMA } else { 0.0 };
        self.focal_gamma.unwrap_or(default)
    }

    /// Settings for rewards to advantages, including the focal weight.
    pub fn credit(&self, task: &TaskConfig) -> Credit {
        Credit {
            advantage: self.advantage.clone(),
            rewards: Rewards {
                correct: self.reward_correct,
                wrong: self.reward_wrong,
                threshold: self
                    .correct_threshold
                    .or_else(|| task.correct_from().next())
                    // A reward of neither a correct nor a wrong completion needs one.
                    .or(matches!(self.truncated, Truncated::Reward { .. }).then_some(self.reward_correct)),
            },
            focal_gamma: self.focal_gamma(),
            shaping: self.shaping,
            overlong: self.overlong,
        }
    }

    /// Settings for log-probabilities to the loss and its derivative.
    pub fn objective(&self, max_new_tokens: usize) -> Objective {
        Objective {
            policy: self.loss,
            aggregation: match self.aggregation {
                AggregationName::TokenMean => Aggregation::TokenMean,
                AggregationName::SeqMeanTokenSum => Aggregation::SeqMeanTokenSum,
                AggregationName::SeqMeanTokenSumNorm => {
                    Aggregation::SeqMeanTokenSumNorm { max_len: max_new_tokens }
                }
                AggregationName::SeqMeanTokenMean => Aggregation::SeqMeanTokenMean,
            },
            entropy_coef: self.entropy_coef,
            kl: (self.kl_coef != 0.0).then_some((self.kl, self.kl_coef)),
            correction: self.correction,
            top_entropy_quantile: self.top_entropy_quantile,
        }
    }

    /// The settings in force at a step, and the scheduled values among them by key.
    pub fn at(&self, step: u64) -> (Self, BTreeMap<String, f64>) {
        scheduled::at(self, step)
    }

    /// Whether the loss has a KL penalty at any step.
    pub fn penalises_kl(&self) -> bool {
        self.kl_coef != 0.0 || self.schedule.iter().any(|s| s.leaves_zero("kl_coef"))
    }

    pub(super) fn check(&self, group_size: usize, task: &TaskConfig) -> anyhow::Result<()> {
        self.check_values(group_size, task)?;
        scheduled::check(self)?;
        for step in self.schedule.iter().flat_map(ScheduledKey::deciding_steps) {
            let (at, _) = self.at(step);
            at.check_values(group_size, task)
                .or_else(|e| bad_input!("algorithm.schedule: at step {step}: {e:#}"))?;
        }
        Ok(())
    }

    fn check_values(&self, group_size: usize, task: &TaskConfig) -> anyhow::Result<()> {
        reward("algorithm.reward_correct", self.reward_correct)?;
        reward("algorithm.reward_wrong", self.reward_wrong)?;
        self.correct_threshold.map_or(Ok(()), |t| reward("algorithm.correct_threshold", t))?;
        let checked = self.credit(task).check(group_size).and_then(|()| self.objective(1).check());
        checked.or_else(|e| bad_input!("algorithm.{e}"))?;
        let graders: Vec<f64> = task.correct_from().collect();
        if self.correct_threshold.is_none() && graders.iter().any(|from| *from != graders[0]) {
            bad_input!(
                "algorithm.correct_threshold: found none, and programs whose correct_from is {graders:?}; wanted the reward from which a completion of any of them is correct"
            );
        }
        // Another threshold would make wrong completions correct, or no completion.
        if let Some(found) = self.credit(task).rewards.threshold
            && task.has_binary_rewards()
            && (found <= self.reward_wrong || found > self.reward_correct)
        {
            bad_input!(
                "algorithm.correct_threshold: found {found}, wanted above algorithm.reward_wrong, {}, and at most algorithm.reward_correct, {}, which are the rewards of the verdicts; only the scores of task.kind command need another",
                self.reward_wrong,
                self.reward_correct
            );
        }
        for (name, weight) in &self.reward_weights {
            reward(&format!("algorithm.reward_weights.{name}"), *weight)?;
            if !self.advantage.reads().parts {
                bad_input!(
                    "algorithm.reward_weights: found {name}, wanted none with the advantage {}, which reads one reward",
                    self.advantage.name()
                );
            }
        }
        if let Truncated::Reward { reward: found } = self.truncated {
            reward("algorithm.truncated.reward", found)?;
            let most = self.credit(task).rewards.threshold.unwrap_or(self.reward_correct);
            if found >= most {
                bad_input!(
                    "algorithm.truncated.reward: found {found}, wanted less than {most}, the reward of a correct completion"
                );
            }
            if self.advantage.reads().parts {
                bad_input!(
                    "algorithm.truncated: found a reward, wanted grade or mask with the advantage {}, which reads several rewards",
                    self.advantage.name()
                );
            }
        }
        coefficient("algorithm.entropy_coef", self.entropy_coef)?;
        coefficient("algorithm.kl_coef", self.kl_coef)?;
        coefficient("algorithm.daro_lr", self.daro_lr)?;
        if let Shaping::Smoothing { correct, wrong } = self.shaping {
            reward("algorithm.shaping.correct", correct)?;
            reward("algorithm.shaping.wrong", wrong)?;
        }
        if self.daro && self.aggregation != AggregationName::TokenMean {
            bad_input!(
                "algorithm.aggregation: found {}, wanted token-mean with daro, whose loss is a token mean for each success rate",
                serde_json::json!(self.aggregation)
            );
        }
        Ok(())
    }
}
