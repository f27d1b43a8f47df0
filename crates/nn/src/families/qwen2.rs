//! Qwen2: Llama with a bias on queries, keys and values.

use serde_json::{Value, json};

use super::{Family, GgufForm, GgufRows, Layer, llama};
use crate::config::Config;

pub(super) const FAMILY: Family = Family {
    class_name: "Qwen2ForCausalLM",
    model_type: "qwen2",
    defaults: || {
        json!({
            "vocab_size": 151_936, "hidden_size": 4096, "intermediate_size": 22_016, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 32_768,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
        })
    },
    gguf: Some(GgufForm { architecture: "qwen2", rows: GgufRows::Plain, ..llama::GGUF }),
    supported: || json!({}),
    write: without_window,
    refused: |_| None,
    layer: |config, layer| Layer { qkv_bias: true, ..(llama::FAMILY.layer)(config, layer) },
    ..llama::FAMILY
};

pub(super) fn without_window(config: &Config) -> Value {
    json!({"use_sliding_window": false, "sliding_window": null, "max_window_layers": config.num_hidden_layers})
}
