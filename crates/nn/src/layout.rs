//! The layout of tensors in the flat parameter store.
//!
//! Weights, gradients and both AdamW moments share one layout, so operations on all parameters (norm, update, reduction over threads) are a
//! loop over one slice. Matrices with the same input are adjacent, so one product computes them together: k and v, gate and up, and in
//! decoding q, k and v. Some families store q, k and v as one matrix; the maps of q and of k and v are then parts of it.
//!
//! If the layers' matrices are quantized (`quantized.rs`), they aren't in this store. Their spans then start past the end of any store, and
//! serve only as keys.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::config::{Config, GatedDeltaNet};
use crate::families::{KeysValues, Layer, Norms, Recurrence, ShortConvolution, Weight};
use crate::quantized::BaseFormat;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

/// Offset of the first matrix that isn't in the store.
const QUANTIZED: usize = 1 << (usize::BITS - 2);

impl Span {
    /// Returns whether this is the key of a matrix that isn't in the store.
    pub(crate) fn is_quantized(self) -> bool {
        self.offset >= QUANTIZED
    }

    /// Returns the common part of two spans, or `None` if they are disjoint.
    pub(crate) fn intersection(self, other: Span) -> Option<Span> {
        let offset = self.offset.max(other.offset);
        let end = (self.offset + self.len).min(other.offset + other.len);
        (offset < end).then(|| Span { offset, len: end - offset })
    }
}

/// Whether a result replaces the destination's values or is added to them.
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

impl Linear {
    /// Splits a map without a bias into the maps to its first `outputs` outputs and to its other outputs.
    fn split_at(self, outputs: usize) -> [Linear; 2] {
        let Linear { weight, inputs, .. } = self;
        let part = |rows: Range<usize>| {
            let weight = Span { offset: weight.offset + rows.start * inputs, len: rows.len() * inputs };
            Linear { weight, bias: None, outputs: rows.len(), inputs }
        };
        [part(0..outputs), part(outputs..self.outputs)]
    }

    /// Returns the matrices that contain rows of this map's weight, in the order of the outputs, each with the range of these rows.
    /// `matrices` are indexed by the offsets of their spans, and `len` returns a matrix's number of values.
    pub(crate) fn rows_in<M>(
        self,
        matrices: &BTreeMap<usize, M>,
        len: impl Fn(&M) -> usize,
    ) -> impl Iterator<Item = (&M, Range<usize>)> {
        let Span { offset, len: values } = self.weight;
        let first = matrices.range(..=offset).next_back().map_or(offset, |(&first, _)| first);
        matrices.range(first..offset + values).filter_map(move |(&offset, matrix)| {
            let part = Span { offset, len: len(matrix) }.intersection(self.weight)?;
            let first = (part.offset - offset) / self.inputs;
            Some((matrix, first..first + part.len / self.inputs))
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct LayerLayout {
    pub(crate) spec: Layer,
    /// Index among the layers of the same kind: attention layers that compute keys and values, or recurrent layers. A
    /// layer that borrows keys and values has the index of the layer that computes them.
    pub(crate) index_of_kind: usize,
    pub(crate) mixing: Mixing,
    /// Norms before and after attention, or before and after the mixer that replaces it.
    pub(crate) attention: Norms<Span>,
    /// Output projection of attention, or of the mixer.
    pub(crate) output: Linear,
    pub(crate) mlp: Norms<Span>,
    /// The MLP's gate and up projections as one map. Outputs: all of gate, then all of up.
    pub(crate) gate_up: Linear,
    pub(crate) down: Linear,
    pub(crate) per_layer_input: Option<PerLayerInput>,
    /// Factor of the layer's result.
    pub(crate) scalar: Option<Span>,
}

/// Parameters with which a layer adds its part of the per-layer inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PerLayerInput {
    pub(crate) gate: Linear,
    pub(crate) projection: Linear,
    pub(crate) norm: Span,
}

/// Parameters from which the inputs of all layers are computed. A row has the inputs of all layers, one after another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PerLayerInputs {
    /// Number of values per layer.
    pub(crate) size: usize,
    pub(crate) table: Span,
    /// Map from the embedding.
    pub(crate) projection: Linear,
    /// Norm of each layer's part.
    pub(crate) norm: Span,
}

/// Parameters of attention or of the mixer that replaces it, without the output projection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mixing {
    Attention(AttentionLayout),
    Recurrent(MixerLayout),
    Convolution(ConvolutionLayout),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct AttentionLayout {
    /// Outputs: each head's query, followed by that head's gate if the layer has an output gate.
    pub(crate) queries: Linear,
    /// Outputs: all keys, then all values; or only keys, from which values are computed too. `None` if another layer computes them.
    pub(crate) keys_values: Option<Linear>,
    pub(crate) q_norm: Option<Span>,
    pub(crate) k_norm: Option<Span>,
    /// Zeros: a norm without weights is a norm with weights 0 and the offset 1.
    pub(crate) v_norm: Option<Span>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct MixerLayout {
    pub(crate) sizes: GatedDeltaNet,
    /// Outputs: the gate `z`.
    pub(crate) gate: Linear,
    /// Outputs: queries, keys and values of the heads, then `b` (write strength) and `a` (decay) of each head.
    pub(crate) inputs: Linear,
    /// Weights of the convolution: `[channels, kernel]`.
    pub(crate) filter: Span,
    pub(crate) a_log: Span,
    pub(crate) dt_bias: Span,
    pub(crate) norm: Span,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ConvolutionLayout {
    pub(crate) sizes: ShortConvolution,
    /// Outputs: the gate before the convolution, the gate after it, and the values.
    pub(crate) inputs: Linear,
    /// Weights of the convolution: `[width, kernel]`.
    pub(crate) filter: Span,
}

impl LayerLayout {
    /// Returns the linear maps of the layer's input: for the rows whose result is needed, and for all rows. A layer may lack either.
    pub(crate) fn input_maps(&self) -> (Option<&Linear>, Option<&Linear>) {
        match &self.mixing {
            Mixing::Attention(AttentionLayout { queries, keys_values, .. }) => {
                (Some(queries), keys_values.as_ref())
            }
            Mixing::Recurrent(MixerLayout { gate, inputs, .. }) => (Some(gate), Some(inputs)),
            Mixing::Convolution(ConvolutionLayout { inputs, .. }) => (None, Some(inputs)),
        }
    }

    pub(crate) fn linears(&self) -> impl Iterator<Item = &Linear> {
        let (needed_rows, all_rows) = self.input_maps();
        let added = self.per_layer_input.iter().flat_map(|added| [&added.gate, &added.projection]);
        let maps = needed_rows.into_iter().chain(all_rows);
        maps.chain([&self.output, &self.gate_up, &self.down]).chain(added)
    }
}

/// Kind of a tensor, which determines its initial value and whether weight decay may exclude it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Matrix,
    Bias,
    Norm,
    Filter,
    /// Logarithms of a mixer's decay rates, its `A_log`.
    Rates,
    /// A mixer's norm or `dt_bias`, initialised to ones also in families that add 1 to the weights of norms.
    Ones,
    /// A tensor of ones that is never trained. Such tensors come last.
    Fixed,
}

/// A tensor under its Hugging Face name.
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
    pub(crate) per_layer_inputs: Option<PerLayerInputs>,
    pub(crate) norm: Span,
    /// Vocabulary head, `[V, D]`. The span of the embedding if they are tied.
    pub(crate) head: Span,
    pub(crate) tensors: Vec<TensorLayout>,
    /// Number of values in the parameter store, including padding that aligns blocks to cache lines.
    pub(crate) len: usize,
    /// Format of the layers' matrices if they are quantized, and therefore not in the store.
    pub(crate) base: Option<BaseFormat>,
}

/// Alignment of blocks, in values: 64 bytes.
const LINE: usize = 16;

struct Builder {
    tensors: Vec<TensorLayout>,
    len: usize,
    /// Offset of the next matrix outside the store, or `None` if all matrices are in the store.
    quantized: Option<usize>,
}

impl Builder {
    fn align(&mut self) {
        self.len = self.len.next_multiple_of(LINE);
    }

    fn put(&mut self, name: String, shape: &[usize], kind: Kind) -> Span {
        let span = Span { offset: self.len, len: shape.iter().product() };
        self.len += span.len;
        self.push(name, shape, kind, span)
    }

    fn matrix(&mut self, name: String, shape: &[usize]) -> Span {
        let Some(offset) = self.quantized else { return self.put(name, shape, Kind::Matrix) };
        let span = Span { offset, len: shape.iter().product() };
        self.quantized = Some(offset + span.len);
        self.push(name, shape, Kind::Matrix, span)
    }

    fn push(&mut self, name: String, shape: &[usize], kind: Kind, span: Span) -> Span {
        self.tensors.push(TensorLayout { name, shape: shape.to_vec(), span, kind });
        span
    }

    /// Adds matrices of a layer that share an input, stacked.
    fn linear(&mut self, layer: usize, parts: &[&Weight]) -> Linear {
        let [linear] = self.linears(layer, [parts]);
        linear
    }

    /// Adds linear maps that share an input, each of stacked matrices, and then their biases, so that one product can compute all of them.
    fn linears<const N: usize>(&mut self, layer: usize, maps: [&[&Weight]; N]) -> [Linear; N] {
        let mut linears = maps.map(|parts| {
            self.align();
            let (outputs, inputs) = (parts.iter().map(|part| part.shape[0]).sum(), parts[0].shape[1]);
            let weight = Span { offset: self.quantized.unwrap_or(self.len), len: outputs * inputs };
            for part in parts {
                self.matrix(part.name(layer), &part.shape);
            }
            Linear { weight, bias: None, outputs, inputs }
        });
        self.align();
        for (linear, parts) in linears.iter_mut().zip(maps) {
            linear.bias = parts[0].bias.then_some(Span { offset: self.len, len: linear.outputs });
            for part in parts.iter().filter(|part| part.bias) {
                self.put(part.bias_name(layer), &part.shape[..1], Kind::Bias);
            }
        }
        linears
    }

    fn put_aligned(&mut self, name: String, shape: &[usize], kind: Kind) -> Span {
        self.align();
        self.put(name, shape, kind)
    }

    fn norm(&mut self, name: String, shape: &[usize]) -> Span {
        self.put_aligned(name, shape, Kind::Norm)
    }
}

impl Layout {
    /// Lays out a decoder. With a quantized `base`, the layers' matrices are outside the store.
    pub(crate) fn new(config: &Config, base: Option<BaseFormat>) -> Layout {
        let (d, v) = (config.hidden_size, config.vocab_size);
        let mut b = Builder { tensors: Vec::new(), len: 0, quantized: base.map(|_| QUANTIZED) };
        let embedding = b.put("model.embed_tokens.weight".into(), &[v, d], Kind::Matrix);
        let per_layer_inputs = config.layer(0).per_layer_input;
        let per_layer_inputs = (per_layer_inputs > 0).then(|| {
            let spans: Vec<Span> = config
                .per_layer_inputs()
                .map(|(name, shape)| {
                    let kind = if shape.len() > 1 { Kind::Matrix } else { Kind::Norm };
                    b.put_aligned(name.into(), &shape, kind)
                })
                .collect();
            let outputs = per_layer_inputs * config.num_hidden_layers;
            let projection = Linear { weight: spans[1], bias: None, outputs, inputs: d };
            PerLayerInputs { size: per_layer_inputs, table: spans[0], projection, norm: spans[2] }
        });
        let mut counts = [0; 2];
        // Indices of the layers that lend their keys and values, by slot.
        let mut lenders = [0; 2];
        let mut layers: Vec<LayerLayout> = (0..config.num_hidden_layers)
            .map(|index| {
                let spec = config.layer(index);
                let weights = spec.weights(config);
                let find = |module: &str| weights.iter().find(|weight| weight.module == module);
                let linear = |module: &str| find(module).expect("every layer has it");
                let norm = |b: &mut Builder, module: Option<&str>| {
                    let weight = find(module?)?;
                    Some(b.norm(weight.name(index), &weight.shape))
                };
                let before = norm(&mut b, spec.attention.before);
                let (mixing, output) = match spec.mixer {
                    Some(Recurrence::DeltaRule(sizes)) => {
                        let mut put = |module: &str, kind| {
                            let weight = linear(module);
                            b.put_aligned(weight.name(index), &weight.shape, kind)
                        };
                        let filter = put("linear_attn.conv1d", Kind::Filter);
                        let a_log = put("linear_attn.A_log", Kind::Rates);
                        let dt_bias = put("linear_attn.dt_bias", Kind::Ones);
                        let norm = put("linear_attn.norm", Kind::Ones);
                        let [z, qkv, b_rows, a] = ["in_proj_z", "in_proj_qkv", "in_proj_b", "in_proj_a"]
                            .map(|name| linear(&format!("linear_attn.{name}")));
                        let [gate, inputs] = b.linears(index, [&[z], &[qkv, b_rows, a]]);
                        let mixer = MixerLayout { sizes, gate, inputs, filter, a_log, dt_bias, norm };
                        (Mixing::Recurrent(mixer), "linear_attn.out_proj")
                    }
                    Some(Recurrence::Convolution(sizes)) => {
                        let weight = linear("conv.conv");
                        let filter = b.put_aligned(weight.name(index), &weight.shape, Kind::Filter);
                        let inputs = b.linear(index, &[linear("conv.in_proj")]);
                        let convolution = ConvolutionLayout { sizes, inputs, filter };
                        (Mixing::Convolution(convolution), "conv.out_proj")
                    }
                    None => {
                        let [queries, keys_values] = if spec.fused {
                            let qkv = b.linear(index, &[linear("self_attn.qkv_proj")]);
                            qkv.split_at(config.num_attention_heads * config.head_dim).map(Some)
                        } else {
                            let q = linear("self_attn.q_proj");
                            match ["self_attn.k_proj", "self_attn.v_proj"].map(find) {
                                [Some(k), Some(v)] => b.linears(index, [&[q], &[k, v]]).map(Some),
                                [Some(k), None] => b.linears(index, [&[q], &[k]]).map(Some),
                                _ => [Some(b.linear(index, &[q])), None],
                            }
                        };
                        let q_norm = norm(&mut b, Some("self_attn.q_norm"));
                        let k_norm = norm(&mut b, Some("self_attn.k_norm"));
                        let queries = queries.expect("every layer has queries");
                        let attention =
                            AttentionLayout { queries, keys_values, q_norm, k_norm, v_norm: None };
                        (Mixing::Attention(attention), "self_attn.o_proj")
                    }
                };
                let count = &mut counts[usize::from(spec.mixer.is_some())];
                let index_of_kind = match spec.keys_values {
                    KeysValues::Borrowed(slot) => lenders[slot],
                    KeysValues::Lent(slot) => {
                        lenders[slot] = *count;
                        *count
                    }
                    KeysValues::Projected => *count,
                };
                if !matches!(spec.keys_values, KeysValues::Borrowed(_)) {
                    *count += 1;
                }
                LayerLayout {
                    spec,
                    index_of_kind,
                    mixing,
                    output: b.linear(index, &[linear(output)]),
                    attention: Norms { before, after: norm(&mut b, spec.attention.after) },
                    mlp: Norms { before: norm(&mut b, spec.mlp.before), after: norm(&mut b, spec.mlp.after) },
                    gate_up: if spec.fused {
                        b.linear(index, &[linear("mlp.gate_up_proj")])
                    } else {
                        b.linear(index, &["mlp.gate_proj", "mlp.up_proj"].map(linear))
                    },
                    down: b.linear(index, &[linear("mlp.down_proj")]),
                    per_layer_input: find("per_layer_input_gate").map(|gate| PerLayerInput {
                        gate: b.linear(index, &[gate]),
                        projection: b.linear(index, &[linear("per_layer_projection")]),
                        norm: norm(&mut b, Some("post_per_layer_input_norm")).expect("it has a norm"),
                    }),
                    scalar: None,
                }
            })
            .collect();
        let norm = b.norm(config.architecture.family().last_norm.into(), &[d]);
        let head = if config.tie_word_embeddings {
            embedding
        } else {
            b.align();
            b.put("lm_head.weight".into(), &[v, d], Kind::Matrix)
        };
        b.align();
        for (index, layer) in layers.iter_mut().enumerate().filter(|(_, layer)| layer.spec.layer_scalar) {
            layer.scalar = Some(b.put(format!("model.layers.{index}.layer_scalar"), &[1], Kind::Fixed));
        }
        b.align();
        let heads = layers.iter().filter(|layer| layer.spec.value_norm).map(|layer| layer.spec.head_dim);
        let zeros = Span { offset: b.len, len: heads.max().unwrap_or(0) };
        b.len += zeros.len;
        b.align();
        for layer in layers.iter_mut().filter(|layer| layer.spec.value_norm) {
            if let Mixing::Attention(attention) = &mut layer.mixing {
                attention.v_norm = Some(Span { len: layer.spec.head_dim, ..zeros });
            }
        }
        let tensors = b.tensors;
        Layout { embedding, layers, per_layer_inputs, norm, head, tensors, len: b.len, base }
    }

    /// Returns the tensors except those that are never trained.
    pub(crate) fn trained(&self) -> &[TensorLayout] {
        &self.tensors[..self.tensors.partition_point(|tensor| tensor.kind != Kind::Fixed)]
    }

    /// Returns the linear maps of all layers, and the map from the embedding to their inputs.
    pub(crate) fn linears(&self) -> impl Iterator<Item = &Linear> {
        let before = self.per_layer_inputs.iter().map(|inputs| &inputs.projection);
        self.layers.iter().flat_map(|layer| layer.linears()).chain(before)
    }

    /// Returns the number of values in a token's keys and values, for each layer that computes them.
    pub(crate) fn cached(&self) -> impl Iterator<Item = usize> + '_ {
        let spec = |layer: &LayerLayout| layer.spec;
        self.layers
            .iter()
            .map(spec)
            .filter(Layer::computes_keys)
            .map(|spec| 2 * spec.key_heads * spec.head_dim)
    }

    /// Returns the number of values in a sequence's state, for each recurrent layer.
    pub(crate) fn states(&self) -> impl Iterator<Item = usize> + '_ {
        self.layers.iter().filter_map(|layer| Some(layer.spec.mixer?.state()))
    }

    /// Returns the matrices that aren't in the store.
    pub(crate) fn quantized(&self) -> impl Iterator<Item = &TensorLayout> {
        self.tensors.iter().filter(|tensor| tensor.span.is_quantized())
    }
}
