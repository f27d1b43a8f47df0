//! A growing block of device memory.

use fgrpo_cuda::{Address, Argument, Matrix, Memory};

use super::stream::{Purpose, Stream};
use crate::engine::Precision;

/// Numbers of 32 or 16 bits.
#[derive(Debug)]
enum Numbers {
    Full(Memory<f32>),
    Half(Memory<u16>),
}

/// An array of numbers of one type. New memory has unspecified content.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Option<Numbers>);

impl Buffer {
    fn new(stream: &Stream, precision: Precision, len: usize, purpose: Purpose) -> Buffer {
        Buffer(match precision {
            Precision::F32 => stream.allocate(len, purpose).map(Numbers::Full),
            Precision::Bf16 => stream.allocate(len, purpose).map(Numbers::Half),
        })
    }

    /// `len` zeros.
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

    /// Size of `len` numbers in bytes.
    pub(super) fn bytes(&self, len: usize) -> usize {
        len * if matches!(self.0, Some(Numbers::Half(_))) { 2 } else { 4 }
    }

    /// Grows to at least `len`; if it grows, its content is lost.
    pub(super) fn reserve(&mut self, stream: &Stream, precision: Precision, len: usize, purpose: Purpose) {
        if len > self.len() {
            // The old memory goes first, and before it the work that uses it.
            stream.submit_recorded_work();
            self.0 = None;
            *self = Buffer::new(stream, precision, len, purpose);
        }
    }

    /// The address of number `index`. Without memory it is null; the stream then has a failure and ignores further work.
    pub(super) fn at(&self, index: usize) -> Address {
        match &self.0 {
            Some(Numbers::Full(memory)) => memory.at(index),
            Some(Numbers::Half(memory)) => memory.at(index),
            None => Address(0),
        }
    }

    /// Rows of `stride` numbers from number `first` on.
    pub(super) fn rows(&self, first: usize, stride: usize) -> Matrix {
        Matrix::rows(self.at(first), stride)
    }

    fn full(&self) -> Option<&Memory<f32>> {
        match &self.0 {
            Some(Numbers::Full(memory)) => Some(memory),
            Some(Numbers::Half(_)) => panic!("numbers of 16 bits, wanted f32"),
            None => None,
        }
    }

    /// # Panics
    /// If its numbers have 16 bits.
    pub(super) fn write(&self, stream: &Stream, first: usize, values: &[f32]) {
        if let Some(memory) = self.full() {
            stream.write(memory, first, values);
        }
    }

    /// # Panics
    /// If its numbers have 16 bits.
    pub(super) fn read(&self, stream: &Stream, first: usize, to: &mut [f32]) {
        if let Some(memory) = self.full() {
            stream.read(memory, first, to);
        }
    }
}

impl From<&Buffer> for Argument {
    fn from(buffer: &Buffer) -> Argument {
        Argument::Address(buffer.at(0))
    }
}
