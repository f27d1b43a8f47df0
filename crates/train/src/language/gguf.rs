//! Tokenizer, chat template and end tokens of a GGUF file, as the files that a Hugging Face folder has for them.
//!
//! BPE is made from tokens and merges, with the pre-tokenizer that the file names; SentencePiece's vocabulary of Llama from pieces and
//! scores. Of two pairs, the one that makes the piece with the higher score is merged first. Gemma 4's BPE merges characters instead of bytes.

use anyhow::Context;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_nn::weights::{END_TOKENS, Gguf, Item};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::Path;

/// Types of tokens in GGUF metadata (`tokenizer.ggml.token_type`).
const NORMAL: u64 = 1;
const UNKNOWN: u64 = 2;
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;
const BYTE: u64 = 6;

/// Pattern by which Llama 3 splits a string into words. Digits are grouped in threes.
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Pattern of Mistral's Tekken: a change to capital letters begins a word, and each digit is a word.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Pattern of GPT-4o, which Phi-4-mini has: as Tekken's, with digits in threes and with contractions as part of the word before.
const GPT_4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Patterns of llama.cpp's default: punctuation, then words as GPT-2 splits them, then digits in threes.
const DEFAULT: [&str; 4] = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
];
/// Pairs of llama.cpp's names of pre-tokenizers: the first splits like the second.
const ALIASES: [(&str, &str); 23] = [
    ("a.x-4.0", "gpt-2"),
    ("chatglm-bpe", "smaug-bpe"),
    ("dbrx", "smaug-bpe"),
    ("deepseek-r1-qwen", "qwen2"),
    ("exaone4", "gpt-2"),
    ("falcon-h1", "llama-bpe"),
    ("falcon3", "llama-bpe"),
    ("gigachat", "gpt-2"),
    ("granite-docling", "gpt-2"),
    ("kormo", "qwen2"),
    ("lfm2", "llama-bpe"),
    ("llama-v3", "llama-bpe"),
    ("llama3", "llama-bpe"),
    ("llama4", "gpt-4o"),
    ("megrez", "qwen2"),
    ("mellum", "gpt-2"),
    ("midm-2.0", "llama-bpe"),
    ("olmo", "gpt-2"),
    ("phi-2", "gpt-2"),
    ("pixtral", "llama-bpe"),
    ("refact", "smollm"),
    ("stablelm2", "qwen2"),
    ("starcoder", "smollm"),
];

/// Pattern by which Qwen2 splits a string into words. Each digit is a word.
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Pattern of Qwen3.5: as Qwen2's, with combining marks as letters.
const QWEN_35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Settings of a pre-tokenizer, of which a GGUF file has only the name.
struct Splitting {
    name: &'static str,
    normalizer: Value,
    pre_tokenizer: Value,
    /// Whether a word in the vocabulary becomes one token regardless of the merges.
    ignore_merges: bool,
    /// Whether the tokenizer puts the beginning-of-text token before a string. A setting in the file takes precedence.
    begins: bool,
    /// Whether a character without a token is spelt with tokens such as `<0xE2>`. Otherwise words are spelt in the byte-level alphabet.
    byte_tokens: bool,
}

/// Name of Gemma 4's tokenizer, both as a model and as a pre-tokenizer.
const GEMMA_4: &str = "gemma4";

/// Returns the step of a normalizer that writes spaces as SentencePiece does.
fn escaped_spaces() -> Value {
    json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"})
}

fn splittings() -> [Splitting; 10] {
    let byte_level = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
    let sequence =
        |first: Value, regex| json!({"type": "Sequence", "pretokenizers": [first, byte_level(regex)]});
    let isolated = |regex: &str| json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
    let split = |regex: &str| sequence(isolated(regex), false);
    let mut default: Vec<Value> = DEFAULT.into_iter().map(isolated).collect();
    default.push(byte_level(false));
    let plain = |name, pre_tokenizer| Splitting {
        name,
        normalizer: Value::Null,
        pre_tokenizer,
        ignore_merges: false,
        begins: false,
        byte_tokens: false,
    };
    [
        plain("gpt-2", byte_level(true)),
        plain("smollm", sequence(json!({"type": "Digits", "individual_digits": true}), true)),
        Splitting { ignore_merges: true, begins: true, ..plain("llama-bpe", split(LLAMA_3)) },
        Splitting { normalizer: json!({"type": "NFC"}), ..plain("qwen2", split(QWEN_2)) },
        Splitting { ignore_merges: true, begins: true, ..plain("tekken", split(TEKKEN)) },
        Splitting { normalizer: json!({"type": "NFC"}), ..plain("qwen35", split(QWEN_35)) },
        plain("gpt-4o", split(GPT_4O)),
        plain("smaug-bpe", split(LLAMA_3)),
        plain("default", json!({"type": "Sequence", "pretokenizers": default})),
        Splitting {
            normalizer: escaped_spaces(),
            begins: true,
            byte_tokens: true,
            ..plain(GEMMA_4, isolated(r"\n+"))
        },
    ]
}

impl Splitting {
    /// Returns the steps of the pre-tokenizer that decide how a string is split, without the settings that only affect offsets.
    fn steps(pre_tokenizer: &Value) -> Vec<String> {
        match pre_tokenizer["type"].as_str() {
            Some("Sequence") => {
                let parts = pre_tokenizer["pretokenizers"].as_array();
                parts.into_iter().flatten().flat_map(Self::steps).collect()
            }
            Some("ByteLevel") => {
                let [space, regex] = ["add_prefix_space", "use_regex"].map(|f| pre_tokenizer[f] != false);
                vec![format!("bytes, {space}, {regex}")]
            }
            _ => vec![pre_tokenizer.to_string()],
        }
    }
}

/// Makes the Hugging Face files of a GGUF file's tokenizer, template and end tokens.
pub(super) fn files(path: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let gguf = Gguf::open(path).or_bad_input()?;
    let mut files = Vec::new();
    let mut put = |name: &str, bytes: Vec<u8>| files.push((name.to_owned(), bytes));
    let tokens = Tokens::read(&gguf).with_context(|| path.display().to_string()).or_bad_input()?;
    put("tokenizer.json", serde_json::to_vec(&tokens.tokenizer()?)?);
    put("tokenizer_config.json", serde_json::to_vec_pretty(&tokens.config())?);
    if let Some(template) = gguf.text("tokenizer.chat_template").or_bad_input()? {
        put("chat_template.jinja", template.into_bytes());
    }
    let config = gguf.config().or_bad_input()?;
    let ids = ["bos_token_id", "eos_token_id", "pad_token_id"];
    let present = ids.iter().filter(|id| !config[**id].is_null());
    let generation: Map<String, Value> = present.map(|id| ((*id).to_owned(), config[*id].clone())).collect();
    put("generation_config.json", serde_json::to_vec_pretty(&generation)?);
    Ok(files)
}

/// Tokens of a file and their metadata.
struct Tokens<'a> {
    gguf: &'a Gguf,
    texts: Vec<String>,
    kinds: Vec<u64>,
    /// Whether the tokenizer adds the beginning token before a string, and the end token after it.
    adds: [bool; 2],
    model: Model,
}

enum Model {
    Bpe {
        splitting: Splitting,
        merges: Vec<Value>,
    },
    /// Scores of the pieces, and whether a space is added before a string.
    SentencePiece {
        scores: Vec<f64>,
        space: bool,
    },
}

impl<'a> Tokens<'a> {
    fn read(gguf: &'a Gguf) -> anyhow::Result<Self> {
        let key = |name: &str| format!("tokenizer.ggml.{name}");
        let list = |name: &str| -> anyhow::Result<Vec<Value>> {
            match gguf.value(&key(name))? {
                Some(Value::Array(list)) => Ok(list),
                Some(other) => Err(gguf.refuse_key(&key(name), other.to_string(), "a list").into()),
                None => Err(gguf.refuse_key(&key(name), "nothing", "a list").into()),
            }
        };
        let flag = |name: &str, default: bool| -> anyhow::Result<bool> {
            Ok(gguf.value(&key(name))?.and_then(|value| value.as_bool()).unwrap_or(default))
        };
        let texts: Vec<String> = list("tokens")?
            .into_iter()
            .map(|token| match token {
                Value::String(text) => Ok(text),
                other => Err(gguf.refuse_key(&key("tokens"), other.to_string(), "a text").into()),
            })
            .collect::<anyhow::Result<_>>()?;
        let per_token = |name: &str, list: Vec<Value>| {
            if list.len() == texts.len() {
                Ok(list)
            } else {
                let (entries, tokens) = (list.len(), texts.len());
                Err(gguf.refuse_key(
                    &key(name),
                    format!("{entries} entries"),
                    format!("one for each of {tokens} tokens"),
                ))
            }
        };
        let kinds = per_token("token_type", list("token_type")?)?;
        let model = gguf.text(&key("model"))?;
        let gemma_4 = model.as_deref() == Some(GEMMA_4);
        let kind = |(text, kind): (&String, &Value)| match kind.as_u64().unwrap_or(0) {
            _ if END_TOKENS.contains(&&**text) => CONTROL,
            // llama.cpp takes a run of newlines as one token, although no merge makes it.
            NORMAL if gemma_4 && text.bytes().all(|b| b == b'\n') => USER_DEFINED,
            // llama.cpp's converter changes the type of the special tokens of thoughts and tools, so that llama.cpp shows them.
            USER_DEFINED if gemma_4 => CONTROL,
            kind => kind,
        };
        let kinds = texts.iter().zip(&kinds).map(kind).collect();
        let (model, begins) = match model.as_deref() {
            Some("gpt2" | GEMMA_4) => {
                // As in llama.cpp, the model determines the pre-tokenizer of Gemma 4.
                let name =
                    if gemma_4 { GEMMA_4.to_owned() } else { gguf.text(&key("pre"))?.unwrap_or_default() };
                let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, name)| *name);
                let names = splittings().map(|s| s.name).join(", ");
                let Some(splitting) = splittings().into_iter().find(|s| s.name == alias.unwrap_or(&name))
                else {
                    let expected = format!("the name of a pre-tokenizer that is known: {names}");
                    return Err(gguf.refuse_key(&key("pre"), format!("{name:?}"), expected).into());
                };
                let begins = splitting.begins;
                (Model::Bpe { splitting, merges: list("merges")? }, begins)
            }
            Some("llama") => {
                let scores = per_token("scores", list("scores")?)?;
                let scores = scores.iter().map(|score| score.as_f64().unwrap_or(0.0)).collect();
                (Model::SentencePiece { scores, space: flag("add_space_prefix", true)? }, true)
            }
            other => {
                let found = other.unwrap_or("nothing").to_owned();
                let expected = "gpt2 (byte-level BPE), gemma4 (Gemma 4's BPE) or llama (SentencePiece)";
                return Err(gguf.refuse_key(&key("model"), found, expected).into());
            }
        };
        // llama.cpp ignores this setting of Gemma 4.
        let adds = [gemma_4 || flag("add_bos_token", begins)?, flag("add_eos_token", false)?];
        Ok(Self { gguf, texts, kinds, adds, model })
    }

    /// Returns the token that the metadata names for a purpose, such as `bos`, and its id.
    fn special(&self, name: &str) -> Option<(&str, usize)> {
        let id = self.gguf.value(&format!("tokenizer.ggml.{name}_token_id")).ok()??.as_u64()? as usize;
        Some((self.texts.get(id)?.as_str(), id))
    }

    fn tokenizer(&self) -> anyhow::Result<Value> {
        let mut vocabulary = Map::new();
        let mut added = Vec::new();
        for (id, (text, &kind)) in self.texts.iter().zip(&self.kinds).enumerate() {
            // Rows of the embedding without a token have made-up names.
            if kind == UNUSED && matches!(self.model, Model::Bpe { .. }) {
                continue;
            }
            if vocabulary.insert(text.clone(), json!(id)).is_some() {
                bad_input!("tokenizer.ggml.tokens: {text:?} is listed twice");
            }
            if [UNKNOWN, CONTROL, USER_DEFINED].contains(&kind) {
                added.push(json!({
                    "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": kind != USER_DEFINED,
                }));
            }
        }
        let mut bpe = json!({
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
        });
        let sequence = |name: &str, list: Vec<Value>| json!({"type": "Sequence", name: list});
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        let byte_tokens = match &self.model {
            Model::Bpe { splitting, .. } => splitting.byte_tokens,
            Model::SentencePiece { .. } => true,
        };
        if byte_tokens {
            bpe["unk_token"] = json!(self.special("unknown").map(|(text, _)| text));
            bpe["fuse_unk"] = json!(true);
            bpe["byte_fallback"] = json!(true);
        }
        let (normalizer, pre_tokenizer, decoder) = match &self.model {
            Model::Bpe { splitting, merges } => {
                bpe["merges"] = json!(merges);
                bpe["ignore_merges"] = json!(splitting.ignore_merges);
                let decoder = if byte_tokens {
                    sequence("decoders", decoders)
                } else {
                    json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})
                };
                (splitting.normalizer.clone(), splitting.pre_tokenizer.clone(), decoder)
            }
            Model::SentencePiece { scores, space } => {
                bpe["merges"] = json!(merges_of(&self.texts, scores));
                let mut normalizers = vec![escaped_spaces()];
                if *space {
                    normalizers.insert(0, json!({"type": "Prepend", "prepend": "\u{2581}"}));
                    decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
                }
                (sequence("normalizers", normalizers), Value::Null, sequence("decoders", decoders))
            }
        };
        bpe["vocab"] = Value::Object(vocabulary);
        Ok(json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": self.post_processor(), "decoder": decoder, "model": bpe,
        }))
    }

    /// Returns the post-processor that adds the beginning and end tokens.
    fn post_processor(&self) -> Value {
        let around = ["bos", "eos"].map(|name| self.special(name));
        let [before, after] = [0, 1].map(|i| around[i].filter(|_| self.adds[i]));
        if before.is_none() && after.is_none() {
            return Value::Null;
        }
        let token = |token: Option<(&str, usize)>, type_id: u32| {
            token.map(|(text, _)| json!({"SpecialToken": {"id": text, "type_id": type_id}}))
        };
        let text = |name: &str, type_id: u32| {
            let text = Some(json!({"Sequence": {"id": name, "type_id": type_id}}));
            [token(before, type_id), text, token(after, type_id)].into_iter().flatten().collect::<Vec<_>>()
        };
        let special: Map<String, Value> = [before, after]
            .into_iter()
            .flatten()
            .map(|(text, id)| (text.to_owned(), json!({"id": text, "ids": [id], "tokens": [text]})))
            .collect();
        let pair = [text("A", 0), text("B", 1)].concat();
        json!({
            "type": "TemplateProcessing", "single": text("A", 0), "pair": pair, "special_tokens": special,
        })
    }

    fn config(&self) -> Value {
        let mut config = json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false,
            "add_bos_token": self.adds[0], "add_eos_token": self.adds[1],
        });
        for (name, field) in
            [("bos", "bos_token"), ("eos", "eos_token"), ("unknown", "unk_token"), ("padding", "pad_token")]
        {
            if let Some((text, _)) = self.special(name) {
                config[field] = json!(text);
            }
        }
        config
    }
}

/// Returns the GGUF metadata of a `tokenizer.json`: strings and types of tokens, and merges or scores. `rows` is the
/// number of rows of the embedding.
pub(super) fn tokens_of(json: &Value, rows: usize) -> anyhow::Result<Vec<(String, Item)>> {
    let model = &json["model"];
    let Some(vocabulary) = model["vocab"].as_object().filter(|_| model["type"] == "BPE") else {
        anyhow::bail!("model.type: expected BPE, found {}", model["type"]);
    };
    // Rows of the embedding without a token get made-up names.
    let mut texts: Vec<String> = (0..rows).map(|id| format!("[PAD{id}]")).collect();
    let mut kinds = vec![UNUSED as i32; rows];
    let mut set = |text: &str, id: &Value, kind: u64| -> anyhow::Result<()> {
        let Some(at) = id.as_u64().map(|id| id as usize).filter(|at| *at < rows) else {
            anyhow::bail!(
                "the id of the token {text:?}: expected less than {rows}, the number of rows of the embedding, found {id}"
            );
        };
        text.clone_into(&mut texts[at]);
        kinds[at] = kind as i32;
        Ok(())
    };
    let fallback = model["byte_fallback"] == true;
    for (text, id) in vocabulary {
        let byte = fallback && text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
        set(text, id, if byte { BYTE } else { NORMAL })?;
    }
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let text = token["content"].as_str().unwrap_or_default();
        let kind = if fallback && model["unk_token"] == text {
            UNKNOWN
        } else if token["special"] == true {
            CONTROL
        } else {
            USER_DEFINED
        };
        set(text, &token["id"], kind)?;
    }
    let merges: Vec<[&str; 2]> = model["merges"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|merge| match merge {
            Value::String(pair) => pair.split_once(' ').map(|(a, b)| [a, b]),
            pair => Some([pair[0].as_str()?, pair[1].as_str()?]),
        })
        .collect();
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let mut items = vec![(key("token_type"), Item::Numbers(kinds))];
    let steps = Splitting::steps(&json["pre_tokenizer"]);
    let mut candidates = splittings().into_iter();
    let splitting =
        candidates.find(|s| s.byte_tokens == fallback && Splitting::steps(&s.pre_tokenizer) == steps);
    let ids: HashMap<&str, usize> = texts.iter().enumerate().map(|(id, text)| (text.as_str(), id)).collect();
    if let Some(id) = model["unk_token"].as_str().and_then(|text| ids.get(text)).filter(|_| fallback) {
        items.push((key("unknown_token_id"), Item::Number(*id as u32)));
    }
    if fallback && splitting.is_none() {
        // Pieces with higher scores are made earlier.
        let mut scores = vec![0.0; rows];
        for (rank, merge) in merges.iter().enumerate().rev() {
            if let Some(&id) = ids.get(merge.concat().as_str()) {
                scores[id] = -1.0 - rank as f32;
            }
        }
        let space = json["normalizer"].to_string().contains("Prepend")
            || matches!(json["pre_tokenizer"]["prepend_scheme"].as_str(), Some("always" | "first"));
        items.push((key("model"), Item::Text("llama".into())));
        items.push((key("scores"), Item::Reals(scores)));
        items.push((key("add_space_prefix"), Item::Flag(space)));
    } else {
        let Some(splitting) = splitting else {
            let names = splittings().map(|s| s.name).join(", ");
            anyhow::bail!("pre_tokenizer: expected that of one of {names}, found {}", json["pre_tokenizer"]);
        };
        // llama.cpp's converter doesn't name the pre-tokenizer of Gemma 4.
        let (model, about) = match splitting.name {
            GEMMA_4 => (GEMMA_4, ("add_space_prefix", Item::Flag(false))),
            name => ("gpt2", ("pre", Item::Text(name.into()))),
        };
        items.extend([(key("model"), Item::Text(model.into())), (key(about.0), about.1)]);
        let merges = merges.iter().map(|[left, right]| format!("{left} {right}")).collect();
        items.push((key("merges"), Item::Texts(merges)));
    }
    items.push((key("tokens"), Item::Texts(texts)));
    Ok(items)
}

/// Returns the merges of SentencePiece's pieces: each pair that makes a piece, ordered from the highest score.
fn merges_of(texts: &[String], scores: &[f64]) -> Vec<Value> {
    let ids: HashMap<&str, usize> = texts.iter().enumerate().map(|(id, text)| (text.as_str(), id)).collect();
    let mut merges = Vec::new();
    for (id, text) in texts.iter().enumerate() {
        for (at, _) in text.char_indices().skip(1) {
            if let (Some(&left), Some(&right)) = (ids.get(&text[..at]), ids.get(&text[at..])) {
                merges.push((id, left, right));
            }
        }
    }
    merges.sort_by(|a, b| scores[b.0].total_cmp(&scores[a.0]).then(a.cmp(b)));
    merges.into_iter().map(|(_, left, right)| json!([texts[left], texts[right]])).collect()
}
