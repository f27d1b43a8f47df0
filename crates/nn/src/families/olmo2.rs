//! OLMo 2: RMSNorms on the outputs of attention and MLP instead of their inputs, and on the queries and keys of all heads together.

use serde_json::json;

use super::{Family, GgufForm, GgufRows, Layer, Norms, QkNorm, check_gguf_heads, llama};

pub(super) const FAMILY: Family = Family {
    class_name: "Olmo2ForCausalLM",
    model_type: "olmo2",
    defaults: || {
        json!({
            "vocab_size": 50_304, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": null, "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "eos_token_id": 50_279, "pad_token_id": 1,
        })
    },
    gguf: Some(GGUF),
    supported: || json!({"attention_bias": false}),
    refused: |_| None,
    layer: |config, layer| Layer {
        attention: Norms { before: None, after: Some("post_attention_layernorm") },
        mlp: Norms { before: None, after: Some("post_feedforward_layernorm") },
        qk_norm: Some(QkNorm::Whole),
        ..(llama::FAMILY.layer)(config, layer)
    },
    ..llama::FAMILY
};

pub(super) const GGUF: GgufForm = GgufForm {
    architecture: "olmo2",
    rows: GgufRows::Plain,
    names: &[
        ("post_attention_layernorm", "post_attention_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
    ],
    write: |config, _| {
        if config.tie_word_embeddings {
            return Err(("tie_word_embeddings", "true".into(), "false, which llama.cpp requires".into()));
        }
        check_gguf_heads(config)
    },
    ..llama::GGUF
};
