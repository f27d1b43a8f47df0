//! The shortest path, by breadth-first search.

use super::{Maze, Move, Position};
use std::collections::VecDeque;

impl Maze {
    /// The moves of the shortest path from start to goal: in a generated maze, the only simple path. `None` if there is
    /// no path, which is possible only in a maze from a drawing.
    pub fn solve(&self) -> Option<Vec<Move>> {
        let at = |(row, column): Position| row * self.size + column;
        let mut came: Vec<Option<Move>> = vec![None; self.size * self.size];
        let mut queue = VecDeque::from([self.start()]);
        while let Some(cell) = queue.pop_front() {
            if cell == self.goal() {
                return Some(self.backtrack(&came));
            }
            for step in Move::ALL {
                if let Some(next) = step.from(cell, 1)
                    && self.is_open(next)
                    && next != self.start()
                    && came[at(next)].is_none()
                {
                    came[at(next)] = Some(step);
                    queue.push_back(next);
                }
            }
        }
        None
    }

    fn backtrack(&self, came: &[Option<Move>]) -> Vec<Move> {
        let mut moves = Vec::new();
        let (mut row, mut column) = self.goal();
        while let Some(step) = came[row * self.size + column] {
            moves.push(step);
            match step {
                Move::Up => row += 1,
                Move::Down => row -= 1,
                Move::Left => column += 1,
                Move::Right => column -= 1,
            }
        }
        moves.reverse();
        moves
    }
}
