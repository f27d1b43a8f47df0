//! One training of the paper's settings.

use super::numbers::Setting;
use crate::commands::runs::{State, state};
use fgrpo_train::config::Config;
use std::path::PathBuf;

/// A run, made or to be made.
pub(super) struct Run {
    /// The setting of the paper that it is of.
    pub(super) setting: Setting,
    /// Its configuration.
    pub(super) config: Config,
    /// What is changed in the file.
    pub(super) set: Vec<String>,
    /// The file under configs/.
    pub(super) file: &'static str,
    /// Its run folder.
    pub(super) folder: PathBuf,
}

impl Run {
    /// What its folder holds.
    pub(super) fn state(&self) -> anyhow::Result<State> {
        state(&self.config, &self.folder)
    }
}
