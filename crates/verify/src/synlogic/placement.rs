//! Objects placed on a grid: campsite, kukurasu, minesweeper, norinori, star_placement_puzzle.

use std::collections::{BTreeMap, BTreeSet};

use super::extract::{bracketed, first_block, grid, grid_pattern, only, only_list};
use super::game::{self, Game};
use super::python;
use super::value::{Value, rows};
use super::{Error, Mode, Rules, correct, exact, json, unparsed, wrong};
use crate::python_text::regex;
use crate::verdict::Outcome;

/// Parses an integer. One beyond 64 bits becomes `i64::MAX`, which is outside of every grid. `None` if Python's `int`
/// would fail.
pub(super) fn number(word: &str) -> Option<i64> {
    python::int(word).map(|n| i64::try_from(n).unwrap_or(i64::MAX))
}

/// Rules for campsite: each tent is beside a separate tree, no two tents touch, and rows and columns have the given
/// numbers of tents.
/// Quirk: in parity mode the first `[[...]]` counts and an empty cell may contain anything.
pub(crate) fn campsite(game: &Game) -> Result<Rules, Error> {
    let (n, m) = (game.size("n")?, game.size("m")?);
    let trees = game.grid("grid", "n rows of m cells", |v| Some(v.as_str()? == "T"))?;
    if trees.len() != n || trees.iter().any(|row| row.len() != m) {
        return Err(game.error("grid", "n rows of m cells"));
    }
    let (rows, columns) = (game.ints("row_constraints")?, game.ints("col_constraints")?);
    if rows.len() < n {
        return Err(game.error("row_constraints", "a number for each row"));
    }
    if columns.len() < m {
        return Err(game.error("col_constraints", "a number for each column"));
    }
    Ok(Box::new(move |text, mode| {
        let cell = |cell: &Value| letter(cell).filter(|letter| "TCX".contains(*letter)).map(Some);
        let grid = grid(text, mode, (n, m), cell, || {
            let found = regex!(r"(?s)\[\s*\[.*?\]\s*\]").find(text);
            let value = found.and_then(|m| python::literal(m.as_str()).ok());
            let value = value.ok_or(unparsed("no_grid"))?;
            let rows = value.as_list().ok_or(unparsed("no_grid"))?;
            rows.iter().map(letters).collect::<Option<Vec<_>>>().ok_or(wrong("shape"))
        })?;
        let marked = |letter: char| -> Vec<Vec<bool>> {
            grid.iter().map(|row| row.iter().map(|cell| *cell == Some(letter)).collect()).collect()
        };
        if marked('T') != trees {
            return Err(wrong("trees"));
        }
        let tents = marked('C');
        let count = |cells: &mut dyn Iterator<Item = bool>| cells.filter(|t| *t).count() as i64;
        if (0..n).any(|r| count(&mut tents[r].iter().copied()) != rows[r])
            || (0..m).any(|c| count(&mut (0..n).map(|r| tents[r][c])) != columns[c])
        {
            return Err(wrong("counts"));
        }
        if touch(&tents) {
            return Err(wrong("adjacent"));
        }
        Ok(if match_trees(&tents, &trees) { correct("rules") } else { wrong("matching") })
    }))
}

/// Returns whether each tent can be paired with a separate tree beside it. No two tents touch, so a tree has at most
/// two tents beside it. Therefore a connected group of tents and trees can be paired if it has as many tents as trees.
fn match_trees(tents: &[Vec<bool>], trees: &[Vec<bool>]) -> bool {
    let (n, m) = (tents.len(), tents.first().map_or(0, Vec::len));
    let mut seen = vec![vec![false; m]; n];
    cells(n, m).all(|start| {
        let (mut surplus, mut open) = (0, vec![start]);
        while let Some((r, c)) = open.pop() {
            if (tents[r][c] || trees[r][c]) && !std::mem::replace(&mut seen[r][c], true) {
                surplus += if tents[r][c] { 1 } else { -1 };
                open.extend(neighbours4(r, c, n, m).filter(|&(y, x)| tents[y][x] != tents[r][c]));
            }
        }
        surplus == 0
    })
}

/// Returns the cells of a row: the elements of a list or a tuple, or the characters of a string. A cell that isn't a
/// single letter is `None`.
fn letters(row: &Value) -> Option<Vec<Option<char>>> {
    match row {
        Value::Str(s) => Some(s.chars().map(Some).collect()),
        row => Some(row.as_sequence()?.iter().map(letter).collect()),
    }
}

fn letter(cell: &Value) -> Option<char> {
    let mut chars = cell.as_str()?.chars();
    chars.next().filter(|_| chars.next().is_none())
}

/// Returns the cells `(row, column)` of an `n` by `m` grid, row by row.
pub(super) fn cells(n: usize, m: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).flat_map(move |r| (0..m).map(move |c| (r, c)))
}

/// Returns the index that belongs to a row or column number from 1 to `n`, or `None` outside of this range.
pub(super) fn place(number: i64, n: usize) -> Option<usize> {
    usize::try_from(number).ok()?.checked_sub(1).filter(|place| *place < n)
}

/// Returns whether any two marked cells touch at a side or a corner.
fn touch(grid: &[Vec<bool>]) -> bool {
    let (n, m) = (grid.len(), grid.first().map_or(0, Vec::len));
    cells(n, m).any(|(r, c)| grid[r][c] && neighbours8(r, c, n, m).any(|(y, x)| grid[y][x]))
}

pub(super) fn neighbours4(r: usize, c: usize, n: usize, m: usize) -> impl Iterator<Item = (usize, usize)> {
    neighbours8(r, c, n, m).filter(move |(y, x)| *y == r || *x == c)
}

pub(super) fn neighbours8(r: usize, c: usize, n: usize, m: usize) -> impl Iterator<Item = (usize, usize)> {
    let rows = r.saturating_sub(1)..=(r + 1).min(n.saturating_sub(1));
    rows.flat_map(move |y| (c.saturating_sub(1)..=(c + 1).min(m.saturating_sub(1))).map(move |x| (y, x)))
        .filter(move |cell| *cell != (r, c))
}

/// Rules for kukurasu: the weights of the ones in each row and column have the given sum.
/// Quirk: in parity mode the first grid counts and quotes are double, in strict mode the last and of any kind.
pub(crate) fn kukurasu(game: &Game) -> Result<Rules, Error> {
    let wanted = (game.ints("row_sums")?, game.ints("col_sums")?);
    let (n, m) = (game.size("n")?, game.size("m")?);
    Ok(Box::new(move |text, mode| {
        let one = |cell: &Value| match cell {
            Value::Str(text) => ["1", "X"].contains(&text.as_str()).then(|| text == "1"),
            cell => (cell.number() == Some(1)).then_some(true),
        };
        let ones = grid(text, mode, (n, m), one, || {
            let found = regex!(&grid_pattern(r#""[X1]""#)).find(text);
            let grid = found.and_then(|m| json::parse(m.as_str()));
            grid.and_then(|grid| rows(&grid, one)).ok_or(unparsed("no_grid"))
        })?;
        let weigh = |cells: &mut dyn Iterator<Item = bool>| -> i64 {
            cells.enumerate().filter(|(_, one)| *one).map(|(i, _)| i as i64 + 1).sum()
        };
        let rows = ones.iter().map(|row| weigh(&mut row.iter().copied())).collect();
        let columns = (0..m).map(|c| weigh(&mut ones.iter().map(|row| row[c]))).collect();
        Ok(if (rows, columns) == wanted { correct("rules") } else { wrong("sums") })
    }))
}

/// Rules for minesweeper: the answer lists the cells that must be mines.
/// Quirk: in parity mode any two numbers are a cell if nothing looks like a list of cells.
pub(crate) fn minesweeper(game: &Game) -> Result<Rules, Error> {
    let wanted: BTreeSet<_> = game.list("current_mines", "cells", game::pair)?.into_iter().collect();
    Ok(Box::new(move |text, mode| {
        let mines = match mode {
            Mode::Parity => lenient_cells(text)?,
            Mode::Strict => only_list(text, cell)?.into_iter().collect(),
        };
        let same = mines == wanted;
        Ok(if mines.is_empty() && !same { unparsed("no_cells") } else { exact(same) })
    }))
}

/// Reads a cell's row and column. `None` if the value isn't a pair of integer literals.
fn cell(value: &Value) -> Option<(i64, i64)> {
    match value.as_sequence()? {
        [a @ Value::Int(_), b @ Value::Int(_)] => Some((a.number()?, b.number()?)),
        _ => None,
    }
}

/// Reads cells leniently: from all lists in the first notation that occurs in the text, or else from any two adjacent
/// numbers.
fn lenient_cells(text: &str) -> Result<BTreeSet<(i64, i64)>, Outcome> {
    let lists = [
        regex!(r"\[\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)(?:\s*,\s*\(\s*\d+\s*,\s*\d+\s*\))*\s*\]"),
        regex!(r"\[\s*\[\s*(\d+)\s*,\s*(\d+)\s*\](?:\s*,\s*\[\s*\d+\s*,\s*\d+\s*\])*\s*\]"),
        regex!(r"\(\s*(\d+)\s*,\s*(\d+)\s*\)(?:\s*,\s*\(\s*\d+\s*,\s*\d+\s*\))*"),
    ];
    let cell = regex!(r"(?:\(|\[)\s*(\d+)\s*,\s*(\d+)\s*(?:\)|\])");
    let numbers = |found: &regex::Captures<'_>| Some((number(&found[1])?, number(&found[2])?));
    for pattern in lists {
        let found = pattern.find_iter(text);
        let mines: BTreeSet<_> =
            found.flat_map(|list| cell.captures_iter(list.as_str()).map_while(|c| numbers(&c))).collect();
        if !mines.is_empty() {
            return Ok(mines);
        }
    }
    let pairs = regex!(r"(\d+)[^\d]+(\d+)").captures_iter(text);
    let mines: Option<BTreeSet<_>> = pairs.map(|found| numbers(&found)).collect();
    mines.ok_or(unparsed("number_too_long"))
}

/// Rules for norinori: dominoes that don't touch each other cover every shaded cell (`X`) and two cells of each
/// region.
/// Quirk: in parity mode a region that no domino touches isn't checked, so an empty answer passes if no cell is
/// shaded.
pub(crate) fn norinori(game: &Game) -> Result<Rules, Error> {
    let regions = game.square("region_grid", game::cell)?;
    Ok(Box::new(move |text, mode| {
        let dominoes = match mode {
            Mode::Parity => lenient_dominoes(text).ok_or(unparsed("number_too_long"))?,
            Mode::Strict => only_list(text, |value| match value.as_sequence()? {
                [a, b] => Some([cell(a)?, cell(b)?]),
                _ => None,
            })?,
        };
        if dominoes.is_empty() && mode == Mode::Strict {
            return Err(unparsed("no_dominoes"));
        }
        Ok(judge_dominoes(&regions, &dominoes, mode))
    }))
}

fn judge_dominoes(regions: &[Vec<String>], dominoes: &[[(i64, i64); 2]], mode: Mode) -> Outcome {
    let n = regions.len();
    let touching = |a: (i64, i64), b: (i64, i64)| {
        (a.0 == b.0 && a.1.abs_diff(b.1) == 1) || (a.1 == b.1 && a.0.abs_diff(b.0) == 1)
    };
    if dominoes.iter().any(|[a, b]| !touching(*a, *b)) {
        return wrong("shape");
    }
    let mut covered: Vec<Vec<Option<usize>>> = vec![vec![None; n]; n];
    for (index, domino) in dominoes.iter().enumerate() {
        for &(r, c) in domino {
            let (Some(r), Some(c)) = (place(r, n), place(c, n)) else { return wrong("outside") };
            if covered[r][c].replace(index).is_some() {
                return wrong("overlap");
            }
        }
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (r, c) in cells(n, n) {
        let region = regions[r][c].as_str();
        match covered[r][c] {
            Some(index) => {
                if neighbours4(r, c, n, n).any(|(y, x)| covered[y][x].is_some_and(|i| i != index)) {
                    return wrong("adjacent");
                }
                if region != "X" {
                    *counts.entry(region).or_default() += 1;
                }
            }
            None if region == "X" => return wrong("shaded_cell"),
            None if mode == Mode::Strict => {
                counts.entry(region).or_default();
            }
            None => {}
        }
    }
    if counts.values().all(|count| *count == 2) { correct("rules") } else { wrong("regions") }
}

/// Reads dominoes leniently: from square brackets, or else from all pairs of cells. `None` if Python's `int` would
/// fail.
fn lenient_dominoes(text: &str) -> Option<Vec<[(i64, i64); 2]>> {
    let patterns = [
        regex!(r"\[\((\d+),\s*(\d+)\),\s*\((\d+),\s*(\d+)\)\]"),
        regex!(r"\(\s*(\d+)\s*,\s*(\d+)\s*\)\s*,\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)"),
    ];
    let pattern = patterns.into_iter().find(|pattern| pattern.is_match(text));
    let domino = |found: regex::Captures<'_>| {
        Some([(number(&found[1])?, number(&found[2])?), (number(&found[3])?, number(&found[4])?)])
    };
    pattern.map_or(Some(Vec::new()), |pattern| pattern.captures_iter(text).map(domino).collect())
}

/// Rules for star_placement_puzzle: each row, column and region has the given number of stars, and no two stars
/// touch.
/// Quirk: in parity mode the first code block counts, region names in the answer are ignored and a cell may be
/// named twice; in strict mode the last block counts and each cell must lie in the region it is listed under.
pub(crate) fn star_placement_puzzle(game: &Game) -> Result<Rules, Error> {
    let n = game.size("n")?;
    let regions =
        game.square("region_grid", |v| matches!(v, Value::Str(_) | Value::Int(_)).then(|| v.clone()))?;
    if regions.len() != n {
        return Err(game.error("region_grid", "n rows of n cells"));
    }
    let k = game.size("k")?;
    Ok(Box::new(move |text, mode| {
        let stars = match mode {
            Mode::Parity => lenient_stars(text)?,
            Mode::Strict => {
                let read = |source: &str| python::plain(source).ok().and_then(entries);
                only(text, bracketed(text, read))?
            }
        };
        let mut grid = vec![vec![false; n]; n];
        for (region, cells) in &stars {
            for cell in sequence(cells).ok_or(unparsed("not_cells"))? {
                let (r, c) = game::pair(cell).ok_or(unparsed("not_cells"))?;
                let (Some(r), Some(c)) = (place(r, n), place(c, n)) else { return Err(wrong("outside")) };
                if mode == Mode::Strict && (grid[r][c] || regions[r][c] != *region) {
                    return Err(wrong("listed_region"));
                }
                grid[r][c] = true;
            }
        }
        let full = |cells: &mut dyn Iterator<Item = bool>| cells.filter(|s| *s).count() == k;
        if (0..n).any(|i| !full(&mut grid[i].iter().copied()) || !full(&mut grid.iter().map(|row| row[i]))) {
            return Err(wrong("lines"));
        }
        let mut counts: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for (region, star) in regions.iter().flatten().zip(grid.iter().flatten()) {
            *counts.entry(region.key().unwrap_or_default()).or_default() += usize::from(*star);
        }
        if counts.values().any(|stars| *stars != k) {
            return Err(wrong("regions"));
        }
        Ok(if touch(&grid) { wrong("adjacent") } else { correct("rules") })
    }))
}

/// Returns the entries of a dictionary, or `None` if the value isn't a dictionary or is empty.
fn entries(value: Value) -> Option<Vec<(Value, Value)>> {
    match value {
        Value::Dict(entries) if !entries.is_empty() => Some(entries),
        _ => None,
    }
}

/// Reads the dictionary in the first code block.
fn lenient_stars(text: &str) -> Result<Vec<(Value, Value)>, Outcome> {
    let block = first_block(text)?;
    let braces = regex!(r"\{[^{}]*\}").find(block);
    let assigned = || regex!(r"\w+\s*=\s*(\{[^{}]*\})").captures(block).and_then(|c| c.get(1));
    let dict = |source: regex::Match<'_>| {
        python::literal(source.as_str()).ok().filter(|value| matches!(value, Value::Dict(_)))
    };
    let found = braces.and_then(dict).or_else(|| assigned().and_then(dict));
    found.and_then(entries).ok_or(unparsed("no_dictionary"))
}

/// Returns the elements of a list, tuple or set.
fn sequence(v: &Value) -> Option<&[Value]> {
    if let Value::List(v) | Value::Tuple(v) | Value::Set(v) = v { Some(v) } else { None }
}
