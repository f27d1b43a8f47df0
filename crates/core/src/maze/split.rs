//! Training mazes and held-out mazes.

use super::{Maze, Mazes};
use std::collections::HashSet;

/// A split of problems. The indices of training mazes and of held-out mazes never overlap.
///
/// At small sizes, different indices often give the same maze. [`HeldOut`] contains each held-out maze once and excludes it
/// from training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// Problems to train on.
    Train,
    /// Problems for evaluation, which are never trained on.
    HeldOut,
}

impl Split {
    /// Number of indices of one split: enough for any run, and exact as a JSON number.
    pub const LEN: u64 = 1 << 40;

    /// Returns the maze index of the split's `i`-th maze.
    ///
    /// # Panics
    /// If `i` is not below [`Split::LEN`].
    pub fn index(self, i: u64) -> u64 {
        assert!(i < Self::LEN, "maze {i} of a split that holds {}", Self::LEN);
        match self {
            Self::Train => i,
            Self::HeldOut => Self::LEN + i,
        }
    }

    /// Returns the split that a maze index belongs to.
    pub fn of(index: u64) -> Self {
        if index < Self::LEN { Self::Train } else { Self::HeldOut }
    }
}

/// The held-out mazes of a run, all different, and training mazes that differ from all of them.
///
/// A 9x9 grid has 100,352 spanning trees, and randomised Prim prefers some: about half of 128 held-out mazes appear
/// among the first 12,800 training mazes. So a training maze that equals a held-out one is drawn again. A 7x7 grid has
/// 192 spanning trees, and 128 draws give 72 different mazes, so statistics over 128 draws would count some mazes twice.
#[derive(Debug, Clone)]
pub struct HeldOut {
    source: Mazes,
    mazes: Vec<(u64, Maze)>,
    set: HashSet<Maze>,
}

impl HeldOut {
    /// Number of training indices. Redraws use the indices above this number.
    pub const TRAINING: u64 = 1 << 32;

    /// Makes the first `count` held-out mazes and removes duplicates.
    ///
    /// # Panics
    /// If [`Mazes::check`] returns an error.
    pub fn new(source: Mazes, count: u64) -> Self {
        let mut set = HashSet::new();
        let draws = (0..count).map(|i| Split::HeldOut.index(i)).map(|i| (i, source.maze(i)));
        let mazes = draws.filter(|(_, maze)| set.insert(maze.clone())).collect();
        Self { source, mazes, set }
    }

    /// Returns the held-out mazes and their indices for [`Mazes::maze`].
    pub fn mazes(&self) -> &[(u64, Maze)] {
        &self.mazes
    }

    /// Returns whether a maze is held out.
    pub fn contains(&self, maze: &Maze) -> bool {
        self.set.contains(maze)
    }

    /// Returns the `i`-th training maze and its index for [`Mazes::maze`]. The maze depends on the held-out mazes, but not
    /// on other training mazes.
    ///
    /// Returns `None` if 256 draws in a row are held out, because the grid is too small for so many held-out mazes.
    ///
    /// # Panics
    /// If `i` is not below [`HeldOut::TRAINING`].
    pub fn training(&self, i: u64) -> Option<(u64, Maze)> {
        assert!(i < Self::TRAINING, "training maze {i} of {}", Self::TRAINING);
        (0..Split::LEN / Self::TRAINING)
            .map(|draw| Split::Train.index(draw * Self::TRAINING + i))
            .map(|index| (index, self.source.maze(index)))
            .find(|(_, maze)| !self.contains(maze))
    }
}
