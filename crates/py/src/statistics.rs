//! Python bindings for pass@k, the paired test and the table of `fgrpo plan`, from counts of correct samples per problem.

use crate::call::{bad, with_own_threads, without_gil};
use crate::verifiers::mode_named;
use fgrpo_core::stats::pass_at_k::pass_at_k as estimate;
use fgrpo_eval::benchmarks::{self, Domain};
use fgrpo_eval::compare::{self as paired, Method, Settings};
use fgrpo_eval::dumps;
use fgrpo_eval::group_size;
use fgrpo_eval::prompts;
use fgrpo_eval::samples::{Benchmark, ProblemCounts};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::path::PathBuf;

/// Estimates pass@k of each row without bias. `n`, `c` and `k`: `(P,)`.
#[pyfunction]
pub(crate) fn pass_at_k<'py>(
    py: Python<'py>,
    n: PyReadonlyArray1<'py, i64>,
    c: PyReadonlyArray1<'py, i64>,
    k: PyReadonlyArray1<'py, i64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (n, c, k) = (n.as_slice()?, c.as_slice()?, k.as_slice()?);
    for (i, ((&n, &c), &k)) in n.iter().zip(c).zip(k).enumerate() {
        if c < 0 || c > n {
            return Err(bad(format!("problem {i}: expected 0 <= c <= n, found c = {c} and n = {n}")));
        }
        if k < 1 || k > n {
            return Err(bad(format!("problem {i}: expected 1 <= k <= n, found k = {k} and n = {n}")));
        }
    }
    let values = without_gil(py, || {
        let mut known: HashMap<[i64; 3], f64> = HashMap::new();
        let rows = n.iter().zip(c).zip(k).map(|((&n, &c), &k)| [n, c, k]);
        let value = |[n, c, k]: [i64; 3]| estimate(n as usize, c as usize, k as usize);
        rows.map(|row| *known.entry(row).or_insert_with(|| value(row))).collect::<Vec<f64>>()
    })?;
    Ok(values.into_pyarray(py))
}

/// The columns of a `fgrpo.Samples`, one row per problem.
#[derive(FromPyObject)]
pub(crate) struct Columns {
    benchmark: Vec<String>,
    problem: Vec<String>,
    question: Vec<String>,
    n: Vec<u64>,
    c: Vec<u64>,
    unscorable: Vec<u64>,
}

impl Columns {
    /// Converts the rows to benchmarks. The Python code has checked the lengths of the columns and the counts.
    fn benchmarks(self, side: &str) -> Vec<Benchmark> {
        let mut benchmarks: Vec<Benchmark> = Vec::new();
        let counts = self.n.into_iter().zip(self.c).zip(self.unscorable);
        let names = self.benchmark.into_iter().zip(self.problem).zip(self.question);
        for (((name, id), question), ((n, c), unscorable)) in names.zip(counts) {
            let mut problem = ProblemCounts::default();
            problem.question = Some(question).filter(|question| !question.is_empty());
            (problem.id, problem.samples, problem.correct, problem.unscorable) = (id, n, c, unscorable);
            match benchmarks.iter_mut().find(|b| b.name == name) {
                Some(benchmark) => benchmark.problems.push(problem),
                None => {
                    let path = PathBuf::from(side);
                    benchmarks.push(Benchmark { name, path, problems: vec![problem] });
                }
            }
        }
        benchmarks
    }
}

/// Runs the paired test and the bootstrap of `fgrpo compare`, and returns the same JSON.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the Python half names them")]
pub(crate) fn compare(
    py: Python<'_>,
    a: Columns,
    b: Columns,
    ks: Vec<u64>,
    cover: Vec<u64>,
    m: Option<u64>,
    method: &str,
    level: f64,
    iterations: u64,
    resamples: u64,
    seed: u64,
) -> PyResult<String> {
    let method = match method {
        "exact" => Method::Exact,
        "monte-carlo" => Method::MonteCarlo,
        _ => return Err(bad(format!("method: expected \"exact\" or \"monte-carlo\", found {method:?}"))),
    };
    let (a, b) = (a.benchmarks("a"), b.benchmarks("b"));
    // The library's messages name flags of the command, so these checks name the arguments instead.
    let problems = || a.iter().chain(&b).flat_map(|benchmark| &benchmark.problems);
    let fewest = problems().map(|p| p.samples).min().unwrap_or(0);
    if let Some(m) = m.filter(|m| !(1..=fewest).contains(m)) {
        return Err(bad(format!(
            "m: expected 1 to {fewest} (the smallest number of scored samples of a problem), found {m}"
        )));
    }
    let limit = m.unwrap_or(fewest);
    if let Some(k) = ks.iter().find(|k| !(1..=limit).contains(k)) {
        let whose =
            if m.is_some() { "the subsample's size m" } else { "the smallest number of scored samples" };
        return Err(bad(format!("k: expected 1 to {limit} ({whose}), found {k}")));
    }
    with_own_threads(py, || {
        let pairs = paired::matched(a, b)?;
        let labels = ["A", "B"].map(str::to_owned);
        let settings = Settings { ks, cover, m, method, iterations, resamples, seed, level, labels };
        let comparison = paired::compare(&pairs, &settings, &benchmarks::paper(Domain::Math))?;
        Ok(serde_json::to_string(&comparison)?)
    })
}

/// For each group size, the fraction of groups that are active, the probability of a tail miss, and the fraction of active
/// groups that miss the tail. Then the suggested group size and gamma, if any.
type Outlooks = (Vec<(f64, f64, f64)>, Option<(u64, f64)>);

/// Computes the table and the suggestion of `fgrpo plan`.
#[pyfunction]
pub(crate) fn plan(py: Python<'_>, samples: Columns, group_sizes: Vec<u64>, tail: f64) -> PyResult<Outlooks> {
    if !(tail > 0.0 && tail <= 1.0) {
        return Err(bad(format!("tail: expected a fraction above 0 and at most 1, found {tail}")));
    }
    let benchmarks = samples.benchmarks("samples");
    let problems: Vec<&ProblemCounts> =
        benchmarks.iter().flat_map(|b| &b.problems).filter(|p| p.samples > 0).collect();
    if problems.is_empty() {
        return Err(bad("samples: no problem has a scored sample"));
    }
    let outlook = |&n: &u64| group_size::outlook(&problems, n, tail);
    let outlooks = without_gil(py, || group_sizes.iter().map(outlook).collect::<anyhow::Result<Vec<_>>>())?
        .map_err(|e| bad(format!("{e:#}")))?;
    let rows = outlooks.iter().map(|o| (o.active, o.tail_miss, o.missing_share)).collect();
    Ok((rows, group_size::suggest(&outlooks).map(|s| (s.group_size, s.focal_gamma))))
}

/// Benchmark, problem, question (empty if unknown), n, c and number of unscorable samples, one row per problem.
type Rows = Vec<(String, String, String, u64, u64, u64)>;

/// Reads graded samples from a file or a folder. Returns the rows, and sentences that say how a dump was graded.
#[pyfunction]
pub(crate) fn read_samples(py: Python<'_>, path: PathBuf, mode: Option<&str>) -> PyResult<(Rows, String)> {
    let mode = mode.map(mode_named).transpose()?;
    let read = || {
        dumps::require_responses(std::slice::from_ref(&path), mode)?;
        let mut scored = dumps::read_each(&path, mode)?;
        prompts::add_questions(&mut scored.benchmarks);
        anyhow::Ok(scored)
    };
    let scored = with_own_threads(py, read)?;
    let left_out = scored.left_out.iter().map(|why| format!("left out: {why}"));
    let how = scored.graded.into_iter().chain(left_out).collect::<Vec<_>>().join("; ");
    if scored.benchmarks.is_empty() {
        return Err(bad(how));
    }
    let row = |name: &str, p: ProblemCounts| {
        (name.to_owned(), p.id, p.question.unwrap_or_default(), p.samples, p.correct, p.unscorable)
    };
    let rows = scored.benchmarks.into_iter();
    let rows = rows.flat_map(|b| b.problems.into_iter().map(move |p| row(&b.name, p)).collect::<Rows>());
    Ok((rows.collect(), how))
}

/// Benchmark, problem, reference answer and response, in the order of the dump.
type Responses = Vec<(String, String, String, String)>;

/// Reads the responses in a dump of verl or lm-eval, a file or a folder. Returns the format ("verl" or "lm-eval") and the
/// responses, or `None` if the path isn't a dump.
#[pyfunction]
pub(crate) fn read_dump(py: Python<'_>, path: PathBuf) -> PyResult<Option<(&'static str, Responses)>> {
    let read = || -> anyhow::Result<Option<(&'static str, Responses)>> {
        let files = dumps::dumps(&path)?;
        let Some((first, _)) = files.first() else { return Ok(None) };
        let name = match first {
            dumps::DumpFormat::LmEval => "lm-eval",
            dumps::DumpFormat::Verl => "verl",
        };
        let mut rows = Responses::new();
        for (format, file) in &files {
            let responses = dumps::responses(file, *format)?.into_iter();
            let name = |benchmark: Option<String>| benchmark.unwrap_or_else(|| dumps::named_by(file));
            rows.extend(responses.map(|r| (name(r.benchmark), r.problem, r.gold, r.text)));
        }
        Ok(Some((name, rows)))
    };
    without_gil(py, read)?.map_err(|e| bad(format!("{e:#}")))
}
