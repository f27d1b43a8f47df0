//! A decoding step: one new token per row, whose keys and values join those in the cache.

use crate::activations::Keep;
use crate::executor::{Executor, HeadRows, Holds, Stage, StepAttention};
use crate::families::{Layer, QkNorm};
use crate::layout::{AttentionLayout, MixerLayout, Mixing};

use super::layer::{BufferOf, LayerPass, SavedOn};
use super::workspace::{Buffers, Kept, Saved, SavedAttention, SavedMixer, Workspace};
use super::{Decoder, Parameters, Pass};

/// The memory of a decoding step beside its activations.
struct StepMemory<'a, X: Executor> {
    decoding: &'a X::Decoding,
    cache: &'a mut X::Cache,
}

impl Decoder {
    /// Computes one new token per row of a decoding step, with the cache; `w.hidden` gets the final norm of every row.
    pub(crate) fn step<X: Executor>(
        &self,
        e: &mut X,
        p: Parameters<'_, X>,
        decoding: &X::Decoding,
        cache: &mut X::Cache,
        w: &mut Workspace<X>,
    ) {
        let layers = self.layout.layers.len();
        self.grow(w);
        let (lists, rows) = (X::step_lists(decoding), X::step_rows(decoding));
        let pass = Pass { p, lists, rows, predicting: rows, picks: 0 };
        let mut memory = StepMemory { decoding, cache };
        self.embed(e, &pass, Stage::Decoding, w);
        for index in 0..layers {
            let mut layer = self.layer_pass(index, Stage::Decoding, &mut *e, &pass);
            self.through(index, Keep::Nothing, w, |input, saved, w, output| {
                layer.step(&mut memory, input, saved, w, output);
            });
        }
        self.final_norm(e, &pass, Stage::Decoding, layers % 2, w);
    }
}

impl<X: Executor> LayerPass<'_, X> {
    fn step(
        &mut self,
        memory: &mut StepMemory<'_, X>,
        x: &BufferOf<X>,
        saved: &mut SavedOn<X>,
        w: &mut Workspace<X>,
        output: &mut Kept<BufferOf<X>>,
    ) {
        let (layer, rows) = (self.layer, self.all);
        let Saved { scale, mixed, result, attended, middle, .. } = saved;
        let input = self.norm_before(layer.attention.before, rows, x, scale, &mut w.normed);
        match layer.mixing {
            Mixing::Recurrent(layout) => {
                self.step_mixer(memory, layout, input, mixed.recurrent(), result, &mut w.mixed);
            }
            Mixing::Attention(layout) => {
                let AttentionLayout { queries, keys_values, .. } = layout;
                let Buffers { qkv, halves, .. } = w;
                let (saved, stride) = (mixed.attention(), queries.outputs + keys_values.outputs);
                let width = self.heads.query_width() + keys_values.outputs;
                self.e.reserve(qkv, Holds::Activations, rows.count * width);
                let to = if layer.of.output_gate { &mut *halves } else { &mut *qkv };
                self.e.reserve(to, Holds::Activations, rows.count * stride);
                self.p.linears(self.e, &[queries, keys_values], rows.count, input, to);
                if layer.of.output_gate {
                    saved.gate.reserve(self.e, rows, layer.o.inputs);
                    let (count, size) = (self.heads.queries, self.heads.size);
                    let pairs = HeadRows { rows: rows.count, first: 0, stride, count, size };
                    self.e.split_heads(pairs, halves, qkv, &mut saved.gate);
                }
                self.step_attention(memory, qkv, saved, result);
            }
        }
        let result = self.times_gate(mixed.gate(), result, &mut w.gated);
        middle.reserve(self.e, rows, self.hidden);
        self.add_to_residual(layer.o, layer.attention.after, result, x, attended, middle);
        self.mlp(saved, &mut w.normed, &mut w.act, Some(output));
    }

    /// A recurrent mixer, from the layer's normalised input to the norm of its results.
    fn step_mixer(
        &mut self,
        memory: &mut StepMemory<'_, X>,
        layout: MixerLayout,
        input: &BufferOf<X>,
        saved: &mut SavedMixer<BufferOf<X>>,
        result: &mut Kept<BufferOf<X>>,
        convolved: &mut BufferOf<X>,
    ) {
        let rows = self.all;
        saved.gate.reserve(self.e, rows, layout.gate.outputs);
        self.p.linear(self.e, layout.gate, rows.count, input, None, &mut saved.gate);
        saved.inputs.reserve(self.e, rows, layout.inputs.outputs);
        self.p.linear(self.e, layout.inputs, rows.count, input, None, &mut saved.inputs);
        self.e.reserve(convolved, Holds::Activations, rows.count * layout.of.channels());
        result.reserve(self.e, rows, layout.of.value_width());
        let (of, StepMemory { decoding, cache }) = (self.mixer(layout), memory);
        self.e.step_mixer(of, decoding, cache, &saved.inputs, convolved, result);
        self.norm_mixed(layout, result, &mut saved.norm);
    }

    /// Attention over the cache, from queries, keys and values in `qkv`.
    fn step_attention(
        &mut self,
        memory: &mut StepMemory<'_, X>,
        qkv: &mut BufferOf<X>,
        saved: &mut SavedAttention<BufferOf<X>>,
        result: &mut Kept<BufferOf<X>>,
    ) {
        let (p, layer, rows) = (self.p, self.layer, self.all);
        let (q_width, kv_width) = (self.heads.query_width(), self.heads.key_width());
        result.reserve(self.e, rows, q_width);
        let mut norms = self.qk_norms();
        if layer.of.qk_norm == Some(QkNorm::Whole)
            && let [Some(q), Some(k)] = std::mem::take(&mut norms)
        {
            let count = rows.count;
            let whole =
                HeadRows { rows: count, first: 0, stride: q_width + kv_width, count: 1, size: q_width };
            self.norm_heads(p.norm(q, count), rows, whole, qkv, &mut saved.q_norm);
            let keys = HeadRows { first: q_width, size: kv_width / 2, ..whole };
            self.norm_heads(p.norm(k, count), rows, keys, qkv, &mut saved.k_norm);
        }
        let ([q_norm, k_norm], weights, heads) = (norms, p.weights, self.heads);
        let (Layer { rope, window, .. }, layer) = (layer.of, layer.place);
        let Parameters { offset, eps, .. } = p;
        let attention = StepAttention { weights, q_norm, k_norm, offset, eps, rope, heads, window, layer };
        self.e.step_attention(attention, memory.decoding, memory.cache, qkv, result);
    }
}
