//! Reads JSON. An error names the field, the expected type and the value that was found.
//!
//! A valid text is read once, as fast as `serde_json` reads it. Only an invalid text is read again, to find the field.

use crate::failure::OrBadInput;
use crate::io::harmless::shortened;
use crate::io::objects::Objects;
use anyhow::Context;
use fgrpo_files as input;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Segment, Track};
use std::borrow::Cow;
use std::fmt;
use std::path::Path;

/// Maximum number of characters that a message quotes.
const QUOTED: usize = 60;

/// Reason why a JSON text or a TOML table is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Path of the field, such as `seconds.total` or `tokens[3]`. The path is empty for the whole value.
    pub field: String,
    /// Description of the error, such as `expected a number, found "x"`.
    pub reason: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Misfit {}

/// Parses a JSON text.
pub fn parse<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, Misfit> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let read = T::deserialize(Objects(&mut deserializer)).and_then(|read| deserializer.end().map(|()| read));
    read.map_err(|error| match serde_json::from_slice::<Value>(text) {
        Ok(value) => {
            misfit::<T>(&value).unwrap_or_else(|| Misfit::of(String::new(), None, &error.to_string()))
        }
        Err(error) => broken(text, &error),
    })
}

/// Parses JSON that another program wrote, as [`of_others`] describes.
pub fn parse_of_others<T: DeserializeOwned>(text: &[u8]) -> Result<T, Misfit> {
    parse(&of_others(text))
}

/// Converts JSON that other programs write to valid JSON: `NaN`, `Infinity` and `-Infinity`, as Python writes them, become
/// `null`, and an integer that needs more than 64 bits or a decimal of more than 17 digits becomes a string of the digits.
pub fn of_others(text: &[u8]) -> Cow<'_, [u8]> {
    with_tokens(text, |token| match token {
        b"NaN" | b"Infinity" | b"-Infinity" => Some(b"null".to_vec()),
        number if loses_digits(number) => Some([b"\"".as_slice(), number, b"\""].concat()),
        _ => None,
    })
}

/// Replaces tokens of JSON outside strings: numbers, and words that begin with a capital N or I. `replace` returns
/// `None` for a token that stays.
pub(crate) fn with_tokens(text: &[u8], replace: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Cow<'_, [u8]> {
    let mut changed: Vec<u8> = Vec::new();
    // Number of bytes of `text` that are already in `changed`.
    let mut copied = 0;
    let mut at = 0;
    while at < text.len() {
        let start = at;
        match text[at] {
            b'"' => at = after_string(text, at),
            b'0'..=b'9' | b'-' | b'N' | b'I' => {
                let end = |b: &u8| !(b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
                at = text[at..].iter().position(end).map_or(text.len(), |n| at + n);
                if let Some(replacement) = replace(&text[start..at]) {
                    changed.extend_from_slice(&text[copied..start]);
                    changed.extend_from_slice(&replacement);
                    copied = at;
                }
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    changed.extend_from_slice(&text[copied..]);
    Cow::Owned(changed)
}

/// Returns the index after the string that begins at `at`.
fn after_string(text: &[u8], at: usize) -> usize {
    let mut escaped = false;
    let closes = |&b: &u8| {
        let closes = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        closes
    };
    text[at + 1..].iter().position(closes).map_or(text.len(), |n| at + n + 2)
}

/// Returns whether a number without an exponent has more digits than 64-bit integers and double precision can store.
fn loses_digits(number: &[u8]) -> bool {
    /// Maximum number of digits of a number that stays a number. A 64-bit integer can store as many digits, and a double
    /// is printed with at most as many.
    const EXACT: usize = 17;
    let Ok(number) = std::str::from_utf8(number) else { return false };
    let digits = number.trim_start_matches('-');
    if digits.len() <= EXACT || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return false;
    }
    match digits.split_once('.') {
        None => number.parse::<u64>().is_err() && number.parse::<i64>().is_err(),
        Some((whole, decimals)) => {
            !decimals.contains('.') && [whole, decimals].concat().trim_matches('0').len() > EXACT
        }
    }
}

/// Converts a JSON value.
pub fn of_value<T: DeserializeOwned>(value: Value) -> Result<T, Misfit> {
    T::deserialize(Objects(&value)).map_err(|error| {
        misfit::<T>(&value).unwrap_or_else(|| Misfit::of(String::new(), None, &error.to_string()))
    })
}

/// Reads a JSON file of settings.
pub fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let name = || path.display().to_string();
    let text = input::read(path, input::SETTINGS).with_context(name).or_bad_input()?;
    parse(&text).with_context(name).or_bad_input()
}

/// Returns the reason why a value can't be deserialized to `T`, or `None` if it can.
fn misfit<'a, T: Deserialize<'a>>(whole: &Value) -> Option<Misfit> {
    let mut track = Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(whole.clone(), &mut track);
    let message = T::deserialize(Objects(deserializer)).err()?.to_string();
    let path = track.path();
    let value = path.iter().try_fold(whole, |value, step| match step {
        Segment::Seq { index } => value.get(index),
        Segment::Map { key } => value.get(key),
        Segment::Enum { .. } | Segment::Unknown => Some(value),
    });
    // If serde buffers an object because of its tag, the error is about a part of the object.
    let value =
        value.filter(|value| !value.is_object() || !names_type(&message) || message.contains(": map, "));
    let field = path.iter().fold(String::new(), |mut field, step| {
        match step {
            Segment::Seq { index } => field += &format!("[{index}]"),
            Segment::Map { key } => join(&mut field, &shortened(key, QUOTED)),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
        field
    });
    Some(Misfit::of(field, value.map(describe), &message))
}

fn join(field: &mut String, key: &str) {
    if !field.is_empty() {
        field.push('.');
    }
    field.push_str(key);
}

fn names_type(message: &str) -> bool {
    ["invalid type: ", "invalid value: ", "invalid length "].iter().any(|start| message.starts_with(start))
}

/// Returns the names that serde's message about an unknown name quotes: the unknown name, and then the known names.
pub fn quoted(message: &str) -> impl Iterator<Item = &str> {
    message.split('`').skip(1).step_by(2)
}

impl Misfit {
    /// Rewords serde's message about `field`. `found` describes the value of the field, if it is known.
    pub fn of(mut field: String, found: Option<String>, message: &str) -> Self {
        let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
        let name = quoted(message).next().unwrap_or_default();
        let reason = if message.starts_with("missing field ") {
            join(&mut field, name);
            "missing".to_owned()
        } else if message.starts_with("duplicate field ") {
            join(&mut field, name);
            "given twice".to_owned()
        } else if let Some((_, known)) =
            message.strip_prefix("unknown field ").and_then(|rest| rest.split_once(", "))
        {
            format!("unknown field {name:?}, {known}")
        } else if let Some((kind, expected)) = message.split_once(", expected ") {
            let kind = kind.split_once(": ").map_or(kind, |(_, value)| value);
            let kind = || shortened(kind.trim_start_matches("unknown variant "), QUOTED);
            let separator = if expected.starts_with("one of ") { ";" } else { "," };
            format!("expected {}{separator} found {}", plain(expected), found.unwrap_or_else(kind))
        } else if let Some(expected) = message.strip_prefix("expected ") {
            format!("expected {expected}, found {}", found.unwrap_or_else(|| "another value".to_owned()))
        } else {
            message.to_owned()
        };
        Self { field, reason }
    }
}

/// Lists the leaves of nested objects, each with its path, whose keys are joined by `separator`. A list is a leaf.
pub fn leaves<'a>(value: &'a Value, separator: &str) -> Vec<(String, &'a Value)> {
    let Value::Object(map) = value else { return vec![(String::new(), value)] };
    let below = |(key, value): (&String, &'a Value)| {
        let path = |(path, leaf): (String, &'a Value)| match path.as_str() {
            "" => (key.clone(), leaf),
            path => (format!("{key}{separator}{path}"), leaf),
        };
        leaves(value, separator).into_iter().map(path).collect::<Vec<_>>()
    };
    map.iter().flat_map(below).collect()
}

/// Describes why a text isn't JSON.
fn broken(text: &[u8], error: &serde_json::Error) -> Misfit {
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    let start = text
        .split_inclusive(|&b| b == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum::<usize>();
    let at = (start + error.column().saturating_sub(1)).min(text.len());
    let position = match error.line() {
        0 | 1 => format!("byte {}", at + 1),
        line => format!("line {line}, byte {}", error.column().max(1)),
    };
    let reason = if text.trim_ascii().is_empty() {
        "expected JSON, found nothing".to_owned()
    } else if error.is_eof() {
        format!("the JSON is cut off at {position} ({message})")
    } else {
        let near = &text[at..(at + QUOTED / 2).min(text.len())];
        let near = String::from_utf8_lossy(near);
        let near = near.lines().next().unwrap_or_default();
        format!("invalid JSON at {position}, before {near:?} ({message})")
    };
    Misfit { field: String::new(), reason }
}

/// Formats a value for a message.
fn describe(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => shortened(&format!("{text:?}"), QUOTED),
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(object) => format!("an object of {} fields", object.len()),
    }
}

/// Describes a type of serde's messages in plain words.
fn plain(expected: &str) -> String {
    let range = |least: &str, most: &str| format!("a whole number from {least} to {most}");
    match expected {
        "u8" => range("0", "255"),
        "u16" => range("0", "65535"),
        "u32" => range("0", "4294967295"),
        "u64" | "usize" => range("0", "2^64 - 1"),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" | "a JSON number" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "a borrowed string" | "a string or a map" | "path string" => "a string".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        "unit" => "null".to_owned(),
        _ if expected.starts_with("struct ") || expected.starts_with("internally tagged enum ") => {
            "an object".to_owned()
        }
        _ => match expected.strip_prefix("an array of length ") {
            Some(length) => format!("a list of {length}"),
            None => expected.replace('`', "\""),
        },
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
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Rl,
        Sft,
    }

    fn reason<T: DeserializeOwned + fmt::Debug>(text: &str) -> String {
        parse::<T>(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn an_error_names_the_field_and_the_expected_and_the_found_value() {
        for (text, wanted) in [
            (r#"{"step": "x"}"#, r#"step: expected a whole number from 0 to 2^64 - 1, found "x""#),
            (r#"{"step": -1}"#, "step: expected a whole number from 0 to 2^64 - 1, found -1"),
            (
                r#"{"step": 1, "seconds": {"a": 1, "b": [2]}}"#,
                "seconds.b: expected a number, found a list of 1",
            ),
            (r#"{"step": 1, "seconds": [2]}"#, "seconds: expected an object, found a list of 1"),
            (r#"{"step": 1, "kind": "ppo"}"#, r#"kind: expected "rl" or "sft", found "ppo""#),
            (
                r#"{"step": 1, "inner": {"skipped": 0, "weights": [1, true]}}"#,
                "inner.weights[1]: expected a number, found true",
            ),
            ("{}", "step: missing"),
            (r#"{"step": 1, "step": 2}"#, "step: given twice"),
            ("[1]", "expected an object, found a list of 1"),
            ("7", "expected an object, found 7"),
        ] {
            assert_eq!(reason::<Record>(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_list_is_no_object_wherever_it_stands() {
        assert_eq!(reason::<Inner>("[0, null]"), "expected an object, found a list of 2");
        assert_eq!(
            reason::<Vec<Inner>>(r#"[{"skipped": 1}, [0, null]]"#),
            "[1]: expected an object, found a list of 2"
        );
        let why = of_value::<BTreeMap<String, Inner>>(json!({"a": [0, null]})).unwrap_err();
        assert_eq!(why.to_string(), "a: expected an object, found a list of 2");
        assert_eq!(parse::<(u64, [f64; 2])>(b"[1, [2, 3]]").unwrap(), (1, [2.0, 3.0]));
    }

    #[test]
    fn what_is_no_json_is_named_by_its_place() {
        let broken = reason::<Record>("{\"step\": 1,, \"kind\": 2}");
        assert!(
            broken
                .starts_with("invalid JSON at byte 12, before \", \\\"kind\\\": 2}\" (key must be a string)"),
            "{broken}"
        );
        let cut = parse::<Record>(b"{\"step\": 1").unwrap_err();
        assert!(cut.to_string().contains("cut off at byte 10"), "{cut}");
        assert!(reason::<Record>(" ").ends_with("found nothing"));
        assert!(
            reason::<Value>("{\n\"a\": x\n}").contains("at line 2, byte 6"),
            "{}",
            reason::<Value>("{\n\"a\": x\n}")
        );
    }

    #[test]
    fn what_other_programs_write_keeps_its_meaning() {
        for (text, wanted) in [
            (r#"{"a": NaN, "b": [Infinity, -Infinity]}"#, json!({"a": null, "b": [null, null]})),
            (r#"{"NaN": "NaN, -Infinity", "q": "\" NaN"}"#, json!({"NaN": "NaN, -Infinity", "q": "\" NaN"})),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("18446744073709551616", json!("18446744073709551616")),
            ("[-9223372036854775809]", json!(["-9223372036854775809"])),
            ("0.1", json!(0.1)),
            ("0.30000000000000004", json!(0.30000000000000004)),
            ("0.333333333333333333333", json!("0.333333333333333333333")),
            ("1e30", json!(1e30)),
            ("1.5e-300", json!(1.5e-300)),
        ] {
            assert_eq!(parse_of_others::<Value>(text.as_bytes()).unwrap(), wanted, "{text}");
        }
        for text in ["{\"a\": nan}", "NaNs", "- 1", "1.2.3", "{\"a\": \"x", "1NaN", "[Infinity"] {
            assert!(parse_of_others::<Value>(text.as_bytes()).is_err(), "{text}");
        }
        assert!(matches!(of_others(br#"{"a": 1, "b": "NaN"}"#), Cow::Borrowed(_)));
    }

    proptest::proptest! {
        #[test]
        fn json_that_we_write_is_read_as_it_is(text in "\\PC{0,20}", number: f64, whole: i64) {
            let value = json!({"text": text, "inside": {"list": [number, whole, text]}});
            let written = value.to_string();
            proptest::prop_assert!(matches!(of_others(written.as_bytes()), Cow::Borrowed(_)), "{}", written);
        }
    }

    #[test]
    fn a_long_value_is_not_repeated_in_full() {
        let reason = reason::<Record>(&json!({"step": "x".repeat(1 << 20)}).to_string());
        assert!(reason.len() < 200 && reason.contains("xxx…"), "{reason}");
    }

    #[test]
    fn a_value_is_read_as_its_text_is() {
        assert_eq!(of_value::<u64>(json!(5)).unwrap(), 5);
        let why = of_value::<Vec<u64>>(json!([1, "2"])).unwrap_err();
        assert_eq!(why.to_string(), r#"[1]: expected a whole number from 0 to 2^64 - 1, found "2""#);
    }
}
