//! What a run's folder holds: nothing, a run that isn't finished, or a finished one.

use crate::config::Config;
use crate::problem::{Split, Task};
use crate::run::checkpoint;
use crate::run::folder::{Change, changed_keys};
use crate::run::metrics::{self, Logged};
use crate::run::sessions;
use anyhow::Context;
use fgrpo_eval::record::{self, Evaluation};
use std::path::Path;

/// What a run's folder holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No run.
    Absent,
    /// A run that isn't finished.
    Begun,
    /// A run whose last step is logged, evaluated where the configuration asks for that, and saved.
    Finished,
}

/// The configuration in steps, as a run folder holds it.
fn resolved(config: &Config) -> anyhow::Result<Config> {
    // The data says how many steps an epoch is; nothing else needs it here.
    let problems = if config.counts_epochs() { Task::open(config)?.len(Split::Train) } else { u64::MAX };
    config.resolved(problems)
}

/// What the folder holds of a run of `config`.
/// Fails on a run of another configuration, naming the keys that differ, or of another estimator of the user's own.
pub fn state(config: &Config, folder: &Path) -> anyhow::Result<State> {
    let written = folder.join("config.toml");
    let text = match std::fs::read_to_string(&written) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(State::Absent),
        Err(e) => return Err(e).with_context(|| format!("reading {}", written.display())),
    };
    let config = resolved(config)?;
    let differing = changed_keys(&written, &text, &config)?;
    if !differing.is_empty() {
        bad_input!(
            "{} holds a run of another configuration. Different, there -> here: {}. Choose another folder with --out",
            folder.display(),
            Change::list(&differing)
        );
    }
    sessions::same_estimator(folder, &sessions::estimator(&config))?;
    // A resume drops lines that a power failure damaged, and repeats their steps.
    let reaches = |m: &Logged| m.step >= config.steps;
    let logged = metrics::read(&folder.join("metrics.jsonl")).is_ok_and(|m| m.last().is_some_and(reaches));
    let saved =
        checkpoint::list(&folder.join("checkpoints"))?.last().is_some_and(|(s, _)| *s >= config.steps);
    let evaluation = final_evaluation(folder, &config);
    let evaluated = evaluation.is_ok_and(|evaluation| evaluation.is_some() || !config.evaluates_at_the_end());
    Ok(if logged && saved && evaluated { State::Finished } else { State::Begun })
}

/// The evaluation after the last step of a run of `config`.
pub fn final_evaluation(folder: &Path, config: &Config) -> anyhow::Result<Option<Evaluation>> {
    let evaluations = record::of_set(&folder.join("eval.jsonl"), config.eval.deciding_set())
        .with_context(|| format!("run {}", folder.display()))?;
    Ok(evaluations.into_iter().rfind(|e| e.step == config.steps))
}
