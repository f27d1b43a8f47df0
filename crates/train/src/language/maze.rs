//! Tokenizer files of the language of mazes, for other programs.

use fgrpo_core::maze::{Token, tokens};

/// Returns the names and contents of the files.
pub(super) fn tokenizer_files() -> [(&'static str, String); 2] {
    [("tokenizer.json", tokenizer_json()), ("tokenizer_config.json", TOKENIZER_CONFIG.to_owned())]
}

/// Returns a word-level tokenizer with the 32 tokens as words, which are separated by spaces.
fn tokenizer_json() -> String {
    let special = [Token::Pad, Token::Bos, Token::Eos, Token::Unknown];
    let added: Vec<serde_json::Value> = special
        .iter()
        .map(|&t| {
            serde_json::json!({
                "id": t as u32, "content": tokens::VOCABULARY[t as usize], "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false, "special": true
            })
        })
        .collect();
    let vocab: serde_json::Map<String, serde_json::Value> =
        tokens::VOCABULARY.iter().enumerate().map(|(i, word)| ((*word).to_owned(), i.into())).collect();
    let json = serde_json::json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": null,
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}
    });
    serde_json::to_string_pretty(&json).expect("a tokenizer is JSON")
}

const TOKENIZER_CONFIG: &str = r#"{
  "tokenizer_class": "PreTrainedTokenizerFast",
  "bos_token": "<bos>",
  "eos_token": "<eos>",
  "pad_token": "<pad>",
  "unk_token": "<unk>",
  "clean_up_tokenization_spaces": false
}
"#;

#[cfg(test)]
mod tests {
    use crate::language::Language;
    use fgrpo_core::maze::{Split, generate, tokens};

    #[test]
    fn the_tokenizer_reads_prompts_as_they_are_written() {
        let language = Language::mazes();
        let folder = tempfile::tempdir().unwrap();
        language.write(folder.path()).unwrap();
        let tokenizer = tokenizers::Tokenizer::from_file(folder.path().join("tokenizer.json")).unwrap();
        let ids = tokens::prompt(&generate(9, 0, Split::HeldOut.index(1)));
        let text = language.text(&ids);
        assert_eq!(tokenizer.encode(text.as_str(), false).unwrap().get_ids(), ids);
        assert_eq!(language.plain(&text).unwrap(), ids);
    }
}
