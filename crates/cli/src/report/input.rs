//! A run folder's files, read with tolerance for what an interrupted or older run leaves out.

use anyhow::Context;
use fgrpo_core::maze::{HeldOut, valid_size};
use fgrpo_core::stats::pass_at_k::PassAtK;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::{files, lines};
use fgrpo_eval::record::{Average, Evaluation, Example, PartEvaluation, same_graders};
use fgrpo_files as input;
use fgrpo_train::config::method_name;
use fgrpo_train::run::folder::missing_steps;
pub(super) use fgrpo_train::run::metrics::Logged as Metrics;
use fgrpo_train::run::metrics::Number;
use fgrpo_train::run::rollouts::RolloutLine;
use fgrpo_train::run::sessions::{SESSIONS, Session};
use fgrpo_train::sft::SftLine;
use fgrpo_verify::verdict::Verdict;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

/// The files that make a folder a run folder: one of them is enough.
pub(super) const FILES: [&str; 4] = ["metrics.jsonl", "sft.jsonl", "eval.jsonl", "config.toml"];

/// A line of `sft.jsonl` as it is read.
pub(super) type Sft = SftLine<Number>;

/// At most this many of the latest completions are read.
const LATEST: usize = 4_000;

/// Prompts and completions are cut to this many characters.
const SHOWN_CHARACTERS: usize = 6_000;

/// Whether a folder holds what a run writes.
pub(super) fn is_run_folder(folder: &Path) -> bool {
    FILES.iter().any(|name| folder.join(name).is_file())
}

/// One evaluation of one set: of `eval.jsonl`, or one part of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Eval {
    pub(super) step: u64,
    pub(super) set: String,
    pub(super) samples: usize,
    /// What tells the problems from others; empty in files that don't say.
    pub(super) problem_set: String,
    /// What graded; empty in files that don't say.
    pub(super) graders: Vec<String>,
    pub(super) counts: PartEvaluation,
    pub(super) examples: Vec<Example>,
}

impl Eval {
    /// pass@k as recorded, or from the problems' counts.
    pub(super) fn pass_at(&self, k: usize) -> Option<f64> {
        if let Some(p) = self.counts.pass_at_k.get(&k) {
            return Some(*p);
        }
        let problems: Vec<f64> = self.problems_at(k)?.into_iter().flatten().collect();
        (!problems.is_empty()).then(|| problems.iter().sum::<f64>() / problems.len() as f64)
    }

    /// pass@k of each problem, where it has k scored samples; nothing without counts.
    pub(super) fn problems_at(&self, k: usize) -> Option<Vec<Option<f64>>> {
        if self.counts.per_problem.is_empty() || !(1..=self.samples).contains(&k) {
            return None;
        }
        let whole = PassAtK::new(self.samples, k);
        let at = |(i, &correct): (usize, &usize)| {
            let scored = self.counts.scored_per_problem.get(i).copied().unwrap_or(self.samples);
            match scored {
                n if n < k || correct > n => None,
                n if n == self.samples => Some(whole.at(correct)),
                n => Some(PassAtK::new(n, k).at(correct)),
            }
        };
        Some(self.counts.per_problem.iter().enumerate().map(at).collect())
    }

    /// Correct samples of each problem; none of a problem without a scored sample.
    pub(super) fn correct(&self) -> Vec<Option<usize>> {
        let scored = |i: usize| self.counts.scored_per_problem.get(i).is_none_or(|scored| *scored > 0);
        let counts = self.counts.per_problem.iter().enumerate();
        counts.map(|(i, &correct)| scored(i).then_some(correct)).collect()
    }

    /// Whether both are on the same problems and graded alike, as far as their files say: a resume may have changed either.
    pub(super) fn is_comparable(&self, other: &Self) -> bool {
        self.problem_set == other.problem_set && same_graders(&self.graders, &other.graders)
    }

    /// The ks recorded, ascending.
    pub(super) fn ks(&self) -> Vec<usize> {
        self.counts.pass_at_k.keys().copied().collect()
    }

    /// The interval recorded for k.
    pub(super) fn interval_at(&self, k: usize) -> Option<[f64; 2]> {
        self.counts.interval.get(&k).copied()
    }
}

/// Everything a report says about one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    /// The folder's name, made longer where several runs share it.
    pub(super) name: String,
    pub(super) path: String,
    /// Values by dotted key, of the resolved configuration.
    pub(super) config: BTreeMap<String, String>,
    pub(super) config_text: String,
    pub(super) sessions: Vec<Session>,
    pub(super) metrics: Vec<Metrics>,
    pub(super) sft: Vec<Sft>,
    pub(super) evals: Vec<Eval>,
    pub(super) rollouts: Vec<RolloutLine>,
    /// Completions of the last evaluation of each set.
    pub(super) examples: Vec<RolloutLine>,
    /// What was tolerated while reading it.
    pub(super) notes: Vec<String>,
}

impl Run {
    /// Reads a run folder.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let full = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        let mut run = Self {
            name: full.file_name().map_or_else(|| full.display().to_string(), |n| n.to_string_lossy().into()),
            path: full.display().to_string(),
            ..Self::default()
        };
        let config = folder.join("config.toml");
        if config.is_file() {
            run.config_text = input::read_to_string(&config, input::SETTINGS)
                .with_context(|| format!("reading {}", config.display()))?;
            let table: toml::Table =
                run.config_text.parse().with_context(|| config.display().to_string()).or_bad_input()?;
            flatten("", &toml::Value::Table(table), &mut run.config);
        } else {
            run.notes.push("config.toml is missing: settings can't be shown or compared.".into());
        }
        let mut notes = std::mem::take(&mut run.notes);
        read_lines(&folder.join(SESSIONS), &mut notes, |s: Session| run.sessions.push(s))?;
        read_lines(&folder.join("metrics.jsonl"), &mut notes, |m: Metrics| run.metrics.push(m))?;
        read_lines(&folder.join("sft.jsonl"), &mut notes, |s: Sft| run.sft.push(s))?;
        read_lines(&folder.join("eval.jsonl"), &mut notes, |e: Evaluation| run.add(e))?;
        let mut latest = VecDeque::new();
        read_lines(&folder.join("rollouts.jsonl"), &mut notes, |mut r: RolloutLine| {
            shorten(&mut r.prompt);
            shorten(&mut r.completion);
            if latest.len() == LATEST {
                latest.pop_front();
            }
            latest.push_back(r);
        })?;
        run.rollouts = latest.into();
        if run.metrics.is_empty() && run.sft.is_empty() && run.evals.is_empty() {
            bad_input!(
                "{}: nothing to report yet: metrics.jsonl, sft.jsonl and eval.jsonl are missing or empty",
                folder.display()
            );
        }
        if run.metrics.is_empty() {
            notes.push("metrics.jsonl has no step yet: only demonstrations or evaluations are shown.".into());
        }
        last_of_each(&mut run.metrics, &mut notes, "metrics.jsonl", |m| m.step);
        last_of_each(&mut run.sft, &mut notes, "sft.jsonl", |s| s.step);
        last_of_each(&mut run.evals, &mut notes, "eval.jsonl", |e| (e.set.clone(), e.step));
        let steps: Vec<u64> = run.metrics.iter().map(|m| m.step).collect();
        let missing = missing_steps(&steps, steps.last().copied().unwrap_or(0));
        if !missing.is_empty() {
            notes.push(format!(
                "metrics.jsonl has no lines of steps {missing}: they were lost, as after a power failure."
            ));
        }
        run.notes = notes;
        run.examples = run.last_examples();
        Ok(run)
    }

    /// Adds an evaluation, and each of its parts as one of its own.
    fn add(&mut self, e: Evaluation) {
        let Evaluation { step, samples, problem_set, graders, .. } = e;
        // A mean over parts is no mean over problems: what is compared problem by problem are the parts.
        let (per_problem, scored_per_problem) = match e.average {
            Average::Parts if !e.parts.is_empty() => (Vec::new(), Vec::new()),
            _ => (e.per_problem, e.scored_per_problem),
        };
        let whole = PartEvaluation {
            pass_at_k: e.pass_at_k,
            interval: e.interval,
            per_problem,
            scored_per_problem,
            ..PartEvaluation::default()
        };
        let of = |set, counts, examples| Eval {
            step,
            set,
            samples,
            problem_set: problem_set.clone(),
            graders: graders.clone(),
            counts,
            examples,
        };
        self.evals.push(of(e.set.clone(), whole, e.examples));
        let parts = e.parts.into_iter();
        self.evals.extend(parts.map(|(name, counts)| of(format!("{}, {name}", e.set), counts, Vec::new())));
    }

    /// The last evaluations' examples, as completions with nothing but what an evaluation knows.
    fn last_examples(&self) -> Vec<RolloutLine> {
        let mazes = self.held_out_mazes();
        let example = |step: u64, e: &Example| {
            let mut completion = e.completion.clone();
            shorten(&mut completion);
            // A held-out maze is told by its index from the training maze of the same place.
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
                verdict: if e.correct { Verdict::Correct } else { Verdict::Wrong },
                reason: String::new(),
                printed: None,
                advantage: None,
                length: None,
                old_logp_mean: None,
            }
        };
        let last = self.sets().into_iter().filter_map(|set| self.evals_of(set).next_back());
        last.flat_map(|eval| eval.examples.iter().map(move |e| example(eval.step, e))).collect()
    }

    /// The indices of the held-out mazes; none if the task is another.
    fn held_out_mazes(&self) -> Vec<u64> {
        let number = |key: &str| self.setting(key)?.parse().ok();
        let of_task = || {
            let size =
                number("task.size").and_then(|s| usize::try_from(s).ok()).filter(|&s| valid_size(s))?;
            let seed = number("task.seed").or(number("seed"))?;
            let held_out = HeldOut::new(size, seed, number("task.held_out")?);
            Some(held_out.mazes().iter().map(|(index, _)| *index).collect())
        };
        (self.setting("task.kind") == Some("maze")).then(of_task).flatten().unwrap_or_default()
    }

    /// The evaluated sets' names, in alphabetical order.
    pub(super) fn sets(&self) -> Vec<&str> {
        distinct(self.evals.iter().map(|eval| eval.set.as_str()))
    }

    /// The evaluations of a set, by step.
    pub(super) fn evals_of<'a>(&'a self, set: &'a str) -> impl DoubleEndedIterator<Item = &'a Eval> {
        self.evals.iter().filter(move |e| e.set == set)
    }

    /// The first evaluation of a set, where others follow it, the last of which it can be compared with.
    pub(super) fn start_of<'a>(&'a self, set: &'a str) -> Option<&'a Eval> {
        let mut evals = self.evals_of(set);
        let (first, last) = (evals.next()?, evals.next_back()?);
        first.is_comparable(last).then_some(first)
    }

    /// A configured value by its dotted key.
    pub(super) fn setting(&self, key: &str) -> Option<&str> {
        self.config.get(key).map(String::as_str)
    }

    /// The focal weight's exponent; 0 where none is configured.
    pub(super) fn focal_gamma(&self) -> f64 {
        self.setting("algorithm.focal_gamma").and_then(|g| g.parse().ok()).unwrap_or(0.0)
    }

    /// The method's name as the paper writes it, as far as the configuration tells.
    pub(super) fn method(&self) -> Option<String> {
        let kind = |key: &str| self.setting(&format!("{key}.kind")).or_else(|| self.setting(key));
        let loss = kind("algorithm.loss").unwrap_or("grpo");
        let advantage = kind("algorithm.advantage")?;
        let gamma = self.focal_gamma();
        let name = method_name(advantage, loss, gamma);
        Some(if gamma > 0.0 { format!("{name} gamma {gamma}") } else { name })
    }
}

/// Each item once, in the order of their first places.
pub(super) fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

/// Hands over every record of a file of the run; a missing file has none. A torn last line becomes a note.
fn read_lines<T: DeserializeOwned>(
    path: &Path,
    notes: &mut Vec<String>,
    mut record: impl FnMut(T),
) -> anyhow::Result<()> {
    let end = lines::each(path, |line| {
        record(line);
        Ok(())
    })?;
    if let Some(line) = end.torn {
        let name = files::name(path);
        notes.push(format!(
            "{name}: the last line ({line}) is torn and was left out; the run was interrupted while writing it."
        ));
    }
    Ok(())
}

/// Sorts by key and keeps the last record of each: a resumed run may have written a step twice.
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

fn flatten(prefix: &str, value: &toml::Value, into: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&key, value, into);
            }
        }
        toml::Value::String(s) => {
            into.insert(prefix.into(), s.clone());
        }
        other => {
            into.insert(prefix.into(), other.to_string());
        }
    }
}

fn shorten(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(SHOWN_CHARACTERS) {
        let left = text[at..].chars().count();
        text.truncate(at);
        text.push_str(&format!("\n[{left} more characters]"));
    }
}
