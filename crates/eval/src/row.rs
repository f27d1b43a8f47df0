//! Rows of a data set, and functions that find and read their columns.

use fgrpo_verify::synlogic::python;
use fgrpo_verify::synlogic::value::Value as Literal;
use serde_json::{Map, Value};

/// One row: values by column.
pub type Row = Map<String, Value>;

/// Reason why a row isn't a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// The reason, the same string for all rows with this reason.
    pub reason: &'static str,
    /// The offending value of the row, shortened.
    pub value: String,
}

impl Unusable {
    /// Creates a reason with the offending value.
    pub fn new(reason: &'static str, value: String) -> Self {
        Self { reason, value }
    }
}

/// Maximum number of characters of a value that a message shows.
const SHOWN: usize = 80;

/// Formats a column with its value as shortened JSON, such as `answer: null`.
pub fn shown(row: &Row, column: &str) -> String {
    match value(row, column) {
        Some(value) => format!("{column}: {}", shortened(&value.to_string())),
        None => format!("no column {column}"),
    }
}

/// Shortens a string and puts it in quotes.
pub fn shown_text(text: &str) -> String {
    // Only the beginning is escaped, since a prompt may have megabytes.
    let start: String = text.chars().take(SHOWN + 1).collect();
    shortened(&Value::String(start).to_string())
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Rows of a data set, for looking up columns.
pub struct Table<'a> {
    /// Kind of task, for messages.
    pub kind: &'a str,
    /// The rows.
    pub rows: &'a [Row],
}

impl Table<'_> {
    /// Returns the first of these names that is a column.
    pub fn first_of(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.spelling(name))
    }

    /// Returns the column named by the user, or the first of the usual names that is a column.
    ///
    /// Returns an error if the column named by the user doesn't exist.
    pub fn column(&self, what: &str, name: Option<&str>, usual: &[&str]) -> anyhow::Result<Option<String>> {
        let Some(name) = name else { return Ok(self.first_of(usual)) };
        match self.spelling(name) {
            Some(name) => Ok(Some(name)),
            None => {
                bad_input!("column for {what}: there is no column {name:?}; the columns are {}", self.names())
            }
        }
    }

    /// Returns an error if a column that the kind of task needs is missing.
    pub fn require(&self, what: &str, column: Option<String>, usual: &[&str]) -> anyhow::Result<String> {
        match column {
            Some(name) => Ok(name),
            None => bad_input!(
                "{} data needs a column for {what}, such as {}; the columns are {}",
                self.kind,
                usual.join(", "),
                self.names()
            ),
        }
    }

    /// Returns the spelling of a column name in the data, ignoring case.
    pub fn spelling(&self, name: &str) -> Option<String> {
        // Only the first rows are searched. A column that appears only in later rows isn't recognised.
        self.rows.iter().take(50).find_map(|row| find(row, name))
    }

    fn names(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for name in self.rows.iter().take(50).flat_map(Map::keys) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
            if names.len() > 30 {
                names.push("...");
                break;
            }
        }
        names.join(", ")
    }
}

/// Returns the value of a column. A dot in the name reaches into an object.
pub fn value<'a>(row: &'a Row, name: &str) -> Option<&'a Value> {
    if let Some(value) = row.get(name) {
        return Some(value);
    }
    let (outer, inner) = name.split_once('.')?;
    value(row.get(outer)?.as_object()?, inner)
}

fn find(row: &Row, name: &str) -> Option<String> {
    if let Some(key) = row.keys().find(|key| key.eq_ignore_ascii_case(name)) {
        return Some(key.clone());
    }
    let (outer, inner) = name.split_once('.')?;
    let outer = row.keys().find(|key| key.eq_ignore_ascii_case(outer))?;
    let inner = find(row[outer].as_object()?, inner)?;
    Some(format!("{outer}.{inner}"))
}

/// Parses a string that contains JSON or a Python literal, because CSV has only strings. Returns other values
/// unchanged.
pub fn structured(value: &Value) -> Value {
    match value {
        Value::String(text) if text.trim_start().starts_with(['[', '{']) => {
            let parsed = serde_json::from_str(text).ok().or_else(|| of_python(text));
            parsed.unwrap_or_else(|| value.clone())
        }
        other => other.clone(),
    }
}

/// Parses a list or dictionary as Python or NumPy prints it. NumPy omits the commas between the dictionaries of a list.
fn of_python(text: &str) -> Option<Value> {
    let lists = text.lines().map(|line| match line.trim_end() {
        end if end.ends_with('}') => format!("{end},\n"),
        _ => format!("{line}\n"),
    });
    let literal = python::literal(text)
        .or_else(|_| python::literal(lists.collect::<String>().trim_end_matches([',', '\n'])));
    literal.ok().and_then(json_of)
}

fn json_of(value: Literal) -> Option<Value> {
    let list = |items: Vec<Literal>| items.into_iter().map(json_of).collect::<Option<Vec<Value>>>();
    Some(match value {
        Literal::None => Value::Null,
        Literal::Bool(truth) => truth.into(),
        Literal::Int(number) => number.to_string().parse().unwrap_or_else(|_| number.to_string().into()),
        Literal::Float(number) => number.into(),
        Literal::Str(text) => text.into(),
        Literal::List(items) | Literal::Tuple(items) => Value::Array(list(items)?),
        Literal::Dict(entries) => {
            let entry = |(key, value)| match key {
                Literal::Str(key) => Some((key, json_of(value)?)),
                _ => None,
            };
            Value::Object(entries.into_iter().map(entry).collect::<Option<Map<String, Value>>>()?)
        }
        _ => return None,
    })
}

/// Converts a scalar to a string. An object with a single field that isn't null is read as that field.
pub fn plain_text(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        Value::Number(n) => Some(match n.as_f64() {
            // A numeric column with gaps turns 27 into 27.0.
            Some(x) if n.as_i64().is_none() && x.fract() == 0.0 && x.abs() < 9e15 => {
                format!("{x:.0}")
            }
            _ => n.to_string(),
        }),
        Value::Bool(b) => Some(b.to_string()),
        Value::Object(fields) => {
            let mut filled = fields.values().filter(|value| !value.is_null());
            filled.next().filter(|_| filled.next().is_none()).and_then(plain_text)
        }
        _ => None,
    }
}

/// Returns the name of a value's type, for messages.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
