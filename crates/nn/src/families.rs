//! Model families, one file each: how to read a `config.json`, and the structure of a layer. No other code depends on a model's family.

mod gemma3_text;
mod gemma4_text;
mod granite;
mod lfm2;
mod llama;
mod ministral3;
mod mistral;
mod olmo2;
mod olmo3;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_5_text;
mod smollm3;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::config::fields::Fields;
use crate::config::{Architecture, Config, GatedDeltaNet, LayerType};
use crate::error::Error;

/// A model family. Families that differ little from Llama override some fields of `llama::FAMILY`.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    /// The `architectures` entry of `config.json`.
    pub(crate) class_name: &'static str,
    pub(crate) model_type: &'static str,
    /// Defaults of transformers for fields that a file omits.
    pub(crate) defaults: fn() -> Value,
    /// Default base of the rotary frequencies, for files without one.
    pub(crate) default_theta: f64,
    /// Form of the family's models in GGUF files, or `None` if GGUF is not supported for the family.
    pub(crate) gguf: Option<GgufForm>,
    /// Settings for which only one value is supported. They are also written.
    pub(crate) supported: fn() -> Value,
    /// Reads the settings that only some families have.
    pub(crate) read: fn(&Fields<'_>, &mut Config) -> Result<(), Error>,
    /// Returns the fields to write for the settings that only some families have.
    pub(crate) write: fn(&Config) -> Value,
    /// Returns the first setting that this family rejects, as (field, value, expected value).
    pub(crate) refused: fn(&Config) -> Option<(&'static str, String, String)>,
    /// `model_type` of the multimodal model whose text part this family is, if there is one. The `text_config` of that model holds the text part's
    /// settings, and its tensors have `language_model.` before or after `model.` in their names.
    pub(crate) whole: Option<&'static str>,
    /// Offset that is added to the weights of norms.
    pub(crate) norm_offset: f32,
    pub(crate) embedding_scale: fn(&Config) -> f32,
    /// Name of the last norm in a checkpoint.
    pub(crate) last_norm: &'static str,
    /// Whether a tensor of a checkpoint is ignored, as transformers ignores it.
    pub(crate) is_unused: fn(&Config, &str) -> bool,
    /// Structure of the layer with an index.
    layer: fn(&Config, usize) -> Layer,
}

/// Prefixes of the tensors and modules of multimodal models outside of the text part. Files of the text part may contain them too.
pub(crate) const LEFT_OUT: [&str; 9] = [
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
    "model.visual.",
    "mtp.",
    "model.embed_vision.",
    "model.audio_tower.",
    "model.embed_audio.",
];

/// Returns whether a tensor or module belongs to a multimodal model, but not to its text part.
pub(crate) fn is_left_out(name: &str) -> bool {
    LEFT_OUT.iter().any(|part| name.starts_with(part))
}

/// Form of a family's models in a GGUF file, as llama.cpp reads it.
#[derive(Clone, Copy)]
pub(crate) struct GgufForm {
    /// Value of `general.architecture`. If families share it, a file belongs to the first of them that knows all of its keys.
    pub(crate) architecture: &'static str,
    pub(crate) rows: GgufRows,
    /// The family's additional numeric keys: key without the architecture prefix, field of `config.json`, and
    /// llama.cpp's default, or `None` if the key is required.
    pub(crate) settings: &'static [(&'static str, &'static str, Option<f64>)],
    /// Keys of which only one value is supported, with this value.
    pub(crate) only: &'static [(&'static str, &'static str)],
    /// Modules and tensors whose names differ from Llama's: name in a checkpoint (without the layer), name in GGUF.
    pub(crate) names: &'static [(&'static str, &'static str)],
    /// Converts fields of a GGUF file to fields of `config.json`. The closure returns whether the file has a tensor.
    pub(crate) read: fn(&mut Map<String, Value>, &dyn Fn(&str) -> bool),
    /// Converts the fields of `config.json` to the fields of a GGUF file. Fails with the first field that llama.cpp
    /// can't represent.
    pub(crate) write: fn(&Config, &mut Map<String, Value>) -> Result<(), Unrepresentable>,
}

/// Field with the number of multi-token prediction layers, which follow the model's last layer.
pub(crate) const FURTHER_LAYERS: &str = "mtp_num_hidden_layers";

/// A field that a GGUF file can't represent: name, value and expected value.
type Unrepresentable = (&'static str, String, String);

/// Name of the GGUF key and of the field for layers that alternate in a fixed period.
const PERIOD: &str = "sliding_window_pattern";

/// Converts the layers with a window from the form of a GGUF file, a list with `true` for each of them, to `layer_types`.
fn read_gguf_windows(fields: &mut Map<String, Value>) {
    if let Some(Value::Array(windows)) = fields.get(PERIOD) {
        let kind = |window: &Value| {
            json!(if *window == true { LayerType::SlidingAttention } else { LayerType::FullAttention })
        };
        let types = windows.iter().map(kind).collect();
        fields.insert("layer_types".into(), types);
        fields.remove(PERIOD);
    }
}

/// Sets `field` to the period `n` of the layers with full attention. Returns an error unless exactly the last of each
/// `n` layers has full attention.
fn write_gguf_period(
    config: &Config,
    fields: &mut Map<String, Value>,
    field: &str,
) -> Result<(), Unrepresentable> {
    let full =
        |layer: usize| config.layer_types.get(layer).is_none_or(|kind| *kind == LayerType::FullAttention);
    let layers = config.num_hidden_layers;
    let fits = |period: &usize| (0..layers).all(|layer| full(layer) == (layer + 1).is_multiple_of(*period));
    let Some(period) = (1..=layers + 1).find(fits) else {
        let found = json!(config.layer_types).to_string();
        return Err(("layer_types", found, "full_attention in the last of each n layers".into()));
    };
    fields.insert(field.into(), json!(period));
    Ok(())
}

/// Returns an error if the head size isn't `D / H`, which llama.cpp assumes for some architectures.
fn check_gguf_heads(config: &Config) -> Result<(), Unrepresentable> {
    let (width, heads) = (config.hidden_size, config.num_attention_heads);
    if config.head_dim * heads == width {
        return Ok(());
    }
    Err((
        "head_dim",
        config.head_dim.to_string(),
        format!("{width} / {heads}, hidden_size / num_attention_heads"),
    ))
}

/// Order of the rows of queries and keys in a GGUF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GgufRows {
    /// As in a Hugging Face checkpoint.
    Plain,
    /// The two halves of each head, which are rotated in pairs, are interleaved.
    Interleaved,
}

/// Structure of a layer: `x += after(attention(before(x)))`, with attention or a recurrent mixer, and then `x += after(mlp(before(x)))`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layer {
    /// The mixer that replaces attention. If present, the fields about attention below are meaningless.
    pub(crate) mixer: Option<Recurrence>,
    pub(crate) attention: Norms<&'static str>,
    pub(crate) mlp: Norms<&'static str>,
    /// Modules whose names in a checkpoint differ from Llama's: Llama's name, then the checkpoint's.
    pub(crate) renamed: &'static [(&'static str, &'static str)],
    /// Whether queries, keys and values are computed by one matrix, `qkv_proj`, and gate and up by another, `gate_up_proj`.
    pub(crate) fused: bool,
    /// Whether the projections to queries, keys and values have a bias.
    pub(crate) qkv_bias: bool,
    /// Whether the attention output is multiplied by the sigmoid of a gate. `q_proj` then outputs each head's query followed by its gate.
    pub(crate) output_gate: bool,
    /// `K`, the number of key/value heads.
    pub(crate) key_heads: usize,
    /// `E`, the size of a head.
    pub(crate) head_dim: usize,
    /// Factor of the attention scores.
    pub(crate) scale: f32,
    /// Source of the keys and values.
    pub(crate) keys_values: KeysValues,
    /// Whether values are the result of the projection to keys, before its norm.
    pub(crate) values_from_keys: bool,
    /// Norms of queries and keys.
    pub(crate) qk_norm: Option<QkNorm>,
    /// Whether each head's value is normalised, without weights.
    pub(crate) value_norm: bool,
    /// Frequencies of the rotary embedding, or `None` without one.
    pub(crate) rope: Option<Theta>,
    /// Number of latest tokens that a query sees, including its own, or `None` if it sees all.
    pub(crate) window: Option<usize>,
    pub(crate) activation: Activation,
    /// `F`, the inner width of the MLP.
    pub(crate) intermediate: usize,
    /// Size of the embedding that the layer adds for each token after the MLP, or 0 without one.
    pub(crate) per_layer_input: usize,
    /// Whether the layer's result is multiplied by a stored number, which isn't trained.
    pub(crate) layer_scalar: bool,
}

/// Source of a layer's keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeysValues {
    /// Projections of the layer's input.
    Projected,
    /// Projections of the layer's input, which later layers use too. A pass holds them in the slot with this index.
    Lent(usize),
    /// The keys and values of the last earlier layer that lends this slot.
    Borrowed(usize),
}

/// A mixer that replaces attention. It has a state in place of keys and values.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Recurrence {
    DeltaRule(GatedDeltaNet),
    Convolution(ShortConvolution),
}

impl Recurrence {
    /// Returns the number of values in a sequence's state.
    pub(crate) fn state(&self) -> usize {
        match self {
            Recurrence::DeltaRule(sizes) => sizes.state(),
            Recurrence::Convolution(sizes) => sizes.state(),
        }
    }
}

/// Sizes of a gated short convolution.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShortConvolution {
    /// Number of channels.
    pub(crate) width: usize,
    /// Number of latest inputs that the convolution sees, including the token's own.
    pub(crate) kernel: usize,
}

impl ShortConvolution {
    /// Returns the number of values in a sequence's state, which is the latest inputs of the convolution.
    pub(crate) fn state(&self) -> usize {
        (self.kernel - 1) * self.width
    }
}

/// Base of a layer's rotary frequencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theta {
    /// `rope_theta`, with scaling.
    Global,
    /// `rope_local_base_freq`, without scaling.
    Local,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    Silu,
    /// The tanh approximation of GELU.
    GeluTanh,
}

/// Norms before and after attention or the MLP: names in a checkpoint, or spans in the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norms<T> {
    pub(crate) before: Option<T>,
    pub(crate) after: Option<T>,
}

/// Vector over which queries and keys are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QkNorm {
    /// Each head, with the same weights for all heads.
    Head,
    /// All heads of a token together.
    Whole,
}

/// A weight of a layer: a matrix, a norm, or a tensor of a mixer.
#[derive(Debug, Clone)]
pub(crate) struct Weight {
    /// Llama's name of the module within the layer.
    pub(crate) module: &'static str,
    /// Name of the module within the layer in a checkpoint.
    path: &'static str,
    /// Name within the module: `.weight`, or empty if the module is itself the tensor.
    pub(crate) suffix: &'static str,
    /// `[outputs, inputs]`, `[width]`, or `[channels, 1, inputs]` for a convolution.
    pub(crate) shape: Vec<usize>,
    /// Whether the module also has a bias.
    pub(crate) bias: bool,
}

impl Weight {
    /// Returns the name in a checkpoint.
    pub(crate) fn name(&self, layer: usize) -> String {
        format!("model.layers.{layer}.{}{}", self.path, self.suffix)
    }

    /// Returns the name of the bias in a checkpoint.
    pub(crate) fn bias_name(&self, layer: usize) -> String {
        format!("model.layers.{layer}.{}.bias", self.path)
    }
}

/// Returns whether a checkpoint's tensor is a matrix of a layer.
pub(crate) fn is_layer_matrix(name: &str, shape: &[usize]) -> bool {
    name.starts_with("model.layers.") && shape.len() == 2
}

/// Returns the types of the layers that a file lists, or `None` if it lists none. Returns an error for a type that isn't `allowed`.
fn listed_types(
    fields: &Fields<'_>,
    config: &Config,
    allowed: &[LayerType],
) -> Result<Option<Vec<LayerType>>, Error> {
    #[derive(Deserialize)]
    struct Layers {
        layer_types: Option<Vec<LayerType>>,
    }
    let Some(types) = fields.read::<Layers>()?.layer_types else { return Ok(None) };
    if let Some(other) = types.iter().find(|kind| !allowed.contains(kind)) {
        let expected = format!("only {}", json!(allowed));
        return fields.refuse_found("layer_types", json!(other).to_string(), expected);
    }
    let (entries, layers) = (types.len(), config.num_hidden_layers);
    if entries != layers {
        return fields.refuse_found(
            "layer_types",
            format!("{entries} entries"),
            format!("{layers}, one per layer"),
        );
    }
    Ok(Some(types))
}

/// Returns the layer types that a file lists, or else full attention in the last of each `interval` layers and `other` before it.
fn alternating_types(
    fields: &Fields<'_>,
    config: &Config,
    other: LayerType,
    interval: &str,
) -> Result<Vec<LayerType>, Error> {
    let full = last_of(fields, interval)?;
    let kind = |layer| if full(layer) { LayerType::FullAttention } else { other };
    let types = listed_types(fields, config, &[LayerType::FullAttention, other])?;
    Ok(types.unwrap_or_else(|| (0..config.num_hidden_layers).map(kind).collect()))
}

/// Returns whether a layer is the last of each `n` layers, where `n` is the field's value. Returns an error if `n` isn't a positive number.
fn last_of(fields: &Fields<'_>, field: &str) -> Result<impl Fn(usize) -> bool + use<>, Error> {
    match fields.get(field).and_then(Value::as_u64) {
        Some(count @ 1..) => Ok(move |layer: usize| (layer as u64 + 1).is_multiple_of(count)),
        _ => fields.refuse(field, "a positive number"),
    }
}

impl Architecture {
    pub(crate) fn family(self) -> &'static Family {
        match self {
            Architecture::Qwen2 => &qwen2::FAMILY,
            Architecture::Qwen3 => &qwen3::FAMILY,
            Architecture::Llama => &llama::FAMILY,
            Architecture::Mistral => &mistral::FAMILY,
            Architecture::Ministral3 => &ministral3::FAMILY,
            Architecture::SmolLM3 => &smollm3::FAMILY,
            Architecture::Olmo2 => &olmo2::FAMILY,
            Architecture::Gemma3Text => &gemma3_text::FAMILY,
            Architecture::Olmo3 => &olmo3::FAMILY,
            Architecture::Qwen3_5Text => &qwen3_5_text::FAMILY,
            Architecture::Granite => &granite::FAMILY,
            Architecture::Phi3 => &phi3::FAMILY,
            Architecture::Lfm2 => &lfm2::FAMILY,
            Architecture::Gemma4Text => &gemma4_text::FAMILY,
        }
    }

    /// Returns the `architectures` entry of `config.json`.
    pub fn class_name(self) -> &'static str {
        self.family().class_name
    }

    /// Returns the `model_type` entry of `config.json`.
    pub fn model_type(self) -> &'static str {
        self.family().model_type
    }
}

/// Largest head size of the GPU's attention kernels.
const LARGEST_HEAD: usize = 256;
/// Largest head size of the GPU's mixer kernels.
const LARGEST_MIXER_HEAD: usize = 128;
/// Largest convolution kernel of the GPU's mixer kernels.
pub(crate) const LARGEST_CONVOLUTION: usize = 8;

impl Config {
    /// Returns the structure of the layer with index `layer`.
    pub(crate) fn layer(&self, layer: usize) -> Layer {
        (self.architecture.family().layer)(self, layer)
    }

    /// Checks that the GPU kernels support all sizes of the model.
    ///
    /// # Errors
    /// Names the first size that the kernels don't support.
    pub fn check_on_gpus(&self) -> Result<(), Error> {
        let refuse = |expected| {
            Err(Error::request("device", format!("a GPU for {}", self.architecture.model_type()), expected))
        };
        if (0..self.num_hidden_layers).any(|layer| self.layer(layer).layer_scalar) {
            return refuse("cpu; no GPU kernel computes layer_scalar, per-layer input embeddings, borrowed keys and values, the norm of values or the soft cap".into());
        }
        if self.conv_l_cache.is_some() && self.is_recurrent() {
            return refuse("cpu; the GPU kernels don't support layers of type conv".into());
        }
        let mut sizes = vec![("head_dim", self.head_dim, 1, LARGEST_HEAD)];
        if let Some(mixer) = self.linear_attention.filter(|_| self.is_recurrent()) {
            sizes.extend([
                ("linear_key_head_dim", mixer.linear_key_head_dim, 4, LARGEST_MIXER_HEAD),
                ("linear_value_head_dim", mixer.linear_value_head_dim, 4, LARGEST_MIXER_HEAD),
                ("linear_conv_kernel_dim", mixer.linear_conv_kernel_dim, 1, LARGEST_CONVOLUTION),
            ]);
        }
        let is_refused =
            |&&(_, size, unit, limit): &&(_, usize, usize, usize)| size > limit || size % unit != 0;
        let Some((name, size, unit, limit)) = sizes.iter().find(is_refused) else { return Ok(()) };
        let multiple = if *unit > 1 { format!(", and only multiples of {unit}") } else { String::new() };
        refuse(format!("cpu; the GPU kernels don't support {name} {size}, only up to {limit}{multiple}"))
    }

    /// Returns whether the model has recurrent layers.
    pub fn is_recurrent(&self) -> bool {
        (0..self.num_hidden_layers).any(|layer| self.layer(layer).mixer.is_some())
    }

    /// Returns the names and shapes of a checkpoint's tensors, under Hugging Face names and in file order.
    /// `lm_head.weight` is absent if the output layer shares the embedding.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (v, d) = (self.vocab_size, self.hidden_size);
        let mut all = vec![("model.embed_tokens.weight".to_string(), vec![v, d])];
        all.extend(self.per_layer_inputs().map(|(name, shape)| (name.to_string(), shape)));
        for layer in 0..self.num_hidden_layers {
            let weights = self.layer(layer).weights(self);
            all.extend(weights.iter().map(|w| (w.name(layer), w.shape.clone())));
            let biased = weights.iter().filter(|w| w.bias);
            all.extend(biased.map(|w| (w.bias_name(layer), vec![w.shape[0]])));
        }
        all.push((self.architecture.family().last_norm.into(), vec![d]));
        if !self.tie_word_embeddings {
            all.push(("lm_head.weight".into(), vec![v, d]));
        }
        all
    }

    /// Returns the names and shapes of the tensors from which the inputs of all layers are computed: the table, its map from the embedding, and
    /// its norm. Empty without such inputs.
    pub(crate) fn per_layer_inputs(&self) -> impl Iterator<Item = (&'static str, Vec<usize>)> {
        let size = self.layer(0).per_layer_input;
        let width = size * self.num_hidden_layers;
        let tokens = self.gemma4.map_or(0, |gemma4| gemma4.vocab_size_per_layer_input);
        let tensors = [
            ("model.embed_tokens_per_layer.weight", vec![tokens, width]),
            ("model.per_layer_model_projection.weight", vec![width, self.hidden_size]),
            ("model.per_layer_projection_norm.weight", vec![size]),
        ];
        tensors.into_iter().filter(move |_| size > 0)
    }

    /// Returns the number of parameters; a shared output layer counts once.
    ///
    /// # Panics
    /// If there are 2^62 or more, which validation rules out.
    pub fn parameters(&self) -> u64 {
        self.checked_parameters().expect("validated sizes")
    }

    /// Like [`Config::parameters`], but returns `None` if there are 2^62 or more.
    pub fn checked_parameters(&self) -> Option<u64> {
        let numbers = |shape: &[usize]| shape.iter().map(|&size| size as u128).product::<u128>();
        let size = |w: Weight| numbers(&w.shape) + if w.bias { w.shape[0] as u128 } else { 0 };
        let weights = (0..self.num_hidden_layers).flat_map(|layer| self.layer(layer).weights(self));
        let embeddings = if self.tie_word_embeddings { 1 } else { 2 };
        let total = weights.map(size).sum::<u128>()
            + self.per_layer_inputs().map(|(_, shape)| numbers(&shape)).sum::<u128>()
            + embeddings * numbers(&[self.vocab_size, self.hidden_size])
            + self.hidden_size as u128;
        u64::try_from(total).ok().filter(|&total| total < 1 << 62)
    }
}

impl Layer {
    /// Returns whether the layer computes keys and values, which are cached.
    pub(crate) fn computes_keys(&self) -> bool {
        self.mixer.is_none() && !matches!(self.keys_values, KeysValues::Borrowed(_))
    }

    /// Returns the weights of the layer in file order. In a file, the biases follow all weights. A bias has the first size of its weight's shape.
    pub(crate) fn weights(&self, config: &Config) -> Vec<Weight> {
        let (d, f, e) = (config.hidden_size, self.intermediate, self.head_dim);
        let (q, kv, bias) = (config.num_attention_heads * e, self.key_heads * e, self.qkv_bias);
        let suffix = ".weight";
        let norm = |module, width| Weight { module, path: module, suffix, shape: vec![width], bias: false };
        let matrix = |module, outputs, inputs, bias| {
            let shape = vec![outputs, inputs];
            Weight { module, path: module, suffix, shape, bias }
        };
        let width_norm = |name: Option<&'static str>| name.map(|module| norm(module, d));
        let mut weights: Vec<Weight> = width_norm(self.attention.before).into_iter().collect();
        match self.mixer {
            Some(Recurrence::DeltaRule(mixer)) => {
                let (heads, channels) = (mixer.linear_num_value_heads, mixer.channels());
                let bare = |module| Weight { suffix: "", ..norm(module, heads) };
                let filter = vec![channels, 1, mixer.linear_conv_kernel_dim];
                weights.extend([
                    bare("linear_attn.dt_bias"),
                    bare("linear_attn.A_log"),
                    Weight { shape: filter, ..norm("linear_attn.conv1d", 0) },
                    norm("linear_attn.norm", mixer.linear_value_head_dim),
                    matrix("linear_attn.out_proj", d, mixer.value_width(), false),
                    matrix("linear_attn.in_proj_qkv", channels, d, false),
                    matrix("linear_attn.in_proj_z", mixer.value_width(), d, false),
                    matrix("linear_attn.in_proj_b", heads, d, false),
                    matrix("linear_attn.in_proj_a", heads, d, false),
                ]);
            }
            Some(Recurrence::Convolution(ShortConvolution { width, kernel })) => weights.extend([
                Weight { shape: vec![width, 1, kernel], ..norm("conv.conv", 0) },
                matrix("conv.in_proj", 3 * width, d, false),
                matrix("conv.out_proj", d, width, false),
            ]),
            None if self.fused => weights.extend([
                matrix("self_attn.qkv_proj", q + 2 * kv, d, bias),
                matrix("self_attn.o_proj", d, q, false),
            ]),
            None => {
                let borrows = matches!(self.keys_values, KeysValues::Borrowed(_));
                weights.push(matrix("self_attn.q_proj", if self.output_gate { 2 * q } else { q }, d, bias));
                if !borrows {
                    weights.push(matrix("self_attn.k_proj", kv, d, bias));
                }
                if !(borrows || self.values_from_keys) {
                    weights.push(matrix("self_attn.v_proj", kv, d, bias));
                }
                weights.push(matrix("self_attn.o_proj", d, q, false));
                if let Some(over) = self.qk_norm {
                    let [q, k] = if over == QkNorm::Head { [e, e] } else { [q, kv] };
                    weights.push(norm("self_attn.q_norm", q));
                    weights.extend((!borrows).then(|| norm("self_attn.k_norm", k)));
                }
            }
        }
        weights.extend(width_norm(self.attention.after).into_iter().chain(width_norm(self.mlp.before)));
        if self.fused {
            weights.push(matrix("mlp.gate_up_proj", 2 * f, d, false));
        } else {
            weights.extend(["mlp.gate_proj", "mlp.up_proj"].map(|name| matrix(name, f, d, false)));
        }
        weights.push(matrix("mlp.down_proj", d, f, false));
        weights.extend(width_norm(self.mlp.after));
        if self.per_layer_input > 0 {
            weights.extend([
                matrix("per_layer_input_gate", self.per_layer_input, d, false),
                matrix("per_layer_projection", d, self.per_layer_input, false),
                norm("post_per_layer_input_norm", d),
            ]);
        }
        weights.extend(self.layer_scalar.then(|| Weight { suffix: "", ..norm("layer_scalar", 1) }));
        for weight in &mut weights {
            let renamed = self.renamed.iter().find(|(name, _)| *name == weight.module);
            weight.path = renamed.map_or(weight.module, |(_, path)| path);
        }
        weights
    }
}
