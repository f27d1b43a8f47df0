//! Generators of grids filled by a rule.

use serde_json::{Value, json};

use super::super::fill::ARROWS;
use super::super::placement::{cells, neighbours4, neighbours8};
use super::{Draft, Source, blanked, listed, python_block, shown, table, values};

pub(crate) fn arrow_maze(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let n = 4 + difficulty / 2;
    let inside = |r: i64, c: i64| (0..n as i64).contains(&r) && (0..n as i64).contains(&c);
    // For each filled cell, the index of its arrow, or `None` for a number.
    let mut given: Vec<Vec<Option<Option<usize>>>> = vec![vec![None; n]; n];
    let mut order: Vec<(usize, usize)> = cells(n, n).collect();
    source.shuffle(&mut order);
    for (r, c) in order {
        if given[r][c].is_some() {
            continue;
        }
        // If a ray points to this cell, prolong the ray. Otherwise the cell could become a number without rays.
        let before = |d: usize| {
            let (y, x) = (r as i64 - ARROWS[d].1, c as i64 - ARROWS[d].2);
            inside(y, x) && matches!(given[y as usize][x as usize], Some(v) if v.is_none() || v == Some(d))
        };
        let prolongs: Vec<usize> = (0..8).filter(|d| before(*d)).collect();
        let open = neighbours8(r, c, n, n).filter(|&(y, x)| given[y][x].is_none()).count();
        if !prolongs.is_empty() && (open == 0 || source.chance(1, 3)) {
            given[r][c] = Some(Some(source.pick(&prolongs)));
            continue;
        }
        given[r][c] = Some(None);
        for (d, (_, dr, dc)) in ARROWS.iter().enumerate() {
            if source.chance(1, 2) {
                continue;
            }
            let (mut y, mut x) = (r as i64 + dr, c as i64 + dc);
            for _ in 0..=source.below(n - 1) {
                if !inside(y, x) || given[y as usize][x as usize].is_some() {
                    break;
                }
                given[y as usize][x as usize] = Some(Some(d));
                (y, x) = (y + dr, x + dc);
            }
        }
    }
    let mut solution = vec![vec![String::new(); n]; n];
    let mut maze = vec![vec!["X".to_owned(); n]; n];
    for (r, c) in cells(n, n) {
        if let Some(Some(d)) = given[r][c] {
            solution[r][c] = ARROWS[d].0.to_owned();
            if source.chance(11 - difficulty, 25) {
                maze[r][c] = solution[r][c].clone();
            }
            continue;
        }
        let mut length = 0;
        for (d, (_, dr, dc)) in ARROWS.iter().enumerate() {
            let (mut y, mut x) = (r as i64 + dr, c as i64 + dc);
            while inside(y, x) && given[y as usize][x as usize] == Some(Some(d)) {
                length += 1;
                (y, x) = (y + dr, x + dc);
            }
        }
        if length == 0 {
            return None;
        }
        solution[r][c] = length.to_string();
        maze[r][c] = length.to_string();
    }
    Some(Draft::solved(
        python_block(&listed(&solution)),
        values![grid = table(&maze)],
        json!({"maze": maze, "solution": solution, "width": n, "height": n}),
    ))
}

pub(crate) fn numbrix(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let n = 4 + difficulty.div_ceil(3);
    // A path that snakes through the grid, shuffled: the part before a random neighbour of its first cell is
    // reversed.
    let mut path: Vec<(usize, usize)> =
        (0..n * n).map(|i| (i / n, if (i / n).is_multiple_of(2) { i % n } else { n - 1 - i % n })).collect();
    for _ in 0..20 * n * n {
        if source.chance(1, 2) {
            path.reverse();
        }
        let (r, c) = path[0];
        let next = source.pick(&neighbours4(r, c, n, n).collect::<Vec<_>>());
        let at = path.iter().position(|cell| *cell == next)?;
        path[..at].reverse();
    }
    let mut solution = vec![vec![0; n]; n];
    for (i, (r, c)) in path.iter().enumerate() {
        solution[*r][*c] = i + 1;
    }
    let mut grid = vec![vec![json!("X"); n]; n];
    for (r, c) in cells(n, n) {
        if source.chance(14 - difficulty, 24) {
            grid[r][c] = json!(solution[r][c]);
        }
    }
    Some(Draft::solved(
        listed(&solution),
        values![n, last = n * n, grid = shown(&grid)],
        json!({"grid": grid, "solution": solution, "n": n, "fill_rate": (14 - difficulty) as f64 / 24.0}),
    ))
}

pub(crate) fn number_wall(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let n = 4 + difficulty / 2;
    let largest = 3 + difficulty / 2;
    // All wall; a 2x2 block of wall is broken by a cell that is a new island or joins the only one near it.
    let mut island: Vec<Vec<Option<usize>>> = vec![vec![None; n]; n];
    let mut sizes: Vec<usize> = Vec::new();
    loop {
        let blocks: Vec<(usize, usize)> = cells(n - 1, n - 1)
            .filter(|&(r, c)| {
                [(r, c), (r + 1, c), (r, c + 1), (r + 1, c + 1)].iter().all(|&(y, x)| island[y][x].is_none())
            })
            .collect();
        if blocks.is_empty() {
            break;
        }
        let (r, c) = source.pick(&blocks);
        let mut options = Vec::new();
        for (y, x) in [(r, c), (r + 1, c), (r, c + 1), (r + 1, c + 1)] {
            let near: Vec<usize> = neighbours8(y, x, n, n).filter_map(|(b, a)| island[b][a]).collect();
            match near.first() {
                None => options.push((y, x, sizes.len())),
                Some(&only) => {
                    let beside = neighbours4(y, x, n, n).any(|(b, a)| island[b][a] == Some(only));
                    if beside && near.iter().all(|i| *i == only) && sizes[only] < largest {
                        options.push((y, x, only));
                    }
                }
            }
        }
        if options.is_empty() {
            return None;
        }
        let (y, x, id) = source.pick(&options);
        if id == sizes.len() {
            sizes.push(0);
        }
        sizes[id] += 1;
        island[y][x] = Some(id);
    }
    let mut solution = vec![vec![json!("A"); n]; n];
    let mut grid = vec![vec![json!("X"); n]; n];
    for (id, size) in sizes.iter().enumerate() {
        let land: Vec<_> = cells(n, n).filter(|&(r, c)| island[r][c] == Some(id)).collect();
        for &(r, c) in &land {
            solution[r][c] = json!("X");
        }
        let (r, c) = source.pick(&land);
        solution[r][c] = json!(size);
        grid[r][c] = json!(size);
    }
    let rows: Vec<String> = solution.iter().map(|row| format!("    {}", Value::from(row.clone()))).collect();
    Some(Draft::solved(
        python_block(&format!("[\n{}\n]", rows.join(",\n"))),
        values![n, grid = shown(&grid)],
        json!({"grid": grid, "solution": solution, "n": n, "number_rate": sizes.len() as f64 / (n * n) as f64}),
    ))
}

pub(crate) fn survo(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let inner = 2 + difficulty.div_ceil(3);
    let n = inner + 1;
    let (least, most) = (1, 9 + 3 * (difficulty as i64 / 2));
    let mut filled = vec![vec![0_i64; n]; n];
    for row in &mut filled[..inner] {
        row[..inner].fill_with(|| source.range(least, most));
        row[inner] = row[..inner].iter().sum();
    }
    filled[inner] = (0..n).map(|c| filled[..inner].iter().map(|row| row[c]).sum()).collect();
    let all: Vec<_> = cells(inner, inner).collect();
    let blanks = source.sample(&all, (inner * inner * (3 + difficulty) / 14).max(2));
    let mut original = filled.clone();
    let mut candidates: Vec<i64> = blanks.iter().map(|&(r, c)| std::mem::take(&mut original[r][c])).collect();
    source.shuffle(&mut candidates);
    Some(Draft {
        values: values![n, grid = shown(&blanked(&original)), candidates = format!("{candidates:?}")],
        metadata: json!({
            "original_matrix": original, "filled_matrix": filled, "candidate_numbers": candidates, "n": n,
            "x": candidates.len(), "min_num": least, "max_num": most,
        }),
        solution: python_block(&listed(&filled)),
        answer: json!(Value::from(filled.clone()).to_string()),
    })
}
