//! A decoding step: one new token per row, whose keys and values join those in the cache.

use crate::activations::Keep;
use crate::checks::Stage;
use crate::error::Error;
use crate::executor::{Executor, HeadRows, Holds, Rows, StepAttention};
use crate::families::{Layer, QkNorm};

use super::layer::{LayerPass, Saved, gate, names};
use super::workspace::{SavedActivations, Workspace};
use super::{Decoder, Parameters, Pass};

impl Decoder {
    /// Computes one new token per row of a decoding step, with the cache; `w.hidden` gets the final norm of every row.
    pub(crate) fn step<X: Executor>(
        &self,
        e: &mut X,
        p: Parameters<'_, X>,
        decoding: &X::Decoding,
        cache: &mut X::Cache,
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let layers = self.layout.layers.len();
        let checks = self.checks(Stage::Decoding);
        self.grow(Keep::Nothing, w);
        let (lists, rows) = (X::step_lists(decoding), X::step_rows(decoding));
        let pass = Pass { p, lists, rows, predicting: rows, picks: 0 };
        self.embed(e, &pass, &checks, w)?;
        for layer in 0..layers {
            let of = self.layer_pass(layer, &pass, checks);
            Decoder::through(layer, Keep::Nothing, w, |input, saved, w, output| {
                self.step_layer(e, &of, decoding, cache, input, saved, w, output)
            })?;
        }
        self.final_norm(e, p, (Rows::All, rows), layers % 2, &checks, w)
    }

    fn step_layer<X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        decoding: &X::Decoding,
        cache: &mut X::Cache,
        x: &X::Buffer,
        saved: &mut Saved<X>,
        w: &mut Workspace<X>,
        output: &mut X::Buffer,
    ) -> Result<(), Error> {
        let LayerPass { p, layer, checks, count: rows, .. } = *of;
        let (all, names) = ((Rows::All, rows), names(layer));
        let scale = &mut saved.attention_scale;
        let input = self.norm_before(e, of, layer.attention.before, all, x, scale, &mut w.normed)?;
        match layer.mixer {
            Some(layout) => {
                let (channels, width) = (layout.of.channels(), layout.of.value_width());
                let SavedActivations { gate, kv, out, q_norm, .. } = saved;
                e.reserve(gate, Holds::Activations, rows * width);
                p.linear(e, layer.q, rows, input, None, gate);
                checks.finite(e, all, &[(names.q, width)], gate)?;
                e.reserve(kv, Holds::Activations, rows * layer.kv.outputs);
                p.linear(e, layer.kv, rows, input, None, kv);
                checks.finite(e, all, &names.kv, kv)?;
                e.reserve(&mut w.mixed, Holds::Activations, rows * channels);
                e.reserve(out, Holds::Activations, rows * width);
                e.step_mixer(of.mixer(layout), decoding, cache, kv, &mut w.mixed, out);
                checks.finite(e, all, &[("linear_attn.conv1d", channels)], &w.mixed)?;
                checks.finite(e, all, &[("linear_attn (gated delta rule)", width)], out)?;
                self.norm_mixed(e, of, layout, out, q_norm)?;
            }
            None => {
                let (qkv, halves) = (&mut saved.gate_up, &mut w.halves);
                // The same memory first holds queries, keys and values, then gate and up.
                let (width, f) = (layer.o.inputs + layer.kv.outputs, self.config.intermediate_size);
                e.reserve(qkv, Holds::Activations, rows * width.max(2 * f));
                let stride = layer.q.outputs + layer.kv.outputs;
                let to = if gate(layer).is_some() { &mut *halves } else { &mut *qkv };
                e.reserve(to, Holds::Activations, rows * stride);
                p.linears(e, &[layer.q, layer.kv], rows, input, to);
                let [k, v, _] = names.kv;
                checks.finite(e, all, &[(names.q, layer.q.outputs), k, v], to)?;
                if gate(layer).is_some() {
                    e.reserve(&mut saved.gate, Holds::Activations, rows * layer.o.inputs);
                    let (count, size) = (self.heads.queries, self.heads.size);
                    let pairs = HeadRows { rows, first: 0, stride, count, size };
                    e.split_heads(pairs, halves, qkv, &mut saved.gate);
                }
                self.step_attention(e, of, decoding, cache, saved)?;
            }
        }
        let SavedActivations { gate, out, attended, middle, .. } = saved;
        let out = self.times_gate(e, of, gate, out, &mut w.gated)?;
        self.add_to_residual(e, of, layer.o, names.o, layer.attention.after, out, x, attended, middle)?;
        self.mlp(e, of, saved, &mut w.normed, &mut w.act, Some(output))
    }

    /// Attention over the cache, from queries, keys and values in `saved.gate_up`.
    fn step_attention<X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        decoding: &X::Decoding,
        cache: &mut X::Cache,
        saved: &mut Saved<X>,
    ) -> Result<(), Error> {
        let LayerPass { p, layer, checks, count: rows, .. } = *of;
        let all = (Rows::All, rows);
        let (q_width, kv_width) = (self.heads.query_width(), self.heads.key_width());
        let SavedActivations { out, gate_up: qkv, .. } = saved;
        e.reserve(out, Holds::Activations, rows * q_width);
        let mut norms = [layer.q_norm, layer.k_norm];
        if layer.of.qk_norm == Some(QkNorm::Whole)
            && let [Some(q), Some(k)] = std::mem::take(&mut norms)
        {
            let whole = HeadRows { rows, first: 0, stride: q_width + kv_width, count: 1, size: q_width };
            self.norm_heads(e, p, q, whole, qkv, &mut saved.q_norm);
            let keys = HeadRows { first: q_width, size: kv_width / 2, ..whole };
            self.norm_heads(e, p, k, keys, qkv, &mut saved.k_norm);
        }
        let ([q_norm, k_norm], weights, heads) = (norms, p.weights, self.heads);
        let (Layer { rope, window, .. }, layer) = (layer.of, layer.place);
        let Parameters { offset, eps, .. } = p;
        let attention = StepAttention { weights, q_norm, k_norm, offset, eps, rope, heads, window, layer };
        e.step_attention(attention, decoding, cache, qkv, out);
        checks.finite(e, all, &[("self_attn (norms, rotary embedding and attention)", q_width)], out)
    }
}
