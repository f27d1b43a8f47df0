//! An executor without operations, which counts the memory of buffers.

use super::{Holds, Memory};
use crate::numbers::Precision;
use crate::segments::Chunk;

/// Counts the bytes of buffers. A buffer is its length, and the state of a decoding step its number of rows.
pub(crate) struct Counter {
    /// Number type of activations.
    pub(crate) precision: Precision,
    pub(crate) bytes: u64,
}

impl Memory for Counter {
    type Buffer = usize;
    type Weights = ();
    type Gradient = ();
    type Lists = ();
    type Decoding = usize;

    fn reserve(&mut self, buffer: &mut usize, holds: Holds, len: usize) {
        let bytes = if holds == Holds::Activations { self.precision.bytes() } else { 4 };
        self.bytes += (bytes * len.saturating_sub(*buffer)) as u64;
        *buffer = len.max(*buffer);
    }

    fn extend(&mut self, _: &mut usize, _: Holds, _: usize, _: usize) {}

    fn bytes(_: &usize) -> usize {
        0
    }

    fn upload(&mut self, _: &Chunk, _: &[u32], _: &mut ()) {}

    fn first_non_finite(&mut self, _: usize, _: &usize) -> Option<(usize, f32)> {
        None
    }
}
