//! Files into rows of named values: JSON lines, a JSON array, CSV or TSV, Parquet, or a folder of
//! such files.

use crate::bad_input;
use crate::failure::OrBadInput;
use anyhow::Context;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Map, Value};
use std::fs::File;
use std::path::{Path, PathBuf};

/// One row: values by column.
pub type Row = Map<String, Value>;

const FORMATS: &str =
    "a file ending in .jsonl, .ndjson, .json, .csv, .tsv or .parquet, or a folder of such files";

/// Reads all rows of a file, or of the files of a folder in the order of their names.
///
/// # Errors
/// If the file cannot be opened or is not what its name says.
pub fn read(path: &Path) -> anyhow::Result<Vec<Row>> {
    if path.is_dir() {
        let mut files: Vec<PathBuf> = std::fs::read_dir(path)
            .with_context(|| format!("{}", path.display()))?
            .filter_map(|entry| entry.ok().map(|e| e.path()))
            .filter(|file| file.is_file() && format_of(file).is_some())
            .collect();
        files.sort();
        if files.is_empty() {
            bad_input!("{}: found no data file, wanted {FORMATS}", path.display());
        }
        let mut rows = Vec::new();
        for file in files {
            rows.extend(read(&file)?);
        }
        return Ok(rows);
    }
    let at = || format!("{}", path.display());
    match format_of(path) {
        Some(Format::Json) => json(&text(path)?).with_context(at).or_bad_input(),
        Some(Format::Separated(separator)) => {
            separated(&text(path)?, separator).with_context(at).or_bad_input()
        }
        Some(Format::Parquet) => parquet_rows(path).with_context(at).or_bad_input(),
        None => bad_input!("{}: format not recognised, wanted {FORMATS}", path.display()),
    }
}

enum Format {
    Json,
    Separated(u8),
    Parquet,
}

fn format_of(path: &Path) -> Option<Format> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    match ending.as_str() {
        "jsonl" | "ndjson" | "json" => Some(Format::Json),
        "csv" => Some(Format::Separated(b',')),
        "tsv" => Some(Format::Separated(b'\t')),
        "parquet" => Some(Format::Parquet),
        _ => None,
    }
}

/// The text of a file, without a byte-order mark. A missing file is the caller's mistake.
fn text(path: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("{}", path.display())).or_bad_input()?;
    let text =
        String::from_utf8(bytes).with_context(|| format!("{}: not UTF-8", path.display())).or_bad_input()?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// An array of objects, an object with such an array under `data`, or an object on every line.
fn json(text: &str) -> anyhow::Result<Vec<Row>> {
    let objects = |values: Vec<Value>| {
        let row = |(i, value)| match value {
            Value::Object(row) => Ok(row),
            other => anyhow::bail!("entry {}: found {}, wanted an object", i + 1, kind(&other)),
        };
        values.into_iter().enumerate().map(row).collect()
    };
    if text.trim_start().starts_with('[') {
        return objects(serde_json::from_str(text).context("as a JSON array")?);
    }
    let lines: Result<Vec<Row>, anyhow::Error> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(i, line)| {
            serde_json::from_str(line).with_context(|| format!("line {}: not a JSON object", i + 1))
        })
        .collect();
    match lines {
        Ok(rows) => Ok(rows),
        // One object over several lines.
        Err(error) => match serde_json::from_str::<Row>(text) {
            Ok(mut whole) => match whole.remove("data") {
                Some(Value::Array(values)) => objects(values),
                _ => anyhow::bail!(
                    "found one JSON object, wanted an array, or lines of objects, or an array under \"data\""
                ),
            },
            Err(_) => Err(error),
        },
    }
}

/// What a value is, for messages.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn separated(text: &str, separator: u8) -> anyhow::Result<Vec<Row>> {
    let mut reader = csv::ReaderBuilder::new().delimiter(separator).from_reader(text.as_bytes());
    let header = reader.headers()?.clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record?;
        rows.push(
            header
                .iter()
                .zip(record.iter())
                .map(|(name, value)| (name.trim().to_owned(), Value::String(value.to_owned())))
                .collect(),
        );
    }
    Ok(rows)
}

fn parquet_rows(path: &Path) -> anyhow::Result<Vec<Row>> {
    let reader = SerializedFileReader::new(File::open(path)?).context("as Parquet")?;
    let mut rows = Vec::new();
    for row in reader.get_row_iter(None).context("as Parquet")? {
        let row = row.with_context(|| format!("row {}", rows.len() + 1))?;
        rows.push(row.into_columns().iter().map(|(n, f)| (n.clone(), field(f))).collect());
    }
    Ok(rows)
}

/// A Parquet field as JSON.
fn field(value: &Field) -> Value {
    match value {
        Field::Null => Value::Null,
        Field::Bool(x) => (*x).into(),
        Field::Byte(x) => (*x).into(),
        Field::Short(x) => (*x).into(),
        Field::Int(x) | Field::Date(x) | Field::TimeMillis(x) => (*x).into(),
        Field::Long(x) | Field::TimeMicros(x) | Field::TimestampMillis(x) | Field::TimestampMicros(x) => {
            (*x).into()
        }
        Field::UByte(x) => (*x).into(),
        Field::UShort(x) => (*x).into(),
        Field::UInt(x) => (*x).into(),
        Field::ULong(x) => (*x).into(),
        Field::Float16(x) => f32::from(*x).into(),
        Field::Float(x) => (*x).into(),
        Field::Double(x) => (*x).into(),
        Field::Str(x) => x.clone().into(),
        // Writers that do not mark text as such leave it as bytes.
        Field::Bytes(x) => String::from_utf8_lossy(x.data()).into_owned().into(),
        Field::Group(row) => {
            Value::Object(row.get_column_iter().map(|(name, value)| (name.clone(), field(value))).collect())
        }
        Field::ListInternal(list) => Value::Array(list.elements().iter().map(field).collect()),
        Field::MapInternal(map) => Value::Object(
            map.entries()
                .iter()
                .map(|(key, value)| {
                    let key = match field(key) {
                        Value::String(s) => s,
                        other => other.to_string(),
                    };
                    (key, field(value))
                })
                .collect(),
        ),
        Field::Decimal(_) => Value::String(value.to_string()),
    }
}

/// A list of texts as Python prints it, such as `['a', "it's"]`; `None` for anything else.
pub(crate) fn python_list(text: &str) -> Option<Vec<String>> {
    let mut chars = text.trim().strip_prefix('[')?.strip_suffix(']')?.chars().peekable();
    let mut list = Vec::new();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let Some(quote) = chars.next() else { return Some(list) };
        if !matches!(quote, '\'' | '"') {
            return None;
        }
        let mut item = String::new();
        loop {
            match chars.next()? {
                c if c == quote => break,
                '\\' => item.push(match chars.next()? {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    c @ ('\\' | '\'' | '"') => c,
                    _ => return None,
                }),
                c => item.push(c),
            }
        }
        list.push(item);
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        match chars.next() {
            None => return Some(list),
            Some(',') => {}
            Some(_) => return None,
        }
    }
}
