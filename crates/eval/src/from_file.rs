//! Imports samples from another program's file of completions, which are matched to the problems.
//!
//! The file has JSON lines or is a table (CSV, Parquet). A line is `{"problem": ..., "sample": i, "text": "..."}`, or
//! `{"problem": ..., "texts": [...]}` with all samples of a problem. A problem is identified by its hash, by its id in
//! the data set's file, by its question, or, if the data set lacks ids, by its row index in the file, which starts at
//! 0 and counts rejected rows. Instead of `text` the field may be called `response`, `completion`, `output` or
//! `generation`, and the list by the plural.
//!
//! Dumps of other programs ([`crate::dumps`]) are read too. Their problems have the hash that an exported job wrote, or
//! else the one question that the prompt contains.
//!
//! The whole file is checked before anything is stored, so a rejected file changes nothing.

use super::generations::{Generation, Generations};
use crate::dataset::{Problem, rows};
use crate::dumps::{self, Response, dumps};
use crate::prompts::asked;
use crate::row::{Row, plain_text, shown_text};
use crate::samples::MOST_SAMPLES;
use anyhow::Context;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

const TEXT: [&str; 5] = ["text", "response", "completion", "output", "generation"];
const TEXTS: [&str; 5] = ["texts", "responses", "completions", "outputs", "generations"];
const PROBLEM: [&str; 5] = ["problem", "id", "problem_id", "question", "prompt"];

/// Counts of the samples in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    /// Number of new samples.
    pub new: usize,
    /// Number of samples that were already stored.
    pub present: usize,
    /// Number of samples of problems that aren't in the data set.
    pub foreign: usize,
    /// Number of samples of rows that aren't evaluated: rejected, left out, or beyond the end.
    pub no_problem: usize,
    /// Number of stored samples that aren't in the file.
    pub absent: usize,
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} new samples, {} known, {} of problems not in the data",
            self.new, self.present, self.foreign
        )?;
        if self.no_problem > 0 {
            write!(f, ", {} of rows that were rejected or aren't evaluated", self.no_problem)?;
        }
        if self.absent > 0 {
            write!(f, "; {} stored samples are not in this file", self.absent)?;
        }
        Ok(())
    }
}

/// Stores the samples of `path` that aren't stored yet. A sample that is already stored must have the same text.
///
/// Returns an error that names the line if a line is malformed, if a name is ambiguous, if a problem has two names, if
/// a sample is duplicated, or if its text differs from the stored one. Returns bad input if the file can't be read or
/// lacks samples of these problems.
pub fn import(path: &Path, problems: &[&Problem], store: &mut Generations) -> anyhow::Result<Imported> {
    let names = Names::of(problems);
    let stored = stored(problems, store)?;
    let (mut new, mut present) = (0, 0);
    let mut imported = each(path, problems, &names, |line, name, at, sample| {
        match stored.get(&(at, sample.sample)) {
            None => new += 1,
            Some(&text) if text == fingerprint(&sample.text) => present += 1,
            Some(_) => bad_input!(
                [OtherFolder],
                "{} line {line}: sample {} of problem {} differs from the one stored in the folder",
                path.display(),
                sample.sample,
                shown_text(name)
            ),
        }
        Ok(())
    })?;
    (imported.new, imported.present, imported.absent) = (new, present, stored.len() - present);
    if new + present == 0 {
        let cause = match imported.foreign + imported.no_problem {
            0 => "there are no samples in the file".to_owned(),
            n => {
                let ids = problems.iter().find_map(|p| p.source_id.as_deref());
                let example =
                    ids.map(|id| format!(", whose ids look like {}", shown_text(id))).unwrap_or_default();
                format!("none of the {n} samples belongs to a problem of the data set{example}")
            }
        };
        bad_input!("{}: {cause}", path.display());
    }
    if new > 0 {
        let mut batch = Vec::new();
        each(path, problems, &names, |_, _, at, sample| {
            if !stored.contains_key(&(at, sample.sample)) {
                batch.push(sample);
            }
            if batch.len() >= 4096 {
                store.append(&batch)?;
                batch.clear();
            }
            Ok(())
        })?;
        store.append(&batch)?;
        store.sync()?;
    }
    Ok(imported)
}

/// Computes fingerprints of the stored samples' texts, by index of the problem and index of the sample.
fn stored(problems: &[&Problem], store: &Generations) -> anyhow::Result<HashMap<(usize, u64), u64>> {
    let place: HashMap<&str, usize> =
        problems.iter().enumerate().map(|(at, p)| (p.id.as_str(), at)).collect();
    let mut stored = HashMap::new();
    store.each(|sample| {
        if let Some(&at) = place.get(sample.problem.as_str()) {
            stored.insert((at, sample.sample), fingerprint(&sample.text));
        }
        Ok(())
    })?;
    Ok(stored)
}

/// Hashes a text to 64 bits, because the texts of an evaluation may not fit in memory.
fn fingerprint(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Calls `visit` with each sample of a known problem. The arguments are the line number, the problem's name in the file,
/// the index of the problem, and the sample. Counts the samples of other problems.
fn each(
    path: &Path,
    problems: &[&Problem],
    names: &Names,
    mut visit: impl FnMut(usize, &str, usize, Generation) -> anyhow::Result<()>,
) -> anyhow::Result<Imported> {
    let mut counts = Imported::default();
    let mut line_of: HashMap<(usize, u64), usize> = HashMap::new();
    let mut names_of: HashMap<usize, (String, usize)> = HashMap::new();
    let mut next: HashMap<usize, u64> = HashMap::new();
    let mut add = |file: &Path,
                   number: usize,
                   name: String,
                   at: Option<Option<usize>>,
                   texts: &[&str],
                   row: &Row| {
        let at_line = || format!("{} line {number}", file.display());
        let at = match at {
            Some(Some(at)) => at,
            Some(None) => bad_input!(
                "{}: problem: {} names several problems; use the hash of one (prompts.jsonl in the evaluation folder has them)",
                at_line(),
                shown_text(&name)
            ),
            None => {
                let is_number = names.numbers && name.parse::<u64>().is_ok();
                *(if is_number { &mut counts.no_problem } else { &mut counts.foreign }) += texts.len();
                return Ok(());
            }
        };
        let (first, before) = names_of.entry(at).or_insert_with(|| (name.clone(), number));
        if *first != name {
            bad_input!(
                "{}: problem {} is called {} in line {before}; use one name for each problem",
                at_line(),
                shown_text(&name),
                shown_text(first)
            );
        }
        let stated = match row.get("sample") {
            None | Some(Value::Null) => None,
            // An empty table cell.
            Some(Value::String(text)) if text.trim().is_empty() => None,
            Some(value) => match integer(value).filter(|n| *n < MOST_SAMPLES) {
                Some(index) => Some(index),
                None => bad_input!(
                    "{}: sample: expected a whole number from 0 to {}, found {value}",
                    at_line(),
                    MOST_SAMPLES - 1
                ),
            },
        };
        let tokens = row.get("tokens").and_then(integer).filter(|_| texts.len() == 1);
        let finish = row.get("finish").or_else(|| row.get("finish_reason")).and_then(Value::as_str);
        for (j, text) in texts.iter().enumerate() {
            let free = next.entry(at).or_default();
            let sample = stated.map_or(*free, |s| s + j as u64);
            if sample >= MOST_SAMPLES {
                bad_input!(
                    "{}: sample {sample} of a problem exceeds the limit of {MOST_SAMPLES} samples",
                    at_line()
                );
            }
            *free = (*free).max(sample + 1);
            if let Some(before) = line_of.insert((at, sample), number) {
                bad_input!("{}: sample {sample} of problem {name} is also in line {before}", at_line());
            }
            let generation = Generation {
                problem: problems[at].id.clone(),
                sample,
                text: (*text).to_owned(),
                reasoning: None,
                finish: finish.map(str::to_owned),
                tokens,
                graded: None,
            };
            visit(number, &name, at, generation)?;
        }
        Ok(())
    };
    let files = dumps(path)?;
    let mut indices: HashMap<String, Option<Option<usize>>> = HashMap::new();
    for (format, file) in &files {
        for response in dumps::responses(file, *format)? {
            let find = || names.of_response(&response, problems);
            let at = *indices.entry(response.problem.clone()).or_insert_with(find);
            add(file, response.line, response.problem, at, &[&response.text], &Row::new())?;
        }
    }
    if !files.is_empty() {
        return Ok(counts);
    }
    rows::each(path, |number, row| {
        let at_line = || format!("{} line {number}", path.display());
        let Some(name) = PROBLEM.iter().find_map(|key| row.get(*key).and_then(plain_text)) else {
            bad_input!("{}: \"problem\" is missing", at_line());
        };
        let list = TEXTS.iter().find_map(|key| row.get(*key).and_then(Value::as_array));
        let single = TEXT.iter().find_map(|key| row.get(*key).and_then(Value::as_str));
        let texts: Option<Vec<&str>> = match (list, single) {
            (Some(list), _) => list.iter().map(Value::as_str).collect(),
            (None, Some(text)) => Some(vec![text]),
            (None, None) => bad_input!(
                "{}: the completion is missing; name it \"text\", \"response\", \"completion\", \"output\" or \"generation\"",
                at_line()
            ),
        };
        let Some(texts) = texts else {
            bad_input!("{}: a completion in the list isn't a string", at_line())
        };
        add(path, number, name.clone(), names.by_name.get(&name).copied(), &texts, &row)
    })
    .context("samples")?;
    Ok(counts)
}

/// Parses a whole number as JSON, CSV or a table column with missing values writes it: `3`, `"3"` or `3.0`.
fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) => number.as_u64().or_else(|| {
            number.as_f64().filter(|x| x.fract() == 0.0 && (0.0..=1e15).contains(x)).map(|x| x as u64)
        }),
        _ => None,
    }
}

struct Names {
    /// Index of the problem with a name, or `None` for a name that several problems share.
    by_name: HashMap<String, Option<usize>>,
    /// Whether the file may name problems by their row indices.
    numbers: bool,
}

impl Names {
    fn of(problems: &[&Problem]) -> Self {
        let mut by_name: HashMap<String, Option<usize>> =
            problems.iter().enumerate().map(|(at, p)| (p.id.clone(), Some(at))).collect();
        let hashes = by_name.clone();
        let mut call = |name: String, at: usize| {
            if hashes.contains_key(&name) {
                return;
            }
            let entry = by_name.entry(name).or_insert(Some(at));
            if *entry != Some(at) {
                *entry = None;
            }
        };
        // If the data has ids, a number is an id. An unknown id must not match the row with that index.
        let numbers = problems.iter().all(|p| p.source_id.as_deref().is_none());
        for (at, p) in problems.iter().enumerate() {
            if let Some(id) = p.source_id.as_deref() {
                call(id.to_owned(), at);
            }
            call(p.question().to_owned(), at);
            if numbers {
                call(number(at, p).to_string(), at);
            }
        }
        Self { by_name, numbers }
    }

    /// Returns the index of the problem that a dump's response answers, or `Some(None)` if several problems have its name.
    fn of_response(&self, response: &Response, problems: &[&Problem]) -> Option<Option<usize>> {
        let by_name = || self.by_name.get(&response.problem).copied();
        let by_question = || {
            let questions = problems.iter().map(|p| p.question()).enumerate();
            asked(response.question.as_deref()?, questions).map(Some)
        };
        // Other programs name problems by an index in their data set, which may differ, so the question counts first.
        if response.recorded.is_some() {
            by_name().or_else(by_question)
        } else {
            by_question().or_else(by_name)
        }
    }
}

/// Returns the index of a problem's row, from 0, counting rejected rows. For a generated problem, returns its index.
fn number(at: usize, problem: &Problem) -> usize {
    if problem.row > 0 { problem.row - 1 } else { at }
}
