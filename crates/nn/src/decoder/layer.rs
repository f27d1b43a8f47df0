//! One layer, attention and MLP: the forward pass, and below it the backward pass in the opposite order.

use crate::checks::Checks;
use crate::error::Error;
use crate::executor::{Attention, Executor, Gate, HeadRows, Heads, Holds, Mixer, Norm, Rotation, Rows};
use crate::families::QkNorm;
use crate::layout::{LayerLayout, Linear, MixerLayout, Span, Write};

use super::workspace::{Normed, SavedActivations, Workspace};
use super::{Decoder, Gradients, Parameters};

/// The activations that a layer on an executor keeps.
pub(super) type Saved<X> = SavedActivations<<X as crate::executor::Memory>::Buffer>;

/// One pass through a layer.
pub(super) struct LayerPass<'a, X: Executor> {
    pub(super) p: Parameters<'a, X>,
    pub(super) layer: &'a LayerLayout,
    pub(super) lists: &'a X::Lists,
    /// Rows with keys.
    pub(super) count: usize,
    /// Rows that are computed after the keys: all, or those that predict.
    pub(super) queries: usize,
    pub(super) which: Rows,
    pub(super) checks: Checks,
}

/// The MLP's last map in a check's error, by itself and with what is added.
const DOWN_PROJ: [&str; 2] = ["mlp.down_proj", "mlp.down_proj (with the residual)"];

/// The maps of attention, or of a mixer, in a check's error: those of all rows with their widths; the last as [`DOWN_PROJ`]; the first together.
pub(super) struct Names {
    pub(super) q: &'static str,
    pub(super) kv: [(&'static str, usize); 3],
    pub(super) o: [&'static str; 2],
    gate: &'static str,
    inputs: &'static str,
}

/// Those of a layer.
pub(super) fn names(layer: &LayerLayout) -> Names {
    match layer.mixer {
        Some(MixerLayout { of, .. }) => Names {
            q: "linear_attn.in_proj_z",
            kv: [
                ("linear_attn.in_proj_qkv", of.channels()),
                ("linear_attn.in_proj_b", of.linear_num_value_heads),
                ("linear_attn.in_proj_a", of.linear_num_value_heads),
            ],
            o: ["linear_attn.out_proj", "linear_attn.out_proj (with the residual)"],
            gate: "linear_attn (gate)",
            inputs: "linear_attn.in_proj_qkv, in_proj_z, in_proj_b and in_proj_a",
        },
        None => Names {
            q: "self_attn.q_proj",
            kv: [
                ("self_attn.k_proj", layer.kv.outputs / 2),
                ("self_attn.v_proj", layer.kv.outputs / 2),
                ("", 0),
            ],
            o: ["self_attn.o_proj", "self_attn.o_proj (with the residual)"],
            gate: "self_attn (output gate)",
            inputs: "self_attn.q_proj, k_proj and v_proj",
        },
    }
}

/// The gate of a layer's attention or mixer.
pub(super) fn gate(layer: &LayerLayout) -> Option<Gate> {
    if layer.mixer.is_some() { Some(Gate::Silu) } else { layer.of.output_gate.then_some(Gate::Sigmoid) }
}

impl<'a, X: Executor> LayerPass<'a, X> {
    pub(super) fn mixer(&self, layout: MixerLayout) -> Mixer<'a, X::Weights> {
        Mixer { weights: self.p.weights, layout, place: self.layer.place }
    }

    /// A mixer's norm, of each head of its results; nothing is added to its weights.
    fn mixer_norm(&self, MixerLayout { of, norm, .. }: MixerLayout) -> (Norm<'a, X::Weights>, HeadRows) {
        let (rows, size) = (self.queries, of.linear_value_head_dim);
        let heads =
            HeadRows { rows, first: 0, stride: of.value_width(), count: of.linear_num_value_heads, size };
        (Norm { offset: 0.0, ..self.p.norm(norm, rows) }, heads)
    }
}

impl Decoder {
    fn attention<'a, X: Executor>(&self, of: &LayerPass<'a, X>) -> Attention<'a, X::Lists> {
        let (heads, window) = (self.heads, of.layer.of.window);
        Attention { heads, lists: of.lists, rows: of.which, keys: of.count, window }
    }

    /// The heads of rows of queries, and those of rows of keys.
    fn head_rows(&self, queries: usize, keys: usize) -> [HeadRows; 2] {
        let Heads { queries: h, keys: k, size, .. } = self.heads;
        let of = |rows, stride, count| HeadRows { rows, first: 0, stride, count, size };
        [of(queries, self.heads.query_width(), h), of(keys, self.heads.key_width(), k)]
    }

    /// The heads that norms of queries or keys are taken over.
    fn normed_heads(layer: &LayerLayout, heads: HeadRows) -> HeadRows {
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
        e.head_norm(p.norm(weight, heads.rows), heads, x, &mut keep.raw, &mut keep.scale);
    }

    /// What attention, or the MLP, reads: `x` after the norm before it, in `to`; without one, `x` itself.
    pub(super) fn norm_before<'a, X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        norm: Option<(Span, &str)>,
        rows: (Rows, usize),
        x: &'a X::Buffer,
        scale: &mut X::Buffer,
        to: &'a mut X::Buffer,
    ) -> Result<&'a X::Buffer, Error> {
        let Some((weight, name)) = norm else { return Ok(x) };
        e.reserve(to, Holds::Activations, rows.1 * weight.len);
        e.reserve(scale, Holds::Statistics, rows.1);
        e.rms_norm(of.p.norm(weight, rows.1), x, to, scale);
        of.checks.finite(e, rows, &[(name, weight.len)], to)?;
        Ok(to)
    }

    /// `y = residual + after(linear(x))`: the end of attention, or of the MLP.
    pub(super) fn add_to_residual<X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        linear: Linear,
        [name, with_residual]: [&str; 2],
        after: Option<(Span, &str)>,
        x: &X::Buffer,
        residual: &X::Buffer,
        keep: &mut Normed<X::Buffer>,
        y: &mut X::Buffer,
    ) -> Result<(), Error> {
        let (rows, count, d) = ((of.which, of.queries), of.queries, linear.outputs);
        e.reserve(y, Holds::Activations, count * d);
        let Some((norm, norm_name)) = after else {
            of.p.linear(e, linear, count, x, Some(residual), y);
            return of.checks.finite(e, rows, &[(with_residual, d)], y);
        };
        e.reserve(&mut keep.raw, Holds::Activations, count * d);
        e.reserve(&mut keep.scale, Holds::Statistics, count);
        of.p.linear(e, linear, count, x, None, &mut keep.raw);
        of.checks.finite(e, rows, &[(name, d)], &keep.raw)?;
        e.rms_norm(of.p.norm(norm, count), &keep.raw, y, &mut keep.scale);
        e.add(count * d, residual, y);
        of.checks.finite(e, rows, &[(norm_name, d)], y)
    }

    /// One layer, whose keys and values are also stored in the `cache`, if there is one. Without `output` it stops once all activations for the backward
    /// pass are computed.
    pub(super) fn layer<X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        cache: Option<&mut X::Cache>,
        x: &X::Buffer,
        saved: &mut Saved<X>,
        w: &mut Workspace<X>,
        output: Option<&mut X::Buffer>,
    ) -> Result<(), Error> {
        let LayerPass { p, layer, lists, checks, count: n, queries: m, which, .. } = *of;
        let (d, all, own) = (self.config.hidden_size, (Rows::All, n), (which, m));
        let (q_width, kv_width, names, gate) = (layer.q.outputs, layer.kv.outputs, names(layer), gate(layer));
        let (scale, normed) = (&mut saved.attention_scale, &mut w.normed);
        let input = self.norm_before(e, of, layer.attention.before, all, x, scale, normed)?;
        e.reserve(&mut saved.kv, Holds::Activations, n * kv_width);
        p.linear(e, layer.kv, n, input, None, &mut saved.kv);
        checks.finite(e, all, &names.kv, &saved.kv)?;
        let q = match gate {
            None => &mut saved.q,
            Some(Gate::Sigmoid) => &mut w.halves,
            Some(Gate::Silu) => &mut saved.gate,
        };
        e.reserve(q, Holds::Activations, m * q_width);
        e.reserve(&mut w.normed_rows, Holds::Activations, m * d);
        match which {
            Rows::Predicting => {
                e.gather(d, lists, input, &mut w.normed_rows);
                p.linear(e, layer.q, m, &w.normed_rows, None, q);
                // The residual of these rows.
                e.gather(d, lists, x, &mut w.normed_rows);
            }
            Rows::All => p.linear(e, layer.q, m, input, None, q),
        }
        checks.finite(e, own, &[(names.q, q_width)], q)?;
        match layer.mixer {
            Some(mixer) => self.mix(e, of, mixer, cache, saved, w)?,
            None => self.attend(e, of, cache, saved, w)?,
        }
        let residual = if which == Rows::All { x } else { &w.normed_rows };
        let SavedActivations { gate, out, attended, middle, .. } = saved;
        let out = self.times_gate(e, of, gate, out, &mut w.gated)?;
        let after = layer.attention.after;
        self.add_to_residual(e, of, layer.o, names.o, after, out, residual, attended, middle)?;
        self.mlp(e, of, saved, &mut w.normed_rows, &mut w.act, output)
    }

    /// The result of attention, or of a mixer, times its gate, in `to`; without one, the result itself.
    pub(super) fn times_gate<'a, X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        by: &X::Buffer,
        out: &'a X::Buffer,
        to: &'a mut X::Buffer,
    ) -> Result<&'a X::Buffer, Error> {
        let Some(kind) = gate(of.layer) else { return Ok(out) };
        let width = of.layer.o.inputs;
        e.reserve(to, Holds::Activations, of.queries * width);
        e.gate(kind, of.queries * width, by, out, to);
        of.checks.finite(e, (of.which, of.queries), &[(names(of.layer).gate, width)], to)?;
        Ok(to)
    }

    /// A recurrent mixer, from its projections to the norm of its results in `saved.out`.
    fn mix<X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        layout: MixerLayout,
        mut cache: Option<&mut X::Cache>,
        saved: &mut Saved<X>,
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let LayerPass { lists, checks, count: n, queries: m, which, .. } = *of;
        let (channels, width) = (layout.of.channels(), layout.of.value_width());
        e.reserve(&mut w.mixed, Holds::Activations, n * channels);
        e.convolve(of.mixer(layout), lists, cache.as_deref_mut(), &saved.kv, &mut w.mixed);
        checks.finite(e, (Rows::All, n), &[("linear_attn.conv1d", channels)], &w.mixed)?;
        e.reserve(&mut saved.out, Holds::Activations, m * width);
        let SavedActivations { kv, out, q_norm, .. } = saved;
        e.delta_rule(of.mixer(layout), (lists, which), cache, kv, &mut w.mixed, out);
        checks.finite(e, (which, m), &[("linear_attn (gated delta rule)", width)], out)?;
        self.norm_mixed(e, of, layout, out, q_norm)
    }

    /// The norm of a mixer's results, in place.
    pub(super) fn norm_mixed<X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        layout: MixerLayout,
        out: &mut X::Buffer,
        keep: &mut Normed<X::Buffer>,
    ) -> Result<(), Error> {
        let (norm, heads) = of.mixer_norm(layout);
        e.reserve(&mut keep.raw, Holds::Activations, heads.rows * heads.stride);
        e.reserve(&mut keep.scale, Holds::Statistics, heads.rows * heads.count);
        e.head_norm(norm, heads, out, &mut keep.raw, &mut keep.scale);
        of.checks.finite(e, (of.which, of.queries), &[("linear_attn.norm", heads.stride)], out)
    }

    /// Attention, from its projections to its result in `saved.out`.
    fn attend<X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        cache: Option<&mut X::Cache>,
        saved: &mut Saved<X>,
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let LayerPass { p, layer, lists, checks, count: n, queries: m, which, .. } = *of;
        let (q_width, all, own) = (self.heads.query_width(), (Rows::All, n), (which, m));
        if layer.of.output_gate {
            e.reserve(&mut saved.q, Holds::Activations, m * q_width);
            e.reserve(&mut saved.gate, Holds::Activations, m * q_width);
            let [heads, _] = self.head_rows(m, n);
            let pairs = HeadRows { stride: 2 * q_width, ..heads };
            e.split_heads(pairs, &w.halves, &mut saved.q, &mut saved.gate);
        }
        let SavedActivations { q, kv, q_norm, k_norm, out, lse, .. } = saved;
        let [queries, keys] = self.head_rows(m, n);
        for (rows, weight, heads, x, keep, [norm, rotary]) in [
            (
                own,
                layer.q_norm,
                queries,
                &mut *q,
                q_norm,
                ["self_attn.q_norm", "self_attn (rotary embedding of queries)"],
            ),
            (
                all,
                layer.k_norm,
                keys,
                &mut *kv,
                k_norm,
                ["self_attn.k_norm", "self_attn (rotary embedding of keys)"],
            ),
        ] {
            if let Some(weight) = weight {
                self.norm_heads(e, p, weight, Decoder::normed_heads(layer, heads), x, keep);
                checks.finite(e, rows, &[(norm, heads.stride)], x)?;
            }
            if let Some(theta) = layer.of.rope {
                e.rotate(Rotation { theta, sign: 1.0 }, heads, lists, rows.0, x);
                checks.finite(e, rows, &[(rotary, heads.stride)], x)?;
            }
        }
        e.reserve(out, Holds::Activations, m * q_width);
        e.reserve(lse, Holds::Statistics, m * self.heads.queries);
        if let Some(cache) = cache {
            e.store_cache(self.heads, cache, layer.place, lists, kv);
        }
        e.attention(self.attention(of), q, kv, out, lse);
        checks.finite(e, own, &[("self_attn (attention)", q_width)], out)
    }

    /// The MLP of a layer, from the sum after attention; `normed` and `act` are memory for its norm and its activation.
    pub(super) fn mlp<X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        saved: &mut Saved<X>,
        normed: &mut X::Buffer,
        act: &mut X::Buffer,
        output: Option<&mut X::Buffer>,
    ) -> Result<(), Error> {
        let LayerPass { p, layer, checks, queries: m, which, .. } = *of;
        let (f, own) = (self.config.intermediate_size, (which, m));
        let SavedActivations { middle, mlp_scale, gate_up, transformed, .. } = saved;
        let input = self.norm_before(e, of, layer.mlp.before, own, middle, mlp_scale, normed)?;
        e.reserve(gate_up, Holds::Activations, m * 2 * f);
        p.linear(e, layer.gate_up, m, input, None, gate_up);
        checks.finite(e, own, &[("mlp.gate_proj", f), ("mlp.up_proj", f)], gate_up)?;
        if output.is_none() && layer.mlp.after.is_none() {
            return Ok(());
        }
        e.reserve(act, Holds::Activations, m * f);
        e.gated(layer.of.activation, m, f, gate_up, act);
        checks.finite(e, own, &[("mlp (activation)", f)], act)?;
        // Without an output, nobody needs the sum, but the norm's scales.
        let to = output.unwrap_or(normed);
        self.add_to_residual(e, of, layer.down, DOWN_PROJ, layer.mlp.after, act, middle, transformed, to)
    }

    /// `w.dx` from the derivative of the layer's output to that of its input; the latter only with `through`.
    pub(super) fn layer_backward<X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        gradients: &mut Gradients<'_, X>,
        through: bool,
        x: &X::Buffer,
        saved: &mut Saved<X>,
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let LayerPass { p, layer, lists, checks, count: n, queries: m, which, .. } = *of;
        let (d, f) = (self.config.hidden_size, self.config.intermediate_size);
        let (width, names) = (layer.o.inputs, names(layer));
        let (all, own) = ((Rows::All, n), (which, m));
        e.reserve(&mut w.dnormed, Holds::Activations, n * d);
        // The MLP.
        e.reserve(&mut w.act, Holds::Activations, m * f);
        let (norm, normed, to) = (layer.mlp.after, &saved.transformed, &mut w.dnormed);
        let dy = self.through_norm_after(e, of, gradients, norm, normed, &w.dx, to)?;
        p.linear_backward_input(e, layer.down, m, dy, Write::Replace, &mut w.act);
        checks.finite(e, own, &[("mlp.down_proj", f)], &w.act)?;
        e.gated_backward(layer.of.activation, m, f, &mut saved.gate_up, &mut w.act);
        checks.finite(e, own, &[("mlp (activation)", 2 * f)], &saved.gate_up)?;
        gradients.linear(e, layer.down, m, dy, &w.act);
        match layer.mlp.before {
            Some((norm, name)) => {
                let SavedActivations { middle, mlp_scale, gate_up, .. } = saved;
                e.reserve(&mut w.normed_rows, Holds::Activations, m * d);
                e.rms_norm_again(p.norm(norm, m), middle, mlp_scale, &mut w.normed_rows);
                gradients.linear(e, layer.gate_up, m, gate_up, &w.normed_rows);
                p.linear_backward_input(e, layer.gate_up, m, gate_up, Write::Replace, &mut w.dnormed);
                checks.finite(e, own, &[("mlp.gate_proj and up_proj", d)], &w.dnormed)?;
                let (norm, dy, dx) = (p.norm(norm, m), &w.dnormed, &mut w.dx);
                e.rms_norm_backward(norm, gradients.all(), middle, mlp_scale, dy, dx);
                checks.finite(e, own, &[(name, d)], &w.dx)?;
            }
            None => {
                gradients.linear(e, layer.gate_up, m, &saved.gate_up, &saved.middle);
                p.linear_backward_input(e, layer.gate_up, m, &saved.gate_up, Write::Add, &mut w.dx);
                checks.finite(e, own, &[("mlp.gate_proj and up_proj (with the residual)", d)], &w.dx)?;
            }
        }
        // Attention, or the mixer.
        e.reserve(&mut w.dout, Holds::Activations, m * width);
        let (norm, normed, to) = (layer.attention.after, &saved.attended, &mut w.dnormed);
        let dy = self.through_norm_after(e, of, gradients, norm, normed, &w.dx, to)?;
        p.linear_backward_input(e, layer.o, m, dy, Write::Replace, &mut w.dout);
        checks.finite(e, own, &[(names.o[0], width)], &w.dout)?;
        match gate(layer) {
            None => gradients.linear(e, layer.o, m, dy, &saved.out),
            Some(kind) => {
                e.reserve(&mut w.gated, Holds::Activations, m * width);
                e.gate_backward(kind, m * width, &mut saved.gate, &saved.out, &mut w.dout, &mut w.gated);
                checks.finite(e, own, &[(names.gate, width)], &w.dout)?;
                gradients.linear(e, layer.o, m, dy, &w.gated);
            }
        }
        match layer.mixer {
            Some(mixer) => self.mix_backward(e, of, mixer, gradients, saved, w)?,
            None => self.attend_backward(e, of, gradients, saved, w)?,
        }
        let before = layer.attention.before;
        let input = match before {
            Some((norm, _)) => {
                e.reserve(&mut w.normed, Holds::Activations, n * d);
                e.rms_norm_again(p.norm(norm, n), x, &saved.attention_scale, &mut w.normed);
                &w.normed
            }
            None => x,
        };
        gradients.linear(e, layer.kv, n, &w.dkv, input);
        if which == Rows::Predicting {
            e.reserve(&mut w.normed_rows, Holds::Activations, m * d);
            e.gather(d, lists, input, &mut w.normed_rows);
            gradients.linear(e, layer.q, m, &w.dq, &w.normed_rows);
        } else {
            gradients.linear(e, layer.q, m, &w.dq, input);
        }
        if !through {
            return Ok(());
        }
        if which == Rows::Predicting {
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
        match which {
            Rows::Predicting => {
                p.linear_backward_input(e, layer.q, m, &w.dq, Write::Replace, &mut w.normed_rows);
                e.scatter_add(d, lists, &w.normed_rows, to);
            }
            Rows::All => p.linear_backward_input(e, layer.q, m, &w.dq, Write::Add, to),
        }
        checks.finite(e, all, &[(names.inputs, d)], to)?;
        let Some((norm, name)) = before else { return Ok(()) };
        let (norm, scale, dx) = (p.norm(norm, n), &saved.attention_scale, &mut w.dx);
        e.rms_norm_backward(norm, gradients.all(), x, scale, &w.dnormed, dx);
        checks.finite(e, all, &[(name, d)], &w.dx)
    }

    /// The derivatives by a mixer's projections, `w.dkv` and `w.dq`, from that of its result in `w.dout` and that of its gate in `saved`.
    fn mix_backward<X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        layout: MixerLayout,
        gradients: &mut Gradients<'_, X>,
        saved: &mut Saved<X>,
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let LayerPass { lists, checks, count: n, queries: m, which, .. } = *of;
        let (channels, all) = (layout.of.channels(), (Rows::All, n));
        let ((norm, heads), Normed { raw, scale }) = (of.mixer_norm(layout), &saved.q_norm);
        e.head_norm_backward(norm, gradients.all(), heads, raw, scale, &mut w.dout);
        checks.finite(e, (which, m), &[("linear_attn.norm", heads.stride)], &w.dout)?;
        e.reserve(&mut w.mixed, Holds::Activations, n * channels);
        e.convolve(of.mixer(layout), lists, None, &saved.kv, &mut w.mixed);
        e.reserve(&mut w.dkv, Holds::Activations, n * layout.of.input_width());
        let (kv, rows) = (&saved.kv, (lists, which));
        let gradient = gradients.all();
        e.delta_rule_backward(of.mixer(layout), gradient, rows, kv, &w.dout, &mut w.mixed, &mut w.dkv);
        checks.finite(e, all, &[("linear_attn (gated delta rule)", channels)], &w.mixed)?;
        e.convolve_backward(of.mixer(layout), gradients.all(), lists, kv, &mut w.mixed, &mut w.dkv);
        checks.finite(e, all, &[("linear_attn.conv1d", layout.of.input_width())], &w.dkv)?;
        std::mem::swap(&mut w.dq, &mut saved.gate);
        Ok(())
    }

    /// The derivatives by attention's projections, likewise.
    fn attend_backward<X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        gradients: &mut Gradients<'_, X>,
        saved: &mut Saved<X>,
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let LayerPass { p, layer, lists, checks, count: n, queries: m, which, .. } = *of;
        let (q_width, kv_width) = (self.heads.query_width(), self.heads.key_width());
        let (all, own) = ((Rows::All, n), (which, m));
        e.reserve(&mut w.dq, Holds::Activations, m * q_width);
        e.reserve(&mut w.dkv, Holds::Activations, n * kv_width);
        let from = [&saved.q, &saved.kv, &saved.out, &saved.lse, &w.dout];
        e.attention_backward(self.attention(of), from, [&mut w.dq, &mut w.dkv]);
        let keys_and_values =
            [("self_attn (attention, keys)", kv_width / 2), ("self_attn (attention, values)", kv_width / 2)];
        checks.finite(e, own, &[("self_attn (attention, queries)", q_width)], &w.dq)?;
        checks.finite(e, all, &keys_and_values, &w.dkv)?;
        let [queries, keys] = self.head_rows(m, n);
        for (rows, norm, heads, Normed { raw, scale }, name, dx) in [
            (own, layer.q_norm, queries, &saved.q_norm, "self_attn.q_norm", &mut w.dq),
            (all, layer.k_norm, keys, &saved.k_norm, "self_attn.k_norm", &mut w.dkv),
        ] {
            if let Some(theta) = layer.of.rope {
                e.rotate(Rotation { theta, sign: -1.0 }, heads, lists, rows.0, dx);
            }
            if let Some(norm) = norm {
                let norm = p.norm(norm, heads.rows);
                let over = Decoder::normed_heads(layer, heads);
                e.head_norm_backward(norm, gradients.all(), over, raw, scale, dx);
                checks.finite(e, rows, &[(name, heads.stride)], dx)?;
            }
        }
        if layer.of.output_gate {
            e.reserve(&mut w.halves, Holds::Activations, m * 2 * q_width);
            e.join_heads(queries, &w.dq, &saved.gate, &mut w.halves);
            std::mem::swap(&mut w.dq, &mut w.halves);
        }
        Ok(())
    }

    /// The derivative by the input of a norm after attention or the MLP, in `to`; without a norm, `dx` itself.
    fn through_norm_after<'a, X: Executor>(
        &self,
        e: &mut X,
        of: &LayerPass<'_, X>,
        gradients: &mut Gradients<'_, X>,
        norm: Option<(Span, &str)>,
        Normed { raw, scale }: &Normed<X::Buffer>,
        dx: &'a X::Buffer,
        to: &'a mut X::Buffer,
    ) -> Result<&'a X::Buffer, Error> {
        let Some((weight, name)) = norm else { return Ok(dx) };
        e.zero(of.queries * weight.len, to);
        e.rms_norm_backward(of.p.norm(weight, of.queries), gradients.all(), raw, scale, dx, to);
        of.checks.finite(e, (of.which, of.queries), &[(name, weight.len)], to)?;
        Ok(to)
    }
}
