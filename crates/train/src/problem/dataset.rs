//! Data sets in common formats: problems with a prompt and the data that a verifier needs.
//!
//! Files are JSON lines, a JSON array, CSV or Parquet, or a folder of such files in Hugging Face's layout. Columns are
//! recognised by the names that public data sets use, or named by the caller. Dropped rows are counted by reason in a
//! [`FilterReport`]; nothing is dropped silently.
//!
//! This module has no tokenizer. The code that has one drops prompts that are too long and adds them to the same
//! report ([`FilterReport::drop`]).

pub mod columns;
pub mod presets;
pub mod rows;
mod shards;

use crate::bad_input;
use crate::io::input;
pub use crate::language::chat::Message;
use crate::problem::kind::math::is_mathematics;
use crate::problem::kind::{TaskKind, Truth};
use crate::problem::row::{Row, Table, plain_text, value};
use anyhow::Context;
use columns::Columns;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

/// One problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// Hash of the prompt: the same problem has the same id in every file and run.
    pub id: String,
    /// The conversation up to the answer, without a system prompt from the configuration.
    pub messages: Vec<Message>,
    /// The data that the verifier needs.
    pub truth: Truth,
    /// A worked solution or response to imitate, if the file has one.
    pub solution: Option<String>,
    /// Subject, category or task.
    pub subject: Option<String>,
    /// Level or difficulty.
    pub level: Option<String>,
    /// The id in the file.
    pub source_id: Option<String>,
}

impl Problem {
    /// The last user message: the question as text.
    pub fn question(&self) -> &str {
        self.messages.iter().rev().find(|m| m.role == "user").map_or("", |m| m.content.as_str())
    }

    /// The conversation with this system prompt in front. It replaces a system prompt from the file; with `None`, the
    /// file's own stays.
    pub fn conversation(&self, system: Option<&str>) -> Vec<Message> {
        match system {
            None => self.messages.clone(),
            Some(system) => std::iter::once(Message::new("system", system))
                .chain(self.messages.iter().filter(|m| m.role != "system").cloned())
                .collect(),
        }
    }
}

/// Hash of a conversation, 16 hexadecimal digits.
pub fn id_of(messages: &[Message]) -> String {
    let mut hash = Sha256::new();
    for message in messages {
        // The length separates messages, so that two messages never hash like one.
        hash.update((message.role.len() as u64).to_le_bytes());
        hash.update(message.role.as_bytes());
        hash.update((message.content.len() as u64).to_le_bytes());
        hash.update(message.content.as_bytes());
    }
    hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// What happened to the rows of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FilterReport {
    /// Rows read.
    pub read: usize,
    /// Problems kept.
    pub kept: usize,
    /// Rows dropped, by reason, with the numbers (from 1) of the first few.
    pub dropped: BTreeMap<String, Dropped>,
    /// Reference answers to math problems that the verifier reads as plain text.
    pub text_golds: Option<TextGolds>,
}

/// Reference answers to math problems that the verifier reads as plain text: a completion is only correct if it writes
/// the same text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TextGolds {
    /// How many.
    pub count: usize,
    /// Total number of reference answers.
    pub of: usize,
    /// Row of the first one, counted from 1.
    pub first_row: usize,
    /// The text of the first one.
    pub example: String,
}

/// Rows dropped for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// How many.
    pub count: usize,
    /// Rows of the first few, counted from 1.
    pub first_rows: Vec<usize>,
}

impl FilterReport {
    /// Counts a dropped row.
    pub fn note(&mut self, reason: &str, row: usize) {
        let dropped = self.dropped.entry(reason.to_owned()).or_default();
        dropped.count += 1;
        if dropped.first_rows.len() < 5 {
            dropped.first_rows.push(row);
        }
    }

    /// Drops the problems for which `keep` is false and counts them under `reason`.
    pub fn drop(
        &mut self,
        problems: &mut Vec<Problem>,
        reason: &str,
        mut keep: impl FnMut(&Problem) -> bool,
    ) {
        let before = problems.len();
        problems.retain(|problem| keep(problem));
        let gone = before - problems.len();
        if gone > 0 {
            self.dropped.entry(reason.to_owned()).or_default().count += gone;
        }
        self.kept = problems.len();
    }

    /// Reports what happened to the file's rows, and warns if its reference answers don't look like mathematics.
    pub fn tell(&self, path: &Path) {
        tracing::info!("{}: {self}", path.display());
        if let Some(golds) = &self.text_golds
            && golds.count as f64 >= TEXT_GOLDS_WARNED * golds.of as f64
        {
            tracing::warn!(
                "{}: {golds}. A completion must repeat such an answer word for word to be correct. Is \
                 the answer in another column (task.columns.answer, --columns answer=NAME), or is it a task of another kind? \
                 `fgrpo data show` prints how each answer is read",
                path.display()
            );
        }
    }
}

/// Fraction of reference answers read as plain text from which a warning is given: math data sets have a few, such as
/// names and words.
const TEXT_GOLDS_WARNED: f64 = 0.1;

impl fmt::Display for TextGolds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.count as f64 / self.of.max(1) as f64;
        write!(
            f,
            "{} of {} reference answers ({percent:.0} %) read as plain text, not as mathematics; the first in row {}: {:?}",
            self.count, self.of, self.first_row, self.example
        )
    }
}

impl fmt::Display for FilterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows read, {} problems kept", self.read, self.kept)?;
        for (reason, dropped) in &self.dropped {
            write!(f, "; {} dropped: {reason}", dropped.count)?;
            if !dropped.first_rows.is_empty() {
                let rows: Vec<String> = dropped.first_rows.iter().map(usize::to_string).collect();
                let more = if dropped.count > rows.len() { ", ..." } else { "" };
                write!(f, " (rows {}{more})", rows.join(", "))?;
            }
        }
        Ok(())
    }
}

/// Reads a data set and drops unusable rows: rows without a prompt or an answer, repeated copies of a problem, and
/// every copy of a problem whose copies have different answers.
///
/// # Errors
/// If the path can't be read, has an unknown format, or lacks a column that the task needs. The last two are bad
/// input; the message says what was found and what was wanted.
pub fn load(path: &Path, kind: TaskKind, columns: &Columns) -> anyhow::Result<(Vec<Problem>, FilterReport)> {
    let rows = rows::read(path)?;
    if rows.is_empty() {
        bad_input!("{}: found no rows, wanted at least one", path.display());
    }
    if let Some(row) = rows.iter().position(|row| row.len() > rows::MOST_COLUMNS) {
        bad_input!(
            "{}: row {}: found {} columns, wanted at most {}",
            path.display(),
            row + 1,
            rows[row].len(),
            rows::MOST_COLUMNS
        );
    }
    if kind == TaskKind::Maze {
        bad_input!("{}: found a file of mazes, wanted none: mazes are made, not read", path.display());
    }
    let table = Table { kind, rows: &rows };
    let found = columns::resolve(&table, columns).with_context(|| format!("{}", path.display()))?;
    let mut report = FilterReport { read: rows.len(), ..FilterReport::default() };
    let mut problems: Vec<(usize, Problem)> = Vec::with_capacity(rows.len());
    for (i, row) in rows.iter().enumerate() {
        match problem_of(row, &found) {
            Ok(problem) => problems.push((i + 1, problem)),
            Err(reason) => report.note(reason, i + 1),
        }
    }
    report.text_golds = text_golds(&problems);
    let mut problems = without_copies(problems, &mut report);
    problems.shrink_to_fit();
    report.kept = problems.len();
    if problems.is_empty() {
        bad_input!("{}: no row can be used: {report}", path.display());
    }
    Ok((problems, report))
}

/// Converts one row to a problem, or says why it can't be one.
fn problem_of(row: &Row, found: &columns::Found) -> Result<Problem, &'static str> {
    let text =
        |column: &Option<String>| column.as_ref().and_then(|name| value(row, name)).and_then(plain_text);
    let solution = text(&found.solution).filter(|s| !s.trim().is_empty());
    let mut messages = columns::messages(row, &found.prompt).ok_or("no prompt")?;
    // A conversation that ends with an assistant message is a demonstration.
    let mut last_answer = None;
    if messages.last().is_some_and(|m| m.role == "assistant") {
        last_answer = messages.pop().map(|m| m.content);
    }
    if messages.iter().all(|m| m.content.trim().is_empty()) {
        return Err("empty prompt");
    }
    if messages.iter().map(|m| m.content.len()).sum::<usize>() > input::PROMPT {
        return Err("prompt of more than 4 MB");
    }
    let worked = solution.as_deref().or(last_answer.as_deref());
    let question = messages.last().map_or("", |m| m.content.as_str());
    let truth = found.truth.read(row, question, worked)?;
    if let Some(shown) = truth.shown_below(question)
        && let Some(last) = messages.last_mut()
    {
        last.content = shown;
    }
    Ok(Problem {
        id: id_of(&messages),
        truth,
        solution: last_answer.or(solution),
        subject: text(&found.subject),
        level: text(&found.level),
        source_id: text(&found.id),
        messages,
    })
}

/// The reference answers that the math verifier reads as plain text.
fn text_golds(problems: &[(usize, Problem)]) -> Option<TextGolds> {
    let golds = problems.par_iter().filter_map(|(row, problem)| match &problem.truth {
        Truth::Math(truth) => Some((*row, &truth.gold)),
        _ => None,
    });
    let of = golds.clone().count();
    let text: Vec<(usize, &String)> = golds.filter(|(_, gold)| !is_mathematics(gold)).collect();
    let (first_row, gold) = text.first()?;
    let mut example: String = gold.chars().take(EXAMPLE_LENGTH).collect();
    if example.len() < gold.len() {
        example.push_str("...");
    }
    Some(TextGolds { count: text.len(), of, first_row: *first_row, example })
}

/// Number of characters of a reference answer shown in a warning.
const EXAMPLE_LENGTH: usize = 60;

/// Keeps the first copy of each problem, and drops problems whose copies have different answers.
fn without_copies(problems: Vec<(usize, Problem)>, report: &mut FilterReport) -> Vec<Problem> {
    let mut first: HashMap<String, (usize, bool)> = HashMap::with_capacity(problems.len());
    for (at, (_, problem)) in problems.iter().enumerate() {
        match first.get_mut(&problem.id) {
            None => {
                first.insert(problem.id.clone(), (at, false));
            }
            Some((other, conflict)) => {
                *conflict |= !problems[*other].1.truth.agrees_with(&problem.truth);
            }
        }
    }
    let mut kept = Vec::with_capacity(first.len());
    for (at, (row, problem)) in problems.into_iter().enumerate() {
        let (one, conflict) = first[&problem.id];
        if conflict {
            report.note("copies with conflicting answers", row);
        } else if one != at {
            report.note("copy of an earlier row", row);
        } else {
            kept.push(problem);
        }
    }
    kept
}

#[cfg(test)]
mod tests;
