//! The operations as kernel launches, for activations in f32 or bf16. Sums, statistics, logits and parameter gradients are always f32.

mod attention;
mod decoding;
mod head;
mod linear;
mod mixer;
mod norms;
mod rows;

use mixer::MixerScratch;

use std::sync::Arc;

use fgrpo_cuda::kernels::{self, Kernel};
use fgrpo_cuda::{Matrix, Numbers, Pointer, Product, Shape, Values};

use super::buffer::Buffer;
use super::decoding::Decoding;
use super::graphs::Graphs;
use super::launches::{FULL, THREADS, row_shape, row_threads, warp_shape};
use super::lists::Lists;
use super::needs::{LOGITS, MOVED, ROPES, SUMMED_ROWS, pass_logits};
use super::stream::{Purpose, Stream};
use super::weights::Weights;
use super::words::List;
use crate::config::Config;
use crate::executor::{self, ConvolutionOps, Holds, Memory};
use crate::families::Theta;
use crate::layout::Write;
use crate::numbers::Precision;
use crate::segments::Chunk;

/// Runs operations on a stream, with its buffers.
pub(crate) struct CudaExecutor {
    pub(super) stream: Arc<Stream>,
    pub(super) precision: Precision,
    /// Whether a token gets the same bits in decoding steps as in passes over whole sequences (`compute.exact`).
    exact: bool,
    /// Tables of rotary angles for [`ROPES`]: for each position cosines, then sines. Tables that no layer uses are empty.
    angles: [Buffer; 3],
    /// Logits of rows that are sampled from.
    pub(super) logits: Buffer,
    /// Maximum number of logits that a pass stores. If there are more, this many are computed at a time.
    pass_logits: usize,
    /// Partial results of decoding attention.
    pub(super) parts: Buffer,
    delta: Buffer,
    /// Sums of columns over blocks of rows, to be summed again.
    partials: Buffer,
    /// Contribution of each head to the derivative of the heads' norm.
    shares: Buffer,
    /// Intermediate result between LoRA's factors: `[rows, rank]`.
    low_rank: Buffer,
    /// Scratch memory for one dequantized matrix.
    values: Buffer,
    /// Scratch memory to move rows of activations.
    moved: Buffer,
    /// Scratch memory to move rows of `f32` values.
    moved_full: Buffer,
    /// Kernel size of the recurrent mixers' convolution, if there are any.
    taps: Option<usize>,
    /// Number of values of each head that the rotary embedding rotates.
    rotary: usize,
    mixer: MixerScratch,
    pub(super) graphs: Graphs,
}

/// Returns the number type of a product whose operands and result have this precision.
pub(super) fn numbers(precision: Precision) -> Numbers {
    if precision == Precision::F32 { Numbers::F32 } else { Numbers::Bf16 }
}

impl CudaExecutor {
    /// Creates an executor with these tables of rotary angles.
    pub(super) fn new(
        stream: Arc<Stream>,
        config: &Config,
        precision: Precision,
        exact: bool,
        angles: &[Vec<f32>; 3],
        graphs: Graphs,
    ) -> CudaExecutor {
        let [logits, parts, delta, partials, shares, low_rank, values, moved, moved_full] =
            [(); 9].map(|()| Buffer::default());
        let pass_logits = pass_logits(stream.memory().map(|memory| memory.total as u64));
        let mut executor = CudaExecutor {
            stream,
            precision,
            exact,
            angles: Default::default(),
            logits,
            pass_logits,
            parts,
            delta,
            partials,
            shares,
            low_rank,
            values,
            moved,
            moved_full,
            taps: config
                .linear_attention
                .filter(|_| config.is_recurrent())
                .map(|sizes| sizes.linear_conv_kernel_dim),
            rotary: config.rotary_dim(),
            mixer: MixerScratch::default(),
            graphs,
        };
        executor.set_angles(angles);
        executor
    }

    /// Returns the number of values in the tables of rotary angles.
    pub(super) fn tables_len(&self) -> usize {
        self.angles.iter().map(Buffer::len).sum()
    }

    /// Replaces the tables of rotary angles, which only grow.
    pub(super) fn set_angles(&mut self, angles: &[Vec<f32>; 3]) {
        for (table, rows) in self.angles.iter_mut().zip(angles).filter(|(_, rows)| !rows.is_empty()) {
            table.reserve(&self.stream, FULL, rows.len(), Purpose::Model);
            table.write(&self.stream, 0, rows);
        }
    }

    /// Returns the table of a layer's rotary angles.
    fn table(&self, rope: Option<Theta>) -> &Buffer {
        &self.angles[ROPES.iter().position(|&theta| theta == rope).expect("ROPES lists all of them")]
    }

    /// Frees the buffers that are reallocated on demand.
    pub(super) fn free_buffers(&mut self) {
        let CudaExecutor { logits, parts, delta, partials, shares, low_rank, moved, moved_full, .. } = self;
        for buffer in [logits, parts, delta, partials, shares, low_rank, moved, moved_full] {
            *buffer = Buffer::default();
        }
        self.mixer = MixerScratch::default();
    }

    /// Returns the number of 16-byte lines in a row of activations; a thread loads one at a time.
    fn lines(&self, width: usize) -> usize {
        width.div_ceil(16 / self.precision.bytes())
    }

    /// Returns the launch shape with one thread per line of the rows.
    fn line_shape(&self, rows: usize, width: usize) -> Shape {
        Shape::covering(rows * self.lines(width), THREADS)
    }

    /// Returns the number type of products of activations and weights.
    fn numbers(&self) -> Numbers {
        numbers(self.precision)
    }

    /// Returns the number type of products with a result in f32: logits and gradients.
    fn full_numbers(&self) -> Numbers {
        if self.precision == Precision::F32 { Numbers::F32 } else { Numbers::Bf16ToF32 }
    }

    /// Adds the sum of each column of `[rows, width]` values to `sum`. `kernel(address, n)` returns the kernel that writes the column
    /// sums of each block of `n` rows to `address`.
    fn sum_columns<K: Kernel>(
        &mut self,
        [rows, width]: [usize; 2],
        sum: Pointer<f32>,
        kernel: impl FnOnce(Pointer<f32>, usize) -> K,
    ) {
        if rows == 0 {
            return;
        }
        let blocks = rows.div_ceil(SUMMED_ROWS);
        self.partials.reserve(&self.stream, FULL, blocks * width, Purpose::Pass);
        let grid = [width.div_ceil(32) as u32, blocks as u32, 1];
        let partial = self.partials.full(0);
        self.stream.launch(Shape { grid, threads: 256, shared: 1024 }, kernel(partial, SUMMED_ROWS));
        self.stream.launch(Shape::covering(width, 128), kernels::AddPartials { partial, sum, blocks, width });
    }

    /// Adds the column sums of `x` to `sum`.
    fn add_columns(&mut self, [rows, width]: [usize; 2], x: Values, sum: Pointer<f32>) {
        self.sum_columns([rows, width], sum, |partial, rows_per_block| kernels::ColumnPartials {
            x,
            partial,
            rows,
            width,
            rows_per_block,
        });
    }

    /// Launches the kernel that `kernel` returns for the addresses of row indices. The kernel copies rows of `width` values.
    fn rows<K: Kernel>(
        &self,
        width: usize,
        lists: &Lists,
        rows: List,
        kernel: impl FnOnce(Pointer<u32>) -> K,
    ) {
        self.stream.launch(Shape::of(rows.len, row_threads(width), 0), kernel(lists.words.at(rows, 0)));
    }
}

impl Memory for CudaExecutor {
    type Buffer = Buffer;
    type Weights = Weights;
    type Gradient = Buffer;
    type Lists = Lists;
    type Decoding = Decoding;

    fn reserve(&mut self, buffer: &mut Buffer, holds: Holds, len: usize) {
        let precision = if holds == Holds::Activations { self.precision } else { FULL };
        buffer.reserve(&self.stream, precision, len, Purpose::Pass);
    }

    fn extend(&mut self, buffer: &mut Buffer, holds: Holds, len: usize, most: usize) {
        if holds == Holds::Activations {
            assert!(len <= most, "{len} values of at most {most}");
            // Allocated at its maximum size before anything is stored: growing would copy, and would need memory for both.
            buffer.reserve(&self.stream, self.precision, most, Purpose::Cache);
        } else {
            // Grow by at least an eighth, to bound both the cost of copies and the unused memory.
            let more = if len > buffer.len() { len.max(buffer.len() + buffer.len() / 8) } else { len };
            buffer.extend(&self.stream, FULL, more, Purpose::Cache);
        }
    }

    fn bytes(buffer: &Buffer) -> usize {
        buffer.bytes(buffer.len())
    }

    fn upload(&mut self, chunk: &Chunk, slots: &[u32], lists: &mut Lists) {
        lists.upload(&self.stream, chunk, slots, self.exact, self.taps);
    }

    fn first_non_finite(&mut self, len: usize, x: &Buffer) -> Option<(usize, f32)> {
        x.first_non_finite(&self.stream, len)
    }
}

impl ConvolutionOps for CudaExecutor {}

pub(crate) type Cache = executor::Cache<Buffer>;
