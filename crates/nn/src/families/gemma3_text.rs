//! Gemma 3, text only: the checkpoint's vision tower is ignored. RMSNorms, which scale by `1 + weight`, before and after attention and MLP,
//! and on each head's query and key; sliding windows with separate rotary frequencies in most layers; GELU; a scaled embedding.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Activation, Family, GgufForm, GgufRows, Layer, Norms, PERIOD, QkNorm, Theta, alternating_types, llama,
    read_gguf_windows, write_gguf_period,
};
use crate::config::fields::{Fields, object};
use crate::config::{Architecture, Config, LayerType, RopeScaling};
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
    gguf: Some(GgufForm {
        architecture: "gemma3",
        rows: GgufRows::Plain,
        settings: &[
            ("attention.sliding_window", "sliding_window", None),
            ("attention.sliding_window_pattern", PERIOD, Some(6.0)),
            ("rope.freq_base_swa", "rope_local_base_freq", Some(10_000.0)),
        ],
        names: &[
            ("post_attention_layernorm", "post_attention_norm"),
            ("pre_feedforward_layernorm", "ffn_norm"),
            ("post_feedforward_layernorm", "post_ffw_norm"),
        ],
        read: |fields, _| {
            let number = |field: &str| fields[field].as_u64().unwrap_or_default() as usize;
            let [layers, width, heads, head] =
                ["num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim"].map(number);
            fields.insert("query_pre_attn_scalar".into(), json!(scalar(layers, width, heads, head)));
            read_gguf_windows(fields);
        },
        write: |config, fields| {
            let Config { num_hidden_layers, hidden_size, num_attention_heads, head_dim, .. } = *config;
            let expected = scalar(num_hidden_layers, hidden_size, num_attention_heads, head_dim);
            let found = config.query_pre_attn_scalar.unwrap_or(head_dim);
            if found != expected {
                return Err(("query_pre_attn_scalar", found.to_string(), expected.to_string()));
            }
            if config.sliding_window.is_none() {
                return Err(("sliding_window", "null".into(), "a number".into()));
            }
            write_gguf_period(config, fields, PERIOD)
        },
        ..llama::GGUF
    }),
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
    whole: Some("gemma3"),
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

/// Returns the square of the divisor of attention scores in llama.cpp: the size of a head, except in the model of 27B parameters,
/// which llama.cpp recognises by its 62 layers.
fn scalar(layers: usize, width: usize, heads: usize, head: usize) -> usize {
    if layers == 62 { width / heads.max(1) } else { head }
}

/// Reads the sliding window, the layers that have it, and their rotary frequencies.
pub(super) fn read_windows(fields: &Fields<'_>, config: &mut Config) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Windows {
        sliding_window: Option<usize>,
        rope_local_base_freq: Option<f64>,
        rope_parameters: Option<Map<String, Value>>,
    }
    #[derive(Deserialize)]
    struct Local {
        rope_theta: Option<f64>,
    }
    let windows = fields.read::<Windows>()?;
    let by_type = windows.rope_parameters.unwrap_or_default();
    // transformers 5 writes OLMo 3 without scaling in the form for all layers.
    let is_olmo = config.architecture == Architecture::Olmo3;
    let for_all = is_olmo && by_type.get("rope_type").is_some_and(|kind| kind == "default");
    if !by_type.is_empty()
        && !for_all
        && !["full_attention", "sliding_attention"].iter().any(|kind| by_type.contains_key(*kind))
    {
        return fields.refuse(
            "rope_parameters",
            "an object for each type of layer, full_attention and sliding_attention",
        );
    }
    let local = match by_type.get("sliding_attention") {
        Some(Value::Object(map)) => {
            let place = format!("{}: rope_parameters.sliding_attention", fields.place);
            let local = Fields { place: &place, map };
            let unscaled = json!({"rope_type": "default", "type": "default", "partial_rotary_factor": 1});
            local.only(&object(unscaled))?;
            local.read::<Local>()?.rope_theta
        }
        _ => None,
    };
    config.layer_types =
        alternating_types(fields, config, LayerType::SlidingAttention, "sliding_window_pattern")?;
    config.sliding_window = windows.sliding_window;
    config.rope_local_base_freq = Some(local.or(windows.rope_local_base_freq).unwrap_or(config.rope_theta));
    Ok(())
}

/// Writes the settings that [`read_windows`] reads.
pub(super) fn windows(config: &Config) -> Value {
    let mut full = serde_json::to_value(&config.rope_scaling).expect("numbers");
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

/// Returns Llama's layer, with the window and the rotary frequencies of its layer type.
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
