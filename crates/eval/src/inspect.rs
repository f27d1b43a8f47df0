//! Reads logs of inspect_ai (`inspect eval --log-format json`, or `inspect log dump`): JSON with all samples and scores.
//!
//! Each epoch gives one sample of a problem. The scorer's verdicts are used, because a log doesn't contain everything that
//! grading needs. A sample that failed before it was scored is unscorable.

use crate::failure::OrBadInput;
use crate::samples::{Benchmark, ProblemCounts};
use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::Path;

#[derive(Deserialize)]
struct Log {
    status: String,
    eval: Task,
    #[serde(default)]
    samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Task {
    task: String,
}

#[derive(Deserialize)]
struct Sample {
    id: Value,
    #[serde(default)]
    scores: Option<BTreeMap<String, Score>>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Score {
    value: Value,
}

/// Reads the samples of a log, one benchmark per scorer. Returns `None` if the file isn't a log.
///
/// Returns an error for an archive (`.eval`), a run that didn't finish, or a score that is neither correct nor wrong.
pub fn read(path: &Path) -> anyhow::Result<Option<Vec<Benchmark>>> {
    let extension = path.extension().and_then(|e| e.to_str());
    if extension == Some("eval") {
        bad_input!(
            "{}: this is an archive of inspect_ai; convert it to JSON: inspect log dump {0} > log.json",
            path.display()
        );
    }
    if extension != Some("json") {
        return Ok(None);
    }
    let file = fgrpo_files::open(path).with_context(|| path.display().to_string()).or_bad_input()?;
    let Ok(log) = serde_json::from_reader::<_, Log>(BufReader::new(file)) else { return Ok(None) };
    if log.status != "success" {
        bad_input!(
            "{}: status: expected \"success\", found {:?}; inspect eval-retry finishes the run",
            path.display(),
            log.status
        );
    }
    let mut scorers: Vec<&String> =
        log.samples.iter().flat_map(|s| s.scores.iter().flat_map(BTreeMap::keys)).collect();
    scorers.sort();
    scorers.dedup();
    if scorers.is_empty() {
        bad_input!("{}: samples: no sample has a score", path.display());
    }
    let name = |scorer: &str| match scorers.len() {
        1 => log.eval.task.clone(),
        _ => format!("{}/{scorer}", log.eval.task),
    };
    let benchmark = |scorer: &&String| {
        let problems =
            counted(&log.samples, scorer).map_err(|why| why.context(path.display().to_string()))?;
        Ok(Benchmark { name: name(scorer), path: path.to_owned(), problems })
    };
    scorers.iter().map(benchmark).collect::<anyhow::Result<_>>().map(Some)
}

/// Counts each problem's samples by one scorer, in the order of first appearance.
fn counted(samples: &[Sample], scorer: &str) -> anyhow::Result<Vec<ProblemCounts>> {
    let mut problems: Vec<ProblemCounts> = Vec::new();
    for sample in samples {
        let id = sample.id.as_str().map_or_else(|| sample.id.to_string(), str::to_owned);
        let at = problems.iter().position(|p| p.id == id).unwrap_or_else(|| {
            problems.push(ProblemCounts::counted(id.clone(), 0, 0));
            problems.len() - 1
        });
        let score = sample.scores.as_ref().and_then(|all| all.get(scorer));
        match score.map(|s| correct(&s.value)) {
            Some(Some(correct)) => {
                problems[at].samples += 1;
                problems[at].correct += u64::from(correct);
            }
            Some(None) => bad_input!(
                "sample {id}, score {scorer}: expected C, I, N, 1, 0, true or false, found {}",
                score.map_or(&Value::Null, |s| &s.value)
            ),
            None if sample.error.is_some() => problems[at].unscorable += 1,
            None => {
                bad_input!("sample {id} has neither a score {scorer} nor an error")
            }
        }
    }
    Ok(problems)
}

/// Returns whether a score's value means correct, or `None` if the value is unknown. `N` (no answer) is wrong.
fn correct(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(correct) => Some(*correct),
        Value::String(letter) if letter == "C" => Some(true),
        Value::String(letter) if letter == "I" || letter == "N" => Some(false),
        Value::Number(number) if number.as_f64() == Some(1.0) => Some(true),
        Value::Number(number) if number.as_f64() == Some(0.0) => Some(false),
        _ => None,
    }
}
