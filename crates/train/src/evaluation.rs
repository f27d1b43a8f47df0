//! Evaluation by the engine: samples of a checkpoint or of the policy in training, in the stages of `fgrpo-eval`; and what
//! needs checkpoints or runs beside samples.

pub mod exact;
pub mod from_engine;
pub mod in_training;
pub mod nll;
pub mod select;
