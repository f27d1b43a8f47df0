//! The formats of data files, told by their names.

use std::path::Path;

/// Accepted forms of a data set, for messages.
pub(super) const FORMATS: &str = "a file ending in .jsonl, .ndjson, .json, .csv or .tsv (with .gz or .zst behind it too) or .parquet, a folder of such files, or a split of one";

/// The format of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// Objects, one per line or in an array.
    Json,
    /// CSV or TSV, with its separator.
    Separated(u8),
    /// Parquet.
    Parquet,
}

impl FileFormat {
    /// The format by a file's extension; `None` if it isn't that of a data file.
    pub fn of(path: &Path) -> Option<FileFormat> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let plain = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
        match plain.rsplit_once('.')?.1 {
            "jsonl" | "ndjson" | "json" => Some(FileFormat::Json),
            "csv" => Some(FileFormat::Separated(b',')),
            "tsv" => Some(FileFormat::Separated(b'\t')),
            // Parquet compresses its pages itself.
            "parquet" if plain.len() == name.len() => Some(FileFormat::Parquet),
            _ => None,
        }
    }
}
