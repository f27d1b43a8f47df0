//! Decides whether the sentence around a value states the value as the answer, for every kind of problem.
//!
//! [`pieces`] splits the text around a value into words and signs. Only known forms state an answer: the value begins
//! the sentence or follows an equals sign, a colon or a stating word ([`lead`](mod@lead)), and a counted noun, a reason
//! or the end of the sentence follows it ([`after`]). The text before it, in its sentence or in the line above, may not
//! deny the value, suppose it or attribute it to somebody else ([`denial`]).

mod after;
mod denial;
mod lead;
mod pieces;

use crate::forms::form;
use crate::python_text::regex;

pub(crate) use after::{is_correction, is_ended, is_redirected, praises};
pub(crate) use denial::{is_denied_before, is_struck};
pub(crate) use lead::lead;
use pieces::{Kind, Roles};
pub(crate) use pieces::{Pieces, is_decoration, is_neutral};

/// Maximum distance in bytes from a value at which its sentence or formula begins or ends.
pub(crate) const FAR: usize = 600;

/// Returns the start of the last [`FAR`] bytes of a string.
pub(crate) fn low_end(text: &str) -> usize {
    text.ceil_char_boundary(text.len().saturating_sub(FAR))
}

/// Returns the text after the last end of a sentence or line in a string.
pub(crate) fn sentence(text: &str) -> &str {
    let ends = regex!(r"(?i)(\b(?:e\.g|i\.e|cf|vs|resp|mrs?|dr|no|eq))?(?:[.!?]\s|\n)").captures_iter(text);
    let end = ends.filter(|end| end.get(1).is_none() || end[0].ends_with('\n')).last();
    &text[end.and_then(|end| end.get(0)).map_or(0, |end| end.end())..]
}

/// Returns the last sentence or line of the last [`FAR`] bytes of a string.
pub(crate) fn sentence_before(text: &str) -> &str {
    sentence(&text[low_end(text)..])
}

/// Whether a sentence cites a source other than the problem or mathematics, as in `according to Bob`, or a wrong one.
fn cites(said: &str) -> bool {
    regex!(r"(?i)\baccording to (.*)$").captures(said).is_some_and(|found| {
        !form!("sources").is_match(&found[1])
            || regex!(r"(?i)\b(?:wrong|false|incorrect)\b").is_match(&found[1])
    })
}

/// Whether a string consists of neutral words, as in `the final`.
pub(crate) fn is_introduction(said: &str) -> bool {
    let words = |c: char| c.is_alphabetic() || c.is_whitespace() || "*:".contains(c);
    said.chars().all(words)
        && said.split(|c: char| !c.is_alphabetic()).all(|word| word.is_empty() || is_neutral(word))
}

/// Whether the text between two boxes lists both: it doesn't deny a box, compute with the boxes or compare them.
pub(crate) fn lists(between: &Pieces<'_>) -> bool {
    if matches!(&between.all[..], [word] if word.text == "to") {
        return false;
    }
    between.all.iter().all(|piece| match piece.kind {
        Kind::Word => {
            (!piece.is_word(Roles::DENIES) || matches!(piece.text, "or" | "either"))
                && !matches!(
                    &*piece.text.to_lowercase(),
                    "but" | "minus" | "plus" | "times" | "from" | "over" | "by" | "mod"
                )
        }
        Kind::Sign => !"<>+-−*/^×÷≤≥≠~".contains(piece.text.chars().next().unwrap_or(' ')),
        Kind::Command => {
            !regex!(r"^\\(?:leq?|geq?|neq?|cdot|times|pm|mp|cup|cap|div|to|lt|gt|sim)$").is_match(piece.text)
        }
        Kind::Number => true,
    })
}
