//! Settings of another trainer, each with the key of the configuration that it comes from.
//!
//! A table lists every key of a configuration with the trainer's key, or with the reason why it is refused or differs. The trainer's module
//! adds the settings that are computed, not copied from a key.

use crate::config::{AlgorithmConfig, Config, LoraTable, Schedule, UpdateConfig};
use fgrpo_core::advantage::Advantage;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One setting of the other trainer.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Setting {
    /// The trainer's key.
    pub(super) key: String,
    pub(super) value: Value,
    /// Keys of our configuration, with a note if the two settings differ in form.
    pub(super) origin: String,
}

/// One trainer's equivalents of the keys of our configuration. `verl/keys.toml` explains the fields.
#[derive(Debug, Deserialize)]
struct Table {
    prefixes: BTreeMap<String, String>,
    keys: BTreeMap<String, Row>,
}

/// The trainer's equivalent of one key of our configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Row {
    to: Option<String>,
    zero: Option<Value>,
    note: Option<String>,
    unless: Option<Value>,
    refused: Option<String>,
    instead: Option<String>,
    differs: Option<String>,
}

/// Settings, accepted differences and refused settings.
#[derive(Debug)]
pub(super) struct Mapping {
    table: Table,
    pub(super) settings: Vec<Setting>,
    pub(super) differences: Vec<(String, String)>,
    refused: Vec<String>,
    allowed: BTreeSet<String>,
}

impl Mapping {
    /// Creates a mapping with the settings and differences that follow from the table alone. Differences in the keys `allowed` are
    /// accepted.
    ///
    /// # Panics
    /// If the table lacks a key of the configuration.
    pub(super) fn new(table: &str, config: &Config, allowed: BTreeSet<String>) -> Self {
        let table = toml::from_str(table).expect("the table of keys is TOML");
        let mut mapping =
            Self { table, settings: Vec::new(), differences: Vec::new(), refused: Vec::new(), allowed };
        for (key, value) in leaves(config) {
            let Row { to, zero, unless, refused, differs, .. } = mapping.row(&key);
            let same = unless.as_ref() == Some(&value);
            let (refuses, differs) = (refused.is_some() && !same, differs.is_some() && !same);
            if let Some(to) = to.clone() {
                let zero = zero.clone().filter(|_| value == 0);
                mapping.set(&to, zero.unwrap_or(value), &key);
            }
            if refuses || differs {
                mapping.state(&key);
            }
        }
        mapping
    }

    fn row(&self, key: &str) -> &Row {
        self.table.keys.get(key).unwrap_or_else(|| panic!("the table of keys lacks {key}"))
    }

    /// Sets a key of the trainer. `origin` names our key, and is empty for a setting of the job itself.
    pub(super) fn set(&mut self, key: &str, value: impl Into<Value>, origin: &str) {
        let key = match key.split_once('.') {
            Some((prefix, rest)) if self.table.prefixes.contains_key(prefix) => {
                format!("{}.{rest}", self.table.prefixes[prefix])
            }
            _ => key.to_owned(),
        };
        let note = self.table.keys.get(origin).and_then(|row| row.note.as_ref());
        let name = origin.split(':').next().unwrap_or_default();
        let origin = note.map_or(name.to_owned(), |note| format!("{name}; {note}"));
        self.settings.push(Setting { key, value: value.into(), origin });
    }

    /// Records the difference in the row `name` of the table. If the row refuses the difference, it is accepted only if
    /// the caller allows its key.
    ///
    /// # Panics
    /// If the table lacks the row, or the row lacks a reason.
    pub(super) fn state(&mut self, name: &str) {
        let key = name.split(':').next().unwrap_or_default().to_owned();
        let allowed = self.allowed.contains(&key) || self.allowed.contains("all");
        let row = self.row(name);
        match (&row.refused, &row.instead, &row.differs) {
            (None, _, Some(differs)) => self.differences.push((key, differs.clone())),
            (Some(why), Some(instead), _) if allowed => {
                self.differences.push((key, format!("{why}; {instead}")));
            }
            (Some(why), Some(_), _) => self.refused.push(format!("{key}: {why}")),
            _ => panic!("the row {name} has no reason"),
        }
    }

    /// Refuses a setting, even if the caller allows its key.
    pub(super) fn forbid(&mut self, key: &str, why: String) {
        self.refused.push(format!("{key}: {why}"));
    }

    /// Returns the configured estimator if rewards are its only input, because the trainers don't provide other inputs.
    /// Otherwise, records the difference and returns GRPO.
    pub(super) fn estimator(&mut self, algorithm: &AlgorithmConfig) -> Advantage {
        let reads = algorithm.advantage.reads();
        let absent = match algorithm.advantage {
            Advantage::Python { .. } => "python",
            _ if reads.logp => "logp",
            _ if reads.clusters => "clusters",
            _ if reads.parts => "parts",
            _ => return algorithm.advantage.clone(),
        };
        self.state(&format!("algorithm.advantage:{absent}"));
        Advantage::GRPO
    }

    /// Sets the schedule and the warm-up of Transformers, for `updates` updates per step.
    pub(super) fn schedule(&mut self, update: &UpdateConfig, updates: u64, [schedule, warmup]: [&str; 2]) {
        let name = match update.schedule {
            Schedule::Constant => "constant_with_warmup",
            Schedule::Linear => "linear",
            Schedule::Cosine => "cosine",
        };
        self.set(schedule, name, "update.schedule");
        self.set(warmup, update.warmup_steps * updates, "update.warmup_steps");
        if update.warmup_steps > 0 {
            self.state("update.warmup_steps:first");
        }
        if updates > 1 && (update.schedule != Schedule::Constant || update.warmup_steps > 0) {
            self.state("update.schedule:updates");
        }
    }

    /// Sets an adapter's alpha, rounded to a whole number, for trainers whose scale is alpha / rank.
    pub(super) fn alpha(&mut self, lora: &LoraTable, key: &str) {
        let scale = if lora.use_rslora { (lora.rank as f64).sqrt() } else { 1.0 };
        if lora.alpha.fract() != 0.0 {
            self.state("lora.alpha:fraction");
        }
        self.set(key, (lora.alpha * scale).round() as i64, "lora.alpha");
    }

    /// Returns the mapping.
    ///
    /// Fails if settings are refused, listing all of them, or if an allowed key doesn't differ.
    pub(super) fn finished(self) -> anyhow::Result<Self> {
        let differs = |key: &String| self.differences.iter().any(|(other, _)| other == key);
        let idle: Vec<&str> =
            self.allowed.iter().filter(|key| *key != "all" && !differs(key)).map(String::as_str).collect();
        if self.refused.is_empty() && !idle.is_empty() {
            bad_input!(
                "allow: {} doesn't need permission, because the job has the same setting; leave it out",
                idle.join(", ")
            );
        }
        if !self.refused.is_empty() {
            bad_input!(
                "the trainer doesn't have these settings; allow a key to accept the difference:\n  {}",
                self.refused.join("\n  ")
            );
        }
        Ok(self)
    }
}

/// Returns the keys of a configuration as `SECTION.KEY`, with their values, except for `[task]`, `[model]` and `[sft]`.
///
/// The values come from its TOML, which has the shortest decimal form of a number in f32.
fn leaves(config: &Config) -> Vec<(String, Value)> {
    let table: serde_json::Map<String, Value> =
        toml::from_str(&config.to_toml()).expect("a configuration's TOML is a table");
    let mut leaves = Vec::new();
    for (section, value) in table {
        match value {
            _ if matches!(section.as_str(), "task" | "model" | "sft") => {}
            Value::Object(keys) => {
                leaves.extend(keys.into_iter().map(|(key, value)| (format!("{section}.{key}"), value)));
            }
            value => leaves.push((section, value)),
        }
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::{Config, Table};
    use crate::export::Trainer;
    use fgrpo_eval::names::Named;
    use serde_json::Value;

    /// Collects the keys of a table in the schema, or of each of its alternatives.
    fn keys(whole: &Value, schema: &Value, found: &mut Vec<String>) {
        if let Some(path) = schema["$ref"].as_str() {
            return keys(whole, whole.pointer(&path[1..]).unwrap(), found);
        }
        found.extend(schema["properties"].as_object().into_iter().flat_map(|p| p.keys().cloned()));
        for form in ["anyOf", "oneOf", "allOf"].iter().filter_map(|form| schema[form].as_array()).flatten() {
            keys(whole, form, found);
        }
    }

    #[test]
    fn each_trainers_table_has_every_key_of_a_configuration_and_every_row_is_in_use() {
        let schema = Config::schema();
        let sections = schema["properties"].as_object().unwrap();
        let mut all = Vec::new();
        for (section, table) in sections {
            let mut found = Vec::new();
            keys(&schema, table, &mut found);
            match section.as_str() {
                "task" | "model" | "sft" => {}
                _ if found.is_empty() => all.push(section.clone()),
                _ => all.extend(found.iter().map(|key| format!("{section}.{key}"))),
            }
        }
        assert!(all.len() > 60, "{all:?}");
        for (trainer, name, _) in Trainer::NAMES {
            let table: Table = toml::from_str(trainer.table()).unwrap();
            for key in &all {
                assert!(table.keys.contains_key(key), "{name}: {key}");
            }
            let source = match trainer {
                Trainer::Verl => include_str!("verl.rs"),
                Trainer::Trl => include_str!("trl.rs"),
                Trainer::Skyrl => include_str!("skyrl.rs"),
            };
            let source = [source, include_str!("mapping.rs"), include_str!("../export.rs")].concat();
            for (key, row) in table.keys.iter().filter(|(key, _)| !all.contains(key)) {
                let used = source.contains(&format!("\"{key}\"")) || key.starts_with("algorithm.advantage:");
                assert!(used, "{name}: {key}: {row:?}");
            }
        }
    }
}
