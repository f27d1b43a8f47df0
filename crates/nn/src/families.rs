//! Families of decoders, a file each: what their `config.json` says, and what a layer consists of. Nothing else asks which family a model is.

mod gemma3_text;
mod llama;
mod ministral3;
mod mistral;
mod olmo2;
mod olmo3;
mod qwen2;
mod qwen3;
mod qwen3_5_text;
mod smollm3;

use serde_json::Value;

use crate::config::fields::Fields;
use crate::config::{Architecture, Config, GatedDeltaNet};
use crate::error::Error;

/// A family. Those that differ little from Llama are its values but for some.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    /// The `architectures` entry of `config.json`.
    pub(crate) class_name: &'static str,
    pub(crate) model_type: &'static str,
    /// What transformers takes for fields that a file leaves out.
    pub(crate) defaults: fn() -> Value,
    /// Base of the rotary frequencies if a file has none.
    pub(crate) default_theta: f64,
    /// Order in which GGUF files of the family store the rows of queries and keys, or `None` if its files are neither read nor written.
    pub(crate) gguf: Option<GgufRows>,
    /// Settings of which only one value is supported here; they are written too.
    pub(crate) supported: fn() -> Value,
    /// Reads the settings that not all families have.
    pub(crate) read: fn(&Fields<'_>, &mut Config) -> Result<(), Error>,
    /// Those settings, as written.
    pub(crate) write: fn(&Config) -> Value,
    /// What the family refuses of sizes that others have: field, found, wanted.
    pub(crate) refused: fn(&Config) -> Option<(&'static str, String, String)>,
    /// The model with other parts of which this is the text part.
    pub(crate) whole: Option<Whole>,
    /// What is added to the weights of norms.
    pub(crate) norm_offset: f32,
    pub(crate) embedding_scale: fn(&Config) -> f32,
    /// What the layer of an index consists of.
    layer: fn(&Config, usize) -> Layer,
}

/// A model with a vision tower, say: its text part's settings are its `text_config`, and the names of its tensors have `language_model.` after `model.` or before it.
#[derive(Clone, Copy)]
pub(crate) struct Whole {
    pub(crate) model_type: &'static str,
    /// How the names of tensors begin that are no part of the text model; files of that model alone may have them, too.
    pub(crate) left_out: &'static [&'static str],
}

/// Order of the rows of queries and keys in a GGUF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GgufRows {
    /// As in a Hugging Face checkpoint.
    Plain,
    /// The two halves of a head, which a rotation pairs, are interleaved.
    Interleaved,
}

/// What a layer consists of: `x += after(attention(before(x)))`, or the same with a recurrent mixer; then the same with the MLP.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layer {
    /// The mixer in place of attention, if there is one. What follows of attention is then without meaning.
    pub(crate) mixer: Option<GatedDeltaNet>,
    pub(crate) attention: Norms<&'static str>,
    pub(crate) mlp: Norms<&'static str>,
    /// Whether the projections to queries, keys and values have a bias.
    pub(crate) qkv_bias: bool,
    /// Whether attention's results are multiplied by the sigmoid of a gate: `q_proj` has a head's query and then its gate.
    pub(crate) output_gate: bool,
    /// Norms of queries and keys, if there are any.
    pub(crate) qk_norm: Option<QkNorm>,
    /// By which frequencies queries and keys are rotated, if they are.
    pub(crate) rope: Option<Theta>,
    /// Latest tokens that a query sees, its own among them, if not all.
    pub(crate) window: Option<usize>,
    pub(crate) activation: Activation,
}

/// Which base the rotary frequencies have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theta {
    /// `rope_theta`, and the scaling.
    Global,
    /// `rope_local_base_freq`.
    Local,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    Silu,
    /// GELU by its approximation with a tanh.
    GeluTanh,
}

/// Norms before and after attention, or the MLP: their names in a checkpoint, or where they lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Norms<T> {
    pub(crate) before: Option<T>,
    pub(crate) after: Option<T>,
}

/// What a norm of queries and keys is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QkNorm {
    /// Each head, with the same weights.
    Head,
    /// All heads of a token together.
    Whole,
}

/// A weight of a layer: a matrix, a norm, or a mixer's.
#[derive(Debug, Clone)]
pub(crate) struct Weight {
    /// The name of its module in the layer.
    pub(crate) module: &'static str,
    /// Its name in the module: `.weight`, or nothing where the module's name is its own.
    pub(crate) suffix: &'static str,
    /// `[outputs, inputs]`, `[width]`, or `[channels, 1, inputs]` of a convolution.
    pub(crate) shape: Vec<usize>,
    /// Whether a bias is added to the outputs.
    pub(crate) bias: bool,
}

impl Weight {
    /// Its name in a checkpoint.
    pub(crate) fn name(&self, layer: usize) -> String {
        format!("model.layers.{layer}.{}{}", self.module, self.suffix)
    }
}

/// Whether a checkpoint's tensor is one of the layers' matrices.
pub(crate) fn is_layer_matrix(name: &str, shape: &[usize]) -> bool {
    name.starts_with("model.layers.") && shape.len() == 2
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
        }
    }

    /// The `architectures` entry of `config.json`.
    pub fn class_name(self) -> &'static str {
        self.family().class_name
    }

    /// The `model_type` entry of `config.json`.
    pub fn model_type(self) -> &'static str {
        self.family().model_type
    }
}

/// The largest head size of the GPUs' attention kernels.
const LARGEST_HEAD: usize = 256;
/// Likewise of a recurrent mixer.
const LARGEST_MIXER_HEAD: usize = 128;
/// Maximum number of inputs of a mixer's convolution in the GPU kernels.
pub(crate) const LARGEST_CONVOLUTION: usize = 8;

impl Config {
    /// What the layer of an index consists of.
    pub(crate) fn layer(&self, layer: usize) -> Layer {
        (self.architecture.family().layer)(self, layer)
    }

    /// Checks that GPUs compute all of the model.
    ///
    /// # Errors
    /// Names what they don't.
    pub fn check_on_gpus(&self) -> Result<(), Error> {
        let mut sizes = vec![("head_dim", self.head_dim, 1, LARGEST_HEAD)];
        if let Some(of) = self.linear_attention.filter(|_| self.is_recurrent()) {
            sizes.extend([
                ("linear_key_head_dim", of.linear_key_head_dim, 4, LARGEST_MIXER_HEAD),
                ("linear_value_head_dim", of.linear_value_head_dim, 4, LARGEST_MIXER_HEAD),
                ("linear_conv_kernel_dim", of.linear_conv_kernel_dim, 1, LARGEST_CONVOLUTION),
            ]);
        }
        let refused = |&&(_, size, of, most): &&(_, usize, usize, usize)| size > most || size % of != 0;
        let Some((name, size, of, most)) = sizes.iter().find(refused) else { return Ok(()) };
        let found = format!("a GPU for {}", self.architecture.model_type());
        let multiple = if *of > 1 { format!(", and multiples of {of}") } else { String::new() };
        let wanted = format!("cpu: {name} {size} is not computed on GPUs, which take up to {most}{multiple}");
        Err(Error::request("device", found, wanted))
    }

    /// Whether it has recurrent layers.
    pub fn is_recurrent(&self) -> bool {
        (0..self.num_hidden_layers).any(|layer| self.layer(layer).mixer.is_some())
    }

    /// Name and shape of every tensor of a checkpoint with this configuration, under Hugging Face names, in file order.
    /// The output layer's `lm_head.weight` is absent if it shares the embedding.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (v, d) = (self.vocab_size, self.hidden_size);
        let mut all = vec![("model.embed_tokens.weight".to_string(), vec![v, d])];
        for layer in 0..self.num_hidden_layers {
            let weights = self.layer(layer).weights(self);
            all.extend(weights.iter().map(|w| (w.name(layer), w.shape.clone())));
            let biased = weights.iter().filter(|w| w.bias);
            let name = |w: &Weight| format!("model.layers.{layer}.{}.bias", w.module);
            all.extend(biased.map(|w| (name(w), vec![w.shape[0]])));
        }
        all.push(("model.norm.weight".into(), vec![d]));
        if !self.tie_word_embeddings {
            all.push(("lm_head.weight".into(), vec![v, d]));
        }
        all
    }

    /// Number of parameters; a shared output layer counts once.
    ///
    /// # Panics
    /// If the sizes were not validated and there are 2^62 or more.
    pub fn parameters(&self) -> u64 {
        self.checked_parameters().expect("validated sizes")
    }

    /// [`Config::parameters`]; `None` if there are 2^62 or more.
    pub fn checked_parameters(&self) -> Option<u64> {
        let numbers = |shape: &[usize]| shape.iter().map(|&size| size as u128).product::<u128>();
        let of_weight = |w: Weight| numbers(&w.shape) + if w.bias { w.shape[0] as u128 } else { 0 };
        let weights = (0..self.num_hidden_layers).flat_map(|layer| self.layer(layer).weights(self));
        let embeddings = if self.tie_word_embeddings { 1 } else { 2 };
        let total = weights.map(of_weight).sum::<u128>()
            + embeddings * numbers(&[self.vocab_size, self.hidden_size])
            + self.hidden_size as u128;
        u64::try_from(total).ok().filter(|&total| total < 1 << 62)
    }
}

impl Layer {
    /// The weights, by module, in file order; their biases, after them in a file, have the shape's first size.
    pub(crate) fn weights(&self, config: &Config) -> Vec<Weight> {
        let (d, f, e) = (config.hidden_size, config.intermediate_size, config.head_dim);
        let (q, kv, bias) = (config.num_attention_heads * e, config.num_key_value_heads * e, self.qkv_bias);
        let suffix = ".weight";
        let norm = |module, width| Weight { module, suffix, shape: vec![width], bias: false };
        let matrix = |module, outputs, inputs, bias| {
            let shape = vec![outputs, inputs];
            Weight { module, suffix, shape, bias }
        };
        let of_width = |name: Option<&'static str>| name.map(|module| norm(module, d));
        let mut weights: Vec<Weight> = of_width(self.attention.before).into_iter().collect();
        match self.mixer {
            Some(mixer) => {
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
            None => {
                weights.extend([
                    matrix("self_attn.q_proj", if self.output_gate { 2 * q } else { q }, d, bias),
                    matrix("self_attn.k_proj", kv, d, bias),
                    matrix("self_attn.v_proj", kv, d, bias),
                    matrix("self_attn.o_proj", d, q, false),
                ]);
                if let Some(over) = self.qk_norm {
                    let [q, k] = if over == QkNorm::Head { [e, e] } else { [q, kv] };
                    weights.extend([norm("self_attn.q_norm", q), norm("self_attn.k_norm", k)]);
                }
            }
        }
        weights.extend(of_width(self.attention.after).into_iter().chain(of_width(self.mlp.before)));
        weights.extend([
            matrix("mlp.gate_proj", f, d, false),
            matrix("mlp.up_proj", f, d, false),
            matrix("mlp.down_proj", d, f, false),
        ]);
        weights.extend(of_width(self.mlp.after));
        weights
    }
}
