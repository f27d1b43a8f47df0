//! Parameters on the device, in f32, or in two stores of 16 bits: the bf16 values that the network uses, and the low halves. Together the halves are the
//! exact f32 weights.

use fgrpo_cuda::{Bf16, Matrix, Pointer, Shape, Values, kernels};

use super::buffer::Buffer;
use super::quantized::QuantizedMatrices;
use super::stream::{Purpose, Stream};
use crate::numbers::Precision;

/// Number of values that are converted at a time between f32 on the host and the two 16-bit stores.
const STAGED: usize = 1 << 22;

#[derive(Debug)]
pub(crate) struct Weights {
    /// The weights that the network uses.
    values: Buffer,
    /// In bf16, the low 16 bits. Together with `values` they are the optimizer's f32 weights.
    rest: Buffer,
    /// Quantized matrices, which aren't in `values`.
    pub(super) quantized: QuantizedMatrices,
}

impl Weights {
    /// Allocates `len` zeros.
    pub(super) fn zeros(stream: &Stream, precision: Precision, len: usize) -> Weights {
        let rest = || Buffer::zeros(stream, precision, len, Purpose::Model);
        let rest = (precision == Precision::Bf16).then(rest).unwrap_or_default();
        Weights { rest, ..Weights::frozen(stream, precision, len) }
    }

    /// Allocates `len` zeros that aren't trained. Values that are written are rounded to the network's precision.
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

    /// Returns the device address of value `index`, as used by the network.
    pub(super) fn at(&self, index: usize) -> Values {
        self.values.at(index)
    }

    /// Returns the device addresses of the high and the low bits of value `index`, or `None` in f32.
    pub(super) fn halves(&self, index: usize) -> Option<(Pointer<Bf16>, Pointer<u16>)> {
        match (self.values.at(index), self.rest.at(index)) {
            (Values::Bf16(high), Values::Bf16(low)) => Some((high, low.cast())),
            _ => None,
        }
    }

    /// Returns a matrix with rows of `stride` values, from value `first` on.
    pub(super) fn rows(&self, first: usize, stride: usize) -> Matrix {
        self.values.rows(first, stride)
    }

    /// Copies `len` values to `to`, which has the same precision.
    pub(super) fn copy(&self, stream: &Stream, from: usize, to: &Weights, at: usize, len: usize) {
        for (source, target) in [(&self.values, &to.values), (&self.rest, &to.rest)] {
            if !source.is_empty() {
                stream.copy(source.at(from), target.at(at), len);
            }
        }
    }

    /// Rounds `len` values to the network's precision, by clearing their low 16 bits.
    pub(super) fn forget_rest(&self, stream: &Stream, first: usize, len: usize) {
        if !self.rest.is_empty() {
            stream.zero(self.rest.at(first), len);
        }
    }

    pub(super) fn write(&self, stream: &Stream, first: usize, values: &[f32]) {
        let Some((high, low)) = self.halves(first) else { return self.values.write(stream, first, values) };
        let mut staged = Buffer::default();
        staged.reserve(stream, Precision::F32, values.len().min(STAGED), Purpose::Model);
        for (index, part) in values.chunks(STAGED).enumerate() {
            staged.write(stream, 0, part);
            let (high, low, w) = (high.plus(index * STAGED), low.plus(index * STAGED), staged.full(0));
            let kernel = kernels::SplitMaster { w, high, low, count: part.len() as u64 };
            stream.launch(Shape::covering(part.len(), 256), kernel);
        }
    }

    pub(super) fn read(&self, stream: &Stream, first: usize, to: &mut [f32]) {
        let Some((high, low)) = self.halves(first) else { return self.values.read(stream, first, to) };
        let mut staged = Buffer::default();
        staged.reserve(stream, Precision::F32, to.len().min(STAGED), Purpose::Model);
        for (index, part) in to.chunks_mut(STAGED).enumerate() {
            let (high, low, w) = (high.plus(index * STAGED), low.plus(index * STAGED), staged.full(0));
            let kernel = kernels::JoinMaster { high, low, w, count: part.len() as u64 };
            stream.launch(Shape::covering(part.len(), 256), kernel);
            staged.read(stream, 0, part);
        }
    }
}
