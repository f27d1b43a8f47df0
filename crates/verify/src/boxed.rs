//! Answers in boxes: `\boxed{...}` and commands like it; and what a text says without its LaTeX and Markdown.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::python_text::{pattern, regex};

/// The commands that box an answer.
pub const BOXES: [&str; 2] = ["\\boxed{", "\\fbox{"];

/// The boxes whose braces close, in the order of their ends, in one pass over the text: where each stands, and its content.
/// A box inside another comes before it.
///
/// `commands` are written with their backslash and opening brace: `\boxed{`.
fn closed<'a>(text: &'a str, commands: &[&str]) -> Vec<(Range<usize>, &'a str)> {
    // Where each open brace stands, and the length of its command if it is a box's.
    let mut open: Vec<(usize, Option<usize>)> = Vec::new();
    let mut found = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => {
                let before = &text.as_bytes()[..=at];
                let command = commands.iter().find(|c| before.ends_with(c.as_bytes()));
                open.push((at, command.map(|c| c.len())));
            }
            b'}' => {
                if let Some((start, Some(length))) = open.pop() {
                    found.push((start + 1 - length..at + 1, &text[start + 1..at]));
                }
            }
            _ => {}
        }
    }
    found
}

/// The position of the bracket that closes the one at `open`.
pub(crate) fn closing(text: &str, open: usize, pair: &[u8; 2]) -> Option<usize> {
    let mut depth = 0_usize;
    let closes = |byte: &u8| {
        depth += usize::from(*byte == pair[0]);
        depth -= usize::from(*byte == pair[1]);
        depth == 0
    };
    text.as_bytes()[open..].iter().position(closes).map(|at| open + at)
}

/// What stands in the last of these commands whose braces close; inside another box, the inner one.
pub fn last_closed<'a>(text: &'a str, commands: &[&str]) -> Option<&'a str> {
    closed(text, commands).into_iter().max_by_key(|(place, _)| place.start).map(|(_, content)| content)
}

/// The boxes that close and lie in no other one, in order. A box around nothing but a box is its content.
pub fn outermost(text: &str) -> Vec<(Range<usize>, &str)> {
    let mut found: Vec<(Range<usize>, &str)> = Vec::new();
    for (place, mut content) in closed(text, &BOXES) {
        let trimmed = content.trim();
        let held = trimmed.as_ptr() as usize - text.as_ptr() as usize;
        while let Some((inner, inside)) = found.pop_if(|(inner, _)| inner.start > place.start) {
            if inner == (held..held + trimmed.len()) {
                content = inside;
            }
        }
        found.push((place, content));
    }
    found
}

/// Fullwidth forms of letters, digits and signs as the usual ones.
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

/// Longest text that is undressed; a longer one is no short answer.
const LONGEST: usize = 4096;

/// What a text says without dress: without fonts, sizes, colours and spacing commands of LaTeX, and without the braces,
/// dollar signs, quotation marks and Markdown emphasis around the whole. Blanks are single.
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
    // Each round takes a layer off; more than a few layers are no dress.
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
