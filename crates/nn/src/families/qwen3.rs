//! Qwen3: Llama with an RMSNorm on each head's query and key, and an explicit head size.

use serde_json::json;

use super::{Family, GgufForm, GgufRows, Layer, QkNorm, llama, qwen2};
use crate::config::fields::object;

pub(super) const FAMILY: Family = Family {
    class_name: "Qwen3ForCausalLM",
    model_type: "qwen3",
    defaults: || {
        let mut defaults = object((qwen2::FAMILY.defaults)());
        defaults.insert("head_dim".into(), json!(128));
        defaults.into()
    },
    gguf: Some(GgufForm { architecture: "qwen3", rows: GgufRows::Plain, ..llama::GGUF }),
    supported: || json!({"attention_bias": false}),
    layer: |config, layer| Layer { qk_norm: Some(QkNorm::Head), ..(llama::FAMILY.layer)(config, layer) },
    ..qwen2::FAMILY
};
