//! The binary `fgrpo`: tasks, data, rollout and training loops, evaluation and reports.
//!
//! Start reading at [`cli`]. Everything mathematical lives in `fgrpo-core`, the decoder in
//! `fgrpo-nn`, the verifiers in `fgrpo-verify`.

pub mod benchmarks;
pub mod cli;
pub mod command_verifier;
pub mod compare;
pub mod data;
pub mod dataset;
pub mod failure;
pub mod grade;
pub mod ordered;
pub mod pass_at_k;
pub mod plan;
pub mod report;
pub mod samples;
pub mod table;
pub mod verify;
