//! Rows of data sets and of samples, and compressed files. The tests of the command line use them too.

use serde_json::{Value, json};
use std::fmt::Display;
use std::io::Write;
use std::path::Path;

/// JSON lines.
pub(crate) fn lines(rows: impl IntoIterator<Item = impl Display>) -> String {
    rows.into_iter().map(|row| format!("{row}\n")).collect()
}

/// Problems "i+1?" with answer i + 1.
pub(crate) fn sums(range: impl IntoIterator<Item = usize>) -> Vec<Value> {
    range.into_iter().map(|i| json!({"problem": format!("{i}+1?"), "answer": (i + 1).to_string()})).collect()
}

/// A response with this answer.
pub(crate) fn boxed(n: usize) -> String {
    format!("so \\boxed{{{n}}}")
}

pub(crate) fn rows(from: usize, to: usize) -> String {
    lines((from..to).map(|i| json!({"problem": format!("What is {i} + 1?"), "answer": i + 1})))
}

pub(crate) fn gz(path: &Path, text: &str) {
    let file = std::fs::File::create(path).unwrap();
    let mut out = flate2::write::GzEncoder::new(file, flate2::Compression::default());
    out.write_all(text.as_bytes()).unwrap();
    out.finish().unwrap();
}

pub(crate) fn zst(path: &Path, text: &str) {
    let file = std::fs::File::create(path).unwrap();
    zstd::stream::copy_encode(text.as_bytes(), file, 3).unwrap();
}
