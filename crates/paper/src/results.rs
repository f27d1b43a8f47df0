//! Results that are there: evaluations, run folders and reports, as `--from` names them.

use super::data::{Measure, Setting};
use super::settings;
use anyhow::Context;
use fgrpo_eval::benchmarks::require_distinct;
use fgrpo_eval::dataset;
use fgrpo_eval::dumps::{self, Scored};
use fgrpo_eval::io::{files, json, lines};
use fgrpo_eval::record::{self, Evaluation};
use fgrpo_eval::samples::{self, Benchmark};
use fgrpo_train::config::Config;
use fgrpo_train::run::metrics::{self, Logged};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// How many levels of folders are searched for results.
const DEPTH: usize = 4;

/// One trained model's results.
pub(super) struct Found {
    /// The name that was given, or the folder's below the one that was.
    pub(super) name: String,
    /// Whether `NAME=` gave it.
    pub(super) given: bool,
    pub(super) path: PathBuf,
    /// Scored samples by benchmark; of a run, those of its last evaluation.
    pub(super) benchmarks: Vec<Benchmark>,
    /// Values that aren't of samples: what they measure, and on which benchmark or average.
    pub(super) reported: Vec<(Measure, String, f64)>,
    /// Of a run folder: its configuration, log and evaluations.
    pub(super) run: Option<Run>,
}

/// The contents of a run folder.
pub(super) struct Run {
    /// What it trains.
    pub(super) setting: Setting,
    pub(super) config: Config,
    /// One line a step.
    pub(super) metrics: Vec<Logged>,
    /// The evaluations that decide which checkpoint is best, in the order of their steps.
    pub(super) evaluations: Vec<Evaluation>,
    /// Those of `[eval]`; the same where there is no `[eval.full]`.
    pub(super) frequent: Vec<Evaluation>,
}

/// Everything that `--from` names.
#[derive(Default)]
pub struct Results {
    pub(super) all: Vec<Found>,
    /// What was left out, and why.
    pub(super) notes: Vec<String>,
}

/// The JSON of `fgrpo nll` and `fgrpo diversity`, as far as it is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Report {
    models: Vec<ModelNll>,
    folders: Vec<String>,
    diversity: Vec<DiversityRow>,
}

#[derive(Deserialize)]
struct ModelNll {
    model: String,
    increase: Option<f64>,
}

#[derive(Deserialize)]
struct DiversityRow {
    benchmark: String,
    values: Vec<Option<f64>>,
}

const REPORTS: [(&str, Measure); 3] =
    [("nll", Measure::Nll), ("embeddings", Measure::Embeddings), ("judge", Measure::Judge)];

/// The name of a folder, in which a dot is no ending, or of a file without its ending.
fn own_name(path: &Path) -> String {
    if !path.is_dir() {
        return files::stem(path);
    }
    // `.` and `..` have no name of their own.
    let whole = if path.file_name().is_some() { path.to_owned() } else { real(path) };
    files::name(&whole)
}

/// One path for every spelling of it.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

impl Found {
    pub(super) fn new(name: &str, path: &Path) -> Self {
        let name = if name.is_empty() { own_name(path) } else { name.to_owned() };
        let (benchmarks, reported) = (Vec::new(), Vec::new());
        Self { name, given: false, path: path.to_owned(), benchmarks, reported, run: None }
    }

    /// Whether its samples of a benchmark are those of `other`, given twice.
    fn holds(&self, other: &Benchmark) -> bool {
        self.benchmarks.iter().any(|b| b.name == other.name && real(&b.path) == real(&other.path))
    }

    /// Whether it is a copy of another run. Two runs of one seed and configuration are no two seeds.
    fn copies(&self, other: &Self) -> bool {
        let Some((own, other)) = self.run.as_ref().zip(other.run.as_ref()) else { return false };
        own.config == other.config && own.evaluations == other.evaluations
    }

    /// What a run's evaluation before its first step counted.
    pub(super) fn start(&self) -> Option<Benchmark> {
        let first = self.run.as_ref()?.evaluations.first().filter(|e| e.step == 0)?;
        Some(counted(&self.benchmarks[0].name, &self.path, first))
    }
}

impl Results {
    /// Reads what the flags name.
    /// Fails on paths without results, and on files that can't be read.
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
                let path = path.display();
                bad_input!("--from {text}: found nothing at {path}, wanted a file or folder of results");
            }
            if let Some((_, measure)) = REPORTS.iter().find(|r| r.0 == name) {
                results.add_report(*measure, path, json::read(path)?);
                continue;
            }
            let mut here = Self::default();
            here.gather(name, path, DEPTH)?;
            if here.all.is_empty() && !here.notes.is_empty() {
                bad_input!("--from {text}: found nothing finished:\n  {}", here.notes.join("\n  "));
            }
            if here.all.is_empty() {
                bad_input!(
                    "--from {text}: found neither samples of fgrpo eval, verl or lm-eval nor a run with an evaluation; `fgrpo eval --samples FILE --data FILE --task KIND --out DIR` scores responses of other programs"
                );
            }
            here.all.iter_mut().for_each(|found| found.given = !name.is_empty());
            results.join(here, text);
        }
        Ok(results)
    }

    /// Adds what `fgrpo nll` or `fgrpo diversity` measured here.
    pub(super) fn add_measured(&mut self, measure: Measure, found: &impl Serialize) -> anyhow::Result<()> {
        let report = serde_json::from_value(serde_json::to_value(found)?)?;
        self.add_report(measure, Path::new(""), report);
        Ok(())
    }

    /// Adds the values of a report, each under the name of its model or folder.
    fn add_report(&mut self, measure: Measure, path: &Path, report: Report) {
        for model in report.models.into_iter().filter(|_| measure == Measure::Nll) {
            let reported = model.increase.map(|v| (measure, String::new(), v)).into_iter().collect();
            self.all.push(Found { reported, ..Found::new(&model.model, path) });
        }
        for (i, folder) in report.folders.iter().enumerate().filter(|_| measure != Measure::Nll) {
            let value = |row: &DiversityRow| {
                let of = row.benchmark.strip_prefix("All ").unwrap_or(&row.benchmark);
                Some((measure, of.to_owned(), (*row.values.get(i)?)?))
            };
            let reported = report.diversity.iter().filter_map(value).collect();
            self.all.push(Found { reported, ..Found::new(folder, Path::new(folder)) });
        }
    }

    /// Adds other results. What is there already counts once, under its last name: twice, it would pass for another seed.
    fn join(&mut self, other: Self, text: &str) {
        self.notes.extend(other.notes);
        let mut again: Vec<PathBuf> = Vec::new();
        for found in other.all {
            for known in &mut self.all {
                let copied = known.copies(&found);
                known.benchmarks.retain(|b| {
                    let twice = copied || found.holds(b);
                    again.extend(twice.then(|| b.path.clone()));
                    !twice
                });
            }
            self.all.retain(|f| !f.benchmarks.is_empty() || !f.reported.is_empty());
            self.all.push(found);
        }
        if let Some((first, rest)) = again.split_first() {
            let rest = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            self.notes.push(format!(
                "left out: {}{rest}, which --from {text} gives again: each counts once, under its last name",
                first.display()
            ));
        }
    }

    fn gather(&mut self, name: &str, path: &Path, depth: usize) -> anyhow::Result<()> {
        if path.join("eval.jsonl").is_file() && path.join("config.toml").is_file() {
            return self.gather_run(name, path);
        }
        // Runs without an evaluation, and the cache of supervised stages that lies beside runs, hold no samples.
        if path.join("config.toml").is_file() || path.join("sft.jsonl").is_file() {
            return Ok(());
        }
        let direct = !path.is_dir() || path.join(samples::SCORED).is_file();
        let entries = if path.is_dir() { files::listed(path)? } else { Vec::new() };
        let of_lines: Vec<&PathBuf> =
            entries.iter().filter(|e| e.is_file() && samples::is_lines(e)).collect();
        if direct || !of_lines.is_empty() {
            let scored = if direct { dumps::read_each(path)? } else { scored(path, &of_lines)? };
            self.notes.extend(scored.left_out.iter().map(|why| format!("left out: {why}")));
            if !scored.benchmarks.is_empty() {
                self.all.push(Found { benchmarks: scored.benchmarks, ..Found::new(name, path) });
            }
        }
        if direct || depth == 0 {
            return Ok(());
        }
        for entry in entries.iter().filter(|e| e.is_dir()) {
            let own = files::name(entry);
            let below = if name.is_empty() { own } else { format!("{name}/{own}") };
            self.gather(&below, entry, depth - 1)?;
        }
        Ok(())
    }

    fn gather_run(&mut self, name: &str, path: &Path) -> anyhow::Result<()> {
        let config = Config::load(&path.join("config.toml"), &[])?;
        let file = path.join("eval.jsonl");
        let all: Vec<Evaluation> = lines::read(&file).with_context(|| path.display().to_string())?;
        let of_set = |set: &str| -> Vec<Evaluation> {
            let some: Vec<Evaluation> = all.iter().filter(|e| e.set == set).cloned().collect();
            if some.is_empty() { all.clone() } else { some }
        };
        let (evaluations, frequent) = (of_set(config.eval.deciding_set()), of_set(record::USUAL));
        let log = path.join("metrics.jsonl");
        let metrics = if log.is_file() { metrics::read(&log)? } else { Vec::new() };
        let Some(last) = evaluations.last() else { return Ok(()) };
        // An earlier evaluation would pass for the one at the end.
        if config.evaluates_at_the_end() && last.step < config.steps {
            let (path, at, steps) = (path.display(), last.step, config.steps);
            self.notes.push(format!(
                "left out: {path}, which isn't finished: its last evaluation is at step {at} of {steps}"
            ));
            return Ok(());
        }
        let held_out = config.task.text().and_then(|(_, t)| t.held_out.as_ref()).map(|p| dataset::name(p));
        let of = held_out.unwrap_or_else(|| config.task.kind().to_owned());
        let benchmarks = vec![counted(&of, path, last)];
        let run = Some(Run { setting: settings::of(&config), config, metrics, evaluations, frequent });
        self.all.push(Found { benchmarks, run, ..Found::new(name, path) });
        Ok(())
    }
}

/// The samples in a folder's files. Folders below it are searched on their own, except those of a dump.
fn scored(path: &Path, files: &[&PathBuf]) -> anyhow::Result<Scored> {
    for file in files {
        if dumps::format_of(file)?.is_some() {
            return dumps::read_each(path);
        }
    }
    let benchmarks = samples::read(path)?;
    require_distinct(&benchmarks)?;
    Ok(Scored { benchmarks, left_out: Vec::new() })
}

/// The samples of an evaluation as counts.
pub(super) fn counted(of: &str, path: &Path, evaluation: &Evaluation) -> Benchmark {
    Benchmark { name: of.to_owned(), path: path.to_owned(), problems: evaluation.counts() }
}
