//! `fgrpo.train`: a run of `fgrpo train` in the caller's process, graded by a Python function.

use crate::call::{bad, own_threads, without_gil};
use crate::engine::raised;
use fgrpo::args::places::{self, Loading};
use fgrpo::commands::train::run_and_report;
use fgrpo::output::progress::Console;
use fgrpo_eval::io::interrupt;
use fgrpo_eval::program::Answerer;
use fgrpo_nn::DeviceName;
use fgrpo_train::config::{Config, Override};
use fgrpo_train::run::Run;
use fgrpo_train::run::folder::IfExists;
use fgrpo_train::session::Ending;
use fgrpo_train::trainer::{Trained, has_steps};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a run is in progress in this process.
static RUNS: AtomicBool = AtomicBool::new(false);

/// Runs `fgrpo train`. Returns whether it was stopped on request. `file` is the configuration, or `None` if `settings`, a
/// list of keys and values in JSON, contains all of it. `answer` converts a question in JSON to an answer in JSON.
#[pyfunction]
pub(crate) fn train(
    py: Python<'_>,
    file: Option<PathBuf>,
    settings: String,
    out: PathBuf,
    if_exists: &str,
    device: &str,
    answer: Option<Py<PyAny>>,
) -> PyResult<bool> {
    let device: DeviceName = device.parse().map_err(|why| bad(format!("device: {why}")))?;
    let if_exists = match if_exists {
        "resume" => IfExists::Resume { accept_changes: false },
        "resume changed" => IfExists::Resume { accept_changes: true },
        "restart" => IfExists::Restart,
        "refuse" => IfExists::Refuse,
        _ => {
            return Err(bad(format!(
                "if_exists: expected \"refuse\", \"resume\" or \"restart\", found {if_exists:?}"
            )));
        }
    };
    let answerer = answer.map(|answer| {
        Answerer::new(move |question| {
            let answer = Python::attach(|py| answer.call1(py, (question,))?.extract::<String>(py));
            // A message that isn't JSON becomes the reason of an unscorable answer.
            answer.unwrap_or_else(|error| error.to_string())
        })
    });
    let work = || -> anyhow::Result<Ending<Trained>> {
        let settings: Vec<(String, toml::Value)> = serde_json::from_str(&settings)?;
        let settings = settings.into_iter().map(|(key, value)| Override { source: key.clone(), key, value });
        let settings: Vec<Override> = settings.collect();
        let mut config = match &file {
            Some(file) => Config::load_with(file, &settings)?,
            None => Config::parse_with("", &settings)?,
        };
        has_steps(&config)?;
        if let Some(answerer) = &answerer {
            config.task.set_answerer(answerer);
        }
        let resumed = matches!(if_exists, IfExists::Resume { .. }).then_some(out.as_path());
        places::configuration(&mut config, resumed, Loading::All)?;
        run_and_report(&config, &out, if_exists, device, &mut Console::new())
    };
    // A request to stop applies to the whole process, so it has only one run.
    if RUNS.swap(true, Ordering::SeqCst) {
        return Err(bad(
            "train: another run is in progress in this process; wait for its end, or use another process",
        ));
    }
    interrupt::request(false);
    let result = without_gil(py, || own_threads(0)?.install(work));
    interrupt::request(false);
    RUNS.store(false, Ordering::SeqCst);
    match result? {
        Ok(ending) => Ok(matches!(ending, Ending::Interrupted)),
        Err(error) => Err(raised(&error)),
    }
}

/// Reads the metrics and evaluations of a run folder, as JSON.
#[pyfunction]
pub(crate) fn read_run(py: Python<'_>, folder: PathBuf) -> PyResult<String> {
    let read = || -> anyhow::Result<String> {
        let run = Run::open(&folder)?;
        Ok(serde_json::json!({"metrics": run.metrics, "evaluations": run.evaluations}).to_string())
    };
    without_gil(py, read)?.map_err(|error| raised(&error))
}

/// Requests that the run in this process saves its state and stops.
#[pyfunction]
pub(crate) fn stop_training() {
    interrupt::request(true);
}
