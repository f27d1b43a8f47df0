//! The operations on one CPU thread, in f32.
//!
//! Each thread of the engine owns one [`Cpu`] and takes whole families through the whole network with it, so products are single-threaded, nothing is
//! shared but the weights, and nothing is allocated once buffers have grown.

pub(crate) mod attention;
pub(crate) mod buffer;
pub(crate) mod copies;
pub(crate) mod head;
pub(crate) mod narrow;
pub(crate) mod panels;
pub(crate) mod product;
pub(crate) mod rope;
pub(crate) mod simd;

use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;
use crate::layout::{Linear, Span};
use crate::lora::Adapted;
use crate::ops::{Backend, Head, HeadRows, Heads, Rotation, Write};
use crate::sampler::{self, Draw, Drawn, Sampling};
use crate::segments::{Pick, Piece, Sight};
use attention::Keys;
use buffer::Buffer;
use copies::Copies;
use product::{Into, View, product, product_with_panels};
use rope::Rope;

/// One thread's executor.
pub(crate) struct Cpu {
    rope: Arc<Rope>,
    /// The panels of the store that is being read, while there are any.
    copies: Option<Arc<Copies>>,
    attention: attention::Scratch,
    head: head::Scratch,
    logits: Vec<f32>,
    sampler: sampler::Scratch,
    lse: Vec<f32>,
    /// Where derivatives go that nobody wants.
    spare: Vec<f32>,
    /// Rows times rank, between LoRA's factors.
    low_rank: Buffer,
}

impl Cpu {
    pub(crate) fn new(rope: Arc<Rope>) -> Cpu {
        Cpu {
            rope,
            copies: None,
            attention: attention::Scratch::default(),
            head: head::Scratch::default(),
            logits: Vec::new(),
            sampler: sampler::Scratch::default(),
            lse: Vec::new(),
            spare: Vec::new(),
            low_rank: Buffer::default(),
        }
    }

    /// Reads these panels in place of the store's matrices from now on.
    pub(crate) fn set_copies(&mut self, copies: Option<Arc<Copies>>) {
        self.copies = copies;
    }

    /// Takes larger tables.
    pub(crate) fn set_rope(&mut self, rope: Arc<Rope>) {
        self.rope = rope;
    }
}

/// Keys and values by slot: per layer, rows as the key/value projection makes them.
#[derive(Default)]
pub(crate) struct Cache {
    layers: Vec<Buffer>,
    width: usize,
}

impl Cache {
    /// A cache of `layers` layers with rows of `width` numbers, empty.
    pub(crate) fn new(layers: usize, width: usize) -> Cache {
        Cache { layers: (0..layers).map(|_| Buffer::default()).collect(), width }
    }

    /// Gives memory beyond `bytes` back.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        if self.layers.iter().map(|layer| layer.len() * 4).sum::<usize>() > bytes {
            self.layers.fill_with(Buffer::default);
        }
    }
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

/// A norm's place in the gradient, or spare numbers where it isn't trained.
fn norm_gradient<'a>(
    gradient: Option<&'a mut [f32]>,
    weight: Span,
    spare: &'a mut Vec<f32>,
) -> &'a mut [f32] {
    match gradient {
        Some(gradient) => part_mut(gradient, weight),
        None => {
            // Emptied, so that numbers that nobody reads don't grow without bound, into slow ones.
            spare.clear();
            spare.resize(weight.len, 0.0);
            spare
        }
    }
}

impl Backend for Cpu {
    type Buffer = Buffer;
    type Store = [f32];
    type Cache = Cache;

    fn reserve(&mut self, buffer: &mut Buffer, len: usize) {
        buffer.reserve(len);
    }

    fn copy(&mut self, len: usize, x: &Buffer, y: &mut Buffer) {
        y[..len].copy_from_slice(&x[..len]);
    }

    fn gather(&mut self, width: usize, rows: &[u32], x: &Buffer, y: &mut Buffer) {
        for (y, &row) in y.chunks_exact_mut(width).zip(rows) {
            y.copy_from_slice(&x[row as usize * width..][..width]);
        }
    }

    fn scatter_add(&mut self, width: usize, rows: &[u32], x: &Buffer, y: &mut Buffer) {
        for (x, &row) in x.chunks_exact(width).zip(rows) {
            simd::add(x, &mut y[row as usize * width..][..width]);
        }
    }

    fn scatter(&mut self, width: usize, rows: &[u32], x: &Buffer, count: usize, y: &mut Buffer) {
        y[..count * width].fill(0.0);
        for (x, &row) in x.chunks_exact(width).zip(rows) {
            y[row as usize * width..][..width].copy_from_slice(x);
        }
    }

    fn keep_rows(&mut self, width: usize, ranges: &[Range<usize>], x: &mut Buffer) {
        let mut to = 0;
        for range in ranges {
            x.copy_within(range.start * width..range.end * width, to);
            to += range.len() * width;
        }
    }

    fn embed(&mut self, store: &[f32], table: Span, width: usize, tokens: &[u32], x: &mut Buffer) {
        let table = part(store, table);
        for (x, &token) in x.chunks_exact_mut(width).zip(tokens) {
            x.copy_from_slice(&table[token as usize * width..][..width]);
        }
    }

    fn embed_backward(
        &mut self,
        gradient: &mut [f32],
        table: Span,
        width: usize,
        tokens: &[u32],
        dx: &Buffer,
    ) {
        let gradient = part_mut(gradient, table);
        for (dx, &token) in dx.chunks_exact(width).zip(tokens) {
            simd::add(dx, &mut gradient[token as usize * width..][..width]);
        }
    }

    fn rms_norm(
        &mut self,
        store: &[f32],
        weight: Span,
        eps: f32,
        rows: usize,
        x: &Buffer,
        y: &mut Buffer,
        scale: &mut Buffer,
    ) {
        let (weight, width) = (part(store, weight), weight.len);
        for row in 0..rows {
            let at = row * width..(row + 1) * width;
            scale[row] = simd::rms_norm(&x[at.clone()], weight, eps, &mut y[at]);
        }
    }

    fn rms_norm_again(
        &mut self,
        store: &[f32],
        weight: Span,
        rows: usize,
        x: &Buffer,
        scale: &Buffer,
        y: &mut Buffer,
    ) {
        let (weight, width) = (part(store, weight), weight.len);
        for row in 0..rows {
            let at = row * width..(row + 1) * width;
            simd::rms_norm_again(&x[at.clone()], weight, scale[row], &mut y[at]);
        }
    }

    fn rms_norm_backward(
        &mut self,
        store: &[f32],
        gradient: Option<&mut [f32]>,
        weight: Span,
        rows: usize,
        x: &Buffer,
        scale: &Buffer,
        dy: &Buffer,
        dx: &mut Buffer,
    ) {
        let width = weight.len;
        let mut spare = std::mem::take(&mut self.spare);
        let dweight = norm_gradient(gradient, weight, &mut spare);
        let weight = part(store, weight);
        for row in 0..rows {
            let at = row * width..(row + 1) * width;
            simd::rms_norm_backward(
                &x[at.clone()],
                weight,
                scale[row],
                &dy[at.clone()],
                &mut dx[at],
                dweight,
            );
        }
        self.spare = spare;
    }

    fn head_norm(
        &mut self,
        store: &[f32],
        weight: Span,
        eps: f32,
        heads: HeadRows,
        x: &mut Buffer,
        raw: &mut Buffer,
        scale: &mut Buffer,
    ) {
        let weight = part(store, weight);
        for row in 0..heads.rows {
            for head in 0..heads.count {
                let index = row * heads.count + head;
                let raw = &mut raw[index * heads.size..][..heads.size];
                let x = &mut x[row * heads.stride + head * heads.size..][..heads.size];
                raw.copy_from_slice(x);
                scale[index] = simd::rms_norm(raw, weight, eps, x);
            }
        }
    }

    fn head_norm_backward(
        &mut self,
        store: &[f32],
        gradient: Option<&mut [f32]>,
        weight: Span,
        heads: HeadRows,
        raw: &Buffer,
        scale: &Buffer,
        dx: &mut Buffer,
    ) {
        let mut spare = std::mem::take(&mut self.spare);
        let dweight = norm_gradient(gradient, weight, &mut spare);
        let weight = part(store, weight);
        for row in 0..heads.rows {
            for head in 0..heads.count {
                let index = row * heads.count + head;
                let raw = &raw[index * heads.size..][..heads.size];
                let dx = &mut dx[row * heads.stride + head * heads.size..][..heads.size];
                simd::head_norm_backward(raw, weight, scale[index], dx, dweight);
            }
        }
        self.spare = spare;
    }

    fn rotate(&mut self, direction: Rotation, heads: HeadRows, positions: &[u32], x: &mut Buffer) {
        let sign = if direction == Rotation::Forward { 1.0 } else { -1.0 };
        for (row, &position) in positions.iter().enumerate().take(heads.rows) {
            let (cos, sin) = self.rope.at(position as usize);
            for head in 0..heads.count {
                let x = &mut x[row * heads.stride + head * heads.size..][..heads.size];
                let (low, high) = x.split_at_mut(heads.size / 2);
                simd::rotate(low, high, cos, sin, sign);
            }
        }
    }

    fn linear(
        &mut self,
        store: &[f32],
        linear: Linear,
        rows: usize,
        x: &Buffer,
        write: Write,
        y: &mut Buffer,
    ) {
        let Linear { inputs, outputs, .. } = linear;
        let mut into = if write == Write::Add { Into::Add } else { Into::Replace };
        if let Some(bias) = linear.bias {
            let bias = part(store, bias);
            for y in y.chunks_exact_mut(outputs).take(rows) {
                match write {
                    Write::Add => simd::add(bias, y),
                    Write::Replace => y.copy_from_slice(bias),
                }
            }
            into = Into::Add;
        }
        if let Some(copies) = &self.copies {
            let panels = copies.at(linear.weight.offset);
            product_with_panels(rows, outputs, inputs, x, panels, 0, outputs, into, y);
            return;
        }
        let w = View::rows(linear.weight.offset, inputs).transposed();
        product(rows, outputs, inputs, x, View::rows(0, inputs), store, w, into, y, View::rows(0, outputs));
    }

    fn linear_backward_input(
        &mut self,
        store: &[f32],
        linear: Linear,
        rows: usize,
        dy: &Buffer,
        write: Write,
        dx: &mut Buffer,
    ) {
        let Linear { inputs, outputs, .. } = linear;
        let into = if write == Write::Add { Into::Add } else { Into::Replace };
        let w = View::rows(linear.weight.offset, inputs);
        product(rows, inputs, outputs, dy, View::rows(0, outputs), store, w, into, dx, View::rows(0, inputs));
    }

    fn linear_backward_weight(
        &mut self,
        gradient: &mut [f32],
        linear: Linear,
        rows: usize,
        dy: &Buffer,
        x: &Buffer,
    ) {
        let Linear { inputs, outputs, .. } = linear;
        if rows == 0 {
            return;
        }
        let w = View::rows(linear.weight.offset, inputs);
        let dyt = View::rows(0, outputs).transposed();
        product(outputs, inputs, rows, dy, dyt, x, View::rows(0, inputs), Into::Add, gradient, w);
        if let Some(bias) = linear.bias {
            let bias = part_mut(gradient, bias);
            for dy in dy.chunks_exact(outputs).take(rows) {
                simd::add(dy, bias);
            }
        }
    }

    fn low_rank_backward(
        &mut self,
        adapters: &[f32],
        gradient: &mut [f32],
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
        let mut low = std::mem::take(&mut self.low_rank);
        low.reserve(rows * rank);
        let (low_view, x_view) = (View::rows(0, rank), View::rows(0, inputs));
        let dy_view = View::rows(first, stride);
        let (a_view, b_view) = (View::rows(a.offset, inputs), View::rows(b.offset, rank));
        let replace = Into::Replace;
        product(rows, rank, inputs, x, x_view, adapters, a_view.transposed(), replace, &mut low, low_view);
        simd::scale(&mut low[..rows * rank], scale);
        product(outputs, rank, rows, dy, dy_view.transposed(), &low, low_view, Into::Add, gradient, b_view);
        product(rows, rank, outputs, dy, dy_view, adapters, b_view, replace, &mut low, low_view);
        simd::scale(&mut low[..rows * rank], scale);
        product(rank, inputs, rows, &low, low_view.transposed(), x, x_view, Into::Add, gradient, a_view);
        self.low_rank = low;
    }

    fn attention(
        &mut self,
        heads: Heads,
        sight: &Sight,
        q: &Buffer,
        kv: &Buffer,
        out: &mut Buffer,
        lse: &mut Buffer,
    ) {
        let keys = Keys { data: kv, stride: heads.key_width(), values: heads.keys * heads.size };
        attention::forward(
            heads,
            sight.rows.len(),
            &sight.rows,
            &sight.pieces,
            q,
            keys,
            out,
            lse,
            &mut self.attention,
        );
    }

    fn attention_backward(
        &mut self,
        heads: Heads,
        sight: &Sight,
        keys: usize,
        q: &Buffer,
        kv: &Buffer,
        out: &Buffer,
        lse: &Buffer,
        dout: &Buffer,
        dq: &mut Buffer,
        dkv: &mut Buffer,
    ) {
        let source = Keys { data: kv, stride: heads.key_width(), values: heads.keys * heads.size };
        attention::backward(heads, keys, sight, q, source, out, lse, dout, dq, dkv, &mut self.attention);
    }

    fn swiglu(&mut self, rows: usize, width: usize, gate_up: &Buffer, act: &mut Buffer) {
        for (row, act) in gate_up.chunks_exact(2 * width).zip(act.chunks_exact_mut(width)).take(rows) {
            simd::swiglu(&row[..width], &row[width..], act);
        }
    }

    fn swiglu_backward(&mut self, rows: usize, width: usize, gate_up: &mut Buffer, dact: &mut Buffer) {
        for (row, dact) in gate_up.chunks_exact_mut(2 * width).zip(dact.chunks_exact_mut(width)).take(rows) {
            let (gate, up) = row.split_at_mut(width);
            simd::swiglu_backward(gate, up, dact);
        }
    }

    fn head(
        &mut self,
        store: &[f32],
        head: Head,
        temperature: f32,
        rows: usize,
        x: &Buffer,
        picks: &[Pick],
        saved: &mut Buffer,
        logp: &mut [f32],
        entropy: &mut [f32],
    ) -> Result<(), Error> {
        let weight = part(store, head.weight);
        head::forward(weight, head, temperature, rows, x, picks, saved, logp, entropy, &mut self.head)
    }

    fn head_backward(
        &mut self,
        store: &[f32],
        gradient: Option<&mut [f32]>,
        head: Head,
        temperature: f32,
        rows: usize,
        x: &Buffer,
        picks: &[Pick],
        saved: &Buffer,
        dlogp: &[f32],
        dentropy: &[f32],
        dx: &mut Buffer,
    ) {
        let weight = part(store, head.weight);
        let gradient = gradient.map(|gradient| part_mut(gradient, head.weight));
        head::backward(
            weight,
            gradient,
            head,
            temperature,
            rows,
            x,
            picks,
            saved,
            dlogp,
            dentropy,
            dx,
            &mut self.head,
        );
    }

    fn logits(&mut self, store: &[f32], head: Head, rows: usize, x: &Buffer, logits: &mut Vec<f32>) {
        let (v, d) = (head.vocabulary, head.width);
        if logits.len() < rows * v {
            logits.resize(rows * v, 0.0);
        }
        let w = View::rows(head.weight.offset, d).transposed();
        product(rows, v, d, x, View::rows(0, d), store, w, Into::Replace, logits, View::rows(0, v));
    }

    fn sample(
        &mut self,
        store: &[f32],
        head: Head,
        sampling: &Sampling,
        rows: usize,
        x: &Buffer,
        draws: &[Draw],
        drawn: &mut Vec<Drawn>,
    ) -> Result<(), Error> {
        // Rows at a time such that the logits of a large vocabulary stay small.
        let chunk = rows_at_a_time(head.vocabulary);
        let mut logits = std::mem::take(&mut self.logits);
        let (v, d) = (head.vocabulary, head.width);
        logits.resize(chunk.min(rows.max(1)) * v, 0.0);
        let mut from = 0;
        drawn.clear();
        for first in (0..rows).step_by(chunk) {
            let m = chunk.min(rows - first);
            if let Some(copies) = &self.copies {
                let panels = copies.at(head.weight.offset);
                product_with_panels(m, v, d, &x[first * d..], panels, 0, v, Into::Replace, &mut logits);
            } else {
                let (x_view, w) = (View::rows(first * d, d), View::rows(head.weight.offset, d).transposed());
                product(m, v, d, x, x_view, store, w, Into::Replace, &mut logits, View::rows(0, v));
            }
            for row in first..first + m {
                let to = from + draws[from..].iter().take_while(|draw| draw.row == row).count();
                let logits = &mut logits[(row - first) * v..][..v];
                sampler::draw(logits, row, sampling, &draws[from..to], drawn, &mut self.sampler)?;
                from = to;
            }
        }
        self.logits = logits;
        Ok(())
    }

    fn grow_cache(&mut self, cache: &mut Cache, slots: usize) {
        for layer in &mut cache.layers {
            // By an eighth at least, so that growing costs little in all and wastes little.
            let len = slots * cache.width;
            if len > layer.len() {
                layer.reserve(len.max(layer.len() + layer.len() / 8));
            }
        }
    }

    fn store_cache(&mut self, heads: Heads, cache: &mut Cache, layer: usize, slots: &[u32], kv: &Buffer) {
        let width = heads.key_width();
        for (row, &slot) in kv.chunks_exact(width).zip(slots) {
            cache.layers[layer][slot as usize * width..][..width].copy_from_slice(row);
        }
    }

    fn cached_attention(
        &mut self,
        heads: Heads,
        queries: usize,
        pieces: &[Piece],
        cache: &Cache,
        layer: usize,
        q: &Buffer,
        out: &mut Buffer,
    ) {
        let keys =
            Keys { data: &cache.layers[layer], stride: heads.key_width(), values: heads.keys * heads.size };
        self.lse.resize(queries * heads.queries, 0.0);
        attention::forward(heads, queries, &[], pieces, q, keys, out, &mut self.lse, &mut self.attention);
    }
}
