//! Reads the fields of a request's JSON object one by one, with errors that name them.

use fgrpo_eval::io::json::{self, Misfit};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::fmt::Display;

/// Reason why a request is rejected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request is invalid.
    Bad(String),
    /// The request names an object that doesn't exist.
    Unknown(String),
}

impl Refusal {
    /// Returns the error for a name that doesn't exist. `kind` describes the object, such as "a model of this server".
    pub(crate) fn unknown(field: &str, name: &str, kind: &str) -> Self {
        Self::Unknown(format!("{field}: {name:?} isn't {kind}"))
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Bad(why)
    }
}

/// Returns an error that names the expected and the found value unless `valid`.
pub(crate) fn check(
    valid: bool,
    name: impl Display,
    value: impl Display,
    expected: impl Display,
) -> Result<(), String> {
    if valid { Ok(()) } else { Err(format!("{name}: expected {expected}, found {value}")) }
}

/// Returns whether a value is null, false or empty.
pub(crate) fn empty(value: &Value) -> bool {
    [Value::Null, json!(false), json!([]), json!({}), json!("")].contains(value)
}

/// The fields that haven't been read yet.
pub(crate) struct Fields {
    pub(crate) rest: Map<String, Value>,
    /// Prefix of the fields' names in messages, such as `sampling_params.`.
    within: &'static str,
}

impl Fields {
    /// Reads an object. The field `type` is ignored, since it repeats the endpoint's name.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let mut rest: Map<String, Value> = json::parse(body).map_err(|misfit| misfit.to_string())?;
        rest.remove("type");
        Ok(Self { rest, within: "" })
    }

    /// Returns the fields of an object inside a field, or no fields if that field is absent. `within` is the field's name
    /// and a dot.
    pub(crate) fn inner(&mut self, within: &'static str) -> Result<Self, String> {
        let rest = self.take(within.trim_end_matches('.'))?.unwrap_or_default();
        Ok(Self { rest, within })
    }

    /// Takes a field, or returns `None` if it is absent or null.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, String> {
        let value = self.rest.remove(name).filter(|value| !value.is_null());
        let with_name = |misfit: Misfit| {
            let place = format!("{}{name}", self.within);
            let inner = misfit.field.starts_with('[') || misfit.field.is_empty();
            Misfit { field: format!("{place}{}{}", if inner { "" } else { "." }, misfit.field), ..misfit }
        };
        value.map(|value| json::of_value(value).map_err(|misfit| with_name(misfit).to_string())).transpose()
    }

    /// Takes a field, or returns `default` if it is absent or null.
    pub(crate) fn or<T: DeserializeOwned>(&mut self, name: &str, default: T) -> Result<T, String> {
        Ok(self.take(name)?.unwrap_or(default))
    }

    /// Takes a required field, or returns an error if it is absent or null.
    pub(crate) fn need<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, String> {
        self.take(name)?.ok_or_else(|| format!("{}{name}: missing", self.within))
    }

    /// Returns an error if a field hasn't been read.
    pub(crate) fn end(self) -> Result<(), String> {
        match self.rest.keys().next() {
            Some(name) => Err(format!("{}{name}: unknown field", self.within)),
            None => Ok(()),
        }
    }
}
