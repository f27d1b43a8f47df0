//! The buffers of a pass: what the forward pass leaves for the backward pass, and what both reuse.

use crate::executor::Memory;

/// What a norm keeps for its backward pass.
#[derive(Default)]
pub(super) struct Normed<B> {
    /// Its input.
    pub(super) raw: B,
    /// `1 / rms` of what it is taken over.
    pub(super) scale: B,
}

/// The activations of one layer for the backward pass.
#[derive(Default)]
pub(super) struct SavedActivations<B> {
    pub(super) attention_scale: B,
    pub(super) q: B,
    pub(super) q_norm: Normed<B>,
    pub(super) kv: B,
    pub(super) k_norm: Normed<B>,
    pub(super) out: B,
    pub(super) lse: B,
    /// What the result of attention, or of a mixer, is multiplied by after a function.
    pub(super) gate: B,
    /// Of the norm after attention.
    pub(super) attended: Normed<B>,
    pub(super) middle: B,
    pub(super) mlp_scale: B,
    pub(super) gate_up: B,
    /// Of the norm after the MLP.
    pub(super) transformed: Normed<B>,
}

/// The workspace of an executor.
pub(crate) type Workspace<X> = Buffers<<X as Memory>::Buffer>;

/// Buffers of one executor, which grow to the largest pass and are reused.
#[derive(Default)]
pub(crate) struct Buffers<B> {
    /// Input of each layer, then of the final norm.
    pub(super) inputs: Vec<B>,
    pub(super) saved: Vec<SavedActivations<B>>,
    pub(super) normed: B,
    pub(super) normed_rows: B,
    pub(super) act: B,
    /// Queries, each head's followed by its gate.
    pub(super) halves: B,
    /// The result of attention, or of a mixer, times its gate.
    pub(super) gated: B,
    /// What a mixer's convolution makes of its queries, keys and values.
    pub(super) mixed: B,
    /// Output of the final norm: rows that predict.
    pub(super) hidden: B,
    pub(super) hidden_scale: B,
    pub(super) head_saved: B,
    /// Logits of the last pass, if they are kept; on a GPU, else, those of some rows.
    pub(super) logits: B,
    pub(super) logits_kept: bool,
    /// Scores of the picks, then their derivatives.
    pub(super) scores: B,
    pub(super) dx: B,
    pub(super) dx_rows: B,
    pub(super) dnormed: B,
    pub(super) dout: B,
    pub(super) dq: B,
    pub(super) dkv: B,
}

impl<B> Buffers<B> {
    /// The final norm's output, one row per predicting row of the last pass.
    pub(crate) fn hidden(&self) -> &B {
        &self.hidden
    }
}
