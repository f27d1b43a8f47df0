//! Commands, reports and figures of the program `fgrpo`, on top of `fgrpo-train`, `fgrpo-eval` and `fgrpo-paper`.
//!
//! Start reading at [`args`]: it has a variant for each command, which its module runs.

#[macro_use]
extern crate fgrpo_eval;

#[macro_use]
pub mod output;

pub mod args;
mod chart;
pub mod commands;
mod report;
