//! Objects placed on a grid: campsite, kukurasu, minesweeper, norinori, star_placement_puzzle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::game::{self, Game};
use super::python;
use super::text::regex;
use super::value::Value;
use super::{Error, Mode, correct, json, unparsed, wrong};
use crate::verdict::Outcome;

/// Tents beside trees.
pub(crate) struct Campsite {
    trees: Vec<Vec<bool>>,
    width: usize,
    rows: Vec<i64>,
    columns: Vec<i64>,
}

impl Campsite {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        let (n, m) = (game.size("n")?, game.size("m")?);
        let trees = game.grid("grid", "n rows of m cells", |v| Some(v.as_str()? == "T"))?;
        if trees.len() != n || trees.iter().any(|row| row.len() != m) {
            return Err(game.error("grid", "n rows of m cells"));
        }
        let (rows, columns) = (game.ints("row_constraints")?, game.ints("col_constraints")?);
        if rows.len() < n || columns.len() < m {
            return Err(game.error("row_constraints", "a number for each row and column"));
        }
        Ok(Self { trees, width: m, rows, columns })
    }

    /// Quirk: in parity mode the first `[[...]]` counts and an empty cell may contain anything.
    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let mut found = regex!(r"(?s)\[\s*\[.*?\]\s*\]").find_iter(text);
        let found = match mode {
            Mode::Parity => found.next(),
            Mode::Strict => found.last(),
        };
        let Some(value) = found.and_then(|m| python::literal(m.as_str()).ok()) else {
            return unparsed("no_grid");
        };
        let Some(rows) = value.as_list() else { return unparsed("no_grid") };
        if rows.len() != self.trees.len() {
            return wrong("shape");
        }
        let mut tents = vec![vec![false; self.width]; rows.len()];
        for (r, row) in rows.iter().enumerate() {
            let Some(cells) = letters(row) else { return wrong("shape") };
            if cells.len() != self.width {
                return wrong("shape");
            }
            for (c, cell) in cells.iter().enumerate() {
                if (*cell == Some('T')) != self.trees[r][c] {
                    return wrong("trees");
                }
                if mode == Mode::Strict && !matches!(cell, Some('T' | 'C' | 'X')) {
                    return wrong("cell");
                }
                tents[r][c] = *cell == Some('C');
            }
        }
        self.judge(&tents)
    }

    fn judge(&self, tents: &[Vec<bool>]) -> Outcome {
        let (n, m) = (tents.len(), self.width);
        let count = |cells: &mut dyn Iterator<Item = bool>| cells.filter(|t| *t).count() as i64;
        if (0..n).any(|r| count(&mut tents[r].iter().copied()) != self.rows[r])
            || (0..m).any(|c| count(&mut (0..n).map(|r| tents[r][c])) != self.columns[c])
        {
            return wrong("counts");
        }
        for r in 0..n {
            for c in 0..m {
                if tents[r][c] && neighbours8(r, c, n, m).any(|(y, x)| tents[y][x]) {
                    return wrong("adjacent");
                }
            }
        }
        if self.matches_trees(tents) { correct("rules") } else { wrong("matching") }
    }

    /// Whether tents and trees can be paired with orthogonal neighbours, by breadth-first augmenting paths.
    fn matches_trees(&self, tents: &[Vec<bool>]) -> bool {
        let (n, m) = (tents.len(), self.width);
        let cells = |grid: &[Vec<bool>]| {
            (0..n * m).filter(|i| grid[i / m.max(1)][i % m.max(1)]).collect::<Vec<usize>>()
        };
        let (tent_cells, tree_cells) = (cells(tents), cells(&self.trees));
        if tent_cells.len() != tree_cells.len() {
            return false;
        }
        let mut tree_of: BTreeMap<usize, usize> = BTreeMap::new();
        let mut tent_of: BTreeMap<usize, usize> = BTreeMap::new();
        for &start in &tent_cells {
            let mut reached_from: BTreeMap<usize, usize> = BTreeMap::new();
            let mut queue = VecDeque::from([start]);
            let mut free = None;
            'search: while let Some(tent) = queue.pop_front() {
                for (r, c) in neighbours4(tent / m, tent % m, n, m) {
                    let tree = r * m + c;
                    if !self.trees[r][c] || reached_from.contains_key(&tree) {
                        continue;
                    }
                    reached_from.insert(tree, tent);
                    match tent_of.get(&tree) {
                        None => {
                            free = Some(tree);
                            break 'search;
                        }
                        Some(&other) => queue.push_back(other),
                    }
                }
            }
            let Some(mut tree) = free else { return false };
            while let Some(&tent) = reached_from.get(&tree) {
                let previous = tree_of.insert(tent, tree);
                tent_of.insert(tree, tent);
                match previous {
                    Some(p) if tent != start => tree = p,
                    _ => break,
                }
            }
        }
        true
    }
}

/// The cells of a row: of a list or a tuple, or the characters of a text. A cell that is not a single letter is `None`.
fn letters(row: &Value) -> Option<Vec<Option<char>>> {
    let single = |v: &Value| {
        let mut chars = v.as_str()?.chars();
        chars.next().filter(|_| chars.next().is_none())
    };
    match row {
        Value::Str(s) => Some(s.chars().map(Some).collect()),
        row => Some(row.as_sequence()?.iter().map(single).collect()),
    }
}

pub(super) fn neighbours4(r: usize, c: usize, n: usize, m: usize) -> impl Iterator<Item = (usize, usize)> {
    neighbours8(r, c, n, m).filter(move |(y, x)| *y == r || *x == c)
}

pub(super) fn neighbours8(r: usize, c: usize, n: usize, m: usize) -> impl Iterator<Item = (usize, usize)> {
    let rows = r.saturating_sub(1)..=(r + 1).min(n.saturating_sub(1));
    rows.flat_map(move |y| (c.saturating_sub(1)..=(c + 1).min(m.saturating_sub(1))).map(move |x| (y, x)))
        .filter(move |cell| *cell != (r, c))
}

/// Ones with weights.
pub(crate) struct Kukurasu {
    rows: Vec<i64>,
    columns: Vec<i64>,
    n: usize,
    m: usize,
}

const KUKURASU: &str = concat!(
    r#"\[\s*\[(?:\s*"[X1]"\s*,\s*)*\s*"[X1]"\s*\]\s*"#,
    r#"(?:,\s*\[(?:\s*"[X1]"\s*,\s*)*\s*"[X1]"\s*\]\s*)*\]"#
);

impl Kukurasu {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        Ok(Self {
            rows: game.ints("row_sums")?,
            columns: game.ints("col_sums")?,
            n: game.size("n")?,
            m: game.size("m")?,
        })
    }

    /// Quirk: in parity mode the first grid counts and quotes are double, in strict mode the last and of either kind.
    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let grid = match mode {
            Mode::Parity => regex!(KUKURASU).find(text).and_then(|m| json::parse(m.as_str())),
            Mode::Strict => {
                let text = text.replace('\'', "\"");
                regex!(KUKURASU).find_iter(&text).last().and_then(|m| json::parse(m.as_str()))
            }
        };
        let ones = grid.as_ref().and_then(Value::as_list).and_then(|rows| {
            let row = |row: &Value| {
                Some(row.as_list()?.iter().map(|v| v.as_str() == Some("1")).collect::<Vec<_>>())
            };
            rows.iter().map(row).collect::<Option<Vec<_>>>()
        });
        let Some(ones) = ones else { return unparsed("no_grid") };
        if ones.len() != self.n || ones.iter().any(|row| row.len() != self.m) {
            return wrong("shape");
        }
        let weigh = |cells: &mut dyn Iterator<Item = bool>| -> i64 {
            cells.enumerate().filter(|(_, one)| *one).map(|(i, _)| i as i64 + 1).sum()
        };
        let rows: Vec<i64> = ones.iter().map(|row| weigh(&mut row.iter().copied())).collect();
        let columns: Vec<i64> = (0..self.m).map(|c| weigh(&mut ones.iter().map(|row| row[c]))).collect();
        if rows == self.rows && columns == self.columns { correct("rules") } else { wrong("sums") }
    }
}

/// Cells that must be mines.
pub(crate) struct Minesweeper(BTreeSet<(i64, i64)>);

/// A non-negative number in a text; one that is too large for a coordinate becomes a value outside any grid. `None` if
/// Python refuses it.
fn coordinate(text: &str) -> Option<i64> {
    python::int(text).map(|n| i64::try_from(n).unwrap_or(i64::MAX))
}

impl Minesweeper {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        Ok(Self(game.list("current_mines", "cells", game::pair)?.into_iter().collect()))
    }

    /// Quirk: in parity mode any two numbers are a cell if nothing looks like a list of cells.
    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let lists = [
            regex!(r"\[\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)(?:\s*,\s*\(\s*\d+\s*,\s*\d+\s*\))*\s*\]"),
            regex!(r"\[\s*\[\s*(\d+)\s*,\s*(\d+)\s*\](?:\s*,\s*\[\s*\d+\s*,\s*\d+\s*\])*\s*\]"),
            regex!(r"\(\s*(\d+)\s*,\s*(\d+)\s*\)(?:\s*,\s*\(\s*\d+\s*,\s*\d+\s*\))*"),
        ];
        let cell = regex!(r"(?:\(|\[)\s*(\d+)\s*,\s*(\d+)\s*(?:\)|\])");
        let cells = |list: &str, cells: &mut BTreeSet<(i64, i64)>| {
            for found in cell.captures_iter(list) {
                let (Some(r), Some(c)) = (coordinate(&found[1]), coordinate(&found[2])) else { break };
                cells.insert((r, c));
            }
        };
        for pattern in lists {
            let mut mines = BTreeSet::new();
            match mode {
                Mode::Parity => pattern.find_iter(text).for_each(|m| cells(m.as_str(), &mut mines)),
                Mode::Strict => {
                    if let Some(last) = pattern.find_iter(text).last() {
                        cells(last.as_str(), &mut mines);
                    }
                }
            }
            if !mines.is_empty() {
                return if mines == self.0 { correct("exact") } else { wrong("mismatch") };
            }
        }
        if mode == Mode::Strict {
            let none = regex!(r"\[\s*\]").is_match(text);
            return match (none, self.0.is_empty()) {
                (true, true) => correct("exact"),
                (true, false) => wrong("mismatch"),
                (false, _) => unparsed("no_cells"),
            };
        }
        let mut mines = BTreeSet::new();
        for found in regex!(r"(\d+)[^\d]+(\d+)").captures_iter(text) {
            let (Some(r), Some(c)) = (coordinate(&found[1]), coordinate(&found[2])) else {
                return unparsed("number_too_long");
            };
            mines.insert((r, c));
        }
        if mines == self.0 {
            correct("exact")
        } else if mines.is_empty() {
            unparsed("no_cells")
        } else {
            wrong("mismatch")
        }
    }
}

/// Dominoes, two cells of each region.
pub(crate) struct Norinori {
    regions: Vec<Vec<String>>,
}

impl Norinori {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        Ok(Self { regions: game.square("region_grid", game::cell)? })
    }

    /// Quirk: in parity mode a region without a domino is not checked, so an answer without dominoes passes if no cell
    /// is shaded.
    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let patterns = [
            regex!(r"\[\((\d+),\s*(\d+)\),\s*\((\d+),\s*(\d+)\)\]"),
            regex!(r"\(\s*(\d+)\s*,\s*(\d+)\s*\)\s*,\s*\(\s*(\d+)\s*,\s*(\d+)\s*\)"),
        ];
        let mut dominoes: Vec<[(i64, i64); 2]> = Vec::new();
        for pattern in patterns {
            for found in pattern.captures_iter(text) {
                let Some([a, b, c, d]) = numbers(&found) else { return unparsed("number_too_long") };
                dominoes.push([(a, b), (c, d)]);
            }
            if !dominoes.is_empty() {
                break;
            }
        }
        if dominoes.is_empty() && mode == Mode::Strict {
            return unparsed("no_dominoes");
        }
        self.judge(&dominoes, mode)
    }

    fn judge(&self, dominoes: &[[(i64, i64); 2]], mode: Mode) -> Outcome {
        let n = self.regions.len();
        let touching = |a: (i64, i64), b: (i64, i64)| {
            (a.0 == b.0 && a.1.abs_diff(b.1) == 1) || (a.1 == b.1 && a.0.abs_diff(b.0) == 1)
        };
        if dominoes.iter().any(|[a, b]| !touching(*a, *b)) {
            return wrong("shape");
        }
        let mut covered: Vec<Vec<Option<usize>>> = vec![vec![None; n]; n];
        let inside = |x: i64| usize::try_from(x).ok().and_then(|x| x.checked_sub(1)).filter(|x| *x < n);
        for (index, domino) in dominoes.iter().enumerate() {
            for &(r, c) in domino {
                let (Some(r), Some(c)) = (inside(r), inside(c)) else { return wrong("outside") };
                if covered[r][c].replace(index).is_some() {
                    return wrong("overlap");
                }
            }
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for r in 0..n {
            for c in 0..n {
                let region = self.regions[r][c].as_str();
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
        }
        if counts.values().all(|count| *count == 2) { correct("rules") } else { wrong("regions") }
    }
}

/// The four numbers of a match.
fn numbers(found: &regex::Captures<'_>) -> Option<[i64; 4]> {
    Some([coordinate(&found[1])?, coordinate(&found[2])?, coordinate(&found[3])?, coordinate(&found[4])?])
}

/// Stars in rows, columns and regions.
pub(crate) struct StarPlacement {
    k: usize,
    regions: Vec<Vec<Value>>,
}

impl StarPlacement {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        let n = game.size("n")?;
        let regions =
            game.square("region_grid", |v| matches!(v, Value::Str(_) | Value::Int(_)).then(|| v.clone()))?;
        if regions.len() != n {
            return Err(game.error("region_grid", "n rows of n cells"));
        }
        Ok(Self { k: game.size("k")?, regions })
    }

    /// Quirk: in parity mode the first code block counts, region names in the answer are ignored and a cell may be
    /// named twice; in strict mode the last block counts and each cell must lie in the region it is listed under.
    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let mut blocks = regex!(r"(?s)```python\s*\n(.*?)\n\s*```")
            .captures_iter(text)
            .filter_map(|c| c.get(1))
            .map(|m| m.as_str());
        let block = match mode {
            Mode::Parity => blocks.next(),
            Mode::Strict => blocks.last(),
        };
        let Some(block) = block else { return unparsed("no_code_block") };
        let braces = regex!(r"\{[^{}]*\}").find(block).map(|m| m.as_str());
        let assigned =
            || regex!(r"\w+\s*=\s*(\{[^{}]*\})").captures(block).and_then(|c| c.get(1)).map(|m| m.as_str());
        let dict = |source: &str| python::literal(source).ok().filter(|v| matches!(v, Value::Dict(_)));
        let Some(Value::Dict(stars)) = braces.and_then(dict).or_else(|| assigned().and_then(dict)) else {
            return unparsed("no_dictionary");
        };
        if stars.is_empty() {
            return unparsed("no_dictionary");
        }
        let n = self.regions.len();
        let mut grid = vec![vec![false; n]; n];
        for (region, cells) in &stars {
            let Some(cells) = sequence(cells) else { return unparsed("not_cells") };
            for cell in cells {
                let Some((r, c)) = game::pair(cell) else { return unparsed("not_cells") };
                let inside =
                    |x: i64| usize::try_from(x).ok().and_then(|x| x.checked_sub(1)).filter(|x| *x < n);
                let (Some(r), Some(c)) = (inside(r), inside(c)) else { return wrong("outside") };
                if mode == Mode::Strict && (grid[r][c] || self.regions[r][c] != *region) {
                    return wrong("listed_region");
                }
                grid[r][c] = true;
            }
        }
        self.judge(&grid)
    }

    fn judge(&self, grid: &[Vec<bool>]) -> Outcome {
        let n = grid.len();
        let full = |cells: &mut dyn Iterator<Item = bool>| cells.filter(|s| *s).count() == self.k;
        if (0..n).any(|i| !full(&mut grid[i].iter().copied()) || !full(&mut grid.iter().map(|row| row[i]))) {
            return wrong("lines");
        }
        let mut regions: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for (region, star) in self.regions.iter().flatten().zip(grid.iter().flatten()) {
            *regions.entry(region.key().unwrap_or_default()).or_default() += usize::from(*star);
        }
        if regions.values().any(|stars| *stars != self.k) {
            return wrong("regions");
        }
        for r in 0..n {
            for c in 0..n {
                if grid[r][c] && neighbours8(r, c, n, n).any(|(y, x)| grid[y][x]) {
                    return wrong("adjacent");
                }
            }
        }
        correct("rules")
    }
}

/// The values that a loop over cells accepts.
fn sequence(v: &Value) -> Option<&[Value]> {
    match v {
        Value::List(v) | Value::Tuple(v) | Value::Set(v) => Some(v),
        _ => None,
    }
}
