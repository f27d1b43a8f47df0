//! The problems, and how answers are graded.

use super::maze::MazeConfig;
use super::schema;
use super::text::{ArithmeticConfig, PuzzlesConfig, TextConfig};
use anyhow::Context;
use fgrpo_core::default::ratio;
use fgrpo_core::maze::Scoring;
use fgrpo_eval::io::objects::Objects;
use fgrpo_eval::names::Named;
use fgrpo_eval::program::Answerer;
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use std::path::PathBuf;
use toml::{Table, Value};

/// The problems, and how answers are graded.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum TaskConfig {
    /// Mazes.
    Maze(MazeConfig),
    /// Multi-step arithmetic as text.
    Arithmetic(ArithmeticConfig),
    /// Generated puzzles of a SynLogic task.
    Puzzles(PuzzlesConfig),
    /// A mix of several text tasks.
    Mix(MixConfig),
    /// Problems from files.
    #[serde(untagged)]
    Text(Box<TextConfig>),
}

impl<'de> Deserialize<'de> for TaskConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn read<T: DeserializeOwned, E: Error>(table: Table) -> Result<T, E> {
            let read = T::deserialize(Objects(Value::Table(table)));
            read.map_err(|e: toml::de::Error| E::custom(e.message()))
        }
        let mut table = Table::deserialize(deserializer)?;
        let kind = match table.remove("kind") {
            Some(Value::String(kind)) => kind.replace('_', "-"),
            Some(other) => {
                return Err(D::Error::invalid_type(Unexpected::Other(other.type_str()), &"a string"));
            }
            None => return Err(D::Error::missing_field("kind")),
        };
        Ok(match kind.as_str() {
            "maze" => Self::Maze(read(table)?),
            "arithmetic" => Self::Arithmetic(read(table)?),
            "puzzles" => Self::Puzzles(read(table)?),
            "mix" => Self::Mix(read(table)?),
            text if KINDS.contains(&text) => {
                table.insert("kind".to_owned(), kind.into());
                Self::Text(read(table)?)
            }
            unknown => return Err(D::Error::unknown_variant(unknown, &KINDS)),
        })
    }
}

/// Task kinds; those with problems from files come last.
const KINDS: [&str; 13] = [
    "maze",
    "arithmetic",
    "puzzles",
    "mix",
    "math",
    "choice",
    "ifeval",
    "code",
    "json-schema",
    "regex",
    "synlogic",
    "command",
    "python",
];

impl TaskConfig {
    /// The kinds of tasks with problems from files.
    pub(super) const TEXT: &[&str] = KINDS.split_at(4).1;

    /// Returns the settings of a task with problems from files.
    pub fn text(&self) -> Option<&TextConfig> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Sets the callback of graders and environments that name a function of this process.
    pub fn set_answerer(&mut self, answerer: &Answerer) {
        for text in self.texts_mut() {
            for program in [&mut text.grader, &mut text.environment].into_iter().flatten() {
                program.answerer = Some(answerer.clone());
            }
        }
    }

    /// Returns the settings of all tasks with problems from files: of this task, or of the parts of a mix.
    pub fn texts(&self) -> Vec<&TextConfig> {
        match self {
            Self::Text(text) => vec![text],
            Self::Mix(mix) => mix.parts.iter().flat_map(|part| part.task.texts()).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the settings of all tasks with problems from files, to change them.
    pub fn texts_mut(&mut self) -> Vec<&mut TextConfig> {
        match self {
            Self::Text(text) => vec![text],
            Self::Mix(mix) => mix.parts.iter_mut().flat_map(|part| part.task.texts_mut()).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns whether the policy talks to an environment, in a mix for any of its parts.
    pub fn has_environment(&self) -> bool {
        self.texts().iter().any(|text| text.environment.is_some())
    }

    /// Returns the name of the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Maze(_) => "maze",
            Self::Arithmetic(_) => "arithmetic",
            Self::Puzzles(_) => "puzzles",
            Self::Mix(_) => "mix",
            Self::Text(text) => text.kind().name(),
        }
    }

    /// Returns the folder of the tokenizer and the chat template, if the task names one.
    pub fn tokenizer(&self) -> Option<&PathBuf> {
        match self {
            Self::Mix(mix) => mix.tokenizer.as_ref(),
            Self::Text(text) => text.tokenizer.as_ref(),
            _ => None,
        }
    }

    /// Sets the folder of the tokenizer, for a task that can name one.
    pub fn set_tokenizer(&mut self, folder: PathBuf) {
        match self {
            Self::Mix(mix) => mix.tokenizer = Some(folder),
            Self::Text(text) => text.tokenizer = Some(folder),
            _ => {}
        }
    }

    /// Returns the strings that end a completion.
    pub fn stop(&self) -> &[String] {
        match self {
            Self::Mix(mix) => &mix.stop,
            Self::Text(text) => &text.stop,
            _ => &[],
        }
    }

    /// Returns the files and folders that the task names.
    pub fn paths(&self) -> Vec<&PathBuf> {
        let mut paths: Vec<&PathBuf> = self.tokenizer().into_iter().collect();
        for text in self.texts() {
            paths.extend((!text.owns_data()).then_some(&text.data).into_iter().chain(&text.held_out));
        }
        paths
    }

    /// Returns the maximum prompt length, if the task has such a limit.
    pub fn max_prompt_tokens(&self) -> Option<usize> {
        self.texts().iter().map(|text| text.max_prompt_tokens).max()
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        match self {
            Self::Mix(mix) => mix.check(),
            Self::Maze(maze) => maze.check(),
            Self::Arithmetic(arithmetic) => arithmetic.check(),
            Self::Puzzles(puzzles) => puzzles.check(),
            Self::Text(text) => text.check(),
        }
    }

    /// Returns whether any training problem is graded with a verdict, so that its reward is `reward_correct` or
    /// `reward_wrong`. Only custom graders give scores.
    pub(super) fn has_binary_rewards(&self) -> bool {
        match self {
            Self::Text(text) => !text.gives_scores(),
            Self::Mix(mix) => mix.parts.iter().any(|p| p.weight > 0.0 && p.task.has_binary_rewards()),
            _ => true,
        }
    }

    /// Returns the lowest correct score of each program that grades training problems.
    pub(super) fn correct_from(&self) -> Box<dyn Iterator<Item = f64> + '_> {
        match self {
            Self::Text(text) if text.gives_scores() => {
                Box::new(text.grading().command.into_iter().map(|program| program.correct_from))
            }
            Self::Mix(mix) => {
                let trained = mix.parts.iter().filter(|p| p.weight > 0.0);
                Box::new(trained.flat_map(|p| p.task.correct_from()))
            }
            _ => Box::new(std::iter::empty()),
        }
    }

    /// Returns whether all correct completions of each problem are known.
    pub fn lists_solutions(&self) -> bool {
        matches!(self, Self::Maze(maze) if maze.reward == Scoring::Exact)
    }

    pub(super) fn holds_out_nothing(&self) -> bool {
        match self {
            Self::Maze(maze) => maze.held_out == 0,
            Self::Arithmetic(arithmetic) => arithmetic.held_out == 0,
            Self::Puzzles(puzzles) => puzzles.held_out == 0,
            Self::Mix(mix) => mix.holds_out_nothing(),
            Self::Text(text) => text.holds_out_nothing(),
        }
    }
}

/// Several sources of problems, mixed by weight, with one model and one tokenizer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixConfig {
    /// Folder of the tokenizer and the chat template, for all parts. By default `model.path`, or, for a new model,
    /// the tokenizer of the first part with generated problems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// Strings that end a completion, for all parts.
    #[serde(default)]
    pub stop: Vec<String>,
    /// The sources of problems.
    pub parts: Vec<MixPart>,
}

/// One source of problems.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::open)]
pub struct MixPart {
    /// Name of the part in evaluations, by default its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Weight of the part's prompts relative to the other parts. With 0, the part is only evaluated: all problems of
    /// `data` are held out, unless `held_out` names a file.
    #[serde(default = "ratio::<1, 1>")]
    pub weight: f64,
    /// The problems: any text task.
    #[serde(flatten)]
    pub task: TaskConfig,
}

impl MixPart {
    /// Returns the name of the part in evaluations.
    pub fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.task.kind().to_owned())
    }
}

impl MixConfig {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let mut names = Vec::new();
        for (i, part) in self.parts.iter().enumerate() {
            let here = format!("task.parts, number {} ({})", i + 1, part.name());
            if matches!(part.task, TaskConfig::Maze(_) | TaskConfig::Mix(_)) {
                bad_input!("{here}: kind: expected a text task, found {}", part.task.kind());
            }
            if !(part.weight.is_finite() && part.weight >= 0.0) {
                bad_input!("{here}: weight: expected a number of at least 0, found {}", part.weight);
            }
            if let Some(text) = part.task.text() {
                if text.tokenizer.is_some() {
                    bad_input!("{here}: tokenizer: set task.tokenizer instead, which applies to all parts");
                }
                if !text.stop.is_empty() {
                    bad_input!("{here}: stop: set task.stop instead, which applies to all parts");
                }
            }
            part.task.check().with_context(|| here.clone())?;
            if names.contains(&part.name()) {
                bad_input!("{here}: name: {:?} is used twice; each part needs a separate name", part.name());
            }
            names.push(part.name());
        }
        if !self.parts.iter().any(|p| p.weight > 0.0) {
            bad_input!("task.parts: no part has a weight above 0, so there is nothing to train on");
        }
        Ok(())
    }

    pub(super) fn holds_out_nothing(&self) -> bool {
        self.parts.iter().all(|p| p.weight > 0.0 && p.task.holds_out_nothing())
    }
}
