//! Reads existing results that `--from` names: evaluations, run folders and reports.

use super::data::{Measure, Setting};
use super::settings;
use fgrpo_eval::benchmarks::require_distinct;
use fgrpo_eval::dataset;
use fgrpo_eval::dumps::{self, Scored};
use fgrpo_eval::io::{files, json};
use fgrpo_eval::names::Named;
use fgrpo_eval::record::{self, Evaluation};
use fgrpo_eval::samples::{self, Benchmark};
use fgrpo_train::config::Config;
use fgrpo_train::run::{self, metrics::Logged};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Maximum depth of the folders that are searched for results.
const DEPTH: usize = 4;

/// The samples of one trained model on one benchmark, or a reported value of it.
pub(super) struct Found {
    /// The name that the user gave, or the name of the folder below the given one.
    pub(super) name: String,
    /// Whether the name was given as `NAME=PATH`.
    pub(super) has_name: bool,
    pub(super) path: PathBuf,
    /// Scored samples. For a run, the samples of its last evaluation.
    pub(super) benchmark: Option<Benchmark>,
    /// Measure, benchmark or average, and value, if it comes from a report. An empty name means every benchmark.
    pub(super) reported: Option<(Measure, String, f64)>,
    /// Content of the run folder, if the result comes from a run.
    pub(super) run: Option<Run>,
}

/// The contents of a run folder.
pub(super) struct Run {
    /// The setting that the run trains.
    pub(super) setting: Setting,
    pub(super) config: Config,
    /// The evaluations that decide which checkpoint is best, in the order of their steps.
    pub(super) evaluations: Vec<Evaluation>,
    /// The evaluations at `eval.every`. They are the same as `evaluations` if `[eval.full]` isn't configured.
    pub(super) frequent: Vec<Evaluation>,
    /// The metrics of each RL step.
    pub(super) metrics: Vec<Logged>,
}

/// The results that `--from` names.
#[derive(Default)]
pub struct Results {
    pub(super) all: Vec<Found>,
    /// Results that were left out, each with the reason.
    pub(super) notes: Vec<String>,
}

/// The fields that are read from the JSON of `fgrpo nll` and `fgrpo diversity`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Report {
    models: Vec<Entry>,
    folders: Vec<String>,
    diversity: Vec<Entry>,
}

/// A row of a command's JSON output: a model's increase in NLL, or a benchmark's value for each evaluation folder.
#[derive(Deserialize)]
struct Entry {
    #[serde(alias = "model")]
    benchmark: String,
    increase: Option<f64>,
    #[serde(default)]
    values: Vec<Option<f64>>,
}

/// Returns the canonical path, or the path itself if it doesn't exist.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

impl Found {
    pub(super) fn new(name: &str, path: &Path) -> Self {
        // A dot in a folder's name doesn't begin an extension. `.` and `..` have the name of the folder that they refer to.
        let name = match path {
            _ if !name.is_empty() => name.to_owned(),
            _ if !path.is_dir() => files::stem(path),
            _ if path.file_name().is_some() => files::name(path),
            _ => files::name(&real(path)),
        };
        Self { name, has_name: false, path: path.to_owned(), benchmark: None, reported: None, run: None }
    }

    /// Whether this result and `other` are the same samples or copies of the same run.
    fn repeats(&self, other: &Self) -> bool {
        let (Some(a), Some(b)) = (&self.benchmark, &other.benchmark) else { return false };
        let runs = self.run.as_ref().zip(other.run.as_ref());
        (a.name == b.name && real(&a.path) == real(&b.path))
            || runs.is_some_and(|(a, b)| a.config == b.config && a.evaluations == b.evaluations)
    }

    /// Returns the counts of a run's evaluation before its first step, if there is such an evaluation.
    pub(super) fn start(&self) -> Option<Benchmark> {
        let first = self.run.as_ref()?.evaluations.first().filter(|e| e.step == 0)?;
        Some(counted(&self.benchmark.as_ref()?.name, &self.path, first))
    }
}

impl Results {
    /// Reads the results that `from` names. A result that is given twice counts once, under its last name.
    /// Fails if a path doesn't contain results or a file can't be read.
    pub fn open(from: &[String]) -> anyhow::Result<Self> {
        let mut results = Self::default();
        for text in from {
            let (name, path) = match text.split_once('=') {
                Some((name, path)) if !name.is_empty() && !Path::new(text).exists() => {
                    (name, Path::new(path))
                }
                _ => ("", Path::new(text)),
            };
            if !path.exists() {
                bad_input!("{text}: there is no such file or folder");
            }
            if let Some(measure) = Measure::from_name(name).filter(|m| *m != Measure::Pass) {
                results.add_report(measure, path, json::read(path)?);
                continue;
            }
            let mut here = Self::default();
            here.gather(name, path, DEPTH)?;
            if here.all.is_empty() && !here.notes.is_empty() {
                bad_input!("{text}: no evaluation or run there is finished:\n  {}", here.notes.join("\n  "));
            }
            if here.all.is_empty() {
                bad_input!(
                    "{text}: the folder has neither samples of fgrpo eval, verl or lm-eval nor a run with an evaluation; `fgrpo eval --samples FILE --data FILE --task KIND --out DIR` scores responses of other programs"
                );
            }
            results.notes.append(&mut here.notes);
            let mut again = Vec::new();
            for result in here.all {
                again.extend(
                    results.all.extract_if(.., |other| other.repeats(&result)).map(|other| other.path),
                );
                results.all.push(Found { has_name: !name.is_empty(), ..result });
            }
            if let Some((first, rest)) = again.split_first() {
                let (first, rest) = (first.display(), rest.len());
                let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
                results.notes.push(format!(
                    "left out: {first}{more}, which {text} gives again: each counts once, under its last name"
                ));
            }
        }
        Ok(results)
    }

    /// Adds a report that was just measured.
    pub(super) fn add_measured(&mut self, measure: Measure, report: &impl Serialize) -> anyhow::Result<()> {
        self.add_report(measure, Path::new(""), serde_json::from_value(serde_json::to_value(report)?)?);
        Ok(())
    }

    /// Adds the values of a report, each under the name of its model or folder.
    fn add_report(&mut self, measure: Measure, path: &Path, report: Report) {
        let mut add = |name: &str, path: &Path, benchmark: &str, value: Option<f64>| {
            let Some(value) = value else { return };
            self.all.push(Found {
                reported: Some((measure, benchmark.to_owned(), value)),
                ..Found::new(name, path)
            });
        };
        for model in &report.models {
            add(&model.benchmark, path, "", model.increase);
        }
        for (i, folder) in report.folders.iter().enumerate() {
            for row in &report.diversity {
                let benchmark = row.benchmark.strip_prefix("All ").unwrap_or(&row.benchmark);
                add(folder, Path::new(folder), benchmark, row.values.get(i).copied().flatten());
            }
        }
    }

    fn gather(&mut self, name: &str, path: &Path, depth: usize) -> anyhow::Result<()> {
        let has = |file: &str| path.join(file).is_file();
        if has("eval.jsonl") && has("config.toml") {
            return self.gather_run(name, path);
        }
        // Runs without an evaluation, and the cache of SFT stages next to runs, lack samples.
        if has("config.toml") || has("sft.jsonl") {
            return Ok(());
        }
        let direct = !path.is_dir() || has(samples::SCORED);
        let entries = if path.is_dir() { files::listed(path)? } else { Vec::new() };
        let line_files: Vec<&PathBuf> =
            entries.iter().filter(|e| e.is_file() && samples::is_lines(e)).collect();
        if direct || !line_files.is_empty() {
            let scored = if direct { dumps::read_each(path, None)? } else { scored(path, &line_files)? };
            self.notes.extend(scored.left_out.iter().map(|why| format!("left out: {why}")));
            let all = scored.benchmarks.into_iter();
            self.all.extend(all.map(|b| Found { benchmark: Some(b), ..Found::new(name, path) }));
        }
        if direct || depth == 0 {
            return Ok(());
        }
        for entry in entries.iter().filter(|e| e.is_dir()) {
            let folder = files::name(entry);
            let below = if name.is_empty() { folder } else { format!("{name}/{folder}") };
            self.gather(&below, entry, depth - 1)?;
        }
        Ok(())
    }

    fn gather_run(&mut self, name: &str, path: &Path) -> anyhow::Result<()> {
        let read = run::Run::open(path)?;
        let (config, all, metrics) = (read.config()?.clone(), read.evaluations, read.metrics);
        let select = |set: &str| -> Vec<Evaluation> {
            let some: Vec<Evaluation> = all.iter().filter(|e| e.set == set).cloned().collect();
            if some.is_empty() { all.clone() } else { some }
        };
        let (evaluations, frequent) = (select(config.eval.deciding_set()), select(record::USUAL));
        let Some(last) = evaluations.last() else { return Ok(()) };
        // Otherwise, an earlier evaluation would be mistaken for the final evaluation.
        if config.evaluates_at_the_end() && last.step < config.steps {
            let (path, at, steps) = (path.display(), last.step, config.steps);
            self.notes.push(format!(
                "left out: {path}, which isn't finished: its last evaluation is at step {at} of {steps}"
            ));
            return Ok(());
        }
        let held_out = config.task.text().and_then(|text| text.held_out.as_ref()).map(|p| dataset::name(p));
        let benchmark = held_out.unwrap_or_else(|| config.task.kind().to_owned());
        let benchmark = Some(counted(&benchmark, path, last));
        let run = Some(Run { setting: settings::of(&config), config, evaluations, frequent, metrics });
        self.all.push(Found { benchmark, run, ..Found::new(name, path) });
        Ok(())
    }
}

/// Reads the samples in a folder's files. Subfolders are searched separately, except those of a dump.
fn scored(path: &Path, files: &[&PathBuf]) -> anyhow::Result<Scored> {
    for file in files {
        if dumps::format_of(file)?.is_some() {
            return dumps::read_each(path, None);
        }
    }
    let benchmarks = samples::read(path)?;
    require_distinct(&benchmarks)?;
    Ok(Scored { benchmarks, ..Scored::default() })
}

/// Returns the counts of an evaluation.
pub(super) fn counted(name: &str, path: &Path, evaluation: &Evaluation) -> Benchmark {
    Benchmark { name: name.to_owned(), path: path.to_owned(), problems: evaluation.counts() }
}
