//! Llama: grouped-query attention and SwiGLU, with an RMSNorm before each.

use serde::Deserialize;
use serde_json::json;

use super::{Activation, Family, GgufForm, GgufRows, KeysValues, Layer, Norms, Theta, listed_types};
use crate::config::fields::Fields;
use crate::config::{Config, LayerType};
use crate::error::Error;

pub(super) const FAMILY: Family = Family {
    class_name: "LlamaForCausalLM",
    model_type: "llama",
    defaults: || {
        json!({
            "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": null, "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2,
        })
    },
    default_theta: 10_000.0,
    gguf: Some(GGUF),
    // An attention bias would also apply to `o_proj`, which isn't supported.
    supported: || json!({"attention_bias": false, "mlp_bias": false}),
    read: no_window,
    write: |_| json!({}),
    // transformers can't load such a checkpoint.
    refused: |config| {
        let heads = config.num_attention_heads;
        let class = config.architecture.class_name();
        let expected = || format!("a multiple of num_attention_heads, {heads}, for {class}");
        let fits = config.hidden_size.is_multiple_of(heads);
        (!fits).then(|| ("hidden_size", config.hidden_size.to_string(), expected()))
    },
    whole: None,
    norm_offset: 0.0,
    embedding_scale: |_| 1.0,
    last_norm: "model.norm.weight",
    is_unused: |_, _| false,
    layer: |config, _| Layer {
        mixer: None,
        attention: Norms { before: Some("input_layernorm"), after: None },
        mlp: Norms { before: Some("post_attention_layernorm"), after: None },
        renamed: &[],
        fused: false,
        qkv_bias: false,
        output_gate: false,
        key_heads: config.num_key_value_heads,
        head_dim: config.head_dim,
        scale: match (config.multipliers, config.query_pre_attn_scalar) {
            (Some(multipliers), _) => multipliers.attention_multiplier as f32,
            (None, Some(scalar)) => 1.0 / (scalar as f32).sqrt(),
            (None, None) => 1.0 / (config.head_dim as f32).sqrt(),
        },
        keys_values: KeysValues::Projected,
        values_from_keys: false,
        qk_norm: None,
        value_norm: false,
        rope: Some(Theta::Global),
        window: None,
        activation: Activation::Silu,
        intermediate: config.intermediate_size,
        per_layer_input: 0,
        layer_scalar: false,
    },
};

pub(super) const GGUF: GgufForm = GgufForm {
    architecture: "llama",
    rows: GgufRows::Interleaved,
    settings: &[],
    only: &[],
    names: &[],
    read: |_, _| {},
    write: |_, _| Ok(()),
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
        let expected =
            format!("false: layers {first} to {} would use it, which is not supported", layers - 1);
        return fields.refuse("use_sliding_window", expected);
    }
    Ok(())
}
