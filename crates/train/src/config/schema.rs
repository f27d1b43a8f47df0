//! Parts of a configuration's JSON schema that schemars can't derive: values with two forms, and enums of crates that
//! don't implement `JsonSchema`, whose variants' names are taken from serde's error messages.

use super::TaskConfig;
use fgrpo_eval::io::json::quoted;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Returns the schema of a string that is one of the words that serde accepts for `T`.
pub(super) fn word<T: DeserializeOwned>(_: &mut SchemaGenerator) -> Schema {
    let error =
        serde_json::from_value::<T>(json!("?")).err().map(|error| error.to_string()).unwrap_or_default();
    json_schema!({ "enum": quoted(&error).skip(1).collect::<Vec<_>>() })
}

/// Returns the schema of a value that is either the name of a kind or a table with the kind and its settings.
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
        // The short form of a kind with a function is that function.
        if table["properties"]["function"].is_null() {
            names.push(name);
        } else {
            short.push(json!({ "type": "string", "pattern": "\\.py:." }));
        }
    }
    short.extend([json!({ "enum": names }), json!(tables)]);
    json_schema!({ "anyOf": short })
}

/// Returns the schema of the kinds of tasks whose problems come from files.
pub(super) fn text_kind(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "enum": TaskConfig::TEXT })
}

/// Returns the kinds to which one alternative of a table's schema applies.
pub(super) fn kinds(table: &Value) -> Vec<&str> {
    let kind = &table["properties"]["kind"];
    kind["enum"].as_array().into_iter().flatten().chain([&kind["const"]]).filter_map(Value::as_str).collect()
}

/// Allows further keys in every alternative of a table, because a part of a mix has the keys of a part and of its
/// task kind.
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

/// Returns the alternatives (`anyOf`, `oneOf`) of a schema, or the schema itself. `whole` resolves its `$ref`s.
pub(super) fn forms<'a>(whole: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    if let Some(path) = schema["$ref"].as_str() {
        return whole.pointer(&path[1..]).map_or_else(Vec::new, |named| forms(whole, named));
    }
    match schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array) {
        // A part of a mix has both keys and alternatives, and counts as one table.
        Some(either) if schema["properties"].is_null() => {
            either.iter().flat_map(|form| forms(whole, form)).collect()
        }
        _ => vec![schema],
    }
}
