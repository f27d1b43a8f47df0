//! The layout of tensors in the flat store of parameters.
//!
//! Weights, gradient and both moments of AdamW share one layout, so operations on all parameters (norm, update, reduction over threads) are a loop
//! over one slice. Matrices with the same input are adjacent and need one product: k and v, gate and up.

use crate::config::Config;

/// A range of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

/// A linear map `y = x Wᵀ + b`, `W`: `[outputs, inputs]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linear {
    pub(crate) weight: Span,
    pub(crate) bias: Option<Span>,
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
}

/// The parameters of one layer.
#[derive(Debug, Clone)]
pub(crate) struct LayerLayout {
    pub(crate) attention_norm: Span,
    pub(crate) q: Linear,
    /// Outputs: all keys, then all values.
    pub(crate) kv: Linear,
    pub(crate) q_norm: Option<Span>,
    pub(crate) k_norm: Option<Span>,
    pub(crate) o: Linear,
    pub(crate) mlp_norm: Span,
    /// Outputs: gate, then up.
    pub(crate) gate_up: Linear,
    pub(crate) down: Linear,
}

impl LayerLayout {
    /// The layer's linear maps.
    pub(crate) fn linears(&self) -> [&Linear; 5] {
        [&self.q, &self.kv, &self.o, &self.gate_up, &self.down]
    }
}

/// The kind of a tensor, which determines its initial value and whether weight decay may exclude it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Matrix,
    Bias,
    Norm,
}

/// One tensor under its Hugging Face name.
#[derive(Debug, Clone)]
pub(crate) struct TensorLayout {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

/// All parameters of a decoder.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) embedding: Span,
    pub(crate) layers: Vec<LayerLayout>,
    pub(crate) norm: Span,
    /// `[V, D]`; the embedding if tied.
    pub(crate) head: Span,
    pub(crate) tensors: Vec<TensorLayout>,
    /// Length of the store, including padding that aligns blocks to cache lines.
    pub(crate) len: usize,
}

/// Blocks start at multiples of this many numbers, 64 bytes.
const LINE: usize = 16;

struct Builder {
    tensors: Vec<TensorLayout>,
    len: usize,
}

impl Builder {
    fn line(&mut self) {
        self.len = self.len.next_multiple_of(LINE);
    }

    fn put(&mut self, name: String, shape: &[usize], kind: Kind) -> Span {
        let span = Span { offset: self.len, len: shape.iter().product() };
        self.len += span.len;
        self.tensors.push(TensorLayout { name, shape: shape.to_vec(), span, kind });
        span
    }

    /// Stacked matrices with the same input, then their stacked biases.
    fn linear(&mut self, prefix: &str, parts: &[(&str, usize)], inputs: usize, bias: bool) -> Linear {
        self.line();
        let outputs = parts.iter().map(|part| part.1).sum();
        let weight = Span { offset: self.len, len: outputs * inputs };
        for (name, outputs) in parts {
            self.put(format!("{prefix}.{name}.weight"), &[*outputs, inputs], Kind::Matrix);
        }
        self.line();
        let start = self.len;
        if bias {
            for (name, outputs) in parts {
                self.put(format!("{prefix}.{name}.bias"), &[*outputs], Kind::Bias);
            }
        }
        Linear { weight, bias: bias.then_some(Span { offset: start, len: outputs }), outputs, inputs }
    }

    fn norm(&mut self, name: String, width: usize) -> Span {
        self.line();
        self.put(name, &[width], Kind::Norm)
    }
}

impl Layout {
    pub(crate) fn new(config: &Config) -> Layout {
        let (d, f, v) = (config.hidden_size, config.intermediate_size, config.vocab_size);
        let queries = config.num_attention_heads * config.head_dim;
        let keys = config.num_key_value_heads * config.head_dim;
        let mut b = Builder { tensors: Vec::new(), len: 0 };
        let embedding = b.put("model.embed_tokens.weight".into(), &[v, d], Kind::Matrix);
        let layers = (0..config.num_hidden_layers)
            .map(|index| {
                let layer = format!("model.layers.{index}");
                let attention = format!("{layer}.self_attn");
                let mlp = format!("{layer}.mlp");
                let attention_norm = b.norm(format!("{layer}.input_layernorm.weight"), d);
                let q = b.linear(&attention, &[("q_proj", queries)], d, config.qkv_bias);
                let kv = b.linear(&attention, &[("k_proj", keys), ("v_proj", keys)], d, config.qkv_bias);
                let q_norm =
                    config.qk_norm.then(|| b.norm(format!("{attention}.q_norm.weight"), config.head_dim));
                let k_norm =
                    config.qk_norm.then(|| b.norm(format!("{attention}.k_norm.weight"), config.head_dim));
                let o = b.linear(&attention, &[("o_proj", d)], queries, false);
                let mlp_norm = b.norm(format!("{layer}.post_attention_layernorm.weight"), d);
                let gate_up = b.linear(&mlp, &[("gate_proj", f), ("up_proj", f)], d, false);
                let down = b.linear(&mlp, &[("down_proj", d)], f, false);
                LayerLayout { attention_norm, q, kv, q_norm, k_norm, o, mlp_norm, gate_up, down }
            })
            .collect();
        let norm = b.norm("model.norm.weight".into(), d);
        let head = if config.tie_word_embeddings {
            embedding
        } else {
            b.line();
            b.put("lm_head.weight".into(), &[v, d], Kind::Matrix)
        };
        b.line();
        Layout { embedding, layers, norm, head, tensors: b.tensors, len: b.len }
    }
}
