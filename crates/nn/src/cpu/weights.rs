//! Parameters: a flat store in f32, and beside it the matrices that are quantized.

use std::ops::{Deref, DerefMut};

use super::buffer::Buffer;
use crate::quantized::QuantizedStore;

/// Parameters.
#[derive(Default)]
pub(crate) struct Weights {
    values: Buffer,
    pub(super) quantized: QuantizedStore,
}

impl Weights {
    /// `len` zeros, and no matrices beside them.
    pub(super) fn zeros(len: usize) -> Weights {
        Weights { values: Buffer::zeros(len), quantized: QuantizedStore::default() }
    }
}

impl Deref for Weights {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values
    }
}

impl DerefMut for Weights {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }
}
