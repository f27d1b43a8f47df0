//! One layer of attention and MLP: the forward pass, and the backward pass in the opposite order.

use crate::executor::{
    Attention, AttentionInputs, Cache, Executor, Gate, HeadRows, Heads, Holds, Memory, Mixer, Norm, Rotation,
    Strip, Subset,
};
use crate::families::{KeysValues, QkNorm};
use crate::layout::{AttentionLayout, LayerLayout, Linear, MixerLayout, Mixing, PerLayerInput, Span, Write};

use super::workspace::{
    Buffers, Mixed, Normed, RowSet, Saved, SavedAttention, SavedInput, SavedMixer, SavedRows, Workspace,
};
use super::{Decoder, Gradients, Parameters};

/// Saved activations of a layer on an executor.
type SavedOn<X> = Saved<<X as Memory>::Buffer>;

/// Source of the tokens that a layer mixes.
pub(crate) enum KeySource<'a, X: Executor> {
    /// The rows of a batch. Their keys, values and states are also stored in the cache, if given.
    Batch(Option<&'a mut Cache<X::Buffer>>),
    /// The rows of a decoding step and the tokens before them in the cache.
    Step { decoding: &'a X::Decoding, cache: &'a mut Cache<X::Buffer> },
}

/// Returns three column ranges of `width` values: whole rows of that width, and both halves of rows of twice the width.
fn strips(width: usize) -> [Strip; 3] {
    [(1, 0), (2, 0), (2, width)].map(|(times, first)| Strip { stride: times * width, first })
}

/// One pass through a layer.
pub(super) struct LayerPass<'a, X: Executor> {
    pub(super) ops: &'a mut X,
    pub(super) parameters: Parameters<'a, X>,
    pub(super) decoder: &'a Decoder,
    pub(super) layer: &'a LayerLayout,
    /// Index of the layer.
    pub(super) index: usize,
    pub(super) heads: Heads,
    pub(super) lists: &'a X::Lists,
    /// All rows of the pass, for which keys are computed.
    pub(super) all: RowSet,
    /// Rows whose results are needed: all rows, or the predicting rows.
    pub(super) needed: RowSet,
    /// `D`, the width of the residual stream.
    pub(super) hidden: usize,
}

impl<'a, X: Executor> LayerPass<'a, X> {
    fn mixer<M>(&self, layout: M) -> Mixer<'a, X::Weights, X::Lists, M> {
        let (weights, lists, rows) = (self.parameters.weights, self.lists, self.needed.which);
        Mixer { weights, layout, index: self.layer.index_of_kind, lists, rows }
    }

    /// Returns the norm of each head of a mixer's result. No offset is added to its weights.
    fn mixer_norm(&self, MixerLayout { sizes, norm, .. }: MixerLayout) -> (Norm<'a, X::Weights>, HeadRows) {
        let (rows, size) = (self.needed.count, sizes.linear_value_head_dim);
        let (stride, count) = (sizes.value_width(), sizes.linear_num_value_heads);
        (
            Norm { offset: 0.0, ..self.parameters.norm(norm, rows) },
            HeadRows { rows, first: 0, stride, count, size },
        )
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
        keep.raw.reserve(self.ops, rows, heads.count * heads.size);
        keep.scale.reserve_statistics(self.ops, rows, heads.count);
        self.ops.head_norm(norm, heads, x, &mut keep.raw, &mut keep.scale);
    }

    /// Returns the input of attention or of the MLP: the norm of `x`, stored in `to`, or `x` itself without a norm.
    fn norm_before<'b>(
        &mut self,
        norm: Option<Span>,
        rows: RowSet,
        x: &'b X::Buffer,
        scale: &mut SavedRows<X::Buffer>,
        to: &'b mut X::Buffer,
    ) -> &'b X::Buffer {
        let Some(weight) = norm else { return x };
        self.ops.reserve(to, Holds::Activations, rows.count * weight.len);
        scale.reserve_statistics(self.ops, rows, 1);
        self.ops.rms_norm(self.parameters.norm(weight, rows.count), x, to, scale);
        to
    }

    /// Like [`LayerPass::norm_before`], from the scales that it saved.
    fn norm_again<'b>(
        &mut self,
        norm: Option<Span>,
        rows: usize,
        x: &'b X::Buffer,
        scale: &X::Buffer,
        to: &'b mut X::Buffer,
    ) -> &'b X::Buffer {
        let Some(weight) = norm else { return x };
        self.ops.reserve(to, Holds::Activations, rows * weight.len);
        self.ops.rms_norm_again(self.parameters.norm(weight, rows), x, scale, to);
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
            if self.decoder.residual_scale == 1.0 {
                return self.parameters.linear(self.ops, &[linear], rows.count, x, Some(residual), y);
            }
            self.parameters.linear(self.ops, &[linear], rows.count, x, None, y);
            self.ops.scale(rows.count * d, self.decoder.residual_scale, y);
            return self.ops.add(rows.count * d, residual, y);
        };
        keep.raw.reserve(self.ops, rows, d);
        keep.scale.reserve_statistics(self.ops, rows, 1);
        self.parameters.linear(self.ops, &[linear], rows.count, x, None, &mut keep.raw);
        self.ops.rms_norm(self.parameters.norm(norm, rows.count), &keep.raw, y, &mut keep.scale);
        self.ops.add(rows.count * d, residual, y);
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
        self.parameters.linear(self.ops, &[linear], self.needed.count, input, None, y);
    }

    /// Returns the rows of `x` whose results are needed: gathered in `to`, or `x` itself if all rows are needed.
    fn needed_rows<'b>(&mut self, x: &'b X::Buffer, to: &'b mut X::Buffer) -> &'b X::Buffer {
        if self.needed.which == Subset::All {
            return x;
        }
        self.ops.reserve(to, Holds::Activations, self.needed.count * self.hidden);
        self.ops.gather(self.hidden, self.lists, x, to);
        to
    }

    /// Runs the forward pass. Without `output`, it stops once all activations for the backward pass are computed.
    pub(super) fn forward(
        &mut self,
        source: &mut KeySource<'_, X>,
        x: &X::Buffer,
        saved: &mut SavedOn<X>,
        work: &mut Workspace<X>,
        mut output: Option<&mut SavedRows<X::Buffer>>,
    ) {
        let (layer, all, needed) = (self.layer, self.all, self.needed);
        let Saved { scale, mixed, result, attended, middle, .. } = saved;
        let Buffers { normed, normed_rows, qkv, halves, mixed: convolved, gated, lent, .. } = work;
        let input = self.norm_before(layer.attention.before, all, x, scale, normed);
        match (layer.mixing, &mut *source) {
            (Mixing::Attention(layout), KeySource::Batch(cache)) => {
                let (saved, queries) = (mixed.attention(), layout.queries);
                let mut kv = std::mem::take(self.keys_values(&mut saved.kv, lent));
                let keys = self.key_maps(layout);
                if !keys.is_empty() {
                    kv.reserve(self.ops, all, self.heads.key_width());
                    self.parameters.linear(self.ops, &keys, all.count, input, None, &mut kv);
                }
                if layer.spec.output_gate {
                    self.ops.reserve(halves, Holds::Activations, needed.count * queries.outputs);
                    self.linear_of_needed(queries, input, normed_rows, halves);
                } else {
                    saved.q.reserve(self.ops, needed, queries.outputs);
                    self.linear_of_needed(queries, input, normed_rows, &mut saved.q);
                }
                self.attend(cache.as_deref_mut(), saved, &mut kv, result, halves);
                *self.keys_values(&mut saved.kv, lent) = kv;
            }
            (Mixing::Attention(layout), KeySource::Step { decoding, cache }) => {
                let saved = mixed.attention();
                self.step_projections(layout, input, saved, qkv, halves);
                self.step_attention(decoding, cache, qkv, saved, result);
            }
            (Mixing::Recurrent(layout), source) => {
                let saved = mixed.recurrent();
                saved.inputs.reserve(self.ops, all, layout.inputs.outputs);
                self.parameters.linear(self.ops, &[layout.inputs], all.count, input, None, &mut saved.inputs);
                saved.gate.reserve(self.ops, needed, layout.gate.outputs);
                self.linear_of_needed(layout.gate, input, normed_rows, &mut saved.gate);
                self.mix(layout, source, saved, result, convolved);
            }
            (Mixing::Convolution(layout), source) => {
                let inputs = &mut mixed.recurrent().inputs;
                inputs.reserve(self.ops, all, layout.inputs.outputs);
                self.parameters.linear(self.ops, &[layout.inputs], all.count, input, None, inputs);
                result.reserve(self.ops, needed, layout.sizes.width);
                let mixer = self.mixer(layout);
                match source {
                    KeySource::Batch(cache) => {
                        self.ops.short_convolution(mixer, cache.as_deref_mut(), inputs, result);
                    }
                    KeySource::Step { decoding, cache } => {
                        self.ops.step_convolution(mixer, decoding, cache, inputs, result);
                    }
                }
            }
        }
        let residual = self.needed_rows(x, normed_rows);
        let result = self.times_gate(mixed.gate(), result, gated);
        middle.reserve(self.ops, needed, self.hidden);
        self.add_to_residual(layer.output, layer.attention.after, result, residual, attended, middle);
        let Some(added) = layer.per_layer_input else {
            self.mlp(saved, &mut work.normed_rows, &mut work.act, output.as_deref_mut());
            return self.times_scalar(output);
        };
        let mut sum = std::mem::take(&mut saved.added.sum);
        self.mlp(saved, &mut work.normed_rows, &mut work.act, Some(&mut sum));
        saved.added.sum = sum;
        // Without an output, only the values that the norm saves are needed.
        let mut scratch = SavedRows::default();
        std::mem::swap(&mut *scratch, &mut work.normed_rows);
        let to = match output.as_deref_mut() {
            Some(output) => output,
            None => &mut scratch,
        };
        to.reserve(self.ops, needed, self.hidden);
        self.add_input(added, &mut saved.added, work, to);
        std::mem::swap(&mut *scratch, &mut work.normed_rows);
        self.times_scalar(output);
    }

    /// Multiplies the layer's result by its scalar, if the layer has one.
    fn times_scalar(&mut self, output: Option<&mut SavedRows<X::Buffer>>) {
        if let (Some(scalar), Some(output)) = (self.layer.scalar, output) {
            self.ops.scale_by(self.parameters.weights, scalar, self.needed.count * self.hidden, output);
        }
    }

    /// Returns the columns of this layer in the rows of the per-layer inputs.
    fn input_strip(&self, PerLayerInput { gate, .. }: PerLayerInput) -> Strip {
        let stride = gate.outputs * self.decoder.layout.layers.len();
        Strip { stride, first: self.index * gate.outputs }
    }

    /// Adds the layer's input after the MLP: `y = sum + norm(projection(activation(gate(sum)) * input))`.
    fn add_input(
        &mut self,
        added: PerLayerInput,
        saved: &mut SavedInput<X::Buffer>,
        work: &mut Workspace<X>,
        y: &mut X::Buffer,
    ) {
        let (n, m, width) = (self.all.count, self.needed.count, added.gate.outputs);
        let [narrow, gate, up] = strips(width);
        let Buffers { layer_inputs, columns: [columns, gathered], act, .. } = work;
        let SavedInput { sum, gate_up, norm } = saved;
        gate_up.reserve(self.ops, self.needed, 2 * width);
        self.ops.reserve(columns, Holds::Activations, n * width);
        self.parameters.linear(self.ops, &[added.gate], m, sum, None, columns);
        self.ops.copy_columns(m, width, narrow, columns, gate, gate_up);
        self.ops.copy_columns(n, width, self.input_strip(added), layer_inputs, narrow, columns);
        let input = if self.needed.which == Subset::All {
            &*columns
        } else {
            self.ops.reserve(gathered, Holds::Activations, m * width);
            self.ops.gather(width, self.lists, columns, gathered);
            &*gathered
        };
        self.ops.copy_columns(m, width, narrow, input, up, gate_up);
        self.ops.reserve(act, Holds::Activations, m * width);
        self.ops.gated(self.layer.spec.activation, m, width, gate_up, act);
        self.add_to_residual(added.projection, Some(added.norm), act, sum, norm, y);
    }

    /// Runs the backward pass of [`LayerPass::add_input`]: replaces `work.dx` by the derivative with respect to `sum`.
    fn add_input_backward(
        &mut self,
        added: PerLayerInput,
        gradients: &mut Gradients<'_, X>,
        saved: &mut SavedInput<X::Buffer>,
        work: &mut Workspace<X>,
    ) {
        let (parameters, n, m, width) =
            (self.parameters, self.all.count, self.needed.count, added.gate.outputs);
        let [narrow, gate, up] = strips(width);
        let Buffers { dx, dnormed, act, columns: [columns, scattered], dlayer_inputs, .. } = work;
        let SavedInput { sum, gate_up, norm } = saved;
        self.ops.reserve(act, Holds::Activations, m * width);
        let dy = self.derivative_of_result(gradients, Some(added.norm), norm, dx, dnormed);
        parameters.linear_backward_input(self.ops, added.projection, m, dy, Write::Replace, act);
        self.ops.gated_backward(self.layer.spec.activation, m, width, gate_up, act);
        gradients.linear(self.ops, added.projection, m, dy, act);
        self.ops.reserve(columns, Holds::Activations, n * width);
        self.ops.copy_columns(m, width, gate, gate_up, narrow, columns);
        gradients.linear(self.ops, added.gate, m, columns, sum);
        parameters.linear_backward_input(self.ops, added.gate, m, columns, Write::Add, dx);
        if gradients.all().is_none() {
            return;
        }
        self.ops.copy_columns(m, width, up, gate_up, narrow, columns);
        let of_all = if self.needed.which == Subset::All {
            &*columns
        } else {
            self.ops.reserve(scattered, Holds::Activations, n * width);
            self.ops.zero(n * width, scattered);
            self.ops.scatter_add(width, self.lists, columns, scattered);
            &*scattered
        };
        self.ops.copy_columns(n, width, narrow, of_all, self.input_strip(added), dlayer_inputs);
    }

    /// Returns the keys and values of the layer in a pass: the layer's own, or the ones that layers share.
    fn keys_values<'b>(
        &self,
        own: &'b mut SavedRows<X::Buffer>,
        lent: &'b mut [SavedRows<X::Buffer>; 2],
    ) -> &'b mut SavedRows<X::Buffer> {
        match self.layer.spec.keys_values {
            KeysValues::Projected => own,
            KeysValues::Lent(slot) | KeysValues::Borrowed(slot) => &mut lent[slot],
        }
    }

    /// Returns the maps to keys and values: none if they are borrowed, and the map to keys twice if values are computed from keys.
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
        let len = self.needed.count * self.layer.output.inputs;
        self.ops.reserve(to, Holds::Activations, len);
        self.ops.gate(kind, len, gate, result, to);
        to
    }

    /// Returns the function of the layer's output gate, or `None` without a gate.
    fn gate(&self) -> Option<Gate> {
        match self.layer.mixing {
            Mixing::Attention(_) => self.layer.spec.output_gate.then_some(Gate::Sigmoid),
            Mixing::Recurrent(_) => Some(Gate::Silu),
            Mixing::Convolution(_) => None,
        }
    }

    /// Computes the part of a recurrent mixer that follows its projections and precedes its gate.
    fn mix(
        &mut self,
        layout: MixerLayout,
        source: &mut KeySource<'_, X>,
        saved: &mut SavedMixer<X::Buffer>,
        result: &mut SavedRows<X::Buffer>,
        convolved: &mut X::Buffer,
    ) {
        self.ops.reserve(convolved, Holds::Activations, self.all.count * layout.sizes.channels());
        result.reserve(self.ops, self.needed, layout.sizes.value_width());
        let (mixer, inputs) = (self.mixer(layout), &saved.inputs);
        match source {
            KeySource::Batch(cache) => {
                self.ops.convolve(mixer, cache.as_deref_mut(), inputs, convolved);
                self.ops.delta_rule(self.mixer(layout), cache.as_deref_mut(), inputs, convolved, result);
            }
            KeySource::Step { decoding, cache } => {
                self.ops.step_mixer(mixer, decoding, cache, inputs, convolved, result);
            }
        }
        let (norm, heads) = self.mixer_norm(layout);
        self.norm_heads(norm, self.needed, heads, result, &mut saved.norm);
    }

    /// Computes attention between its projections and its gate. With an output gate, `halves` holds queries and gates.
    fn attend(
        &mut self,
        cache: Option<&mut Cache<X::Buffer>>,
        saved: &mut SavedAttention<X::Buffer>,
        kv: &mut SavedRows<X::Buffer>,
        result: &mut SavedRows<X::Buffer>,
        halves: &X::Buffer,
    ) {
        let (q_width, all, needed) = (self.heads.query_width(), self.all, self.needed);
        let [queries, keys] = self.head_rows();
        let SavedAttention { q, q_norm, k_norm, v_norm, lse, gate, .. } = saved;
        let computes_keys = self.layer.spec.computes_keys();
        if self.layer.spec.output_gate {
            q.reserve(self.ops, needed, q_width);
            gate.reserve(self.ops, needed, q_width);
            self.ops.split_heads(HeadRows { stride: 2 * q_width, ..queries }, halves, q, gate);
        }
        let [q_weight, k_weight] = self.qk_norms();
        for (rows, weight, heads, x, keep) in
            [(needed, q_weight, queries, &mut *q, q_norm), (all, k_weight, keys, &mut *kv, k_norm)]
                .into_iter()
                .take(1 + usize::from(computes_keys))
        {
            if let Some(weight) = weight {
                let norm = self.parameters.norm(weight, heads.rows);
                self.norm_heads(norm, rows, self.normed_heads(heads), x, keep);
            }
            if let Some(theta) = self.layer.spec.rope {
                self.ops.rotate(Rotation { theta, sign: 1.0 }, heads, self.lists, rows.which, x);
            }
        }
        if let Some(zeros) = self.v_norm() {
            let norm = Norm { offset: 1.0, ..self.parameters.norm(zeros, all.count) };
            self.norm_heads(norm, all, self.value_rows(), kv, v_norm);
        }
        result.reserve(self.ops, needed, q_width);
        lse.reserve_statistics(self.ops, needed, self.heads.queries);
        if let Some(cache) = cache.filter(|_| computes_keys) {
            self.ops.store_cache(self.heads, cache, self.layer.index_of_kind, self.lists, kv);
        }
        self.ops.attention(self.attention(), q, kv, result, lse);
    }

    pub(super) fn qk_norms(&self) -> [Option<Span>; 2] {
        match self.layer.mixing {
            Mixing::Attention(AttentionLayout { q_norm, k_norm, .. }) => [q_norm, k_norm],
            Mixing::Recurrent(_) | Mixing::Convolution(_) => [None; 2],
        }
    }

    /// Returns the zeros for the norm of values, or `None` if the layer doesn't compute normalised values.
    pub(super) fn v_norm(&self) -> Option<Span> {
        match self.layer.mixing {
            Mixing::Attention(AttentionLayout { keys_values: Some(_), v_norm, .. }) => v_norm,
            _ => None,
        }
    }

    /// Returns the layout of the rows of values, which follow the keys.
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
        output: Option<&mut SavedRows<X::Buffer>>,
    ) {
        let (layer, needed, m) = (self.layer, self.needed, self.needed.count);
        let f = layer.spec.intermediate;
        let Saved { middle, mlp_scale, gate_up, transformed, .. } = saved;
        let input = self.norm_before(layer.mlp.before, needed, middle, mlp_scale, normed);
        gate_up.reserve(self.ops, needed, 2 * f);
        self.parameters.linear(self.ops, &[layer.gate_up], m, input, None, gate_up);
        if output.is_none() && layer.mlp.after.is_none() {
            return;
        }
        self.ops.reserve(act, Holds::Activations, m * f);
        self.ops.gated(layer.spec.activation, m, f, gate_up, act);
        let to = match output {
            Some(output) => {
                output.reserve(self.ops, needed, self.hidden);
                output
            }
            // Only the norm's scales are needed, not the output.
            None => {
                self.ops.reserve(normed, Holds::Activations, m * self.hidden);
                normed
            }
        };
        self.add_to_residual(layer.down, layer.mlp.after, act, middle, transformed, to);
    }

    /// Runs the backward pass: replaces `work.dx`, the derivative of the layer's output, by the derivative of the layer's input, which is only computed if
    /// `through`.
    pub(super) fn backward(
        &mut self,
        gradients: &mut Gradients<'_, X>,
        through: bool,
        x: &X::Buffer,
        saved: &mut SavedOn<X>,
        work: &mut Workspace<X>,
    ) {
        let (parameters, layer, lists, n, m) =
            (self.parameters, self.layer, self.lists, self.all.count, self.needed.count);
        let (d, f, width) = (self.hidden, layer.spec.intermediate, layer.output.inputs);
        self.ops.reserve(&mut work.dnormed, Holds::Activations, n * d);
        if let Some(scalar) = layer.scalar {
            self.ops.scale_by(parameters.weights, scalar, m * d, &mut work.dx);
        }
        if let Some(added) = layer.per_layer_input {
            self.add_input_backward(added, gradients, &mut saved.added, work);
        }
        // The MLP.
        self.ops.reserve(&mut work.act, Holds::Activations, m * f);
        let after = layer.mlp.after;
        let dy = self.derivative_of_result(gradients, after, &saved.transformed, &work.dx, &mut work.dnormed);
        parameters.linear_backward_input(self.ops, layer.down, m, dy, Write::Replace, &mut work.act);
        self.ops.gated_backward(layer.spec.activation, m, f, &mut saved.gate_up, &mut work.act);
        gradients.linear(self.ops, layer.down, m, dy, &work.act);
        let Saved { middle, mlp_scale, gate_up, .. } = &*saved;
        let before = layer.mlp.before;
        let input = self.norm_again(before, m, middle, mlp_scale, &mut work.normed_rows);
        gradients.linear(self.ops, layer.gate_up, m, gate_up, input);
        // Without a norm, the derivative through the projections is added to the residual's.
        let (write, to) = match before {
            Some(_) => (Write::Replace, &mut work.dnormed),
            None => (Write::Add, &mut work.dx),
        };
        parameters.linear_backward_input(self.ops, layer.gate_up, m, gate_up, write, to);
        if let Some(norm) = before {
            let (norm, dy, dx) = (parameters.norm(norm, m), &work.dnormed, &mut work.dx);
            self.ops.rms_norm_backward(norm, gradients.all(), middle, mlp_scale, dy, dx);
        }

        // Attention, or the mixer.
        self.ops.reserve(&mut work.dout, Holds::Activations, m * width);
        let after = layer.attention.after;
        let dy = self.derivative_of_result(gradients, after, &saved.attended, &work.dx, &mut work.dnormed);
        parameters.linear_backward_input(self.ops, layer.output, m, dy, Write::Replace, &mut work.dout);
        match self.gate() {
            None => gradients.linear(self.ops, layer.output, m, dy, &saved.result),
            Some(kind) => {
                self.ops.reserve(&mut work.gated, Holds::Activations, m * width);
                let (gate, result) = (saved.mixed.gate(), &saved.result);
                self.ops.gate_backward(kind, m * width, gate, result, &mut work.dout, &mut work.gated);
                gradients.linear(self.ops, layer.output, m, dy, &work.gated);
            }
        }
        match (&mut saved.mixed, layer.mixing) {
            (Mixed::Recurrent(saved), Mixing::Recurrent(mixer)) => {
                self.mix_backward(mixer, gradients, saved, work);
            }
            (Mixed::Recurrent(saved), Mixing::Convolution(layout)) => {
                self.ops.reserve(&mut work.dkv, Holds::Activations, n * layout.inputs.outputs);
                let (mixer, gradient) = (self.mixer(layout), gradients.all());
                let (inputs, dout, dx) = (&saved.inputs, &work.dout, &mut work.dkv);
                self.ops.short_convolution_backward(mixer, gradient, inputs, dout, dx);
            }
            (Mixed::Attention(saved_attention), Mixing::Attention(_)) => {
                let kv = std::mem::take(self.keys_values(&mut saved_attention.kv, &mut work.lent));
                self.attend_backward(gradients, saved_attention, &kv, &saved.result, work);
                *self.keys_values(&mut saved_attention.kv, &mut work.lent) = kv;
            }
            _ => unreachable!("the forward pass has saved the activations of this kind of layer"),
        }
        let before = layer.attention.before;
        let (needed_map, all_map) = layer.input_maps();
        let input = self.norm_again(before, n, x, &saved.scale, &mut work.normed);
        if let Some(&map) = all_map {
            gradients.linear(self.ops, map, n, &work.dkv, input);
        }
        if let Some(&map) = needed_map {
            let input = self.needed_rows(input, &mut work.normed_rows);
            gradients.linear(self.ops, map, m, &work.dq, input);
        }
        if !through {
            return;
        }
        let predicting = self.needed.which == Subset::Predicting;
        if predicting {
            self.ops.reserve(&mut work.dx_rows, Holds::Activations, n * d);
            self.ops.zero(n * d, &mut work.dx_rows);
            self.ops.scatter_add(d, lists, &work.dx, &mut work.dx_rows);
            std::mem::swap(&mut work.dx, &mut work.dx_rows);
        }
        let (write, to) = match before {
            Some(_) => (Write::Replace, &mut work.dnormed),
            None => (Write::Add, &mut work.dx),
        };
        match all_map {
            Some(&map) => parameters.linear_backward_input(self.ops, map, n, &work.dkv, write, to),
            None if write == Write::Replace => self.ops.zero(n * d, to),
            None => {}
        }
        match needed_map {
            Some(&map) if predicting => {
                let (dq, rows) = (&work.dq, &mut work.normed_rows);
                parameters.linear_backward_input(self.ops, map, m, dq, Write::Replace, rows);
                self.ops.scatter_add(d, lists, &work.normed_rows, to);
            }
            Some(&map) => parameters.linear_backward_input(self.ops, map, m, &work.dq, Write::Add, to),
            None => {}
        }
        if let Some(norm) = before {
            let (norm, dx) = (parameters.norm(norm, n), &mut work.dx);
            self.ops.rms_norm_backward(norm, gradients.all(), x, &saved.scale, &work.dnormed, dx);
        }
    }

    /// Computes the derivatives of a mixer's projections, in `work.dkv` and `work.dq`, given `work.dout` and `saved`.
    fn mix_backward(
        &mut self,
        layout: MixerLayout,
        gradients: &mut Gradients<'_, X>,
        saved: &mut SavedMixer<X::Buffer>,
        work: &mut Workspace<X>,
    ) {
        let (n, (norm, heads)) = (self.all.count, self.mixer_norm(layout));
        let SavedMixer { inputs, gate, norm: Normed { raw, scale } } = saved;
        self.ops.head_norm_backward(norm, gradients.all(), heads, raw, scale, &mut work.dout);
        self.ops.reserve(&mut work.mixed, Holds::Activations, n * layout.sizes.channels());
        self.ops.convolve(self.mixer(layout), None, inputs, &mut work.mixed);
        self.ops.reserve(&mut work.dkv, Holds::Activations, n * layout.sizes.input_width());
        let (mixer, gradient) = (self.mixer(layout), gradients.all());
        self.ops.delta_rule_backward(mixer, gradient, inputs, &work.dout, &mut work.mixed, &mut work.dkv);
        let (mixer, gradient) = (self.mixer(layout), gradients.all());
        self.ops.convolve_backward(mixer, gradient, inputs, &mut work.mixed, &mut work.dkv);
        std::mem::swap(&mut work.dq, gate);
    }

    /// Computes the derivatives with respect to projected queries (`work.dq`), and keys and values (`work.dkv`).
    fn attend_backward(
        &mut self,
        gradients: &mut Gradients<'_, X>,
        saved: &SavedAttention<X::Buffer>,
        kv: &X::Buffer,
        result: &X::Buffer,
        work: &mut Workspace<X>,
    ) {
        let (q_width, kv_width) = (self.heads.query_width(), self.heads.key_width());
        let SavedAttention { q, q_norm, k_norm, v_norm, lse, gate, .. } = saved;
        let (n, spec) = (self.all.count, self.layer.spec);
        self.ops.reserve(&mut work.dq, Holds::Activations, self.needed.count * q_width);
        self.ops.reserve(&mut work.dkv, Holds::Activations, self.all.count * kv_width);
        let inputs: AttentionInputs<'_, X::Buffer> =
            AttentionInputs { q, kv, out: result, lse, dout: &work.dout };
        self.ops.attention_backward(self.attention(), inputs, &mut work.dq, &mut work.dkv);
        match spec.keys_values {
            KeysValues::Projected => {}
            KeysValues::Lent(slot) => self.ops.add(n * kv_width, &work.dlent[slot], &mut work.dkv),
            KeysValues::Borrowed(slot) => self.ops.add(n * kv_width, &work.dkv, &mut work.dlent[slot]),
        }
        let [queries, keys] = self.head_rows();
        let [q_weight, k_weight] = self.qk_norms();
        for (rows, norm, heads, Normed { raw, scale }, dx) in [
            (self.needed, q_weight, queries, q_norm, &mut work.dq),
            (self.all, k_weight, keys, k_norm, &mut work.dkv),
        ]
        .into_iter()
        .take(1 + usize::from(spec.computes_keys()))
        {
            if let Some(theta) = self.layer.spec.rope {
                self.ops.rotate(Rotation { theta, sign: -1.0 }, heads, self.lists, rows.which, dx);
            }
            if let Some(norm) = norm {
                let (norm, heads) = (self.parameters.norm(norm, heads.rows), self.normed_heads(heads));
                self.ops.head_norm_backward(norm, gradients.all(), heads, raw, scale, dx);
            }
        }
        if let Some(zeros) = self.v_norm() {
            let (norm, rows) = (Norm { offset: 1.0, ..self.parameters.norm(zeros, n) }, self.value_rows());
            self.ops.head_norm_backward(norm, None, rows, &v_norm.raw, &v_norm.scale, &mut work.dkv);
        }
        if spec.values_from_keys {
            let (width, [keys, values]) = (kv_width / 2, &mut work.columns);
            let [narrow, of_keys, of_values] = strips(width);
            for (columns, from) in [(&mut *keys, of_keys), (&mut *values, of_values)] {
                self.ops.reserve(columns, Holds::Activations, n * width);
                self.ops.copy_columns(n, width, from, &work.dkv, narrow, columns);
            }
            self.ops.add(n * width, values, keys);
            std::mem::swap(&mut work.dkv, keys);
        }
        if spec.output_gate {
            self.ops.reserve(&mut work.halves, Holds::Activations, self.needed.count * 2 * q_width);
            self.ops.join_heads(queries, &work.dq, gate, &mut work.halves);
            std::mem::swap(&mut work.dq, &mut work.halves);
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
        if norm.is_none() && self.decoder.residual_scale == 1.0 {
            return dx;
        }
        self.ops.zero(m * d, to);
        let Some(weight) = norm else {
            self.ops.add(m * d, dx, to);
            self.ops.scale(m * d, self.decoder.residual_scale, to);
            return to;
        };
        self.ops.rms_norm_backward(self.parameters.norm(weight, m), gradients.all(), raw, scale, dx, to);
        to
    }
}
