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

/// Describes the problems, samples and graders of an evaluation. Two evaluations can only be compared if they are equal.
fn setting(e: &Evaluation) -> String {
    let parts: Vec<&String> = e.parts.keys().collect();
    let mean = if e.average.is_over_problems() { "problems" } else { "parts" };
    format!(
        "{} problems x {} samples, parts {parts:?}, mean over {mean}, problem set {}, graders {:?}",
        e.all.problems, e.samples, e.problem_set, e.graders
    )
}

/// Returns the candidates that a run recorded during training. The first run sets `evaluated` to a description of its
/// evaluations, which later runs must match.
pub(super) fn recorded(
    settings: &Settings,
    run: &Run,
    evaluated: &mut Option<String>,
) -> anyhow::Result<Candidates> {
    let (config, evaluations) = (run.config()?, run.deciding()?);
    require_once("eval.jsonl", evaluations.iter().map(|e| e.step))?;
    let value = |e: &Evaluation| -> anyhow::Result<f64> {
        let values = match &settings.part {
            None => &e.all.pass_at_k,
            Some(name) => match e.parts.get(name) {
                Some(part) => &part.pass_at_k,
                None => {
                    let known: Vec<&str> = e.parts.keys().map(String::as_str).collect();
                    bad_input!("part: {}", unknown_name(name, &known))
                }
            },
        };
        match values.get(&settings.k) {
            Some(&value) => Ok(value),
            None => {
                bad_input!("k: eval.jsonl has pass@k for k = {:?}, but not for {}", values.keys(), settings.k)
            }
        }
    };
    let mut candidates = Candidates::default();
    let mut first: Option<(u64, String)> = None;
    for e in evaluations.iter().copied().filter(|e| e.step > 0) {
        let path = checkpoint::path(&run.folder.join("checkpoints"), e.step);
        let checkpoint = Some(path).filter(|p| p.is_dir());
        if !settings.any_step && (checkpoint.is_none() || !is_regular(config, e.step)) {
            candidates.others += 1;
            continue;
        }
        // A run that was resumed with other settings has different evaluations.
        let (step, expected) = first.get_or_insert_with(|| (e.step, setting(e)));
        if setting(e) != *expected {
            bad_input!(
                "eval.jsonl, step {}: this evaluation is on {}, but the evaluation of step {step} is on {expected}; evaluate all checkpoints in the same way with fgrpo eval, and choose by these evaluations",
                e.step,
                setting(e)
            );
        }
        candidates.all.push(Candidate { step: e.step, value: value(e)?, checkpoint });
    }
    let Some((_, setting_of_run)) = first else { return Ok(candidates) };
    match evaluated {
        Some(expected) if *expected != setting_of_run => {
            bad_input!(
                "the evaluations are on {setting_of_run}, but those of {} on {expected}",
                settings.runs[0].display()
            )
        }
        _ => *evaluated = Some(setting_of_run.clone()),
    }
    let start = evaluations.into_iter().find(|e| e.step == 0 && setting(e) == setting_of_run);
    candidates.start = start.map(value).transpose()?;
    Ok(candidates)
}
