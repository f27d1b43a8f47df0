//! Reads problems and samples, grades the samples, and estimates what they show about models.
//!
//! Samples come from an engine (in `fgrpo-train`), a server or a file. Problems, store, verdicts and estimates don't depend
//! on the source. Engines, command lines, printing and drawing are the business of other crates.

// Declared first, because the other modules use their macros.
#[macro_use]
pub mod failure;
#[macro_use]
pub mod names;

pub mod amounts;
pub mod benchmarks;
pub mod clusters;
pub mod compare;
pub mod dataset;
pub mod diversity;
pub mod dumps;
pub mod estimate;
pub mod evaluate;
pub mod events;
pub mod exact;
pub mod figure;
pub mod folder;
pub mod from_file;
pub mod from_server;
pub mod generations;
pub mod grade;
pub mod graded;
pub mod group_size;
pub mod inspect;
pub mod io;
pub mod kind;
pub mod plan;
pub mod power;
pub mod problems;
pub mod program;
pub mod prompts;
pub mod ranking;
pub mod record;
pub mod row;
pub mod samples;
pub mod table;
pub mod texts;
pub mod unreadable;
pub mod verifier;
