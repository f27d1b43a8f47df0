//! Checkpoints: write the state, sync the log lines that it refers to, then rename the state to its final name.

use super::Trainer;
use crate::run::checkpoint::{self, Contents};
use fgrpo_eval::io::files::{Prepared, sync_folder};
use std::path::Path;

impl<'a> Trainer<'a> {
    /// Returns the parts of a checkpoint besides the parameters.
    pub(super) fn contents(&self) -> Contents<'a> {
        Contents::of(self.config, self.task)
    }

    pub(super) fn save(&mut self) -> anyhow::Result<()> {
        let step = self.state.step;
        if step == 0 || self.saved == Some((step, self.state.best)) {
            return Ok(());
        }
        match self.saved {
            // The run was stopped during the evaluation of this step and resumed, so only the best policy may have
            // changed.
            Some((saved, _)) if saved == step => {
                let (engine, state) = (self.policy.engine(), &self.state);
                self.commit(|checkpoints| {
                    checkpoint::write_state(&checkpoint::path(checkpoints, step), engine, state)
                })?;
                self.saved = Some((step, self.state.best));
                Ok(())
            }
            _ => {
                let prepared = self.prepare_checkpoint()?;
                self.publish_checkpoint(prepared)
            }
        }
    }

    pub(super) fn prepare_checkpoint(&self) -> anyhow::Result<Prepared> {
        checkpoint::prepare_step(&self.run.checkpoints(), self.policy.engine(), &self.contents(), &self.state)
    }

    /// Renames a written state to its final name.
    pub(super) fn publish_checkpoint(&mut self, prepared: Prepared) -> anyhow::Result<()> {
        let (step, keep) = (self.state.step, self.config.save.keep);
        self.commit(|checkpoints| checkpoint::publish_step(checkpoints, prepared, step, keep).map(drop))?;
        self.saved = Some((step, self.state.best));
        Ok(())
    }

    /// Syncs the log files, runs `write` on the checkpoint folder, and removes the previous best policy. The log
    /// lines up to a checkpoint must be on disk before the checkpoint.
    fn commit(&self, write: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.logs.sync()?;
        sync_folder(&self.run.path)?;
        let checkpoints = self.run.checkpoints();
        write(&checkpoints)?;
        self.state.best.map_or(Ok(()), |best| checkpoint::keep_best(&checkpoints, best))
    }

    /// Runs `on_checkpoint` for the newest checkpoint, unless training is finished.
    pub(super) fn notify_server(&mut self) -> anyhow::Result<()> {
        let (Some(server), true) = (&self.server, self.state.step < self.config.steps) else { return Ok(()) };
        let checkpoints = checkpoint::list(&self.run.checkpoints())?;
        // No run resumes from older checkpoints.
        let resumable = &checkpoints[checkpoints.len().saturating_sub(checkpoint::RESUMABLE)..];
        if let (Some((oldest, _)), Some((_, newest))) = (resumable.first(), resumable.last()) {
            server.forget(*oldest)?;
            server.notify(newest)?;
        }
        Ok(())
    }
}
