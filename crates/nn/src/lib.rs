//! A decoder and its engine: forward, backward, sampling and AdamW over token ids. Does not know RL.
//!
//! Shapes in these docs: `T` tokens, `D` hidden, `H` heads, `K` KV heads, `E` head size,
//! `F` intermediate, `V` vocabulary, `L` layers.

#![allow(clippy::type_complexity, reason = "a callback's type says what it is given, where it is taken")]

// The modules in layers: each uses those of its own layer and of the layers before it. Only the engine's layer names a device.

// Number types, devices by name, errors.
mod device;
mod dtype;
pub mod error;
mod numbers;
mod switch;

// Sizes: configurations, families, the layout of parameters, batches; and files with them.
mod activations;
mod adamw;
mod cache;
pub mod config;
mod families;
mod layout;
mod lora;
mod quantized;
mod rope;
mod sampling;
mod segments;
pub mod weights;

// The operations of a device, and its memory.
mod backend;
mod decoding;
mod executor;

// The devices.
mod cpu;
mod cuda;

// Forward and backward passes over the operations.
mod decoder;

// Which sequences are decoded in a step.
mod generate;
mod tree;

// The engine, what it needs, and what it does per second.
mod engine;
mod flops;
#[doc(hidden)]
pub mod kernels;
mod needs;

pub use adamw::{AdamW, UpdateReport};
pub use backend::GraphCounts;
pub use cache::numbers_per_token;
pub use device::{Device, DeviceName};
pub use engine::{
    DEFAULT_CHUNK_TOKENS, Engine, FamilyScores, NamedTensor, OptimizerState, Scores, TrainingState,
};
pub use error::Error;
pub use executor::checks::CHECK_LAYERS;
pub use fgrpo_cuda::{Found as Gpu, probe as gpus, products_library};
pub use flops::{Flops, measure_flops};
pub use generate::{Arrival, Completion, Feed, Finish, Prompt, StopFn, UniformFn};
pub use lora::LoraConfig;
pub use needs::{GpuSettings, Needs, Workload, least_cached_tokens};
pub use numbers::{Precision, Products};
pub use quantized::BaseFormat;
pub use sampling::Sampling;
pub use segments::{Batch, Prediction, Segment};
