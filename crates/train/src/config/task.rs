//! The problems, and how answers are graded.

use super::defaults;
use super::maze::MazeConfig;
use super::text::{ArithmeticConfig, PuzzlesConfig, TextConfig};
use anyhow::Context;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use fgrpo_eval::program::Answerer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The problems, and how answers are graded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum TaskConfig {
    /// The single-solution maze.
    Maze(MazeConfig),
    /// Multi-step arithmetic as text.
    Arithmetic(ArithmeticConfig),
    /// Generated puzzles of a SynLogic task.
    Puzzles(PuzzlesConfig),
    /// Mathematics with the answer in a `\boxed{}`.
    Math(TextConfig),
    /// Multiple choice: the answer is the letter of an option.
    Choice(TextConfig),
    /// Instructions that can be checked by a program.
    IfEval(TextConfig),
    /// Python programs judged by tests.
    Code(TextConfig),
    /// JSON that must fit a schema.
    #[serde(rename = "json-schema", alias = "json_schema")]
    JsonSchema(TextConfig),
    /// Texts that must match a pattern.
    Regex(TextConfig),
    /// The logic tasks of SynLogic.
    SynLogic(TextConfig),
    /// Graded by the user's own program.
    Command(TextConfig),
    /// Graded by the user's own Python function.
    Python(TextConfig),
    /// A mix of several text tasks.
    Mix(MixConfig),
}

impl TaskConfig {
    /// The kind and settings of a task with problems from files.
    pub fn text(&self) -> Option<(TaskKind, &TextConfig)> {
        match self {
            Self::Maze(_) | Self::Arithmetic(_) | Self::Puzzles(_) | Self::Mix(_) => None,
            Self::Math(c) => Some((TaskKind::Math, c)),
            Self::Choice(c) => Some((TaskKind::Choice, c)),
            Self::IfEval(c) => Some((TaskKind::IfEval, c)),
            Self::Code(c) => Some((TaskKind::Code, c)),
            Self::JsonSchema(c) => Some((TaskKind::JsonSchema, c)),
            Self::Regex(c) => Some((TaskKind::Regex, c)),
            Self::SynLogic(c) => Some((TaskKind::SynLogic, c)),
            Self::Command(c) => Some((TaskKind::Command, c)),
            Self::Python(c) if c.environment.is_some() => Some((TaskKind::Environment, c)),
            Self::Python(c) => Some((TaskKind::Python, c)),
        }
    }

    /// A task with problems from files. Mazes come from no file.
    pub fn of_text(kind: TaskKind, text: TextConfig) -> Option<Self> {
        Some(match kind {
            TaskKind::Math => Self::Math(text),
            TaskKind::Choice => Self::Choice(text),
            TaskKind::IfEval => Self::IfEval(text),
            TaskKind::Code => Self::Code(text),
            TaskKind::JsonSchema => Self::JsonSchema(text),
            TaskKind::Regex => Self::Regex(text),
            TaskKind::SynLogic => Self::SynLogic(text),
            TaskKind::Command => Self::Command(text),
            TaskKind::Python | TaskKind::Environment => Self::Python(text),
            TaskKind::Maze => return None,
        })
    }

    /// Sets what answers for graders and environments that name a function of this process.
    pub fn set_answerer(&mut self, answerer: &Answerer) {
        match self {
            Self::Mix(mix) => mix.parts.iter_mut().for_each(|part| part.task.set_answerer(answerer)),
            Self::Command(text) | Self::Python(text) => {
                for program in [&mut text.grader, &mut text.environment].into_iter().flatten() {
                    program.answerer = Some(answerer.clone());
                }
            }
            _ => {}
        }
    }

    /// Whether the policy talks to an environment, in a mix in one of its parts.
    pub fn has_environment(&self) -> bool {
        match self {
            Self::Mix(mix) => mix.parts.iter().any(|p| p.task.has_environment()),
            other => other.text().is_some_and(|(_, text)| text.environment.is_some()),
        }
    }

    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Maze(_) => "maze",
            Self::Arithmetic(_) => "arithmetic",
            Self::Puzzles(_) => "puzzles",
            Self::Mix(_) => "mix",
            text => text.text().map_or("text", |(kind, _)| kind.name()),
        }
    }

    /// Texts that end a completion.
    pub fn stop(&self) -> &[String] {
        match self {
            Self::Mix(mix) => &mix.stop,
            other => other.text().map_or(&[], |(_, text)| &text.stop),
        }
    }

    /// The files and folders that it names.
    pub fn paths(&self) -> Vec<&PathBuf> {
        match self {
            Self::Mix(mix) => {
                mix.tokenizer.iter().chain(mix.parts.iter().flat_map(|p| p.task.paths())).collect()
            }
            other => other.text().map_or_else(Vec::new, |(_, text)| {
                std::iter::once(&text.data).chain(&text.held_out).chain(&text.tokenizer).collect()
            }),
        }
    }

    /// The maximum prompt length, if the task has such a limit.
    pub fn max_prompt_tokens(&self) -> Option<usize> {
        match self {
            Self::Mix(mix) => mix.parts.iter().filter_map(|p| p.task.max_prompt_tokens()).max(),
            other => other.text().map(|(_, text)| text.max_prompt_tokens),
        }
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        match self {
            Self::Mix(mix) => mix.check(),
            Self::Maze(maze) => maze.check(),
            Self::Arithmetic(arithmetic) => arithmetic.check(),
            Self::Puzzles(puzzles) => puzzles.check(),
            text => text.text().map_or(Ok(()), |(kind, c)| c.check(kind)),
        }
    }

    /// Whether it trains on completions whose reward is that of their verdict. Only a user's own grader gives scores.
    pub(super) fn has_binary_rewards(&self) -> bool {
        match self {
            Self::Command(_) | Self::Python(_) => false,
            Self::Mix(mix) => mix.parts.iter().any(|p| p.weight > 0.0 && p.task.has_binary_rewards()),
            _ => true,
        }
    }

    /// The lowest correct score of each program that grades what is trained on.
    pub(super) fn correct_from(&self) -> Box<dyn Iterator<Item = f64> + '_> {
        match self {
            Self::Command(text) | Self::Python(text) => {
                Box::new(text.grading().command.into_iter().map(|program| program.correct_from))
            }
            Self::Mix(mix) => {
                let trained = mix.parts.iter().filter(|p| p.weight > 0.0);
                Box::new(trained.flat_map(|p| p.task.correct_from()))
            }
            _ => Box::new(std::iter::empty()),
        }
    }

    pub(super) fn holds_out_nothing(&self) -> bool {
        match self {
            Self::Maze(maze) => maze.held_out == 0,
            Self::Arithmetic(arithmetic) => arithmetic.held_out == 0,
            Self::Puzzles(puzzles) => puzzles.held_out == 0,
            Self::Mix(mix) => mix.holds_out_nothing(),
            text => text.text().is_some_and(|(_, c)| c.holds_out_nothing()),
        }
    }
}

/// Several sources of problems, mixed by weight, with one model and one tokenizer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixConfig {
    /// Folder of the tokenizer and the chat template, for all parts; without it, `model.path`, or else the tokenizer of
    /// the first part with generated problems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// Texts that end a completion, for all parts.
    #[serde(default)]
    pub stop: Vec<String>,
    /// The sources of problems.
    pub parts: Vec<MixPart>,
}

/// One source of problems.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MixPart {
    /// The part's name in evaluations; without it, the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Share of the prompts relative to the other parts. With 0 the part is for evaluation only: all problems of `data`
    /// are held out, unless `held_out` names a file.
    #[serde(default = "defaults::part_weight")]
    pub weight: f64,
    /// The problems: any text task.
    #[serde(flatten)]
    pub task: TaskConfig,
}

impl MixPart {
    /// Its name in evaluations.
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
                bad_input!("{here}: kind: found {}, wanted a text task", part.task.kind());
            }
            if !(part.weight.is_finite() && part.weight >= 0.0) {
                bad_input!("{here}: weight: found {}, wanted a number of at least 0", part.weight);
            }
            if let Some((_, text)) = part.task.text() {
                if text.tokenizer.is_some() {
                    bad_input!(
                        "{here}: tokenizer: found in a part, wanted task.tokenizer, which is for all parts"
                    );
                }
                if !text.stop.is_empty() {
                    bad_input!(
                        "{here}: stop: found {:?} in a part, wanted task.stop, which is for all parts",
                        text.stop
                    );
                }
            }
            part.task.check().with_context(|| here.clone())?;
            if names.contains(&part.name()) {
                bad_input!("{here}: name: found {:?} twice, wanted a name for each part", part.name());
            }
            names.push(part.name());
        }
        if !self.parts.iter().any(|p| p.weight > 0.0) {
            bad_input!("task.parts: found no part with a weight above 0, wanted at least one to train on");
        }
        Ok(())
    }

    pub(super) fn holds_out_nothing(&self) -> bool {
        self.parts.iter().all(|p| p.weight > 0.0 && p.task.holds_out_nothing())
    }
}
