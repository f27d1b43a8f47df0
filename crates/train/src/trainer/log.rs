//! Log files of a run, and its warnings.

use super::{Trained, Trainer};
use crate::credit::{Credited, mean_logp};
use crate::evaluation::in_training::remedies;
use crate::run::folder::RunDir;
use crate::run::metrics::{self, Metrics, not_finite};
use crate::run::rollouts::RolloutLine;
use crate::run::seeds;
use crate::run::tensorboard::TensorBoard;
use fgrpo_eval::amounts::{bytes, duration};
use fgrpo_eval::events::Events;
use fgrpo_eval::io::lines::JsonLines;
use fgrpo_eval::io::machine::peak;
use fgrpo_eval::record::Evaluation;
use fgrpo_eval::unreadable::Unreadable;
use fgrpo_nn::Finish;
use fgrpo_verify::verdict::Verdict;
use serde_json::Value;

/// The line files and the TensorBoard file of a run.
pub(super) struct Logs {
    metrics: JsonLines,
    evaluations: JsonLines,
    /// Evaluations so far: the lines of `eval.jsonl`.
    pub(super) evaluated: Vec<Evaluation>,
    rollouts: JsonLines,
    tensorboard: Option<TensorBoard>,
    /// Whether the warning about a non-finite metric was already given.
    warned_not_finite: bool,
}

impl Logs {
    pub(super) fn append(
        run: &RunDir,
        evaluated: Vec<Evaluation>,
        tensorboard: Option<TensorBoard>,
    ) -> anyhow::Result<Self> {
        let [metrics, evaluations, rollouts] =
            ["metrics.jsonl", "eval.jsonl", "rollouts.jsonl"].map(|name| JsonLines::append(&run.file(name)));
        let (metrics, evaluations, rollouts) = (metrics?, evaluations?, rollouts?);
        Ok(Self { metrics, evaluations, evaluated, rollouts, tensorboard, warned_not_finite: false })
    }

    /// Logs the metrics of a step, and warns once if any isn't finite.
    pub(super) fn step(&mut self, m: &Metrics, events: &mut dyn Events) -> anyhow::Result<()> {
        let line = m.line();
        self.metrics.push(&line)?;
        if let Some(tensorboard) = &mut self.tensorboard {
            write_scalars(tensorboard, &line)?;
        }
        let names = not_finite(&line);
        if !names.is_empty() && !self.warned_not_finite {
            self.warned_not_finite = true;
            events.say(&format!(
                "warning: step {}: {} isn't finite and is logged as null; this warning is given once",
                m.step,
                names.join(", ")
            ));
        }
        Ok(())
    }

    /// Logs an evaluation and reports its result.
    pub(super) fn evaluation(&mut self, e: Evaluation, events: &mut dyn Events) -> anyhow::Result<()> {
        self.evaluations.push(&e)?;
        if let Some(tensorboard) = &mut self.tensorboard {
            let scalars = e.scalars();
            tensorboard.scalars(e.step, scalars.iter().map(|(n, v)| (n.as_str(), *v)))?;
        }
        events.say(&format!("step {}: {} {}", e.step, e.set, e.in_short()));
        if let Some(warning) = e.warning() {
            events.say(&format!("warning: step {}: {}: {warning}", e.step, e.set));
        }
        self.evaluated.push(e);
        Ok(())
    }

    /// Syncs the line files to disk.
    pub(super) fn sync(&self) -> anyhow::Result<()> {
        [&self.metrics, &self.evaluations, &self.rollouts].into_iter().try_for_each(JsonLines::sync)
    }
}

impl Trainer<'_> {
    pub(super) fn log_rollouts(&mut self, step: u64, groups: &[Credited]) -> anyhow::Result<()> {
        let key = seeds::logging(self.config.seed, step);
        for (g, group) in groups.iter().enumerate() {
            let prompt = &group.rollouts.prompt;
            for (i, c) in group.rollouts.completions.iter().enumerate() {
                if key.with(g as u64).uniform(i as u64) >= self.config.log.rollout_share {
                    continue;
                }
                let (prompt_text, completion) = match &group.rollouts.episodes {
                    Some(episodes) => (episodes[i].prompt.clone(), episodes[i].text.clone()),
                    None => (self.task.language.text(&prompt.tokens), self.task.language.text(&c.tokens)),
                };
                self.logs.rollouts.push(&RolloutLine {
                    step,
                    prompt_id: prompt.number,
                    part: self.task.part(prompt).map(str::to_owned),
                    sample: i as u64,
                    prompt: prompt_text,
                    completion,
                    target: prompt.problem.truth.gold(),
                    reward: (group.grades[i].verdict != Verdict::Unscorable).then_some(group.rewards[i]),
                    rewards: group.grades[i].rewards.clone(),
                    verdict: group.grades[i].verdict,
                    reason: group.grades[i].reason.to_string(),
                    printed: group.grades[i].printed.clone(),
                    feedback: group.grades[i].feedback.clone(),
                    advantage: Some(group.assigned.advantages[i]),
                    length: Some(c.tokens.len() as u64),
                    old_logp_mean: Some(mean_logp(c)),
                })?;
            }
        }
        Ok(())
    }

    /// Warns if many answers can't be read (only once), the run has stalled, the policy has become deterministic, or
    /// updates were skipped.
    pub(super) fn warn(&mut self, m: &Metrics, groups: &[Credited]) {
        if !self.warned_unreadable
            && let Some(message) = unreadable(groups).message(&remedies(self.config))
        {
            self.warned_unreadable = true;
            self.events.say(&format!("warning: step {}: {message}; this warning is given once", m.step));
        }
        for warning in self.stall.warnings(m) {
            self.events.say(&warning);
        }
        let constant =
            m.teacher.is_none() && m.distinct_fraction <= 1.0 / self.config.rollout.group_size as f64 + 1e-9;
        self.collapsed = if constant && m.reward_mean < 0.99 * self.method.credit.rewards.correct {
            self.collapsed + 1
        } else {
            0
        };
        if self.collapsed == 5 {
            self.events.say(&format!(
                    "warning: for five steps, all completions of every group have been identical (reward {:.3}): the policy has collapsed and can't learn. Lower update.lr, which is {}",
                    m.reward_mean, self.config.update.lr
                ),
            );
        }
        if m.skipped_updates > 0 {
            self.events.say(&format!(
                "warning: step {}: {} updates were skipped because the loss or gradient wasn't finite",
                m.step, m.skipped_updates
            ));
        }
    }

    /// Reports the paths of the results, and returns the results.
    pub(super) fn results(&mut self) -> anyhow::Result<Trained> {
        let set = self.config.eval.deciding_set();
        let evaluations: Vec<&Evaluation> = self.logs.evaluated.iter().filter(|e| e.set == set).collect();
        let seconds: f64 =
            metrics::read(&self.run.file("metrics.jsonl"))?.iter().filter_map(|m| m.seconds.total.0).sum();
        self.events.say(&format!("{} RL steps in {}", self.state.step, duration(seconds)));
        if let Some(peak) = peak() {
            self.events.say(&format!("memory: {} at most", bytes(peak)));
        }
        if let Some((_, folder)) = self.run.latest()? {
            self.events.say(&format!("policy: {}", folder.display()));
        }
        let Some(last) = evaluations.last() else { return Ok(Trained(None)) };
        // After a resume with another grader or other problems, earlier evaluations can't be compared.
        let first = evaluations.iter().find(|e| e.is_comparable(last)).unwrap_or(last);
        Ok(Trained(Some(Box::new((Evaluation::clone(first), Evaluation::clone(last))))))
    }
}

/// Counts the reasons why answers of a step's completions can't be read.
fn unreadable(groups: &[Credited]) -> Unreadable {
    Unreadable::of(groups.iter().flat_map(|group| {
        let completions = group.grades.iter().zip(&group.rollouts.completions);
        completions.map(|(g, c)| (g.verdict, g.reason.as_ref(), c.finish == Finish::Length))
    }))
}

pub(super) fn write_scalars(tensorboard: &mut TensorBoard, line: &Value) -> anyhow::Result<()> {
    let scalars = metrics::scalars(line);
    tensorboard.scalars(line["step"].as_u64().unwrap_or(0), scalars.iter().map(|(n, v)| (n.as_str(), *v)))
}
