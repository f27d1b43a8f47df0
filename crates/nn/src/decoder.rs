//! The decoder: embedding, layers of attention and SwiGLU, vocabulary head; forward and backward side by side.
//!
//! One description serves Qwen2 (bias on q, k, v), Qwen3 (norm of each head's query and key) and Llama. Each backward function stands below its
//! forward, takes what that kept, and reads in the opposite order. Normalised inputs and activations of the MLP are not kept but computed again:
//! cheap loops, and half the memory.
//!
//! The last layer needs outputs only of the rows that predict. Its keys and values are computed for all rows, everything else
//! for those rows alone: with long prompts that spares most of a layer.

use std::ops::Range;

use crate::config::Config;
use crate::error::Error;
use crate::layout::{LayerLayout, Layout, Linear};
use crate::lora::AdapterLayout;
use crate::ops::{Backend, Head, HeadRows, Heads, Rotation, Write};
use crate::segments::{Chunk, Piece, Sight};

/// What the forward pass leaves for the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Nothing: there is no backward pass.
    Nothing,
    /// The input of each layer; the backward pass computes each layer again.
    Inputs,
    /// Everything it needs.
    Everything,
}

/// Where a backward pass puts what it finds.
pub(crate) enum Gradients<'a, B: Backend> {
    /// The gradient of all parameters.
    All(&'a mut B::Store),
    /// The gradient of LoRA's factors; all else is frozen.
    Adapters { gradient: &'a mut B::Store, values: &'a B::Store, layout: &'a AdapterLayout },
}

impl<B: Backend> Gradients<'_, B> {
    /// The gradient of all parameters, where they are trained.
    fn all(&mut self) -> Option<&mut B::Store> {
        match self {
            Gradients::All(gradient) => Some(gradient),
            Gradients::Adapters { .. } => None,
        }
    }

    /// Adds a linear map's share.
    fn linear(&mut self, b: &mut B, linear: Linear, rows: usize, dy: &B::Buffer, x: &B::Buffer) {
        match self {
            Gradients::All(gradient) => b.linear_backward_weight(gradient, linear, rows, dy, x),
            Gradients::Adapters { gradient, values, layout } => {
                for adapted in layout.of(&linear) {
                    b.low_rank_backward(values, gradient, adapted, layout.scale, rows, dy, x);
                }
            }
        }
    }
}

/// Where a layer's keys come from.
pub(crate) enum Source<'a, B: Backend> {
    /// The rows themselves.
    Rows,
    /// The rows themselves, which are stored in these slots as well.
    StoredRows { cache: &'a mut B::Cache, slots: &'a [u32] },
    /// The cache, after the rows are stored in these slots; query `i` is row `i`.
    Cache { cache: &'a mut B::Cache, slots: &'a [u32], pieces: &'a [Piece] },
}

/// What one layer keeps.
struct Kept<B: Backend> {
    attention_scale: B::Buffer,
    q: B::Buffer,
    q_raw: B::Buffer,
    q_scale: B::Buffer,
    kv: B::Buffer,
    k_raw: B::Buffer,
    k_scale: B::Buffer,
    out: B::Buffer,
    lse: B::Buffer,
    middle: B::Buffer,
    mlp_scale: B::Buffer,
    gate_up: B::Buffer,
}

impl<B: Backend> Default for Kept<B> {
    fn default() -> Self {
        Kept {
            attention_scale: Default::default(),
            q: Default::default(),
            q_raw: Default::default(),
            q_scale: Default::default(),
            kv: Default::default(),
            k_raw: Default::default(),
            k_scale: Default::default(),
            out: Default::default(),
            lse: Default::default(),
            middle: Default::default(),
            mlp_scale: Default::default(),
            gate_up: Default::default(),
        }
    }
}

/// Buffers of one executor. They grow to the largest pass and are used again.
pub(crate) struct Workspace<B: Backend> {
    /// Input of each layer, then of the final norm.
    inputs: Vec<B::Buffer>,
    kept: Vec<Kept<B>>,
    normed: B::Buffer,
    normed_rows: B::Buffer,
    act: B::Buffer,
    /// Output of the final norm: rows that predict.
    hidden: B::Buffer,
    hidden_scale: B::Buffer,
    head_saved: B::Buffer,
    dx: B::Buffer,
    dx_rows: B::Buffer,
    dnormed: B::Buffer,
    dout: B::Buffer,
    dq: B::Buffer,
    dkv: B::Buffer,
}

impl<B: Backend> Default for Workspace<B> {
    fn default() -> Self {
        Workspace {
            inputs: Vec::new(),
            kept: Vec::new(),
            normed: Default::default(),
            normed_rows: Default::default(),
            act: Default::default(),
            hidden: Default::default(),
            hidden_scale: Default::default(),
            head_saved: Default::default(),
            dx: Default::default(),
            dx_rows: Default::default(),
            dnormed: Default::default(),
            dout: Default::default(),
            dq: Default::default(),
            dkv: Default::default(),
        }
    }
}

impl<B: Backend> Workspace<B> {
    /// The final norm's output, one row per predicting row of the last pass.
    pub(crate) fn hidden(&self) -> &B::Buffer {
        &self.hidden
    }
}

/// The decoder's sizes and the places of its parameters.
#[derive(Debug, Clone)]
pub(crate) struct Decoder {
    pub(crate) config: Config,
    pub(crate) layout: Layout,
    heads: Heads,
    eps: f32,
}

/// The rows of one pass through a layer.
struct Rows<'a> {
    positions: &'a [u32],
    /// Rows that go on beyond the keys; `None` for all.
    subset: Option<&'a [u32]>,
    /// Their positions.
    query_positions: &'a [u32],
}

impl Rows<'_> {
    fn count(&self) -> usize {
        self.positions.len()
    }

    fn queries(&self) -> usize {
        self.query_positions.len()
    }
}

impl Decoder {
    pub(crate) fn new(config: &Config) -> Decoder {
        Decoder {
            config: config.clone(),
            layout: Layout::new(config),
            heads: Heads {
                queries: config.num_attention_heads,
                keys: config.num_key_value_heads,
                size: config.head_dim,
            },
            eps: config.rms_norm_eps as f32,
        }
    }

    /// The vocabulary head.
    pub(crate) fn head(&self) -> Head {
        Head { weight: self.layout.head, vocabulary: self.config.vocab_size, width: self.config.hidden_size }
    }

    /// Width of a row of keys and values.
    pub(crate) fn key_width(&self) -> usize {
        self.heads.key_width()
    }

    fn query_heads(&self, rows: usize) -> HeadRows {
        HeadRows { rows, stride: self.heads.query_width(), count: self.heads.queries, size: self.heads.size }
    }

    fn key_heads(&self, rows: usize) -> HeadRows {
        HeadRows { rows, stride: self.heads.key_width(), count: self.heads.keys, size: self.heads.size }
    }

    /// From tokens to the final norm of the predicting rows, in `workspace.hidden`.
    pub(crate) fn forward<B: Backend>(
        &self,
        b: &mut B,
        store: &B::Store,
        chunk: &Chunk,
        keep: Keep,
        mut cache: Option<(&mut B::Cache, &[u32])>,
        workspace: &mut Workspace<B>,
    ) {
        let (layers, d) = (self.layout.layers.len(), self.config.hidden_size);
        let inputs = if keep == Keep::Nothing { 2 } else { layers + 1 };
        if workspace.inputs.len() < inputs {
            workspace.inputs.resize_with(inputs, Default::default);
        }
        let kept = if keep == Keep::Everything { layers } else { 1 };
        if workspace.kept.len() < kept {
            workspace.kept.resize_with(kept, Default::default);
        }
        b.reserve(&mut workspace.inputs[0], chunk.tokens.len() * d);
        b.embed(store, self.layout.embedding, d, &chunk.tokens, &mut workspace.inputs[0]);
        let query_positions = self.predicting_positions(chunk);
        for layer in 0..layers {
            let rows = self.rows(layer, chunk, &query_positions);
            let sight = if rows.subset.is_some() { &chunk.predicting } else { &chunk.all };
            let source = match &mut cache {
                Some((cache, slots)) => Source::StoredRows { cache: &mut **cache, slots },
                None => Source::Rows,
            };
            let (from, to) =
                if keep == Keep::Nothing { (layer % 2, (layer + 1) % 2) } else { (layer, layer + 1) };
            let input = std::mem::take(&mut workspace.inputs[from]);
            let mut output = std::mem::take(&mut workspace.inputs[to]);
            let mut kept =
                std::mem::take(&mut workspace.kept[if keep == Keep::Everything { layer } else { 0 }]);
            self.layer(
                b,
                store,
                layer,
                &rows,
                sight,
                source,
                &input,
                &mut kept,
                workspace,
                Some(&mut output),
            );
            workspace.inputs[from] = input;
            workspace.inputs[to] = output;
            workspace.kept[if keep == Keep::Everything { layer } else { 0 }] = kept;
        }
        let last = if keep == Keep::Nothing { layers % 2 } else { layers };
        self.final_norm(b, store, query_positions.len(), last, workspace);
    }

    /// One new token per sequence, against the cache; `workspace.hidden` gets the final norm of every row.
    pub(crate) fn step<B: Backend>(
        &self,
        b: &mut B,
        store: &B::Store,
        tokens: &[u32],
        positions: &[u32],
        cache: &mut B::Cache,
        slots: &[u32],
        pieces: &[Piece],
        workspace: &mut Workspace<B>,
    ) {
        let (layers, d) = (self.layout.layers.len(), self.config.hidden_size);
        if workspace.inputs.len() < 2 {
            workspace.inputs.resize_with(2, Default::default);
        }
        if workspace.kept.is_empty() {
            workspace.kept.push(Default::default());
        }
        b.reserve(&mut workspace.inputs[0], tokens.len() * d);
        b.embed(store, self.layout.embedding, d, tokens, &mut workspace.inputs[0]);
        let rows = Rows { positions, subset: None, query_positions: positions };
        let sight = Sight::default();
        for layer in 0..layers {
            let input = std::mem::take(&mut workspace.inputs[layer % 2]);
            let mut output = std::mem::take(&mut workspace.inputs[(layer + 1) % 2]);
            let mut kept = std::mem::take(&mut workspace.kept[0]);
            let source = Source::Cache { cache, slots, pieces };
            self.layer(
                b,
                store,
                layer,
                &rows,
                &sight,
                source,
                &input,
                &mut kept,
                workspace,
                Some(&mut output),
            );
            workspace.inputs[layer % 2] = input;
            workspace.inputs[(layer + 1) % 2] = output;
            workspace.kept[0] = kept;
        }
        self.final_norm(b, store, tokens.len(), layers % 2, workspace);
    }

    fn final_norm<B: Backend>(
        &self,
        b: &mut B,
        store: &B::Store,
        rows: usize,
        input: usize,
        w: &mut Workspace<B>,
    ) {
        b.reserve(&mut w.hidden, rows * self.config.hidden_size);
        b.reserve(&mut w.hidden_scale, rows);
        b.rms_norm(
            store,
            self.layout.norm,
            self.eps,
            rows,
            &w.inputs[input],
            &mut w.hidden,
            &mut w.hidden_scale,
        );
    }

    fn predicting_positions(&self, chunk: &Chunk) -> Vec<u32> {
        chunk.predicting.rows.iter().map(|&row| chunk.positions[row as usize]).collect()
    }

    fn rows<'a>(&self, layer: usize, chunk: &'a Chunk, query_positions: &'a [u32]) -> Rows<'a> {
        let last = layer + 1 == self.layout.layers.len();
        if last && query_positions.len() < chunk.positions.len() {
            Rows { positions: &chunk.positions, subset: Some(&chunk.predicting.rows), query_positions }
        } else {
            Rows { positions: &chunk.positions, subset: None, query_positions: &chunk.positions }
        }
    }

    /// Log-probabilities and entropies of the chunk's picks, after [`Decoder::forward`].
    pub(crate) fn score<B: Backend>(
        &self,
        b: &mut B,
        store: &B::Store,
        chunk: &Chunk,
        temperature: f32,
        w: &mut Workspace<B>,
        logp: &mut [f32],
        entropy: &mut [f32],
    ) -> Result<(), Error> {
        let rows = chunk.predicting.rows.len();
        b.reserve(&mut w.head_saved, 2 * rows);
        b.head(
            store,
            self.head(),
            temperature,
            rows,
            &w.hidden,
            &chunk.picks,
            &mut w.head_saved,
            logp,
            entropy,
        )
    }

    /// Adds to `gradients` what the derivatives of the picks' log-probabilities and entropies make of it. The forward pass must have kept something,
    /// and [`Decoder::score`] must have run.
    pub(crate) fn backward<B: Backend>(
        &self,
        b: &mut B,
        store: &B::Store,
        gradients: &mut Gradients<'_, B>,
        chunk: &Chunk,
        keep: Keep,
        temperature: f32,
        dlogp: &[f32],
        dentropy: &[f32],
        w: &mut Workspace<B>,
    ) {
        let (layers, d) = (self.layout.layers.len(), self.config.hidden_size);
        let rows = chunk.predicting.rows.len();
        let all = chunk.tokens.len();
        b.reserve(&mut w.dnormed, all * d);
        b.reserve(&mut w.dx, all * d);
        let (head, picks) = (self.head(), &chunk.picks);
        let (x, saved, dx) = (&w.hidden, &w.head_saved, &mut w.dnormed);
        b.head_backward(
            store,
            gradients.all(),
            head,
            temperature,
            rows,
            x,
            picks,
            saved,
            dlogp,
            dentropy,
            dx,
        );
        b.scatter(d, &[], &w.dnormed, rows, &mut w.dx);
        let (x, scale) = (&w.inputs[layers], &w.hidden_scale);
        b.rms_norm_backward(store, gradients.all(), self.layout.norm, rows, x, scale, &w.dnormed, &mut w.dx);
        let query_positions = self.predicting_positions(chunk);
        for layer in (0..layers).rev() {
            let rows = self.rows(layer, chunk, &query_positions);
            let sight = if rows.subset.is_some() { &chunk.predicting } else { &chunk.all };
            let input = std::mem::take(&mut w.inputs[layer]);
            let at = if keep == Keep::Everything { layer } else { 0 };
            let mut kept = std::mem::take(&mut w.kept[at]);
            if keep == Keep::Inputs {
                self.layer(b, store, layer, &rows, sight, Source::Rows, &input, &mut kept, w, None);
            }
            // Frozen, the embedding has no use for the first layer's derivative.
            let through = layer > 0 || gradients.all().is_some();
            self.layer_backward(
                b,
                store,
                gradients,
                through,
                &self.layout.layers[layer],
                &rows,
                sight,
                &input,
                &mut kept,
                w,
            );
            w.inputs[layer] = input;
            w.kept[at] = kept;
        }
        if let Some(gradient) = gradients.all() {
            b.embed_backward(gradient, self.layout.embedding, d, &chunk.tokens, &w.dx);
        }
    }

    /// Removes from what a pass kept the rows of families that get no derivative; `chunk` must be laid out anew afterwards.
    /// `rows` and `queries` are the ranges that stay, of all rows and of predicting rows.
    pub(crate) fn keep_rows<B: Backend>(
        &self,
        b: &mut B,
        rows: &[Range<usize>],
        queries: &[Range<usize>],
        keep: Keep,
        w: &mut Workspace<B>,
    ) {
        let (layers, d) = (self.layout.layers.len(), self.config.hidden_size);
        b.keep_rows(d, queries, &mut w.hidden);
        b.keep_rows(1, queries, &mut w.hidden_scale);
        b.keep_rows(2, queries, &mut w.head_saved);
        for (layer, input) in w.inputs.iter_mut().enumerate().take(layers + 1) {
            b.keep_rows(d, if layer == layers { queries } else { rows }, input);
        }
        if keep != Keep::Everything {
            return;
        }
        let (h, k) = (self.heads.queries, self.heads.keys);
        for (layer, kept) in w.kept.iter_mut().enumerate().take(layers) {
            let queries = if layer + 1 == layers { queries } else { rows };
            b.keep_rows(1, rows, &mut kept.attention_scale);
            b.keep_rows(self.heads.query_width(), queries, &mut kept.q);
            b.keep_rows(self.heads.key_width(), rows, &mut kept.kv);
            if self.config.qk_norm {
                b.keep_rows(self.heads.query_width(), queries, &mut kept.q_raw);
                b.keep_rows(h, queries, &mut kept.q_scale);
                b.keep_rows(k * self.heads.size, rows, &mut kept.k_raw);
                b.keep_rows(k, rows, &mut kept.k_scale);
            }
            b.keep_rows(self.heads.query_width(), queries, &mut kept.out);
            b.keep_rows(h, queries, &mut kept.lse);
            b.keep_rows(d, queries, &mut kept.middle);
            b.keep_rows(1, queries, &mut kept.mlp_scale);
            b.keep_rows(2 * self.config.intermediate_size, queries, &mut kept.gate_up);
        }
    }

    /// One layer. Without `output` it stops where the backward pass has all it needs.
    fn layer<B: Backend>(
        &self,
        b: &mut B,
        store: &B::Store,
        index: usize,
        rows: &Rows<'_>,
        sight: &Sight,
        source: Source<'_, B>,
        x: &B::Buffer,
        kept: &mut Kept<B>,
        w: &mut Workspace<B>,
        output: Option<&mut B::Buffer>,
    ) {
        let layer = &self.layout.layers[index];
        let (n, m) = (rows.count(), rows.queries());
        let (d, f) = (self.config.hidden_size, self.config.intermediate_size);
        b.reserve(&mut w.normed, n * d);
        b.reserve(&mut kept.attention_scale, n);
        b.rms_norm(store, layer.attention_norm, self.eps, n, x, &mut w.normed, &mut kept.attention_scale);
        b.reserve(&mut kept.kv, n * self.heads.key_width());
        b.linear(store, layer.kv, n, &w.normed, Write::Replace, &mut kept.kv);
        b.reserve(&mut kept.q, m * self.heads.query_width());
        b.reserve(&mut kept.middle, m * d);
        match rows.subset {
            Some(subset) => {
                b.reserve(&mut w.normed_rows, m * d);
                b.gather(d, subset, &w.normed, &mut w.normed_rows);
                b.linear(store, layer.q, m, &w.normed_rows, Write::Replace, &mut kept.q);
                b.gather(d, subset, x, &mut kept.middle);
            }
            None => {
                b.linear(store, layer.q, m, &w.normed, Write::Replace, &mut kept.q);
                b.copy(m * d, x, &mut kept.middle);
            }
        }
        let (queries, keys) = (self.query_heads(m), self.key_heads(n));
        if let Some(weight) = layer.q_norm {
            b.reserve(&mut kept.q_raw, m * self.heads.query_width());
            b.reserve(&mut kept.q_scale, m * queries.count);
            b.head_norm(store, weight, self.eps, queries, &mut kept.q, &mut kept.q_raw, &mut kept.q_scale);
        }
        if let Some(weight) = layer.k_norm {
            b.reserve(&mut kept.k_raw, n * keys.count * keys.size);
            b.reserve(&mut kept.k_scale, n * keys.count);
            b.head_norm(store, weight, self.eps, keys, &mut kept.kv, &mut kept.k_raw, &mut kept.k_scale);
        }
        b.rotate(Rotation::Forward, queries, rows.query_positions, &mut kept.q);
        b.rotate(Rotation::Forward, keys, rows.positions, &mut kept.kv);
        b.reserve(&mut kept.out, m * self.heads.query_width());
        b.reserve(&mut kept.lse, m * self.heads.queries);
        match source {
            Source::Rows => b.attention(self.heads, sight, &kept.q, &kept.kv, &mut kept.out, &mut kept.lse),
            Source::StoredRows { cache, slots } => {
                b.store_cache(self.heads, cache, index, slots, &kept.kv);
                b.attention(self.heads, sight, &kept.q, &kept.kv, &mut kept.out, &mut kept.lse);
            }
            Source::Cache { cache, slots, pieces } => {
                b.store_cache(self.heads, cache, index, slots, &kept.kv);
                b.cached_attention(self.heads, m, pieces, cache, index, &kept.q, &mut kept.out);
            }
        }
        b.linear(store, layer.o, m, &kept.out, Write::Add, &mut kept.middle);
        b.reserve(&mut w.normed_rows, m * d);
        b.reserve(&mut kept.mlp_scale, m);
        b.rms_norm(store, layer.mlp_norm, self.eps, m, &kept.middle, &mut w.normed_rows, &mut kept.mlp_scale);
        b.reserve(&mut kept.gate_up, m * 2 * f);
        b.linear(store, layer.gate_up, m, &w.normed_rows, Write::Replace, &mut kept.gate_up);
        if let Some(output) = output {
            b.reserve(&mut w.act, m * f);
            b.swiglu(m, f, &kept.gate_up, &mut w.act);
            b.reserve(output, m * d);
            b.copy(m * d, &kept.middle, output);
            b.linear(store, layer.down, m, &w.act, Write::Add, output);
        }
    }

    /// `w.dx` from the derivative of the layer's output to that of its input; the latter only with `through`.
    fn layer_backward<B: Backend>(
        &self,
        b: &mut B,
        store: &B::Store,
        gradients: &mut Gradients<'_, B>,
        through: bool,
        layer: &LayerLayout,
        rows: &Rows<'_>,
        sight: &Sight,
        x: &B::Buffer,
        kept: &mut Kept<B>,
        w: &mut Workspace<B>,
    ) {
        let (n, m) = (rows.count(), rows.queries());
        let (d, f) = (self.config.hidden_size, self.config.intermediate_size);
        // The MLP.
        b.reserve(&mut w.act, m * f);
        b.linear_backward_input(store, layer.down, m, &w.dx, Write::Replace, &mut w.act);
        b.swiglu_backward(m, f, &mut kept.gate_up, &mut w.act);
        gradients.linear(b, layer.down, m, &w.dx, &w.act);
        b.reserve(&mut w.normed_rows, m * d);
        b.rms_norm_again(store, layer.mlp_norm, m, &kept.middle, &kept.mlp_scale, &mut w.normed_rows);
        gradients.linear(b, layer.gate_up, m, &kept.gate_up, &w.normed_rows);
        b.reserve(&mut w.dnormed, n * d);
        b.linear_backward_input(store, layer.gate_up, m, &kept.gate_up, Write::Replace, &mut w.dnormed);
        b.rms_norm_backward(
            store,
            gradients.all(),
            layer.mlp_norm,
            m,
            &kept.middle,
            &kept.mlp_scale,
            &w.dnormed,
            &mut w.dx,
        );
        // Attention.
        b.reserve(&mut w.dout, m * self.heads.query_width());
        gradients.linear(b, layer.o, m, &w.dx, &kept.out);
        b.linear_backward_input(store, layer.o, m, &w.dx, Write::Replace, &mut w.dout);
        b.reserve(&mut w.dq, m * self.heads.query_width());
        b.reserve(&mut w.dkv, n * self.heads.key_width());
        b.attention_backward(
            self.heads, sight, n, &kept.q, &kept.kv, &kept.out, &kept.lse, &w.dout, &mut w.dq, &mut w.dkv,
        );
        let (queries, keys) = (self.query_heads(m), self.key_heads(n));
        b.rotate(Rotation::Backward, queries, rows.query_positions, &mut w.dq);
        b.rotate(Rotation::Backward, keys, rows.positions, &mut w.dkv);
        if let Some(weight) = layer.q_norm {
            b.head_norm_backward(
                store,
                gradients.all(),
                weight,
                queries,
                &kept.q_raw,
                &kept.q_scale,
                &mut w.dq,
            );
        }
        if let Some(weight) = layer.k_norm {
            b.head_norm_backward(
                store,
                gradients.all(),
                weight,
                keys,
                &kept.k_raw,
                &kept.k_scale,
                &mut w.dkv,
            );
        }
        b.reserve(&mut w.normed, n * d);
        b.rms_norm_again(store, layer.attention_norm, n, x, &kept.attention_scale, &mut w.normed);
        gradients.linear(b, layer.kv, n, &w.dkv, &w.normed);
        if through {
            b.linear_backward_input(store, layer.kv, n, &w.dkv, Write::Replace, &mut w.dnormed);
        }
        match rows.subset {
            Some(subset) => {
                b.gather(d, subset, &w.normed, &mut w.normed_rows);
                gradients.linear(b, layer.q, m, &w.dq, &w.normed_rows);
                if !through {
                    return;
                }
                b.linear_backward_input(store, layer.q, m, &w.dq, Write::Replace, &mut w.normed_rows);
                b.scatter_add(d, subset, &w.normed_rows, &mut w.dnormed);
                b.reserve(&mut w.dx_rows, n * d);
                b.scatter(d, subset, &w.dx, n, &mut w.dx_rows);
                std::mem::swap(&mut w.dx, &mut w.dx_rows);
            }
            None => {
                gradients.linear(b, layer.q, m, &w.dq, &w.normed);
                if !through {
                    return;
                }
                b.linear_backward_input(store, layer.q, m, &w.dq, Write::Add, &mut w.dnormed);
            }
        }
        b.rms_norm_backward(
            store,
            gradients.all(),
            layer.attention_norm,
            n,
            x,
            &kept.attention_scale,
            &w.dnormed,
            &mut w.dx,
        );
    }
}
