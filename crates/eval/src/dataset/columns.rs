//! Which column has which role, and how its values are read.

use super::Message;
use crate::kind::{TaskKind, Truth};
use crate::row::{Row, Table, structured, value};
use crate::verifier::{Beside, Reader};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Column names that differ from the usual ones. A dot reaches into an object: `reward_model.ground_truth`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Columns {
    /// Column of the question, or of the conversation as a list of messages.
    pub prompt: Option<String>,
    /// Column of the reference answer.
    pub answer: Option<String>,
    /// Column of a worked solution or response.
    pub solution: Option<String>,
    /// Column of the subject or category.
    pub subject: Option<String>,
    /// Column of the level or difficulty.
    pub level: Option<String>,
    /// Column of the file's own id.
    pub id: Option<String>,
}

impl std::str::FromStr for Columns {
    type Err = String;

    /// Parses `prompt=question,answer=final_answer`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut columns = Self::default();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let Some((what, name)) = part.split_once('=') else {
                return Err(format!("found {part:?}, wanted what=column"));
            };
            let place = match what.trim() {
                "prompt" => &mut columns.prompt,
                "answer" => &mut columns.answer,
                "solution" => &mut columns.solution,
                "subject" => &mut columns.subject,
                "level" => &mut columns.level,
                "id" => &mut columns.id,
                other => {
                    return Err(format!(
                        "found {other:?}, wanted prompt, answer, solution, subject, level or id"
                    ));
                }
            };
            *place = Some(name.trim().to_owned());
        }
        Ok(columns)
    }
}

/// The columns of one file.
pub(super) struct Found {
    pub(super) prompt: String,
    pub(super) solution: Option<String>,
    pub(super) subject: Option<String>,
    pub(super) level: Option<String>,
    pub(super) id: Option<String>,
    pub(super) truth: Reader<Truth>,
}

const PROMPT: &[&str] =
    &["problem", "question", "prompt", "messages", "input", "query", "instruction", "conversations"];
const SOLUTION: &[&str] = &["solution", "completion", "response", "output", "generation", "explanation"];
const SUBJECT: &[&str] =
    &["subject", "type", "category", "subdomain", "high-level domain", "domain", "ability"];
const LEVEL: &[&str] = &["level", "difficulty"];
const ID: &[&str] = &["unique_id", "id", "problem_id", "key", "record id", "task_id", "idx"];

/// Finds the columns that a task needs.
///
/// # Errors
/// If one is missing; the message says what was found and what was wanted.
pub(super) fn resolve(kind: TaskKind, table: &Table<'_>, given: &Columns) -> anyhow::Result<Found> {
    let prompt = table.column("prompt", given.prompt.as_deref(), PROMPT)?;
    let prompt = table.require("the prompt", prompt, PROMPT)?;
    let solution = table.column("solution", given.solution.as_deref(), SOLUTION)?;
    // A column named by the user must exist, even if this kind doesn't read it.
    table.column("answer", given.answer.as_deref(), &[])?;
    let answered =
        |row| messages(row, &prompt).is_some_and(|m| m.last().is_some_and(|m| m.role == "assistant"));
    let beside = Beside {
        answer: given.answer.as_deref(),
        prompt: &prompt,
        worked: solution.is_some() || table.rows.iter().take(50).any(answered),
    };
    Ok(Found {
        subject: table.column("subject", given.subject.as_deref(), SUBJECT)?,
        level: table.column("level", given.level.as_deref(), LEVEL)?,
        id: table.column("id", given.id.as_deref(), ID)?,
        truth: kind.reader(table, &beside)?,
        prompt,
        solution,
    })
}

/// A field beside the text of a conversation that a chat template would show, and that isn't read here.
pub(super) fn unread(row: &Row, column: &str) -> Option<&'static str> {
    let filled = |value: &Value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    };
    let of_messages = ["tool_calls", "tool_call_id", "function_call", "reasoning_content", "thinking"];
    let list = value(row, column)?.as_array()?;
    let of_row =
        ["tools", "chat_template_kwargs"].into_iter().find(|key| value(row, key).is_some_and(filled));
    let has = |key: &&str| list.iter().any(|message| message.get(*key).is_some_and(filled));
    of_row.or_else(|| of_messages.into_iter().find(has))
}

/// The prompt as messages. A text is one user message; a list has `role` and `content`, or `from` and `value` as in
/// ShareGPT.
pub(super) fn messages(row: &Row, column: &str) -> Option<Vec<Message>> {
    let prompt = value(row, column)?;
    let list = match prompt {
        Value::String(text) => {
            let list = if text.trim_start().starts_with("[{") { structured(prompt) } else { Value::Null };
            match list {
                Value::Array(list) => list,
                _ => return Some(vec![Message::new("user", text.as_str())]),
            }
        }
        Value::Array(list) => list.clone(),
        _ => return None,
    };
    let message = |entry: &Value| {
        let text = |names: [&str; 2]| names.iter().find_map(|name| entry.get(*name).and_then(Value::as_str));
        let role = match text(["role", "from"])? {
            "human" => "user",
            "gpt" => "assistant",
            other => other,
        };
        Some(Message::new(role, text(["content", "value"])?))
    };
    let messages: Option<Vec<Message>> = list.iter().map(message).collect();
    messages.filter(|m| !m.is_empty())
}
