//! The single-solution maze.

use super::ranges::{MANY, whole};
use super::schema;
use fgrpo_core::maze::{self, HeldOut, Scoring};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Mazes, generated from (seed, index).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MazeConfig {
    /// Width and height in cells: odd, at least 5.
    pub size: usize,
    /// Training mazes.
    pub train: u64,
    /// Held-out mazes, which are never trained on. Of equal ones, one is kept.
    pub held_out: u64,
    /// Seed of the mazes, separate from the run's, so that runs share them.
    pub seed: u64,
    /// `exact`: the completion must be the shortest path; `reaches_goal`: it must reach the goal.
    #[schemars(schema_with = "schema::word::<Scoring>")]
    pub reward: Scoring,
}

impl Default for MazeConfig {
    fn default() -> Self {
        Self { size: 17, train: 1_000_000, held_out: 256, seed: 0, reward: Scoring::default() }
    }
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
