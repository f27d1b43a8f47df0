//! Finds the answer that a response states, for every kind of problem.
//!
//! A candidate is a value with a mark: a box, a tag, `####`, a block of code, an announcement (`the answer is`), or a
//! place in the last lines. The code for a kind of problem chooses the marks. [`last`] returns the last candidate that
//! the text around it states as the answer, with the candidates that only words such as "and" separate from it, or the
//! [`Reason`] why an answer is missing. The same rules accept or reject a candidate of any kind:
//!
//! 1. Directly before the value: nothing, a word that states it (`is`, `gives`, `I'd answer`), or a label with a colon
//!    that names an answer, a quantity or a symbol. Any other label, such as `Formatting practice:`, rejects the value.
//! 2. The rest of the sentence before the value doesn't deny it, suppose it, give it a probability, call it a trial or
//!    a mistake (`by mistake I wrote`), admit ignorance (`I don't know, so`) or attribute it to somebody else. A
//!    subordinate clause without a condition doesn't count (`Though I doubted it, the answer is`).
//! 3. After the value: a counted noun, a reason, a remark that agrees, or the end of the sentence.
//! 4. The next sentences don't retract the value, order another step or put the answer off. A short sentence after the
//!    value must have a known form: one or two words after a letter or grid, up to six after a number or formula.
//!
//! A box or tag gets no exception: the sentence around it must state its content.

use std::ops::Range;

use crate::boxed::{self, trimmed};
use crate::python_text::regex;
use crate::retraction::{Written, clip, is_withdrawn};
use crate::statement::{self, FAR, Pieces, low_end};
use crate::verdict::{Outcome, Verdict};

/// Mark by which a value was found as a possible answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    /// `\boxed{..}` or a similar command.
    Box,
    /// A box that doesn't close, so that the response is incomplete.
    OpenBox,
    /// `<answer>..</answer>`.
    Tag,
    /// The rest of a line after `####`.
    Hashes,
    /// A block of code.
    Block,
    /// Words such as "the answer is". The code for the kind of problem finds them, in several languages.
    Announcement,
    /// A value without a mark, in known words or a known position. The code for the kind of problem finds it.
    Value,
}

/// A value in a response that may be the stated answer.
#[derive(Debug, Clone)]
pub(crate) struct Candidate<V> {
    pub(crate) marker: Marker,
    /// Range of the value with its mark.
    pub(crate) place: Range<usize>,
    /// Range of the value without its mark.
    pub(crate) content: Range<usize>,
    pub(crate) value: V,
}

impl<V> Candidate<V> {
    /// Creates a candidate without a mark.
    pub(crate) fn new(place: Range<usize>, value: V) -> Self {
        Self { marker: Marker::Value, content: place.clone(), place, value }
    }

    /// Converts the value.
    pub(crate) fn map<T>(self, read: impl FnOnce(V) -> T) -> Candidate<T> {
        let Self { marker, place, content, value } = self;
        Candidate { marker, place, content, value: read(value) }
    }
}

/// Reason why an answer is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No candidate was found.
    Missing,
    /// The last box isn't closed.
    Unclosed,
    /// The text around each of the last candidates denies it, doesn't state it, or takes it back.
    Denied,
    /// Different answers are stated.
    Several,
}

impl From<Reason> for Outcome {
    fn from(reason: Reason) -> Self {
        let (verdict, code) = match reason {
            Reason::Missing => (Verdict::Unparsed, "none"),
            Reason::Unclosed => (Verdict::Unparsed, "unclosed"),
            Reason::Denied => (Verdict::Wrong, "denied"),
            Reason::Several => (Verdict::Wrong, "several"),
        };
        Self::new(verdict, code)
    }
}

/// The last candidates that a response states, with only joining words between them.
#[derive(Debug)]
pub(crate) struct Statement<V, R = ()> {
    pub(crate) place: Range<usize>,
    pub(crate) values: Vec<V>,
    /// Whether a word such as "or" makes the values alternatives.
    pub(crate) alternatives: bool,
    /// Result of reading the statement.
    pub(crate) reading: R,
}

impl<V: PartialEq> Statement<V> {
    /// Returns the value, or an error if different values are stated.
    pub(crate) fn only(mut self) -> Result<V, Reason> {
        let value = self.values.pop().ok_or(Reason::Missing)?;
        if self.values.iter().any(|other| *other != value) { Err(Reason::Several) } else { Ok(value) }
    }
}

/// Finds the values with a mark, in order. The list is empty for marks that the kind of problem finds.
pub(crate) fn marked(text: &str, marker: Marker) -> Vec<Candidate<&str>> {
    let candidate = |marker, place, content: Range<usize>| {
        let value = &text[content.clone()];
        Candidate { marker, place, content, value }
    };
    let pattern = match marker {
        Marker::Tag => regex!(r"(?s)<answer>(.*?)</answer>"),
        Marker::Block => regex!(r"(?s)```[a-z]*\s(.*?)```"),
        Marker::Hashes => regex!(r"####(.*)"),
        Marker::Announcement | Marker::Value => return Vec::new(),
        Marker::Box | Marker::OpenBox => {
            let marker = |closes| if closes { Marker::Box } else { Marker::OpenBox };
            let boxes = boxed::outermost(text).into_iter();
            return boxes.map(|found| candidate(marker(found.closes), found.place, found.content)).collect();
        }
    };
    let found = pattern.captures_iter(text);
    found.filter_map(|found| Some(candidate(marker, found.get(0)?.range(), found.get(1)?.range()))).collect()
}

/// Returns the ranges of the nonblank lines, the last line first, without white space around them.
pub(crate) fn last_lines(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut end = Some(text.len());
    let lines = std::iter::from_fn(move || {
        let to = end?;
        let from = text[..to].rfind('\n').map_or(0, |at| at + 1);
        end = from.checked_sub(1);
        Some(trimmed(text, from..to, char::is_whitespace))
    });
    lines.filter(|line| !line.is_empty())
}

/// Words that make the values around them alternatives.
const CHOOSING: &str = "^(?i:or|either|maybe|perhaps|possibly|alternatively|else|another|alternative|second|option|candidate|possibility|或|或者)$";

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Whether the text between two values makes them alternatives.
pub(crate) fn offers_choice(between: &str) -> bool {
    words(between).any(|word| regex!(CHOOSING).is_match(word))
}

/// Whether only joining words such as "and" or "or" are between two values.
fn joins(between: &str) -> bool {
    const LISTING: &str = "^(?i:and|also|python|json|boxed|fbox|和)$";
    // On one line, in a list, or after a word of choice, a second statement of an answer doesn't correct the first.
    const STATING: &str = "^(?i:the|final|answer|is|solution|a|possible)$";
    let itemized = regex!(r"\n\s*(?:[-*•]|\d+[.)])\s").is_match(between);
    let restated = offers_choice(between) || itemized || !between.trim().contains('\n');
    words(between).all(|word| {
        regex!(LISTING).is_match(word)
            || regex!(CHOOSING).is_match(word)
            || (restated && regex!(STATING).is_match(word))
            || (itemized && word.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Maximum length in bytes of the text between two boxes of one sentence.
const SENTENCE: usize = 160;

/// Whether the text between two boxes is within one sentence. `.., but the answer is` begins another one.
fn is_one_sentence(between: &str) -> bool {
    const TURNS: &str =
        r"(?i)\b(?:but|so|hence|thus|therefore|however)\b.*\b(?:answer|result|value) is\W*$|^[\s$,]*but\W*$";
    between.len() <= SENTENCE && !between.contains(['.', '!', '?', '\n']) && !regex!(TURNS).is_match(between)
}

/// Maximum number of candidates at the end of a response that are skipped because the text denies them.
const MOST_DENIED: usize = 8;

/// Finds the answer among candidates, which are in order of position: the last statement, which may be several joined
/// candidates. Denied ones are skipped (`not W`). `read` gets a statement's last candidate and its range, and returns
/// `None` if the text around it doesn't state it as the answer.
pub(crate) fn last<V: PartialEq, R>(
    text: &str,
    mut candidates: Vec<Candidate<V>>,
    read: impl Fn(&Candidate<V>, Range<usize>) -> Option<R>,
) -> Result<Statement<V, R>, Reason> {
    let all = candidates.len();
    if candidates.last().is_some_and(|last| last.marker == Marker::OpenBox) {
        return Err(Reason::Unclosed);
    }
    while candidates.len() + MOST_DENIED > all
        && let Some(end) = candidates.len().checked_sub(1)
    {
        let mut first = end;
        let mut alternatives = false;
        let between = |first: usize| &text[candidates[first - 1].place.end..candidates[first].place.start];
        while let Some(earlier) = first.checked_sub(1) {
            let boxes = candidates[earlier].marker == Marker::Box && candidates[first].marker == Marker::Box;
            let joined = joins(between(first));
            if !(joined || boxes && is_one_sentence(between(first))) {
                break;
            }
            let gap = candidates[earlier].place.end..candidates[first].place.start;
            if boxes && !lists(text, gap) {
                if joined {
                    return Err(Reason::Several);
                }
                break;
            }
            let near = first + MOST_DENIED > candidates.len();
            if near && statement::is_denied_before(&text[..candidates[earlier].place.start]) {
                break;
            }
            alternatives |= offers_choice(between(first));
            first = earlier;
        }
        let place = candidates[first].place.start..candidates[end].place.end;
        if let Some(reading) = read(&candidates[end], place.clone()) {
            // A mark before it on its line states another answer, unless the line denies that one.
            let line = text[..place.start].rfind('\n').map_or(0, |at| at + 1);
            let beside = candidates[..first].iter().rev().take_while(|other| other.place.start >= line);
            let different = |other: &&Candidate<V>| {
                other.marker != Marker::Value
                    && candidates[first..].iter().all(|last| last.value != other.value)
            };
            let mut beside = beside.take(MOST_DENIED).filter(different);
            if beside.any(|other| read(other, other.place.clone()).is_some()) {
                return Err(Reason::Several);
            }
            let values = candidates.drain(first..).map(|candidate| candidate.value).collect();
            return Ok(Statement { place, values, alternatives, reading });
        }
        if first > 0 && offers_choice(between(first)) || alternatives {
            return Err(Reason::Several);
        }
        candidates.truncate(first);
    }
    Err(if all == 0 { Reason::Missing } else { Reason::Denied })
}

/// Whether the text between two boxes lists both.
fn lists(text: &str, gap: Range<usize>) -> bool {
    let formula = formula_around(text, gap.start, gap.start).1 >= gap.end;
    statement::lists(&Pieces::new().read(&text[gap], formula))
}

/// Whether the text around a value states it as the answer, and the sentences after it don't take it back.
pub(crate) fn states(text: &str, place: Range<usize>) -> bool {
    is_stated(text, place.clone()) && !is_withdrawn(&text[place.end..], Written::OTHER)
}

/// Whether the sentence around a value states it as the answer. The value may be in a block of code.
pub(crate) fn is_stated(text: &str, place: Range<usize>) -> bool {
    let before = &text[..place.start];
    let start = regex!(r"```[a-z]*\s*$").find(before).map_or(place.start, |fence| fence.start());
    let behind = &text[place.end..];
    let end = place.end + regex!(r"^\s*```").find(behind).map_or(0, |fence| fence.end());
    // The full stop may belong to the value, with the rest of the sentence after it.
    let rest = text[end..].trim_start_matches(|c: char| "`\"*$)]}. ".contains(c));
    let goes_on = rest.starts_with(char::is_lowercase) && text[..text.len() - rest.len()].ends_with(". ");
    let end = if goes_on { text.len() - rest.len() - 1 } else { end };
    // An operation on the value: `[1, 2][::-1]`, `[1, 2].reverse()`
    if regex!(r"^(?:[\[(]|\.\pL)").is_match(behind) {
        return false;
    }
    let (low, high) = formula_around(text, start, end);
    let worded = statement::sentence_before(&text[..start]).contains(char::is_alphabetic);
    lead(text, low, start, "").is_some_and(str::is_empty)
        && !statement::is_denied_before(&text[..start])
        && statement::is_ended(&after(text, end, high.max(end)), 0, "", worded)
}

/// Returns the sign before the value at `start`, whose formula begins at `low`, or `None` if the value isn't stated.
pub(crate) fn lead(text: &str, low: usize, start: usize, value: &str) -> Option<&'static str> {
    let outside = statement::sentence_before(&text[..low]);
    // A remainder is below its modulus.
    let modulus = regex!(r"(?i)\bmod(?:ulo)?\b\W*(\d{1,18})").captures_iter(outside).last();
    let modulus: Option<u64> = modulus.and_then(|found| found[1].parse().ok());
    if modulus.zip(value.parse::<u64>().ok()).is_some_and(|(modulus, value)| value >= modulus) {
        return None;
    }
    let before = Pieces::new().read(outside, false).read(&text[low..start], low < start);
    // The marks of a value that is struck out may be part of it.
    let inside = start + text[start..].find(|c: char| c != '~' && !c.is_whitespace()).unwrap_or(0);
    let inside = if inside > start { inside } else { low };
    let above = outside.trim().is_empty() && statement::is_denied_before(&text[..low]);
    statement::lead(&before, value).filter(|_| !above && !statement::is_struck(&text[..inside]))
}

/// Reads the text from a position to the end of the line. `high` is the end of the formula that `from` may be in.
pub(crate) fn after(text: &str, from: usize, high: usize) -> Pieces<'_> {
    let rest = clip(&text[high..line_at(text, high).1]);
    // A dollar sign closes the value's formula.
    Pieces::new().read(&text[from..high], high > from).read(rest, rest.starts_with('$'))
}

/// Returns the range of the formula around `start..end`, without delimiters, or `start..end` if there isn't a formula.
pub(crate) fn formula_around(text: &str, start: usize, end: usize) -> (usize, usize) {
    let low = low_end(&text[..start]);
    let high = text.floor_char_boundary(end + FAR);
    let (before, after) = (&text[low..start], &text[end..high]);
    for (open, close) in [("\\[", "\\]"), ("\\(", "\\)")] {
        if let Some(from) = before.rfind(open).filter(|from| !before[*from..].contains(close))
            && let Some(to) = after.find(close)
        {
            return (low + from + open.len(), end + to);
        }
    }
    if let Some(from) = before.rfind("$$").filter(|_| before.matches("$$").count() % 2 == 1)
        && let Some(to) = after.find("$$")
    {
        return (low + from + 2, end + to);
    }
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    let marks = before[line..].match_indices('$').map(|(at, _)| line + at);
    let marks: Vec<usize> = marks.filter(|at| !before[..*at].ends_with('\\')).collect();
    if let Some(from) = marks.last().filter(|_| marks.len() % 2 == 1)
        && let Some(to) = after.find(['$', '\n']).filter(|to| after[*to..].starts_with('$'))
    {
        return (low + from + 1, end + to);
    }
    (start, end)
}

/// Returns the range from a position to the end of its line.
pub(crate) fn line_at(text: &str, from: usize) -> (usize, usize) {
    let length = text[from..].find('\n').unwrap_or(text.len() - from);
    (from, from + length)
}
