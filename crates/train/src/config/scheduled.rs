//! Numbers of `[algorithm]` that change over the steps.
//!
//! A value is a function of the step alone, so a resumed run has the values of the uninterrupted one.

use super::ranges::{STEPS, within};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// A number, or a list of numbers, that goes linearly from its configured value to another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduledKey {
    /// The key without `algorithm.`; its own value is that of step 1.
    pub key: String,
    /// The value from step `over` on; a list for a key with a list.
    #[serde(deserialize_with = "goal")]
    #[schemars(schema_with = "goal_schema")]
    pub to: Goal,
    /// Number of steps, at least 2.
    pub over: u64,
}

/// The value at the end.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Goal {
    /// Of a number.
    Number(f64),
    /// Of a list of numbers.
    Numbers(Vec<f64>),
}

fn goal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Goal, D::Error> {
    let given = Value::deserialize(deserializer)?;
    let numbers = |list: &Vec<Value>| list.iter().map(number).collect::<Option<Vec<f64>>>();
    let read = match &given {
        Value::Array(list) => numbers(list).map(Goal::Numbers),
        one => number(one).map(Goal::Number),
    };
    let found = given.type_str();
    read.ok_or_else(|| D::Error::custom(format_args!("found {found}, wanted a number or a list of numbers")))
}

fn goal_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "number" }, { "type": "array", "items": { "type": "number" } }] })
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|i| i as f64))
}

/// Calls `each` with the name and place of every number of a table and every list of numbers.
fn numbers<'a>(prefix: &str, table: &'a mut Table, each: &mut impl FnMut(&str, &'a mut Value)) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(inner) => numbers(&name, inner, each),
            Value::Array(list) if list.is_empty() || list.iter().any(|v| number(v).is_none()) => {}
            value @ (Value::Float(_) | Value::Integer(_) | Value::Array(_)) => each(&name, value),
            _ => {}
        }
    }
}

/// A number between two; a whole one is rounded. Exact at both ends.
fn between(from: &Value, to: f64, share: f64) -> Value {
    let value = number(from).unwrap_or(to) * (1.0 - share) + to * share;
    match from {
        Value::Integer(_) => Value::Integer(value.round() as i64),
        _ => Value::Float(value),
    }
}

impl ScheduledKey {
    /// How much of the way is gone at a step.
    fn share(&self, step: u64) -> f64 {
        ((step.max(1) - 1) as f64 / (self.over - 1) as f64).min(1.0)
    }

    /// Steps at which a range that the value leaves shows: a valid value is in an interval, or is 0, which turns its
    /// setting off, so the ends and their neighbours decide.
    pub(super) fn deciding_steps(&self) -> [u64; 4] {
        [1, 2, self.over - 1, self.over]
    }

    /// Whether the value differs from 0 at some step, if it is 0 at the first.
    pub(super) fn leaves_zero(&self, key: &str) -> bool {
        self.key == key && self.to != Goal::Number(0.0)
    }
}

/// Refuses keys that aren't numbers, or that stand there twice.
pub(super) fn check(schedule: &[ScheduledKey], mut algorithm: Table) -> anyhow::Result<()> {
    let mut known: Vec<(String, Value)> = Vec::new();
    numbers("", &mut algorithm, &mut |name, value| known.push((name.to_owned(), value.clone())));
    for (i, scheduled) in schedule.iter().enumerate() {
        let (place, key) = (format!("algorithm.schedule[{i}]"), &scheduled.key);
        let Some((_, value)) = known.iter().find(|(name, _)| name == key) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
            bad_input!("{place}.key: found {key:?}, wanted a number of [algorithm]: {}", names.join(", "))
        };
        match (value, &scheduled.to) {
            (Value::Array(list), Goal::Numbers(to)) if list.len() == to.len() => {}
            (Value::Array(list), _) => {
                bad_input!("{place}.to: found another value, wanted {} numbers, as {key} has", list.len())
            }
            (_, Goal::Number(_)) => {}
            _ => bad_input!("{place}.to: found a list, wanted a number, as {key} is one"),
        }
        within(&format!("{place}.over"), scheduled.over, 2..=STEPS)?;
        if schedule[..i].iter().any(|other| other.key == *key) {
            bad_input!("{place}.key: found {key:?} twice, wanted each key once");
        }
    }
    Ok(())
}

/// Sets the values of a step, and returns them by name, the numbers of a list by their places.
pub(super) fn apply(schedule: &[ScheduledKey], step: u64, algorithm: &mut Table) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    numbers("", algorithm, &mut |name, value| {
        let Some(scheduled) = schedule.iter().find(|s| s.key == name) else { return };
        let share = scheduled.share(step);
        match (value, &scheduled.to) {
            (Value::Array(list), Goal::Numbers(to)) => {
                for (i, (value, &to)) in list.iter_mut().zip(to).enumerate() {
                    *value = between(value, to, share);
                    found.extend(number(value).map(|x| (format!("{name}.{i}"), x)));
                }
            }
            (value, Goal::Number(to)) => {
                *value = between(value, *to, share);
                found.extend(number(value).map(|x| (name.to_owned(), x)));
            }
            _ => {}
        }
    });
    found
}
