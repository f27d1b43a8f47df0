//! Reads the contents of a run's folder, for reports, tables, `fgrpo select`, the paper and Python.

use super::checkpoint;
use super::folder::CONFIGURATION;
use super::metrics::{Logged, Number};
use super::sessions::{SESSIONS, Session};
use crate::config::{self, Config};
use crate::sft::SftLine;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::lines;
use fgrpo_eval::record::Evaluation;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// A folder with any of these files is a run folder.
pub const FILES: [&str; 4] = ["metrics.jsonl", "sft.jsonl", "eval.jsonl", CONFIGURATION];

/// The contents of a run's folder.
#[derive(Debug)]
pub struct Run {
    /// The folder.
    pub folder: PathBuf,
    /// Text of `config.toml`, or empty if the file is missing.
    pub text: String,
    /// The configuration, or the error message.
    config: Result<Config, String>,
    /// The sessions, in order.
    pub sessions: Vec<Session>,
    /// The metrics of each RL step, in the order of their lines.
    pub metrics: Vec<Logged>,
    /// The steps of supervised fine-tuning.
    pub sft: Vec<SftLine<Number>>,
    /// Evaluations of all problem sets, in the order of their lines.
    pub evaluations: Vec<Evaluation>,
    /// Files whose last line is incomplete, with the number of that line. Incomplete lines are left out.
    pub torn: Vec<(&'static str, usize)>,
}

impl Run {
    /// Returns whether a folder has one of the files that a run writes.
    pub fn is_in(folder: &Path) -> bool {
        FILES.iter().any(|name| folder.join(name).is_file())
    }

    /// Reads the folder of a run. A missing file counts as empty.
    ///
    /// # Errors
    /// Bad input if a file can't be read, or a line has another format; the message names the file, the line and the
    /// field. A configuration that can't be read is reported by [`Run::config`].
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(CONFIGURATION);
        let mut text = String::new();
        let config = if path.is_file() {
            config::read(&path, |read| {
                read.clone_into(&mut text);
                Config::parse(read, &[])
            })
        } else {
            Err(anyhow::anyhow!("{CONFIGURATION} is missing in {}", folder.display()))
        };
        let mut torn = Vec::new();
        Ok(Self {
            config: config.map_err(|error| format!("{error:#}")),
            sessions: read(folder, SESSIONS, &mut torn)?,
            metrics: read(folder, "metrics.jsonl", &mut torn)?,
            sft: read(folder, "sft.jsonl", &mut torn)?,
            evaluations: read(folder, "eval.jsonl", &mut torn)?,
            folder: folder.to_owned(),
            text,
            torn,
        })
    }

    /// Returns the configuration.
    ///
    /// # Errors
    /// Bad input if `config.toml` is missing or isn't a configuration.
    pub fn config(&self) -> anyhow::Result<&Config> {
        match &self.config {
            Ok(config) => Ok(config),
            Err(message) => bad_input!("{message}"),
        }
    }

    /// Returns the evaluations that decide which checkpoint is best, in the order of their lines.
    ///
    /// # Errors
    /// As [`Run::config`].
    pub fn deciding(&self) -> anyhow::Result<Vec<&Evaluation>> {
        let set = self.config()?.eval.deciding_set();
        Ok(self.evaluations.iter().filter(|e| e.set == set).collect())
    }

    /// Returns the evaluation after the last step of the configuration that decides which checkpoint is best, if it exists.
    ///
    /// # Errors
    /// As [`Run::config`].
    pub fn final_evaluation(&self) -> anyhow::Result<Option<&Evaluation>> {
        let last = self.config()?.steps;
        Ok(self.deciding()?.into_iter().rfind(|e| e.step == last))
    }

    /// Returns a sentence about an input that changed between two runs, the data or the weights that both configurations name, or
    /// `None` if neither changed. Results of runs with different inputs don't show the effect of their settings. Inputs that a
    /// run doesn't record aren't compared.
    pub fn other_inputs<'a>(&'a self, other: &'a Self) -> Option<&'static str> {
        let [Ok(a), Ok(b)] = [self.config(), other.config()] else { return None };
        let differ = |[a, b]: [Option<&String>; 2]| a.is_some() && b.is_some() && a != b;
        // A run that accepted changed data counts with the last ones.
        let inputs = |run: &'a Self| run.sessions.iter().map(|session| &session.inputs);
        let problems = [self, other].map(|run| inputs(run).map(|i| &i.problems).rfind(|id| !id.is_empty()));
        let start = [self, other].map(|run| inputs(run).map(|i| &i.start).find(|id| !id.is_empty()));
        let same_model = a.model == b.model;
        if same_model && a.task == b.task && differ(problems) {
            return Some("they were trained on different problems, because the data have changed");
        }
        if same_model && differ(start) {
            return Some("they started from different weights, because the files in model.path have changed");
        }
        None
    }

    /// Returns whether the last step of the configuration is logged, evaluated if that is configured, and saved.
    ///
    /// # Errors
    /// As [`Run::config`], or an I/O error if the checkpoints can't be listed.
    pub fn is_finished(&self) -> anyhow::Result<bool> {
        let config = self.config()?;
        let saved = checkpoint::list(&self.folder.join("checkpoints"))?.pop();
        Ok(self.metrics.last().is_some_and(|m| m.step >= config.steps)
            && saved.is_some_and(|(step, _)| step >= config.steps)
            && (!config.evaluates_at_the_end() || self.final_evaluation()?.is_some()))
    }
}

/// Reads the lines of a file in a run's folder.
fn read<T: DeserializeOwned>(
    folder: &Path,
    name: &'static str,
    torn: &mut Vec<(&'static str, usize)>,
) -> anyhow::Result<Vec<T>> {
    let mut all = Vec::new();
    let end = lines::each(&folder.join(name), |line| {
        all.push(line);
        Ok(())
    });
    torn.extend(end.or_bad_input()?.torn.map(|line| (name, line)));
    Ok(all)
}
