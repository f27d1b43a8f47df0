//! The run folder: one run, one process, and files that a resume continues without gap or duplicate.

use crate::bad_input;
use crate::checkpoint;
use crate::config::Config;
use crate::files::{lock, retain_lines, stray_file, write_whole};
use anyhow::Context;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A run folder held by this process.
#[derive(Debug)]
pub struct RunDir {
    /// The folder.
    pub path: PathBuf,
    // Held for its lock.
    _lock: File,
}

impl RunDir {
    /// Opens the folder for a new run, or for the one it holds when `resume` is asked for.
    ///
    /// # Errors
    /// Bad input for a folder that holds another run, another configuration (naming the keys that
    /// differ, unless `accept_changes`), or is in use by another process; a failure for one that
    /// can't be written.
    pub fn open(path: &Path, config: &Config, resume: bool, accept_changes: bool) -> anyhow::Result<Self> {
        std::fs::create_dir_all(path).with_context(|| format!("creating run folder {}", path.display()))?;
        let lock = lock(path)?;
        let run = Self { path: path.to_owned(), _lock: lock };
        let written = run.file("config.toml");
        match std::fs::read_to_string(&written) {
            Ok(text) => {
                if !resume {
                    bad_input!(
                        "{} already holds a run. Continue it with --resume, or choose another folder with --out",
                        path.display()
                    );
                }
                let differing = differences(&text.parse()?, &config.to_toml().parse()?);
                if !differing.is_empty() && !accept_changes {
                    bad_input!(
                        "{} holds a run of another configuration. Different, there -> here: {}. Resume with --accept-changes to go on with the new values",
                        path.display(),
                        differing.join("; ")
                    );
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                if let Some(stray) = stray_file(path)? {
                    bad_input!(
                        "{} is not empty and holds no run (found {}). Choose an empty or new folder with --out",
                        path.display(),
                        stray.display()
                    );
                }
            }
            Err(e) => return Err(e).with_context(|| format!("reading {}", written.display())),
        }
        write_whole(&written, config.to_toml().as_bytes())?;
        Ok(run)
    }

    /// A file of the run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The folder of checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// The newest checkpoint, if there is one.
    ///
    /// # Errors
    /// When the folder can't be read.
    pub fn latest(&self) -> anyhow::Result<Option<(u64, PathBuf)>> {
        Ok(checkpoint::list(&self.checkpoints())?.pop())
    }

    /// Drops every logged line after `step`, so that a resumed run leaves no duplicate. Without a
    /// checkpoint (`None`) nothing is kept.
    ///
    /// # Errors
    /// Naming the file.
    pub fn rewind(&self, step: Option<u64>) -> anyhow::Result<()> {
        for name in ["metrics.jsonl", "eval.jsonl", "rollouts.jsonl"] {
            retain_lines(&self.file(name), |line| {
                step.is_some_and(|step| line["step"].as_u64().is_some_and(|s| s <= step))
            })?;
        }
        Ok(())
    }
}

/// The keys in which two configurations differ, as `key: before -> after`.
pub fn differences(before: &toml::Table, after: &toml::Table) -> Vec<String> {
    let mut found = Vec::new();
    walk("", before, after, &mut found);
    found
}

fn walk(prefix: &str, before: &toml::Table, after: &toml::Table, found: &mut Vec<String>) {
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match (before.get(key), after.get(key)) {
            (Some(toml::Value::Table(b)), Some(toml::Value::Table(a))) => walk(&name, b, a, found),
            (b, a) if b == a => {}
            (b, a) => {
                let show = |v: Option<&toml::Value>| v.map_or("absent".to_owned(), ToString::to_string);
                found.push(format!("{name}: {} -> {}", show(b), show(a)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_nested_keys_with_both_values() {
        let before = "steps = 5\n[update]\nlr = 0.1\n[eval]\nk = [1]".parse().unwrap();
        let after = "steps = 5\n[update]\nlr = 0.2\n[save]\nevery = 1".parse().unwrap();
        let found = differences(&before, &after);
        assert_eq!(found.len(), 3);
        assert!(found.contains(&"update.lr: 0.1 -> 0.2".to_owned()), "{found:?}");
    }

    #[test]
    fn a_kill_while_the_configuration_is_first_written_leaves_a_folder_that_starts() {
        let text = include_str!("../../../configs/maze-quick.toml");
        let config = Config::parse(text, &[]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(format!("{}abc", crate::files::PARTIAL)), "seed").unwrap();
        RunDir::open(folder.path(), &config, true, false).unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("thesis.tex"), "x").unwrap();
        assert!(RunDir::open(other.path(), &config, true, false).is_err());
    }
}
