//! The arena's tasks: configurations, built in or the user's.

use fgrpo_train::config::builtin;
use std::path::Path;

/// The text of a task's configuration: a built-in task by its name, else a file.
pub(super) fn text(task: &str) -> anyhow::Result<String> {
    match builtin::builtin(&format!("arena-{task}")) {
        Some(text) => Ok(text.to_owned()),
        None => builtin::text(Path::new(task)).map_err(|e| e.context(format!("--tasks {task}"))),
    }
}

/// The name of a task's folder.
pub(super) fn name(task: &str) -> String {
    let stem = Path::new(task).file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    stem.strip_prefix("arena-").map_or(stem.clone(), str::to_owned)
}
