//! Settings of mazes.

use super::ranges::{MANY, whole, within};
use super::schema;
use fgrpo_core::maze::{self, HeldOut, Mazes, Scoring};
use fgrpo_eval::failure::BadInput;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Mazes, generated from (seed, index).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MazeConfig {
    /// Width and height in cells: odd, at least 5.
    pub size: usize,
    /// Number of training mazes.
    pub train: u64,
    /// Number of held-out mazes, which are never trained on. Duplicates are dropped.
    pub held_out: u64,
    /// Seed of the mazes, separate from the run's seed, so that runs can share mazes.
    pub seed: u64,
    /// `exact`: the completion must be the shortest path; `reaches_goal`: it must reach the goal.
    #[schemars(schema_with = "schema::word::<Scoring>")]
    pub reward: Scoring,
    /// `one`: the corridors form a tree, so each maze has one shortest path. `all`: grids with several shortest
    /// paths, which are all correct; the demonstration is a random one of them.
    pub solutions: SolutionsName,
    /// With `solutions = "all"`: probability that a cell is a wall, 0.3 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walls: Option<f64>,
    /// With `solutions = "all"`: minimum and maximum number of shortest paths, `[6, 40]` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub solution_count: Option<[u64; 2]>,
}

/// How many completions of a maze are correct.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SolutionsName {
    /// One.
    #[default]
    One,
    /// All shortest paths of a grid that has several.
    All,
}

impl Default for MazeConfig {
    fn default() -> Self {
        Self {
            size: 17,
            train: 1_000_000,
            held_out: 256,
            seed: 0,
            reward: Scoring::default(),
            solutions: SolutionsName::One,
            walls: None,
            solution_count: None,
        }
    }
}

/// Total cells of all held-out mazes, which are kept in memory.
const CELLS: u64 = 1 << 28;

/// Maximum number of shortest paths of a grid, all of which are scored.
const SOLUTIONS: u64 = 1 << 12;

impl MazeConfig {
    /// Returns the distribution of the mazes.
    pub fn mazes(&self) -> Mazes {
        let [min, max] = self.solution_count.unwrap_or([6, 40]);
        let solutions = match self.solutions {
            SolutionsName::One => maze::Solutions::One,
            SolutionsName::All => maze::Solutions::Many { walls: self.walls.unwrap_or(0.3), min, max },
        };
        Mazes { size: self.size, seed: self.seed, solutions }
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        if !maze::valid_size(self.size) {
            bad_input!("task.size: expected {}, found {}", maze::VALID_SIZES, self.size);
        }
        whole(
            "task",
            [
                ("train", self.train, 1..=HeldOut::TRAINING),
                ("held_out", self.held_out, 0..=MANY.min(CELLS / (self.size * self.size) as u64)),
            ],
        )?;
        let set = [("walls", self.walls.is_some()), ("solution_count", self.solution_count.is_some())];
        if let (SolutionsName::One, Some((key, _))) = (self.solutions, set.iter().find(|(_, set)| *set)) {
            bad_input!("task.{key}: requires task.solutions = \"all\"");
        }
        within("task.solution_count", self.solution_count.map_or(1, |[_, max]| max), 0..=SOLUTIONS)?;
        self.mazes().check().map_err(|error| BadInput(format!("task.{error}")).into())
    }
}
