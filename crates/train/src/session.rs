//! Session of a run: its folder is opened and its inputs are recorded before the work, and the end after it. Training and
//! `fgrpo sft` share it.

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

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending<T> {
    /// All steps are done, with their results.
    Done(T),
    /// Stopped on request; the state was saved.
    Interrupted,
}

/// Run folder that is in use by this process, and the device to compute on.
pub(crate) struct Session {
    pub(crate) run: RunDir,
    pub(crate) device: Device,
}

impl Session {
    /// Opens the run folder `out` for `stage`, and records what the session works on.
    /// Fails as [`RunDir::open`], on a policy that can't be opened, and on inputs that have changed since the last session.
    pub(crate) fn begin(
        (config, task, stage): (&Config, &Task, Stage),
        out: &Path,
        if_exists: IfExists,
        (name, device): (DeviceName, Device),
        events: &mut dyn Events,
    ) -> anyhow::Result<Self> {
        // Before an old run is deleted. One that is resumed has its policy in a checkpoint.
        if !matches!(if_exists, IfExists::Resume { .. }) {
            policy::check(config, task)?;
        }
        let run = RunDir::open(out, config, if_exists, stage)?;
        events.opened(&run.path)?;
        if stage == Stage::Rl {
            events.say(&format!("method: {}", config.algorithm.method()));
        }
        let inputs = Inputs::of(config, task, stage)?;
        sessions::begin(&run.path, name, config.threads(), inputs, if_exists.accepts_changes(), events)?;
        device::announce(&device, events);
        Ok(Self { run, device })
    }

    /// Records the end of the work, whose result is returned. If it failed because the folder was moved, the error says so.
    pub(crate) fn end<T>(&self, done: anyhow::Result<T>) -> anyhow::Result<T> {
        let done = done.map_err(|error| self.run.blame(error))?;
        sessions::end(&self.run.path)?;
        Ok(done)
    }
}
