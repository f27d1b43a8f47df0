//! The generator of wordscapes.

use serde_json::json;

use super::{Draft, Source, listed, table, values, words};

/// Letters by cell, and the direction of each word.
struct Crossword {
    letters: std::collections::BTreeMap<(i64, i64), char>,
    words: Vec<(&'static str, (i64, i64), bool)>,
}

impl Crossword {
    /// Whether a word fits: it crosses others only at equal letters, and touches nothing beside it or at its ends.
    fn fits(&self, word: &str, (r, c): (i64, i64), across: bool) -> bool {
        let (dr, dc) = if across { (0, 1) } else { (1, 0) };
        let length = word.len() as i64;
        let at = |r: i64, c: i64| self.letters.get(&(r, c));
        if at(r - dr, c - dc).is_some() || at(r + dr * length, c + dc * length).is_some() {
            return false;
        }
        let mut crossings = 0;
        for (i, letter) in (0..).zip(word.chars()) {
            let (y, x) = (r + dr * i, c + dc * i);
            match at(y, x) {
                Some(there) if *there == letter => crossings += 1,
                Some(_) => return false,
                None if at(y + dc, x + dr).is_some() || at(y - dc, x - dr).is_some() => return false,
                None => {}
            }
        }
        (crossings > 0 && crossings < length) || self.letters.is_empty()
    }

    fn put(&mut self, word: &'static str, (r, c): (i64, i64), across: bool) {
        let (dr, dc) = if across { (0, 1) } else { (1, 0) };
        for (i, letter) in (0..).zip(word.chars()) {
            self.letters.insert((r + dr * i, c + dc * i), letter);
        }
        self.words.push((word, (r, c), across));
    }
}

pub(crate) fn wordscapes(difficulty: usize, source: &mut Source<'_>) -> Option<Draft> {
    let wanted = 3 + difficulty;
    let mut puzzle = Crossword { letters: std::collections::BTreeMap::new(), words: Vec::new() };
    for word in source.sample(&words("words"), usize::MAX) {
        if puzzle.words.len() == wanted {
            break;
        }
        if puzzle.words.is_empty() {
            puzzle.put(word, (0, 0), true);
            continue;
        }
        let mut places = Vec::new();
        for (i, letter) in (0..).zip(word.chars()) {
            for (&(r, c), there) in &puzzle.letters {
                if *there == letter {
                    places.extend([((r, c - i), true), ((r - i, c), false)]);
                }
            }
        }
        places.retain(|(place, across)| puzzle.fits(word, *place, *across));
        if !places.is_empty() {
            let (place, across) = source.pick(&places);
            puzzle.put(word, place, across);
        }
    }
    if puzzle.words.len() < wanted {
        return None;
    }
    let rows = puzzle.letters.keys().map(|p| p.0);
    let (top, bottom) = (rows.clone().min()?, rows.max()?);
    let columns = puzzle.letters.keys().map(|p| p.1);
    let (left, right) = (columns.clone().min()?, columns.max()?);
    let cell = |r: i64, c: i64| puzzle.letters.get(&(r, c)).map_or("0".to_owned(), char::to_string);
    let solution: Vec<Vec<String>> =
        (top..=bottom).map(|r| (left..=right).map(|c| cell(r, c)).collect()).collect();
    let grid: Vec<Vec<&str>> =
        solution.iter().map(|row| row.iter().map(|c| if c == "0" { "0" } else { "X" }).collect()).collect();
    let of = |across: bool| puzzle.words.iter().filter(|w| w.2 == across).map(|w| w.0).collect::<Vec<_>>();
    let (mut across, mut down) = (of(true), of(false));
    source.shuffle(&mut across);
    source.shuffle(&mut down);
    Some(Draft::solved(
        listed(&solution),
        values![grid = table(&grid), across = across.join(", "), down = down.join(", ")],
        json!({
            "grid": grid, "across_words": across, "down_words": down, "solution": solution, "num_words": wanted,
        }),
    ))
}
