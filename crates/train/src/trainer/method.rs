//! The method at a step: how rewards become advantages, and advantages a loss.

use crate::config::{AlgorithmConfig, Config};
use crate::credit::{Credited, credit};
use crate::estimator::Estimator;
use crate::rollout::Rollouts;
use crate::update::LossSettings;
use fgrpo_core::credit::{Anchor, Credit, Shaping};
use fgrpo_eval::graded::Graded;
use std::collections::BTreeMap;

pub(super) struct Method {
    pub(super) credit: Credit,
    /// A custom estimator.
    estimator: Option<Estimator>,
    /// Whether advantages come from rewards, with or without a teacher.
    rewards: bool,
    /// Settings of `[algorithm]` at the current step.
    algorithm: AlgorithmConfig,
    pub(super) loss: LossSettings,
    /// HA-DW's estimate of the policy's success rate.
    anchor: Anchor,
    max_new_tokens: usize,
}

impl Method {
    pub(super) fn of(
        config: &Config,
        estimator: Option<Estimator>,
        anchor: Anchor,
        max_new_tokens: usize,
    ) -> Self {
        Self {
            credit: config.algorithm.credit(&config.task),
            estimator,
            rewards: config.teacher.as_ref().is_none_or(|teacher| teacher.rewards),
            algorithm: config.algorithm.clone(),
            loss: LossSettings::of(&config.algorithm, max_new_tokens, config.rollout.temperature),
            anchor,
            max_new_tokens,
        }
    }

    /// Applies the settings of a step, and returns the values of the scheduled settings.
    pub(super) fn advance(&mut self, config: &Config, step: u64) -> BTreeMap<String, f64> {
        let (algorithm, scheduled) = config.algorithm.at(step);
        self.algorithm = algorithm;
        self.credit = self.algorithm.credit(&config.task);
        if let Shaping::HaDw { anchor: anchor @ None, .. } = &mut self.credit.shaping {
            *anchor = self.anchor.value();
        }
        self.loss = LossSettings::of(&self.algorithm, self.max_new_tokens, self.loss.temperature);
        scheduled
    }

    /// Computes the advantages of groups. Returns `None` if interrupted.
    pub(super) fn credit(
        &self,
        rollouts: Vec<Rollouts>,
        grades: Vec<Vec<Graded>>,
    ) -> anyhow::Result<Option<Vec<Credited>>> {
        let AlgorithmConfig { truncated, reward_weights, .. } = &self.algorithm;
        let (how, estimator) = (&self.credit, self.estimator.as_ref());
        let mut credited = credit(how, *truncated, reward_weights, estimator, rollouts, grades)?;
        if !self.rewards {
            credited.iter_mut().flatten().for_each(|group| group.assigned.advantages.fill(0.0));
        }
        Ok(credited)
    }

    /// Updates HA-DW's estimate by the success rate of a step, if HA-DW is configured, and returns the estimate.
    pub(super) fn observe(&mut self, credited: &[Credited]) -> Option<f64> {
        if let Shaping::HaDw { eta, window, .. } = self.credit.shaping {
            let (mut correct, mut scored) = (0.0, 0.0);
            for group in credited {
                let Some(rate) = group.assigned.success_rate else { continue };
                let completions = group.scored().count() as f64;
                correct += (rate * completions).round();
                scored += completions;
            }
            self.anchor.update((scored > 0.0).then(|| correct / scored), eta, window);
        }
        self.anchor.value()
    }
}
