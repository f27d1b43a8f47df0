//! The character classes of Python's two regular expression engines, and its cases of letters, where they differ from
//! Rust's.
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

/// The simple lower case of one character, which `re` compares if it ignores case.
pub(crate) fn simple_lower(c: char) -> char {
    if c.is_ascii() { c.to_ascii_lowercase() } else { c.to_lowercase().next().unwrap_or(c) }
}

/// The simple upper case of one character; a character whose upper case has several characters is unchanged.
pub(crate) fn simple_upper(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(u), None) => u,
        _ => c,
    }
}

/// Lower-case characters that `re` treats as equal if it ignores case, such as the dotless i and i.
/// Source: CPython 3.11, the table of extra cases of its `re` module.
const EQUAL: [&[char]; 24] = [
    &['i', '\u{131}'],
    &['s', '\u{17f}'],
    &['\u{b5}', '\u{3bc}'],
    &['\u{345}', '\u{3b9}', '\u{1fbe}'],
    &['\u{390}', '\u{1fd3}'],
    &['\u{3b0}', '\u{1fe3}'],
    &['\u{3b2}', '\u{3d0}'],
    &['\u{3b5}', '\u{3f5}'],
    &['\u{3b8}', '\u{3d1}'],
    &['\u{3ba}', '\u{3f0}'],
    &['\u{3c0}', '\u{3d6}'],
    &['\u{3c1}', '\u{3f1}'],
    &['\u{3c2}', '\u{3c3}'],
    &['\u{3c6}', '\u{3d5}'],
    &['\u{432}', '\u{1c80}'],
    &['\u{434}', '\u{1c81}'],
    &['\u{43e}', '\u{1c82}'],
    &['\u{441}', '\u{1c83}'],
    &['\u{442}', '\u{1c84}', '\u{1c85}'],
    &['\u{44a}', '\u{1c86}'],
    &['\u{463}', '\u{1c87}'],
    &['\u{a64b}', '\u{1c88}'],
    &['\u{1e61}', '\u{1e9b}'],
    &['\u{fb05}', '\u{fb06}'],
];

/// The other characters that `re` treats as equal to `lower` if it ignores case.
pub(crate) fn also_equal(lower: char) -> impl Iterator<Item = char> {
    let class = EQUAL.iter().find(|class| class.contains(&lower));
    class.into_iter().flat_map(|class| class.iter().copied()).filter(move |c| *c != lower)
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
