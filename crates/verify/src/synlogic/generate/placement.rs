//! Generators of placement puzzles: campsite, kukurasu, minesweeper.

use serde_json::{Value, json};

use super::super::placement::{cells, neighbours4, neighbours8};
use super::{Draft, Source, table, values};

pub(crate) fn campsite(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let n = 4 + difficulty / 2;
    let mut grid = vec![vec!["X"; n]; n];
    let mut order: Vec<(usize, usize)> = cells(n, n).collect();
    source.shuffle(&mut order);
    let wanted = (n * n) / 6 + source.below(n / 2 + 1);
    let mut placed = 0;
    for (r, c) in order {
        if placed == wanted {
            break;
        }
        if grid[r][c] != "X" || neighbours8(r, c, n, n).any(|(y, x)| grid[y][x] == "C") {
            continue;
        }
        let free: Vec<(usize, usize)> = neighbours4(r, c, n, n).filter(|&(y, x)| grid[y][x] == "X").collect();
        if free.is_empty() {
            continue;
        }
        let (y, x) = source.pick(&free);
        grid[r][c] = "C";
        grid[y][x] = "T";
        placed += 1;
    }
    if placed == 0 {
        return None;
    }
    let rows: Vec<usize> = grid.iter().map(|row| row.iter().filter(|c| **c == "C").count()).collect();
    let columns: Vec<usize> = (0..n).map(|c| grid.iter().filter(|row| row[c] == "C").count()).collect();
    let puzzle: Vec<Vec<&str>> =
        grid.iter().map(|row| row.iter().map(|c| if *c == "C" { "X" } else { c }).collect()).collect();
    Some(Draft::solved(
        quoted_rows(&grid),
        values![n, grid = table(&puzzle), rows = format!("{rows:?}"), columns = format!("{columns:?}")],
        json!({
            "grid": puzzle, "solution": grid, "row_constraints": rows, "col_constraints": columns, "n": n, "m": n,
            "tree_density": placed as f64 / (n * n) as f64,
        }),
    ))
}

/// Formats a list of lists of text, in double quotes.
fn quoted_rows(grid: &[Vec<&str>]) -> String {
    let rows: Vec<String> =
        grid.iter().map(|row| Value::from(row.clone()).to_string().replace(',', ", ")).collect();
    format!("[\n    {}\n]", rows.join(",\n    "))
}

pub(crate) fn kukurasu(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let n = 3 + difficulty.div_ceil(2);
    let grid: Vec<Vec<&str>> =
        (0..n).map(|_| (0..n).map(|_| if source.chance(2, 5) { "1" } else { "X" }).collect()).collect();
    let weigh = |cells: &mut dyn Iterator<Item = &str>| -> usize {
        cells.enumerate().filter(|(_, cell)| *cell == "1").map(|(i, _)| i + 1).sum()
    };
    let rows: Vec<usize> = grid.iter().map(|row| weigh(&mut row.iter().copied())).collect();
    let columns: Vec<usize> = (0..n).map(|c| weigh(&mut grid.iter().map(|row| row[c]))).collect();
    Some(Draft::solved(
        quoted_rows(&grid),
        values![n, rows = format!("{rows:?}"), columns = format!("{columns:?}")],
        json!({
            "grid": vec![vec!["X"; n]; n], "row_sums": rows, "col_sums": columns, "solution": grid, "n": n, "m": n,
            "ones_probability": 0.4,
        }),
    ))
}

pub(crate) fn minesweeper(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let n = 4 + difficulty.div_ceil(2);
    let mines: Vec<Vec<bool>> = (0..n).map(|_| (0..n).map(|_| source.chance(1, 5)).collect()).collect();
    let count = |r: usize, c: usize| neighbours8(r, c, n, n).filter(|&(y, x)| mines[y][x]).count();
    let reveal = 60 - 2 * difficulty;
    let shown: Vec<Vec<Option<usize>>> = (0..n)
        .map(|r| (0..n).map(|c| (!mines[r][c] && source.chance(reveal, 100)).then(|| count(r, c))).collect())
        .collect();
    let certain = certain_mines(&shown)?;
    if certain.is_empty() {
        return None;
    }
    let text = |v: &Option<usize>| v.map_or("X".to_owned(), |v| v.to_string());
    let grid: Vec<Vec<String>> = shown.iter().map(|row| row.iter().map(text).collect()).collect();
    let full: Vec<Vec<String>> = (0..n)
        .map(|r| (0..n).map(|c| if mines[r][c] { "M".to_owned() } else { count(r, c).to_string() }).collect())
        .collect();
    let list: Vec<String> = certain.iter().map(|(r, c)| format!("({r}, {c})")).collect();
    Some(Draft::solved(
        format!("[{}]", list.join(", ")),
        values![grid = table(&grid)],
        json!({
            "full_grid": full, "revealed_grid": grid, "current_mines": certain, "n": n, "mine_den": 0.2,
            "reveal_frac": reveal as f64 / 100.0,
        }),
    ))
}

/// Returns the covered cells that have a mine in every possible arrangement, or `None` if the search takes too long.
fn certain_mines(shown: &[Vec<Option<usize>>]) -> Option<Vec<(usize, usize)>> {
    let n = shown.len();
    let covered = cells(n, n).filter(|&(r, c)| shown[r][c].is_none());
    let near = |&(r, c): &(usize, usize)| neighbours8(r, c, n, n).any(|(y, x)| shown[y][x].is_some());
    let frontier: Vec<(usize, usize)> = covered.filter(near).collect();
    let mut steps = 100_000;
    let mut certain = Vec::new();
    for &cell in &frontier {
        let mut state = Field { shown, state: vec![vec![None; n]; n] };
        // A mine is certain if no arrangement leaves the cell without one.
        let possible = state.set(cell, false) && state.complete(&frontier, &mut steps)?;
        if !possible {
            certain.push(cell);
        }
    }
    Some(certain)
}

/// An arrangement of mines under construction.
struct Field<'a> {
    shown: &'a [Vec<Option<usize>>],
    state: Vec<Vec<Option<bool>>>,
}

impl Field<'_> {
    /// Returns each number around a cell, with the counts of mines and of undecided cells around the number.
    fn numbers(&self, (r, c): (usize, usize)) -> impl Iterator<Item = (usize, usize, usize)> {
        let n = self.shown.len();
        neighbours8(r, c, n, n).filter_map(move |(r, c)| {
            let number = self.shown[r][c]?;
            let covered = neighbours8(r, c, n, n).filter(|&(y, x)| self.shown[y][x].is_none());
            let states: Vec<Option<bool>> = covered.map(|(y, x)| self.state[y][x]).collect();
            let count = |state: Option<bool>| states.iter().filter(|s| **s == state).count();
            Some((number, count(Some(true)), count(None)))
        })
    }

    /// Sets whether a cell has a mine. Returns `false` if a number around the cell can no longer be satisfied.
    fn set(&mut self, (r, c): (usize, usize), mine: bool) -> bool {
        self.state[r][c] = Some(mine);
        self.numbers((r, c)).all(|(number, mines, open)| (mines..=mines + open).contains(&number))
    }

    /// Returns whether the undecided cells can get mines that satisfy every number, or `None` if the steps run out.
    fn complete(&mut self, frontier: &[(usize, usize)], steps: &mut usize) -> Option<bool> {
        *steps = steps.checked_sub(1)?;
        // Continue with the cell beside the number that has the fewest undecided cells around it.
        let tightness = |cell| self.numbers(cell).map(|(_, _, open)| open).min().unwrap_or(9);
        let open = frontier.iter().filter(|&&(r, c)| self.state[r][c].is_none());
        let Some(&cell) = open.min_by_key(|cell| tightness(**cell)) else { return Some(true) };
        for mine in [false, true] {
            if self.set(cell, mine) && self.complete(frontier, steps)? {
                return Some(true);
            }
        }
        self.state[cell.0][cell.1] = None;
        Some(false)
    }
}
