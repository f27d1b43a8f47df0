//! Reads files into rows of named values: JSON lines, a JSON array, CSV or TSV (plain or compressed), Parquet, or a
//! folder of such files.

use super::format::{FORMATS, FileFormat};
use crate::failure::OrBadInput;
use crate::io::confined::{self, Limits};
use crate::io::files;
use crate::io::json;
use crate::io::lines::Lines;
use crate::row::{Row, type_name};
use anyhow::Context;
use fgrpo_files as input;
use parquet::basic::Compression;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum number of columns. Data sets have tens of columns, but files of numbers for other purposes may have millions.
pub const MOST_COLUMNS: usize = 10_000;

/// Reads all rows of a file, of a folder's files in name order, or of one split of a folder.
///
/// Returns an error if a file can't be opened or doesn't match its extension, or if the path has several splits.
pub fn read(path: &Path) -> anyhow::Result<Vec<Row>> {
    read_files(path).map(|(rows, _)| rows)
}

/// A file and its number of rows.
pub(super) type FileRows = (PathBuf, usize);

/// Reads rows like [`read`], and returns the files with the number of rows of each.
pub(super) fn read_files(path: &Path) -> anyhow::Result<(Vec<Row>, Vec<FileRows>)> {
    let (mut rows, mut files) = (Vec::new(), Vec::new());
    for file in super::shards::files(path)? {
        let mut file_rows = rows_of(&file)?;
        files.push((file, file_rows.len()));
        rows.append(&mut file_rows);
    }
    Ok((rows, files))
}

fn rows_of(path: &Path) -> anyhow::Result<Vec<Row>> {
    let at = || format!("{}", path.display());
    let Some(format) = FileFormat::of(path) else {
        bad_input!("{}: unknown format; a data set is {FORMATS}", path.display());
    };
    let mut start = Vec::new();
    let file = input::open(path).with_context(at).or_bad_input()?;
    let length = file.metadata().with_context(at)?.len();
    file.take(64).read_to_end(&mut start).with_context(at).or_bad_input()?;
    if start.starts_with(b"version https://git-lfs") {
        bad_input!(
            "{}: this is a Git LFS pointer, not the data; `git lfs pull` fetches the data",
            path.display()
        );
    }
    // A compressed file or a Parquet page may decompress to any size, and rows take more memory than their text.
    let owned = path.to_owned();
    confined::run(Limits::for_file(length), move || match format {
        FileFormat::Json => json(&text(&owned)?),
        FileFormat::Separated(separator) => separated(&text(&owned)?, separator),
        FileFormat::Parquet => parquet_rows(&owned),
    })
    .with_context(at)
    .or_bad_input()
}

/// Returns whether a path is read as a whole table and not as JSON lines: CSV, Parquet, or a folder of files.
pub fn is_table(path: &Path) -> bool {
    path.is_dir() || matches!(FileFormat::of(path), Some(FileFormat::Separated(_) | FileFormat::Parquet))
}

/// Returns an error if the path is a table, for commands that read only JSON lines.
pub fn require_lines(path: &Path) -> anyhow::Result<()> {
    if is_table(path) {
        bad_input!(
            "{}: this is {}; the command reads files of JSON lines (.jsonl, .jsonl.gz, .jsonl.zst)",
            path.display(),
            if path.is_dir() { "a folder" } else { "CSV or Parquet" }
        );
    }
    Ok(())
}

/// Calls `visit` with each row of a table or each object of JSON lines, and with its line or row number, which starts
/// at 1. JSON lines are streamed, so files of any length work.
///
/// Returns the errors of [`read`] and `visit`, and an error if a line isn't a JSON object.
pub fn each(path: &Path, mut visit: impl FnMut(usize, Row) -> anyhow::Result<()>) -> anyhow::Result<()> {
    if is_table(path) {
        return read(path)?.into_iter().zip(1..).try_for_each(|(row, number)| visit(number, row));
    }
    let mut lines = Lines::open(path)?;
    while let Some(line) = lines.next_line()? {
        visit(line.number, line.parse_of_others()?)?;
    }
    Ok(())
}

/// Returns the text of a file, without a byte-order mark.
fn text(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    files::open(path).and_then(|mut file| file.read_to_end(&mut bytes))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow::anyhow!("byte {at} isn't valid UTF-8")
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Reads an array of objects, an object with such an array under `data`, or one object per line.
fn json(text: &str) -> anyhow::Result<Vec<Row>> {
    let objects = |values: Vec<Value>| {
        let row = |(i, value)| match value {
            Value::Object(row) => Ok(row),
            other => anyhow::bail!("entry {}: expected an object, found {}", i + 1, type_name(&other)),
        };
        values.into_iter().enumerate().map(row).collect()
    };
    if text.trim_start().starts_with('[') {
        return objects(json::parse_of_others(text.as_bytes())?);
    }
    let lines: Result<Vec<Row>, anyhow::Error> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(i, line)| json::parse_of_others(line.as_bytes()).with_context(|| format!("line {}", i + 1)))
        .collect();
    match lines {
        Ok(rows) => Ok(rows),
        // A single object may span several lines.
        Err(error) => match json::parse_of_others::<Row>(text.as_bytes()) {
            Ok(mut whole) => match whole.remove("data") {
                Some(Value::Array(values)) => objects(values),
                _ => anyhow::bail!(
                    "expected an array, one object per line, or an array under \"data\", found a single JSON object"
                ),
            },
            Err(_) => Err(error),
        },
    }
}

fn separated(text: &str, separator: u8) -> anyhow::Result<Vec<Row>> {
    // In many languages, spreadsheet programs separate fields by semicolons.
    let header = text.lines().next().unwrap_or_default();
    let separator =
        if separator == b',' && !header.contains(',') && header.contains(';') { b';' } else { separator };
    // The reader accepts a quoted field that is cut off.
    if let Some(line) = unclosed_quote(text, separator) {
        anyhow::bail!("line {line}: a quoted field has no closing quote; the file may be cut off");
    }
    let mut reader = csv::ReaderBuilder::new().delimiter(separator).from_reader(text.as_bytes());
    let header = reader.headers()?.clone();
    if header.len() > MOST_COLUMNS {
        anyhow::bail!("the file has {} columns, but at most {MOST_COLUMNS} are allowed", header.len());
    }
    let names: Vec<&str> = header.iter().map(str::trim).collect();
    if let Some((_, twice)) = names.iter().enumerate().find(|(i, n)| !n.is_empty() && names[..*i].contains(n))
    {
        anyhow::bail!("two columns are named {twice}");
    }
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

/// Returns the line, from 1, of a quote that opens a field and is never closed. In a quoted field, a quote is written
/// twice. In other fields, a quote is an ordinary character.
fn unclosed_quote(text: &str, separator: u8) -> Option<usize> {
    let mut bytes = text.bytes().enumerate().peekable();
    let (mut opened, mut field_starts) = (None, true);
    while let Some((at, byte)) = bytes.next() {
        match (opened, byte) {
            (Some(_), b'"') if bytes.next_if(|(_, next)| *next == b'"').is_none() => opened = None,
            (Some(_), _) => {}
            (None, b'"') if field_starts => {
                opened = Some(at);
                field_starts = false;
            }
            (None, _) => field_starts = byte == separator || byte == b'\n' || byte == b'\r',
        }
    }
    opened.map(|at| 1 + text[..at].bytes().filter(|&b| b == b'\n').count())
}

fn parquet_rows(path: &Path) -> anyhow::Result<Vec<Row>> {
    let reader = SerializedFileReader::new(File::open(path)?).context("as Parquet")?;
    let mut columns = reader.metadata().row_groups().iter().flat_map(|group| group.columns());
    if columns.any(|column| matches!(column.compression(), Compression::BROTLI(_))) {
        anyhow::bail!(
            "Brotli compression isn't supported; `pyarrow.parquet.write_table(pyarrow.parquet.read_table(\"old.parquet\"), \"new.parquet\")` in Python rewrites the file with Snappy"
        );
    }
    let mut rows = Vec::new();
    for row in reader.get_row_iter(None).context("as Parquet")? {
        let row = row.with_context(|| format!("row {}", rows.len() + 1))?;
        rows.push(row.into_columns().iter().map(|(n, f)| (n.clone(), field(f))).collect());
    }
    Ok(rows)
}

/// Converts a 32-bit float to the number that its shortest decimal digits denote: 1234.56, not 1234.56005859375.
fn shortest(x: f32) -> Value {
    x.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// Converts a Parquet value to JSON.
fn field(value: &Field) -> Value {
    match value {
        Field::Null => Value::Null,
        Field::Bool(x) => (*x).into(),
        Field::Byte(x) => (*x).into(),
        Field::Short(x) => (*x).into(),
        Field::Int(x) => (*x).into(),
        Field::Long(x) => (*x).into(),
        Field::UByte(x) => (*x).into(),
        Field::UShort(x) => (*x).into(),
        Field::UInt(x) => (*x).into(),
        Field::ULong(x) => (*x).into(),
        Field::Float16(x) => shortest(f32::from(*x)),
        Field::Float(x) => shortest(*x),
        Field::Double(x) => (*x).into(),
        Field::Str(x) => x.clone().into(),
        // Some writers store strings as bytes without marking them as text.
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
        // Decimal numbers, dates and times.
        _ => Value::String(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_32_bit_number_is_what_its_digits_say() {
        assert_eq!(field(&Field::Float(1234.56)), Value::from(1234.56));
        assert_eq!(field(&Field::Float(f32::NAN)), Value::Null);
    }

    #[test]
    fn two_columns_of_one_name_are_refused_and_columns_without_one_are_not() {
        let error = separated("answer,problem, answer\n1,2,3\n", b',').unwrap_err().to_string();
        assert_eq!(error, "two columns are named answer");
        assert_eq!(separated("answer,problem,,\n1,2,,\n", b',').unwrap().len(), 1);
    }

    #[test]
    fn a_quote_that_is_never_closed_is_found_by_its_line_and_quotes_that_mean_themselves_are_not() {
        for (text, expected) in [
            ("a,b\n1,2", None),
            ("a,b\n\"1\",\"2\"", None),
            ("a,b\n1,\"2", Some(2)),
            ("a,b\r\n1,\"so\r\n2\"\r\n3,\"so\r\n4", Some(4)),
            ("a,\"b", Some(1)),
            ("a,b\n1,\"", Some(2)),
            ("a,b\n1,\"\"", None),
            ("a,b\n1,\"\"\"", Some(2)),
            ("a,b\n1,\"say \"\"two\"\"\"", None),
            ("a,b\n1,\"say \"\"two\"\"", Some(2)),
            ("a,b\n1,5\" and 6", None),
            ("a,b\n1,\"5\" and \"6", None),
            ("a,b\n1, \"2", None),
        ] {
            assert_eq!(unclosed_quote(text, b','), expected, "{text}");
            // The reader agrees about the ends of fields: after a closed quote, an appended row is a separate row.
            let more = format!("{text}\n7,8\n");
            let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(more.as_bytes());
            let last = reader.records().last().and_then(Result::ok);
            let row = last.is_some_and(|last| last.iter().eq(["7", "8"]));
            assert_eq!(row, expected.is_none(), "{text}");
        }
    }
}
