//! Reads data sets in common formats: problems with a prompt and the data that a verifier needs.
//!
//! Files are JSON lines, a JSON array, CSV or Parquet, or a folder of such files in Hugging Face's layout. Columns are
//! recognised by the names that public data sets use, or named by the caller. A [`FilterReport`] lists every rejected
//! row with the reason.
//!
//! This module doesn't use a tokenizer. Code with a tokenizer rejects prompts that are too long, in the same report
//! ([`FilterReport::retain`]).

pub mod columns;
mod filter;
pub mod format;
pub mod presets;
pub mod rows;
mod shards;
pub mod verl_rows;

use crate::kind::math::{self, is_mathematics};
use crate::kind::{TaskKind, Truth, environment, short_hash};
use crate::names::Named;
use crate::row::{Row, Table, Unusable, plain_text, shown, shown_text, value};
use crate::verifier::Cells;
use anyhow::Context;
use columns::Columns;
use fgrpo_files as input;
pub use filter::{FilterReport, Rejected, TextGolds};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
pub use shards::{files, name};
use std::collections::HashMap;
use std::path::Path;

/// A problem: a prompt with the data that grades completions of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// Hash of the prompt, so the same problem has the same id in every file and run.
    pub id: String,
    /// The conversation up to the completion, without a system prompt from the configuration.
    pub messages: Vec<Message>,
    /// The data that the verifier needs.
    pub truth: Truth,
    /// A worked solution or a response to imitate, if the file has one.
    pub solution: Option<String>,
    /// Whether the row has a solution that isn't text, in which case `solution` is `None`.
    #[serde(skip)]
    pub solution_is_not_text: bool,
    /// Subject, category or task.
    pub subject: Option<String>,
    /// Level or difficulty.
    pub level: Option<String>,
    /// Id of the problem in the file.
    pub source_id: Option<String>,
    /// Row in the data set, counted from 1 over its files, or 0 for a problem that isn't from a data set.
    #[serde(skip)]
    pub row: usize,
}

impl Problem {
    /// Creates a problem that isn't from a data set, with only a prompt and an answer.
    pub fn new(id: String, messages: Vec<Message>, truth: Truth) -> Self {
        Self {
            id,
            messages,
            truth,
            solution: None,
            solution_is_not_text: false,
            subject: None,
            level: None,
            source_id: None,
            row: 0,
        }
    }

    /// Returns the question: the content of the last user message.
    pub fn question(&self) -> &str {
        self.messages.iter().rev().find(|m| m.role == "user").map_or("", |m| m.content.as_str())
    }

    /// Returns the conversation with this system prompt, which replaces the file's system prompt. If `None`, the file's
    /// system prompt remains.
    pub fn conversation(&self, system: Option<&str>) -> Vec<Message> {
        match system {
            None => self.messages.clone(),
            Some(system) => std::iter::once(Message::new("system", system))
                .chain(self.messages.iter().filter(|m| m.role != "system").cloned())
                .collect(),
        }
    }

    /// Returns the prompt as plain text, for servers that take text and for checkpoints without a chat template.
    pub fn text(&self, system: Option<&str>) -> String {
        plain_text_of(&self.conversation(system))
    }
}

/// Hashes a conversation to 16 hexadecimal digits.
pub fn id_of(messages: &[Message]) -> String {
    let mut hash = Sha256::new();
    for message in messages {
        // The lengths separate the strings, so that different conversations are hashed as different bytes.
        hash.update((message.role.len() as u64).to_le_bytes());
        hash.update(message.role.as_bytes());
        hash.update((message.content.len() as u64).to_le_bytes());
        hash.update(message.content.as_bytes());
    }
    hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// Returns whether a path is a data set: a file, a folder, a pattern with matches, or a split of a folder.
pub fn exists(path: &Path) -> bool {
    path.exists() || shards::files(path).is_ok()
}

/// Reads a data set and rejects unusable rows: rows without a prompt or an answer, repeated copies of a problem, and
/// all copies of a problem whose copies have different answers.
///
/// Returns an error if the path can't be read, and bad input if the format is unknown, a column that the task needs is
/// missing, or no row is usable.
pub fn load(path: &Path, kind: TaskKind, columns: &Columns) -> anyhow::Result<(Vec<Problem>, FilterReport)> {
    let (problems, mut report, id) = usable(path, Some(kind), columns)?;
    report.text_golds = golds_of(&problems, |truth| !is_mathematics(&truth.gold));
    report.unfinished_golds = golds_of(&problems, |truth| truth.unfinished().is_some());
    let mut problems = without_copies(problems, id.as_deref(), &mut report);
    problems.shrink_to_fit();
    report.kept = problems.len();
    if problems.is_empty() {
        bad_input!("{}: no row can be used: {report}{}", path.display(), report.first_examples());
    }
    Ok((problems, report))
}

/// Reads a file of prompts: one problem for each row, copies included. With `kind`, prompts are as for a task of this
/// kind. Without `kind`, a passage is shown above its question, and the file may lack answers.
///
/// Returns the errors of [`load`], and bad input if any row is unusable.
pub fn prompts(path: &Path, kind: Option<TaskKind>, columns: &Columns) -> anyhow::Result<Vec<Problem>> {
    let (problems, mut report, _) = usable(path, kind, columns)?;
    report.kept = problems.len();
    if !report.rejected.is_empty() {
        bad_input!("{}: every row needs a prompt: {report}{}", path.display(), report.first_examples());
    }
    Ok(problems)
}

/// Reads the problems of all usable rows, copies included. Also returns the column of the row's id.
fn usable(
    path: &Path,
    kind: Option<TaskKind>,
    columns: &Columns,
) -> anyhow::Result<(Vec<Problem>, FilterReport, Option<String>)> {
    let (rows, files) = rows::read_files(path)?;
    if rows.is_empty() {
        bad_input!("{}: the file has no rows", path.display());
    }
    if let Some(row) = rows.iter().position(|row| row.len() > rows::MOST_COLUMNS) {
        bad_input!(
            "{}: row {} has {} columns, but at most {} are allowed",
            path.display(),
            row + 1,
            rows[row].len(),
            rows::MOST_COLUMNS
        );
    }
    let table = Table { kind: kind.unwrap_or(TaskKind::Command).name(), rows: &rows };
    let columns = columns::resolve(kind, &table, columns).with_context(|| format!("{}", path.display()))?;
    let mut report = FilterReport::new(path, files, rows.len());
    let mut problems: Vec<Problem> = Vec::with_capacity(rows.len());
    for (i, row) in rows.iter().enumerate() {
        match problem_of(row, i, &columns) {
            Ok(problem) => problems.push(Problem { row: i + 1, ..problem }),
            Err(unusable) => report.reject(i + 1, unusable.reason, unusable.value),
        }
    }
    Ok((problems, report, columns.id))
}

/// Creates placeholder problems for an environment that generates the problems. Each has the row that TRL passes to
/// `reset`.
pub fn of_environment() -> anyhow::Result<(Vec<Problem>, FilterReport)> {
    const COUNT: usize = 1024;
    let message = serde_json::json!([{ "role": "user", "content": "" }]);
    let truth = environment::Truth { columns: Row::from_iter([("prompt".to_owned(), message)]) };
    let problem = |i| {
        let messages = vec![Message::new("user", "")];
        let id = short_hash(&format!("row {i}"));
        Problem { row: i + 1, ..Problem::new(id, messages, Truth::Environment(truth.clone())) }
    };
    let mut report = FilterReport::new(Path::new("environment"), Vec::new(), COUNT);
    report.kept = COUNT;
    Ok(((0..COUNT).map(problem).collect(), report))
}

/// Converts a row to a problem.
///
/// Returns an error if the row lacks a column that the task needs, or is unusable for another reason.
pub fn problem(row: Row, kind: TaskKind, columns: &Columns) -> anyhow::Result<Problem> {
    let rows = [row];
    let table = Table { kind: kind.name(), rows: &rows };
    let columns = columns::resolve(Some(kind), &table, columns)?;
    problem_of(&rows[0], 0, &columns)
        .or_else(|unusable| bad_input!("{}: {}", unusable.reason, unusable.value))
}

/// Converts a row to a problem, or returns the reason why it is unusable.
fn problem_of(row: &Row, index: usize, columns: &columns::Found) -> Result<Problem, Unusable> {
    let text =
        |column: &Option<String>| column.as_ref().and_then(|name| value(row, name)).and_then(plain_text);
    let solution = text(&columns.solution).filter(|s| !s.trim().is_empty());
    let prompt = || shown(row, &columns.prompt);
    if let Some(field) = columns::unread(row, &columns.prompt) {
        return Err(Unusable::new(
            "the conversation has tools, thinking, images or template settings",
            field.to_owned(),
        ));
    }
    let absent = columns.begins && value(row, &columns.prompt).is_none_or(Value::is_null);
    let mut messages = if absent {
        vec![Message::new("user", "")]
    } else {
        columns::messages(row, &columns.prompt).ok_or_else(|| Unusable::new("no prompt", prompt()))?
    };
    if let Some(input) = text(&columns.input).filter(|input| !input.trim().is_empty())
        && let Some(last) = messages.last_mut()
    {
        last.content = format!("{}\n{input}", last.content);
    }
    for column in columns.context.iter().rev() {
        let Some(last) = messages.iter_mut().rfind(|message| message.role == "user") else { break };
        let passage = columns::PASSAGES.iter().any(|name| column.eq_ignore_ascii_case(name));
        let cell = value(row, column);
        let is_blank = cell
            .is_some_and(|cell| cell.is_null() || cell.as_str().is_some_and(|text| text.trim().is_empty()));
        // The question has the text already, or the text is the whole sample.
        let is_shown = |text: &str| {
            last.content.contains(text.trim()) || column == "text" && text.contains(last.content.trim())
        };
        match cell {
            None | Some(Value::Number(_) | Value::Bool(_)) => {}
            Some(_) if is_blank && !passage => {}
            Some(Value::Array(list)) if list.is_empty() => {}
            Some(Value::String(text)) if !is_blank && is_shown(text) => {}
            Some(Value::String(text)) if !is_blank && !column.to_lowercase().contains("image") => {
                last.content = format!("{}\n\n{}", text.trim_end(), last.content);
            }
            Some(_) => {
                let what = "an image, structured data or a missing passage above the question";
                return Err(Unusable::new(what, shown(row, column)));
            }
        }
    }
    // A conversation that ends with an assistant message is a demonstration.
    let mut last_answer = None;
    if messages.last().is_some_and(|m| m.role == "assistant") {
        last_answer = messages.pop().map(|m| m.content);
    }
    if !columns.begins && messages.iter().all(|m| m.content.trim().is_empty()) {
        return Err(Unusable::new("empty prompt", prompt()));
    }
    let bytes = messages.iter().map(|m| m.content.len()).sum::<usize>();
    if bytes > input::PROMPT {
        return Err(Unusable::new("prompt of more than 4 MB", format!("{bytes} bytes: {}", prompt())));
    }
    let worked = solution.as_deref().or(last_answer.as_deref());
    let question = messages.last().map_or("", |m| m.content.as_str());
    let truth = (columns.truth)(&Cells { row, question, worked })?;
    if let Some(below) = truth.shown_below(question)
        && let Some(last) = messages.last_mut()
    {
        last.content = format!("{}\n\n{below}", last.content.trim_end());
    }
    let id = match &truth {
        // An environment that provides the prompt may provide a different one each time, so the row identifies the
        // problem.
        Truth::Environment(_) if absent => short_hash(&format!("row {index}")),
        // Rows of an environment may differ in columns that the prompt doesn't show.
        Truth::Environment(_) => short_hash(&format!("{} {}", id_of(&messages), truth.fingerprint())),
        _ => id_of(&messages),
    };
    let solution = last_answer.or(solution);
    let cell = columns.solution.as_ref().and_then(|name| value(row, name)).filter(|cell| !cell.is_null());
    Ok(Problem {
        solution_is_not_text: solution.is_none() && cell.is_some_and(|cell| plain_text(cell).is_none()),
        solution,
        subject: text(&columns.subject),
        level: text(&columns.level),
        source_id: text(&columns.id),
        ..Problem::new(id, messages, truth)
    })
}

/// Counts the reference answers of math problems that satisfy `is`. Returns `None` if the count is 0.
fn golds_of(problems: &[Problem], is: impl Fn(&math::Truth) -> bool + Sync) -> Option<TextGolds> {
    let golds = problems.par_iter().filter_map(|problem| match &problem.truth {
        Truth::Math(truth) => Some((problem.row, truth)),
        _ => None,
    });
    let total = golds.clone().count();
    let text: Vec<(usize, &math::Truth)> = golds.filter(|(_, truth)| is(truth)).collect();
    let (first_row, math::Truth { gold }) = text.first()?;
    let mut example: String = gold.chars().take(EXAMPLE_LENGTH).collect();
    if example.len() < gold.len() {
        example.push_str("...");
    }
    Some(TextGolds { count: text.len(), of: total, first_row: *first_row, example })
}

/// Maximum number of characters of a reference answer in a warning.
const EXAMPLE_LENGTH: usize = 60;

/// Keeps the first copy of each problem, and rejects problems whose copies have different answers. `id` is the column
/// of the row's id, in which copies may differ.
fn without_copies(problems: Vec<Problem>, id: Option<&str>, report: &mut FilterReport) -> Vec<Problem> {
    // For each problem, the indices of the first copy and of the first copy with a different answer.
    let mut first: HashMap<&str, (usize, Option<usize>)> = HashMap::with_capacity(problems.len());
    for (at, problem) in problems.iter().enumerate() {
        let (other, conflict) = first.entry(&problem.id).or_insert((at, None));
        if conflict.is_none() && !problems[*other].truth.agrees_with(&problem.truth, id) {
            *conflict = Some(at);
        }
    }
    let answer = |problem: &Problem| match problem.truth.gold() {
        Some(gold) => format!("answer {}", shown_text(&gold)),
        None => "other data for the verifier".to_owned(),
    };
    let verdict = |(at, problem): (usize, &Problem)| {
        let (one, conflict) = first[problem.id.as_str()];
        let detail = match conflict {
            // Reports the first copy with the first copy that differs from it, and every other copy with the first copy.
            Some(differing) => {
                let other = &problems[if one == at { differing } else { one }];
                format!("{}; {} has {}", answer(problem), report.place(other.row), answer(other))
            }
            None if one == at => return None,
            None => {
                format!("equals {}: {}", report.place(problems[one].row), shown_text(problem.question()))
            }
        };
        let reason =
            if conflict.is_some() { "copies with conflicting answers" } else { "copy of an earlier row" };
        Some((problem.row, reason, detail))
    };
    let rejected: Vec<_> = problems.iter().enumerate().filter_map(verdict).collect();
    let rows: std::collections::HashSet<usize> = rejected.iter().map(|(row, ..)| *row).collect();
    for (row, reason, detail) in rejected {
        report.reject(row, reason, detail);
    }
    problems.into_iter().filter(|problem| !rows.contains(&problem.row)).collect()
}

/// Joins the contents of a conversation's messages, for models without a chat template.
pub fn plain_text_of(messages: &[Message]) -> String {
    messages.iter().map(|m| m.content.as_str()).collect::<Vec<_>>().join("\n\n")
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// Text of the message.
    pub content: String,
}

impl Message {
    /// Creates a message with this role.
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.to_owned(), content: content.into() }
    }
}

#[cfg(test)]
mod tests;
