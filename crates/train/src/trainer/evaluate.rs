//! A run's evaluations, and the best policy among those evaluated.

use super::Trainer;
use crate::config::TaskConfig;
use crate::evaluation::in_training::{Policy, evaluate};
use crate::evaluation::record::Evaluation;
use crate::io::files::read_lines;
use crate::run::checkpoint::{self, Best, TrainerState};
use crate::run::folder::EVALUATIONS;
use std::path::Path;

impl Trainer<'_> {
    /// Whether the evaluation of a step, where one is due, has been made.
    pub(super) fn evaluated(&self, step: u64) -> anyhow::Result<bool> {
        let wanted = self.config.eval.happens() && (step == 0 || self.evaluation_due());
        let done: Vec<Evaluation> = read_lines(&self.run.file("eval.jsonl"))?;
        Ok(!wanted || done.iter().any(|e| e.step == step))
    }

    /// Evaluates and logs; keeps the best policy. `None` when interrupted.
    pub(super) fn evaluate(&mut self) -> anyhow::Result<Option<()>> {
        let config = self.config;
        let step = self.state.step;
        let mixed = matches!(config.task, TaskConfig::Mix(_));
        let Self { run, engine, plan, events, task, .. } = self;
        let evaluated = run.in_place(|home| {
            let policy = Policy {
                engine: &mut *engine,
                language: task.language(),
                max_cached_tokens: config.rollout.max_cached_tokens,
                step,
            };
            let folder = checkpoint::path(&home.join(EVALUATIONS), step);
            evaluate(policy, plan, &folder, &config.eval, mixed, *events)
        })?;
        let Some(e) = evaluated else { return Ok(None) };
        // The policy first: a line without it would be the best of nothing.
        if let (1.., Some(found)) = (step, best_of(&e))
            && self.state.best.is_none_or(|best| found.pass_at_1 > best.pass_at_1)
        {
            let contents = self.contents();
            self.run.in_place(|home| {
                checkpoint::save_best(&home.join("checkpoints"), step, &self.engine, &contents)
            })?;
            self.state.best = Some(found);
        }
        self.evaluations.push(&e)?;
        if let Some(tensorboard) = &mut self.tensorboard {
            let scalars = e.scalars();
            tensorboard.scalars(step, scalars.iter().map(|(n, v)| (n.as_str(), *v)))?;
        }
        self.events.say(&format!("step {step}: held-out {}", e.in_short()));
        if let Some(warning) = e.warning() {
            self.events.say(&format!("warning: step {step}: held-out: {warning}"));
        }
        Ok(Some(()))
    }
}

/// The best policy of those evaluated up to `state`'s step that are still there, the earliest among equals. The
/// lines say so and not the checkpoint alone, which may be of a moment before its own step's evaluation.
pub(super) fn best(evaluations: &[Evaluation], state: &TrainerState, checkpoints: &Path) -> Option<Best> {
    let evaluated = evaluations.iter().filter_map(best_of);
    let known = state.best.into_iter().chain(evaluated);
    let mut known: Vec<Best> = known
        .filter(|b| (1..=state.step).contains(&b.step) && checkpoint::has_best(checkpoints, *b))
        .collect();
    known.sort_by_key(|b| b.step);
    known.into_iter().reduce(|best, b| if b.pass_at_1 > best.pass_at_1 { b } else { best })
}

/// How good a policy is by its evaluation. Without a grade there is nothing to prefer it for.
fn best_of(evaluation: &Evaluation) -> Option<Best> {
    Some(Best { step: evaluation.step, pass_at_1: evaluation.pass_at_1()? })
}
