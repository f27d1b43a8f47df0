//! Custom estimators: a Python function that returns the advantages of a group. A worker process calls it
//! (`_estimator.py`).

use crate::config::Config;
use fgrpo_core::advantage::Advantage;
use fgrpo_core::credit::Credit;
use fgrpo_core::group::Group;
use fgrpo_eval::io::interrupt;
use fgrpo_eval::kind::python;
use fgrpo_eval::program::{Program, Settings};
use serde::Deserialize;
use serde_json::json;

/// A running estimator.
#[derive(Debug)]
pub struct Estimator {
    function: String,
    program: Program,
}

impl Estimator {
    /// Starts the configured estimator, or returns `None` if it isn't a Python function. Calls it once, for a group
    /// with one correct completion, so that errors are found early.
    ///
    /// # Errors
    /// Bad input: the file or function doesn't exist, or the call failed.
    pub fn of(config: &Config) -> anyhow::Result<Option<Self>> {
        let (how, group_size) = (&config.algorithm.credit(&config.task), config.rollout.group_size);
        let Advantage::Python { function } = &how.advantage else { return Ok(None) };
        let settings = Settings::of_function(function);
        let settings = python::worker(&settings, "algorithm.advantage", python::ESTIMATOR)?;
        let program = Program::new(settings)?;
        let estimator = Self { function: function.clone(), program };
        let mut rewards = vec![how.rewards.wrong; group_size];
        rewards[0] = how.rewards.correct;
        let group = Group {
            rewards: &rewards,
            lengths: &vec![1; group_size],
            mean_old_logp: &vec![-1.0; group_size],
            scored: &vec![true; group_size],
            parts: &[],
            clusters: &[],
        };
        estimator.advantages(&[group], how)?;
        Ok(Some(estimator))
    }

    /// Computes the advantages of each group: 0 for unscorable completions, and in groups with fewer than two scored
    /// ones, for which the function isn't called. Returns `None` if interrupted.
    ///
    /// # Errors
    /// Bad input that describes the function's failure.
    pub fn advantages(&self, groups: &[Group<'_>], how: &Credit) -> anyhow::Result<Option<Vec<Vec<f64>>>> {
        let mut all = Vec::with_capacity(groups.len());
        for group in groups {
            let mut advantages = vec![0.0; group.len()];
            if group.scored_len() > 1 {
                let Some(scored) = self.group_advantages(group, how)? else { return Ok(None) };
                group.scored().zip(scored).for_each(|(i, advantage)| advantages[i] = advantage);
            }
            all.push(advantages);
        }
        Ok(Some(all))
    }

    fn group_advantages(&self, group: &Group<'_>, how: &Credit) -> anyhow::Result<Option<Vec<f64>>> {
        #[derive(Deserialize)]
        struct Answer {
            advantages: Vec<f64>,
        }
        let rewards: Vec<f64> = group.scored().map(|i| group.rewards[i]).collect();
        let mut question = json!({
            "ask": "advantages",
            "rewards": rewards,
            "lengths": group.scored().map(|i| group.lengths[i]).collect::<Vec<_>>(),
            "mean_logp": group.scored().map(|i| group.mean_old_logp[i]).collect::<Vec<_>>(),
        });
        if let Ok(correct) = how.rewards.correct(group) {
            question["correct"] = group.scored().map(|i| correct[i]).collect();
        }
        let failed = match self.program.ask_for::<Answer>(&question) {
            Ok(answer) => return Ok(Some(answer.advantages)),
            Err(_) if interrupt::requested() => return Ok(None),
            Err(failed) => failed,
        };
        bad_input!(
            "algorithm.advantage: {}: {}, for the rewards {rewards:?}{}",
            self.function,
            failed.reason,
            failed.printed.map(|text| format!(". It printed:\n{}", text.trim_end())).unwrap_or_default()
        )
    }
}
