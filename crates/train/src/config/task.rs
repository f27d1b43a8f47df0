//! The problems, and how answers are graded.

use super::defaults;
use super::mix::MixConfig;
use super::ranges::{MANY, whole};
use super::text::{ArithmeticConfig, TextConfig};
use crate::bad_input;
use crate::problem::kind::TaskKind;
use fgrpo_core::maze::{self, HeldOut};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The problems, and how answers are graded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum TaskConfig {
    /// The single-solution maze.
    Maze(MazeConfig),
    /// Multi-step arithmetic as text.
    Arithmetic(ArithmeticConfig),
    /// Mathematics with the answer in a `\boxed{}`.
    Math(TextConfig),
    /// Multiple choice: the answer is the letter of an option.
    Choice(TextConfig),
    /// Instructions that can be checked by a program.
    IfEval(TextConfig),
    /// The logic tasks of SynLogic.
    SynLogic(TextConfig),
    /// Graded by the user's own program.
    Command(TextConfig),
    /// A mix of several text tasks.
    Mix(MixConfig),
}

impl TaskConfig {
    /// The kind and settings of a task with problems from files.
    pub fn text(&self) -> Option<(TaskKind, &TextConfig)> {
        match self {
            Self::Maze(_) | Self::Arithmetic(_) | Self::Mix(_) => None,
            Self::Math(c) => Some((TaskKind::Math, c)),
            Self::Choice(c) => Some((TaskKind::Choice, c)),
            Self::IfEval(c) => Some((TaskKind::IfEval, c)),
            Self::SynLogic(c) => Some((TaskKind::SynLogic, c)),
            Self::Command(c) => Some((TaskKind::Command, c)),
        }
    }

    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Maze(_) => "maze",
            Self::Arithmetic(_) => "arithmetic",
            Self::Math(_) => "math",
            Self::Choice(_) => "choice",
            Self::IfEval(_) => "ifeval",
            Self::SynLogic(_) => "synlogic",
            Self::Command(_) => "command",
            Self::Mix(_) => "mix",
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
            text => text.text().map_or(Ok(()), |(kind, c)| c.check(kind)),
        }
    }

    pub(super) fn holds_out_nothing(&self) -> bool {
        match self {
            Self::Maze(maze) => maze.held_out == 0,
            Self::Arithmetic(arithmetic) => arithmetic.held_out == 0,
            Self::Mix(mix) => mix.holds_out_nothing(),
            text => text.text().is_some_and(|(_, c)| c.holds_out_nothing()),
        }
    }
}

/// Mazes, generated from (seed, index).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MazeConfig {
    /// Cells along an edge: odd, at least 5.
    #[serde(default = "defaults::maze_size")]
    pub size: usize,
    /// Number of training mazes.
    #[serde(default = "defaults::maze_train")]
    pub train: u64,
    /// Number of held-out mazes; their indices never overlap with training.
    #[serde(default = "defaults::maze_held_out")]
    pub held_out: u64,
    /// Seed of the mazes; separate from the run's seed, so that runs share their problems.
    #[serde(default)]
    pub seed: u64,
    /// `exact`: the completion equals the shortest path; `reaches_goal`: it walks to the goal.
    #[serde(default)]
    pub reward: MazeReward,
}

/// How a maze completion is graded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MazeReward {
    /// The paper's criterion: equal to the unique shortest action sequence.
    #[default]
    Exact,
    /// MaxRL's criterion: all moves are valid, and the walk reaches the goal.
    ReachesGoal,
}

/// Total cells of all held-out mazes, which are kept in memory.
const CELLS: u64 = 1 << 28;

impl MazeConfig {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if !maze::valid_size(self.size) {
            bad_input!("task.size: found {}, wanted {}", self.size, maze::VALID_SIZES);
        }
        whole(
            "task",
            [
                ("train", self.train, 1..=HeldOut::TRAINING),
                ("held_out", self.held_out, 0..=MANY.min(CELLS / (self.size * self.size) as u64)),
            ],
        )
    }
}
