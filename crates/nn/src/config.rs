//! The decoder's configuration, under Hugging Face names.

use serde::{Deserialize, Serialize};

/// Which family a checkpoint belongs to; decides its `architectures` and `model_type` fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// `Qwen2ForCausalLM`: bias on q, k and v.
    Qwen2,
    /// `Qwen3ForCausalLM`: RMSNorm on each head's query and key.
    Qwen3,
    /// `LlamaForCausalLM`: neither; RoPE may be scaled.
    Llama,
}

/// How rotary frequencies are scaled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// Frequencies as they are.
    Default,
    /// Positions divided by `factor`.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3's scaling by wavelength.
    Llama3 {
        /// Division of the lowest frequencies.
        factor: f64,
        /// Wavelengths above `original_max_position_embeddings / low_freq_factor` are divided.
        low_freq_factor: f64,
        /// Wavelengths below `original_max_position_embeddings / high_freq_factor` stay.
        high_freq_factor: f64,
        /// The context length before scaling.
        original_max_position_embeddings: usize,
    },
}

/// Sizes and settings of a decoder.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The family.
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
    pub rope_scaling: RopeScaling,
    /// Whether the head shares the embedding's weights.
    pub tie_word_embeddings: bool,
    /// Whether q, k and v projections have a bias.
    pub qkv_bias: bool,
    /// Whether each head's query and key pass an RMSNorm of their own.
    pub qk_norm: bool,
    /// The longest context the checkpoint claims.
    pub max_position_embeddings: usize,
    /// Beginning-of-sequence token, where the checkpoint names one.
    pub bos_token_id: Option<u32>,
    /// End-of-sequence tokens.
    pub eos_token_id: Vec<u32>,
    /// Padding token, where the checkpoint names one (never used here; written back).
    pub pad_token_id: Option<u32>,
}
