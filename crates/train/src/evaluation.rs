//! Evaluation of a checkpoint or of the policy in training with the engine, exact measures, likelihoods of stored
//! samples, and the choice of a checkpoint.

pub mod exact;
pub mod from_engine;
pub mod in_training;
pub mod nll;
pub mod select;
