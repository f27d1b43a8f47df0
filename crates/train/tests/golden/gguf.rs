//! Tokenizers in GGUF files: read as llama.cpp has them, and written again.

use crate::golden;
use fgrpo_nn::config::Config;
use fgrpo_nn::weights::{GgufType, Item, write_gguf};
use fgrpo_train::config::ArithmeticConfig;
use fgrpo_train::language::Language;
use fgrpo_train::problem::generated;
use serde_json::Value;
use std::path::Path;

/// Writes a model of zeros with this tokenizer.
fn write(path: &Path, rows: usize, about: Vec<(String, Item)>) {
    let config = Config { vocab_size: rows, ..golden::checkpoint("qwen2_tied").config().clone() };
    let zeros = |(name, shape): (String, Vec<usize>)| {
        let values = vec![0f32; shape.iter().product()];
        (name, shape, values)
    };
    write_gguf(path, &config, about, config.tensors().into_iter().map(zeros), GgufType::F32).unwrap();
}

#[test]
fn a_token_that_ends_a_turn_ends_an_answer_whatever_type_the_file_gives_it() {
    let folder = tempfile::tempdir().unwrap();
    let (named, gguf) = (folder.path().join("named"), folder.path().join("named.gguf"));
    std::fs::create_dir(&named).unwrap();
    generated::language(&ArithmeticConfig::default(), &[]).unwrap().write(&named).unwrap();
    // An ordinary token of the vocabulary gets the name. In the file its type is then normal.
    let text = std::fs::read_to_string(named.join("tokenizer.json")).unwrap();
    let mut tokenizer: Value = serde_json::from_str(&text).unwrap();
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    let id = vocabulary.remove("~").unwrap();
    vocabulary.insert("<|eot_id|>".into(), id.clone());
    std::fs::write(named.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let language = Language::read(&named, &[]).unwrap();
    let rows = language.vocab_size();
    write(&gguf, rows, language.gguf_metadata(rows).unwrap());
    let language = Language::read(&gguf, &[]).unwrap();
    let ends = language.stop_tokens();
    assert!(ends.len() > 1 && ends.contains(&(id.as_u64().unwrap() as u32)), "{ends:?}");
    language.write(folder.path()).unwrap();
    let text = std::fs::read_to_string(folder.path().join("tokenizer.json")).unwrap();
    let tokenizer: Value = serde_json::from_str(&text).unwrap();
    let mut added = tokenizer["added_tokens"].as_array().unwrap().iter();
    assert!(added.any(|token| token["id"] == id && token["special"] == true), "{tokenizer}");
}

/// Tokens of Gemma 4's kind, with llama.cpp's ids of some strings. `peers/gguf_tokenizers.py --golden` writes the file.
#[test]
fn a_tokenizer_of_gemma_4_gives_the_tokens_of_llama_cpp() {
    let golden: Value =
        serde_json::from_str(include_str!("../../../cli/tests/golden/gemma4_tokens.json")).unwrap();
    let texts = |key: &str| -> Vec<String> { serde_json::from_value(golden[key].clone()).unwrap() };
    let (tokens, kinds) = (texts("tokens"), serde_json::from_value(golden["kinds"].clone()).unwrap());
    let end = tokens.iter().position(|token| token == "<turn|>").unwrap() as u32;
    let rows = tokens.len();
    let about = [
        ("model", Item::Text("gemma4".into())),
        ("tokens", Item::Texts(tokens)),
        ("token_type", Item::Numbers(kinds)),
        ("merges", Item::Texts(texts("merges"))),
        ("unknown_token_id", Item::Number(3)),
        ("bos_token_id", Item::Number(2)),
        ("eos_token_id", Item::Number(1)),
        // llama.cpp begins with <bos> whatever this says.
        ("add_bos_token", Item::Flag(false)),
    ];
    let about = about.map(|(key, item)| (format!("tokenizer.ggml.{key}"), item)).to_vec();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write(&at("gemma4.gguf"), rows, about);
    // As the file has it, as a folder, and as a file written from that.
    std::fs::create_dir(at("back")).unwrap();
    Language::read(&at("gemma4.gguf"), &[]).unwrap().write(&at("back")).unwrap();
    let back = Language::read(&at("back"), &[]).unwrap();
    write(&at("again.gguf"), rows, back.gguf_metadata(rows).unwrap());
    for model in ["gemma4.gguf", "back", "again.gguf"] {
        let language = Language::read(&at(model), &[]).unwrap();
        assert!(language.stop_tokens().contains(&end));
        // A message that spells a special token doesn't become one.
        let call = language.encode("<|tool_call>").unwrap();
        assert_eq!(
            (call.len(), call == language.encode_parts(&language.broken("<|tool_call>")).unwrap()),
            (1, false)
        );
        for pair in golden["strings"].as_array().unwrap() {
            let (string, ids): (String, Vec<u32>) = serde_json::from_value(pair.clone()).unwrap();
            assert_eq!(language.encode(&string).unwrap(), ids, "{model}: {string:?}");
            assert_eq!(language.plain(&string).unwrap(), [&[2], &ids[..]].concat());
            // Gemma writes a space as U+2581.
            assert_eq!(language.text(&ids), string.replace('\u{2581}', " "));
        }
    }
}
