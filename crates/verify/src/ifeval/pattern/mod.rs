//! Keywords as regular expressions with the meaning of Python's `re`, with bounded work.
//!
//! IFEval passes its keywords to `re` unescaped. Rust's engines differ from it in word characters, in case folding and
//! in syntax, so this module has a small engine: a backtracking matcher that stores failed states. Its work is linear
//! in (program x text), except for back-references and nested look-arounds, which have a step budget.
//!
//! Not supported, and reported as an error: conditional groups `(?(1)...)`, named characters `\N{...}`, and the flags
//! a, L and x.

mod matcher;
mod parser;
mod program;

use std::ops::Range;
use thiserror::Error;

/// Why a pattern has no result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum PatternError {
    /// Python's `re` would refuse it, or it uses what is not supported here.
    #[error("the keyword is not a usable regular expression: {0}")]
    Syntax(String),
    /// Matching would take more than the step budget.
    #[error("the keyword's match took more than its step budget")]
    Budget,
}

/// A text prepared for matching: its characters and their simple lower case.
#[derive(Debug)]
pub(crate) struct Text {
    chars: Vec<char>,
    lower: Vec<char>,
}

impl Text {
    pub(crate) fn new(chars: Vec<char>) -> Self {
        let lower = chars.iter().map(|&c| super::characters::simple_lower(c)).collect();
        Self { chars, lower }
    }

    pub(crate) fn chars(&self) -> &[char] {
        &self.chars
    }
}

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    program: program::Program,
}

impl Pattern {
    /// Compiles a pattern like `re.compile(pattern, re.IGNORECASE)`, or without the flag.
    pub(crate) fn new(pattern: &str, ignore_case: bool) -> Result<Self, PatternError> {
        Ok(Self { program: program::Program::of(&parser::parse(pattern, ignore_case)?)? })
    }

    /// The number of capturing groups.
    pub(crate) fn groups(&self) -> usize {
        self.program.groups
    }

    /// `re.search(...) is not None`.
    pub(crate) fn is_found(&self, text: &Text) -> Result<bool, PatternError> {
        Ok(matcher::Matcher::new(&self.program, text).search(0)?.is_some())
    }

    /// `len(re.findall(...))`.
    pub(crate) fn count(&self, text: &Text) -> Result<usize, PatternError> {
        let mut matcher = matcher::Matcher::new(&self.program, text);
        let mut count = 0;
        let mut from = 0;
        let mut empty_at = None;
        while from <= text.chars.len() {
            let Some(Range { start, end }) = matcher.search_except(from, empty_at)? else { break };
            count += 1;
            // Right after a match only a non-empty one may follow at the end of an empty one.
            empty_at = (start == end).then_some(end);
            from = end;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(pattern: &str, text: &str) -> usize {
        Pattern::new(pattern, true)
            .unwrap()
            .count(&Text::new(text.chars().collect()))
            .unwrap_or_else(|e| panic!("{pattern}: {e}"))
    }

    #[test]
    fn patterns_count_as_in_python() {
        // Expected values: len(re.findall(pattern, text, re.IGNORECASE)) of CPython 3.11.
        for (pattern, text, expected) in [
            ("knock", "Knock, KNOCK! unknocked", 3),
            (r"\bcat\b", "cat Cat concat cat's", 3),
            ("a.c", "abc a\nc aXc", 2),
            ("a*", "baac", 4),
            ("a*?", "baac", 7),
            ("", "abc", 4),
            ("(a|b)+c", "ababc bc c", 2),
            ("[a-c]{2}", "abcabc", 3),
            ("[^a-c]", "abcD\n", 2),
            ("x|", "axb", 4),
            (r"\d+", "12 ٣٤ x5", 3),
            (r"\w+", "नमस्ते a_b", 3),
            ("^a", "a\na", 1),
            ("(?m)^a", "a\na", 2),
            ("a$", "a\n", 1),
            (r"a\Z", "a\n", 0),
            ("i", "İıI", 3),
            ("s", "ſ", 1),
            (r"(\w)\1", "aab BB abc", 2),
            ("(?:ab){2,}", "ababab ab", 1),
            ("a{,2}b", "aaab", 1),
            ("a{2", "a{2", 1),
            ("C++", "cc C c", 3),
            ("a(?=b)", "ab ac", 1),
            ("a(?!b)", "ab ac", 1),
            ("(?<=a)b", "ab cb", 1),
            ("(?<!a)b", "ab cb", 1),
            ("(?>a+)b", "aab", 1),
            ("(?>a|ab)c", "abc", 0),
            ("(?P<x>a)(?P=x)", "aa", 1),
            (r"\.", "a.b.", 2),
            ("[]a]", "]a", 2),
            (r"[\w.-]+@x", "me.too-2@x", 1),
            ("(a*)*b", "aaab", 1),
            ("(?i:A)b", "aB", 1),
            ("mother-in-law", "Mother-in-Law", 1),
            ("stra\u{df}e", "STRA\u{1e9e}E", 1),
        ] {
            assert_eq!(count(pattern, text), expected, "{pattern:?} in {text:?}");
        }
    }

    #[test]
    fn what_python_refuses_is_refused() {
        for pattern in [
            "(", ")", "a)", "[a", "*a", "+", "?", "a**", "a{3,2}", r"\q", r"a\", "(?P<1>a)", r"(a)\2",
            "[z-a]", "(?<=a+)b", "(?z)a", "a(?i)b", "(?P=n)", "(?(1)a)", r"\N{DASH}", "a|*",
        ] {
            assert!(matches!(Pattern::new(pattern, true), Err(PatternError::Syntax(_))), "{pattern:?}");
        }
    }

    #[test]
    fn explosive_patterns_end_in_bounded_work() {
        let text = Text::new("a".repeat(5000).chars().collect());
        for pattern in ["(a+)+$", "(a|a)*b", "(a*)*b", "((a+)*)*c", "(?:a|aa)+$", "(.*)*x"] {
            assert!(Pattern::new(pattern, true).unwrap().is_found(&text).is_ok(), "{pattern}");
        }
        for pattern in [r"(a+)+\1b", r"(a*)(a*)(a*)\1\2\3b"] {
            assert_eq!(
                Pattern::new(pattern, true).unwrap().is_found(&text),
                Err(PatternError::Budget),
                "{pattern}"
            );
        }
    }

    #[test]
    fn nested_repeats_cannot_make_a_huge_program() {
        assert!(matches!(
            Pattern::new("((((a{1000}){1000}){1000}){1000}){1000}", true),
            Err(PatternError::Syntax(_))
        ));
        assert!(Pattern::new(&"(".repeat(100_000), true).is_err());
    }

    #[test]
    fn nested_repeats_of_nothing_are_not_counted_out() {
        let nothing = format!("{}{}", "(?:".repeat(55), "){2}".repeat(55));
        assert_eq!(count(&nothing, "ab"), 3);
        let padded = format!("(?:a{}){{9000}}", "(?:)".repeat(1000));
        assert!(matches!(Pattern::new(&padded, true), Err(PatternError::Syntax(_))));
    }

    #[test]
    fn a_first_character_is_looked_for_behind_conditions_and_groups() {
        for (pattern, text, expected) in [
            (r"\bcat\b", "cat concat Cat", 2),
            (r"(\bS)", "s \u{17f} as", 2),
            (r"^(?:b)", "b\nb", 1),
            (r"(?m)^(b)", "b\nab\nb", 2),
            (r"\b", "ab c", 4),
            (r"$", "ab", 1),
            (r"\bx*", "ab", 2),
            (r"\s*n:.*$", "a \u{2003}N:b\nc", 0),
            (r"\s*n:.*", "a \u{2003}N:b\nc", 1),
            ("(?:é|[^a-z])+x", "aÉ1x", 1),
            ("(?:a|b?)*?c", "abac c", 2),
        ] {
            assert_eq!(count(pattern, text), expected, "{pattern:?} in {text:?}");
        }
    }
}
