//! Defines a distribution of mazes, which gives one maze for each index.

use super::{Maze, Position, VALID_SIZES, generate, valid_size};
use crate::error::{Error, require};
use crate::rng::Key;

/// Number of shortest paths, and so of correct completions, of a maze.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Solutions {
    /// One. The corridors form a tree, as in the paper.
    #[default]
    One,
    /// Several. The interior is an open grid with some walls.
    Many {
        /// Probability that an interior cell other than start and goal is a wall, in `[0, 1)`.
        walls: f64,
        /// Minimum number of shortest paths.
        min: u64,
        /// Maximum number of shortest paths.
        max: u64,
    },
}

/// A distribution of mazes. Equal values give the same maze for the same index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mazes {
    /// Number of rows and of columns, including the border.
    pub size: usize,
    /// Seed of the mazes.
    pub seed: u64,
    /// Number of correct completions of a maze.
    pub solutions: Solutions,
}

/// Number of grids that are drawn for one index before [`Mazes::maze`] gives up.
const ATTEMPTS: u64 = 100_000;

/// Number of grids among which [`Mazes::check`] must find a suitable one. [`ATTEMPTS`] is so much larger that
/// [`Mazes::maze`] practically never gives up on a distribution that passes the check.
const CHECKED_ATTEMPTS: u64 = 2_000;

/// Number of indices that [`Mazes::check`] tries.
const CHECKED: u64 = 16;

impl Mazes {
    /// Returns an error unless the size is valid, the settings are in their ranges, and mazes with a suitable number of
    /// shortest paths aren't too rare to be drawn.
    pub fn check(&self) -> Result<(), Error> {
        require(valid_size(self.size), "size", self.size, VALID_SIZES)?;
        let Solutions::Many { walls, min, max } = self.solutions else { return Ok(()) };
        require((0.0..1.0).contains(&walls), "walls", walls, "at least 0 and less than 1")?;
        require(
            min >= 1 && min <= max,
            "solution_count",
            format_args!("[{min}, {max}]"),
            "two numbers, 1 <= min <= max",
        )?;
        require(
            (0..CHECKED).all(|index| self.draw(index, CHECKED_ATTEMPTS).is_some()),
            "solution_count",
            format_args!("[{min}, {max}]"),
            format_args!(
                "a range that grids of size {} with a fraction {walls} of walls often have",
                self.size
            ),
        )
    }

    /// Returns the maze with this index.
    ///
    /// # Panics
    /// If [`Mazes::check`] returns an error.
    pub fn maze(&self, index: u64) -> Maze {
        self.draw(index, ATTEMPTS).expect("the distribution was checked")
    }

    /// Returns the first of `attempts` grids that has a suitable number of shortest paths, or `None` if none has.
    fn draw(&self, index: u64, attempts: u64) -> Option<Maze> {
        let Solutions::Many { walls, min, max } = self.solutions else {
            return Some(generate(self.size, self.seed, index));
        };
        let mut random = Key::new(self.seed).with(index).stream();
        (0..attempts).find_map(|_| {
            let mut maze = Maze { size: self.size, open: vec![false; self.size * self.size] };
            for row in 1..self.size - 1 {
                for column in 1..self.size - 1 {
                    let end = |cell: Position| cell == maze.start() || cell == maze.goal();
                    // The draw comes first, so that each cell uses one.
                    let open = random.uniform() >= walls || end((row, column));
                    maze.open[row * self.size + column] = open;
                }
            }
            (min..=max).contains(&maze.solution_count()).then_some(maze)
        })
    }
}
