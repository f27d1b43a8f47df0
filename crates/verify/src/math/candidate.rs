//! A place in a completion that may hold the answer.

/// The content of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// LaTeX strings, several if joined by connectives; each with or without a percent sign.
    Latex(Vec<(&'a str, bool)>),
    /// Contents of boxes that belong together.
    Boxed(Vec<&'a str>),
    /// A box that is not closed properly: its text from the brace on.
    Broken(&'a str),
    /// An expression without LaTeX.
    Expression(&'a str),
    /// Whole digits (with separators), fraction digits, percent.
    Number(&'a str, &'a str, bool),
    /// A bare number or expression longer than any answer.
    Oversized,
}

/// A candidate and its position.
#[derive(Debug, Clone)]
pub(super) struct Candidate<'a> {
    pub(super) found: Found<'a>,
    pub(super) start: usize,
    pub(super) end: usize,
}
