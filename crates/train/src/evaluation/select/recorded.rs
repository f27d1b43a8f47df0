//! Candidates from the evaluations that a run recorded during training.

use super::{Candidate, Candidates, Settings, require_once};
use crate::config::{Config, Every};
use crate::run::{Run, checkpoint};
use fgrpo_eval::record::Evaluation;

/// Whether a checkpoint after this step is one of `save.every`, or the last.
pub(super) fn is_regular(config: &Config, step: u64) -> bool {
    let every = match config.save.every {
        Every::Steps(0) => false,
        Every::Steps(n) => step.is_multiple_of(n),
        // A run folder has its epochs in steps.
        Every::Epoch => false,
    };
    step > 0 && (every || step == config.steps)
}

/// What an evaluation is on: values on anything else are no better or worse than its value.
fn setting(e: &Evaluation) -> String {
    let parts: Vec<&String> = e.parts.keys().collect();
    let mean = if e.average.is_over_problems() { "problems" } else { "parts" };
    format!(
        "{} problems x {} samples, parts {parts:?}, mean over {mean}, problem set {}",
        e.all.problems, e.samples, e.problem_set
    )
}

/// The candidates that a run recorded while it trained. `evaluated` is what the first run was evaluated on.
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
                None => bad_input!(
                    "part {name}: found parts {:?} in eval.jsonl",
                    e.parts.keys().collect::<Vec<_>>()
                ),
            },
        };
        match values.get(&settings.k) {
            Some(&value) => Ok(value),
            None => bad_input!("k {}: found pass@k for k = {:?} in eval.jsonl", settings.k, values.keys()),
        }
    };
    let mut found = Candidates::default();
    let mut first: Option<(u64, String)> = None;
    for e in evaluations.iter().copied().filter(|e| e.step > 0) {
        let path = checkpoint::path(&run.folder.join("checkpoints"), e.step);
        let checkpoint = Some(path).filter(|p| p.is_dir());
        if !settings.any_step && (checkpoint.is_none() || !is_regular(config, e.step)) {
            found.others += 1;
            continue;
        }
        // A run that was resumed with other settings has evaluations on both.
        let (step, wanted) = first.get_or_insert_with(|| (e.step, setting(e)));
        if setting(e) != *wanted {
            bad_input!(
                "eval.jsonl, step {}: found an evaluation on {}, wanted one as at step {step}, on {wanted}: evaluate the checkpoints alike with fgrpo eval, and choose by them",
                e.step,
                setting(e)
            );
        }
        found.all.push(Candidate { step: e.step, value: value(e)?, compute: 0.0, checkpoint });
    }
    let Some((_, own)) = first else { return Ok(found) };
    match evaluated {
        Some(wanted) if *wanted != own => {
            bad_input!(
                "found evaluations on {own}, wanted those of {}, on {wanted}",
                settings.runs[0].display()
            )
        }
        _ => *evaluated = Some(own.clone()),
    }
    let start = evaluations.into_iter().find(|e| e.step == 0 && setting(e) == own);
    found.start = start.map(value).transpose()?;
    Ok(found)
}
