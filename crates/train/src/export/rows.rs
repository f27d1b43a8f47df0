//! Problems as rows with verl's columns.

use fgrpo_eval::dataset::Problem;
use fgrpo_eval::dataset::verl_rows::Writer;
use fgrpo_eval::names::Named;
use fgrpo_eval::problems::ProblemSet;
use serde_json::{Value, json};
use std::fs::File;
use std::path::Path;

/// Number of rows in a row group of the Parquet file.
const GROUP: usize = 8192;

/// Converts a problem of `set` to a row, without its index in the file. `part` is the name of its part in a mix.
pub(super) fn row(part: Option<&str>, set: &ProblemSet, problem: &Problem) -> Value {
    let kind = set.kind().name();
    let truth = serde_json::to_string(&problem.truth).expect("a reference answer is JSON");
    json!({
        "data_source": part.unwrap_or(kind),
        "prompt": set.conversation(problem),
        "ability": kind,
        "reward_model": { "style": "rule", "ground_truth": truth },
        "extra_info": { "problem": problem.id },
    })
}

/// Writes rows in the given order.
pub(super) fn write(path: &Path, split: &str, rows: impl Iterator<Item = Value>) -> anyhow::Result<()> {
    let mut writer = Writer::new(File::create(path)?, "problem")?;
    let mut rows = rows.enumerate().map(|(index, mut row)| {
        row["extra_info"]["index"] = index.into();
        row["extra_info"]["split"] = split.into();
        row
    });
    loop {
        let group: Vec<Value> = rows.by_ref().take(GROUP).collect();
        if group.is_empty() {
            break;
        }
        writer.write(&group)?;
    }
    writer.close()?;
    Ok(())
}
