//! What happens in a run, told to whoever runs it. This crate itself prints nothing.
//!
//! What a stage of a run reaches is told through [`Events`]. What any function notices in passing, such as rows of
//! a file that are left out, is a `tracing` event of level `INFO` or `WARN`.

use std::path::Path;

/// Who is told. Every method but [`Events::say`] may be left out; `()` hears nothing.
pub trait Events {
    /// The run's folder is open; a log may be kept there.
    ///
    /// # Errors
    /// When that log can't be opened, which ends the run.
    fn opened(&mut self, folder: &Path) -> anyhow::Result<()> {
        let _ = folder;
        Ok(())
    }

    /// A line for people and for the run's log.
    fn say(&mut self, line: &str);

    /// A line for the run's log alone.
    fn note(&mut self, line: &str) {
        let _ = line;
    }

    /// A stage of `length` parts begins, `done` of them already behind.
    fn begin(&mut self, stage: &'static str, done: u64, length: u64) {
        let _ = (stage, done, length);
    }

    /// The stage has reached `position`.
    fn progress(&mut self, position: u64, message: String) {
        let _ = (position, message);
    }

    /// What is being done at this position.
    fn doing(&mut self, what: &str) {
        let _ = what;
    }

    /// The stage has ended, or was stopped.
    fn end(&mut self) {}
}

impl Events for () {
    fn say(&mut self, _: &str) {}
}
