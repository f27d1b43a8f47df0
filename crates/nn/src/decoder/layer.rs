//! One layer of attention and MLP: the forward pass, and the backward pass in the opposite order.

use crate::executor::{
    Attention, AttentionInputs, Executor, Gate, HeadRows, Heads, Holds, Memory, Mixer, Norm, Rotation, Rows,
    Strip,
};
use crate::families::{KeysValues, QkNorm};
use crate::layout::{
    AttentionLayout, ConvolutionLayout, LayerLayout, Linear, MixerLayout, Mixing, PerLayerInput, Span, Write,
};

use super::workspace::{
    Buffers, Kept, Mixed, Normed, RowSet, Saved, SavedAttention, SavedInput, SavedMixer, Workspace,
};
use super::{Gradients, Parameters};

/// Saved activations of a layer on an executor.
type SavedOn<X> = Saved<<X as Memory>::Buffer>;

/// Source of the tokens that a layer mixes.
pub(crate) enum Over<'a, X: Executor> {
    /// The rows of a pass. Their keys, values and states are also stored in the cache, if given.
    Pass(Option<&'a mut X::Cache>),
    /// The rows of a decoding step and the tokens before them in the cache.
    Step { decoding: &'a X::Decoding, cache: &'a mut X::Cache },
}

/// Column ranges: whole rows of `width` values, and the first and the second half of rows of twice as many.
fn strips(width: usize) -> [Strip; 3] {
    [(1, 0), (2, 0), (2, width)].map(|(times, first)| Strip { stride: times * width, first })
}

/// One pass through a layer.
pub(super) struct LayerPass<'a, X: Executor> {
    pub(super) e: &'a mut X,
    pub(super) p: Parameters<'a, X>,
    pub(super) layer: &'a LayerLayout,
    /// Index of the layer.
    pub(super) index: usize,
    pub(super) heads: Heads,
    /// Factor of the results of attention and of the MLP. It is 1 if a norm follows them.
    pub(super) residual_scale: f32,
    pub(super) lists: &'a X::Lists,
    /// All rows, which have keys.
    pub(super) all: RowSet,
    /// Rows whose results are needed: all rows, or the predicting rows.
    pub(super) needed: RowSet,
    /// `D`, the width of the residual stream.
    pub(super) hidden: usize,
    /// `F`, the inner width of the MLP.
    pub(super) intermediate: usize,
    /// Width of a row of per-layer inputs.
    pub(super) width_of_inputs: usize,
}

impl<'a, X: Executor> LayerPass<'a, X> {
    fn mixer<M>(&self, layout: M) -> Mixer<'a, X::Weights, X::Lists, M> {
        let (weights, lists, rows) = (self.p.weights, self.lists, self.needed.which);
        Mixer { weights, layout, index: self.layer.index_of_kind, lists, rows }
    }

    /// The norm of each head of a mixer's result. No offset is added to its weights.
    fn mixer_norm(&self, MixerLayout { sizes, norm, .. }: MixerLayout) -> (Norm<'a, X::Weights>, HeadRows) {
        let (rows, size) = (self.needed.count, sizes.linear_value_head_dim);
        let (stride, count) = (sizes.value_width(), sizes.linear_num_value_heads);
        (Norm { offset: 0.0, ..self.p.norm(norm, rows) }, HeadRows { rows, first: 0, stride, count, size })
    }

    fn attention(&self) -> Attention<'a, X::Lists> {
        let (heads, window) = (self.heads, self.layer.spec.window);
        Attention { heads, lists: self.lists, rows: self.needed.which, keys: self.all.count, window }
    }

    /// Returns the layouts of the rows of queries and of keys.
    fn head_rows(&self) -> [HeadRows; 2] {
        let Heads { queries: h, keys: k, size, .. } = self.heads;
        let rows_of =
            |rows: RowSet, stride, count| HeadRows { rows: rows.count, first: 0, stride, count, size };
        [rows_of(self.needed, self.heads.query_width(), h), rows_of(self.all, self.heads.key_width(), k)]
    }

    /// Returns the heads that a norm of queries or keys normalises: single heads, or all heads of a row as one.
    fn normed_heads(&self, heads: HeadRows) -> HeadRows {
        match self.layer.spec.qk_norm {
            Some(QkNorm::Whole) => HeadRows { count: 1, size: heads.count * heads.size, ..heads },
            _ => heads,
        }
    }

    /// Applies a norm to the heads of `rows`, in place.
    pub(super) fn norm_heads(
        &mut self,
        norm: Norm<'_, X::Weights>,
        rows: RowSet,
        heads: HeadRows,
        x: &mut X::Buffer,
        keep: &mut Normed<X::Buffer>,
    ) {
        keep.raw.reserve(self.e, rows, heads.count * heads.size);
        keep.scale.reserve_statistics(self.e, rows, heads.count);
        self.e.head_norm(norm, heads, x, &mut keep.raw, &mut keep.scale);
    }

    /// Returns the input of attention or of the MLP: the norm of `x`, stored in `to`, or `x` itself without a norm.
    fn norm_before<'b>(
        &mut self,
        norm: Option<Span>,
        rows: RowSet,
        x: &'b X::Buffer,
        scale: &mut Kept<X::Buffer>,
        to: &'b mut X::Buffer,
    ) -> &'b X::Buffer {
        let Some(weight) = norm else { return x };
        self.e.reserve(to, Holds::Activations, rows.count * weight.len);
        scale.reserve_statistics(self.e, rows, 1);
        self.e.rms_norm(self.p.norm(weight, rows.count), x, to, scale);
        to
    }

    /// Ends attention or the MLP: `y = residual + after(linear(x))`, or `y = residual + residual_scale * linear(x)` without a norm.
    fn add_to_residual(
        &mut self,
        linear: Linear,
        after: Option<Span>,
        x: &X::Buffer,
        residual: &X::Buffer,
        keep: &mut Normed<X::Buffer>,
        y: &mut X::Buffer,
    ) {
        let (rows, d) = (self.needed, linear.outputs);
        let Some(norm) = after else {
            if self.residual_scale == 1.0 {
                return self.p.linear(self.e, &[linear], rows.count, x, Some(residual), y);
            }
            self.p.linear(self.e, &[linear], rows.count, x, None, y);
            self.e.scale(rows.count * d, self.residual_scale, y);
            return self.e.add(rows.count * d, residual, y);
        };
        keep.raw.reserve(self.e, rows, d);
        keep.scale.reserve_statistics(self.e, rows, 1);
        self.p.linear(self.e, &[linear], rows.count, x, None, &mut keep.raw);
        self.e.rms_norm(self.p.norm(norm, rows.count), &keep.raw, y, &mut keep.scale);
        self.e.add(rows.count * d, residual, y);
    }

    /// Applies a linear map to the rows whose results are needed. `gathered` is scratch memory for these rows of `x`.
    fn linear_of_needed(
        &mut self,
        linear: Linear,
        x: &X::Buffer,
        gathered: &mut X::Buffer,
        y: &mut X::Buffer,
    ) {
        let input = self.needed_rows(x, gathered);
        self.p.linear(self.e, &[linear], self.needed.count, input, None, y);
    }

    /// Returns the rows of `x` whose results are needed: gathered in `to`, or `x` itself if all rows are needed.
    fn needed_rows<'b>(&mut self, x: &'b X::Buffer, to: &'b mut X::Buffer) -> &'b X::Buffer {
        if self.needed.which == Rows::All {
            return x;
        }
        self.e.reserve(to, Holds::Activations, self.needed.count * self.hidden);
        self.e.gather(self.hidden, self.lists, x, to);
        to
    }

    /// Runs the forward pass. Without `output`, it stops once all activations for the backward pass are computed.
    pub(super) fn forward(
        &mut self,
        over: &mut Over<'_, X>,
        x: &X::Buffer,
        saved: &mut SavedOn<X>,
        w: &mut Workspace<X>,
        mut output: Option<&mut Kept<X::Buffer>>,
    ) {
        let (layer, all, needed) = (self.layer, self.all, self.needed);
        let Saved { scale, mixed, result, attended, middle, .. } = saved;
        let Buffers { normed, normed_rows, qkv, halves, mixed: convolved, gated, lent, .. } = w;
        let input = self.norm_before(layer.attention.before, all, x, scale, normed);
        match (layer.mixing, &mut *over) {
            (Mixing::Attention(layout), Over::Pass(cache)) => {
                let (saved, queries) = (mixed.attention(), layout.queries);
                let mut kv = std::mem::take(self.keys_values(&mut saved.kv, lent));
                let keys = self.key_maps(layout);
                if !keys.is_empty() {
                    kv.reserve(self.e, all, self.heads.key_width());
                    self.p.linear(self.e, &keys, all.count, input, None, &mut kv);
                }
                if layer.spec.output_gate {
                    self.e.reserve(halves, Holds::Activations, needed.count * queries.outputs);
                    self.linear_of_needed(queries, input, normed_rows, halves);
                } else {
                    saved.q.reserve(self.e, needed, queries.outputs);
                    self.linear_of_needed(queries, input, normed_rows, &mut saved.q);
                }
                self.attend(cache.as_deref_mut(), saved, &mut kv, result, halves);
                *self.keys_values(&mut saved.kv, lent) = kv;
            }
            (Mixing::Attention(layout), Over::Step { decoding, cache }) => {
                let saved = mixed.attention();
                self.step_projections(layout, input, saved, qkv, halves);
                self.step_attention(decoding, cache, qkv, saved, result);
            }
            (Mixing::Recurrent(layout), over) => {
                let saved = mixed.recurrent();
                saved.inputs.reserve(self.e, all, layout.inputs.outputs);
                self.p.linear(self.e, &[layout.inputs], all.count, input, None, &mut saved.inputs);
                saved.gate.reserve(self.e, needed, layout.gate.outputs);
                self.linear_of_needed(layout.gate, input, normed_rows, &mut saved.gate);
                self.mix(layout, over, saved, result, convolved);
            }
            (Mixing::Convolution(layout), over) => {
                let inputs = &mut mixed.recurrent().inputs;
                inputs.reserve(self.e, all, layout.inputs.outputs);
                self.p.linear(self.e, &[layout.inputs], all.count, input, None, inputs);
                self.mix_by_convolution(layout, over, inputs, result);
            }
        }
        let residual = self.needed_rows(x, normed_rows);
        let result = self.times_gate(mixed.gate(), result, gated);
        middle.reserve(self.e, needed, self.hidden);
        self.add_to_residual(layer.o, layer.attention.after, result, residual, attended, middle);
        let Some(added) = layer.per_layer_input else {
            self.mlp(saved, &mut w.normed_rows, &mut w.act, output.as_deref_mut());
            return self.times_scalar(output);
        };
        let mut sum = std::mem::take(&mut saved.added.sum);
        self.mlp(saved, &mut w.normed_rows, &mut w.act, Some(&mut sum));
        saved.added.sum = sum;
        // Without an output, only the values that the norm saves are needed.
        let mut scratch = Kept::default();
        std::mem::swap(&mut *scratch, &mut w.normed_rows);
        let to = match output.as_deref_mut() {
            Some(output) => output,
            None => &mut scratch,
        };
        to.reserve(self.e, needed, self.hidden);
        self.add_input(added, &mut saved.added, w, to);
        std::mem::swap(&mut *scratch, &mut w.normed_rows);
        self.times_scalar(output);
    }

    /// Multiplies the layer's result by its scalar, if the layer has one.
    fn times_scalar(&mut self, output: Option<&mut Kept<X::Buffer>>) {
        if let (Some(scalar), Some(output)) = (self.layer.scalar, output) {
            self.e.scale_by(self.p.weights, scalar, self.needed.count * self.hidden, output);
        }
    }

    /// Columns of this layer among the inputs of all layers.
    fn input_strip(&self, PerLayerInput { gate, .. }: PerLayerInput) -> Strip {
        Strip { stride: self.width_of_inputs, first: self.index * gate.outputs }
    }

    /// Adds the layer's input after the MLP: `y = sum + norm(projection(activation(gate(sum)) * input))`.
    fn add_input(
        &mut self,
        added: PerLayerInput,
        saved: &mut SavedInput<X::Buffer>,
        w: &mut Workspace<X>,
        y: &mut X::Buffer,
    ) {
        let (n, m, width) = (self.all.count, self.needed.count, added.gate.outputs);
        let [narrow, gate, up] = strips(width);
        let Buffers { layer_inputs, columns: [columns, gathered], act, .. } = w;
        let SavedInput { sum, gate_up, norm } = saved;
        gate_up.reserve(self.e, self.needed, 2 * width);
        self.e.reserve(columns, Holds::Activations, n * width);
        self.p.linear(self.e, &[added.gate], m, sum, None, columns);
        self.e.copy_columns(m, width, narrow, columns, gate, gate_up);
        self.e.copy_columns(n, width, self.input_strip(added), layer_inputs, narrow, columns);
        let input = if self.needed.which == Rows::All {
            &*columns
        } else {
            self.e.reserve(gathered, Holds::Activations, m * width);
            self.e.gather(width, self.lists, columns, gathered);
            &*gathered
        };
        self.e.copy_columns(m, width, narrow, input, up, gate_up);
        self.e.reserve(act, Holds::Activations, m * width);
        self.e.gated(self.layer.spec.activation, m, width, gate_up, act);
        self.add_to_residual(added.projection, Some(added.norm), act, sum, norm, y);
    }

    /// Backward pass of [`LayerPass::add_input`]: replaces `w.dx` by the derivative with respect to `sum`.
    fn add_input_backward(
        &mut self,
        added: PerLayerInput,
        gradients: &mut Gradients<'_, X>,
        saved: &mut SavedInput<X::Buffer>,
        w: &mut Workspace<X>,
    ) {
        let (p, n, m, width) = (self.p, self.all.count, self.needed.count, added.gate.outputs);
        let [narrow, gate, up] = strips(width);
        let Buffers { dx, dnormed, act, columns: [columns, scattered], dlayer_inputs, .. } = w;
        let SavedInput { sum, gate_up, norm } = saved;
        self.e.reserve(act, Holds::Activations, m * width);
        let dy = self.derivative_of_result(gradients, Some(added.norm), norm, dx, dnormed);
        p.linear_backward_input(self.e, added.projection, m, dy, Write::Replace, act);
        self.e.gated_backward(self.layer.spec.activation, m, width, gate_up, act);
        gradients.linear(self.e, added.projection, m, dy, act);
        self.e.reserve(columns, Holds::Activations, n * width);
        self.e.copy_columns(m, width, gate, gate_up, narrow, columns);
        gradients.linear(self.e, added.gate, m, columns, sum);
        p.linear_backward_input(self.e, added.gate, m, columns, Write::Add, dx);
        if gradients.all().is_none() {
            return;
        }
        self.e.copy_columns(m, width, up, gate_up, narrow, columns);
        let of_all = if self.needed.which == Rows::All {
            &*columns
        } else {
            self.e.reserve(scattered, Holds::Activations, n * width);
            self.e.zero(n * width, scattered);
            self.e.scatter_add(width, self.lists, columns, scattered);
            &*scattered
        };
        self.e.copy_columns(n, width, narrow, of_all, self.input_strip(added), dlayer_inputs);
    }

    /// Keys and values of the layer in a pass: the layer's own, or the ones that layers share.
    fn keys_values<'b>(
        &self,
        own: &'b mut Kept<X::Buffer>,
        lent: &'b mut [Kept<X::Buffer>; 2],
    ) -> &'b mut Kept<X::Buffer> {
        match self.layer.spec.keys_values {
            KeysValues::Projected => own,
            KeysValues::Lent(slot) | KeysValues::Borrowed(slot) => &mut lent[slot],
        }
    }

    /// Maps to keys and values: none if they are borrowed, and the map to keys twice if values are computed from keys.
    pub(super) fn key_maps(&self, layout: AttentionLayout) -> Vec<Linear> {
        let count = if self.layer.spec.values_from_keys { 2 } else { 1 };
        layout.keys_values.into_iter().flat_map(|map| std::iter::repeat_n(map, count)).collect()
    }

    /// Returns the result of attention or of a mixer times its gate, stored in `to`, or `result` itself without a gate.
    fn times_gate<'b>(
        &mut self,
        gate: &X::Buffer,
        result: &'b X::Buffer,
        to: &'b mut X::Buffer,
    ) -> &'b X::Buffer {
        let Some(kind) = self.gate() else { return result };
        let len = self.needed.count * self.layer.o.inputs;
        self.e.reserve(to, Holds::Activations, len);
        self.e.gate(kind, len, gate, result, to);
        to
    }

    /// Function of the layer's output gate, or `None` without a gate.
    fn gate(&self) -> Option<Gate> {
        match self.layer.mixing {
            Mixing::Attention(_) => self.layer.spec.output_gate.then_some(Gate::Sigmoid),
            Mixing::Recurrent(_) => Some(Gate::Silu),
            Mixing::Convolution(_) => None,
        }
    }

    /// Computes a gated short convolution, between its projections.
    fn mix_by_convolution(
        &mut self,
        layout: ConvolutionLayout,
        over: &mut Over<'_, X>,
        inputs: &X::Buffer,
        result: &mut Kept<X::Buffer>,
    ) {
        result.reserve(self.e, self.needed, layout.sizes.width);
        let mixer = self.mixer(layout);
        match over {
            Over::Pass(cache) => self.e.short_convolution(mixer, cache.as_deref_mut(), inputs, result),
            Over::Step { decoding, cache } => self.e.step_convolution(mixer, decoding, cache, inputs, result),
        }
    }

    /// Computes the part of a recurrent mixer that follows its projections and precedes its gate.
    fn mix(
        &mut self,
        layout: MixerLayout,
        over: &mut Over<'_, X>,
        saved: &mut SavedMixer<X::Buffer>,
        result: &mut Kept<X::Buffer>,
        convolved: &mut X::Buffer,
    ) {
        self.e.reserve(convolved, Holds::Activations, self.all.count * layout.sizes.channels());
        result.reserve(self.e, self.needed, layout.sizes.value_width());
        let (mixer, inputs) = (self.mixer(layout), &saved.inputs);
        match over {
            Over::Pass(cache) => {
                self.e.convolve(mixer, cache.as_deref_mut(), inputs, convolved);
                self.e.delta_rule(self.mixer(layout), cache.as_deref_mut(), inputs, convolved, result);
            }
            Over::Step { decoding, cache } => {
                self.e.step_mixer(mixer, decoding, cache, inputs, convolved, result);
            }
        }
        let (norm, heads) = self.mixer_norm(layout);
        self.norm_heads(norm, self.needed, heads, result, &mut saved.norm);
    }

    /// Computes attention between its projections and its gate. With an output gate, `halves` holds queries and gates.
    fn attend(
        &mut self,
        cache: Option<&mut X::Cache>,
        saved: &mut SavedAttention<X::Buffer>,
        kv: &mut Kept<X::Buffer>,
        result: &mut Kept<X::Buffer>,
        halves: &X::Buffer,
    ) {
        let (q_width, all, needed) = (self.heads.query_width(), self.all, self.needed);
        let [queries, keys] = self.head_rows();
        let SavedAttention { q, q_norm, k_norm, v_norm, lse, gate, .. } = saved;
        let computes_keys = self.layer.spec.computes_keys();
        if self.layer.spec.output_gate {
            q.reserve(self.e, needed, q_width);
            gate.reserve(self.e, needed, q_width);
            self.e.split_heads(HeadRows { stride: 2 * q_width, ..queries }, halves, q, gate);
        }
        let [q_weight, k_weight] = self.qk_norms();
        for (rows, weight, heads, x, keep) in
            [(needed, q_weight, queries, &mut *q, q_norm), (all, k_weight, keys, &mut *kv, k_norm)]
                .into_iter()
                .take(1 + usize::from(computes_keys))
        {
            if let Some(weight) = weight {
                let norm = self.p.norm(weight, heads.rows);
                self.norm_heads(norm, rows, self.normed_heads(heads), x, keep);
            }
            if let Some(theta) = self.layer.spec.rope {
                self.e.rotate(Rotation { theta, sign: 1.0 }, heads, self.lists, rows.which, x);
            }
        }
        if let Some(zeros) = self.v_norm() {
            let norm = Norm { offset: 1.0, ..self.p.norm(zeros, all.count) };
            self.norm_heads(norm, all, self.value_rows(), kv, v_norm);
        }
        result.reserve(self.e, needed, q_width);
        lse.reserve_statistics(self.e, needed, self.heads.queries);
        if let Some(cache) = cache.filter(|_| computes_keys) {
            self.e.store_cache(self.heads, cache, self.layer.index_of_kind, self.lists, kv);
        }
        self.e.attention(self.attention(), q, kv, result, lse);
    }

    pub(super) fn qk_norms(&self) -> [Option<Span>; 2] {
        match self.layer.mixing {
            Mixing::Attention(AttentionLayout { q_norm, k_norm, .. }) => [q_norm, k_norm],
            Mixing::Recurrent(_) | Mixing::Convolution(_) => [None; 2],
        }
    }

    /// Zeros for the norm of values, or `None` if the layer doesn't compute normalised values.
    pub(super) fn v_norm(&self) -> Option<Span> {
        match self.layer.mixing {
            Mixing::Attention(AttentionLayout { keys_values: Some(_), v_norm, .. }) => v_norm,
            _ => None,
        }
    }

    /// Layout of the rows of values, which follow the keys.
    fn value_rows(&self) -> HeadRows {
        let [_, keys] = self.head_rows();
        HeadRows { first: keys.count * keys.size, ..keys }
    }

    /// Computes the MLP from the sum after attention. `normed` and `act` are scratch memory.
    fn mlp(
        &mut self,
        saved: &mut SavedOn<X>,
        normed: &mut X::Buffer,
        act: &mut X::Buffer,
        output: Option<&mut Kept<X::Buffer>>,
    ) {
        let (layer, needed, m, f) = (self.layer, self.needed, self.needed.count, self.intermediate);
        let Saved { middle, mlp_scale, gate_up, transformed, .. } = saved;
        let input = self.norm_before(layer.mlp.before, needed, middle, mlp_scale, normed);
        gate_up.reserve(self.e, needed, 2 * f);
        self.p.linear(self.e, &[layer.gate_up], m, input, None, gate_up);
        if output.is_none() && layer.mlp.after.is_none() {
            return;
        }
        self.e.reserve(act, Holds::Activations, m * f);
        self.e.gated(layer.spec.activation, m, f, gate_up, act);
        let to = match output {
            Some(output) => {
                output.reserve(self.e, needed, self.hidden);
                output
            }
            // Only the norm's scales are needed, not the output.
            None => {
                self.e.reserve(normed, Holds::Activations, m * self.hidden);
                normed
            }
        };
        self.add_to_residual(layer.down, layer.mlp.after, act, middle, transformed, to);
    }

    /// Runs the backward pass: replaces `w.dx`, the derivative of the layer's output, by the derivative of the layer's input, which is only computed if
    /// `through`.
    pub(super) fn backward(
        &mut self,
        gradients: &mut Gradients<'_, X>,
        through: bool,
        x: &X::Buffer,
        saved: &mut SavedOn<X>,
        w: &mut Workspace<X>,
    ) {
        let (p, layer, lists, n, m) = (self.p, self.layer, self.lists, self.all.count, self.needed.count);
        let (d, f, width) = (self.hidden, self.intermediate, layer.o.inputs);
        self.e.reserve(&mut w.dnormed, Holds::Activations, n * d);
        if let Some(scalar) = layer.scalar {
            self.e.scale_by(p.weights, scalar, m * d, &mut w.dx);
        }
        if let Some(added) = layer.per_layer_input {
            self.add_input_backward(added, gradients, &mut saved.added, w);
        }
        // The MLP.
        self.e.reserve(&mut w.act, Holds::Activations, m * f);
        let dy =
            self.derivative_of_result(gradients, layer.mlp.after, &saved.transformed, &w.dx, &mut w.dnormed);
        p.linear_backward_input(self.e, layer.down, m, dy, Write::Replace, &mut w.act);
        self.e.gated_backward(layer.spec.activation, m, f, &mut saved.gate_up, &mut w.act);
        gradients.linear(self.e, layer.down, m, dy, &w.act);
        let Saved { middle, mlp_scale, gate_up, .. } = &*saved;
        match layer.mlp.before {
            Some(norm) => {
                self.e.reserve(&mut w.normed_rows, Holds::Activations, m * d);
                self.e.rms_norm_again(p.norm(norm, m), middle, mlp_scale, &mut w.normed_rows);
                gradients.linear(self.e, layer.gate_up, m, gate_up, &w.normed_rows);
                p.linear_backward_input(self.e, layer.gate_up, m, gate_up, Write::Replace, &mut w.dnormed);
                let (norm, dy, dx) = (p.norm(norm, m), &w.dnormed, &mut w.dx);
                self.e.rms_norm_backward(norm, gradients.all(), middle, mlp_scale, dy, dx);
            }
            None => {
                gradients.linear(self.e, layer.gate_up, m, gate_up, middle);
                p.linear_backward_input(self.e, layer.gate_up, m, gate_up, Write::Add, &mut w.dx);
            }
        }
        // Attention, or the mixer.
        self.e.reserve(&mut w.dout, Holds::Activations, m * width);
        let after = layer.attention.after;
        let dy = self.derivative_of_result(gradients, after, &saved.attended, &w.dx, &mut w.dnormed);
        p.linear_backward_input(self.e, layer.o, m, dy, Write::Replace, &mut w.dout);
        match self.gate() {
            None => gradients.linear(self.e, layer.o, m, dy, &saved.result),
            Some(kind) => {
                self.e.reserve(&mut w.gated, Holds::Activations, m * width);
                let (gate, result) = (saved.mixed.gate(), &saved.result);
                self.e.gate_backward(kind, m * width, gate, result, &mut w.dout, &mut w.gated);
                gradients.linear(self.e, layer.o, m, dy, &w.gated);
            }
        }
        match (&mut saved.mixed, layer.mixing) {
            (Mixed::Recurrent(saved), Mixing::Recurrent(mixer)) => {
                self.mix_backward(mixer, gradients, saved, w);
            }
            (Mixed::Recurrent(saved), Mixing::Convolution(layout)) => {
                self.e.reserve(&mut w.dkv, Holds::Activations, n * layout.inputs.outputs);
                let (mixer, gradient) = (self.mixer(layout), gradients.all());
                self.e.short_convolution_backward(mixer, gradient, &saved.inputs, &w.dout, &mut w.dkv);
            }
            (Mixed::Attention(saved_attention), Mixing::Attention(_)) => {
                let kv = std::mem::take(self.keys_values(&mut saved_attention.kv, &mut w.lent));
                self.attend_backward(gradients, saved_attention, &kv, &saved.result, w);
                *self.keys_values(&mut saved_attention.kv, &mut w.lent) = kv;
            }
            _ => unreachable!("the forward pass has saved the activations of this kind of layer"),
        }
        let before = layer.attention.before;
        let (needed_map, all_map) = layer.input_maps();
        let input = match before {
            Some(norm) => {
                self.e.reserve(&mut w.normed, Holds::Activations, n * d);
                self.e.rms_norm_again(p.norm(norm, n), x, &saved.scale, &mut w.normed);
                &w.normed
            }
            None => x,
        };
        if let Some(&map) = all_map {
            gradients.linear(self.e, map, n, &w.dkv, input);
        }
        if let Some(&map) = needed_map {
            let input = self.needed_rows(input, &mut w.normed_rows);
            gradients.linear(self.e, map, m, &w.dq, input);
        }
        if !through {
            return;
        }
        let predicting = self.needed.which == Rows::Predicting;
        if predicting {
            self.e.reserve(&mut w.dx_rows, Holds::Activations, n * d);
            self.e.zero(n * d, &mut w.dx_rows);
            self.e.scatter_add(d, lists, &w.dx, &mut w.dx_rows);
            std::mem::swap(&mut w.dx, &mut w.dx_rows);
        }
        // Without a norm, the derivative through the projections is added to the residual's.
        let (write, to) = match before {
            Some(_) => (Write::Replace, &mut w.dnormed),
            None => (Write::Add, &mut w.dx),
        };
        match all_map {
            Some(&map) => p.linear_backward_input(self.e, map, n, &w.dkv, write, to),
            None if write == Write::Replace => self.e.zero(n * d, to),
            None => {}
        }
        match needed_map {
            Some(&map) if predicting => {
                p.linear_backward_input(self.e, map, m, &w.dq, Write::Replace, &mut w.normed_rows);
                self.e.scatter_add(d, lists, &w.normed_rows, to);
            }
            Some(&map) => p.linear_backward_input(self.e, map, m, &w.dq, Write::Add, to),
            None => {}
        }
        if let Some(norm) = before {
            let (norm, dx) = (p.norm(norm, n), &mut w.dx);
            self.e.rms_norm_backward(norm, gradients.all(), x, &saved.scale, &w.dnormed, dx);
        }
    }

    /// Computes the derivatives of a mixer's projections, in `w.dkv` and `w.dq`, from the derivative of its result in `w.dout` and of its gate in `saved`.
    fn mix_backward(
        &mut self,
        layout: MixerLayout,
        gradients: &mut Gradients<'_, X>,
        saved: &mut SavedMixer<X::Buffer>,
        w: &mut Workspace<X>,
    ) {
        let (n, (norm, heads)) = (self.all.count, self.mixer_norm(layout));
        let SavedMixer { inputs, gate, norm: Normed { raw, scale } } = saved;
        self.e.head_norm_backward(norm, gradients.all(), heads, raw, scale, &mut w.dout);
        self.e.reserve(&mut w.mixed, Holds::Activations, n * layout.sizes.channels());
        self.e.convolve(self.mixer(layout), None, inputs, &mut w.mixed);
        self.e.reserve(&mut w.dkv, Holds::Activations, n * layout.sizes.input_width());
        let (mixer, gradient) = (self.mixer(layout), gradients.all());
        self.e.delta_rule_backward(mixer, gradient, inputs, &w.dout, &mut w.mixed, &mut w.dkv);
        self.e.convolve_backward(self.mixer(layout), gradients.all(), inputs, &mut w.mixed, &mut w.dkv);
        std::mem::swap(&mut w.dq, gate);
    }

    /// Computes the derivatives of attention's projections, in `w.dq` and `w.dkv`.
    fn attend_backward(
        &mut self,
        gradients: &mut Gradients<'_, X>,
        saved: &SavedAttention<X::Buffer>,
        kv: &X::Buffer,
        result: &X::Buffer,
        w: &mut Workspace<X>,
    ) {
        let (q_width, kv_width) = (self.heads.query_width(), self.heads.key_width());
        let SavedAttention { q, q_norm, k_norm, v_norm, lse, gate, .. } = saved;
        let (n, spec) = (self.all.count, self.layer.spec);
        self.e.reserve(&mut w.dq, Holds::Activations, self.needed.count * q_width);
        self.e.reserve(&mut w.dkv, Holds::Activations, self.all.count * kv_width);
        let inputs: AttentionInputs<'_, X::Buffer> =
            AttentionInputs { q, kv, out: result, lse, dout: &w.dout };
        self.e.attention_backward(self.attention(), inputs, &mut w.dq, &mut w.dkv);
        match spec.keys_values {
            KeysValues::Projected => {}
            KeysValues::Lent(slot) => self.e.add(n * kv_width, &w.dlent[slot], &mut w.dkv),
            KeysValues::Borrowed(slot) => self.e.add(n * kv_width, &w.dkv, &mut w.dlent[slot]),
        }
        let [queries, keys] = self.head_rows();
        let [q_weight, k_weight] = self.qk_norms();
        for (rows, norm, heads, Normed { raw, scale }, dx) in [
            (self.needed, q_weight, queries, q_norm, &mut w.dq),
            (self.all, k_weight, keys, k_norm, &mut w.dkv),
        ]
        .into_iter()
        .take(1 + usize::from(spec.computes_keys()))
        {
            if let Some(theta) = self.layer.spec.rope {
                self.e.rotate(Rotation { theta, sign: -1.0 }, heads, self.lists, rows.which, dx);
            }
            if let Some(norm) = norm {
                let (norm, over) = (self.p.norm(norm, heads.rows), self.normed_heads(heads));
                self.e.head_norm_backward(norm, gradients.all(), over, raw, scale, dx);
            }
        }
        if let Some(zeros) = self.v_norm() {
            let (norm, rows) = (Norm { offset: 1.0, ..self.p.norm(zeros, n) }, self.value_rows());
            self.e.head_norm_backward(norm, None, rows, &v_norm.raw, &v_norm.scale, &mut w.dkv);
        }
        if spec.values_from_keys {
            let (width, [keys, values]) = (kv_width / 2, &mut w.columns);
            let [narrow, of_keys, of_values] = strips(width);
            for (columns, from) in [(&mut *keys, of_keys), (&mut *values, of_values)] {
                self.e.reserve(columns, Holds::Activations, n * width);
                self.e.copy_columns(n, width, from, &w.dkv, narrow, columns);
            }
            self.e.add(n * width, values, keys);
            std::mem::swap(&mut w.dkv, keys);
        }
        if spec.output_gate {
            self.e.reserve(&mut w.halves, Holds::Activations, self.needed.count * 2 * q_width);
            self.e.join_heads(queries, &w.dq, gate, &mut w.halves);
            std::mem::swap(&mut w.dq, &mut w.halves);
        }
    }

    /// Returns the derivative of the result of attention or of the MLP before the norm or factor, stored in `to`, or `dx` itself without a norm or factor.
    fn derivative_of_result<'b>(
        &mut self,
        gradients: &mut Gradients<'_, X>,
        norm: Option<Span>,
        Normed { raw, scale }: &Normed<X::Buffer>,
        dx: &'b X::Buffer,
        to: &'b mut X::Buffer,
    ) -> &'b X::Buffer {
        let (m, d) = (self.needed.count, self.hidden);
        if norm.is_none() && self.residual_scale == 1.0 {
            return dx;
        }
        self.e.zero(m * d, to);
        let Some(weight) = norm else {
            self.e.add(m * d, dx, to);
            self.e.scale(m * d, self.residual_scale, to);
            return to;
        };
        self.e.rms_norm_backward(self.p.norm(weight, m), gradients.all(), raw, scale, dx, to);
        to
    }
}
