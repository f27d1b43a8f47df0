//! Assigns roles to the columns of a data set, and reads prompts from them.

use super::Message;
use crate::kind::{TaskKind, Truth};
use crate::row::{Row, Table, structured, value};
use crate::verifier::{Beside, Reader};
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::LazyLock;

/// Column names that differ from the usual ones. A dot selects a field of an object, as in `reward_model.ground_truth`.
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
    /// Column of the problem's id in the file.
    pub id: Option<String>,
}

impl std::str::FromStr for Columns {
    type Err = String;

    /// Parses a list such as `prompt=question,answer=final_answer`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut columns = Self::default();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let Some((what, name)) = part.split_once('=') else {
                return Err(format!("expected role=column, found {part:?}"));
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
                        "expected prompt, answer, solution, subject, level or id, found {other:?}"
                    ));
                }
            };
            *place = Some(name.trim().to_owned());
        }
        Ok(columns)
    }
}

pub(super) struct Found {
    pub(super) prompt: String,
    /// Whether a row may lack a prompt, because the environment can provide one.
    pub(super) begins: bool,
    /// Alpaca's `input` column, which is appended to the instruction.
    pub(super) input: Option<String>,
    /// Columns with material that is shown above the question: passages and images.
    pub(super) context: Vec<String>,
    pub(super) solution: Option<String>,
    pub(super) subject: Option<String>,
    pub(super) level: Option<String>,
    pub(super) id: Option<String>,
    pub(super) truth: Reader<Truth>,
}

const PROMPT: &[&str] =
    &["problem", "question", "prompt", "messages", "instruction", "input", "query", "conversations"];
/// Columns with the subject matter of a question, such as SVAMP's `Body`, RACE's `article` and DROP's `passage`.
const CONTEXT: &str = "background background_information document context contexts facts support pre_text table post_text \
    premise hypothesis image images image_1 decoded_image text body article passage paragraph story";
/// Columns of [`CONTEXT`] with passages. A row with a blank passage is unusable.
pub(super) const PASSAGES: [&str; 5] = ["body", "article", "passage", "paragraph", "story"];
const SOLUTION: &[&str] = &["solution", "completion", "response", "output", "generation", "explanation"];
const SUBJECT: &[&str] =
    &["subject", "type", "category", "subdomain", "high-level domain", "domain", "ability"];
const LEVEL: &[&str] = &["level", "difficulty"];
const ID: &[&str] = &["unique_id", "id", "problem_id", "key", "record id", "task_id", "idx"];

/// Finds the columns that a task needs, or those of a prompt if `kind` is `None`.
pub(super) fn resolve(kind: Option<TaskKind>, table: &Table<'_>, names: &Columns) -> anyhow::Result<Found> {
    let options =
        || ["options", "choices", "Incorrect Answer 1"].iter().find_map(|name| table.spelling(name));
    let (kind, only_prompt) = (kind.unwrap_or(TaskKind::Command), kind.is_none());
    if let Some(options) = options().filter(|_| only_prompt) {
        bad_input!(
            "the column {options} could be the options of the question; name the kind of the task: choice shows them, command doesn't"
        );
    }
    let prompt = table.column("prompt", names.prompt.as_deref(), PROMPT)?;
    // An environment may provide the prompt when an episode begins.
    let begins = kind == TaskKind::Environment;
    let prompt = prompt.or_else(|| begins.then(|| "prompt".to_owned()));
    let prompt = table.require("the prompt", prompt, PROMPT)?;
    let (mut input, mut context) = (None, Vec::new());
    // A user's grader may need a context column itself.
    let custom = matches!(kind, TaskKind::Python | TaskKind::Command | TaskKind::Environment);
    if !custom || only_prompt {
        // In all rows: files of a folder may differ in their columns.
        let columns: HashSet<&String> = table.rows.iter().flat_map(|row| row.keys()).collect();
        let usual = CONTEXT.split_whitespace().filter(|name| *name != "text" || kind == TaskKind::Choice);
        let spelled =
            usual.filter_map(|name| columns.iter().find(|column| column.eq_ignore_ascii_case(name)));
        context = spelled.filter(|name| ***name != prompt).map(ToString::to_string).collect();
    }
    if names.prompt.is_none() {
        input = table.spelling("input").filter(|_| prompt.eq_ignore_ascii_case("instruction"));
        refuse_other_prompts(table, &prompt, input.as_deref())?;
    }
    let solution = table.column("solution", names.solution.as_deref(), SOLUTION)?;
    // A column named by the user must exist, even if this kind of task doesn't read it.
    table.column("answer", names.answer.as_deref(), &[])?;
    let answered =
        |row| messages(row, &prompt).is_some_and(|m| m.last().is_some_and(|m| m.role == "assistant"));
    let beside = Beside {
        answer: names.answer.as_deref(),
        prompt: &prompt,
        worked: solution.is_some() || table.rows.iter().take(50).any(answered),
    };
    Ok(Found {
        subject: table.column("subject", names.subject.as_deref(), SUBJECT)?,
        level: table.column("level", names.level.as_deref(), LEVEL)?,
        id: table.column("id", names.id.as_deref(), ID)?,
        truth: kind.reader(table, &beside)?,
        prompt,
        begins,
        input,
        context,
        solution,
    })
}

/// Returns an error if another column could be the prompt as well: it has one of the usual names, and its text neither
/// contains the prompt nor is contained in it.
fn refuse_other_prompts(table: &Table<'_>, prompt: &str, input: Option<&str>) -> anyhow::Result<()> {
    let question = |row: &Row, column: &str| {
        let messages = messages(row, column)?;
        let last = messages.iter().rev().find(|m| m.role == "user")?.content.trim().to_owned();
        (!last.is_empty()).then_some(last)
    };
    let others = PROMPT.iter().filter_map(|name| table.spelling(name));
    for other in others.filter(|name| name != prompt && Some(name.as_str()) != input) {
        let differs = |row: &Row| match (question(row, prompt), question(row, &other)) {
            (Some(one), Some(two)) => !one.contains(&two) && !two.contains(&one),
            _ => false,
        };
        if table.rows.iter().take(50).any(differs) {
            bad_input!(
                "both of the columns {prompt} and {other} could be the prompt, and their texts differ; choose one, such as prompt={prompt}"
            );
        }
    }
    Ok(())
}

/// Returns a field of the conversation or of the row that a chat template would show but that isn't read here, or
/// `None` if there isn't such a field.
pub(super) fn unread(row: &Row, column: &str) -> Option<&'static str> {
    let filled = |value: &Value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    };
    let message_keys = ["tool_calls", "tool_call_id", "function_call", "reasoning_content", "thinking"];
    let list = value(row, column)?.as_array()?;
    let row_key =
        ["tools", "chat_template_kwargs"].into_iter().find(|key| value(row, key).is_some_and(filled));
    let has = |key: &&str| list.iter().any(|message| message.get(*key).is_some_and(filled));
    let is_text = |part: &Value| part["type"] == "text" || part.get("type").is_none();
    let shows = |message: &Value| {
        let parts = message.get("content").unwrap_or(message);
        let parts = parts.as_array().map_or(std::slice::from_ref(parts), Vec::as_slice);
        parts.iter().any(|part| part.is_object() && !is_text(part))
    };
    row_key
        .or_else(|| message_keys.into_iter().find(has))
        .or_else(|| list.iter().any(shows).then_some("parts that aren't text"))
}

/// Returns the content of a message: a string, or the strings of its parts joined by newlines.
fn content(value: &Value) -> Option<String> {
    let part = |part: &Value| Some(part.get("text").unwrap_or(part).as_str()?.to_owned());
    match value {
        Value::Array(parts) if !parts.is_empty() => {
            Some(parts.iter().map(part).collect::<Option<Vec<_>>>()?.join("\n"))
        }
        other => other.as_str().map(str::to_owned),
    }
}

/// Converts a prompt to messages. A string or a list of text parts becomes one user message. Entries of another list have
/// `role` and `content`, or `from` and `value` as in ShareGPT.
pub(super) fn messages(row: &Row, column: &str) -> Option<Vec<Message>> {
    let prompt = value(row, column)?;
    let list = match prompt {
        Value::String(text) if !is_conversation(text) => {
            return Some(vec![Message::new("user", text.as_str())]);
        }
        prompt => match structured(prompt) {
            Value::Array(list) => list,
            Value::Object(message) => vec![Value::Object(message)],
            _ => return None,
        },
    };
    // A list of text parts is a single message.
    if list.iter().all(|part| part["type"] == "text") {
        return Some(vec![Message::new("user", content(&Value::Array(list))?)]);
    }
    let message = |entry: &Value| {
        let either = |names: [&str; 2]| names.iter().find_map(|name| entry.get(*name));
        let role = match either(["role", "from"])?.as_str()? {
            "human" => "user",
            "gpt" => "assistant",
            other => other,
        };
        Some(Message::new(role, content(either(["content", "value"])?)?))
    };
    let messages: Option<Vec<Message>> = list.iter().map(message).collect();
    messages.filter(|m| !m.is_empty())
}

/// Returns whether a string looks like a conversation in JSON, or as printed by Python or NumPy.
fn is_conversation(text: &str) -> bool {
    static BEGINS: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"^(?:[\[({\s]|[\w.]+\()+(?:['"]|role=|from=)"#).expect("a pattern"));
    let text = text.trim();
    let key = |name: &str| ["'*'", "\"*\"", "*="].iter().any(|form| text.contains(&form.replace('*', name)));
    let keys = key("role") && (key("content") || key("text")) || key("from") && key("value");
    keys && text.ends_with([']', '}', ')']) && BEGINS.is_match(text)
}
