//! Reads and writes JSON lines: files that users name, and files that a run appends to. The last line of such a file is
//! incomplete if the writer was killed.

use crate::failure::OrBadInput;
use crate::io::files::{self, write_whole};
use crate::io::json;
use anyhow::Context;
use fgrpo_files as input;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Maximum length of a line in bytes. A file with longer lines isn't JSON lines.
pub const LONGEST: u64 = 256 << 20;

/// One line without its newline. Formatted as the start of a message: `data.jsonl line 3`.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    path: &'a Path,
    /// Line number, from 1.
    pub number: usize,
    /// Bytes of the line.
    pub text: &'a [u8],
    /// Whether a newline follows the line in the file.
    terminated: bool,
}

impl<'a> Line<'a> {
    /// Parses the line as JSON.
    pub fn parse<T: Deserialize<'a>>(&self) -> anyhow::Result<T> {
        match json::parse(self.text) {
            Ok(read) => Ok(read),
            Err(why) => bad_input!("{self}: {why}"),
        }
    }

    /// Parses the line as JSON that another program wrote ([`json::of_others`]).
    pub fn parse_of_others<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        match json::parse_of_others(self.text) {
            Ok(read) => Ok(read),
            Err(why) => bad_input!("{self}: {why}"),
        }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}", self.path.display(), self.number)
    }
}

/// Reads the lines of a file one by one, and skips blank lines.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    path: PathBuf,
    text: Vec<u8>,
    number: usize,
    /// Number of bytes up to the end of the last terminated line.
    complete: u64,
}

impl Lines<BufReader<Box<dyn Read + Send>>> {
    /// Opens a file that the user named. A `.gz` or `.zst` file is decompressed.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let file = files::open(path).with_context(|| format!("{}: cannot open", path.display()));
        Ok(Self::new(BufReader::with_capacity(1 << 20, file.or_bad_input()?), path))
    }
}

impl<R: BufRead> Lines<R> {
    /// Reads from an open file or a pipe. `path` is its name in messages.
    pub fn new(reader: R, path: &Path) -> Self {
        Self { reader, path: path.to_owned(), text: Vec::new(), number: 0, complete: 0 }
    }

    /// Returns the next line that isn't blank.
    ///
    /// Returns I/O errors, and bad input for a line of more than [`LONGEST`] bytes.
    pub fn next_line(&mut self) -> anyhow::Result<Option<Line<'_>>> {
        loop {
            self.text.clear();
            let read = self
                .reader
                .by_ref()
                .take(LONGEST)
                .read_until(b'\n', &mut self.text)
                .with_context(|| format!("{}: cannot read", self.path.display()))?;
            let terminated = self.text.last() == Some(&b'\n');
            if read as u64 == LONGEST && !terminated {
                bad_input!(
                    "{}: a line has more than {LONGEST} bytes, so the file isn't JSON lines",
                    self.path.display()
                );
            }
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.complete += if terminated { read as u64 } else { 0 };
            if !self.text.trim_ascii().is_empty() {
                break;
            }
        }
        let (end, terminated) = match self.text.strip_suffix(b"\n") {
            Some(line) => (line.len(), true),
            None => (self.text.len(), false),
        };
        let text = &self.text[..end];
        // Some editors write a byte-order mark at the start of a file.
        let text = if self.number == 1 { text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text) } else { text };
        Ok(Some(Line { path: &self.path, number: self.number, text, terminated }))
    }
}

/// State of the end of a file that a run appends to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ending {
    /// Number of bytes up to the end of the last complete line.
    pub complete: u64,
    /// Number of the last line if it is incomplete: it lacks a newline, because the writer was killed.
    pub torn: Option<usize>,
}

/// Calls `visit` with each complete line of a file that a run appends to. An incomplete last line is left out. A
/// missing file counts as empty.
pub fn complete(path: &Path, visit: impl FnMut(Line<'_>) -> anyhow::Result<()>) -> anyhow::Result<Ending> {
    match input::open(path) {
        Ok(file) => complete_in(&file, path, visit),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Ending::default()),
        Err(e) => Err(e).with_context(|| format!("{}: cannot read", path.display())),
    }
}

fn complete_in(
    file: &File,
    path: &Path,
    mut visit: impl FnMut(Line<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Ending> {
    let mut lines = Lines::new(BufReader::with_capacity(1 << 16, file), path);
    let mut torn = None;
    while let Some(line) = lines.next_line()? {
        if line.terminated {
            visit(line)?;
        } else {
            torn = Some(line.number);
        }
    }
    Ok(Ending { complete: lines.complete, torn })
}

/// Calls `visit` with each record of a file that a run appends to, like [`complete`].
///
/// Returns an error that names the file, line and field if a line can't be parsed, I/O errors, and the errors of
/// `visit`.
pub fn each<T: DeserializeOwned>(
    path: &Path,
    mut visit: impl FnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<Ending> {
    complete(path, |line| visit(line.parse()?))
}

/// Reads all records of a file that a run appends to, like [`each`].
pub fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<T>> {
    let mut records = Vec::new();
    each(path, |record| {
        records.push(record);
        Ok(())
    })?;
    Ok(records)
}

/// Rewrites a file atomically with only the lines that `keep` accepts. Lines that aren't JSON, as after a power failure,
/// are dropped too. Returns the line numbers of these invalid lines.
pub fn retain(path: &Path, keep: impl Fn(&serde_json::Value) -> bool) -> anyhow::Result<Vec<usize>> {
    let (mut kept, mut unreadable, mut dropped) = (Vec::new(), Vec::new(), false);
    let end = complete(path, |line| {
        match serde_json::from_slice(line.text) {
            Ok(value) if keep(&value) => {
                kept.extend_from_slice(line.text);
                kept.push(b'\n');
            }
            Ok(_) => dropped = true,
            Err(_) => unreadable.push(line.number),
        }
        Ok(())
    })?;
    if dropped || !unreadable.is_empty() || end.torn.is_some() {
        write_whole(path, &kept)?;
    }
    Ok(unreadable)
}

/// Serializes records as JSON lines.
pub fn to_bytes<T: Serialize>(records: impl IntoIterator<Item = T>) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for record in records {
        serde_json::to_writer(&mut bytes, &record)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// Opens or creates a file for appending. Calls `visit` with each complete line, and cuts off an incomplete last line.
pub fn append(path: &Path, visit: impl FnMut(Line<'_>) -> anyhow::Result<()>) -> anyhow::Result<File> {
    let context = || format!("{}: cannot open", path.display());
    let file = OpenOptions::new().create(true).read(true).append(true).open(path).with_context(context)?;
    let end = complete_in(&file, path, visit)?;
    if end.torn.is_some() {
        let torn = file.metadata().with_context(context)?.len() - end.complete;
        tracing::info!("{}: cut off an incomplete last line of {torn} bytes", path.display());
        file.set_len(end.complete)
            .with_context(|| format!("{}: cannot cut off the incomplete last line", path.display()))?;
    }
    Ok(file)
}

/// An append-only file of JSON lines.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: File,
}

impl JsonLines {
    /// Opens or creates the file, like [`append`].
    pub fn append(path: &Path) -> anyhow::Result<Self> {
        Ok(Self { path: path.to_owned(), file: append(path, |_| Ok(()))? })
    }

    /// Appends one line with a single write.
    pub fn push<T: Serialize>(&mut self, line: &T) -> anyhow::Result<()> {
        let bytes = to_bytes([line])?;
        self.file.write_all(&bytes).with_context(|| format!("writing {}", self.path.display()))
    }

    /// Syncs the file. Do this before writing anything that refers to its lines.
    pub fn sync(&self) -> anyhow::Result<()> {
        self.file.sync_data().with_context(|| format!("writing {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn lines_come_with_their_numbers_and_one_without_end_is_refused() {
        let mut lines = Lines::new(&b"1\n \n2\r\n3"[..], Path::new("x"));
        let mut values = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            values.push((line.number, line.parse::<u64>().unwrap()));
        }
        assert_eq!(values, [(1, 1), (3, 2), (4, 3)]);
        let mut endless = Lines::new(BufReader::new(std::io::repeat(0)), Path::new("zeros.jsonl"));
        let error = format!("{:#}", endless.next_line().unwrap_err());
        assert!(error.contains("zeros.jsonl: a line has more than"), "{error}");
    }

    #[test]
    fn a_torn_last_line_is_left_out_with_its_number_and_a_wrong_one_is_refused() {
        let (_folder, path) = file("{\"step\":1}\n{\"ste");
        let mut values = Vec::new();
        let end = each(&path, |line: Value| {
            values.push(line);
            Ok(())
        })
        .unwrap();
        assert_eq!((values, end), (vec![json!({"step": 1})], Ending { complete: 11, torn: Some(2) }));
        for wrong in ["{}\nnonsense\n", "{}\nnonsense\n{}\n"] {
            let (_folder, path) = file(wrong);
            let error = format!("{:#}", read::<Value>(&path).unwrap_err());
            assert!(error.contains("metrics.jsonl line 2"), "{error}");
        }
        assert_eq!(read::<Value>(Path::new("/nonexistent/metrics.jsonl")).unwrap(), [] as [Value; 0]);
    }

    #[test]
    fn a_torn_last_line_is_cut_off_before_appending() {
        let (_folder, path) = file("{\"step\":1}\n{\"step\":2}\n{\"ste");
        JsonLines::append(&path).unwrap().push(&json!({"step": 3})).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
    }

    #[test]
    fn numbers_survive_retaining_lines_unchanged() {
        let text = "{\"step\":1,\"loss\":0.1}\n{\"step\":2,\"loss\":1e-17}\n";
        let (_folder, path) = file(&format!("{text}{{\"step\":3}}\n"));
        retain(&path, |v| v["step"].as_u64() <= Some(2)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn lines_that_a_power_cut_spoiled_are_dropped_by_number() {
        let (_folder, path) = file("{\"step\":1}\n\0\0\0\n{\"step\":2}\n\0\0");
        assert_eq!(retain(&path, |_| true).unwrap(), [2]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"step\":1}\n{\"step\":2}\n");
    }
}
