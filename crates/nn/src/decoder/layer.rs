//! One layer, attention and SwiGLU: the forward pass, and below it the backward pass in the opposite order.

use crate::checks::Checks;
use crate::error::Error;
use crate::executor::{Executor, HeadRows, Holds, Memory, Rotation, Rows};
use crate::families::QkNorm;
use crate::layout::{LayerLayout, Linear, Span, Write};

use super::workspace::{Normed, SavedActivations, Workspace};
use super::{Decoder, Gradients, Parameters};

/// The rows of one pass through a layer.
pub(super) struct LayerRows<'a, X: Memory> {
    pub(super) lists: &'a X::Lists,
    /// Rows with keys.
    pub(super) count: usize,
    /// Rows that are computed after the keys: all, or those that predict.
    pub(super) queries: usize,
    pub(super) which: Rows,
}

/// What attention, or the MLP, ends with: its last map, and the norm of what that gives.
pub(super) struct BranchEnd {
    linear: Linear,
    name: &'static str,
    with_residual: &'static str,
    after: Option<(Span, &'static str)>,
}

impl BranchEnd {
    pub(super) fn attention(layer: &LayerLayout) -> BranchEnd {
        let (name, with_residual) = ("self_attn.o_proj", "self_attn.o_proj (with the residual)");
        BranchEnd { linear: layer.o, name, with_residual, after: layer.attention.after }
    }

    pub(super) fn mlp(layer: &LayerLayout) -> BranchEnd {
        let (name, with_residual) = ("mlp.down_proj", "mlp.down_proj (with the residual)");
        BranchEnd { linear: layer.down, name, with_residual, after: layer.mlp.after }
    }
}

impl Decoder {
    fn query_heads(&self, rows: usize) -> HeadRows {
        let (stride, count, size) = (self.heads.query_width(), self.heads.queries, self.heads.size);
        HeadRows { rows, first: 0, stride, count, size }
    }

    fn key_heads(&self, rows: usize) -> HeadRows {
        let (stride, count, size) = (self.heads.key_width(), self.heads.keys, self.heads.size);
        HeadRows { rows, first: 0, stride, count, size }
    }

    /// The heads that norms of queries or keys are taken over.
    pub(super) fn normed_heads(layer: &LayerLayout, heads: HeadRows) -> HeadRows {
        match layer.of.qk_norm {
            Some(QkNorm::Whole) => HeadRows { count: 1, size: heads.count * heads.size, ..heads },
            _ => heads,
        }
    }

    /// The norm of queries or of keys, in place.
    pub(super) fn norm_heads<X: Executor>(
        &self,
        e: &mut X,
        p: Parameters<'_, X>,
        weight: Span,
        heads: HeadRows,
        x: &mut X::Buffer,
        keep: &mut Normed<X::Buffer>,
    ) {
        e.reserve(&mut keep.raw, Holds::Activations, heads.rows * heads.count * heads.size);
        e.reserve(&mut keep.scale, Holds::Statistics, heads.rows * heads.count);
        e.head_norm(p.weights, weight, self.eps, heads, x, &mut keep.raw, &mut keep.scale);
    }

    /// `y = residual + after(linear(x))`: the end of attention, or of the MLP.
    pub(super) fn add_to_residual<X: Executor>(
        &self,
        e: &mut X,
        p: Parameters<'_, X>,
        end: &BranchEnd,
        rows: (Rows, usize),
        x: &X::Buffer,
        residual: &X::Buffer,
        keep: &mut Normed<X::Buffer>,
        checks: &Checks,
        y: &mut X::Buffer,
    ) -> Result<(), Error> {
        let BranchEnd { linear, name, with_residual, after } = *end;
        let (count, d) = (rows.1, linear.outputs);
        e.reserve(y, Holds::Activations, count * d);
        let Some((norm, norm_name)) = after else {
            p.linear(e, linear, count, x, Some(residual), y);
            return checks.finite(e, rows, &[(with_residual, d)], y);
        };
        e.reserve(&mut keep.raw, Holds::Activations, count * d);
        e.reserve(&mut keep.scale, Holds::Statistics, count);
        p.linear(e, linear, count, x, None, &mut keep.raw);
        checks.finite(e, rows, &[(name, d)], &keep.raw)?;
        e.rms_norm(p.weights, norm, self.eps, count, &keep.raw, y, &mut keep.scale);
        e.add(count * d, residual, y);
        checks.finite(e, rows, &[(norm_name, d)], y)
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
        saved: &mut SavedActivations<X::Buffer>,
        checks: &Checks,
        w: &mut Workspace<X>,
        output: Option<&mut X::Buffer>,
    ) -> Result<(), Error> {
        let layer = &self.layout.layers[index];
        let (n, m, lists) = (rows.count, rows.queries, rows.lists);
        let (d, f) = (self.config.hidden_size, self.config.intermediate_size);
        let (q_width, kv_width) = (self.heads.query_width(), self.heads.key_width());
        let (checks, all, own) = (checks.of_layer(index), (Rows::All, n), (rows.which, m));
        let input = match layer.attention.before {
            Some((norm, name)) => {
                e.reserve(&mut w.normed, Holds::Activations, n * d);
                e.reserve(&mut saved.attention_scale, Holds::Statistics, n);
                let scale = &mut saved.attention_scale;
                e.rms_norm(p.weights, norm, self.eps, n, x, &mut w.normed, scale);
                checks.finite(e, all, &[(name, d)], &w.normed)?;
                &w.normed
            }
            None => x,
        };
        e.reserve(&mut saved.kv, Holds::Activations, n * kv_width);
        p.linear(e, layer.kv, n, input, None, &mut saved.kv);
        let keys_and_values = [("self_attn.k_proj", kv_width / 2), ("self_attn.v_proj", kv_width / 2)];
        checks.finite(e, all, &keys_and_values, &saved.kv)?;
        e.reserve(&mut saved.q, Holds::Activations, m * q_width);
        e.reserve(&mut w.normed_rows, Holds::Activations, m * d);
        match rows.which {
            Rows::Predicting => {
                e.gather(d, lists, input, &mut w.normed_rows);
                p.linear(e, layer.q, m, &w.normed_rows, None, &mut saved.q);
                // The residual of these rows.
                e.gather(d, lists, x, &mut w.normed_rows);
            }
            Rows::All => p.linear(e, layer.q, m, input, None, &mut saved.q),
        }
        checks.finite(e, own, &[("self_attn.q_proj", q_width)], &saved.q)?;
        let (queries, keys) = (self.query_heads(m), self.key_heads(n));
        if let Some(weight) = layer.q_norm {
            let heads = Decoder::normed_heads(layer, queries);
            self.norm_heads(e, p, weight, heads, &mut saved.q, &mut saved.q_norm);
            checks.finite(e, own, &[("self_attn.q_norm", q_width)], &saved.q)?;
        }
        if let Some(weight) = layer.k_norm {
            let heads = Decoder::normed_heads(layer, keys);
            self.norm_heads(e, p, weight, heads, &mut saved.kv, &mut saved.k_norm);
            checks.finite(e, all, &[("self_attn.k_norm", kv_width)], &saved.kv)?;
        }
        if layer.of.rope {
            e.rotate(Rotation::Forward, queries, lists, rows.which, &mut saved.q);
            e.rotate(Rotation::Forward, keys, lists, Rows::All, &mut saved.kv);
            checks.finite(e, own, &[("self_attn (rotary embedding of queries)", q_width)], &saved.q)?;
            checks.finite(e, all, &[("self_attn (rotary embedding of keys)", kv_width)], &saved.kv)?;
        }
        e.reserve(&mut saved.out, Holds::Activations, m * q_width);
        e.reserve(&mut saved.lse, Holds::Statistics, m * self.heads.queries);
        if let Some(cache) = cache {
            e.store_cache(self.heads, cache, index, lists, &saved.kv);
        }
        let SavedActivations { q, kv, out, lse, .. } = saved;
        e.attention(self.heads, lists, rows.which, q, kv, out, lse);
        checks.finite(e, own, &[("self_attn (attention)", q_width)], &saved.out)?;
        let residual = if rows.which == Rows::All { x } else { &w.normed_rows };
        let SavedActivations { out, attended, middle, .. } = saved;
        let end = BranchEnd::attention(layer);
        self.add_to_residual(e, p, &end, own, out, residual, attended, &checks, middle)?;
        let input = match layer.mlp.before {
            Some((norm, name)) => {
                e.reserve(&mut saved.mlp_scale, Holds::Statistics, m);
                let (middle, scale) = (&saved.middle, &mut saved.mlp_scale);
                e.rms_norm(p.weights, norm, self.eps, m, middle, &mut w.normed_rows, scale);
                checks.finite(e, own, &[(name, d)], &w.normed_rows)?;
                &w.normed_rows
            }
            None => &saved.middle,
        };
        e.reserve(&mut saved.gate_up, Holds::Activations, m * 2 * f);
        p.linear(e, layer.gate_up, m, input, None, &mut saved.gate_up);
        checks.finite(e, own, &[("mlp.gate_proj", f), ("mlp.up_proj", f)], &saved.gate_up)?;
        if output.is_none() && layer.mlp.after.is_none() {
            return Ok(());
        }
        e.reserve(&mut w.act, Holds::Activations, m * f);
        e.swiglu(m, f, &saved.gate_up, &mut w.act);
        checks.finite(e, own, &[("mlp (SwiGLU)", f)], &w.act)?;
        let SavedActivations { middle, transformed, .. } = saved;
        // Without an output, nobody needs the sum, but the norm's scales.
        let to = output.unwrap_or(&mut w.normed_rows);
        self.add_to_residual(e, p, &BranchEnd::mlp(layer), own, &w.act, middle, transformed, &checks, to)
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
        saved: &mut SavedActivations<X::Buffer>,
        checks: &Checks,
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let (n, m, lists) = (rows.count, rows.queries, rows.lists);
        let (d, f) = (self.config.hidden_size, self.config.intermediate_size);
        let (q_width, kv_width) = (self.heads.query_width(), self.heads.key_width());
        let (all, own) = ((Rows::All, n), (rows.which, m));
        e.reserve(&mut w.dnormed, Holds::Activations, n * d);
        // The MLP.
        e.reserve(&mut w.act, Holds::Activations, m * f);
        let (norm, normed, to) = (layer.mlp.after, &saved.transformed, &mut w.dnormed);
        let dy = self.through_norm_after(e, p, gradients, norm, m, normed, &w.dx, to);
        if let Some((_, name)) = layer.mlp.after {
            checks.finite(e, own, &[(name, d)], dy)?;
        }
        p.linear_backward_input(e, layer.down, m, dy, Write::Replace, &mut w.act);
        checks.finite(e, own, &[("mlp.down_proj", f)], &w.act)?;
        e.swiglu_backward(m, f, &mut saved.gate_up, &mut w.act);
        checks.finite(e, own, &[("mlp (SwiGLU)", 2 * f)], &saved.gate_up)?;
        gradients.linear(e, layer.down, m, dy, &w.act);
        match layer.mlp.before {
            Some((norm, name)) => {
                let SavedActivations { middle, mlp_scale, gate_up, .. } = saved;
                e.reserve(&mut w.normed_rows, Holds::Activations, m * d);
                e.rms_norm_again(p.weights, norm, m, middle, mlp_scale, &mut w.normed_rows);
                gradients.linear(e, layer.gate_up, m, gate_up, &w.normed_rows);
                p.linear_backward_input(e, layer.gate_up, m, gate_up, Write::Replace, &mut w.dnormed);
                checks.finite(e, own, &[("mlp.gate_proj and up_proj", d)], &w.dnormed)?;
                let (dy, dx) = (&w.dnormed, &mut w.dx);
                e.rms_norm_backward(p.weights, gradients.all(), norm, m, middle, mlp_scale, dy, dx);
                checks.finite(e, own, &[(name, d)], &w.dx)?;
            }
            None => {
                gradients.linear(e, layer.gate_up, m, &saved.gate_up, &saved.middle);
                p.linear_backward_input(e, layer.gate_up, m, &saved.gate_up, Write::Add, &mut w.dx);
                checks.finite(e, own, &[("mlp.gate_proj and up_proj (with the residual)", d)], &w.dx)?;
            }
        }
        // Attention.
        e.reserve(&mut w.dout, Holds::Activations, m * q_width);
        let (norm, normed, to) = (layer.attention.after, &saved.attended, &mut w.dnormed);
        let dy = self.through_norm_after(e, p, gradients, norm, m, normed, &w.dx, to);
        if let Some((_, name)) = layer.attention.after {
            checks.finite(e, own, &[(name, d)], dy)?;
        }
        gradients.linear(e, layer.o, m, dy, &saved.out);
        p.linear_backward_input(e, layer.o, m, dy, Write::Replace, &mut w.dout);
        checks.finite(e, own, &[("self_attn.o_proj", q_width)], &w.dout)?;
        e.reserve(&mut w.dq, Holds::Activations, m * q_width);
        e.reserve(&mut w.dkv, Holds::Activations, n * kv_width);
        e.attention_backward(
            self.heads, lists, rows.which, n, &saved.q, &saved.kv, &saved.out, &saved.lse, &w.dout,
            &mut w.dq, &mut w.dkv,
        );
        let keys_and_values =
            [("self_attn (attention, keys)", kv_width / 2), ("self_attn (attention, values)", kv_width / 2)];
        checks.finite(e, own, &[("self_attn (attention, queries)", q_width)], &w.dq)?;
        checks.finite(e, all, &keys_and_values, &w.dkv)?;
        let (queries, keys) = (self.query_heads(m), self.key_heads(n));
        if layer.of.rope {
            e.rotate(Rotation::Backward, queries, lists, rows.which, &mut w.dq);
            e.rotate(Rotation::Backward, keys, lists, Rows::All, &mut w.dkv);
        }
        if let Some(norm) = layer.q_norm {
            let (heads, Normed { raw, scale }) = (Decoder::normed_heads(layer, queries), &saved.q_norm);
            e.head_norm_backward(p.weights, gradients.all(), norm, heads, raw, scale, &mut w.dq);
            checks.finite(e, own, &[("self_attn.q_norm", q_width)], &w.dq)?;
        }
        if let Some(norm) = layer.k_norm {
            let (heads, Normed { raw, scale }) = (Decoder::normed_heads(layer, keys), &saved.k_norm);
            e.head_norm_backward(p.weights, gradients.all(), norm, heads, raw, scale, &mut w.dkv);
            checks.finite(e, all, &[("self_attn.k_norm", kv_width)], &w.dkv)?;
        }
        let before = layer.attention.before;
        let input = match before {
            Some((norm, _)) => {
                e.reserve(&mut w.normed, Holds::Activations, n * d);
                e.rms_norm_again(p.weights, norm, n, x, &saved.attention_scale, &mut w.normed);
                &w.normed
            }
            None => x,
        };
        gradients.linear(e, layer.kv, n, &w.dkv, input);
        if rows.which == Rows::Predicting {
            e.reserve(&mut w.normed_rows, Holds::Activations, m * d);
            e.gather(d, lists, input, &mut w.normed_rows);
            gradients.linear(e, layer.q, m, &w.dq, &w.normed_rows);
        } else {
            gradients.linear(e, layer.q, m, &w.dq, input);
        }
        if !through {
            return Ok(());
        }
        if rows.which == Rows::Predicting {
            e.reserve(&mut w.dx_rows, Holds::Activations, n * d);
            e.scatter(d, lists, &w.dx, n, &mut w.dx_rows);
            std::mem::swap(&mut w.dx, &mut w.dx_rows);
        }
        // Without a norm the derivative by the projections' input joins that of the residual.
        let (write, to) = match before {
            Some(_) => (Write::Replace, &mut w.dnormed),
            None => (Write::Add, &mut w.dx),
        };
        p.linear_backward_input(e, layer.kv, n, &w.dkv, write, to);
        match rows.which {
            Rows::Predicting => {
                p.linear_backward_input(e, layer.q, m, &w.dq, Write::Replace, &mut w.normed_rows);
                e.scatter_add(d, lists, &w.normed_rows, to);
            }
            Rows::All => p.linear_backward_input(e, layer.q, m, &w.dq, Write::Add, to),
        }
        checks.finite(e, all, &[("self_attn.q_proj, k_proj and v_proj", d)], to)?;
        let Some((norm, name)) = before else { return Ok(()) };
        let (scale, dy, dx) = (&saved.attention_scale, &w.dnormed, &mut w.dx);
        e.rms_norm_backward(p.weights, gradients.all(), norm, n, x, scale, dy, dx);
        checks.finite(e, all, &[(name, d)], &w.dx)
    }

    /// The derivative by the input of a norm after attention or the MLP, in `to`; without a norm, `dx` itself.
    fn through_norm_after<'a, X: Executor>(
        &self,
        e: &mut X,
        p: Parameters<'_, X>,
        gradients: &mut Gradients<'_, X>,
        norm: Option<(Span, &str)>,
        rows: usize,
        normed: &Normed<X::Buffer>,
        dx: &'a X::Buffer,
        to: &'a mut X::Buffer,
    ) -> &'a X::Buffer {
        let Some((norm, _)) = norm else { return dx };
        e.zero(rows * norm.len, to);
        e.rms_norm_backward(p.weights, gradients.all(), norm, rows, &normed.raw, &normed.scale, dx, to);
        to
    }
}
