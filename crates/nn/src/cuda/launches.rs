//! Launch shapes of kernels.

use fgrpo_cuda::Shape;

use crate::executor::Heads;
use crate::numbers::Precision;

/// Number type of statistics, logits and parameter gradients.
pub(super) const FULL: Precision = Precision::F32;

/// Warps per block for kernels with independent warps.
pub(super) const WARPS: u32 = 4;
/// Threads per block for kernels with independent threads.
pub(super) const THREADS: u32 = 256;

/// Returns the number of threads of a block that processes a row of `width` values.
pub(super) fn row_threads(width: usize) -> u32 {
    (width.next_multiple_of(32) as u32).min(THREADS)
}

/// Returns the launch shape with one block per row of `width` values, and shared memory for one value per warp.
pub(super) fn row_shape(rows: usize, width: usize) -> Shape {
    let threads = row_threads(width);
    Shape::of(rows, threads, threads as usize / 32 * 4)
}

/// Returns the launch shape with one warp for each of `count` items.
pub(super) fn warp_shape(count: usize) -> Shape {
    Shape::of(count.div_ceil(WARPS as usize), 32 * WARPS, 0)
}

/// Returns whether decoding attention in bf16 uses tensor cores: for head sizes that their kernels support, if the plain kernels would be
/// limited by instructions rather than by an H200's memory bandwidth.
pub(super) fn decodes_on_tensor_cores(heads: Heads) -> bool {
    matches!(heads.size, 64 | 128) && heads.queries / heads.keys >= 3
}
