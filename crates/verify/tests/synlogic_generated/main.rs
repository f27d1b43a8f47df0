//! What holds for generated problems of every SynLogic task.

mod balance;
mod problems;
mod quirks;
mod robustness;
mod strict;
