//! A decoding step: one new token per row, whose keys and values join those in the cache.

use crate::checks::{Checks, Stage};
use crate::error::Error;
use crate::executor::{Executor, HeadNorms, HeadRows, Holds, Rows};
use crate::families::QkNorm;

use super::layer::BranchEnd;
use super::workspace::{SavedActivations, Workspace};
use super::{Decoder, Keep, Parameters};

impl Decoder {
    /// Computes one new token per row of a decoding step, with the cache; `w.hidden` gets the final norm of every row.
    ///
    /// # Errors
    /// Only with layer checks: if an activation is not finite.
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
        let rows = X::step_rows(decoding);
        self.embed(e, p, X::step_lists(decoding), rows, &checks, w)?;
        let mut saved = std::mem::take(&mut w.saved[0]);
        for layer in 0..layers {
            let (from, to) = (layer % 2, (layer + 1) % 2);
            let input = std::mem::take(&mut w.inputs[from]);
            let mut output = std::mem::take(&mut w.inputs[to]);
            let checks = checks.of_layer(layer);
            let checked = self.step_layer(
                e,
                p,
                layer,
                rows,
                decoding,
                cache,
                &input,
                &mut output,
                &mut saved,
                &checks,
                w,
            );
            (w.inputs[from], w.inputs[to]) = (input, output);
            checked?;
        }
        w.saved[0] = saved;
        self.final_norm(e, p, (Rows::All, rows), layers % 2, &checks, w)
    }

    fn step_layer<X: Executor>(
        &self,
        e: &mut X,
        p: Parameters<'_, X>,
        index: usize,
        rows: usize,
        decoding: &X::Decoding,
        cache: &mut X::Cache,
        x: &X::Buffer,
        output: &mut X::Buffer,
        saved: &mut SavedActivations<X::Buffer>,
        checks: &Checks,
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let layer = &self.layout.layers[index];
        let (d, f, all) = (self.config.hidden_size, self.config.intermediate_size, (Rows::All, rows));
        let (q_width, kv_width) = (self.heads.query_width(), self.heads.key_width());
        let SavedActivations { attention_scale, out, middle, mlp_scale, gate_up: qkv, .. } = saved;
        let input = match layer.attention.before {
            Some((norm, name)) => {
                e.reserve(&mut w.normed, Holds::Activations, rows * d);
                e.reserve(attention_scale, Holds::Statistics, rows);
                e.rms_norm(p.weights, norm, self.eps, rows, x, &mut w.normed, attention_scale);
                checks.finite(e, all, &[(name, d)], &w.normed)?;
                &w.normed
            }
            None => x,
        };
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
        let mut norms = HeadNorms { q: layer.q_norm, k: layer.k_norm, eps: self.eps, rope: layer.of.rope };
        if layer.of.qk_norm == Some(QkNorm::Whole)
            && let (Some(q), Some(k)) = (norms.q.take(), norms.k.take())
        {
            let whole = HeadRows { rows, first: 0, stride: q_width + kv_width, count: 1, size: q_width };
            self.norm_heads(e, p, q, whole, qkv, &mut saved.q_norm);
            let keys = HeadRows { first: q_width, size: kv_width / 2, ..whole };
            self.norm_heads(e, p, k, keys, qkv, &mut saved.k_norm);
        }
        e.step_attention(p.weights, &norms, self.heads, decoding, cache, index, qkv, out);
        checks.finite(e, all, &[("self_attn (norms, rotary embedding and attention)", q_width)], out)?;
        let end = BranchEnd::attention(layer);
        self.add_to_residual(e, p, &end, all, out, x, &mut saved.attended, checks, middle)?;
        let input = match layer.mlp.before {
            Some((norm, name)) => {
                e.reserve(&mut w.normed, Holds::Activations, rows * d);
                e.reserve(mlp_scale, Holds::Statistics, rows);
                e.rms_norm(p.weights, norm, self.eps, rows, middle, &mut w.normed, mlp_scale);
                checks.finite(e, all, &[(name, d)], &w.normed)?;
                &w.normed
            }
            None => &*middle,
        };
        let gate_up = qkv;
        p.linear(e, layer.gate_up, rows, input, None, gate_up);
        checks.finite(e, all, &[("mlp.gate_proj", f), ("mlp.up_proj", f)], gate_up)?;
        e.reserve(&mut w.act, Holds::Activations, rows * f);
        e.swiglu(rows, f, gate_up, &mut w.act);
        checks.finite(e, all, &[("mlp (SwiGLU)", f)], &w.act)?;
        let end = BranchEnd::mlp(layer);
        self.add_to_residual(e, p, &end, all, &w.act, middle, &mut saved.transformed, checks, output)
    }
}
