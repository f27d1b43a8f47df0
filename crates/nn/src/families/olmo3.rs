//! OLMo 3: OLMo 2 with a sliding window in three of four layers, whose rotary frequencies are not scaled.

use serde_json::json;

use super::{Family, Layer, gemma3_text, olmo2};
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
    read: gemma3_text::read_windows,
    write: gemma3_text::windows,
    layer: |config, layer| {
        let Layer { rope, window, .. } = gemma3_text::windowed(config, layer);
        Layer { rope, window, ..(olmo2::FAMILY.layer)(config, layer) }
    },
    ..olmo2::FAMILY
};
