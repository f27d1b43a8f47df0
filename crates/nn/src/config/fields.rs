//! Reads a JSON object into a typed struct. Errors name the file and the field, with its value and the expected value.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::error::Error;
use fgrpo_files as input;

/// A JSON object, and the name of its file for messages.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub(crate) place: &'a str,
    pub(crate) map: &'a Map<String, Value>,
}

impl Fields<'_> {
    /// Deserializes `T`, ignoring fields that `T` doesn't have.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let object = Value::Object(self.map.clone());
        serde_path_to_error::deserialize(object.clone()).map_err(|error| {
            let path = error.path().to_string();
            let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
            let found = object.pointer(&pointer).map_or_else(|| "nothing".into(), Value::to_string);
            let message = error.into_inner().to_string();
            let expected = message.rsplit_once("expected ").map_or(&*message, |(_, expected)| expected);
            let expected = match expected {
                "usize" | "u32" => "a whole number",
                "f64" => "a number",
                "a boolean" => "true or false",
                expected => expected,
            };
            self.error(&path, found, expected)
        })
    }

    fn error(&self, field: &str, found: impl Into<String>, expected: impl Into<String>) -> Error {
        let (found, expected) = (found.into(), expected.into());
        Error::Config { place: self.place.into(), field: field.into(), found, expected }
    }

    /// Returns an error about a field's value.
    pub(crate) fn refuse<T>(&self, field: &str, expected: impl Into<String>) -> Result<T, Error> {
        let found = self.map.get(field).map_or_else(|| "nothing".into(), Value::to_string);
        self.refuse_found(field, found, expected)
    }

    /// Returns an error about `found`, a part of a field's value.
    pub(crate) fn refuse_found<T>(
        &self,
        field: &str,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Result<T, Error> {
        Err(self.error(field, found, expected))
    }

    /// Returns the field's value, or `None` if it is absent or null.
    pub(crate) fn get(&self, field: &str) -> Option<&Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    /// Returns an error if a field is set to a value other than the supported one.
    pub(crate) fn only(&self, supported: &Map<String, Value>) -> Result<(), Error> {
        for (field, expected) in supported {
            if self.get(field).is_some_and(|value| !same(value, expected)) {
                return self.refuse(field, format!("{expected} (anything else is not supported)"));
            }
        }
        Ok(())
    }
}

/// Returns whether two values are equal. 1 and 1.0 are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// Returns the map of a JSON object.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is not an object"),
    }
}

/// Deserializes a token id. Null and -1, which old Llama files use, become `None`.
pub(crate) fn token<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a token id")]
    enum Token {
        Id(u32),
        Other(i64),
    }
    match Option::<Token>::deserialize(from)? {
        None | Some(Token::Other(-1)) => Ok(None),
        Some(Token::Id(id)) => Ok(Some(id)),
        Some(Token::Other(_)) => Err(serde::de::Error::custom("expected a token id")),
    }
}

/// Deserializes a token id or a list of token ids; null becomes `None`.
pub(crate) fn tokens<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u32>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a token id or a list of them")]
    enum Tokens {
        One(u32),
        Many(Vec<u32>),
    }
    Ok(Option::<Tokens>::deserialize(from)?.map(|tokens| match tokens {
        Tokens::One(id) => vec![id],
        Tokens::Many(ids) => ids,
    }))
}

/// Like [`tokens`], but null becomes an empty list.
pub(crate) fn end_tokens<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    tokens(from).map(Option::unwrap_or_default)
}

/// Returns token ids in the form that files use: null, a single id, or a list.
pub(crate) fn one_or_many(ids: &[u32]) -> Value {
    match ids {
        [] => Value::Null,
        [one] => (*one).into(),
        many => many.into(),
    }
}

/// Reads a file that contains a JSON object.
pub(crate) fn read_object(path: &Path) -> Result<Map<String, Value>, Error> {
    let text = input::read(path, input::SETTINGS).map_err(Error::io("read", path))?;
    let file = |found: String| Error::file(path, found, "a JSON object");
    match serde_json::from_slice(&text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(file(format!("a JSON {}", kind(&other)))),
        Err(error) => Err(file(format!("invalid JSON ({error})"))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
