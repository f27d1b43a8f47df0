//! Qwen3.5, dense and text only. Three of four layers have gated DeltaNet, a recurrent mixer. The fourth has attention with an output gate,
//! norms of each head's query and key, and rotary embedding of a quarter of each head. Norms scale by `1 + weight`, except the mixer's. The
//! checkpoint's vision tower and multi-token prediction head are ignored.

use serde_json::json;

use super::{
    FURTHER_LAYERS, Family, GgufForm, GgufRows, Layer, QkNorm, Recurrence, alternating_types, llama,
    write_gguf_period,
};
use crate::config::fields::object;
use crate::config::{GatedDeltaNet, LayerType};

pub(super) const FAMILY: Family = Family {
    class_name: "Qwen3_5ForCausalLM",
    model_type: "qwen3_5_text",
    defaults: || {
        json!({
            "vocab_size": 248_320, "hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 32,
            "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256,
            "max_position_embeddings": 32_768, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
            "partial_rotary_factor": 0.25, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
        })
    },
    gguf: Some(GgufForm {
        architecture: "qwen35",
        rows: GgufRows::Plain,
        settings: &[
            ("full_attention_interval", "full_attention_interval", Some(4.0)),
            ("nextn_predict_layers", FURTHER_LAYERS, Some(0.0)),
            ("rope.dimension_sections", "mrope_section", Some(0.0)),
            ("ssm.conv_kernel", "linear_conv_kernel_dim", None),
            ("ssm.group_count", "linear_num_key_heads", None),
            ("ssm.inner_size", "linear_value_width", None),
            ("ssm.state_size", "linear_key_head_dim", None),
            ("ssm.time_step_rank", "linear_num_value_heads", None),
        ],
        only: &[],
        names: &[
            ("post_attention_layernorm", "post_attention_norm"),
            ("linear_attn.A_log", "ssm_a"),
            ("linear_attn.dt_bias", "ssm_dt.bias"),
            ("linear_attn.conv1d", "ssm_conv1d"),
            ("linear_attn.norm", "ssm_norm"),
            ("linear_attn.out_proj", "ssm_out"),
            ("linear_attn.in_proj_qkv", "attn_qkv"),
            ("linear_attn.in_proj_z", "attn_gate"),
            ("linear_attn.in_proj_b", "ssm_beta"),
            ("linear_attn.in_proj_a", "ssm_alpha"),
        ],
        read: |fields, _| {
            fields.insert("linear_value_head_dim".into(), fields["linear_key_head_dim"].clone());
        },
        write: |config, fields| {
            if let Some(sizes) = config.linear_attention {
                let (key, value) = (sizes.linear_key_head_dim, sizes.linear_value_head_dim);
                if key != value {
                    let expected = format!("{key}, as linear_key_head_dim");
                    return Err(("linear_value_head_dim", value.to_string(), expected));
                }
                fields.insert("linear_value_width".into(), json!(sizes.value_width()));
            }
            // Pairs of each of the three coordinates of an image, and none of a fourth. In texts the three are equal.
            let pairs = config.rotary_dim() / 2;
            let sections = [0, 1, 2].map(|coordinate| (pairs + 2 - coordinate) / 3);
            fields.insert("mrope_section".into(), json!([sections[0], sections[1], sections[2], 0]));
            write_gguf_period(config, fields, "full_attention_interval")
        },
    }),
    supported: || json!({"attention_bias": false, "attn_output_gate": true}),
    read: |fields, config| {
        let other = LayerType::LinearAttention;
        config.layer_types = alternating_types(fields, config, other, "full_attention_interval")?;
        config.linear_attention = Some(fields.read::<GatedDeltaNet>()?);
        Ok(())
    },
    write: |config| {
        let all = vec![LayerType::FullAttention; config.num_hidden_layers];
        let types = if config.layer_types.is_empty() { &all } else { &config.layer_types };
        let mut settings = json!({
            "layer_types": types, "partial_rotary_factor": config.partial_rotary_factor.unwrap_or(1.0),
        });
        if let Some(sizes) = config.linear_attention {
            settings.as_object_mut().expect("an object").extend(object(json!(sizes)));
        }
        settings
    },
    // The sizes alone don't determine which layers are recurrent.
    refused: |config| {
        let expected = "linear_attention or full_attention for each layer; a checkpoint's config.json lists them, and [model.size] derives them from linear_num_value_heads";
        config.layer_types.is_empty().then(|| ("layer_types", "nothing".into(), expected.into()))
    },
    whole: Some("qwen3_5"),
    norm_offset: 1.0,
    layer: |config, layer| Layer {
        mixer: config
            .linear_attention
            .filter(|_| config.layer_types.get(layer) == Some(&LayerType::LinearAttention))
            .map(Recurrence::DeltaRule),
        output_gate: true,
        qk_norm: Some(QkNorm::Head),
        ..(llama::FAMILY.layer)(config, layer)
    },
    ..llama::FAMILY
};
