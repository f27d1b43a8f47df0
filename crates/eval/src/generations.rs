//! Append-only store of an evaluation's samples: one JSON line per sample, keyed by problem and sample index.
//!
//! If a process dies while writing, the last line of the file may be incomplete. The next process that opens the file
//! removes that line. A key is never stored twice.

use crate::graded::Graded;
use crate::io::lines;
use crate::samples::MOST_SAMPLES;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// One generated sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    /// Hash of the problem.
    pub problem: String,
    /// Index among the problem's samples.
    pub sample: u64,
    /// The completion.
    pub text: String,
    /// The reasoning that the server's reasoning parser split off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The finish reason: `stop`, `length` or what the server reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<String>,
    /// Number of generated tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Grade of an episode, given by its environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graded: Option<Graded>,
}

/// The fields of a line that the index needs.
#[derive(Deserialize)]
struct Key {
    problem: String,
    sample: u64,
}

/// The store, open for appending. The folder's lock excludes other processes.
#[derive(Debug)]
pub struct Generations {
    path: PathBuf,
    file: File,
    /// The stored samples of each problem.
    present: HashMap<String, HashSet<u64>>,
    since_sync: usize,
}

/// Number of bytes after which the file is synced, so that a power failure loses little.
const SYNC_BYTES: usize = 8 << 20;

impl Generations {
    /// Opens or creates the store and indexes it. An incomplete last line is removed, which is logged.
    ///
    /// Returns an error if the file can't be read or written, and bad input for a malformed line.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let mut present: HashMap<String, HashSet<u64>> = HashMap::new();
        let mut repeated = 0usize;
        let file = lines::append(path, |line| {
            let key: Key = line.parse()?;
            if key.sample >= MOST_SAMPLES {
                bad_input!("{line}: sample: expected an index below {MOST_SAMPLES}, found {}", key.sample);
            }
            let new = present.entry(key.problem).or_default().insert(key.sample);
            repeated += usize::from(!new);
            Ok(())
        })?;
        if repeated > 0 {
            tracing::info!(
                "{}: {repeated} samples are stored twice; the first copy of each counts",
                path.display()
            );
        }
        Ok(Self { path: path.to_owned(), file, present, since_sync: 0 })
    }

    /// Returns whether a sample is stored.
    pub fn contains(&self, problem: &str, sample: u64) -> bool {
        self.present.get(problem).is_some_and(|p| p.contains(&sample))
    }

    /// Lists the sample indices below `n` that a problem lacks.
    pub fn missing(&self, problem: &str, n: u64) -> Vec<u64> {
        match self.present.get(problem) {
            Some(p) => (0..n).filter(|i| !p.contains(i)).collect(),
            None => (0..n).collect(),
        }
    }

    /// Appends the samples that aren't stored yet and returns their number.
    ///
    /// Returns an error if the file can't be written. A partly written line is then removed.
    pub fn append(&mut self, samples: &[Generation]) -> anyhow::Result<usize> {
        let mut is_new =
            |s: &&Generation| self.present.entry(s.problem.clone()).or_default().insert(s.sample);
        let new: Vec<&Generation> = samples.iter().filter(|s| is_new(s)).collect();
        let lines = lines::to_bytes(&new)?;
        let before = self.file.seek(SeekFrom::End(0))?;
        if let Err(error) = self.file.write_all(&lines) {
            self.file.set_len(before).ok();
            return Err(error).with_context(|| format!("{}: cannot append", self.path.display()));
        }
        self.since_sync += lines.len();
        if self.since_sync >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(new.len())
    }

    /// Deletes the store, for evaluations that keep only the verdicts.
    pub fn remove(self) -> anyhow::Result<()> {
        std::fs::remove_file(&self.path).with_context(|| format!("{}: cannot remove", self.path.display()))
    }

    /// Syncs the file to disk.
    pub fn sync(&mut self) -> anyhow::Result<()> {
        self.since_sync = 0;
        self.file.sync_data().with_context(|| format!("{}: cannot sync", self.path.display()))
    }

    /// Calls `visit` with each stored sample in file order. If a key is stored twice, only its first sample counts.
    ///
    /// Returns an error if the file can't be read, and the errors of `visit`.
    pub fn each(&self, mut visit: impl FnMut(Generation) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut seen: HashMap<String, HashSet<u64>> = HashMap::new();
        lines::each(&self.path, |sample: Generation| {
            if seen.entry(sample.problem.clone()).or_default().insert(sample.sample) {
                visit(sample)
            } else {
                Ok(())
            }
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(problem: &str, sample: u64) -> Generation {
        Generation {
            problem: problem.into(),
            sample,
            text: format!("answer {sample}\nwith a second line"),
            reasoning: None,
            finish: Some("stop".into()),
            tokens: Some(3),
            graded: None,
        }
    }

    #[test]
    fn a_key_is_stored_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("g.jsonl");
        let mut store = Generations::open(&path).unwrap();
        assert_eq!(store.append(&[sample("a", 70), sample("a", 70), sample("b", 0)]).unwrap(), 2);
        assert_eq!(store.append(&[sample("a", 70)]).unwrap(), 0);
        let mut samples = Vec::new();
        store
            .each(|g| {
                samples.push((g.problem, g.sample));
                Ok(())
            })
            .unwrap();
        assert_eq!(samples, [("a".to_owned(), 70), ("b".to_owned(), 0)]);
        assert_eq!(store.missing("b", 3), vec![1, 2]);
    }

    #[test]
    fn a_malformed_line_and_an_index_beyond_any_evaluation_are_refused_by_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("g.jsonl");
        let line = |sample: u64| format!("{{\"problem\":\"a\",\"sample\":{sample},\"text\":\"\"}}\n");
        for (text, expected) in [
            (line(0) + "nonsense\n" + &line(1), "line 2"),
            (line(i64::MAX as u64), "line 1: sample: expected an index below"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Generations::open(&path).unwrap_err();
            assert!(error.to_string().contains(expected), "{error:#}");
            assert_eq!(crate::failure::exit_code(&error), 2);
        }
    }
}
