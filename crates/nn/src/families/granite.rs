//! Granite, dense: Llama with factors of the embedding, the attention scores, the results of attention and MLP, and the logits.

use serde_json::json;

use super::{Family, GgufForm, llama};
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
    gguf: Some(GgufForm {
        architecture: "granite",
        settings: &[
            ("attention.scale", "attention_multiplier", Some(0.0)),
            ("embedding_scale", "embedding_multiplier", Some(0.0)),
            ("residual_scale", "residual_multiplier", Some(0.0)),
            ("logit_scale", "logits_scaling", None),
        ],
        // llama.cpp has no rotary embedding if it is false.
        only: &[("rope.scaling.finetuned", "true")],
        // llama.cpp takes 0 for the usual value.
        read: |fields, _| {
            let head = fields["head_dim"].as_f64().unwrap_or(1.0);
            for (field, usual) in [
                ("attention_multiplier", 1.0 / head.sqrt()),
                ("embedding_multiplier", 1.0),
                ("residual_multiplier", 1.0),
            ] {
                if fields[field].as_f64() == Some(0.0) {
                    fields.insert(field.into(), json!(usual));
                }
            }
        },
        ..llama::GGUF
    }),
    read: |fields, config| {
        config.multipliers = Some(fields.read()?);
        llama::no_window(fields, config)
    },
    write: |config| json!(config.multipliers.unwrap_or(Multipliers::NONE)),
    embedding_scale: |config| config.multipliers.map_or(1.0, |m| m.embedding_multiplier as f32),
    ..llama::FAMILY
};
