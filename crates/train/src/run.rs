//! A run: its folder, checkpoints, files, seeds and resource estimates.

pub mod checkpoint;
mod contents;
pub mod duration;
pub mod fingerprint;
pub mod folder;
pub mod metrics;
pub mod needs;
pub mod rollouts;
pub mod seeds;
pub mod sessions;
pub mod state;
pub mod tensorboard;

pub use contents::{FILES, Run};
