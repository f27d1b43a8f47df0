//! Kinds of problems. Each kind has a file with its reference answer (`Truth`), the columns that it comes from
//! (`reader`), its verifier and its answers for majority votes.
//!
//! To add a kind, write its file and add a line to the call of `kinds!` below.

pub mod choice;
pub mod code;
pub mod command;
pub mod environment;
mod exact;
mod fenced;
pub mod ifeval;
pub mod json_schema;
pub mod math;
pub mod maze;
pub mod python;
pub mod regex;
pub mod synlogic;

use crate::program::Program;
use crate::row::{Row, Table};
use crate::verifier::{Beside, Grading, Mode, Reader, Reference, Settings, Verifier};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::ops::Deref;

macro_rules! kinds {
    ($($kind:ident($file:ident) version $version:literal = $name:literal: $about:literal, $line:expr;)+) => {
        named! {
            /// The kind of answer that a data set asks for; it determines the verifier.
            #[derive(Hash, Serialize, Deserialize)]
            pub enum TaskKind {
                $(#[serde(rename = $name)] $kind = $name: $about,)+
            }
        }

        /// The data that a problem's verifier needs.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum Truth {
            $(#[doc = $about] #[serde(rename = $name)] $kind($file::Truth),)+
        }

        impl Truth {
            /// Returns the kind of problem.
            pub fn kind(&self) -> TaskKind {
                match self {
                    $(Self::$kind(_) => TaskKind::$kind,)+
                }
            }
        }

        impl Deref for Truth {
            type Target = dyn Reference;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Self::$kind(truth) => truth,)+
                }
            }
        }

        impl TaskKind {
            /// Finds the columns that this kind needs, and returns a function that reads a row's reference answer.
            /// Returns an error that lists the existing columns if a needed column is missing.
            pub fn reader(self, table: &Table<'_>, beside: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
                Ok(match self {
                    $(Self::$kind => {
                        let read = $file::reader(table, beside)?;
                        Box::new(move |cells| read(cells).map(Truth::$kind))
                    })+
                })
            }

            /// Returns the state that all verifiers of this kind share. Starts the user's program, if this kind needs one.
            /// Returns an error if the program isn't set or can't be started.
            pub fn grading(self, settings: Settings) -> anyhow::Result<Grading> {
                let program = match self {
                    $(Self::$kind => $file::Truth::program(&settings)?,)+
                };
                Ok(Grading::new(settings, program.map(Program::new).transpose()?))
            }

            /// Returns the version of this kind's verifier. Verdicts of two releases with the same version are equal.
            pub fn version(self) -> u32 {
                match self {
                    $(Self::$kind => $version,)+
                }
            }

            /// Returns the fields of an input line of `fgrpo verify`, or `None` if the command doesn't support this kind.
            pub fn line(self) -> Option<&'static str> {
                match self {
                    $(Self::$kind => $line,)+
                }
            }

            /// Creates the verifier for an input line of `fgrpo verify`.
            pub fn verifier_of_line(self, line: &[u8], grading: &Grading) -> Result<Box<dyn Verifier>, String> {
                match self {
                    $(Self::$kind => $file::Truth::verifier_of_line(line, grading),)+
                }
            }
        }
    };
}

// Increase a kind's version with every change that can change a verdict: stored verdicts of another version are recomputed.
// The last entry of each row describes the fields of an input line of `fgrpo verify`.
kinds! {
    Math(math) version 11 = "math": "a mathematical answer in a box", Some(r#"{"gold", "response"}"#);
    Choice(choice) version 9 = "choice": "the letter of an option", Some(r#"{"gold", "response"}, optionally "options""#);
    IfEval(ifeval) version 1 = "ifeval": "instructions that a program can check",
        Some(r#"{"instruction_id_list", "kwargs", "prompt", "response"}"#);
    SynLogic(synlogic) version 7 = "synlogic": "the 35 logic tasks", Some(r#"{"task", "game_data_str", "response"}"#);
    Code(code) version 2 = "code": "Python programs that must pass tests, in a sandbox",
        Some(r#"{"tests": [{"input", "output"}] or {"asserts": [...]}, "entry", "response"}: a Python program in a sandbox"#);
    JsonSchema(json_schema) version 2 = "json-schema": "JSON that must fit a JSON schema",
        Some(r#"{"schema", "response"}: JSON that must fit a JSON schema"#);
    Regex(regex) version 2 = "regex": "texts that must match a regular expression",
        Some(r#"{"pattern", "response"}: a regular expression to be found in the answer"#);
    Command(command) version 1 = "command": "graded by your own program",
        Some(r#"{"problem", "response"}: judged by your own program (--command)"#);
    Python(python) version 1 = "python": "graded by your own Python function",
        Some(r#"{"response", ...}: judged by your own Python function (--grader FILE.py:FUNCTION)"#);
    Environment(environment) version 1 = "environment": "conversations with your own environment, whose tools the model calls",
        Some(r#"{"response"} beside the columns, optionally "calls": [{"name", "arguments"}]"#);
    Maze(maze) version 1 = "maze": "mazes, which are generated and need no file", None;
}

impl TaskKind {
    /// Whether the verdicts depend on the mode. They do for math and SynLogic, whose reference graders judge differently.
    pub fn has_modes(self) -> bool {
        matches!(self, Self::Math | Self::SynLogic)
    }

    /// Returns the settings that make verdicts comparable with published ones.
    pub fn reference_settings(self) -> Settings {
        let mode = if self.has_modes() { Mode::REFERENCE } else { Mode::TRAINING };
        Settings { mode, ..Settings::default() }
    }

    /// Returns the first changed setting without an effect on problems of this kind: its key, and the kind that it is
    /// for.
    pub fn ignored(self, settings: &Settings) -> Option<(&'static str, Self)> {
        let default = Settings::default();
        // Field by field and without `..`: a setting added later doesn't compile until it has its kind.
        let Settings {
            // The mode also decides whether the thoughts of any kind are graded.
            mode: _,
            format_gate,
            percent_as_number,
            accept_unfinished,
            choice,
            command,
            code,
            maze: _,
            reasoning: _,
            max_turns: _,
            template_tags: _,
        } = settings;
        let all = [
            ("format_gate", Self::SynLogic, *format_gate != default.format_gate),
            ("percent_as_number", Self::Math, *percent_as_number),
            ("accept_unfinished", Self::Math, *accept_unfinished),
            ("choice", Self::Choice, *choice != default.choice),
            ("command", Self::Command, command.is_some()),
            ("code", Self::Code, !code.is_default()),
        ];
        let ignored = all.into_iter().find(|(_, kind, is_set)| *is_set && *kind != self);
        ignored.map(|(key, kind, _)| (key, kind))
    }
}

impl Truth {
    /// Whether two copies of a problem have the same answer. White space and the id column `id` are ignored.
    pub fn agrees_with(&self, other: &Self, id: Option<&str>) -> bool {
        let same = |a: &Row, b: &Row| {
            let answer = |row: &Row| row.iter().filter(|(name, _)| Some(name.as_str()) != id).count();
            answer(a) == answer(b)
                && a.iter().all(|(name, value)| Some(name.as_str()) == id || b.get(name) == Some(value))
        };
        match (self, other) {
            (Self::Python(a), Self::Python(b)) => same(&a.columns, &b.columns),
            (
                Self::Command(command::Truth { row: Value::Object(a) }),
                Self::Command(command::Truth { row: Value::Object(b) }),
            ) => same(a, b),
            (Self::Math(a), Self::Math(b)) => {
                let bare = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
                bare(&a.gold) == bare(&b.gold)
            }
            _ => self == other,
        }
    }

    /// Returns a hash of the reference answer. If it changes, stored scores of the problem are recomputed.
    pub fn fingerprint(&self) -> String {
        let text = match self {
            Self::Maze(truth) => truth.maze.ascii(&[]),
            other => serde_json::to_string(other).expect("reference answers are JSON"),
        };
        short_hash(&text)
    }
}

/// Hashes a string to 16 hexadecimal digits.
pub fn short_hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(8).map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truths_are_written_with_their_kind() {
        let truth = Truth::Math(math::Truth { gold: "1".into() });
        assert_eq!(serde_json::to_string(&truth).unwrap(), r#"{"kind":"math","gold":"1"}"#);
    }
}
