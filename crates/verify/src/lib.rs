//! Verifiers: a pure function of (reference answer, completion, settings) -> verdict and reason,
//! with a bounded amount of work. No I/O, clocks or threads.

pub mod boxed;
pub mod choice;
mod finder;
mod forms;
pub mod ifeval;
mod languages;
pub mod math;
mod python_text;
mod retraction;
mod statement;
pub mod synlogic;
pub mod thoughts;
pub mod verdict;
