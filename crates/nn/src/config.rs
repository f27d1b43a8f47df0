//! The decoder's configuration, under Hugging Face names: its sizes, their validation, and the resulting tensors.

pub(crate) mod fields;
mod generation;
mod json;

pub(crate) use generation::{end_tokens, generation_config};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The family of a checkpoint, which determines its `architectures` and `model_type` fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// `Qwen2ForCausalLM`: bias on q, k and v.
    #[default]
    Qwen2,
    /// `Qwen3ForCausalLM`: RMSNorm on each head's query and key.
    Qwen3,
    /// `LlamaForCausalLM`: without these.
    Llama,
    /// `MistralForCausalLM`: as Llama, perhaps with a sliding window.
    Mistral,
    /// `Ministral3ForCausalLM`: as Mistral; queries grow with the position beyond the length before scaling.
    Ministral3,
    /// `SmolLM3ForCausalLM`: as Llama, without rotary embedding in every fourth layer.
    SmolLM3,
    /// `Olmo2ForCausalLM`: norms after attention and MLP, and of all queries and keys of a token.
    Olmo2,
    /// `Gemma3ForCausalLM`: norms before and after, by `1 + weight`, of each head, too; a window in most layers; GELU.
    #[serde(rename = "gemma3_text")]
    Gemma3Text,
    /// `Olmo3ForCausalLM`: as OLMo 2, with a window in most layers.
    Olmo3,
    /// `Qwen3_5ForCausalLM`: gated DeltaNet in most layers; in the others attention with an output gate and norms of each head.
    #[serde(rename = "qwen3_5_text")]
    Qwen3_5Text,
}

/// How a layer mixes tokens: which keys its queries see, or without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerType {
    /// All before them.
    FullAttention,
    /// The latest of them.
    SlidingAttention,
    /// A recurrent state in place of keys and values.
    LinearAttention,
}

/// Sizes of a gated DeltaNet, under transformers' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatedDeltaNet {
    /// Latest inputs that its convolution sees, a token's own among them.
    pub linear_conv_kernel_dim: usize,
    /// Size of a head's query and key.
    pub linear_key_head_dim: usize,
    /// Size of a head's value.
    pub linear_value_head_dim: usize,
    /// Heads of queries and keys.
    pub linear_num_key_heads: usize,
    /// Heads of values, each with a state; a multiple of those.
    pub linear_num_value_heads: usize,
}

impl GatedDeltaNet {
    /// Width of a row of queries, or of keys.
    pub(crate) fn key_width(&self) -> usize {
        self.linear_num_key_heads * self.linear_key_head_dim
    }

    pub(crate) fn value_width(&self) -> usize {
        self.linear_num_value_heads * self.linear_value_head_dim
    }

    /// Channels of the convolution: queries, keys and values.
    pub(crate) fn channels(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }

    /// Width of a row of these with `b` and `a` of each head, which determine how much is written and kept.
    pub(crate) fn input_width(&self) -> usize {
        self.channels() + 2 * self.linear_num_value_heads
    }

    /// Numbers of a head's state.
    pub(crate) fn head_state(&self) -> usize {
        self.linear_key_head_dim * self.linear_value_head_dim
    }

    /// Numbers of a sequence's state: that of all heads, and the latest inputs of the convolution.
    pub(crate) fn state(&self) -> usize {
        let inputs = (self.linear_conv_kernel_dim - 1) * self.channels();
        self.linear_num_value_heads * self.head_state() + inputs
    }
}

/// How rotary frequencies are scaled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// Unscaled frequencies.
    #[default]
    Default,
    /// Positions divided by `factor`.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3's scaling by wavelength.
    Llama3 {
        /// Divisor of the lowest frequencies.
        factor: f64,
        /// Wavelengths above `original_max_position_embeddings / low_freq_factor` are divided.
        low_freq_factor: f64,
        /// Wavelengths below `original_max_position_embeddings / high_freq_factor` are unchanged.
        high_freq_factor: f64,
        /// The context length before scaling.
        original_max_position_embeddings: usize,
    },
    /// YaRN: high frequencies stay, low ones are divided, those between are blended.
    Yarn {
        /// Divisor of the lowest frequencies.
        factor: f64,
        /// The context length before scaling.
        original_max_position_embeddings: usize,
        /// Frequencies that turn so often within that length are unchanged.
        beta_fast: f64,
        /// Those that turn less often than so are divided.
        beta_slow: f64,
        /// Whether the bounds between are whole pairs.
        truncate: bool,
        /// Factor of cosines and sines.
        attention_factor: f64,
        /// Ministral 3: queries at a position `p` are multiplied by `1 + beta ln(1 + ⌊p / original length⌋)`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        llama_4_scaling_beta: Option<f64>,
    },
}

/// Sizes and settings of a decoder.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Config {
    /// The family.
    #[serde(skip)]
    pub architecture: Architecture,
    /// `V`.
    pub vocab_size: usize,
    /// `D`.
    pub hidden_size: usize,
    /// `F`.
    pub intermediate_size: usize,
    /// `L`.
    pub num_hidden_layers: usize,
    /// `H`.
    pub num_attention_heads: usize,
    /// `K`; divides `H`.
    pub num_key_value_heads: usize,
    /// `E`; even. Need not be `D / H`.
    pub head_dim: usize,
    /// The epsilon of every RMSNorm.
    pub rms_norm_eps: f64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Their scaling.
    #[serde(skip)]
    pub rope_scaling: RopeScaling,
    /// 1 where a layer has rotary embedding, and 0 where not; empty if all layers have it.
    #[serde(skip)]
    pub no_rope_layers: Vec<usize>,
    /// Latest tokens that a query sees, its own among them, if not all.
    #[serde(skip)]
    pub sliding_window: Option<usize>,
    /// Which layers have that window; empty if all have.
    #[serde(skip)]
    pub layer_types: Vec<LayerType>,
    /// Base of the rotary frequencies in layers with a window, if it is another.
    #[serde(skip)]
    pub rope_local_base_freq: Option<f64>,
    /// Attention's scores are divided by its root, if not by that of `head_dim`.
    #[serde(skip)]
    pub query_pre_attn_scalar: Option<usize>,
    /// The share of a head's numbers that rotary embedding turns, if not all.
    #[serde(skip)]
    pub partial_rotary_factor: Option<f64>,
    /// Sizes of the layers of type [`LayerType::LinearAttention`].
    #[serde(skip)]
    pub linear_attention: Option<GatedDeltaNet>,
    /// Whether the output layer shares the embedding's weights.
    pub tie_word_embeddings: bool,
    /// The checkpoint's maximum context length.
    pub max_position_embeddings: usize,
    /// Beginning-of-sequence token, if the checkpoint has one.
    #[serde(default, deserialize_with = "fields::token")]
    pub bos_token_id: Option<u32>,
    /// End-of-sequence tokens.
    #[serde(default, deserialize_with = "fields::end_tokens")]
    pub eos_token_id: Vec<u32>,
    /// Padding token, if the checkpoint has one (not used here; written back).
    #[serde(default, deserialize_with = "fields::token")]
    pub pad_token_id: Option<u32>,
}

impl Architecture {
    /// All families, in the order of messages.
    pub const ALL: [Architecture; 10] = [
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
    ];
}

impl Config {
    /// How many of a head's numbers rotary embedding turns, the first ones.
    pub(crate) fn rotary_dim(&self) -> usize {
        self.partial_rotary_factor.map_or(self.head_dim, |share| (self.head_dim as f64 * share) as usize)
    }

    /// The same with recurrent layers as its family has them by default, but for their heads of values; as it is where the family has none.
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

    /// Refuses impossible sizes, naming the field.
    pub fn validate(&self) -> Result<(), Error> {
        self.validate_at("configuration")
    }

    /// The most tokens of a sequence that passes here compute as the model does, and the setting that says so; `None` if there is no limit.
    pub(crate) fn longest_sequence(&self) -> Option<(usize, &'static str)> {
        match self.rope_scaling {
            RopeScaling::Yarn {
                llama_4_scaling_beta: Some(_),
                original_max_position_embeddings: length,
                ..
            } => Some((length, "rope_parameters.original_max_position_embeddings")),
            _ => None,
        }
    }

    /// The most tokens of a sequence: those that the model has positions for, and of which the passes here compute what it computes.
    pub fn context(&self) -> usize {
        let longest = self.longest_sequence().map_or(usize::MAX, |(tokens, _)| tokens);
        self.max_position_embeddings.min(longest)
    }

    /// [`Config::validate`] with the file of the values.
    ///
    /// # Errors
    /// Names place and field.
    pub fn validate_at(&self, place: &str) -> Result<(), Error> {
        self.validate_sizes(place)?;
        self.check_family(place)
    }

    /// Refuses what the family refuses of sizes that others have, or lacks; `place` is where they come from.
    pub fn check_family(&self, place: &str) -> Result<(), Error> {
        match (self.architecture.family().refused)(self) {
            Some((field, found, wanted)) => {
                Err(Error::Config { place: place.into(), field: field.into(), found, wanted })
            }
            None => Ok(()),
        }
    }

    /// [`Config::validate_at`] but for the family's checks.
    fn validate_sizes(&self, place: &str) -> Result<(), Error> {
        let refuse = |field: &str, found: String, wanted: String| {
            Err(Error::Config { place: place.into(), field: field.into(), found, wanted })
        };
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        for (field, value) in sizes {
            // Token ids and positions are u32 in the engine; no real size comes near.
            // The list of tensors grows with the layers; a damaged count must not exhaust memory.
            // The tables of rotary angles grow with a head, before any weights are held; the largest published is 512.
            let most = match field {
                "num_hidden_layers" => 10_000,
                "head_dim" => 1 << 16,
                _ => i32::MAX as usize,
            };
            if value == 0 || value > most {
                return refuse(field, value.to_string(), format!("1 to {most}"));
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
            let wanted = "an even number: rotary embedding turns pairs".into();
            return refuse("head_dim", self.head_dim.to_string(), wanted);
        }
        if let Some(share) = self.partial_rotary_factor {
            let (dim, head) = (self.rotary_dim(), self.head_dim);
            if dim == 0 || dim > head || !dim.is_multiple_of(2) {
                let wanted = format!("an even part of head_dim, {head}: rotary embedding turns pairs");
                return refuse("partial_rotary_factor", share.to_string(), wanted);
            }
        }
        let recurrent = self.layer_types.contains(&LayerType::LinearAttention);
        match self.linear_attention {
            None if recurrent => {
                let wanted = "their sizes (linear_num_value_heads and others)".into();
                return refuse("layer_types", "linear_attention".into(), wanted);
            }
            None => {}
            Some(GatedDeltaNet {
                linear_conv_kernel_dim: kernel,
                linear_key_head_dim: key,
                linear_value_head_dim: value,
                linear_num_key_heads: keys,
                linear_num_value_heads: values,
            }) => {
                for (field, value, most) in [
                    ("linear_conv_kernel_dim", kernel, 1 << 6),
                    ("linear_key_head_dim", key, 1 << 12),
                    ("linear_value_head_dim", value, 1 << 12),
                    ("linear_num_key_heads", keys, 1 << 16),
                    ("linear_num_value_heads", values, 1 << 16),
                ] {
                    if value == 0 || value > most {
                        return refuse(field, value.to_string(), format!("1 to {most}"));
                    }
                }
                if !values.is_multiple_of(keys) {
                    let wanted = format!("a multiple of linear_num_key_heads, {keys}");
                    return refuse("linear_num_value_heads", values.to_string(), wanted);
                }
            }
        }
        let positive = |value: f64| value.is_finite() && value > 0.0;
        for (field, value) in [
            ("rms_norm_eps", self.rms_norm_eps),
            ("rope_theta", self.rope_theta),
            ("rope_local_base_freq", self.rope_local_base_freq.unwrap_or(1.0)),
            ("query_pre_attn_scalar", self.query_pre_attn_scalar.unwrap_or(1) as f64),
        ] {
            if !positive(value) {
                return refuse(field, value.to_string(), "a positive number".into());
            }
        }
        // The settings of the scaling by name; a number that isn't finite is none in JSON. Any factor of the growth of queries is possible.
        let scaling = serde_json::to_value(self.rope_scaling).expect("numbers");
        let yarn = matches!(self.rope_scaling, RopeScaling::Yarn { .. });
        for (field, value) in
            fields::object(scaling).iter().filter(|(field, _)| *field != "llama_4_scaling_beta")
        {
            let (least, wanted) = match (field.as_str(), self.rope_scaling) {
                ("rope_type" | "truncate", _) => continue,
                ("factor", _) if !yarn => (1.0f64.next_down(), "at least 1".into()),
                ("high_freq_factor", RopeScaling::Llama3 { low_freq_factor: low, .. }) => {
                    (low, format!("more than low_freq_factor, {low}"))
                }
                _ => (0.0, "a positive number".into()),
            };
            if !value.as_f64().is_some_and(|value| value > least) {
                return refuse(&format!("rope_scaling.{field}"), value.to_string(), wanted);
            }
        }
        let layers = self.num_hidden_layers;
        let lists = [("no_rope_layers", self.no_rope_layers.len()), ("layer_types", self.layer_types.len())];
        for (field, listed) in lists {
            if listed > 0 && listed != layers {
                return refuse(field, format!("{listed} entries"), format!("{layers}, one per layer"));
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

    /// The maze's policy.
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
                config.validate().unwrap();
                let sum: usize = config.tensors().iter().map(|(_, s)| s.iter().product::<usize>()).sum();
                assert_eq!(config.parameters(), sum as u64, "{architecture:?} tied {tie_word_embeddings}");
            }
        }
    }

    #[test]
    fn impossible_sizes_are_refused_with_field_found_and_wanted() {
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
