//! Logs of inspect_ai (`inspect eval --log-format json`, or `inspect log dump`): a JSON file with all samples and their scores.
//!
//! An epoch is a sample of the problem. The scorer's own verdicts count, because the log doesn't say how to grade again; a
//! sample that failed before it was scored is unscorable.

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

/// The samples of a log, a benchmark for each scorer; none for a file that is no log.
/// Fails on an archive (`.eval`), a run that didn't finish, a score that is neither correct nor wrong.
pub fn read(path: &Path) -> anyhow::Result<Option<Vec<Benchmark>>> {
    let ending = path.extension().and_then(|e| e.to_str());
    if ending == Some("eval") {
        bad_input!(
            "{}: found an archive of inspect_ai, wanted JSON: inspect log dump {0} > log.json",
            path.display()
        );
    }
    if ending != Some("json") {
        return Ok(None);
    }
    let file = fgrpo_files::open(path).with_context(|| path.display().to_string()).or_bad_input()?;
    let Ok(log) = serde_json::from_reader::<_, Log>(BufReader::new(file)) else { return Ok(None) };
    if log.status != "success" {
        bad_input!(
            "{}: status: found {:?}, wanted \"success\": inspect eval-retry finishes the run",
            path.display(),
            log.status
        );
    }
    let mut scorers: Vec<&String> =
        log.samples.iter().flat_map(|s| s.scores.iter().flat_map(BTreeMap::keys)).collect();
    scorers.sort();
    scorers.dedup();
    if scorers.is_empty() {
        bad_input!("{}: samples: found none with a score, wanted scored samples", path.display());
    }
    let name = |scorer: &str| match scorers.len() {
        1 => log.eval.task.clone(),
        _ => format!("{}/{scorer}", log.eval.task),
    };
    let of = |scorer: &&String| {
        let problems =
            counted(&log.samples, scorer).map_err(|why| why.context(path.display().to_string()))?;
        Ok(Benchmark { name: name(scorer), path: path.to_owned(), problems })
    };
    scorers.iter().map(of).collect::<anyhow::Result<_>>().map(Some)
}

/// Each problem's samples by one scorer, in the order in which the log begins them.
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
                "sample {id}, score {scorer}: found {}, wanted correct or wrong (C, I, N, 1, 0, true or false)",
                score.map_or(&Value::Null, |s| &s.value)
            ),
            None if sample.error.is_some() => problems[at].unscorable += 1,
            None => {
                bad_input!("sample {id}: found neither a score {scorer} nor an error, wanted one of them")
            }
        }
    }
    Ok(problems)
}

/// A score's value; no answer (`N`) is wrong.
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
