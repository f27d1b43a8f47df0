//! GGUF's names for the fields of a `config.json`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Gguf;
use super::layout::{LONG, ROPE, SHORT, rope_tensors, stored, stored_shape};
use crate::config::{Architecture, Config};
use crate::error::Error;
use crate::families::{FURTHER_LAYERS, Family, GgufForm};

/// Returns the families that can be read and written, with their forms.
pub(super) fn families() -> impl Iterator<Item = (&'static Family, GgufForm)> {
    Architecture::ALL.into_iter().filter_map(|a| Some((a.family(), a.family().gguf?)))
}

/// Returns the sorted names for a message, each once.
fn listed(names: impl Iterator<Item = &'static str>) -> String {
    let names: BTreeSet<&str> = names.collect();
    Vec::from_iter(names).join(", ")
}

/// Returns the sorted `model_type`s of the families that can be written.
pub(super) fn model_types() -> String {
    listed(families().map(|(family, _)| family.model_type))
}

/// GGUF metadata keys without their architecture prefix, and the corresponding fields of `config.json`.
pub(super) const FIELDS: [(&str, &str); 8] = [
    ("block_count", "num_hidden_layers"),
    ("context_length", "max_position_embeddings"),
    ("embedding_length", "hidden_size"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
];
/// Field of `config.json` for the part of a head that the rotary embedding rotates.
const PARTIAL: &str = "partial_rotary_factor";
/// Number of keys at the start of [`FIELDS`] that every file must have.
const NEEDED: usize = 6;
/// Other keys with the architecture prefix that [`Gguf::config`] reads.
const READ: [&str; 9] = [
    "attention.value_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
];
/// Keys that don't change logits. `vocab_size` is given by the embedding's rows, and the other keys describe how a model was trained or is pooled.
const WITHOUT_EFFECT: [&str; 4] =
    ["pooling_type", "rope.scaling.finetuned", "tensor_data_layout", "vocab_size"];
/// Keys of llama.cpp that change the result, each with the only accepted value, which leaves the result unchanged.
const NEUTRAL: [(&str, &str); 6] = [
    ("attention.causal", "true"),
    ("expert_count", "0"),
    ("expert_used_count", "0"),
    ("rope.scaling.yarn_beta_fast", "32"),
    ("rope.scaling.yarn_beta_slow", "1"),
    ("rope.scaling.yarn_ext_factor", "1"),
];

/// Tokens that end an answer, in addition to the token that the metadata names. As in llama.cpp, they are control tokens even if the file gives them another
/// type.
pub const END_TOKENS: [&str; 9] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<turn|>",
    "<|tool_response>",
];

/// Returns the factor by which YaRN multiplies cosines and sines if nothing else is given.
pub(super) fn yarn_factor(factor: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * factor.ln() + 1.0 }
}

impl Gguf {
    /// Returns the fields of the `config.json` that corresponds to this file.
    /// Returns an error if a key is missing or of another type.
    pub fn config(&self) -> Result<Map<String, Value>, Error> {
        if let Some(parts) = self.value("split.count")?.filter(|parts| *parts != 1) {
            let expected = "a whole model; llama-gguf-split --merge joins several files into one";
            return Err(self.refuse_key("split.count", parts.to_string(), expected));
        }
        let Some(name) = self.text("general.architecture")? else {
            return Err(self.refuse_key("general.architecture", "nothing", "the architecture's name"));
        };
        let (family, form) = self.family(&name)?;
        let key = |key: &str| format!("{name}.{key}");
        let get = |name: &str| self.value(&key(name));
        let mut map = Map::new();
        for (at, (name, field)) in FIELDS.into_iter().enumerate() {
            let value = match get(name)? {
                None if at < NEEDED => return Err(self.refuse_key(&key(name), "nothing", "a number")),
                None if field == "num_key_value_heads" => map.get("num_attention_heads").cloned(),
                // A list is read as one number if all layers have the same.
                Some(Value::Array(layers)) => match layers.first() {
                    Some(first) if layers.iter().all(|layer| layer == first) => Some(first.clone()),
                    _ => Some(Value::Array(layers)),
                },
                value => value,
            };
            map.extend(value.map(|value| (field.into(), value)));
        }
        if let [Some(hidden), Some(heads @ 1..)] =
            ["hidden_size", "num_attention_heads"].map(|field| map[field].as_u64())
            && hidden.is_multiple_of(heads)
        {
            map.entry("head_dim").or_insert(json!(hidden / heads));
        }
        let head = map.get("head_dim").cloned().unwrap_or_default();
        let partial = (family.defaults)().get(PARTIAL).is_some();
        let own = |name: &str| form.settings.iter().any(|(key, ..)| *key == name);
        for name in ["attention.value_length", "rope.dimension_count"] {
            let Some(size) = get(name)?.filter(|size| *size != head && !own(name)) else { continue };
            match (size.as_u64(), head.as_u64()) {
                (Some(size), Some(head)) if partial && name == "rope.dimension_count" && size < head => {
                    map.insert(PARTIAL.into(), json!(size as f64 / head as f64));
                }
                _ => {
                    let expected = format!("{head}, the size of a head");
                    return Err(self.refuse_key(&key(name), size.to_string(), expected));
                }
            }
        }
        map.insert("rope_theta".into(), get("rope.freq_base")?.unwrap_or(json!(10000.0)));
        // In place of the family's default.
        map.insert("rope_parameters".into(), json!({}));
        for (setting, field, default) in form.settings {
            let value = match (get(setting)?, default) {
                (Some(value), _) => value,
                (None, Some(default)) => json!(default),
                (None, None) => return Err(self.refuse_key(&key(setting), "nothing", "a number")),
            };
            // config.json has whole numbers without a decimal point.
            let whole = value.as_f64().filter(|x| x.fract() == 0.0 && x.abs() < 1e9);
            map.insert((*field).into(), whole.map_or(value, |x| json!(x as i64)));
        }
        // Layers that predict further tokens don't change the logits, and are left out.
        if let Some(further) = map.remove(FURTHER_LAYERS).filter(|further| *further != 0) {
            let predicts = |layer| self.tensors.contains_key(&format!("blk.{layer}.nextn.eh_proj.weight"));
            let all = map["num_hidden_layers"].as_u64().unwrap_or(0);
            let first = further.as_u64().and_then(|further| all.checked_sub(further));
            let Some(first) = first.filter(|first| *first > 0 && (*first..all).all(predicts)) else {
                let expected = "the number of last layers with a tensor nextn.eh_proj";
                return Err(self.refuse_key(&key("nextn_predict_layers"), further.to_string(), expected));
            };
            map.insert("num_hidden_layers".into(), json!(first));
        }
        let scaling = self.scaling(&name)?;
        map.extend(scaling.map(|scaling| ("rope_scaling".into(), scaling)));
        map.insert("model_type".into(), json!(family.model_type));
        let Some(embedding) = self.tensors.get("token_embd.weight") else {
            return Err(self.refuse(
                "model.embed_tokens.weight",
                "no such tensor".into(),
                "token_embd.weight in this file".into(),
            ));
        };
        map.insert("vocab_size".into(), json!(embedding.shape[0]));
        map.insert("tie_word_embeddings".into(), json!(!self.tensors.contains_key("output.weight")));
        (form.read)(&mut map, &|name| self.tensors.contains_key(name));
        for (name, field) in FIELDS {
            if let Some(list @ Value::Array(_)) = map.get(field) {
                return Err(self.refuse_key(&key(name), list.to_string(), "the same number in every layer"));
            }
        }
        for (name, field) in [("bos", "bos_token_id"), ("padding", "pad_token_id")] {
            let id = self.value(&format!("tokenizer.ggml.{name}_token_id"))?;
            map.insert(field.into(), id.unwrap_or_default());
        }
        map.insert("eos_token_id".into(), json!(self.end_tokens()?));
        Ok(map)
    }

    /// Returns the scaling of the rotary frequencies as `rope_scaling` of a `config.json`, or `None` if they aren't scaled.
    /// Returns an error for a scaling that llama.cpp computes differently or that isn't supported.
    fn scaling(&self, architecture: &str) -> Result<Option<Value>, Error> {
        let key = |key: &str| format!("{architecture}.rope.scaling.{key}");
        let number = |name: &str| -> Result<Option<f64>, Error> {
            Ok(self.value(&key(name))?.and_then(|value| value.as_f64()))
        };
        let context = self.value(&key("original_context_length"))?;
        let attention = number("attn_factor")?.unwrap_or(1.0);
        // llama.cpp ignores this factor, which transformers uses.
        let yarn_attention = |expected: f64| match number("yarn_attn_factor")? {
            Some(found) if (found - expected).abs() > 1e-4 => {
                Err(self.refuse_key(&key("yarn_attn_factor"), found.to_string(), expected.to_string()))
            }
            _ => Ok(()),
        };
        let neutral = |scaling| {
            yarn_attention(1.0)?;
            if attention == 1.0 {
                return Ok(scaling);
            }
            Err(self.refuse_key(&key("attn_factor"), attention.to_string(), "1"))
        };
        // As in llama.cpp, a factor without a type means linear scaling, and linear scaling without a factor means unscaled frequencies.
        let kind = self.value(&key("type"))?.unwrap_or(json!("linear"));
        let linear =
            self.value(&format!("{architecture}.rope.scale_linear"))?.and_then(|value| value.as_f64());
        let scale = number("factor")?.or(linear).filter(|factor| ![0.0, 1.0].contains(factor));
        let several = |tensor| {
            let found = "another scaling of the rotary embedding";
            self.refuse_key(tensor, found, "one scaling")
        };
        if let [Some(short), Some(long)] = [self.factors(SHORT)?, self.factors(LONG)?] {
            if scale.is_some() {
                return Err(several(SHORT));
            }
            yarn_attention(1.0)?;
            return Ok(Some(json!({
                "rope_type": "longrope", "short_factor": short, "long_factor": long,
                "original_max_position_embeddings": context, "attention_factor": attention,
            })));
        }
        let scaled = match (kind.as_str(), scale) {
            (Some("none"), _) | (Some("linear" | "yarn"), None) => neutral(None)?,
            (Some("linear"), Some(factor)) => {
                neutral(Some(json!({"rope_type": "linear", "factor": factor})))?
            }
            (Some("yarn"), Some(factor)) => {
                let all = number("yarn_log_multiplier")?.filter(|all| *all != 0.0);
                let usual = yarn_factor(factor);
                yarn_attention(usual)?;
                let mut scaling = json!({
                    "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": context,
                    "beta_fast": number("yarn_beta_fast")?, "beta_slow": number("yarn_beta_slow")?,
                });
                if let Some(all) = all {
                    scaling["mscale"] = json!(1.0);
                    scaling["mscale_all_dim"] = json!(all);
                }
                if attention != 1.0 {
                    let divided = all.map_or(1.0, |all| 1.0 + (usual - 1.0) * all);
                    scaling["attention_factor"] = json!(usual / divided * attention);
                }
                if let Some(beta) = self.value(&format!("{architecture}.attention.temperature_scale"))? {
                    scaling["llama_4_scaling_beta"] = beta;
                }
                Some(scaling)
            }
            _ => {
                return Err(self.refuse_key(&key("type"), kind.to_string(), "none, linear or yarn"));
            }
        };
        let Some(factors) = self.factors(ROPE)? else { return Ok(scaled) };
        if scaled.is_some() {
            return Err(several(ROPE));
        }
        // Pairs that don't rotate have a divisor near the largest f32.
        let rotating = factors.iter().filter(|factor| **factor < 1e20).count();
        if rotating < factors.len() {
            return Ok(Some(json!({
                "rope_type": "proportional", "factor": factors[0],
                "partial_rotary_factor": rotating as f64 / factors.len() as f64,
            })));
        }
        Ok(Some(json!({
            "rope_type": "llama3", "factor": factors.iter().fold(1f64, |largest, &factor| largest.max(factor)),
            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": context.unwrap_or(json!(8192)),
        })))
    }

    /// Returns the family of the models with this `general.architecture`.
    /// Returns an error if the architecture is unknown, or if every family of the architecture lacks a key of the file.
    fn family(&self, architecture: &str) -> Result<(&'static Family, GgufForm), Error> {
        let mut refused = None;
        for (family, form) in families().filter(|(_, form)| form.architecture == architecture) {
            match self.check_keys(&form) {
                Ok(()) => return Ok((family, form)),
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| {
            let expected = listed(families().map(|(_, form)| form.architecture));
            self.refuse_key("general.architecture", architecture, expected)
        }))
    }

    /// Returns an error if a key of the architecture isn't known, or is known and would have an effect that this engine doesn't compute.
    fn check_keys(&self, form: &GgufForm) -> Result<(), Error> {
        let prefix = format!("{}.", form.architecture);
        let is_read = |name: &str| {
            FIELDS.iter().any(|(key, _)| *key == name) || form.settings.iter().any(|(key, ..)| *key == name)
        };
        let is_known = |name: &str| READ.contains(&name) || WITHOUT_EFFECT.contains(&name);
        for key in self.metadata.keys() {
            let Some(name) = key.strip_prefix(&prefix) else { continue };
            let only = form.only.iter().chain(&NEUTRAL).find(|(key, _)| *key == name);
            if is_read(name) || only.is_none() && is_known(name) {
                continue;
            }
            let value = self.value(key)?.unwrap_or_default();
            let found = value.as_f64().map_or(value.to_string(), |number| number.to_string());
            match only {
                Some((_, only)) if found == *only => {}
                Some((_, only)) => return Err(self.refuse_key(key, found, *only)),
                None => {
                    return Err(self.refuse_key(key, found, "no such key (it isn't supported)"));
                }
            }
        }
        Ok(())
    }

    /// Returns the tokens that end an answer. The metadata's tokens come first.
    fn end_tokens(&self) -> Result<Vec<u64>, Error> {
        let mut ends = Vec::new();
        for name in ["eos", "eot", "eom"] {
            let id = self.value(&format!("tokenizer.ggml.{name}_token_id"))?;
            ends.extend(id.and_then(|id| id.as_u64()));
        }
        let tokens = self.value("tokenizer.ggml.tokens")?.unwrap_or_default();
        let tokens = tokens.as_array().into_iter().flatten().enumerate();
        let is_end = |token: &Value| token.as_str().is_some_and(|text| END_TOKENS.contains(&text));
        ends.extend(tokens.filter(|(_, token)| is_end(token)).map(|(id, _)| id as u64));
        let mut seen = BTreeSet::new();
        ends.retain(|id| seen.insert(*id));
        Ok(ends)
    }

    /// Returns an error if a tensor is missing, has another shape, or is unknown to a model of this configuration.
    pub(in crate::weights) fn check(&self, config: &Config) -> Result<(), Error> {
        let mut names = BTreeSet::new();
        for (name, shape) in config.tensors() {
            let (actual, shape) = (&self.tensor(&name, config)?.shape, stored_shape(&shape));
            if *actual != shape {
                return Err(self.refuse(&name, format!("shape {actual:?}"), format!("shape {shape:?}")));
            }
            names.extend(stored(&name, config));
        }
        let is_close = |(a, b): (&f64, &f32)| (a - f64::from(*b)).abs() <= 1e-4 * f64::from(b.abs());
        for (name, expected) in rope_tensors(config) {
            let factors = self.factors(name)?.unwrap_or_default();
            if !(factors.len() == expected.len() && factors.iter().zip(&expected).all(is_close)) {
                let expected = format!("those of {:?}", config.rope_scaling);
                return Err(self.refuse(name, format!("the factors {factors:?}"), expected));
            }
            names.insert(name.into());
        }
        let blocks =
            config.architecture.family().gguf.map(|form| format!("{}.block_count", form.architecture));
        let blocks = self.value(&blocks.unwrap_or_default())?.and_then(|blocks| blocks.as_u64()).unwrap_or(0);
        let is_further = |name: &str| {
            let layer = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')?.0.parse().ok());
            layer.is_some_and(|layer: u64| (config.num_hidden_layers as u64..blocks).contains(&layer))
        };
        if let Some(other) = self.tensors.keys().find(|name| !names.contains(*name) && !is_further(name)) {
            let expected = "only the tensors of its architecture".into();
            return Err(self.refuse(
                other,
                "a tensor that the metadata does not account for".into(),
                expected,
            ));
        }
        Ok(())
    }

    /// Returns the divisors of the rotary frequencies in a tensor, or `None` if the file doesn't have it.
    fn factors(&self, name: &str) -> Result<Option<Vec<f64>>, Error> {
        let Some(tensor) = self.tensors.get(name) else { return Ok(None) };
        let mut factors = vec![0.0; tensor.shape.iter().product()];
        tensor.kind.decode(&self.map[tensor.range.0..tensor.range.1], &mut factors);
        if let Some(other) = factors.iter().find(|factor| !factor.is_finite()) {
            return Err(self.refuse(name, other.to_string(), "finite values".into()));
        }
        // The shortest decimals, as for settings.
        Ok(Some(factors.iter().map(|factor| factor.to_string().parse().expect("a number")).collect()))
    }
}
