//! Typed launchers of all kernels, generated from the signatures in `kernels/*.cu`.
//!
//! A launcher's fields have the names of the kernel's parameters. Sizes (`unsigned`) are `usize`, and a launch panics if one has more than 32 bits.
//!
//! A launcher doesn't compile with another type than the kernel's parameter has:
//!
//! ```
//! use fgrpo_cuda::{Pointer, kernels::SquareSum};
//! let kernel = SquareSum { x: Pointer::NULL, partial: Pointer::<f64>::NULL, count: 1u64 };
//! ```
//! ```compile_fail,E0308
//! use fgrpo_cuda::{Pointer, kernels::SquareSum};
//! let kernel = SquareSum { x: Pointer::NULL, partial: Pointer::<f64>::NULL, count: 1u32 };
//! ```
//! ```compile_fail,E0308
//! use fgrpo_cuda::{Pointer, kernels::SquareSum};
//! let kernel = SquareSum { x: Pointer::NULL, partial: Pointer::<f32>::NULL, count: 1u64 };
//! ```

use crate::launch::{Argument, Launch, Shape};
use crate::pointer::{Bf16, Pointer, Values};

/// A kernel with its arguments.
pub trait Kernel {
    /// Returns the name of the kernel and its arguments, in order.
    ///
    /// # Panics
    /// If no kernel takes the number types, or a size has more than 32 bits.
    fn call(&self) -> (&'static str, Vec<Argument>);

    /// Returns the launch with a shape.
    ///
    /// # Panics
    /// Like [`Self::call`].
    fn launch(&self, shape: Shape) -> Launch {
        let (kernel, arguments) = self.call();
        Launch { kernel, shape, arguments }
    }
}

include!(concat!(env!("OUT_DIR"), "/launchers.rs"));
