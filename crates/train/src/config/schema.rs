//! The JSON schema of a configuration: schemars derives it from the types of this crate. Of other crates' types it has what serde
//! says that it accepts.

use fgrpo_eval::io::json::quoted;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The names in serde's error about a value that isn't accepted: those that are.
fn accepted<T: DeserializeOwned>(refused: Value) -> Vec<String> {
    let error = serde_json::from_value::<T>(refused).err().map(|error| error.to_string()).unwrap_or_default();
    quoted(&error).skip(1).map(str::to_owned).collect()
}

/// One of some words.
pub(super) fn word<T: DeserializeOwned>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": accepted::<T>(json!("?")) })
}

/// The name of a kind, or a table of the kind and its settings.
pub(super) fn kind<T: DeserializeOwned>(_: &mut SchemaGenerator) -> Schema {
    let names = accepted::<T>(json!({ "kind": "?" }));
    json_schema!({ "anyOf": [{ "enum": names }, { "type": "object", "properties": { "kind": { "enum": names } } }] })
}

/// A table with these keys.
pub(super) fn table<T: DeserializeOwned>(_: &mut SchemaGenerator) -> Schema {
    let keys: Map<String, Value> =
        accepted::<T>(json!({ "?": null })).into_iter().map(|key| (key, json!({}))).collect();
    json_schema!({ "type": "object", "properties": keys, "additionalProperties": false })
}

/// A text, or a table with these keys.
pub(super) fn text_or_table<T: DeserializeOwned>(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string" }, table::<T>(generator)] })
}

/// A number of steps, or `epoch`.
pub(super) fn every(_: &mut SchemaGenerator) -> Schema {
    number_or("epoch")
}

/// A number of checkpoints, or `all`.
pub(super) fn keep(_: &mut SchemaGenerator) -> Schema {
    number_or("all")
}

fn number_or(word: &str) -> Schema {
    json_schema!({ "anyOf": [{ "type": "integer", "minimum": 0 }, { "const": word }] })
}
