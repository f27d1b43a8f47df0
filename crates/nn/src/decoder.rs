//! The decoder: embedding, layers of attention or a recurrent mixer and an MLP, and the vocabulary head; forward and backward passes.
//!
//! The structure of a layer is data (`families.rs`). Each backward function is below its forward function, takes the values that it saved, and runs in
//! the opposite order. Normalised inputs and MLP activations are recomputed instead of saved, which is cheap and halves the memory.
//!
//! The last layer computes keys and values for all rows, but everything else only for the rows that predict. With long prompts this saves most of a layer.

mod layer;
mod step;
mod workspace;

use std::f32::consts::FRAC_1_SQRT_2;

use crate::activations::Keep;
use crate::config::Config;
use crate::error::Error;
use crate::executor::{
    Executor, Head, HeadInputs, HeadPass, HeadRows, Heads, Holds, LowRank, Norm, Place, Rows, Stage,
};
use crate::families::KeysValues;
use crate::layout::{LayerLayout, Layout, Linear, PerLayerInputs, Span, Write};
use crate::lora::{Adapted, AdapterLayout};
use crate::quantized::BaseFormat;
use crate::segments::Chunk;

pub(crate) use layer::Over;
pub(crate) use workspace::{Stays, Workspace};

use layer::LayerPass;
use workspace::{Buffers, Kept, Normed, RowSet, Saved};

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
        e: &mut X,
        linears: &[Linear],
        rows: usize,
        x: &X::Buffer,
        onto: Option<&X::Buffer>,
        y: &mut X::Buffer,
    ) {
        e.linear(self.weights, linears, rows, x, onto, y);
        let Some((factors, layout)) = self.factors else { return };
        let (stride, mut before) = (linears.iter().map(|linear| linear.outputs).sum(), 0);
        for linear in linears {
            for adapted in layout.of(linear) {
                let adapted = Adapted { stride, first: before + adapted.first, ..*adapted };
                e.low_rank(LowRank { factors, adapted, scale: layout.scale, rows }, x, y);
            }
            before += linear.outputs;
        }
    }

    /// `dx = dy W + scale · (dy B) A`, or `dx += ...`, depending on `write`.
    fn linear_backward_input(
        self,
        e: &mut X,
        linear: Linear,
        rows: usize,
        dy: &X::Buffer,
        write: Write,
        dx: &mut X::Buffer,
    ) {
        e.linear_backward_input(self.weights, linear, rows, dy, write, dx);
        if let Some((factors, layout)) = self.factors {
            for &adapted in layout.of(&linear) {
                e.low_rank_backward_input(LowRank { factors, adapted, scale: layout.scale, rows }, dy, dx);
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
    fn linear(&mut self, e: &mut X, linear: Linear, rows: usize, dy: &X::Buffer, x: &X::Buffer) {
        match self {
            Gradients::All(gradient) => e.linear_backward_weight(gradient, linear, rows, dy, x),
            Gradients::Adapters { gradient, factors, layout } => {
                for &adapted in layout.of(&linear) {
                    let update = LowRank { factors: *factors, adapted, scale: layout.scale, rows };
                    e.low_rank_backward(update, gradient, dy, x);
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
    /// Factor of the results of attention and of the MLP.
    residual_scale: f32,
    /// Factor of the logits.
    logits_scale: f32,
}

/// A batch prepared for the layers.
pub(crate) struct Pass<'a, X: Executor> {
    pub(crate) p: Parameters<'a, X>,
    pub(crate) lists: &'a X::Lists,
    pub(crate) rows: usize,
    pub(crate) predicting: usize,
    pub(crate) picks: usize,
}

impl<'a, X: Executor> Pass<'a, X> {
    pub(crate) fn new(p: Parameters<'a, X>, chunk: &Chunk, lists: &'a X::Lists) -> Pass<'a, X> {
        let (rows, predicting) = (chunk.tokens.len(), chunk.predicting.rows.len());
        Pass { p, lists, rows, predicting, picks: chunk.picks.len() }
    }

    fn all(&self) -> RowSet {
        RowSet { which: Rows::All, count: self.rows }
    }

    fn predicting(&self) -> RowSet {
        RowSet { which: Rows::Predicting, count: self.predicting }
    }

    /// The operations outside of the layers, for layer checks.
    fn place(&self, stage: Stage) -> Place {
        Place { stage, layer: None, rows: self.rows, needed: self.predicting }
    }
}

/// A pass whose picks have been scored, for a backward pass.
pub(crate) struct ScoredPass<'a, X: Executor> {
    pub(crate) pass: Pass<'a, X>,
    pub(crate) keep: Keep,
    pub(crate) temperature: f32,
}

/// Log-probabilities and entropies of a pass's picks, or the derivatives of a loss with respect to them.
pub(crate) struct Picked<T> {
    pub(crate) logp: T,
    pub(crate) entropy: T,
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

    /// Parameters of a pass. `factors` are applied separately from the weights.
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

    /// Runs the forward pass, from the tokens to `w.hidden`: the final norm of the predicting rows, times the factor of the logits.
    pub(crate) fn forward<X: Executor>(
        &self,
        e: &mut X,
        pass: &Pass<'_, X>,
        keep: Keep,
        mut over: Over<'_, X>,
        w: &mut Workspace<X>,
    ) {
        let layers = self.layout.layers.len();
        let stage = match over {
            Over::Pass(None) => Stage::Forward,
            Over::Pass(Some(_)) => Stage::Prompts,
            Over::Step { .. } => Stage::Decoding,
        };
        w.inputs.resize_with(layers + 1, Default::default);
        w.saved.resize_with(layers, Default::default);
        let (all, needed, d) = (pass.all(), pass.predicting(), self.config.hidden_size);
        e.enter(pass.place(stage));
        w.inputs[0].reserve(e, all, d);
        e.embed(pass.p.weights, self.layout.embedding, d, pass.lists, &mut w.inputs[0]);
        if self.embedding_scale != 1.0 {
            e.scale(all.count * d, self.embedding_scale, &mut w.inputs[0]);
        }
        if let Some(inputs) = self.layout.per_layer_inputs {
            self.per_layer_inputs(&mut *e, pass, inputs, w);
        }
        for index in 0..layers {
            let mut layer = self.layer_pass(index, stage, &mut *e, pass);
            self.through(index, keep, w, |input, saved, w, output| {
                layer.forward(&mut over, input, saved, w, Some(output));
            });
        }
        let last = if keep == Keep::Nothing { layers % 2 } else { layers };
        e.enter(pass.place(stage));
        w.hidden.reserve(e, needed, d);
        w.hidden_scale.reserve_statistics(e, needed, 1);
        let norm = pass.p.norm(self.layout.norm, needed.count);
        e.rms_norm(norm, &w.inputs[last], &mut w.hidden, &mut w.hidden_scale);
        if self.logits_scale != 1.0 {
            e.scale(needed.count * d, self.logits_scale, &mut w.hidden);
        }
    }

    /// Index into [`Buffers::saved`] of a layer's activations: its own index if everything is kept, otherwise the index of the first layer of its kind.
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
        w: &mut Buffers<B>,
        run: impl FnOnce(&B, &mut Saved<B>, &mut Buffers<B>, &mut Kept<B>),
    ) {
        let (from, to) =
            if keep == Keep::Nothing { (layer % 2, (layer + 1) % 2) } else { (layer, layer + 1) };
        let index = self.saved_index(layer, keep);
        let input = std::mem::take(&mut w.inputs[from]);
        let mut output = std::mem::take(&mut w.inputs[to]);
        let mut saved = std::mem::take(&mut w.saved[index]);
        run(&input, &mut saved, w, &mut output);
        w.inputs[from] = input;
        w.inputs[to] = output;
        w.saved[index] = saved;
    }

    /// Computes the inputs of all layers from the tokens and from the scaled embedding.
    fn per_layer_inputs<X: Executor>(
        &self,
        e: &mut X,
        pass: &Pass<'_, X>,
        PerLayerInputs { size, table, projection, norm }: PerLayerInputs,
        w: &mut Workspace<X>,
    ) {
        let (all, width, p) = (pass.all(), projection.outputs, pass.p);
        let Buffers { inputs, layer_inputs, layer_inputs_norm: Normed { raw, scale }, act, .. } = w;
        layer_inputs.reserve(e, all, width);
        p.linear(e, &[projection], all.count, &inputs[0], None, layer_inputs);
        e.scale(all.count * width, 1.0 / (self.config.hidden_size as f32).sqrt(), layer_inputs);
        raw.reserve(e, all, width);
        scale.reserve_statistics(e, all, width / size);
        let heads = HeadRows { rows: all.count, first: 0, stride: width, count: width / size, size };
        e.head_norm(p.norm(norm, all.count), heads, layer_inputs, raw, scale);
        e.reserve(act, Holds::Activations, all.count * width);
        e.embed(p.weights, table, width, pass.lists, act);
        e.scale(all.count * width, (size as f32).sqrt(), act);
        e.add(all.count * width, act, layer_inputs);
        e.scale(all.count * width, FRAC_1_SQRT_2, layer_inputs);
    }

    /// Adds the gradient of the parameters of [`Decoder::per_layer_inputs`], and the derivative of the scaled embedding.
    fn per_layer_inputs_backward<X: Executor>(
        &self,
        e: &mut X,
        gradients: &mut Gradients<'_, X>,
        pass: &Pass<'_, X>,
        PerLayerInputs { size, table, projection, norm }: PerLayerInputs,
        w: &mut Workspace<X>,
    ) {
        let (rows, width) = (pass.rows, projection.outputs);
        let Buffers { inputs, dlayer_inputs: d, layer_inputs_norm: Normed { raw, scale }, dx, act, .. } = w;
        // With adapters, everything before the layers is frozen.
        let Some(gradient) = gradients.all() else { return };
        e.scale(rows * width, FRAC_1_SQRT_2, d);
        e.reserve(act, Holds::Activations, rows * width);
        e.zero(rows * width, act);
        e.add(rows * width, d, act);
        e.scale(rows * width, (size as f32).sqrt(), act);
        e.embed_backward(gradient, table, width, pass.lists, act);
        let heads = HeadRows { rows, first: 0, stride: width, count: width / size, size };
        e.head_norm_backward(pass.p.norm(norm, rows), Some(gradient), heads, raw, scale, d);
        e.scale(rows * width, 1.0 / (self.config.hidden_size as f32).sqrt(), d);
        gradients.linear(e, projection, rows, d, &inputs[0]);
        pass.p.linear_backward_input(e, projection, rows, d, Write::Add, dx);
    }

    /// Indices of the slots for keys and values that other layers borrow.
    fn lent(&self) -> impl Iterator<Item = usize> {
        let lends = |slot: &usize| self.lent_width(*slot) > 0;
        (0..2).filter(lends)
    }

    /// Width of a row of keys and values in a slot, or 0 if no layer lends it.
    fn lent_width(&self, slot: usize) -> usize {
        let specs = self.layout.layers.iter().map(|layer| layer.spec);
        let mut lenders = specs.filter(|spec| spec.keys_values == KeysValues::Lent(slot));
        lenders.next().map_or(0, |spec| 2 * spec.key_heads * spec.head_dim)
    }

    fn layer_pass<'a, X: Executor>(
        &'a self,
        index: usize,
        stage: Stage,
        e: &'a mut X,
        pass: &Pass<'a, X>,
    ) -> LayerPass<'a, X> {
        let last = index + 1 == self.layout.layers.len();
        let (all, layer) = (pass.all(), &self.layout.layers[index]);
        let needed = if last && pass.predicting < pass.rows { pass.predicting() } else { all };
        e.enter(Place { stage, layer: Some(index), rows: all.count, needed: needed.count });
        let spec = layer.spec;
        LayerPass {
            e,
            p: pass.p,
            layer,
            index,
            heads: Heads {
                queries: self.config.num_attention_heads,
                keys: spec.key_heads,
                size: spec.head_dim,
                scale: spec.scale,
            },
            residual_scale: self.residual_scale,
            lists: pass.lists,
            all,
            needed,
            hidden: self.config.hidden_size,
            intermediate: spec.intermediate,
            width_of_inputs: self.layout.per_layer_inputs.map_or(0, |inputs| inputs.projection.outputs),
        }
    }

    fn head_pass<'a, X: Executor>(
        &self,
        pass: &Pass<'a, X>,
        temperature: f32,
        keeps_logits: bool,
    ) -> HeadPass<'a, X::Weights, X::Lists> {
        let (weights, head, rows, lists) = (pass.p.weights, self.head(), pass.predicting, pass.lists);
        HeadPass { weights, head, temperature, rows, lists, keeps_logits }
    }

    /// Reads log-probabilities and entropies of the pass's picks into `to`, after [`Decoder::forward`].
    pub(crate) fn score<X: Executor>(
        &self,
        e: &mut X,
        pass: &Pass<'_, X>,
        keep: Keep,
        temperature: f32,
        w: &mut Workspace<X>,
        to: Picked<&mut [f32]>,
    ) -> Result<(), Error> {
        let (rows, head) = (pass.predicting(), self.head());
        w.head_saved.reserve_statistics(e, rows, 2);
        e.reserve(&mut w.scores, Holds::Statistics, 2 * pass.picks);
        w.keeps_logits = keep != Keep::Nothing && e.keeps_logits(head, rows.count);
        if w.keeps_logits {
            w.logits.reserve_statistics(e, rows, head.vocabulary);
        }
        let head = self.head_pass(pass, temperature, w.keeps_logits);
        e.head(head, &w.hidden, &mut w.logits, &mut w.head_saved, &mut w.scores);
        e.scores(pass.lists, &w.scores, to.logp, to.entropy)
    }

    /// Adds the gradient to `gradients`, given the derivatives of the loss with respect to the picks' scores. Requires the activations of the forward pass,
    /// and [`Decoder::score`].
    pub(crate) fn backward<X: Executor>(
        &self,
        e: &mut X,
        gradients: &mut Gradients<'_, X>,
        pass: &ScoredPass<'_, X>,
        derivatives: Picked<&[f32]>,
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let ScoredPass { pass, keep, temperature } = pass;
        let (layers, d, rows) = (self.layout.layers.len(), self.config.hidden_size, pass.predicting);
        e.enter(pass.place(Stage::Backward));
        e.reserve(&mut w.dnormed, Holds::Activations, pass.rows * d);
        e.reserve(&mut w.dx, Holds::Activations, pass.rows * d);
        e.derivatives(derivatives.logp, derivatives.entropy, &mut w.scores);
        let head = self.head_pass(pass, *temperature, w.keeps_logits);
        let inputs: HeadInputs<'_, X::Buffer> =
            HeadInputs { x: &w.hidden, saved: &w.head_saved, derivatives: &w.scores };
        e.head_backward(head, gradients.all(), inputs, &mut w.logits, &mut w.dnormed);
        if self.logits_scale != 1.0 {
            e.scale(rows * d, self.logits_scale, &mut w.dnormed);
        }
        for slot in self.lent() {
            e.reserve(&mut w.dlent[slot], Holds::Activations, pass.rows * self.lent_width(slot));
            e.zero(pass.rows * self.lent_width(slot), &mut w.dlent[slot]);
        }
        if let (Some(inputs), true) = (self.layout.per_layer_inputs, gradients.all().is_some()) {
            e.reserve(&mut w.dlayer_inputs, Holds::Activations, pass.rows * inputs.projection.outputs);
        }
        e.zero(rows * d, &mut w.dx);
        let (x, norm) = (&w.inputs[layers], pass.p.norm(self.layout.norm, rows));
        e.rms_norm_backward(norm, gradients.all(), x, &w.hidden_scale, &w.dnormed, &mut w.dx);
        for layer in (0..layers).rev() {
            let (index, input) = (self.saved_index(layer, *keep), std::mem::take(&mut w.inputs[layer]));
            let mut saved = std::mem::take(&mut w.saved[index]);
            if *keep == Keep::Inputs {
                let mut recomputed = self.layer_pass(layer, Stage::Forward, &mut *e, pass);
                recomputed.forward(&mut Over::Pass(None), &input, &mut saved, w, None);
            }
            // A frozen embedding doesn't need the derivative of the first layer's input.
            let through = layer > 0 || gradients.all().is_some();
            let mut layer_pass = self.layer_pass(layer, Stage::Backward, &mut *e, pass);
            layer_pass.backward(gradients, through, &input, &mut saved, w);
            w.inputs[layer] = input;
            w.saved[index] = saved;
        }
        e.enter(pass.place(Stage::Backward));
        if let Some(inputs) = self.layout.per_layer_inputs {
            self.per_layer_inputs_backward(&mut *e, gradients, pass, inputs, w);
        }
        if let Some(gradient) = gradients.all() {
            if self.embedding_scale != 1.0 {
                e.scale(pass.rows * d, self.embedding_scale, &mut w.dx);
            }
            e.embed_backward(gradient, self.layout.embedding, d, pass.lists, &w.dx);
        }
        e.checked()
    }

    /// Removes the rows of trees without a derivative from the saved activations. The chunk must be laid out again afterwards.
    pub(crate) fn keep_rows<X: Executor>(
        &self,
        e: &mut X,
        stays: Stays<'_>,
        keep: Keep,
        w: &mut Workspace<X>,
    ) {
        let Buffers { inputs, saved, hidden, hidden_scale, head_saved, logits, keeps_logits, .. } = w;
        let Buffers { layer_inputs, layer_inputs_norm: Normed { raw, scale }, lent, .. } = w;
        for buffer in [hidden, hidden_scale, head_saved, layer_inputs, raw, scale].into_iter().chain(lent) {
            buffer.keep_rows(e, stays);
        }
        if *keeps_logits {
            logits.keep_rows(e, stays);
        }
        inputs.iter_mut().for_each(|input| input.keep_rows(e, stays));
        if keep == Keep::Everything {
            saved.iter_mut().for_each(|saved| saved.keep_rows(e, stays));
        }
    }
}
