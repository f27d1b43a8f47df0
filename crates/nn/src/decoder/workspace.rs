//! The buffers of a pass: saved activations, and scratch memory.

use std::ops::{Deref, DerefMut, Range};

use crate::executor::{Executor, Holds, Memory, Subset};

/// A set of a pass's rows: all rows, or the predicting rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowSet {
    pub(super) which: Subset,
    pub(super) count: usize,
}

/// Rows that the forward pass saves for the backward pass.
#[derive(Default)]
pub(super) struct SavedRows<B> {
    buffer: B,
    width: usize,
    which: Subset,
}

impl<B> Deref for SavedRows<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.buffer
    }
}

impl<B> DerefMut for SavedRows<B> {
    fn deref_mut(&mut self) -> &mut B {
        &mut self.buffer
    }
}

impl<B> SavedRows<B> {
    /// Reserves memory for `rows` of `width` activations.
    pub(super) fn reserve<X: Memory<Buffer = B>>(&mut self, ops: &mut X, rows: RowSet, width: usize) {
        self.reserve_for(ops, Holds::Activations, rows, width);
    }

    /// Reserves memory for `rows` of `width` statistics.
    pub(super) fn reserve_statistics<X: Memory<Buffer = B>>(
        &mut self,
        ops: &mut X,
        rows: RowSet,
        width: usize,
    ) {
        self.reserve_for(ops, Holds::Statistics, rows, width);
    }

    fn reserve_for<X: Memory<Buffer = B>>(&mut self, ops: &mut X, holds: Holds, rows: RowSet, width: usize) {
        (self.width, self.which) = (width, rows.which);
        ops.reserve(&mut self.buffer, holds, rows.count * width);
    }

    /// Retains only the rows in the ranges of `remaining`.
    pub(super) fn keep_rows<X: Executor<Buffer = B>>(&mut self, ops: &mut X, remaining: RemainingRows<'_>) {
        if self.width > 0 {
            let ranges = if self.which == Subset::All { remaining.all } else { remaining.predicting };
            ops.keep_rows(self.width, ranges, &mut self.buffer);
        }
    }
}

/// Rows that remain when trees without a derivative are removed: ranges of all rows, and of the predicting rows.
#[derive(Clone, Copy)]
pub(crate) struct RemainingRows<'a> {
    pub(crate) all: &'a [Range<usize>],
    pub(crate) predicting: &'a [Range<usize>],
}

/// Values that a norm saves for its backward pass.
#[derive(Default)]
pub(super) struct Normed<B: Default> {
    pub(super) raw: SavedRows<B>,
    /// `1 / rms` of each row, or of each head.
    pub(super) scale: SavedRows<B>,
}

#[derive(Default)]
pub(super) struct SavedAttention<B: Default> {
    pub(super) q: SavedRows<B>,
    pub(super) q_norm: Normed<B>,
    /// Keys and values.
    pub(super) kv: SavedRows<B>,
    pub(super) k_norm: Normed<B>,
    pub(super) v_norm: Normed<B>,
    /// Log-sum-exp of each head's scores.
    pub(super) lse: SavedRows<B>,
    /// Output gate. Empty in layers without one.
    pub(super) gate: SavedRows<B>,
}

#[derive(Default)]
pub(super) struct SavedMixer<B: Default> {
    /// Queries, keys and values before the convolution, then `b`, then `a`. In a gated short convolution: its gates and values; the other buffers are
    /// then empty.
    pub(super) inputs: SavedRows<B>,
    /// Output gate, `z`.
    pub(super) gate: SavedRows<B>,
    pub(super) norm: Normed<B>,
}

/// Saved activations of attention, or of the mixer that replaces it.
pub(super) enum Mixed<B: Default> {
    Attention(SavedAttention<B>),
    Recurrent(SavedMixer<B>),
}

impl<B: Default> Default for Mixed<B> {
    fn default() -> Self {
        Mixed::Attention(SavedAttention::default())
    }
}

impl<B: Default> Mixed<B> {
    /// Returns the buffers for attention, which replace buffers for a mixer.
    pub(super) fn attention(&mut self) -> &mut SavedAttention<B> {
        if let Mixed::Recurrent(_) = self {
            *self = Mixed::default();
        }
        match self {
            Mixed::Attention(saved) => saved,
            Mixed::Recurrent(_) => unreachable!("replaced above"),
        }
    }

    /// Returns the buffers for a recurrent mixer, which replace buffers for attention.
    pub(super) fn recurrent(&mut self) -> &mut SavedMixer<B> {
        if let Mixed::Attention(_) = self {
            *self = Mixed::Recurrent(SavedMixer::default());
        }
        match self {
            Mixed::Recurrent(saved) => saved,
            Mixed::Attention(_) => unreachable!("replaced above"),
        }
    }

    pub(super) fn gate(&mut self) -> &mut SavedRows<B> {
        match self {
            Mixed::Attention(saved) => &mut saved.gate,
            Mixed::Recurrent(saved) => &mut saved.gate,
        }
    }
}

#[derive(Default)]
pub(super) struct Saved<B: Default> {
    /// `1 / rms` of the norm before attention.
    pub(super) scale: SavedRows<B>,
    pub(super) mixed: Mixed<B>,
    /// Result of attention, or of the mixer, before its gate.
    pub(super) result: SavedRows<B>,
    /// Values saved by the norm after attention.
    pub(super) attended: Normed<B>,
    /// Residual stream after attention.
    pub(super) middle: SavedRows<B>,
    /// `1 / rms` of the norm before the MLP.
    pub(super) mlp_scale: SavedRows<B>,
    pub(super) gate_up: SavedRows<B>,
    /// Values saved by the norm after the MLP.
    pub(super) transformed: Normed<B>,
    pub(super) added: SavedInput<B>,
}

/// Saved activations of the part of a layer that adds its per-layer input.
#[derive(Default)]
pub(super) struct SavedInput<B: Default> {
    /// Residual stream after the MLP.
    pub(super) sum: SavedRows<B>,
    /// Each row's gate, then the layer's per-layer input.
    pub(super) gate_up: SavedRows<B>,
    pub(super) norm: Normed<B>,
}

impl<B: Default> Saved<B> {
    /// Retains only the rows of trees that have a derivative.
    pub(super) fn keep_rows<X: Executor<Buffer = B>>(&mut self, ops: &mut X, remaining: RemainingRows<'_>) {
        let Saved { scale, mixed, result, attended, middle, mlp_scale, gate_up, transformed, added } = self;
        let SavedInput { sum, gate_up: added_gate, norm: added } = added;
        for rows in
            [scale, result, middle, mlp_scale, gate_up, sum, added_gate, &mut added.raw, &mut added.scale]
        {
            rows.keep_rows(ops, remaining);
        }
        let (buffers, norms) = match mixed {
            Mixed::Attention(SavedAttention { q, q_norm, kv, k_norm, v_norm, lse, gate }) => {
                (vec![q, kv, lse, gate], vec![attended, transformed, q_norm, k_norm, v_norm])
            }
            Mixed::Recurrent(SavedMixer { inputs, gate, norm }) => {
                (vec![inputs, gate], vec![attended, transformed, norm])
            }
        };
        for rows in
            buffers.into_iter().chain(norms.into_iter().flat_map(|norm| [&mut norm.raw, &mut norm.scale]))
        {
            rows.keep_rows(ops, remaining);
        }
    }
}

pub(crate) type Workspace<X> = Buffers<<X as Memory>::Buffer>;

/// Buffers of one executor. They grow to the largest pass and are reused.
#[derive(Default)]
pub(crate) struct Buffers<B: Default> {
    /// Input of each layer, and of the final norm.
    pub(super) inputs: Vec<SavedRows<B>>,
    /// Saved activations of each layer. Unless all are kept, layers of a kind share the first one's entry.
    pub(super) saved: Vec<Saved<B>>,
    /// Per-layer inputs of all layers, in models that have them. A row has the inputs of one layer after another.
    pub(super) layer_inputs: SavedRows<B>,
    pub(super) layer_inputs_norm: Normed<B>,
    /// Keys and values that later layers borrow.
    pub(super) lent: [SavedRows<B>; 2],
    pub(super) normed: B,
    pub(super) normed_rows: B,
    pub(super) act: B,
    /// Queries, keys and values of a decoding step.
    pub(super) qkv: B,
    /// Queries, each head's followed by its gate.
    pub(super) halves: B,
    /// Result of attention, or of a mixer, times its gate.
    pub(super) gated: B,
    /// Queries, keys and values of a mixer after its convolution.
    pub(super) mixed: B,
    /// Output of the final norm, for the rows that predict.
    pub(super) hidden: SavedRows<B>,
    pub(super) hidden_scale: SavedRows<B>,
    /// Two values per predicting row, which the head's backward pass needs.
    pub(super) head_saved: SavedRows<B>,
    /// Logits of the last pass if they are stored; otherwise scratch memory on a GPU.
    pub(super) logits: SavedRows<B>,
    pub(super) keeps_logits: bool,
    /// Log-probability and entropy of each [`Pick`](crate::segments::Pick), or the derivatives with respect to them.
    pub(super) scores: B,
    pub(super) dx: B,
    pub(super) dx_rows: B,
    pub(super) dnormed: B,
    pub(super) dout: B,
    pub(super) dq: B,
    /// Derivatives with respect to keys and values, or a mixer's inputs.
    pub(super) dkv: B,
    /// Derivatives with respect to `lent`, summed over the layers that borrow it.
    pub(super) dlent: [B; 2],
    pub(super) dlayer_inputs: B,
    /// Scratch memory for copying columns between rows of different widths.
    pub(super) columns: [B; 2],
}

impl<B: Default> Buffers<B> {
    /// Returns the output of the final norm, one row per predicting row of the last pass.
    pub(crate) fn hidden(&self) -> &B {
        &self.hidden
    }
}
