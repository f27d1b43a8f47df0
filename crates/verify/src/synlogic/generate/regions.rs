//! Generators of puzzles on a grid with regions: norinori and star_placement_puzzle.

use serde_json::json;

use super::super::placement::{cells, neighbours4, neighbours8};
use super::latin::pairs;
use super::{Draft, Source, python_block, table, values};

/// Divides the grid into connected regions, one for each group of marked cells, and returns the name of each cell's region.
/// Blocked cells don't belong to a region.
///
/// A territory grows around every marked cell, and the territories of a group are joined. Before that, groups of two
/// swap cells, such that each group stays connected.
fn cut(
    n: usize,
    groups: &[Vec<(usize, usize)>],
    blocked: &[(usize, usize)],
    source: &mut Source<'_>,
) -> Option<Vec<Vec<String>>> {
    let marked: Vec<(usize, usize)> = groups.iter().flatten().copied().collect();
    let mut territory: Vec<Vec<Option<usize>>> = vec![vec![None; n]; n];
    for (id, &(r, c)) in marked.iter().enumerate() {
        territory[r][c] = Some(id);
    }
    loop {
        let edge: Vec<((usize, usize), usize)> = cells(n, n)
            .filter(|&(r, c)| territory[r][c].is_none() && !blocked.contains(&(r, c)))
            .flat_map(|(r, c)| neighbours4(r, c, n, n).map(move |near| ((r, c), near)))
            .filter_map(|(cell, (y, x))| Some((cell, territory[y][x]?)))
            .collect();
        if edge.is_empty() {
            break;
        }
        let ((r, c), id) = source.pick(&edge);
        territory[r][c] = Some(id);
    }
    if cells(n, n).any(|(r, c)| territory[r][c].is_none() && !blocked.contains(&(r, c))) {
        return None;
    }
    let count = marked.len();
    let mut touch = vec![vec![false; count]; count];
    for (r, c) in cells(n, n) {
        for (y, x) in neighbours4(r, c, n, n) {
            if let (Some(a), Some(b)) = (territory[r][c], territory[y][x]) {
                touch[a][b] = true;
            }
        }
    }
    let mut next = 0;
    let mut members: Vec<Vec<usize>> = groups
        .iter()
        .map(|g| {
            next += g.len();
            (next - g.len()..next).collect()
        })
        .collect();
    let pair = |m: &[usize]| m.len() < 2 || touch[m[0]][m[1]];
    if members.len() > 1 && members[0].len() == 2 {
        for _ in 0..30 * members.len() {
            let (a, b) = (source.below(members.len()), source.below(members.len()));
            let (i, j) = (source.below(2), source.below(2));
            if a == b {
                continue;
            }
            let (mut left, mut right) = (members[a].clone(), members[b].clone());
            std::mem::swap(&mut left[i], &mut right[j]);
            if pair(&left) && pair(&right) {
                (members[a], members[b]) = (left, right);
            }
        }
    }
    if !members.iter().all(|m| pair(m)) {
        return None;
    }
    let region = |id: usize| members.iter().position(|m| m.contains(&id));
    Some(territory.iter().map(|row| row.iter().map(|id| label(id.and_then(region))).collect()).collect())
}

fn label(region: Option<usize>) -> String {
    // X means shaded, so it isn't the name of a region.
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWYZ";
    region.map_or("X".to_owned(), |i| {
        let letter = char::from(LETTERS[i % LETTERS.len()]);
        if i < LETTERS.len() { letter.to_string() } else { format!("{letter}{}", i / LETTERS.len()) }
    })
}

pub(crate) fn norinori(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let n = 4 + difficulty.div_ceil(2);
    let mut covered: Vec<(usize, usize)> = Vec::new();
    let mut dominoes: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut places: Vec<_> = pairs(n).collect();
    source.shuffle(&mut places);
    for place in places {
        let near = |cell: (usize, usize)| {
            covered.contains(&cell) || neighbours4(cell.0, cell.1, n, n).any(|near| covered.contains(&near))
        };
        if !near(place[0]) && !near(place[1]) && dominoes.len() < n * n / 5 {
            covered.extend(place);
            dominoes.push(place.to_vec());
        }
    }
    // Some dominoes are on shaded cells, which don't belong to a region. Without shaded cells, the reference would
    // accept every response.
    let shaded_dominoes = 1 + source.below(n / 4);
    let blocked: Vec<(usize, usize)> = dominoes.iter().take(shaded_dominoes).flatten().copied().collect();
    let grid = cut(n, &dominoes[shaded_dominoes..], &blocked, source)?;
    let one = |d: &Vec<(usize, usize)>| d.iter().map(|(r, c)| [r + 1, c + 1]).collect::<Vec<_>>();
    let solution: Vec<_> = dominoes.iter().map(one).collect();
    let show = |d: &Vec<[usize; 2]>| format!("[({},{}), ({},{})]", d[0][0], d[0][1], d[1][0], d[1][1]);
    Some(Draft::solved(
        format!("[{}]", solution.iter().map(show).collect::<Vec<_>>().join(", ")),
        values![n, grid = table(&grid)],
        json!({
            "region_grid": grid, "solution": solution, "n": n, "region_nums": dominoes.len() - shaded_dominoes,
            "shadow_ratio": blocked.len() as f64 / (n * n) as f64,
        }),
    ))
}

pub(crate) fn star_placement_puzzle(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    // On smaller grids the same few placements solve many puzzles.
    let (k, n) = if difficulty > 8 { (2, 10) } else { (1, 8 + difficulty / 3) };
    let mut stars = Vec::new();
    place_stars(n, k, &mut stars, &mut 20_000, source)?;
    let groups: Vec<Vec<(usize, usize)>> =
        if k == 1 { stars.iter().map(|s| vec![*s]).collect() } else { pair_up(n, &stars, source) };
    let grid = cut(n, &groups, &[], source)?;
    let mut names: Vec<String> = grid.iter().flatten().cloned().collect();
    names.sort();
    names.dedup();
    let cells = |name: &String| {
        let of = |(r, c): &&(usize, usize)| grid[*r][*c] == *name;
        let list: Vec<String> =
            stars.iter().filter(of).map(|(r, c)| format!("({}, {})", r + 1, c + 1)).collect();
        format!("    \"{name}\": [{}]", list.join(", "))
    };
    let dict = names.iter().map(cells).collect::<Vec<_>>().join(",\n");
    let star = if k == 1 { "star" } else { "stars" };
    Some(Draft::solved(
        python_block(&format!("{{\n{dict}\n}}")),
        values![n, grid = table(&grid), k, star],
        json!({"n": n, "k": k, "region_grid": grid, "solution": stars}),
    ))
}

/// Places stars row by row, `k` in each row and column, none touching. `None` if that fails.
fn place_stars(
    n: usize,
    k: usize,
    stars: &mut Vec<(usize, usize)>,
    steps: &mut usize,
    source: &mut Source<'_>,
) -> Option<()> {
    let row = stars.len() / k;
    if row == n {
        return Some(());
    }
    let least = if stars.len().is_multiple_of(k) { 0 } else { stars.last().map_or(0, |s| s.1 + 2) };
    let mut columns: Vec<usize> = (least..n).collect();
    source.shuffle(&mut columns);
    for c in columns {
        *steps = steps.checked_sub(1)?;
        let full = stars.iter().filter(|s| s.1 == c).count() == k;
        let touches = neighbours8(row, c, n, n).any(|near| stars.contains(&near));
        if full || touches {
            continue;
        }
        stars.push((row, c));
        if place_stars(n, k, stars, steps, source).is_some() {
            return Some(());
        }
        stars.pop();
    }
    None
}

/// Pairs each star, in random order, with the nearest remaining star, because near territories are likely to touch.
fn pair_up(n: usize, stars: &[(usize, usize)], source: &mut Source<'_>) -> Vec<Vec<(usize, usize)>> {
    let mut left = stars.to_vec();
    source.shuffle(&mut left);
    let mut pairs = Vec::new();
    while let Some(star) = left.pop() {
        let distance = |s: &(usize, usize)| s.0.abs_diff(star.0) + s.1.abs_diff(star.1);
        let nearest = (0..left.len()).min_by_key(|i| distance(&left[*i]));
        let mut pair = vec![star];
        pair.extend(nearest.map(|i| left.swap_remove(i)));
        pairs.push(pair);
    }
    debug_assert_eq!(pairs.len(), n);
    pairs
}
