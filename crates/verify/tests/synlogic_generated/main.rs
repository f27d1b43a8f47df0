//! Properties of generated problems of every SynLogic task.

mod balance;
mod problems;
mod python;
mod quirks;
mod reading;
mod robustness;
mod strict;
