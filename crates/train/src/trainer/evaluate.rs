//! Evaluations of a run, and the choice of its best policy.

use super::Trainer;
use crate::config::EvalConfig;
use crate::evaluation::in_training::Series;
use crate::run::checkpoint::{self, Best, TrainerState};
use anyhow::Context;
use fgrpo_eval::record::Evaluation;
use std::path::Path;

impl Trainer<'_> {
    /// Makes the evaluations that are due at this step and don't exist yet. Returns `None` if interrupted.
    pub(super) fn evaluate(&mut self) -> anyhow::Result<Option<()>> {
        for i in 0..self.series.len() {
            let (step, series) = (self.state.step, &self.series[i]);
            let logged = self.logs.evaluated.iter().any(|e| e.step == step && e.set == series.set);
            if logged || !self.evaluation_due(step, &series.eval) {
                continue;
            }
            self.run.check_place()?;
            let policy = (&mut self.policy, self.config.rollout.max_cached_tokens);
            let folder = checkpoint::path(&self.run.file(series.folder), step);
            let Some(mut evaluation) = series.evaluate(step, policy, &folder, self.events)? else {
                return Ok(None);
            };
            if series.eval.exact {
                let size = self.config.rollout.group_size;
                let exact = series.exact(step, &mut self.policy, size, &self.logs.evaluated);
                evaluation.exact = Some(exact.with_context(|| format!("step {step}: eval.exact"))?);
            }
            if i + 1 == self.series.len() {
                self.keep_best(&evaluation)?;
            }
            self.logs.evaluation(evaluation, self.events)?;
        }
        Ok(Some(()))
    }

    /// Returns whether an evaluation with these settings is due at a step.
    pub(super) fn evaluation_due(&self, step: u64, eval: &EvalConfig) -> bool {
        step == 0
            || self.due_at(step, eval.every)
            || (eval.at_checkpoints && self.due_at(step, self.config.save.every))
    }

    /// Saves the policy if it is the best so far. Called before the evaluation is logged, so that the log never
    /// refers to a policy that doesn't exist.
    fn keep_best(&mut self, evaluation: &Evaluation) -> anyhow::Result<()> {
        let (1.., Some(new)) = (evaluation.step, best_of(evaluation)) else { return Ok(()) };
        if let Some(best) = self.state.best.filter(|best| new.left_out > best.left_out) {
            self.events.say(&format!(
                "warning: step {}: this policy can't be chosen as the best, because pass@1 leaves out {} problems, more than at step {}",
                new.step, new.left_out, best.step
            ));
        }
        if self.state.best.is_none_or(|best| new.beats(&best)) {
            let contents = self.contents();
            checkpoint::save_best(&self.run.checkpoints(), new.step, self.policy.engine(), &contents)?;
            self.state.best = Some(new);
        }
        Ok(())
    }
}

/// Returns the best policy evaluated up to the step of `state` that still exists; of equal ones, the earliest. Logged
/// evaluations count too, because a checkpoint may have been saved before the evaluation of its step.
///
/// Only evaluations with the settings of `series` are compared. Evaluations before a resume with other settings don't
/// count.
pub(super) fn best(
    evaluations: &[Evaluation],
    series: Option<&Series>,
    state: &TrainerState,
    checkpoints: &Path,
) -> Option<Best> {
    let measured = |e: &&Evaluation| series.is_some_and(|series| series.measures(e));
    // If the step of the best policy is in the log, the log decides whether its evaluation counts.
    let logged = |best: &Best| series.is_some() && evaluations.iter().any(|e| e.step == best.step);
    let evaluated = evaluations.iter().filter(measured).filter_map(best_of);
    let known = state.best.into_iter().filter(|best| !logged(best)).chain(evaluated);
    let mut known: Vec<Best> = known
        .filter(|b| (1..=state.step).contains(&b.step) && checkpoint::has_best(checkpoints, *b))
        .collect();
    known.sort_by_key(|b| b.step);
    known.into_iter().reduce(|best, b| if b.beats(&best) { b } else { best })
}

/// Returns the quality of a policy by its evaluation, or `None` if nothing could be graded.
fn best_of(evaluation: &Evaluation) -> Option<Best> {
    let left_out = evaluation.all.left_out(1);
    Some(Best { step: evaluation.step, pass_at_1: evaluation.pass_at_1()?, left_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evaluation_that_leaves_out_more_problems_is_not_better() {
        let best = |left_out, pass_at_1| Best { step: 1, pass_at_1, left_out };
        assert!(!best(14, 1.0).beats(&best(0, 0.3)) && best(0, 0.3).beats(&best(14, 1.0)));
        assert!(best(2, 0.5).beats(&best(2, 0.4)) && !best(0, 0.4).beats(&best(0, 0.4)));
    }
}
