//! Helpers for all calls from Python: exceptions, work without the GIL, and threads that end with the call.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Creates a `ValueError` with this message.
pub(crate) fn bad(message: impl Display) -> PyErr {
    PyValueError::new_err(message.to_string())
}

/// Runs `work` without the GIL. A panic becomes `RuntimeError`.
pub(crate) fn without_gil<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| {
        let message = text_of(&*panic);
        PyRuntimeError::new_err(format!("internal error, please report it: {message}"))
    })
}

/// Returns the message of a panic.
pub(crate) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message")
}

/// Returns the number of threads for `pieces` of work: `count` or one per core, but at most one per piece.
pub(crate) fn threads(count: Option<usize>, pieces: usize) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    count.unwrap_or_else(cores).min(pieces).max(1)
}

/// Creates a pool for parallel iterators, with one thread per core if `threads` is 0. The threads end with the call,
/// because a forked child would wait forever for global threads.
pub(crate) fn own_threads(threads: usize) -> anyhow::Result<ThreadPool> {
    Ok(ThreadPoolBuilder::new().num_threads(threads).build()?)
}

/// Runs `work` with a separate pool of threads.
pub(crate) fn with_own_threads<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> PyResult<T> {
    without_gil(py, || own_threads(0)?.install(work))?.map_err(|e| bad(format!("{e:#}")))
}
