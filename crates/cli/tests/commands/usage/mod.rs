//! Commands and mistakes of a new user, through the command line.

mod code;
mod command_line;
mod configs;
mod data_sets;
mod environment;
mod generate;
mod grading;
mod install;
mod pages;
mod python;
mod runs;

use crate::support::{fgrpo, file, model, run};
use std::path::{Path, PathBuf};

/// A small RL configuration for a kind of task and a data file.
fn config(folder: &Path, kind: &str, data: &Path, more: &str) -> PathBuf {
    let text = format!(
        "steps = 6\n[task]\nkind = \"{kind}\"\ndata = {data:?}\nheld_out_share = 0\n{more}\n[model]\npath = {:?}\n\
         [rollout]\nprompts = 2\ngroup_size = 2\nmax_new_tokens = 4\n[eval]\nevery = 0\n[log]\nrollout_share = 1.0\n",
        model()
    );
    file(folder, "run.toml", &text)
}
