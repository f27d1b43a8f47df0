//! Where the answer stands in a completion.
//!
//! Places are looked for by priority: "final answer is .. I hope", then boxes and "final answer .. is", "answer:",
//! "answer", then bare LaTeX, expressions and numbers. Inside a priority the rightmost place is tried first, and the
//! first that parses is the answer. Boxes are found by scanning; the anchored forms by regular expressions over a
//! short window behind the anchor.

use std::sync::LazyLock;

use fancy_regex::Regex as Fancy;
use regex::Regex;

use super::Options;

/// What was found at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// LaTeX texts, several where they were joined by a connective; each with a percent sign or not.
    Latex(Vec<(&'a str, bool)>),
    /// Contents of boxes that belong together.
    Boxed(Vec<&'a str>),
    /// A box that is not closed properly: its text from the brace on.
    Broken(&'a str),
    /// An expression without LaTeX.
    Expression(&'a str),
    /// Whole digits (with separators), fraction digits, percent.
    Number(&'a str, &'a str, bool),
}

/// A candidate and its place.
#[derive(Debug, Clone)]
pub(super) struct Candidate<'a> {
    pub(super) found: Found<'a>,
    start: usize,
    end: usize,
}

/// Characters of currencies that may stand before a number.
const CURRENCY: &str = "$€£¥₹₽₪₩₫฿₡₢₣₤₥₦₧₨₭₮₯₰₱₲₳₴₵₶₷₸₺₻₼₾₿";

const EXPRESSION: &str =
    r"(?P<expr>-?\(?-?\d[\d.\s+\-*×/^()÷]*[+\-*×/^()÷][\d.\s+\-*×/^()÷]+\)?)(?:\*\*)?(?:[.,:\s)$]|$)";
const NUMBER: &str = r"(?:(?P<i1>-?[1-9]\d{0,2}(?:[ ,]\d{3})+)(?P<d1>\.\d+)?|(?P<i2>-?\d+)(?P<d2>[.,]\d+)|(?P<d3>\.\d+)|(?P<i3>-?\d+))(?P<pct>\s*(?:%|[Pp]ercent|[Pp]ercentage|[Pp]ct))?";
const PREFIX: &str = r"(?:^|\s|=)(?:\*\*)?";

fn expression_or_number() -> String {
    format!("(?:{PREFIX}{EXPRESSION}|{PREFIX}[{CURRENCY}]?{NUMBER})")
}

fn fancy(pattern: &str) -> Option<Fancy> {
    Fancy::new(pattern).ok()
}

static BARE_EXPRESSION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!("{PREFIX}{EXPRESSION}")).ok());
static BARE_NUMBER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!("{PREFIX}[{CURRENCY}]?{NUMBER}")).ok());
static HOPED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!(r"^:?\s*{}\.?\s?I hope", expression_or_number())).ok());
static FINAL: LazyLock<Option<Fancy>> =
    LazyLock::new(|| fancy(&format!(r"^.{{0,100}}?\s+is:?{}", expression_or_number())));
static ANSWER: LazyLock<Option<Fancy>> =
    LazyLock::new(|| fancy(&format!(r"^(?:.{{0,100}}=\s*|.{{0,50}}?){}(?!\s*=)", expression_or_number())));

/// The groups of candidates, by priority. Each group is found when it is asked for.
pub(super) struct Search<'a> {
    text: &'a str,
    latex: bool,
    plain: bool,
    /// Ends of the word "answer".
    answers: Vec<usize>,
    /// Places of `$`, `\(`, `\[`: the environments, found once.
    environments: Option<Vec<Candidate<'a>>>,
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
        if latex {
            stages.push((options.boxed_match_priority, Stage::Boxes));
        }
        stages.sort_by_key(|(priority, _)| *priority);
        Self { text, latex, plain, answers: answer_ends(text), environments: None, stage: 0, stages }
    }

    /// The next priority's candidates, the rightmost first; `None` after the last.
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
            Stage::Boxes => boxes(self.text, group),
            Stage::Bare => {
                if self.latex {
                    group.extend(self.environments().iter().cloned());
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

    /// Candidates behind one occurrence of "answer".
    fn anchored(&mut self, stage: Stage, end: usize, group: &mut Vec<Candidate<'a>>) {
        let rest = &self.text[end..];
        let before = &self.text.as_bytes()[..end - 6];
        let is_final = ends_with_word(before, b"final ");
        let tail = match stage {
            Stage::Hoped => {
                if !is_final || !starts_with_word(rest.as_bytes(), b" is") {
                    return;
                }
                &rest[3..]
            }
            Stage::Final if !is_final => return,
            Stage::Colon => match rest.strip_prefix(':') {
                Some(tail) => tail,
                None => return,
            },
            _ => rest,
        };
        let offset = self.text.len() - tail.len();
        if self.plain {
            let window = clip(tail, 600);
            let captures = match stage {
                Stage::Hoped => {
                    HOPED.as_ref().and_then(|regex| regex.captures(window)).map(|c| read_captures(&c))
                }
                Stage::Final => fancy_captures(&FINAL, window),
                _ => fancy_captures(&ANSWER, window),
            };
            if let Some((found, end)) = captures.and_then(|(found, end)| Some((found?, end))) {
                group.push(Candidate { found, start: offset, end: offset + end });
            }
        }
        if self.latex {
            self.anchored_latex(stage, tail, offset, group);
        }
    }

    fn anchored_latex(&mut self, stage: Stage, tail: &'a str, offset: usize, group: &mut Vec<Candidate<'a>>) {
        let text = self.text;
        let (from, to) = match stage {
            Stage::Hoped => {
                let after = tail.strip_prefix(':').unwrap_or(tail);
                let start = offset + (tail.len() - after.len()) + (after.len() - after.trim_start().len());
                (start, start)
            }
            Stage::Final => {
                let window = clip(tail, 110);
                let Some(is) = find_is(window) else { return };
                let after = &tail[is..];
                let after_colon = after.strip_prefix(':').unwrap_or(after);
                let start = offset + tail.len() - after_colon.trim_start().len();
                (start, start)
            }
            _ => (offset, offset + clip(tail, 50).len()),
        };
        let environments = self.environments();
        let found = environments.iter().find(|candidate| {
            // A bracket in spaces starts one before its bracket.
            candidate.start >= from && candidate.start <= to
        });
        let Some(found) = found else { return };
        if stage == Stage::Hoped {
            let rest = &text[found.end..];
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
        group.push(found.clone());
    }

    fn environments(&mut self) -> &[Candidate<'a>] {
        let text = self.text;
        self.environments.get_or_insert_with(|| environments(text))
    }

    fn bare_numbers(&self, group: &mut Vec<Candidate<'a>>) {
        let text = self.text;
        if let Some(regex) = BARE_EXPRESSION.as_ref() {
            for captures in regex.captures_iter(text) {
                if let (Some(whole), Some(expr)) = (captures.get(0), captures.name("expr")) {
                    let found = Found::Expression(expr.as_str());
                    group.push(Candidate { found, start: whole.start(), end: whole.end() });
                }
            }
        }
        if let Some(regex) = BARE_NUMBER.as_ref() {
            for captures in regex.captures_iter(text) {
                let Some(whole) = captures.get(0) else { continue };
                if let (Some(found), _) = read_captures(&captures) {
                    group.push(Candidate { found, start: whole.start(), end: whole.end() });
                }
            }
        }
    }
}

fn read_captures<'a>(captures: &regex::Captures<'a>) -> (Option<Found<'a>>, usize) {
    let get = |name: &str| captures.name(name).map(|found| found.as_str());
    let end = captures.get(0).map_or(0, |whole| whole.end());
    (found_by(&get), end)
}

fn found_by<'a>(get: &dyn Fn(&str) -> Option<&'a str>) -> Option<Found<'a>> {
    if let Some(expr) = get("expr") {
        return Some(Found::Expression(expr));
    }
    let percent = get("pct").is_some();
    if let Some(whole) = get("i1") {
        return Some(Found::Number(whole, get("d1").map_or("", |fraction| &fraction[1..]), percent));
    }
    if let Some(whole) = get("i2") {
        return Some(Found::Number(whole, get("d2").map_or("", |fraction| &fraction[1..]), percent));
    }
    if let Some(fraction) = get("d3") {
        return Some(Found::Number("", &fraction[1..], percent));
    }
    get("i3").map(|whole| Found::Number(whole, "", percent))
}

fn fancy_captures<'a>(
    regex: &LazyLock<Option<Fancy>>,
    window: &'a str,
) -> Option<(Option<Found<'a>>, usize)> {
    let captures = regex.as_ref()?.captures(window).ok().flatten()?;
    let get = |name: &str| captures.name(name).map(|found| found.as_str());
    let end = captures.get(0).map_or(0, |whole| whole.end());
    Some((found_by(&get), end))
}

/// The text up to `limit` characters, cut at a character.
fn clip(text: &str, limit: usize) -> &str {
    match text.char_indices().nth(limit) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// The first " is" behind "final answer", its end.
fn find_is(window: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = window[from..].find("is") {
        let start = from + at;
        if window[..start].ends_with(char::is_whitespace) {
            return Some(start + 2);
        }
        from = start + 2;
    }
    None
}

fn starts_with_word(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
}

fn ends_with_word(text: &[u8], word: &[u8]) -> bool {
    text.len() >= word.len() && text[text.len() - word.len()..].eq_ignore_ascii_case(word)
}

/// Ends of "answer", in any case.
fn answer_ends(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let mut ends = Vec::new();
    let mut at = 0;
    // `w` is the rarest letter of the word.
    while let Some(found) = bytes[at..].iter().position(|byte| byte | 0x20 == b'w') {
        let w = at + found;
        at = w + 1;
        if w >= 3 && bytes.len() >= w + 3 && bytes[w - 3..w + 3].eq_ignore_ascii_case(b"answer") {
            ends.push(w + 3);
            if ends.len() >= 64 {
                // Enough anchors: the last ones matter.
                ends.remove(0);
            }
        }
    }
    ends
}

// ---- boxes ----

/// The last cluster of boxes; the ones before it are no answers.
fn boxes<'a>(text: &'a str, group: &mut Vec<Candidate<'a>>) {
    let mut cluster: Option<Candidate<'a>> = None;
    let mut at = 0;
    while let Some(found) = text[at..].find("\\boxed{") {
        let start = at + found;
        let open = start + 6;
        let Some(end) = matching_brace(text, open) else {
            // Never closed: what stands up to the last closing brace is kept as text.
            if let Some(last) = text[open..].rfind('}') {
                group.extend(cluster.take());
                let end = open + last + 1;
                group.push(Candidate { found: Found::Broken(&text[open..end]), start, end });
            }
            break;
        };
        let content = &text[open + 1..end - 1];
        let joined = cluster.as_ref().is_some_and(|previous| joins(&text[previous.end..start]));
        match (&mut cluster, joined) {
            (Some(Candidate { found: Found::Boxed(contents), end: last, .. }), true) => {
                contents.push(content);
                *last = end;
            }
            _ => {
                let found = Found::Boxed(vec![content]);
                cluster = Some(Candidate { found, start, end });
            }
        }
        at = end;
    }
    group.extend(cluster);
}

/// The place after the brace that closes the one at `open`.
fn matching_brace(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in text.as_bytes()[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(open + at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether the text between two boxes joins them.
fn joins(between: &str) -> bool {
    let length = clip(between, 70).len();
    if length < between.len() {
        return false;
    }
    let characters = between.chars().count();
    if characters < 10 {
        return true;
    }
    characters < 70 && (between.contains([',', ';']) || has_word(between, "and") || has_word(between, "or"))
}

fn has_word(text: &str, word: &str) -> bool {
    let mut from = 0;
    while let Some(at) = text[from..].find(word) {
        let (start, end) = (from + at, from + at + word.len());
        let part = |c: char| c.is_alphanumeric() || c == '_';
        if !text[..start].ends_with(part) && !text[end..].starts_with(part) {
            return true;
        }
        from = end;
    }
    false
}

// ---- environments ----

/// LaTeX between delimiters, up to six joined by connectives.
fn environments(text: &str) -> Vec<Candidate<'_>> {
    let mut found = Vec::new();
    let bytes = text.as_bytes();
    let mut failed = Failed::default();
    let mut at = 0;
    while at < bytes.len() {
        let Some(step) = bytes[at..].iter().position(|byte| matches!(byte, b'$' | b'\\' | b'[')) else {
            break;
        };
        let place = at + step;
        let Some(first) = environment(text, place, at, &mut failed) else {
            at = place + 1;
            continue;
        };
        let start = first.start;
        let mut end = first.end;
        let mut contents = vec![(first.content, first.percent)];
        while contents.len() < 6 {
            let Some(next_at) = connective(text, end) else { break };
            let Some(next) = environment(text, next_at, end, &mut failed) else { break };
            if next.start < end {
                break;
            }
            contents.push((next.content, next.percent));
            end = next.end;
        }
        found.push(Candidate { found: Found::Latex(contents), start, end });
        at = end;
    }
    found
}

/// Delimiters for which no closing one is left, so that it is not looked for again and again.
#[derive(Default)]
struct Failed {
    double: bool,
    bracket: bool,
    paren_line: usize,
    dollar_line: usize,
    spaced_line: usize,
}

struct Environment<'a> {
    content: &'a str,
    percent: bool,
    start: usize,
    end: usize,
}

/// The environment that opens at a `$`, backslash or bracket. `floor` is where the search may look back to.
fn environment<'a>(text: &'a str, at: usize, floor: usize, failed: &mut Failed) -> Option<Environment<'a>> {
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
        if rest.starts_with("$$") && !failed.double {
            match unescaped(bytes, at + 3, bytes.len(), |i| bytes[i..].starts_with(b"$$")) {
                Some(close) => return Some(closed(at + 2, close, 2)),
                None => failed.double = true,
            }
        }
        if at > 0 && bytes[at - 1].is_ascii_digit() {
            return None;
        }
        if failed.dollar_line > at {
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
            failed.dollar_line = place;
        }
        return None;
    }
    if rest.starts_with("\\[") && !escaped {
        if failed.bracket {
            return None;
        }
        let close = unescaped(bytes, at + 3, bytes.len(), |i| bytes[i..].starts_with(b"\\]"));
        failed.bracket = close.is_none();
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
        if failed.paren_line > at {
            return None;
        }
        let line = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |step| at + step);
        let close = unescaped(bytes, at + 3, line, |i| bytes[i..].starts_with(b"\\)"));
        if close.is_none() {
            failed.paren_line = line;
        }
        return close.map(|close| closed(at + 2, close, 2));
    }
    if rest.starts_with('[') && at > floor && bytes[at - 1].is_ascii_whitespace() {
        if failed.spaced_line > at {
            return None;
        }
        let mut place = at + 2;
        while let Some(byte) = bytes.get(place) {
            match byte {
                b'\n' | b'$' => break,
                b']' if bytes.get(place + 1).is_some_and(u8::is_ascii_whitespace) => {
                    let mut environment = closed(at + 1, place, 2);
                    environment.start = at - 1;
                    return Some(environment);
                }
                _ => {}
            }
            place += 1;
        }
        failed.spaced_line = place;
    }
    None
}

/// The length of `1}{2}` behind `\frac{`.
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

/// The first place from `from` on, not behind a backslash, that satisfies the predicate.
fn unescaped(bytes: &[u8], from: usize, to: usize, found: impl Fn(usize) -> bool) -> Option<usize> {
    (from..to).find(|at| matches!(bytes[*at], b'$' | b'\\') && bytes[*at - 1] != b'\\' && found(*at))
}

/// A percent sign or word behind an environment.
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

/// The place behind a connective that starts at `end`.
fn connective(text: &str, end: usize) -> Option<usize> {
    let rest = &text[end..];
    let trimmed = rest.trim_start();
    let after = ["and", "or", ","].iter().find_map(|word| trimmed.strip_prefix(word))?;
    Some(text.len() - after.trim_start().len())
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
            (" [x+1] ", &["x+1"]),
            ("AZYUK2A", &[]),
            ("the number is 1,000.99m", &["1,000.99"]),
            ("11 = 5+6", &["5+6"]),
        ] {
            assert_eq!(first(text), wanted, "{text}");
        }
    }
}
