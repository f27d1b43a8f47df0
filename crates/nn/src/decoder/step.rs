//! Attention in a decoding step: one new token per row, whose keys and values are added to the cache.

use crate::executor::{Cache, Executor, HeadRows, Holds, StepAttention};
use crate::families::QkNorm;
use crate::layout::{AttentionLayout, Linear};

use super::Parameters;
use super::layer::LayerPass;
use super::workspace::{SavedAttention, SavedRows};

impl<X: Executor> LayerPass<'_, X> {
    /// Computes queries, keys and values of a step's rows, concatenated in `qkv`, and the output gate. `halves` is scratch memory for queries with gates.
    pub(super) fn step_projections(
        &mut self,
        layout: AttentionLayout,
        input: &X::Buffer,
        saved: &mut SavedAttention<X::Buffer>,
        qkv: &mut X::Buffer,
        halves: &mut X::Buffer,
    ) {
        let (layer, rows, queries) = (self.layer, self.all, layout.queries);
        let keys = self.key_maps(layout);
        let computed: usize = keys.iter().map(|keys| keys.outputs).sum();
        let stride = queries.outputs + computed;
        let width = self.heads.query_width() + computed;
        self.ops.reserve(qkv, Holds::Activations, rows.count * width);
        let to = if layer.spec.output_gate { &mut *halves } else { &mut *qkv };
        self.ops.reserve(to, Holds::Activations, rows.count * stride);
        let maps: Vec<Linear> = std::iter::once(queries).chain(keys).collect();
        self.parameters.linear(self.ops, &maps, rows.count, input, None, to);
        if layer.spec.output_gate {
            saved.gate.reserve(self.ops, rows, layer.output.inputs);
            let (count, size) = (self.heads.queries, self.heads.size);
            let pairs = HeadRows { rows: rows.count, first: 0, stride, count, size };
            self.ops.split_heads(pairs, halves, qkv, &mut saved.gate);
        }
    }

    /// Computes attention to the cache, from queries, keys and values in `qkv`.
    pub(super) fn step_attention(
        &mut self,
        decoding: &X::Decoding,
        cache: &mut Cache<X::Buffer>,
        qkv: &mut X::Buffer,
        saved: &mut SavedAttention<X::Buffer>,
        result: &mut SavedRows<X::Buffer>,
    ) {
        let (parameters, layer, rows) = (self.parameters, self.layer, self.all);
        let (q_width, kv_width) = (self.heads.query_width(), self.heads.key_width());
        result.reserve(self.ops, rows, q_width);
        let mut norms = self.qk_norms();
        if layer.spec.qk_norm == Some(QkNorm::Whole)
            && let [Some(q), Some(k)] = std::mem::take(&mut norms)
        {
            let count = rows.count;
            let whole =
                HeadRows { rows: count, first: 0, stride: q_width + kv_width, count: 1, size: q_width };
            self.norm_heads(parameters.norm(q, count), rows, whole, qkv, &mut saved.q_norm);
            let keys = HeadRows { first: q_width, size: kv_width / 2, ..whole };
            self.norm_heads(parameters.norm(k, count), rows, keys, qkv, &mut saved.k_norm);
        }
        let ([q_norm, k_norm], v_norm, heads) = (norms, self.v_norm(), self.heads);
        let Parameters { weights, offset, eps, .. } = parameters;
        let (spec, layer) = (layer.spec, layer.index_of_kind);
        let attention = StepAttention { weights, q_norm, k_norm, v_norm, offset, eps, heads, spec, layer };
        self.ops.step_attention(attention, decoding, cache, qkv, result);
    }
}
