//! Mistral: Llama, with a sliding window in its first release.

use serde::Deserialize;
use serde_json::json;

use super::{Family, GgufForm, Layer, listed_types, llama};
use crate::config::LayerType;

pub(super) const FAMILY: Family = Family {
    class_name: "MistralForCausalLM",
    model_type: "mistral",
    defaults: || {
        json!({
            "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131_072,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
            "sliding_window": 4096,
        })
    },
    gguf: Some(GGUF),
    supported: || json!({}),
    read: |fields, config| {
        #[derive(Deserialize)]
        struct Window {
            sliding_window: Option<usize>,
        }
        let Window { sliding_window } = fields.read()?;
        // transformers ignores the list.
        let kind = sliding_window.map_or(LayerType::FullAttention, |_| LayerType::SlidingAttention);
        listed_types(fields, config, &[kind])?;
        config.sliding_window = sliding_window;
        Ok(())
    },
    write: |config| json!({"sliding_window": config.sliding_window}),
    refused: |_| None,
    whole: Some("mistral3"),
    layer: |config, layer| Layer { window: config.sliding_window, ..(llama::FAMILY.layer)(config, layer) },
    ..llama::FAMILY
};

/// llama.cpp reads the model as a Llama, without a window.
pub(super) const GGUF: GgufForm = GgufForm {
    write: |config, _| match config.sliding_window {
        Some(window) if window < config.max_position_embeddings => {
            Err(("sliding_window", window.to_string(), "null".into()))
        }
        _ => Ok(()),
    },
    ..llama::GGUF
};
