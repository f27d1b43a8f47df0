//! Reads an enum such as the estimator: the name of a variant, or a table with `kind` and the settings of that kind.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};

/// Reads `"pkpo"` or `{ kind = "pkpo", k = 8 }`. A table without `kind` has the default kind.
pub(super) fn named_or_table<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + DeserializeOwned + Serialize,
{
    let mut given = match toml::Value::deserialize(deserializer)? {
        toml::Value::String(name) => named(name),
        toml::Value::Table(table) => table,
        other => {
            return Err(D::Error::custom(format_args!(
                "expected the name of a kind, or a table with the kind and its settings, found {}",
                other.type_str()
            )));
        }
    };
    if !given.contains_key("kind") {
        let default = toml::Table::try_from(T::default()).map_err(D::Error::custom)?;
        given.insert("kind".to_owned(), default["kind"].clone());
    }
    let kind: T = given.clone().try_into().map_err(|e: toml::de::Error| D::Error::custom(e.message()))?;
    let known = toml::Table::try_from(&kind).map_err(D::Error::custom)?;
    // serde rejects unknown keys of a struct, but not of a kind without settings.
    if let Some(key) = given.keys().find(|key| !known.contains_key(*key)) {
        let known: Vec<String> = known.keys().map(|k| format!("`{k}`")).collect();
        let kind = given["kind"].as_str().unwrap_or_default();
        return Err(D::Error::custom(format_args!(
            "unknown field `{key}`, expected one of {} with kind {kind}",
            known.join(", ")
        )));
    }
    Ok(kind)
}

/// Converts a name to a table where a table is needed, e.g. for `--set algorithm.advantage.k=8`.
pub(super) fn table_of(value: &mut toml::Value) {
    if let toml::Value::String(name) = value {
        *value = toml::Value::Table(named(std::mem::take(name)));
    }
}

/// Returns the table of a kind, given its name. A function, such as `steep.py:steep`, has the kind `python`.
fn named(name: String) -> toml::Table {
    let keys = if name.contains(".py:") {
        vec![("kind", "python".to_owned()), ("function", name)]
    } else {
        vec![("kind", name)]
    };
    keys.into_iter().map(|(key, value)| (key.to_owned(), toml::Value::String(value))).collect()
}
