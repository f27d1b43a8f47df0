//! Reads the files of a run folder. Files that an interrupted or older run lacks are tolerated.

use fgrpo_core::maze::HeldOut;
use fgrpo_eval::io::{json, lines};
use fgrpo_eval::record::{Evaluation, Example};
use fgrpo_train::config::{MazeConfig, TaskConfig};
use fgrpo_train::run;
use fgrpo_train::run::folder::missing_steps;
pub(super) use fgrpo_train::run::metrics::Logged as Metrics;
use fgrpo_train::run::metrics::Number;
use fgrpo_train::run::rollouts::RolloutLine;
use fgrpo_train::sft::SftLine;
use fgrpo_verify::verdict::Verdict;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

/// A line of `sft.jsonl`.
pub(super) type Sft = SftLine<Number>;

/// Maximum number of completions of a run. Only the latest completions are retained.
const LATEST: usize = 4_000;

/// Maximum number of characters shown of a prompt or completion.
const SHOWN_CHARACTERS: usize = 6_000;

/// All data of a run that a report shows.
#[derive(Debug)]
pub(super) struct Run {
    /// Name of the folder, extended if several runs share it.
    pub(super) name: String,
    pub(super) path: String,
    /// Values of `config.toml` by dotted key, formatted.
    pub(super) settings: BTreeMap<String, String>,
    /// Contents of the files, with one line for each step. Parts of an evaluation are separate evaluations. Sorted by set and
    /// step.
    pub(super) files: run::Run,
    pub(super) rollouts: Vec<RolloutLine>,
    /// Completions of the last evaluation of each set.
    pub(super) examples: Vec<RolloutLine>,
    /// Notes about problems with the files.
    pub(super) notes: Vec<String>,
}

impl Run {
    /// Reads a run folder.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let full = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        let mut files = run::Run::open(folder)?;
        let mut notes = Vec::new();
        if let Err(why) = files.config() {
            notes.push(format!("The method isn't known: {why:#}."));
        }
        let mut latest = VecDeque::new();
        let rollouts = lines::each(&folder.join("rollouts.jsonl"), |mut r: RolloutLine| {
            shorten(&mut r.prompt);
            shorten(&mut r.completion);
            if latest.len() == LATEST {
                latest.pop_front();
            }
            latest.push_back(r);
            Ok(())
        })?;
        let torn = files.torn.iter().copied().chain(rollouts.torn.map(|line| ("rollouts.jsonl", line)));
        notes.extend(torn.map(|(name, line)| {
            format!("{name}: the last line ({line}) is torn and was left out; the run was interrupted while writing it.")
        }));
        if files.metrics.is_empty() {
            notes.push("metrics.jsonl has no step yet: only demonstrations or evaluations are shown.".into());
        }
        last_of_each(&mut files.metrics, &mut notes, "metrics.jsonl", |m| m.step);
        last_of_each(&mut files.sft, &mut notes, "sft.jsonl", |s| s.step);
        last_of_each(&mut files.evaluations, &mut notes, "eval.jsonl", |e| (e.set.clone(), e.step));
        let steps: Vec<u64> = files.metrics.iter().map(|m| m.step).collect();
        let missing = missing_steps(&steps, steps.last().copied().unwrap_or(0));
        if !missing.is_empty() {
            notes.push(format!(
                "metrics.jsonl has no lines of steps {missing}: they were lost, as after a power failure."
            ));
        }
        files.evaluations = files.evaluations.into_iter().flat_map(Evaluation::with_parts).collect();
        files.evaluations.sort_by(|a, b| (&a.set, a.step).cmp(&(&b.set, b.step)));
        let mut run = Self {
            name: full.file_name().map_or_else(|| full.display().to_string(), |n| n.to_string_lossy().into()),
            path: full.display().to_string(),
            settings: settings(&files.text),
            rollouts: latest.into(),
            examples: Vec::new(),
            files,
            notes,
        };
        run.examples = run.last_examples();
        let mixed = run.sets().into_iter().filter_map(|set| {
            let last = run.evals_of(set).next_back()?;
            let other = run.evals_of(set).rfind(|e| !e.is_comparable(last))?;
            Some(format!(
                "{set}: evaluations up to step {} can't be compared with the last one: problems, graders, number of samples or sampling settings differ.",
                other.step
            ))
        });
        let mixed: Vec<String> = mixed.collect();
        run.notes.extend(mixed);
        Ok(run)
    }

    /// Returns the examples of the last evaluations, as completions without rewards and log-probabilities.
    fn last_examples(&self) -> Vec<RolloutLine> {
        let mazes = self.held_out_mazes();
        let example = |step: u64, e: &Example| {
            let mut completion = e.completion.clone();
            shorten(&mut completion);
            // The index of a maze distinguishes held-out mazes from training mazes.
            let place = usize::try_from(e.problem).ok();
            let maze = place.and_then(|place| mazes.get(place)).copied();
            RolloutLine {
                rewards: BTreeMap::new(),
                step,
                prompt_id: maze.unwrap_or(e.problem),
                part: None,
                sample: 0,
                prompt: String::new(),
                completion,
                target: e.target.clone(),
                reward: None,
                verdict: e.correct.map_or(Verdict::Unscorable, |correct| {
                    if correct { Verdict::Correct } else { Verdict::Wrong }
                }),
                reason: String::new(),
                printed: None,
                feedback: None,
                advantage: None,
                length: None,
                old_logp_mean: None,
            }
        };
        let last = self.sets().into_iter().filter_map(|set| self.evals_of(set).next_back());
        last.flat_map(|eval| eval.examples.iter().map(move |e| example(eval.step, e))).collect()
    }

    /// Returns the settings of the maze task, or `None` for other tasks.
    pub(super) fn maze(&self) -> Option<&MazeConfig> {
        match &self.files.config().ok()?.task {
            TaskConfig::Maze(maze) => Some(maze),
            _ => None,
        }
    }

    /// Returns the indices of the held-out mazes, or an empty list for other tasks.
    fn held_out_mazes(&self) -> Vec<u64> {
        let Some(maze) = self.maze() else { return Vec::new() };
        let held_out = HeldOut::new(maze.mazes(), maze.held_out);
        held_out.mazes().iter().map(|(index, _)| *index).collect()
    }

    /// Returns the names of the evaluated sets, in alphabetical order.
    pub(super) fn sets(&self) -> Vec<&str> {
        distinct(self.files.evaluations.iter().map(|eval| eval.set.as_str()))
    }

    /// Returns the evaluations of a set, sorted by step.
    pub(super) fn evals_of<'a>(&'a self, set: &'a str) -> impl DoubleEndedIterator<Item = &'a Evaluation> {
        self.files.evaluations.iter().filter(move |e| e.set == set)
    }

    /// Returns the first evaluation of the set of `end`, if it is earlier than `end` and comparable with it.
    pub(super) fn start_of<'a>(&'a self, end: &'a Evaluation) -> Option<&'a Evaluation> {
        self.evals_of(&end.set).next().filter(|first| first.step < end.step && first.is_comparable(end))
    }

    /// Returns whether no line of metrics, demonstrations or evaluations is written yet.
    pub(super) fn is_empty(&self) -> bool {
        self.files.metrics.is_empty() && self.files.sft.is_empty() && self.files.evaluations.is_empty()
    }

    /// Returns the step of the last evaluation of any set.
    pub(super) fn last_evaluated(&self) -> Option<u64> {
        self.files.evaluations.iter().map(|e| e.step).max()
    }

    /// Returns the configured number of steps of an evaluated run if its last step isn't trained and evaluated yet. Without a
    /// configuration, this is unknown.
    pub(super) fn unfinished(&self) -> Option<u64> {
        let (config, evaluated) = (self.files.config().ok()?, self.last_evaluated()?);
        let is_trained = self.files.metrics.last().map_or(0, |m| m.step) >= config.steps;
        let is_evaluated = evaluated >= config.steps || !config.evaluates_at_the_end();
        (!is_trained || !is_evaluated).then_some(config.steps)
    }

    /// Returns a formatted setting by its dotted key.
    pub(super) fn setting(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str)
    }

    /// Returns the last part of a setting's key, in words, with its value: "focal gamma 0.5".
    pub(super) fn named_setting(&self, key: &str) -> String {
        let name = key.rsplit('.').next().unwrap_or(key).replace('_', " ");
        format!("{name} {}", self.setting(key).unwrap_or("\u{2013}"))
    }

    /// Returns the exponent of the focal weight, or 0 without a configuration.
    pub(super) fn focal_gamma(&self) -> f64 {
        self.files.config().map_or(0.0, |config| config.algorithm.focal_gamma())
    }

    /// Returns the name of the method in the paper's spelling, if the run has a configuration.
    pub(super) fn method(&self) -> Option<String> {
        Some(self.files.config().ok()?.method())
    }
}

/// Returns the distinct items, in the order of first occurrence.
pub(super) fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

/// Sorts records by key and keeps the last record of each key, because a resumed run may have written a step twice.
fn last_of_each<T, K: Ord>(records: &mut Vec<T>, notes: &mut Vec<String>, name: &str, key: impl Fn(&T) -> K) {
    let before = records.len();
    records.sort_by_key(&key);
    records.reverse();
    records.dedup_by_key(|r| key(r));
    records.reverse();
    if records.len() < before {
        notes.push(format!(
            "{name}: {} repeated steps; the last record of each counts.",
            before - records.len()
        ));
    }
}

/// Returns the values of a configuration by dotted key, in TOML syntax, but strings without quotation marks.
fn settings(text: &str) -> BTreeMap<String, String> {
    let table = text.parse::<toml::Table>().unwrap_or_default();
    let value = serde_json::to_value(table).unwrap_or_default();
    let display = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    json::leaves(&value, ".").into_iter().map(|(key, value)| (key, display(value))).collect()
}

fn shorten(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(SHOWN_CHARACTERS) {
        let remaining = text[at..].chars().count();
        text.truncate(at);
        text.push_str(&format!("\n[{remaining} more characters]"));
    }
}
