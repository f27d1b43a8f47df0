//! The LaTeX environments of a text.

use std::collections::VecDeque;

use super::budget::MAX_CANDIDATES;
use super::candidate::{Candidate, Found};

/// The last environments of a text, as many as can be tried.
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

/// The first LaTeX between delimiters that starts at `from` or behind it and not behind `to`; up to six environments
/// joined by connectives.
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

/// Cached searches: the end of a line, and delimiters without a closing one. Repeated searches would make the work
/// quadratic.
#[derive(Default)]
pub(super) struct Ahead {
    line_end: usize,
    double: bool,
    bracket: bool,
    paren_line: usize,
    dollar_line: usize,
    spaced_line: usize,
}

pub(super) struct Environment<'a> {
    pub(super) content: &'a str,
    /// A percent sign or word follows.
    pub(super) percent: bool,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The environment that opens at a `$`, backslash or bracket. The search may look back as far as `floor`.
pub(super) fn environment<'a>(
    text: &'a str,
    at: usize,
    floor: usize,
    ahead: &mut Ahead,
) -> Option<Environment<'a>> {
    let bytes = text.as_bytes();
    let escaped = at > 0 && bytes[at - 1] == b'\\';
    let rest = &text[at..];
    let closed = |content_from: usize, close: usize, width: usize| {
        let (percent, end) = percent_after(text, close + width);
        Environment { content: &text[content_from..close], percent, start: at, end }
    };
    if rest.starts_with('$') {
        if escaped {
            return None;
        }
        if rest.starts_with("$$") && !ahead.double {
            match unescaped(bytes, at + 3, bytes.len(), |i| bytes[i..].starts_with(b"$$")) {
                Some(close) => return Some(closed(at + 2, close, 2)),
                None => ahead.double = true,
            }
        }
        if at > 0 && bytes[at - 1].is_ascii_digit() {
            return None;
        }
        if ahead.dollar_line > at {
            return None;
        }
        // No line break and no other dollar inside.
        let mut place = at + 1;
        while let Some(byte) = bytes.get(place) {
            match byte {
                b'\n' => break,
                b'$' if bytes[place - 1] == b'\\' => {}
                b'$' if place == at + 1 => break,
                b'$' => return Some(closed(at + 1, place, 1)),
                _ => {}
            }
            place += 1;
        }
        if bytes.get(place) != Some(&b'$') {
            ahead.dollar_line = place;
        }
        return None;
    }
    if rest.starts_with("\\[") && !escaped {
        if ahead.bracket {
            return None;
        }
        let close = unescaped(bytes, at + 3, bytes.len(), |i| bytes[i..].starts_with(b"\\]"));
        ahead.bracket = close.is_none();
        return close.map(|close| closed(at + 2, close, 2));
    }
    if let Some(body) = rest.strip_prefix("\\frac{") {
        // A fraction of numbers needs no delimiters.
        let end = bare_fraction(body).map(|length| text.len() - body.len() + length)?;
        let start = if at > floor && bytes[at - 1] == b'-' { at - 1 } else { at };
        let (percent, after) = percent_after(text, end);
        return Some(Environment { content: &text[start..end], percent, start, end: after });
    }
    if rest.starts_with("\\(") && !escaped {
        if ahead.paren_line > at {
            return None;
        }
        if ahead.line_end <= at {
            let step = bytes[at..].iter().position(|byte| *byte == b'\n');
            ahead.line_end = step.map_or(bytes.len(), |step| at + step);
        }
        let line = ahead.line_end;
        let close = unescaped(bytes, at + 3, line, |i| bytes[i..].starts_with(b"\\)"));
        if close.is_none() {
            ahead.paren_line = line;
        }
        return close.map(|close| closed(at + 2, close, 2));
    }
    if rest.starts_with('[') && at > floor && bytes[at - 1].is_ascii_whitespace() {
        if ahead.spaced_line > at {
            return None;
        }
        // No line break and no other bracket inside.
        let mut place = at + 1;
        while let Some(byte) = bytes.get(place) {
            match byte {
                b'\n' | b'[' => break,
                b']' if place > at + 1 && bytes.get(place + 1).is_some_and(u8::is_ascii_whitespace) => {
                    let mut environment = closed(at + 1, place, 2);
                    environment.start = at - 1;
                    return Some(environment);
                }
                b']' => break,
                _ => {}
            }
            place += 1;
        }
        ahead.spaced_line = place;
    }
    None
}

/// The length of `1}{2}` after `\frac{`.
fn bare_fraction(body: &str) -> Option<usize> {
    let number = |text: &str| {
        let signed = usize::from(text.starts_with('-'));
        let length =
            text[signed..].bytes().take_while(|b| b.is_ascii_digit() || matches!(b, b'.' | b',')).count();
        (length > 0).then_some(signed + length)
    };
    let first = number(body)?;
    let rest = body[first..].strip_prefix("}{")?;
    let second = number(rest)?;
    rest[second..].starts_with('}').then_some(first + 2 + second + 1)
}

/// The first position from `from` on, not after a backslash, that satisfies the predicate.
fn unescaped(bytes: &[u8], from: usize, to: usize, found: impl Fn(usize) -> bool) -> Option<usize> {
    (from..to).find(|at| matches!(bytes[*at], b'$' | b'\\') && bytes[*at - 1] != b'\\' && found(*at))
}

/// A percent sign or word after an environment.
fn percent_after(text: &str, end: usize) -> (bool, usize) {
    let rest = &text[end..];
    let trimmed = rest.trim_start();
    let skipped = rest.len() - trimmed.len();
    for sign in ["\\%", "%", "percentage", "Percentage", "percent", "Percent", "pct", "Pct"] {
        if trimmed.starts_with(sign) {
            // The word with an ending is matched by its beginning.
            let length = sign.trim_end_matches("age").len();
            return (true, end + skipped + length);
        }
    }
    (false, end)
}

/// The environment that a connective joins to the one that ends at `end`.
pub(super) fn joined<'a>(text: &'a str, end: usize, ahead: &mut Ahead) -> Option<Environment<'a>> {
    let at = connective(text, end)?;
    // The sign of a bare fraction belongs to it.
    let signed = usize::from(text[at..].starts_with("-\\frac{"));
    environment(text, at + signed, end, ahead).filter(|next| next.start >= end)
}

/// The position after a connective that starts at `end`.
fn connective(text: &str, end: usize) -> Option<usize> {
    let rest = &text[end..];
    let trimmed = rest.trim_start();
    let after = [",and", ",or", "and", "or", ","].iter().find_map(|word| trimmed.strip_prefix(word))?;
    Some(text.len() - after.trim_start().len())
}
