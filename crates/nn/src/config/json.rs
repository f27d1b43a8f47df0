//! `config.json` in both formats: transformers 4 (`rope_theta`, `rope_scaling`, `torch_dtype`) and 5 (`rope_parameters`, `dtype`, `head_dim` always).
//! Defaults are transformers' own. Settings that the decoder doesn't support are refused; fields that don't affect the computation (dropout, cache,
//! initialiser) are ignored.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Architecture, Config, RopeScaling};
use crate::error::Error;
use crate::weights::Dtype;
use fgrpo_files as input;

/// A JSON object, with its file's name for messages.
pub(super) struct Fields<'a> {
    pub(super) place: &'a str,
    pub(super) map: &'a Map<String, Value>,
}

impl Fields<'_> {
    pub(super) fn refuse<T>(&self, field: &str, wanted: impl Into<String>) -> Result<T, Error> {
        let found = self.map.get(field).map_or_else(|| "nothing".into(), Value::to_string);
        self.refuse_found(field, found, wanted)
    }

    fn refuse_found<T>(
        &self,
        field: &str,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) -> Result<T, Error> {
        let (found, wanted) = (found.into(), wanted.into());
        Err(Error::Config { place: self.place.into(), field: field.into(), found, wanted })
    }

    /// The value, unless absent or null.
    fn get(&self, field: &str) -> Option<&Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    fn size(&self, field: &str) -> Result<Option<usize>, Error> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match value.as_u64().and_then(|n| usize::try_from(n).ok()) {
            Some(n) => Ok(Some(n)),
            None => self.refuse(field, "a whole number"),
        }
    }

    fn number(&self, field: &str) -> Result<Option<f64>, Error> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match value.as_f64() {
            Some(x) => Ok(Some(x)),
            None => self.refuse(field, "a number"),
        }
    }

    fn flag(&self, field: &str) -> Result<Option<bool>, Error> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match value.as_bool() {
            Some(b) => Ok(Some(b)),
            None => self.refuse(field, "true or false"),
        }
    }

    fn text(&self, field: &str) -> Result<Option<&str>, Error> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match value.as_str() {
            Some(s) => Ok(Some(s)),
            None => self.refuse(field, "a string"),
        }
    }

    /// A token id. Old Llama files use -1 for "none".
    pub(super) fn token(&self, field: &str) -> Result<Option<u32>, Error> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match (value.as_i64(), value.as_i64().map(u32::try_from)) {
            (Some(-1), _) => Ok(None),
            (_, Some(Ok(id))) => Ok(Some(id)),
            _ => self.refuse(field, "a token id"),
        }
    }

    /// One token id or a list of them; `None` if the field is absent.
    pub(super) fn tokens(&self, field: &str) -> Result<Option<Vec<u32>>, Error> {
        let Some(Value::Array(list)) = self.get(field) else {
            return Ok(self.token(field)?.map(|id| vec![id]));
        };
        let ids: Option<Vec<u32>> =
            list.iter().map(|v| v.as_u64().and_then(|id| u32::try_from(id).ok())).collect();
        match ids {
            Some(ids) => Ok(Some(ids)),
            None => self.refuse(field, "a token id or a list of them"),
        }
    }

    fn object(&self, field: &str) -> Result<Option<&Map<String, Value>>, Error> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match value.as_object() {
            Some(object) => Ok((!object.is_empty()).then_some(object)),
            None => self.refuse(field, "an object"),
        }
    }

    /// Refuses a field whose value is not the neutral one.
    fn only(&self, field: &str, neutral: Value) -> Result<(), Error> {
        match self.get(field) {
            Some(value) if !same(value, &neutral) => {
                self.refuse(field, format!("{neutral} (anything else is not supported)"))
            }
            _ => Ok(()),
        }
    }
}

/// Equality that treats 1 and 1.0 as the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// Reads a JSON object.
pub(super) fn read_object(path: &Path) -> Result<Map<String, Value>, Error> {
    let text = input::read(path, input::SETTINGS).map_err(Error::io("read", path))?;
    let file = |found: String| Error::File { path: path.into(), found, wanted: "a JSON object".into() };
    match serde_json::from_slice(&text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(other) => Err(file(format!("a JSON {}", kind(&other)))),
        Err(error) => Err(file(format!("broken JSON ({error})"))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

impl Config {
    /// Reads and validates a `config.json`.
    pub fn read(path: &Path) -> Result<Config, Error> {
        let map = read_object(path)?;
        Config::from_json(&map, &path.display().to_string())
    }

    /// The configuration in a `config.json`'s object; `place` is the file's name for messages.
    pub fn from_json(map: &Map<String, Value>, place: &str) -> Result<Config, Error> {
        let fields = Fields { place, map };
        let architecture = architecture(&fields)?;
        let llama = architecture == Architecture::Llama;
        refuse_unsupported(&fields, architecture)?;

        let or = |field: &str, default: usize| Ok::<_, Error>(fields.size(field)?.unwrap_or(default));
        let hidden_size = or("hidden_size", 4096)?;
        let num_attention_heads = or("num_attention_heads", 32)?;
        let kv_default =
            if llama || fields.map.contains_key("num_key_value_heads") { num_attention_heads } else { 32 };
        let head_dim = match (fields.size("head_dim")?, architecture) {
            (Some(head_dim), _) => head_dim,
            (None, Architecture::Qwen3) => 128,
            (None, _) if num_attention_heads == 0 => 0,
            (None, _) if !hidden_size.is_multiple_of(num_attention_heads) => {
                return fields.refuse(
                    "num_attention_heads",
                    format!("a divisor of hidden_size, {hidden_size}, or an explicit head_dim"),
                );
            }
            (None, _) => hidden_size / num_attention_heads,
        };
        let max_position_embeddings = or("max_position_embeddings", if llama { 2048 } else { 32768 })?;
        let (rope_theta, rope_scaling) = rope(&fields, max_position_embeddings)?;
        let num_hidden_layers = or("num_hidden_layers", 32)?;
        refuse_sliding_window(&fields, num_hidden_layers)?;
        let config = Config {
            architecture,
            vocab_size: or("vocab_size", if llama { 32000 } else { 151_936 })?,
            hidden_size,
            intermediate_size: or("intermediate_size", if llama { 11008 } else { 22016 })?,
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads: or("num_key_value_heads", kv_default)?,
            head_dim,
            rms_norm_eps: fields.number("rms_norm_eps")?.unwrap_or(1e-6),
            rope_theta,
            rope_scaling,
            tie_word_embeddings: fields.flag("tie_word_embeddings")?.unwrap_or(false),
            max_position_embeddings,
            bos_token_id: match fields.map.contains_key("bos_token_id") {
                true => fields.token("bos_token_id")?,
                false => llama.then_some(1),
            },
            eos_token_id: match fields.tokens("eos_token_id")? {
                Some(ids) => ids,
                None if llama && !fields.map.contains_key("eos_token_id") => vec![2],
                None => Vec::new(),
            },
            pad_token_id: fields.token("pad_token_id")?,
        };
        config.validate_at(place)?;
        Ok(config)
    }

    /// A `config.json` that transformers 4 and 5, vLLM and SGLang open: the fields of both formats, with the same values. `dtype` is the type the
    /// weights are stored in.
    pub fn to_json(&self, dtype: Dtype) -> Map<String, Value> {
        let mut map = Map::new();
        let mut put = |field: &str, value: Value| {
            map.insert(field.into(), value);
        };
        put("architectures", json!([self.architecture.class_name()]));
        put("model_type", json!(self.architecture.model_type()));
        put("vocab_size", json!(self.vocab_size));
        put("hidden_size", json!(self.hidden_size));
        put("intermediate_size", json!(self.intermediate_size));
        put("num_hidden_layers", json!(self.num_hidden_layers));
        put("num_attention_heads", json!(self.num_attention_heads));
        put("num_key_value_heads", json!(self.num_key_value_heads));
        put("head_dim", json!(self.head_dim));
        put("hidden_act", json!("silu"));
        put("max_position_embeddings", json!(self.max_position_embeddings));
        put("rms_norm_eps", json!(self.rms_norm_eps));
        let scaling = self.rope_scaling_json();
        put("rope_theta", json!(self.rope_theta));
        put("rope_scaling", scaling.clone().map_or(Value::Null, Value::Object));
        let mut parameters =
            scaling.unwrap_or_else(|| Map::from_iter([("rope_type".to_string(), json!("default"))]));
        parameters.insert("rope_theta".into(), json!(self.rope_theta));
        put("rope_parameters", Value::Object(parameters));
        put("tie_word_embeddings", json!(self.tie_word_embeddings));
        put("attention_dropout", json!(0.0));
        match self.architecture {
            Architecture::Llama => {
                put("attention_bias", json!(false));
                put("mlp_bias", json!(false));
            }
            Architecture::Qwen2 | Architecture::Qwen3 => {
                if self.architecture == Architecture::Qwen3 {
                    put("attention_bias", json!(false));
                }
                put("use_sliding_window", json!(false));
                put("sliding_window", Value::Null);
                put("max_window_layers", json!(self.num_hidden_layers));
            }
        }
        put("initializer_range", json!(0.02));
        put("use_cache", json!(true));
        put("bos_token_id", json!(self.bos_token_id));
        put(
            "eos_token_id",
            match self.eos_token_id.as_slice() {
                [] => Value::Null,
                [one] => json!(one),
                many => json!(many),
            },
        );
        put("pad_token_id", json!(self.pad_token_id));
        put("torch_dtype", json!(dtype.config_name()));
        put("dtype", json!(dtype.config_name()));
        map
    }

    fn rope_scaling_json(&self) -> Option<Map<String, Value>> {
        let value = match self.rope_scaling {
            RopeScaling::Default => return None,
            RopeScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_position_embeddings,
            } => json!({
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low_freq_factor,
                "high_freq_factor": high_freq_factor,
                "original_max_position_embeddings": original_max_position_embeddings,
            }),
        };
        value.as_object().cloned()
    }
}

/// The family, from `architectures`, or from `model_type` if that is absent.
fn architecture(fields: &Fields<'_>) -> Result<Architecture, Error> {
    let known = || {
        let names: Vec<_> = Architecture::ALL.iter().map(|a| a.class_name()).collect();
        format!("one of {}", names.join(", "))
    };
    let by_type = match fields.text("model_type")? {
        Some(name) => match Architecture::ALL.into_iter().find(|a| a.model_type() == name) {
            Some(found) => Some(found),
            None => return fields.refuse("model_type", "one of qwen2, qwen3, llama"),
        },
        None => None,
    };
    let Some(list) = fields.get("architectures") else {
        return by_type.map_or_else(|| fields.refuse("architectures", known()), Ok);
    };
    let by_class = match list.as_array().map(Vec::as_slice) {
        Some([one]) => Architecture::ALL.into_iter().find(|a| one == a.class_name()),
        _ => None,
    };
    match (by_class, by_type) {
        (None, _) => fields.refuse("architectures", known()),
        (Some(class), Some(model)) if class != model => {
            fields.refuse("model_type", format!("{}, as architectures says", class.model_type()))
        }
        (Some(class), _) => Ok(class),
    }
}

/// Refuses settings that the decoder doesn't support.
fn refuse_unsupported(fields: &Fields<'_>, architecture: Architecture) -> Result<(), Error> {
    fields.only("hidden_act", json!("silu"))?;
    fields.only("mlp_bias", json!(false))?;
    fields.only("is_causal", json!(true))?;
    fields.only("partial_rotary_factor", json!(1.0))?;
    // Qwen2's bias is part of the family; elsewhere this setting also puts one on o_proj.
    match architecture {
        Architecture::Qwen2 => {}
        Architecture::Qwen3 | Architecture::Llama => fields.only("attention_bias", json!(false))?,
    }
    if fields.get("compression_config").is_some() {
        return fields.refuse("compression_config", "nothing: such weights are not supported");
    }
    // What the tensors say is checked when they are read.
    let four_bits = |field: &Value| {
        let is = |name: &str, wanted: Value| field.get(name) == Some(&wanted);
        is("quant_method", json!("bitsandbytes"))
            && is("load_in_4bit", json!(true))
            && is("bnb_4bit_quant_type", json!("nf4"))
            && is("bnb_4bit_quant_storage", json!("uint8"))
    };
    if fields.get("quantization_config").is_some_and(|field| !four_bits(field)) {
        let wanted = "nothing, or bitsandbytes with load_in_4bit, nf4 and storage in uint8; other quantised weights are not supported";
        return fields.refuse("quantization_config", wanted);
    }
    Ok(())
}

/// Refuses a sliding window that a layer would use. Many files have an unused one.
fn refuse_sliding_window(fields: &Fields<'_>, layers: usize) -> Result<(), Error> {
    if let Some(types) = fields.get("layer_types") {
        let full = |value: &Value| value == "full_attention";
        let Some(list) = types.as_array() else {
            return fields.refuse("layer_types", "a list");
        };
        if let Some(other) = list.iter().find(|value| !full(value)) {
            return fields.refuse_found(
                "layer_types",
                other.to_string(),
                "full_attention in every layer (others are not supported)",
            );
        }
        if list.len() != layers {
            let wanted = format!("{layers}, one per layer");
            return fields.refuse_found("layer_types", format!("{} entries", list.len()), wanted);
        }
        return Ok(());
    }
    let first = fields.size("max_window_layers")?.unwrap_or(28);
    let used = fields.flag("use_sliding_window")?.unwrap_or(false)
        && (!fields.map.contains_key("sliding_window") || fields.get("sliding_window").is_some())
        && first < layers;
    if used {
        return fields.refuse(
            "use_sliding_window",
            format!("false: layers {first} to {} would use it, which is not supported", layers - 1),
        );
    }
    Ok(())
}

/// Base and scaling of the rotary frequencies. `rope_scaling` (4) and `rope_parameters` (5) may both be present.
fn rope(fields: &Fields<'_>, max_position_embeddings: usize) -> Result<(f64, RopeScaling), Error> {
    let old = fields.object("rope_scaling")?;
    let new = fields.object("rope_parameters")?;
    // transformers prefers this one to that of the scaling.
    let original = fields.size("original_max_position_embeddings")?;
    let mut theta: Option<f64> = fields.number("rope_theta")?;
    let mut scaling: Option<RopeScaling> = None;
    for (prefix, object) in [("rope_parameters", new), ("rope_scaling", old)] {
        let Some(map) = object else { continue };
        let place = format!("{}: {prefix}", fields.place);
        let inner = Fields { place: &place, map };
        inner.only("partial_rotary_factor", json!(1.0))?;
        if let Some(found) = inner.number("rope_theta")? {
            if theta.is_some_and(|outer| outer != found) {
                return inner.refuse("rope_theta", format!("{}, as elsewhere in the file", theta.unwrap()));
            }
            theta = Some(found);
        }
        let here = one_scaling(&inner, original, max_position_embeddings)?;
        if scaling.is_some_and(|other| other != here) {
            return inner.refuse("rope_type", "the scaling that rope_parameters names");
        }
        scaling = Some(here);
    }
    Ok((theta.unwrap_or(10_000.0), scaling.unwrap_or(RopeScaling::Default)))
}

fn one_scaling(
    inner: &Fields<'_>,
    original: Option<usize>,
    max_position_embeddings: usize,
) -> Result<RopeScaling, Error> {
    // transformers before 4.43 wrote `type`.
    let name = if inner.get("rope_type").is_some() { "rope_type" } else { "type" };
    let needed = |field: &str| match inner.number(field)? {
        Some(x) => Ok(x),
        None => inner.refuse(field, "a number"),
    };
    match inner.text(name)? {
        None | Some("default") => Ok(RopeScaling::Default),
        Some("linear") => Ok(RopeScaling::Linear { factor: needed("factor")? }),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: needed("factor")?,
            low_freq_factor: needed("low_freq_factor")?,
            high_freq_factor: needed("high_freq_factor")?,
            original_max_position_embeddings: original
                .or(inner.size("original_max_position_embeddings")?)
                .unwrap_or(max_position_embeddings),
        }),
        Some(_) => inner.refuse(name, "default, linear or llama3 (others are not supported)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: Value) -> Result<Config, Error> {
        Config::from_json(value.as_object().unwrap(), "config.json")
    }

    /// Qwen2.5-7B-Instruct's published fields, transformers 4.
    fn qwen2_5_7b() -> Value {
        json!({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
            "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
            "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28,
            "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
            "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
            "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.43.1",
            "use_cache": true, "use_sliding_window": false, "vocab_size": 152064})
    }

    /// Llama-3.2-3B-Instruct's published fields, transformers 4.
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
        assert!(
            config.architecture.qkv_bias() && !config.architecture.qk_norm() && !config.tie_word_embeddings
        );
        assert_eq!(config.rope_theta, 1e6);
        assert_eq!(config.eos_token_id, [151_645]);
        assert_eq!(config.parameters(), 7_615_616_512);
    }

    #[test]
    fn published_llama_config_keeps_its_scaling_and_eos_list() {
        let config = parse(llama_3_2_3b()).unwrap();
        let wanted = RopeScaling::Llama3 {
            factor: 32.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192,
        };
        assert_eq!(config.rope_scaling, wanted);
        // The outer field has precedence, as in transformers.
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
    fn written_config_reads_back_equal_for_every_family_and_scaling() {
        let mut configs = vec![parse(qwen2_5_7b()).unwrap(), parse(llama_3_2_3b()).unwrap()];
        let mut qwen3 = configs[1].clone();
        qwen3.architecture = Architecture::Qwen3;
        qwen3.rope_scaling = RopeScaling::Linear { factor: 2.5 };
        qwen3.pad_token_id = Some(7);
        configs.push(qwen3);
        for config in configs {
            let map = config.to_json(Dtype::BF16);
            assert_eq!(map["dtype"], "bfloat16");
            assert_eq!(Config::from_json(&map, "config.json").unwrap(), config);
        }
    }

    #[test]
    fn defaults_are_those_of_transformers() {
        let llama = parse(json!({"model_type": "llama"})).unwrap();
        assert_eq!(
            (llama.vocab_size, llama.intermediate_size, llama.max_position_embeddings),
            (32000, 11008, 2048)
        );
        assert_eq!((llama.num_key_value_heads, llama.bos_token_id), (32, Some(1)));
        assert_eq!(llama.eos_token_id, [2]);
        assert_eq!(llama.rope_theta, 10_000.0);
        let qwen3 = parse(json!({"model_type": "qwen3"})).unwrap();
        assert_eq!((qwen3.head_dim, qwen3.vocab_size, qwen3.bos_token_id), (128, 151_936, None));
        let qwen2 = parse(json!({"model_type": "qwen2", "num_attention_heads": 64})).unwrap();
        assert_eq!((qwen2.num_key_value_heads, qwen2.head_dim), (32, 64));
        let all_heads =
            json!({"model_type": "qwen2", "num_attention_heads": 64, "num_key_value_heads": null});
        assert_eq!(parse(all_heads).unwrap().num_key_value_heads, 64);
    }

    #[test]
    fn unsupported_settings_are_refused_with_field_and_value() {
        let qwen3 = with(
            with(qwen2_5_7b(), "architectures", json!(["Qwen3ForCausalLM"])),
            "model_type",
            json!("qwen3"),
        );
        let cases = [
            (
                with(qwen2_5_7b(), "architectures", json!(["MistralForCausalLM"])),
                vec!["architectures", "Mistral", "Qwen3ForCausalLM"],
            ),
            (with(qwen2_5_7b(), "model_type", json!("gemma2")), vec!["model_type", "gemma2", "llama"]),
            (with(qwen2_5_7b(), "model_type", json!("llama")), vec!["model_type", "\"llama\"", "qwen2"]),
            (with(qwen2_5_7b(), "hidden_act", json!("gelu")), vec!["hidden_act", "gelu", "silu"]),
            (
                with(with(qwen2_5_7b(), "use_sliding_window", json!(true)), "max_window_layers", json!(21)),
                vec!["use_sliding_window", "true", "21 to 27"],
            ),
            (with(llama_3_2_3b(), "attention_bias", json!(true)), vec!["attention_bias", "true", "false"]),
            (with(qwen3, "attention_bias", json!(true)), vec!["attention_bias", "true", "false"]),
            (with(llama_3_2_3b(), "mlp_bias", json!(true)), vec!["mlp_bias", "true", "false"]),
            (with(qwen2_5_7b(), "is_causal", json!(false)), vec!["is_causal", "false", "true"]),
            (
                with(qwen2_5_7b(), "rope_scaling", json!({"type": "yarn", "factor": 4.0})),
                vec!["rope_scaling", "type", "yarn", "llama3"],
            ),
            (
                with(qwen2_5_7b(), "rope_scaling", json!({"rope_type": "dynamic", "factor": 4.0})),
                vec!["rope_type", "dynamic"],
            ),
            (
                with(qwen2_5_7b(), "rope_scaling", json!({"rope_type": "linear"})),
                vec!["factor", "nothing", "a number"],
            ),
            (
                with(qwen2_5_7b(), "rope_parameters", json!({"rope_type": "default", "rope_theta": 5e5})),
                vec!["rope_theta", "500000", "1000000"],
            ),
            (
                with(qwen2_5_7b(), "quantization_config", json!({"bits": 4})),
                vec!["quantization_config", "bits", "nf4"],
            ),
            (
                with(
                    qwen2_5_7b(),
                    "quantization_config",
                    json!({"quant_method": "bitsandbytes", "load_in_8bit": true, "load_in_4bit": false}),
                ),
                vec!["quantization_config", "load_in_8bit"],
            ),
            (
                with(qwen2_5_7b(), "layer_types", json!(["sliding_attention"])),
                vec!["layer_types", "sliding_attention", "full_attention"],
            ),
            (
                with(qwen2_5_7b(), "layer_types", json!(["full_attention"])),
                vec!["layer_types", "1 entries", "28"],
            ),
            (with(qwen2_5_7b(), "partial_rotary_factor", json!(0.5)), vec!["partial_rotary_factor", "0.5"]),
            (with(qwen2_5_7b(), "hidden_size", json!("big")), vec!["hidden_size", "big", "whole number"]),
            (with(qwen2_5_7b(), "num_attention_heads", json!(27)), vec!["num_attention_heads", "27", "3584"]),
            (with(qwen2_5_7b(), "eos_token_id", json!([1, "x"])), vec!["eos_token_id", "list"]),
        ];
        for (value, parts) in cases {
            let message = parse(value).unwrap_err().to_string();
            for part in ["config.json"].into_iter().chain(parts) {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
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
