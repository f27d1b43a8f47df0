//! Sampling fields of a request, for rollouts and evaluations.
//!
//! Every setting is sent, even if its value turns the setting off. For a missing field a server would use its own
//! default (llama.cpp: `top_k` 40 and `min_p` 0.05) or the model's `generation_config.json` (vLLM).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

named! {
    /// Server software, which determines the fields of a request beyond the standard ones.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ServerApi {
        // Token ids with `return_token_ids`, or `return_tokens_as_token_ids` before version 0.10.2.
        #[default]
        Vllm = "vllm": "vLLM",
        // Token ids with `return_token_ids`.
        Sglang = "sglang": "SGLang",
        // Each log-probability comes with the token's id.
        #[serde(rename = "llama.cpp")]
        LlamaCpp = "llama.cpp": "llama.cpp's server",
        // Tokens are returned as strings.
        Openai = "openai": "only the standard fields",
    }
}

/// Sampling settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RequestSampling {
    /// Sampling temperature.
    pub temperature: f64,
    /// Top-p (nucleus) sampling, which 1 turns off.
    pub top_p: f64,
    /// Top-k sampling, which 0 turns off.
    pub top_k: usize,
    /// Min-p: minimum probability relative to the most likely token. 0 turns it off.
    pub min_p: f64,
    /// Maximum completion length in tokens.
    pub max_tokens: usize,
}

impl RequestSampling {
    /// Returns bad input if a setting is out of range. `name` gives a field's name in messages. The temperature must be
    /// at least `coldest`. 0 picks the most likely token.
    pub fn check(&self, name: impl Fn(&str) -> String, coldest: f64) -> anyhow::Result<()> {
        let refuse = |field: &str, found: f64, expected: &str| -> anyhow::Result<()> {
            bad_input!("{}: expected {expected}, found {}", name(field), found as f32)
        };
        // Compared in the precision of configurations and of the engine.
        if !(coldest as f32..=1e6).contains(&(self.temperature as f32)) {
            return refuse("temperature", self.temperature, &format!("a number from {coldest} to 1000000"));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refuse("top_p", self.top_p, "a number above 0 and at most 1");
        }
        if !(0.0..1.0).contains(&self.min_p) {
            return refuse("min_p", self.min_p, "a number in [0, 1)");
        }
        if self.max_tokens == 0 {
            return refuse("max_tokens", 0.0, "at least 1");
        }
        Ok(())
    }

    /// Returns bad input if the server doesn't support a setting. `name` is the setting that selects the server's
    /// software, for messages.
    pub fn check_api(&self, name: &str, api: Option<ServerApi>) -> anyhow::Result<()> {
        if api == Some(ServerApi::Openai) && (self.top_k > 0 || self.min_p > 0.0) {
            bad_input!(
                "{name}: openai doesn't support top-k or min-p sampling; choose vllm, sglang or llama.cpp"
            );
        }
        Ok(())
    }

    /// Returns the settings under the names of this struct's fields, for a sampler without defaults.
    pub fn own_fields(&self) -> Map<String, Value> {
        match json!(self) {
            Value::Object(fields) => fields,
            other => unreachable!("a struct is an object, not {other}"),
        }
    }

    /// Returns the fields of a request. If `api` is `None`, the fields of vLLM, SGLang and llama.cpp are included
    /// together, since each ignores unknown fields.
    pub fn fields(&self, api: Option<ServerApi>) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("temperature", json!(self.temperature));
        set("top_p", json!(self.top_p));
        set("max_tokens", json!(self.max_tokens));
        set("presence_penalty", json!(0.0));
        set("frequency_penalty", json!(0.0));
        if api == Some(ServerApi::Openai) {
            return fields;
        }
        // vLLM, SGLang and llama.cpp all accept -1 for no limit, but vLLM and SGLang differ in the meaning of 0.
        set("top_k", if self.top_k == 0 { json!(-1) } else { json!(self.top_k) });
        set("min_p", json!(self.min_p));
        if api != Some(ServerApi::LlamaCpp) {
            set("repetition_penalty", json!(1.0));
        }
        if matches!(api, None | Some(ServerApi::LlamaCpp)) {
            set("repeat_penalty", json!(1.0));
            set("typical_p", json!(1.0));
            set("top_n_sigma", json!(-1.0));
            for name in ["dry_multiplier", "xtc_probability", "dynatemp_range", "mirostat"] {
                set(name, json!(0));
            }
        }
        fields
    }
}

/// Returns advice for a server that rejects a request with this message, or `None` unless the message names a field
/// beyond the standard ones.
pub fn advice(message: &str) -> Option<&'static str> {
    let any = RequestSampling { temperature: 1.0, top_p: 1.0, top_k: 0, min_p: 0.0, max_tokens: 1 };
    let standard = any.fields(Some(ServerApi::Openai));
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let named = message
        .split(|c| !word(c))
        .any(|name| !standard.contains_key(name) && any.fields(None).contains_key(name));
    named.then_some("to send only the standard fields, choose the server API openai")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_needs_a_message_that_names_a_field_beyond_the_standard() {
        for (message, wanted) in [
            ("Unrecognized request arguments supplied: min_p, repetition_penalty", true),
            (r#"[{"type":"extra_forbidden","loc":["body","top_k"]}]"#, true),
            ("This model's maximum context length is 4096 tokens", false),
            ("Unsupported value: 'temperature' does not support 0.5 with this model.", false),
            ("top_p must be positive", false),
            ("", false),
        ] {
            assert_eq!(advice(message).is_some(), wanted, "{message}");
        }
    }

    #[test]
    fn neutral_settings_are_said_to_every_server_that_knows_them() {
        let neutral = RequestSampling { temperature: 1.0, top_p: 1.0, top_k: 0, min_p: 0.0, max_tokens: 9 };
        for api in [None, Some(ServerApi::Vllm), Some(ServerApi::Sglang), Some(ServerApi::LlamaCpp)] {
            let fields = neutral.fields(api);
            assert_eq!((&fields["top_k"], &fields["min_p"]), (&json!(-1), &json!(0.0)), "{api:?}");
            let penalties = [fields.get("repetition_penalty"), fields.get("repeat_penalty")];
            assert!(penalties.iter().flatten().all(|p| **p == json!(1.0)), "{api:?}");
            assert!(penalties.iter().any(Option::is_some), "{api:?}");
        }
        let standard = neutral.fields(Some(ServerApi::Openai));
        assert!(!standard.contains_key("top_k") && standard["max_tokens"] == 9);
    }
}
