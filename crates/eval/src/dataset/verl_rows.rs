//! Writes rows with verl's columns as a Parquet file.

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::Value;
use std::fs::File;
use std::sync::Arc;

/// Parquet schema of the rows. `FIELD` is replaced by the name of a further string.
const SCHEMA: &str = "message row {
    required binary data_source (STRING);
    required group prompt (LIST) { repeated group list { required group element {
        required binary role (STRING);
        required binary content (STRING);
    } } }
    required binary ability (STRING);
    required group reward_model { required binary style (STRING); required binary ground_truth (STRING); }
    required group extra_info {
        required int64 index;
        required binary split (STRING);
        required binary FIELD (STRING);
    }
}";

/// Writes rows to a Parquet file.
pub struct Writer {
    file: SerializedFileWriter<File>,
    /// Name of the string in `extra_info` besides `split`.
    field: &'static str,
}

impl Writer {
    /// Creates a file whose rows have a string `field` in `extra_info`.
    pub fn new(file: File, field: &'static str) -> anyhow::Result<Self> {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let schema = Arc::new(parse_message_type(&SCHEMA.replace("FIELD", field))?);
        Ok(Self { file: SerializedFileWriter::new(file, schema, Arc::new(properties))?, field })
    }

    /// Writes rows as one row group. A string that a row lacks is written as an empty string.
    pub fn write(&mut self, rows: &[Value]) -> anyhow::Result<()> {
        let bytes = |text: &Value| ByteArray::from(text.as_str().unwrap_or_default());
        let messages = |row: &'_ Value| row["prompt"].as_array().cloned().unwrap_or_default();
        // Repetition level 1: a message that isn't the first of its row continues the list.
        let repeated: Vec<i16> =
            rows.iter().flat_map(|row| (0..messages(row).len()).map(|i| i16::from(i > 0))).collect();
        let present = vec![1_i16; repeated.len()];
        let mut group = self.file.next_row_group()?;
        // In the order of the schema.
        for path in [
            ["data_source", ""],
            ["prompt", "role"],
            ["prompt", "content"],
            ["ability", ""],
            ["reward_model", "style"],
            ["reward_model", "ground_truth"],
            ["extra_info", "index"],
            ["extra_info", "split"],
            ["extra_info", self.field],
        ] {
            let mut column = group.next_column()?.expect("the schema has this column");
            match path {
                ["prompt", name] => {
                    let values: Vec<ByteArray> =
                        rows.iter().flat_map(messages).map(|message| bytes(&message[name])).collect();
                    column.typed::<ByteArrayType>().write_batch(&values, Some(&present), Some(&repeated))?;
                }
                [table, "index"] => {
                    let index = |row: &Value| row[table]["index"].as_i64().unwrap_or_default();
                    let values: Vec<i64> = rows.iter().map(index).collect();
                    column.typed::<Int64Type>().write_batch(&values, None, None)?;
                }
                [name, inner] => {
                    let text =
                        |row: &Value| bytes(if inner.is_empty() { &row[name] } else { &row[name][inner] });
                    let values: Vec<ByteArray> = rows.iter().map(text).collect();
                    column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
                }
            }
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Finishes the file and returns it.
    pub fn close(self) -> anyhow::Result<File> {
        Ok(self.file.into_inner()?)
    }
}
