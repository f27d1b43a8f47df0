//! `config.json` in the formats of transformers 4 (`rope_theta`, `rope_scaling`, `torch_dtype`) and 5 (`rope_parameters`, `dtype`, and always
//! `head_dim`). The family determines the defaults. A field that would change the result in a way that isn't supported is an error. Other
//! fields that nothing reads are ignored, as in transformers; a test walks all keys of transformers' classes and says why each is ignored.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::fields::{Fields, object, one_or_many, read_object};
use super::{Architecture, Config, RopeScaling};
use crate::dtype::Dtype;
use crate::error::Error;

/// Fields of every family that need processing before they become fields of [`Config`].
#[derive(Deserialize)]
struct File {
    hidden_size: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: usize,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    /// Context length before scaling. It takes precedence over the scaling's field of the same name, as in transformers.
    original_max_position_embeddings: Option<usize>,
}

/// `rope_scaling` (transformers 4) or `rope_parameters` (transformers 5).
#[derive(Deserialize)]
struct Rope {
    rope_type: Option<String>,
    /// Name of `rope_type` before transformers 4.43.
    r#type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
    short_factor: Option<Vec<f64>>,
    long_factor: Option<Vec<f64>>,
    attention_factor: Option<f64>,
    llama_4_scaling_beta: Option<f64>,
}

impl Config {
    /// Reads and validates a `config.json`.
    pub fn read(path: &Path) -> Result<Config, Error> {
        let map = read_object(path)?;
        Config::from_json(&map, &path.display().to_string())
    }

    /// Parses and validates the object of a `config.json`. `place` is the file's name for messages.
    pub fn from_json(map: &Map<String, Value>, place: &str) -> Result<Config, Error> {
        let fields = Fields { place, map };
        if let Some(text) = text_part(&fields)? {
            return Config::from_json(&text, &format!("{place}: text_config"));
        }
        let architecture = architecture(&fields)?;
        let family = architecture.family();
        let mut all = object((family.defaults)());
        let partial = all.contains_key(PARTIAL);
        let mut supported = object(neutral());
        supported.retain(|field, _| !all.contains_key(field));
        supported.extend(object((family.supported)()));
        fields.only(&supported)?;
        refuse_quantized(&fields)?;
        // For these fields null is a value ("none"); for others it means the default.
        let none = ["num_key_value_heads", "bos_token_id", "eos_token_id", "pad_token_id", "sliding_window"];
        let set = map.iter().filter(|(field, value)| !value.is_null() || none.contains(&field.as_str()));
        all.extend(set.map(|(field, value)| (field.clone(), value.clone())));
        let fields = Fields { place, map: &all };
        let file: File = fields.read()?;
        let (hidden_size, heads) = (file.hidden_size, file.num_attention_heads);
        if file.head_dim.is_none() && heads > 0 && !hidden_size.is_multiple_of(heads) {
            let expected = format!("a divisor of hidden_size, {hidden_size}, or an explicit head_dim");
            return fields.refuse("num_attention_heads", expected);
        }
        let head_dim = file.head_dim.or(hidden_size.checked_div(heads)).unwrap_or(0);
        let (rope_theta, rope_scaling, rotated) = rope(&fields, &file, partial)?;
        let resolved = json!({
            "num_key_value_heads": file.num_key_value_heads.unwrap_or(heads), "head_dim": head_dim,
            "rope_theta": rope_theta.unwrap_or(family.default_theta),
        });
        all.extend(object(resolved));
        let fields = Fields { place, map: &all };
        let mut config: Config = fields.read()?;
        (config.architecture, config.rope_scaling) = (architecture, rope_scaling);
        config.partial_rotary_factor = rotated.filter(|_| partial);
        // The sizes are checked first, because the family may read one setting per layer.
        config.validate_sizes(place)?;
        (family.read)(&fields, &mut config)?;
        config.validate_at(place)?;
        Ok(config)
    }

    /// Writes a `config.json` that transformers 4 and 5, vLLM and SGLang can read: it contains the fields of both formats, with the same values.
    /// `dtype` is the number type of the stored weights.
    pub fn to_json(&self, dtype: Dtype) -> Map<String, Value> {
        let family = self.architecture.family();
        let scaling = (self.rope_scaling != RopeScaling::Default)
            .then(|| serde_json::to_value(&self.rope_scaling).expect("numbers"));
        let mut parameters = scaling.clone().unwrap_or_else(|| json!({"rope_type": "default"}));
        parameters["rope_theta"] = json!(self.rope_theta);
        let rotated = self.partial_rotary_factor.map(|fraction| (PARTIAL.to_string(), json!(fraction)));
        parameters.as_object_mut().expect("an object").extend(rotated.clone());
        let mut map = object(json!({
            "architectures": [family.class_name],
            "model_type": family.model_type,
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_position_embeddings,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "rope_scaling": scaling,
            "rope_parameters": parameters,
            "tie_word_embeddings": self.tie_word_embeddings,
            "attention_dropout": 0.0,
        }));
        map.extend(rotated);
        map.extend(object((family.supported)()));
        map.extend(object((family.write)(self)));
        map.extend(object(json!({
            "initializer_range": 0.02,
            "use_cache": true,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": one_or_many(&self.eos_token_id),
            "pad_token_id": self.pad_token_id,
            "torch_dtype": dtype.config_name(),
            "dtype": dtype.config_name(),
        })));
        map
    }
}

/// Field with the fraction of a head that the rotary embedding rotates. Only families that have a default for it read it.
pub(super) const PARTIAL: &str = "partial_rotary_factor";

/// Returns the settings that change the result but not the tensors, each with the value that leaves the result unchanged. Any other value is an error
/// if the family doesn't read the setting: transformers would ignore it, but the file describes a different model.
fn neutral() -> Value {
    json!({
        "hidden_act": "silu", "mlp_bias": false, "is_causal": true, "use_bidirectional_attention": false,
        // Settings of Gemma and Qwen3.5, of Granite, and of MiniCPM.
        "attn_logit_softcapping": null, "final_logit_softcapping": null, "query_pre_attn_scalar": null, "attn_output_gate": false,
        "attention_multiplier": null, "embedding_multiplier": 1, "logits_scaling": 1, "residual_multiplier": 1,
        "scale_emb": 1, "scale_depth": null, "dim_model_base": null,
        PARTIAL: 1, "no_rope_layers": null, "layer_rope_theta": null, "rope_interleave": false, "rope_interleaved": false,
        "per_layer_config": null,
    })
}

/// Returns the settings of the text part if the file describes a multimodal model, otherwise `None`.
fn text_part(fields: &Fields<'_>) -> Result<Option<Map<String, Value>>, Error> {
    let Some(name) = fields.get("model_type").and_then(Value::as_str) else { return Ok(None) };
    let mut families = Architecture::ALL.into_iter().map(Architecture::family);
    let Some(family) = families.find(|family| family.whole == Some(name)) else { return Ok(None) };
    let Some(Value::Object(text)) = fields.get("text_config") else {
        return fields.refuse("text_config", "the text model's settings");
    };
    let mut text = text.clone();
    text.entry("model_type").or_insert_with(|| family.model_type.into());
    // transformers takes these from the multimodal model.
    for field in ["tie_word_embeddings", "quantization_config", "compression_config"] {
        text.extend(fields.get(field).map(|value| (field.to_string(), value.clone())));
    }
    for field in ["bos_token_id", "eos_token_id", "pad_token_id"] {
        let absent = text.get(field).is_none_or(Value::is_null);
        text.extend(fields.get(field).filter(|_| absent).map(|value| (field.to_string(), value.clone())));
    }
    Ok(Some(text))
}

/// Determines the family from `architectures`, or from `model_type` if `architectures` is absent.
fn architecture(fields: &Fields<'_>) -> Result<Architecture, Error> {
    let all = Architecture::ALL.into_iter();
    let choices = || {
        let names: Vec<_> = Architecture::ALL.iter().map(|a| a.class_name()).collect();
        format!("one of {}", names.join(", "))
    };
    let by_type = match fields.get("model_type") {
        Some(name) => match all.clone().find(|a| name == a.model_type()) {
            Some(family) => Some(family),
            None => {
                let names: Vec<_> = all.map(Architecture::model_type).collect();
                return fields.refuse("model_type", format!("one of {}", names.join(", ")));
            }
        },
        None => None,
    };
    let Some(list) = fields.get("architectures") else {
        return by_type.map_or_else(|| fields.refuse("architectures", choices()), Ok);
    };
    let by_class = match list.as_array().map(Vec::as_slice) {
        Some([one]) => Architecture::ALL.into_iter().find(|a| one == a.class_name()),
        _ => None,
    };
    match (by_class, by_type) {
        (None, _) => fields.refuse("architectures", choices()),
        (Some(class), Some(model)) if class != model => {
            fields.refuse("model_type", format!("{}, as architectures says", class.model_type()))
        }
        (Some(class), _) => Ok(class),
    }
}

/// Returns an error for quantized weights other than bitsandbytes' NF4.
fn refuse_quantized(fields: &Fields<'_>) -> Result<(), Error> {
    if fields.get("compression_config").is_some() {
        return fields.refuse("compression_config", "nothing; compressed weights are not supported");
    }
    // This checks only the fields that determine the format. The tensors are checked when they are read.
    let four_bits = |field: &Value| {
        let is = |name: &str, value: Value| field.get(name) == Some(&value);
        is("quant_method", json!("bitsandbytes"))
            && is("load_in_4bit", json!(true))
            && is("bnb_4bit_quant_type", json!("nf4"))
            && is("bnb_4bit_quant_storage", json!("uint8"))
    };
    if fields.get("quantization_config").is_some_and(|field| !four_bits(field)) {
        let expected = "nothing, or bitsandbytes with load_in_4bit, nf4 and storage in uint8; other quantized weights are not supported";
        return fields.refuse("quantization_config", expected);
    }
    Ok(())
}

/// Returns base and scaling of the rotary frequencies, and the fraction of a head that they rotate. A file may have both forms of [`Rope`].
fn rope(
    fields: &Fields<'_>,
    file: &File,
    partial: bool,
) -> Result<(Option<f64>, RopeScaling, Option<f64>), Error> {
    let (mut theta, mut scaling, mut rotated) = (file.rope_theta, None, None);
    for name in ["rope_parameters", "rope_scaling"] {
        let map = match fields.get(name) {
            None => continue,
            Some(Value::Object(map)) if map.is_empty() => continue,
            // With one object per layer type, take full attention here; the family reads the other.
            Some(Value::Object(map)) => match map.get("full_attention") {
                Some(Value::Object(map)) => map,
                _ => map,
            },
            Some(_) => return fields.refuse(name, "an object"),
        };
        let place = format!("{}: {name}", fields.place);
        let inner = Fields { place: &place, map };
        let rope: Rope = inner.read()?;
        // Proportional frequencies have a fraction of their own.
        let proportional = rope.rope_type.as_deref() == Some("proportional");
        if partial && proportional {
            return inner
                .refuse("rope_type", "another type; this family has a separate partial_rotary_factor");
        }
        if !(partial || proportional) {
            inner.only(&object(json!({PARTIAL: 1})))?;
        }
        if let (Some(other), Some(fraction)) = (rotated, rope.partial_rotary_factor)
            && other != fraction
        {
            return inner.refuse(PARTIAL, format!("{other}, as elsewhere in the file"));
        }
        rotated = rotated.or(rope.partial_rotary_factor);
        if let (Some(outer), Some(inner_theta)) = (theta, rope.rope_theta)
            && outer != inner_theta
        {
            return inner.refuse("rope_theta", format!("{outer}, as elsewhere in the file"));
        }
        theta = theta.or(rope.rope_theta);
        let this = scaling_of(&inner, rope, file)?;
        if scaling.is_some_and(|other| other != this) {
            return inner.refuse("rope_type", "the scaling that rope_parameters names");
        }
        scaling = Some(this);
    }
    Ok((theta, scaling.unwrap_or(RopeScaling::Default), rotated.or(file.partial_rotary_factor)))
}

fn scaling_of(inner: &Fields<'_>, rope: Rope, file: &File) -> Result<RopeScaling, Error> {
    let require = |field: &str, value: Option<f64>| match value {
        Some(x) => Ok(x),
        None => inner.refuse(field, "a number"),
    };
    let original = file.original_max_position_embeddings.or(rope.original_max_position_embeddings);
    let factor = || require("factor", rope.factor);
    let name = if rope.rope_type.is_some() { "rope_type" } else { "type" };
    let kind = rope.rope_type.as_deref().or(rope.r#type.as_deref());
    if kind != Some("yarn") {
        inner.only(&object(json!({"llama_4_scaling_beta": 0})))?;
    }
    match kind {
        None | Some("default") => Ok(RopeScaling::Default),
        Some("linear") => Ok(RopeScaling::Linear { factor: factor()? }),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: factor()?,
            low_freq_factor: require("low_freq_factor", rope.low_freq_factor)?,
            high_freq_factor: require("high_freq_factor", rope.high_freq_factor)?,
            original_max_position_embeddings: original.unwrap_or(file.max_position_embeddings),
        }),
        Some("yarn") => {
            let factor = factor()?;
            // Inferred as in transformers; it sharpens the softmax of longer contexts.
            let sharpen = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
            let inferred = match (rope.mscale, rope.mscale_all_dim) {
                (Some(mscale), Some(all)) if mscale != 0.0 && all != 0.0 => sharpen(mscale) / sharpen(all),
                _ => sharpen(1.0),
            };
            Ok(RopeScaling::Yarn {
                factor,
                original_max_position_embeddings: original.unwrap_or(file.max_position_embeddings),
                beta_fast: rope.beta_fast.unwrap_or(32.0),
                beta_slow: rope.beta_slow.unwrap_or(1.0),
                truncate: rope.truncate.unwrap_or(true),
                attention_factor: rope.attention_factor.unwrap_or(inferred),
                llama_4_scaling_beta: rope.llama_4_scaling_beta,
            })
        }
        // Microsoft's first checkpoints have the older name.
        Some("longrope" | "su") => {
            let context = original.unwrap_or(file.max_position_embeddings);
            let factor = rope.factor.unwrap_or(file.max_position_embeddings as f64 / context as f64);
            let inferred =
                if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (context as f64).ln()).sqrt() };
            let list = |field: &str, value: Option<Vec<f64>>| match value {
                Some(list) => Ok(list),
                None => inner.refuse(field, "a list of numbers"),
            };
            Ok(RopeScaling::LongRope {
                short_factor: list("short_factor", rope.short_factor)?,
                long_factor: list("long_factor", rope.long_factor)?,
                original_max_position_embeddings: context,
                attention_factor: rope.attention_factor.unwrap_or(inferred),
            })
        }
        Some("proportional") => Ok(RopeScaling::Proportional {
            factor: rope.factor.unwrap_or(1.0),
            partial_rotary_factor: rope.partial_rotary_factor.unwrap_or(1.0),
        }),
        Some(_) => inner.refuse(
            name,
            "default, linear, llama3, yarn, longrope or proportional (others are not supported)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: Value) -> Result<Config, Error> {
        Config::from_json(value.as_object().unwrap(), "config.json")
    }

    /// Returns the published configuration of Qwen2.5-7B-Instruct, in transformers 4's format.
    fn qwen2_5_7b() -> Value {
        json!({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
            "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
            "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28,
            "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
            "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
            "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.43.1",
            "use_cache": true, "use_sliding_window": false, "vocab_size": 152064})
    }

    /// Returns the published configuration of Llama-3.2-3B-Instruct, in transformers 4's format.
    fn llama_3_2_3b() -> Value {
        json!({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
            "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 128,
            "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192,
            "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
            "num_attention_heads": 24, "num_hidden_layers": 28, "num_key_value_heads": 8, "pretraining_tp": 1,
            "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
            "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
            "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "vocab_size": 128256})
    }

    fn with(mut value: Value, field: &str, to: Value) -> Value {
        value[field] = to;
        value
    }

    #[test]
    fn published_qwen2_config_of_transformers_4_is_read() {
        let config = parse(qwen2_5_7b()).unwrap();
        assert_eq!(config.head_dim, 128);
        assert!(config.layer(0).qkv_bias && config.layer(0).qk_norm.is_none() && !config.tie_word_embeddings);
        assert_eq!(config.rope_theta, 1e6);
        assert_eq!(config.eos_token_id, [151_645]);
        assert_eq!(config.parameters(), 7_615_616_512);
    }

    #[test]
    fn published_llama_config_keeps_its_scaling_and_eos_list() {
        let config = parse(llama_3_2_3b()).unwrap();
        let expected = RopeScaling::Llama3 {
            factor: 32.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192,
        };
        assert_eq!(config.rope_scaling, expected);
        // The outer field takes precedence, as in transformers.
        let outer = parse(with(llama_3_2_3b(), "original_max_position_embeddings", json!(4096))).unwrap();
        let RopeScaling::Llama3 { original_max_position_embeddings, .. } = outer.rope_scaling else {
            panic!()
        };
        assert_eq!(original_max_position_embeddings, 4096);
        assert_eq!(config.eos_token_id, [128_001, 128_008, 128_009]);
        assert_eq!(config.parameters(), 3_212_749_824);
    }

    #[test]
    fn both_generations_of_one_configuration_read_the_same() {
        for value in [qwen2_5_7b(), llama_3_2_3b()] {
            let old = parse(value.clone()).unwrap();
            let mut value = value.as_object().unwrap().clone();
            let theta = value.remove("rope_theta").unwrap();
            let mut rope = match value.remove("rope_scaling") {
                Some(scaling) => scaling,
                None => json!({"rope_type": "default"}),
            };
            rope["rope_theta"] = theta;
            value.insert("rope_parameters".into(), rope);
            let dtype = value.remove("torch_dtype").unwrap();
            value.insert("dtype".into(), dtype);
            value.insert("head_dim".into(), json!(old.head_dim));
            assert_eq!(parse(Value::Object(value)).unwrap(), old);
        }
    }

    #[test]
    fn heads_that_a_file_omits_follow_from_the_others() {
        let qwen2 = parse(json!({"model_type": "qwen2", "num_attention_heads": 64})).unwrap();
        assert_eq!((qwen2.num_key_value_heads, qwen2.head_dim), (32, 64));
        let all_heads =
            json!({"model_type": "qwen2", "num_attention_heads": 64, "num_key_value_heads": null});
        assert_eq!(parse(all_heads).unwrap().num_key_value_heads, 64);
    }

    #[test]
    fn olmo_3_without_scaling_has_one_form_for_all_layers() {
        let rope = |parameters: Value| parse(json!({"model_type": "olmo3", "rope_parameters": parameters}));
        let flat = json!({"rope_type": "default", "rope_theta": 1e4});
        let both = json!({"full_attention": flat, "sliding_attention": flat});
        assert_eq!(rope(flat).unwrap(), rope(both).unwrap());
        let yarn = rope(json!({"rope_type": "yarn", "factor": 8.0})).unwrap_err().to_string();
        assert!(yarn.contains("full_attention"), "{yarn}");
    }

    #[test]
    fn a_setting_of_another_family_is_refused_unless_it_has_no_effect() {
        for (key, value) in object(neutral()) {
            for family in Architecture::ALL.map(Architecture::family) {
                let reads = object((family.defaults)()).contains_key(&key)
                    || object((family.supported)()).contains_key(&key);
                if reads {
                    continue;
                }
                let base = json!({"model_type": family.model_type});
                let expected = parse(base.clone()).unwrap();
                assert_eq!(parse(with(base.clone(), &key, value.clone())).unwrap(), expected, "{key}");
                let message = parse(with(base, &key, json!(3))).unwrap_err().to_string();
                assert!(message.contains(&key), "{message:?} lacks {key:?}");
            }
        }
    }

    #[test]
    fn unsupported_settings_are_refused_with_field_and_value() {
        // Base configuration, fields to set, and what the message must contain.
        let cases = json!([
            ["qwen2", {"architectures": ["Gemma2ForCausalLM"]}, "architectures, Gemma2, Qwen3ForCausalLM"],
            ["qwen2", {"model_type": "gemma2"}, "model_type, gemma2, llama"],
            ["qwen2", {"model_type": "llama"}, "model_type, \"llama\", qwen2"],
            ["qwen2", {"hidden_act": "gelu"}, "hidden_act, gelu, silu"],
            ["qwen2", {"use_sliding_window": true, "max_window_layers": 21}, "use_sliding_window, true, 21 to 27"],
            ["llama", {"attention_bias": true}, "attention_bias, true, false"],
            ["qwen3", {"attention_bias": true}, "attention_bias, true, false"],
            ["llama", {"mlp_bias": true}, "mlp_bias, true, false"],
            ["qwen2", {"is_causal": false}, "is_causal, false, true"],
            ["qwen2", {"rope_scaling": {"type": "longrope", "factor": 4.0}}, "rope_scaling, short_factor, nothing, list"],
            ["qwen2", {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "rope_type, dynamic"],
            ["qwen2", {"rope_scaling": {"rope_type": "linear"}}, "factor, nothing, a number"],
            ["qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, "rope_theta, 500000, 1000000"],
            ["qwen2", {"quantization_config": {"bits": 4}}, "quantization_config, bits, nf4"],
            ["qwen2", {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": true, "load_in_4bit": false}},
                "quantization_config, load_in_8bit"],
            ["qwen2", {"layer_types": ["sliding_attention"]}, "layer_types, sliding_attention, full_attention"],
            ["qwen2", {"layer_types": ["full_attention"]}, "layer_types, 1 entries, 28"],
            ["qwen2", {"partial_rotary_factor": 0.5}, "partial_rotary_factor, 0.5"],
            ["qwen2", {"hidden_size": "big"}, "hidden_size, big, whole number"],
            ["qwen2", {"num_attention_heads": 27}, "num_attention_heads, 27, 3584"],
            ["qwen2", {"eos_token_id": [1, "x"]}, "eos_token_id, list"],
            ["gemma3_text", {"final_logit_softcapping": 30.0}, "final_logit_softcapping, 30"],
            ["smollm3", {"num_hidden_layers": 1, "layer_types": ["sliding_attention"]}, "layer_types, sliding_attention, full_attention"],
            ["gemma3_text", {"hidden_activation": "gelu"}, "hidden_activation, gelu_pytorch_tanh"],
            ["gemma3_text", {"rope_parameters": {"sliding_attention": {"rope_type": "yarn"}}}, "rope_type, yarn, default"],
            ["gemma3_text", {"layer_types": ["full_attention"]}, "layer_types, 1 entries, 26"],
            ["gemma3_text", {"layer_types": ["chunked_attention"]}, "layer_types, chunked_attention, sliding_attention"],
            ["gemma3_text", {"layer_types": ["linear_attention"]}, "layer_types, linear_attention, sliding_attention"],
            ["qwen3_5_text", {"layer_types": ["sliding_attention"]}, "layer_types, sliding_attention, linear_attention"],
            ["qwen3_5_text", {"layer_types": ["full_attention"]}, "layer_types, 1 entries, 32"],
            ["mistral", {"layer_types": ["full_attention"]}, "layer_types, full_attention, sliding_attention"],
            ["mistral", {"layer_types": ["sliding_attention"], "sliding_window": null}, "layer_types, sliding_attention, full_attention"],
            ["llama", {"layer_types": ["sliding_attention"]}, "layer_types, sliding_attention, full_attention"],
            ["llama", {"use_sliding_window": true, "max_window_layers": 0, "sliding_window": 7}, "use_sliding_window, 0 to 27"],
            ["gemma3_text", {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "rope_parameters, full_attention"],
            ["gemma3_text", {"rope_parameters": {"sliding_attention": {"type": "linear"}}}, "type, linear, default"],
            ["ministral3", {"rope_parameters": {"llama_4_scaling_beta": 0.1}}, "llama_4_scaling_beta, 0.1"],
            ["qwen3_5_text", {"full_attention_interval": 0}, "full_attention_interval, 0"],
            ["qwen3_5_text", {"attn_output_gate": false}, "attn_output_gate, false, true"],
            ["qwen3_5_text", {"hidden_act": "gelu"}, "hidden_act, gelu, silu"],
            ["qwen3_5_text", {"linear_num_value_heads": 24}, "linear_num_value_heads, 24, 16"],
            ["qwen3_5_text", {"linear_conv_kernel_dim": 0}, "linear_conv_kernel_dim, 0"],
            ["qwen3_5_text", {"rope_parameters": {"partial_rotary_factor": 0.013}}, "partial_rotary_factor, 0.013, 256"],
            ["qwen3_5_text", {"model_type": "qwen3_5"}, "text_config, nothing"],
            ["qwen3_5_text", {"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text", "head_dim": 3}}, "text_config, head_dim, 3"],
            ["qwen3_5_text", {"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_moe_text"}}, "model_type, qwen3_5_moe_text, qwen3_5_text"],
            ["llama", {"model_type": "mistral3"}, "text_config, nothing"],
            ["qwen3_5_text", {"model_type": "qwen3_5_moe", "text_config": {}}, "model_type, qwen3_5_moe"],
        ]);
        for case in cases.as_array().unwrap() {
            let mut value = match case[0].as_str().unwrap() {
                "llama" => llama_3_2_3b(),
                name @ ("gemma3_text" | "qwen3_5_text" | "smollm3" | "mistral" | "ministral3") => {
                    json!({"model_type": name})
                }
                name => with(
                    with(qwen2_5_7b(), "model_type", json!(name)),
                    "architectures",
                    json!([if name == "qwen3" { "Qwen3ForCausalLM" } else { "Qwen2ForCausalLM" }]),
                ),
            };
            value.as_object_mut().unwrap().extend(object(case[1].clone()));
            let message = parse(value).unwrap_err().to_string();
            for part in ["config.json"].into_iter().chain(case[2].as_str().unwrap().split(", ")) {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
        }
    }

    #[test]
    fn the_text_part_of_a_multimodal_model_takes_some_settings_from_the_whole() {
        let text = json!({
            "model_type": "qwen3_5_text", "num_hidden_layers": 5, "tie_word_embeddings": false, "mtp_num_hidden_layers": 1,
            "bos_token_id": null, "eos_token_id": 7, "full_attention_interval": 3, "head_dim": 128,
            "rope_parameters": {
                "rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5, "mrope_section": [11, 11, 10],
                "mrope_interleaved": true,
            },
        });
        let whole = json!({
            "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text,
            "tie_word_embeddings": true, "bos_token_id": 3, "eos_token_id": 4, "vision_config": {"depth": 27},
        });
        let config = parse(whole).unwrap();
        assert_eq!((config.architecture, config.tie_word_embeddings), (Architecture::Qwen3_5Text, true));
        assert_eq!((config.bos_token_id, &config.eos_token_id[..]), (Some(3), &[7][..]));
        let recurrent: Vec<bool> = (0..5).map(|layer| config.layer(layer).mixer.is_some()).collect();
        assert_eq!(recurrent, [true, true, false, true, true]);
        assert_eq!((config.rope_theta, config.rotary_dim()), (1e7, 64));
        // Defaults of transformers.
        let plain = parse(json!({"model_type": "qwen3_5_text"})).unwrap();
        assert_eq!((plain.rotary_dim(), plain.linear_attention.unwrap().channels()), (64, 8192));
        assert!(plain.layer(2).mixer.is_some() && plain.layer(3).mixer.is_none());
        for config in [config, plain] {
            assert_eq!(Config::from_json(&config.to_json(Dtype::BF16), "config.json").unwrap(), config);
        }
    }

    #[test]
    fn unused_sliding_window_and_minus_one_padding_are_accepted() {
        let unused =
            with(with(qwen2_5_7b(), "use_sliding_window", json!(true)), "max_window_layers", json!(28));
        assert!(parse(unused).is_ok());
        let old_llama = with(llama_3_2_3b(), "pad_token_id", json!(-1));
        assert_eq!(parse(old_llama).unwrap().pad_token_id, None);
    }
}
