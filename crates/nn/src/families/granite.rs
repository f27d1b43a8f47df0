//! Granite, dense: Llama with factors of the embedding, the attention scores, the results of attention and MLP, and the logits.

use serde_json::json;

use super::{Family, llama};
use crate::config::Multipliers;

pub(super) const FAMILY: Family = Family {
    class_name: "GraniteForCausalLM",
    model_type: "granite",
    defaults: || {
        json!({
            "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": null, "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
            "embedding_multiplier": 1.0, "attention_multiplier": 1.0, "residual_multiplier": 1.0, "logits_scaling": 1.0,
        })
    },
    gguf: None,
    read: |fields, config| {
        config.multipliers = Some(fields.read()?);
        llama::no_window(fields, config)
    },
    write: |config| json!(config.multipliers.unwrap_or(Multipliers::NONE)),
    embedding_scale: |config| config.multipliers.map_or(1.0, |m| m.embedding_multiplier as f32),
    ..llama::FAMILY
};
