//! Graded samples: the JSON lines that `eval` writes and that `pass-at-k`, `compare`, `plan` and `table` read.
//!
//! A line is a sample, `{"problem": id, "sample": i, "correct": bool, ...}`, or the counts of a problem, `{"problem":
//! id, "n": 1024, "c": 17}`. If the lines of a problem lack `sample`, its samples are indexed in file order. A line
//! may name its `benchmark`; the default is the file's stem. An unscorable sample (`"verdict": "unscorable"`, or
//! `"correct": null`) isn't part of its problem's n: it is counted separately, never as wrong.

use crate::dataset::rows;
use crate::graded::Followed;
use crate::io::files;
use crate::io::lines::Lines;
use fgrpo_core::stats::hypergeometric::Counts;
use fgrpo_core::stats::majority::Votes;
use fgrpo_verify::verdict::Verdict;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Fraction of unscorable samples above which results are doubtful: an evaluation fails, a comparison or report warns.
pub const MOST_UNSCORABLE: f64 = 0.01;

/// File name of the scored samples in an evaluation folder.
pub const SCORED: &str = "samples.jsonl";

/// Maximum number of samples per problem, as in `fgrpo eval -n`. A larger number suggests a wrong column.
pub const MOST_SAMPLES: u64 = 1_000_000;

/// Maximum token count of a line, so that the sum over all lines doesn't overflow.
const MOST_TOKENS: u64 = 1 << 40;

/// One graded sample, a line of `samples.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GradedSample {
    /// Name of the data set.
    pub benchmark: String,
    /// Hash of the problem.
    pub problem: String,
    /// Index among the problem's samples.
    pub sample: u64,
    /// Whether the sample is correct; null if it is unscorable.
    pub correct: Option<bool>,
    /// The verifier's verdict.
    pub verdict: Verdict,
    /// Reason code of the verdict.
    pub reason: String,
    /// The reward, if the grader gives partial credit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// The extracted answer, if this kind of problem has majority votes. It is `null` if the completion lacks an answer.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub answer: Option<Option<String>>,
    /// Subject, if the data has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Id of the problem in the data set's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Number of generated tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The finish reason, such as `stop` or `length`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<String>,
    /// Tag of the verifier, version, settings and reference answer that produced the verdict.
    pub verifier: String,
    /// Instructions that the completion follows, if the problem has instructions.
    #[serde(flatten)]
    pub followed: Option<Followed>,
}

/// Counts of one problem's samples.
#[derive(Debug, Clone, Default)]
pub struct ProblemCounts {
    /// Name of the problem in the file of samples.
    pub id: String,
    /// Id of the problem in the data set, if the samples have it.
    pub data_id: Option<String>,
    /// Number of scored samples, n.
    pub samples: u64,
    /// Number of correct samples, c.
    pub correct: u64,
    /// Number of unscorable samples, whose verifier failed.
    pub unscorable: u64,
    /// Number of samples that ended at the length limit, and number of samples with a finish reason.
    pub truncated: (u64, u64),
    /// Number of generated tokens, and the number of samples that report it.
    pub tokens: (u64, u64),
    /// Sum of the graded rewards, and number of samples that have one.
    pub rewards: (f64, u64),
    /// Subject, if the data has one.
    pub subject: Option<String>,
    /// Cluster of the problem, if the samples were read with clusters ([`crate::clusters`]): problems from one source.
    pub cluster: Option<String>,
    /// Reference answer of the problem, if the samples have it. Problems with the same id but different reference
    /// answers are different problems.
    pub reference: Option<String>,
    /// Question of the problem, or the prompt that contains it, if known. `fgrpo compare` matches problems by it if
    /// the ids of two programs differ.
    pub question: Option<String>,
    /// Verifier and settings that graded the samples, if the samples have it.
    pub verifier: Option<String>,
    /// Number of samples of each wrong answer, by answer.
    wrong_answers: BTreeMap<String, u64>,
    /// Numbers of wrong and of correct samples with a null answer. Such samples don't vote.
    silent: [u64; 2],
}

impl ProblemCounts {
    /// Creates the counts of a problem about which nothing else is known.
    pub fn counted(id: String, samples: u64, correct: u64) -> Self {
        Self { id, samples, correct, ..Self::default() }
    }

    /// Returns the problem's id in the data set, or else the problem's name in the file.
    pub fn name(&self) -> &str {
        self.data_id.as_deref().unwrap_or(&self.id)
    }

    /// Returns the counts n and c in the form that the statistics take.
    pub fn counts(&self) -> Counts {
        Counts { samples: self.samples, correct: self.correct }
    }

    /// Returns the total number of samples, scored and unscorable.
    pub fn planned(&self) -> u64 {
        self.samples + self.unscorable
    }

    /// Returns the majority votes, or `None` if a wrong sample lacks the answer field.
    pub fn votes(&self) -> Option<Votes> {
        let wrong: u64 = self.wrong_answers.values().sum();
        let [silent_wrong, silent_correct] = self.silent;
        (wrong + silent_wrong == self.samples - self.correct).then(|| Votes {
            correct: (self.correct - silent_correct) as usize,
            wrong: self.wrong_answers.values().map(|&v| v as usize).collect(),
            silent: (silent_wrong + silent_correct) as usize,
        })
    }
}

/// The problems of one data set, for one model.
#[derive(Debug, Clone)]
pub struct Benchmark {
    /// Name of the data set.
    pub name: String,
    /// Path that the samples were read from.
    pub path: PathBuf,
    /// The problems, in the order of their first line.
    pub problems: Vec<ProblemCounts>,
}

impl Benchmark {
    /// Returns an error that names two problems if they have different numbers of samples.
    pub fn require_equal_samples(&self) -> anyhow::Result<()> {
        let Some(first) = self.problems.first() else { return Ok(()) };
        if let Some(other) = self.problems.iter().find(|p| p.planned() != first.planned()) {
            bad_input!(
                [Uneven],
                "{}: problem {} has {} samples and problem {} has {}; finish the evaluation",
                self.path.display(),
                first.id,
                first.planned(),
                other.id,
                other.planned()
            );
        }
        Ok(())
    }

    /// Returns an error if a problem has fewer than k scored samples.
    pub fn require_samples(&self, k: u64) -> anyhow::Result<()> {
        self.require_scored()?;
        if let Some(p) = self.problems.iter().find(|p| p.samples < k) {
            let unscorable = match p.unscorable {
                0 => String::new(),
                u => format!(" ({u} more are unscorable)"),
            };
            bad_input!(
                "{}: pass@{k} needs {k} scored samples per problem, but problem {} has {}{unscorable}; choose a smaller k",
                self.path.display(),
                p.id,
                p.samples
            );
        }
        Ok(())
    }

    /// Returns an error if a problem lacks scored samples, because its pass@k can't be estimated.
    pub fn require_scored(&self) -> anyhow::Result<()> {
        let unscored: Vec<&ProblemCounts> = self.problems.iter().filter(|p| p.samples == 0).collect();
        let Some(first) = unscored.first() else { return Ok(()) };
        let unscorable = match first.unscorable {
            0 => "it has no samples".to_owned(),
            u => format!("all {u} are unscorable: fix the grader and grade the samples again"),
        };
        bad_input!(
            "{}: {} of {} problems have no scored sample, such as problem {}: {unscorable}",
            self.path.display(),
            unscored.len(),
            self.problems.len(),
            first.id
        );
    }

    /// Returns the smallest number of scored samples of any problem.
    pub fn fewest(&self) -> u64 {
        self.problems.iter().map(|p| p.samples).min().unwrap_or(0)
    }

    /// Averages the reward over each problem's scored samples and then over problems. Returns `None` if a scored sample
    /// lacks a numeric reward.
    pub fn mean_reward(&self) -> Option<f64> {
        let graded = |p: &ProblemCounts| p.rewards.1 > 0 && p.rewards.1 == p.samples;
        let mean = |p: &ProblemCounts| p.rewards.0 / p.rewards.1 as f64;
        (!self.problems.is_empty() && self.problems.iter().all(graded))
            .then(|| self.problems.iter().map(mean).sum::<f64>() / self.problems.len() as f64)
    }

    /// Returns the number of clusters, if the problems have them.
    pub fn clusters(&self) -> Option<usize> {
        let clusters: BTreeSet<&str> = self.problems.iter().filter_map(|p| p.cluster.as_deref()).collect();
        (!clusters.is_empty()).then_some(clusters.len())
    }

    /// Returns the fraction of unscorable samples; see [`MOST_UNSCORABLE`].
    pub fn unscorable_share(&self) -> f64 {
        let all: u64 = self.problems.iter().map(ProblemCounts::planned).sum();
        self.problems.iter().map(|p| p.unscorable).sum::<u64>() as f64 / (all as f64).max(1.0)
    }

    /// Returns the fraction of samples that ended at the length limit, if the samples have a finish reason.
    pub fn truncated_share(&self) -> Option<f64> {
        let (cut, all) =
            self.problems.iter().fold((0, 0), |(cut, all), p| (cut + p.truncated.0, all + p.truncated.1));
        (all > 0).then(|| cut as f64 / all as f64)
    }

    /// Returns the mean over problems of the total tokens of a problem's samples, if every sample reports its tokens.
    pub fn tokens_per_problem(&self) -> Option<f64> {
        let all = !self.problems.is_empty() && self.problems.iter().all(|p| p.tokens.1 == p.planned());
        let tokens: u64 = self.problems.iter().map(|p| p.tokens.0).sum();
        all.then(|| tokens as f64 / self.problems.len() as f64)
    }

    /// Groups the problems by subject. The map is empty if the data lacks subjects.
    pub fn subjects(&self) -> BTreeMap<&str, Vec<&ProblemCounts>> {
        let mut subjects: BTreeMap<&str, Vec<&ProblemCounts>> = BTreeMap::new();
        for p in &self.problems {
            if let Some(subject) = &p.subject {
                subjects.entry(subject).or_default().push(p);
            }
        }
        subjects
    }
}

/// Fields of a line. The aliases are the names that other programs use, such as HumanEval's `task_id` and `passed`, or
/// `question_id` and `is_correct`.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, alias = "problem_id", alias = "question_id", alias = "task_id", alias = "doc_id")]
    problem: Id<'a>,
    #[serde(alias = "sample_id", alias = "sample_index", alias = "completion_id", alias = "attempt")]
    sample: Option<u64>,
    #[serde(borrow)]
    id: Option<EvalField<Id<'a>>>,
    #[serde(
        default,
        deserialize_with = "present",
        alias = "is_correct",
        alias = "passed",
        alias = "success"
    )]
    correct: Option<Option<Truth>>,
    #[serde(borrow)]
    verdict: Option<Cow<'a, str>>,
    n: Option<u64>,
    c: Option<u64>,
    unscorable: Option<u64>,
    #[serde(borrow)]
    benchmark: Option<Cow<'a, str>>,
    #[serde(borrow)]
    subject: Option<Id<'a>>,
    #[serde(borrow)]
    verifier: Option<EvalField<Id<'a>>>,
    tokens: Option<u64>,
    reward: Option<EvalField<f64>>,
    #[serde(borrow)]
    finish: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "present")]
    answer: Option<Option<String>>,
}

impl<'a> From<&'a GradedSample> for Line<'a> {
    fn from(sample: &'a GradedSample) -> Self {
        let text = |text: &'a str| Id::Text(Cow::Borrowed(text));
        Self {
            problem: text(&sample.problem),
            sample: Some(sample.sample),
            id: sample.id.as_deref().map(|id| EvalField::Known(text(id))),
            correct: Some(sample.correct.map(Truth::Bool)),
            verdict: None,
            n: None,
            c: None,
            unscorable: None,
            benchmark: Some(Cow::Borrowed(&sample.benchmark)),
            subject: sample.subject.as_deref().map(text),
            verifier: Some(EvalField::Known(text(&sample.verifier))),
            tokens: sample.tokens,
            reward: sample.reward.map(EvalField::Known),
            finish: sample.finish.as_deref().map(Cow::Borrowed),
            answer: sample.answer.clone(),
        }
    }
}

/// Deserializes a field so that null (`Some(None)`) differs from an absent field (`None`).
pub(crate) fn present<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(
    d: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(d).map(Some)
}

/// Name of a problem. Fractions and numbers from 2^64 are rejected, because as doubles two different ones could be equal.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a whole number below 2^64 (quote other numbers)")]
pub(crate) enum Id<'a> {
    Text(Cow<'a, str>),
    Whole(u64),
    Negative(i64),
}

/// A field that `fgrpo eval` writes. In files of other programs it may be anything, which is ignored.
#[derive(Deserialize)]
#[serde(untagged)]
enum EvalField<T> {
    Known(T),
    Other(serde::de::IgnoredAny),
}

impl std::fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Id::Text(text) => f.write_str(text),
            Id::Whole(number) => number.fmt(f),
            Id::Negative(number) => number.fmt(f),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected true, false or a number")]
enum Truth {
    Bool(bool),
    Number(f64),
}

/// Returns whether the sample of a line is correct; `None` if it is unscorable.
fn score(line: &Line<'_>) -> Result<Option<bool>, String> {
    let correct = match line.correct {
        Some(Some(Truth::Bool(correct))) => Some(correct),
        Some(Some(Truth::Number(x))) if x == 0.0 || x == 1.0 => Some(x == 1.0),
        Some(Some(Truth::Number(x))) => {
            return Err(format!("correct: expected true, false or null, found {x}"));
        }
        Some(None) | None => None,
    };
    let verdict = match line.verdict.as_deref() {
        Some("correct") => Some(true),
        Some("wrong" | "unparsed") => Some(false),
        Some("unscorable") => None,
        Some(other) => {
            return Err(format!(
                "verdict: expected \"correct\", \"wrong\", \"unparsed\" or \"unscorable\", found {other:?}"
            ));
        }
        None if line.correct.is_some() => return Ok(correct),
        None => return Err("the line has neither \"correct\" nor \"verdict\" nor \"n\" and \"c\"".to_owned()),
    };
    match correct {
        // Other programs count a sample that wasn't scored as wrong.
        Some(correct) if correct != verdict.unwrap_or(false) => Err(format!(
            "\"correct\" is {correct}, but the verdict is {:?}",
            line.verdict.as_deref().unwrap_or_default()
        )),
        _ => Ok(verdict),
    }
}

#[derive(Default)]
struct Gathered {
    problem: ProblemCounts,
    /// Sample indices read so far. The set is empty for a problem given by counts.
    seen: HashSet<u64>,
    /// Whether the problem's lines have sample indices; `None` before the first line.
    numbered: Option<bool>,
    counted: bool,
}

impl Gathered {
    fn add(&mut self, line: &Line<'_>) -> Result<(), String> {
        let p = &mut self.problem;
        if let Some(tokens) = line.tokens.filter(|&t| t > MOST_TOKENS) {
            return Err(format!("problem {}: tokens: expected at most {MOST_TOKENS}, found {tokens}", p.id));
        }
        let name = |field: &Option<EvalField<Id<'_>>>| match field {
            Some(EvalField::Known(name)) => Some(name.to_string()),
            _ => None,
        };
        if p.data_id.is_none() {
            p.data_id = name(&line.id);
        }
        if p.verifier.is_none() {
            p.verifier = name(&line.verifier);
        }
        if p.subject.is_none() {
            p.subject = line.subject.as_ref().map(ToString::to_string);
        }
        if line.n.is_some() || line.c.is_some() {
            let (Some(n), Some(c)) = (line.n, line.c) else {
                return Err("\"n\" and \"c\" must be given together".to_owned());
            };
            if self.counted || !self.seen.is_empty() {
                return Err(format!("problem {} appears twice", p.id));
            }
            if c > n {
                return Err(format!("problem {}: c = {c} is more than n = {n}", p.id));
            }
            let unscorable = line.unscorable.unwrap_or(0);
            for (field, value) in [("n", n), ("unscorable", unscorable)] {
                if value > MOST_SAMPLES {
                    return Err(format!(
                        "problem {}: {field}: expected at most {MOST_SAMPLES}, found {value}",
                        p.id
                    ));
                }
            }
            self.counted = true;
            (p.samples, p.correct, p.unscorable) = (n, c, unscorable);
            if let Some(tokens) = line.tokens {
                p.tokens = (tokens, p.planned());
            }
            return Ok(());
        }
        // Samples without an index are indexed in file order, so either all lines of a problem have an index or none has.
        if *self.numbered.get_or_insert(line.sample.is_some()) != line.sample.is_some() {
            return Err(format!(
                "problem {}: some lines have \"sample\" and some don't; give it in all of them or in none",
                p.id
            ));
        }
        let index = line.sample.unwrap_or(p.planned());
        if self.counted {
            return Err(format!("problem {} already has a line of counts", p.id));
        }
        if index >= MOST_SAMPLES {
            return Err(format!("sample: expected an index below {MOST_SAMPLES}, found {index}"));
        }
        if !self.seen.insert(index) {
            return Err(format!("problem {}: sample {index} appears twice", p.id));
        }
        match score(line)? {
            None => p.unscorable += 1,
            Some(true) => {
                p.samples += 1;
                p.correct += 1;
                p.silent[1] += u64::from(matches!(line.answer, Some(None)));
            }
            Some(false) => {
                p.samples += 1;
                match &line.answer {
                    Some(Some(answer)) => *p.wrong_answers.entry(answer.clone()).or_default() += 1,
                    Some(None) => p.silent[0] += 1,
                    None => {}
                }
            }
        }
        if let Some(tokens) = line.tokens {
            p.tokens = (p.tokens.0 + tokens, p.tokens.1 + 1);
        }
        if let Some(EvalField::Known(reward)) = line.reward {
            p.rewards = (p.rewards.0 + reward, p.rewards.1 + 1);
        }
        if let Some(finish) = &line.finish {
            p.truncated = (p.truncated.0 + u64::from(finish == "length"), p.truncated.1 + 1);
        }
        Ok(())
    }
}

/// Collects lines by benchmark and problem, in order of first appearance.
#[derive(Default)]
struct Gathering {
    order: Vec<(String, PathBuf, Vec<Gathered>)>,
    /// Index in `order`, by benchmark and problem.
    benchmarks: HashMap<String, (usize, HashMap<String, usize>)>,
}

impl Gathering {
    fn read(&mut self, path: &Path) -> anyhow::Result<()> {
        rows::require_lines(path)?;
        let stem = files::stem(path);
        let mut lines = Lines::open(path)?;
        let mut empty = true;
        while let Some(line) = lines.next_line()? {
            empty = false;
            if let Err(reason) = self.add(&line.parse()?, &stem, path) {
                bad_input!("{line}: {reason}");
            }
        }
        if empty {
            bad_input!("{}: the file is empty", path.display());
        }
        Ok(())
    }

    fn add(&mut self, line: &Line<'_>, stem: &str, path: &Path) -> Result<(), String> {
        let name = line.benchmark.as_deref().unwrap_or(stem);
        if !self.benchmarks.contains_key(name) {
            self.benchmarks.insert(name.to_owned(), (self.order.len(), HashMap::new()));
            self.order.push((name.to_owned(), path.to_owned(), Vec::new()));
        }
        let Some((at, problems)) = self.benchmarks.get_mut(name) else { return Ok(()) };
        let list = &mut self.order[*at].2;
        let owned;
        let id = match &line.problem {
            Id::Text(text) => text.as_ref(),
            number => {
                owned = number.to_string();
                &owned
            }
        };
        let index = match problems.get(id) {
            Some(&index) => index,
            None => {
                problems.insert(id.to_owned(), list.len());
                list.push(Gathered {
                    problem: ProblemCounts { id: id.to_owned(), ..ProblemCounts::default() },
                    ..Gathered::default()
                });
                list.len() - 1
            }
        };
        list[index].add(line)
    }

    fn finish(self) -> Vec<Benchmark> {
        self.order
            .into_iter()
            .map(|(name, path, problems)| Benchmark {
                name,
                path,
                problems: problems.into_iter().map(|g| g.problem).collect(),
            })
            .collect()
    }
}

/// Returns whether the file has the extension of JSON lines (`.jsonl`), compressed or not.
pub fn is_lines(path: &Path) -> bool {
    let plain = if files::is_compressed(path) { path.with_extension("") } else { path.to_owned() };
    plain.extension().is_some_and(|e| e == "jsonl")
}

/// Lists the files of samples for a path on the command line: the file itself, the scored samples of an evaluation
/// folder, the files of JSON lines in a folder in alphabetical order, or the scored samples of the evaluation folders
/// in it.
///
/// Returns an error if the folder can't be listed or contains none of these.
pub fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let scored = path.join(SCORED);
    if scored.is_file() {
        return Ok(vec![scored]);
    }
    let entries = files::listed(path)?;
    let mut files: Vec<PathBuf> = entries.iter().filter(|p| is_lines(p)).cloned().collect();
    if files.is_empty() {
        // A folder with an evaluation folder for each benchmark.
        files = entries.iter().map(|folder| folder.join(SCORED)).filter(|p| p.is_file()).collect();
    }
    if files.is_empty() {
        bad_input!(
            "{}: the folder has no samples; it needs {SCORED}, other files of JSON lines (.jsonl, .jsonl.gz, .jsonl.zst) or evaluation folders",
            path.display()
        );
    }
    Ok(files)
}

/// Reads the samples of one path: a file, an evaluation folder, or a folder with a file per benchmark.
///
/// Returns an error that names the file and the line if a line is malformed, a sample is duplicated or c > n, and an
/// error if a file or a problem lacks samples.
pub fn read(path: &Path) -> anyhow::Result<Vec<Benchmark>> {
    let mut gathering = Gathering::default();
    for file in files(path)? {
        gathering.read(&file)?;
    }
    let benchmarks = gathering.finish();
    for b in &benchmarks {
        if let Some(p) = b.problems.iter().find(|p| p.planned() == 0) {
            bad_input!("{}: problem {} has no samples", b.path.display(), p.id);
        }
    }
    Ok(benchmarks)
}

/// Counts graded samples that are in memory. `path` is the file that contains them, for messages.
///
/// Returns an error if a sample appears twice or has too many tokens.
pub fn count(graded: &[GradedSample], path: &Path) -> anyhow::Result<Vec<Benchmark>> {
    let mut gathering = Gathering::default();
    for sample in graded {
        if let Err(reason) = gathering.add(&sample.into(), &sample.benchmark, path) {
            bad_input!("{}: {reason}", path.display());
        }
    }
    Ok(gathering.finish())
}

/// Reads several paths as parts of the same benchmarks, and joins benchmarks of the same name. Returns an error if lines
/// don't name their benchmark, so that nothing could be joined.
pub fn merged(paths: &[PathBuf]) -> anyhow::Result<Vec<Benchmark>> {
    let mut gathering = Gathering::default();
    let mut count = 0;
    for path in paths {
        for file in files(path)? {
            gathering.read(&file)?;
            count += 1;
        }
    }
    let benchmarks = gathering.finish();
    // Benchmarks named only by their files can't be joined: the parts of one benchmark need the same name.
    if benchmarks.len() > 1
        && benchmarks.len() == count
        && benchmarks.iter().all(|b| b.name == files::stem(&b.path))
    {
        bad_input!(
            "a merge joins lines of the same \"benchmark\", but these files don't name one and would stay {count} benchmarks ({})",
            benchmarks.iter().map(|b| b.name.as_str()).collect::<Vec<_>>().join(", ")
        );
    }
    Ok(benchmarks)
}
