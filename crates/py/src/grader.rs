//! The graders of a configuration, for reward functions and notebooks.

use crate::call::{bad, without_gil};
use anyhow::Context;
use fgrpo_eval::dataset::columns::Columns;
use fgrpo_eval::dataset::{self, Problem};
use fgrpo_eval::grade;
use fgrpo_eval::kind::{Truth, short_hash};
use fgrpo_eval::row::Row;
use fgrpo_train::config::Config;
use fgrpo_train::problem;
use fgrpo_verify::verdict::Verdict;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The graders of a configuration.
#[pyclass(subclass, frozen)]
pub struct Grader {
    /// Graders and column names, indexed by the name of the mix's part.
    parts: BTreeMap<String, (grade::Grader, Columns)>,
    /// Rewards of a correct and of a wrong response.
    rewards: [f64; 2],
}

#[pymethods]
impl Grader {
    /// Reads the configuration and starts the programs that it names. Relative paths are relative to `folder`.
    #[new]
    fn new(py: Python<'_>, config: PathBuf, folder: PathBuf, overrides: Vec<String>) -> PyResult<Self> {
        without_gil(py, || Self::open(&config, &folder, &overrides))?.map_err(|e| bad(format!("{e:#}")))
    }

    /// Returns the names of the parts.
    #[getter]
    fn parts(&self) -> Vec<&str> {
        self.parts.keys().map(String::as_str).collect()
    }

    /// Returns the kind of the part's task, with the mode of its verifier if it has modes.
    #[pyo3(signature = (part=None))]
    fn described(&self, part: Option<&str>) -> PyResult<String> {
        let (grader, _) = self.part(part).map_err(|e| bad(format!("{e:#}")))?;
        Ok(grader.described())
    }

    /// Returns the verdict, the reason and the reward of a response. `truth` is JSON: a reference answer of an exported
    /// job, or a row if `is_row`.
    fn grade(
        &self,
        py: Python<'_>,
        truth: &str,
        is_row: bool,
        response: &str,
        part: Option<&str>,
    ) -> PyResult<(&'static str, String, f64)> {
        without_gil(py, || self.graded(truth, is_row, response, part))?.map_err(|e| bad(format!("{e:#}")))
    }
}

impl Grader {
    fn open(config: &Path, folder: &Path, overrides: &[String]) -> anyhow::Result<Self> {
        let mut config = Config::load(config, overrides)?;
        let folders = config.task.tokenizer().into_iter().chain(&config.model.path);
        // If the model's tokenizer isn't on this machine, the usual reasoning tags are assumed.
        let tokenizer = folders.map(|path| folder.join(path)).find(|path| path.exists());
        let language = tokenizer.map(|path| fgrpo_train::language::Language::read(&path, &[])).transpose()?;
        for text in config.task.texts_mut() {
            for program in [&mut text.grader, &mut text.verifier.command].into_iter().flatten() {
                program.relative_to(folder);
            }
        }
        Ok(Self {
            parts: problem::graders(&config.task, language.as_ref())?,
            rewards: [config.algorithm.reward_correct, config.algorithm.reward_wrong],
        })
    }

    fn part(&self, part: Option<&str>) -> anyhow::Result<&(grade::Grader, Columns)> {
        let names = || self.parts.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let entry = match part {
            Some(name) => self.parts.get(name),
            None if self.parts.len() == 1 => self.parts.values().next(),
            None => anyhow::bail!("part: name one of {}", names()),
        };
        entry
            .with_context(|| format!("part: {:?} is unknown; there is {}", part.unwrap_or_default(), names()))
    }

    fn graded(
        &self,
        truth: &str,
        is_row: bool,
        response: &str,
        part: Option<&str>,
    ) -> anyhow::Result<(&'static str, String, f64)> {
        let (grader, columns) = self.part(part)?;
        let problem = if is_row {
            dataset::problem(serde_json::from_str::<Row>(truth)?, grader.kind(), columns)?
        } else {
            let truth: Truth = serde_json::from_str(truth)?;
            Problem::new(short_hash(&truth.fingerprint()), Vec::new(), truth)
        };
        let graded = grader.grade(&problem, response);
        let [correct, wrong] = self.rewards;
        let reward = match graded.verdict {
            Verdict::Unscorable => f64::NAN,
            _ => graded.reward_or(correct, wrong),
        };
        Ok((graded.verdict.name(), graded.reason.into_owned(), reward))
    }
}
