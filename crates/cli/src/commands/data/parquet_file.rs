//! Rows of the public SynLogic columns as a Parquet file.

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::Value;
use std::fs::File;
use std::sync::Arc;

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
        required binary game_data_str (STRING);
    }
}";

/// The place of each text column of [`SCHEMA`] in a row; the prompt has one message. The index is the seventh column.
const TEXTS: [&str; 8] = [
    "/data_source",
    "/prompt/0/role",
    "/prompt/0/content",
    "/ability",
    "/reward_model/style",
    "/reward_model/ground_truth",
    "/extra_info/split",
    "/extra_info/game_data_str",
];
const INDEX: usize = 6;
const PROMPT: std::ops::RangeInclusive<usize> = 1..=2;

/// An open file; each call to [`Writer::write`] makes a row group.
pub(super) struct Writer(SerializedFileWriter<File>);

impl Writer {
    pub(super) fn new(file: File) -> anyhow::Result<Self> {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        Ok(Self(SerializedFileWriter::new(
            file,
            Arc::new(parse_message_type(SCHEMA)?),
            Arc::new(properties),
        )?))
    }

    pub(super) fn write(&mut self, rows: &[Value]) -> anyhow::Result<()> {
        let mut group = self.0.next_row_group()?;
        let mut texts = TEXTS.iter();
        let mut number = 0;
        while let Some(mut column) = group.next_column()? {
            if number == INDEX {
                let values: Vec<i64> =
                    rows.iter().map(|row| row["extra_info"]["index"].as_i64().unwrap_or_default()).collect();
                column.typed::<Int64Type>().write_batch(&values, None, None)?;
            } else if let Some(pointer) = texts.next() {
                let text =
                    |row: &Value| row.pointer(pointer).and_then(Value::as_str).unwrap_or_default().into();
                let values: Vec<ByteArray> = rows.iter().map(text).collect();
                let (defined, repeated) = (vec![1_i16; rows.len()], vec![0_i16; rows.len()]);
                let levels = PROMPT.contains(&number);
                column.typed::<ByteArrayType>().write_batch(
                    &values,
                    levels.then_some(defined.as_slice()),
                    levels.then_some(repeated.as_slice()),
                )?;
            }
            column.close()?;
            number += 1;
        }
        group.close()?;
        Ok(())
    }

    pub(super) fn close(self) -> anyhow::Result<File> {
        Ok(self.0.into_inner()?)
    }
}
