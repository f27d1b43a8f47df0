//! Conversations with the user's environment, a Python class whose methods are tools. A worker process has the environments
//! (`_environment.py`), and grades an episode when it ends.

use crate::graded::{Graded, Response};
use crate::kind::python;
use crate::program::{self, Program};
use crate::row::Table;
use crate::verifier::{Beside, Grading, Reader, Reference, Settings, Unreadable, Verifier};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The program that has the environments.
const WORKER: &str = concat!(
    include_str!("../../../py/python/fgrpo/_environment.py"),
    "\n\n",
    include_str!("../../../py/python/fgrpo/_grader.py")
);

/// The keyword arguments of the environment's `reset`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The columns of the row. The prompt is also there as `prompt`.
    pub columns: Map<String, Value>,
}

impl Reference for Truth {
    fn verifier(&self, grading: &Grading) -> Result<Box<dyn Verifier>, Unreadable> {
        let program = grading.program.clone();
        let program = program.ok_or(Unreadable::new("no_grader", "no environment was loaded"))?;
        Ok(Box::new(ByEpisode { columns: self.columns.clone(), program }))
    }

    fn read_as(&self) -> Option<String> {
        let columns: Vec<&str> = self.columns.keys().map(String::as_str).collect();
        Some(format!("graded by your environment, whose reset receives the columns {}", columns.join(", ")))
    }

    fn gold(&self) -> Option<String> {
        self.columns.get("answer").and_then(Value::as_str).map(str::to_owned)
    }

    fn program(settings: &Settings) -> anyhow::Result<Option<program::Settings>> {
        match settings.command.as_ref().filter(|program| program.is_function()) {
            Some(program) => python::worker(program, "task.environment", WORKER).map(Some),
            None => bad_input!(
                "task environment: found no environment, wanted a configuration with task.environment, as \"env.py:Calculator\""
            ),
        }
    }
}

/// An environment grades its own episodes, not texts.
struct ByEpisode {
    columns: Map<String, Value>,
    program: Arc<Program>,
}

impl Verifier for ByEpisode {
    fn check(&self, _: Response<'_>) -> Graded {
        Graded::unscorable("found a text, wanted an episode that was played with the environment")
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

/// How an episode begins.
#[derive(Debug, Deserialize)]
pub struct Begun {
    /// The conversation, with what `reset` returned.
    pub messages: Vec<Value>,
    /// The schemas of the tools.
    pub tools: Vec<Value>,
    /// The tools in words, for a template that knows none.
    pub offer: String,
}

/// The tools' answers to the calls of a turn.
#[derive(Deserialize)]
struct Answered {
    results: Vec<String>,
}

/// An episode that is being played.
#[derive(Debug)]
pub struct Episode<'a> {
    program: &'a Program,
    /// What every question says: the episode, its row and its first messages.
    about: Map<String, Value>,
    history: Vec<Value>,
}

impl<'a> Episode<'a> {
    /// Begins an episode. `name`: of no other episode that is being played.
    ///
    /// # Errors
    /// The grade of an episode that can't be played.
    pub fn begin(
        program: &'a Program,
        name: &str,
        columns: &Map<String, Value>,
        messages: Value,
    ) -> Result<(Self, Begun), Box<Graded>> {
        let about = json!({"episode": name, "problem": columns, "messages": messages});
        let Value::Object(about) = about else { unreachable!("an object was written") };
        let episode = Self { program, about, history: Vec::new() };
        let begun = program.ask_for(&episode.question("begin", []))?;
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
    /// The grade of an episode that can't go on.
    pub fn turn(&mut self, calls: Value) -> Result<Vec<String>, Box<Graded>> {
        let Answered { results } =
            self.program.ask_for(&self.question("turn", [("calls", calls.clone())]))?;
        self.history.push(json!({"calls": calls, "results": results}));
        Ok(results)
    }

    /// The reward of the episode, which ends with this conversation.
    pub fn reward(self, conversation: Vec<Value>) -> Graded {
        self.program.ask(&self.question("reward", [("conversation", conversation.into())]))
    }
}

/// Every column is an argument.
///
/// # Errors
/// As [`python::reader`].
pub fn reader(table: &Table<'_>, beside: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
    let read = python::reader(table, beside)?;
    Ok(Box::new(move |cells| read(cells).map(|python::Truth { columns }| Truth { columns })))
}
