//! The operations a backend offers. The decoder, forward and backward, is written once over them.
//!
//! A backend owns three kinds of memory: buffers (activations, which grow and keep their allocation), stores (parameters or their gradient, one flat
//! run under `layout`), and a cache of keys and values. Its methods name rows explicitly; a buffer may be longer than what an operation
//! touches. Operations that produce gradients of parameters add to the store, or spare the work where there is none; so do those whose name says so.

use crate::error::Error;
use crate::layout::{Linear, Span};
use crate::lora::Adapted;
use crate::sampler::{Draw, Drawn, Sampling};
use crate::segments::{Pick, Piece, Sight};

/// Sizes that attention needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heads {
    /// `H`.
    pub(crate) queries: usize,
    /// `K`.
    pub(crate) keys: usize,
    /// `E`.
    pub(crate) size: usize,
}

impl Heads {
    /// Width of a row of queries, and of attention's output.
    pub(crate) fn query_width(&self) -> usize {
        self.queries * self.size
    }

    /// Width of a row of keys and values.
    pub(crate) fn key_width(&self) -> usize {
        2 * self.keys * self.size
    }
}

/// Heads inside a wider row: `count` heads from column 0 of rows of `stride` numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadRows {
    pub(crate) rows: usize,
    pub(crate) stride: usize,
    pub(crate) count: usize,
    pub(crate) size: usize,
}

/// The vocabulary head: `logits = x Wᵀ / temperature`, `W`: `[vocabulary, width]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) weight: Span,
    pub(crate) vocabulary: usize,
    pub(crate) width: usize,
}

/// Rotates forward, or back in the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rotation {
    Forward,
    Backward,
}

/// What a linear map does with what is in its output already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    Replace,
    Add,
}

/// What executes.
pub(crate) trait Backend {
    /// Activations.
    type Buffer: Default;
    /// Parameters, or their gradient.
    type Store: ?Sized;
    /// Keys and values of all layers, by slot.
    type Cache;

    /// Makes `buffer` at least `len` long; what it holds is unspecified afterwards.
    fn reserve(&mut self, buffer: &mut Self::Buffer, len: usize);

    /// `y[..len] = x[..len]`.
    fn copy(&mut self, len: usize, x: &Self::Buffer, y: &mut Self::Buffer);

    /// `y[i] = x[rows[i]]`, rows of `width`.
    fn gather(&mut self, width: usize, rows: &[u32], x: &Self::Buffer, y: &mut Self::Buffer);

    /// `y[rows[i]] += x[i]`.
    fn scatter_add(&mut self, width: usize, rows: &[u32], x: &Self::Buffer, y: &mut Self::Buffer);

    /// `y` has `count` rows of `width`: zero but for `y[rows[i]] = x[i]`.
    fn scatter(&mut self, width: usize, rows: &[u32], x: &Self::Buffer, count: usize, y: &mut Self::Buffer);

    /// Keeps the rows of `width` in `ranges` (ascending), moved to the front.
    fn keep_rows(&mut self, width: usize, ranges: &[std::ops::Range<usize>], x: &mut Self::Buffer);

    /// `x[t] = table[tokens[t]]`, table rows of `width`.
    fn embed(&mut self, store: &Self::Store, table: Span, width: usize, tokens: &[u32], x: &mut Self::Buffer);

    /// `gradient[table][tokens[t]] += dx[t]`.
    fn embed_backward(
        &mut self,
        gradient: &mut Self::Store,
        table: Span,
        width: usize,
        tokens: &[u32],
        dx: &Self::Buffer,
    );

    /// `y = x / rms(x) * weight`; `scale` keeps `1 / rms` of each row.
    fn rms_norm(
        &mut self,
        store: &Self::Store,
        weight: Span,
        eps: f32,
        rows: usize,
        x: &Self::Buffer,
        y: &mut Self::Buffer,
        scale: &mut Self::Buffer,
    );

    /// `y` again, from what the forward pass kept.
    fn rms_norm_again(
        &mut self,
        store: &Self::Store,
        weight: Span,
        rows: usize,
        x: &Self::Buffer,
        scale: &Self::Buffer,
        y: &mut Self::Buffer,
    );

    /// `dx += d loss / dx`, from `dy`.
    fn rms_norm_backward(
        &mut self,
        store: &Self::Store,
        gradient: Option<&mut Self::Store>,
        weight: Span,
        rows: usize,
        x: &Self::Buffer,
        scale: &Self::Buffer,
        dy: &Self::Buffer,
        dx: &mut Self::Buffer,
    );

    /// RMSNorm of each head in place; `raw` keeps what was there, packed, and `scale` `1 / rms` of each head.
    fn head_norm(
        &mut self,
        store: &Self::Store,
        weight: Span,
        eps: f32,
        heads: HeadRows,
        x: &mut Self::Buffer,
        raw: &mut Self::Buffer,
        scale: &mut Self::Buffer,
    );

    /// In place: `dx` from the derivative of the result to that of `raw`.
    fn head_norm_backward(
        &mut self,
        store: &Self::Store,
        gradient: Option<&mut Self::Store>,
        weight: Span,
        heads: HeadRows,
        raw: &Self::Buffer,
        scale: &Self::Buffer,
        dx: &mut Self::Buffer,
    );

    /// Rotary embedding in place; `positions[i]` belongs to row `i`.
    fn rotate(&mut self, direction: Rotation, heads: HeadRows, positions: &[u32], x: &mut Self::Buffer);

    /// `y = x Wᵀ + b`, or added to `y`.
    fn linear(
        &mut self,
        store: &Self::Store,
        linear: Linear,
        rows: usize,
        x: &Self::Buffer,
        write: Write,
        y: &mut Self::Buffer,
    );

    /// `dx = dy W`, or added to `dx`.
    fn linear_backward_input(
        &mut self,
        store: &Self::Store,
        linear: Linear,
        rows: usize,
        dy: &Self::Buffer,
        write: Write,
        dx: &mut Self::Buffer,
    );

    /// For a matrix with factors, `W = W0 + scale · B A`: `dA += scale · (dy B)ᵀ x`, `dB += scale · dyᵀ (x Aᵀ)`. `dy` is that of the whole linear map.
    fn low_rank_backward(
        &mut self,
        adapters: &Self::Store,
        gradient: &mut Self::Store,
        adapted: &Adapted,
        scale: f32,
        rows: usize,
        dy: &Self::Buffer,
        x: &Self::Buffer,
    );

    /// `dW += dyᵀ x`, `db += Σ dy`.
    fn linear_backward_weight(
        &mut self,
        gradient: &mut Self::Store,
        linear: Linear,
        rows: usize,
        dy: &Self::Buffer,
        x: &Self::Buffer,
    );

    /// `out[query]` = attention of each query over its pieces of the rows of `kv`; `lse` keeps log Σ exp, `[queries, H]`.
    fn attention(
        &mut self,
        heads: Heads,
        sight: &Sight,
        q: &Self::Buffer,
        kv: &Self::Buffer,
        out: &mut Self::Buffer,
        lse: &mut Self::Buffer,
    );

    /// `dq` and `dkv` (replaced; `keys` rows of the latter) from `dout`.
    fn attention_backward(
        &mut self,
        heads: Heads,
        sight: &Sight,
        keys: usize,
        q: &Self::Buffer,
        kv: &Self::Buffer,
        out: &Self::Buffer,
        lse: &Self::Buffer,
        dout: &Self::Buffer,
        dq: &mut Self::Buffer,
        dkv: &mut Self::Buffer,
    );

    /// `act = silu(gate) * up`; rows of `gate_up` are the gate's `width` numbers, then up's.
    fn swiglu(&mut self, rows: usize, width: usize, gate_up: &Self::Buffer, act: &mut Self::Buffer);

    /// In place: `gate_up` becomes its own derivative, `dact` becomes `act` again.
    fn swiglu_backward(
        &mut self,
        rows: usize,
        width: usize,
        gate_up: &mut Self::Buffer,
        dact: &mut Self::Buffer,
    );

    /// Log-probability of each pick and entropy of its row, of softmax(logits / temperature). `saved` keeps two numbers per row.
    fn head(
        &mut self,
        store: &Self::Store,
        head: Head,
        temperature: f32,
        rows: usize,
        x: &Self::Buffer,
        picks: &[Pick],
        saved: &mut Self::Buffer,
        logp: &mut [f32],
        entropy: &mut [f32],
    ) -> Result<(), Error>;

    /// `dx` (replaced) and the head's gradient from the derivatives of each pick's log-probability and entropy.
    fn head_backward(
        &mut self,
        store: &Self::Store,
        gradient: Option<&mut Self::Store>,
        head: Head,
        temperature: f32,
        rows: usize,
        x: &Self::Buffer,
        picks: &[Pick],
        saved: &Self::Buffer,
        dlogp: &[f32],
        dentropy: &[f32],
        dx: &mut Self::Buffer,
    );

    /// The logits themselves, `[rows, vocabulary]`, untempered.
    fn logits(
        &mut self,
        store: &Self::Store,
        head: Head,
        rows: usize,
        x: &Self::Buffer,
        logits: &mut Vec<f32>,
    );

    /// Draws tokens from rows of `x`; `draws` are in the order of their rows.
    fn sample(
        &mut self,
        store: &Self::Store,
        head: Head,
        sampling: &Sampling,
        rows: usize,
        x: &Self::Buffer,
        draws: &[Draw],
        drawn: &mut Vec<Drawn>,
    ) -> Result<(), Error>;

    /// Makes room for `slots` tokens, keeping what is stored.
    fn grow_cache(&mut self, cache: &mut Self::Cache, slots: usize);

    /// Stores row `i` of `kv` of `layer` in slot `slots[i]`.
    fn store_cache(
        &mut self,
        heads: Heads,
        cache: &mut Self::Cache,
        layer: usize,
        slots: &[u32],
        kv: &Self::Buffer,
    );

    /// Attention of one query per row over pieces of the cache's slots (none is causal).
    fn cached_attention(
        &mut self,
        heads: Heads,
        queries: usize,
        pieces: &[Piece],
        cache: &Self::Cache,
        layer: usize,
        q: &Self::Buffer,
        out: &mut Self::Buffer,
    );
}
