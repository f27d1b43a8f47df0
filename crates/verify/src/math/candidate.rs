//! A part of a completion that may be the answer.

/// The content of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// LaTeX strings, several if joined by connectives, each with whether a percent sign follows.
    Latex(Vec<(&'a str, bool)>),
    /// Contents of boxes that together are one answer.
    Boxed(Vec<&'a str>),
    /// A box that isn't closed properly: the text from its brace on.
    Broken(&'a str),
    /// An expression without LaTeX.
    Expression(&'a str),
    /// A number: its whole digits (with separators), its fraction digits, and whether a percent sign follows.
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
