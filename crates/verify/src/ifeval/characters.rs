//! The character classes of Python's two regular expression engines, and its tests of case, where they differ from Rust's.
//!
//! In the standard library's `re`, word characters are letters, numbers and the underscore; the `regex` module (through
//! which NLTK tokenises) adds combining marks.

use regex_syntax::hir::{Class, HirKind};
use std::sync::OnceLock;

/// A set of characters as sorted inclusive ranges.
#[derive(Debug)]
struct Ranges(Vec<(char, char)>);

impl Ranges {
    /// The class written as a pattern of the `regex` syntax, for example `[\p{L}]`.
    fn of(class: &str) -> Self {
        let hir = regex_syntax::parse(class).expect("a fixed, valid class");
        match hir.kind() {
            HirKind::Class(Class::Unicode(set)) => {
                Self(set.ranges().iter().map(|r| (r.start(), r.end())).collect())
            }
            other => unreachable!("{class} is not a Unicode class: {other:?}"),
        }
    }

    fn contains(&self, c: char) -> bool {
        let after = self.0.partition_point(|&(_, end)| end < c);
        self.0.get(after).is_some_and(|&(start, _)| start <= c)
    }
}

/// `\w` of Python's `re`: letters, numbers and the underscore, no combining marks.
pub(crate) fn is_word(c: char) -> bool {
    static WORD: OnceLock<Ranges> = OnceLock::new();
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || c == '_';
    }
    WORD.get_or_init(|| Ranges::of(r"[\p{L}\p{N}]")).contains(c)
}

/// `\w` of Python's `regex` module, which follows Unicode: marks and joiners are word characters.
pub(crate) fn is_unicode_word(c: char) -> bool {
    static WORD: OnceLock<Ranges> = OnceLock::new();
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || c == '_';
    }
    WORD.get_or_init(|| Ranges::of(r"\w")).contains(c)
}

/// `\d` of both engines: a decimal digit of any script.
pub(crate) fn is_digit(c: char) -> bool {
    static DIGIT: OnceLock<Ranges> = OnceLock::new();
    if c.is_ascii() {
        return c.is_ascii_digit();
    }
    DIGIT.get_or_init(|| Ranges::of(r"[\p{Nd}]")).contains(c)
}

/// Whether the character is of general category Lt, such as U+01C5.
fn is_title(c: char) -> bool {
    matches!(c,
        '\u{1c5}' | '\u{1c8}' | '\u{1cb}' | '\u{1f2}'
        | '\u{1f88}'..='\u{1f8f}' | '\u{1f98}'..='\u{1f9f}' | '\u{1fa8}'..='\u{1faf}'
        | '\u{1fbc}' | '\u{1fcc}' | '\u{1ffc}')
}

/// `str.isupper()`: at least one capital letter, no small and no title-case letter.
pub(crate) fn is_upper(text: &str) -> bool {
    let mut cased = false;
    for c in text.chars() {
        if c.is_lowercase() || is_title(c) {
            return false;
        }
        cased |= c.is_uppercase();
    }
    cased
}

/// `str.islower()`: at least one small letter, no capital and no title-case letter.
pub(crate) fn is_lower(text: &str) -> bool {
    let mut cased = false;
    for c in text.chars() {
        if c.is_uppercase() || is_title(c) {
            return false;
        }
        cased |= c.is_lowercase();
    }
    cased
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_two_python_engines_differ_in_marks() {
        assert!(is_word('½') && is_unicode_word('_') && is_word('é'));
        assert!(!is_word('\u{94d}') && is_unicode_word('\u{94d}'));
        assert!(!is_word('\u{fe0f}') && is_unicode_word('\u{fe0f}'));
    }

    #[test]
    fn case_tests_need_a_cased_letter_and_refuse_title_case() {
        assert!(is_upper("ABC 1!") && !is_upper("123") && !is_upper("AbC") && !is_upper("\u{1c5}"));
        assert!(is_lower("abc 1!") && !is_lower("") && !is_lower("aB"));
    }
}
