//! A growing block of device memory.

use std::borrow::Cow;

use fgrpo_cuda::{Address, Matrix, Memory, Pointer, Shape, Values, kernels};
use half::bf16;

use super::launches::THREADS;
use super::stream::{Purpose, Stream};
use crate::dtype::{decode_each, encode_each};
use crate::numbers::Precision;

/// Returns the bytes of values, which are rounded to nearest in bfloat16.
pub(super) fn encode(precision: Precision, values: &[f32]) -> Cow<'_, [u8]> {
    match precision {
        Precision::F32 => Cow::Borrowed(bytemuck::cast_slice(values)),
        Precision::Bf16 => {
            let mut bytes = vec![0; precision.bytes() * values.len()];
            encode_each(values, &mut bytes, |x| bf16::from_f32(x).to_ne_bytes());
            Cow::Owned(bytes)
        }
    }
}

/// Decodes values from their bytes.
pub(super) fn decode(precision: Precision, bytes: &[u8], to: &mut [f32]) {
    match precision {
        Precision::F32 => bytemuck::cast_slice_mut(to).copy_from_slice(bytes),
        Precision::Bf16 => decode_each(bytes, to, |b| bf16::from_ne_bytes(b).to_f32()),
    }
}

/// A device array of f32 or bfloat16 values. New memory has unspecified content.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    memory: Option<Memory<u8>>,
    precision: Precision,
}

impl Buffer {
    fn new(stream: &Stream, precision: Precision, len: usize, purpose: Purpose) -> Buffer {
        Buffer { memory: stream.allocate(len * precision.bytes(), purpose), precision }
    }

    pub(super) fn zeros(stream: &Stream, precision: Precision, len: usize, purpose: Purpose) -> Buffer {
        let buffer = Buffer::new(stream, precision, len, purpose);
        stream.zero(buffer.at(0), buffer.len());
        buffer
    }

    pub(super) fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.len() / self.precision.bytes())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn bytes(&self, len: usize) -> usize {
        len * self.precision.bytes()
    }

    /// Grows to at least `len`. If it grows, the content is lost.
    pub(super) fn reserve(&mut self, stream: &Stream, precision: Precision, len: usize, purpose: Purpose) {
        if len > self.len() {
            // Free the old memory first, after submitting the work that uses it.
            stream.submit_recorded_work();
            self.memory = None;
            *self = Buffer::new(stream, precision, len, purpose);
        }
    }

    /// Grows to at least `len`, and retains the content.
    pub(super) fn extend(&mut self, stream: &Stream, precision: Precision, len: usize, purpose: Purpose) {
        if len > self.len() {
            let longer = Buffer::new(stream, precision, len, purpose);
            stream.copy(self.at(0), longer.at(0), self.len());
            *self = longer;
        }
    }

    /// Returns the device address of value `index`, or null if allocation failed; the stream then has a failure and drops further work.
    pub(super) fn at(&self, index: usize) -> Values {
        let address = self.memory.as_ref().map_or(Address(0), |memory| memory.at(self.bytes(index)));
        match self.precision {
            Precision::F32 => Values::F32(Pointer::new(address)),
            Precision::Bf16 => Values::Bf16(Pointer::new(address)),
        }
    }

    /// Returns the device address of value `index` of an f32 buffer.
    ///
    /// # Panics
    /// If the values are bfloat16.
    pub(super) fn full(&self, index: usize) -> Pointer<f32> {
        match self.at(index) {
            Values::F32(pointer) => pointer,
            Values::Bf16(_) => panic!("a bfloat16 buffer where a kernel takes f32"),
        }
    }

    /// Returns a matrix with rows of `stride` values, from value `first` on.
    pub(super) fn rows(&self, first: usize, stride: usize) -> Matrix {
        Matrix::rows(self.at(first).address(), stride)
    }

    /// Replaces the values from `first` on, rounding to nearest in bfloat16.
    pub(super) fn write(&self, stream: &Stream, first: usize, values: &[f32]) {
        if let Some(memory) = &self.memory {
            stream.write(memory, self.bytes(first), &encode(self.precision, values));
        }
    }

    /// Reads values, waiting for the device. Leaves `to` unchanged without memory, and unspecified after a failure.
    pub(super) fn read(&self, stream: &Stream, first: usize, to: &mut [f32]) {
        let Some(memory) = &self.memory else { return };
        match self.precision {
            Precision::F32 => stream.read(memory, self.bytes(first), bytemuck::cast_slice_mut(to)),
            Precision::Bf16 => {
                let mut bytes = vec![0; self.bytes(to.len())];
                stream.read(memory, self.bytes(first), &mut bytes);
                decode(self.precision, &bytes, to);
            }
        }
    }
}

/// Maximum number of thread blocks that search for a value that is not finite.
const SEARCH_BLOCKS: usize = 1024;

impl Buffer {
    /// Waits, and returns the index and value of the first non-finite of `len` values. After a failure, returns `None`.
    pub(super) fn first_non_finite(&self, stream: &Stream, len: usize) -> Option<(usize, f32)> {
        let blocks = len.div_ceil(THREADS as usize).min(SEARCH_BLOCKS);
        self.memory.as_ref()?;
        let partials: Memory<u64> = stream.allocate(blocks, Purpose::Pass)?;
        let shape = Shape::of(blocks, THREADS, 8 * THREADS as usize);
        let (partial, count) = (partials.pointer(0), len as u64);
        stream.launch(shape, kernels::FirstNonFinite { x: self.at(0), partial, count });
        let mut least = vec![len as u64; blocks];
        stream.read(&partials, 0, &mut least);
        let index = least.into_iter().min().map(|index| index as usize).filter(|&index| index < len)?;
        let mut value = [0.0];
        self.read(stream, index, &mut value);
        Some((index, value[0]))
    }
}
