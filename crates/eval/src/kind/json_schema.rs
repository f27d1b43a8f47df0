//! JSON that must fit a schema.

use super::fenced;
use crate::graded::{Graded, Response};
use crate::io::harmless::shortened;
use crate::row::{Table, Unusable, shown, shown_text, structured, value};
use crate::verifier::{Beside, Grading, Reader, Reference, Unreadable, Verifier};
use fgrpo_verify::verdict::Verdict;
use jsonschema::{PatternOptions, Validator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Characters of an error that are shown.
const SHOWN: usize = 300;

/// A JSON schema, of the draft that it names, else 2020-12.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The schema, or a text that contains it.
    #[serde(alias = "json_schema")]
    pub schema: Value,
}

impl Truth {
    fn compiled(&self) -> Result<Validator, String> {
        let schema = structured(&self.schema);
        // A text, a number or a list is no schema; the crate would take some of them.
        if !(schema.is_object() || schema.is_boolean()) {
            return Err(format!("found {}, wanted an object", shown_text(&schema.to_string())));
        }
        // Patterns without look-around, which take linear time; references to other files aren't followed.
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        options.build(&schema).map_err(|error| format!("{}: {error}", error.instance_path()))
    }
}

impl Reference for Truth {
    fn verifier(&self, _: &Grading) -> Result<Box<dyn Verifier>, Unreadable> {
        match self.compiled() {
            Ok(validator) => {
                let schema = structured(&self.schema).to_string();
                let refers = ["\"$ref\":", "\"$dynamicRef\":", "\"$recursiveRef\":"]
                    .iter()
                    .any(|key| schema.contains(key));
                Ok(Box::new(Prepared { validator, refers }))
            }
            Err(error) => Err(Unreadable::new("bad_schema", error)),
        }
    }

    fn read_as(&self) -> Option<String> {
        Some(format!("the schema {}", structured(&self.schema)))
    }
}

/// The JSON of an answer: its last fenced block, or all of it.
fn json_in(answer: &str) -> Option<Value> {
    let blocks = fenced::blocks(answer, |line| line.starts_with(['{', '[']));
    let last = blocks.iter().rfind(|block| ["", "json"].contains(&&*block.language));
    serde_json::from_str(last.map_or(answer, |block| &block.text)).ok()
}

struct Prepared {
    validator: Validator,
    /// Whether the schema has references: it may be recursive.
    refers: bool,
}

impl Verifier for Prepared {
    fn check(&self, response: Response<'_>) -> Graded {
        match json_in(response.answer) {
            None => Graded::new(Verdict::Unparsed, "no_json"),
            // It remembers what was found of each part, so that alternatives which refer to each other take linear time.
            Some(found) if self.validator.is_valid(&found) => Graded::new(Verdict::Correct, "valid"),
            Some(_) => Graded::new(Verdict::Wrong, "invalid"),
        }
    }

    fn explain(&self, response: Response<'_>) -> Graded {
        let graded = self.check(response);
        // The search for the reason doesn't remember: in recursive alternatives it would double with each level.
        let found = json_in(response.answer).filter(|_| graded.verdict == Verdict::Wrong && !self.refers);
        let Some(Err(error)) = found.as_ref().map(|found| self.validator.validate(found)) else {
            return graded;
        };
        let why = shortened(&error.to_string(), SHOWN);
        Graded::new(Verdict::Wrong, format!("invalid: {}: {why}", error.instance_path()))
    }
}

/// Finds the column of the schema.
pub fn reader(table: &Table<'_>, beside: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
    let usual = ["schema", "json_schema", "reward_model.ground_truth"];
    let column = table.column("the schema", beside.answer, &usual)?;
    let column = table.require("the schema", column, &usual)?;
    Ok(Box::new(move |cells| {
        let schema = value(cells.row, &column).filter(|schema| !schema.is_null());
        let schema = schema.ok_or_else(|| Unusable::new("no schema", shown(cells.row, &column)))?;
        let truth = Truth { schema: structured(schema) };
        truth.compiled().map_err(|error| Unusable::new("a schema that can't be used", error))?;
        Ok(truth)
    }))
}
