//! The one door for JSON in files: what doesn't fit is refused by its field, what was found there and what was wanted.
//!
//! A text that fits is read once, as fast as `serde_json` reads it. Only one that doesn't is read again, with its path.

use crate::bad_input;
use crate::failure::OrBadInput;
use crate::io::input;
use anyhow::Context;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Segment, Track};
use std::fmt;
use std::path::Path;

/// Longest text that a message quotes, in characters.
const QUOTED: usize = 60;

/// Why a JSON text isn't what was wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The field's path, as `seconds.total` or `tokens[3]`; empty for the whole.
    field: String,
    found: String,
    wanted: String,
    torn: bool,
}

impl Misfit {
    /// Whether the text ends before its JSON does, as a line that was being written when its process died.
    pub fn is_torn(&self) -> bool {
        self.torn
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "found {}, wanted {}", self.found, self.wanted)
    }
}

impl std::error::Error for Misfit {}

/// Reads a JSON text.
///
/// # Errors
/// Naming the field, or the place of what is no JSON.
pub fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, Misfit> {
    serde_json::from_slice(text).map_err(|error| {
        let whole = serde_json::from_slice::<Value>(text);
        match whole {
            Ok(value) => misfit::<T>(value).unwrap_or_else(|| Misfit::of(String::new(), None, &error)),
            Err(error) => broken(text, &error),
        }
    })
}

/// Reads a JSON value.
///
/// # Errors
/// Naming the field.
pub fn of_value<T: DeserializeOwned>(value: Value) -> Result<T, Misfit> {
    match T::deserialize(&value) {
        Ok(read) => Ok(read),
        Err(error) => Err(misfit::<T>(value).unwrap_or_else(|| Misfit::of(String::new(), None, &error))),
    }
}

/// Reads a line of a file of JSON lines; `number` counts from 1.
///
/// # Errors
/// Bad input naming file, line and field.
pub fn line<'a, T: Deserialize<'a>>(path: &Path, number: usize, text: &'a [u8]) -> anyhow::Result<T> {
    match parse(text.trim_ascii_end()) {
        Ok(read) => Ok(read),
        Err(why) => bad_input!("{} line {number}: {why}", path.display()),
    }
}

/// Reads a JSON file of settings.
///
/// # Errors
/// Bad input naming file and field, or a file that can't be read.
pub fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let place = || path.display().to_string();
    let text = input::read(path, input::SETTINGS).with_context(place).or_bad_input()?;
    parse(&text).with_context(place).or_bad_input()
}

/// Why a value that is JSON isn't a `T`; nothing where it is one.
fn misfit<'a, T: Deserialize<'a>>(value: Value) -> Option<Misfit> {
    let mut track = Track::new();
    let error = T::deserialize(serde_path_to_error::Deserializer::new(value.clone(), &mut track)).err()?;
    let (mut field, mut at) = (String::new(), Some(&value));
    for segment in track.path().iter() {
        match segment {
            Segment::Seq { index } => field += &format!("[{index}]"),
            Segment::Map { key } => join(&mut field, key),
            Segment::Enum { .. } | Segment::Unknown => continue,
        }
        at = at.and_then(|value| match segment {
            Segment::Seq { index } => value.get(*index),
            Segment::Map { key } => value.get(key),
            _ => None,
        });
    }
    let said = error.to_string();
    // What a flattened struct or a table chosen by its `kind` refuses is told of the object around it.
    let inside = at.and_then(Value::as_object).filter(|_| says_type(&said) && !said.contains(": map, "));
    if let Some(key) =
        inside.and_then(|object| object.keys().rev().find(|key| is_culprit::<T>(&value, &field, key, &said)))
    {
        join(&mut field, key);
        at = None;
    }
    Some(Misfit::of(field, at, &error))
}

fn join(field: &mut String, key: &str) {
    if !field.is_empty() {
        field.push('.');
    }
    field.extend(key.chars().take(QUOTED));
}

fn says_type(said: &str) -> bool {
    ["invalid type: ", "invalid value: ", "invalid length "].iter().any(|start| said.starts_with(start))
}

/// Whether the outermost object is refused for this key, whose own path is lost: with a value of another kind in its
/// place the refusal is still told of the object, and is another one. This also holds for keys that are read before the
/// culprit, but for none after it: the last such key is meant.
fn is_culprit<'a, T: Deserialize<'a>>(value: &Value, field: &str, key: &str, said: &str) -> bool {
    let mut other = value.clone();
    let Some(object) = other.as_object_mut().filter(|_| field.is_empty()) else { return false };
    let odd = if object[key].is_boolean() { Value::from("odd") } else { Value::from(true) };
    object.insert(key.to_owned(), odd);
    let mut track = Track::new();
    let refused = T::deserialize(serde_path_to_error::Deserializer::new(other, &mut track)).err();
    let of_object = !track.path().iter().any(|segment| matches!(segment, Segment::Map { .. }));
    of_object && refused.is_some_and(|error| error.to_string() != said)
}

impl Misfit {
    /// From what `serde` says of the value at `field`.
    fn of(mut field: String, value: Option<&Value>, error: &serde_json::Error) -> Self {
        let said = error.to_string();
        let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
        let quoted = || said.split('`').nth(1).unwrap_or_default().to_owned();
        let shown = value.map(describe);
        let (found, wanted) = if said.starts_with("missing field ") {
            join(&mut field, &quoted());
            ("no such field".to_owned(), "it: it has no default".to_owned())
        } else if said.starts_with("duplicate field ") {
            join(&mut field, &quoted());
            ("it twice".to_owned(), "it once".to_owned())
        } else if let Some((_, wanted)) = said.strip_prefix("unknown field ").and_then(|s| s.split_once(", "))
        {
            (format!("the unknown field {:?}", quoted()), wanted.trim_start_matches("expected ").to_owned())
        } else if let Some((kind, wanted)) = said.split_once(", expected ") {
            let kind =
                kind.split_once(": ").map_or(kind, |(_, found)| found).trim_start_matches("unknown variant ");
            (shown.unwrap_or_else(|| shortened(kind)), plain(wanted))
        } else {
            let found = shown.unwrap_or_else(|| "another value".to_owned());
            (found, said.trim_start_matches("wanted ").to_owned())
        };
        Self { field, found, wanted, torn: false }
    }
}

/// A text that is no JSON.
fn broken(text: &[u8], error: &serde_json::Error) -> Misfit {
    let said = error.to_string();
    let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
    let start = text
        .split_inclusive(|&b| b == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum::<usize>();
    let at = (start + error.column().saturating_sub(1)).min(text.len());
    let place = match error.line() {
        0 | 1 => format!("byte {}", at + 1),
        line => format!("line {line}, byte {}", error.column().max(1)),
    };
    let found = if text.trim_ascii().is_empty() {
        "nothing".to_owned()
    } else if error.is_eof() {
        format!("JSON that is cut off at {place} ({said})")
    } else {
        let near = &text[at..(at + QUOTED / 2).min(text.len())];
        let near = String::from_utf8_lossy(near);
        let near = near.lines().next().unwrap_or_default();
        format!("no JSON at {place}, before {near:?} ({said})")
    };
    Misfit { field: String::new(), found, wanted: "one whole JSON value".to_owned(), torn: error.is_eof() }
}

/// What serde's message about a value of another type says was found, and what was wanted; for TOML as well.
pub fn found_wanted(message: &str) -> Option<(String, String)> {
    let (kind, wanted) = message.lines().next()?.split_once(", expected ")?;
    says_type(message).then_some(())?;
    Some((shortened(kind.split_once(": ").map_or(kind, |(_, found)| found)), plain(wanted)))
}

/// A value as a message shows it.
fn describe(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => shortened(&format!("{text:?}")),
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(object) => format!("an object of {} fields", object.len()),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The types of Rust in plain words.
fn plain(wanted: &str) -> String {
    let range = |least: &str, most: &str| format!("a whole number from {least} to {most}");
    match wanted {
        "u8" => range("0", "255"),
        "u16" => range("0", "65535"),
        "u32" => range("0", "4294967295"),
        "u64" | "usize" => range("0", "2^64 - 1"),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" | "a JSON number" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "a borrowed string" | "a string or a map" => "a text".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        "unit" => "null".to_owned(),
        _ => other(wanted),
    }
}

fn other(wanted: &str) -> String {
    if wanted.starts_with("struct ") {
        "an object".to_owned()
    } else if let Some(length) = wanted.strip_prefix("an array of length ") {
        format!("a list of {length}")
    } else {
        wanted.replace('`', "\"").trim_start_matches("one of ").to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Inner {
        skipped: u64,
        weights: Option<Vec<f64>>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Record {
        step: u64,
        #[serde(default)]
        seconds: BTreeMap<String, f64>,
        kind: Option<Kind>,
        #[serde(flatten)]
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Flat {
        step: u64,
        #[serde(flatten)]
        inner: Inner,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Rl,
        Sft,
    }

    fn said<T: DeserializeOwned + fmt::Debug>(text: &str) -> String {
        parse::<T>(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_refusal_names_the_field_what_was_found_and_what_was_wanted() {
        for (text, wanted) in [
            (r#"{"step": "x"}"#, r#"step: found "x", wanted a whole number from 0 to 2^64 - 1"#),
            (r#"{"step": -1}"#, "step: found -1, wanted a whole number from 0 to 2^64 - 1"),
            (
                r#"{"step": 1, "seconds": {"a": 1, "b": [2]}}"#,
                "seconds.b: found a list of 1, wanted a number",
            ),
            (r#"{"step": 1, "seconds": [2]}"#, "seconds: found a list of 1, wanted an object"),
            (r#"{"step": 1, "kind": "ppo"}"#, r#"kind: found "ppo", wanted "rl" or "sft""#),
            ("{}", "step: found no such field, wanted it: it has no default"),
            (r#"{"step": 1, "step": 2}"#, "step: found it twice, wanted it once"),
            ("[1]", "found a list of 1, wanted an object"),
            ("7", "found 7, wanted an object"),
        ] {
            let said = said::<Record>(text);
            // Serde reads a list as a struct, field by field.
            let as_list = text == "[1]" && said.starts_with("found ");
            assert!(said == wanted || as_list, "{text}: {said}");
        }
    }

    #[test]
    fn a_field_of_a_flattened_part_is_named_as_well() {
        assert_eq!(
            said::<Flat>(r#"{"step": 1, "skipped": "many", "weights": null}"#),
            r#"skipped: found string "many", wanted a whole number from 0 to 2^64 - 1"#
        );
        assert_eq!(
            said::<Flat>(r#"{"step": 1, "skipped": 0, "weights": [1, true]}"#),
            "weights: found boolean `true`, wanted a number"
        );
        assert_eq!(
            said::<Flat>(r#"{"step": 1}"#),
            "skipped: found no such field, wanted it: it has no default"
        );
    }

    #[test]
    fn what_is_no_json_is_named_by_its_place() {
        let broken = said::<Record>("{\"step\": 1,, \"kind\": 2}");
        assert!(
            broken.starts_with(
                "found no JSON at byte 12, before \", \\\"kind\\\": 2}\" (key must be a string)"
            ),
            "{broken}"
        );
        let cut = parse::<Record>(b"{\"step\": 1").unwrap_err();
        assert!(cut.is_torn() && cut.to_string().contains("cut off at byte 10"), "{cut}");
        assert!(said::<Record>(" ").starts_with("found nothing, wanted one whole JSON value"));
        assert!(
            said::<Value>("{\n\"a\": x\n}").contains("at line 2, byte 6"),
            "{}",
            said::<Value>("{\n\"a\": x\n}")
        );
    }

    #[test]
    fn a_long_value_is_not_repeated_in_full() {
        let said = said::<Record>(&json!({"step": "x".repeat(1 << 20)}).to_string());
        assert!(said.len() < 200 && said.contains("xxx…"), "{said}");
    }

    #[test]
    fn a_value_is_read_as_its_text_is() {
        assert_eq!(of_value::<u64>(json!(5)).unwrap(), 5);
        let why = of_value::<Vec<u64>>(json!([1, "2"])).unwrap_err();
        assert_eq!(why.to_string(), r#"[1]: found "2", wanted a whole number from 0 to 2^64 - 1"#);
    }
}
