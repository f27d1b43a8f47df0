//! Problems graded by the user's Python function, which worker processes call (`_grader.py`).

use crate::io::json;
use crate::kind::short_hash;
use crate::program;
use crate::row::{Table, Unusable, shown};
use crate::verifier::{Beside, Grading, Reader, Reference, Settings, Unreadable, Verifier};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Source of the worker process that calls the function. The Python package has it as a module.
const WORKER: &str = include_str!("../../../py/python/fgrpo/_grader.py");

/// Source of the worker process that calls a function which estimates advantages.
pub const ESTIMATOR: &str = concat!(
    include_str!("../../../py/python/fgrpo/_estimator.py"),
    "\n\n",
    include_str!("../../../py/python/fgrpo/_grader.py")
);

/// The keyword arguments of the function, besides the completion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The columns of the row. `prompt` is added if the row lacks it; `answer` is the column that the user named, if any.
    pub columns: Map<String, Value>,
}

impl Reference for Truth {
    fn verifier(&self, grading: &Grading) -> Result<Box<dyn Verifier>, Unreadable> {
        grading.by_program(
            Value::Object(self.columns.clone()),
            Unreadable::new("no_grader", "no function was loaded"),
        )
    }

    fn read_as(&self) -> Option<String> {
        Some(received("function, which", &self.columns))
    }

    fn gold(&self) -> Option<String> {
        self.columns.get("answer").and_then(Value::as_str).map(str::to_owned)
    }

    fn program(settings: &Settings) -> anyhow::Result<Option<program::Settings>> {
        match settings.command.as_ref().filter(|program| program.is_function()) {
            Some(program) => worker(program, "grader", WORKER).map(Some),
            None => bad_input!(
                "a task of kind python needs a grader, the function that grades, as \"grade.py:reward\""
            ),
        }
    }

    fn verifier_of_line(line: &[u8], grading: &Grading) -> Result<Box<dyn Verifier>, String> {
        let mut columns: Map<String, Value> = json::parse(line).map_err(|why| why.to_string())?;
        for name in ["response", "completion", "pred"] {
            columns.shift_remove(name);
        }
        Self { columns }.verifier(grading).map_err(|unreadable| unreadable.message)
    }
}

/// Describes the grader and the columns that it receives.
pub(super) fn received(who: &str, columns: &Map<String, Value>) -> String {
    let columns: Vec<&str> = columns.keys().map(String::as_str).collect();
    format!("graded by your {who} receives the columns {}", columns.join(", "))
}

/// Returns the settings of the worker process that runs `code` for a function or class in a file, such as `grade.py:reward`.
/// `key` is the setting that names the function. A function of this process needs no worker.
///
/// # Errors
/// Bad input if it isn't written like this, or the file is missing.
pub fn worker(program: &program::Settings, key: &str, code: &str) -> anyhow::Result<program::Settings> {
    if program.in_process.is_some() {
        return Ok(program.clone());
    }
    let function = program.function.as_deref().unwrap_or_default();
    let Some((file, name)) = parts(function) else {
        bad_input!("{key}: expected FILE.py:NAME, for example \"grade.py:reward\", found {function:?}");
    };
    if !std::path::Path::new(file).is_file() {
        bad_input!("{key}: {file}: no such file");
    }
    let python = std::env::var("FGRPO_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let command = [&python, "-u", "-c", code, file, name].map(str::to_owned).to_vec();
    Ok(program::Settings { command, ..program.clone() })
}

/// Splits `grade.py:reward` into the file and the name. Returns `None` if the function isn't written like this.
pub fn parts(function: &str) -> Option<(&str, &str)> {
    function.rsplit_once(':').filter(|(file, name)| file.ends_with(".py") && !name.is_empty())
}

/// Returns the name of a function with a hash of its file, so that it changes whenever the file changes.
pub fn identity(function: &str) -> String {
    let contents = parts(function).and_then(|(file, _)| std::fs::read(file).ok()).unwrap_or_default();
    format!("{function}/{}", &short_hash(&String::from_utf8_lossy(&contents))[..8])
}

/// Hashes the function's file, or the files that a command names. If the hash changes, stored verdicts are recomputed.
pub(crate) fn file_hash(settings: &Settings) -> Option<String> {
    let program = settings.command.as_ref()?;
    let function = program.function.as_ref().and_then(|function| parts(function));
    let files: Vec<&str> = match function {
        Some((file, _)) => vec![file],
        None => program.command.iter().map(String::as_str).collect(),
    };
    let contents = files.iter().filter_map(|file| std::fs::read(file).ok());
    Some(contents.map(|bytes| short_hash(&String::from_utf8_lossy(&bytes))).collect())
}

/// Returns a reader that passes every column as an argument and rejects a row whose answer is null, or an error if the
/// answer column that the user named is missing.
pub fn reader(table: &Table<'_>, beside: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
    let answer = table.column("answer", beside.answer, &[])?;
    let prompt = beside.prompt.to_owned();
    Ok(Box::new(move |cells| {
        let mut columns = cells.row.clone();
        if let (false, Some(value)) = (columns.contains_key("prompt"), crate::row::value(cells.row, &prompt))
        {
            columns.insert("prompt".to_owned(), value.clone());
        }
        if let Some(value) = answer.as_deref().and_then(|name| crate::row::value(cells.row, name)) {
            columns.insert("answer".to_owned(), value.clone());
        }
        if columns.get("answer").is_some_and(Value::is_null) {
            return Err(Unusable::new("empty answer", shown(&columns, "answer")));
        }
        Ok(Truth { columns })
    }))
}
