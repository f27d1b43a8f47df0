//! Clusters of problems: several from one source, such as a template or a text with questions. Their results are
//! correlated, so the bootstrap draws whole clusters.

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

/// Gives every problem its cluster: the value of `field` in the lines of samples that `benchmarks` were read from.
/// Fails on a problem without the field, one whose lines differ in it, a value that is neither text nor number.
pub fn assign(benchmarks: &mut [Benchmark], paths: &[PathBuf], field: &str) -> anyhow::Result<()> {
    let mut found: HashMap<(String, String), String> = HashMap::new();
    let files: Vec<Vec<PathBuf>> = paths.iter().map(|path| files(path)).collect::<Result<_, _>>()?;
    for file in files.concat() {
        let own = stem(&file);
        let mut lines = Lines::open(&file)?;
        while let Some(line) = lines.next_line()? {
            let read: Line<'_> = line.parse()?;
            let cluster = match read.others.get(field) {
                None | Some(Value::Null) => continue,
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                Some(other) => bad_input!("{line}: {field}: found {other}, wanted a text or a number"),
            };
            let benchmark = read.benchmark.map_or_else(|| own.clone(), Cow::into_owned);
            let place = (benchmark, read.problem.to_string());
            match found.get(&place) {
                Some(before) if *before != cluster => bad_input!(
                    "{line}: {field}: found {cluster:?} and before {before:?} for problem {}, wanted one cluster",
                    place.1
                ),
                Some(_) => {}
                None => drop(found.insert(place, cluster)),
            }
        }
    }
    for benchmark in benchmarks {
        for problem in &mut benchmark.problems {
            let place = (benchmark.name.clone(), problem.id.clone());
            let Some(cluster) = found.get(&place) else {
                bad_input!(
                    "cluster {field}: found no such field of problem {} in {}, wanted one for every problem",
                    problem.id,
                    benchmark.path.display()
                )
            };
            problem.cluster = Some(cluster.clone());
        }
    }
    Ok(())
}
