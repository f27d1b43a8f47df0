//! A growing block of device memory.

use fgrpo_cuda::{Address, Argument, Matrix, Memory, Shape};
use half::bf16;

use super::launches::{THREADS, args};
use super::stream::{Purpose, Stream};
use crate::numbers::Precision;

#[derive(Debug)]
enum Numbers {
    Full(Memory<f32>),
    Half(Memory<u16>),
}

/// Rounds values to bfloat16, to nearest.
pub(super) fn round(values: &[f32]) -> Vec<u16> {
    values.iter().map(|&value| bf16::from_f32(value).to_bits()).collect()
}

/// Converts a bfloat16 value to f32.
pub(super) fn widen(bits: u16) -> f32 {
    bf16::from_bits(bits).to_f32()
}

/// A device array of f32 or bfloat16 values. New memory has unspecified content.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Option<Numbers>);

impl Buffer {
    fn new(stream: &Stream, precision: Precision, len: usize, purpose: Purpose) -> Buffer {
        Buffer(match precision {
            Precision::F32 => stream.allocate(len, purpose).map(Numbers::Full),
            Precision::Bf16 => stream.allocate(len, purpose).map(Numbers::Half),
        })
    }

    /// Allocates `len` zeros.
    pub(super) fn zeros(stream: &Stream, precision: Precision, len: usize, purpose: Purpose) -> Buffer {
        let buffer = Buffer::new(stream, precision, len, purpose);
        stream.zero(buffer.at(0), buffer.bytes(buffer.len()));
        buffer
    }

    pub(super) fn len(&self) -> usize {
        match &self.0 {
            Some(Numbers::Full(memory)) => memory.len(),
            Some(Numbers::Half(memory)) => memory.len(),
            None => 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of `len` values in bytes.
    pub(super) fn bytes(&self, len: usize) -> usize {
        len * if matches!(self.0, Some(Numbers::Half(_))) { 2 } else { 4 }
    }

    /// Grows to at least `len`. If it grows, the content is lost.
    pub(super) fn reserve(&mut self, stream: &Stream, precision: Precision, len: usize, purpose: Purpose) {
        if len > self.len() {
            // Free the old memory first, after submitting the work that uses it.
            stream.submit_recorded_work();
            self.0 = None;
            *self = Buffer::new(stream, precision, len, purpose);
        }
    }

    /// Grows to at least `len`, and retains the content.
    pub(super) fn extend(&mut self, stream: &Stream, precision: Precision, len: usize, purpose: Purpose) {
        if len > self.len() {
            let longer = Buffer::new(stream, precision, len, purpose);
            stream.copy(self.at(0), longer.at(0), self.bytes(self.len()));
            *self = longer;
        }
    }

    /// Device address of value `index`, or null without memory; the stream then has a failure and ignores further work.
    pub(super) fn at(&self, index: usize) -> Address {
        match &self.0 {
            Some(Numbers::Full(memory)) => memory.at(index),
            Some(Numbers::Half(memory)) => memory.at(index),
            None => Address(0),
        }
    }

    /// A matrix with rows of `stride` values, from value `first` on.
    pub(super) fn rows(&self, first: usize, stride: usize) -> Matrix {
        Matrix::rows(self.at(first), stride)
    }

    /// Replaces the values from `first` on, rounding to nearest in bfloat16.
    pub(super) fn write(&self, stream: &Stream, first: usize, values: &[f32]) {
        match &self.0 {
            Some(Numbers::Full(memory)) => stream.write(memory, first, values),
            Some(Numbers::Half(memory)) => stream.write(memory, first, &round(values)),
            None => {}
        }
    }

    /// Reads values, waiting for the device. Without memory `to` is unchanged; if something has failed, it is unspecified.
    pub(super) fn read(&self, stream: &Stream, first: usize, to: &mut [f32]) {
        match &self.0 {
            Some(Numbers::Full(memory)) => stream.read(memory, first, to),
            Some(Numbers::Half(memory)) => {
                let mut bits = vec![0; to.len()];
                stream.read(memory, first, &mut bits);
                to.iter_mut().zip(bits).for_each(|(to, bits)| *to = widen(bits));
            }
            None => {}
        }
    }
}

/// Maximum number of blocks of the search.
const SEARCH_BLOCKS: usize = 1024;

impl Buffer {
    /// Index and value of the first of `len` values that is not finite, or `None` if all are finite or the device has failed. Waits for the device.
    pub(super) fn first_non_finite(&self, stream: &Stream, len: usize) -> Option<(usize, f32)> {
        let blocks = len.div_ceil(THREADS as usize).min(SEARCH_BLOCKS);
        let partials: Memory<u64> = stream.allocate(blocks, Purpose::Pass)?;
        let kernel = match self.0.as_ref()? {
            Numbers::Full(_) => "first_non_finite_f32",
            Numbers::Half(_) => "first_non_finite_bf16",
        };
        let shape = Shape::of(blocks, THREADS, 8 * THREADS as usize);
        stream.launch(kernel, shape, args![self, &partials, len as u64]);
        let mut least = vec![len as u64; blocks];
        stream.read(&partials, 0, &mut least);
        let index = least.into_iter().min().map(|index| index as usize).filter(|&index| index < len)?;
        let mut value = [0.0];
        self.read(stream, index, &mut value);
        Some((index, value[0]))
    }
}

impl From<&Buffer> for Argument {
    fn from(buffer: &Buffer) -> Argument {
        Argument::Address(buffer.at(0))
    }
}
