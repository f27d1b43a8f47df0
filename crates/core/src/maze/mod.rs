//! Generates mazes, finds their shortest paths, converts them to tokens and grades completions.
//!
//! A maze is a function of (size, seed, index), so a maze never depends on how many were made before. In the paper's maze,
//! the corridors form a tree, so exactly one simple path leads from start to goal, and its moves are the only correct
//! completion. [`Mazes`] also makes grids with several shortest paths, each of which is correct. On these grids, the mass
//! that a policy keeps on correct completions can be computed exactly.
//!
//! Source: F-GRPO, appendix "Maze Experiment Details", after arXiv 2602.02710, appendix E.1. Departures: sizes
//! are settings; a training maze that equals a held-out one is drawn again ([`HeldOut`]); grids with several shortest paths.

mod generate;
mod mazes;
mod reward;
mod solve;
mod split;
pub mod tokens;

pub use generate::generate;
pub use mazes::{Mazes, Solutions};
pub use reward::{Grade, Scoring, grade};
pub use split::{HeldOut, Split};
pub use tokens::Token;

/// A cell's position: row and column, from the upper left corner.
pub type Position = (usize, usize);

/// A square maze. The outer cells are walls; start is (1, 1), goal (size - 2, size - 2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Maze {
    size: usize,
    open: Vec<bool>,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Move {
    /// To the row above.
    Up,
    /// To the row below.
    Down,
    /// To the column before.
    Left,
    /// To the column after.
    Right,
}

impl Move {
    /// All moves.
    pub const ALL: [Self; 4] = [Self::Up, Self::Down, Self::Left, Self::Right];

    /// Returns the cell `distance` moves away in this direction, or `None` if it is above or left of the grid.
    pub fn from(self, (row, column): Position, distance: usize) -> Option<Position> {
        match self {
            Self::Up => Some((row.checked_sub(distance)?, column)),
            Self::Down => Some((row + distance, column)),
            Self::Left => Some((row, column.checked_sub(distance)?)),
            Self::Right => Some((row, column + distance)),
        }
    }
}

impl Maze {
    /// Parses a maze from a drawing: `#` is a wall, anything else is free.
    ///
    /// Returns `None` unless the drawing is a square of a valid size ([`valid_size`]) with closed border, free start and free
    /// goal.
    pub fn from_ascii(drawing: &str) -> Option<Self> {
        let rows: Vec<Vec<bool>> = drawing.lines().map(|l| l.chars().map(|c| c != '#').collect()).collect();
        let size = rows.len();
        if !valid_size(size) || rows.iter().any(|r| r.len() != size) {
            return None;
        }
        let maze = Self { size, open: rows.concat() };
        let edge = |i: usize| i == 0 || i == size - 1;
        let closed = (0..size).all(|r| (0..size).all(|c| !(edge(r) || edge(c)) || !maze.is_open((r, c))));
        (closed && maze.is_open(maze.start()) && maze.is_open(maze.goal())).then_some(maze)
    }

    /// Returns the number of rows and of columns, including walls.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the start cell.
    pub fn start(&self) -> Position {
        (1, 1)
    }

    /// Returns the goal cell.
    pub fn goal(&self) -> Position {
        (self.size - 2, self.size - 2)
    }

    /// Returns whether a cell can be entered. Cells outside the grid can't be entered.
    pub fn is_open(&self, (row, column): Position) -> bool {
        row < self.size && column < self.size && self.open[row * self.size + column]
    }

    /// Returns the token of a cell: a wall, the start, the goal or a free cell.
    fn cell(&self, at: Position) -> Token {
        match at {
            _ if !self.is_open(at) => Token::Wall,
            _ if at == self.start() => Token::Start,
            _ if at == self.goal() => Token::Goal,
            _ => Token::Path,
        }
    }

    /// Returns the cells that the moves visit, beginning with the start. The walk ends before the first move into a wall.
    pub fn walk(&self, moves: &[Move]) -> Vec<Position> {
        let mut cells = vec![self.start()];
        for step in moves {
            match step.from(cells[cells.len() - 1], 1) {
                Some(next) if self.is_open(next) => cells.push(next),
                _ => break,
            }
        }
        cells
    }

    /// Draws the maze: `#` is a wall, `S` the start, `G` the goal, `.` a cell of `path`, a space any other free cell.
    pub fn ascii(&self, path: &[Position]) -> String {
        let mut lines = String::with_capacity(self.size * (self.size + 1));
        for row in 0..self.size {
            for column in 0..self.size {
                lines.push(match self.cell((row, column)) {
                    Token::Wall => '#',
                    Token::Start => 'S',
                    Token::Goal => 'G',
                    _ if path.contains(&(row, column)) => '.',
                    _ => ' ',
                });
            }
            lines.push('\n');
        }
        lines
    }
}

/// Returns whether a maze can have this size: it must be odd, so that walls lie between the cells, at least 5, so that start
/// and goal are different cells, and at most 255.
pub fn valid_size(size: usize) -> bool {
    (5..=255).contains(&size) && !size.is_multiple_of(2)
}

/// The sizes that [`valid_size`] accepts, in words.
pub const VALID_SIZES: &str = "an odd number from 5 to 255";

#[cfg(test)]
mod tests;
