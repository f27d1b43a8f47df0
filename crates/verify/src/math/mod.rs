//! Mathematical answers: extraction from a completion, parsing, and comparison with a reference answer.
//!
//! A [`Verifier`] is made once from the reference answer and then checks any number of completions. It is immutable
//! and `Send + Sync`; nothing inside does I/O, reads a clock or starts a thread, and the work on one completion is
//! bounded (see `budget`). A completion that exceeds the bounds is wrong, with reason `budget`: a policy can't make its
//! completion unscorable. If the gold can't be read within them, every answer is [`Verdict::Unscorable`]; if it can't be
//! computed, it equals the same expression, and every other answer is wrong.
//!
//! ```
//! use fgrpo_verify::math::{Options, Verifier};
//!
//! let verifier = Verifier::new("\\frac{1}{2}", &Options::default());
//! assert!(verifier.check("so the answer is \\boxed{0.5}").is_correct());
//! assert!(!verifier.check("so the answer is \\boxed{0.6}").is_correct());
//! ```
//!
//! It deliberately does not simplify, solve or integrate: equality is decided by exact arithmetic, by ball arithmetic
//! that certifies differences, by expanded polynomials, and finally by values at pseudo-random points.

mod answer;
mod application;
mod ball;
mod boxes;
mod budget;
mod candidate;
mod canonical;
mod compare;
mod environments;
mod exact;
mod expr;
mod extract;
mod finished;
pub mod gold;
mod latex;
mod lexer;
mod normal_parity;
mod normal_strict;
mod numeric;
pub mod parsed;
mod plain;
mod region;
mod retraction;
mod statement;
mod units;

use std::borrow::Cow;

use crate::boxed;
use crate::python_text::regex;
use crate::verdict::{Outcome, Verdict};
use boxes::Which;
pub(crate) use budget::ParseError;
use budget::{MAX_ANSWER, MAX_CANDIDATES};
use candidate::Found;
use compare::{Evidence, Subject};
use expr::{Expr, Relation};
use extract::Search;
pub(crate) use plain::exact_value;

/// When two answers are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// As in math-verify 0.9.0, including its quirks.
    #[default]
    Parity,
    /// If they are mathematically equal.
    Strict,
}

/// Notations that are searched in a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatchTypes {
    /// Boxes and LaTeX between delimiters.
    pub latex: bool,
    /// Numbers and arithmetic without LaTeX.
    pub expr: bool,
}

/// How gold and completion are parsed and compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Options {
    /// When two answers are equal.
    pub mode: Mode,
    /// Notations searched in both strings. `None` wraps the gold in `\boxed{}`, parses it as LaTeX, and searches both
    /// notations in the completion.
    pub match_types: Option<MatchTypes>,
    /// Number of decimals for comparing a literal decimal.
    pub precision: usize,
    /// Whether variables must have the same names.
    pub strict: bool,
    /// Whether an inequality in the completion may equal a set in the gold.
    pub allow_set_relation_comp: bool,
    /// Strict mode: whether `35\%` also equals 35. Parity mode has the reference's rule for percentages.
    pub percent_as_number: bool,
    /// Strict mode: whether an operation that is not carried out is an answer, as `12+17` for 29. It always is if the
    /// gold is written with it.
    pub accept_unfinished: bool,
    /// Priority of boxes: 0 is with "final answer is .. I hope", 50 with "final answer .. is", 300 with bare LaTeX.
    pub boxed_match_priority: i32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Parity,
            match_types: None,
            precision: 6,
            strict: true,
            allow_set_relation_comp: false,
            percent_as_number: false,
            accept_unfinished: false,
            boxed_match_priority: 50,
        }
    }
}

/// A parsed answer.
#[derive(Debug, Clone, Default)]
struct Reading {
    subject: Option<Subject>,
    /// The normalised text of the first candidate; equal strings are equal answers.
    text: Option<String>,
    /// Whether some candidate was beyond the limits.
    over_budget: bool,
    /// Strict mode: whether several answers are offered.
    hedged: bool,
    /// Strict mode: whether it is a list in braces, which has no order.
    braced: bool,
    /// Strict mode: the letter of the option before the value, as in `\textbf{(D)}\ 45`.
    letter: Option<char>,
}

/// The verifier of one reference answer, which is parsed once.
#[derive(Debug, Clone)]
pub struct Verifier {
    gold: Reading,
    options: Options,
}

/// A cache of outcomes, so that a repeated answer is compared only once. The caller keeps one per problem.
///
/// Stores a limited number of short answers. Plain numbers are not stored, because comparing them is faster than a
/// lookup.
#[derive(Debug, Clone, Default)]
pub struct Memo {
    outcomes: Vec<(Subject, Outcome)>,
}

impl Memo {
    /// Largest number of distinct answers; further ones are not added.
    const CAPACITY: usize = 64;
    /// Length of the longest stored answer, in bytes.
    const LONGEST: usize = 256;

    /// An empty cache for one problem.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of distinct stored answers.
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Whether no answer is stored yet.
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }
}

impl Verifier {
    /// Parses a reference answer.
    ///
    /// A gold that is not mathematics equals only the same text. With an empty gold, every check is
    /// [`Verdict::Unscorable`] with reason `gold`. With a gold that is too long or too deeply nested, every check is
    /// unscorable with reason `budget`. A gold that is not computable here (an infinite sum, a limit, most integrals)
    /// equals the same expression, and every other answer is wrong.
    pub fn new(gold: &str, options: &Options) -> Self {
        let reading = match options.match_types {
            _ if options.mode == Mode::Strict => read_strict_gold(gold, options),
            None => read(&format!("\\boxed{{{gold}}}"), options, true, false),
            Some(types) => read(gold, options, types.latex, types.expr),
        };
        Self { gold: reading, options: options.clone() }
    }

    /// Whether the gold could be parsed into a value.
    pub fn is_parsed(&self) -> bool {
        self.gold.subject.is_some()
    }

    /// Whether the gold itself is beyond the budget, so that other answers can't be compared with it.
    pub fn is_too_expensive(&self) -> bool {
        let subject = self.gold.subject.as_ref();
        self.gold.over_budget || subject.is_some_and(|gold| compare::is_too_expensive(gold, &self.options))
    }

    /// Checks a completion.
    pub fn check(&self, response: &str) -> Outcome {
        self.judge(&self.read_response(response))
    }

    /// Checks a completion, with repeated answers from the cache.
    pub fn check_with(&self, response: &str, memo: &mut Memo) -> Outcome {
        let reading = self.read_response(response);
        let (Some(gold), Some(subject)) = (&self.gold.subject, &reading.subject) else {
            return self.judge(&reading);
        };
        // The comparison depends on the two values alone; that equal texts are equal is found without it.
        let cheap = gold.expr.is_number() && subject.expr.is_number();
        if cheap || reading.braced || self.same_text(&reading) || self.is_empty_equation(&reading) {
            return self.judge(&reading);
        }
        if let Some((_, outcome)) = memo.outcomes.iter().find(|(known, _)| known == subject) {
            return outcome.clone();
        }
        let outcome = self.judge(&reading);
        let short = reading.text.as_ref().is_some_and(|text| text.len() <= Memo::LONGEST);
        if short && memo.outcomes.len() < Memo::CAPACITY {
            memo.outcomes.extend(reading.subject.map(|subject| (subject, outcome.clone())));
        }
        outcome
    }

    fn read_response(&self, response: &str) -> Reading {
        let types = self.options.match_types.unwrap_or(MatchTypes { latex: true, expr: true });
        match self.options.mode {
            Mode::Parity => read(response, &self.options, types.latex, types.expr),
            Mode::Strict => {
                // Markdown's bold italics are bold to the patterns of plain answers.
                let mut response = boxed::halfwidth(response).replace("***", "**");
                if response.contains('`') {
                    response = regex!(r"(^|[^`])`([^`\n]+)`").replace_all(&response, "$1$2").into_owned();
                }
                if response.contains('*') {
                    const ITALICS: &str = r"(^|[\s(])\*([^*\s]+)\*([\s.,;:!?)]|$)";
                    response = regex!(ITALICS).replace_all(&response, "$1$2$3").into_owned();
                }
                let response = answer::with_money(&response);
                // Check marks, boxes and pictures behind the last sentence.
                let marks = |c: char| {
                    c.is_whitespace()
                        || c >= '\u{1f000}'
                        || matches!(c, '∎' | '\u{2500}'..='\u{27bf}' | '\u{fe0f}')
                };
                read_strictly(&answer::find(response.trim_end_matches(marks), types.latex, types.expr))
            }
        }
    }

    fn same_text(&self, answer: &Reading) -> bool {
        let texts = self.gold.text.as_deref().zip(answer.text.as_deref());
        texts.is_some_and(|(gold, answer)| !gold.trim().is_empty() && gold.trim() == answer.trim())
    }

    /// Whether an answer, strictly, says only that something is itself, as `5=5`.
    fn is_empty_equation(&self, answer: &Reading) -> bool {
        let sides = answer.text.as_deref().and_then(|text| text.split_once('='));
        self.options.mode == Mode::Strict && sides.is_some_and(|(left, right)| left.trim() == right.trim())
    }

    fn judge(&self, answer: &Reading) -> Outcome {
        // Only the gold makes a problem unscorable.
        if self.gold.over_budget {
            return Outcome::new(Verdict::Unscorable, "budget");
        }
        if self.gold.subject.is_none() && self.gold.text.is_none() {
            return Outcome::new(Verdict::Unscorable, "gold");
        }
        if answer.hedged {
            return Outcome::new(Verdict::Wrong, "several");
        }
        // The letter of an option says what its value says.
        if let Some(letter) = self.gold.letter {
            let said = answer.text.as_deref().map(|text| text.trim_matches(['(', ')', '.', ' ']));
            let other = answer.letter.is_some_and(|other| other != letter);
            if other || said.is_some_and(|said| said.chars().eq([letter])) {
                let verdict = if other { Verdict::Wrong } else { Verdict::Correct };
                return Outcome::new(verdict, "exact");
            }
        }
        if self.same_text(answer) {
            return Outcome::new(Verdict::Correct, "exact");
        }
        let (gold, subject) = match (&self.gold.subject, &answer.subject) {
            (Some(gold), Some(subject)) => (gold, subject),
            (gold, _) => {
                return match &answer.text {
                    _ if answer.over_budget => Outcome::new(Verdict::Wrong, "budget"),
                    Some(_) if gold.is_none() => Outcome::new(Verdict::Wrong, "text"),
                    Some(_) => Outcome::new(Verdict::Unparsed, "text"),
                    None => Outcome::new(Verdict::Unparsed, "none"),
                };
            }
        };
        let ordered = |expr: &Expr| matches!(expr, Expr::Tuple(_) | Expr::Interval(..));
        if self.is_empty_equation(answer)
            || self.gold.braced && ordered(&subject.expr)
            || answer.braced && ordered(&gold.expr)
        {
            return Outcome::new(Verdict::Wrong, "exact");
        }
        match compare::compare(gold, subject, &self.options) {
            Ok(result) => {
                let restated = result.equal
                    && self.options.mode == Mode::Strict
                    && !self.options.accept_unfinished
                    && !compare::is_finished(gold, subject, &self.options);
                let verdict = if result.equal && !restated { Verdict::Correct } else { Verdict::Wrong };
                let reason = match result.evidence {
                    _ if restated => "restated",
                    Evidence::Exact => "exact",
                    Evidence::Certified => "certified",
                    Evidence::Probabilistic => "probabilistic",
                };
                Outcome::new(verdict, reason)
            }
            Err(_) => Outcome::new(Verdict::Wrong, "budget"),
        }
    }
}

/// Reads the parts of an answer in strict mode: several are a list.
fn read_strictly(found: &answer::Answer) -> Reading {
    let mut reading = Reading { hedged: found.hedged, ..Reading::default() };
    let mut values: Vec<Expr> = Vec::new();
    let mut open = finished::Open::default();
    let mut rounded = false;
    let mut texts = Vec::new();
    for part in &found.parts {
        if part.len() > MAX_ANSWER {
            return Reading { over_budget: true, ..Reading::default() };
        }
        let (letter, part) = lettered(part).map_or((None, &**part), |(letter, rest)| (Some(letter), rest));
        reading.letter = reading.letter.or(letter);
        rounded |= part.contains("\\approx") || part.contains('≈');
        let text = normal_strict::normalize(part);
        // One answer that is stated twice.
        if texts.contains(&text) {
            continue;
        }
        let parsed = piecewise(part).unwrap_or_else(|| parse_strictly(&text));
        if !text.is_empty() {
            texts.push(text);
        }
        match parsed {
            Ok((expr, done)) => {
                open = open.with(done);
                let inner = match expr {
                    Expr::Set(inner) if found.parts.len() > 1 => inner,
                    other => vec![other],
                };
                values.extend(inner);
            }
            Err(error) => {
                reading.over_budget |= error == ParseError::Budget;
                values.clear();
                break;
            }
        }
    }
    reading.braced = texts.len() == 1
        && texts[0].starts_with("\\{")
        && texts[0].ends_with("\\}")
        && values.iter().all(
            |value| matches!(value, Expr::Set(inner) if inner.len() > 1 && !inner.iter().any(Expr::is_set)),
        );
    // Alternatives have no order either.
    reading.braced |= texts.len() == 1
        && (texts[0].contains("\\lor") || texts[0].contains("\\vee"))
        && matches!(values[..], [Expr::Set(_)]);
    reading.braced |= texts.len() == 1 && regex!(r"\\in\s*\\\{.*\\\}$").is_match(&texts[0]);
    reading.text = Some(texts.join(", ")).filter(|text| !text.is_empty());
    reading.subject = match values.len() {
        0 => None,
        1 => values.pop(),
        _ => Some(Expr::Set(values)),
    }
    .map(|expr| Subject { expr, complex: false, rounded, open });
    if reading.subject.is_none() {
        reading.text = reading.text.map(|text| normal_strict::as_words(&text).into_owned());
    }
    reading
}

/// Whether two strings are the same value, strictly.
fn same_value(first: &str, second: &str) -> bool {
    let read = |text| read_strictly(&answer::Answer::of(text)).subject;
    let options = Options { mode: Mode::Strict, ..Options::default() };
    let same = |(first, second)| compare::compare(&first, &second, &options).is_ok_and(|result| result.equal);
    read(first).zip(read(second)).is_some_and(same)
}

/// The letter of an option and the value behind it: `\textbf{(D)}\ 45`, `(D) 45`.
fn lettered(text: &str) -> Option<(char, &str)> {
    const COMMAND: &str = concat!(
        r"(?s)^[\s$]*(?:\\(?:textbf|mathbf|text|textrm|mathrm|bf)\s*\{\s*\(?([A-E])\s*[).:]+\s*\}(?:\\[ ,;:!]|\\q?quad\b|[~\s:])*|",
        r"\(([A-E])\)\s+)(\S*\w.*)$"
    );
    let found = regex!(COMMAND).captures(text)?;
    let letter = found.get(1).or(found.get(2))?.as_str().chars().next()?;
    Some((letter, found.get(3)?.as_str()))
}

/// Reads a function by cases as a set of pairs, each a value and its condition. Returns `None` for a system of equations.
fn piecewise(text: &str) -> Option<Result<(Expr, finished::Open), ParseError>> {
    let (head, rest) = text.split_once("\\begin{cases}")?;
    let (body, tail) = rest.split_once("\\end{cases}")?;
    if tail.contains(|c: char| c.is_alphanumeric()) {
        return None;
    }
    let mut open = finished::Open::default();
    let mut read = |text: &str| {
        let text = text.trim_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '.' | '&'));
        let (value, done) = parse_strictly(&normal_strict::normalize(text))?;
        open = open.with(done);
        Ok(value)
    };
    const CONDITION: &str = r"&|,?\s*(?:\\(?:text|mbox|textrm|mathrm)\{[\s,]*)?\b(?:if|for|when|otherwise|else)\b|\\(?:text|mbox)\{[\s,]*(?:if|for|when|otherwise|else)\b";
    const WORD: &str = r"^[\s&,]*(?:\\(?:text|mbox|textrm|mathrm)\{)?[\s,]*(?:if|for|when)?\b\s*\}?";
    let mut rows = Vec::new();
    for row in body.split("\\\\").filter(|row| !row.trim().is_empty()) {
        let (start, bare) = match (regex!(CONDITION).find(row), row.rsplit_once(',')) {
            (Some(found), _) => (found.start(), false),
            (None, Some((value, _))) => (value.len(), true),
            _ => return None,
        };
        let (value, condition) = row.split_at(start);
        let condition = regex!(WORD).replace(&condition[usize::from(bare)..], "");
        if value.trim().is_empty() || condition.trim().is_empty() && !row.contains("otherwise") {
            return None;
        }
        // A system of equations.
        if value.contains('=') || condition.trim_start().starts_with('=') {
            return None;
        }
        let condition = match condition.contains("otherwise") || condition.contains("else") {
            true => Ok(Expr::symbol("otherwise")),
            false => read(&condition),
        };
        match (read(value), condition) {
            (Ok(value), Ok(condition)) => rows.push(Expr::Tuple(vec![value, condition])),
            (Err(error), _) | (_, Err(error)) => return Some(Err(error)),
        }
    }
    let cases = Expr::Set(rows);
    let head = head.trim().trim_start_matches('$').trim();
    let Some(name) = head.strip_suffix('=') else {
        return head.is_empty().then_some(Ok((cases, open)));
    };
    Some(read(name).map(|name| (Expr::relation(Relation::Equal, name, cases), open)))
}

/// Parses a part of an answer: all of it, or what is said about a quantity in a notation that is not read.
fn parse_strictly(text: &str) -> Result<(Expr, finished::Open), ParseError> {
    let whole = latex::parse(text, Mode::Strict);
    if whole == Err(ParseError::Syntax)
        && let Some((before, after)) = implication(text)
        && latex::parse(before, Mode::Strict).is_ok_and(|(given, _)| given.is_relation())
    {
        return latex::parse(after, Mode::Strict);
    }
    let Some((name, rest)) = application::stated(text).filter(|_| whole == Err(ParseError::Syntax)) else {
        return whole;
    };
    let (said, done) = latex::parse(rest, Mode::Strict)?;
    let name = Expr::symbol(&name.split_whitespace().collect::<String>());
    let equal = |value: Expr| Expr::relation(Relation::Equal, name, value);
    match said {
        Expr::Relation(Relation::Equal, ref sides) => {
            Ok((Expr::Chain(vec![equal(sides[0].clone()), said]), done))
        }
        value if !value.is_relation() => Ok((equal(value), done)),
        _ => whole,
    }
}

/// Splits at the last arrow from one statement to the next: `2x=6 \\Rightarrow x=3` states `x=3`.
fn implication(text: &str) -> Option<(&str, &str)> {
    const ARROWS: [&str; 5] = ["\\Rightarrow", "\\implies", "\\Longrightarrow", "\\iff", "\\Leftrightarrow"];
    let split = |text: &'_ str| {
        let place = ARROWS.iter().filter_map(|arrow| Some((text.rfind(arrow)?, arrow.len()))).max();
        place.map(|(at, length)| (at, at + length))
    };
    let (end, after) = split(text)?;
    let before = &text[..end];
    let before = before[split(before).map_or(0, |(_, start)| start)..].trim().trim_end_matches(',');
    (text[..end].matches('{').count() == text[..end].matches('}').count()).then_some((before, &text[after..]))
}

/// Reads a gold in strict mode: all of it is the answer, unless the options say that it is part of a string.
fn read_strict_gold(gold: &str, options: &Options) -> Reading {
    let gold = &*boxed::halfwidth(gold);
    let gold = &*regex!(r"\\tag\*?\{[^{}]*\}").replace_all(gold, "");
    let found = match options.match_types {
        Some(types) => answer::find(gold, types.latex, types.expr),
        None => answer::Answer::of(gold),
    };
    Reading { hedged: false, ..read_strictly(&found) }
}

/// Finds the answer in a string and parses it.
fn read(text: &str, options: &Options, latex: bool, plain: bool) -> Reading {
    let mut reading = Reading::default();
    let mut search = Search::new(text, options, latex, plain);
    let mut tried = 0;
    while let Some(group) = search.next_group() {
        for candidate in group {
            tried += 1;
            if tried > MAX_CANDIDATES {
                return reading;
            }
            let (value, text) = read_candidate(&candidate.found);
            if reading.text.is_none() && !text.trim().is_empty() {
                reading.text = Some(text);
            }
            match value {
                Ok(subject) => {
                    reading.subject = Some(subject);
                    return reading;
                }
                Err(ParseError::Budget) => {
                    reading.over_budget = true;
                    return reading;
                }
                Err(ParseError::Syntax) => {}
            }
        }
    }
    reading
}

/// The value of a candidate, and its normalised text.
fn read_candidate(found: &Found<'_>) -> (Result<Subject, ParseError>, String) {
    match found {
        Found::Number(whole, fraction, percent) => {
            let digits: String = whole.chars().filter(|c| !matches!(c, ',' | ' ')).collect();
            let text = match (digits.is_empty(), fraction.is_empty()) {
                (_, true) => digits.clone(),
                (true, false) => format!("0.{fraction}"),
                (false, false) => format!("{digits}.{fraction}"),
            };
            let value = plain::number(&digits, fraction)
                .map(|value| Subject::plain(if *percent { Expr::Percent(Box::new(value)) } else { value }));
            (value, text)
        }
        Found::Oversized => (Err(ParseError::Budget), String::new()),
        Found::Expression(text) => {
            if text.len() > MAX_ANSWER {
                return (Err(ParseError::Budget), String::new());
            }
            (plain::parse(text).map(Subject::plain), (*text).to_owned())
        }
        Found::Broken(text) => {
            if text.len() > MAX_ANSWER {
                return (Err(ParseError::Budget), String::new());
            }
            (Err(ParseError::Syntax), normal_parity::normalize(text))
        }
        Found::Boxed(contents) => {
            if contents.iter().map(|content| content.len()).sum::<usize>() > MAX_ANSWER {
                return (Err(ParseError::Budget), String::new());
            }
            read_latex(&contents.join(","), false)
        }
        Found::Latex(parts) => {
            if parts.iter().map(|(part, _)| part.len()).sum::<usize>() > MAX_ANSWER {
                return (Err(ParseError::Budget), String::new());
            }
            if let [(part, percent)] = parts[..] {
                return read_latex(part, percent);
            }
            let mut values = Vec::new();
            let mut texts = Vec::new();
            let mut complex = false;
            for (part, percent) in parts {
                let (value, text) = read_latex(part, *percent);
                texts.push(text);
                match value {
                    Ok(subject) => {
                        complex |= subject.complex;
                        let inner = match subject.expr {
                            Expr::Set(inner) => inner,
                            other => vec![other],
                        };
                        for value in inner {
                            if !values.contains(&value) {
                                values.push(value);
                            }
                        }
                    }
                    Err(ParseError::Budget) => return (Err(ParseError::Budget), String::new()),
                    // Where one cannot be read, the first is the answer.
                    Err(ParseError::Syntax) => {
                        let (first, percent) = parts[0];
                        return read_latex(first, percent);
                    }
                }
            }
            let value = Ok(Subject { complex, ..Subject::plain(Expr::Set(values)) });
            (value, texts.join(" and "))
        }
    }
}

/// Parses LaTeX: the whole text, or else the part after the last of several equals signs.
fn read_latex(raw: &str, percent: bool) -> (Result<Subject, ParseError>, String) {
    let raw = unboxed(raw);
    let text = normal_parity::normalize(&raw);
    let mut value = latex::parse(&text, Mode::Parity);
    let mut read = &*text;
    if value == Err(ParseError::Syntax) {
        // A chain that cannot be read ends in its value. For the reference, a list is no chain.
        let list = text.contains([',', ';']);
        if let Some(at) = text.rfind('=').filter(|at| !list && text[..*at].contains('=')) {
            let tail = text[at + 1..].trim();
            if !tail.is_empty() {
                value = latex::parse(tail, Mode::Parity);
                read = tail;
            }
        }
    }
    let complex = has_lone_i(read);
    let value = value.map(|(expr, open)| Subject {
        expr: match expr {
            expr if !percent => expr,
            expr if expr.is_number() => Expr::Percent(Box::new(expr)),
            expr => Expr::Mul(vec![expr, Expr::integer(100).inverse()]),
        },
        complex,
        rounded: false,
        open,
    });
    (value, text)
}

/// The contents of the boxes inside a string, if there are any.
fn unboxed(raw: &str) -> Cow<'_, str> {
    match boxes::contents(raw, Which::All)[..] {
        [] => Cow::Borrowed(raw),
        [one] => Cow::Borrowed(one),
        ref several => several.join(",").into(),
    }
}

/// Whether the letter `i` occurs alone as a word.
fn has_lone_i(text: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices('i').any(|(at, _)| !text[..at].ends_with(part) && !text[at + 1..].starts_with(part))
}
