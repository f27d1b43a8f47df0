//! An NVIDIA GPU, in f32 or bf16: one stream on which all work runs in order, and one executor that submits it.
//!
//! All code here uses only a [`fgrpo_cuda::Driver`], so the emulated driver of the tests runs the same code as a GPU. The host transfers the lists of
//! a pass in one copy and waits only for results: scores, samples, norms.

pub(crate) mod backend;
mod buffer;
mod decoding;
pub(crate) mod executor;
mod launches;
mod lists;
pub(crate) mod moments;
mod stream;
mod weights;
