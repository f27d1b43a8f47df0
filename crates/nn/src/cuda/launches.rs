//! How kernels are named, given arguments and spread over blocks.

use fgrpo_cuda::Shape;

use crate::executor::Heads;
use crate::numbers::Precision;

/// Statistics, logits, gradients of parameters.
pub(super) const FULL: Precision = Precision::F32;

/// Warps per block, for kernels with independent warps.
pub(super) const WARPS: u32 = 4;
/// Threads per block, for kernels with independent threads.
pub(super) const THREADS: u32 = 256;

/// A kernel's arguments.
macro_rules! args {
    ($($argument:expr),* $(,)?) => { &[$(fgrpo_cuda::Argument::from($argument)),*] };
}
pub(super) use args;

/// The kernel for a precision of activations.
macro_rules! kernel {
    ($precision:expr, $name:literal) => {
        match $precision {
            $crate::numbers::Precision::F32 => concat!($name, "_f32"),
            $crate::numbers::Precision::Bf16 => concat!($name, "_bf16"),
        }
    };
}
pub(super) use kernel;

/// Threads of a block that processes one row of `width` numbers.
pub(super) fn row_threads(width: usize) -> u32 {
    (width.next_multiple_of(32) as u32).min(THREADS)
}

/// A block per row of `width` numbers, with shared memory for one number per warp.
pub(super) fn row_shape(rows: usize, width: usize) -> Shape {
    let threads = row_threads(width);
    Shape::of(rows, threads, threads as usize / 32 * 4)
}

/// One warp per item, for `count` items.
pub(super) fn warp_shape(count: usize) -> Shape {
    Shape::of(count.div_ceil(WARPS as usize), 32 * WARPS, 0)
}

/// Whether decoding's attention in bf16 runs on tensor cores: for heads that its kernels take, where the plain kernels would spend more time on
/// instructions than an H200 on reading keys and values.
pub(super) fn decodes_on_tensor_cores(heads: Heads) -> bool {
    matches!(heads.size, 64 | 128) && heads.queries / heads.keys >= 3
}
