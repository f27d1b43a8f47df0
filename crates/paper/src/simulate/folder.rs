//! The folder of a sweep: the configuration, and the recorded lines of every finished run.
//!
//! The lines of a run are appended when the run is finished, and an incomplete run is simulated again, so if the process is
//! killed, only unfinished runs are lost. At the end the lines are sorted, so the file doesn't depend on the order in which runs finished.

use super::config::Config;
use anyhow::Context;
use fgrpo_core::sim::Metrics;
use fgrpo_eval::io::files::{lock, stray_file, write_whole};
use fgrpo_eval::io::lines::{self, JsonLines, to_bytes};
use fgrpo_train::run::folder::{Change, differences};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The identity of a run within a sweep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Run {
    pub(super) n: u64,
    pub(super) gamma: f64,
    pub(super) seed: u64,
}

/// A recorded step of a run: the policy after `step` steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) n: u64,
    pub(crate) gamma: f64,
    pub(crate) seed: u64,
    pub(crate) step: u64,
    pub(crate) q_pos: f64,
    pub(crate) retained: f64,
    pub(crate) entropy: f64,
}

impl Line {
    pub(super) fn of(run: Run, step: u64, m: Metrics) -> Self {
        let Run { n, gamma, seed } = run;
        Self { n, gamma, seed, step, q_pos: m.q_pos, retained: m.retained, entropy: m.entropy }
    }

    /// Returns the sort key: group size, gamma, seed, step. Gammas aren't negative, so their bits have the same order.
    fn key(&self) -> (u64, u64, u64, u64) {
        (self.n, self.gamma.to_bits(), self.seed, self.step)
    }
}

/// Returns the lines as CSV.
pub(super) fn csv<'a>(lines: impl Iterator<Item = &'a Line>) -> String {
    lines.fold("n,gamma,seed,step,q_pos,retained,entropy\n".to_owned(), |text, l| {
        let Line { n, gamma, seed, step, q_pos, retained, entropy } = l;
        text + &format!("{n},{gamma},{seed},{step},{q_pos},{retained},{entropy}\n")
    })
}

/// An open folder, locked against other processes.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    curves: JsonLines,
    _lock: File,
}

impl Folder {
    /// Opens the folder for this configuration, and returns the lines of the runs that it already contains.
    pub(super) fn open(path: &Path, config: &Config) -> anyhow::Result<(Self, Vec<Line>)> {
        std::fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))?;
        let lock = lock(path)?;
        let file = path.join("config.toml");
        match std::fs::read_to_string(&file) {
            Ok(text) => refuse_differences(path, &text, config)?,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                if let Some(stray) = stray_file(path)? {
                    bad_input!(
                        "{} holds no sweep but other files ({}); a sweep needs an empty or new folder",
                        path.display(),
                        stray.display()
                    );
                }
                write_whole(&file, config.to_toml().as_bytes())?;
            }
            Err(e) => return Err(e).with_context(|| format!("reading {}", file.display())),
        }
        let curves = path.join("curves.jsonl");
        let lines = complete_runs(&curves, config)?;
        write_whole(&curves, &to_bytes(&lines)?)?;
        Ok((Self { path: path.to_owned(), curves: JsonLines::append(&curves)?, _lock: lock }, lines))
    }

    pub(super) fn append(&mut self, run: &[Line]) -> anyhow::Result<()> {
        run.iter().try_for_each(|line| self.curves.push(line))
    }

    /// Flushes the appended lines to the disk.
    pub(super) fn sync(&self) -> anyhow::Result<()> {
        self.curves.sync()
    }

    /// Sorts the lines, and writes them to the file in this order.
    pub(super) fn finish(&self, lines: &mut [Line]) -> anyhow::Result<()> {
        lines.sort_by_key(Line::key);
        write_whole(&self.path.join("curves.jsonl"), &to_bytes(&*lines)?)
    }
}

fn refuse_differences(path: &Path, written: &str, config: &Config) -> anyhow::Result<()> {
    let text = config.to_toml();
    let (Ok(before), Ok(now)) = (written.parse::<toml::Table>(), text.parse::<toml::Table>()) else {
        bad_input!("{}: config.toml is not TOML, so the folder holds no sweep", path.display());
    };
    let differing = differences(&before, &now);
    if !differing.is_empty() {
        bad_input!(
            "{} holds a sweep of another configuration (there -> here: {}); give the same configuration, or another folder",
            path.display(),
            Change::list(&differing)
        );
    }
    Ok(())
}

/// Reads the configuration and the lines of a finished sweep.
pub(super) fn read(path: &Path) -> anyhow::Result<(Config, Vec<Line>)> {
    let config = Config::load(&path.join("config.toml"), &[])?;
    let lines = complete_runs(&path.join("curves.jsonl"), &config)?;
    let (finished, runs) = (lines.iter().filter(|l| l.step == config.steps).count(), config.runs());
    if finished < runs {
        bad_input!("{}: the sweep isn't finished: {finished} of {runs} runs are done", path.display());
    }
    Ok((config, lines))
}

/// Reads the lines of complete runs of `config`. Incomplete or damaged runs are dropped and simulated again.
fn complete_runs(path: &Path, config: &Config) -> anyhow::Result<Vec<Line>> {
    let mut runs: BTreeMap<_, Vec<Line>> = BTreeMap::new();
    let mut unreadable = Vec::new();
    lines::complete(path, |line| {
        match serde_json::from_slice::<Line>(line.text) {
            Ok(line) => runs.entry((line.n, line.gamma.to_bits(), line.seed)).or_default().push(line),
            Err(_) => unreadable.push(line.number),
        }
        Ok(())
    })?;
    if let Some(first) = unreadable.first() {
        tracing::warn!(
            "{}: {} lines that aren't recorded steps were dropped, the first is line {first}; their runs are simulated again",
            path.display(),
            unreadable.len()
        );
    }
    let recorded: Vec<u64> = (0..=config.steps).filter(|&s| s == 0 || config.records(s)).collect();
    runs.retain(|_, lines| lines.iter().map(|l| l.step).eq(recorded.iter().copied()));
    Ok(runs.into_values().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back_bit_for_bit() {
        // A sweep that goes on has to end in the same bytes; a fast parser misses the first by a unit.
        for x in [0.9991574274743921, 0.5968575046412775, 1.0, 1e-300, 5e-324, 0.1 + 0.2] {
            let line =
                Line { n: 131_072, gamma: 0.5, seed: 3, step: 1_000, q_pos: x, retained: x, entropy: x };
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line, "{text}");
        }
        assert!(serde_json::from_str::<Line>("{\"n\":2}").is_err());
    }
}
