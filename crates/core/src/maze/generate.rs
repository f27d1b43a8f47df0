//! Maze generation by randomised Prim on the odd cells of the grid.

use super::{Maze, Move, Position, VALID_SIZES, valid_size};
use crate::rng::Key;

/// The order in which a cell's neighbours are visited.
const ORDER: [Move; 4] = [Move::Right, Move::Down, Move::Left, Move::Up];

/// Returns the maze of this size, seed and index.
///
/// After a cell is carved, the cells two steps away (right, down, left, up) join the frontier if they are interior,
/// uncarved and not in it yet. A uniformly random frontier cell is connected to a uniformly random carved cell two
/// steps from it, until the frontier is empty.
///
/// # Panics
/// If the size is even or below 5; see [`valid_size`].
pub fn generate(size: usize, seed: u64, index: u64) -> Maze {
    assert!(valid_size(size), "maze size {size} isn't {VALID_SIZES}");
    let mut random = Key::new(seed).with(index).stream();
    let mut maze = Maze { size, open: vec![false; size * size] };
    let at = |(row, column): Position| row * size + column;
    let interior = |(row, column): Position| row < size - 1 && column < size - 1;
    let two_away = |from: Position| {
        // From an odd cell, two steps up or left lead to another odd cell or out of the grid.
        ORDER.into_iter().filter_map(move |step| step.from(from, 2)).filter(move |&cell| interior(cell))
    };

    let mut frontier: Vec<Position> = Vec::new();
    let mut waiting = vec![false; size * size];
    let mut carved = maze.start();
    maze.open[at(carved)] = true;
    loop {
        for cell in two_away(carved) {
            if !maze.open[at(cell)] && !waiting[at(cell)] {
                waiting[at(cell)] = true;
                frontier.push(cell);
            }
        }
        if frontier.is_empty() {
            return maze;
        }
        let cell = frontier.remove(random.below(frontier.len() as u64) as usize);
        let neighbours: Vec<Position> = two_away(cell).filter(|&n| maze.open[at(n)]).collect();
        let other = neighbours[random.below(neighbours.len() as u64) as usize];
        let between = ((cell.0 + other.0) / 2, (cell.1 + other.1) / 2);
        maze.open[at(cell)] = true;
        maze.open[at(between)] = true;
        carved = cell;
    }
}
