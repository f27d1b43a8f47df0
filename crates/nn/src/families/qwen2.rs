//! Qwen2: Llama with a bias on queries, keys and values.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Family, GgufRows, Layer, listed_types, llama};
use crate::config::fields::Fields;
use crate::config::{Config, LayerType};
use crate::error::Error;

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
    gguf: Some(GgufRows::Plain),
    supported: || json!({}),
    write: without_window,
    refused: |_| None,
    layer: |config, layer| Layer { qkv_bias: true, ..(llama::FAMILY.layer)(config, layer) },
    ..llama::FAMILY
};

/// Returns an error if a layer uses a sliding window. (Many files define a window that no layer uses.)
pub(super) fn no_window(fields: &Fields<'_>, config: &mut Config) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Windows {
        use_sliding_window: Option<bool>,
        max_window_layers: Option<usize>,
    }
    if listed_types(fields, config, &[LayerType::FullAttention])?.is_some() {
        return Ok(());
    }
    let (layers, windows) = (config.num_hidden_layers, fields.read::<Windows>()?);
    let first = windows.max_window_layers.unwrap_or(28);
    let windowed = windows.use_sliding_window.unwrap_or(false) && first < layers;
    if windowed && (!fields.map.contains_key("sliding_window") || fields.get("sliding_window").is_some()) {
        let wanted = format!("false: layers {first} to {} would use it, which is not supported", layers - 1);
        return fields.refuse("use_sliding_window", wanted);
    }
    Ok(())
}

pub(super) fn without_window(config: &Config) -> Value {
    json!({"use_sliding_window": false, "sliding_window": null, "max_window_layers": config.num_hidden_layers})
}
