//! Tasks without a generator, whose problems are external: cipher, arc_agi (and arc_agi_2), zebra_puzzle.

use super::game::Game;
use super::python::{self, EvalError};
use super::text::strip;
use super::value::Value;
use super::{Error, Mode, correct, json, unparsed, wrong};
use crate::verdict::Outcome;

/// The text after the last `opening` and before the next fence.
fn after_last<'a>(text: &'a str, opening: &str) -> &'a str {
    let tail = text.rfind(opening).map_or(text, |at| &text[at + opening.len()..]);
    strip(tail.split("```").next().unwrap_or(tail))
}

fn refused(error: EvalError) -> Outcome {
    if error == EvalError::Budget { wrong("budget") } else { unparsed("no_value") }
}

/// A text inside two lists.
pub(crate) struct Cipher(Value);

impl Cipher {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        let answer = game.answer_text()?;
        let chars: Vec<char> = answer.chars().collect();
        let inner: String =
            chars.get(2..chars.len().saturating_sub(2).max(2)).unwrap_or_default().iter().collect();
        Ok(Self(Value::List(vec![Value::List(vec![Value::Str(inner)])])))
    }

    /// In strict mode `[[TEXT]]` without quotes is accepted too.
    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let source = after_last(text, "```python");
        let value = match mode {
            Mode::Parity => python::evaluate(source),
            Mode::Strict => python::literal(source).or_else(|error| {
                let bare = source.strip_prefix("[[").and_then(|s| s.strip_suffix("]]")).ok_or(error)?;
                Ok(Value::List(vec![Value::List(vec![Value::Str(strip(bare).to_owned())])]))
            }),
        };
        match value {
            Ok(value) if value == self.0 => correct("exact"),
            Ok(_) => wrong("mismatch"),
            Err(error) => refused(error),
        }
    }
}

/// A grid of colours.
pub(crate) struct ArcAgi(Value);

impl ArcAgi {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        match &game.answer {
            Value::None => Err(game.error("answer", "a grid")),
            answer => Ok(Self(answer.clone())),
        }
    }

    /// In strict mode the value must be JSON or a literal; nothing is computed.
    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let text = strip(text).to_lowercase();
        let source = after_last(&text, "```json");
        let value = match (json::parse(source), mode) {
            (Some(value), _) => Ok(value),
            (None, Mode::Parity) => python::evaluate(source),
            (None, Mode::Strict) => python::literal(source),
        };
        match value {
            Ok(value) if value == self.0 => correct("exact"),
            Ok(_) => wrong("mismatch"),
            Err(error) => refused(error),
        }
    }
}

/// A table as a JSON object, or a text.
pub(crate) enum ZebraPuzzle {
    /// The answer is an object: values and their types must agree.
    Object(Value),
    /// The answer is compared as text.
    Text(String),
}

impl ZebraPuzzle {
    pub(crate) fn parse(game: &Game) -> Result<Self, Error> {
        match &game.answer {
            Value::Str(text) => Ok(match json::parse(text) {
                Some(value @ Value::Dict(_)) => Self::Object(value),
                _ => Self::Text(text.clone()),
            }),
            value @ Value::Dict(_) => Ok(Self::Object(value.clone())),
            _ => Err(game.error("answer", "text or an object")),
        }
    }

    pub(crate) fn check(&self, text: &str, mode: Mode) -> Outcome {
        let source = after_last(text, "```json");
        let wanted = match self {
            Self::Text(wanted) if wanted == source => return correct("exact"),
            Self::Text(_) => return wrong("mismatch"),
            Self::Object(wanted) => wanted,
        };
        let value = match (json::parse(source), mode) {
            (Some(value), _) => Ok(value),
            (None, Mode::Parity) => python::evaluate(source),
            (None, Mode::Strict) => python::literal(source),
        };
        match value {
            Ok(value @ Value::Dict(_)) if same_types(wanted, &value) => correct("exact"),
            Ok(_) => wrong("mismatch"),
            Err(error) => refused(error),
        }
    }
}

/// Deep equality of values and of their types.
fn same_types(a: &Value, b: &Value) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
        && match (a, b) {
            (Value::Dict(a), Value::Dict(b)) => {
                let index: std::collections::HashMap<_, _> = b.iter().map(|(k, v)| (k.key(), v)).collect();
                a.len() == b.len()
                    && a.iter().all(|(k, v)| index.get(&k.key()).is_some_and(|w| same_types(v, w)))
            }
            (Value::List(a), Value::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(x, y)| same_types(x, y))
            }
            (a, b) => a == b,
        }
}
