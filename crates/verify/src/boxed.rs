//! Finding answers in boxes (`\boxed{...}` and similar commands), and removing LaTeX and Markdown formatting.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::python_text::{pattern, regex};

/// Commands that box an answer.
const BOXES: [&str; 3] = ["\\boxed", "\\fbox", "\\framebox"];

/// Position of a box and of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boxed {
    /// Range of the command with its argument.
    pub place: Range<usize>,
    /// Range of the content.
    pub content: Range<usize>,
    /// Whether the braces are closed. If they aren't, the content extends to the end of the text.
    pub closes: bool,
}

/// Finds all boxes in one pass and returns them in the order of their closing braces, so a nested box comes before
/// the box around it. An argument without braces is one word, as in `\boxed 3`.
pub(crate) fn boxes(text: &str) -> Vec<Boxed> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    // Open braces: the position of the content, and the position of the command if the brace belongs to a box.
    let mut open: Vec<(usize, Option<usize>)> = Vec::new();
    let mut command = None;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => {
                let name = BOXES.iter().find(|name| {
                    text[at..].starts_with(**name)
                        && !bytes.get(at + name.len()).is_some_and(u8::is_ascii_alphabetic)
                });
                let Some(name) = name else {
                    // An escaped character is not a brace.
                    at += 2;
                    continue;
                };
                let start = at;
                at = text.len() - text[at + name.len()..].trim_start().len();
                let word = |c: char| c.is_ascii_alphanumeric() || c == '-';
                match bytes.get(at) {
                    Some(b'{') => command = Some(start),
                    Some(byte) if word(char::from(*byte)) => {
                        let from = at;
                        at += text[from..].find(|c| !word(c)).unwrap_or(text.len() - from);
                        found.push(Boxed { place: start..at, content: from..at, closes: true });
                    }
                    _ => {}
                }
                continue;
            }
            b'{' => open.push((at + 1, command.take())),
            b'}' => {
                if let Some((from, Some(start))) = open.pop() {
                    found.push(Boxed { place: start..at + 1, content: from..at, closes: true });
                }
            }
            _ => {}
        }
        at += 1;
    }
    if let Some((from, start)) = open.iter().rev().find_map(|(from, start)| Some((*from, (*start)?))) {
        found.push(Boxed { place: start..text.len(), content: from..text.len(), closes: false });
    }
    found
}

/// Returns the position of the bracket that closes the bracket at `open`.
pub(crate) fn closing(text: &str, open: usize, pair: &[u8; 2]) -> Option<usize> {
    let mut depth = 0_usize;
    let closes = |byte: &u8| {
        depth += usize::from(*byte == pair[0]);
        depth -= usize::from(*byte == pair[1]);
        depth == 0
    };
    text.as_bytes()[open..].iter().position(closes).map(|at| open + at)
}

/// Returns the content of the last closed box, or `None` without one.
pub fn last_closed(text: &str) -> Option<&str> {
    let closed = boxes(text).into_iter().filter(|found| found.closes);
    closed.max_by_key(|found| found.place.start).map(|found| &text[found.content])
}

/// Returns the boxes that aren't inside another box, in order. A box that contains only a box has the content of the inner
/// one. A box that doesn't close is the last one, unless another box begins inside it.
pub fn outermost(text: &str) -> Vec<Boxed> {
    let mut found: Vec<Boxed> = Vec::new();
    for mut outer in boxes(text) {
        let held = trimmed(text, outer.content.clone(), char::is_whitespace);
        if !outer.closes && found.last().is_some_and(|inner| inner.place.start > outer.place.start) {
            continue;
        }
        while let Some(inner) = found.pop_if(|inner| inner.place.start > outer.place.start) {
            if inner.place == held {
                outer.content = inner.content;
            }
        }
        found.push(outer);
    }
    found
}

/// Returns the range `part` without the characters at its ends for which `mark` holds.
pub(crate) fn trimmed(text: &str, part: Range<usize>, mark: impl Fn(char) -> bool) -> Range<usize> {
    let start = part.end - text[part.clone()].trim_start_matches(&mark).len();
    start..start + text[start..part.end].trim_end_matches(&mark).len()
}

/// Replaces fullwidth letters, digits and signs by their ASCII forms.
pub fn halfwidth(text: &str) -> Cow<'_, str> {
    let wide = |c: char| matches!(c, '\u{ff01}'..='\u{ff5e}' | '\u{3000}');
    if !text.contains(wide) {
        return Cow::Borrowed(text);
    }
    let usual = |c: char| match c {
        '\u{3000}' => ' ',
        c if wide(c) => char::from((c as u32 - 0xfee0) as u8),
        c => c,
    };
    Cow::Owned(text.chars().map(usual).collect())
}

/// Maximum length in bytes of a string whose formatting is removed. Longer strings aren't short answers.
const LONGEST: usize = 4096;

/// Removes formatting: fonts, sizes, colours and spacing commands of LaTeX, and the braces,
/// dollar signs, quotation marks and Markdown emphasis around the whole. White space becomes single spaces.
pub fn plain(text: &str) -> Cow<'_, str> {
    const STYLE: &str = r"\\(?:text(?:bf|it|rm|sf|tt|sc|up|md|normal)?|math(?:bf|it|rm|sf|tt|normal)|boldsymbol|bm|[mh]box|boxed|fbox|emph|underline|operatorname\*?|textcolor\s*(?:\[\w*\])?\{[^{}]*\})\s*";
    const SWITCH: &str = r"\\(?:bf(?:series)?|it(?:shape)?|rm|sf|tt|tiny|small|normalsize|[lL]arge|LARGE|[hH]uge|(?:display|text)style|left|right|big[lr]?|Big[lr]?)\b\s*";
    static DRESS: LazyLock<[(Regex, &str); 4]> = LazyLock::new(|| {
        [
            (pattern(&format!(r"{STYLE}\{{([^{{}}]*)\}}")), "$1"),
            (pattern(r"\\color\s*(?:\[\w*\])?\{[^{}]*\}"), ""),
            (pattern(SWITCH), ""),
            (pattern(r"\\[,;:! ]|\\q?quad\b|~|\s+"), " "),
        ]
    });
    const AROUND: &str = r#"$ $   \( \)   \[ \]   ** **   * *   __ __   _ _   ` `   " "   ' '   “ ”"#;
    if text.len() > LONGEST {
        return Cow::Borrowed(text);
    }
    let mut text = text.trim().to_owned();
    // Each round removes one layer of formatting. Answers have only a few layers.
    for _ in 0..6 {
        let mut next = text.clone();
        for (pattern, replacement) in &*DRESS {
            next = pattern.replace_all(&next, *replacement).into_owned();
        }
        if let Some(inside) = regex!(&format!(r"(?s)^(?:{STYLE})?\{{(.*)\}}$"))
            .captures(&next)
            .and_then(|found| found.get(1))
            .filter(|inside| closing(&next, inside.start() - 1, b"{}") == Some(inside.end()))
        {
            next = inside.as_str().to_owned();
        }
        let mut marks = AROUND.split_whitespace();
        while let (Some(open), Some(close)) = (marks.next(), marks.next()) {
            if let Some(inside) = next.strip_prefix(open).and_then(|t| t.strip_suffix(close))
                && !inside.contains(open)
                && !inside.contains(close)
            {
                next = inside.to_owned();
            }
        }
        let next = next.trim();
        if next == text {
            break;
        }
        text = next.to_owned();
    }
    Cow::Owned(text)
}

/// Pattern of the end of a sentence.
pub(crate) const SENTENCE_END: &str = r"[.!?](?:\s|$)|[。；;]";
