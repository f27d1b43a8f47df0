//! Settings of another trainer, each with the keys of the configuration that it comes from.

use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// One setting of the other trainer.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Setting {
    /// The trainer's key.
    pub(super) key: String,
    pub(super) value: Value,
    /// Keys of our configuration, with a note where the two differ in form.
    pub(super) origin: String,
}

/// Settings, accepted differences, and what is refused.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    pub(super) settings: Vec<Setting>,
    pub(super) differences: Vec<(String, String)>,
    refused: Vec<String>,
    allowed: BTreeSet<String>,
}

impl Mapping {
    /// A mapping without settings that accepts differences in the keys `allowed`.
    pub(super) fn new(allowed: BTreeSet<String>) -> Self {
        Self { allowed, ..Self::default() }
    }

    /// Sets a key of the trainer. `origin` names our keys.
    pub(super) fn set(&mut self, key: impl Into<String>, value: impl Into<Value>, origin: &str) {
        self.settings.push(Setting { key: key.into(), value: value.into(), origin: origin.to_owned() });
    }

    /// Notes a difference that needs no permission.
    pub(super) fn differ(&mut self, key: &str, text: impl Into<String>) {
        self.differences.push((key.to_owned(), text.into()));
    }

    /// Refuses a setting that the trainer doesn't have. `instead` says what the job does if the difference is allowed.
    pub(super) fn refuse(&mut self, key: &str, why: &str, instead: &str) {
        if self.allowed.contains(key) || self.allowed.contains("all") {
            self.differ(key, format!("{why}; {instead}"));
        } else {
            self.refused.push(format!("{key}: {why}"));
        }
    }

    /// Refuses a setting whatever is allowed.
    pub(super) fn forbid(&mut self, key: &str, why: String) {
        self.refused.push(format!("{key}: {why}"));
    }

    /// The mapping, if nothing is refused.
    ///
    /// Fails with every refused setting, and for allowed keys that no difference needs.
    pub(super) fn finished(self) -> anyhow::Result<Self> {
        let differs = |key: &String| self.differences.iter().any(|(other, _)| other == key);
        let idle: Vec<&str> =
            self.allowed.iter().filter(|key| *key != "all" && !differs(key)).map(String::as_str).collect();
        if self.refused.is_empty() && !idle.is_empty() {
            bad_input!("{} is allowed to differ, but the job has it as it is", idle.join(", "));
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

/// A number of the configuration in f32, in its shortest decimal form.
pub(super) fn decimal(number: f32) -> f64 {
    number.to_string().parse().expect("a number's own text is a number")
}
