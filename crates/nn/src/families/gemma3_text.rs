//! Gemma 3, text only: the checkpoint's vision tower is ignored. RMSNorms, which scale by `1 + weight`, before and after attention and MLP,
//! and on each head's query and key; sliding windows with separate rotary frequencies in most layers; GELU; a scaled embedding.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Activation, Family, Layer, Norms, QkNorm, Theta, Whole, llama};
use crate::config::fields::Fields;
use crate::config::{Config, LayerType, RopeScaling};
use crate::error::Error;

pub(super) const FAMILY: Family = Family {
    class_name: "Gemma3ForCausalLM",
    model_type: "gemma3_text",
    defaults: || {
        json!({
            "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "max_position_embeddings": 131_072, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
            "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0, "sliding_window": 4096,
            "sliding_window_pattern": 6, "query_pre_attn_scalar": 256, "rope_local_base_freq": 10_000.0,
        })
    },
    default_theta: 1e6,
    gguf: None,
    supported: || {
        json!({
            "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false,
            "final_logit_softcapping": null, "attn_logit_softcapping": null, "use_bidirectional_attention": false,
        })
    },
    read: |fields, config| {
        #[derive(Deserialize)]
        struct FamilyFields {
            query_pre_attn_scalar: usize,
        }
        config.query_pre_attn_scalar = Some(fields.read::<FamilyFields>()?.query_pre_attn_scalar);
        read_windows(fields, config)
    },
    write: |config| {
        let mut settings = windows(config);
        settings["query_pre_attn_scalar"] = json!(config.query_pre_attn_scalar.unwrap_or(config.head_dim));
        settings["rope_local_base_freq"] = json!(config.rope_local_base_freq.unwrap_or(config.rope_theta));
        settings
    },
    whole: Some(Whole {
        model_type: "gemma3",
        left_out: &[
            "vision_tower.",
            "multi_modal_projector.",
            "model.vision_tower.",
            "model.multi_modal_projector.",
        ],
    }),
    norm_offset: 1.0,
    embedding_scale: |config| (config.hidden_size as f64).sqrt() as f32,
    layer: |config, layer| Layer {
        attention: Norms { before: Some("input_layernorm"), after: Some("post_attention_layernorm") },
        mlp: Norms { before: Some("pre_feedforward_layernorm"), after: Some("post_feedforward_layernorm") },
        qk_norm: Some(QkNorm::Head),
        activation: Activation::GeluTanh,
        ..windowed(config, layer)
    },
    ..llama::FAMILY
};

/// Reads the sliding window, the layers that have it, and their rotary frequencies.
pub(super) fn read_windows(fields: &Fields<'_>, config: &mut Config) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Windows {
        layer_types: Option<Vec<LayerType>>,
        sliding_window: Option<usize>,
        sliding_window_pattern: usize,
        rope_local_base_freq: Option<f64>,
        rope_parameters: Option<ByType>,
    }
    #[derive(Deserialize)]
    struct ByType {
        sliding_attention: Option<Local>,
    }
    #[derive(Deserialize)]
    struct Local {
        rope_type: Option<String>,
        rope_theta: Option<f64>,
    }
    let windows = fields.read::<Windows>()?;
    let local = windows.rope_parameters.and_then(|types| types.sliding_attention);
    if let Some(other) = local.as_ref().and_then(|l| l.rope_type.as_ref()).filter(|kind| *kind != "default") {
        let wanted = "default (others are not supported)";
        return fields.refuse_found("rope_parameters.sliding_attention.rope_type", other, wanted);
    }
    if windows.sliding_window_pattern == 0 {
        return fields.refuse("sliding_window_pattern", "a positive number");
    }
    let full = |layer: usize| (layer + 1).is_multiple_of(windows.sliding_window_pattern);
    let kind = |layer| if full(layer) { LayerType::FullAttention } else { LayerType::SlidingAttention };
    config.layer_types =
        windows.layer_types.unwrap_or_else(|| (0..config.num_hidden_layers).map(kind).collect());
    if config.layer_types.contains(&LayerType::LinearAttention) {
        let wanted = "full_attention or sliding_attention";
        return fields.refuse_found("layer_types", "linear_attention", wanted);
    }
    config.sliding_window = windows.sliding_window;
    let theta = local.and_then(|local| local.rope_theta).or(windows.rope_local_base_freq);
    config.rope_local_base_freq = Some(theta.unwrap_or(config.rope_theta));
    Ok(())
}

/// Writes the settings that [`read_windows`] reads.
pub(super) fn windows(config: &Config) -> Value {
    let mut full = serde_json::to_value(config.rope_scaling).expect("numbers");
    full["rope_theta"] = json!(config.rope_theta);
    let local = config.rope_local_base_freq.unwrap_or(config.rope_theta);
    let sliding = json!({"rope_type": "default", "rope_theta": local});
    let all = vec![LayerType::FullAttention; config.num_hidden_layers];
    let types = if config.layer_types.is_empty() { &all } else { &config.layer_types };
    json!({
        "sliding_window": config.sliding_window, "layer_types": types,
        "rope_parameters": {"full_attention": full, "sliding_attention": sliding},
    })
}

/// Llama's layer, with the window and the rotary frequencies of its layer type.
pub(super) fn windowed(config: &Config, layer: usize) -> Layer {
    let slides = config.layer_types.get(layer) != Some(&LayerType::FullAttention);
    // Layers with the same frequencies share a table.
    let other = |theta: f64| theta != config.rope_theta || config.rope_scaling != RopeScaling::Default;
    let local = slides && config.rope_local_base_freq.is_some_and(other);
    Layer {
        rope: Some(if local { Theta::Local } else { Theta::Global }),
        window: config.sliding_window.filter(|_| slides),
        ..(llama::FAMILY.layer)(config, layer)
    }
}
