//! The JSON schema of a configuration: schemars derives it from the types, but for what these read in two forms, and for words
//! of crates without schemas, of which it has what serde says that it accepts.

use super::TaskConfig;
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
    let (mut names, mut short) = (Vec::new(), Vec::new());
    for table in tables.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        let name = table["properties"]["kind"]["const"].clone();
        table["additionalProperties"] = json!(false);
        // A table without `kind` has the default kind.
        if name == default {
            table["required"] = json!([]);
        }
        // The short form of a kind of which a setting is required is that setting: a function.
        match table["properties"]["function"].is_null() {
            true => names.push(name),
            false => short.push(json!({ "type": "string", "pattern": "\\.py:." })),
        }
    }
    short.extend([json!({ "enum": names }), json!(tables)]);
    json_schema!({ "anyOf": short })
}

/// The kinds of tasks with problems from files.
pub(super) fn text_kind(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": TaskConfig::TEXT })
}

/// The kinds that a table is for, of a table of which each kind has its own keys.
pub(super) fn kinds(table: &Value) -> Vec<&str> {
    let kind = &table["properties"]["kind"];
    kind["enum"].as_array().into_iter().flatten().chain([&kind["const"]]).filter_map(Value::as_str).collect()
}

/// Lets the kinds of a part have the part's keys too.
pub(super) fn open(schema: &mut Schema) {
    fn open_forms(table: &mut serde_json::Map<String, Value>) {
        for key in ["anyOf", "oneOf", "allOf"] {
            let forms = table.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten();
            for form in forms.filter_map(Value::as_object_mut) {
                form.remove("additionalProperties");
                form.remove("unevaluatedProperties");
                open_forms(form);
            }
        }
    }
    open_forms(schema.ensure_object());
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

/// What a schema allows, with the references into the whole one followed.
pub(super) fn forms<'a>(whole: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    if let Some(path) = schema["$ref"].as_str() {
        return whole.pointer(&path[1..]).map_or_else(Vec::new, |named| forms(whole, named));
    }
    match schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array) {
        // A table may have alternatives beside its own keys: the kinds of a part.
        Some(either) if schema["properties"].is_null() => {
            either.iter().flat_map(|form| forms(whole, form)).collect()
        }
        _ => vec![schema],
    }
}
