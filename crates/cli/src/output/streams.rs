//! Standard output and standard error. A failed write doesn't end the program at once, unlike in the standard macros.
//!
//! `say!` writes a line to stderr. `out!` and `outln!` write a command's data to stdout. A reader of stdout may stop early
//! (`| head`). If data is lost for another reason, [`check`] makes the command fail at its end.

use fgrpo_eval::io::harmless::harmless;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::Mutex;

/// First error of a write to stdout that lost data.
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

/// Writes to stderr, with control characters made [`harmless`]. Errors are ignored.
pub fn to_stderr(text: Arguments<'_>) {
    // A line is a single write, so that it doesn't mix with lines of other processes.
    let _ = std::io::stderr().write_all(harmless(&text.to_string()).as_bytes());
}

/// Writes to stdout. [`check`] reports the first error that loses data.
pub fn to_stdout(text: Arguments<'_>) {
    stream(&text.to_string());
}

/// Like [`to_stdout`]. Returns `false` if the write failed, so that the caller can stop producing data.
pub fn stream(text: &str) -> bool {
    let mut stdout = std::io::stdout().lock();
    let result = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    let is_open = result.is_ok();
    keep(result);
    is_open
}

/// Returns an error if data written to stdout was lost. A reader that stops early isn't an error.
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
