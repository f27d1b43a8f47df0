//! A decoder and its engine: forward, backward, sampling and AdamW over token ids. Does not know RL.
//!
//! Shapes in these docs: `T` tokens, `D` hidden, `H` heads, `K` KV heads, `E` head size,
//! `F` intermediate, `V` vocabulary, `L` layers.

#![allow(
    clippy::too_many_arguments,
    reason = "an operation's operands are named where it is called, not bundled"
)]
#![allow(clippy::type_complexity, reason = "a callback's type says what it is given, where it is taken")]

pub mod config;
pub mod error;
pub mod weights;

mod activations;
mod adamw;
mod backend;
mod cache;
mod checks;
mod cpu;
mod cuda;
mod decoder;
mod decoding;
mod engine;
mod executor;
mod families;
mod flops;
mod generate;
#[doc(hidden)]
pub mod kernels;
mod layout;
mod lora;
mod needs;
mod quantized;
mod rope;
mod sampling;
mod segments;
mod switch;
mod tree;

pub use adamw::{AdamW, UpdateReport};
pub use backend::GraphCounts;
pub use cache::numbers_per_token;
pub use checks::CHECK_LAYERS;
pub use engine::{
    DEFAULT_CHUNK_TOKENS, Device, DeviceName, Engine, FamilyScores, NamedTensor, OptimizerState, Precision,
    Products, Scores, TrainingState,
};
pub use error::Error;
pub use fgrpo_cuda::{Found as Gpu, probe as gpus, products_library};
pub use flops::{Flops, measure_flops};
pub use generate::{Arrival, Completion, Feed, Finish, Prompt, StopFn, UniformFn};
pub use lora::LoraConfig;
pub use needs::{GpuSettings, Needs, Workload, least_cached_tokens};
pub use quantized::BaseFormat;
pub use sampling::Sampling;
pub use segments::{Batch, Prediction, Segment};
