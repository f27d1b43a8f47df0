//! Parameters on the device: f32, or bf16 for the network with the lower 16 bits stored separately, which together are the exact f32.

use fgrpo_cuda::{Address, Matrix, Shape};

use super::buffer::Buffer;
use super::launches::args;
use super::quantized::QuantizedMatrices;
use super::stream::{Purpose, Stream};
use crate::numbers::Precision;

/// Numbers that are converted at a time between f32 on the host and the two halves.
const STAGED: usize = 1 << 22;

#[derive(Debug)]
pub(crate) struct Weights {
    /// The weights that the network uses.
    values: Buffer,
    /// In bf16, the lower 16 bits; together with the values they are the f32 weights of the optimizer.
    rest: Buffer,
    /// Matrices beside these numbers.
    pub(super) quantized: QuantizedMatrices,
}

impl Weights {
    /// `len` zeros.
    pub(super) fn zeros(stream: &Stream, precision: Precision, len: usize) -> Weights {
        let rest = || Buffer::zeros(stream, precision, len, Purpose::Model);
        let rest = (precision == Precision::Bf16).then(rest).unwrap_or_default();
        Weights { rest, ..Weights::frozen(stream, precision, len) }
    }

    /// `len` zeros that aren't trained: numbers that are written are rounded to the network's precision.
    pub(super) fn frozen(stream: &Stream, precision: Precision, len: usize) -> Weights {
        let values = Buffer::zeros(stream, precision, len, Purpose::Model);
        Weights { values, rest: Buffer::default(), quantized: QuantizedMatrices::default() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.values.bytes(self.values.len()) + self.rest.bytes(self.rest.len())
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The address of number `index` for the network.
    pub(super) fn at(&self, index: usize) -> Address {
        self.values.at(index)
    }

    /// The address of the lower bits of number `index`.
    pub(super) fn rest_at(&self, index: usize) -> Address {
        self.rest.at(index)
    }

    /// Rows of `stride` numbers from number `first` on.
    pub(super) fn rows(&self, first: usize, stride: usize) -> Matrix {
        self.values.rows(first, stride)
    }

    /// Copies `len` numbers to `to`, which has the same precision.
    pub(super) fn copy(&self, stream: &Stream, from: usize, to: &Weights, at: usize, len: usize) {
        for (own, other) in [(&self.values, &to.values), (&self.rest, &to.rest)] {
            if !own.is_empty() {
                stream.copy(own.at(from), other.at(at), own.bytes(len));
            }
        }
    }

    /// Rounds `len` numbers to the network's precision.
    pub(super) fn forget_rest(&self, stream: &Stream, first: usize, len: usize) {
        if !self.rest.is_empty() {
            stream.zero(self.rest.at(first), self.rest.bytes(len));
        }
    }

    pub(super) fn write(&self, stream: &Stream, first: usize, values: &[f32]) {
        if self.rest.is_empty() {
            return self.values.write(stream, first, values);
        }
        let mut staged = Buffer::default();
        staged.reserve(stream, Precision::F32, values.len().min(STAGED), Purpose::Model);
        for (index, part) in values.chunks(STAGED).enumerate() {
            let at = first + index * STAGED;
            staged.write(stream, 0, part);
            let arguments = args![&staged, self.values.at(at), self.rest.at(at), part.len() as u64];
            stream.launch("split_master", Shape::covering(part.len(), 256), arguments);
        }
    }

    pub(super) fn read(&self, stream: &Stream, first: usize, to: &mut [f32]) {
        if self.rest.is_empty() {
            return self.values.read(stream, first, to);
        }
        let mut staged = Buffer::default();
        staged.reserve(stream, Precision::F32, to.len().min(STAGED), Purpose::Model);
        for (index, part) in to.chunks_mut(STAGED).enumerate() {
            let at = first + index * STAGED;
            let arguments = args![self.values.at(at), self.rest.at(at), &staged, part.len() as u64];
            stream.launch("join_master", Shape::covering(part.len(), 256), arguments);
            staged.read(stream, 0, part);
        }
    }
}
