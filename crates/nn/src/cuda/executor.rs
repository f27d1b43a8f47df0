//! The operations as kernel launches, for activations in f32 or bf16. Sums, statistics, logits and parameter gradients are f32 in both.

mod attention;
mod decoding;
mod head;
mod linear;
mod norms;

use std::ops::Range;
use std::sync::Arc;

use fgrpo_cuda::{Argument, Matrix, Numbers, Product, Shape};

use super::buffer::Buffer;
use super::decoding::Decoding;
use super::graphs::Graphs;
use super::launches::{FULL, THREADS, args, kernel, row_shape, row_threads, warp_shape};
use super::lists::{List, Lists};
use super::needs::{LOGITS, MOVED, SUMMED_ROWS, pass_logits};
use super::stream::{Purpose, Stream};
use super::weights::Weights;
use crate::engine::Precision;
use crate::error::Error;
use crate::executor::{
    DecodeChanges, Executor, Head, HeadNorms, HeadRows, Heads, Holds, Rotation, Rows, StepTokens, Write,
};
use crate::layout::{Linear, Span};
use crate::lora::Adapted;
use crate::sampling::{Draw, Drawn, Sampling};
use crate::segments::Chunk;

/// A stream and its memory.
pub(crate) struct CudaExecutor {
    pub(super) stream: Arc<Stream>,
    /// Of activations.
    pub(super) precision: Precision,
    /// Whether decoding and passes compute a row in the same bits.
    exact: bool,
    /// By position: cosines, then sines.
    angles: Buffer,
    /// Of rows that are sampled from.
    pub(super) logits: Buffer,
    /// Largest number of logits that a pass keeps. If there are more, this many are computed at a time.
    pass_logits: usize,
    /// Of decoding's attention.
    pub(super) parts: Buffer,
    delta: Buffer,
    /// Column sums per block of rows.
    partials: Buffer,
    /// Each head's part of its norm's derivative.
    shares: Buffer,
    /// Intermediate rows times rank, between LoRA's factors.
    low_rank: Buffer,
    /// Values of a quantized matrix.
    values: Buffer,
    /// Buffers for compacting rows: of activations, and of statistics.
    moved: Buffer,
    moved_full: Buffer,
    pub(super) graphs: Graphs,
}

/// The rows that the gradient of a norm's weight or a linear map's bias sums over.
#[derive(Clone, Copy)]
enum Columns<'a> {
    /// Rows of activations.
    Of(&'a Buffer),
    /// Rows in f32.
    Full(&'a Buffer),
    /// `dy x scale`.
    Norm { x: &'a Buffer, scale: &'a Buffer, dy: &'a Buffer },
}

impl CudaExecutor {
    /// `rows` is the table of angles.
    pub(super) fn new(
        stream: Arc<Stream>,
        precision: Precision,
        exact: bool,
        rows: &[f32],
        graphs: Graphs,
    ) -> CudaExecutor {
        let [angles, logits, parts, delta, partials, shares, low_rank, values, moved, moved_full] =
            [(); 10].map(|()| Buffer::default());
        let pass_logits = pass_logits(stream.memory().map(|memory| memory.total as u64));
        let mut executor = CudaExecutor {
            stream,
            precision,
            exact,
            angles,
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
            graphs,
        };
        executor.set_angles(rows);
        executor
    }

    /// Numbers of the table of angles.
    pub(super) fn table_len(&self) -> usize {
        self.angles.len()
    }

    /// Replaces the table of angles by a larger one.
    pub(super) fn set_angles(&mut self, rows: &[f32]) {
        self.angles.reserve(&self.stream, FULL, rows.len(), Purpose::Model);
        self.angles.write(&self.stream, 0, rows);
    }

    /// Frees the buffers that grow when they are needed.
    pub(super) fn free_buffers(&mut self) {
        let CudaExecutor { logits, parts, delta, partials, shares, low_rank, moved, moved_full, .. } = self;
        for buffer in [logits, parts, delta, partials, shares, low_rank, moved, moved_full] {
            *buffer = Buffer::default();
        }
    }

    /// The 16 bytes of a row of activations that a thread takes at a time: how many there are.
    fn lines(&self, width: usize) -> usize {
        width.div_ceil(16 / self.precision.bytes())
    }

    /// A thread per 16 bytes of rows.
    fn line_shape(&self, rows: usize, width: usize) -> Shape {
        Shape::covering(rows * self.lines(width), THREADS)
    }

    /// The number type of activations and weights.
    fn numbers(&self) -> Numbers {
        match self.precision {
            Precision::F32 => Numbers::F32,
            Precision::Bf16 => Numbers::Bf16,
        }
    }

    /// The number types of a product with a result in f32: logits, gradients.
    fn full_numbers(&self) -> Numbers {
        match self.precision {
            Precision::F32 => Numbers::F32,
            Precision::Bf16 => Numbers::Bf16ToF32,
        }
    }

    /// `c = alpha a b`, or added to `c`, where all are activations or weights, in a backward pass.
    fn product(&self, sizes: [usize; 3], a: Matrix, b: Matrix, c: Matrix, alpha: f32, write: Write) {
        self.product_of(self.numbers(), false, sizes, a, b, c, alpha, write);
    }

    /// The same with a result in f32.
    fn product_full(&self, sizes: [usize; 3], a: Matrix, b: Matrix, c: Matrix, write: Write) {
        self.product_of(self.full_numbers(), false, sizes, a, b, c, 1.0, write);
    }

    fn product_of(
        &self,
        numbers: Numbers,
        exact: bool,
        [m, n, k]: [usize; 3],
        a: Matrix,
        b: Matrix,
        c: Matrix,
        alpha: f32,
        write: Write,
    ) {
        let onto = (write == Write::Add).then_some(c.at);
        if m > 0 {
            let (c, c_stride) = (c.at, c.stride);
            let bias = None;
            self.stream.product(&Product { m, n, k, a, b, c, c_stride, alpha, onto, bias, numbers, exact });
        }
    }

    /// Adds the column sums to `to`.
    fn sum_columns(&mut self, columns: Columns<'_>, rows: usize, width: usize, to: Argument) {
        if rows == 0 {
            return;
        }
        let blocks = rows.div_ceil(SUMMED_ROWS);
        self.partials.reserve(&self.stream, FULL, blocks * width, Purpose::Pass);
        let grid = [width.div_ceil(32) as u32, blocks as u32, 1];
        let shape = Shape { grid, threads: 256, shared: 1024 };
        let (count, of, each) = (rows as u32, width as u32, SUMMED_ROWS as u32);
        match columns {
            Columns::Of(x) => {
                let kernel = kernel!(self.precision, "column_partials");
                self.stream.launch(kernel, shape, args![x, &self.partials, count, of, each]);
            }
            Columns::Full(x) => {
                self.stream.launch("column_partials_f32", shape, args![x, &self.partials, count, of, each]);
            }
            Columns::Norm { x, scale, dy } => {
                let arguments = args![x, scale, dy, &self.partials, count, of, each];
                self.stream.launch(kernel!(self.precision, "rms_norm_weight"), shape, arguments);
            }
        }
        let shape = Shape::covering(width, 128);
        self.stream.launch("add_partials", shape, args![&self.partials, to, blocks as u32, of]);
    }

    /// Rows by index, `width` wide.
    fn rows(&self, kernel: &'static str, width: usize, lists: &Lists, rows: List, x: Argument, y: Argument) {
        let shape = Shape::of(rows.len, row_threads(width), 0);
        self.stream.launch(kernel, shape, args![x, lists.words.at(rows, 0), y, width as u32]);
    }
}

impl Executor for CudaExecutor {
    type Buffer = Buffer;
    type Weights = Weights;
    type Gradient = Buffer;
    type Cache = Cache;
    type Lists = Lists;
    type Decoding = Decoding;

    fn reserve(&mut self, buffer: &mut Buffer, holds: Holds, len: usize) {
        let precision = if holds == Holds::Activations { self.precision } else { FULL };
        buffer.reserve(&self.stream, precision, len, Purpose::Pass);
    }

    fn stage(&mut self, chunk: &Chunk, slots: &[u32], lists: &mut Lists) {
        lists.stage(&self.stream, chunk, slots, self.exact);
    }

    fn gather(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
        let rows = lists.plan(Rows::Predicting).rows;
        self.rows(kernel!(self.precision, "gather"), width, lists, rows, x.into(), (&*y).into());
    }

    fn take_row(&mut self, width: usize, row: usize, x: &Buffer, y: &mut Buffer) {
        self.stream.copy(x.at(row * width), y.at(0), x.bytes(width));
    }

    fn scatter_add(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
        let rows = lists.plan(Rows::Predicting).rows;
        self.rows(kernel!(self.precision, "scatter_add"), width, lists, rows, x.into(), (&*y).into());
    }

    fn scatter(&mut self, width: usize, lists: &Lists, x: &Buffer, count: usize, y: &mut Buffer) {
        self.stream.zero(y.at(0), y.bytes(count * width));
        let rows = lists.plan(Rows::Predicting).rows;
        self.rows(kernel!(self.precision, "scatter"), width, lists, rows, x.into(), (&*y).into());
    }

    fn zero(&mut self, len: usize, y: &mut Buffer) {
        self.stream.zero(y.at(0), y.bytes(len));
    }

    fn keep_rows(&mut self, width: usize, ranges: &[Range<usize>], x: &mut Buffer) {
        let full = x.bytes(1) == 4;
        let (moved, precision) =
            if full { (&mut self.moved_full, FULL) } else { (&mut self.moved, Precision::Bf16) };
        let mut to = 0;
        for range in ranges {
            let (mut from, end) = (range.start * width, range.end * width);
            // Numbers move to lower places, so those that a piece overwrites have moved before.
            while from < end {
                let len = (end - from).min(MOVED);
                if from > to {
                    moved.reserve(&self.stream, precision, len, Purpose::Pass);
                    self.stream.copy(x.at(from), moved.at(0), x.bytes(len));
                    self.stream.copy(moved.at(0), x.at(to), x.bytes(len));
                }
                (from, to) = (from + len, to + len);
            }
        }
    }

    fn embed(&mut self, weights: &Weights, table: Span, width: usize, lists: &Lists, x: &mut Buffer) {
        let table = weights.at(table.offset).into();
        self.rows(kernel!(self.precision, "gather"), width, lists, lists.tokens, table, (&*x).into());
    }

    fn embed_backward(
        &mut self,
        gradient: &mut Buffer,
        table: Span,
        width: usize,
        lists: &Lists,
        dx: &Buffer,
    ) {
        let [tokens, starts, order] =
            [lists.distinct, lists.starts, lists.order].map(|list| lists.words.at(list, 0));
        let shape = Shape::of(lists.distinct.len, row_threads(width), 0);
        let arguments = args![dx, tokens, starts, order, gradient.at(table.offset), width as u32];
        self.stream.launch(kernel!(self.precision, "embed_backward"), shape, arguments);
    }

    fn rms_norm(
        &mut self,
        weights: &Weights,
        weight: Span,
        eps: f32,
        rows: usize,
        x: &Buffer,
        y: &mut Buffer,
        scale: &mut Buffer,
    ) {
        self.rms_norm(weights, weight, eps, rows, x, y, scale)
    }

    fn rms_norm_again(
        &mut self,
        weights: &Weights,
        weight: Span,
        rows: usize,
        x: &Buffer,
        scale: &Buffer,
        y: &mut Buffer,
    ) {
        self.rms_norm_again(weights, weight, rows, x, scale, y)
    }

    fn rms_norm_backward(
        &mut self,
        weights: &Weights,
        gradient: Option<&mut Buffer>,
        weight: Span,
        rows: usize,
        x: &Buffer,
        scale: &Buffer,
        dy: &Buffer,
        dx: &mut Buffer,
    ) {
        self.rms_norm_backward(weights, gradient, weight, rows, x, scale, dy, dx)
    }

    fn head_norm(
        &mut self,
        weights: &Weights,
        weight: Span,
        eps: f32,
        heads: HeadRows,
        x: &mut Buffer,
        raw: &mut Buffer,
        scale: &mut Buffer,
    ) {
        self.head_norm(weights, weight, eps, heads, x, raw, scale)
    }

    fn head_norm_backward(
        &mut self,
        weights: &Weights,
        gradient: Option<&mut Buffer>,
        weight: Span,
        heads: HeadRows,
        raw: &Buffer,
        scale: &Buffer,
        dx: &mut Buffer,
    ) {
        self.head_norm_backward(weights, gradient, weight, heads, raw, scale, dx)
    }

    fn rotate(&mut self, direction: Rotation, heads: HeadRows, lists: &Lists, rows: Rows, x: &mut Buffer) {
        let HeadRows { rows: count, stride, count: per_row, size } = heads;
        let sign = if direction == Rotation::Forward { 1.0f32 } else { -1.0 };
        let positions = lists.words.at(lists.plan(rows).positions, 0);
        let pairs = count * per_row * size / 2;
        self.stream.launch(
            kernel!(self.precision, "rotate"),
            Shape::covering(pairs, THREADS),
            args![
                &self.angles,
                positions,
                &*x,
                per_row as u32,
                stride as u32,
                size as u32,
                sign,
                pairs as u32
            ],
        );
    }

    fn linear(
        &mut self,
        weights: &Weights,
        linear: Linear,
        rows: usize,
        x: &Buffer,
        onto: Option<&Buffer>,
        y: &mut Buffer,
    ) {
        self.linear(weights, linear, rows, x, onto, y.rows(0, linear.outputs))
    }

    fn linears(&mut self, weights: &Weights, linears: &[Linear], rows: usize, x: &Buffer, y: &mut Buffer) {
        self.linears(weights, linears, rows, x, y)
    }

    fn linear_backward_input(
        &mut self,
        weights: &Weights,
        linear: Linear,
        rows: usize,
        dy: &Buffer,
        write: Write,
        dx: &mut Buffer,
    ) {
        self.linear_backward_input(weights, linear, rows, dy, write, dx)
    }

    fn low_rank(
        &mut self,
        factors: &Weights,
        adapted: &Adapted,
        scale: f32,
        rows: usize,
        x: &Buffer,
        y: &mut Buffer,
    ) {
        self.low_rank(factors, adapted, scale, rows, x, y)
    }

    fn low_rank_backward_input(
        &mut self,
        factors: &Weights,
        adapted: &Adapted,
        scale: f32,
        rows: usize,
        dy: &Buffer,
        dx: &mut Buffer,
    ) {
        self.low_rank_backward_input(factors, adapted, scale, rows, dy, dx)
    }

    fn low_rank_backward(
        &mut self,
        factors: &Weights,
        gradient: &mut Buffer,
        adapted: &Adapted,
        scale: f32,
        rows: usize,
        dy: &Buffer,
        x: &Buffer,
    ) {
        self.low_rank_backward(factors, gradient, adapted, scale, rows, dy, x)
    }

    fn linear_backward_weight(
        &mut self,
        gradient: &mut Buffer,
        linear: Linear,
        rows: usize,
        dy: &Buffer,
        x: &Buffer,
    ) {
        self.linear_backward_weight(gradient, linear, rows, dy, x)
    }

    fn attention(
        &mut self,
        heads: Heads,
        lists: &Lists,
        rows: Rows,
        q: &Buffer,
        kv: &Buffer,
        out: &mut Buffer,
        lse: &mut Buffer,
    ) {
        self.attention(heads, lists, rows, q, kv, out, lse)
    }

    fn attention_backward(
        &mut self,
        heads: Heads,
        lists: &Lists,
        rows: Rows,
        keys: usize,
        q: &Buffer,
        kv: &Buffer,
        out: &Buffer,
        lse: &Buffer,
        dout: &Buffer,
        dq: &mut Buffer,
        dkv: &mut Buffer,
    ) {
        self.attention_backward(heads, lists, rows, keys, q, kv, out, lse, dout, dq, dkv)
    }

    fn swiglu(&mut self, rows: usize, width: usize, gate_up: &Buffer, act: &mut Buffer) {
        self.stream.launch(
            kernel!(self.precision, "swiglu"),
            self.line_shape(rows, width),
            args![gate_up, &*act, width as u32, rows as u32],
        );
    }

    fn swiglu_backward(&mut self, rows: usize, width: usize, gate_up: &mut Buffer, dact: &mut Buffer) {
        self.stream.launch(
            kernel!(self.precision, "swiglu_backward"),
            self.line_shape(rows, width),
            args![&*gate_up, &*dact, width as u32, rows as u32],
        );
    }

    fn keeps_logits(&self, head: Head, rows: usize) -> bool {
        rows * head.vocabulary <= self.pass_logits
    }

    fn head(
        &mut self,
        weights: &Weights,
        head: Head,
        temperature: f32,
        rows: usize,
        x: &Buffer,
        lists: &Lists,
        kept: bool,
        logits: &mut Buffer,
        saved: &mut Buffer,
        scores: &mut Buffer,
    ) {
        self.head(weights, head, temperature, rows, x, lists, kept, logits, saved, scores)
    }

    fn first_non_finite(&mut self, len: usize, x: &Buffer) -> Option<(usize, f32)> {
        x.first_non_finite(&self.stream, len)
    }

    fn scores(
        &mut self,
        lists: &Lists,
        scores: &Buffer,
        logp: &mut [f32],
        entropy: &mut [f32],
    ) -> Result<(), Error> {
        self.scores(lists, scores, logp, entropy)
    }

    fn derivatives(&mut self, dlogp: &[f32], dentropy: &[f32], to: &mut Buffer) {
        to.write(&self.stream, 0, dlogp);
        to.write(&self.stream, dlogp.len(), dentropy);
    }

    fn head_backward(
        &mut self,
        weights: &Weights,
        gradient: Option<&mut Buffer>,
        head: Head,
        temperature: f32,
        rows: usize,
        x: &Buffer,
        lists: &Lists,
        kept: bool,
        logits: &mut Buffer,
        saved: &Buffer,
        derivatives: &Buffer,
        dx: &mut Buffer,
    ) {
        let given = (weights, head, temperature, rows, x, lists);
        self.head_backward(given, gradient, kept, logits, saved, derivatives, dx)
    }

    fn logits(&mut self, weights: &Weights, head: Head, rows: usize, x: &Buffer, logits: &mut Vec<f32>) {
        self.logits(weights, head, rows, x, logits)
    }

    fn grow_cache(&mut self, heads: Heads, layers: usize, cache: &mut Cache, slots: usize, most: usize) {
        assert!(slots <= most, "{slots} slots of at most {most}");
        cache.layers.resize_with(layers, Buffer::default);
        for layer in &mut cache.layers {
            // Made before anything is stored, for all that the request can need: growing would copy, and hold both.
            layer.reserve(&self.stream, self.precision, most * heads.key_width(), Purpose::Cache);
        }
    }

    fn shrink_cache(&mut self, cache: &mut Cache, bytes: usize) {
        if cache.layers.iter().map(|layer| layer.bytes(layer.len())).sum::<usize>() > bytes {
            cache.layers.clear();
        }
    }

    fn store_cache(&mut self, heads: Heads, cache: &mut Cache, layer: usize, lists: &Lists, kv: &Buffer) {
        let to = (&cache.layers[layer]).into();
        self.rows(kernel!(self.precision, "scatter"), heads.key_width(), lists, lists.slots, kv.into(), to);
    }

    const RUNS_AHEAD: bool = true;

    fn begin_step(&mut self, changes: &DecodeChanges, decoding: &mut Decoding) {
        decoding.begin(&self.stream, changes);
        let ahead = matches!(changes.tokens, StepTokens::Sampled(_));
        self.graphs.begin(&self.stream, decoding.bucket, ahead);
    }

    fn step_rows(decoding: &Decoding) -> usize {
        decoding.bucket.rows
    }

    fn step_lists(decoding: &Decoding) -> &Lists {
        &decoding.lists
    }

    fn step_attention(
        &mut self,
        weights: &Weights,
        norms: &HeadNorms,
        heads: Heads,
        decoding: &Decoding,
        cache: &mut Cache,
        layer: usize,
        qkv: &Buffer,
        out: &mut Buffer,
    ) {
        self.step_attention(weights, norms, heads, decoding, &cache.layers[layer], qkv, out);
    }

    fn stage_draws(&mut self, rows: usize, draws: &[Draw], decoding: &mut Decoding) {
        decoding.begin_draws(&self.stream, rows, draws);
    }

    fn sample(
        &mut self,
        weights: &Weights,
        head: Head,
        sampling: &Sampling,
        rows: usize,
        x: &Buffer,
        decoding: &mut Decoding,
    ) {
        self.draw(weights, head, sampling, rows, x, decoding);
    }

    fn end_step(&mut self, decoding: &mut Decoding) {
        self.graphs.submit(&self.stream, decoding.bucket);
        decoding.send_results(&self.stream);
    }

    fn drawn(&mut self, decoding: &mut Decoding, drawn: &mut Vec<Drawn>) -> Result<(), Error> {
        decoding.read_results(&self.stream, drawn)
    }
}

/// Keys and values by slot: per layer, rows as the key/value projection makes them.
#[derive(Default)]
pub(crate) struct Cache {
    layers: Vec<Buffer>,
}
