//! One layer, attention and SwiGLU: the forward pass, and below it the backward pass in the opposite order.

use crate::checks::Checks;
use crate::error::Error;
use crate::executor::{Executor, HeadRows, Holds, Rotation, Rows};
use crate::layout::{LayerLayout, Write};

use super::workspace::{SavedActivations, Workspace};
use super::{Decoder, Gradients, Parameters};

/// The rows of one pass through a layer.
pub(super) struct LayerRows<'a, X: Executor> {
    pub(super) lists: &'a X::Lists,
    /// Rows with keys.
    pub(super) count: usize,
    /// Rows that are computed after the keys: all, or those that predict.
    pub(super) queries: usize,
    pub(super) which: Rows,
}

impl Decoder {
    fn query_heads(&self, rows: usize) -> HeadRows {
        HeadRows { rows, stride: self.heads.query_width(), count: self.heads.queries, size: self.heads.size }
    }

    fn key_heads(&self, rows: usize) -> HeadRows {
        HeadRows { rows, stride: self.heads.key_width(), count: self.heads.keys, size: self.heads.size }
    }

    /// One layer, whose keys and values are also stored in the `cache`, if there is one. Without `output` it stops once all activations for the backward
    /// pass are computed.
    pub(super) fn layer<X: Executor>(
        &self,
        e: &mut X,
        p: Parameters<'_, X>,
        index: usize,
        rows: &LayerRows<'_, X>,
        cache: Option<&mut X::Cache>,
        x: &X::Buffer,
        saved: &mut SavedActivations<X>,
        checks: &Checks,
        w: &mut Workspace<X>,
        output: Option<&mut X::Buffer>,
    ) -> Result<(), Error> {
        let layer = &self.layout.layers[index];
        let (n, m, lists) = (rows.count, rows.queries, rows.lists);
        let (d, f) = (self.config.hidden_size, self.config.intermediate_size);
        let (q_width, kv_width) = (self.heads.query_width(), self.heads.key_width());
        let (checks, all, own) = (checks.of_layer(index), (Rows::All, n), (rows.which, m));
        e.reserve(&mut w.normed, Holds::Activations, n * d);
        e.reserve(&mut saved.attention_scale, Holds::Statistics, n);
        e.rms_norm(
            p.weights,
            layer.attention_norm,
            self.eps,
            n,
            x,
            &mut w.normed,
            &mut saved.attention_scale,
        );
        checks.finite(e, all, &[("input_layernorm", d)], &w.normed)?;
        e.reserve(&mut saved.kv, Holds::Activations, n * self.heads.key_width());
        p.linear(e, layer.kv, n, &w.normed, None, &mut saved.kv);
        let keys_and_values = [("self_attn.k_proj", kv_width / 2), ("self_attn.v_proj", kv_width / 2)];
        checks.finite(e, all, &keys_and_values, &saved.kv)?;
        e.reserve(&mut saved.q, Holds::Activations, m * self.heads.query_width());
        e.reserve(&mut saved.middle, Holds::Activations, m * d);
        e.reserve(&mut w.normed_rows, Holds::Activations, m * d);
        match rows.which {
            Rows::Predicting => {
                e.gather(d, lists, &w.normed, &mut w.normed_rows);
                p.linear(e, layer.q, m, &w.normed_rows, None, &mut saved.q);
                // The residual of these rows.
                e.gather(d, lists, x, &mut w.normed_rows);
            }
            Rows::All => p.linear(e, layer.q, m, &w.normed, None, &mut saved.q),
        }
        checks.finite(e, own, &[("self_attn.q_proj", q_width)], &saved.q)?;
        let (queries, keys) = (self.query_heads(m), self.key_heads(n));
        if let Some(weight) = layer.q_norm {
            e.reserve(&mut saved.q_raw, Holds::Activations, m * self.heads.query_width());
            e.reserve(&mut saved.q_scale, Holds::Statistics, m * queries.count);
            e.head_norm(
                p.weights,
                weight,
                self.eps,
                queries,
                &mut saved.q,
                &mut saved.q_raw,
                &mut saved.q_scale,
            );
            checks.finite(e, own, &[("self_attn.q_norm", q_width)], &saved.q)?;
        }
        if let Some(weight) = layer.k_norm {
            e.reserve(&mut saved.k_raw, Holds::Activations, n * keys.count * keys.size);
            e.reserve(&mut saved.k_scale, Holds::Statistics, n * keys.count);
            e.head_norm(
                p.weights,
                weight,
                self.eps,
                keys,
                &mut saved.kv,
                &mut saved.k_raw,
                &mut saved.k_scale,
            );
            checks.finite(e, all, &[("self_attn.k_norm", kv_width)], &saved.kv)?;
        }
        e.rotate(Rotation::Forward, queries, lists, rows.which, &mut saved.q);
        e.rotate(Rotation::Forward, keys, lists, Rows::All, &mut saved.kv);
        checks.finite(e, own, &[("self_attn (rotary embedding of queries)", q_width)], &saved.q)?;
        checks.finite(e, all, &[("self_attn (rotary embedding of keys)", kv_width)], &saved.kv)?;
        e.reserve(&mut saved.out, Holds::Activations, m * self.heads.query_width());
        e.reserve(&mut saved.lse, Holds::Statistics, m * self.heads.queries);
        if let Some(cache) = cache {
            e.store_cache(self.heads, cache, index, lists, &saved.kv);
        }
        let SavedActivations { q, kv, out, lse, .. } = saved;
        e.attention(self.heads, lists, rows.which, q, kv, out, lse);
        checks.finite(e, own, &[("self_attn (attention)", q_width)], &saved.out)?;
        let residual = if rows.which == Rows::All { x } else { &w.normed_rows };
        p.linear(e, layer.o, m, &saved.out, Some(residual), &mut saved.middle);
        checks.finite(e, own, &[("self_attn.o_proj (with the residual)", d)], &saved.middle)?;
        e.reserve(&mut saved.mlp_scale, Holds::Statistics, m);
        e.rms_norm(
            p.weights,
            layer.mlp_norm,
            self.eps,
            m,
            &saved.middle,
            &mut w.normed_rows,
            &mut saved.mlp_scale,
        );
        checks.finite(e, own, &[("post_attention_layernorm", d)], &w.normed_rows)?;
        e.reserve(&mut saved.gate_up, Holds::Activations, m * 2 * f);
        p.linear(e, layer.gate_up, m, &w.normed_rows, None, &mut saved.gate_up);
        checks.finite(e, own, &[("mlp.gate_proj", f), ("mlp.up_proj", f)], &saved.gate_up)?;
        if let Some(output) = output {
            e.reserve(&mut w.act, Holds::Activations, m * f);
            e.swiglu(m, f, &saved.gate_up, &mut w.act);
            checks.finite(e, own, &[("mlp (SwiGLU)", f)], &w.act)?;
            e.reserve(output, Holds::Activations, m * d);
            p.linear(e, layer.down, m, &w.act, Some(&saved.middle), output);
            checks.finite(e, own, &[("mlp.down_proj (with the residual)", d)], output)?;
        }
        Ok(())
    }

    /// `w.dx` from the derivative of the layer's output to that of its input; the latter only with `through`.
    pub(super) fn layer_backward<X: Executor>(
        &self,
        e: &mut X,
        p: Parameters<'_, X>,
        gradients: &mut Gradients<'_, X>,
        through: bool,
        layer: &LayerLayout,
        rows: &LayerRows<'_, X>,
        x: &X::Buffer,
        saved: &mut SavedActivations<X>,
        checks: &Checks,
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let (n, m, lists) = (rows.count, rows.queries, rows.lists);
        let (d, f) = (self.config.hidden_size, self.config.intermediate_size);
        let (q_width, kv_width) = (self.heads.query_width(), self.heads.key_width());
        let (all, own) = ((Rows::All, n), (rows.which, m));
        // The MLP.
        e.reserve(&mut w.act, Holds::Activations, m * f);
        p.linear_backward_input(e, layer.down, m, &w.dx, Write::Replace, &mut w.act);
        checks.finite(e, own, &[("mlp.down_proj", f)], &w.act)?;
        e.swiglu_backward(m, f, &mut saved.gate_up, &mut w.act);
        checks.finite(e, own, &[("mlp (SwiGLU)", 2 * f)], &saved.gate_up)?;
        gradients.linear(e, layer.down, m, &w.dx, &w.act);
        e.reserve(&mut w.normed_rows, Holds::Activations, m * d);
        e.rms_norm_again(p.weights, layer.mlp_norm, m, &saved.middle, &saved.mlp_scale, &mut w.normed_rows);
        gradients.linear(e, layer.gate_up, m, &saved.gate_up, &w.normed_rows);
        e.reserve(&mut w.dnormed, Holds::Activations, n * d);
        p.linear_backward_input(e, layer.gate_up, m, &saved.gate_up, Write::Replace, &mut w.dnormed);
        checks.finite(e, own, &[("mlp.gate_proj and up_proj", d)], &w.dnormed)?;
        e.rms_norm_backward(
            p.weights,
            gradients.all(),
            layer.mlp_norm,
            m,
            &saved.middle,
            &saved.mlp_scale,
            &w.dnormed,
            &mut w.dx,
        );
        checks.finite(e, own, &[("post_attention_layernorm (with the residual)", d)], &w.dx)?;
        // Attention.
        e.reserve(&mut w.dout, Holds::Activations, m * self.heads.query_width());
        gradients.linear(e, layer.o, m, &w.dx, &saved.out);
        p.linear_backward_input(e, layer.o, m, &w.dx, Write::Replace, &mut w.dout);
        checks.finite(e, own, &[("self_attn.o_proj", q_width)], &w.dout)?;
        e.reserve(&mut w.dq, Holds::Activations, m * self.heads.query_width());
        e.reserve(&mut w.dkv, Holds::Activations, n * self.heads.key_width());
        e.attention_backward(
            self.heads, lists, rows.which, n, &saved.q, &saved.kv, &saved.out, &saved.lse, &w.dout,
            &mut w.dq, &mut w.dkv,
        );
        let keys_and_values =
            [("self_attn (attention, keys)", kv_width / 2), ("self_attn (attention, values)", kv_width / 2)];
        checks.finite(e, own, &[("self_attn (attention, queries)", q_width)], &w.dq)?;
        checks.finite(e, all, &keys_and_values, &w.dkv)?;
        let (queries, keys) = (self.query_heads(m), self.key_heads(n));
        e.rotate(Rotation::Backward, queries, lists, rows.which, &mut w.dq);
        e.rotate(Rotation::Backward, keys, lists, Rows::All, &mut w.dkv);
        if let Some(weight) = layer.q_norm {
            e.head_norm_backward(
                p.weights,
                gradients.all(),
                weight,
                queries,
                &saved.q_raw,
                &saved.q_scale,
                &mut w.dq,
            );
            checks.finite(e, own, &[("self_attn.q_norm", q_width)], &w.dq)?;
        }
        if let Some(weight) = layer.k_norm {
            e.head_norm_backward(
                p.weights,
                gradients.all(),
                weight,
                keys,
                &saved.k_raw,
                &saved.k_scale,
                &mut w.dkv,
            );
            checks.finite(e, all, &[("self_attn.k_norm", kv_width)], &w.dkv)?;
        }
        e.reserve(&mut w.normed, Holds::Activations, n * d);
        e.rms_norm_again(p.weights, layer.attention_norm, n, x, &saved.attention_scale, &mut w.normed);
        gradients.linear(e, layer.kv, n, &w.dkv, &w.normed);
        if through {
            p.linear_backward_input(e, layer.kv, n, &w.dkv, Write::Replace, &mut w.dnormed);
        }
        match rows.which {
            Rows::Predicting => {
                e.gather(d, lists, &w.normed, &mut w.normed_rows);
                gradients.linear(e, layer.q, m, &w.dq, &w.normed_rows);
                if !through {
                    return Ok(());
                }
                p.linear_backward_input(e, layer.q, m, &w.dq, Write::Replace, &mut w.normed_rows);
                e.scatter_add(d, lists, &w.normed_rows, &mut w.dnormed);
                e.reserve(&mut w.dx_rows, Holds::Activations, n * d);
                e.scatter(d, lists, &w.dx, n, &mut w.dx_rows);
                std::mem::swap(&mut w.dx, &mut w.dx_rows);
            }
            Rows::All => {
                gradients.linear(e, layer.q, m, &w.dq, &w.normed);
                if !through {
                    return Ok(());
                }
                p.linear_backward_input(e, layer.q, m, &w.dq, Write::Add, &mut w.dnormed);
            }
        }
        checks.finite(e, all, &[("self_attn.q_proj, k_proj and v_proj", d)], &w.dnormed)?;
        e.rms_norm_backward(
            p.weights,
            gradients.all(),
            layer.attention_norm,
            n,
            x,
            &saved.attention_scale,
            &w.dnormed,
            &mut w.dx,
        );
        checks.finite(e, all, &[("input_layernorm (with the residual)", d)], &w.dx)
    }
}
