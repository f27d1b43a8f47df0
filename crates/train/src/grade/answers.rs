//! The answer that a completion gives, as text: what majority votes are counted by.
//!
//! Verifiers decide what is correct; here only wrong answers are told apart. Two spellings of one wrong
//! answer that differ by more than spaces, dollar signs and sizing commands count as two votes.

use crate::problem::dataset::{TaskKind, Truth};

/// Longest answer kept; a longer one is no answer anyone repeats.
const LONGEST: usize = 200;

/// The answer in `text`: `None` where this kind of problem has no votes, `Some(None)` where there is no answer.
pub fn answer(kind: TaskKind, truth: &Truth, text: &str) -> Option<Option<String>> {
    if !has_votes(truth) {
        return None;
    }
    let found = match kind {
        TaskKind::SynLogic => tagged(text).or_else(|| last_boxed(text)),
        _ => last_boxed(text).or_else(|| tagged(text)),
    };
    Some(found.map(plain).filter(|a| !a.is_empty() && a.len() <= LONGEST))
}

/// Whether majority votes make sense for this truth: one short answer.
fn has_votes(truth: &Truth) -> bool {
    matches!(truth, Truth::Math { .. } | Truth::Choice { .. } | Truth::SynLogic { .. })
}

/// What stands in the last `\boxed{...}` whose braces close.
fn last_boxed(text: &str) -> Option<&str> {
    let mut end = text.len();
    while let Some(at) = text[..end].rfind("\\boxed{") {
        let inside = &text[at + "\\boxed{".len()..];
        let mut depth = 1usize;
        for (i, c) in inside.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => continue,
            }
            if depth == 0 {
                return Some(&inside[..i]);
            }
        }
        end = at;
    }
    None
}

/// What stands in the last `<answer>` tags.
fn tagged(text: &str) -> Option<&str> {
    let (_, after) = text.rsplit_once("<answer>")?;
    after.split_once("</answer>").map(|(inside, _)| inside)
}

fn plain(answer: &str) -> String {
    let mut text = answer.to_owned();
    for noise in ["\\left", "\\right", "\\,", "\\;", "\\!", "$", "dfrac", "tfrac"] {
        text = text.replace(noise, if noise.ends_with("frac") { "frac" } else { "" });
    }
    text.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_closed_box_is_the_answer() {
        let truth = Truth::Math { gold: "1".into() };
        for (text, wanted) in [
            ("so \\boxed{1} or \\boxed{\\dfrac{1}{2}}.", Some("\\frac{1}{2}")),
            ("\\boxed{ 1, 2 } then \\boxed{3", Some("1,2")),
            ("no box", None),
            ("\\boxed{}", None),
        ] {
            assert_eq!(answer(TaskKind::Math, &truth, text), Some(wanted.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn instructions_have_no_votes() {
        let truth = Truth::IfEval { instruction_id_list: vec![], kwargs: vec![] };
        assert_eq!(answer(TaskKind::IfEval, &truth, "\\boxed{1}"), None);
    }
}
