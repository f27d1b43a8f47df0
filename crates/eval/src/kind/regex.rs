//! Reads and grades problems whose answer must match a regular expression.

use crate::graded::{Graded, Response};
use crate::row::{Row, Table, Unusable, shown, value};
use crate::verifier::{Beside, Grading, Reader, Reference, Unreadable, Verifier};
use fgrpo_verify::ifeval::pattern::{Pattern, PatternError};
use fgrpo_verify::verdict::Verdict;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A pattern that must match somewhere in an answer. With `^` and `$`, it must match the whole answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Pattern in Python's syntax, without look-around and back-references, so that every search takes linear time.
    #[serde(alias = "regex")]
    pub pattern: String,
}

impl Truth {
    fn compiled(&self) -> Result<Pattern, PatternError> {
        Pattern::linear(&self.pattern)
    }
}

impl Reference for Truth {
    fn verifier(&self, _: &Grading) -> Result<Box<dyn Verifier>, Unreadable> {
        match self.compiled() {
            Ok(pattern) => Ok(Box::new(pattern)),
            Err(error) => Err(Unreadable::new("bad_pattern", error)),
        }
    }

    fn read_as(&self) -> Option<String> {
        Some(format!("the pattern {}", self.pattern))
    }
}

impl Verifier for Pattern {
    fn check(&self, response: Response<'_>) -> Graded {
        // Blank lines between thoughts and the answer belong to the chat's format. All other white space is the policy's.
        let after_thoughts = response.answer.len() < response.text.len();
        let answer =
            if after_thoughts { response.answer.trim_start_matches(['\r', '\n']) } else { response.answer };
        match self.is_found(answer) {
            Ok(true) => Graded::new(Verdict::Correct, "match"),
            Ok(false) => Graded::new(Verdict::Wrong, "no_match"),
            Err(_) => Graded::new(Verdict::Wrong, "budget"),
        }
    }
}

/// Finds the column of the pattern.
pub fn reader(table: &Table<'_>, beside: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
    let usual = ["pattern", "regex"];
    let column = table.column("the pattern", beside.answer, &usual)?;
    let column = table.require("the pattern", column, &usual)?;
    Ok(Box::new(move |cells| {
        let text = |row: &Row| value(row, &column).and_then(Value::as_str).map(str::to_owned);
        let pattern = text(cells.row).filter(|pattern| !pattern.is_empty());
        let pattern = pattern.ok_or_else(|| Unusable::new("no pattern", shown(cells.row, &column)))?;
        let truth = Truth { pattern };
        truth.compiled().map_err(|error| Unusable::new("a pattern that can't be used", error.to_string()))?;
        Ok(truth)
    }))
}
