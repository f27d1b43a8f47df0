//! What people see: streams, progress, tables and figures.

// First, for its macros.
#[macro_use]
pub mod streams;

pub mod format;
pub mod notes;
pub mod progress;
pub mod table;

/// The version, and in a release build from a checkout the commit with its date.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("FGRPO_COMMIT"));
