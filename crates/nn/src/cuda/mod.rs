//! NVIDIA GPUs, in f32 or bf16: a stream on which all work runs in order, and an executor that submits work to it.
//!
//! The code uses the device only through a [`fgrpo_cuda::Driver`], so the tests' emulated driver runs the same code as a GPU. The host transfers
//! the lists of a pass in one copy and waits only for results: scores, samples, norms. A decoding step that repeats an earlier one is submitted as
//! a graph. If rows merely continue, a step is submitted before the previous step's tokens are read.

pub(crate) mod backend;
mod buffer;
mod decoding;
pub(crate) mod executor;
pub(crate) mod graphs;
mod launches;
pub(crate) mod lists;
mod messages;
pub(crate) mod moments;
pub(crate) mod needs;
pub(crate) mod paths;
mod quantized;
mod stream;
mod weights;
mod words;
