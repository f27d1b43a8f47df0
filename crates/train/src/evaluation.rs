//! Evaluation: problems, samples from an engine, a server or a file, their store, their grades, and what is counted.
//! The run's own evaluations and the command's are these same stages on the same files.

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
