//! Grids filled by a rule: arrow_maze, numbrix, number_wall, survo.

use std::collections::VecDeque;

use super::game::{self, Game};
use super::placement::neighbours4;
use super::text::{decimal, regex, strip};
use super::value::Value;
use super::{Error, Mode, correct, json, python, unparsed, wrong};
use crate::verdict::Outcome;

/// Rays of arrows from numbers.
pub(crate) struct ArrowMaze {
    maze: Vec<Vec<String>>,
}

/// The arrows and the direction of each, as steps down and right.
pub(super) const ARROWS: [(&str, i64, i64); 8] = [
    ("↑", -1, 0),
    ("↓", 1, 0),
    ("←", 0, -1),
    ("→", 0, 1),
    ("↖", -1, -1),
    ("↗", -1, 1),
    ("↘", 1, 1),
    ("↙", 1, -1),
];

fn is_number(cell: &str) -> bool {
    !cell.is_empty() && cell.chars().all(|c| decimal(c).is_some())
}

impl ArrowMaze {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        Ok(Self { maze: game.grid("maze", "a grid of text", game::cell)? })
    }

    /// Quirk: in parity mode an empty cell may be filled with a number, for example "0" without a ray.
    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let Some(grid) = extract_lists(text) else { return unparsed("no_grid") };
        let row = |row: &Value| row.as_sequence()?.iter().map(game::cell).collect::<Option<Vec<_>>>();
        let Some(grid) = grid.as_list().and_then(|rows| rows.iter().map(row).collect::<Option<Vec<_>>>())
        else {
            return wrong("shape");
        };
        if grid.len() != self.maze.len() || grid.iter().zip(&self.maze).any(|(a, b)| a.len() != b.len()) {
            return wrong("shape");
        }
        for (cell, given) in grid.iter().flatten().zip(self.maze.iter().flatten()) {
            let arrow = ARROWS.iter().any(|a| a.0 == cell);
            let fits = if given == "X" {
                cell != "X" && (arrow || (mode == Mode::Parity && is_number(cell)))
            } else {
                cell == given && (arrow || is_number(cell))
            };
            if !fits {
                return wrong("cells");
            }
        }
        rays(&grid)
    }
}

fn rays(grid: &[Vec<String>]) -> Outcome {
    // The reference takes the width of the first row.
    let (n, m) = (grid.len() as i64, grid.first().map_or(0, Vec::len) as i64);
    if grid.iter().any(|row| row.len() as i64 != m) {
        return wrong("shape");
    }
    let mut covered = vec![vec![false; m as usize]; n as usize];
    for r in 0..n {
        for c in 0..m {
            let cell = &grid[r as usize][c as usize];
            if !is_number(cell) {
                continue;
            }
            let mut length = 0_i64;
            for (arrow, dr, dc) in ARROWS {
                let (mut y, mut x) = (r + dr, c + dc);
                while (0..n).contains(&y) && (0..m).contains(&x) && grid[y as usize][x as usize] == arrow {
                    covered[y as usize][x as usize] = true;
                    length += 1;
                    (y, x) = (y + dr, x + dc);
                }
            }
            if python::int(cell) != Some(length.into()) {
                return wrong("rays");
            }
        }
    }
    let free = |r: usize, c: usize| !is_number(&grid[r][c]) && !covered[r][c];
    if (0..n as usize).any(|r| (0..m as usize).any(|c| free(r, c))) {
        wrong("uncovered")
    } else {
        correct("rules")
    }
}

/// The last code block or `[[...]]` that is a list of lists.
fn extract_lists(text: &str) -> Option<Value> {
    let lists = |source: &str| {
        let value = python::evaluate(source).ok()?;
        value.as_list()?.iter().all(|row| row.as_list().is_some()).then_some(value)
    };
    let blocks = [
        regex!(r"(?s)```python\s*\n(.*?\[.*?\].*?)\n```"),
        regex!(r"(?s)```\s*\n(.*?\[.*?\].*?)\n```"),
        regex!(r"(?s)```(.*?\[.*?\].*?)```"),
    ];
    for pattern in blocks {
        let block = pattern.captures_iter(text).last().and_then(|c| c.get(1));
        if let Some(value) = block.and_then(|m| lists(strip(m.as_str()))) {
            return Some(value);
        }
    }
    lists(regex!(r"(?s)\[\s*\[.*?\]\s*\]").find_iter(text).last()?.as_str())
}

/// A path of consecutive numbers.
pub(crate) struct Numbrix {
    clues: Vec<(usize, usize, i64)>,
    n: usize,
}

impl Numbrix {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        let grid = game.square("grid", |v| match v {
            Value::Str(s) if s == "X" => Some(None),
            v => v.as_i64().map(Some),
        })?;
        let n = grid.len();
        let clues = (0..n * n).filter_map(|i| Some((i / n, i % n, grid[i / n][i % n]?)));
        Ok(Self { clues: clues.collect(), n })
    }

    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let Some(found) = regex!(r"(?s)\[\s*\[\s*\d+.*?\]\s*\]").find_iter(text).last() else {
            return unparsed("no_grid");
        };
        let Ok(value) = python::literal(&found.as_str().replace(['\'', '"'], "")) else {
            return unparsed("not_a_literal");
        };
        let row = |row: &Value| {
            let strict = |v: &Value| mode == Mode::Parity || matches!(v, Value::Int(_));
            row.as_list()?.iter().map(|v| v.as_i64().filter(|_| strict(v))).collect::<Option<Vec<_>>>()
        };
        let Some(grid) = value.as_list().and_then(|rows| rows.iter().map(row).collect::<Option<Vec<_>>>())
        else {
            return unparsed("not_numbers");
        };
        let n = self.n;
        if grid.len() != n || grid.iter().any(|row| row.len() != n) {
            return wrong("shape");
        }
        let mut places = vec![None; n * n];
        for (i, v) in grid.iter().flatten().enumerate() {
            let Some(place) = usize::try_from(v - 1).ok().and_then(|v| places.get_mut(v)) else {
                return wrong("range");
            };
            if place.replace((i / n, i % n)).is_some() {
                return wrong("repeated");
            }
        }
        if self.clues.iter().any(|&(r, c, v)| grid[r][c] != v) {
            return wrong("clues");
        }
        let places: Vec<(usize, usize)> = places.into_iter().flatten().collect();
        let adjacent = |w: &[(usize, usize)]| w[0].0.abs_diff(w[1].0) + w[0].1.abs_diff(w[1].1) == 1;
        if places.windows(2).all(adjacent) { correct("rules") } else { wrong("path") }
    }
}

/// Islands of a number's size between walls.
pub(crate) struct NumberWall {
    grid: Vec<Vec<Option<i64>>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Wall,
    Land,
    Number(i64),
}

macro_rules! wall_cell {
    () => {
        r#"(?:"[XA]"|'[XA]'|[0-9]+|"[0-9]+"|'[0-9]+')"#
    };
}
const NUMBER_WALL: &str = concat!(
    r"\[\s*\[(?:\s*",
    wall_cell!(),
    r"\s*,\s*)*\s*",
    wall_cell!(),
    r"\s*\]\s*(?:,\s*\[(?:\s*",
    wall_cell!(),
    r"\s*,\s*)*\s*",
    wall_cell!(),
    r"\s*\]\s*)*\]"
);

impl NumberWall {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        let grid = game.square("grid", |v| match v {
            Value::Int(_) => v.as_i64().map(Some),
            Value::Str(_) => Some(None),
            _ => None,
        })?;
        if grid.len() != game.size("n")? {
            return Err(game.error("grid", "n rows of n cells"));
        }
        Ok(Self { grid })
    }

    pub(crate) fn check(&self, text: &str, _mode: Mode) -> Outcome {
        let Some(found) = regex!(NUMBER_WALL).find_iter(text).last() else { return unparsed("no_grid") };
        let source = found.as_str().replace(['\n', '\r'], "");
        let source = strip(&source);
        let Some(value) = json::parse(source).or_else(|| python::literal(source).ok()) else {
            return unparsed("not_a_literal");
        };
        let cell = |v: &Value| match v {
            Value::Str(s) if s == "X" => Some(Cell::Land),
            Value::Str(s) if s == "A" => Some(Cell::Wall),
            Value::Str(s) => python::int(s).map(|n| Cell::Number(i64::try_from(n).unwrap_or(i64::MAX))),
            Value::Int(n) => Some(Cell::Number(i64::try_from(n).unwrap_or(i64::MAX))),
            _ => None,
        };
        let row = |row: &Value| row.as_list()?.iter().map(cell).collect::<Option<Vec<_>>>();
        let Some(grid) = value.as_list().and_then(|rows| rows.iter().map(row).collect::<Option<Vec<_>>>())
        else {
            return unparsed("not_cells");
        };
        let n = self.grid.len();
        if grid.len() != n || grid.iter().any(|row| row.len() != n) {
            return wrong("shape");
        }
        let kept = |r: usize, c: usize| self.grid[r][c].is_none_or(|v| grid[r][c] == Cell::Number(v));
        if (0..n * n).any(|i| !kept(i / n, i % n)) {
            return wrong("clues");
        }
        judge_islands(&grid)
    }
}

fn judge_islands(grid: &[Vec<Cell>]) -> Outcome {
    let n = grid.len();
    let wall = |r: usize, c: usize| grid[r][c] == Cell::Wall;
    for r in 1..n {
        for c in 1..n {
            if wall(r, c) && wall(r - 1, c) && wall(r, c - 1) && wall(r - 1, c - 1) {
                return wrong("wall_block");
            }
        }
    }
    let mut island = vec![vec![usize::MAX; n]; n];
    for start in 0..n * n {
        let (r, c) = (start / n, start % n);
        if wall(r, c) || island[r][c] != usize::MAX {
            continue;
        }
        let mut size = 0_i64;
        let mut number = None;
        let mut queue = VecDeque::from([(r, c)]);
        island[r][c] = start;
        while let Some((r, c)) = queue.pop_front() {
            size += 1;
            if let Cell::Number(v) = grid[r][c]
                && number.replace(v).is_some()
            {
                return wrong("two_numbers");
            }
            for (y, x) in neighbours4(r, c, n, n) {
                if !wall(y, x) && island[y][x] == usize::MAX {
                    island[y][x] = start;
                    queue.push_back((y, x));
                }
            }
        }
        if number != Some(size) {
            return wrong("island_size");
        }
    }
    for r in 1..n {
        for c in 1..n {
            let corner = |a: (usize, usize), b: (usize, usize), w: (usize, usize), v: (usize, usize)| {
                !wall(a.0, a.1)
                    && !wall(b.0, b.1)
                    && wall(w.0, w.1)
                    && wall(v.0, v.1)
                    && island[a.0][a.1] != island[b.0][b.1]
            };
            let (nw, ne, sw, se) = ((r - 1, c - 1), (r - 1, c), (r, c - 1), (r, c));
            if corner(nw, se, ne, sw) || corner(ne, sw, nw, se) {
                return wrong("diagonal");
            }
        }
    }
    correct("rules")
}

/// A matrix with row and column sums.
pub(crate) struct Survo {
    matrix: Vec<Vec<f64>>,
    candidates: Vec<f64>,
    n: usize,
}

impl Survo {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        let matrix = game.grid("original_matrix", "a matrix of numbers", Value::as_f64)?;
        let n = game.size("n")?;
        if matrix.len() < n
            || n == 0
            || matrix.iter().any(|row| row.len() < n || row.len() != matrix[0].len())
        {
            return Err(game.error("original_matrix", "at least n rows and columns"));
        }
        let mut candidates = game.list("candidate_numbers", "numbers", Value::as_f64)?;
        candidates.sort_by(f64::total_cmp);
        Ok(Self { matrix, candidates, n })
    }

    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let last = |found: Option<regex::Captures<'_>>| {
            found.and_then(|c| c.get(1)).map(|m| strip(m.as_str()).to_owned())
        };
        let source = super::latin::last_python_block(text)
            .map(str::to_owned)
            .or_else(|| last(regex!(r"```([\s\S]*?)```").captures_iter(text).last()))
            .or_else(|| last(regex!(r"(?s)(\[\s*\[.*?\]\s*\])").captures_iter(text).last()));
        let Some(value) = source.and_then(|s| json::parse(&s.replace('\'', "\""))) else {
            return unparsed("not_json");
        };
        let number = |v: &Value| match v {
            Value::Bool(_) if mode == Mode::Strict => None,
            v => v.as_f64().filter(|x| x.is_finite()),
        };
        let row = |row: &Value| row.as_list()?.iter().map(number).collect::<Option<Vec<_>>>();
        let Some(matrix) = value.as_list().and_then(|rows| rows.iter().map(row).collect::<Option<Vec<_>>>())
        else {
            return wrong("not_numbers");
        };
        let (n, width) = (self.n, self.matrix[0].len());
        if matrix.len() != self.matrix.len() || matrix.iter().any(|row| row.len() != width) {
            return wrong("shape");
        }
        let mut filled = Vec::new();
        let inner = |m: &[Vec<f64>]| m[..n].iter().flat_map(|row| row[..n].to_vec()).collect::<Vec<f64>>();
        for (given, value) in inner(&self.matrix).into_iter().zip(inner(&matrix)) {
            if given == 0.0 {
                filled.push(value);
            } else if given != value {
                return wrong("clues");
            }
        }
        filled.sort_by(f64::total_cmp);
        if filled.len() != self.candidates.len() || filled.iter().zip(&self.candidates).any(|(a, b)| a != b) {
            return wrong("candidates");
        }
        let sums = (0..n - 1).all(|i| {
            (0..n - 1).map(|c| matrix[i][c]).sum::<f64>() == matrix[i][n - 1]
                && (0..n - 1).map(|r| matrix[r][i]).sum::<f64>() == matrix[n - 1][i]
        });
        if sums { correct("rules") } else { wrong("sums") }
    }
}
