//! Output for people: streams, progress, tables and number formats.

// This module comes first, because later modules use its macros.
#[macro_use]
pub mod streams;

use fgrpo_eval::failure::{Remedy, Stopped, with_advice};

pub mod format;
pub mod notes;
pub mod progress;
pub mod table;

/// Returns the message that the program prints for an error before it exits.
pub(crate) fn last_words(error: &anyhow::Error) -> String {
    let line = with_advice(error, |remedy| match remedy {
        Remedy::Resume => "use --resume",
        Remedy::Restart => "delete the run and start it again with --restart",
        Remedy::AcceptChanges => "use --resume with --accept-changes",
        Remedy::OtherFolder => "choose another folder with --out",
        Remedy::NewPlace => "use --resume with its new path as --out",
        Remedy::Uneven => "use them as they are with --uneven",
        Remedy::AnyStep => "choose among all evaluations with --any-step",
    });
    if error.chain().any(|c| c.is::<Stopped>()) { line } else { format!("error: {line}") }
}

/// Version of the program. A release build from a Git checkout adds the commit and its date.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("FGRPO_COMMIT"));
