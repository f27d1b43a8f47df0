//! The decoder: embedding, layers of attention or a recurrent mixer and an MLP, vocabulary head; forward and backward passes.
//!
//! What a layer consists of is a description (`families.rs`). Each backward function is below its forward function, takes the values that it kept, and runs in the opposite order. Normalised inputs and MLP activations are not kept but recomputed, which
//! is cheap and halves the memory.
//!
//! The last layer needs outputs only for the rows that predict. Keys and values are computed for all rows, everything else only for those rows. With
//! long prompts this saves most of a layer.

mod layer;
mod step;
mod workspace;

use std::ops::Range;

use crate::activations::Keep;
use crate::checks::{Checks, Stage};
use crate::config::Config;
use crate::error::Error;
use crate::executor::{Executor, Head, HeadPass, Heads, Holds, LowRank, Map, Norm, Rows};
use crate::families::QkNorm;
use crate::layout::{Layout, Linear, Span, Write};
use crate::lora::{Adapted, AdapterLayout};
use crate::quantized::BaseFormat;
use crate::segments::Chunk;

pub(crate) use workspace::Workspace;

use layer::LayerPass;
use workspace::{Buffers, Normed, SavedActivations};

/// What a pass computes with.
pub(crate) struct Parameters<'a, X: Executor> {
    pub(crate) weights: &'a X::Weights,
    /// LoRA's factors, where they are applied beside the weights.
    factors: Option<(&'a X::Weights, &'a AdapterLayout)>,
    /// Of all norms.
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

    /// A linear map with the factors of its matrices: `y = x Wᵀ + scale · (x Aᵀ) Bᵀ + b`, and `onto` added.
    fn linear(
        self,
        e: &mut X,
        linear: Linear,
        rows: usize,
        x: &X::Buffer,
        onto: Option<&X::Buffer>,
        y: &mut X::Buffer,
    ) {
        e.linear(Map { weights: self.weights, linear, rows }, x, onto, y);
        self.low_rank(e, &[linear], rows, x, y);
    }

    /// Linear maps of the same rows with the factors of their matrices; their results are side by side.
    fn linears(self, e: &mut X, linears: &[Linear], rows: usize, x: &X::Buffer, y: &mut X::Buffer) {
        e.linears(self.weights, linears, rows, x, y);
        self.low_rank(e, linears, rows, x, y);
    }

    fn low_rank(self, e: &mut X, linears: &[Linear], rows: usize, x: &X::Buffer, y: &mut X::Buffer) {
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

    /// `dx = dy W + scale · (dy B) A`, or added to `dx`.
    fn linear_backward_input(
        self,
        e: &mut X,
        linear: Linear,
        rows: usize,
        dy: &X::Buffer,
        write: Write,
        dx: &mut X::Buffer,
    ) {
        e.linear_backward_input(Map { weights: self.weights, linear, rows }, dy, write, dx);
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
    /// The gradient of all parameters, if they are trained.
    fn all(&mut self) -> Option<&mut X::Gradient> {
        match self {
            Gradients::All(gradient) => Some(gradient),
            Gradients::Adapters { .. } => None,
        }
    }

    /// Adds the gradient of a linear map.
    fn linear(&mut self, e: &mut X, linear: Linear, rows: usize, dy: &X::Buffer, x: &X::Buffer) {
        match self {
            Gradients::All(gradient) => e.linear_backward_weight(gradient, linear, rows, dy, x),
            Gradients::Adapters { gradient, factors, layout } => {
                for &adapted in layout.of(&linear) {
                    let of = LowRank { factors: *factors, adapted, scale: layout.scale, rows };
                    e.low_rank_backward(of, gradient, dy, x);
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
    /// Whether activations are searched for numbers that are not finite, for debugging.
    pub(crate) check_layers: bool,
    pub(crate) heads: Heads,
    embedding_scale: f32,
}

/// One batch in the form for the layers.
pub(crate) struct Pass<'a, X: Executor> {
    pub(crate) p: Parameters<'a, X>,
    pub(crate) lists: &'a X::Lists,
    /// All rows.
    pub(crate) rows: usize,
    /// Rows that predict.
    pub(crate) predicting: usize,
    /// Their predictions.
    pub(crate) picks: usize,
}

impl<'a, X: Executor> Pass<'a, X> {
    /// The pass over a chunk with these lists.
    pub(crate) fn new(p: Parameters<'a, X>, chunk: &Chunk, lists: &'a X::Lists) -> Pass<'a, X> {
        let (rows, predicting) = (chunk.tokens.len(), chunk.predicting.rows.len());
        Pass { p, lists, rows, predicting, picks: chunk.picks.len() }
    }
}

impl Decoder {
    pub(crate) fn new(config: &Config, base: Option<BaseFormat>) -> Decoder {
        Decoder {
            config: config.clone(),
            layout: Layout::new(config, base),
            check_layers: false,
            heads: Heads {
                queries: config.num_attention_heads,
                keys: config.num_key_value_heads,
                size: config.head_dim,
                scale: match config.query_pre_attn_scalar {
                    Some(scalar) => 1.0 / (scalar as f32).sqrt(),
                    None => 1.0 / (config.head_dim as f32).sqrt(),
                },
            },
            embedding_scale: (config.architecture.family().embedding_scale)(config),
        }
    }

    /// What a pass computes with; `factors` are applied beside the weights.
    pub(crate) fn parameters<'a, X: Executor>(
        &self,
        weights: &'a X::Weights,
        factors: Option<(&'a X::Weights, &'a AdapterLayout)>,
    ) -> Parameters<'a, X> {
        let offset = self.config.architecture.family().norm_offset;
        Parameters { weights, factors, eps: self.config.rms_norm_eps as f32, offset }
    }

    /// The vocabulary head.
    pub(crate) fn head(&self) -> Head {
        Head { weight: self.layout.head, vocabulary: self.config.vocab_size, width: self.config.hidden_size }
    }

    /// The checks of a pass.
    pub(crate) fn checks(&self, stage: Stage) -> Checks {
        Checks::new(self.check_layers, stage)
    }

    /// From tokens to the final norm of the predicting rows, in `w.hidden`.
    pub(crate) fn forward<X: Executor>(
        &self,
        e: &mut X,
        pass: &Pass<'_, X>,
        keep: Keep,
        mut cache: Option<&mut X::Cache>,
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let layers = self.layout.layers.len();
        let checks = self.checks(if cache.is_some() { Stage::Prompts } else { Stage::Forward });
        self.grow(keep, w);
        self.embed(e, pass, &checks, w)?;
        for layer in 0..layers {
            let of = self.layer_pass(layer, pass, checks);
            Decoder::through(layer, keep, w, |input, saved, w, output| {
                self.layer(e, &of, cache.as_deref_mut(), input, saved, w, Some(output))
            })?;
        }
        let last = if keep == Keep::Nothing { layers % 2 } else { layers };
        self.final_norm(e, pass.p, (Rows::Predicting, pass.predicting), last, &checks, w)
    }

    /// Grows the buffers that a pass keeps.
    fn grow<B: Default>(&self, keep: Keep, w: &mut Buffers<B>) {
        let layers = self.layout.layers.len();
        let inputs = if keep == Keep::Nothing { 2 } else { layers + 1 };
        w.inputs.resize_with(w.inputs.len().max(inputs), Default::default);
        let saved = if keep == Keep::Everything { layers } else { 1 };
        w.saved.resize_with(w.saved.len().max(saved), Default::default);
    }

    fn embed<X: Executor>(
        &self,
        e: &mut X,
        pass: &Pass<'_, X>,
        checks: &Checks,
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let (rows, d) = (pass.rows, self.config.hidden_size);
        e.reserve(&mut w.inputs[0], Holds::Activations, rows * d);
        e.embed(pass.p.weights, self.layout.embedding, d, pass.lists, &mut w.inputs[0]);
        if self.embedding_scale != 1.0 {
            e.scale(rows * d, self.embedding_scale, &mut w.inputs[0]);
        }
        checks.finite(e, (Rows::All, rows), &[("model.embed_tokens", d)], &w.inputs[0])
    }

    /// Runs a layer from its input in the workspace to its output there.
    fn through<B: Default>(
        layer: usize,
        keep: Keep,
        w: &mut Buffers<B>,
        run: impl FnOnce(&B, &mut SavedActivations<B>, &mut Buffers<B>, &mut B) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (from, to) =
            if keep == Keep::Nothing { (layer % 2, (layer + 1) % 2) } else { (layer, layer + 1) };
        let place = if keep == Keep::Everything { layer } else { 0 };
        let input = std::mem::take(&mut w.inputs[from]);
        let mut output = std::mem::take(&mut w.inputs[to]);
        let mut saved = std::mem::take(&mut w.saved[place]);
        let checked = run(&input, &mut saved, w, &mut output);
        w.inputs[from] = input;
        w.inputs[to] = output;
        w.saved[place] = saved;
        checked
    }

    fn final_norm<X: Executor>(
        &self,
        e: &mut X,
        p: Parameters<'_, X>,
        (which, rows): (Rows, usize),
        input: usize,
        checks: &Checks,
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let d = self.config.hidden_size;
        e.reserve(&mut w.hidden, Holds::Activations, rows * d);
        e.reserve(&mut w.hidden_scale, Holds::Statistics, rows);
        let Buffers { inputs, hidden, hidden_scale, .. } = w;
        e.rms_norm(p.norm(self.layout.norm, rows), &inputs[input], hidden, hidden_scale);
        checks.finite(e, (which, rows), &[("model.norm", d)], hidden)
    }

    fn layer_pass<'a, X: Executor>(
        &'a self,
        index: usize,
        pass: &Pass<'a, X>,
        checks: Checks,
    ) -> LayerPass<'a, X> {
        let last = index + 1 == self.layout.layers.len();
        let which = if last && pass.predicting < pass.rows { Rows::Predicting } else { Rows::All };
        let queries = if which == Rows::All { pass.rows } else { pass.predicting };
        let (layer, checks) = (&self.layout.layers[index], checks.of_layer(index));
        LayerPass { p: pass.p, layer, lists: pass.lists, count: pass.rows, queries, which, checks }
    }

    fn head_pass<'a, X: Executor>(
        &self,
        pass: &Pass<'a, X>,
        temperature: f32,
        kept: bool,
    ) -> HeadPass<'a, X::Weights, X::Lists> {
        let (weights, head, rows, lists) = (pass.p.weights, self.head(), pass.predicting, pass.lists);
        HeadPass { weights, head, temperature, rows, lists, kept }
    }

    /// Log-probabilities and entropies of the pass's picks, after [`Decoder::forward`].
    pub(crate) fn score<X: Executor>(
        &self,
        e: &mut X,
        pass: &Pass<'_, X>,
        keep: Keep,
        temperature: f32,
        w: &mut Workspace<X>,
        logp: &mut [f32],
        entropy: &mut [f32],
    ) -> Result<(), Error> {
        let rows = pass.predicting;
        e.reserve(&mut w.head_saved, Holds::Statistics, 2 * rows);
        e.reserve(&mut w.scores, Holds::Statistics, 2 * pass.picks);
        let head = self.head();
        w.logits_kept = keep != Keep::Nothing && e.keeps_logits(head, rows);
        if w.logits_kept {
            e.reserve(&mut w.logits, Holds::Statistics, rows * head.vocabulary);
        }
        let Buffers { hidden, head_saved, logits, logits_kept, scores, .. } = w;
        let of = self.head_pass(pass, temperature, *logits_kept);
        e.head(of, hidden, logits, head_saved, scores);
        e.scores(pass.lists, scores, logp, entropy)
            .map_err(|error| self.checks(Stage::Forward).at_head(error))
    }

    /// Adds the gradient for the derivatives of the picks' log-probabilities and entropies to `gradients`. The forward pass must have kept its
    /// activations, and [`Decoder::score`] must have run.
    pub(crate) fn backward<X: Executor>(
        &self,
        e: &mut X,
        gradients: &mut Gradients<'_, X>,
        pass: &Pass<'_, X>,
        keep: Keep,
        temperature: f32,
        dlogp: &[f32],
        dentropy: &[f32],
        w: &mut Workspace<X>,
    ) -> Result<(), Error> {
        let checks = self.checks(Stage::Backward);
        let (layers, d) = (self.layout.layers.len(), self.config.hidden_size);
        let (rows, lists) = (pass.predicting, pass.lists);
        e.reserve(&mut w.dnormed, Holds::Activations, pass.rows * d);
        e.reserve(&mut w.dx, Holds::Activations, pass.rows * d);
        e.derivatives(dlogp, dentropy, &mut w.scores);
        let Buffers { inputs, hidden, hidden_scale, head_saved, logits, scores, dnormed, dx, .. } = w;
        let of = self.head_pass(pass, temperature, w.logits_kept);
        e.head_backward(of, gradients.all(), [hidden, head_saved, scores], logits, dnormed);
        checks.finite(e, (Rows::Predicting, rows), &[("lm_head", d)], dnormed)?;
        e.zero(rows * d, dx);
        let (x, norm) = (&inputs[layers], pass.p.norm(self.layout.norm, rows));
        e.rms_norm_backward(norm, gradients.all(), x, hidden_scale, dnormed, dx);
        checks.finite(e, (Rows::Predicting, rows), &[("model.norm", d)], dx)?;
        for layer in (0..layers).rev() {
            let input = std::mem::take(&mut w.inputs[layer]);
            let place = if keep == Keep::Everything { layer } else { 0 };
            let mut saved = std::mem::take(&mut w.saved[place]);
            if keep == Keep::Inputs {
                let again = self.layer_pass(layer, pass, self.checks(Stage::Forward));
                self.layer(e, &again, None, &input, &mut saved, w, None)?;
            }
            // Frozen, the embedding has no use for the first layer's derivative.
            let through = layer > 0 || gradients.all().is_some();
            let of = self.layer_pass(layer, pass, checks);
            self.layer_backward(e, &of, gradients, through, &input, &mut saved, w)?;
            w.inputs[layer] = input;
            w.saved[place] = saved;
        }
        if let Some(gradient) = gradients.all() {
            if self.embedding_scale != 1.0 {
                e.scale(pass.rows * d, self.embedding_scale, &mut w.dx);
            }
            e.embed_backward(gradient, self.layout.embedding, d, lists, &w.dx);
        }
        Ok(())
    }

    /// Removes the rows of families without a derivative from the kept activations; `chunk` must be rebuilt afterwards. `rows` and `queries` are the
    /// ranges that stay, of all rows and of predicting rows.
    pub(crate) fn keep_rows<X: Executor>(
        &self,
        e: &mut X,
        rows: &[Range<usize>],
        queries: &[Range<usize>],
        keep: Keep,
        w: &mut Workspace<X>,
    ) {
        let (layers, d) = (self.layout.layers.len(), self.config.hidden_size);
        e.keep_rows(d, queries, &mut w.hidden);
        e.keep_rows(1, queries, &mut w.hidden_scale);
        e.keep_rows(2, queries, &mut w.head_saved);
        if w.logits_kept {
            e.keep_rows(self.config.vocab_size, queries, &mut w.logits);
        }
        for (layer, input) in w.inputs.iter_mut().enumerate().take(layers + 1) {
            e.keep_rows(d, if layer == layers { queries } else { rows }, input);
        }
        if keep != Keep::Everything {
            return;
        }
        for (layer, saved) in w.saved.iter_mut().enumerate().take(layers) {
            let of = &self.layout.layers[layer];
            let (width, kv) = (of.o.inputs, of.kv.outputs);
            let queries = if layer + 1 == layers { queries } else { rows };
            e.keep_rows(kv, rows, &mut saved.kv);
            if of.mixer.is_some() || of.of.output_gate {
                e.keep_rows(width, queries, &mut saved.gate);
            }
            let mut keep = |normed: &mut Normed<X::Buffer>, width: usize, count: usize, rows| {
                e.keep_rows(width, rows, &mut normed.raw);
                e.keep_rows(count, rows, &mut normed.scale);
            };
            match (of.mixer, of.of.qk_norm) {
                (Some(mixer), _) => keep(&mut saved.q_norm, width, mixer.of.linear_num_value_heads, queries),
                (None, Some(over)) => {
                    let [h, k] = match over {
                        QkNorm::Head => [self.heads.queries, self.heads.keys],
                        QkNorm::Whole => [1, 1],
                    };
                    keep(&mut saved.q_norm, width, h, queries);
                    keep(&mut saved.k_norm, kv / 2, k, rows);
                }
                (None, None) => {}
            }
            if of.attention.after.is_some() {
                keep(&mut saved.attended, d, 1, queries);
            }
            if of.mlp.after.is_some() {
                keep(&mut saved.transformed, d, 1, queries);
            }
            if of.attention.before.is_some() {
                e.keep_rows(1, rows, &mut saved.attention_scale);
            }
            if of.mlp.before.is_some() {
                e.keep_rows(1, queries, &mut saved.mlp_scale);
            }
            e.keep_rows(width, queries, &mut saved.out);
            if of.mixer.is_none() {
                e.keep_rows(width, queries, &mut saved.q);
                e.keep_rows(self.heads.queries, queries, &mut saved.lse);
            }
            e.keep_rows(d, queries, &mut saved.middle);
            e.keep_rows(2 * self.config.intermediate_size, queries, &mut saved.gate_up);
        }
    }
}
