//! Problems graded by the user's own program.

use crate::kind::python;
use crate::program;
use crate::row::Table;
use crate::verifier::{Beside, Grading, Reader, Reference, Settings, Unreadable, Verifier};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The whole row, which the program receives: only the program knows which part is the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The row.
    #[serde(alias = "problem")]
    pub row: Value,
}

impl Reference for Truth {
    fn verifier(&self, grading: &Grading) -> Result<Box<dyn Verifier>, Unreadable> {
        grading.by_program(self.row.clone(), Unreadable::new("no_command", "no program was started"))
    }

    fn read_as(&self) -> Option<String> {
        Some(python::received("program, which", self.row.as_object()?))
    }

    fn program(settings: &Settings) -> anyhow::Result<Option<program::Settings>> {
        if settings.command.is_none() {
            bad_input!("task command: name the program that grades");
        }
        Ok(settings.command.clone())
    }
}

/// Returns a reader that takes every column as part of the reference answer.
pub fn reader(_: &Table<'_>, _: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
    Ok(Box::new(|cells| Ok(Truth { row: Value::Object(cells.row.clone()) })))
}
