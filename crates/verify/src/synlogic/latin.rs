//! Latin squares: sudoku, calcudoko, futoshiki, skyscraper_puzzle.

use super::extract::{first_block, grid, last_group};
use super::game::{self, Game};
use super::placement::{cells, number, place};
use super::python;
use super::value::{Value, rows, sequences};
use super::{Error, Mode, Rules, correct, unparsed, wrong};
use crate::python_text::{is_digit, is_space, regex, strip, words};

/// Returns whether every row and column contains 1 to n once.
fn is_latin(grid: &[Vec<i64>]) -> bool {
    let n = grid.len();
    let complete = |line: &mut dyn Iterator<Item = i64>| {
        let mut seen = vec![false; n];
        for v in line {
            let Some(slot) = usize::try_from(v - 1).ok().and_then(|i| seen.get_mut(i)) else { return false };
            *slot = true;
        }
        seen.iter().all(|s| *s)
    };
    grid.iter().all(|row| row.len() == n && complete(&mut row.iter().copied()))
        && (0..n).all(|c| complete(&mut grid.iter().map(|row| row[c])))
}

/// Returns the stripped content of the last Python code block.
pub(super) fn last_python_block(text: &str) -> Option<&str> {
    last_group(regex!(r"```python\s*([\s\S]*?)\s*```"), text)
}

/// Returns the last tuple of tuples that begins with a number.
fn last_tuples(text: &str) -> Option<&str> {
    regex!(r"(?s)\(\s*\(\s*\d+\s*,.*?\)\s*\)").find_iter(text).last().map(|m| strip(m.as_str()))
}

/// Rules for sudoku: nine by nine cells, in boxes of three by three.
pub(crate) fn sudoku(game: &Game) -> Result<Rules, Error> {
    let given = game.grid("original_sudoku", "nine rows of nine digits or X", |v| match v {
        Value::Str(s) if s == "X" || s == "x" => Some(0),
        v => game::int(v).and_then(|n| i64::try_from(n).ok()),
    })?;
    if given.len() != 9 || given.iter().any(|row| row.len() != 9) {
        return Err(game.error("original_sudoku", "nine rows of nine digits or X"));
    }
    let clues: Vec<_> = cells(9, 9).map(|(r, c)| (r, c, given[r][c])).filter(|(_, _, v)| *v != 0).collect();
    Ok(Box::new(move |text, mode| {
        let grid = grid(text, mode, (9, 9), Value::number, || {
            let answer = last_python_block(text).or_else(|| last_tuples(text)).ok_or(unparsed("no_grid"))?;
            let value = python::literal(answer).map_err(|_| unparsed("not_a_literal"))?;
            sequences(&value, Value::as_i64).ok_or(wrong("shape"))
        })?;
        let boxes = (0..9).all(|b| {
            let mut seen = 0_u16;
            for i in 0..9 {
                let v = grid[b / 3 * 3 + i / 3][b % 3 * 3 + i % 3];
                seen |= 1 << v.clamp(0, 15);
            }
            seen == 0b11_1111_1110
        });
        Ok(if !is_latin(&grid) || !boxes {
            wrong("rules")
        } else if clues.iter().any(|&(r, c, v)| grid[r][c] != v) {
            wrong("clues")
        } else {
            correct("rules")
        })
    }))
}

struct Cage {
    cells: Vec<(usize, usize)>,
    target: Value,
    operator: String,
}

/// Rules for calcudoko: a latin square in which the numbers of each cage have the given sum, difference, product or
/// quotient.
/// Quirks of parity mode: the first `[[...]]` counts, a row that is too short is padded with ones, a missing row is
/// a row of ones, and text that does not parse becomes a default grid (which never satisfies the puzzle).
pub(crate) fn calcudoko(game: &Game) -> Result<Rules, Error> {
    let n = match game.get("grid_size") {
        None => 4,
        Some(_) => game.size("grid_size")?,
    };
    const WANTED: &str = "regions with cells inside the grid, a target and an operator";
    let cell = |v: &Value| -> Option<(usize, usize)> {
        let (r, c) = match v {
            Value::Str(s) => {
                let found = regex!(r"\((\d+)\s*,\s*(\d+)\)").captures(s)?;
                let int = |i: usize| i64::try_from(python::int(found.get(i)?.as_str())?).ok();
                (int(1)?, int(2)?)
            }
            v => game::pair(v)?,
        };
        Some((place(r, n)?, place(c, n)?))
    };
    let cages = game.list("regions", WANTED, |region| {
        Some(Cage {
            cells: region.get("cells")?.as_list()?.iter().map(cell).collect::<Option<Vec<_>>>()?,
            target: region.get("target").filter(|t| t.as_f64().is_some())?.clone(),
            operator: region.get("operator")?.as_str()?.to_owned(),
        })
    })?;
    Ok(Box::new(move |text, mode| {
        let lenient = || lenient_rows(text, n).ok_or(unparsed("no_grid"));
        let grid = grid(text, mode, (n, n), Value::number, lenient)?;
        Ok(if !is_latin(&grid) {
            wrong("rules")
        } else if cages.iter().all(|cage| cage.holds(&grid)) {
            correct("rules")
        } else {
            wrong("cages")
        })
    }))
}

/// Reads rows as SynLogic's code does: from brackets, or else from lines such as "Row 1: 1 2 3", or else a default grid.
fn lenient_rows(text: &str, n: usize) -> Option<Vec<Vec<i64>>> {
    let bracketed = regex!(r"\[\[(.*?)\]\]").captures(text).and_then(|c| c.get(1)).map(|m| m.as_str());
    let mut rows = described_or_split(text, bracketed, n).or_else(|| {
        // The second attempt reads the brackets unchanged. Without brackets, the default grid is returned.
        bracketed?.split(',').map(|row| fitted(row, n)).collect()
    })?;
    rows.resize(n, vec![1; n]);
    Some(rows)
}

/// Parses a row's numbers, and truncates or pads them with ones to the grid's size.
fn fitted(row: &str, n: usize) -> Option<Vec<i64>> {
    let mut row = words(row).map(number).collect::<Option<Vec<_>>>()?;
    row.resize(n, 1);
    Some(row)
}

fn described_or_split(text: &str, bracketed: Option<&str>, n: usize) -> Option<Vec<Vec<i64>>> {
    let answer =
        bracketed.unwrap_or_else(|| last_python_block(text).or_else(|| last_tuples(text)).unwrap_or(text));
    let kept: String =
        answer.chars().filter(|c| is_digit(*c) || "[],".contains(*c) || is_space(*c)).collect();
    let mut rows = Vec::new();
    let mut described: Option<Vec<Vec<i64>>> = None;
    for row in kept.trim_matches(['[', ']']).split(',') {
        let fitted = fitted(row, n)?;
        if words(row).count() < n {
            if described.is_none() {
                described = Some(described_rows(text, n)?);
            }
            if let Some(found) = described.as_ref().filter(|d| d.len() == n) {
                return Some(found.clone());
            }
        }
        rows.push(fitted);
    }
    Some(rows)
}

/// Reads rows written as "Row 1: 1 2 3", and truncates or pads them to the grid's size.
fn described_rows(text: &str, n: usize) -> Option<Vec<Vec<i64>>> {
    let patterns = [
        regex!(r"第\s*\d+\s*行\s*[:：]\s*([\d\s]+)"),
        regex!(r"行\s*\d+\s*[:：]\s*([\d\s]+)"),
        regex!(r"Row\s*\d+\s*[:：]\s*([\d\s]+)"),
        regex!(r"- 第\d+行[:：]?\s*([\d\s]+)"),
        regex!(r"- 行\d+[:：]?\s*([\d\s]+)"),
        regex!(r"- Row\d+[:：]?\s*([\d\s]+)"),
    ];
    let found = patterns.iter().flat_map(|p| p.captures_iter(text)).filter_map(|c| c.get(1));
    let found: Vec<_> = found.collect();
    if found.len() != n {
        return Some(Vec::new());
    }
    found.iter().map(|row| fitted(row.as_str(), n)).collect()
}

impl Cage {
    fn holds(&self, grid: &[Vec<i64>]) -> bool {
        let numbers: Vec<i64> = self.cells.iter().map(|&(r, c)| grid[r][c]).collect();
        let mut distinct = numbers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() != numbers.len() {
            return false;
        }
        let int = |n: i64| Value::Int(n.into()) == self.target;
        match (self.operator.as_str(), numbers.as_slice()) {
            ("+", v) => int(v.iter().sum()),
            ("*", v) => v.iter().try_fold(1_i64, |p, n| p.checked_mul(*n)).is_some_and(int),
            ("-", [a, b]) => int(a - b) || int(b - a),
            ("-", _) => false,
            (_, [a, b]) => {
                let target = self.target.as_f64().unwrap_or(f64::NAN);
                let near = |x: i64, y: i64| (x as f64 / y as f64 - target).abs() < 0.001;
                near(*a, *b) || near(*b, *a)
            }
            _ => false,
        }
    }
}

/// Rules for futoshiki: a latin square that satisfies the inequalities between cells.
pub(crate) fn futoshiki(game: &Game) -> Result<Rules, Error> {
    let n = game.size("grid_size")?;
    let inside = |v: &Value| {
        let (r, c) = game::pair(v)?;
        Some((usize::try_from(r).ok().filter(|r| *r < n)?, usize::try_from(c).ok().filter(|c| *c < n)?))
    };
    let prefilled = game.list("prefilled_coords", "cells inside the grid", inside)?;
    // Pairs of cells; the first cell of a pair is the greater one.
    let signs =
        game.list("constraints", "two cells inside the grid and < or >", |v| match v.as_sequence()? {
            [a, b, sign] => match sign.as_str()? {
                ">" => Some((inside(a)?, inside(b)?)),
                "<" => Some((inside(b)?, inside(a)?)),
                _ => None,
            },
            _ => None,
        })?;
    let clue = |rows: &[&str], (r, c): (usize, usize)| {
        let word = words(rows.get(r)?).nth(c)?;
        Some((r, c, i64::try_from(python::int(word)?).ok()?))
    };
    let clues = |rows: &[&str]| prefilled.iter().filter_map(|p| clue(rows, *p)).collect::<Vec<_>>();
    let quirky_clues = clues(&quirky_rows(&game.question));
    let clues = clues(&question_rows(&game.question, n));
    Ok(Box::new(move |text, mode| {
        let grid = grid(text, mode, (n, n), Value::number, || {
            let found = regex!(r"\[\[([^\]]+)\]\]").captures_iter(strip(text)).last();
            let row = |row: &str| regex!(r"\d+").find_iter(row).map(|m| number(m.as_str())).collect();
            let grid = found.and_then(|c| c[1].split(',').map(row).collect::<Option<Vec<Vec<i64>>>>());
            grid.ok_or(unparsed("no_grid"))
        })?;
        let clues = if mode == Mode::Parity { &quirky_clues } else { &clues };
        Ok(if !is_latin(&grid) {
            wrong("rules")
        } else if clues.iter().any(|&(r, c, v)| grid[r][c] != v) {
            wrong("clues")
        } else if signs.iter().any(|&((gr, gc), (sr, sc))| grid[gr][gc] <= grid[sr][sc]) {
            wrong("signs")
        } else {
            correct("rules")
        })
    }))
}

/// Returns the lines after "Current puzzle:" that contain an X, up to the first line without an X.
fn quirky_rows(question: &str) -> Vec<&str> {
    let mut rows = Vec::new();
    let mut inside = false;
    for line in question.split('\n') {
        if line.contains("Current puzzle:") {
            inside = true;
        } else if inside && !strip(line).is_empty() {
            if line.contains('X') {
                rows.push(strip(line));
            } else if !rows.is_empty() {
                inside = false;
            }
        }
    }
    rows
}

/// Returns the first `n` consecutive lines that have `n` digits or X each.
fn question_rows(question: &str, n: usize) -> Vec<&str> {
    let lines: Vec<&str> = question.split('\n').map(strip).filter(|l| !l.is_empty()).collect();
    let is_row = |line: &&str| {
        words(line).count() == n && words(line).all(|w| w == "X" || w.chars().all(|c| c.is_ascii_digit()))
    };
    let start = lines.windows(n.max(1)).position(|window| window.iter().all(is_row));
    start.map_or(Vec::new(), |at| lines[at..at + n].to_vec())
}

/// Counts the buildings that are higher than all buildings before them.
pub(super) fn visible(heights: impl IntoIterator<Item = i64>) -> i64 {
    let mut highest = 0;
    let mut is_seen = |height: &i64| {
        let higher = *height > highest;
        highest = highest.max(*height);
        higher
    };
    heights.into_iter().filter(|height| is_seen(height)).count() as i64
}

/// Rules for skyscraper_puzzle: a latin square of heights with the given numbers of visible buildings from each side.
/// Quirk: in parity mode the first code block counts, in strict mode the last grid.
pub(crate) fn skyscraper_puzzle(game: &Game) -> Result<Rules, Error> {
    let n = game.size("n")?;
    let side = |field: &'static str| {
        let clues = game.ints(field)?;
        if clues.len() < n { Err(game.error(field, "a clue for each line")) } else { Ok(clues) }
    };
    let (top, bottom, left, right) = (side("top")?, side("bottom")?, side("left")?, side("right")?);
    Ok(Box::new(move |text, mode| {
        let grid = grid(text, mode, (n, n), Value::number, || {
            let block = first_block(text)?;
            // If the block can't be parsed, it is parsed again without its comments.
            let uncommented = || regex!(r"(?m)#.*$").replace_all(block, "").into_owned();
            let literal = python::literal(strip(block)).or_else(|_| python::literal(strip(&uncommented())));
            rows(&literal.map_err(|_| unparsed("not_a_literal"))?, Value::as_i64).ok_or(wrong("shape"))
        })?;
        if !is_latin(&grid) {
            return Ok(wrong("rules"));
        }
        let seen = (0..n).all(|i| {
            visible((0..n).map(|r| grid[r][i])) == top[i]
                && visible((0..n).rev().map(|r| grid[r][i])) == bottom[i]
                && visible(grid[i].iter().copied()) == left[i]
                && visible(grid[i].iter().rev().copied()) == right[i]
        });
        Ok(if seen { correct("rules") } else { wrong("clues") })
    }))
}
