//! An evaluation folder: its identity, its lock and its files.
//!
//! ```text
//! evaluation.json    identity: model, prompt preset and sampling settings of every sample in this folder
//! prompts.jsonl      the conversation of each problem
//! generations.jsonl  the samples, append-only
//! samples.jsonl      the verdicts, which are made again if a verifier changes
//! summary.json       the values of the last report; report.html is next to it
//! exact.json         exact measures, if the configuration has `eval.exact`
//! ```

use super::samples::SCORED;
use crate::failure::OrBadInput;
use crate::io::files::{lock, write_whole};
use crate::io::json;
use anyhow::Context;
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Name of the file with the settings of the samples.
pub const IDENTITY: &str = "evaluation.json";

/// Name of the file with the prompt of each problem.
pub const PROMPTS: &str = "prompts.jsonl";

/// Name of the file with the samples.
pub const GENERATIONS: &str = "generations.jsonl";

/// Field of the identity with the name by which the server's answers call the model. The first answer sets it.
const ANSWERS_AS: &str = "answers_as";

/// An open evaluation folder, locked against other processes until dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Opens or creates the folder and locks it.
    ///
    /// Returns bad input if the path can't be a folder or if another process is using it.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(path)
            .with_context(|| format!("{}: cannot create", path.display()))
            .or_bad_input()?;
        Ok(Self { path: path.to_owned(), _lock: lock(path)? })
    }

    /// Returns the path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the settings of the folder's samples, or `None` if they aren't recorded yet.
    ///
    /// Returns an error if the file isn't valid JSON.
    pub fn identity(&self) -> anyhow::Result<Option<Value>> {
        let path = self.file(IDENTITY);
        if !path.exists() {
            return Ok(None);
        }
        match json::read(&path) {
            Ok(identity) => Ok(Some(identity)),
            Err(e) => bad_input!("{e:#}; restore this file, or evaluate into another folder"),
        }
    }

    /// Stores the identity if the folder lacks one. Returns bad input if the folder has a different one.
    pub fn claim(&self, identity: &Value) -> anyhow::Result<()> {
        let Some(stored) = self.identity()? else {
            let text = serde_json::to_string_pretty(identity)? + "\n";
            return self.write(IDENTITY, text.as_bytes());
        };
        let mut comparable = stored;
        if let Some(fields) = comparable.as_object_mut() {
            fields.remove(ANSWERS_AS);
        }
        let words = |(name, stored, requested): (String, Value, Value)| {
            format!("{name}: the folder has {stored}, this command has {requested}")
        };
        let differences: Vec<String> = differences(&comparable, identity).into_iter().map(words).collect();
        if !differences.is_empty() {
            bad_input!(
                [OtherFolder],
                "{}: the samples in this folder have other settings: {}",
                self.path.display(),
                differences.join("; ")
            );
        }
        Ok(())
    }

    /// Returns the name by which the server's answers call the model, or `None` before the first answer.
    pub fn served(&self) -> anyhow::Result<Option<String>> {
        Ok(self.identity()?.and_then(|i| i[ANSWERS_AS].as_str().map(str::to_owned)))
    }

    /// Records the name by which the server's answers call the model.
    pub fn note_served(&self, name: &str) -> anyhow::Result<()> {
        let mut identity = self.identity()?.unwrap_or_default();
        identity[ANSWERS_AS] = name.into();
        self.write(IDENTITY, (serde_json::to_string_pretty(&identity)? + "\n").as_bytes())
    }

    /// Deletes the samples, their verdicts and the folder's identity.
    pub fn clear(&self) -> anyhow::Result<()> {
        for name in [GENERATIONS, SCORED, PROMPTS, IDENTITY] {
            match std::fs::remove_file(self.file(name)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(e).with_context(|| format!("{}: cannot remove", self.file(name).display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes a file atomically.
    pub fn write(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        write_whole(&self.file(name), bytes)
    }
}

/// Returns the leaves in which two identities differ, each with its path and both values, which are null if absent.
fn differences(stored: &Value, requested: &Value) -> Vec<(String, Value, Value)> {
    let [stored, requested] = [stored, requested].map(|side| json::leaves(side, "."));
    let value = |side: &[(String, &Value)], name: &String| {
        side.iter().find(|leaf| leaf.0 == *name).map_or(Value::Null, |leaf| leaf.1.clone())
    };
    let new = requested.iter().filter(|leaf| stored.iter().all(|other| other.0 != leaf.0));
    let names = stored.iter().chain(new).map(|leaf| &leaf.0);
    let pairs = names.map(|name| (name.clone(), value(&stored, name), value(&requested, name)));
    pairs.filter(|(_, stored, requested)| stored != requested).collect()
}

/// Lists the sampling settings in which two evaluation folders differ, such as `temperature: 1.0 -> 0.6`. The model may differ.
pub fn sampled_otherwise(a: &Path, b: &Path) -> anyhow::Result<Option<String>> {
    let identity = |folder: &Path| -> anyhow::Result<Option<Value>> {
        let path = folder.join(IDENTITY);
        path.is_file().then(|| json::read(&path)).transpose()
    };
    let (Some(a), Some(b)) = (identity(a)?, identity(b)?) else { return Ok(None) };
    let text = |value: Value| if value.is_null() { "absent".to_owned() } else { value.to_string() };
    let mut differing: Vec<String> = differences(&a, &b)
        .into_iter()
        .filter(|(name, ..)| !["format", "source", "model", "api"].contains(&name.as_str()))
        .map(|(name, a, b)| format!("{name}: {} -> {}", text(a), text(b)))
        .collect();
    differing.sort();
    Ok((!differing.is_empty()).then(|| differing.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::exit_code;

    #[test]
    fn two_processes_do_not_share_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let first = Folder::open(dir.path()).unwrap();
        let error = Folder::open(dir.path()).unwrap_err();
        assert_eq!(exit_code(&error), 2, "{error:#}");
        drop(first);
        Folder::open(dir.path()).unwrap();
    }
}
