//! The buffers of a pass: what the forward pass leaves for the backward pass, and what both reuse.

use crate::executor::Executor;

/// The activations of one layer for the backward pass.
pub(super) struct SavedActivations<X: Executor> {
    pub(super) attention_scale: X::Buffer,
    pub(super) q: X::Buffer,
    pub(super) q_raw: X::Buffer,
    pub(super) q_scale: X::Buffer,
    pub(super) kv: X::Buffer,
    pub(super) k_raw: X::Buffer,
    pub(super) k_scale: X::Buffer,
    pub(super) out: X::Buffer,
    pub(super) lse: X::Buffer,
    pub(super) middle: X::Buffer,
    pub(super) mlp_scale: X::Buffer,
    pub(super) gate_up: X::Buffer,
}

impl<X: Executor> Default for SavedActivations<X> {
    fn default() -> Self {
        SavedActivations {
            attention_scale: Default::default(),
            q: Default::default(),
            q_raw: Default::default(),
            q_scale: Default::default(),
            kv: Default::default(),
            k_raw: Default::default(),
            k_scale: Default::default(),
            out: Default::default(),
            lse: Default::default(),
            middle: Default::default(),
            mlp_scale: Default::default(),
            gate_up: Default::default(),
        }
    }
}

/// Buffers of one executor, which grow to the largest pass and are reused.
pub(crate) struct Workspace<X: Executor> {
    /// Input of each layer, then of the final norm.
    pub(super) inputs: Vec<X::Buffer>,
    pub(super) saved: Vec<SavedActivations<X>>,
    pub(super) normed: X::Buffer,
    pub(super) normed_rows: X::Buffer,
    pub(super) act: X::Buffer,
    /// Output of the final norm: rows that predict.
    pub(super) hidden: X::Buffer,
    pub(super) hidden_scale: X::Buffer,
    pub(super) head_saved: X::Buffer,
    /// Logits of the last pass, if they are kept; on a GPU, else, those of some rows.
    pub(super) logits: X::Buffer,
    pub(super) logits_kept: bool,
    /// Scores of the picks, then their derivatives.
    pub(super) scores: X::Buffer,
    pub(super) dx: X::Buffer,
    pub(super) dx_rows: X::Buffer,
    pub(super) dnormed: X::Buffer,
    pub(super) dout: X::Buffer,
    pub(super) dq: X::Buffer,
    pub(super) dkv: X::Buffer,
}

impl<X: Executor> Default for Workspace<X> {
    fn default() -> Self {
        Workspace {
            inputs: Vec::new(),
            saved: Vec::new(),
            normed: Default::default(),
            normed_rows: Default::default(),
            act: Default::default(),
            hidden: Default::default(),
            hidden_scale: Default::default(),
            head_saved: Default::default(),
            logits: Default::default(),
            logits_kept: false,
            scores: Default::default(),
            dx: Default::default(),
            dx_rows: Default::default(),
            dnormed: Default::default(),
            dout: Default::default(),
            dq: Default::default(),
            dkv: Default::default(),
        }
    }
}

impl<X: Executor> Workspace<X> {
    /// The final norm's output, one row per predicting row of the last pass.
    pub(crate) fn hidden(&self) -> &X::Buffer {
        &self.hidden
    }
}
