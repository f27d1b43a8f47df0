//! Existing results: evaluations and run folders, each with its setting of the paper.

use super::data::{Item, Setting, paper};
use super::reports::Reports;
use super::seeds::require_one_configuration;
use super::settings;
use anyhow::Context;
use fgrpo_eval::bad_input;
use fgrpo_eval::benchmarks::require_distinct;
use fgrpo_eval::dataset;
use fgrpo_eval::dumps::{self, Scored};
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::{files, lines};
use fgrpo_eval::record::{self, Evaluation};
use fgrpo_eval::samples::{self, Benchmark, ProblemCounts};
use fgrpo_eval::table::percent;
use fgrpo_train::config::Config;
use fgrpo_train::run::metrics::{self, Logged};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How many levels of folders are searched for results.
const DEPTH: usize = 4;

/// One trained model's results.
pub(super) struct Source {
    /// The name that was given, or the folder's below the one that was.
    pub(super) name: String,
    /// The flag's text, where `NAME=` gave it.
    given: Option<String>,
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
    /// Its configuration.
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
pub struct Sources {
    /// The trained models.
    pub(super) all: Vec<Source>,
    /// What of dumps could not be scored, runs that aren't finished, and what was given twice.
    pub(super) left_out: Vec<String>,
    /// Values that aren't of samples.
    pub(super) reports: Reports,
}

/// The name of a folder, in which a dot is no ending, or of a file without its ending.
fn own_name(path: &Path) -> String {
    if !path.is_dir() {
        return files::stem(path);
    }
    // `.` and `..` have no name of their own.
    let whole = if path.file_name().is_some() { path.to_owned() } else { real(path) };
    whole.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// One path for every spelling of it.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

impl Source {
    /// Whether its samples of a benchmark are those of `other`, given twice.
    fn holds(&self, other: &Benchmark) -> bool {
        self.benchmarks.iter().any(|b| b.name == other.name && real(&b.path) == real(&other.path))
    }

    /// Whether it is a copy of another run. Two runs of one seed and configuration are no two seeds.
    fn copies(&self, other: &Self) -> bool {
        let Some((own, other)) = self.run.as_ref().zip(other.run.as_ref()) else { return false };
        own.config == other.config && own.evaluations == other.evaluations
    }

    /// A model of the paper that a folder above the results is named after; none where their name says what they are.
    fn model_by_path(&self) -> Option<&'static str> {
        let named = self.path.ancestors().filter_map(Path::file_name);
        let models = || paper().models.iter().map(|m| m.name.as_str());
        let mut models = named.filter_map(|n| models().find(|m| n.eq_ignore_ascii_case(m)));
        models.next().filter(|_| self.run.is_none())
    }
}

impl Sources {
    /// Reads what the flags name.
    ///
    /// # Errors
    /// Bad input for paths without results, and for files that can't be read.
    pub fn open(from: &[String]) -> anyhow::Result<Self> {
        let mut sources = Self::default();
        for text in from {
            let (name, path) = match text.split_once('=') {
                Some((name, path)) if !name.is_empty() && !Path::new(text).exists() => {
                    (name, Path::new(path))
                }
                _ => ("", Path::new(text)),
            };
            if sources.reports.open(name, path)? {
                continue;
            }
            if !path.exists() {
                bad_input!(
                    "--from {text}: found nothing at {}, wanted a file or folder of results",
                    path.display()
                );
            }
            let mut here = Self::default();
            here.gather(name, path, DEPTH)?;
            if here.all.is_empty() && !here.left_out.is_empty() {
                bad_input!("--from {text}: found nothing finished:\n  {}", here.left_out.join("\n  "));
            }
            if here.all.is_empty() {
                bad_input!(
                    "--from {text}: found neither samples of fgrpo eval, verl or lm-eval nor a run with an evaluation; `fgrpo eval --samples FILE --data FILE --task KIND --out DIR` scores responses of other programs"
                );
            }
            here.all.iter_mut().for_each(|s| s.given = (!name.is_empty()).then(|| text.clone()));
            sources.join(here, text);
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

    /// Adds other results. What is there already counts once, under its last name: twice, it would pass for another seed.
    fn join(&mut self, other: Self, text: &str) {
        self.left_out.extend(other.left_out);
        let mut again: Vec<PathBuf> = Vec::new();
        for source in other.all {
            for known in &mut self.all {
                let copied = known.copies(&source);
                known.benchmarks.retain(|b| {
                    let twice = copied || source.holds(b);
                    again.extend(twice.then(|| b.path.clone()));
                    !twice
                });
            }
            self.all.retain(|s| !s.benchmarks.is_empty());
            self.all.push(source);
        }
        if let Some((first, rest)) = again.split_first() {
            let rest = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            self.left_out.push(format!(
                "{}{rest}, which --from {text} gives again: each counts once, under its last name",
                first.display()
            ));
        }
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
        let direct = !path.is_dir() || path.join(samples::SCORED).is_file();
        let entries = if path.is_dir() { listed(path)? } else { Vec::new() };
        let of_lines: Vec<&PathBuf> =
            entries.iter().filter(|e| e.is_file() && samples::is_lines(e)).collect();
        if direct || !of_lines.is_empty() {
            let scored = if direct { dumps::read_each(path)? } else { scored(path, &of_lines)? };
            self.left_out.extend(scored.left_out);
            if !scored.benchmarks.is_empty() {
                self.all.push(Source {
                    name: if name.is_empty() { own_name(path) } else { name.to_owned() },
                    given: None,
                    path: path.to_owned(),
                    benchmarks: scored.benchmarks,
                    run: None,
                });
            }
        }
        if direct || depth == 0 {
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
        let held_out = config.task.text().and_then(|(_, t)| t.held_out.as_ref()).map(|p| dataset::name(p));
        let of = held_out.unwrap_or_else(|| config.task.kind().to_owned());
        self.all.push(Source {
            name: if name.is_empty() { own_name(path) } else { name.to_owned() },
            given: None,
            path: path.to_owned(),
            benchmarks: vec![counted(&of, path, last)],
            run: Some(Run { setting: settings::of(&config), config, metrics, evaluations, frequent }),
        });
        Ok(())
    }

    /// The results of each of `settings`. A name counts if it means this setting and no other; a run says itself how it was trained, and
    /// its name at most which model it is of. With `anywhere`, runs of any model count.
    pub(super) fn rows(&self, settings: &[Setting], anywhere: bool) -> Vec<Vec<&Source>> {
        let mut rows: Vec<Vec<&Source>> = settings.iter().map(|_| Vec::new()).collect();
        for source in &self.all {
            let meant = settings::meant(&source.name, settings);
            for (row, setting) in rows.iter_mut().zip(settings) {
                let named = matches!(meant.as_slice(), [only] if *only == setting);
                let is_of = match &source.run {
                    None => named,
                    Some(run) => {
                        let same =
                            Setting { model: setting.model.clone(), ..run.setting.clone() } == *setting;
                        let own = run.setting.model.as_deref();
                        let known = own.is_some_and(|own| paper().model(own).is_some());
                        let by_name = named && own.is_some() && !known;
                        let model = anywhere || setting.model.is_none() || own == setting.model.as_deref();
                        same && (model || by_name)
                    }
                };
                if is_of {
                    row.push(source);
                }
            }
        }
        rows
    }

    /// Checks which rows the results are of, and returns a sentence for each result whose name leaves that open.
    ///
    /// # Errors
    /// Bad input: a given name that fits several rows, or another setting than its run's; results of another model of the paper; runs of one row
    /// with different configurations.
    pub(super) fn check(&self, settings: &[Setting], anywhere: bool) -> anyhow::Result<Vec<String>> {
        let names = |meant: &[&Setting]| -> String {
            meant.iter().map(|s| settings::name(s, settings)).collect::<Vec<_>>().join(", ")
        };
        // By the rows that a name fits: the results that have one.
        let mut open: BTreeMap<String, Vec<&Source>> = BTreeMap::new();
        for source in self.all.iter().filter(|s| !anywhere || s.given.is_some()) {
            let meant = settings::meant(&source.name, settings);
            let path = source.path.display();
            match (meant.as_slice(), &source.run, &source.given) {
                ([only], Some(run), Some(given)) => {
                    let trained = Setting { model: only.model.clone(), ..run.setting.clone() };
                    if trained != **only {
                        bad_input!(
                            "--from {given}: found a run of {} with gamma {} and group size {} in {path}, wanted one of {}",
                            trained.method,
                            trained.gamma,
                            trained.n,
                            names(&meant)
                        );
                    }
                }
                ([only], None, _) => {
                    if let (Some(other), Some(wanted)) = (source.model_by_path(), &only.model)
                        && other != wanted
                    {
                        bad_input!(
                            "--from: found {path}, in a folder of {other}, for the row {} of {wanted}; wanted results of that model, or a folder without another model's name",
                            names(&meant)
                        );
                    }
                }
                ([_, _, ..], None, Some(given)) => bad_input!(
                    "--from {given}: the name of {path} fits several rows, {}; wanted one of them",
                    names(&meant)
                ),
                ([_, _, ..], None, None) => open.entry(names(&meant)).or_default().push(source),
                _ => {}
            }
        }
        for (setting, row) in settings.iter().zip(self.rows(settings, anywhere)) {
            let runs: Vec<_> =
                row.iter().filter_map(|s| Some((s.path.as_path(), &s.run.as_ref()?.config))).collect();
            require_one_configuration(&settings::name(setting, settings), &runs)?;
        }
        let said = |(rows, sources): (String, Vec<&Source>)| {
            let paths: Vec<String> = sources.iter().map(|s| s.path.display().to_string()).collect();
            format!(
                "not used: {}, whose names fit several rows; NAME=PATH says which: {rows}",
                paths.join(", ")
            )
        };
        Ok(open.into_iter().map(said).collect())
    }

    /// A sentence for each benchmark of these results with samples that could not be scored.
    pub(super) fn unscorable<'s>(found: impl IntoIterator<Item = &'s Source>) -> Vec<String> {
        let benchmarks = found.into_iter().flat_map(|s| &s.benchmarks);
        let some = benchmarks.map(|b| (b, b.unscorable_share())).filter(|(_, share)| *share > 0.0);
        let said = some.map(|(b, share)| {
            let (path, share) = (b.path.display(), percent(share));
            format!("{}: {share} % of the samples are unscorable and left out ({path})", b.name)
        });
        said.collect()
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

    /// What was found, and which of the item's settings it is of.
    ///
    /// # Errors
    /// Bad input as [`Sources::check`].
    pub(super) fn describe(&self, item: &Item, anywhere: bool) -> anyhow::Result<String> {
        let settings = self.settings(item, anywhere);
        let mut lines = Vec::new();
        for (setting, found) in settings.iter().zip(self.rows(&settings, anywhere)) {
            let places: Vec<String> = found.iter().map(|s| s.path.display().to_string()).collect();
            let places = if places.is_empty() { "nothing".to_owned() } else { places.join(", ") };
            lines.push(format!("{}: {places}", settings::name(setting, &settings)));
        }
        lines.extend(self.check(&settings, anywhere)?);
        lines.extend(self.left_out.iter().map(|why| format!("left out: {why}")));
        Ok(lines.join("\n"))
    }

    /// The settings of an item; with those of further runs where runs on our own tasks stand for the paper's models.
    pub(super) fn settings(&self, item: &Item, anywhere: bool) -> Vec<Setting> {
        let mut all = item.settings();
        if anywhere || item.is_maze() {
            let model = all.first().and_then(|s| s.model.clone());
            all.extend(self.further(&all, model.as_ref()));
        }
        all
    }

    /// Sources that are of none of the settings, and whose name doesn't fit several.
    pub(super) fn others(&self, settings: &[Setting], anywhere: bool) -> Vec<&Source> {
        let used: Vec<*const Source> =
            self.rows(settings, anywhere).into_iter().flatten().map(std::ptr::from_ref).collect();
        let is_open = |s: &Source| s.run.is_none() && settings::meant(&s.name, settings).len() > 1;
        self.all.iter().filter(|s| !used.contains(&std::ptr::from_ref(*s)) && !is_open(s)).collect()
    }
}

/// The samples in a folder's files. Ours leave the folders below it to be read after them; dumps are read with those below.
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
    let problem = |(i, (scored, correct)): (usize, (usize, usize))| {
        let id = format!("{}:{i:06}", evaluation.problem_set);
        let mut counts = ProblemCounts::counted(id, scored as u64, correct as u64);
        counts.unscorable = evaluation.samples.saturating_sub(scored) as u64;
        counts
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
