//! Finds the answer in a completion.
//!
//! Candidates are searched by priority: "final answer is .. I hope", then boxes and "final answer .. is", "answer:",
//! "answer", then bare LaTeX, expressions and numbers. Within a priority the rightmost candidate is tried first, and
//! the first that parses is the answer. Boxes are found by scanning, and forms with an anchor such as "answer" by regular
//! expressions on a short window after the anchor.

use std::collections::VecDeque;
use std::sync::LazyLock;

use fancy_regex::Regex as Fancy;
use regex::Regex;

use super::Options;
use super::boxes;
use super::budget::{MAX_ANSWER, MAX_CANDIDATES};
use super::candidate::{Candidate, Found};
use super::environments::{Ahead, environments, first};
use crate::python_text::{pattern, regex};

/// Number of occurrences of "answer" that are tried, from the last.
const MAX_ANCHORS: usize = 63;

/// Currency characters that may precede a number.
const CURRENCY: &str = "$€£¥₹₽₪₩₫฿₡₢₣₤₥₦₧₨₭₮₯₰₱₲₳₴₵₶₷₸₺₻₼₾₿";

const EXPRESSION: &str =
    r"(?P<expr>-?\(?-?\d[\d.\s+\-*×/^()÷]*[+\-*×/^()÷][\d.\s+\-*×/^()÷]+\)?)(?:\*\*)?(?:[.,:\s)$]|$)";
const NUMBER: &str = r"(?:(?P<i1>-?[1-9]\d{0,2}(?:[ ,]\d{3})+)(?P<d1>\.\d+)?|(?P<i2>-?\d+)(?P<d2>[.,]\d+)|(?P<d3>\.\d+)|(?P<i3>-?\d+))(?P<pct>\s*(?:%|[Pp]ercent|[Pp]ercentage|[Pp]ct))?";
const PREFIX: &str = r"(?:^|\s|=)(?:\*\*)?";

fn expression_or_number() -> String {
    format!("(?:{PREFIX}{EXPRESSION}|{PREFIX}[{CURRENCY}]?{NUMBER})")
}

fn fancy(pattern: &str) -> Fancy {
    Fancy::new(pattern).unwrap_or_else(|error| panic!("pattern {pattern}: {error}"))
}

static BARE_EXPRESSION: LazyLock<Regex> = LazyLock::new(|| pattern(&format!("{PREFIX}{EXPRESSION}")));
static BARE_NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(&format!("{PREFIX}[{CURRENCY}]?{NUMBER}")));
static HOPED: LazyLock<Fancy> =
    LazyLock::new(|| fancy(&format!(r"^:?\s*{}\.?\s?I hope", expression_or_number())));
static FINAL: LazyLock<Fancy> =
    LazyLock::new(|| fancy(&format!(r"^.{{0,100}}?\s+is:?{}", expression_or_number())));
static ANSWER: LazyLock<Fancy> =
    LazyLock::new(|| fancy(&format!(r"^(?:.{{0,100}}=\s*|.{{0,50}}?){}(?!\s*=)", expression_or_number())));

/// Search for groups of candidates, by priority. A group is searched only when it is needed.
pub(super) struct Search<'a> {
    text: &'a str,
    latex: bool,
    plain: bool,
    /// Ends of the word "answer".
    answers: Vec<usize>,
    stage: usize,
    stages: Vec<(i32, Stage)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Hoped,
    Final,
    Boxes,
    Colon,
    Answer,
    Bare,
}

impl<'a> Search<'a> {
    pub(super) fn new(text: &'a str, options: &Options, latex: bool, plain: bool) -> Self {
        let mut stages = vec![
            (0, Stage::Hoped),
            (50, Stage::Final),
            (100, Stage::Colon),
            (200, Stage::Answer),
            (300, Stage::Bare),
        ];
        // A negative priority turns boxes off.
        if latex && options.boxed_match_priority >= 0 {
            stages.push((options.boxed_match_priority, Stage::Boxes));
        }
        stages.sort_by_key(|(priority, _)| *priority);
        Self { text, latex, plain, answers: answer_ends(text), stage: 0, stages }
    }

    /// Sets whether to search for values that are outside of boxes and don't follow the word "answer".
    pub(super) fn with_bare(mut self, bare: bool) -> Self {
        self.stages.retain(|(_, stage)| bare || *stage != Stage::Bare);
        self
    }

    /// Returns the priority of the candidates that [`Self::next_group`] returns next, or `None` after the last.
    pub(super) fn priority(&self) -> Option<i32> {
        self.stages.get(self.stage).map(|(priority, _)| *priority)
    }

    /// Returns the next priority's candidates, the rightmost first, or `None` after the last priority.
    pub(super) fn next_group(&mut self) -> Option<Vec<Candidate<'a>>> {
        let (priority, _) = *self.stages.get(self.stage)?;
        let mut group = Vec::new();
        while let Some((next, stage)) = self.stages.get(self.stage).copied() {
            if next != priority {
                break;
            }
            self.stage += 1;
            self.collect(stage, &mut group);
        }
        group.sort_by(|a, b| b.end.cmp(&a.end).then(a.start.cmp(&b.start)));
        Some(group)
    }

    fn collect(&mut self, stage: Stage, group: &mut Vec<Candidate<'a>>) {
        match stage {
            Stage::Boxes => boxes::places(self.text, group),
            Stage::Bare => {
                if self.latex {
                    group.extend(environments(self.text));
                }
                if self.plain {
                    self.bare_numbers(group);
                }
            }
            _ => {
                for at in 0..self.answers.len() {
                    self.anchored(stage, self.answers[at], group);
                }
            }
        }
    }

    /// Returns the start of the text that a stage searches after an occurrence of "answer", which ends at `end`.
    fn tail_of(&self, stage: Stage, end: usize) -> Option<usize> {
        let rest = &self.text[end..];
        let is_final = || ends_with_word(&self.text.as_bytes()[..end - 6], b"final ");
        match stage {
            Stage::Hoped => (is_final() && starts_with_word(rest.as_bytes(), b" is")).then_some(end + 3),
            Stage::Final => is_final().then_some(end),
            Stage::Colon => rest.starts_with(':').then_some(end + 1),
            _ => Some(end),
        }
    }

    /// Finds LaTeX after a word such as "answer". Delimiters are matched only after that word, so that a price before it
    /// (`It costs $5.`) doesn't shift the pairs.
    fn latex_after(&self, stage: Stage, offset: usize) -> Option<Candidate<'a>> {
        let text: &'a str = self.text;
        let tail = &text[offset..];
        let ahead = &mut Ahead::default();
        let mut at = |after: &str| {
            let start = text.len() - after.strip_prefix(':').unwrap_or(after).trim_start().len();
            first(text, start, start, ahead)
        };
        match stage {
            Stage::Hoped => at(tail),
            Stage::Final => places_of_is(clip(tail, 110)).find_map(|end| at(&tail[end..])),
            _ => first(text, offset, offset + clip(tail, 50).len(), ahead),
        }
    }

    /// Adds the candidates after one occurrence of "answer".
    fn anchored(&self, stage: Stage, end: usize, group: &mut Vec<Candidate<'a>>) {
        let Some(offset) = self.tail_of(stage, end) else { return };
        if self.plain {
            let window = clip(&self.text[offset..], 600);
            let pattern = match stage {
                Stage::Hoped => &HOPED,
                Stage::Final => &FINAL,
                _ => &ANSWER,
            };
            if let Ok(Some(captures)) = pattern.captures(window)
                && let Some(found) = found_by(|name| Some(captures.name(name)?.as_str()))
            {
                let end = offset + captures.get(0).map_or(0, |whole| whole.end());
                group.push(Candidate { found, start: offset, end });
            }
        }
        if self.latex {
            self.anchored_latex(stage, offset, group);
        }
    }

    fn anchored_latex(&self, stage: Stage, offset: usize, group: &mut Vec<Candidate<'a>>) {
        let Some(found) = self.latex_after(stage, offset) else { return };
        if stage == Stage::Hoped {
            let rest = &self.text[found.end..];
            let rest = rest.strip_prefix('.').unwrap_or(rest);
            let mut characters = rest.chars();
            let skipped = match characters.next() {
                Some(c) if c.is_whitespace() => characters.as_str(),
                _ => rest,
            };
            if !rest.starts_with("I hope") && !skipped.starts_with("I hope") {
                return;
            }
        }
        group.push(found);
    }

    fn bare_numbers(&self, group: &mut Vec<Candidate<'a>>) {
        let kinds =
            [(&BARE_EXPRESSION, never_in_expression as fn(u8) -> bool), (&BARE_NUMBER, never_in_number)];
        for (regex, never_inside) in kinds {
            for (start, end) in last_matches(self.text, regex, never_inside) {
                if end - start > MAX_ANSWER {
                    group.push(Candidate { found: Found::Oversized, start, end });
                    continue;
                }
                let Some(captures) = regex.captures_at(self.text, start) else { continue };
                let found = found_by(|name| Some(captures.name(name)?.as_str()));
                group.extend(found.map(|found| Candidate { found, start, end }));
            }
        }
    }
}

/// Finds the last number that begins at or after `floor`, with its sign and percent sign.
pub(super) fn last_number(text: &str, floor: usize) -> Option<(usize, usize)> {
    const SIGN: &str = r"\\";
    let number = regex!(&format!("{PREFIX}(?:{SIGN}?[{CURRENCY}])?{NUMBER}"));
    let (start, end) = *last_matches(text, number, never_in_number).first()?;
    let captures = number.captures_at(text, start)?;
    let first = ["i1", "i2", "d3", "i3"].iter().find_map(|name| captures.name(name))?;
    (start >= floor && end - start <= MAX_ANSWER).then(|| (first.start(), end))
}

/// Returns the last [`MAX_CANDIDATES`] matches of a pattern, in reverse order.
///
/// The text is searched piece by piece from its end. A piece begins after a byte that can't be part of a match, so its
/// matches are the same as in a search from the beginning of the text.
fn last_matches(text: &str, regex: &Regex, never_inside: fn(u8) -> bool) -> Vec<(usize, usize)> {
    const PIECE: usize = 4096;
    let mut matches = Vec::new();
    let mut end = text.len();
    while end > 0 && matches.len() < MAX_CANDIDATES {
        let head = &text.as_bytes()[..end.saturating_sub(PIECE)];
        let begin = head.iter().rposition(|byte| never_inside(*byte)).map_or(0, |at| at + 1);
        // The piece also ends with such a byte, so that a match isn't mistaken for a match at the end of the text.
        let piece = &text[..end];
        let mut last = VecDeque::with_capacity(MAX_CANDIDATES);
        let mut from = begin;
        while let Some(found) = regex.find_at(piece, from) {
            if last.len() == MAX_CANDIDATES {
                last.pop_front();
            }
            last.push_back((found.start(), found.end()));
            from = found.end();
        }
        matches.extend(last.into_iter().rev());
        end = begin;
    }
    matches
}

/// Returns whether a bare expression can't contain this byte.
fn never_in_expression(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || is_stranger(byte)
}

/// Returns whether neither a bare number nor a word for percent can contain this byte.
fn never_in_number(byte: u8) -> bool {
    byte.is_ascii_alphabetic() && !b"pPercntag".contains(&byte) || is_stranger(byte)
}

fn is_stranger(byte: u8) -> bool {
    b"{}\\[]_&|<>\"';!?#".contains(&byte)
}

/// Returns the strings matched by the groups of a pattern.
fn found_by<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Option<Found<'a>> {
    if let Some(expr) = get("expr") {
        return Some(Found::Expression(expr));
    }
    let percent = get("pct").is_some();
    [("i1", "d1"), ("i2", "d2"), ("i3", "d3")].into_iter().find_map(|(whole, fraction)| {
        let (whole, fraction) = (get(whole), get(fraction));
        let part = fraction.map_or("", |fraction| &fraction[1..]);
        whole.or(fraction).map(|_| Found::Number(whole.unwrap_or_default(), part, percent))
    })
}

/// Returns the first `limit` characters of the text.
fn clip(text: &str, limit: usize) -> &str {
    if let Some((end, _)) = text.char_indices().nth(limit) { &text[..end] } else { text }
}

/// Returns the ends of " is" after "final answer", in order.
fn places_of_is(window: &str) -> impl Iterator<Item = usize> {
    let is_word = |at: &usize| window[..*at].ends_with(char::is_whitespace);
    window.match_indices("is").map(|(at, _)| at).filter(is_word).map(|at| at + 2)
}

fn starts_with_word(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
}

fn ends_with_word(text: &[u8], word: &[u8]) -> bool {
    text.len() >= word.len() && text[text.len() - word.len()..].eq_ignore_ascii_case(word)
}

/// Returns the ends of the last occurrences of "answer", in upper or lower case.
pub(super) fn answer_ends(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let mut ends = Vec::new();
    let mut to = bytes.len();
    // `w` is the rarest letter of the word.
    while let Some(w) = bytes[..to].iter().rposition(|byte| byte | 0x20 == b'w') {
        to = w;
        if w >= 3 && bytes.len() >= w + 3 && bytes[w - 3..w + 3].eq_ignore_ascii_case(b"answer") {
            ends.push(w + 3);
            if ends.len() == MAX_ANCHORS {
                break;
            }
        }
    }
    ends.reverse();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str) -> Vec<String> {
        let options = Options::default();
        let mut search = Search::new(text, &options, true, true);
        while let Some(group) = search.next_group() {
            if let Some(candidate) = group.first() {
                return match &candidate.found {
                    Found::Latex(parts) => parts.iter().map(|(part, _)| (*part).to_owned()).collect(),
                    Found::Boxed(parts) => parts.iter().map(|part| (*part).to_owned()).collect(),
                    Found::Broken(text) | Found::Expression(text) => vec![(*text).to_owned()],
                    Found::Number(whole, fraction, _) => vec![format!("{whole}.{fraction}")],
                    Found::Oversized => vec!["oversized".to_owned()],
                };
            }
        }
        Vec::new()
    }

    #[test]
    fn places_are_found_by_priority_and_from_the_right() {
        for (text, wanted) in [
            ("final answer is 5. I hope it is right. But \\boxed{6}", &["5."][..]),
            ("final answer is 7 but \\boxed{5}", &["5"]),
            ("the answer is $5$ not 6", &["5"]),
            ("the answer is 5 not $6$", &["6"]),
            ("answer is 12 = foo 7", &["1."]),
            ("answer: 5 = 7", &["7."]),
            ("$3$ but 4", &["4."]),
            ("$5$, $6$ or $7$", &["5", "6", "7"]),
            ("\\boxed{5} and \\boxed{6}", &["5", "6"]),
            ("\\boxed{5} 12345678 \\boxed{6}", &["6"]),
            ("\\boxed{5} 1234567 \\boxed{6}", &["5", "6"]),
            ("\\boxed{1} no no no no no \\boxed{2}", &["2"]),
            ("\\boxed{1} papers and \\boxed{2} bins", &["1", "2"]),
            // Each between its own delimiters: the last one is the answer.
            ("\\(\\boxed{1}\\) papers and \\(\\boxed{2}\\) bins", &["\\boxed{2}"]),
            ("$\\boxed{1}$ papers and $\\boxed{2}$ bins", &["\\boxed{2}"]),
            ("\\[\\boxed{1}\\]\nand\n\\[\\boxed{2}\\]", &["\\boxed{1}", "\\boxed{2}"]),
            ("\\[x = \\boxed{1}\\] or \\boxed{2}", &["1", "2"]),
            ("$a$ is \\boxed{3} and $b$", &[" is \\boxed{3} and "]),
            (" [x+1] ", &["x+1"]),
            ("\\(y\\) ", &["y"]),
            ("\\(y\\)\n\\(z\n\\(w\\)", &["w"]),
            ("AZYUK2A", &[]),
            ("the number is 1,000.99m", &["1,000.99"]),
            ("11 = 5+6", &["5+6"]),
        ] {
            assert_eq!(first(text), wanted, "{text}");
        }
    }

    #[test]
    fn the_last_numbers_are_those_of_a_search_from_the_beginning() {
        const PIECES: [&str; 16] = [
            "7", " ", "1,000", "x", "=", "+", " 3.5", "%", " percent", "(2", ")", "**4**", "\n", "$5",
            "\\frac", " Perc",
        ];
        let mut state = 1_u64;
        for round in 0..40 {
            let mut text = String::new();
            while text.len() < 20_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Every other text has no byte at which it could be cut.
                let kinds = if round % 2 == 0 { PIECES.len() } else { 3 };
                text.push_str(PIECES[(state >> 33) as usize % kinds]);
            }
            for (regex, never_inside) in
                [(&BARE_EXPRESSION, never_in_expression as fn(u8) -> bool), (&BARE_NUMBER, never_in_number)]
            {
                let mut wanted: Vec<_> =
                    regex.find_iter(&text).map(|found| (found.start(), found.end())).collect();
                wanted.reverse();
                let mut found = last_matches(&text, regex, never_inside);
                assert!(found.len() >= MAX_CANDIDATES.min(wanted.len()));
                wanted.truncate(MAX_CANDIDATES);
                found.truncate(MAX_CANDIDATES);
                assert_eq!(found, wanted);
            }
        }
    }
}
