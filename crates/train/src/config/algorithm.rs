//! Settings from rewards to the loss: advantages, focal weight, policy loss.

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
    /// Exponent of the focal weight `(1 - X/N)^gamma`; with 0, results are identical bit for bit to those of the
    /// estimator alone. The default is 0.5 with the advantage `grpo`, and 0 with any other, as its authors describe
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focal_gamma: Option<f64>,
    /// Reward of a correct completion, `R_c`.
    pub reward_correct: f64,
    /// Reward of a wrong completion, `R_w`.
    pub reward_wrong: f64,
    /// For graded rewards, such as those of the kinds `command` and `python`: the lowest reward that counts as
    /// correct for the focal weight and DARO's levels. The default is the grader's `correct_from`; required if the
    /// graders of a mix have different ones. If any problem of the task has a verdict only, it must be above
    /// `reward_wrong` and at most `reward_correct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correct_threshold: Option<f64>,
    /// `gdpo`: weight of the reward `NAME`, if a grader returns several rewards. The default is 1.
    pub reward_weights: BTreeMap<String, f64>,
    /// The policy loss.
    #[serde(deserialize_with = "named_or_table")]
    #[schemars(schema_with = "schema::kind::<PolicyLoss>")]
    pub loss: PolicyLoss,
    /// How the losses of tokens are averaged: `token-mean`, `seq-mean-token-mean`, `seq-mean-token-sum` or
    /// `seq-mean-token-sum-norm`. The default follows the method's authors: `seq-mean-token-mean` with the losses `gspo`,
    /// `sapo` and `gmpo`, `seq-mean-token-sum-norm` with the advantage `dr_grpo` and the loss `grpo`, and `token-mean`
    /// otherwise, or with `daro`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::word::<Aggregation>")]
    pub aggregation: Option<Aggregation>,
    /// Coefficient of the entropy bonus.
    pub entropy_coef: f64,
    /// Coefficient of the KL penalty against the model that RL started from.
    pub kl_coef: f64,
    /// Estimator of the KL penalty: `k1`, `k2` or `k3`. `k1` is reported unchanged but has the gradient of `k2`,
    /// because the gradient of `k1` has mean 0.
    #[schemars(schema_with = "schema::word::<Kl>")]
    pub kl: Kl,
    /// Coefficient of the teacher's term in the advantage of each token: `logp_teacher - logp`, an estimate of the
    /// negative reverse KL divergence from the teacher. The focal weight applies to the sum of this term and the
    /// advantage from rewards. Requires `[teacher]`.
    pub teacher_coef: f64,
    /// Drop groups whose rewards are all equal before the loss counts tokens, even if the estimator or shaping gives
    /// them advantages (DAPO's dynamic sampling, without drawing replacements).
    pub drop_inactive_groups: bool,
    /// Shaping of rewards before, or of advantages after the estimator.
    #[serde(deserialize_with = "named_or_table")]
    #[schemars(schema_with = "schema::kind::<Shaping>")]
    pub shaping: Shaping,
    /// Handling of completions that the length limit cut off. `grade`: graded like any other. `mask`: the loss and
    /// its means exclude the tokens of the completion, but the group's statistics include its reward. `reward`: the
    /// completion gets `truncated.reward` whatever its grade, and isn't correct.
    #[serde(deserialize_with = "named_or_table")]
    #[schemars(schema_with = "schema::kind::<Truncated>")]
    pub truncated: Truncated,
    /// DAPO's soft overlong punishment, added to rewards: 0 up to `length - cache` tokens, then linearly down to -1
    /// at `length`. The punishment doesn't change whether a completion is correct. For estimators that read rewards,
    /// such as `grpo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlong: Option<Overlong>,
    /// DARO: the policy loss is the sum of `w L - ln w` over a mini-batch's success rates strictly between 0 and 1,
    /// where `L` is the token mean over the groups with that rate and `w` is a learned weight that starts at 1.
    /// Entropy and KL are still token means.
    pub daro: bool,
    /// Learning rate of DARO's weights, which take one step of gradient descent per optimizer update; the paper
    /// doesn't state a value. A weight converges to `1 / L`; if `L` isn't above 0, the weight grows.
    pub daro_lr: f64,
    /// Correction for tokens that another engine sampled, by their importance weight `w = exp(logp_trainer -
    /// logp_rollout)`. `off`: no correction; `tis`: `w`, but at most the cap; `mask`: `w` within the bounds, and 0
    /// outside. With the embedded engine `w` is exactly 1.
    #[serde(deserialize_with = "named_or_table")]
    #[schemars(schema_with = "schema::kind::<Correction>")]
    pub correction: Correction,
    /// Fraction of a mini-batch's tokens that count in the policy loss: those with the highest entropy when they were
    /// sampled. The others still count in the denominators.
    pub top_entropy_quantile: f64,
    /// Values of this table that change over the steps.
    pub schedule: Vec<ScheduledKey>,
}

/// Handling of completions that the length limit cut off.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Truncated {
    /// Graded like any other completion.
    #[default]
    Grade,
    /// Excluded from the loss.
    Mask,
    /// Given a fixed reward.
    Reward {
        /// The reward, below `reward_correct`.
        #[serde(default)]
        reward: f64,
    },
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
            aggregation: None,
            entropy_coef: 0.0,
            kl_coef: 0.0,
            kl: Kl::K3,
            teacher_coef: 0.0,
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
    /// Returns the focal weight's exponent, or the estimator's default if it isn't configured.
    pub fn focal_gamma(&self) -> f64 {
        let default = if matches!(self.advantage, Advantage::Grpo { .. }) { DEFAULT_GAMMA } else { 0.0 };
        self.focal_gamma.unwrap_or(default)
    }

    /// Returns how the losses of tokens are averaged, by default as the method's authors do.
    pub fn aggregation(&self) -> Aggregation {
        self.aggregation.unwrap_or_else(|| self.usual_aggregation())
    }

    /// Returns the aggregation of the method's authors. DARO's loss is a token mean for each success rate.
    pub(super) fn usual_aggregation(&self) -> Aggregation {
        match (&self.loss, &self.advantage) {
            _ if self.daro => Aggregation::TokenMean,
            (PolicyLoss::Gspo { .. } | PolicyLoss::Sapo { .. } | PolicyLoss::Gmpo { .. }, _) => {
                Aggregation::SeqMeanTokenMean
            }
            (PolicyLoss::Grpo { .. }, Advantage::DrGrpo) => Aggregation::SeqMeanTokenSumNorm,
            _ => Aggregation::TokenMean,
        }
    }

    /// Returns the settings that turn rewards into advantages, including the focal weight.
    pub fn credit(&self, task: &TaskConfig) -> Credit {
        Credit {
            advantage: self.advantage.clone(),
            rewards: Rewards {
                correct: self.reward_correct,
                wrong: self.reward_wrong,
                threshold: self
                    .correct_threshold
                    .or_else(|| task.correct_from().next())
                    // A reward that is neither that of a correct nor of a wrong completion needs a threshold.
                    .or(matches!(self.truncated, Truncated::Reward { .. }).then_some(self.reward_correct)),
            },
            focal_gamma: self.focal_gamma(),
            shaping: self.shaping,
            overlong: self.overlong,
        }
    }

    /// Returns the settings that turn log-probabilities into the loss and its derivative.
    pub fn objective(&self, max_new_tokens: usize) -> Objective {
        Objective {
            policy: self.loss,
            aggregation: self.aggregation(),
            max_len: max_new_tokens,
            entropy_coef: self.entropy_coef,
            kl: (self.kl_coef != 0.0).then_some((self.kl, self.kl_coef)),
            correction: self.correction,
            top_entropy_quantile: self.top_entropy_quantile,
        }
    }

    /// Returns the settings at a step, and the scheduled values, by key.
    pub fn at(&self, step: u64) -> (Self, BTreeMap<String, f64>) {
        scheduled::at(self, step)
    }

    /// Returns whether the loss has a KL penalty at any step.
    pub fn penalises_kl(&self) -> bool {
        self.kl_coef != 0.0 || self.schedule.iter().any(|s| s.leaves_zero("kl_coef"))
    }

    /// Returns whether advantages have a teacher's term at any step.
    pub fn follows_teacher(&self) -> bool {
        self.teacher_coef != 0.0 || self.schedule.iter().any(|s| s.leaves_zero("teacher_coef"))
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
                "algorithm.correct_threshold: required, because the graders' correct_from differ: {graders:?}; set the lowest reward that counts as correct for all of them"
            );
        }
        // Another threshold would make wrong completions correct, or none.
        if let Some(threshold) = self.credit(task).rewards.threshold
            && task.has_binary_rewards()
            && (threshold <= self.reward_wrong || threshold > self.reward_correct)
        {
            bad_input!(
                "algorithm.correct_threshold: expected a number above {} (algorithm.reward_wrong) and at most {} (algorithm.reward_correct), found {threshold}: graders of this task give verdicts, not scores",
                self.reward_wrong,
                self.reward_correct
            );
        }
        for (name, weight) in &self.reward_weights {
            reward(&format!("algorithm.reward_weights.{name}"), *weight)?;
            if !self.advantage.reads().parts {
                bad_input!(
                    "algorithm.reward_weights.{name}: has no effect with the advantage {}, which reads only one reward",
                    self.advantage.name()
                );
            }
        }
        if let Truncated::Reward { reward: truncated } = self.truncated {
            reward("algorithm.truncated.reward", truncated)?;
            let correct = self.credit(task).rewards.threshold.unwrap_or(self.reward_correct);
            if truncated >= correct {
                bad_input!(
                    "algorithm.truncated.reward: expected less than {correct}, the reward of a correct completion, found {truncated}"
                );
            }
            if self.advantage.reads().parts {
                bad_input!(
                    "algorithm.truncated: expected grade or mask, found a reward: the advantage {} reads several rewards",
                    self.advantage.name()
                );
            }
        }
        coefficient("algorithm.entropy_coef", self.entropy_coef)?;
        coefficient("algorithm.kl_coef", self.kl_coef)?;
        coefficient("algorithm.teacher_coef", self.teacher_coef)?;
        coefficient("algorithm.daro_lr", self.daro_lr)?;
        if let Shaping::Smoothing { correct, wrong } = self.shaping {
            reward("algorithm.shaping.correct", correct)?;
            reward("algorithm.shaping.wrong", wrong)?;
        }
        if self.daro && self.aggregation() != Aggregation::TokenMean {
            bad_input!(
                "algorithm.aggregation: expected token-mean, found {}: DARO's loss is a token mean for each success rate",
                serde_json::json!(self.aggregation)
            );
        }
        Ok(())
    }
}
