//! The command line as users see it, one file per subject, in a single program, because linking thirty took minutes.

// First, because of its macro.
#[macro_use]
mod support;

mod algorithm;
mod arena;
mod arithmetic;
mod bad_input;
mod changes;
mod comparisons;
mod data;
mod device;
mod durable;
mod eval_config;
mod evaluate;
mod evaluate_checkpoint;
mod evaluations;
mod export;
mod fault_server;
#[path = "../../../eval/tests/files/mod.rs"]
mod files;
mod gguf;
mod hub;
mod ignored_settings;
mod job_dumps;
mod lora;
mod paper;
mod products;
mod report;
mod resume;
mod samples_elsewhere;
mod serve;
mod serving;
mod sft;
mod simulation_commands;
mod statistics;
mod suite;
mod teacher;
mod train;
mod usage;
mod verify;
mod walkthrough;
