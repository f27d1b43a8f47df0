//! Reads reference answers (golds) in the forms of data sets, dumps and users. Every user of the math verifier reads golds here:
//! the trainer, the command line, the Python package and its plug-ins.

use super::boxes::{self, Which};
use crate::boxed;
use crate::python_text::regex;
use crate::synlogic::python;
use crate::synlogic::value::Value as Python;
use serde_json::{Number, Value};
use std::borrow::Cow;

/// Number of words from which a string is prose; fewer words are a unit, a name or an option.
const PROSE: usize = 3;

/// Returns the reference answer in a string.
///
/// - A list of strings in JSON or Python syntax is its items, joined by commas.
/// - If the last line has `####`, as in GSM8K's worked answers, it is the text after it, without thousands separators and a
///   dollar sign.
/// - In prose with a box, it is the content of the last box.
/// - Otherwise it is the whole text. Dollar signs around it and leading zeros of an integer ("073", as in competitions) are
///   dropped.
pub fn gold(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    if let Some(list) = list(text) {
        return list.iter().map(|item| gold(item)).collect::<Vec<_>>().join(", ").into();
    }
    match marked(text) {
        Some(last) => plain_number(last).map_or_else(|| plain(last), Cow::Owned),
        None => plain(last_box(text).filter(|_| is_worked(text)).unwrap_or(text)),
    }
}

/// Returns the reference answer in a JSON value: a string, a number, a truth value, a list of them, or an object with one
/// of them as its only field that isn't null. Returns an error with the value if it isn't an answer.
pub fn gold_in(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(gold(text).into_owned()),
        Value::Number(number) => Ok(digits(number)),
        Value::Bool(truth) => Ok(truth.to_string()),
        Value::Array(items) if !items.is_empty() => {
            Ok(items.iter().map(gold_in).collect::<Result<Vec<_>, _>>()?.join(", "))
        }
        Value::Object(fields) => {
            let filled: Vec<_> = fields.iter().filter(|(_, value)| !value.is_null()).collect();
            if let [(name, value)] = filled[..] {
                return gold_in(value).map_err(|why| format!("{name}: {why}"));
            }
            let names = fields.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            Err(format!(
                "expected a string, a number or a list, found an object of {} fields ({names:.80})",
                fields.len()
            ))
        }
        other => Err(format!("expected a string, a number or a list, found {other}")),
    }
}

/// Returns the answer of a worked solution: the content of its last box, or the text after `####` on its last line.
pub fn of_solution(text: &str) -> Option<Cow<'_, str>> {
    let boxed = last_box(text).map(Cow::Borrowed);
    boxed.or_else(|| marked(text).map(|last| plain_number(last).map_or_else(|| plain(last), Cow::Owned)))
}

/// Returns whether a string has so many words that it isn't mathematics.
pub fn is_prose(text: &str) -> bool {
    words(text) >= PROSE
}

/// Formats a number without an exponent. A column of numbers turns 27 into 27.0.
fn digits(number: &Number) -> String {
    number.as_f64().filter(|_| number.is_f64()).map_or_else(|| number.to_string(), |value| value.to_string())
}

fn list(text: &str) -> Option<Vec<String>> {
    if !text.starts_with("[\"") && !text.starts_with("['") {
        return None;
    }
    serde_json::from_str(text).ok().or_else(|| python_list(text)).filter(|list| !list.is_empty())
}

/// Parses a list of strings as Python prints it.
fn python_list(text: &str) -> Option<Vec<String>> {
    let Ok(Python::List(items)) = python::literal(text) else { return None };
    let text = |item| if let Python::Str(text) = item { Some(text) } else { None };
    items.into_iter().map(text).collect()
}

/// Returns the text after `####` on the last line. A Markdown heading is followed by more lines.
fn marked(text: &str) -> Option<&str> {
    let last = text.trim_end().rsplit_once("####")?.1.trim();
    (!last.is_empty() && !last.contains('\n')).then_some(last)
}

fn last_box(text: &str) -> Option<&str> {
    boxed::last_closed(text).filter(|inside| !inside.is_empty())
}

/// Returns whether there is prose around the boxes of a string.
fn is_worked(text: &str) -> bool {
    let inside: usize = boxes::contents(text, Which::All).into_iter().map(words).sum();
    words(text).saturating_sub(inside) >= PROSE
}

/// Counts the words of a string that aren't LaTeX commands or function names.
fn words(text: &str) -> usize {
    const NAMES: [&str; 14] =
        ["sin", "cos", "tan", "cot", "sec", "csc", "log", "exp", "max", "min", "gcd", "lcm", "mod", "and"];
    let mut count = 0;
    let mut before = ' ';
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphabetic()) {
        let letters = word.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
        count += usize::from(letters.len() >= 2 && before != '\\' && !NAMES.contains(&letters));
        before = word.chars().next_back().unwrap_or(' ');
    }
    count
}

/// Converts a number as people write amounts, e.g. `-$1,234.50`, to plain digits; `None` for anything else.
fn plain_number(text: &str) -> Option<String> {
    const AMOUNT: &str = r"^([-−]\s*)?(?:\\?\$)?\s*([0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)(?:\.([0-9]*))?[$.]?\s*$";
    let found = regex!(AMOUNT).captures(text)?;
    let sign = if found.get(1).is_some() { "-" } else { "" };
    let whole = found[2].replace(',', "");
    match found.get(3).map_or("", |decimals| decimals.as_str()) {
        "" if whole.is_empty() => None,
        "" => Some(plain(&format!("{sign}{whole}")).into_owned()),
        decimals => Some(format!("{sign}{whole}.{decimals}")),
    }
}

/// Removes dollar signs around a string, and leading zeros of an integer.
fn plain(text: &str) -> Cow<'_, str> {
    let mut text = text.trim();
    for mark in ["$$", "$"] {
        if let Some(inside) = text.strip_prefix(mark).and_then(|t| t.strip_suffix(mark))
            && !inside.contains('$')
        {
            text = inside.trim();
        }
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        let short = text.trim_start_matches('0');
        return Cow::Borrowed(if short.is_empty() { "0" } else { short });
    }
    Cow::Borrowed(text)
}
