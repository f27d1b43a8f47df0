//! The layout of tensors in the flat store of parameters.
//!
//! Weights, gradient and both moments of AdamW share one layout, so operations on all parameters (norm, update, reduction over threads) are a loop
//! over one slice. Matrices with the same input are adjacent and need one product: k and v, gate and up; in decoding q, k and v.
//!
//! The layers' matrices of a base in a format of its own (`quantized.rs`) are not in this store. Their spans, which begin where no store ends, are keys.

use crate::config::{Config, GatedDeltaNet};
use crate::families::{Layer, Norms, Weight};
use crate::quantized::BaseFormat;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

/// Where the spans of matrices begin that aren't in the store.
const APART: usize = 1 << (usize::BITS - 2);

impl Span {
    /// Whether it is the key of a matrix that isn't in the store.
    pub(crate) fn is_apart(self) -> bool {
        self.offset >= APART
    }
}

/// Whether a result replaces what is at its place or is added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    Replace,
    Add,
}

/// A linear map `y = x Wᵀ + b`, `W`: `[outputs, inputs]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linear {
    pub(crate) weight: Span,
    pub(crate) bias: Option<Span>,
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct LayerLayout {
    pub(crate) of: Layer,
    /// Index among the layers of its kind: those with keys and values, or those with a state.
    pub(crate) place: usize,
    pub(crate) mixing: Mixing,
    /// Norms before and after attention, or the mixer in its place.
    pub(crate) attention: Norms<Span>,
    /// Output projection of attention, or of the mixer.
    pub(crate) o: Linear,
    pub(crate) mlp: Norms<Span>,
    /// Outputs: gate, then up.
    pub(crate) gate_up: Linear,
    pub(crate) down: Linear,
}

/// The parameters of attention, or of the mixer in its place, but for the output projection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mixing {
    Attention(AttentionLayout),
    Recurrent(MixerLayout),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct AttentionLayout {
    /// Outputs: each head's query, followed by the head's gate if the layer has an output gate.
    pub(crate) queries: Linear,
    /// Outputs: all keys, then all values.
    pub(crate) keys_values: Linear,
    pub(crate) q_norm: Option<Span>,
    pub(crate) k_norm: Option<Span>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct MixerLayout {
    pub(crate) of: GatedDeltaNet,
    /// Outputs: the gate `z`.
    pub(crate) gate: Linear,
    /// Outputs: queries, keys and values, then `b`, then `a`.
    pub(crate) inputs: Linear,
    /// `[channels, kernel]`.
    pub(crate) filter: Span,
    pub(crate) a_log: Span,
    pub(crate) dt_bias: Span,
    pub(crate) norm: Span,
}

impl LayerLayout {
    /// The linear maps of the input: the map that only rows with a needed result take, and the map that all rows take.
    pub(crate) fn input_maps(&self) -> [&Linear; 2] {
        match &self.mixing {
            Mixing::Attention(AttentionLayout { queries, keys_values, .. }) => [queries, keys_values],
            Mixing::Recurrent(MixerLayout { gate, inputs, .. }) => [gate, inputs],
        }
    }

    pub(crate) fn linears(&self) -> [&Linear; 5] {
        let [own, all] = self.input_maps();
        [own, all, &self.o, &self.gate_up, &self.down]
    }

    /// The recurrent mixer in place of attention, if there is one.
    pub(crate) fn mixer(&self) -> Option<&MixerLayout> {
        match &self.mixing {
            Mixing::Attention(_) => None,
            Mixing::Recurrent(mixer) => Some(mixer),
        }
    }
}

/// The kind of a tensor, which determines its initial value and whether weight decay may exclude it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Matrix,
    Bias,
    Norm,
    /// Of a convolution.
    Filter,
    /// Logarithms of a mixer's rates of decay.
    Rates,
    /// Ones, whatever is added to the weights of norms: a mixer's norm, and the bias of its steps.
    Ones,
}

/// One tensor under its Hugging Face name.
#[derive(Debug, Clone)]
pub(crate) struct TensorLayout {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

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
    /// The format of the layers' matrices, if they aren't in the store.
    pub(crate) base: Option<BaseFormat>,
}

/// Blocks start at multiples of this many numbers, 64 bytes.
const LINE: usize = 16;

struct Builder {
    tensors: Vec<TensorLayout>,
    len: usize,
    /// The next key of a matrix that isn't in the store, if there are such.
    apart: Option<usize>,
}

impl Builder {
    fn line(&mut self) {
        self.len = self.len.next_multiple_of(LINE);
    }

    fn put(&mut self, name: String, shape: &[usize], kind: Kind) -> Span {
        let span = Span { offset: self.len, len: shape.iter().product() };
        self.len += span.len;
        self.push(name, shape, kind, span)
    }

    fn matrix(&mut self, name: String, shape: &[usize]) -> Span {
        let Some(offset) = self.apart else { return self.put(name, shape, Kind::Matrix) };
        let span = Span { offset, len: shape.iter().product() };
        self.apart = Some(offset + span.len);
        self.push(name, shape, Kind::Matrix, span)
    }

    fn push(&mut self, name: String, shape: &[usize], kind: Kind, span: Span) -> Span {
        self.tensors.push(TensorLayout { name, shape: shape.to_vec(), span, kind });
        span
    }

    /// Stacked matrices of a layer with the same input.
    fn linear(&mut self, layer: usize, parts: &[&Weight]) -> Linear {
        let [linear] = self.linears(layer, [parts]);
        linear
    }

    /// Linear maps of the same input, of stacked matrices each; then their stacked biases, so that one product can compute all.
    fn linears<const N: usize>(&mut self, layer: usize, maps: [&[&Weight]; N]) -> [Linear; N] {
        let mut linears = maps.map(|parts| {
            self.line();
            let (outputs, inputs) = (parts.iter().map(|part| part.shape[0]).sum(), parts[0].shape[1]);
            let weight = Span { offset: self.apart.unwrap_or(self.len), len: outputs * inputs };
            for part in parts {
                self.matrix(part.name(layer), &part.shape);
            }
            Linear { weight, bias: None, outputs, inputs }
        });
        self.line();
        for (linear, parts) in linears.iter_mut().zip(maps) {
            linear.bias = parts[0].bias.then_some(Span { offset: self.len, len: linear.outputs });
            for Weight { module, shape, .. } in parts.iter().filter(|part| part.bias) {
                self.put(format!("model.layers.{layer}.{module}.bias"), &shape[..1], Kind::Bias);
            }
        }
        linears
    }

    /// A tensor that begins a line.
    fn apart_from(&mut self, name: String, shape: &[usize], kind: Kind) -> Span {
        self.line();
        self.put(name, shape, kind)
    }

    fn norm(&mut self, name: String, shape: &[usize]) -> Span {
        self.apart_from(name, shape, Kind::Norm)
    }
}

impl Layout {
    /// The layout of a decoder, with the layers' matrices apart if they are in a `base` format.
    pub(crate) fn new(config: &Config, base: Option<BaseFormat>) -> Layout {
        let (d, v) = (config.hidden_size, config.vocab_size);
        let mut b = Builder { tensors: Vec::new(), len: 0, apart: base.map(|_| APART) };
        let embedding = b.put("model.embed_tokens.weight".into(), &[v, d], Kind::Matrix);
        let mut places = [0; 2];
        let layers = (0..config.num_hidden_layers)
            .map(|index| {
                let of = config.layer(index);
                let weights = of.weights(config);
                let find = |module: &str| weights.iter().find(|weight| weight.module == module);
                let linear = |module: &str| find(module).expect("every layer has it");
                let norm = |b: &mut Builder, module: Option<&str>| {
                    let Weight { module, shape, .. } = find(module?)?;
                    Some(b.norm(format!("model.layers.{index}.{module}.weight"), shape))
                };
                let before = norm(&mut b, of.attention.before);
                let (mixing, o) = match of.mixer {
                    Some(sizes) => {
                        let mut put = |module: &str, kind| {
                            let weight = linear(module);
                            b.apart_from(weight.name(index), &weight.shape, kind)
                        };
                        let filter = put("linear_attn.conv1d", Kind::Filter);
                        let a_log = put("linear_attn.A_log", Kind::Rates);
                        let dt_bias = put("linear_attn.dt_bias", Kind::Ones);
                        let norm = put("linear_attn.norm", Kind::Ones);
                        let [z, qkv, b_rows, a] = ["in_proj_z", "in_proj_qkv", "in_proj_b", "in_proj_a"]
                            .map(|name| linear(&format!("linear_attn.{name}")));
                        let [gate, inputs] = b.linears(index, [&[z], &[qkv, b_rows, a]]);
                        let mixer = MixerLayout { of: sizes, gate, inputs, filter, a_log, dt_bias, norm };
                        (Mixing::Recurrent(mixer), "linear_attn.out_proj")
                    }
                    None => {
                        let [q, k, v] =
                            ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"].map(linear);
                        let [queries, keys_values] = b.linears(index, [&[q], &[k, v]]);
                        let q_norm = norm(&mut b, Some("self_attn.q_norm"));
                        let k_norm = norm(&mut b, Some("self_attn.k_norm"));
                        let attention = AttentionLayout { queries, keys_values, q_norm, k_norm };
                        (Mixing::Attention(attention), "self_attn.o_proj")
                    }
                };
                let place = &mut places[usize::from(of.mixer.is_some())];
                *place += 1;
                LayerLayout {
                    of,
                    place: *place - 1,
                    mixing,
                    o: b.linear(index, &[linear(o)]),
                    attention: Norms { before, after: norm(&mut b, of.attention.after) },
                    mlp: Norms { before: norm(&mut b, of.mlp.before), after: norm(&mut b, of.mlp.after) },
                    gate_up: b.linear(index, &["mlp.gate_proj", "mlp.up_proj"].map(linear)),
                    down: b.linear(index, &[linear("mlp.down_proj")]),
                }
            })
            .collect();
        let norm = b.norm("model.norm.weight".into(), &[d]);
        let head = if config.tie_word_embeddings {
            embedding
        } else {
            b.line();
            b.put("lm_head.weight".into(), &[v, d], Kind::Matrix)
        };
        b.line();
        Layout { embedding, layers, norm, head, tensors: b.tensors, len: b.len, base }
    }

    /// Numbers of a sequence's state, by layer that has one.
    pub(crate) fn states(&self) -> impl Iterator<Item = usize> + '_ {
        self.layers.iter().filter_map(|layer| Some(layer.mixer()?.of.state()))
    }

    /// The matrices that aren't in the store.
    pub(crate) fn apart(&self) -> impl Iterator<Item = &TensorLayout> {
        self.tensors.iter().filter(|tensor| tensor.span.is_apart())
    }
}
