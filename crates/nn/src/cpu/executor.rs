//! The operations, run by one team of threads.

mod attention;
mod linear;
mod norms;
mod rows;
mod sampling;

pub(crate) use linear::tile_rows;

use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::attention::Scratch as AttentionScratch;
use super::buffer::Buffer;
use super::decoding::Decoding;
use super::lists::Lists;
use super::packed_weights::PackedWeights;
use super::product::{Into, View, packing_product, team_product};
use super::team::{Shared, Team};
use super::weights::Weights;
use super::{head, sampler, simd};
use crate::engine::Products;
use crate::error::Error;
use crate::executor::{
    DecodeChanges, Executor, Head, HeadNorms, HeadRows, Heads, Holds, Rotation, Rows, Write,
};
use crate::layout::{Linear, Span};
use crate::lora::Adapted;
use crate::rope::Rope;
use crate::sampling::{Draw, Drawn, Sampling};
use crate::segments::Chunk;

/// Scratch of one thread.
#[derive(Default)]
struct Scratch {
    attention: AttentionScratch,
    sampler: sampler::Scratch,
    drawn: Vec<Drawn>,
}

/// A team and its memory.
pub(crate) struct CpuExecutor {
    team: Team,
    /// Of linear maps and the head.
    products: Products,
    rope: Arc<Rope>,
    /// The panels of the weights in use, if there are any.
    packed: Option<Arc<PackedWeights>>,
    /// One per part of an operation, so that threads don't share one.
    scratch: Vec<Mutex<Scratch>>,
    head: head::Scratch,
    logits: Vec<f32>,
    /// Queries of a decoding step.
    queries: Buffer,
    lse: Buffer,
    delta: Buffer,
    /// Destination of derivatives that aren't needed.
    spare: Vec<f32>,
    /// Intermediate rows times rank, between LoRA's factors.
    low_rank: Buffer,
    /// Values of some rows of a quantized matrix.
    tile: Buffer,
}

impl CpuExecutor {
    /// An executor for teams of up to `largest` threads.
    pub(super) fn new(team: Team, largest: usize, products: Products, rope: Arc<Rope>) -> CpuExecutor {
        CpuExecutor {
            team,
            products,
            rope,
            packed: None,
            scratch: (0..largest).map(|_| Mutex::default()).collect(),
            head: head::Scratch::default(),
            logits: Vec::new(),
            queries: Buffer::default(),
            lse: Buffer::default(),
            delta: Buffer::default(),
            spare: Vec::new(),
            low_rank: Buffer::default(),
            tile: Buffer::default(),
        }
    }

    /// Switches to another team.
    pub(super) fn set_team(&mut self, team: Team) {
        self.team = team;
    }

    /// Uses these panels in place of the matrices from now on.
    pub(super) fn set_packed(&mut self, packed: Option<Arc<PackedWeights>>) {
        self.packed = packed;
    }

    /// Replaces the rotary tables by larger ones.
    pub(super) fn set_rope(&mut self, rope: Arc<Rope>) {
        self.rope = rope;
    }

    /// Calls `body(rows)` for ranges of `rows` rows, each touching about `width` numbers.
    fn rows(&self, rows: usize, width: usize, body: impl Fn(Range<usize>) + Sync) {
        self.team.split(rows, 1, rows * width, |_, rows| body(rows));
    }

    /// Calls `body(columns)` for ranges of `width` columns, whole cache lines, of `rows` rows.
    fn columns(&self, rows: usize, width: usize, body: impl Fn(Range<usize>) + Sync) {
        self.team.split(width, 16, rows * width, |_, columns| body(columns));
    }

    /// The scratch memory of part `part` of an operation.
    fn scratch(&self, part: usize) -> std::sync::MutexGuard<'_, Scratch> {
        self.scratch[part].lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A product by the whole team.
    fn product(
        &self,
        m: usize,
        n: usize,
        k: usize,
        a: &[f32],
        av: View,
        b: &[f32],
        bv: View,
        into: Into,
        c: &mut [f32],
        cv: View,
    ) {
        team_product(Some(&self.team), self.products, m, n, k, a, av, b, bv, into, c, cv);
    }

    /// A product by the whole team, in which an element depends on its row and column alone, as in one with panels.
    fn packing_product(
        &self,
        m: usize,
        n: usize,
        k: usize,
        a: &[f32],
        av: View,
        b: &[f32],
        bv: View,
        into: Into,
        c: &mut [f32],
        cv: View,
    ) {
        packing_product(Some(&self.team), self.products, m, n, k, a, av, b, bv, into, c, cv);
    }
}

/// Keys and values by slot: per layer, rows as the key/value projection makes them.
#[derive(Default)]
pub(crate) struct Cache {
    layers: Vec<Buffer>,
}

fn part(store: &[f32], span: Span) -> &[f32] {
    &store[span.offset..span.offset + span.len]
}

fn part_mut(store: &mut [f32], span: Span) -> &mut [f32] {
    &mut store[span.offset..span.offset + span.len]
}

/// Rows of logits that sampling holds at a time.
pub(crate) fn rows_at_a_time(vocabulary: usize) -> usize {
    ((1 << 22) / vocabulary).clamp(1, 256)
}

impl Executor for CpuExecutor {
    type Buffer = Buffer;
    type Weights = Weights;
    type Gradient = [f32];
    type Cache = Cache;
    type Lists = Lists;
    type Decoding = Decoding;

    fn reserve(&mut self, buffer: &mut Buffer, _: Holds, len: usize) {
        buffer.reserve(len);
    }

    fn stage(&mut self, chunk: &Chunk, slots: &[u32], lists: &mut Lists) {
        lists.tokens.clone_from(&chunk.tokens);
        lists.positions.clone_from(&chunk.positions);
        lists.all.clone_from(&chunk.all);
        lists.predicting.clone_from(&chunk.predicting);
        lists.picks.clone_from(&chunk.picks);
        lists.query_positions.clear();
        let positions = chunk.predicting.rows.iter().map(|&row| chunk.positions[row as usize]);
        lists.query_positions.extend(positions);
        lists.slots.clear();
        lists.slots.extend_from_slice(slots);
    }

    fn gather(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
        self.gather(width, lists, x, y)
    }

    fn take_row(&mut self, width: usize, row: usize, x: &Buffer, y: &mut Buffer) {
        y[..width].copy_from_slice(&x[row * width..][..width]);
    }

    fn scatter_add(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
        self.scatter_add(width, lists, x, y)
    }

    fn scatter(&mut self, width: usize, lists: &Lists, x: &Buffer, count: usize, y: &mut Buffer) {
        self.scatter(width, lists, x, count, y)
    }

    fn zero(&mut self, len: usize, y: &mut Buffer) {
        let y = Shared::new(&mut y[..len]);
        // SAFETY: ranges of a split are apart.
        self.rows(len, 1, |own| unsafe { y.part(own) }.fill(0.0));
    }

    fn keep_rows(&mut self, width: usize, ranges: &[Range<usize>], x: &mut Buffer) {
        let mut to = 0;
        for range in ranges {
            x.copy_within(range.start * width..range.end * width, to);
            to += range.len() * width;
        }
    }

    fn embed(&mut self, weights: &Weights, table: Span, width: usize, lists: &Lists, x: &mut Buffer) {
        self.embed(weights, table, width, lists, x)
    }

    fn embed_backward(
        &mut self,
        gradient: &mut [f32],
        table: Span,
        width: usize,
        lists: &Lists,
        dx: &Buffer,
    ) {
        self.embed_backward(gradient, table, width, lists, dx)
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
        gradient: Option<&mut [f32]>,
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
        gradient: Option<&mut [f32]>,
        weight: Span,
        heads: HeadRows,
        raw: &Buffer,
        scale: &Buffer,
        dx: &mut Buffer,
    ) {
        self.head_norm_backward(weights, gradient, weight, heads, raw, scale, dx)
    }

    fn rotate(&mut self, direction: Rotation, heads: HeadRows, lists: &Lists, rows: Rows, x: &mut Buffer) {
        let sign = if direction == Rotation::Forward { 1.0 } else { -1.0 };
        let positions = match rows {
            Rows::All => &lists.positions,
            Rows::Predicting => &lists.query_positions,
        };
        let x = Shared::new(x);
        self.rows(heads.rows, heads.count * heads.size, |own| {
            for row in own {
                let (cos, sin) = self.rope.at(positions[row] as usize);
                for head in 0..heads.count {
                    let at = row * heads.stride + head * heads.size;
                    // SAFETY: ranges of a split are apart.
                    let (low, high) = unsafe { x.part(at..at + heads.size) }.split_at_mut(heads.size / 2);
                    simd::rotate(low, high, cos, sin, sign);
                }
            }
        });
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
        self.linear(weights, linear, rows, x, onto, y, (0, linear.outputs))
    }

    fn linears(&mut self, weights: &Weights, linears: &[Linear], rows: usize, x: &Buffer, y: &mut Buffer) {
        let (stride, mut first) = (linears.iter().map(|linear| linear.outputs).sum(), 0);
        for &linear in linears {
            self.linear(weights, linear, rows, x, None, y, (first, stride));
            first += linear.outputs;
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
        self.linear_backward_input(weights, linear, rows, dy, write, dx)
    }

    fn linear_backward_weight(
        &mut self,
        gradient: &mut [f32],
        linear: Linear,
        rows: usize,
        dy: &Buffer,
        x: &Buffer,
    ) {
        self.linear_backward_weight(gradient, linear, rows, dy, x)
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
        gradient: &mut [f32],
        adapted: &Adapted,
        scale: f32,
        rows: usize,
        dy: &Buffer,
        x: &Buffer,
    ) {
        self.low_rank_backward(factors, gradient, adapted, scale, rows, dy, x)
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
        let act = Shared::new(act);
        self.rows(rows, 3 * width, |own| {
            // SAFETY: ranges of a split are apart.
            let act = unsafe { act.part(own.start * width..own.end * width) };
            let rows = gate_up[2 * width * own.start..].chunks_exact(2 * width);
            for (row, act) in rows.zip(act.chunks_exact_mut(width)) {
                simd::swiglu(&row[..width], &row[width..], act);
            }
        });
    }

    fn swiglu_backward(&mut self, rows: usize, width: usize, gate_up: &mut Buffer, dact: &mut Buffer) {
        let (gate_up, dact) = (Shared::new(gate_up), Shared::new(dact));
        self.rows(rows, 3 * width, |own| {
            // SAFETY: ranges of a split are apart.
            let (gate_up, dact) = unsafe {
                let pairs = 2 * width * own.start..2 * width * own.end;
                (gate_up.part(pairs), dact.part(own.start * width..own.end * width))
            };
            for (row, dact) in gate_up.chunks_exact_mut(2 * width).zip(dact.chunks_exact_mut(width)) {
                let (gate, up) = row.split_at_mut(width);
                simd::swiglu_backward(gate, up, dact);
            }
        });
    }

    fn keeps_logits(&self, head: Head, rows: usize) -> bool {
        rows * head.vocabulary <= head::KEPT
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
        let (weight, picks) = (part(weights, head.weight), &lists.picks);
        let scores = &mut scores[..2 * picks.len()];
        let (team, products, scratch) = (&self.team, self.products, &mut self.head);
        let kept = kept.then_some(&mut logits[..]);
        head::forward(
            team,
            products,
            weight,
            head,
            temperature,
            rows,
            x,
            picks,
            kept,
            saved,
            scores,
            scratch,
        );
    }

    fn first_non_finite(&mut self, len: usize, x: &Buffer) -> Option<(usize, f32)> {
        let index = x[..len].iter().position(|value| !value.is_finite())?;
        Some((index, x[index]))
    }

    fn scores(
        &mut self,
        lists: &Lists,
        scores: &Buffer,
        logp: &mut [f32],
        entropy: &mut [f32],
    ) -> Result<(), Error> {
        let count = lists.picks.len();
        logp.copy_from_slice(&scores[..count]);
        entropy.copy_from_slice(&scores[count..2 * count]);
        for (index, pick) in lists.picks.iter().enumerate() {
            for found in [logp[index], entropy[index]] {
                if !found.is_finite() {
                    return Err(head::non_finite(found, pick.slot as usize));
                }
            }
        }
        Ok(())
    }

    fn derivatives(&mut self, dlogp: &[f32], dentropy: &[f32], to: &mut Buffer) {
        to[..dlogp.len()].copy_from_slice(dlogp);
        to[dlogp.len()..dlogp.len() + dentropy.len()].copy_from_slice(dentropy);
    }

    fn head_backward(
        &mut self,
        weights: &Weights,
        gradient: Option<&mut [f32]>,
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
        let (weight, picks) = (part(weights, head.weight), &lists.picks);
        let gradient = gradient.map(|gradient| part_mut(gradient, head.weight));
        let derivatives = &derivatives[..2 * picks.len()];
        head::backward(
            &self.team,
            self.products,
            weight,
            gradient,
            head,
            temperature,
            rows,
            x,
            picks,
            kept.then_some(&mut logits[..]),
            saved,
            derivatives,
            dx,
            &mut self.head,
        );
    }

    fn logits(&mut self, weights: &Weights, head: Head, rows: usize, x: &Buffer, logits: &mut Vec<f32>) {
        let (v, d) = (head.vocabulary, head.width);
        if logits.len() < rows * v {
            logits.resize(rows * v, 0.0);
        }
        let w = View::rows(head.weight.offset, d).transposed();
        self.product(rows, v, d, x, View::rows(0, d), weights, w, Into::Replace, logits, View::rows(0, v));
    }

    fn grow_cache(&mut self, heads: Heads, layers: usize, cache: &mut Cache, slots: usize, _: usize) {
        cache.layers.resize_with(layers, Buffer::default);
        for layer in &mut cache.layers {
            // By an eighth at least, so that growing costs little in all and wastes little.
            let len = slots * heads.key_width();
            if len > layer.len() {
                layer.extend(len.max(layer.len() + layer.len() / 8));
            }
        }
    }

    fn shrink_cache(&mut self, cache: &mut Cache, bytes: usize) {
        if cache.layers.iter().map(|layer| layer.len() * 4).sum::<usize>() > bytes {
            cache.layers.fill_with(Buffer::default);
        }
    }

    fn store_cache(&mut self, heads: Heads, cache: &mut Cache, layer: usize, lists: &Lists, kv: &Buffer) {
        let width = heads.key_width();
        let cache = Shared::new(&mut cache.layers[layer]);
        self.rows(lists.slots.len(), width, |own| {
            for row in own {
                let at = lists.slots[row] as usize * width;
                // SAFETY: each slot is one row's.
                unsafe { cache.part(at..at + width) }.copy_from_slice(&kv[row * width..][..width]);
            }
        });
    }

    /// The step is done when it has been submitted: there is nothing to overlap with.
    const RUNS_AHEAD: bool = false;

    fn begin_step(&mut self, changes: &DecodeChanges, decoding: &mut Decoding) {
        decoding.begin_step(changes);
    }

    fn step_rows(decoding: &Decoding) -> usize {
        decoding.step.rows()
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
        self.step_attention(weights, norms, heads, decoding, cache, layer, qkv, out)
    }

    fn stage_draws(&mut self, _: usize, draws: &[Draw], decoding: &mut Decoding) {
        decoding.stage_draws(draws);
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
        self.sample(weights, head, sampling, rows, x, decoding)
    }

    fn end_step(&mut self, _: &mut Decoding) {}

    fn drawn(&mut self, decoding: &mut Decoding, drawn: &mut Vec<Drawn>) -> Result<(), Error> {
        if let Some(error) = decoding.failed.take() {
            return Err(error);
        }
        drawn.clone_from(&decoding.drawn);
        Ok(())
    }
}
