//! SmolLM3: Llama without rotary embedding in some layers, by default every fourth.

use serde::Deserialize;
use serde_json::json;

use super::{Family, GgufForm, Layer, Theta, last_of, llama};

pub(super) const FAMILY: Family = Family {
    class_name: "SmolLM3ForCausalLM",
    model_type: "smollm3",
    defaults: || {
        json!({
            "vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 11_008, "num_hidden_layers": 36,
            "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 32_768,
            "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "bos_token_id": 128_000,
            "eos_token_id": 128_001, "pad_token_id": 128_004,
            "no_rope_layers": null, "no_rope_layer_interval": 4,
        })
    },
    default_theta: 2e6,
    // llama.cpp has no rotary embedding in every fourth layer, and no key for other layers.
    gguf: Some(GgufForm {
        architecture: "smollm3",
        write: |config, _| {
            let rotates = |layer: usize| config.no_rope_layers.get(layer) != Some(&0);
            match (0..config.num_hidden_layers).all(|layer| rotates(layer) == ((layer + 1) % 4 != 0)) {
                true => Ok(()),
                false => {
                    let expected = "0 for every fourth layer".into();
                    Err(("no_rope_layers", json!(config.no_rope_layers).to_string(), expected))
                }
            }
        },
        ..llama::GGUF
    }),
    supported: || json!({"attention_bias": false, "mlp_bias": false, "use_sliding_window": false}),
    read: |fields, config| {
        // transformers masks such layers by the window even if `use_sliding_window` is false.
        llama::no_window(fields, config)?;
        #[derive(Deserialize)]
        struct NoRope {
            no_rope_layers: Option<Vec<usize>>,
        }
        let no_rope = fields.read::<NoRope>()?;
        let last = last_of(fields, "no_rope_layer_interval")?;
        let rotates = |layer| usize::from(!last(layer));
        let layers =
            no_rope.no_rope_layers.unwrap_or_else(|| (0..config.num_hidden_layers).map(rotates).collect());
        if layers.len() != config.num_hidden_layers || layers.contains(&0) {
            config.no_rope_layers = layers;
        }
        Ok(())
    },
    write: |config| {
        let all = vec![1; config.num_hidden_layers];
        let layers = if config.no_rope_layers.is_empty() { &all } else { &config.no_rope_layers };
        json!({"no_rope_layers": layers, "sliding_window": null})
    },
    refused: |_| None,
    layer: |config, layer| Layer {
        rope: (config.no_rope_layers.get(layer) != Some(&0)).then_some(Theta::Global),
        ..(llama::FAMILY.layer)(config, layer)
    },
    ..llama::FAMILY
};
