//! Evaluation in stages: problems, samples from an engine, a server or a file, storage, grades and counts. A run's own
//! evaluations and the command's evaluations use the same stages and the same files.

pub mod estimate;
pub mod folder;
pub mod from_engine;
pub mod from_file;
pub mod from_server;
pub mod generations;
pub mod in_training;
pub mod plan;
pub mod prompts;
pub mod record;
pub mod samples;
pub mod scoring;
pub mod texts;
