//! Samples from another program: a file of completions, matched to the problems.
//!
//! The file has lines of JSON or is a table (CSV, Parquet). A line is `{"problem": ..., "sample": i, "text": "..."}`,
//! or `{"problem": ..., "texts": [...]}` with all samples of a problem. A problem is identified by its hash, by the id
//! in the data set's file, by its number in the file (from 0), or by its question. The text may also be called
//! `response`, `completion` or `output`, and the list by the plural.

use super::generations::{Generation, Generations};
use crate::bad_input;
use crate::evaluation::samples::MOST_SAMPLES;
use crate::problem::dataset::rows;
use crate::problem::held_out::{EvalProblem, Question};
use anyhow::Context;
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

const TEXT: [&str; 5] = ["text", "response", "completion", "output", "generation"];
const TEXTS: [&str; 5] = ["texts", "responses", "completions", "outputs", "generations"];
const PROBLEM: [&str; 5] = ["problem", "id", "problem_id", "question", "prompt"];

/// Counts of the samples in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    /// Samples that were new.
    pub new: usize,
    /// Samples that were already stored.
    pub known: usize,
    /// Samples of problems that aren't in the data set.
    pub foreign: usize,
}

/// Stores the samples of `path`.
///
/// # Errors
/// Bad input that names the line: malformed, unknown problem, duplicate.
pub fn import(path: &Path, problems: &[&EvalProblem], store: &mut Generations) -> anyhow::Result<Imported> {
    let names = names(problems);
    let mut imported = Imported::default();
    let mut given: HashMap<(usize, u64), usize> = HashMap::new();
    let mut next: HashMap<usize, u64> = HashMap::new();
    let mut batch = Vec::new();
    rows::each(path, |number, row| {
        let Some(name) = PROBLEM.iter().find_map(|key| row.get(*key).and_then(scalar)) else {
            bad_input!("{} line {number}: found no \"problem\"", path.display());
        };
        let listed = TEXTS.iter().find_map(|key| row.get(*key).and_then(Value::as_array));
        let single = TEXT.iter().find_map(|key| row.get(*key).and_then(Value::as_str));
        let texts: Vec<&str> = match (listed, single) {
            (Some(list), _) => match list.iter().map(Value::as_str).collect::<Option<Vec<_>>>() {
                Some(texts) => texts,
                None => {
                    bad_input!("{} line {number}: found a list with an element that isn't a text, wanted texts", path.display())
                }
            },
            (None, Some(text)) => vec![text],
            (None, None) => bad_input!(
                "{} line {number}: found no text, wanted \"text\", \"response\", \"completion\" or \"output\"",
                path.display()
            ),
        };
        let Some(&at) = names.get(&name) else {
            imported.foreign += texts.len();
            return Ok(());
        };
        let stated = match row.get("sample") {
            None | Some(Value::Null) => None,
            // An empty table cell.
            Some(Value::String(text)) if text.trim().is_empty() => None,
            Some(value) => match integer(value).filter(|n| *n < MOST_SAMPLES) {
                Some(index) => Some(index),
                None => bad_input!(
                    "{} line {number}: sample: found {value}, wanted a whole number from 0 to {}",
                    path.display(),
                    MOST_SAMPLES - 1
                ),
            },
        };
        let tokens = row.get("tokens").and_then(integer).filter(|_| texts.len() == 1);
        for (j, text) in texts.iter().enumerate() {
            let free = next.entry(at).or_default();
            let sample = stated.map_or(*free, |s| s + j as u64);
            *free = (*free).max(sample + 1);
            if let Some(before) = given.insert((at, sample), number) {
                bad_input!(
                    "{} line {number}: sample {sample} of problem {name} is also in line {before}",
                    path.display()
                );
            }
            if store.contains(&problems[at].id, sample) {
                imported.known += 1;
                continue;
            }
            imported.new += 1;
            batch.push(Generation {
                problem: problems[at].id.clone(),
                sample,
                text: (*text).to_owned(),
                reasoning: None,
                finish: row
                    .get("finish")
                    .or_else(|| row.get("finish_reason"))
                    .and_then(Value::as_str)
                    .map(str::to_owned),
                tokens,
            });
        }
        if batch.len() >= 4096 {
            store.append(&batch)?;
            batch.clear();
        }
        Ok(())
    })
    .with_context(|| "--samples".to_owned())?;
    store.append(&batch)?;
    store.sync()?;
    if given.is_empty() {
        let found = match imported.foreign {
            0 => "found no samples".to_owned(),
            n => format!("none of the {n} samples belongs to a problem of the data set"),
        };
        bad_input!("--samples {}: {found}", path.display());
    }
    Ok(imported)
}

/// A whole number as written in JSON, CSV, or a table column with gaps.
fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) => number.as_u64().or_else(|| {
            number.as_f64().filter(|x| x.fract() == 0.0 && (0.0..=1e15).contains(x)).map(|x| x as u64)
        }),
        _ => None,
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    }
}

/// All names of all problems; a name shared by two problems identifies neither.
fn names(problems: &[&EvalProblem]) -> HashMap<String, usize> {
    let mut names: HashMap<String, Option<usize>> = HashMap::new();
    let mut call = |name: String, at: usize, sure: bool| {
        names
            .entry(name)
            .and_modify(|held| {
                if *held != Some(at) && !sure {
                    *held = None;
                }
            })
            .or_insert(Some(at));
    };
    for (at, p) in problems.iter().enumerate() {
        call(p.id.clone(), at, true);
    }
    for (at, p) in problems.iter().enumerate() {
        if let Some(id) = p.source_id() {
            call(id.to_owned(), at, false);
        }
        if let Question::Data(data) = &p.question {
            call(data.question().to_owned(), at, false);
        }
    }
    // Numbers only where they don't conflict with the file's own ids.
    let ids: std::collections::HashSet<&str> = problems.iter().filter_map(|p| p.source_id()).collect();
    for at in 0..problems.len() {
        let number = at.to_string();
        if !ids.contains(number.as_str()) {
            call(number, at, false);
        }
    }
    names.into_iter().filter_map(|(name, at)| at.map(|at| (name, at))).collect()
}
