//! Checkpoints: the state is written, the lines it refers to are synced, and only then it gets its name.

use super::Trainer;
use crate::io::files::{Prepared, sync_folder};
use crate::run::checkpoint::{self, Contents};
use std::path::{Path, PathBuf};

impl<'a> Trainer<'a> {
    /// What checkpoints hold beside the parameters.
    pub(super) fn contents(&self) -> Contents<'a> {
        Contents::of(self.config, self.task)
    }

    /// Saves the state, unless it is saved already, in the folder that is the run's now.
    pub(super) fn save(&mut self) -> anyhow::Result<()> {
        let step = self.state.step;
        if step == 0 || self.saved == Some((step, self.state.best)) {
            return Ok(());
        }
        match self.saved {
            // Stopped in this step's evaluation, resumed, and evaluated now.
            Some((saved, _)) if saved == step => {
                let checkpoints = self.sync_lines()?;
                checkpoint::write_state(&checkpoint::path(&checkpoints, step), &self.engine, &self.state)?;
                self.saved_now(&checkpoints)
            }
            _ => {
                let prepared = self.prepare_checkpoint()?;
                self.publish_checkpoint(prepared)
            }
        }
    }

    /// Writes the state under a name of its own.
    pub(super) fn prepare_checkpoint(&self) -> anyhow::Result<Prepared> {
        let contents = self.contents();
        self.run.in_place(|home| {
            checkpoint::prepare_step(&home.join("checkpoints"), &self.engine, &contents, &self.state)
        })
    }

    /// Gives a written state its name, once the lines it refers to are on the disk.
    pub(super) fn publish_checkpoint(&mut self, prepared: Prepared) -> anyhow::Result<()> {
        let checkpoints = self.sync_lines()?;
        checkpoint::publish_step(&checkpoints, prepared, self.state.step, self.config.save.keep)?;
        self.saved_now(&checkpoints)
    }

    /// Brings the logged lines to the disk: what a resume keeps of them has to be there before the checkpoint it goes
    /// on from. Returns the folder of the checkpoints, where the run is now.
    fn sync_lines(&self) -> anyhow::Result<PathBuf> {
        let home = self.run.whereabouts()?;
        for lines in [&self.metrics, &self.evaluations, &self.rollouts] {
            lines.sync()?;
        }
        sync_folder(&home)?;
        Ok(home.join("checkpoints"))
    }

    fn saved_now(&mut self, checkpoints: &Path) -> anyhow::Result<()> {
        if let Some(best) = self.state.best {
            checkpoint::keep_best(checkpoints, best)?;
        }
        self.saved = Some((self.state.step, self.state.best));
        Ok(())
    }

    /// Hands the newest checkpoint to the user's command, while there are steps to come.
    pub(super) fn tell_server(&mut self) -> anyhow::Result<()> {
        let (Some(server), true) = (&self.server, self.state.step < self.config.steps) else { return Ok(()) };
        let checkpoints = checkpoint::list(&self.run.checkpoints())?;
        // Older ones are kept to be compared: no run goes on from them.
        let resumable = &checkpoints[checkpoints.len().saturating_sub(checkpoint::RESUMABLE)..];
        if let (Some((oldest, _)), Some((_, newest))) = (resumable.first(), resumable.last()) {
            server.forget(*oldest)?;
            server.tell(newest)?;
        }
        Ok(())
    }
}
