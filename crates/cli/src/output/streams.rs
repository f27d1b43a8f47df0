//! Standard output and standard error. A failed write never ends the program: a stream that is closed or full is
//! ignored, where the standard macros would panic.
//!
//! `say!` writes a line to stderr. `out!` and `outln!` write a command's data to stdout. It is
//! no error if the reader of stdout stops early (`| head`). If data is lost for another reason, the command fails at
//! its end.

use fgrpo_eval::io::harmless::harmless;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::Mutex;

/// The first error of a write to stdout that lost data.
static LOST: Mutex<Option<String>> = Mutex::new(None);

/// Writes a line to stderr.
macro_rules! say {
    ($($arg:tt)*) => { $crate::output::streams::to_stderr(format_args!("{}\n", format_args!($($arg)*))) };
}

/// Writes data to stdout.
macro_rules! out {
    ($($arg:tt)*) => { $crate::output::streams::to_stdout(format_args!($($arg)*)) };
}

/// Writes a line of data to stdout.
macro_rules! outln {
    () => { $crate::output::streams::to_stdout(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::output::streams::to_stdout(format_args!("{}\n", format_args!($($arg)*))) };
}

/// Writes to stderr, [`harmless`]. An error is passed over.
pub fn to_stderr(text: Arguments<'_>) {
    // Formatted first, so that a line is one write and isn't mixed with other processes' lines.
    let _ = std::io::stderr().write_all(harmless(&text.to_string()).as_bytes());
}

/// Writes to stdout. The first error that loses data is kept for [`check`].
pub fn to_stdout(text: Arguments<'_>) {
    stream(&text.to_string());
}

/// Writes to stdout as [`to_stdout`]. Returns whether the reader is still there, so that a caller can stop making data.
pub fn stream(text: &str) -> bool {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    let read_on = written.is_ok();
    keep(written);
    read_on
}

/// Whether stdout took everything that was written to it. A reader that left early is no error.
pub fn check() -> anyhow::Result<()> {
    match LOST.lock().unwrap_or_else(|e| e.into_inner()).take() {
        Some(error) => anyhow::bail!("writing to standard output: {error}"),
        None => Ok(()),
    }
}

fn keep(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        LOST.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error.to_string());
    }
}
