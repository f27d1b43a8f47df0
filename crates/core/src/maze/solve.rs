//! Finds shortest paths by breadth-first search from the goal.

use super::{Maze, Move, Position};
use std::collections::VecDeque;

impl Maze {
    /// Returns the moves of the shortest path from start to goal that is first in the order of [`Move::ALL`], or `None` if
    /// no path exists.
    pub fn solve(&self) -> Option<Vec<Move>> {
        let distances = self.distances();
        distances.distance(self.start())?;
        let mut moves = Vec::new();
        let mut cell = self.start();
        while let Some((step, next)) = distances.closer(cell).next() {
            moves.push(step);
            cell = next;
        }
        Some(moves)
    }

    /// Returns the length in moves of the shortest path from start to goal, or `None` if no path exists.
    pub fn shortest(&self) -> Option<usize> {
        self.distances().distance(self.start())
    }

    /// Counts the shortest paths from start to goal, up to `u64::MAX`. The count is 0 if no path exists.
    pub fn solution_count(&self) -> u64 {
        let distances = self.distances();
        let Some(length) = distances.distance(self.start()) else { return 0 };
        // Counts the paths from the start to each cell, by decreasing distance from the goal.
        let mut paths = vec![0u64; self.size * self.size];
        paths[self.index(self.start())] = 1;
        let mut layer = vec![self.start()];
        for _ in 0..length {
            let mut next_layer = Vec::new();
            for cell in layer {
                let here = paths[self.index(cell)];
                for (_, next) in distances.closer(cell) {
                    let there = &mut paths[self.index(next)];
                    if *there == 0 {
                        next_layer.push(next);
                    }
                    *there = there.saturating_add(here);
                }
            }
            layer = next_layer;
        }
        paths[self.index(self.goal())]
    }

    /// Returns the moves of every shortest path from start to goal, in the order of [`Move::ALL`]. The number of paths may grow
    /// exponentially with the size; call [`Maze::solution_count`] first.
    pub fn solutions(&self) -> Vec<Vec<Move>> {
        let distances = self.distances();
        let Some(length) = distances.distance(self.start()) else { return Vec::new() };
        let mut paths = vec![(Vec::with_capacity(length), self.start())];
        for _ in 0..length {
            let longer = paths.iter().flat_map(|(moves, cell)| {
                distances.closer(*cell).map(move |(step, next)| ([moves.as_slice(), &[step]].concat(), next))
            });
            paths = longer.collect();
        }
        paths.into_iter().map(|(moves, _)| moves).collect()
    }

    fn index(&self, (row, column): Position) -> usize {
        row * self.size + column
    }

    fn distances(&self) -> Distances<'_> {
        let mut moves: Vec<Option<usize>> = vec![None; self.size * self.size];
        moves[self.index(self.goal())] = Some(0);
        let mut queue = VecDeque::from([(self.goal(), 0)]);
        while let Some((cell, distance)) = queue.pop_front() {
            for next in Move::ALL.into_iter().filter_map(|step| step.from(cell, 1)) {
                if self.is_open(next) && moves[self.index(next)].is_none() {
                    moves[self.index(next)] = Some(distance + 1);
                    queue.push_back((next, distance + 1));
                }
            }
        }
        Distances { maze: self, moves }
    }
}

/// Distance of every cell from the goal.
struct Distances<'a> {
    maze: &'a Maze,
    /// Distance of a cell in moves, by row and column, or `None` for walls and for cells without a path to the goal.
    moves: Vec<Option<usize>>,
}

impl Distances<'_> {
    fn distance(&self, cell: Position) -> Option<usize> {
        self.maze.is_open(cell).then(|| self.moves[self.maze.index(cell)]).flatten()
    }

    /// Returns the moves from a cell to the cells one move closer to the goal, with these cells.
    fn closer(&self, cell: Position) -> impl Iterator<Item = (Move, Position)> + '_ {
        let here = self.distance(cell);
        Move::ALL.into_iter().filter_map(move |step| {
            let next = step.from(cell, 1)?;
            (self.distance(next)? + 1 == here?).then_some((step, next))
        })
    }
}
