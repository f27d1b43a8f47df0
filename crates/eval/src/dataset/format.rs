//! Formats of data files, detected by their names.

use std::path::Path;

/// Accepted forms of a data set, for messages.
pub(super) const FORMATS: &str = "a file with the extension .jsonl, .ndjson, .json, .csv or .tsv (also with .gz or .zst appended) or .parquet, a folder of such files, or a split of a folder";

/// Format of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// JSON objects, one per line or in an array.
    Json,
    /// CSV or TSV, with the separator.
    Separated(u8),
    /// Parquet.
    Parquet,
}

impl FileFormat {
    /// Detects the format from the file's extension. Returns `None` if it isn't a data file.
    pub fn of(path: &Path) -> Option<FileFormat> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let plain = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
        match plain.rsplit_once('.')?.1 {
            "jsonl" | "ndjson" | "json" => Some(FileFormat::Json),
            "csv" => Some(FileFormat::Separated(b',')),
            "tsv" => Some(FileFormat::Separated(b'\t')),
            // Parquet compresses its pages internally.
            "parquet" if plain.len() == name.len() => Some(FileFormat::Parquet),
            _ => None,
        }
    }
}
