//! The commands that do work: each turns flags into values of the library and prints what it reached.

pub mod compare;
pub mod completions;
pub mod data;
pub mod devices;
pub mod diversity;
pub mod dry_run;
pub mod eval;
pub mod generate;
pub mod init;
pub mod maze;
pub mod merge;
pub mod nll;
pub mod paper;
pub mod pass_at_k;
pub mod plan;
pub mod runs;
pub mod score;
pub mod select;
pub mod sft;
pub mod simulate;
pub mod suite;
pub mod sweep;
pub mod table;
pub mod theory;
pub mod train;
pub mod verify;
