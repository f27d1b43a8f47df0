//! A decoding step: one new token per row, whose keys and values join those in the cache.

use crate::checks::Stage;
use crate::error::Error;
use crate::executor::{Executor, HeadRows, Holds, Rows, StepAttention};
use crate::families::{Layer, QkNorm};

use super::layer::{LayerPass, O_PROJ, Saved};
use super::workspace::{SavedActivations, Workspace};
use super::{Decoder, Keep, Parameters, Pass};

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
        let (f, all) = (self.config.intermediate_size, (Rows::All, rows));
        let (q_width, kv_width) = (self.heads.query_width(), self.heads.key_width());
        let SavedActivations { attention_scale: scale, out, middle, gate_up: qkv, .. } = saved;
        let input = self.norm_before(e, of, layer.attention.before, all, x, scale, &mut w.normed)?;
        // The same memory first holds queries, keys and values, then gate and up.
        e.reserve(qkv, Holds::Activations, rows * (q_width + kv_width).max(2 * f));
        p.linears(e, &[layer.q, layer.kv], rows, input, qkv);
        let projections = [
            ("self_attn.q_proj", q_width),
            ("self_attn.k_proj", kv_width / 2),
            ("self_attn.v_proj", kv_width / 2),
        ];
        checks.finite(e, all, &projections, qkv)?;
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
        let (Layer { rope, window, .. }, layer) = (layer.of, of.index);
        let Parameters { offset, eps, .. } = p;
        let attention = StepAttention { weights, q_norm, k_norm, offset, eps, rope, heads, window, layer };
        e.step_attention(attention, decoding, cache, qkv, out);
        checks.finite(e, all, &[("self_attn (norms, rotary embedding and attention)", q_width)], out)?;
        let (o, after, attended) = (of.layer.o, of.layer.attention.after, &mut saved.attended);
        self.add_to_residual(e, of, o, O_PROJ, after, out, x, attended, middle)?;
        self.mlp(e, of, saved, &mut w.normed, &mut w.act, Some(output))
    }
}
