//! Grids filled by a rule: arrow_maze, numbrix, number_wall, survo.

use std::collections::VecDeque;

use dashu_int::IBig;

use super::extract::{grid, grid_pattern, last_group, only_grid};
use super::game::{self, Game};
use super::placement::{cells, neighbours4};
use super::value::{Value, rows};
use super::{Error, Mode, Rules, correct, json, python, unparsed, wrong};
use crate::python_text::{decimal, plain_int, regex, strip};
use crate::verdict::Outcome;

/// The arrows, each with its steps (down, right).
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

/// Rules for arrow_maze: rays of arrows start at the numbers, and each number is the total length of its rays.
/// Quirk: in parity mode an empty cell may be filled with a number, for example "0" without a ray.
pub(crate) fn arrow_maze(game: &Game) -> Result<Rules, Error> {
    let maze = game.grid("maze", "a grid of text", game::cell)?;
    Ok(Box::new(move |text, mode| {
        let grid = match mode {
            Mode::Parity => {
                let grid = extract_lists(text).ok_or(unparsed("no_grid"))?;
                rows(&grid, game::cell).ok_or(wrong("shape"))?
            }
            Mode::Strict => {
                let cell = |v: &Value| match v {
                    Value::Int(n) => Some(n.to_string()),
                    v => game::cell(v),
                };
                only_grid(text, (maze.len(), maze.first().map_or(0, Vec::len)), cell)?
            }
        };
        if grid.len() != maze.len() || grid.iter().zip(&maze).any(|(a, b)| a.len() != b.len()) {
            return Err(wrong("shape"));
        }
        for (cell, given) in grid.iter().flatten().zip(maze.iter().flatten()) {
            let arrow = ARROWS.iter().any(|a| a.0 == cell);
            let fits = if given == "X" {
                cell != "X" && (arrow || (mode == Mode::Parity && is_number(cell)))
            } else {
                cell == given && (arrow || is_number(cell))
            };
            if !fits {
                return Err(wrong("cells"));
            }
        }
        Ok(rays(&grid))
    }))
}

fn rays(grid: &[Vec<String>]) -> Outcome {
    // As in the reference, the width is the length of the first row.
    let (n, m) = (grid.len() as i64, grid.first().map_or(0, Vec::len) as i64);
    if grid.iter().any(|row| row.len() as i64 != m) {
        return wrong("shape");
    }
    let mut covered = vec![vec![false; m as usize]; n as usize];
    for (r, c) in cells(grid.len(), m as usize) {
        let cell = &grid[r][c];
        if !is_number(cell) {
            continue;
        }
        let mut length = 0_i64;
        for (arrow, dr, dc) in ARROWS {
            let (mut y, mut x) = (r as i64 + dr, c as i64 + dc);
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
    let free = |(r, c): (usize, usize)| !is_number(&grid[r][c]) && !covered[r][c];
    if cells(grid.len(), m as usize).any(free) { wrong("uncovered") } else { correct("rules") }
}

/// Returns the last code block or `[[...]]` that is a list of lists.
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
        if let Some(value) = last_group(pattern, text).and_then(lists) {
            return Some(value);
        }
    }
    lists(regex!(r"(?s)\[\s*\[.*?\]\s*\]").find_iter(text).last()?.as_str())
}

/// Rules for numbrix: consecutive numbers are in adjacent cells.
pub(crate) fn numbrix(game: &Game) -> Result<Rules, Error> {
    let given = game.square("grid", |v| match v {
        Value::Str(s) if s == "X" => Some(None),
        v => v.as_i64().map(Some),
    })?;
    let n = given.len();
    let clues: Vec<_> = cells(n, n).filter_map(|(r, c)| Some((r, c, given[r][c]?))).collect();
    Ok(Box::new(move |text, mode| {
        let grid = grid(text, mode, (n, n), Value::number, || {
            let found = regex!(r"(?s)\[\s*\[\s*\d+.*?\]\s*\]").find_iter(text).last();
            let source = found.ok_or(unparsed("no_grid"))?.as_str().replace(['\'', '"'], "");
            let value = python::literal(&source).map_err(|_| unparsed("not_a_literal"))?;
            rows(&value, Value::as_i64).ok_or(unparsed("not_numbers"))
        })?;
        let mut places = vec![None; n * n];
        for (i, v) in grid.iter().flatten().enumerate() {
            let Some(place) = usize::try_from(v - 1).ok().and_then(|v| places.get_mut(v)) else {
                return Err(wrong("range"));
            };
            if place.replace((i / n, i % n)).is_some() {
                return Err(wrong("repeated"));
            }
        }
        if clues.iter().any(|&(r, c, v)| grid[r][c] != v) {
            return Err(wrong("clues"));
        }
        let places: Vec<(usize, usize)> = places.into_iter().flatten().collect();
        let adjacent = |w: &[(usize, usize)]| w[0].0.abs_diff(w[1].0) + w[0].1.abs_diff(w[1].1) == 1;
        Ok(if places.windows(2).all(adjacent) { correct("rules") } else { wrong("path") })
    }))
}

#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Wall,
    Land,
    Number(i64),
}

const WALL_CELL: &str = r#"(?:"[XA]"|'[XA]'|[0-9]+|"[0-9]+"|'[0-9]+')"#;

/// Rules for number_wall: walls separate islands, each of which has one number, its size.
pub(crate) fn number_wall(game: &Game) -> Result<Rules, Error> {
    let clues = game.square("grid", |v| match v {
        Value::Int(_) => v.as_i64().map(Some),
        Value::Str(_) => Some(None),
        _ => None,
    })?;
    let n = clues.len();
    if n != game.size("n")? {
        return Err(game.error("grid", "n rows of n cells"));
    }
    Ok(Box::new(move |text, mode| {
        let number = |n: &IBig| Cell::Number(i64::try_from(n).unwrap_or(i64::MAX));
        let cell = |v: &Value| match v {
            Value::Str(s) if s == "X" => Some(Cell::Land),
            Value::Str(s) if s == "A" => Some(Cell::Wall),
            Value::Str(s) if mode == Mode::Strict => plain_int(s).map(|n| number(&n)),
            Value::Str(s) => python::int(s).map(|n| number(&n)),
            Value::Int(n) => Some(number(n)),
            _ => None,
        };
        let grid = grid(text, mode, (n, n), cell, || {
            let found = regex!(&grid_pattern(WALL_CELL)).find_iter(text).last();
            let found = found.ok_or(unparsed("no_grid"))?;
            let source = found.as_str().replace(['\n', '\r'], "");
            let source = strip(&source);
            let value = json::parse(source).or_else(|| python::literal(source).ok());
            rows(&value.ok_or(unparsed("not_a_literal"))?, cell).ok_or(unparsed("not_cells"))
        })?;
        if cells(n, n).any(|(r, c)| clues[r][c].is_some_and(|v| grid[r][c] != Cell::Number(v))) {
            return Err(wrong("clues"));
        }
        Ok(judge_islands(&grid))
    }))
}

fn judge_islands(grid: &[Vec<Cell>]) -> Outcome {
    let n = grid.len();
    let wall = |r: usize, c: usize| grid[r][c] == Cell::Wall;
    let inner = || cells(n, n).filter(|(r, c)| *r > 0 && *c > 0);
    if inner().any(|(r, c)| wall(r, c) && wall(r - 1, c) && wall(r, c - 1) && wall(r - 1, c - 1)) {
        return wrong("wall_block");
    }
    let mut island = vec![vec![usize::MAX; n]; n];
    for (start, (r, c)) in cells(n, n).enumerate() {
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
    let corner = |a: (usize, usize), b: (usize, usize), w: (usize, usize), v: (usize, usize)| {
        !wall(a.0, a.1)
            && !wall(b.0, b.1)
            && wall(w.0, w.1)
            && wall(v.0, v.1)
            && island[a.0][a.1] != island[b.0][b.1]
    };
    let diagonal = |(r, c): (usize, usize)| {
        let (nw, ne, sw, se) = ((r - 1, c - 1), (r - 1, c), (r, c - 1), (r, c));
        corner(nw, se, ne, sw) || corner(ne, sw, nw, se)
    };
    if inner().any(diagonal) { wrong("diagonal") } else { correct("rules") }
}

/// Rules for survo: a matrix whose rows and columns have the given sums.
pub(crate) fn survo(game: &Game) -> Result<Rules, Error> {
    let puzzle = game.grid("original_matrix", "a matrix of numbers", Value::as_f64)?;
    let n = game.size("n")?;
    let width = puzzle.first().map_or(0, Vec::len);
    if n == 0 || puzzle.len() < n || width < n || puzzle.iter().any(|row| row.len() != width) {
        return Err(game.error("original_matrix", "at least n rows and columns"));
    }
    let mut candidates = game.list("candidate_numbers", "numbers", Value::as_f64)?;
    candidates.sort_by(f64::total_cmp);
    Ok(Box::new(move |text, mode| {
        let number = |v: &Value| v.as_f64().filter(|x| x.is_finite());
        let matrix = grid(text, mode, (puzzle.len(), width), number, || {
            let source = super::latin::last_python_block(text)
                .or_else(|| last_group(regex!(r"```([\s\S]*?)```"), text))
                .or_else(|| last_group(regex!(r"(?s)(\[\s*\[.*?\]\s*\])"), text));
            let value = source.and_then(|s| json::parse(&s.replace('\'', "\"")));
            rows(&value.ok_or(unparsed("not_json"))?, number).ok_or(wrong("not_numbers"))
        })?;
        let mut filled = Vec::new();
        let inner = |m: &[Vec<f64>]| m[..n].iter().flat_map(|row| row[..n].to_vec()).collect::<Vec<f64>>();
        for (given, value) in inner(&puzzle).into_iter().zip(inner(&matrix)) {
            if given == 0.0 {
                filled.push(value);
            } else if given != value {
                return Err(wrong("clues"));
            }
        }
        filled.sort_by(f64::total_cmp);
        if filled.len() != candidates.len() || filled.iter().zip(&candidates).any(|(a, b)| a != b) {
            return Err(wrong("candidates"));
        }
        let sums = (0..n - 1).all(|i| {
            (0..n - 1).map(|c| matrix[i][c]).sum::<f64>() == matrix[i][n - 1]
                && (0..n - 1).map(|r| matrix[r][i]).sum::<f64>() == matrix[n - 1][i]
        });
        Ok(if sums { correct("rules") } else { wrong("sums") })
    }))
}
