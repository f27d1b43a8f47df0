//! A problem's stored data (`game_data_str`): question, answer, metadata.

use dashu_int::IBig;

use super::json;
use super::value::Value;
use super::{Error, Task};

/// The decoded `game_data_str`.
pub(crate) struct Game {
    task: Task,
    pub(crate) question: String,
    pub(crate) answer: Value,
    metadata: Value,
}

impl Game {
    pub(crate) fn parse(task: Task, text: &str) -> Result<Self, Error> {
        let data = json::parse(text).filter(|v| matches!(v, Value::Dict(_))).ok_or(Error::NotJson(task))?;
        let field = |name: &str| data.get(name).cloned().unwrap_or(Value::None);
        Ok(Self {
            task,
            question: field("question").as_str().unwrap_or_default().to_owned(),
            answer: field("answer"),
            metadata: field("metadata"),
        })
    }

    pub(crate) fn error(&self, field: &'static str, wanted: &'static str) -> Error {
        Error::Field { task: self.task, field, wanted }
    }

    /// Returns the answer as text.
    pub(crate) fn answer_text(&self) -> Result<String, Error> {
        self.answer.as_str().map(str::to_owned).ok_or_else(|| self.error("answer", "text"))
    }

    pub(crate) fn get(&self, field: &'static str) -> Option<&Value> {
        self.metadata.get(field)
    }

    pub(crate) fn field(&self, field: &'static str) -> Result<&Value, Error> {
        self.get(field).ok_or_else(|| self.error(field, "a value in metadata"))
    }

    pub(crate) fn text(&self, field: &'static str) -> Result<String, Error> {
        self.field(field)?.as_str().map(str::to_owned).ok_or_else(|| self.error(field, "text"))
    }

    /// Returns a size from 0 to 1000 from the metadata.
    pub(crate) fn size(&self, field: &'static str) -> Result<usize, Error> {
        let n = self.field(field)?.as_i64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= 1000);
        n.ok_or_else(|| self.error(field, "a whole number from 0 to 1000"))
    }

    /// Returns a list from the metadata, with each value converted by `read`. An error names the field and `wanted`.
    pub(crate) fn list<T>(
        &self,
        field: &'static str,
        wanted: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let items = self.field(field)?.as_list().map(|v| v.iter().map(&read).collect::<Option<Vec<T>>>());
        items.flatten().ok_or_else(|| self.error(field, wanted))
    }

    /// Returns a list of lists from the metadata, with each value converted by `read`.
    pub(crate) fn grid<T>(
        &self,
        field: &'static str,
        wanted: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<Vec<T>>, Error> {
        self.list(field, wanted, |row| row.as_list()?.iter().map(&read).collect())
    }

    /// Returns a square grid of at most 1000 rows from the metadata, with each value converted by `read`.
    pub(crate) fn square<T>(
        &self,
        field: &'static str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<Vec<T>>, Error> {
        const WANTED: &str = "a square grid";
        let grid = self.grid(field, WANTED, read)?;
        let n = grid.len();
        if n > 1000 || grid.iter().any(|row| row.len() != n) {
            return Err(self.error(field, WANTED));
        }
        Ok(grid)
    }

    pub(crate) fn ints(&self, field: &'static str) -> Result<Vec<i64>, Error> {
        self.list(field, "a list of whole numbers", Value::as_i64)
    }
}

/// Reads a cell that is stored as `[row, column]`.
pub(crate) fn pair(v: &Value) -> Option<(i64, i64)> {
    if let [a, b] = v.as_sequence()? { Some((a.as_i64()?, b.as_i64()?)) } else { None }
}

/// Returns the text of a cell.
pub(crate) fn cell(v: &Value) -> Option<String> {
    v.as_str().map(str::to_owned)
}

/// Reads a stored value like Python's `int()`: a number or a string with a number, of any size.
pub(crate) fn int(v: &Value) -> Option<IBig> {
    match v {
        Value::Int(n) => Some(n.clone()),
        Value::Bool(b) => Some(IBig::from(*b)),
        Value::Float(x) => super::value::float_to_int(x.trunc()),
        Value::Str(s) => super::python::int(s),
        _ => None,
    }
}
