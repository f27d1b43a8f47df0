//! Several runs one after another: the training of what isn't finished.

use crate::commands::train::run_and_report;
use crate::output::progress::Console;
use fgrpo_eval::io::interrupt;
use fgrpo_nn::DeviceName;
use fgrpo_train::config::Config;
use fgrpo_train::run::folder::IfExists;
use fgrpo_train::run::state::State;
use fgrpo_train::trainer::Ending;
use std::path::Path;

/// Trains the unfinished runs, each with its report; a run that was started resumes from its last checkpoint. Returns
/// whether all are done: after a request to stop, some are not.
///
/// # Errors
/// The error of a run that fails.
pub fn train_unfinished<'a>(
    runs: impl ExactSizeIterator<Item = (&'a Config, &'a Path, State)>,
    device: DeviceName,
) -> anyhow::Result<bool> {
    interrupt::listen();
    let total = runs.len();
    for (i, (config, folder, state)) in runs.enumerate() {
        let done = if state == State::Finished { ": done" } else { "" };
        say!("[{}/{total}] {}{done}", i + 1, folder.display());
        let if_exists = match state {
            State::Finished => continue,
            State::Begun => IfExists::Resume { accept_changes: false },
            State::Absent => IfExists::Refuse,
        };
        match run_and_report(config, folder, if_exists, device, &mut Console::new())? {
            Ending::Done(summary) => say!("{summary}"),
            Ending::Interrupted => return Ok(false),
        }
    }
    Ok(true)
}
