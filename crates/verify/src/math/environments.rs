//! The LaTeX environments of a string.

use std::collections::VecDeque;

use regex::Regex;

use super::budget::MAX_CANDIDATES;
use super::candidate::{Candidate, Found};
use crate::python_text::regex;

/// Returns the last [`MAX_CANDIDATES`] LaTeX environments of a string, in order.
pub(super) fn environments(text: &str) -> Vec<Candidate<'_>> {
    let mut last = VecDeque::with_capacity(MAX_CANDIDATES);
    let mut ahead = Ahead::default();
    let mut from = 0;
    while let Some(found) = first(text, from, text.len(), &mut ahead) {
        from = found.end;
        if last.len() == MAX_CANDIDATES {
            last.pop_front();
        }
        last.push_back(found);
    }
    last.into()
}

/// Returns the first LaTeX environment that starts in `from..=to`, with the environments that connectives such as "and"
/// join to it, up to six in total.
pub(super) fn first<'a>(text: &'a str, from: usize, to: usize, ahead: &mut Ahead) -> Option<Candidate<'a>> {
    let bytes = text.as_bytes();
    let mut at = from;
    let first = loop {
        let place = at + bytes[at..].iter().position(|byte| matches!(byte, b'$' | b'\\' | b'['))?;
        // A bracket in spaces and a sign start one before.
        if place > to + 1 {
            return None;
        }
        match environment(text, place, at, ahead) {
            Some(first) => break first,
            None => at = place + 1,
        }
    };
    let start = first.start;
    if start > to {
        return None;
    }
    let mut end = first.end;
    let mut contents = vec![(first.content, first.percent)];
    while contents.len() < 6 {
        let Some(next) = joined(text, end, ahead) else { break };
        contents.push((next.content, next.percent));
        end = next.end;
    }
    Some(Candidate { found: Found::Latex(contents), start, end })
}

/// Delimiters that don't occur in the rest of the text, so that they aren't searched for again.
#[derive(Default)]
pub(super) struct Ahead {
    bracket: bool,
    /// End of a line in which no parenthesis closes.
    paren_line: usize,
}

pub(super) struct Environment<'a> {
    pub(super) content: &'a str,
    /// Whether a percent sign or a word for percent follows.
    pub(super) percent: bool,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Returns the environment that opens at the dollar sign, backslash or bracket at `at`. Its start may be before `at`,
/// but not before `floor`.
pub(super) fn environment<'a>(
    text: &'a str,
    at: usize,
    floor: usize,
    ahead: &mut Ahead,
) -> Option<Environment<'a>> {
    let rest = &text[at..];
    let before = text[..at].chars().next_back().unwrap_or_default();
    let within = |pattern: &Regex| pattern.captures(rest);
    let mut start = at;
    // A closing delimiter follows at least one character and doesn't follow a backslash.
    let found = if rest.starts_with("\\frac{") {
        // A fraction of numbers needs no delimiters.
        start -= usize::from(at > floor && before == '-');
        within(regex!(r"^(\\frac\{-?[0-9.,]+\}\{-?[0-9.,]+\})"))
    } else if rest.starts_with('[') {
        let spaced = at > floor && before.is_ascii_whitespace();
        start -= usize::from(spaced);
        within(regex!(r"^\[([^\n\[\]]+)\][ \t\n\x0c\r]")).filter(|_| spaced)
    } else if before == '\\' {
        None
    } else if rest.starts_with('$') {
        // No line break and no other dollar inside, except in those of a display.
        within(regex!(r"(?s)^\$\$(.*?[^\\])\$\$")).or_else(|| {
            let inline = within(regex!(r"^\$([^$\n\\]|[^$\n][^\n]*?[^\n\\])\$"));
            inline.filter(|_| !before.is_ascii_digit())
        })
    } else if rest.starts_with("\\[") && !ahead.bracket {
        let found = within(regex!(r"(?s)^\\\[(.*?[^\\])\\\]"));
        ahead.bracket = found.is_none();
        found
    } else if rest.starts_with("\\(") && ahead.paren_line <= at {
        let found = within(regex!(r"^\\\((.*?[^\n\\])\\\)"));
        if found.is_none() {
            ahead.paren_line = rest.find('\n').map_or(text.len(), |length| at + length);
        }
        found
    } else {
        None
    }?;
    let inside = found.get(1)?.range();
    let from = if inside.start == 0 { start } else { at + inside.start };
    let end = at + found.get(0)?.end();
    // The word with an ending is matched by its beginning.
    let percent = regex!(r"^\s*(?:\\?%|[Pp]ercent|[Pp]ct)").find(&text[end..]);
    let length = percent.map_or(0, |found| found.end());
    Some(Environment { content: &text[from..at + inside.end], percent: length > 0, start, end: end + length })
}

/// Returns the environment that a connective joins to the environment that ends at `end`.
pub(super) fn joined<'a>(text: &'a str, end: usize, ahead: &mut Ahead) -> Option<Environment<'a>> {
    let at = end + regex!(r"^\s*(?:,?(?:and|or)|,)\s*").find(&text[end..])?.end();
    // The sign of a bare fraction belongs to it.
    let signed = usize::from(text[at..].starts_with("-\\frac{"));
    environment(text, at + signed, end, ahead).filter(|next| next.start >= end)
}
