//! Tasks without a generator, whose problems are external: cipher, arc_agi (and arc_agi_2), zebra_puzzle.

use super::extract::{bracketed, only};
use super::game::Game;
use super::python::{self, EvalError};
use super::value::Value;
use super::{Checked, Error, Mode, correct, json, unparsed, wrong};
use crate::python_text::strip;
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
        Ok(Self(nested(&inner)))
    }

    /// In strict mode `[[TEXT]]` without quotes is accepted too.
    pub(crate) fn check(&self, text: &str, mode: Mode) -> Checked {
        let value = match mode {
            Mode::Parity => python::evaluate(after_last(text, "```python")).map_err(refused)?,
            Mode::Strict => {
                let read = |source: &str| {
                    let bare = source.strip_prefix("[[")?.strip_suffix("]]")?;
                    let text = python::plain(source).unwrap_or_else(|_| nested(strip(bare)));
                    Some(text)
                };
                only(text, bracketed(text, read))?
            }
        };
        Ok(if value == self.0 { correct("exact") } else { wrong("mismatch") })
    }
}

/// A text inside two lists.
fn nested(text: &str) -> Value {
    Value::List(vec![Value::List(vec![Value::Str(text.to_owned())])])
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

    /// In strict mode the value must be written plainly; nothing is computed.
    pub(crate) fn check(&self, text: &str, mode: Mode) -> Checked {
        let same = match mode {
            Mode::Parity => {
                let text = strip(text).to_lowercase();
                json_or_expression(after_last(&text, "```json"))? == self.0
            }
            Mode::Strict => {
                let list =
                    |source: &str| python::plain(source).ok().filter(|value| value.as_list().is_some());
                same_types(&only(text, bracketed(text, list))?, &self.0)
            }
        };
        Ok(if same { correct("exact") } else { wrong("mismatch") })
    }
}

/// A value in JSON, or computed from a Python expression.
fn json_or_expression(source: &str) -> Result<Value, Outcome> {
    json::parse(source).map_or_else(|| python::evaluate(source).map_err(refused), Ok)
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

    pub(crate) fn check(&self, text: &str, mode: Mode) -> Checked {
        let source = after_last(text, "```json");
        let same = match (self, mode) {
            (Self::Text(wanted), _) => wanted == source,
            (Self::Object(wanted), Mode::Parity) => same_types(wanted, &json_or_expression(source)?),
            (Self::Object(wanted), Mode::Strict) => {
                let object = |source: &str| {
                    let value = json::parse(source).or_else(|| python::plain(source).ok())?;
                    matches!(value, Value::Dict(_)).then_some(value)
                };
                same_types(wanted, &only(text, bracketed(text, object))?)
            }
        };
        Ok(if same { correct("exact") } else { wrong("mismatch") })
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
