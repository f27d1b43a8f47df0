//! Reads the words after a value: units, and counted things.
//!
//! Units of a quantity are compared by their canonical names, so that `m/s` is `meters per second`. They are not
//! converted: 10 cm and 0.1 m differ. A value without a unit agrees with any unit, because golds often leave it out.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::words::{Words, is_scale, listed, ordinal, section};

/// Spellings of a unit per hour, with the unit and the hour.
const SPEEDS: &[(&str, [&str; 2])] =
    &[("mph", ["mile", "hour"]), ("kmh", ["km", "hour"]), ("kmph", ["km", "hour"]), ("kph", ["km", "hour"])];

/// Words that don't affect the unit.
static EMPTY: Words = LazyLock::new(|| listed("words without effect on a unit"));
/// Words that change the meaning of the value before them.
static CHANGING: Words = LazyLock::new(|| listed("words that change a value"));
/// Participles that describe what is counted.
static DESCRIBING: Words = LazyLock::new(|| listed("participles that describe"));
/// Prepositions. The name of the counted things ends before the first one.
static PREPOSITIONS: Words = LazyLock::new(|| listed("prepositions"));
/// Unit symbols with capital letters. The same letters in another case are another unit, as in `mS` and `ms`.
static CAPITALS: Words = LazyLock::new(|| listed("units with capital letters"));

/// A unit, or the counted things.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Unit {
    /// Canonical names with their exponents, sorted.
    known: Vec<(Box<str>, i32)>,
    /// Other words, without plural endings.
    words: Vec<Box<str>>,
    /// Words that change the value's meaning.
    changing: Vec<Box<str>>,
    /// Number of words before the first known unit, and (`counted`) before the first preposition.
    before: Option<usize>,
    counted: Option<usize>,
}

/// Returns the canonical name of a unit as written. The case of a symbol matters, as in `mA` and `MA`.
fn written(word: &str) -> Option<&'static str> {
    let capital = word.len() <= 3 && word.contains(|c: char| c.is_ascii_uppercase());
    canonical(&word.to_lowercase()).filter(|_| !capital || CAPITALS.contains(&word))
}

/// Returns the canonical name of a unit in lower case.
pub(crate) fn canonical(word: &str) -> Option<&'static str> {
    static NAMES: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
        let units = section("units").split('|').map(|unit| unit.split_whitespace());
        units
            .flat_map(|mut words| words.next().map(|name| words.chain([name]).map(move |word| (word, name))))
            .flatten()
            .collect()
    });
    let plural = word.strip_suffix('s').filter(|stem| stem.len() > 2);
    [Some(word), plural].into_iter().flatten().find_map(|word| NAMES.get(word).copied())
}

/// Returns the canonical name of a currency's abbreviation, such as `USD`.
pub(crate) fn currency(word: &str) -> Option<&'static str> {
    let short = matches!(&*word.to_ascii_lowercase(), "usd" | "eur" | "gbp" | "jpy" | "inr" | "rs");
    short.then(|| canonical(&word.to_ascii_lowercase())).flatten()
}

/// Returns whether a word changes the meaning of the value next to it.
pub(crate) fn changes(word: &str) -> bool {
    let stem = word.strip_suffix('s').filter(|stem| stem.len() > 2).unwrap_or(word);
    CHANGING.contains(&word)
        || CHANGING.contains(&stem) && is_scale(word)
        || stem.ends_with("illion")
        || stem.ends_with("fold") && stem.len() > 5
        || matches!(word, "no" | "none" | "neither" | "nor" | "unknown")
}

/// Returns the denominator that a word such as `fifths` denotes.
pub(crate) fn denominator(word: &str) -> Option<u32> {
    match word {
        "half" | "halves" => Some(2),
        "quarter" | "quarters" => Some(4),
        _ => ordinal(word).and_then(|number| number.try_into().ok()),
    }
}

/// Whether the words right after a number turn it into another number, as in `12 inverted`, `12 in the denominator`.
fn turns(words: &[String]) -> bool {
    let Some((first, rest)) = words.split_first() else { return false };
    let next = rest.first().map(|next| &**next);
    match &**first {
        "with" | "without" | "under" | "over" => true,
        "as" => next.is_some_and(|next| !DESCRIBING.contains(&next) && next != "desired"),
        "in" => {
            next.is_some_and(|next| !matches!(next, "total" | "all" | "each") && canonical(next).is_none())
        }
        "split" | "cut" => true,
        first => {
            let participle = first.len() > 4 && first.ends_with("ed") && !first.ends_with("eed");
            participle && !DESCRIBING.contains(&first) && next.is_none_or(|next| PREPOSITIONS.contains(&next))
        }
    }
}

/// Returns whether adjacent letters after a number are a unit. Single letters are variables.
pub(crate) fn is_unit(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    word.len() > 1 && (canonical(&lower).is_some() || SPEEDS.iter().any(|(name, _)| *name == lower))
}

impl Unit {
    /// Reads words such as `square centimeters`, `km per hour`, `m/s^2`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut unit = Self::default();
        let mut sign = 1;
        let mut power = 1;
        let mut all: Vec<String> = Vec::new();
        let text = &*text.replace('²', "^2").replace('³', "^3");
        let mut rest = text;
        if let Some(modulus) = text.trim_matches(['{', '}', ' ']).strip_prefix("mod ") {
            unit.words.push(format!("mod {modulus}").into());
            return unit;
        }
        loop {
            let start =
                rest.find(|c: char| c.is_alphabetic() || matches!(c, '/' | '^')).unwrap_or(rest.len());
            // A number among the words is another value; one that a letter touches is part of a word: `m2`.
            let numbers = rest[..start].split(char::is_whitespace).skip(1);
            unit.changing
                .extend(numbers.filter(|n| n.starts_with(|c: char| c.is_ascii_digit())).map(Box::from));
            rest = &rest[start..];
            if rest.is_empty() {
                break;
            }
            if let Some(after) = rest.strip_prefix('/') {
                (sign, rest) = (-1, after);
                continue;
            }
            if let Some(after) = rest.strip_prefix('^') {
                let after = after.trim_start_matches(['{', ' ']);
                let length = after.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(after.len());
                if let (Ok(exponent), Some(last)) = (after[..length].parse::<i8>(), unit.known.last_mut()) {
                    last.1 *= i32::from(exponent);
                }
                rest = &after[length..];
                continue;
            }
            let length = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
            let spelled = &rest[..length];
            let word = spelled.to_lowercase();
            rest = &rest[length..];
            let inches = !rest.trim_start().starts_with(|c: char| c.is_alphabetic());
            all.push(word.clone());
            if PREPOSITIONS.contains(&&*word) && (word != "in" || !inches) {
                unit.counted.get_or_insert(unit.words.len());
            }
            match word.as_str() {
                "in" if !inches => {}
                "per" => {
                    sign = -1;
                    unit.words.push("per".into());
                }
                "square" | "sq" | "squared" => match unit.known.last_mut() {
                    Some(last) if word == "squared" => last.1 *= 2,
                    None if word == "squared" => unit.changing.push(word.into()),
                    _ => power = 2,
                },
                "cubic" | "cubed" => match unit.known.last_mut() {
                    Some(last) if word == "cubed" => last.1 *= 3,
                    None if word == "cubed" => unit.changing.push(word.into()),
                    _ => power = 3,
                },
                _ => {
                    if let Some((_, [above, below])) = SPEEDS.iter().find(|(name, _)| *name == word) {
                        unit.known.extend([((*above).into(), 1), ((*below).into(), -1)]);
                    } else if let Some(name) = written(spelled) {
                        unit.before.get_or_insert(unit.words.len());
                        unit.known.push((name.into(), sign * power));
                        (sign, power) = (1, 1);
                    } else {
                        let stem = word.strip_suffix('s').filter(|stem| stem.len() > 2).unwrap_or(&word);
                        // A symbol keeps its case.
                        let symbol = length <= 4 && spelled.contains(|c: char| c.is_ascii_uppercase());
                        let kept = if symbol { spelled } else { stem };
                        if changes(&word) || denominator(&word).is_some() {
                            unit.changing.push(if symbol { spelled.into() } else { word.clone().into() });
                        } else if !EMPTY.contains(&stem) && !EMPTY.contains(&word.as_str()) {
                            unit.words.push(kept.into());
                        }
                    }
                }
            }
        }
        if turns(&all) {
            unit.changing.push(all.join(" ").into());
        }
        if unit.words.iter().all(|word| &**word == "per") {
            unit.words.clear();
        }
        if unit.known.iter().any(is_temperature) {
            unit.known.retain(|(name, _)| &**name != "degree");
        }
        unit.known.sort();
        unit
    }

    /// Returns whether the unit is a currency with cents.
    pub(crate) fn is_money(&self) -> bool {
        self.known.iter().any(|(name, _)| matches!(&**name, "dollar" | "euro" | "sterling"))
    }

    /// Returns the modulus of a remainder, `5` in `\pmod{5}`.
    pub(crate) fn modulus(&self) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix("mod "))
    }

    /// Returns the letters and exponents of a unit such as `m/s`, in which each letter could be a variable.
    pub(crate) fn letters(&self) -> &[(Box<str>, i32)] {
        let letters = self.words.is_empty() && self.known.iter().all(|(name, _)| name.len() == 1);
        if letters { &self.known } else { &[] }
    }

    /// Returns true for `pm`, false for `am`, and `None` for any other unit.
    pub(crate) fn half_day(&self) -> Option<bool> {
        self.is_one_of(&["am", "pm"]).map(|at| at == 1)
    }

    /// Returns 1 for a cent, 100 for a dollar, and `None` for any other unit.
    pub(crate) fn cents(&self) -> Option<i64> {
        self.is_one_of(&["cent", "dollar"]).map(|at| [1, 100][at])
    }

    /// Returns the index in `names` of the unit, if it is a single unit without an exponent and changing words.
    fn is_one_of(&self, names: &[&str]) -> Option<usize> {
        let [(name, 1)] = &self.known[..] else { return None };
        names.iter().position(|known| **known == **name).filter(|_| self.changing.is_empty())
    }

    /// Whether the unit is the degree alone, which may be of an angle or of a temperature scale.
    pub(crate) fn is_degree(&self) -> bool {
        matches!(&self.known[..], [(name, 1)] if &**name == "degree")
    }

    /// Returns whether words of the unit change the value's meaning, as in `12 inverted`.
    pub(crate) fn changes(&self) -> bool {
        !self.changing.is_empty()
    }

    /// Returns whether values in the two units may be equal.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        if self.changing != other.changing {
            return false;
        }
        let bare = |unit: &Self| unit.known.is_empty() && unit.words.is_empty();
        if bare(self) || bare(other) {
            return true;
        }
        match (self.known.is_empty(), other.known.is_empty()) {
            (false, false) if self.is_degree() || other.is_degree() => {
                [self, other].iter().all(|unit| unit.is_degree() || unit.known.iter().all(is_temperature))
            }
            (false, false) => {
                let named = |unit: &Self| unit.words[..unit.before.unwrap_or(0)].to_vec();
                self.known == other.known && named(self) == named(other)
            }
            (true, true) => {
                // The counted things have one name: pairs of shoes aren't shoes, and cats per dog aren't cats.
                let named = |unit: &Self| {
                    let end = unit.counted.filter(|end| *end > 0).unwrap_or(unit.words.len());
                    let name = unit.words[..end].iter().rfind(|word| !word.ends_with("ed"));
                    (name.cloned(), unit.words.iter().filter(|word| &***word == "per").count())
                };
                if named(self) != named(other) {
                    return false;
                }
                // One side may describe the counted things with more words, which must contain the other's words in order.
                let [few, many] =
                    if self.words.len() < other.words.len() { [self, other] } else { [other, self] };
                let mut words = many.words.iter();
                few.words.iter().all(|word| words.any(|found| found == word))
            }
            _ => false,
        }
    }
}

fn is_temperature((name, _): &(Box<str>, i32)) -> bool {
    matches!(&**name, "celsius" | "fahrenheit")
}
