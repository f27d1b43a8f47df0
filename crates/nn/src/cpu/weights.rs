//! Parameters: a flat f32 store, and the quantized matrices.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut, Range};

use super::buffer::Buffer;
use crate::layout::{Linear, Span};
use crate::quantized::Quantized;

#[derive(Default)]
pub(crate) struct Weights {
    values: Buffer,
    pub(super) quantized: QuantizedMatrices,
}

impl Weights {
    /// Creates `len` weights that are 0, without quantized matrices.
    pub(super) fn zeros(len: usize) -> Weights {
        Weights { values: Buffer::zeros(len), quantized: QuantizedMatrices::default() }
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

/// Quantized matrices by the offset of their spans.
#[derive(Debug, Default)]
pub(super) struct QuantizedMatrices(BTreeMap<usize, Quantized>);

impl QuantizedMatrices {
    pub(super) fn put(&mut self, span: Span, matrix: Quantized) {
        assert_eq!(span.len, matrix.len(), "the matrix has another size than its span");
        self.0.insert(span.offset, matrix);
    }

    /// Returns the matrix with this span.
    ///
    /// # Panics
    /// If the matrix doesn't exist.
    pub(super) fn at(&self, span: Span) -> &Quantized {
        &self.0[&span.offset]
    }

    /// Returns the quantized matrices that contain rows of a linear map, in the order of its outputs, each with the range of these
    /// rows. Empty if the map isn't quantized.
    pub(super) fn parts(&self, linear: Linear) -> impl Iterator<Item = (&Quantized, Range<usize>)> {
        linear.rows_in(&self.0, Quantized::len)
    }
}
