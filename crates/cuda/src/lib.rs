//! The engine's kernels on an NVIDIA GPU, and the same kernels on an emulator.
//!
//! The sources of the kernels are in `kernels/*.cu`. NVRTC compiles them to the PTX in the binary, so users need only the driver. For tests without a
//! GPU, a C++ compiler compiles the same sources against `emulator/`. Both devices implement [`Driver`]: memory, copies, launches. CUDA isn't needed at
//! build time. [`probe`] lists the GPUs at run time, or returns the reason why none can be listed.
//!
//! This crate doesn't know the decoder: `fgrpo-nn` builds its operations from these launches.

mod blas;
mod driver;
#[cfg(feature = "emulator")]
pub mod emulated;
#[cfg(feature = "emulator")]
pub mod fake;
pub mod gpu;
mod graph;
pub mod kernels;
mod launch;
mod memory;
mod pointer;
mod product;

pub use blas::{Library, library as products_library};
pub use driver::{Command, DeviceMemory, Driver, Queue};
pub use gpu::{Found, Gpu, driver_library, find, probe};
pub use graph::Graph;
pub use launch::{Address, Argument, Error, Launch, Limits, Shape};
pub use memory::{Memory, Message, Pinned};
pub use pointer::{Bf16, Pointer, Values};
pub use product::{Matrix, Numbers, Product};
