//! Events of a run, which are reported to the caller. This crate itself prints nothing.
//!
//! The progress of a run is reported through [`Events`]. Other notices, such as rows of a file that are left out, are
//! `tracing` events of level `INFO` or `WARN`.

use std::path::Path;

/// Receives events. Every method except [`Events::say`] has a default; `()` ignores all events.
pub trait Events {
    /// Reports that the run folder is open, so that a log may be written there. An error, such as for a log that can't
    /// be opened, ends the run.
    fn opened(&mut self, folder: &Path) -> anyhow::Result<()> {
        let _ = folder;
        Ok(())
    }

    /// Returns the program's version, for the run's record of its sessions.
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// Receives a message for the user and for the run's log.
    fn say(&mut self, line: &str);

    /// Receives a message for the run's log only.
    fn note(&mut self, line: &str) {
        let _ = line;
    }

    /// Reports that a stage of `length` parts begins, of which `done` are already complete.
    fn begin(&mut self, stage: &'static str, done: u64, length: u64) {
        let _ = (stage, done, length);
    }

    /// Reports that the stage has reached `position`, with a message.
    fn progress(&mut self, position: u64, message: String) {
        let _ = (position, message);
    }

    /// Receives a description of the activity at the current position.
    fn doing(&mut self, what: &str) {
        let _ = what;
    }

    /// Reports that the stage has ended or was stopped.
    fn end(&mut self) {}
}

impl Events for () {
    fn say(&mut self, _: &str) {}
}
