//! The CPU backend. A team of threads works on each operation together, in f32 unless other products are configured. Nothing is allocated once the
//! buffers have grown.
//!
//! Operations are divided so that each element is computed exactly as by one thread: results don't depend on the size of the team.

pub(crate) mod attention;
pub(crate) mod backend;
pub(crate) mod bf16;
pub(crate) mod blas;
pub(crate) mod buffer;
pub(crate) mod convolution;
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
