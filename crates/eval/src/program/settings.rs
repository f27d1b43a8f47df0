//! Settings of a program that grades, and the short forms in which a user may write them.

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A function of this process that answers questions as a program would. Questions and answers are lines of JSON.
#[derive(Clone)]
pub struct Answerer(Arc<dyn Fn(&str) -> String + Send + Sync>);

impl Answerer {
    /// Returns an answerer that calls `answer`.
    pub fn new(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(answer))
    }

    pub(super) fn answer(&self, question: &str) -> String {
        self.0(question)
    }
}

impl fmt::Debug for Answerer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answerer")
    }
}

impl PartialEq for Answerer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// How to run the program. The kind `command` has a command, the kind `python` a function.
#[derive(Debug, Clone, PartialEq, serde::Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The program and its arguments: a string, which is split at white space, or a list.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "text_or_list")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::text_or_list"))]
    pub command: Vec<String>,
    /// The function, such as `"grade.py:reward"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Name of a function of the Python process that runs the training, in place of a file. `fgrpo.train` sets it;
    /// users don't.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub in_process: Option<String>,
    /// Function that answers if `in_process` is set. A configuration doesn't contain it: the caller sets it.
    #[serde(skip)]
    pub answerer: Option<Answerer>,
    /// Time limit for one answer, in seconds.
    pub timeout_s: f64,
    /// Additional seconds for the first answer of a process.
    pub startup_s: f64,
    /// Lowest score that counts as correct.
    pub correct_from: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            function: None,
            in_process: None,
            answerer: None,
            timeout_s: 10.0,
            startup_s: 30.0,
            correct_from: 1.0,
        }
    }
}

impl Settings {
    /// Resolves the files that the settings name relative to `folder`: the file of the function, and arguments of the
    /// command that are files in the folder.
    pub fn relative_to(&mut self, folder: &Path) {
        let in_folder = |path: &str| folder.join(path).to_string_lossy().into_owned();
        self.function = self.function.as_deref().map(in_folder);
        for argument in self.command.iter_mut().filter(|argument| folder.join(argument).is_file()) {
            *argument = in_folder(argument);
        }
    }

    /// Creates settings from a command line, which is split at white space outside quotes.
    ///
    /// Returns bad input if the command line is empty or a quote isn't closed.
    pub fn parse(line: &str) -> anyhow::Result<Self> {
        Ok(Self { command: words(line)?, ..Self::default() })
    }

    /// Returns the settings for a Python function such as `grade.py:reward`.
    pub fn of_function(function: &str) -> Self {
        Self { function: Some(function.to_owned()), ..Self::default() }
    }

    /// Returns whether the settings name a function, in a file or in this process, and not a command.
    pub fn is_function(&self) -> bool {
        self.function.is_some() || self.in_process.is_some()
    }

    /// Deserializes a command: a string, a list, or a table with limits.
    pub fn read_command<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        deserializer
            .deserialize_any(TextOrTable("a command line, a list of words or a table", Self::parse))
            .map(Some)
    }

    /// Deserializes a Python function: a string, or a table with limits.
    pub fn read_function<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        let read = |text: &str| Ok(Self::of_function(text));
        deserializer
            .deserialize_any(TextOrTable("\"FILE.py:FUNCTION\" or a table with `function`", read))
            .map(Some)
    }
}

/// JSON schemas of the settings.
#[cfg(feature = "schema")]
pub mod schema {
    use super::Settings;
    use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

    /// Returns the schema of a command: a string, a list or a table.
    pub fn command(generator: &mut SchemaGenerator) -> Schema {
        short_or_table(text_or_list(generator), "function", generator)
    }

    /// Returns the schema of a Python function: a string or a table.
    pub fn function(generator: &mut SchemaGenerator) -> Schema {
        short_or_table(String::json_schema(generator), "command", generator)
    }

    pub(super) fn text_or_list(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
    }

    fn short_or_table(short: Schema, other: &str, generator: &mut SchemaGenerator) -> Schema {
        let mut table = Settings::json_schema(generator);
        table.get_mut("properties").and_then(|keys| keys.as_object_mut()?.shift_remove(other));
        json_schema!({ "anyOf": [short, table] })
    }
}

/// Deserializes [`Settings`] from a string, a list of words, or a table. The fields are the expected value, for
/// messages, and the parser of a string.
struct TextOrTable(&'static str, fn(&str) -> anyhow::Result<Settings>);

impl<'de> Visitor<'de> for TextOrTable {
    type Value = Settings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Settings, E> {
        self.1(text).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Settings, A::Error> {
        let command = Vec::deserialize(SeqAccessDeserializer::new(list))?;
        Ok(Settings { command, ..Settings::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Settings, A::Error> {
        Settings::deserialize(MapAccessDeserializer::new(table))
    }
}

/// Deserializes the words of a command from a list or a string.
fn text_or_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let expected = "a command line or a list of words";
    Ok(deserializer.deserialize_any(TextOrTable(expected, Settings::parse))?.command)
}

/// Splits a command line as a shell does, without expansions.
fn words(line: &str) -> anyhow::Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        bad_input!("command: a quote isn't closed in {line:?}");
    }
    words.extend(word);
    if words.is_empty() {
        bad_input!("command: empty; give a program and its arguments");
    }
    Ok(words)
}
