//! Strings that end a completion. They may cross token boundaries.
//!
//! A check decodes only the last tokens, as many as the longest string needs, so its cost doesn't depend on the length
//! of the completion.

use crate::language::decode;
use tokenizers::Tokenizer;

/// Number of additional tokens to decode. A tokenizer may decode the first token differently, and the first bytes may
/// belong to an incomplete character.
const MARGIN: usize = 4;

/// Tokens and strings that end a completion. They are part of the completion.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stop {
    /// Tokens, beginning with the model's end tokens.
    pub tokens: Vec<u32>,
    /// Strings.
    pub texts: StopTexts,
}

/// Strings that end a completion.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StopTexts {
    texts: Vec<String>,
}

impl StopTexts {
    /// Checks and stores the strings. `key` is their configuration key, for messages. Fails if a string is empty,
    /// because it would end every completion immediately.
    pub fn new(key: &str, texts: Vec<String>) -> anyhow::Result<Self> {
        if texts.iter().any(String::is_empty) {
            bad_input!("{key}: a string is empty; every string needs at least one character");
        }
        Ok(Self { texts })
    }

    /// Returns the strings.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns whether the list of strings is empty.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Returns whether the last token completed one of the strings.
    pub fn ended(&self, tokenizer: &Tokenizer, completion: &[u32]) -> bool {
        let Some(longest) = self.texts.iter().map(String::len).max() else { return false };
        // A token is at least one byte, except for unknown ids, which make the tail longer.
        let mut tail = longest + MARGIN;
        loop {
            let from = completion.len().saturating_sub(tail);
            // Special tokens are included, because a string may contain one.
            let Ok(text) = decode(tokenizer, &completion[from..], true) else { return false };
            if from == 0 || text.len() >= longest + MARGIN {
                return self.first(&text).is_some();
            }
            tail *= 2;
        }
    }

    /// Returns the text before the first occurrence of a string, or the whole text if no string occurs.
    pub fn cut<'a>(&self, text: &'a str) -> &'a str {
        self.first(text).map_or(text, |at| &text[..at])
    }

    fn first(&self, text: &str) -> Option<usize> {
        self.texts.iter().filter_map(|t| text.find(t.as_str())).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ArithmeticConfig;
    use crate::problem::generated;
    use proptest::prelude::*;

    fn tokenizer() -> Tokenizer {
        let folder = tempfile::tempdir().unwrap();
        generated::language(&ArithmeticConfig::default(), &[]).unwrap().write(folder.path()).unwrap();
        Tokenizer::from_file(folder.path().join("tokenizer.json")).unwrap()
    }

    fn stop(texts: &[&str]) -> StopTexts {
        StopTexts::new("task.stop", texts.iter().map(|t| (*t).to_owned()).collect()).unwrap()
    }

    /// Returns the first length at which a completion has ended.
    fn end(stop: &StopTexts, tokenizer: &Tokenizer, tokens: &[u32]) -> Option<usize> {
        (1..=tokens.len()).find(|&n| stop.ended(tokenizer, &tokens[..n]))
    }

    #[test]
    fn a_text_ends_a_completion_with_the_token_that_completes_it() {
        let tokenizer = tokenizer();
        let text = "12 + 3 = 15\n\\boxed{15}\nQ: next";
        let tokens = tokenizer.encode(text, false).unwrap().get_ids().to_vec();
        for phrase in ["\nQ:", "{15}", "5\n\\b", " "] {
            let stop = stop(&["never there", phrase]);
            let at = end(&stop, &tokenizer, &tokens).unwrap();
            let before = tokenizer.decode(&tokens[..at - 1], false).unwrap();
            let after = tokenizer.decode(&tokens[..at], false).unwrap();
            assert!(!before.contains(phrase) && after.contains(phrase), "{phrase:?}: {after:?}");
            assert_eq!(stop.cut(&after), &text[..text.find(phrase).unwrap()]);
        }
        assert_eq!(end(&stop(&["zebra"]), &tokenizer, &tokens), None);
        assert!(!StopTexts::default().ended(&tokenizer, &tokens));
    }

    #[test]
    fn a_text_may_name_a_special_token_and_characters_of_several_bytes() {
        let tokenizer = tokenizer();
        let tokens = tokenizer.encode("ja 🙂<|im_end|>\nno", false).unwrap().get_ids().to_vec();
        for phrase in ["🙂<", "<|im_end|>\n"] {
            let at = end(&stop(&[phrase]), &tokenizer, &tokens).unwrap();
            assert!(tokenizer.decode(&tokens[..at], false).unwrap().contains(phrase));
            assert!(!tokenizer.decode(&tokens[..at - 1], false).unwrap().contains(phrase));
        }
    }

    #[test]
    fn an_empty_text_is_refused() {
        let error = StopTexts::new("--stop", vec![String::new()]).unwrap_err();
        assert!(format!("{error:#}").starts_with("--stop: "));
    }

    proptest! {
        #[test]
        fn the_tail_finds_what_the_whole_text_holds(text in "[ab 🙂é\n]{0,60}", phrase in "[ab 🙂é\n]{1,6}") {
            thread_local!(static TOKENIZER: Tokenizer = tokenizer());
            TOKENIZER.with(|tokenizer| {
                let tokens = tokenizer.encode(text.as_str(), false).unwrap().get_ids().to_vec();
                let whole = (1..=tokens.len())
                    .find(|&n| tokenizer.decode(&tokens[..n], false).unwrap().contains(&phrase));
                assert_eq!(end(&stop(&[&phrase]), tokenizer, &tokens), whole);
            });
        }
    }
}
