//! Replaces phrases by one standard spelling each: statements in words, dates, times of day and durations.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::words::section;
use crate::python_text::{pattern, regex};

/// Patterns with their replacements.
static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let lines = section("phrases").lines();
    let rules = lines.filter_map(|line| line.split_once(" => "));
    rules.map(|(form, spelling)| (pattern(&format!("(?i){form}")), spelling)).collect()
});

/// Returns the standard spelling of an answer that is a known phrase, and any other answer unchanged.
pub(super) fn standard(answer: &str) -> Cow<'_, str> {
    const LONGEST: usize = 160;
    if answer.len() > LONGEST || !answer.contains(|c: char| c.is_ascii_alphabetic() || c == '-') {
        return answer.into();
    }
    let text =
        regex!(r"\^\s*\{?\s*(?:\\(?:text|mathrm)\s*\{)?\s*(st|nd|rd|th)\s*\}*").replace_all(answer, "$1");
    let text = regex!(r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}").replace_all(&text, "$1");
    let text = regex!(r"\{([+-]?[0-9]+)\}").replace_all(&text, "$1");
    let text = regex!(r"\\[ ,;:!]|\\q?quad\b|[~$\s]+|\*\*").replace_all(&text, " ");
    let words = regex!(r"\s+").replace_all(text.trim_matches([' ', '.']), " ");
    if !regex!(r"^[\w ,.:'’()-]+$").is_match(&words) {
        return answer.into();
    }
    let mut spelling = words.clone();
    for (form, replacement) in RULES.iter() {
        if let Cow::Owned(next) = form.replace(&spelling, *replacement) {
            spelling = next.into();
        }
    }
    match spelling.strip_prefix('\\') {
        _ if spelling == words => answer.into(),
        Some(latex) => latex.to_owned().into(),
        None => format!("\\text{{{}}}", spelling.trim()).into(),
    }
}
