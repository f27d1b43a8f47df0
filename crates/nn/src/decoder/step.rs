//! A decoding step: one new token per row, whose keys and values are added to the cache.

use crate::activations::Keep;
use crate::executor::{Executor, HeadRows, Holds, StepAttention};
use crate::families::{Layer, QkNorm};
use crate::layout::{AttentionLayout, Linear};

use super::layer::{LayerPass, Over};
use super::workspace::{Kept, SavedAttention, Workspace};
use super::{Decoder, Parameters, Pass};

impl Decoder {
    /// Computes one new token per row of a decoding step. Stores the final norm of every row in `w.hidden`.
    pub(crate) fn step<X: Executor>(
        &self,
        e: &mut X,
        p: Parameters<'_, X>,
        decoding: &X::Decoding,
        cache: &mut X::Cache,
        w: &mut Workspace<X>,
    ) {
        let (lists, rows) = (X::step_lists(decoding), X::step_rows(decoding));
        let pass = Pass { p, lists, rows, predicting: rows, picks: 0 };
        self.forward(e, &pass, Keep::Nothing, Over::Step { decoding, cache }, w);
    }
}

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
        self.e.reserve(qkv, Holds::Activations, rows.count * width);
        let to = if layer.spec.output_gate { &mut *halves } else { &mut *qkv };
        self.e.reserve(to, Holds::Activations, rows.count * stride);
        let maps: Vec<Linear> = std::iter::once(queries).chain(keys).collect();
        self.p.linear(self.e, &maps, rows.count, input, None, to);
        if layer.spec.output_gate {
            saved.gate.reserve(self.e, rows, layer.o.inputs);
            let (count, size) = (self.heads.queries, self.heads.size);
            let pairs = HeadRows { rows: rows.count, first: 0, stride, count, size };
            self.e.split_heads(pairs, halves, qkv, &mut saved.gate);
        }
    }

    /// Computes attention to the cache, from queries, keys and values in `qkv`.
    pub(super) fn step_attention(
        &mut self,
        decoding: &X::Decoding,
        cache: &mut X::Cache,
        qkv: &mut X::Buffer,
        saved: &mut SavedAttention<X::Buffer>,
        result: &mut Kept<X::Buffer>,
    ) {
        let (p, layer, rows) = (self.p, self.layer, self.all);
        let (q_width, kv_width) = (self.heads.query_width(), self.heads.key_width());
        result.reserve(self.e, rows, q_width);
        let mut norms = self.qk_norms();
        if layer.spec.qk_norm == Some(QkNorm::Whole)
            && let [Some(q), Some(k)] = std::mem::take(&mut norms)
        {
            let count = rows.count;
            let whole =
                HeadRows { rows: count, first: 0, stride: q_width + kv_width, count: 1, size: q_width };
            self.norm_heads(p.norm(q, count), rows, whole, qkv, &mut saved.q_norm);
            let keys = HeadRows { first: q_width, size: kv_width / 2, ..whole };
            self.norm_heads(p.norm(k, count), rows, keys, qkv, &mut saved.k_norm);
        }
        let ([q_norm, k_norm], v_norm, weights, heads) = (norms, self.v_norm(), p.weights, self.heads);
        let (Layer { rope, window, .. }, borrows) = (layer.spec, !layer.spec.computes_keys());
        let (Parameters { offset, eps, .. }, layer) = (p, layer.index_of_kind);
        let attention = StepAttention {
            weights,
            q_norm,
            k_norm,
            v_norm,
            borrows,
            offset,
            eps,
            rope,
            heads,
            window,
            layer,
        };
        self.e.step_attention(attention, decoding, cache, qkv, result);
    }
}
