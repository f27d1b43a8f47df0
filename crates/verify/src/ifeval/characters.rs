//! Character classes of Python's two regular expression engines, and Python's tests of case, as far as they differ
//! from Rust.
//!
//! In the standard library's `re`, word characters are letters, numbers and the underscore; the `regex` module (through
//! which NLTK tokenises) adds combining marks.

use crate::python_text::regex;

fn is_in(class: &regex::Regex, c: char) -> bool {
    class.is_match(c.encode_utf8(&mut [0; 4]))
}

/// Returns whether `\w` of Python's `re` matches: letters, numbers and the underscore, but not combining marks.
pub(crate) fn is_word(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphanumeric() || c == '_' } else { is_in(regex!(r"[\p{L}\p{N}]"), c) }
}

/// Whether `\w` of Python's `regex` module matches. It follows Unicode, in which marks and joiners are word characters.
pub(crate) fn is_unicode_word(c: char) -> bool {
    if c.is_ascii() { is_word(c) } else { is_in(regex!(r"\w"), c) }
}

/// Returns whether `\d` of both engines matches: a decimal digit of any script.
pub(crate) fn is_digit(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_digit() } else { is_in(regex!(r"\d"), c) }
}

/// Returns whether a string has a letter of one case, but lacks letters of the other case and of title case.
fn is_cased(text: &str, of_case: fn(char) -> bool, of_other: fn(char) -> bool) -> bool {
    let other = |c: char| of_other(c) || !c.is_ascii() && is_in(regex!(r"\p{Lt}"), c);
    text.contains(of_case) && !text.contains(other)
}

/// Like `str.isupper()`: at least one capital letter, but no lower-case or title-case letter.
pub(crate) fn is_upper(text: &str) -> bool {
    is_cased(text, char::is_uppercase, char::is_lowercase)
}

/// Like `str.islower()`: at least one lower-case letter, but no capital or title-case letter.
pub(crate) fn is_lower(text: &str) -> bool {
    is_cased(text, char::is_lowercase, char::is_uppercase)
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
