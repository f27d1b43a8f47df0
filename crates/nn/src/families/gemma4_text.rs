//! Gemma 4, dense and text only: the checkpoint's towers for images and audio are ignored. Compared with Gemma 3, norms scale by `weight` alone, scores aren't
//! scaled, each head's value is normalised without weights, and the result of every layer is multiplied by a stored number. Layers with full attention have
//! other heads, of which only the first pairs rotate.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Family, GgufForm, GgufRows, KeysValues, Layer, PERIOD, Theta, gemma3_text, llama, read_gguf_windows,
};
use crate::config::fields::{Fields, object};
use crate::config::{Config, Gemma4, LayerType, RopeScaling};
use crate::error::Error;

pub(super) const FAMILY: Family = Family {
    class_name: "Gemma4ForCausalLM",
    model_type: "gemma4_text",
    defaults: || {
        json!({
            "vocab_size": 262_144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "max_position_embeddings": 131_072, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
            "bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0, "sliding_window": 512,
            "sliding_window_pattern": 6, "global_head_dim": 512, "num_global_key_value_heads": null,
            "per_layer_config": null, "use_bidirectional_attention": null, "attention_k_eq_v": false, "num_kv_shared_layers": 0,
            "use_double_wide_mlp": false, "hidden_size_per_layer_input": 256,
            "vocab_size_per_layer_input": 262_144, "final_logit_softcapping": null,
            "rope_parameters": {
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        })
    },
    supported: || {
        json!({
            "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "attention_bias": false,
            "enable_moe_block": false, "sliding_window_pattern": 6,
        })
    },
    gguf: Some(GGUF),
    read,
    write: |config| {
        let mut settings = gemma3_text::windows(config);
        let map = settings.as_object_mut().expect("an object");
        map.extend(object(json!(settings_of(config))));
        // transformers 5 lets the older name of the field replace the newer one.
        map.insert("rope_scaling".into(), map["rope_parameters"].clone());
        if config.sliding_window.is_none() {
            map.remove("sliding_window");
        }
        settings
    },
    refused: |config| {
        let gemma4 = settings_of(config);
        let heads = config.num_attention_heads;
        let (layers, shared) = (config.num_hidden_layers, gemma4.num_kv_shared_layers);
        let own = &config.layer_types[..config.layer_types.len().saturating_sub(shared)];
        let unshared = |kind: &&LayerType| !own.contains(kind);
        if gemma4.vocab_size_per_layer_input < config.vocab_size {
            let expected = format!("at least vocab_size, {}", config.vocab_size);
            return Some((
                "vocab_size_per_layer_input",
                gemma4.vocab_size_per_layer_input.to_string(),
                expected,
            ));
        }
        if !gemma4.global_head_dim.is_multiple_of(2) {
            let expected = "an even number; rotary embedding rotates pairs".into();
            return Some(("global_head_dim", gemma4.global_head_dim.to_string(), expected));
        }
        if !heads.is_multiple_of(gemma4.num_global_key_value_heads) {
            let expected = format!("a divisor of num_attention_heads, {heads}");
            return Some((
                "num_global_key_value_heads",
                gemma4.num_global_key_value_heads.to_string(),
                expected,
            ));
        }
        if gemma4.final_logit_softcapping.is_some_and(|cap| !(cap.is_finite() && cap > 0.0)) {
            let found = format!("{:?}", gemma4.final_logit_softcapping);
            return Some(("final_logit_softcapping", found, "a positive number".into()));
        }
        if config.layer_types.last().is_some_and(|kind| *kind != LayerType::FullAttention) {
            let expected = "full_attention in the last layer, as transformers requires".into();
            return Some(("layer_types", "sliding_attention in the last layer".into(), expected));
        }
        if shared >= layers || config.layer_types.iter().find(unshared).is_some() {
            let expected = "layers of each type before those that share keys and values".into();
            return Some(("num_kv_shared_layers", shared.to_string(), expected));
        }
        None
    },
    whole: Some("gemma4"),
    norm_offset: 0.0,
    // transformers drops these tensors of layers that use other layers' keys and values.
    is_unused: |config, name| {
        let rest = name.strip_prefix("model.layers.").and_then(|rest| rest.split_once(".self_attn."));
        rest.is_some_and(|(layer, module)| {
            let borrows = |layer| matches!(config.layer(layer).keys_values, KeysValues::Borrowed(_));
            let unused = ["k_proj.weight", "v_proj.weight", "k_norm.weight"].contains(&module);
            unused && layer.parse().is_ok_and(|layer| layer < config.num_hidden_layers && borrows(layer))
        })
    },
    layer: |config, layer| {
        let gemma4 = settings_of(config);
        let slides = config.layer_types.get(layer) == Some(&LayerType::SlidingAttention);
        let first_shared = config.num_hidden_layers.saturating_sub(gemma4.num_kv_shared_layers);
        let same_kind = |&other: &usize| config.layer_types.get(other) == config.layer_types.get(layer);
        let slot = usize::from(slides);
        let wide = gemma4.use_double_wide_mlp && layer >= first_shared;
        Layer {
            key_heads: if slides { config.num_key_value_heads } else { gemma4.num_global_key_value_heads },
            head_dim: if slides { config.head_dim } else { gemma4.global_head_dim },
            scale: 1.0,
            keys_values: if layer >= first_shared {
                KeysValues::Borrowed(slot)
            } else if first_shared < config.num_hidden_layers
                && (0..first_shared).rev().find(same_kind) == Some(layer)
            {
                KeysValues::Lent(slot)
            } else {
                KeysValues::Projected
            },
            values_from_keys: gemma4.attention_k_eq_v && !slides,
            value_norm: true,
            rope: Some(if slides { Theta::Local } else { Theta::Global }),
            window: config.sliding_window.filter(|_| slides),
            intermediate: config.intermediate_size * if wide { 2 } else { 1 },
            per_layer_input: gemma4.hidden_size_per_layer_input,
            layer_scalar: true,
            ..(gemma3_text::FAMILY.layer)(config, layer)
        }
    },
    ..gemma3_text::FAMILY
};

/// GGUF form. The keys without `swa` hold the sizes of the layers with full attention.
const GGUF: GgufForm = GgufForm {
    architecture: "gemma4",
    rows: GgufRows::Plain,
    settings: &[
        ("attention.key_length_swa", "key_length_swa", None),
        ("attention.shared_kv_layers", "num_kv_shared_layers", Some(0.0)),
        ("attention.sliding_window", "sliding_window", None),
        ("attention.sliding_window_pattern", PERIOD, None),
        ("attention.value_length", "value_length", None),
        ("attention.value_length_swa", "value_length_swa", None),
        ("embedding_length_per_layer_input", "hidden_size_per_layer_input", None),
        ("final_logit_softcapping", "final_logit_softcapping", Some(0.0)),
        ("rope.dimension_count", "rotated", None),
        ("rope.dimension_count_swa", "rotated_swa", None),
        ("rope.freq_base_swa", "rope_local_base_freq", Some(10_000.0)),
    ],
    names: &[
        ("post_attention_layernorm", "post_attention_norm"),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
        ("layer_scalar", "layer_output_scale.weight"),
        ("per_layer_input_gate", "inp_gate"),
        ("per_layer_projection", "proj"),
        ("post_per_layer_input_norm", "post_norm"),
        ("model.embed_tokens_per_layer", "per_layer_token_embd"),
        ("model.per_layer_model_projection", "per_layer_model_proj"),
        ("model.per_layer_projection_norm", "per_layer_proj_norm"),
    ],
    read: |fields, has| {
        read_gguf_windows(fields);
        let types = fields["layer_types"].as_array().cloned().unwrap_or_default();
        let first = |list: &Value, kind: LayerType| match list {
            Value::Array(list) => {
                let kinds = types.iter().zip(list).find(|(other, _)| **other == json!(kind));
                kinds.map_or(Value::Null, |(_, size)| size.clone())
            }
            one => one.clone(),
        };
        let (full, slides) = (LayerType::FullAttention, LayerType::SlidingAttention);
        let heads = fields["num_key_value_heads"].clone();
        let last = types.iter().position(|kind| *kind == json!(full)).unwrap_or_default();
        let size = fields.insert("head_dim".into(), fields["key_length_swa"].clone());
        let cap = fields["final_logit_softcapping"].clone();
        let inner = match &fields["intermediate_size"] {
            Value::Array(sizes) => (sizes.first().cloned().unwrap_or_default(), true),
            one => (one.clone(), false),
        };
        fields.extend(object(json!({
            "global_head_dim": size, "num_key_value_heads": first(&heads, slides),
            "num_global_key_value_heads": first(&heads, full),
            "attention_k_eq_v": !has(&format!("blk.{last}.attn_v.weight")),
            "final_logit_softcapping": if cap == 0 { Value::Null } else { cap },
            "intermediate_size": inner.0, "use_double_wide_mlp": inner.1,
            "vocab_size_per_layer_input": fields["vocab_size"],
        })));
    },
    write: |config, fields| {
        let gemma4 = settings_of(config);
        let (tokens, size) = (gemma4.vocab_size_per_layer_input, config.vocab_size);
        if gemma4.hidden_size_per_layer_input > 0 && tokens != size {
            let expected = format!("{size}, as vocab_size");
            return Err(("vocab_size_per_layer_input", tokens.to_string(), expected));
        }
        if !matches!(config.rope_scaling, RopeScaling::Proportional { .. }) {
            let found = json!(config.rope_scaling)["rope_type"].to_string();
            return Err(("rope_parameters.full_attention.rope_type", found, "proportional".into()));
        }
        if config.sliding_window.is_none() {
            return Err(("sliding_window", "null".into(), "a number".into()));
        }
        // llama.cpp assumes that the layers with their own keys end with a sliding layer and a full layer.
        let own = &config.layer_types[..config.num_hidden_layers - gemma4.num_kv_shared_layers];
        let ends = own.ends_with(&[LayerType::SlidingAttention, LayerType::FullAttention]);
        if gemma4.num_kv_shared_layers > 0 && !ends {
            let expected = "a number of layers that begin after sliding_attention and full_attention";
            return Err(("num_kv_shared_layers", gemma4.num_kv_shared_layers.to_string(), expected.into()));
        }
        let layers = || (0..config.num_hidden_layers).map(|layer| config.layer(layer));
        let windows: Vec<bool> = layers().map(|layer| layer.window.is_some()).collect();
        let heads: Vec<usize> = layers().map(|layer| layer.key_heads).collect();
        let inner: Vec<usize> = layers().map(|layer| layer.intermediate).collect();
        let (full, slides) = (gemma4.global_head_dim, config.head_dim);
        fields.extend(object(json!({
            "head_dim": full, "value_length": full, "rotated": full,
            "key_length_swa": slides, "value_length_swa": slides, "rotated_swa": slides,
            PERIOD: windows, "num_key_value_heads": heads,
            "rope_local_base_freq": config.rope_local_base_freq.unwrap_or(config.rope_theta),
            "final_logit_softcapping": gemma4.final_logit_softcapping.unwrap_or(0.0),
        })));
        if gemma4.use_double_wide_mlp {
            fields.insert("intermediate_size".into(), json!(inner));
        }
        Ok(())
    },
    ..llama::GGUF
};

/// Returns the family's settings. Without any, those of a model whose layers are all equal.
fn settings_of(config: &Config) -> Gemma4 {
    config.gemma4.unwrap_or(Gemma4 {
        global_head_dim: config.head_dim,
        num_global_key_value_heads: config.num_key_value_heads,
        attention_k_eq_v: false,
        num_kv_shared_layers: 0,
        use_double_wide_mlp: false,
        hidden_size_per_layer_input: 0,
        vocab_size_per_layer_input: config.vocab_size,
        final_logit_softcapping: None,
    })
}

fn read(fields: &Fields<'_>, config: &mut Config) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Settings {
        global_head_dim: usize,
        num_global_key_value_heads: Option<usize>,
        attention_k_eq_v: bool,
        per_layer_config: Option<BTreeMap<String, Map<String, Value>>>,
        use_bidirectional_attention: Option<Value>,
    }
    gemma3_text::read_windows(fields, config)?;
    let settings = fields.read::<Settings>()?;
    // Only images are seen in both directions.
    let bidirectional = settings.use_bidirectional_attention;
    if bidirectional.is_some_and(|value| !value.is_null() && value != "vision" && value != false) {
        return fields
            .refuse("use_bidirectional_attention", "vision, or nothing (anything else is not supported)");
    }
    // transformers uses the number of heads only in layers whose values are their keys.
    let heads = settings.num_global_key_value_heads.filter(|_| settings.attention_k_eq_v);
    let (mut size, mut heads) = (settings.global_head_dim, heads.unwrap_or(config.num_key_value_heads));
    if let Some(layers) = settings.per_layer_config {
        let global = |layer: usize| config.layer_types[layer] == LayerType::FullAttention;
        let expected: Vec<usize> = (0..config.num_hidden_layers).filter(|&layer| global(layer)).collect();
        // The names are padded with zeros.
        let indices: Option<Vec<usize>> = layers.keys().map(|layer| layer.parse().ok()).collect();
        let same_layers = indices.is_some_and(|mut indices| {
            indices.sort_unstable();
            indices == expected
        });
        let mut listed = layers.values();
        let first = listed.next().cloned().unwrap_or_default();
        let known = first.keys().all(|key| ["head_dim", "num_key_value_heads"].contains(&key.as_str()));
        let number = |key: &str, default: usize| match first.get(key) {
            None => Some(default),
            Some(value) => value.as_u64().and_then(|value| usize::try_from(value).ok()),
        };
        match (number("head_dim", config.head_dim), number("num_key_value_heads", config.num_key_value_heads))
        {
            (Some(of_size), Some(of_heads))
                if known && same_layers && listed.all(|other| *other == first) =>
            {
                (size, heads) = (of_size, of_heads);
            }
            _ => {
                let expected = "the same head_dim and num_key_value_heads for each layer with full_attention, and for no other layer";
                return fields.refuse("per_layer_config", expected);
            }
        }
    }
    let mut all = fields.map.clone();
    all.extend(object(json!({"global_head_dim": size, "num_global_key_value_heads": heads})));
    config.gemma4 = Some(Fields { place: fields.place, map: &all }.read()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text part of the published configuration of Gemma 4 E2B, inside the multimodal model's.
    fn e2b(change: impl FnOnce(&mut Value)) -> Result<Config, Error> {
        let types: Vec<&str> = (0..35)
            .map(|layer| if layer % 5 == 4 { "full_attention" } else { "sliding_attention" })
            .collect();
        let mut text = json!({
            "model_type": "gemma4_text", "attention_bias": false, "attention_dropout": 0.0, "attention_k_eq_v": false,
            "bos_token_id": 2, "dtype": "bfloat16", "enable_moe_block": false, "eos_token_id": 1,
            "final_logit_softcapping": 30.0, "global_head_dim": 512, "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1536, "hidden_size_per_layer_input": 256,
            "intermediate_size": 6144, "layer_types": types, "max_position_embeddings": 131_072,
            "moe_intermediate_size": null, "num_attention_heads": 8, "num_experts": null,
            "num_global_key_value_heads": null, "num_hidden_layers": 35, "num_key_value_heads": 1,
            "num_kv_shared_layers": 20, "pad_token_id": 0, "rms_norm_eps": 1e-6, "sliding_window": 512,
            "tie_word_embeddings": true, "top_k_experts": null, "use_bidirectional_attention": null,
            "use_cache": true, "use_double_wide_mlp": true, "vocab_size": 262_144,
            "vocab_size_per_layer_input": 262_144,
            "rope_parameters": {
                "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6, "rope_type": "proportional"},
                "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
            },
        });
        change(&mut text);
        let whole = json!({
            "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "text_config": text,
            "audio_config": {}, "vision_config": {}, "eos_token_id": [1, 106], "tie_word_embeddings": true,
        });
        Config::from_json(&object(whole), "config.json")
    }

    #[test]
    fn e2b_is_read_inside_of_the_multimodal_model() {
        let config = e2b(|_| {}).unwrap();
        let layer = |index: usize| config.layer(index);
        assert_eq!((layer(13).head_dim, layer(14).head_dim), (256, 512));
        assert_eq!((layer(14).intermediate, layer(15).intermediate), (6144, 12_288));
        let sources = [12, 13, 14, 15, 19].map(|index| layer(index).keys_values);
        let [sliding, full] = [1, 0];
        assert_eq!(
            sources,
            [
                KeysValues::Projected,
                KeysValues::Lent(sliding),
                KeysValues::Lent(full),
                KeysValues::Borrowed(sliding),
                KeysValues::Borrowed(full),
            ]
        );
        // Published checkpoints have these tensors, which transformers drops.
        let unused = |name: &str| (FAMILY.is_unused)(&config, name);
        assert!(unused("model.layers.15.self_attn.k_proj.weight"));
        assert!(!unused("model.layers.14.self_attn.k_proj.weight"));
        assert!(!unused("model.layers.15.self_attn.q_proj.weight"));
    }

    #[test]
    fn unsupported_settings_are_refused_by_name() {
        for (key, value) in [
            ("enable_moe_block", json!(true)),
            ("use_bidirectional_attention", json!("all")),
            ("vocab_size_per_layer_input", json!(1000)),
            ("num_kv_shared_layers", json!(35)),
            ("num_kv_shared_layers", json!(32)),
            ("final_logit_softcapping", json!(0.0)),
            ("global_head_dim", json!(511)),
            ("per_layer_config", json!({"4": {"head_dim": 512}})),
            ("attn_logit_softcapping", json!(50.0)),
        ] {
            let message = e2b(|text| text[key] = value.clone()).unwrap_err().to_string();
            assert!(message.contains(key), "{message:?} lacks {key:?}");
        }
        let message = e2b(|text| text["layer_types"][34] = json!("sliding_attention")).unwrap_err();
        assert!(message.to_string().contains("layer_types"));
        e2b(|text| text["use_bidirectional_attention"] = json!("vision")).unwrap();
    }
}
