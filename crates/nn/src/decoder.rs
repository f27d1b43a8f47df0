//! The decoder: embedding, layers of attention or a recurrent mixer and an MLP, and the vocabulary head; forward and backward passes.
//!
//! The structure of a layer is data (`families.rs`). Each backward function is below its forward function, takes the values that it saved, and runs in
//! the opposite order. Normalised inputs and MLP activations are recomputed instead of saved, which is cheap and halves the memory.
//!
//! The last layer computes keys and values for all rows, but everything else only for the rows that predict. With long prompts this saves most of a layer.

mod layer;
mod memory;
mod step;
mod workspace;

use std::f32::consts::FRAC_1_SQRT_2;

use crate::config::Config;
use crate::error::Error;
use crate::executor::{
    Executor, Head, HeadInputs, HeadPass, HeadRows, Heads, Holds, LowRank, Norm, Phase, Place, Subset,
};
use crate::families::KeysValues;
use crate::layout::{LayerLayout, Layout, Linear, PerLayerInputs, Span, Write};
use crate::lora::{Adapted, AdapterLayout};
use crate::quantized::BaseFormat;
use crate::segments::Chunk;

pub(crate) use layer::KeySource;
pub(crate) use memory::PassMemory;
pub(crate) use workspace::{RemainingRows, Workspace};

use layer::LayerPass;
use workspace::{Buffers, Normed, RowSet, Saved, SavedRows};

/// Activations that the forward pass stores for the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Nothing, because no backward pass follows.
    Nothing,
    /// The input of each layer. The backward pass recomputes the other activations, one layer at a time.
    Inputs,
    /// All activations.
    Everything,
}

/// Parameters of a pass.
pub(crate) struct Parameters<'a, X: Executor> {
    pub(crate) weights: &'a X::Weights,
    /// LoRA's factors, if they are applied separately from the weights.
    factors: Option<(&'a X::Weights, &'a AdapterLayout)>,
    eps: f32,
    offset: f32,
}

impl<X: Executor> Clone for Parameters<'_, X> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<X: Executor> Copy for Parameters<'_, X> {}

impl<'a, X: Executor> Parameters<'a, X> {
    fn norm(self, weight: Span, rows: usize) -> Norm<'a, X::Weights> {
        Norm { weights: self.weights, weight, offset: self.offset, eps: self.eps, rows }
    }

    /// Applies linear maps with their LoRA updates to the same rows, and concatenates their results: `y = x Wᵀ + scale · (x Aᵀ) Bᵀ + b`, plus `onto`
    /// if given.
    fn linear(
        self,
        ops: &mut X,
        linears: &[Linear],
        rows: usize,
        x: &X::Buffer,
        onto: Option<&X::Buffer>,
        y: &mut X::Buffer,
    ) {
        ops.linear(self.weights, linears, rows, x, onto, y);
        let Some((factors, layout)) = self.factors else { return };
        let (stride, mut before) = (linears.iter().map(|linear| linear.outputs).sum(), 0);
        for linear in linears {
            for adapted in layout.of(linear) {
                let adapted = Adapted { stride, first: before + adapted.first, ..*adapted };
                ops.low_rank(LowRank { factors, adapted, scale: layout.scale, rows }, x, y);
            }
            before += linear.outputs;
        }
    }

    /// Computes `dx = dy W + scale · (dy B) A`, or `dx += ...`, depending on `write`.
    fn linear_backward_input(
        self,
        ops: &mut X,
        linear: Linear,
        rows: usize,
        dy: &X::Buffer,
        write: Write,
        dx: &mut X::Buffer,
    ) {
        ops.linear_backward_input(self.weights, linear, rows, dy, write, dx);
        if let Some((factors, layout)) = self.factors {
            for &adapted in layout.of(&linear) {
                ops.low_rank_backward_input(LowRank { factors, adapted, scale: layout.scale, rows }, dy, dx);
            }
        }
    }
}

/// The destination of a backward pass.
pub(crate) enum Gradients<'a, X: Executor> {
    /// The gradient of all parameters.
    All(&'a mut X::Gradient),
    /// The gradient of LoRA's factors; everything else is frozen.
    Adapters { gradient: &'a mut X::Gradient, factors: &'a X::Weights, layout: &'a AdapterLayout },
}

impl<X: Executor> Gradients<'_, X> {
    /// Returns the gradient of all parameters, or `None` if only adapters are trained.
    fn all(&mut self) -> Option<&mut X::Gradient> {
        match self {
            Gradients::All(gradient) => Some(gradient),
            Gradients::Adapters { .. } => None,
        }
    }

    /// Adds the gradient of a linear map's parameters.
    fn linear(&mut self, ops: &mut X, linear: Linear, rows: usize, dy: &X::Buffer, x: &X::Buffer) {
        match self {
            Gradients::All(gradient) => ops.linear_backward_weight(gradient, linear, rows, dy, x),
            Gradients::Adapters { gradient, factors, layout } => {
                for &adapted in layout.of(&linear) {
                    let update = LowRank { factors: *factors, adapted, scale: layout.scale, rows };
                    ops.low_rank_backward(update, gradient, dy, x);
                }
            }
        }
    }
}

/// The decoder's sizes and the layout of its parameters.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    pub(crate) config: Config,
    pub(crate) layout: Layout,
    /// Whether layer checks are enabled, for debugging.
    pub(crate) check_layers: bool,
    embedding_scale: f32,
    /// Factor of the results of attention and of the MLP. It is 1 if a norm follows them.
    residual_scale: f32,
    /// Factor of the logits.
    logits_scale: f32,
}

/// A batch or a decoding step whose lists are on the device, with the parameters to apply.
pub(crate) struct Pass<'a, X: Executor> {
    pub(crate) parameters: Parameters<'a, X>,
    pub(crate) lists: &'a X::Lists,
    pub(crate) rows: usize,
    pub(crate) predicting: usize,
    pub(crate) picks: usize,
    pub(crate) keep: Keep,
}

impl<'a, X: Executor> Pass<'a, X> {
    pub(crate) fn new(
        parameters: Parameters<'a, X>,
        chunk: &Chunk,
        lists: &'a X::Lists,
        keep: Keep,
    ) -> Pass<'a, X> {
        let (rows, predicting) = (chunk.tokens.len(), chunk.predicting.rows.len());
        Pass { parameters, lists, rows, predicting, picks: chunk.picks.len(), keep }
    }

    /// Returns the pass of a decoding step, all of whose rows predict.
    pub(crate) fn of_step(parameters: Parameters<'a, X>, decoding: &'a X::Decoding) -> Pass<'a, X> {
        let (lists, rows) = (X::step_lists(decoding), X::step_rows(decoding));
        Pass { parameters, lists, rows, predicting: rows, picks: 0, keep: Keep::Nothing }
    }

    fn all(&self) -> RowSet {
        RowSet { which: Subset::All, count: self.rows }
    }

    fn predicting(&self) -> RowSet {
        RowSet { which: Subset::Predicting, count: self.predicting }
    }

    /// Returns the part of the pass outside of the layers, which layer checks report in errors.
    fn place(&self, phase: Phase) -> Place {
        Place { phase, layer: None, rows: self.rows, needed: self.predicting }
    }
}

/// Log-probability and entropy of each [`Pick`](crate::segments::Pick) of a pass, or a loss's derivatives.
#[derive(Default)]
pub(crate) struct PickScores {
    pub(crate) logp: Vec<f32>,
    pub(crate) entropy: Vec<f32>,
}

impl PickScores {
    /// Sets all values to 0, for `picks` requested log-probabilities.
    pub(crate) fn reset(&mut self, picks: usize) {
        for list in [&mut self.logp, &mut self.entropy] {
            list.clear();
            list.resize(picks, 0.0);
        }
    }
}

impl Decoder {
    pub(crate) fn new(config: &Config, base: Option<BaseFormat>) -> Decoder {
        Decoder {
            config: config.clone(),
            layout: Layout::new(config, base),
            check_layers: false,
            embedding_scale: (config.architecture.family().embedding_scale)(config),
            residual_scale: config.multipliers.map_or(1.0, |m| m.residual_multiplier as f32),
            logits_scale: config.multipliers.map_or(1.0, |m| 1.0 / m.logits_scaling as f32),
        }
    }

    /// Returns the parameters of a pass. `factors` are applied separately from the weights.
    pub(crate) fn parameters<'a, X: Executor>(
        &self,
        weights: &'a X::Weights,
        factors: Option<(&'a X::Weights, &'a AdapterLayout)>,
    ) -> Parameters<'a, X> {
        let offset = self.config.architecture.family().norm_offset;
        Parameters { weights, factors, eps: self.config.rms_norm_eps as f32, offset }
    }

    /// Returns the layout that names tensors in layer checks, or `None` if layer checks are disabled.
    pub(crate) fn checked_layout(&self) -> Option<&Layout> {
        self.check_layers.then_some(&self.layout)
    }

    pub(crate) fn head(&self) -> Head {
        let Config { vocab_size: vocabulary, hidden_size: width, gemma4, .. } = self.config;
        let softcap = gemma4.and_then(|gemma4| Some(gemma4.final_logit_softcapping? as f32));
        Head { weight: self.layout.head, vocabulary, width, softcap }
    }

    /// Runs the forward pass up to `work.hidden`: the final norm's output for predicting rows, times `logits_scale`.
    pub(crate) fn forward<X: Executor>(
        &self,
        ops: &mut X,
        pass: &Pass<'_, X>,
        mut keys: KeySource<'_, X>,
        work: &mut Workspace<X>,
    ) {
        let layers = self.layout.layers.len();
        let phase = match keys {
            KeySource::Batch(None) => Phase::Forward,
            KeySource::Batch(Some(_)) => Phase::Prompts,
            KeySource::Step { .. } => Phase::Decoding,
        };
        work.inputs.resize_with(layers + 1, Default::default);
        work.saved.resize_with(layers, Default::default);
        let (all, needed, d) = (pass.all(), pass.predicting(), self.config.hidden_size);
        ops.enter(pass.place(phase));
        work.inputs[0].reserve(ops, all, d);
        ops.embed(pass.parameters.weights, self.layout.embedding, d, pass.lists, &mut work.inputs[0]);
        if self.embedding_scale != 1.0 {
            ops.scale(all.count * d, self.embedding_scale, &mut work.inputs[0]);
        }
        if let Some(inputs) = self.layout.per_layer_inputs {
            self.per_layer_inputs(&mut *ops, pass, inputs, work);
        }
        for index in 0..layers {
            let mut layer = self.layer_pass(index, phase, &mut *ops, pass);
            self.through(index, pass.keep, work, |input, saved, work, output| {
                layer.forward(&mut keys, input, saved, work, Some(output));
            });
        }
        let last = if pass.keep == Keep::Nothing { layers % 2 } else { layers };
        ops.enter(pass.place(phase));
        work.hidden.reserve(ops, needed, d);
        work.hidden_scale.reserve_statistics(ops, needed, 1);
        let norm = pass.parameters.norm(self.layout.norm, needed.count);
        ops.rms_norm(norm, &work.inputs[last], &mut work.hidden, &mut work.hidden_scale);
        if self.logits_scale != 1.0 {
            ops.scale(needed.count * d, self.logits_scale, &mut work.hidden);
        }
    }

    /// Returns the index into [`Buffers::saved`] for a layer: `layer` if everything is kept, otherwise the first layer of the same kind.
    fn saved_index(&self, layer: usize, keep: Keep) -> usize {
        let layers = &self.layout.layers;
        let same_kind =
            |other: &LayerLayout| other.spec.mixer.is_some() == layers[layer].spec.mixer.is_some();
        if keep == Keep::Everything { layer } else { layers.iter().position(same_kind).unwrap_or(layer) }
    }

    /// Calls `run` with a layer's input, saved activations and output, which are taken out of the workspace meanwhile.
    fn through<B: Default>(
        &self,
        layer: usize,
        keep: Keep,
        work: &mut Buffers<B>,
        run: impl FnOnce(&B, &mut Saved<B>, &mut Buffers<B>, &mut SavedRows<B>),
    ) {
        let (from, to) =
            if keep == Keep::Nothing { (layer % 2, (layer + 1) % 2) } else { (layer, layer + 1) };
        let index = self.saved_index(layer, keep);
        let input = std::mem::take(&mut work.inputs[from]);
        let mut output = std::mem::take(&mut work.inputs[to]);
        let mut saved = std::mem::take(&mut work.saved[index]);
        run(&input, &mut saved, work, &mut output);
        work.inputs[from] = input;
        work.inputs[to] = output;
        work.saved[index] = saved;
    }

    /// Computes the inputs of all layers from the tokens and from the scaled embedding.
    fn per_layer_inputs<X: Executor>(
        &self,
        ops: &mut X,
        pass: &Pass<'_, X>,
        PerLayerInputs { size, table, projection, norm }: PerLayerInputs,
        work: &mut Workspace<X>,
    ) {
        let (all, width, parameters) = (pass.all(), projection.outputs, pass.parameters);
        let Buffers { inputs, layer_inputs, layer_inputs_norm: Normed { raw, scale }, act, .. } = work;
        layer_inputs.reserve(ops, all, width);
        parameters.linear(ops, &[projection], all.count, &inputs[0], None, layer_inputs);
        ops.scale(all.count * width, 1.0 / (self.config.hidden_size as f32).sqrt(), layer_inputs);
        raw.reserve(ops, all, width);
        scale.reserve_statistics(ops, all, width / size);
        let heads = HeadRows { rows: all.count, first: 0, stride: width, count: width / size, size };
        ops.head_norm(parameters.norm(norm, all.count), heads, layer_inputs, raw, scale);
        ops.reserve(act, Holds::Activations, all.count * width);
        ops.embed(parameters.weights, table, width, pass.lists, act);
        ops.scale(all.count * width, (size as f32).sqrt(), act);
        ops.add(all.count * width, act, layer_inputs);
        ops.scale(all.count * width, FRAC_1_SQRT_2, layer_inputs);
    }

    /// Adds the gradient of the parameters of [`Decoder::per_layer_inputs`], and the derivative of the scaled embedding.
    fn per_layer_inputs_backward<X: Executor>(
        &self,
        ops: &mut X,
        gradients: &mut Gradients<'_, X>,
        pass: &Pass<'_, X>,
        PerLayerInputs { size, table, projection, norm }: PerLayerInputs,
        work: &mut Workspace<X>,
    ) {
        let (rows, width) = (pass.rows, projection.outputs);
        let Buffers { inputs, dlayer_inputs: d, layer_inputs_norm: Normed { raw, scale }, dx, act, .. } =
            work;
        // With adapters, everything before the layers is frozen.
        let Some(gradient) = gradients.all() else { return };
        ops.scale(rows * width, FRAC_1_SQRT_2, d);
        ops.reserve(act, Holds::Activations, rows * width);
        ops.zero(rows * width, act);
        ops.add(rows * width, d, act);
        ops.scale(rows * width, (size as f32).sqrt(), act);
        ops.embed_backward(gradient, table, width, pass.lists, act);
        let heads = HeadRows { rows, first: 0, stride: width, count: width / size, size };
        ops.head_norm_backward(pass.parameters.norm(norm, rows), Some(gradient), heads, raw, scale, d);
        ops.scale(rows * width, 1.0 / (self.config.hidden_size as f32).sqrt(), d);
        gradients.linear(ops, projection, rows, d, &inputs[0]);
        pass.parameters.linear_backward_input(ops, projection, rows, d, Write::Add, dx);
    }

    /// Returns the indices of the slots for keys and values that other layers borrow.
    fn lent(&self) -> impl Iterator<Item = usize> {
        let lends = |slot: &usize| self.lent_width(*slot) > 0;
        (0..2).filter(lends)
    }

    /// Returns the width of a row of keys and values in a slot, or 0 if no layer lends it.
    fn lent_width(&self, slot: usize) -> usize {
        let specs = self.layout.layers.iter().map(|layer| layer.spec);
        let mut lenders = specs.filter(|spec| spec.keys_values == KeysValues::Lent(slot));
        lenders.next().map_or(0, |spec| 2 * spec.key_heads * spec.head_dim)
    }

    fn layer_pass<'a, X: Executor>(
        &'a self,
        index: usize,
        phase: Phase,
        ops: &'a mut X,
        pass: &Pass<'a, X>,
    ) -> LayerPass<'a, X> {
        let last = index + 1 == self.layout.layers.len();
        let (all, layer) = (pass.all(), &self.layout.layers[index]);
        let needed = if last && pass.predicting < pass.rows { pass.predicting() } else { all };
        ops.enter(Place { phase, layer: Some(index), rows: all.count, needed: needed.count });
        let spec = layer.spec;
        LayerPass {
            ops,
            parameters: pass.parameters,
            decoder: self,
            layer,
            index,
            heads: Heads {
                queries: self.config.num_attention_heads,
                keys: spec.key_heads,
                size: spec.head_dim,
                scale: spec.scale,
            },
            lists: pass.lists,
            all,
            needed,
            hidden: self.config.hidden_size,
        }
    }

    fn head_pass<'a, X: Executor>(
        &self,
        pass: &Pass<'a, X>,
        temperature: f32,
        keeps_logits: bool,
    ) -> HeadPass<'a, X::Weights, X::Lists> {
        let (weights, head, rows, lists) =
            (pass.parameters.weights, self.head(), pass.predicting, pass.lists);
        HeadPass { weights, head, temperature, rows, lists, keeps_logits }
    }

    /// Reads the log-probabilities and entropies that the pass requests into `to`, after [`Decoder::forward`].
    pub(crate) fn score<X: Executor>(
        &self,
        ops: &mut X,
        pass: &Pass<'_, X>,
        temperature: f32,
        work: &mut Workspace<X>,
        to: &mut PickScores,
    ) -> Result<(), Error> {
        let (rows, head) = (pass.predicting(), self.head());
        work.head_saved.reserve_statistics(ops, rows, 2);
        ops.reserve(&mut work.scores, Holds::Statistics, 2 * pass.picks);
        work.keeps_logits = pass.keep != Keep::Nothing && ops.keeps_logits(head, rows.count);
        if work.keeps_logits {
            work.logits.reserve_statistics(ops, rows, head.vocabulary);
        }
        let head = self.head_pass(pass, temperature, work.keeps_logits);
        ops.head(head, &work.hidden, &mut work.logits, &mut work.head_saved, &mut work.scores);
        ops.scores(pass.lists, &work.scores, &mut to.logp, &mut to.entropy)
    }

    /// Adds the gradient to `gradients`, given the derivatives of the loss with respect to the scores. Requires the
    /// activations of the forward pass, and [`Decoder::score`].
    pub(crate) fn backward<X: Executor>(
        &self,
        ops: &mut X,
        gradients: &mut Gradients<'_, X>,
        pass: &Pass<'_, X>,
        temperature: f32,
        derivatives: &PickScores,
        work: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let (layers, d, rows) = (self.layout.layers.len(), self.config.hidden_size, pass.predicting);
        ops.enter(pass.place(Phase::Backward));
        ops.reserve(&mut work.dnormed, Holds::Activations, pass.rows * d);
        ops.reserve(&mut work.dx, Holds::Activations, pass.rows * d);
        ops.derivatives(&derivatives.logp, &derivatives.entropy, &mut work.scores);
        let head = self.head_pass(pass, temperature, work.keeps_logits);
        let inputs: HeadInputs<'_, X::Buffer> =
            HeadInputs { x: &work.hidden, saved: &work.head_saved, derivatives: &work.scores };
        ops.head_backward(head, gradients.all(), inputs, &mut work.logits, &mut work.dnormed);
        if self.logits_scale != 1.0 {
            ops.scale(rows * d, self.logits_scale, &mut work.dnormed);
        }
        for slot in self.lent() {
            ops.reserve(&mut work.dlent[slot], Holds::Activations, pass.rows * self.lent_width(slot));
            ops.zero(pass.rows * self.lent_width(slot), &mut work.dlent[slot]);
        }
        if let (Some(inputs), true) = (self.layout.per_layer_inputs, gradients.all().is_some()) {
            ops.reserve(&mut work.dlayer_inputs, Holds::Activations, pass.rows * inputs.projection.outputs);
        }
        ops.zero(rows * d, &mut work.dx);
        let (x, norm) = (&work.inputs[layers], pass.parameters.norm(self.layout.norm, rows));
        ops.rms_norm_backward(norm, gradients.all(), x, &work.hidden_scale, &work.dnormed, &mut work.dx);
        for layer in (0..layers).rev() {
            let (index, input) =
                (self.saved_index(layer, pass.keep), std::mem::take(&mut work.inputs[layer]));
            let mut saved = std::mem::take(&mut work.saved[index]);
            if pass.keep == Keep::Inputs {
                let mut recomputed = self.layer_pass(layer, Phase::Forward, &mut *ops, pass);
                recomputed.forward(&mut KeySource::Batch(None), &input, &mut saved, work, None);
            }
            // A frozen embedding doesn't need the derivative of the first layer's input.
            let through = layer > 0 || gradients.all().is_some();
            let mut layer_pass = self.layer_pass(layer, Phase::Backward, &mut *ops, pass);
            layer_pass.backward(gradients, through, &input, &mut saved, work);
            work.inputs[layer] = input;
            work.saved[index] = saved;
        }
        ops.enter(pass.place(Phase::Backward));
        if let Some(inputs) = self.layout.per_layer_inputs {
            self.per_layer_inputs_backward(&mut *ops, gradients, pass, inputs, work);
        }
        if let Some(gradient) = gradients.all() {
            if self.embedding_scale != 1.0 {
                ops.scale(pass.rows * d, self.embedding_scale, &mut work.dx);
            }
            ops.embed_backward(gradient, self.layout.embedding, d, pass.lists, &work.dx);
        }
        ops.checked()
    }

    /// Removes the rows of trees without a derivative from the saved activations. The chunk must be laid out again afterwards.
    pub(crate) fn keep_rows<X: Executor>(
        &self,
        ops: &mut X,
        remaining: RemainingRows<'_>,
        keep: Keep,
        work: &mut Workspace<X>,
    ) {
        let Buffers { inputs, saved, hidden, hidden_scale, head_saved, logits, keeps_logits, .. } = work;
        let Buffers { layer_inputs, layer_inputs_norm: Normed { raw, scale }, lent, .. } = work;
        for buffer in [hidden, hidden_scale, head_saved, layer_inputs, raw, scale].into_iter().chain(lent) {
            buffer.keep_rows(ops, remaining);
        }
        if *keeps_logits {
            logits.keep_rows(ops, remaining);
        }
        inputs.iter_mut().for_each(|input| input.keep_rows(ops, remaining));
        if keep == Keep::Everything {
            saved.iter_mut().for_each(|saved| saved.keep_rows(ops, remaining));
        }
    }
}
