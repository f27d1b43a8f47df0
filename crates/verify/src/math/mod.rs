//! Mathematical answers: extraction from a completion, parsing, and comparison with a reference answer.
//!
//! A [`Verifier`] is made once from the reference answer and then checks any number of completions. It is immutable
//! and `Send + Sync`. It doesn't do I/O, read a clock or start threads, and the work on one completion is
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
mod numeric;
pub mod parsed;
mod phrases;
mod plain;
mod propositions;
mod reader;
mod region;
mod residues;
mod typed;
pub(crate) mod units;
mod vectors;
pub(crate) mod words;

use std::borrow::Cow;

use crate::verdict::{Outcome, Verdict};
use boxes::Which;
pub(crate) use budget::ParseError;
use budget::{MAX_ANSWER, MAX_CANDIDATES};
use candidate::Found;
use compare::{Evidence, Subject};
use expr::Expr;
use extract::Search;
pub(crate) use plain::exact_value;

/// Rules that decide whether two answers are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// The rules of math-verify 0.9.0, including its quirks.
    #[default]
    Parity,
    /// Mathematical equality.
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

/// Settings by which the gold and the completion are parsed and compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Options {
    /// Rules that decide whether two answers are equal.
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
    /// Strict mode: whether `35\%` also equals 35. Parity mode has math-verify's rule for percentages.
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

/// A gold or an answer as math-verify parses it.
#[derive(Debug, Clone, Default)]
struct Reading {
    subject: Option<Subject>,
    /// Normalised text of the first candidate. Equal strings are equal answers.
    text: Option<String>,
    /// Whether a candidate exceeds the budget.
    over_budget: bool,
}

/// A gold or an answer as parsed in one of the modes.
#[derive(Debug, Clone)]
enum Read {
    Parity(Reading),
    Strict(Box<typed::Answer>),
}

impl Read {
    fn subject(&self) -> Option<&Subject> {
        match self {
            Self::Parity(reading) => reading.subject.as_ref(),
            Self::Strict(answer) => answer.subject.as_ref(),
        }
    }

    fn is_over_budget(&self) -> bool {
        match self {
            Self::Parity(reading) => reading.over_budget,
            Self::Strict(answer) => answer.over_budget,
        }
    }
}

/// The verifier of one reference answer, which is parsed once.
#[derive(Debug, Clone)]
pub struct Verifier {
    gold: Read,
    options: Options,
}

/// A cache of outcomes, so that a repeated answer is compared only once. The caller keeps one per problem.
///
/// Stores a limited number of short answers. Plain numbers are not stored, because comparing them is faster than a lookup.
#[derive(Debug, Clone, Default)]
pub struct Memo {
    outcomes: Vec<(Subject, Outcome)>,
}

impl Memo {
    /// Maximum number of distinct answers. Further answers aren't added.
    const CAPACITY: usize = 64;
    /// Length of the longest stored answer, in bytes.
    const LONGEST: usize = 256;

    /// Creates an empty cache for one problem.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of distinct stored answers.
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Returns whether no answer is stored yet.
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
        let gold = match options.match_types {
            _ if options.mode == Mode::Strict => {
                Read::Strict(Box::new(typed::Answer::of_gold(gold, options.match_types)))
            }
            None => Read::Parity(read(&format!("\\boxed{{{gold}}}"), options, true, false)),
            Some(types) => Read::Parity(read(gold, options, types.latex, types.expr)),
        };
        Self { gold, options: options.clone() }
    }

    /// Returns whether the gold could be parsed into a value.
    pub fn is_parsed(&self) -> bool {
        self.gold.subject().is_some()
    }

    /// Returns whether the gold itself is beyond the budget, so that other answers can't be compared with it.
    pub fn is_too_expensive(&self) -> bool {
        let subject = self.gold.subject();
        self.gold.is_over_budget()
            || subject.is_some_and(|gold| compare::is_too_expensive(gold, &self.options))
    }

    /// Finds the answer in a completion and compares it with the gold.
    pub fn check(&self, response: &str) -> Outcome {
        self.judge(&self.read_response(response))
    }

    /// Checks a completion like [`Self::check`]. If `memo` contains the answer, takes its outcome from there.
    pub fn check_with(&self, response: &str, memo: &mut Memo) -> Outcome {
        let reading = self.read_response(response);
        let (Some(gold), Some(subject)) = (self.gold.subject(), reading.subject()) else {
            return self.judge(&reading);
        };
        // The comparison depends only on the two values. Equal texts are equal without a comparison.
        let cheap = gold.expr.is_number() && subject.expr.is_number();
        let alone = match (&self.gold, &reading) {
            (Read::Strict(gold), Read::Strict(answer)) => gold.decides_alone(answer),
            (Read::Parity(gold), Read::Parity(answer)) => gold.same_text(answer),
            _ => false,
        };
        if cheap || alone {
            return self.judge(&reading);
        }
        if let Some((_, outcome)) = memo.outcomes.iter().find(|(known, _)| known == subject) {
            return outcome.clone();
        }
        let outcome = self.judge(&reading);
        let short = match &reading {
            Read::Parity(reading) => reading.text.as_ref().is_some_and(|text| text.len() <= Memo::LONGEST),
            Read::Strict(answer) => answer.tokens.len() <= Memo::LONGEST,
        };
        if short && memo.outcomes.len() < Memo::CAPACITY {
            memo.outcomes.push((subject.clone(), outcome.clone()));
        }
        outcome
    }

    fn read_response(&self, response: &str) -> Read {
        let types = self.options.match_types.unwrap_or(MatchTypes { latex: true, expr: true });
        match self.options.mode {
            Mode::Parity => Read::Parity(read(response, &self.options, types.latex, types.expr)),
            Mode::Strict => Read::Strict(Box::new(typed::Answer::of_response(response, types))),
        }
    }

    fn judge(&self, answer: &Read) -> Outcome {
        match (&self.gold, answer) {
            // Only the gold makes a problem unscorable.
            (gold, _) if gold.is_over_budget() => Outcome::new(Verdict::Unscorable, "budget"),
            (Read::Strict(gold), Read::Strict(answer)) => gold.judge(answer, &self.options),
            (Read::Parity(gold), Read::Parity(answer)) => gold.judge(answer, &self.options),
            _ => Outcome::new(Verdict::Unscorable, "gold"),
        }
    }
}

impl Reading {
    fn same_text(&self, answer: &Self) -> bool {
        let texts = self.text.as_deref().zip(answer.text.as_deref());
        texts.is_some_and(|(gold, answer)| !gold.trim().is_empty() && gold.trim() == answer.trim())
    }

    fn judge(&self, answer: &Self, options: &Options) -> Outcome {
        if self.subject.is_none() && self.text.is_none() {
            return Outcome::new(Verdict::Unscorable, "gold");
        }
        if self.same_text(answer) {
            return Outcome::new(Verdict::Correct, "exact");
        }
        match (&self.subject, &answer.subject) {
            (Some(gold), Some(subject)) => judge_values(gold, subject, options),
            (gold, _) => unread(gold.is_some(), answer.text.is_some(), answer.over_budget),
        }
    }
}

/// Returns the outcome of an answer that can't be compared. `gold` is whether the gold has a value, `text` whether the
/// answer contains anything, and `over_budget` whether it exceeds the limits.
fn unread(gold: bool, text: bool, over_budget: bool) -> Outcome {
    match text {
        _ if over_budget => Outcome::new(Verdict::Wrong, "budget"),
        true if !gold => Outcome::new(Verdict::Wrong, "text"),
        true => Outcome::new(Verdict::Unparsed, "text"),
        false => Outcome::new(Verdict::Unparsed, "none"),
    }
}

/// Returns the outcome of a comparison of two values.
fn judge_values(gold: &Subject, answer: &Subject, options: &Options) -> Outcome {
    let Ok(result) = compare::compare(gold, answer, options) else {
        return Outcome::new(Verdict::Wrong, "budget");
    };
    let restated = result.equal
        && options.mode == Mode::Strict
        && !options.accept_unfinished
        && !compare::is_finished(gold, answer, options);
    let verdict = if result.equal && !restated { Verdict::Correct } else { Verdict::Wrong };
    let reason = match result.evidence {
        _ if restated => "restated",
        Evidence::Exact => "exact",
        Evidence::Certified => "certified",
        Evidence::Probabilistic => "probabilistic",
    };
    Outcome::new(verdict, reason)
}

/// Returns whether two strings parse to the same value in strict mode.
fn same_value(first: &str, second: &str) -> bool {
    same_to(first, second, Options::default().precision)
}

/// Whether a string is a value, exactly or as a decimal that is rounded to at least `precision` digits.
fn same_to(value: &str, text: &str, precision: usize) -> bool {
    let read = |text: &str| typed::Answer::read(&[text.into()]).subject;
    let options = Options { mode: Mode::Strict, precision, ..Options::default() };
    let same = |(first, second)| compare::compare(&first, &second, &options).is_ok_and(|result| result.equal);
    read(value).zip(read(text)).is_some_and(same)
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

/// Returns the value of a candidate, and its normalised text.
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
                    // If one part can't be read, the first part is the answer.
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
    let mut value = latex::parse(&text);
    let mut read = &*text;
    if value == Err(ParseError::Syntax) {
        // A chain that cannot be read ends in its value. For math-verify, a list is no chain.
        let list = text.contains([',', ';']);
        if let Some(at) = text.rfind('=').filter(|at| !list && text[..*at].contains('=')) {
            let tail = text[at + 1..].trim();
            if !tail.is_empty() {
                value = latex::parse(tail);
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

/// Returns the contents of the boxes in a string, joined by commas, or the whole string if it doesn't contain a box.
fn unboxed(raw: &str) -> Cow<'_, str> {
    match boxes::contents(raw, Which::All)[..] {
        [] => Cow::Borrowed(raw),
        [one] => Cow::Borrowed(one),
        ref several => several.join(",").into(),
    }
}

/// Returns whether the letter `i` occurs alone as a word.
fn has_lone_i(text: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices('i').any(|(at, _)| !text[..at].ends_with(part) && !text[at + 1..].starts_with(part))
}
