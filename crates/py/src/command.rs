//! The command `fgrpo` inside the extension module.

use crate::call::without_gil;
use clap::Parser;
use fgrpo::args::{Cli, run};
use pyo3::prelude::*;
use std::io::Write;

/// Runs the command line `argv`, which starts with the program's name, and returns its exit code.
///
/// The caller first restores the default handler of SIGINT, so that Ctrl-C reaches the command.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, argv: Vec<String>) -> PyResult<u8> {
    without_gil(py, || {
        let code = match Cli::try_parse_from(argv) {
            Ok(cli) => run(cli),
            // Help and version are printed this way too.
            Err(error) => {
                let _ = error.print();
                u8::try_from(error.exit_code()).unwrap_or(2)
            }
        };
        // A Rust program flushes its stdout when it ends, but an interpreter doesn't.
        let _ = std::io::stdout().flush();
        code
    })
}
