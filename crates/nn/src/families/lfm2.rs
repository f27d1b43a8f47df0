//! LFM2 and LFM2.5, dense: gated short convolutions between attention layers. A convolution layer maps its input to a gate before the convolution,
//! a gate after it, and the values. Attention has a norm of each head's query and key. Other names of modules and settings than Llama's.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Family, GgufForm, GgufRows, Layer, Norms, QkNorm, Recurrence, ShortConvolution, check_gguf_heads,
    listed_types, llama,
};
use crate::config::LayerType;

/// Settings under names that only this family has.
#[derive(Deserialize)]
struct FamilyFields {
    norm_eps: f64,
    #[serde(rename = "conv_L_cache")]
    conv_l_cache: usize,
    /// If present, it replaces `tie_word_embeddings`.
    tie_embedding: Option<bool>,
    /// If present, it replaces `intermediate_size`.
    block_ff_dim: Option<usize>,
    block_auto_adjust_ff_dim: bool,
    block_ffn_dim_multiplier: Option<f64>,
    block_multiple_of: usize,
    /// Attention layers of a file without `layer_types`. If it has neither, all layers have attention.
    full_attn_idxs: Option<Vec<usize>>,
}

pub(super) const FAMILY: Family = Family {
    class_name: "Lfm2ForCausalLM",
    model_type: "lfm2",
    defaults: || {
        json!({
            "vocab_size": 65_536, "hidden_size": 2560, "intermediate_size": 12_288, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 128_000,
            "rms_norm_eps": 1e-5, "norm_eps": 1e-5, "tie_word_embeddings": true, "bos_token_id": 1,
            "eos_token_id": 2, "pad_token_id": 0, "conv_L_cache": 3, "block_multiple_of": 256,
            "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": true,
        })
    },
    default_theta: 1e6,
    gguf: Some(GgufForm {
        architecture: "lfm2",
        rows: GgufRows::Plain,
        settings: &[("shortconv.l_cache", "conv_L_cache", None)],
        names: &[
            ("operator_norm", "attn_norm"),
            ("ffn_norm", "ffn_norm"),
            ("conv.conv", "shortconv.conv"),
            ("conv.in_proj", "shortconv.in_proj"),
            ("conv.out_proj", "shortconv.out_proj"),
            ("model.embedding_norm", "token_embd_norm"),
        ],
        // Layers without key heads are convolutions.
        read: |fields, _| {
            let layers = fields["num_hidden_layers"].as_u64().unwrap_or_default() as usize;
            let heads = match &fields["num_key_value_heads"] {
                Value::Array(heads) => heads.clone(),
                one => vec![one.clone(); layers],
            };
            let kind = |heads: &Value| if *heads == 0 { LayerType::Conv } else { LayerType::FullAttention };
            let types: Vec<LayerType> = heads.iter().map(kind).collect();
            fields.insert("layer_types".into(), json!(types));
            let mut others = heads.into_iter().filter(|heads| *heads != 0);
            if let Some(first) = others.next().filter(|first| others.all(|other| other == *first)) {
                fields.insert("num_key_value_heads".into(), first);
            }
            fields.insert("norm_eps".into(), fields["rms_norm_eps"].clone());
            fields.insert("block_auto_adjust_ff_dim".into(), json!(false));
        },
        write: |config, fields| {
            let heads = |kind: &LayerType| {
                if *kind == LayerType::Conv { 0 } else { config.num_key_value_heads }
            };
            let list: Vec<usize> = config.layer_types.iter().map(heads).collect();
            fields.insert("num_key_value_heads".into(), json!(list));
            check_gguf_heads(config)
        },
        ..llama::GGUF
    }),
    supported: || json!({"conv_bias": false, "block_use_swiglu": true, "use_pos_enc": true}),
    read: |fields, config| {
        let family: FamilyFields = fields.read()?;
        config.rms_norm_eps = family.norm_eps;
        config.tie_word_embeddings = family.tie_embedding.unwrap_or(config.tie_word_embeddings);
        config.conv_l_cache = Some(family.conv_l_cache);
        let mut width = family.block_ff_dim.unwrap_or(config.intermediate_size);
        if family.block_auto_adjust_ff_dim {
            width = (2.0 * width as f64 / 3.0) as usize;
            if let Some(factor) = family.block_ffn_dim_multiplier {
                width = (factor * width as f64) as usize;
                let Some(rounded) = width.checked_next_multiple_of(family.block_multiple_of) else {
                    return fields.refuse("block_multiple_of", "a positive number");
                };
                width = rounded;
            }
        }
        config.intermediate_size = width;
        let kinds = [LayerType::FullAttention, LayerType::Conv];
        config.layer_types = match (listed_types(fields, config, &kinds)?, family.full_attn_idxs) {
            (Some(types), _) => types,
            (None, listed) => {
                let attends = |layer| listed.as_ref().is_none_or(|indices| indices.contains(&layer));
                (0..config.num_hidden_layers).map(|layer| kinds[usize::from(!attends(layer))]).collect()
            }
        };
        Ok(())
    },
    write: |config| {
        let all = vec![LayerType::FullAttention; config.num_hidden_layers];
        let types = if config.layer_types.is_empty() { &all } else { &config.layer_types };
        // Other programs require the sizes of a block and of a convolution.
        json!({
            "layer_types": types, "conv_L_cache": config.conv_l_cache.unwrap_or(3), "norm_eps": config.rms_norm_eps,
            "block_auto_adjust_ff_dim": false, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
            "block_dim": config.hidden_size, "block_ff_dim": config.intermediate_size,
            "conv_dim": config.hidden_size, "tie_embedding": config.tie_word_embeddings,
        })
    },
    // The sizes alone don't determine which layers are convolutions.
    refused: |config| {
        let expected = "conv or full_attention for each layer; only a checkpoint's config.json lists them";
        config.layer_types.is_empty().then(|| ("layer_types", "nothing".into(), expected.into()))
    },
    last_norm: "model.embedding_norm.weight",
    layer: |config, layer| Layer {
        mixer: config
            .conv_l_cache
            .filter(|_| config.layer_types.get(layer) == Some(&LayerType::Conv))
            .map(|kernel| Recurrence::Convolution(ShortConvolution { width: config.hidden_size, kernel })),
        attention: Norms { before: Some("operator_norm"), after: None },
        mlp: Norms { before: Some("ffn_norm"), after: None },
        renamed: &[
            ("self_attn.o_proj", "self_attn.out_proj"),
            ("self_attn.q_norm", "self_attn.q_layernorm"),
            ("self_attn.k_norm", "self_attn.k_layernorm"),
            ("mlp.gate_proj", "feed_forward.w1"),
            ("mlp.up_proj", "feed_forward.w3"),
            ("mlp.down_proj", "feed_forward.w2"),
        ],
        qk_norm: Some(QkNorm::Head),
        ..(llama::FAMILY.layer)(config, layer)
    },
    ..llama::FAMILY
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::fields::object;

    fn read(value: Value) -> Config {
        Config::from_json(&object(value), "config.json").unwrap()
    }

    #[test]
    fn unsupported_settings_are_refused_with_field_and_value() {
        for (field, value, expected) in [
            ("conv_L_cache", json!(1), "2 to 64"),
            ("conv_bias", json!(true), "false"),
            ("block_use_swiglu", json!(false), "true"),
            ("use_pos_enc", json!(false), "true"),
            ("block_multiple_of", json!(0), "positive"),
            ("layer_types", json!(["sliding_attention"]), "conv"),
            ("model_type", json!("lfm2_moe"), "lfm2"),
            ("model_type", json!("lfm2_vl"), "lfm2"),
        ] {
            let mut config = json!({"model_type": "lfm2"});
            config[field] = value.clone();
            let message = Config::from_json(&object(config), "config.json").unwrap_err().to_string();
            for part in [field, value.to_string().trim_matches(['[', ']']), expected] {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
        }
    }

    #[test]
    fn published_lfm2_configs_are_read() {
        // LFM2-350M and LFM2-1.2B, which list the layers with attention, as older files do.
        for (width, block_width, parameters) in [(1024, 6656, 354_483_968), (2048, 12_288, 1_170_340_608)] {
            let config = read(json!({
                "architectures": ["Lfm2ForCausalLM"], "block_auto_adjust_ff_dim": true, "block_dim": width,
                "block_ff_dim": block_width, "block_ffn_dim_multiplier": 1.0, "block_mlp_init_scale": 1.0,
                "block_multiple_of": 256, "block_norm_eps": 1e-5, "block_out_init_scale": 1.0,
                "block_use_swiglu": true, "block_use_xavier_init": true, "bos_token_id": 1, "conv_L_cache": 3,
                "conv_bias": false, "conv_dim": width, "conv_dim_out": width, "conv_use_xavier_init": true,
                "eos_token_id": 7, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "hidden_size": width,
                "initializer_range": 0.02, "max_position_embeddings": 128_000, "model_type": "lfm2", "norm_eps": 1e-5,
                "num_attention_heads": width / 64, "num_heads": width / 64, "num_hidden_layers": 16,
                "num_key_value_heads": 8, "pad_token_id": 0, "rope_theta": 1_000_000.0, "torch_dtype": "bfloat16",
                "use_cache": true, "use_pos_enc": true, "vocab_size": 65_536,
            }));
            assert_eq!(config.parameters(), parameters);
            assert_eq!((config.head_dim, config.tie_word_embeddings), (64, true));
            let attends = config.layer_types.iter().map(|kind| *kind == LayerType::FullAttention);
            assert_eq!(attends.filter(|attends| *attends).count(), 6);
        }
    }

    #[test]
    fn settings_under_two_names_are_read_as_transformers_reads_them() {
        let config = read(json!({
            "model_type": "lfm2", "num_hidden_layers": 2, "layer_types": ["conv", "full_attention"],
            "intermediate_size": 700, "block_ff_dim": 600, "block_ffn_dim_multiplier": 0.5, "block_multiple_of": 64,
            "tie_word_embeddings": true, "tie_embedding": false, "norm_eps": 1e-3, "full_attn_idxs": [0],
        }));
        assert_eq!((config.intermediate_size, config.rms_norm_eps), (256, 1e-3));
        assert_eq!(config.layer_types, [LayerType::Conv, LayerType::FullAttention]);
        assert!(!config.tie_word_embeddings);
        let exact =
            json!({"model_type": "lfm2", "block_auto_adjust_ff_dim": false, "intermediate_size": 700});
        let config = read(exact);
        assert_eq!(config.intermediate_size, 700);
        assert!(!config.is_recurrent());
    }
}
