//! What a policy writes and reads: a model's folder, and a state from which it continues with the same bits.

use super::{Policy, STATE, State};
use crate::run::checkpoint::{
    ADAPTER, OPTIMIZER, read_optimizer, reload_policy, write_optimizer, write_policy,
};
use anyhow::Context;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::files::{Existing, publish, write_whole};
use fgrpo_eval::io::json;
use std::path::{Path, PathBuf};

impl Policy {
    /// Writes the policy as a Hugging Face folder, with LoRA as an adapter besides the merged weights.
    /// Fails if the folder has something else in it; otherwise an I/O error that names the file.
    pub fn save(&self, folder: &Path) -> anyhow::Result<()> {
        self.publish(folder, &|dir| {
            write_policy(dir, &self.engine, &self.base, true)?;
            self.language.write(dir)
        })
    }

    /// Writes weights, optimizer and draws for an exact resume by [`Policy::load_state`].
    /// Fails on a gradient that no update has used, or a folder with something else in it.
    pub fn save_state(&self, folder: &Path) -> anyhow::Result<()> {
        if self.accumulated {
            bad_input!(
                "save_state: found a gradient that no optim_step has used, wanted an optim_step or zero_grad before it"
            );
        }
        let optimizer = self.engine.optimizer_state();
        let state = State { optimizer_step: optimizer.step, ..self.state };
        self.publish(folder, &|dir| {
            write_policy(dir, &self.engine, &self.base, false)?;
            write_optimizer(&dir.join(OPTIMIZER), &optimizer)?;
            write_whole(&dir.join(STATE), &serde_json::to_vec_pretty(&state)?)
        })
    }

    /// Continues from a state of [`Policy::save_state`].
    /// Fails on a folder that isn't a state, or one of another model; after damage that is found late the weights are unknown, and the error says so.
    pub fn load_state(&mut self, folder: &Path) -> anyhow::Result<()> {
        let path = folder.join(STATE);
        let state: State = json::read(&path).or_bad_input()?;
        if folder.join(ADAPTER).is_dir() != self.engine.lora().is_some() {
            let names = ["all weights", "an adapter"];
            let found = usize::from(self.engine.lora().is_none());
            bad_input!(
                "{}: found {}, wanted {}, as this engine trains",
                folder.display(),
                names[found],
                names[1 - found]
            );
        }
        let read = reload_policy(folder, &mut self.engine)
            .and_then(|()| read_optimizer(&folder.join(OPTIMIZER), &mut self.engine, state.optimizer_step));
        read.with_context(|| {
            format!("{}: the engine's weights are no longer known; load another state", folder.display())
        })
        .or_bad_input()?;
        (self.state, self.accumulated) = (state, false);
        Ok(())
    }

    /// Fills a folder under a temporary name and renames it. What is replaced is a folder that a learner wrote.
    fn publish(&self, folder: &Path, fill: &dyn Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let folder = std::path::absolute(folder).with_context(|| folder.display().to_string())?;
        let (Some(parent), Some(name)) = (folder.parent(), folder.file_name().and_then(|name| name.to_str()))
        else {
            bad_input!("{}: wanted the name of a folder", folder.display());
        };
        let own = |file: &str| folder.join(file).exists();
        let empty = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_none());
        if folder.exists() && !empty && !["config.json", ADAPTER, STATE].into_iter().any(own) {
            bad_input!(
                "{}: found other files, wanted a new folder or a saved policy to replace",
                folder.display()
            );
        }
        std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        publish(parent, name, Existing::Replace, fill).map(|_: PathBuf| ())
    }
}
