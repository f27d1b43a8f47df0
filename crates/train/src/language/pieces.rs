//! Text and bytes of single tokens, for streaming answers.

use super::{Language, Vocabulary, decode};
use std::sync::LazyLock;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{DecoderWrapper, Tokenizer};

impl Language {
    /// Returns the number of tokens at the beginning whose text later tokens can't change, except for an incomplete
    /// character at its end.
    ///
    /// A SentencePiece vocabulary spells characters that it lacks as byte tokens. If a run of byte tokens isn't valid
    /// UTF-8, each byte of the run becomes U+FFFD, so the text of a run is only known at its end. Special tokens
    /// don't end a run, because they are left out of the text.
    pub fn settled(&self, tokens: &[u32]) -> usize {
        let Vocabulary::Tokenizer(tokenizer) = &self.vocabulary else { return tokens.len() };
        let special = tokenizer.get_added_vocabulary();
        let open = |id: &u32| match tokenizer.id_to_token(*id) {
            Some(token) => byte_of(&token).is_some() || special.is_special_token(&token),
            None => true,
        };
        let run = tokens.iter().rev().take_while(|id| open(id)).count();
        let start = tokens.len() - run;
        let is_byte = |id: &u32| tokenizer.id_to_token(*id).is_some_and(|token| byte_of(&token).is_some());
        tokens[start..].iter().position(is_byte).map_or(tokens.len(), |at| start + at)
    }

    /// Returns the bytes of a token, which may be a part of a character.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let Vocabulary::Tokenizer(tokenizer) = &self.vocabulary else { return self.text(&[id]).into_bytes() };
        let added = tokenizer.get_added_tokens_decoder().contains_key(&id);
        match tokenizer.id_to_token(id).filter(|_| !added) {
            Some(token) => spelled_bytes(tokenizer, &token).unwrap_or_else(|| {
                // Decoded after another token, because a decoder may drop a leading space.
                let text = |ids: &[u32]| decode(tokenizer, ids, true).unwrap_or_default();
                let (one, two) = (text(&[id]), text(&[id, id]));
                two.strip_prefix(&one).unwrap_or(&one).as_bytes().to_vec()
            }),
            None => self.text(&[id]).into_bytes(),
        }
    }
}

/// Returns the byte of a token such as `<0xE2>`.
fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// Bytes that the byte-level alphabet represents by the characters from 256 on, in this order.
static NUMBERED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let alphabet = ByteLevel::alphabet();
    (0..=255).filter(|&byte| !alphabet.contains(&char::from(byte))).collect()
});

/// Returns the bytes of a token whose text encodes bytes, or `None` for other tokens.
fn spelled_bytes(tokenizer: &Tokenizer, token: &str) -> Option<Vec<u8>> {
    let by_level = |decoder: &DecoderWrapper| matches!(decoder, DecoderWrapper::ByteLevel(_));
    let is_byte_level = match tokenizer.get_decoder()? {
        DecoderWrapper::Sequence(all) => all.get_decoders().iter().any(by_level),
        decoder => by_level(decoder),
    };
    if !is_byte_level {
        return byte_of(token).map(|byte| vec![byte]);
    }
    token
        .chars()
        .map(|c| match u32::from(c) {
            code @ 0..256 => Some(code as u8),
            code => NUMBERED.get(code as usize - 256).copied(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ArithmeticConfig;
    use crate::language::ChatTemplate;
    use crate::problem::generated;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// Returns a language whose tokenizer has this vocabulary, model and decoder, and a special token `<end>`.
    fn language(pieces: &[&str], model: Value, decoder: Value) -> Language {
        let mut model = model;
        let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
        let names = bytes.chain(pieces.iter().map(|p| (*p).to_owned())).chain(["<end>".to_owned()]);
        model["vocab"] = if model["type"] == "Unigram" {
            names.map(|name| json!([name, -1.0])).collect()
        } else {
            Value::Object(names.zip(0..).map(|(name, id)| (name, json!(id))).collect())
        };
        let end = 256 + pieces.len();
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null, "post_processor": null,
            "added_tokens": [{"id": end, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
            "decoder": decoder, "model": model,
        });
        let files = vec![("tokenizer.json".to_owned(), file.to_string().into_bytes())];
        Language::from_files(files, Some(ChatTemplate::new("", "", "")), Vec::new(), &[]).unwrap()
    }

    const PIECES: [&str; 6] = ["\u{2581}", "\u{2581}a", "b", "\u{e9}", "\u{2581}\u{1f642}", "."];

    /// Returns a tokenizer like Llama 2's.
    fn llama() -> Language {
        language(
            &PIECES,
            json!({"type": "BPE", "merges": [], "byte_fallback": true}),
            json!({"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}),
        )
    }

    fn unigram() -> Language {
        language(
            &PIECES,
            json!({"type": "Unigram", "unk_id": 0, "byte_fallback": true}),
            json!({"type": "Sequence", "decoders": [
                {"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true}]}),
        )
    }

    fn byte_level() -> Language {
        generated::language(&ArithmeticConfig::default(), &[]).unwrap()
    }

    /// Returns the text that a stream shows after all tokens have arrived one by one.
    fn streamed(language: &Language, tokens: &[u32]) -> String {
        let mut longest = String::new();
        for n in 1..=tokens.len() {
            let text = language.answer(&tokens[..language.settled(&tokens[..n])]).unwrap();
            let text = text.trim_end_matches('\u{fffd}');
            assert!(
                text.len() < longest.len() || text.starts_with(&longest),
                "{longest:?} then {text:?} in {tokens:?}"
            );
            if text.len() > longest.len() {
                longest = text.to_owned();
            }
        }
        longest
    }

    fn check(language: &Language, ids: &[u16]) {
        let size = language.vocab_size() as u16;
        let tokens: Vec<u32> = ids.iter().map(|id| u32::from(id % size)).collect();
        let whole = language.answer(&tokens).unwrap();
        let text = streamed(language, &tokens);
        assert!(whole.starts_with(&text), "{text:?} of {whole:?} in {tokens:?}");
    }

    proptest! {
        #[test]
        fn what_a_stream_shows_is_the_beginning_of_the_whole_text(ids in prop::collection::vec(any::<u16>(), 0..24)) {
            thread_local!(static ALL: [Language; 3] = [llama(), unigram(), byte_level()]);
            ALL.with(|all| all.iter().for_each(|language| check(language, &ids)));
        }

        /// Mostly bytes of characters, some of them incomplete, between other tokens.
        #[test]
        fn runs_of_bytes_wait_for_their_end(parts in prop::collection::vec((0usize..8, 0usize..9), 0..12)) {
            let texts: [&[u8]; 3] = ["\u{1f642}".as_bytes(), "\u{df}".as_bytes(), "\u{6f22}".as_bytes()];
            let ids_of = |(index, cut): &(usize, usize)| -> Vec<u16> {
                 match texts.get(*index) {
                    Some(bytes) => bytes.iter().skip(cut / 5).take(cut % 5).map(|&b| u16::from(b)).collect(),
                    None => vec![256 + (*cut as u16) % 7],
                }
            };
            let ids: Vec<u16> = parts.iter().flat_map(ids_of).collect();
            thread_local!(static ALL: [Language; 2] = [llama(), unigram()]);
            ALL.with(|all| all.iter().for_each(|language| check(language, &ids)));
        }
    }

    #[test]
    fn a_run_of_bytes_is_settled_by_the_token_after_it() {
        let language = llama();
        let (e2, a, end) = (0xE2, 257, language.vocab_size() as u32 - 1);
        for (tokens, settled) in [
            (&[a][..], 1),
            (&[a, e2], 1),
            (&[a, e2, 0x82, 0xAC], 1),
            (&[a, e2, 0x82, 0xAC, a], 5),
            (&[e2, end, 0x82], 0),
            (&[a, end], 2),
            (&[], 0),
        ] {
            assert_eq!(language.settled(tokens), settled, "{tokens:?}");
        }
        assert_eq!(language.answer(&[a, e2, 0x82, 0xAC]).unwrap(), "a\u{20ac}");
        assert_eq!(language.answer(&[a, 0xC3, 0xA9, 0xFF]).unwrap(), "a\u{fffd}\u{fffd}\u{fffd}");
    }

    #[test]
    fn the_bytes_of_tokens_make_up_the_bytes_of_their_text() {
        let bytes = |language: &Language, tokens: &[u32]| -> Vec<u8> {
            tokens.iter().flat_map(|&id| language.token_bytes(id)).collect()
        };
        let language = byte_level();
        let text = " 12 + 3 = 15 \u{1f642}\u{df}\n<|im_end|>";
        let tokens = language.encode(text).unwrap();
        assert_eq!(bytes(&language, &tokens), text.as_bytes());
        assert!(
            tokens.len() > 12
                && tokens.iter().any(|&id| std::str::from_utf8(&language.token_bytes(id)).is_err())
        );
        for language in [llama(), unigram()] {
            let tokens = [257, 0xE2, 0x82, 0xAC, 260, 258];
            assert_eq!(bytes(&language, &tokens), " a\u{20ac} \u{1f642}b".as_bytes());
        }
    }
}
