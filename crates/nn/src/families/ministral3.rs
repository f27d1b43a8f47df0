//! Ministral 3, text only: Mistral with YaRN, and queries that are scaled up at positions beyond the original context length.

use serde_json::json;

use super::{Family, GgufForm, mistral};
use crate::config::RopeScaling;

pub(super) const FAMILY: Family = Family {
    class_name: "Ministral3ForCausalLM",
    model_type: "ministral3",
    defaults: || {
        json!({
            "vocab_size": 131_072, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 34,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
            "max_position_embeddings": 262_144, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
            "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 11, "sliding_window": null,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0,
                "original_max_position_embeddings": 16_384, "beta_fast": 32.0, "beta_slow": 1.0,
                "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1,
            },
        })
    },
    gguf: Some(GgufForm {
        architecture: "mistral3",
        settings: &[
            ("attention.temperature_scale", "llama_4_scaling_beta", Some(0.0)),
            ("rope.scaling.yarn_beta_fast", "beta_fast", Some(32.0)),
            ("rope.scaling.yarn_beta_slow", "beta_slow", Some(1.0)),
            ("rope.scaling.yarn_log_multiplier", "mscale_all_dim", Some(0.0)),
        ],
        ..mistral::GGUF
    }),
    write: |config| {
        let mut settings = json!({"sliding_window": config.sliding_window});
        // transformers requires these fields even if queries aren't scaled.
        if config.rope_scaling == RopeScaling::Default {
            settings["rope_parameters"] = json!({
                "rope_type": "default", "rope_theta": config.rope_theta, "llama_4_scaling_beta": 0.0,
                "original_max_position_embeddings": config.max_position_embeddings,
            });
        }
        settings
    },
    ..mistral::FAMILY
};
