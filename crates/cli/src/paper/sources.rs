//! Existing results: evaluations and run folders, each with its setting of the paper.

use super::items::Item;
use super::numbers::{Measure, Setting};
use super::settings;
use crate::analysis::benchmarks::canonical;
use crate::analysis::dumps;
use anyhow::Context;
use fgrpo_train::bad_input;
use fgrpo_train::config::Config;
use fgrpo_train::evaluation::record::{self, Evaluation};
use fgrpo_train::evaluation::samples::{self, Benchmark, ProblemCounts};
use fgrpo_train::failure::OrBadInput;
use fgrpo_train::io::{files, json};
use fgrpo_train::run::metrics::{self, Logged};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// How many levels of folders are searched for results.
const DEPTH: usize = 4;

/// One trained model's results.
pub(super) struct Source {
    /// The name that was given, or the folder's below the one that was.
    pub(super) name: String,
    /// Where it was read.
    pub(super) path: PathBuf,
    /// Scored samples by benchmark; of a run, those of its last evaluation.
    pub(super) benchmarks: Vec<Benchmark>,
    /// Of a run folder: its configuration, log and evaluations.
    pub(super) run: Option<Run>,
}

/// A run folder's contents.
pub(super) struct Run {
    /// What it trains.
    pub(super) setting: Setting,
    /// Its seed.
    pub(super) seed: u64,
    /// One line a step.
    pub(super) metrics: Vec<Logged>,
    /// Its evaluations in the order of their steps.
    pub(super) evaluations: Vec<Evaluation>,
}

/// Everything that `--from` names.
#[derive(Default)]
pub(super) struct Sources {
    /// The trained models.
    pub(super) all: Vec<Source>,
    /// What of dumps could not be scored, and runs that aren't finished.
    pub(super) left_out: Vec<String>,
    /// Values that aren't of samples: measure, who or which benchmark, method, value.
    reported: Vec<(Measure, Value)>,
}

impl Sources {
    /// Reads what the flags name.
    ///
    /// # Errors
    /// Bad input for paths without results.
    pub(super) fn open(from: &[String]) -> anyhow::Result<Self> {
        let mut sources = Self::default();
        for text in from {
            let (name, path) = match text.split_once('=') {
                Some((name, path)) if !name.is_empty() && !Path::new(text).exists() => {
                    (name, Path::new(path))
                }
                _ => ("", Path::new(text)),
            };
            let measure = match name {
                "nll" => Some(Measure::Nll),
                "embeddings" => Some(Measure::Embeddings),
                "judge" => Some(Measure::Judge),
                _ => None,
            };
            if let Some(measure) = measure {
                sources.reported.push((measure, json::read(path)?));
                continue;
            }
            if !path.exists() {
                bad_input!(
                    "--from {text}: found nothing at {}, wanted a file or folder of results",
                    path.display()
                );
            }
            let before = (sources.all.len(), sources.left_out.len());
            sources.gather(name, path, DEPTH)?;
            if sources.all.len() == before.0 && sources.left_out.len() > before.1 {
                bad_input!(
                    "--from {text}: found nothing finished:\n  {}",
                    sources.left_out[before.1..].join("\n  ")
                );
            }
            if sources.all.len() == before.0 {
                bad_input!(
                    "--from {text}: found neither samples of fgrpo eval, verl or lm-eval nor a run with an evaluation; `fgrpo eval --samples FILE --data FILE --task KIND --out DIR` scores responses of other programs"
                );
            }
        }
        Ok(sources)
    }

    /// Adds the results at `path` under a name.
    ///
    /// # Errors
    /// Bad input as [`Sources::open`].
    pub(super) fn add(&mut self, name: &str, path: &Path) -> anyhow::Result<()> {
        self.gather(name, path, DEPTH)
    }

    /// Adds the results at `path` and below.
    fn gather(&mut self, name: &str, path: &Path, depth: usize) -> anyhow::Result<()> {
        if path.join("eval.jsonl").is_file() && path.join("config.toml").is_file() {
            return self.gather_run(name, path);
        }
        // Runs without an evaluation, and the cache of supervised stages that lies beside runs, hold no samples.
        if path.join("config.toml").is_file() || path.join("sft.jsonl").is_file() {
            return Ok(());
        }
        let is_samples = |p: &Path| p.extension().is_some_and(|e| e == "jsonl");
        let direct = if path.is_dir() { path.join(samples::SCORED).is_file() } else { true };
        let entries = match path.is_dir() {
            true => listed(path)?,
            false => Vec::new(),
        };
        if direct || entries.iter().any(|e| e.is_file() && is_samples(e)) {
            let scored = dumps::read(path)?;
            let benchmarks = scored.benchmarks;
            self.left_out.extend(scored.left_out);
            // Evaluations of one model, a folder for each benchmark, are one source.
            match self.all.iter_mut().find(|s| s.run.is_none() && s.name == name && !name.is_empty()) {
                Some(source) => source.benchmarks.extend(benchmarks),
                None => self.all.push(Source {
                    name: if name.is_empty() { files::stem(path) } else { name.to_owned() },
                    path: path.to_owned(),
                    benchmarks,
                    run: None,
                }),
            }
            return Ok(());
        }
        if depth == 0 {
            return Ok(());
        }
        for entry in entries.iter().filter(|e| e.is_dir()) {
            let own = entry.file_name().unwrap_or_default().to_string_lossy();
            let below = if name.is_empty() { own.into_owned() } else { format!("{name}/{own}") };
            self.gather(&below, entry, depth - 1)?;
        }
        Ok(())
    }

    fn gather_run(&mut self, name: &str, path: &Path) -> anyhow::Result<()> {
        let config = Config::load(&path.join("config.toml"), &[])?;
        let evaluations =
            record::deciding(&path.join("eval.jsonl")).with_context(|| path.display().to_string())?;
        let log = path.join("metrics.jsonl");
        let metrics = if log.is_file() { metrics::read(&log)? } else { Vec::new() };
        let Some(last) = evaluations.last() else { return Ok(()) };
        // Its start or its middle would pass for its end.
        if config.evaluates_at_the_end() && last.step < config.steps {
            self.left_out.push(format!(
                "{}, which isn't finished: its last evaluation is at step {} of {}",
                path.display(),
                last.step,
                config.steps
            ));
            return Ok(());
        }
        let held_out = config.task.text().and_then(|(_, t)| t.held_out.as_ref()).map(|p| files::stem(p));
        let of = held_out.unwrap_or_else(|| config.task.kind().to_owned());
        self.all.push(Source {
            name: if name.is_empty() { files::stem(path) } else { name.to_owned() },
            path: path.to_owned(),
            benchmarks: vec![counted(&of, path, last)],
            run: Some(Run { setting: settings::of(&config), seed: config.seed, metrics, evaluations }),
        });
        Ok(())
    }

    /// The results of a setting, one for each seed. A name counts if it means this setting and no other of `settings`;
    /// with `anywhere`, runs of any model count.
    pub(super) fn of(&self, setting: &Setting, settings: &[Setting], anywhere: bool) -> Vec<&Source> {
        let is = |source: &&Source| {
            let ran = source.run.as_ref().is_some_and(|run| {
                let same = Setting { model: setting.model.clone(), ..run.setting.clone() } == *setting;
                same && (anywhere || setting.model.is_none() || run.setting.model == setting.model)
            });
            // A folder below the one of its setting holds a part of its benchmarks.
            let mut name = source.name.as_str();
            let named = std::iter::from_fn(|| {
                let now = (!name.is_empty()).then_some(name);
                name = name.rsplit_once('/').map_or("", |(parent, _)| parent);
                now
            });
            // Runs on our own tasks say themselves what they are, whatever their folders are called.
            let ours = source.run.as_ref().is_some_and(|run| run.setting.model.is_none());
            ran || !ours && named.into_iter().any(|n| settings::named(n, settings) == Some(setting))
        };
        self.all.iter().filter(is).collect()
    }

    /// The start of training: what runs evaluated before their first step.
    pub(super) fn start(&self) -> Option<Benchmark> {
        let source = self.all.iter().find(|s| s.run.as_ref().is_some_and(|r| r.evaluations[0].step == 0))?;
        let run = source.run.as_ref()?;
        Some(counted(&source.benchmarks[0].name, &source.path, &run.evaluations[0]))
    }

    /// The settings of runs that aren't among `known`, as if they had trained `model`.
    pub(super) fn further(&self, known: &[Setting], model: Option<&String>) -> Vec<Setting> {
        let mut found: Vec<Setting> = Vec::new();
        for run in self.all.iter().filter_map(|s| s.run.as_ref()) {
            let setting = Setting { model: model.cloned(), ..run.setting.clone() };
            if !known.contains(&setting) && !found.contains(&setting) {
                found.push(setting);
            }
        }
        found.sort_by(|a, b| a.method.cmp(&b.method).then(a.gamma.total_cmp(&b.gamma)).then(a.n.cmp(&b.n)));
        found
    }

    /// Adds what `fgrpo nll --json` or `fgrpo diversity --json` would print.
    pub(super) fn report(&mut self, measure: Measure, value: Value) {
        self.reported.push((measure, value));
    }

    /// A value that `fgrpo nll --json` or `fgrpo diversity --json` reported, or why there is none.
    pub(super) fn reported(
        &self,
        measure: Measure,
        setting: &Setting,
        settings: &[Setting],
        of: &str,
    ) -> Result<f64, String> {
        self.in_reports(measure, setting, settings, of).ok_or_else(|| match measure {
            Measure::Nll => "no NLL: --from nll=FILE takes what `fgrpo nll --json` printed".to_owned(),
            Measure::Judge => "no strategy score: --from judge=FILE takes what `fgrpo diversity --by judge --json` printed".to_owned(),
            _ => "no distance: --from embeddings=FILE takes what `fgrpo diversity --by embeddings --json` printed".to_owned(),
        })
    }

    fn in_reports(&self, measure: Measure, setting: &Setting, settings: &[Setting], of: &str) -> Option<f64> {
        let named = |name: &Value| {
            let name = name.as_str().unwrap_or_default();
            settings::named(&files::stem(Path::new(name)), settings) == Some(setting)
                || settings::named(name, settings) == Some(setting)
        };
        self.reported.iter().filter(|(m, _)| *m == measure).find_map(|(_, value)| match measure {
            Measure::Nll => {
                let models = value["models"].as_array()?;
                models.iter().find(|m| named(&m["model"]))?["increase"].as_f64()
            }
            _ => {
                let at = value["folders"].as_array()?.iter().position(named)?;
                let row = value["diversity"].as_array()?.iter().find(|row| {
                    let name = row["benchmark"].as_str().unwrap_or_default();
                    canonical(name) == of || name == format!("All {of}")
                })?;
                row["values"][at].as_f64()
            }
        })
    }

    /// What was found, and which of the item's settings it is of.
    pub(super) fn describe(&self, item: &Item) -> String {
        let settings = settings::shown(item);
        let mut lines = Vec::new();
        for setting in &settings {
            let found = self.of(setting, &settings, false);
            let places: Vec<String> = found.iter().map(|s| s.path.display().to_string()).collect();
            let places = if places.is_empty() { "nothing".to_owned() } else { places.join(", ") };
            lines.push(format!("{}: {places}", settings::name(setting, &settings)));
        }
        lines.join("\n")
    }

    /// Sources that are of none of the settings.
    pub(super) fn others(&self, settings: &[Setting], anywhere: bool) -> Vec<&Source> {
        let used: Vec<*const Source> =
            settings.iter().flat_map(|s| self.of(s, settings, anywhere)).map(std::ptr::from_ref).collect();
        self.all.iter().filter(|s| !used.contains(&std::ptr::from_ref(*s))).collect()
    }
}

/// The samples of an evaluation as counts.
pub(super) fn counted(of: &str, path: &Path, evaluation: &Evaluation) -> Benchmark {
    let problem = |(i, (scored, correct)): (usize, (usize, usize))| {
        ProblemCounts::counted(format!("{}:{i:06}", evaluation.problem_set), scored as u64, correct as u64)
    };
    let scored = |i: usize| evaluation.scored_per_problem.get(i).copied().unwrap_or(evaluation.samples);
    let counts = evaluation.per_problem.iter().enumerate().map(|(i, &correct)| (i, (scored(i), correct)));
    let problems = counts.map(problem);
    Benchmark { name: of.to_owned(), path: path.to_owned(), problems: problems.collect() }
}

fn listed(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(path).with_context(|| format!("{}: cannot list", path.display()));
    let mut all: Vec<PathBuf> = entries.or_bad_input()?.filter_map(|e| e.ok().map(|e| e.path())).collect();
    all.sort();
    Ok(all)
}
