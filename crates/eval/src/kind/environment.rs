//! Conversations with the user's environment, a Python class whose methods are tools. A worker process
//! (`_environment.py`) holds the environments and grades an episode when it ends.

use crate::graded::{Graded, Response};
use crate::io::json;
use crate::kind::python;
use crate::program::{self, Program};
use crate::row::Table;
use crate::verifier::{Beside, Grading, Reader, Reference, Settings, Unreadable, Verifier};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Source of the worker process that holds the environments.
const WORKER: &str = concat!(
    include_str!("../../../py/python/fgrpo/_environment.py"),
    "\n\n",
    include_str!("../../../py/python/fgrpo/_grader.py")
);

/// The keyword arguments of the environment's `reset`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The columns of the row. The prompt is added as `prompt`.
    pub columns: Map<String, Value>,
}

impl Reference for Truth {
    fn verifier(&self, grading: &Grading) -> Result<Box<dyn Verifier>, Unreadable> {
        let program = grading.program.clone();
        let program = program.ok_or(Unreadable::new("no_grader", "no environment was loaded"))?;
        Ok(Box::new(ByEpisode { columns: self.columns.clone(), program, calls: None }))
    }

    fn verifier_of_line(line: &[u8], grading: &Grading) -> Result<Box<dyn Verifier>, String> {
        #[derive(Deserialize)]
        struct Made {
            name: String,
            #[serde(default)]
            arguments: Map<String, Value>,
        }
        let mut columns: Map<String, Value> = json::parse(line).map_err(|why| why.to_string())?;
        columns.shift_remove("response");
        let calls = columns.shift_remove("calls").unwrap_or_else(|| json!([]));
        let calls: Vec<Made> = serde_json::from_value(calls).map_err(|why| format!("calls: {why}"))?;
        let call = |Made { name, arguments }: Made| json!({"name": name, "arguments": Value::from(arguments).to_string(), "wrong": null});
        let program = grading.program.clone().ok_or("no environment was loaded")?;
        Ok(Box::new(ByEpisode { columns, program, calls: Some(calls.into_iter().map(call).collect()) }))
    }

    fn read_as(&self) -> Option<String> {
        Some(python::received("environment, whose reset", &self.columns))
    }

    fn gold(&self) -> Option<String> {
        self.columns.get("answer").and_then(Value::as_str).map(str::to_owned)
    }

    fn program(settings: &Settings) -> anyhow::Result<Option<program::Settings>> {
        match settings.command.as_ref().filter(|program| program.is_function()) {
            Some(program) => python::worker(program, "task.environment", WORKER).map(Some),
            None => bad_input!(
                "task environment: set task.environment in the configuration, for example \"env.py:Calculator\""
            ),
        }
    }
}

/// Number of scripted episodes begun so far, from which the next one gets its name.
static SCRIPTED: AtomicU64 = AtomicU64::new(0);

/// Grades a completion without an episode: plays scripted tool calls before it. Without a script, it is unscorable.
struct ByEpisode {
    columns: Map<String, Value>,
    program: Arc<Program>,
    /// Tool calls of a scripted policy, one per turn, which precede the graded completion. `None` without a script.
    calls: Option<Vec<Value>>,
}

impl ByEpisode {
    /// Plays an episode with these tool calls. The tools' answers are added to the printed text.
    fn play(&self, calls: &[Value], response: &str) -> Result<Graded, Box<Graded>> {
        let messages = match self.columns.get("prompt") {
            Some(Value::String(text)) => json!([{"role": "user", "content": text}]),
            Some(messages) => messages.clone(),
            None => json!([]),
        };
        let name = format!("scripted {}", SCRIPTED.fetch_add(1, Ordering::Relaxed));
        let (mut episode, begun) = Episode::begin(&self.program, &name, &self.columns, messages)?;
        let (mut conversation, mut answers) = (begun.messages, String::new());
        for call in calls {
            for result in episode.turn(json!([call]))? {
                answers += &format!("{}: {result}\n", call["name"].as_str().unwrap_or_default());
                conversation.push(json!({"role": "assistant", "content": "", "tool_calls": [call]}));
                conversation.push(json!({"role": "tool", "name": call["name"], "content": result}));
            }
        }
        conversation.push(json!({"role": "assistant", "content": response}));
        let graded = episode.reward(&conversation, false);
        let printed = answers + graded.printed.as_deref().unwrap_or_default();
        Ok(Graded { printed: (!printed.is_empty()).then_some(printed), ..graded })
    }
}

impl Verifier for ByEpisode {
    fn check(&self, response: Response<'_>) -> Graded {
        match &self.calls {
            Some(calls) => self.play(calls, response.text).unwrap_or_else(|failed| *failed),
            None => Graded::unscorable("the completion comes without an episode of the environment"),
        }
    }

    fn check_start(&self) -> anyhow::Result<()> {
        let messages = [json!({"role": "user", "content": "?"})];
        let first = json!({"ask": "begin", "episode": "", "problem": self.columns, "messages": messages});
        match self.program.ask_for::<Begun>(&first) {
            Ok(_) => Ok(()),
            Err(failed) => bad_input!(
                "task.environment: {} when it began the first problem; it needs reset(**row), which returns a text or None, and get_reward(){}",
                failed.reason,
                failed.printed.map(|text| format!("; it printed:\n{}", text.trim_end())).unwrap_or_default()
            ),
        }
    }
}

/// Values that the environment returns when an episode begins.
#[derive(Debug, Deserialize)]
pub struct Begun {
    /// The conversation, including the text that `reset` returned.
    pub messages: Vec<Value>,
    /// The schemas of the tools.
    pub tools: Vec<Value>,
    /// Description of the tools, for a chat template that doesn't support tools.
    pub offer: String,
    /// Whether the environment has a method `feedback`.
    #[serde(default)]
    pub feedback: bool,
    /// Hash of the messages and tools. A new environment that replaces a lost one must have the same hash.
    #[serde(default)]
    start: String,
}

/// The tools' answers to a turn's calls.
#[derive(Deserialize)]
struct Answered {
    results: Vec<String>,
}

/// An episode that is being played.
#[derive(Debug)]
pub struct Episode<'a> {
    program: &'a Program,
    /// Fields of every request to the worker: the episode's name, row, first messages and [`Begun::start`].
    about: Map<String, Value>,
    history: Vec<Value>,
}

impl<'a> Episode<'a> {
    /// Begins an episode. `name` must differ from the names of all episodes that are being played.
    ///
    /// # Errors
    /// Returns the unscorable grade if the episode can't be played.
    pub fn begin(
        program: &'a Program,
        name: &str,
        columns: &Map<String, Value>,
        messages: Value,
    ) -> Result<(Self, Begun), Box<Graded>> {
        let about = json!({"episode": name, "problem": columns, "messages": messages});
        let Value::Object(about) = about else { unreachable!("an object was written") };
        let mut episode = Self { program, about, history: Vec::new() };
        let begun: Begun = program.ask_for(&episode.question("begin", []))?;
        episode.about.insert("start".to_owned(), begun.start.clone().into());
        Ok((episode, begun))
    }

    fn question<const N: usize>(&self, ask: &str, more: [(&str, Value); N]) -> Value {
        let mut question = self.about.clone();
        question.insert("ask".to_owned(), ask.into());
        question.insert("history".to_owned(), self.history.clone().into());
        question.extend(more.map(|(name, value)| (name.to_owned(), value)));
        question.into()
    }

    /// Makes the calls of a turn, and returns the tools' answers.
    ///
    /// # Errors
    /// Returns the unscorable grade if the episode can't continue.
    pub fn turn(&mut self, calls: Value) -> Result<Vec<String>, Box<Graded>> {
        let Answered { results } =
            self.program.ask_for(&self.question("turn", [("calls", calls.clone())]))?;
        self.history.push(json!({"calls": calls, "results": results}));
        Ok(results)
    }

    /// Ends the episode with this conversation, and returns its grade. If `feedback` is true, a scored grade has the
    /// environment's feedback.
    pub fn reward(self, conversation: &[Value], feedback: bool) -> Graded {
        let more = [("conversation", conversation.into()), ("feedback", feedback.into())];
        self.program.ask(&self.question("reward", more))
    }
}

/// Returns a reader that passes every column as an argument.
///
/// # Errors
/// Returns the errors of [`python::reader`].
pub fn reader(table: &Table<'_>, beside: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
    let read = python::reader(table, beside)?;
    Ok(Box::new(move |cells| read(cells).map(|python::Truth { columns }| Truth { columns })))
}
