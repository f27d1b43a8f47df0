//! State of a run folder: no run, an unfinished one, or a finished one.

use crate::config::Config;
use crate::problem::{Split, Task};
use crate::run::Run;
use crate::run::folder::{Change, changed_keys};
use crate::run::sessions;
use anyhow::Context;
use std::path::Path;

/// State of a run folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The folder doesn't have a run.
    Absent,
    /// An unfinished run.
    Begun,
    /// A run whose last step is logged, evaluated if that is configured, and saved.
    Finished,
}

/// Converts epochs to steps, as in the configuration of a run folder.
fn resolved(config: &Config) -> anyhow::Result<Config> {
    // The data are only needed to convert epochs.
    let problems = if config.counts_epochs() { Task::open(config)?.len(Split::Train) } else { u64::MAX };
    config.resolved(problems)
}

/// Returns the state of the run of `config` in a folder. Fails if the folder has a run with another configuration,
/// naming the keys that differ, or with another custom estimator.
pub fn state(config: &Config, folder: &Path) -> anyhow::Result<State> {
    let file = folder.join("config.toml");
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(State::Absent),
        Err(e) => return Err(e).with_context(|| format!("reading {}", file.display())),
    };
    let config = resolved(config)?;
    let differing = changed_keys(&file, &text, &config)?;
    if !differing.is_empty() {
        bad_input!(
            [OtherFolder],
            "{} has a run with another configuration (old -> new): {}",
            folder.display(),
            Change::list(&differing)
        );
    }
    sessions::same_estimator(folder, &sessions::estimator(&config))?;
    // An unreadable run counts as unfinished: a resume drops damaged lines and repeats their steps.
    let finished = Run::open(folder).is_ok_and(|run| run.is_finished().unwrap_or(false));
    Ok(if finished { State::Finished } else { State::Begun })
}
