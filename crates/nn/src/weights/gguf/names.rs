//! GGUF's names for the fields of a `config.json` and for the tensors of a Hugging Face checkpoint, and its order of the rows of q and k.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Gguf;
use crate::config::{Architecture, Config, RopeScaling};
use crate::error::Error;
use crate::families::GgufRows;
use crate::rope::frequencies;

/// Sorted `model_type`s of the families that can be read and written.
pub(super) fn families() -> Vec<&'static str> {
    let architectures =
        Architecture::ALL.into_iter().filter(|architecture| architecture.family().gguf.is_some());
    let mut names: Vec<&str> = architectures.map(Architecture::model_type).collect();
    names.sort_unstable();
    names
}

/// Keys, without the architecture's name before them, and the corresponding fields of `config.json`.
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
/// The first keys of [`FIELDS`], which every file must have.
const NEEDED: usize = 6;
/// Other keys below the architecture's name that [`Gguf::config`] reads.
const READ: [&str; 7] = [
    "attention.value_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
];
/// Keys that don't change logits. `vocab_size` is given by the embedding's rows, and the other keys describe how a model was trained or is pooled.
const WITHOUT_EFFECT: [&str; 4] =
    ["pooling_type", "rope.scaling.finetuned", "tensor_data_layout", "vocab_size"];
/// Keys of llama.cpp that change the result, each with the only accepted value, which leaves the result unchanged.
const NEUTRAL: [(&str, &str); 4] = [
    ("attention.causal", "true"),
    ("expert_count", "0"),
    ("expert_used_count", "0"),
    ("rope.scaling.attn_factor", "1"),
];

/// Names of tensors outside the layers: Hugging Face's, and GGUF's.
const OUTSIDE: [(&str, &str); 3] =
    [("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];
/// Names of a layer's tensors: Hugging Face's, and GGUF's.
const OF_LAYER: [(&str, &str); 11] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// Tokens that end an answer, in addition to the token that the metadata names. As in llama.cpp, they are control tokens even if the file gives them another
/// type.
pub const END_TOKENS: [&str; 7] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
];

/// Returns the GGUF name of the tensor with a Hugging Face name, or `None` if GGUF doesn't have that tensor.
pub(super) fn stored(name: &str) -> Option<String> {
    let (module, part) = name.rsplit_once('.')?;
    let find = |table: &'static [(&str, &str)], module: &str| {
        Some(table.iter().find(|(name, _)| *name == module)?.1)
    };
    match module.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')) {
        Some((layer, module)) => Some(format!("blk.{layer}.{}.{part}", find(&OF_LAYER, module)?)),
        None => Some(format!("{}.{part}", find(&OUTSIDE, module)?)),
    }
}

/// Position in a file of row `row` of q or k, if heads of `head` rows are interleaved.
pub(super) fn stored_row(row: usize, head: usize) -> usize {
    let (start, at) = (row / head * head, row % head);
    start + at % (head / 2) * 2 + at / (head / 2)
}

impl Gguf {
    /// Fields of the `config.json` that corresponds to this file.
    /// Returns an error if a key is missing or of another type.
    pub fn config(&self) -> Result<Map<String, Value>, Error> {
        if let Some(parts) = self.value("split.count")?.filter(|parts| *parts != 1) {
            let expected = "a whole model; llama-gguf-split --merge joins several files into one";
            return Err(self.refuse_key("split.count", parts.to_string(), expected));
        }
        let Some(family) = self.text("general.architecture")? else {
            return Err(self.refuse_key("general.architecture", "nothing", "the architecture's name"));
        };
        if !families().contains(&&*family) {
            return Err(self.refuse_key("general.architecture", family, families().join(", ")));
        }
        let key = |name: &str| format!("{family}.{name}");
        let get = |name: &str| self.value(&key(name));
        self.check_keys(&format!("{family}."))?;
        let mut map = Map::new();
        map.insert("model_type".into(), json!(family));
        for (at, (name, field)) in FIELDS.into_iter().enumerate() {
            let value = match get(name)? {
                Some(Value::Array(layers)) => {
                    let same =
                        layers.first().filter(|first| layers.iter().all(|layer| layer == *first)).cloned();
                    Some(same.ok_or_else(|| {
                        self.refuse_key(
                            &key(name),
                            json!(layers).to_string(),
                            "the same number in every layer",
                        )
                    })?)
                }
                None if at < NEEDED => return Err(self.refuse_key(&key(name), "nothing", "a number")),
                None if field == "num_key_value_heads" => map.get("num_attention_heads").cloned(),
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
        for name in ["attention.value_length", "rope.dimension_count"] {
            if let Some(size) = get(name)?.filter(|size| *size != head) {
                return Err(self.refuse_key(
                    &key(name),
                    size.to_string(),
                    format!("{head}, the size of a head"),
                ));
            }
        }
        map.insert("rope_theta".into(), get("rope.freq_base")?.unwrap_or(json!(10000.0)));
        // As in llama.cpp, a factor without a type means linear scaling, and linear scaling without a factor means unscaled frequencies.
        let kind = get("rope.scaling.type")?.unwrap_or(json!("linear"));
        let scale = get("rope.scaling.factor")?.or(get("rope.scale_linear")?);
        let scale = scale.filter(|factor| ![Some(0.0), Some(1.0)].contains(&factor.as_f64()));
        match kind.as_str() {
            Some("none") => {}
            Some("linear") => {
                let scaling = scale.map(|factor| json!({"rope_type": "linear", "factor": factor}));
                map.extend(scaling.map(|scaling| ("rope_scaling".into(), scaling)));
            }
            _ => return Err(self.refuse_key(&key("rope.scaling.type"), kind.to_string(), "none or linear")),
        }
        if let Some(factors) = self.rope_factors()? {
            let factor = factors.iter().fold(1f32, |largest, &factor| largest.max(factor));
            let context = get("rope.scaling.original_context_length")?.unwrap_or(json!(8192));
            let scaling = json!({
                "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": context,
            });
            if map.insert("rope_scaling".into(), scaling).is_some() {
                let found = "another scaling of the rotary embedding";
                return Err(self.refuse_key(ROPE, found, "one scaling"));
            }
        }
        let embedding = self.tensor("model.embed_tokens.weight")?;
        map.insert("vocab_size".into(), json!(embedding.shape[0]));
        map.insert("tie_word_embeddings".into(), json!(!self.has("lm_head.weight")));
        for (name, field) in [("bos", "bos_token_id"), ("padding", "pad_token_id")] {
            let id = self.value(&format!("tokenizer.ggml.{name}_token_id"))?;
            map.insert(field.into(), id.unwrap_or_default());
        }
        map.insert("eos_token_id".into(), json!(self.end_tokens()?));
        Ok(map)
    }

    /// Returns an error if a key that begins with `prefix` isn't known, or is known and would have an effect that this engine doesn't compute.
    fn check_keys(&self, prefix: &str) -> Result<(), Error> {
        let is_read = |name: &str| FIELDS.iter().any(|(key, _)| *key == name) || READ.contains(&name);
        for key in self.metadata.keys() {
            let Some(name) = key.strip_prefix(prefix) else { continue };
            if is_read(name) || WITHOUT_EFFECT.contains(&name) {
                continue;
            }
            let value = self.value(key)?.unwrap_or_default();
            let found = value.as_f64().map_or(value.to_string(), |number| number.to_string());
            match NEUTRAL.iter().find(|(key, _)| *key == name) {
                Some((_, neutral)) if found == *neutral => {}
                Some((_, neutral)) => return Err(self.refuse_key(key, found, *neutral)),
                None => {
                    return Err(self.refuse_key(key, found, "no such key (it isn't supported)"));
                }
            }
        }
        Ok(())
    }

    /// Tokens that end an answer. The metadata's tokens come first.
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
        let mut names = BTreeSet::from([ROPE.to_string()]);
        for (name, shape) in config.tensors() {
            let actual = &self.tensor(&name)?.shape;
            if *actual != shape {
                return Err(self.refuse(&name, format!("shape {actual:?}"), format!("shape {shape:?}")));
            }
            names.extend(stored(&name));
        }
        if let Some(other) = self.tensors.keys().find(|name| !names.contains(*name)) {
            let expected = "only the tensors of its architecture".into();
            return Err(self.refuse(
                other,
                "a tensor that the metadata does not account for".into(),
                expected,
            ));
        }
        let is_close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4 * b.abs();
        match self.rope_factors()? {
            Some(factors)
                if !(factors.len() == config.head_dim / 2
                    && factors.iter().zip(&rope_factors(config)).all(is_close)) =>
            {
                let expected = format!("Llama 3's, {:?}", config.rope_scaling);
                Err(self.refuse(ROPE, format!("the factors {factors:?}"), expected))
            }
            _ => Ok(()),
        }
    }

    /// Divisors of the rotary frequencies, or `None` if the file doesn't have them.
    fn rope_factors(&self) -> Result<Option<Vec<f32>>, Error> {
        let Some(tensor) = self.tensors.get(ROPE) else { return Ok(None) };
        let mut factors = vec![0.0; tensor.shape.iter().product()];
        tensor.kind.decode(&self.map[tensor.range.0..tensor.range.1], &mut factors);
        Ok(Some(factors))
    }
}

/// Tensor with Llama 3's divisors of the rotary frequencies. No key describes this scaling.
pub(super) const ROPE: &str = "rope_freqs.weight";

/// Divisors of the rotary frequencies according to the configuration.
pub(super) fn rope_factors(config: &Config) -> Vec<f32> {
    let plain = Config { rope_scaling: RopeScaling::Default, ..config.clone() };
    frequencies(&plain).iter().zip(frequencies(config)).map(|(plain, scaled)| plain / scaled).collect()
}

/// Head size if a file interleaves the rows of this tensor's heads, or `None` if the rows are in the checkpoint's order.
pub(super) fn interleaved(name: &str, config: &Config) -> Option<usize> {
    let has_heads = matches!(name.rsplit('.').nth(1), Some("q_proj" | "k_proj"));
    (has_heads && config.architecture.family().gguf == Some(GgufRows::Interleaved)).then_some(config.head_dim)
}
