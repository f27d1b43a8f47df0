//! The JSON schema of a configuration: schemars derives it from the types, but for what these read in two forms, and for words
//! of crates without schemas, of which it has what serde says that it accepts.

use fgrpo_eval::io::json::quoted;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// One of some words.
pub(super) fn word<T: DeserializeOwned>(_: &mut SchemaGenerator) -> Schema {
    let error =
        serde_json::from_value::<T>(json!("?")).err().map(|error| error.to_string()).unwrap_or_default();
    json_schema!({ "enum": quoted(&error).skip(1).collect::<Vec<_>>() })
}

/// The name of a kind, or a table of the kind and its settings.
pub(super) fn kind<T: JsonSchema + Default + Serialize>(generator: &mut SchemaGenerator) -> Schema {
    let default = json!(T::default())["kind"].take();
    let mut tables = T::json_schema(generator);
    let mut names = Vec::new();
    for table in tables.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = table["properties"]["kind"]["const"].clone();
        table["additionalProperties"] = json!(false);
        // A table without `kind` has the default kind.
        if name == default {
            table["required"] = json!([]);
        }
        names.push(name);
    }
    json_schema!({ "anyOf": [{ "enum": names }, tables] })
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
