//! Instructions that can be checked by a program, in the format of IFEval.

use crate::graded::{Followed, Graded, Response};
use crate::row::{Table, Unusable, shown, structured, value};
use crate::verifier::{Beside, Grading, Reader, Reference, Unreadable, Verifier};
use fgrpo_verify::ifeval;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Instructions and their arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The instruction types.
    pub instruction_id_list: Vec<String>,
    /// One object of arguments per instruction, without nulls.
    pub kwargs: Vec<Value>,
}

impl Truth {
    fn prepared(&self) -> Result<ifeval::Verifier, ifeval::Error> {
        ifeval::Verifier::new(&self.instruction_id_list, &self.kwargs)
    }
}

impl Reference for Truth {
    fn verifier(&self, _: &Grading) -> Result<Box<dyn Verifier>, Unreadable> {
        match self.prepared() {
            Ok(verifier) => Ok(Box::new(verifier)),
            Err(error) => Err(Unreadable::new(error.code(), error)),
        }
    }

    fn read_as(&self) -> Option<String> {
        let instructions = self.instruction_id_list.iter().zip(&self.kwargs);
        let instructions: Vec<String> = instructions.map(|(id, kwargs)| format!("{id} {kwargs}")).collect();
        Some(format!("instructions {}", instructions.join(", ")))
    }
}

impl Verifier for ifeval::Verifier {
    fn check(&self, response: Response<'_>) -> Graded {
        Self::check(self, response.answer).into()
    }

    fn explain(&self, response: Response<'_>) -> Graded {
        let ifeval::Checked { outcome, strict, loose } = self.check_both(response.answer);
        Graded { followed: Some(Followed { strict, loose }), ..outcome.into() }
    }
}

/// Finds the columns of the instructions and their arguments.
pub fn reader(table: &Table<'_>, _: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
    // Rows of slime and verl have these fields inside another column.
    let need = |what, name: &str| {
        let places = [name.to_owned(), format!("metadata.{name}"), format!("extra_info.{name}")];
        table.require(what, places.iter().find_map(|place| table.spelling(place)), &[name])
    };
    let instructions = need("the instructions", "instruction_id_list")?;
    let arguments = need("the instructions' arguments", "kwargs")?;
    Ok(Box::new(move |cells| {
        let list = |name: &str| match value(cells.row, name).map(structured) {
            Some(Value::Array(list)) => Some(list),
            _ => None,
        };
        let no_ids = || Unusable::new("no list of instructions", shown(cells.row, &instructions));
        let ids = list(&instructions).ok_or_else(no_ids)?;
        let ids: Option<Vec<String>> = ids.iter().map(|v| v.as_str().map(str::to_owned)).collect();
        let instruction_id_list = ids.filter(|ids| !ids.is_empty()).ok_or_else(no_ids)?;
        let kwargs = list(&arguments)
            .ok_or_else(|| Unusable::new("no list of arguments", shown(cells.row, &arguments)))?
            .iter()
            .map(|entry| match structured(entry) {
                Value::Object(object) => object.into_iter().filter(|(_, v)| !v.is_null()).collect(),
                Value::Null => Value::Object(Map::new()),
                other => other,
            })
            .collect();
        let truth = Truth { instruction_id_list, kwargs };
        truth
            .prepared()
            .map_err(|error| Unusable::new("instructions that cannot be checked", error.to_string()))?;
        Ok(truth)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_no_votes() {
        let truth = Truth { instruction_id_list: vec![], kwargs: vec![] };
        assert_eq!(truth.vote("\\boxed{1}"), None);
    }
}
