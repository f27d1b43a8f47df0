//! OLMo 3: OLMo 2 with a sliding window in three of four layers, whose rotary frequencies are not scaled.

use serde_json::json;

use super::{Family, GgufForm, Layer, PERIOD, gemma3_text, olmo2, read_gguf_windows, write_gguf_period};
use crate::config::fields::object;

pub(super) const FAMILY: Family = Family {
    class_name: "Olmo3ForCausalLM",
    model_type: "olmo3",
    defaults: || {
        let mut defaults = object((olmo2::FAMILY.defaults)());
        defaults.extend(object(json!({"sliding_window": 4096, "sliding_window_pattern": 4})));
        defaults.into()
    },
    default_theta: 5e5,
    // llama.cpp has the architecture of OLMo 2 for both.
    gguf: Some(GgufForm {
        settings: &[
            ("attention.sliding_window", "sliding_window", None),
            ("attention.sliding_window_pattern", PERIOD, Some(4.0)),
        ],
        read: |fields, _| read_gguf_windows(fields),
        write: |config, fields| {
            if let Some(theta) = config.rope_local_base_freq.filter(|theta| *theta != config.rope_theta) {
                let expected = format!("{}, as in the other layers", config.rope_theta);
                return Err(("rope_parameters.sliding_attention.rope_theta", theta.to_string(), expected));
            }
            if config.sliding_window.is_none() {
                return Err(("sliding_window", "null".into(), "a number".into()));
            }
            write_gguf_period(config, fields, PERIOD)?;
            (olmo2::GGUF.write)(config, fields)
        },
        ..olmo2::GGUF
    }),
    read: gemma3_text::read_windows,
    write: gemma3_text::windows,
    layer: |config, layer| {
        let Layer { rope, window, .. } = gemma3_text::windowed(config, layer);
        Layer { rope, window, ..(olmo2::FAMILY.layer)(config, layer) }
    },
    ..olmo2::FAMILY
};
