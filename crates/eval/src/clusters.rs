//! Clusters of problems: several problems from one source, such as a template or a passage with questions. Their
//! results are correlated, so the bootstrap draws whole clusters.

use crate::io::files::stem;
use crate::io::lines::Lines;
use crate::samples::{Benchmark, Id, files};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;

/// The fields of a line that give its problem's cluster.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, alias = "problem_id", alias = "question_id", alias = "task_id", alias = "doc_id")]
    problem: Id<'a>,
    #[serde(borrow)]
    benchmark: Option<Cow<'a, str>>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Assigns a cluster to every problem: the value of `field` in the lines of samples that `benchmarks` were read from.
///
/// Returns an error if a problem lacks the field, if its lines have different values, or if a value is neither a string
/// nor a number.
pub fn assign(benchmarks: &mut [Benchmark], paths: &[PathBuf], field: &str) -> anyhow::Result<()> {
    let mut clusters: HashMap<(String, String), String> = HashMap::new();
    let files: Vec<Vec<PathBuf>> = paths.iter().map(|path| files(path)).collect::<Result<_, _>>()?;
    for file in files.concat() {
        let file_stem = stem(&file);
        let mut lines = Lines::open(&file)?;
        while let Some(line) = lines.next_line()? {
            let entry: Line<'_> = line.parse()?;
            let cluster = match entry.others.get(field) {
                None | Some(Value::Null) => continue,
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                Some(other) => bad_input!("{line}: {field}: expected a string or a number, found {other}"),
            };
            let benchmark = entry.benchmark.map_or_else(|| file_stem.clone(), Cow::into_owned);
            let key = (benchmark, entry.problem.to_string());
            match clusters.get(&key) {
                Some(before) if *before != cluster => bad_input!(
                    "{line}: {field}: problem {} is in two clusters, {before:?} and {cluster:?}",
                    key.1
                ),
                Some(_) => {}
                None => drop(clusters.insert(key, cluster)),
            }
        }
    }
    for benchmark in benchmarks {
        for problem in &mut benchmark.problems {
            let key = (benchmark.name.clone(), problem.id.clone());
            let Some(cluster) = clusters.get(&key) else {
                bad_input!(
                    "cluster {field}: problem {} in {} has no such field; every problem needs one",
                    problem.id,
                    benchmark.path.display()
                )
            };
            problem.cluster = Some(cluster.clone());
        }
    }
    Ok(())
}
