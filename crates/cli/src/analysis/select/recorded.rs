//! Candidates from the evaluations that a run recorded during training.

use super::{Args, Candidate, Candidates};
use fgrpo_train::bad_input;
use fgrpo_train::config::{Config, Every};
use fgrpo_train::evaluation::record::{self, Evaluation};
use fgrpo_train::failure::OrBadInput;
use fgrpo_train::run::checkpoint;
use std::path::Path;

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

/// The candidates that a run recorded while it trained. `evaluated` is what the first run was evaluated on.
pub(super) fn recorded(
    args: &Args,
    run: &Path,
    config: &Config,
    evaluated: &mut Option<String>,
) -> anyhow::Result<Candidates> {
    let evaluations = record::deciding(&run.join("eval.jsonl")).or_bad_input()?;
    if let Some(last) = evaluations.last() {
        let parts: Vec<&String> = last.parts.keys().collect();
        let what = format!(
            "{} problems x {} samples, parts {parts:?}, problem set {}",
            last.problems, last.samples, last.problem_set
        );
        match evaluated {
            Some(first) if *first != what => bad_input!(
                "found evaluations on {what}, wanted those of {}, on {first}",
                args.runs[0].display()
            ),
            _ => *evaluated = Some(what),
        }
    }
    let value = |e: &Evaluation| -> anyhow::Result<f64> {
        let values = match &args.part {
            None => &e.pass_at_k,
            Some(name) => match e.parts.get(name) {
                Some(part) => &part.pass_at_k,
                None => bad_input!(
                    "--part {name}: found parts {:?} in eval.jsonl",
                    e.parts.keys().collect::<Vec<_>>()
                ),
            },
        };
        match values.get(&args.k) {
            Some(&value) => Ok(value),
            None => bad_input!("-k {}: found pass@k for k = {:?} in eval.jsonl", args.k, values.keys()),
        }
    };
    let mut found = Candidates::default();
    for e in &evaluations {
        if e.step == 0 {
            found.start = Some(value(e)?);
            continue;
        }
        let path = checkpoint::path(&run.join("checkpoints"), e.step);
        let checkpoint = Some(path).filter(|p| p.is_dir());
        if args.any_step || (checkpoint.is_some() && is_regular(config, e.step)) {
            found.all.push(Candidate { step: e.step, value: value(e)?, compute: 0.0, checkpoint });
        } else {
            found.others += 1;
        }
    }
    Ok(found)
}
