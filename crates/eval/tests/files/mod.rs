//! Rows of a data set, and compressed files.

use serde_json::json;
use std::io::Write;
use std::path::Path;

pub(crate) fn rows(from: usize, to: usize) -> String {
    (from..to)
        .map(|i| format!("{}\n", json!({"problem": format!("What is {i} + 1?"), "answer": i + 1})))
        .collect()
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
