//! The operations as kernel launches, for activations in f32 or bf16. Sums, statistics, logits and parameter gradients are f32 in both.

use std::ops::Range;
use std::sync::Arc;

use fgrpo_cuda::{Argument, Matrix, Memory, Numbers, Product, Shape};

use super::buffer::Buffer;
use super::lists::{List, Lists, Plan};
use super::sampler::Decoding;
use super::stream::{Purpose, Stream};
use super::weights::Weights;
use crate::cpu::head::non_finite;
use crate::engine::Precision;
use crate::error::Error;
use crate::executor::{DecodeChanges, Executor, Head, HeadRows, Heads, Holds, Rotation, Rows, Write};
use crate::layout::{Linear, Span};
use crate::lora::Adapted;
use crate::sampling::{Draw, Drawn, Sampling};
use crate::segments::Chunk;

/// Warps per block, for kernels with independent warps.
pub(super) const WARPS: u32 = 4;
/// Threads per block, for kernels with independent threads.
const THREADS: u32 = 256;
/// Rows of a column that a block sums.
const SUMMED_ROWS: usize = 256;
/// Largest number of logits that a pass keeps: 512 MiB. If there are more, this many are computed at a time.
pub(crate) const LOGITS: usize = 1 << 27;

/// A kernel's arguments.
macro_rules! args {
    ($($argument:expr),* $(,)?) => { &[$(fgrpo_cuda::Argument::from($argument)),*] };
}
pub(super) use args;

/// The kernel for a precision of activations.
macro_rules! kernel {
    ($precision:expr, $name:literal) => {
        match $precision {
            Precision::F32 => concat!($name, "_f32"),
            Precision::Bf16 => concat!($name, "_bf16"),
        }
    };
}
pub(super) use kernel;

/// Statistics, logits, gradients of parameters.
const FULL: Precision = Precision::F32;

/// A stream and its memory.
pub(crate) struct CudaExecutor {
    pub(super) stream: Arc<Stream>,
    /// Of activations.
    pub(super) precision: Precision,
    /// By position: cosines, then sines.
    angles: Arc<Memory<f32>>,
    pub(super) logits: Buffer,
    /// Their derivatives in bf16.
    dlogits: Buffer,
    /// Of decoding's attention.
    pub(super) parts: Buffer,
    delta: Buffer,
    /// Column sums per block of rows.
    partials: Buffer,
    /// Each head's part of its norm's derivative.
    shares: Buffer,
    /// Intermediate rows times rank, between LoRA's factors.
    low_rank: Buffer,
    /// Buffers for compacting rows: of activations, and of statistics.
    moved: Buffer,
    moved_full: Buffer,
}

/// Threads of a block that processes one row of `width` numbers.
fn row_threads(width: usize) -> u32 {
    (width.next_multiple_of(32) as u32).min(THREADS)
}

/// Bytes for one number per warp of a block.
fn by_warp(threads: u32) -> usize {
    threads as usize / 32 * 4
}

/// A block per row of `width` numbers.
fn row_shape(rows: usize, width: usize) -> Shape {
    let threads = row_threads(width);
    Shape::of(rows, threads, by_warp(threads))
}

/// One warp per item, for `count` items.
fn warp_shape(count: usize) -> Shape {
    Shape::of(count.div_ceil(WARPS as usize), 32 * WARPS, 0)
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
    pub(super) fn new(stream: Arc<Stream>, precision: Precision, angles: Arc<Memory<f32>>) -> CudaExecutor {
        let [logits, dlogits, parts, delta, partials, shares, low_rank, moved, moved_full] =
            [(); 9].map(|()| Buffer::default());
        CudaExecutor {
            stream,
            precision,
            angles,
            logits,
            dlogits,
            parts,
            delta,
            partials,
            shares,
            low_rank,
            moved,
            moved_full,
        }
    }

    /// Replaces the rotary tables by larger ones.
    pub(super) fn set_angles(&mut self, angles: Arc<Memory<f32>>) {
        self.angles = angles;
    }

    /// `c = alpha a b`, or added to `c`, where all are activations or weights.
    fn product(&self, sizes: [usize; 3], a: Matrix, b: Matrix, c: Matrix, alpha: f32, write: Write) {
        let numbers = match self.precision {
            Precision::F32 => Numbers::F32,
            Precision::Bf16 => Numbers::Bf16,
        };
        self.product_of(numbers, sizes, a, b, c, alpha, write);
    }

    /// The same with a result in f32: logits, gradients.
    fn product_full(&self, sizes: [usize; 3], a: Matrix, b: Matrix, c: Matrix, write: Write) {
        let numbers = match self.precision {
            Precision::F32 => Numbers::F32,
            Precision::Bf16 => Numbers::Bf16ToF32,
        };
        self.product_of(numbers, sizes, a, b, c, 1.0, write);
    }

    fn product_of(
        &self,
        numbers: Numbers,
        [m, n, k]: [usize; 3],
        a: Matrix,
        b: Matrix,
        c: Matrix,
        alpha: f32,
        write: Write,
    ) {
        let (c, c_stride, add) = (c.at, c.stride, write == Write::Add);
        if m > 0 {
            self.stream.product(&Product { m, n, k, a, b, c, c_stride, alpha, add, numbers });
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

    /// Rows of logits that are held at a time.
    pub(super) fn logit_rows(&self, head: Head, rows: usize) -> usize {
        (LOGITS / head.vocabulary).clamp(1, rows.max(1))
    }

    /// Logits of rows `first..first + m` of `x`.
    pub(super) fn logits_of(
        &self,
        weights: &Weights,
        head: Head,
        first: usize,
        m: usize,
        x: &Buffer,
        to: &mut Buffer,
    ) {
        let Head { weight, vocabulary: v, width: d } = head;
        to.reserve(&self.stream, FULL, m * v, Purpose::Pass);
        let (x, w) = (x.rows(first * d, d), weights.rows(weight.offset, d).transposed());
        self.product_full([m, v, d], x, w, to.rows(0, v), Write::Replace);
    }

    fn attention_arguments(lists: &Lists, plan: &Plan) -> [Argument; 3] {
        [plan.rows, plan.by_query.first, plan.by_query.pieces].map(|list| lists.words.at(list, 0).into())
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
        lists.stage(&self.stream, chunk, slots);
    }

    fn copy(&mut self, len: usize, x: &Buffer, y: &mut Buffer) {
        self.stream.copy(x.at(0), y.at(0), x.bytes(len));
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
        let kept = ranges.iter().map(Range::len).sum::<usize>() * width;
        let full = x.bytes(1) == 4;
        let (moved, precision) =
            if full { (&mut self.moved_full, FULL) } else { (&mut self.moved, Precision::Bf16) };
        moved.reserve(&self.stream, precision, kept, Purpose::Pass);
        let mut to = 0;
        for range in ranges {
            let len = range.len() * width;
            self.stream.copy(x.at(range.start * width), moved.at(to), x.bytes(len));
            to += len;
        }
        self.stream.copy(moved.at(0), x.at(0), x.bytes(kept));
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
        let arguments = args![x, weights.at(weight.offset), eps, &*y, &*scale, weight.len as u32];
        self.stream.launch(kernel!(self.precision, "rms_norm"), row_shape(rows, weight.len), arguments);
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
        let arguments = args![x, weights.at(weight.offset), scale, &*y, weight.len as u32];
        self.stream.launch(kernel!(self.precision, "rms_norm_again"), row_shape(rows, weight.len), arguments);
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
        if let Some(gradient) = gradient {
            let to = gradient.at(weight.offset).into();
            self.sum_columns(Columns::Norm { x, scale, dy }, rows, weight.len, to);
        }
        let arguments = args![x, weights.at(weight.offset), scale, dy, &*dx, weight.len as u32];
        self.stream.launch(
            kernel!(self.precision, "rms_norm_backward"),
            row_shape(rows, weight.len),
            arguments,
        );
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
        let HeadRows { rows, stride, count, size } = heads;
        let each = rows * count;
        self.stream.launch(
            kernel!(self.precision, "head_norm"),
            warp_shape(each),
            args![
                weights.at(weight.offset),
                eps,
                &*x,
                &*raw,
                &*scale,
                count as u32,
                stride as u32,
                size as u32,
                each as u32
            ],
        );
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
        let HeadRows { rows, stride, count, size } = heads;
        let each = rows * count;
        let mut shares = std::mem::take(&mut self.shares);
        shares.reserve(&self.stream, FULL, each * size, Purpose::Pass);
        self.stream.launch(
            kernel!(self.precision, "head_norm_backward"),
            warp_shape(each),
            args![
                weights.at(weight.offset),
                raw,
                scale,
                &*dx,
                &shares,
                count as u32,
                stride as u32,
                size as u32,
                each as u32
            ],
        );
        if let Some(gradient) = gradient {
            self.sum_columns(Columns::Full(&shares), each, size, gradient.at(weight.offset).into());
        }
        self.shares = shares;
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
                &*self.angles,
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
        write: Write,
        y: &mut Buffer,
    ) {
        let Linear { weight, bias, outputs, inputs } = linear;
        let w = weights.rows(weight.offset, inputs).transposed();
        self.product([rows, outputs, inputs], x.rows(0, inputs), w, y.rows(0, outputs), 1.0, write);
        if let Some(bias) = bias {
            let shape = Shape::of(rows, row_threads(outputs), 0);
            self.stream.launch(
                kernel!(self.precision, "add_bias"),
                shape,
                args![weights.at(bias.offset), &*y, outputs as u32],
            );
        }
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
        let Linear { weight, outputs, inputs, .. } = linear;
        let w = weights.rows(weight.offset, inputs);
        self.product([rows, inputs, outputs], dy.rows(0, outputs), w, dx.rows(0, inputs), 1.0, write);
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
        if rows == 0 {
            return;
        }
        let Adapted { outputs, inputs, rank, a, b, stride, first, .. } = *adapted;
        self.low_rank.reserve(&self.stream, self.precision, rows * rank, Purpose::Pass);
        let (low, x, dy) = (self.low_rank.rows(0, rank), x.rows(0, inputs), dy.rows(first, stride));
        let (at_a, at_b) = (factors.rows(a.offset, inputs), factors.rows(b.offset, rank));
        let (da, db) = (gradient.rows(a.offset, inputs), gradient.rows(b.offset, rank));
        self.product([rows, rank, inputs], x, at_a.transposed(), low, scale, Write::Replace);
        self.product_full([outputs, rank, rows], dy.transposed(), low, db, Write::Add);
        self.product([rows, rank, outputs], dy, at_b, low, scale, Write::Replace);
        self.product_full([rank, inputs, rows], low.transposed(), x, da, Write::Add);
    }

    fn linear_backward_weight(
        &mut self,
        gradient: &mut Buffer,
        linear: Linear,
        rows: usize,
        dy: &Buffer,
        x: &Buffer,
    ) {
        if rows == 0 {
            return;
        }
        let Linear { weight, bias, outputs, inputs } = linear;
        let (dyt, x) = (dy.rows(0, outputs).transposed(), x.rows(0, inputs));
        let dw = gradient.rows(weight.offset, inputs);
        self.product_full([outputs, inputs, rows], dyt, x, dw, Write::Add);
        if let Some(bias) = bias {
            self.sum_columns(Columns::Of(dy), rows, outputs, gradient.at(bias.offset).into());
        }
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
        let Heads { queries, keys, size } = heads;
        let plan = lists.plan(rows);
        let count = plan.rows.len;
        let [rows, first, pieces] = Self::attention_arguments(lists, plan);
        let sizes = [queries, keys, size, count].map(|n| Argument::U32(n as u32));
        let [heads, key_heads, size_, count_] = sizes;
        let scale = 1.0 / (size as f32).sqrt();
        let on_tensor_cores = match (self.precision, size) {
            (Precision::Bf16, 64) => Some("attention_bf16_64"),
            (Precision::Bf16, 128) => Some("attention_bf16_128"),
            _ => None,
        };
        if let Some(kernel) = on_tensor_cores {
            let grid = [plan.by_query.first.len as u32 - 1, queries as u32, 1];
            let shape = Shape { grid, threads: 128, shared: 3 * 64 * (size as u32 + 8) * 2 };
            let arguments = args![rows, first, pieces, q, kv, &*out, &*lse, heads, key_heads, count_, scale];
            return self.stream.launch(kernel, shape, arguments);
        }
        self.stream.launch(
            kernel!(self.precision, "attention"),
            warp_shape(count * queries),
            args![rows, first, pieces, q, kv, &*out, &*lse, heads, key_heads, size_, count_, scale],
        );
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
        let plan = *lists.plan(rows);
        let (count, size) = (plan.rows.len, heads.size);
        self.delta.reserve(&self.stream, FULL, count * heads.queries, Purpose::Pass);
        let each = count * heads.queries;
        self.stream.launch(
            kernel!(self.precision, "attention_delta"),
            warp_shape(each),
            args![out, dout, &self.delta, size as u32, each as u32],
        );
        let scale = 1.0 / (size as f32).sqrt();
        let [h, k, e] = [heads.queries, heads.keys, size].map(|n| n as u32);
        let [at, first, pieces] = Self::attention_arguments(lists, &plan);
        self.stream.launch(
            kernel!(self.precision, "attention_dq"),
            warp_shape(each),
            args![at, first, pieces, q, kv, lse, &self.delta, dout, &*dq, h, k, e, count as u32, scale],
        );
        let [first, pieces] =
            [plan.by_key.first, plan.by_key.pieces].map(|list| Argument::from(lists.words.at(list, 0)));
        self.stream.launch(
            kernel!(self.precision, "attention_dkv"),
            warp_shape(keys * heads.keys),
            args![at, first, pieces, q, kv, lse, &self.delta, dout, &*dkv, h, k, e, keys as u32, scale],
        );
    }

    fn swiglu(&mut self, rows: usize, width: usize, gate_up: &Buffer, act: &mut Buffer) {
        let (shape, count) = (Shape::covering(rows * width, THREADS), (rows * width) as u64);
        self.stream.launch(
            kernel!(self.precision, "swiglu"),
            shape,
            args![gate_up, &*act, width as u32, count],
        );
    }

    fn swiglu_backward(&mut self, rows: usize, width: usize, gate_up: &mut Buffer, dact: &mut Buffer) {
        let (shape, count) = (Shape::covering(rows * width, THREADS), (rows * width) as u64);
        self.stream.launch(
            kernel!(self.precision, "swiglu_backward"),
            shape,
            args![&*gate_up, &*dact, width as u32, count],
        );
    }

    fn keeps_logits(&self, head: Head, rows: usize) -> bool {
        rows * head.vocabulary <= LOGITS
    }

    fn head(
        &mut self,
        weights: &Weights,
        head: Head,
        temperature: f32,
        rows: usize,
        x: &Buffer,
        lists: &Lists,
        kept: Option<&mut Buffer>,
        saved: &mut Buffer,
        scores: &mut Buffer,
    ) {
        let (v, factor) = (head.vocabulary, 1.0 / temperature);
        let picks = lists.pick_rows.len;
        let chunk = if kept.is_some() { rows.max(1) } else { self.logit_rows(head, rows) };
        let mut scratch = std::mem::take(&mut self.logits);
        let logits = kept.unwrap_or(&mut scratch);
        let first_picks = lists.words.host(lists.pick_first);
        for first in (0..rows).step_by(chunk) {
            let m = chunk.min(rows - first);
            self.logits_of(weights, head, first, m, x, logits);
            self.stream.launch(
                "head_scores",
                row_shape(m, v),
                args![&*logits, saved.at(2 * first), v as u32, factor],
            );
            let [from, to] = [first_picks[first], first_picks[first + m]].map(|pick| pick as usize);
            let [pick_rows, tokens] =
                [lists.pick_rows, lists.pick_tokens].map(|list| lists.words.at(list, from));
            self.stream.launch(
                "head_picks",
                Shape::covering(to - from, THREADS),
                args![
                    &*logits,
                    &*saved,
                    pick_rows,
                    tokens,
                    scores.at(from),
                    scores.at(picks + from),
                    (to - from) as u32,
                    first as u32,
                    v as u32,
                    factor
                ],
            );
        }
        self.logits = scratch;
    }

    fn scores(
        &mut self,
        lists: &Lists,
        scores: &Buffer,
        logp: &mut [f32],
        entropy: &mut [f32],
    ) -> Result<(), Error> {
        let count = lists.pick_rows.len;
        let mut found = vec![0.0; 2 * count];
        scores.read(&self.stream, 0, &mut found);
        self.stream.check()?;
        logp.copy_from_slice(&found[..count]);
        entropy.copy_from_slice(&found[count..]);
        for (index, &row) in lists.words.host(lists.pick_rows).iter().enumerate() {
            for found in [logp[index], entropy[index]] {
                if !found.is_finite() {
                    return Err(non_finite(found, row as usize));
                }
            }
        }
        Ok(())
    }

    fn derivatives(&mut self, dlogp: &[f32], dentropy: &[f32], to: &mut Buffer) {
        to.write(&self.stream, 0, dlogp);
        to.write(&self.stream, dlogp.len(), dentropy);
    }

    fn head_backward(
        &mut self,
        weights: &Weights,
        mut gradient: Option<&mut Buffer>,
        head: Head,
        temperature: f32,
        rows: usize,
        x: &Buffer,
        lists: &Lists,
        kept: Option<&mut Buffer>,
        saved: &Buffer,
        derivatives: &Buffer,
        dx: &mut Buffer,
    ) {
        let Head { weight, vocabulary: v, width: d } = head;
        let factor = 1.0 / temperature;
        let picks = lists.pick_rows.len;
        let chunk = if kept.is_some() { rows.max(1) } else { self.logit_rows(head, rows) };
        let computed = kept.is_some();
        let mut scratch = std::mem::take(&mut self.logits);
        let logits = kept.unwrap_or(&mut scratch);
        for first in (0..rows).step_by(chunk) {
            let m = chunk.min(rows - first);
            if !computed {
                self.logits_of(weights, head, first, m, x, logits);
            }
            let logits = &*logits;
            self.stream.launch(
                "head_backward",
                Shape::of(m, row_threads(v), 0),
                args![
                    logits,
                    saved.at(2 * first),
                    lists.words.at(lists.pick_first, first),
                    lists.words.at(lists.pick_tokens, 0),
                    derivatives.at(0),
                    derivatives.at(picks),
                    v as u32,
                    factor
                ],
            );
            let dz = match self.precision {
                Precision::F32 => logits,
                Precision::Bf16 => {
                    self.dlogits.reserve(&self.stream, Precision::Bf16, m * v, Purpose::Pass);
                    let arguments = args![logits, &self.dlogits, (m * v) as u64];
                    self.stream.launch("to_bf16", Shape::covering(m * v, THREADS), arguments);
                    &self.dlogits
                }
            };
            let (dz, w) = (dz.rows(0, v), weights.rows(weight.offset, d));
            self.product([m, d, v], dz, w, dx.rows(first * d, d), 1.0, Write::Replace);
            if let Some(gradient) = &mut gradient {
                let (x, dw) = (x.rows(first * d, d), gradient.rows(weight.offset, d));
                self.product_full([v, d, m], dz.transposed(), x, dw, Write::Add);
            }
        }
        self.logits = scratch;
    }

    fn logits(&mut self, weights: &Weights, head: Head, rows: usize, x: &Buffer, logits: &mut Vec<f32>) {
        let v = head.vocabulary;
        logits.resize(logits.len().max(rows * v), 0.0);
        let chunk = self.logit_rows(head, rows);
        let mut scratch = std::mem::take(&mut self.logits);
        for first in (0..rows).step_by(chunk) {
            let m = chunk.min(rows - first);
            self.logits_of(weights, head, first, m, x, &mut scratch);
            scratch.read(&self.stream, 0, &mut logits[first * v..(first + m) * v]);
        }
        self.logits = scratch;
    }

    fn grow_cache(&mut self, heads: Heads, layers: usize, cache: &mut Cache, slots: usize) {
        cache.layers.resize_with(layers, Buffer::default);
        for layer in &mut cache.layers {
            // By half at least: growing copies what is there.
            let len = slots * heads.key_width();
            if len > layer.len() {
                layer.extend(
                    &self.stream,
                    self.precision,
                    len.max(layer.len() + layer.len() / 2),
                    Purpose::Cache,
                );
            }
        }
    }

    fn shrink_cache(&mut self, cache: &mut Cache, bytes: usize) {
        if cache.layers.iter().map(|layer| layer.len() * 4).sum::<usize>() > bytes {
            cache.layers.clear();
        }
    }

    fn store_cache(&mut self, heads: Heads, cache: &mut Cache, layer: usize, lists: &Lists, kv: &Buffer) {
        let to = (&cache.layers[layer]).into();
        self.rows(kernel!(self.precision, "scatter"), heads.key_width(), lists, lists.slots, kv.into(), to);
    }

    fn begin_step(&mut self, changes: &DecodeChanges, decoding: &mut Decoding) {
        decoding.begin(&self.stream, changes);
    }

    fn step_lists(decoding: &Decoding) -> &Lists {
        &decoding.lists
    }

    fn cached_attention(
        &mut self,
        heads: Heads,
        decoding: &Decoding,
        cache: &Cache,
        layer: usize,
        q: &Buffer,
        out: &mut Buffer,
    ) {
        self.attend_cache(heads, decoding, &cache.layers[layer], q, out);
    }

    fn sample(
        &mut self,
        weights: &Weights,
        head: Head,
        sampling: &Sampling,
        rows: usize,
        x: &Buffer,
        draws: &[Draw],
        decoding: &mut Decoding,
    ) {
        self.draw(weights, head, sampling, rows, x, draws, decoding);
    }

    fn drawn(&mut self, decoding: &mut Decoding, drawn: &mut Vec<Drawn>) -> Result<(), Error> {
        self.fetch_drawn(decoding, drawn)
    }
}

/// Keys and values by slot: per layer, rows as the key/value projection makes them.
#[derive(Default)]
pub(crate) struct Cache {
    layers: Vec<Buffer>,
}
