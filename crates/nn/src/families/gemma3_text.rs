//! Gemma 3, text alone: norms before and after attention and MLP, by `1 + weight`, of each head's query and key, too; a window with frequencies of its own in most
//! layers; GELU; an embedding that is scaled. GPUs don't compute it yet.

use serde::Deserialize;
use serde_json::json;

use super::{Activation, Family, Layer, Norms, QkNorm, Theta, llama};
use crate::config::LayerType;

pub(super) const FAMILY: Family = Family {
    class_name: "Gemma3ForCausalLM",
    model_type: "gemma3_text",
    defaults: || {
        json!({
            "vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "max_position_embeddings": 131_072, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
            "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0, "default_theta": 1e6, "sliding_window": 4096,
            "sliding_window_pattern": 6, "query_pre_attn_scalar": 256, "rope_local_base_freq": 10_000.0,
        })
    },
    supported: || {
        json!({
            "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false,
            "final_logit_softcapping": null, "attn_logit_softcapping": null, "use_bidirectional_attention": false,
        })
    },
    read: |fields, config| {
        #[derive(Deserialize)]
        struct Own {
            layer_types: Option<Vec<LayerType>>,
            sliding_window: Option<usize>,
            sliding_window_pattern: usize,
            query_pre_attn_scalar: usize,
            rope_local_base_freq: f64,
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
        let own = fields.read::<Own>()?;
        let local = own.rope_parameters.and_then(|types| types.sliding_attention);
        if let Some(other) =
            local.as_ref().and_then(|l| l.rope_type.as_ref()).filter(|kind| *kind != "default")
        {
            let wanted = "default (others are not supported)";
            return fields.refuse_found("rope_parameters.sliding_attention.rope_type", other, wanted);
        }
        if own.sliding_window_pattern == 0 {
            return fields.refuse("sliding_window_pattern", "a positive number");
        }
        let full = |layer: usize| (layer + 1).is_multiple_of(own.sliding_window_pattern);
        let kind = |layer| if full(layer) { LayerType::FullAttention } else { LayerType::SlidingAttention };
        config.layer_types =
            own.layer_types.unwrap_or_else(|| (0..config.num_hidden_layers).map(kind).collect());
        config.sliding_window = own.sliding_window;
        config.query_pre_attn_scalar = Some(own.query_pre_attn_scalar);
        config.rope_local_base_freq =
            Some(local.and_then(|local| local.rope_theta).unwrap_or(own.rope_local_base_freq));
        Ok(())
    },
    write: |config| {
        let (mut full, mut sliding) =
            (serde_json::to_value(config.rope_scaling).expect("numbers"), json!({}));
        full["rope_theta"] = json!(config.rope_theta);
        sliding["rope_type"] = json!("default");
        let local = config.rope_local_base_freq.unwrap_or(config.rope_theta);
        sliding["rope_theta"] = json!(local);
        let all = vec![LayerType::FullAttention; config.num_hidden_layers];
        let types = if config.layer_types.is_empty() { &all } else { &config.layer_types };
        json!({
            "sliding_window": config.sliding_window, "layer_types": types,
            "query_pre_attn_scalar": config.query_pre_attn_scalar.unwrap_or(config.head_dim),
            "rope_local_base_freq": local,
            "rope_parameters": {"full_attention": full, "sliding_attention": sliding},
        })
    },
    norm_offset: 1.0,
    embedding_scale: |config| (config.hidden_size as f64).sqrt() as f32,
    layer: |config, layer| {
        let slides = config.layer_types.get(layer) != Some(&LayerType::FullAttention);
        Layer {
            attention: Norms { before: Some("input_layernorm"), after: Some("post_attention_layernorm") },
            mlp: Norms {
                before: Some("pre_feedforward_layernorm"),
                after: Some("post_feedforward_layernorm"),
            },
            qk_norm: Some(QkNorm::Head),
            rope: Some(if slides && config.rope_local_base_freq.is_some() {
                Theta::Local
            } else {
                Theta::Global
            }),
            window: config.sliding_window.filter(|_| slides),
            activation: Activation::GeluTanh,
            ..(llama::FAMILY.layer)(config, layer)
        }
    },
    ..llama::FAMILY
};
