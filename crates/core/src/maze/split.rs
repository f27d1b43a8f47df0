//! Which mazes a policy learns from and which it is evaluated on.

use super::{Maze, generate};
use std::collections::HashSet;

/// Training and held-out mazes, whose indices never overlap.
///
/// Different indices are different draws, which at small sizes are often the same maze; [`HeldOut`] keeps such twins
/// out of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// Mazes that a policy learns from.
    Train,
    /// Mazes that it is evaluated on.
    HeldOut,
}

impl Split {
    /// Indices of one split: enough for any run, and exact in a JSON number.
    pub const LEN: u64 = 1 << 40;

    /// The maze index of the split's `i`-th maze.
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

    /// The split that a maze index belongs to.
    pub fn of(index: u64) -> Self {
        if index < Self::LEN { Self::Train } else { Self::HeldOut }
    }
}

/// The held-out mazes of a run, and training mazes that are none of them.
///
/// A 9x9 grid has 100,352 trees and randomised Prim prefers some: of 128 held-out mazes about half turn up among the
/// first 12,800 training draws. So a training draw that equals a held-out maze is drawn again.
#[derive(Debug, Clone)]
pub struct HeldOut {
    size: usize,
    seed: u64,
    mazes: Vec<Maze>,
    set: HashSet<Maze>,
}

impl HeldOut {
    /// Training mazes that can be told apart; redraws take the indices above.
    pub const TRAINING: u64 = 1 << 32;

    /// The first `count` held-out mazes.
    ///
    /// # Panics
    /// If the size is even or below 5.
    pub fn new(size: usize, seed: u64, count: u64) -> Self {
        let mazes: Vec<Maze> = (0..count).map(|i| generate(size, seed, Split::HeldOut.index(i))).collect();
        let set = mazes.iter().cloned().collect();
        Self { size, seed, mazes, set }
    }

    /// The held-out mazes; maze i has the index `Split::HeldOut.index(i)`.
    pub fn mazes(&self) -> &[Maze] {
        &self.mazes
    }

    /// Whether a maze is one of them.
    pub fn contains(&self, maze: &Maze) -> bool {
        self.set.contains(maze)
    }

    /// The `i`-th training maze and its index, from which [`generate`] makes it again. It depends on the held-out
    /// mazes but on no other training maze.
    ///
    /// Nothing if 256 draws in a row are held out: the grid is too small for so many held-out mazes.
    ///
    /// # Panics
    /// If `i` is not below [`HeldOut::TRAINING`].
    pub fn training(&self, i: u64) -> Option<(u64, Maze)> {
        assert!(i < Self::TRAINING, "training maze {i} of {}", Self::TRAINING);
        (0..Split::LEN / Self::TRAINING)
            .map(|draw| Split::Train.index(draw * Self::TRAINING + i))
            .map(|index| (index, generate(self.size, self.seed, index)))
            .find(|(_, maze)| !self.contains(maze))
    }
}
