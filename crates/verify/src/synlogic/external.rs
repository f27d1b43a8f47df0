//! Tasks without a generator, whose problems are external: cipher, arc_agi (and arc_agi_2), zebra_puzzle.

use super::extract::{bracketed, only};
use super::game::Game;
use super::python::{self, EvalError};
use super::value::{Value, entries};
use super::{Error, Mode, Rules, exact, json, unparsed, wrong};
use crate::python_text::strip;
use crate::verdict::Outcome;

/// Returns the text between the last `opening` and the next code fence.
fn after_last<'a>(text: &'a str, opening: &str) -> &'a str {
    let tail = text.rfind(opening).map_or(text, |at| &text[at + opening.len()..]);
    strip(tail.split("```").next().unwrap_or(tail))
}

fn refused(error: EvalError) -> Outcome {
    if error == EvalError::Budget { wrong("budget") } else { unparsed("no_value") }
}

/// Rules for cipher: the answer is a string inside two lists. In strict mode `[[TEXT]]` without quotes is accepted too.
pub(crate) fn cipher(game: &Game) -> Result<Rules, Error> {
    let answer = game.answer_text()?;
    let chars: Vec<char> = answer.chars().collect();
    let inner: String =
        chars.get(2..chars.len().saturating_sub(2).max(2)).unwrap_or_default().iter().collect();
    let wanted = nested(&inner);
    Ok(Box::new(move |text, mode| {
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
        Ok(exact(value == wanted))
    }))
}

/// Returns a string inside two lists.
fn nested(text: &str) -> Value {
    Value::List(vec![Value::List(vec![Value::Str(text.to_owned())])])
}

/// Rules for arc_agi: the answer is a grid of colours, as a list of lists.
/// Strict mode accepts only a literal list; an expression such as `[[0] * 3]` isn't evaluated.
pub(crate) fn arc_agi(game: &Game) -> Result<Rules, Error> {
    let wanted = game.answer.clone();
    if wanted == Value::None {
        return Err(game.error("answer", "a grid"));
    }
    Ok(Box::new(move |text, mode| {
        let same = match mode {
            Mode::Parity => {
                let text = strip(text).to_lowercase();
                json_or_expression(after_last(&text, "```json"))? == wanted
            }
            Mode::Strict => {
                let list =
                    |source: &str| python::plain(source).ok().filter(|value| value.as_list().is_some());
                same_types(&only(text, bracketed(text, list))?, &wanted)
            }
        };
        Ok(exact(same))
    }))
}

/// Parses a value as JSON, or else evaluates it as a Python expression.
fn json_or_expression(source: &str) -> Result<Value, Outcome> {
    json::parse(source).map_or_else(|| python::evaluate(source).map_err(refused), Ok)
}

/// Rules for zebra_puzzle: the answer is a JSON object whose values and types equal the stored ones, or a string.
pub(crate) fn zebra_puzzle(game: &Game) -> Result<Rules, Error> {
    let wanted = match &game.answer {
        Value::Str(text) => json::parse(text).filter(is_object).unwrap_or_else(|| game.answer.clone()),
        value if is_object(value) => value.clone(),
        _ => return Err(game.error("answer", "text or an object")),
    };
    Ok(Box::new(move |text, mode| {
        let source = after_last(text, "```json");
        let same = match (&wanted, mode) {
            (Value::Str(wanted), _) => wanted == source,
            (wanted, Mode::Parity) => same_types(wanted, &json_or_expression(source)?),
            (wanted, Mode::Strict) => {
                let object = |source: &str| {
                    json::parse_unique(source).or_else(|| python::plain(source).ok()).filter(is_object)
                };
                same_types(wanted, &only(text, bracketed(text, object))?)
            }
        };
        Ok(exact(same))
    }))
}

fn is_object(value: &Value) -> bool {
    matches!(value, Value::Dict(_))
}

/// Returns whether two values are equal, and the types of their parts too.
fn same_types(a: &Value, b: &Value) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
        && match (a, b) {
            (Value::Dict(a), Value::Dict(b)) => {
                let index = entries(b);
                a.len() == b.len()
                    && a.iter().all(|(k, v)| index.get(&k.key()).is_some_and(|w| same_types(v, w)))
            }
            (Value::List(a), Value::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(x, y)| same_types(x, y))
            }
            (a, b) => a == b,
        }
}
