//! The CPU, in f32 but for products that are asked for otherwise: a team of threads works on each operation together, and nothing is allocated once buffers have grown.
//!
//! Every operation is divided so that each element is computed as by one thread: results don't depend on the size of the team.

pub(crate) mod attention;
pub(crate) mod backend;
pub(crate) mod bf16;
pub(crate) mod buffer;
pub(crate) mod decoding;
pub(crate) mod delta_rule;
pub(crate) mod executor;
pub(crate) mod format;
pub(crate) mod level;
pub(crate) mod lists;
pub(crate) mod lora;
pub(crate) mod memory;
pub(crate) mod microkernel;
pub(crate) mod packed_weights;
pub(crate) mod panels;
pub(crate) mod product;
pub(crate) mod sampler;
pub(crate) mod simd;
pub(crate) mod team;
pub(crate) mod weights;
