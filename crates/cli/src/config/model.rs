//! Where the policy comes from.

use super::defaults;
use super::ranges::{at_least, positive};
use crate::bad_input;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where the policy comes from: a folder, or sizes for a new one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// A Hugging Face checkpoint folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Sizes of a randomly initialised model. The vocabulary is the task's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<InitConfig>,
}

/// A randomly initialised decoder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitConfig {
    /// `qwen2` (QKV bias), `qwen3` (QK-norm) or `llama`.
    #[serde(default = "defaults::architecture")]
    pub architecture: fgrpo_nn::config::Architecture,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Inner width of the SwiGLU block.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key/value heads; divides the query heads.
    pub num_key_value_heads: usize,
    /// Size of a head; `hidden_size / num_attention_heads` where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_dim: Option<usize>,
    /// Base of the rotary frequencies.
    #[serde(default = "defaults::rope_theta")]
    pub rope_theta: f64,
    /// Whether the head shares the embedding's weights.
    #[serde(default = "defaults::yes")]
    pub tie_word_embeddings: bool,
    /// Standard deviation of the initial matrices.
    #[serde(default = "defaults::init_std")]
    pub std: f32,
}

impl InitConfig {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        for (name, value) in [
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
        ] {
            at_least(&format!("model.init.{name}"), value as u64, 1)?;
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            bad_input!(
                "model.init.num_key_value_heads: found {}, wanted a divisor of num_attention_heads = {}",
                self.num_key_value_heads,
                self.num_attention_heads
            );
        }
        match self.head_dim {
            None if !self.hidden_size.is_multiple_of(self.num_attention_heads) => bad_input!(
                "model.init.num_attention_heads: found {}, wanted a divisor of hidden_size = {} (or a head_dim)",
                self.num_attention_heads,
                self.hidden_size
            ),
            None if !(self.hidden_size / self.num_attention_heads).is_multiple_of(2) => bad_input!(
                "model.init: head size hidden_size / num_attention_heads = {} is odd, wanted an even one (rotary embedding turns pairs)",
                self.hidden_size / self.num_attention_heads
            ),
            Some(e) if e == 0 || !e.is_multiple_of(2) => {
                bad_input!("model.init.head_dim: found {e}, wanted an even number of at least 2")
            }
            _ => {}
        }
        positive("model.init.std", f64::from(self.std))?;
        positive("model.init.rope_theta", self.rope_theta)
    }
}
