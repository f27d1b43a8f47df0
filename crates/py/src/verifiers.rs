//! Runs the verifiers on lists of answers.

use crate::call::{bad, own_threads, threads, without_gil};
use fgrpo_eval::graded::{Graded, Response};
use fgrpo_eval::names::Named;
use fgrpo_eval::verifier::{Grading, Mode, Reasoning, Settings};
use fgrpo_verify::math::parsed::{self, Answer, Target, Words};
use fgrpo_verify::verdict::{Outcome, Verdict};
use fgrpo_verify::{choice, ifeval, math, synlogic};
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use rayon::prelude::*;
use serde_json::{Number, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

/// Smallest number of responses that a thread takes at a time.
const BATCH: usize = 16;

/// Codes `(B,)` and reasons, one per response.
type Verdicts<'py> = (Bound<'py, PyArray1<u8>>, Vec<Cow<'static, str>>);

/// Returns the index of a verdict in `fgrpo.VERDICTS`.
const fn code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Correct => 0,
        Verdict::Wrong => 1,
        Verdict::Unparsed => 2,
        Verdict::Unscorable => 3,
    }
}

/// Returns the strings of a sequence. They stay in Python's memory, from which [`text`] borrows them.
fn strings<'py>(name: &str, items: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyString>>> {
    let string = |(i, item): (usize, PyResult<Bound<'py, PyAny>>)| {
        item?.cast_into::<PyString>().map_err(|e| {
            let kind = e.into_inner().get_type();
            PyTypeError::new_err(format!("{name}[{i}]: expected str, found {kind}"))
        })
    };
    items.try_iter()?.enumerate().map(string).collect()
}

/// Converts strings to UTF-8. A lone surrogate, which UTF-8 can't represent, becomes U+FFFD.
fn text<'a>(strings: &'a [Bound<'_, PyString>]) -> Vec<Cow<'a, str>> {
    strings.iter().map(|s| s.to_string_lossy()).collect()
}

/// Converts a reference answer: a string, a number, or a list of them (or an array or tensor).
fn gold(name: impl Fn() -> String, item: &Bound<'_, PyAny>) -> PyResult<String> {
    match item.cast::<PyString>() {
        Ok(text) => Ok(math::gold::gold(&text.to_string_lossy()).into_owned()),
        Err(_) => {
            math::gold::gold_in(&gold_value(&name, item)?).map_err(|why| bad(format!("{}: {why}", name())))
        }
    }
}

fn gold_value(name: &impl Fn() -> String, item: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(text) = item.cast::<PyString>() {
        return Ok(Value::String(text.to_string_lossy().into_owned()));
    }
    if item.is_instance_of::<PyBool>() {
        return Ok(Value::Bool(item.extract()?));
    }
    if item.is_instance_of::<PyInt>() {
        return Ok(Value::String(item.str()?.to_string()));
    }
    if item.is_instance_of::<PyList>() || item.is_instance_of::<PyTuple>() {
        let items = item.try_iter()?.map(|part| gold_value(name, &part?));
        return Ok(Value::Array(items.collect::<PyResult<_>>()?));
    }
    if item.hasattr("tolist")? {
        return gold_value(name, &item.call_method0("tolist")?);
    }
    let number = item.cast::<PyFloat>().ok().and_then(|number| Number::from_f64(number.value()));
    let error = || {
        let value = item.repr().map_or_else(|_| item.get_type().to_string(), |repr| repr.to_string());
        PyTypeError::new_err(format!("{}: expected a string, a number or a list, found {value:.80}", name()))
    };
    number.map(Value::Number).ok_or_else(error)
}

fn golds(items: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    items.try_iter()?.enumerate().map(|(i, item)| gold(|| format!("golds[{i}]"), &item?)).collect()
}

/// Checks every response against its problem. A problem that occurs several times is parsed once.
///
/// `make` creates the verifier of a problem. If `make` fails, the responses are unscorable, with its message as the reason.
/// `grading` determines how reasoning is treated.
fn check_all<'py, K, P>(
    py: Python<'py>,
    problems: &[K],
    responses: &[Cow<'_, str>],
    grading: Grading,
    count: Option<usize>,
    make: impl Fn(&K) -> Result<P, String> + Sync,
    check: impl Fn(&P, Response<'_>) -> Outcome + Sync,
) -> PyResult<Verdicts<'py>>
where
    K: Hash + Eq + Sync,
    P: Send + Sync,
{
    let n = responses.len();
    if problems.len() != n {
        return Err(bad(format!("there are {} reference answers for {n} responses", problems.len())));
    }
    let threads = threads(count, n.div_ceil(BATCH));
    let outcomes = without_gil(py, || -> anyhow::Result<Vec<Outcome>> {
        let mut indices: HashMap<&K, usize> = HashMap::new();
        let which: Vec<usize> = problems
            .iter()
            .map(|key| {
                let next = indices.len();
                *indices.entry(key).or_insert(next)
            })
            .collect();
        let read: Vec<OnceLock<Result<P, String>>> = (0..indices.len()).map(|_| OnceLock::new()).collect();
        let one = |i: usize| {
            let work = || match read[which[i]].get_or_init(|| make(&problems[i])) {
                Ok(verifier) => grading.grade(&responses[i], |response| check(verifier, response).into()),
                Err(why) => Graded::unscorable(format!("bad_input: {why}")),
            };
            let Graded { verdict, reason, .. } = fgrpo_eval::graded::guarded(work);
            Outcome { verdict, reason }
        };
        if threads == 1 {
            return Ok((0..n).map(one).collect());
        }
        own_threads(threads)?.install(|| Ok((0..n).into_par_iter().with_min_len(BATCH).map(one).collect()))
    })?
    .map_err(bad)?;
    let codes: Vec<u8> = outcomes.iter().map(|o| code(o.verdict)).collect();
    Ok((codes.into_pyarray(py), outcomes.into_iter().map(|o| o.reason).collect()))
}

pub(crate) fn mode_named(name: &str) -> PyResult<Mode> {
    Mode::from_name(name)
        .ok_or_else(|| bad(format!("mode: expected \"parity\" or \"strict\", found {name:?}")))
}

/// Returns the treatment of thoughts in a mode.
fn grading(mode: &str, reasoning: Option<&str>) -> PyResult<Grading> {
    let mode = mode_named(mode)?;
    let reasoning =
        reasoning.map(str::parse::<Reasoning>).transpose().map_err(|why| bad(format!("reasoning: {why}")))?;
    Ok(Grading::new(Settings { mode, reasoning, ..Settings::default() }, None))
}

fn math_options(grading: &Grading, accept_unfinished: bool) -> math::Options {
    let mode = match grading.settings.mode {
        Mode::Parity => math::Mode::Parity,
        Mode::Strict => math::Mode::Strict,
    };
    math::Options { mode, accept_unfinished, ..math::Options::default() }
}

/// Grades math responses. `golds` has one reference answer per response.
#[pyfunction]
pub(crate) fn verify_math<'py>(
    py: Python<'py>,
    golds: Bound<'py, PyAny>,
    responses: Bound<'py, PyAny>,
    mode: &str,
    accept_unfinished: bool,
    reasoning: Option<&str>,
    threads: Option<usize>,
) -> PyResult<Verdicts<'py>> {
    let grading = grading(mode, reasoning)?;
    let options = math_options(&grading, accept_unfinished);
    let (golds, responses) = (self::golds(&golds)?, strings("responses", &responses)?);
    check_all(
        py,
        &golds,
        &text(&responses),
        grading,
        threads,
        |gold| Ok(math::Verifier::new(gold, &options)),
        |verifier, response| verifier.check(response.answer),
    )
}

/// Checks multiple-choice responses. `golds`: one letter for each response; `options`: the options of each question, or `None`.
#[pyfunction]
pub(crate) fn verify_choice<'py>(
    py: Python<'py>,
    golds: Bound<'py, PyAny>,
    responses: Bound<'py, PyAny>,
    options: Option<Vec<Vec<String>>>,
    r#match: &str,
    reasoning: Option<&str>,
    threads: Option<usize>,
) -> PyResult<Verdicts<'py>> {
    let compare = match r#match {
        "letter" => choice::Match::Letter,
        "letter-or-content" => choice::Match::LetterOrContent,
        _ => {
            return Err(bad(format!(
                "match: expected \"letter\" or \"letter-or-content\", found {:?}",
                r#match
            )));
        }
    };
    let (golds, responses) = (strings("golds", &golds)?, strings("responses", &responses)?);
    let options = options.unwrap_or_else(|| vec![Vec::new(); golds.len()]);
    if options.len() != golds.len() {
        return Err(bad(format!("options: there are {} lists for {} golds", options.len(), golds.len())));
    }
    let problems: Vec<(Cow<'_, str>, Vec<String>)> = text(&golds).into_iter().zip(options).collect();
    check_all(
        py,
        &problems,
        &text(&responses),
        grading(Mode::TRAINING.name(), reasoning)?,
        threads,
        |(gold, options)| choice::Verifier::new(gold, options, compare).map_err(|e| e.to_string()),
        |verifier, response| verifier.check(response.answer),
    )
}

/// Grades IFEval responses. `instructions` has the names per response, and `arguments` their arguments as a JSON array.
#[pyfunction]
pub(crate) fn verify_ifeval<'py>(
    py: Python<'py>,
    instructions: Vec<Vec<String>>,
    arguments: Vec<String>,
    responses: Bound<'py, PyAny>,
    reasoning: Option<&str>,
    threads: Option<usize>,
) -> PyResult<Verdicts<'py>> {
    let responses = strings("responses", &responses)?;
    let problems: Vec<(Vec<String>, String)> = instructions.into_iter().zip(arguments).collect();
    check_all(
        py,
        &problems,
        &text(&responses),
        grading(Mode::TRAINING.name(), reasoning)?,
        threads,
        |(ids, arguments)| {
            let arguments: Vec<serde_json::Value> =
                serde_json::from_str(arguments).map_err(|e| e.to_string())?;
            ifeval::Verifier::new(ids, &arguments).map_err(|e| e.to_string())
        },
        |verifier, response| verifier.check(response.answer),
    )
}

/// Grades SynLogic responses. `tasks` and `game_data` have one task and its data per response.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the Python half names them")]
pub(crate) fn verify_synlogic<'py>(
    py: Python<'py>,
    tasks: Bound<'py, PyAny>,
    game_data: Bound<'py, PyAny>,
    responses: Bound<'py, PyAny>,
    mode: &str,
    format_gate: bool,
    reasoning: Option<&str>,
    threads: Option<usize>,
) -> PyResult<Verdicts<'py>> {
    let grading = grading(mode, reasoning)?;
    let mode = match grading.settings.mode {
        Mode::Parity => synlogic::Mode::Parity,
        Mode::Strict => synlogic::Mode::Strict,
    };
    let options = synlogic::Options { mode, format_gate };
    let (tasks, game_data) = (strings("tasks", &tasks)?, strings("game_data", &game_data)?);
    if tasks.len() != game_data.len() {
        return Err(bad(format!(
            "tasks and game_data differ in length: {} and {}",
            tasks.len(),
            game_data.len()
        )));
    }
    let responses = strings("responses", &responses)?;
    let problems: Vec<(Cow<'_, str>, Cow<'_, str>)> =
        text(&tasks).into_iter().zip(text(&game_data)).collect();
    check_all(
        py,
        &problems,
        &text(&responses),
        grading,
        threads,
        |(task, data)| {
            let task = task.parse().map_err(|e: synlogic::Error| e.to_string())?;
            synlogic::Verifier::parse(task, data).map_err(|e| e.to_string())
        },
        |verifier, response| verifier.check_answer(response.text, response.answer, &options),
    )
}

/// A math reference answer, parsed once. Safe to share between threads.
#[pyclass(frozen, subclass, module = "fgrpo._native")]
pub(crate) struct MathProblem {
    /// The verifier, or `None` if parsing the gold panicked, so that every response is unscorable.
    verifier: Option<math::Verifier>,
    grading: Grading,
    gold: String,
    mode: String,
    accept_unfinished: bool,
    reasoning: Option<String>,
}

#[pymethods]
impl MathProblem {
    #[new]
    #[pyo3(signature = (gold, *, mode = Mode::REFERENCE.name(), accept_unfinished = false, reasoning = None))]
    fn new(
        py: Python<'_>,
        gold: &Bound<'_, PyAny>,
        mode: &str,
        accept_unfinished: bool,
        reasoning: Option<String>,
    ) -> PyResult<Self> {
        let grading = grading(mode, reasoning.as_deref())?;
        let options = math_options(&grading, accept_unfinished);
        let gold = self::gold(|| "gold".to_owned(), gold)?;
        let verifier = without_gil(py, || math::Verifier::new(&gold, &options)).ok();
        Ok(Self { verifier, grading, gold, mode: mode.to_owned(), accept_unfinished, reasoning })
    }

    /// Returns the verdict's code (its index in fgrpo.VERDICTS) and its reason.
    fn check(&self, py: Python<'_>, response: Bound<'_, PyString>) -> (u8, Cow<'static, str>) {
        let response = response.to_string_lossy();
        let check = || match &self.verifier {
            Some(verifier) => {
                self.grading.grade(&response, |response| verifier.check(response.answer).into())
            }
            None => Graded::unscorable("panic"),
        };
        let outcome = py.detach(check);
        (code(outcome.verdict), outcome.reason)
    }

    /// Arguments with which Python copies and unpickles this object.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((&str,), Bound<'py, PyDict>)> {
        let settings = PyDict::new(py);
        settings.set_item("mode", &self.mode)?;
        settings.set_item("accept_unfinished", self.accept_unfinished)?;
        settings.set_item("reasoning", &self.reasoning)?;
        Ok(((&self.gold,), settings))
    }

    fn __repr__(&self) -> String {
        let unfinished = if self.accept_unfinished { ", accept_unfinished=True" } else { "" };
        format!("MathProblem({:?}, mode={:?}{unfinished})", self.gold, self.mode)
    }
}

/// Targets that responses are searched for; see `fgrpo.math_verify`.
#[pyclass(frozen, module = "fgrpo._native")]
pub(crate) struct MathExtraction(Vec<Target>);

/// One target as Python passes it: LaTeX `(bare, boxes, last)`, plain `(bare,)` or words `(bare, words, lowercase)`.
#[derive(FromPyObject)]
enum TargetOf {
    Words(bool, Vec<String>, bool),
    Latex(bool, i32, bool),
    Plain((bool,)),
}

#[pymethods]
impl MathExtraction {
    #[new]
    fn new(targets: Vec<TargetOf>) -> PyResult<Self> {
        let target = |target| match target {
            TargetOf::Words(bare, words, lowercase) => {
                Words::new(&words, bare, lowercase).map(Target::Words).map_err(bad)
            }
            TargetOf::Latex(bare, boxes, last) => Ok(Target::Latex { bare, boxes, last }),
            TargetOf::Plain((bare,)) => Ok(Target::Plain(bare)),
        };
        Ok(Self(targets.into_iter().map(target).collect::<PyResult<_>>()?))
    }

    /// Returns the value (or None), the first candidate's text (or None), and whether a candidate exceeded the limits.
    fn parse<'py>(
        &self,
        py: Python<'py>,
        text: Bound<'_, PyString>,
        first_only: bool,
    ) -> PyResult<(Option<Bound<'py, PyAny>>, Option<String>, bool)> {
        let text = text.to_string_lossy();
        let reading = without_gil(py, || parsed::parse(&text, &self.0, first_only))?;
        let value = match reading.value {
            Some(Answer::Value(value)) => Some(Bound::new(py, MathValue(*value))?.into_any()),
            Some(Answer::Word(word)) => Some(PyString::new(py, &word).into_any()),
            None => None,
        };
        Ok((value, reading.text, reading.over_budget))
    }
}

/// A parsed answer. Two values are equal if they were parsed identically; `fgrpo.math_verify.verify` compares their
/// meaning.
#[pyclass(frozen, name = "Value", module = "fgrpo.math_verify")]
pub(crate) struct MathValue(parsed::Value);

#[pymethods]
impl MathValue {
    #[new]
    fn new(notation: &str, parts: Vec<(String, bool)>) -> PyResult<Self> {
        let value = parsed::Value::restored(notation, &parts).map(Self);
        value.ok_or_else(|| bad(format!("Value: invalid pickle: {notation:?} and {parts:?}")))
    }

    /// Returns whether this gold equals `answer`, or None if the comparison is too expensive.
    fn equals(
        &self,
        py: Python<'_>,
        answer: &Self,
        precision: usize,
        strict: bool,
        allow_set_relation_comp: bool,
    ) -> PyResult<Option<bool>> {
        let options =
            math::Options { precision, strict, allow_set_relation_comp, ..math::Options::default() };
        without_gil(py, || parsed::equal(&self.0, &answer.0, &options))
    }

    /// Arguments with which Python copies and unpickles this object.
    fn __getnewargs__(&self) -> (&'static str, Vec<(String, bool)>) {
        let (notation, parts) = self.0.parts();
        (notation, parts.to_vec())
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.to_string().hash(&mut hasher);
        hasher.finish()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Value({})", self.0)
    }
}
