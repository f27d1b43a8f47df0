//! Tasks answered inside `\boxed{}`: boolean_expressions, object_counting, object_properties, space_reasoning,
//! space_reasoning_tree, word_sorting, word_sorting_mistake and gpqa_diamond.

use std::collections::BTreeSet;

use dashu_int::IBig;

use super::extract::{last_boxed, last_boxed_simple};
use super::game::{self, Game};
use super::text::{regex, strip};
use super::value::Value;
use super::{Error, Mode, correct, python, unparsed, wrong};
use crate::verdict::Outcome;

fn equal(equal: bool) -> Outcome {
    if equal { correct("exact") } else { wrong("mismatch") }
}

/// The letters of the true options.
pub(crate) struct BooleanExpressions(BTreeSet<char>);

impl BooleanExpressions {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        Ok(Self(letters(&game.answer_text()?)))
    }

    /// Quirk: in parity mode every letter in the box counts, including those of `\text`.
    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let Some(content) = last_boxed(text) else { return unparsed("no_box") };
        equal(match mode {
            Mode::Parity => letters(content) == self.0,
            Mode::Strict => letters(&regex!(r"\\[a-zA-Z]+").replace_all(content, " ")) == self.0,
        })
    }
}

fn letters(text: &str) -> BTreeSet<char> {
    text.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).collect()
}

/// An integer (object_counting, object_properties).
pub(crate) struct Count(IBig);

impl Count {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        game::int(&game.answer).map(Self).ok_or_else(|| game.error("answer", "a whole number"))
    }

    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let content = match mode {
            Mode::Parity => last_boxed_simple(text),
            Mode::Strict => last_boxed(text),
        };
        let Some(content) = content else { return unparsed("no_box") };
        let content = match mode {
            Mode::Parity => content,
            Mode::Strict => strip(content.trim_matches('$')),
        };
        python::int(content).map_or(unparsed("not_an_integer"), |n| equal(n == self.0))
    }
}

/// A name, compared without case.
pub(crate) struct SpaceReasoning(String);

impl SpaceReasoning {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        Ok(Self(game.answer_text()?.to_lowercase()))
    }

    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let Some(content) = last_boxed(text) else { return unparsed("no_box") };
        let content = content.to_lowercase();
        equal(match mode {
            Mode::Parity => content == self.0,
            Mode::Strict => plain_words(&content) == plain_words(&self.0),
        })
    }
}

/// The content of an outer `\text{}`, with single blanks.
fn plain_words(text: &str) -> String {
    let text = strip(text);
    let inner = text.strip_prefix("\\text{").and_then(|t| t.strip_suffix('}')).unwrap_or(text);
    super::text::words(inner).collect::<Vec<_>>().join(" ")
}

/// A set of names.
pub(crate) struct SpaceReasoningTree(BTreeSet<String>);

impl SpaceReasoningTree {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        Ok(Self(name_set(&game.answer_text()?)))
    }

    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let Some(content) = last_boxed(text) else { return unparsed("no_box") };
        equal(match mode {
            Mode::Parity => name_set(content) == self.0,
            Mode::Strict => {
                let fold = |s: &BTreeSet<String>| s.iter().map(|w| w.to_lowercase()).collect::<BTreeSet<_>>();
                fold(&name_set(&plain_words(content))) == fold(&self.0)
            }
        })
    }
}

fn name_set(text: &str) -> BTreeSet<String> {
    text.replace('，', ",").replace(' ', "").split(',').map(str::to_owned).collect()
}

/// A list of words in order.
pub(crate) struct WordSorting(Vec<String>);

impl WordSorting {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        Ok(Self(word_list(&game.answer_text()?)))
    }

    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        match mode {
            Mode::Parity => {
                last_boxed_simple(text).map_or(unparsed("no_box"), |c| equal(word_list(c) == self.0))
            }
            Mode::Strict => last_boxed(text).map_or(unparsed("no_box"), |c| {
                let inner = c.strip_prefix("\\text{").and_then(|t| t.strip_suffix('}')).unwrap_or(c);
                equal(word_list(inner) == self.0)
            }),
        }
    }
}

fn word_list(text: &str) -> Vec<String> {
    text.replace('，', ",").replace(' ', "").split(',').map(|w| strip(w).to_owned()).collect()
}

/// A step's number, or text such as "No".
pub(crate) struct WordSortingMistake(Value);

impl WordSortingMistake {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        match &game.answer {
            Value::None => Ok(Self(Value::Str("No".into()))),
            answer @ (Value::Str(_) | Value::Int(_)) => Ok(Self(answer.clone())),
            _ => Err(game.error("answer", "a number, text or null")),
        }
    }

    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let content = match mode {
            Mode::Parity => last_boxed_simple(text),
            Mode::Strict => last_boxed(text),
        };
        let Some(content) = content else { return unparsed("no_box") };
        if !content.is_empty() && content.chars().all(|c| super::text::decimal(c).is_some()) {
            return equal(python::int(content).is_some() && python::int(content) == game::int(&self.0));
        }
        let content = content.to_lowercase();
        equal(match &self.0 {
            Value::Str(s) if mode == Mode::Strict => plain_words(&content) == plain_words(&s.to_lowercase()),
            Value::Str(s) => content == s.to_lowercase(),
            _ => false,
        })
    }
}

/// The letter of an option, or its content.
pub(crate) struct Gpqa(String);

impl Gpqa {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        Ok(Self(strip(&game.answer_text()?).to_lowercase()))
    }

    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let lower = strip(text).to_lowercase();
        match mode {
            // Without a box the reference compares the empty text.
            Mode::Parity => {
                let content = last_boxed_simple(&lower);
                let same = fuzzy(content.unwrap_or(""), &self.0);
                if content.is_none() && !same { unparsed("no_box") } else { equal(same) }
            }
            Mode::Strict => last_boxed(&lower).map_or(unparsed("no_box"), |content| {
                let bare = |s: &str| {
                    let s = plain_words(s);
                    s.strip_prefix('(').and_then(|s| s.strip_suffix(')')).map(str::to_owned).unwrap_or(s)
                };
                equal(bare(content) == bare(&self.0))
            }),
        }
    }
}

/// The reference's loose equality: letters in parentheses, numbers, quotes, brackets, a question mark.
fn fuzzy(prediction: &str, reference: &str) -> bool {
    let (prediction, reference) = (strip(prediction), strip(reference));
    if prediction == reference {
        return true;
    }
    let option = |s: &str| {
        let mut chars = s.chars();
        match (chars.next(), chars.next(), chars.next(), chars.next()) {
            (Some('('), Some(letter), Some(')'), None) => Some(letter.to_lowercase().to_string()),
            _ => None,
        }
    };
    if let Some(letter) = option(prediction) {
        return letter == reference.to_lowercase();
    }
    if let Some(letter) = option(reference) {
        return letter == prediction.to_lowercase();
    }
    if let (Some(a), Some(b)) = (float(prediction), float(reference))
        && a == b
    {
        return true;
    }
    prediction.replace('\'', "") == reference.replace('\'', "")
        || format!("[{reference}]") == prediction
        || format!("[{prediction}]") == reference
        || prediction.strip_suffix('?') == Some(reference)
}

/// Python's `float(text)`.
fn float(text: &str) -> Option<f64> {
    let plain = strip(text);
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    if plain.contains('_') {
        let chars: Vec<char> = plain.chars().collect();
        let between =
            |i: usize| i > 0 && digit(chars.get(i - 1).copied()) && digit(chars.get(i + 1).copied());
        if !(0..chars.len()).all(|i| chars[i] != '_' || between(i)) {
            return None;
        }
    }
    plain.replace('_', "").parse().ok()
}
