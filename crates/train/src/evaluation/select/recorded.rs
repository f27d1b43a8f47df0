//! Candidates from the evaluations that a run recorded during training.

use super::{Candidate, Candidates, Settings, require_once};
use crate::config::{Config, Every, unknown_name};
use crate::run::{Run, checkpoint};
use fgrpo_eval::record::Evaluation;

/// Returns whether a checkpoint after this step is due by `save.every`, or is the last one.
pub(super) fn is_regular(config: &Config, step: u64) -> bool {
    let every = match config.save.every {
        Every::Steps(0) => false,
        Every::Steps(n) => step.is_multiple_of(n),
        // In a run folder, epochs are converted to steps.
        Every::Epoch(_) => false,
    };
    step > 0 && (every || step == config.steps)
}

/// Describes the problems, samples and graders of an evaluation.
fn setting(e: &Evaluation) -> String {
    let parts: Vec<&String> = e.parts.keys().collect();
    let mean = if e.average.is_over_problems() { "problems" } else { "parts" };
    format!(
        "{} problems x {} samples ({}), parts {parts:?}, mean over {mean}, problem set {}, graders {:?}",
        e.all.problems,
        e.samples,
        if e.sampling.is_empty() { "unknown sampling settings" } else { &e.sampling },
        e.problem_set,
        e.graders
    )
}

/// Returns whether the metrics of two evaluations can be compared.
fn are_alike(a: &Evaluation, b: &Evaluation) -> bool {
    a.is_comparable(b) && a.all.problems == b.all.problems && a.parts.keys().eq(b.parts.keys())
}

/// Returns the candidates that a run recorded during training. The first run sets `evaluated` to one of its
/// evaluations, which those of later runs must match.
pub(super) fn recorded(
    settings: &Settings,
    run: &Run,
    evaluated: &mut Option<Evaluation>,
) -> anyhow::Result<Candidates> {
    let (config, evaluations) = (run.config()?, run.deciding()?);
    require_once("eval.jsonl", evaluations.iter().map(|e| e.step))?;
    // The metric, or `None` if no problem has k scored samples, and the number of problems that it leaves out.
    let value = |e: &Evaluation| -> anyhow::Result<(Option<f64>, usize)> {
        let counted = match &settings.part {
            None => &e.all,
            Some(name) => match e.parts.get(name) {
                Some(part) => part,
                None => {
                    let known: Vec<&str> = e.parts.keys().map(String::as_str).collect();
                    bad_input!("part: {}", unknown_name(name, &known))
                }
            },
        };
        let (value, left_out) = (counted.pass_at_k.get(&settings.k), counted.left_out(settings.k));
        if value.is_none() && left_out == 0 {
            let known = counted.pass_at_k.keys();
            bad_input!("k: eval.jsonl has pass@k for k = {known:?}, but not for {}", settings.k);
        }
        Ok((value.copied(), left_out))
    };
    let mut candidates = Candidates::default();
    let mut first: Option<&Evaluation> = None;
    for e in evaluations.iter().copied().filter(|e| e.step > 0) {
        let path = checkpoint::path(&run.folder.join("checkpoints"), e.step);
        let checkpoint = Some(path).filter(|p| p.is_dir());
        if !settings.any_step && (checkpoint.is_none() || !is_regular(config, e.step)) {
            candidates.others += 1;
            continue;
        }
        // A run that was resumed with other settings has different evaluations.
        let expected = *first.get_or_insert(e);
        if !are_alike(e, expected) {
            bad_input!(
                "eval.jsonl, step {}: this evaluation is on {}, but the evaluation of step {} is on {}; evaluate all checkpoints in the same way with fgrpo eval, and choose by these evaluations",
                e.step,
                setting(e),
                expected.step,
                setting(expected)
            );
        }
        match value(e)? {
            (Some(value), left_out) => {
                candidates.all.push(Candidate { step: e.step, value, left_out, checkpoint });
            }
            (None, _) => candidates.others += 1,
        }
    }
    let Some(first) = first else { return Ok(candidates) };
    let expected = evaluated.get_or_insert_with(|| first.clone());
    if !are_alike(first, expected) {
        bad_input!(
            "the evaluations are on {}, but those of {} on {}",
            setting(first),
            settings.runs[0].display(),
            setting(expected)
        );
    }
    if let Some(start) = evaluations.into_iter().find(|e| e.step == 0 && are_alike(e, first))
        && let (Some(value), 0) = value(start)?
    {
        candidates.start = Some(value);
    }
    Ok(candidates)
}
