//! Saves a policy as a model folder, or with the full state for an exact resume.

use super::{Policy, STATE, State};
use crate::run::checkpoint::{
    ADAPTER, OPTIMIZER, read_optimizer, reload_policy, write_optimizer, write_policy,
};
use anyhow::Context;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::files::{Existing, publish, write_whole};
use fgrpo_eval::io::json;
use fgrpo_nn::weights::Checkpoint;
use std::path::{Path, PathBuf};

impl Policy {
    /// Writes the policy as a Hugging Face folder. With LoRA, writes both the merged weights and the adapter. Fails if
    /// the folder has other files, or with an I/O error that names the file.
    pub fn save(&self, folder: &Path) -> anyhow::Result<()> {
        self.publish(folder, &|dir| {
            write_policy(dir, &self.engine, &self.base, true)?;
            self.language.write(dir)
        })
    }

    /// Writes weights, optimizer and counters, so that [`Policy::load_state`] resumes exactly. Fails if there is a
    /// gradient that no update has used, or the folder has other files.
    pub fn save_state(&self, folder: &Path) -> anyhow::Result<()> {
        if self.accumulated {
            bad_input!("save_state: there is an unused gradient; call optim_step or zero_grad first");
        }
        let optimizer = self.engine.optimizer_state();
        let state = State { optimizer_step: optimizer.step, ..self.state };
        self.publish(folder, &|dir| {
            write_policy(dir, &self.engine, &self.base, false)?;
            write_optimizer(&dir.join(OPTIMIZER), &optimizer)?;
            write_whole(&dir.join(STATE), &serde_json::to_vec_pretty(&state)?)
        })
    }

    /// Restores a state written by [`Policy::save_state`]. Fails if the folder isn't a state, or is the state of
    /// another model. If reading the weights or the optimizer fails, the engine's weights are undefined.
    pub fn load_state(&mut self, folder: &Path) -> anyhow::Result<()> {
        let path = folder.join(STATE);
        let state: State = json::read(&path).or_bad_input()?;
        if folder.join(ADAPTER).is_dir() != self.engine.lora().is_some() {
            let (saved, trained) = if self.engine.lora().is_none() {
                ("an adapter", "all weights")
            } else {
                ("all weights", "an adapter")
            };
            bad_input!("{}: the state has {saved}, but this engine trains {trained}", folder.display());
        }
        let other = |saved: Checkpoint| saved.config().tensors() != self.engine.config().tensors();
        if self.engine.lora().is_none() && Checkpoint::open(folder).or_bad_input().map(other)? {
            bad_input!("{}: the state is of another model than this engine", folder.display());
        }
        let read = reload_policy(folder, &mut self.engine)
            .and_then(|()| read_optimizer(&folder.join(OPTIMIZER), &mut self.engine, state.optimizer_step));
        read.with_context(|| {
            format!("{}: the engine's weights are now undefined; load another state", folder.display())
        })
        .or_bad_input()?;
        (self.state, self.accumulated) = (state, false);
        Ok(())
    }

    /// Fills a folder under a temporary name and renames it. Only an empty folder or a saved policy is replaced.
    fn publish(&self, folder: &Path, fill: &dyn Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let folder = std::path::absolute(folder).with_context(|| folder.display().to_string())?;
        let (Some(parent), Some(name)) = (folder.parent(), folder.file_name().and_then(|name| name.to_str()))
        else {
            bad_input!("{}: can't save here; the path must end with the name of a folder", folder.display());
        };
        let contains = |file: &str| folder.join(file).exists();
        let empty = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_none());
        if folder.exists() && !empty && !["config.json", ADAPTER, STATE].into_iter().any(contains) {
            bad_input!(
                "{}: the folder has other files; name a new folder or a saved policy",
                folder.display()
            );
        }
        std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        publish(parent, name, Existing::Replace, fill).map(|_: PathBuf| ())
    }
}
