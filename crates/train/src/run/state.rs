//! What a run's folder holds: nothing, a run that isn't finished, or a finished one.

use crate::config::Config;
use crate::problem::{Split, Task};
use crate::run::Run;
use crate::run::folder::{Change, changed_keys};
use crate::run::sessions;
use anyhow::Context;
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
            [OtherFolder],
            "{} holds a run of another configuration. Different, there -> here: {}",
            folder.display(),
            Change::list(&differing)
        );
    }
    sessions::same_estimator(folder, &sessions::estimator(&config))?;
    // A resume drops lines that a power failure damaged, and repeats their steps.
    let finished = Run::open(folder).is_ok_and(|run| run.is_finished().unwrap_or(false));
    Ok(if finished { State::Finished } else { State::Begun })
}
