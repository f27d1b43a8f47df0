//! A list of words, and the generator of wordscapes.

use serde_json::json;

use super::{Draft, Source, listed, table};

/// Common English words of three to nine letters.
pub(super) const WORDS: [&str; 217] = [
    "able", "acorn", "actor", "admire", "advice", "after", "again", "agree", "airport", "album", "alive",
    "almost", "amber", "anchor", "angle", "animal", "answer", "apple", "april", "arena", "arrow", "artist",
    "aspect", "august", "autumn", "avenue", "awake", "badge", "balance", "banana", "barrel", "basket",
    "beach", "beauty", "before", "begin", "bench", "better", "beyond", "birth", "blanket", "bloom", "board",
    "border", "bottle", "branch", "bread", "breeze", "bridge", "bright", "broad", "bucket", "butter",
    "cabin", "camera", "candle", "canyon", "carbon", "castle", "cattle", "center", "chain", "chalk",
    "cherry", "circle", "cloud", "coast", "coffee", "collar", "comet", "copper", "corner", "cotton",
    "cousin", "cradle", "cream", "create", "cross", "crown", "curtain", "dance", "danger", "desert",
    "detail", "dinner", "doctor", "dozen", "dragon", "dream", "drift", "eager", "eagle", "early", "earth",
    "easel", "effort", "elbow", "ember", "empire", "engine", "enjoy", "envelope", "escape", "evening",
    "expert", "fabric", "family", "farmer", "feather", "fence", "festival", "field", "finger", "flame",
    "flower", "forest", "fossil", "fresh", "friend", "frost", "future", "galaxy", "garden", "gentle",
    "giant", "ginger", "glacier", "glass", "golden", "grape", "gravel", "guitar", "habit", "hammer",
    "harbor", "harvest", "hazel", "hello", "herald", "honest", "horizon", "humble", "island", "ivory",
    "jacket", "jungle", "kettle", "kitchen", "ladder", "lantern", "laurel", "leader", "lemon", "letter",
    "linen", "lively", "magnet", "maple", "marble", "meadow", "melody", "mirror", "moment", "monkey",
    "morning", "museum", "napkin", "nature", "needle", "night", "noble", "north", "ocean", "olive", "onion",
    "orange", "orchard", "oyster", "paddle", "palace", "pebble", "pencil", "pepper", "planet", "pocket",
    "prairie", "quiet", "quilt", "rabbit", "raven", "ribbon", "river", "rocket", "saddle", "salmon",
    "season", "shadow", "silver", "simple", "spirit", "spring", "stone", "summer", "sunset", "table",
    "temple", "thread", "tiger", "timber", "travel", "tunnel", "valley", "velvet", "violin", "walnut",
    "winter", "yellow",
];

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
    for word in source.sample(&WORDS, WORDS.len()) {
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
    Some(Draft {
        question: format!(
            "Write these words into the grid, whose X are letters and whose 0 stay empty:\n{}\nAcross, from left to right: {}. \
             Down, from the top: {}. Words share letters where they cross. Answer with the grid as a list of row lists of text, \
             one letter a cell and \"0\" where it stays empty, such as [[\"c\", \"a\", \"t\"], [\"a\", \"0\", \"0\"], [\"r\", \"0\", \"0\"]].",
            table(&grid),
            across.join(", "),
            down.join(", ")
        ),
        metadata: json!({
            "grid": grid, "across_words": across, "down_words": down, "solution": solution, "num_words": wanted,
        }),
        answer: json!(""),
        solution: listed(&solution),
    })
}
