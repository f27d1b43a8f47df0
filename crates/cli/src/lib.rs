//! The binary `fgrpo`: commands, reports and figures over the libraries `fgrpo-train`, `fgrpo-eval` and
//! `fgrpo-paper`.
//!
//! Start reading at [`args`]: one variant per command, each handing over to its module.

#[macro_use]
extern crate fgrpo_eval;

#[macro_use]
pub mod output;

pub mod args;
mod chart;
pub mod commands;
mod report;
