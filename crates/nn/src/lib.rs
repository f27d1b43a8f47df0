//! Decoder-only transformers and the engine that runs them: forward and backward passes, sampling, and AdamW, all over
//! token ids. Nothing here knows about reinforcement learning.
//!
//! Shapes in the documentation: `T` tokens, `D` hidden size, `H` attention heads, `K` key-value heads, `E` head size,
//! `F` intermediate size, `V` vocabulary size, `L` layers.

#![allow(clippy::type_complexity, reason = "a callback's arguments are easiest to read where it is passed")]

// Modules in layers: a module uses only its own layer and the layers above it in this list. Only the engine knows the devices.

// Number types, devices by name, errors.
mod device;
mod dtype;
pub mod error;
mod numbers;
mod switch;

// Configurations, families, the parameter layout, batches, and checkpoint files.
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

// The operations and the memory that each device implements.
mod backend;
mod decoding;
mod executor;

// Forward and backward passes, generic over the device.
mod decoder;

// The devices.
mod cpu;
mod cuda;

// The scheduler: which sequences take part in a decoding step.
mod scheduler;
mod tree;

// The engine, its memory requirements, its throughput, and its checks.
mod engine;
mod flops;
#[doc(hidden)]
pub mod kernels;
mod needs;
pub mod self_check;

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
pub use lora::LoraConfig;
pub use needs::{GpuSettings, Needs, Workload, least_cached_tokens};
pub use numbers::{Precision, ProductFormat};
pub use quantized::BaseFormat;
pub use sampling::{COLDEST, Sampling};
pub use scheduler::{Completion, Finish, Prompt, PromptQueue, QueuedPrompt, StopFn, UniformFn};
pub use segments::{Batch, Prediction, Segment};
