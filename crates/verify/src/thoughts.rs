//! The thoughts of a response, and the answer that follows them.

use serde::{Deserialize, Serialize};

/// The tags around a model's thoughts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tags {
    /// Begins the thoughts.
    pub open: String,
    /// Ends the thoughts.
    pub close: String,
    /// Whether the prompt ends with the opening tag, so that a response begins within its thoughts.
    pub opened: bool,
}

/// `<think>` and `</think>`.
impl Default for Tags {
    fn default() -> Self {
        Self { open: "<think>".to_owned(), close: "</think>".to_owned(), opened: false }
    }
}

/// The tags of known models: Qwen3, DeepSeek-R1 and most others; Magistral; Seed-OSS; Command A; Kimi; Gemma 4;
/// OpenThinker.
const KNOWN: [(&str, &str); 10] = [
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("◁think▷", "◁/think▷"),
    ("<|channel>thought", "<channel|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
];

/// Returns whether a token is a known model's tag, or the beginning of one up to its bracket. Such a token is decoded to
/// text even if it is a special token.
pub fn is_tag(token: &str) -> bool {
    let opens =
        |open: &str| open.strip_prefix(token).is_some_and(|rest| token.ends_with('>') || rest.is_empty());
    KNOWN.iter().any(|(open, close)| opens(open) || *close == token)
}

impl Tags {
    /// Reads `OPEN,CLOSE`.
    /// Fails if a tag is missing, or the end tag would match inside of the start tag.
    pub fn parse(text: &str) -> Result<Self, String> {
        let error = |why: &str| format!("expected OPEN,CLOSE such as [THINK],[/THINK], found {text:?}{why}");
        let (open, close) = text.split_once(',').ok_or_else(|| error(""))?;
        let (open, close) = (open.trim(), close.trim());
        if open.is_empty() || close.is_empty() {
            return Err(error(" with an empty tag"));
        }
        if open.contains(close) {
            return Err(error(", whose first tag contains the second"));
        }
        Ok(Self { open: open.to_owned(), close: close.to_owned(), opened: false })
    }

    /// Returns the known tags whose closing tag occurs in a chat template, or `None`.
    pub fn of_template(source: &str) -> Option<Self> {
        let (open, close) = KNOWN.into_iter().find(|(_, close)| source.contains(close))?;
        Some(Self { open: open.to_owned(), close: close.to_owned(), opened: false })
    }

    /// Returns the answer in a response: the text after the last closing tag, with or without an opening tag before it.
    ///
    /// `None` if the thoughts don't end: an opening tag without a closing one after it, or no closing tag at all where the
    /// prompt opened the thoughts.
    pub fn answer<'a>(&self, response: &'a str) -> Option<&'a str> {
        let answer = match response.rfind(&self.close) {
            Some(at) => &response[at + self.close.len()..],
            None if self.opened => return None,
            None => response,
        };
        (!answer.contains(&self.open)).then_some(answer)
    }
}
