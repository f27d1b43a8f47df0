//! Session of a run, for training and `fgrpo sft`: opens the folder and records the inputs before the work, and the
//! end after it.

use crate::config::Config;
use crate::device;
use crate::policy;
use crate::problem::Task;
use crate::run::checkpoint::Stage;
use crate::run::folder::{IfExists, RunDir};
use crate::run::sessions::{self, Inputs};
use fgrpo_eval::events::Events;
use fgrpo_nn::{Device, DeviceName};
use std::path::Path;

/// End of a session: done or interrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending<T> {
    /// All steps are done. Contains the results.
    Done(T),
    /// The run was interrupted and saved its state.
    Interrupted,
}

/// The run folder, locked by this process, and the device.
pub(crate) struct Session {
    pub(crate) run: RunDir,
    pub(crate) device: Device,
}

impl Session {
    /// Opens the run folder `out` for `stage` and records the inputs of the session. Fails like [`RunDir::open`], if
    /// the policy can't be opened, or if inputs have changed since the last session.
    pub(crate) fn begin(
        (config, task, stage): (&Config, &Task, Stage),
        out: &Path,
        if_exists: IfExists,
        (name, device): (DeviceName, Device),
        events: &mut dyn Events,
    ) -> anyhow::Result<Self> {
        // The policy is checked before an old run is deleted. A resumed run has its policy in a checkpoint.
        if !matches!(if_exists, IfExists::Resume { .. }) {
            policy::check(config, task)?;
        }
        let run = RunDir::open(out, config, if_exists, stage)?;
        events.opened(&run.path)?;
        if stage == Stage::Rl {
            events.say(&format!("method: {}", config.method()));
            config.notes().iter().for_each(|note| events.say(&format!("note: {note}")));
        }
        let inputs = Inputs::of(config, task, stage)?;
        let accepts_changes = if_exists == IfExists::Resume { accept_changes: true };
        sessions::begin(&run.path, name, config.compute.threads(), inputs, accepts_changes, events)?;
        device::announce(&device, events);
        Ok(Self { run, device })
    }

    /// Records the end of the work and returns its result. If the work failed because the folder was moved, the error
    /// says so.
    pub(crate) fn end<T>(&self, done: anyhow::Result<T>) -> anyhow::Result<T> {
        let done = done.map_err(|error| self.run.blame(error))?;
        sessions::end(&self.run.path)?;
        Ok(done)
    }
}
