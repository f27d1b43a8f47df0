//! The fields of a request's JSON object, taken out one after another; and refusals that name them.

use fgrpo_eval::io::json::{self, Misfit};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt::Display;

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It can't be done.
    Bad(String),
    /// It names something that isn't there.
    Unknown(String),
}

impl Refusal {
    /// Of a name that nothing has.
    pub(crate) fn unknown(field: &str, found: &str, wanted: &str) -> Self {
        Self::Unknown(format!("{field}: found {found:?}, wanted {wanted}"))
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Bad(why)
    }
}

/// Refuses what was found at a place unless it is fine.
pub(crate) fn check(
    fine: bool,
    name: impl Display,
    found: impl Display,
    wanted: impl Display,
) -> Result<(), String> {
    if fine { Ok(()) } else { Err(format!("{name}: found {found}, wanted {wanted}")) }
}

/// The fields that haven't been read yet.
pub(crate) struct Fields {
    pub(crate) left: Map<String, Value>,
    /// The prefix of their names in messages, such as `sampling_params.`.
    within: &'static str,
}

impl Fields {
    /// Reads an object. Ignores `type`, which repeats the endpoint's name.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let mut left: Map<String, Value> = json::parse(body).map_err(|misfit| misfit.to_string())?;
        left.remove("type");
        Ok(Self { left, within: "" })
    }

    /// The fields of an object in a field; none if it isn't there. `within` is the field's name and a dot.
    pub(crate) fn inner(&mut self, within: &'static str) -> Result<Self, String> {
        let left = self.take(within.trim_end_matches('.'))?.unwrap_or_default();
        Ok(Self { left, within })
    }

    /// A field; `None` if it isn't there, or null.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, String> {
        let value = self.left.remove(name).filter(|value| !value.is_null());
        let named = |misfit: Misfit| {
            let place = format!("{}{name}", self.within);
            let inner = misfit.field.starts_with('[') || misfit.field.is_empty();
            Misfit { field: format!("{place}{}{}", if inner { "" } else { "." }, misfit.field), ..misfit }
        };
        value.map(|value| json::of_value(value).map_err(|misfit| named(misfit).to_string())).transpose()
    }

    /// A field, or its default.
    pub(crate) fn or<T: DeserializeOwned>(&mut self, name: &str, default: T) -> Result<T, String> {
        Ok(self.take(name)?.unwrap_or(default))
    }

    /// A field that must be there.
    pub(crate) fn need<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, String> {
        self.take(name)?.ok_or_else(|| format!("{}{name}: found none, wanted a value", self.within))
    }

    /// Refuses fields that haven't been read.
    pub(crate) fn end(self) -> Result<(), String> {
        match self.left.keys().next() {
            Some(name) => Err(format!("{}{name}: found an unknown field, wanted none", self.within)),
            None => Ok(()),
        }
    }
}
