//! The arena's tasks: built-in configurations, or files.

use fgrpo_train::config::builtin;
use std::path::Path;

/// Returns the configuration of a task: a built-in one by its name, otherwise the contents of the file.
pub(super) fn text(task: &str) -> anyhow::Result<String> {
    match builtin::builtin(&format!("arena-{task}")) {
        Some(text) => Ok(text.to_owned()),
        None => builtin::text(Path::new(task)).map_err(|e| e.context(format!("--tasks {task}"))),
    }
}

/// Returns the name of a task's folder.
pub(super) fn name(task: &str) -> String {
    let stem = Path::new(task).file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    stem.strip_prefix("arena-").map_or(stem.clone(), str::to_owned)
}
