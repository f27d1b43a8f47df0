//! Quantized matrices in device memory, and their dequantization.

use std::collections::BTreeMap;
use std::ops::Range;

use fgrpo_cuda::{Matrix, Memory, Shape, kernels};

use super::buffer::Buffer;
use super::launches::THREADS;
use super::stream::{Purpose, Stream};
use crate::layout::{Linear, Span};
use crate::numbers::Precision;
use crate::quantized::{INT8_STEP, NF4, Numbers, Quantized, Scales, dynamic_map};

/// Device memory of a matrix.
#[derive(Debug)]
enum Stored {
    Nf4 {
        codes: Memory<u8>,
        scales: Memory<u8>,
        nested: Memory<f32>,
        offset: f32,
    },
    /// NF4 with f32 scales.
    Nf4Plain {
        codes: Memory<u8>,
        scales: Memory<f32>,
    },
    Int8 {
        codes: Memory<i8>,
        absmax: Memory<f32>,
    },
    Bf16(Memory<u16>),
}

/// A quantized matrix in row-major order.
#[derive(Debug)]
pub(super) struct QuantizedMatrix {
    rows: usize,
    columns: usize,
    numbers: Stored,
}

/// Quantized matrices of a model, by the offsets of their spans.
#[derive(Debug, Default)]
pub(super) struct QuantizedMatrices {
    matrices: BTreeMap<usize, QuantizedMatrix>,
    /// Values of NF4's codes, followed by the values of its scales' codes.
    maps: Option<Memory<f32>>,
}

impl QuantizedMatrices {
    /// Stores a matrix. If memory runs out, nothing is stored, and the stream has a failure.
    pub(super) fn put(&mut self, stream: &Stream, span: Span, matrix: &Quantized) {
        self.matrices.remove(&span.offset);
        if self.maps.is_none() {
            self.maps = memory(stream, &[&NF4[..], dynamic_map()].concat());
        }
        if let Some(numbers) = store(stream, &matrix.numbers) {
            let matrix = QuantizedMatrix { rows: matrix.rows, columns: matrix.columns, numbers };
            self.matrices.insert(span.offset, matrix);
        }
    }

    /// Reads the matrix with this span, or returns `None` if it isn't stored.
    pub(super) fn read(&self, stream: &Stream, span: Span) -> Option<Quantized> {
        let QuantizedMatrix { rows, columns, numbers } = self.matrices.get(&span.offset)?;
        let numbers = match numbers {
            Stored::Nf4 { codes, scales, nested, offset } => Numbers::Nf4 {
                codes: read(stream, codes),
                scales: Scales::Nested {
                    codes: read(stream, scales),
                    absmax: read(stream, nested),
                    offset: *offset,
                },
            },
            Stored::Nf4Plain { codes, scales } => {
                Numbers::Nf4 { codes: read(stream, codes), scales: Scales::Full(read(stream, scales)) }
            }
            Stored::Int8 { codes, absmax } => {
                Numbers::Int8 { codes: read(stream, codes), absmax: read(stream, absmax) }
            }
            Stored::Bf16(bits) => Numbers::Bf16(read(stream, bits)),
        };
        Some(Quantized { rows: *rows, columns: *columns, numbers })
    }

    /// Returns the quantized matrices that contain rows of a linear map, in the order of its outputs, each with the range of these
    /// rows. Empty if the map isn't quantized.
    pub(super) fn parts(&self, linear: Linear) -> impl Iterator<Item = (&QuantizedMatrix, Range<usize>)> {
        linear.rows_in(&self.matrices, |matrix| matrix.rows * matrix.columns)
    }

    /// Dequantizes a matrix into `scratch`, unless it is stored in `precision`. Returns the rows from `first` on.
    pub(super) fn values(
        &self,
        stream: &Stream,
        precision: Precision,
        matrix: &QuantizedMatrix,
        first: usize,
        scratch: &mut Buffer,
    ) -> Matrix {
        let &QuantizedMatrix { rows, columns, ref numbers } = matrix;
        let count = rows * columns;
        if let (Stored::Bf16(bits), Precision::Bf16) = (numbers, precision) {
            return Matrix::rows(bits.at(first * columns), columns);
        }
        scratch.reserve(stream, precision, count, Purpose::Pass);
        let (out, len) = (scratch.at(0), count as u64);
        let Some(maps) = self.maps.as_ref().map(|maps| maps.pointer(0)) else {
            return scratch.rows(first * columns, columns);
        };
        let (pairs, single) = (Shape::covering(count.div_ceil(2), THREADS), Shape::covering(count, THREADS));
        match numbers {
            Stored::Nf4 { codes, scales, nested, offset } => {
                let (codes, scales, nested) = (codes.pointer(0), scales.pointer(0), nested.pointer(0));
                let offset = *offset;
                stream.launch(
                    pairs,
                    kernels::Nf4Values { codes, scales, nested, offset, maps, out, count: len },
                );
            }
            Stored::Nf4Plain { codes, scales } => {
                let (codes, scales) = (codes.pointer(0), scales.pointer(0));
                stream.launch(pairs, kernels::Nf4PlainValues { codes, scales, maps, out, count: len });
            }
            Stored::Int8 { codes, absmax } => {
                let (codes, absmax, step) = (codes.pointer(0), absmax.pointer(0), INT8_STEP);
                stream.launch(single, kernels::Int8Values { codes, absmax, step, out, columns, count: len });
            }
            Stored::Bf16(bits) => {
                let (x, out) = (bits.pointer(0).cast(), scratch.full(0));
                stream.launch(single, kernels::Widen { x, out, count: len });
            }
        }
        scratch.rows(first * columns, columns)
    }
}

fn memory<T: Copy>(stream: &Stream, values: &[T]) -> Option<Memory<T>> {
    let memory = stream.allocate(values.len(), Purpose::Model)?;
    stream.write(&memory, 0, values);
    Some(memory)
}

fn read<T: Copy + Default>(stream: &Stream, memory: &Memory<T>) -> Vec<T> {
    let mut values = vec![T::default(); memory.len()];
    stream.read(memory, 0, &mut values);
    values
}

fn store(stream: &Stream, numbers: &Numbers) -> Option<Stored> {
    Some(match numbers {
        Numbers::Nf4 { codes, scales: Scales::Nested { codes: scales, absmax, offset } } => Stored::Nf4 {
            codes: memory(stream, codes)?,
            scales: memory(stream, scales)?,
            nested: memory(stream, absmax)?,
            offset: *offset,
        },
        Numbers::Nf4 { codes, scales: Scales::Full(scales) } => {
            Stored::Nf4Plain { codes: memory(stream, codes)?, scales: memory(stream, scales)? }
        }
        Numbers::Int8 { codes, absmax } => {
            Stored::Int8 { codes: memory(stream, codes)?, absmax: memory(stream, absmax)? }
        }
        Numbers::Bf16(bits) => Stored::Bf16(memory(stream, bits)?),
    })
}
