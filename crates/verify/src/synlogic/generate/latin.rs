//! Generators of latin squares.

use serde_json::json;

use super::super::latin::visible;
use super::super::placement::{cells, neighbours4};
use super::{Draft, Source, blanked, listed, python_block, shown, table, values};

/// Makes a random latin square: a cyclic one with shuffled rows, columns and symbols.
fn latin(n: usize, source: &mut Source<'_>) -> Vec<Vec<usize>> {
    let mut orders: [Vec<usize>; 3] = [(0..n).collect(), (0..n).collect(), (0..n).collect()];
    for order in &mut orders {
        source.shuffle(order);
    }
    let [rows, columns, symbols] = orders;
    rows.iter().map(|r| columns.iter().map(|c| symbols[(r + c) % n] + 1).collect()).collect()
}

/// Returns the rows of blank-separated cells, separated by commas, in double brackets.
fn double_brackets(grid: &[Vec<usize>]) -> String {
    format!("[[{}]]", table(grid).replace('\n', ","))
}

pub(crate) fn sudoku(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    // A cyclic sudoku, its digits, bands, stacks, rows and columns shuffled.
    let mut lines = || {
        let mut bands = [0, 1, 2];
        source.shuffle(&mut bands);
        let mut lines = Vec::new();
        for band in bands {
            let mut inner = [0, 1, 2];
            source.shuffle(&mut inner);
            lines.extend(inner.map(|i| band * 3 + i));
        }
        lines
    };
    let (rows, columns) = (lines(), lines());
    let mut digits: Vec<u8> = (1..=9).collect();
    source.shuffle(&mut digits);
    let cell = |r: usize, c: usize| digits[(r * 3 + r / 3 + c) % 9];
    let complete: Vec<Vec<u8>> =
        rows.iter().map(|&r| columns.iter().map(|&c| cell(r, c)).collect()).collect();
    let mut puzzle = complete.clone();
    let mut cells: Vec<usize> = (0..81).collect();
    source.shuffle(&mut cells);
    let wanted = 12 + 4 * difficulty;
    let mut removed = 0;
    for at in cells {
        if removed == wanted {
            break;
        }
        let digit = std::mem::replace(&mut puzzle[at / 9][at % 9], 0);
        if solutions(&mut puzzle.clone(), &mut 20_000) == 1 {
            removed += 1;
        } else {
            puzzle[at / 9][at % 9] = digit;
        }
    }
    let stored = blanked(&puzzle);
    let tuple = |row: &Vec<u8>| format!("({})", row.iter().map(u8::to_string).collect::<Vec<_>>().join(", "));
    let answer = format!("({})", complete.iter().map(tuple).collect::<Vec<_>>().join(", "));
    Some(Draft {
        values: values![grid = shown(&stored)],
        metadata: json!({
            "original_sudoku": stored, "complete_sudoku": complete, "difficulty": difficulty, "unique_solution": true,
        }),
        solution: python_block(&answer),
        answer: json!(answer),
    })
}

/// Counts the solutions, up to 2. Also returns 2 if the search runs out of `steps`.
fn solutions(grid: &mut [Vec<u8>], steps: &mut usize) -> usize {
    let free = |grid: &[Vec<u8>], r: usize, c: usize| {
        let mut used = 0_u16;
        for i in 0..9 {
            used |= 1 << grid[r][i] | 1 << grid[i][c] | 1 << grid[r / 3 * 3 + i / 3][c / 3 * 3 + i % 3];
        }
        !used & 0b11_1111_1110
    };
    let Some(left) = steps.checked_sub(1) else { return 2 };
    *steps = left;
    let open = (0..81).filter(|at| grid[at / 9][at % 9] == 0);
    let Some(at) = open.min_by_key(|at| free(grid, at / 9, at % 9).count_ones()) else { return 1 };
    let (r, c) = (at / 9, at % 9);
    let options = free(grid, r, c);
    let mut found = 0;
    for digit in 1..=9 {
        if options >> digit & 1 == 1 {
            grid[r][c] = digit;
            found += solutions(grid, steps);
            if found >= 2 {
                break;
            }
        }
    }
    grid[r][c] = 0;
    found.min(2)
}

pub(crate) fn calcudoko(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let n = 3 + difficulty.div_ceil(3);
    let grid = latin(n, source);
    let mut taken = vec![vec![false; n]; n];
    let mut cages: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut starts: Vec<(usize, usize)> = cells(n, n).collect();
    source.shuffle(&mut starts);
    for start in starts {
        if taken[start.0][start.1] {
            continue;
        }
        taken[start.0][start.1] = true;
        let mut cage = vec![start];
        let wanted = 2 + source.below(2 + difficulty / 4);
        while cage.len() < wanted {
            // Numbers don't repeat inside a cage.
            let free: Vec<(usize, usize)> = cage
                .iter()
                .flat_map(|&(r, c)| neighbours4(r, c, n, n))
                .filter(|&(r, c)| !taken[r][c] && cage.iter().all(|&(y, x)| grid[y][x] != grid[r][c]))
                .collect();
            if free.is_empty() {
                break;
            }
            let next = source.pick(&free);
            taken[next.0][next.1] = true;
            cage.push(next);
        }
        cages.push(cage);
    }
    let mut lines = String::new();
    let mut regions = Vec::new();
    for cage in cages {
        let numbers: Vec<usize> = cage.iter().map(|&(r, c)| grid[r][c]).collect();
        let mut options = vec![("+", numbers.iter().sum()), ("*", numbers.iter().product())];
        if let [a, b] = numbers.as_slice() {
            options.push(("-", a.abs_diff(*b)));
            if a.max(b) % a.min(b) == 0 {
                options.push(("÷", a.max(b) / a.min(b)));
            }
        }
        let (operator, target) = if cage.len() == 1 { options[0] } else { source.pick(&options) };
        let cells: Vec<String> = cage.iter().map(|(r, c)| format!("({},{})", r + 1, c + 1)).collect();
        lines += &format!("{}: {target}{operator}\n", cells.join(" "));
        regions.push(json!({"cells": cells, "target": target, "operator": operator}));
    }
    let answer = double_brackets(&grid);
    Some(Draft::plain(&answer, values![n, lines], json!({"grid_size": n, "regions": regions})))
}

/// Pairs each cell with the cell to its right and with the cell below it.
pub(super) fn pairs(n: usize) -> impl Iterator<Item = [(usize, usize); 2]> {
    cells(n, n)
        .flat_map(|(r, c)| [[(r, c), (r, c + 1)], [(r, c), (r + 1, c)]])
        .filter(move |[_, (r, c)]| *r < n && *c < n)
}

pub(crate) fn futoshiki(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let n = 4 + difficulty / 4;
    let grid = latin(n, source);
    let mut order: Vec<(usize, usize)> = cells(n, n).collect();
    source.shuffle(&mut order);
    // Every row keeps an open cell: the reference reads clues back from rows with an X only.
    let mut prefilled = Vec::new();
    for cell in order {
        let in_row = prefilled.iter().filter(|p: &&(usize, usize)| p.0 == cell.0).count();
        if in_row + 1 < n && prefilled.len() < (n * n / 3).saturating_sub(difficulty / 2).max(2) {
            prefilled.push(cell);
        }
    }
    let mut pairs: Vec<_> = pairs(n).collect();
    source.shuffle(&mut pairs);
    pairs.truncate(n + difficulty);
    let mut shown = vec![vec!["X".to_owned(); n]; n];
    for &(r, c) in &prefilled {
        shown[r][c] = grid[r][c].to_string();
    }
    let mut lines = String::new();
    let mut constraints = Vec::new();
    for [a, b] in pairs {
        let sign = if grid[a.0][a.1] > grid[b.0][b.1] { ">" } else { "<" };
        lines += &format!("({},{}) {sign} ({},{})\n", a.0 + 1, a.1 + 1, b.0 + 1, b.1 + 1);
        constraints.push(json!([[a.0, a.1], [b.0, b.1], sign]));
    }
    Some(Draft {
        values: values![n, grid = table(&shown), lines],
        metadata: json!({
            "grid_size": n, "num_inequality_signs": constraints.len(), "num_prefilled_coords": prefilled.len(),
            "prefilled_coords": prefilled, "constraints": constraints,
        }),
        solution: double_brackets(&grid),
        answer: json!(grid),
    })
}

pub(crate) fn skyscraper_puzzle(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let n = 3 + difficulty.div_ceil(2).min(5);
    let grid = latin(n, source);
    let height = |r: usize, c: usize| grid[r][c] as i64;
    let top: Vec<i64> = (0..n).map(|c| visible((0..n).map(|r| height(r, c)))).collect();
    let bottom: Vec<i64> = (0..n).map(|c| visible((0..n).rev().map(|r| height(r, c)))).collect();
    let left: Vec<i64> = (0..n).map(|r| visible((0..n).map(|c| height(r, c)))).collect();
    let right: Vec<i64> = (0..n).map(|r| visible((0..n).rev().map(|c| height(r, c)))).collect();
    let side = |seen: &[i64]| format!("{seen:?}");
    Some(Draft::solved(
        python_block(&listed(&grid)),
        values![n, top = side(&top), bottom = side(&bottom), left = side(&left), right = side(&right)],
        json!({"n": n, "grid": grid, "top": top, "bottom": bottom, "left": left, "right": right}),
    ))
}
