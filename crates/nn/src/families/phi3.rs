//! Phi-3 and Phi-4-mini: Mistral with one matrix for queries, keys and values, and another for gate and up.

use serde_json::{Value, json};

use super::{Family, GgufForm, GgufRows, Layer, check_gguf_heads, llama, mistral};
use crate::config::RopeScaling;

pub(super) const FAMILY: Family = Family {
    class_name: "Phi3ForCausalLM",
    model_type: "phi3",
    defaults: || {
        json!({
            "vocab_size": 32_064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": null, "max_position_embeddings": 4096,
            "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
            "bos_token_id": 1, "eos_token_id": 32_000, "pad_token_id": 32_000, "sliding_window": null,
            "partial_rotary_factor": 1.0,
        })
    },
    // llama.cpp reads the window and doesn't apply it.
    gguf: Some(GgufForm {
        architecture: "phi3",
        rows: GgufRows::Plain,
        settings: &[
            ("attention.sliding_window", "sliding_window", Some(0.0)),
            ("rope.scaling.original_context_length", "original_max_position_embeddings", Some(0.0)),
        ],
        names: &[("self_attn.qkv_proj", "attn_qkv"), ("mlp.gate_up_proj", "ffn_up")],
        // 0 means that there is no window, and no other context length.
        read: |fields, _| {
            if fields["sliding_window"] == 0 {
                fields.insert("sliding_window".into(), Value::Null);
            }
            if fields["original_max_position_embeddings"] == 0 {
                let context = fields["max_position_embeddings"].clone();
                fields.insert("original_max_position_embeddings".into(), context);
            }
        },
        write: |config, fields| {
            fields.insert("sliding_window".into(), json!(config.sliding_window.unwrap_or(0)));
            check_gguf_heads(config)
        },
        ..llama::GGUF
    }),
    supported: || json!({"embd_pdrop": 0.0, "resid_pdrop": 0.0}),
    write: |config| {
        let original = match config.rope_scaling {
            RopeScaling::LongRope { original_max_position_embeddings: context, .. } => context,
            _ => config.max_position_embeddings,
        };
        json!({"sliding_window": config.sliding_window, "original_max_position_embeddings": original})
    },
    // transformers takes it for an old name of LongRoPE.
    refused: |config| {
        let is_yarn = matches!(config.rope_scaling, RopeScaling::Yarn { .. });
        is_yarn.then(|| ("rope_type", "yarn".into(), "default or longrope".into()))
    },
    whole: None,
    layer: |config, layer| Layer { fused: true, ..(mistral::FAMILY.layer)(config, layer) },
    ..mistral::FAMILY
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::fields::object;

    #[test]
    fn published_phi_4_mini_config_is_read() {
        let config = json!({
            "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "vocab_size": 200_064, "hidden_size": 3072,
            "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 24, "num_key_value_heads": 8,
            "hidden_act": "silu", "max_position_embeddings": 131_072, "original_max_position_embeddings": 4096,
            "partial_rotary_factor": 0.75, "rope_theta": 10_000.0, "rms_norm_eps": 1e-5, "sliding_window": 262_144,
            "rope_scaling": {"type": "longrope", "short_factor": vec![1.0; 48], "long_factor": vec![1.0; 48]},
            "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false, "lm_head_bias": false,
            "attention_dropout": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "interpolate_factor": 1,
            "full_attn_mod": 1, "bos_token_id": 199_999, "eos_token_id": 199_999, "pad_token_id": 199_999,
            "torch_dtype": "bfloat16", "use_cache": true,
        });
        let config = Config::from_json(&object(config), "config.json").unwrap();
        assert_eq!((config.head_dim, config.rotary_dim(), config.context()), (128, 96, 4096));
        assert_eq!(config.parameters(), 3_836_021_760);
    }

    #[test]
    fn longrope_is_read_as_transformers_reads_it() {
        let read = |kind: &str, short: Value| {
            let scaling =
                json!({"type": kind, "factor": null, "short_factor": short, "long_factor": vec![2.0; 48]});
            let model =
                json!({"model_type": "phi3", "max_position_embeddings": 131_072, "rope_scaling": scaling});
            Config::from_json(&object(model), "config.json")
        };
        for kind in ["longrope", "su"] {
            let config = read(kind, json!(vec![1.5; 48])).unwrap();
            // sqrt(1 + ln(131072 / 4096) / ln(4096))
            let RopeScaling::LongRope { attention_factor, .. } = config.rope_scaling else { panic!() };
            assert!((attention_factor - 1.190_238).abs() < 1e-6);
            assert_eq!(config.context(), 4096);
        }
        for (kind, short, part) in [
            ("longrope", json!([1.5]), "short_factor"),
            ("longrope", json!(null), "short_factor"),
            ("yarn", json!(null), "factor"),
        ] {
            let message = read(kind, short).unwrap_err().to_string();
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    }
}
