//! The boxes of a completion, and which of them are the answer.
//!
//! As in the reference, boxes are searched from the right. A box inside LaTeX delimiters belongs to that environment:
//! the last such environment is the answer, with all its boxes and no others. Boxes outside of delimiters belong
//! together if they are close.

use std::collections::VecDeque;

use super::budget::MAX_CANDIDATES;
use super::candidate::{Candidate, Found};
use super::environments::{Ahead, environment, joined};
use crate::boxed::closing;
use crate::python_text::regex;

const OPENING: &str = "\\boxed{";
/// Largest number of boxes in one answer.
const MAX_CONTENTS: usize = 1024;

/// Boxes of a response that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// The last box, and boxes shortly before it.
    Last,
    /// All boxes of the response.
    All,
}

/// Returns the contents of the boxes in a string, in order. Equal neighbours are returned once.
///
/// Of nested boxes the innermost counts. A last box that is not closed is returned with its brace and the rest of the
/// text.
pub(super) fn contents(text: &str, which: Which) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    // Everything from here on belongs to a box already found.
    let mut limit = text.len();
    let mut at = text.len();
    let mut framed = text.rfind("\\fbox");
    while found.len() < MAX_CONTENTS {
        if framed.is_some_and(|start| start + 5 > at) {
            framed = text[..at].rfind("\\fbox");
        }
        let boxed = text[..at].rfind("\\boxed");
        let Some(start) = boxed.max(framed) else { break };
        let command = start + if boxed == Some(start) { 6 } else { 5 };
        let after = &text[command..];
        let open = text.len() - after.trim_start().len();
        if open >= limit {
            break;
        }
        let closed = if text.as_bytes()[open] == b'{' { closing(&text[..limit], open, b"{}") } else { None };
        let Some(end) = closed else {
            if found.is_empty() {
                found.push(&text[open..]);
            }
            break;
        };
        let content = text[open + 1..end].trim();
        if let (Which::Last, Some(next)) = (which, found.last())
            && !joins(&text[end + 1..limit], content != *next)
        {
            break;
        }
        if found.last() != Some(&content) {
            found.push(content);
        }
        limit = start;
        at = start;
    }
    found.reverse();
    found
}

/// Whether the text between two boxes joins them to one answer.
fn joins(between: &str, different: bool) -> bool {
    // 70 characters: a character has at most four bytes.
    if between.len() > 280 {
        return false;
    }
    let characters = between.chars().count();
    if characters < 10 {
        return true;
    }
    different && characters < 70 && regex!(r"[,;]|\b(?:and|or)\b").is_match(between)
}

/// Appends the candidates among the boxes of `text` to `group`: the last boxes, and the last environments with boxes.
pub(super) fn places<'a>(text: &'a str, group: &mut Vec<Candidate<'a>>) {
    let Some(first) = text.find(OPENING) else { return };
    let Some(last) = text.rfind('}').filter(|last| *last > first + OPENING.len()) else { return };
    let inside = contents(&text[first..=last], Which::Last);
    // A box that is not closed runs to the end.
    let end = |part: &str| part.as_bytes().as_ptr_range().end;
    let unclosed = inside.len() == 1 && end(inside[0]) == end(&text[first..=last]);
    let found = if unclosed { Found::Broken(inside[0]) } else { Found::Boxed(inside) };
    group.push(Candidate { found, start: first, end: last + 1 });
    group.extend(delimited(text, first));
}

/// Returns the last LaTeX environments that contain boxes. Connectives join up to six of them to one candidate.
fn delimited<'a>(text: &'a str, first: usize) -> VecDeque<Candidate<'a>> {
    let mut places = VecDeque::new();
    let mut ahead = Ahead::default();
    // An environment that contains the next box can't begin before this position.
    let mut floor = 0;
    let mut next = Some(first);
    while let Some(boxed) = next {
        let opened = openings(text, floor, boxed);
        let found = opened.into_iter().flatten().find_map(|at| {
            let found = environment(text, at, floor, &mut ahead)?;
            holds_box(found.content).then_some(found).filter(|found| found.end > boxed)
        });
        let Some(place) = found else {
            floor = boxed + 1;
            next = text[floor..].find(OPENING).map(|at| floor + at);
            continue;
        };
        let start = place.start;
        let mut end = place.end;
        let mut parts = vec![(place.content, place.percent)];
        while parts.len() < 6 {
            let Some(more) = joined(text, end, &mut ahead).filter(|more| holds_box(more.content)) else {
                break;
            };
            parts.push((more.content, more.percent));
            end = more.end;
        }
        if places.len() == MAX_CANDIDATES {
            places.pop_front();
        }
        places.push_back(Candidate { found: Found::Latex(parts), start, end });
        floor = end;
        next = text[floor..].find(OPENING).map(|at| floor + at);
    }
    places
}

/// Whether the text contains a nonempty box.
fn holds_box(text: &str) -> bool {
    let rest = text.find(OPENING).and_then(|at| text.as_bytes().get(at + OPENING.len() + 1..));
    rest.is_some_and(|rest| rest.contains(&b'}'))
}

/// Returns the positions, in order, at which the LaTeX environment around the box at `boxed` may open: delimiters that
/// aren't closed before the box.
fn openings(text: &str, floor: usize, boxed: usize) -> [Option<usize>; 5] {
    let before = &text[floor..boxed];
    let bytes = text.as_bytes();
    let line = before.rfind('\n').map_or(floor, |at| floor + at + 1);
    let escaped = |at: usize| at > 0 && bytes[at - 1] == b'\\';
    // Opened behind the last place where the kind closes.
    let behind = |from: usize, open: &str, close: &str| {
        let from = text[from..boxed].rfind(close).map_or(from, |at| from + at + close.len());
        text[from..boxed].match_indices(open).map(|(at, _)| from + at).find(|at| !escaped(*at))
    };
    let double = before.rfind("$$").map(|at| floor + at);
    let single = text[line..boxed].rmatch_indices('$').map(|(at, _)| line + at).find(|at| !escaped(*at));
    let bracket = text[line..boxed].rfind(['[', ']']).map(|at| line + at).filter(|at| bytes[*at] == b'[');
    let mut found = [
        double,
        behind(floor, "\\[", "\\]"),
        single,
        behind(line, "\\(", "\\)"),
        bracket.filter(|at| *at > floor),
    ];
    found.sort_by_key(|at| at.unwrap_or(usize::MAX));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_of_the_last_boxes_counts() {
        for (text, wanted) in [
            ("\\boxed{1} and \\boxed{2}", &["1", "2"][..]),
            ("\\boxed{1} no no no no no \\boxed{2}", &["2"]),
            ("\\boxed{2} and so it is \\boxed{2}", &["2"]),
            ("\\boxed{a \\boxed{b} c}", &["b"]),
            ("\\fbox{3}", &["3"]),
            ("\\boxed {3}", &["3"]),
            ("\\boxed 3", &["3"]),
            ("\\boxed{3", &["{3"]),
            ("\\boxed{3} \\boxed{", &["{"]),
            ("no box", &[]),
        ] {
            assert_eq!(contents(text, Which::Last), wanted, "{text}");
        }
        assert_eq!(contents("\\boxed{1} no no no no no \\boxed{2}", Which::All), ["1", "2"]);
    }
}
