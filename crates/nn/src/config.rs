//! Configuration of a decoder under Hugging Face names, and its validation.

pub(crate) mod fields;
mod generation;
mod json;

use json::PARTIAL;

pub use generation::end_tokens_of;
pub(crate) use generation::{end_tokens, generation_config};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Model family of a checkpoint, which determines its `architectures` and `model_type` fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// `Qwen2ForCausalLM`: Llama with a bias on q, k and v.
    #[default]
    Qwen2,
    /// `Qwen3ForCausalLM`: Llama with an RMSNorm on each head's query and key.
    Qwen3,
    /// `LlamaForCausalLM`: the family to which the other descriptions refer.
    Llama,
    /// `MistralForCausalLM`: Llama, with an optional sliding window.
    Mistral,
    /// `Ministral3ForCausalLM`: Mistral with queries that are scaled up at positions beyond the original context length.
    Ministral3,
    /// `SmolLM3ForCausalLM`: Llama without rotary embedding in every fourth layer.
    SmolLM3,
    /// `Olmo2ForCausalLM`: norms after attention and MLP, and over the queries and keys of all heads together.
    Olmo2,
    /// `Gemma3ForCausalLM`: norms before and after attention and MLP, and on each head; sliding windows in most layers; GELU.
    #[serde(rename = "gemma3_text")]
    Gemma3Text,
    /// `Olmo3ForCausalLM`: OLMo 2 with a sliding window in most layers.
    Olmo3,
    /// `Qwen3_5ForCausalLM`: gated DeltaNet in most layers; attention with an output gate and norms of each head in the others.
    #[serde(rename = "qwen3_5_text")]
    Qwen3_5Text,
    /// `GraniteForCausalLM`: Llama with [`Multipliers`].
    Granite,
    /// `Phi3ForCausalLM`: Mistral with one matrix for queries, keys and values, and another for gate and up.
    Phi3,
    /// `Lfm2ForCausalLM`: gated short convolutions in most layers; attention with norms of each head in the others.
    Lfm2,
    /// `Gemma4ForCausalLM`: Gemma 3 with [`Gemma4`]'s settings.
    #[serde(rename = "gemma4_text")]
    Gemma4Text,
}

/// Way in which a layer mixes tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerType {
    /// Attention to all earlier tokens.
    FullAttention,
    /// Attention to the latest tokens.
    SlidingAttention,
    /// A recurrent state instead of keys and values.
    LinearAttention,
    /// A gated short convolution.
    Conv,
}

/// Sizes of a gated DeltaNet mixer, under transformers' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatedDeltaNet {
    /// Number of latest inputs that the convolution sees, including the token's own.
    pub linear_conv_kernel_dim: usize,
    /// Size of a head's query and of its key.
    pub linear_key_head_dim: usize,
    /// Size of a head's value.
    pub linear_value_head_dim: usize,
    /// Number of heads of queries and keys.
    pub linear_num_key_heads: usize,
    /// Number of heads of values, each with a state; a multiple of `linear_num_key_heads`.
    pub linear_num_value_heads: usize,
}

impl GatedDeltaNet {
    /// Returns the number of values in a token's queries, over all heads. Its keys have the same number of values.
    pub(crate) fn key_width(&self) -> usize {
        self.linear_num_key_heads * self.linear_key_head_dim
    }

    pub(crate) fn value_width(&self) -> usize {
        self.linear_num_value_heads * self.linear_value_head_dim
    }

    /// Returns the number of channels of the convolution, which covers queries, keys and values.
    pub(crate) fn channels(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }

    /// Returns the number of inputs per token: the channels, then `b` (write strength) and `a` (decay) of each value head.
    pub(crate) fn input_width(&self) -> usize {
        self.channels() + 2 * self.linear_num_value_heads
    }

    /// Returns the number of values in a head's state.
    pub(crate) fn head_state(&self) -> usize {
        self.linear_key_head_dim * self.linear_value_head_dim
    }

    /// Returns the number of values in a sequence's state: the states of all heads, and the latest inputs of the convolution.
    pub(crate) fn state(&self) -> usize {
        let inputs = (self.linear_conv_kernel_dim - 1) * self.channels();
        self.linear_num_value_heads * self.head_state() + inputs
    }
}

/// Granite's factors, under transformers' names.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Multipliers {
    /// Factor of the embedding.
    pub embedding_multiplier: f64,
    /// Factor of the attention scores, in place of `1 / sqrt(head_dim)`.
    pub attention_multiplier: f64,
    /// Factor of the results of attention and of the MLP before they are added to the residual.
    pub residual_multiplier: f64,
    /// Divisor of the logits.
    pub logits_scaling: f64,
}

impl Multipliers {
    /// transformers' defaults, for fields that a file lacks.
    pub(crate) const NONE: Multipliers = Multipliers {
        embedding_multiplier: 1.0,
        attention_multiplier: 1.0,
        residual_multiplier: 1.0,
        logits_scaling: 1.0,
    };
}

/// Settings that only Gemma 4 has, under transformers' names.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gemma4 {
    /// Size of a head, `E`, in layers with full attention; even.
    pub global_head_dim: usize,
    /// Number of key/value heads, `K`, in layers with full attention; divides `H`.
    pub num_global_key_value_heads: usize,
    /// Whether layers with full attention compute their values from the result of `k_proj`, before its norm.
    pub attention_k_eq_v: bool,
    /// Number of last layers that use the keys and values of the last earlier layer of their type.
    pub num_kv_shared_layers: usize,
    /// Whether the MLP of the `num_kv_shared_layers` last layers has twice the `intermediate_size`.
    pub use_double_wide_mlp: bool,
    /// Size of the embedding that each layer adds for each token, or 0 without one.
    pub hidden_size_per_layer_input: usize,
    /// Number of tokens in the table of the per-layer embeddings.
    pub vocab_size_per_layer_input: usize,
    /// Logits `z` become `cap * tanh(z / cap)`, or are unchanged if `None`.
    pub final_logit_softcapping: Option<f64>,
}

/// Scaling of the rotary frequencies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// Unscaled frequencies.
    #[default]
    Default,
    /// All frequencies are divided by `factor`.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3's scaling, which depends on the wavelength.
    Llama3 {
        /// Divisor of the lowest frequencies.
        factor: f64,
        /// Wavelengths above `original_max_position_embeddings / low_freq_factor` are divided.
        low_freq_factor: f64,
        /// Wavelengths below `original_max_position_embeddings / high_freq_factor` are unchanged.
        high_freq_factor: f64,
        /// Context length before scaling.
        original_max_position_embeddings: usize,
    },
    /// YaRN: high frequencies are unchanged, low ones are divided, and frequencies between them are interpolated.
    Yarn {
        /// Divisor of the lowest frequencies.
        factor: f64,
        /// Context length before scaling.
        original_max_position_embeddings: usize,
        /// Frequencies that turn at least this often within the original context length are unchanged.
        beta_fast: f64,
        /// Frequencies that turn at most this often within the original context length are divided by `factor`.
        beta_slow: f64,
        /// Whether the bounds of the interpolated range are rounded to whole pairs.
        truncate: bool,
        /// Factor that multiplies cosines and sines.
        attention_factor: f64,
        /// Ministral 3: queries at position `p` are multiplied by `1 + beta ln(1 + ⌊p / original length⌋)`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        llama_4_scaling_beta: Option<f64>,
    },
    /// LongRoPE: each frequency is divided by a separate factor, from one of two lists. The engine uses only the short list, so it only supports sequences up
    /// to the original context length.
    LongRope {
        /// Divisors for sequences up to the original context length, one for each frequency.
        short_factor: Vec<f64>,
        /// Divisors for longer sequences.
        long_factor: Vec<f64>,
        /// Context length before scaling.
        original_max_position_embeddings: usize,
        /// Factor that multiplies cosines and sines.
        attention_factor: f64,
    },
    /// Gemma 4: only the first pairs of a head rotate, with the frequencies that they would have if all pairs rotated.
    Proportional {
        /// Divisor of all frequencies.
        factor: f64,
        /// Fraction of the pairs that rotate.
        partial_rotary_factor: f64,
    },
}

/// Sizes and settings of a decoder.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Config {
    /// Model family.
    #[serde(skip)]
    pub architecture: Architecture,
    /// `V`, the size of the vocabulary.
    pub vocab_size: usize,
    /// `D`, the width of the residual stream.
    pub hidden_size: usize,
    /// `F`, the inner width of the MLP.
    pub intermediate_size: usize,
    /// `L`, the number of layers.
    pub num_hidden_layers: usize,
    /// `H`, the number of query heads.
    pub num_attention_heads: usize,
    /// `K`, the number of key/value heads, which divides `H`.
    pub num_key_value_heads: usize,
    /// `E`, the size of a head, which is even and needn't be `D / H`.
    pub head_dim: usize,
    /// Epsilon of every RMSNorm.
    pub rms_norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Scaling of the rotary frequencies.
    #[serde(skip)]
    pub rope_scaling: RopeScaling,
    /// For each layer, 1 if it has a rotary embedding and 0 if not. If empty, all layers have one.
    #[serde(skip)]
    pub no_rope_layers: Vec<usize>,
    /// Number of latest tokens that a query sees in layers with a window, including its own, or `None` if it sees all.
    #[serde(skip)]
    pub sliding_window: Option<usize>,
    /// Type of each layer. If empty, all layers use `sliding_window`.
    #[serde(skip)]
    pub layer_types: Vec<LayerType>,
    /// Base of the rotary frequencies in layers with a window, if it differs from `rope_theta`.
    #[serde(skip)]
    pub rope_local_base_freq: Option<f64>,
    /// Number by whose square root attention scores are divided, or `None` for `head_dim`.
    #[serde(skip)]
    pub query_pre_attn_scalar: Option<usize>,
    /// Factors of the Granite family, or `None` in other families.
    #[serde(skip)]
    pub multipliers: Option<Multipliers>,
    /// Settings of Gemma 4, or `None` in other families.
    #[serde(skip)]
    pub gemma4: Option<Gemma4>,
    /// Fraction of each head that the rotary embedding rotates, or `None` for the whole head.
    #[serde(skip)]
    pub partial_rotary_factor: Option<f64>,
    /// Sizes of the layers of type [`LayerType::LinearAttention`].
    #[serde(skip)]
    pub linear_attention: Option<GatedDeltaNet>,
    /// `conv_L_cache`: number of latest inputs that a layer of type [`LayerType::Conv`] sees, including the token's own.
    #[serde(skip)]
    pub conv_l_cache: Option<usize>,
    /// Whether the output layer shares the embedding's weights.
    pub tie_word_embeddings: bool,
    /// Maximum context length of the checkpoint.
    pub max_position_embeddings: usize,
    /// Beginning-of-sequence token, if the checkpoint has one.
    #[serde(default, deserialize_with = "fields::token")]
    pub bos_token_id: Option<u32>,
    /// End-of-sequence tokens.
    #[serde(default, deserialize_with = "fields::end_tokens")]
    pub eos_token_id: Vec<u32>,
    /// Padding token, if the checkpoint has one. It isn't used, only written back.
    #[serde(default, deserialize_with = "fields::token")]
    pub pad_token_id: Option<u32>,
}

impl Architecture {
    /// All families, in the order in which messages list them.
    pub const ALL: [Architecture; 14] = [
        Architecture::Qwen2,
        Architecture::Qwen3,
        Architecture::Llama,
        Architecture::Mistral,
        Architecture::Ministral3,
        Architecture::SmolLM3,
        Architecture::Olmo2,
        Architecture::Gemma3Text,
        Architecture::Olmo3,
        Architecture::Qwen3_5Text,
        Architecture::Granite,
        Architecture::Phi3,
        Architecture::Lfm2,
        Architecture::Gemma4Text,
    ];
}

impl Config {
    /// Returns the number of values of each head that the rotary embedding rotates; they are the head's first values.
    ///
    /// If head sizes differ between layers, this is the number for layers with a sliding window.
    pub(crate) fn rotary_dim(&self) -> usize {
        self.partial_rotary_factor
            .map_or(self.head_dim, |fraction| (self.head_dim as f64 * fraction) as usize)
    }

    /// Sets the family's default recurrent layers, with this number of value heads. Families without recurrent layers are unchanged.
    pub fn with_recurrent_layers(mut self, linear_num_value_heads: usize) -> Config {
        let family = self.architecture.family();
        let mut settings = fields::object((family.defaults)());
        let heads = settings.insert("linear_num_value_heads".into(), linear_num_value_heads.into());
        if heads.is_some() {
            let fields = fields::Fields { place: "defaults", map: &settings };
            (family.read)(&fields, &mut self).expect("a family's defaults");
            self.partial_rotary_factor = settings["partial_rotary_factor"].as_f64();
        }
        self
    }

    /// Returns an error that names the field if a size is invalid.
    pub fn validate(&self) -> Result<(), Error> {
        self.validate_at("configuration")
    }

    /// Returns the maximum sequence length for which the engine computes what the model defines, and the setting that limits it, or
    /// `None` without a limit.
    pub(crate) fn longest_sequence(&self) -> Option<(usize, &'static str)> {
        match self.rope_scaling {
            RopeScaling::Yarn {
                llama_4_scaling_beta: Some(_),
                original_max_position_embeddings: length,
                ..
            }
            | RopeScaling::LongRope { original_max_position_embeddings: length, .. } => {
                Some((length, "rope_parameters.original_max_position_embeddings"))
            }
            _ => None,
        }
    }

    /// Returns the maximum sequence length: limited by the model's positions, and by what the engine supports.
    pub fn context(&self) -> usize {
        let longest = self.longest_sequence().map_or(usize::MAX, |(tokens, _)| tokens);
        self.max_position_embeddings.min(longest)
    }

    /// Like [`Config::validate`], for values from the file `place`.
    ///
    /// # Errors
    /// Names the file and the field.
    pub fn validate_at(&self, place: &str) -> Result<(), Error> {
        self.validate_sizes(place)?;
        self.check_family(place)
    }

    /// Returns an error if the family doesn't allow a setting or lacks one. `place` is the file's name for messages.
    pub fn check_family(&self, place: &str) -> Result<(), Error> {
        match (self.architecture.family().refused)(self) {
            Some((field, found, expected)) => {
                Err(Error::Config { place: place.into(), field: field.into(), found, expected })
            }
            None => Ok(()),
        }
    }

    /// Like [`Config::validate_at`], without the checks of the family.
    fn validate_sizes(&self, place: &str) -> Result<(), Error> {
        let refuse = |field: &str, found: String, expected: String| {
            Err(Error::Config { place: place.into(), field: field.into(), found, expected })
        };
        // The engine stores token ids and positions in u32. A damaged file must not exhaust memory either: the tensor list grows with the
        // number of layers, and the tables of rotary angles with the head size (the largest published is 512).
        let limit = i32::MAX as usize;
        let mut sizes = vec![
            ("vocab_size", self.vocab_size, limit),
            ("hidden_size", self.hidden_size, limit),
            ("intermediate_size", self.intermediate_size, limit),
            ("num_hidden_layers", self.num_hidden_layers, 10_000),
            ("num_attention_heads", self.num_attention_heads, limit),
            ("num_key_value_heads", self.num_key_value_heads, limit),
            ("head_dim", self.head_dim, 1 << 16),
            ("max_position_embeddings", self.max_position_embeddings, limit),
        ];
        if let Some(mixer) = self.linear_attention {
            sizes.extend([
                ("linear_conv_kernel_dim", mixer.linear_conv_kernel_dim, 1 << 6),
                ("linear_key_head_dim", mixer.linear_key_head_dim, 1 << 12),
                ("linear_value_head_dim", mixer.linear_value_head_dim, 1 << 12),
                ("linear_num_key_heads", mixer.linear_num_key_heads, 1 << 16),
                ("linear_num_value_heads", mixer.linear_num_value_heads, 1 << 16),
            ]);
        }
        if let Some(gemma4) = self.gemma4 {
            sizes.extend([
                ("global_head_dim", gemma4.global_head_dim, 1 << 16),
                ("num_global_key_value_heads", gemma4.num_global_key_value_heads, limit),
                ("vocab_size_per_layer_input", gemma4.vocab_size_per_layer_input, limit),
                // It may be 0.
                ("hidden_size_per_layer_input", gemma4.hidden_size_per_layer_input.max(1), limit),
            ]);
        }
        for (field, value, limit) in sizes {
            if value == 0 || value > limit {
                return refuse(field, value.to_string(), format!("1 to {limit}"));
            }
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            return refuse(
                "num_key_value_heads",
                self.num_key_value_heads.to_string(),
                format!("a divisor of num_attention_heads, {}", self.num_attention_heads),
            );
        }
        if !self.head_dim.is_multiple_of(2) {
            let expected = "an even number; rotary embedding rotates pairs".into();
            return refuse("head_dim", self.head_dim.to_string(), expected);
        }
        if let Some(fraction) = self.partial_rotary_factor {
            let (dim, head) = (self.rotary_dim(), self.head_dim);
            if dim == 0 || dim > head || !dim.is_multiple_of(2) {
                let expected = format!("an even part of head_dim, {head}; rotary embedding rotates pairs");
                return refuse("partial_rotary_factor", fraction.to_string(), expected);
            }
        }
        // A convolution of one token has no state.
        if let Some(kernel) = self.conv_l_cache.filter(|kernel| !(2..=64).contains(kernel)) {
            return refuse("conv_L_cache", kernel.to_string(), "2 to 64".into());
        }
        if self.conv_l_cache.is_none() && self.layer_types.contains(&LayerType::Conv) {
            let expected = "full_attention, or also conv_L_cache".into();
            return refuse("layer_types", "conv".into(), expected);
        }
        match self.linear_attention {
            None if self.layer_types.contains(&LayerType::LinearAttention) => {
                let expected = "full_attention, or also the sizes of the recurrent layers (linear_num_value_heads and others)".into();
                return refuse("layer_types", "linear_attention".into(), expected);
            }
            Some(GatedDeltaNet { linear_num_key_heads: keys, linear_num_value_heads: values, .. })
                if !values.is_multiple_of(keys) =>
            {
                let expected = format!("a multiple of linear_num_key_heads, {keys}");
                return refuse("linear_num_value_heads", values.to_string(), expected);
            }
            _ => {}
        }
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let multipliers = self.multipliers.unwrap_or(Multipliers::NONE);
        for (field, value) in [
            ("rms_norm_eps", self.rms_norm_eps),
            ("rope_theta", self.rope_theta),
            ("rope_local_base_freq", self.rope_local_base_freq.unwrap_or(1.0)),
            ("query_pre_attn_scalar", self.query_pre_attn_scalar.unwrap_or(1) as f64),
            ("embedding_multiplier", multipliers.embedding_multiplier),
            ("attention_multiplier", multipliers.attention_multiplier),
            ("residual_multiplier", multipliers.residual_multiplier),
            ("logits_scaling", multipliers.logits_scaling),
        ] {
            if !positive(value) {
                return refuse(field, value.to_string(), "a positive number".into());
            }
        }
        // The scaling's settings by name. A number that isn't finite becomes null in JSON. The scale of queries has no bound.
        let scaling = serde_json::to_value(&self.rope_scaling).expect("numbers");
        let yarn = matches!(self.rope_scaling, RopeScaling::Yarn { .. });
        for (field, value) in
            fields::object(scaling).iter().filter(|(field, _)| *field != "llama_4_scaling_beta")
        {
            let (least, expected) = match (field.as_str(), &self.rope_scaling) {
                ("rope_type" | "truncate", _) => continue,
                (_, RopeScaling::LongRope { .. }) if let Some(list) = value.as_array() => {
                    let pairs = self.rotary_dim() / 2;
                    let fits = list.len() == pairs && list.iter().all(|x| x.as_f64().is_some_and(positive));
                    if fits {
                        continue;
                    }
                    let wanted = format!("{pairs} positive numbers, one for each rotated pair");
                    return refuse(&format!("rope_scaling.{field}"), value.to_string(), wanted);
                }
                (PARTIAL, _) if value.as_f64().is_some_and(|value| value > 1.0) => {
                    (f64::INFINITY, "at most 1".into())
                }
                ("factor", _) if !yarn => (1.0f64.next_down(), "at least 1".into()),
                ("high_freq_factor", &RopeScaling::Llama3 { low_freq_factor: low, .. }) => {
                    (low, format!("more than low_freq_factor, {low}"))
                }
                _ => (0.0, "a positive number".into()),
            };
            if !value.as_f64().is_some_and(|value| value > least) {
                return refuse(&format!("rope_scaling.{field}"), value.to_string(), expected);
            }
        }
        let layers = self.num_hidden_layers;
        let lists = [("no_rope_layers", self.no_rope_layers.len()), ("layer_types", self.layer_types.len())];
        for (field, entries) in lists {
            if entries > 0 && entries != layers {
                return refuse(field, format!("{entries} entries"), format!("{layers}, one per layer"));
            }
        }
        if self.sliding_window == Some(0) {
            return refuse("sliding_window", "0".into(), "a positive number, or null".into());
        }
        if self.checked_parameters().is_none() {
            return refuse(
                "hidden_size",
                self.hidden_size.to_string(),
                "sizes whose product fits 2^62".into(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns the configuration of the maze's policy.
    pub(crate) fn maze() -> Config {
        crate::kernels::small_decoder(1024)
    }

    #[test]
    fn full_size_maze_model_has_3_944_704_parameters() {
        assert_eq!(maze().parameters(), 3_944_704);
    }

    #[test]
    fn parameter_count_is_the_sum_over_the_tensor_list_for_every_family() {
        for architecture in Architecture::ALL {
            for tie_word_embeddings in [false, true] {
                let layers = maze().num_hidden_layers;
                let mut config = Config { architecture, tie_word_embeddings, head_dim: 34, ..maze() };
                if architecture == Architecture::Qwen3_5Text {
                    assert!(config.validate().unwrap_err().to_string().contains("layer_types"));
                    config.layer_types = vec![LayerType::LinearAttention; layers];
                    config.layer_types[1] = LayerType::FullAttention;
                    assert!(config.validate().unwrap_err().to_string().contains("linear_num_value_heads"));
                    config.linear_attention = Some(GatedDeltaNet {
                        linear_conv_kernel_dim: 4,
                        linear_key_head_dim: 16,
                        linear_value_head_dim: 24,
                        linear_num_key_heads: 3,
                        linear_num_value_heads: 6,
                    });
                }
                if architecture == Architecture::Lfm2 {
                    assert!(config.validate().unwrap_err().to_string().contains("layer_types"));
                    config.layer_types = vec![LayerType::Conv; layers];
                    config.layer_types[1] = LayerType::FullAttention;
                    assert!(config.validate().unwrap_err().to_string().contains("conv_L_cache"));
                    config.conv_l_cache = Some(3);
                }
                config.validate().unwrap();
                let sum: usize = config.tensors().iter().map(|(_, s)| s.iter().product::<usize>()).sum();
                assert_eq!(config.parameters(), sum as u64, "{architecture:?} tied {tie_word_embeddings}");
            }
        }
    }

    #[test]
    fn invalid_sizes_are_refused_with_field_and_value() {
        let cases: [(Config, &[&str]); 8] = [
            (
                Config { num_key_value_heads: 3, ..maze() },
                &["num_key_value_heads", "found 3", "divisor", "4"],
            ),
            (Config { head_dim: 63, ..maze() }, &["head_dim", "found 63", "even"]),
            (Config { vocab_size: 0, ..maze() }, &["vocab_size", "found 0"]),
            (Config { num_hidden_layers: 20_000, ..maze() }, &["num_hidden_layers", "20000", "1 to 10000"]),
            (Config { rope_theta: f64::NAN, ..maze() }, &["rope_theta", "NaN", "positive"]),
            (
                Config {
                    architecture: Architecture::Llama,
                    num_attention_heads: 6,
                    num_key_value_heads: 2,
                    ..maze()
                },
                &["hidden_size", "found 256", "multiple of num_attention_heads, 6"],
            ),
            (
                Config { rope_scaling: RopeScaling::Linear { factor: 0.5 }, ..maze() },
                &["rope_scaling.factor", "found 0.5", "at least 1"],
            ),
            (
                Config {
                    hidden_size: i32::MAX as usize,
                    intermediate_size: i32::MAX as usize,
                    vocab_size: i32::MAX as usize,
                    head_dim: 1 << 16,
                    ..maze()
                },
                &["hidden_size", "2147483647", "fits"],
            ),
        ];
        for (config, parts) in cases {
            let message = config.validate().unwrap_err().to_string();
            for part in parts {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
        }
    }
}
