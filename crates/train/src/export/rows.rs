//! Problems as a Parquet file with verl's columns.

use fgrpo_eval::dataset::Problem;
use fgrpo_eval::names::Named;
use fgrpo_eval::problems::ProblemSet;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::path::Path;
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
        required binary split (STRING);
        required int64 index;
        required binary problem (STRING);
    }
}";

/// Position of the one column of numbers.
const INDEX: usize = 7;

/// Rows of a row group.
const GROUP: usize = 8192;

/// A problem as a row.
pub(super) struct Row {
    part: String,
    kind: &'static str,
    /// Roles and contents.
    messages: Vec<(String, String)>,
    truth: String,
    problem: String,
}

impl Row {
    /// A problem of `set`. `part` is the name of its part in a mix.
    pub(super) fn new(part: Option<&str>, set: &ProblemSet, problem: &Problem) -> Self {
        let messages = set.conversation(problem).into_iter().map(|m| (m.role, m.content)).collect();
        let kind = set.kind().name();
        Self {
            part: part.unwrap_or(kind).to_owned(),
            kind,
            messages,
            truth: serde_json::to_string(&problem.truth).expect("a reference answer is JSON"),
            problem: problem.id.clone(),
        }
    }
}

/// Writes rows in their order.
pub(super) fn write(path: &Path, split: &str, rows: impl Iterator<Item = Row>) -> anyhow::Result<()> {
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(zstd).build();
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut writer = SerializedFileWriter::new(File::create(path)?, schema, Arc::new(properties))?;
    let mut rows = rows.peekable();
    let mut first = 0;
    while rows.peek().is_some() {
        let rows: Vec<Row> = rows.by_ref().take(GROUP).collect();
        let bytes = |text: &str| ByteArray::from(text);
        let of = |text: &dyn Fn(&Row) -> String| rows.iter().map(|row| bytes(&text(row))).collect::<Vec<_>>();
        let messages = |text: &dyn Fn(&(String, String)) -> String| {
            rows.iter().flat_map(|row| &row.messages).map(|m| bytes(&text(m))).collect::<Vec<_>>()
        };
        let levels: Vec<i16> =
            rows.iter().flat_map(|row| (0..row.messages.len()).map(|i| i16::from(i > 0))).collect();
        let present = vec![1; levels.len()];
        let columns: [(bool, Vec<ByteArray>); 8] = [
            (false, of(&|row| row.part.clone())),
            (true, messages(&|m| m.0.clone())),
            (true, messages(&|m| m.1.clone())),
            (false, of(&|row| row.kind.to_owned())),
            (false, of(&|_| "rule".to_owned())),
            (false, of(&|row| row.truth.clone())),
            (false, of(&|_| split.to_owned())),
            (false, of(&|row| row.problem.clone())),
        ];
        let mut columns = columns.into_iter();
        let mut group = writer.next_row_group()?;
        let mut position = 0;
        while let Some(mut column) = group.next_column()? {
            if position == INDEX {
                let indices: Vec<i64> = (first..first + rows.len() as i64).collect();
                column.typed::<Int64Type>().write_batch(&indices, None, None)?;
            } else {
                let (nested, values) = columns.next().expect("a list of texts for each column");
                let (present, levels) = (nested.then_some(&present[..]), nested.then_some(&levels[..]));
                column.typed::<ByteArrayType>().write_batch(&values, present, levels)?;
            }
            column.close()?;
            position += 1;
        }
        group.close()?;
        first += rows.len() as i64;
    }
    writer.close()?;
    Ok(())
}
