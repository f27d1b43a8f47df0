//! Words as in NLTK's `word_tokenize`: Punkt sentences, then the Treebank substitutions.
//!
//! The substitutions are NLTK's patterns in NLTK's order: a later rule sees the spaces that an earlier one
//! inserted.

use super::characters::{is_unicode_word, is_word};
use super::punkt;
use crate::python_text::{is_space, words as split};
use regex::Regex;
use std::borrow::Cow;
use std::sync::LazyLock;

/// A pattern and its replacement.
type Rule = (&'static str, &'static str);

const STARTING_QUOTES: [Rule; 4] =
    [("[«“‘„]|`+", " $0 "), ("^\"", "``"), ("``", " $0 "), (r#"([ (\[{<])(?:"|'{2})"#, "$1 `` ")];

const PUNCTUATION: [Rule; 19] = [
    (r#"([^.])\.([\])}>"'»”’ ]*)\s*\z"#, "$1 . $2 "),
    (r"([:,])(\D)", " $1 $2"),
    // Python's `$` also matches before a last line feed.
    (r"([:,])(\n?)\z", " $1 $2"),
    (r"\.{2,}", " $0 "),
    (r"[;@#$%&\x{2012}-\x{2015}]", " $0 "),
    (r#"([^.])\.([\])}>"']*)\s*\z"#, "$1 .$2 "),
    ("[?!]", " $0 "),
    ("([^'])' ", "$1 ' "),
    (r"\*", " $0 "),
    (r"[\]\[(){}<>]", " $0 "),
    ("--", " $0 "),
    // Closing quotes are searched for between spaces.
    (r"\A", " "),
    (r"\z", " "),
    ("[»”’]", " $0 "),
    ("''", " $0 "),
    ("\"", " '' "),
    (r"\s+", " "),
    ("([^' ])('[sS]|'[mM]|'[dD]|') ", "$1 $2 "),
    ("([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", "$1 $2 "),
];

/// Joined words that count as two. Those with an apostrophe in front are searched for last.
const JOINED: [&str; 2] = ["(?i-u)cannot|d'ye|gimme|gonna|gotta|lemme|more'n|wanna", "(?i-u)'t(?:is|was)"];

/// Returns the words of a string.
pub(crate) fn words(text: &[char]) -> Vec<String> {
    let mut found = Vec::new();
    for sentence in punkt::sentences(text) {
        // If a boundary was moved past the end of its sentence, the range is invalid and is skipped.
        let Some(sentence) = text.get(sentence) else { continue };
        found.extend(split(&substituted(sentence.iter().collect())).map(str::to_owned));
    }
    found
}

fn substituted(text: String) -> String {
    static QUOTES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| STARTING_QUOTES.map(compiled).into());
    static OTHERS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| PUNCTUATION.map(compiled).into());
    let text = opening_apostrophes(&replaced(text, &QUOTES));
    split_joined(replaced(text, &OTHERS))
}

fn compiled((pattern, replacement): Rule) -> (Regex, &'static str) {
    (Regex::new(pattern).expect("a constant pattern"), replacement)
}

fn replaced(text: String, rules: &[(Regex, &str)]) -> String {
    rules.iter().fold(text, |text, (pattern, replacement)| match pattern.replace_all(&text, *replacement) {
        Cow::Owned(changed) => changed,
        Cow::Borrowed(_) => text,
    })
}

/// Separates an apostrophe from the word that it opens, unless that word is a clitic such as `'re`.
fn opening_apostrophes(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        out.push(c);
        let opens = c == '\'' && !is_unicode_word(before);
        before = c;
        if opens {
            let rest = &text[at + 1..];
            let word = &rest[..rest.find(|c| !is_unicode_word(c)).unwrap_or(rest.len())];
            let clitics = ["re", "ve", "ll", "m", "t", "s", "d", "n"];
            if !word.is_empty() && !clitics.iter().any(|clitic| word.eq_ignore_ascii_case(clitic)) {
                out.push(' ');
            }
        }
    }
    out
}

/// Splits joined words: `cannot` becomes `can not`.
fn split_joined(mut text: String) -> String {
    static PATTERNS: LazyLock<[Regex; 2]> = LazyLock::new(|| JOINED.map(|joined| compiled((joined, "")).0));
    for pattern in &*PATTERNS {
        let mut out = String::with_capacity(text.len() + 16);
        let mut copied = 0;
        for found in pattern.find_iter(&text) {
            let word = found.as_str();
            let before = text[..found.start()].chars().next_back();
            let after = text[found.end()..].chars().next();
            let begins =
                if word.starts_with('\'') { before == Some(' ') } else { !before.is_some_and(is_word) };
            let ends = match word.eq_ignore_ascii_case("wanna") {
                true => after.is_some_and(is_space),
                false => !after.is_some_and(is_word),
            };
            if begins && ends {
                let middle = word.find('\'').map_or(3, |at| if at == 0 { 2 } else { at });
                let (first, second) = word.split_at(middle);
                out.extend([&text[copied..found.start()], " ", first, " ", second, " "]);
                copied = found.end();
            }
        }
        out.push_str(&text[copied..]);
        text = out;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_parted_as_the_reference_parts_them() {
        for (text, wanted) in [
            // Clitics and negations are words of their own.
            ("I can't WON'T they'll", "I|ca|n't|WO|N'T|they|'ll"),
            ("You cannot.", "You|can|not|."),
            ("\"Hi,\" she said -- (NASA).", "``|Hi|,|''|she|said|--|(|NASA|)|."),
            ("costs $3,500.75: ok", "costs|$|3,500.75|:|ok"),
        ] {
            assert_eq!(words(&text.chars().collect::<Vec<_>>()).join("|"), wanted, "{text}");
        }
    }
}
