//! Parsed answers as values, for programs that parse and compare in separate steps, as math-verify's users do.
//!
//! Everything here is in parity mode; [`super::Verifier`] is for the rest. Values are formatted in a plain notation close
//! to SymPy's.

use std::cmp::Reverse;
use std::fmt::{self, Display, Write as _};

use dashu_base::UnsignedAbs;
use dashu_int::IBig;
use dashu_ratio::RBig;
use regex::Regex;

use super::budget::{MAX_CANDIDATES, MAX_DIGITS, ParseError};
use super::candidate::Found;
use super::compare::{self, Subject, without_point};
use super::expr::{Constant, Expr, Fold, Relation};
use super::extract::Search;
use super::{Options, read_candidate};

/// Kind of answer to search for.
#[derive(Debug, Clone)]
pub enum Target {
    /// Boxes and LaTeX between delimiters.
    Latex {
        /// Whether LaTeX counts without "answer" or a box before it.
        bare: bool,
        /// Priority of boxes, as in [`Options::boxed_match_priority`]; if negative, boxes don't count.
        boxes: i32,
        /// Whether a chain `a = b = c` is read as its last part, even if the whole can be parsed.
        last: bool,
    },
    /// Numbers and arithmetic without LaTeX. The value is whether they count without "answer" before them.
    Plain(bool),
    /// The words of a list, such as the letters of options.
    Words(Words),
}

/// Patterns that find one of some words, by priority.
#[derive(Debug, Clone)]
pub struct Words {
    patterns: Vec<(i32, Regex)>,
    lowercase: bool,
}

impl Words {
    /// Compiles the patterns. `bare`: whether a word counts without "answer" before it. `lowercase`: whether to return
    /// it in lower case. Fails if there are too many words for one pattern.
    pub fn new(words: &[String], bare: bool, lowercase: bool) -> Result<Self, String> {
        let any = words.iter().map(|word| regex::escape(word)).collect::<Vec<_>>().join("|");
        let word = format!("(?P<word>{any})");
        let ends = r"(?:\*\*)?(?:\.|,|:|\s|$)";
        let marked = format!(r"(?:^|\s)(?:\*\*)?{word}{ends}");
        let mut patterns = vec![
            (0, format!(r"(?i:final answer is):?\s*{word}\.?\s?I hope")),
            (50, format!(r"(?i:final answer.{{0,100}}?)\s+is:?\s*{word}")),
            (100, format!("(?i:answer):.{{0,50}}?{marked}")),
            (200, format!("(?i:answer).{{0,50}}?{marked}")),
        ];
        if bare {
            patterns.push((250, format!(r"^(?:\*\*)?{word}{ends}")));
            patterns.push((300, marked));
        }
        let compiled = |(priority, pattern): (i32, String)| match Regex::new(&pattern) {
            Ok(regex) => Ok((priority, regex)),
            Err(why) => Err(why.to_string()),
        };
        Ok(Self { patterns: patterns.into_iter().map(compiled).collect::<Result<_, _>>()?, lowercase })
    }
}

/// A parsed mathematical answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Notation of the strings: "latex", "boxed", "expression" or "number".
    notation: &'static str,
    /// Strings that were read, each with whether a percent sign follows. A number has two strings: its whole digits and
    /// its fraction digits.
    parts: Vec<(String, bool)>,
    subject: Subject,
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parsed {
    /// The answer, if some candidate could be parsed.
    pub value: Option<Answer>,
    /// The normalised text of the first candidate.
    pub text: Option<String>,
    /// Whether the search ended at a candidate beyond the limits.
    pub over_budget: bool,
}

/// Answer found by a search.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A mathematical value.
    Value(Box<Value>),
    /// One of the words that were searched for.
    Word(String),
}

/// State of the search for a target. For words, the index of the next pattern.
enum Source<'a> {
    Search(Box<Search<'a>>, bool),
    Words(&'a Words, usize),
}

/// Match of a source.
enum Match<'a> {
    /// Mathematics, and whether a chain `a = b = c` is read as its last part.
    Found(Found<'a>, bool),
    Word(&'a str, bool),
}

impl<'a> Source<'a> {
    fn priority(&self) -> Option<i32> {
        match self {
            Self::Search(search, _) => search.priority(),
            Self::Words(words, next) => words.patterns.get(*next).map(|(priority, _)| *priority),
        }
    }

    /// Returns the matches of the next priority, each with its start and end.
    fn next(&mut self, text: &'a str) -> Vec<(usize, usize, Match<'a>)> {
        match self {
            Self::Search(search, last) => {
                let group = search.next_group().unwrap_or_default();
                group.into_iter().map(|c| (c.start, c.end, Match::Found(c.found, *last))).collect()
            }
            Self::Words(words, next) => {
                let (_, pattern) = &words.patterns[*next];
                *next += 1;
                // A word always counts, so only the last one is needed.
                let last = pattern.captures_iter(text).last();
                let word = last.as_ref().and_then(|found| Some((found.get(0)?, found.name("word")?)));
                let found = |(all, word): (regex::Match<'a>, regex::Match<'a>)| {
                    (all.start(), all.end(), Match::Word(word.as_str(), words.lowercase))
                };
                word.map(found).into_iter().collect()
            }
        }
    }
}

/// Parses the answer in a string. If `first_only`, gives up if the first candidate can't be parsed.
pub fn parse(text: &str, targets: &[Target], first_only: bool) -> Parsed {
    let source = |target| match target {
        &Target::Latex { bare, boxes, last } => {
            let options = Options { boxed_match_priority: boxes, ..Options::default() };
            Source::Search(Box::new(Search::new(text, &options, true, false).with_bare(bare)), last)
        }
        &Target::Plain(bare) => Source::Search(
            Box::new(Search::new(text, &Options::default(), false, true).with_bare(bare)),
            false,
        ),
        Target::Words(words) => Source::Words(words, 0),
    };
    let mut sources: Vec<Source<'_>> = targets.iter().map(source).collect();
    let mut parsed = Parsed::default();
    let mut tried = 0;
    while let Some(priority) = sources.iter().filter_map(Source::priority).min() {
        let due = sources.iter_mut().filter(|source| source.priority() == Some(priority));
        let mut group: Vec<_> = due.flat_map(|source| source.next(text)).collect();
        group.sort_by_key(|(start, end, _)| (Reverse(*end), *start));
        for (_, _, found) in group {
            tried += 1;
            if tried > MAX_CANDIDATES {
                return parsed;
            }
            let (value, text) = match found {
                Match::Word(word, lowercase) => {
                    let value = if lowercase { word.to_lowercase() } else { word.to_owned() };
                    (Ok(Answer::Word(value)), word.to_owned())
                }
                Match::Found(found, last) => {
                    let read = |found: &Found<'_>| {
                        let (subject, text) = read_candidate(found);
                        (subject.map(|subject| Answer::Value(Box::new(Value::new(found, subject)))), text)
                    };
                    let (value, text) = read(&found);
                    match last_of_chain(&text).filter(|_| last) {
                        Some(part) => read(&Found::Latex(vec![(part, false)])),
                        None => (value, text),
                    }
                }
            };
            if parsed.text.is_none() && !text.trim().is_empty() {
                parsed.text = Some(text);
            }
            match value {
                Ok(answer) => {
                    parsed.value = Some(answer);
                    return parsed;
                }
                Err(ParseError::Budget) => return Parsed { over_budget: true, ..Parsed::default() },
                Err(ParseError::Syntax) if first_only => return parsed,
                Err(ParseError::Syntax) => {}
            }
        }
    }
    parsed
}

/// Returns the last part of a chain of equations. A list isn't a chain.
fn last_of_chain(text: &str) -> Option<&str> {
    let equals = |at: &usize| !text[..*at].ends_with(['\\', '<', '>', '!']);
    let mut places = text.match_indices('=').map(|(at, _)| at).filter(equals);
    let last = places.next_back().filter(|_| places.next().is_some() && !text.contains([',', ';']))?;
    Some(text[last + 1..].trim())
}

/// Returns whether an answer equals the gold; `None` if that is too expensive to find out.
///
/// Of the options, `precision`, `strict` and `allow_set_relation_comp` count.
pub fn equal(gold: &Value, answer: &Value, options: &Options) -> Option<bool> {
    compare::compare(&gold.subject, &answer.subject, options).ok().map(|result| result.equal)
}

impl Value {
    fn new(found: &Found<'_>, subject: Subject) -> Self {
        let plain = |text: &str| (text.to_owned(), false);
        let (notation, parts) = match found {
            Found::Latex(parts) => {
                ("latex", parts.iter().map(|(part, percent)| ((*part).to_owned(), *percent)).collect())
            }
            Found::Boxed(contents) => ("boxed", contents.iter().map(|text| plain(text)).collect()),
            Found::Number(whole, fraction, percent) => {
                ("number", vec![((*whole).to_owned(), *percent), plain(fraction)])
            }
            Found::Expression(text) | Found::Broken(text) => ("expression", vec![plain(text)]),
            Found::Oversized => ("expression", Vec::new()),
        };
        Self { notation, parts, subject }
    }

    /// Returns the input of [`Value::restored`]: the notation, and the strings, each with whether a percent sign follows.
    pub fn parts(&self) -> (&'static str, &[(String, bool)]) {
        (self.notation, &self.parts)
    }

    /// Creates the value that had these parts.
    pub fn restored(notation: &str, parts: &[(String, bool)]) -> Option<Self> {
        let found = match (notation, parts) {
            ("latex", parts) => {
                Found::Latex(parts.iter().map(|(part, percent)| (&**part, *percent)).collect())
            }
            ("boxed", parts) => Found::Boxed(parts.iter().map(|(part, _)| &**part).collect()),
            ("expression", [(text, _)]) => Found::Expression(text),
            ("number", [(whole, percent), (fraction, _)]) => Found::Number(whole, fraction, *percent),
            _ => return None,
        };
        let subject = read_candidate(&found).0.ok()?;
        Some(Self::new(&found, subject))
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.subject.expr, RELATION))
    }
}

/// Binding strength of a notation. A part gets parentheses if it binds less strongly than its position requires.
type Binding = u8;
const RELATION: Binding = 0;
const SUM: Binding = 1;
const PRODUCT: Binding = 2;
const POWER: Binding = 3;
const ATOM: Binding = 4;

fn shown(expr: &Expr, place: Binding) -> String {
    let (text, binding) = plainly(expr);
    if binding < place { format!("({text})") } else { text }
}

fn list(items: &[Expr]) -> String {
    items.iter().map(|item| shown(item, RELATION)).collect::<Vec<_>>().join(", ")
}

fn plainly(expr: &Expr) -> (String, Binding) {
    let named = |name: &str, items: &[Expr]| (format!("{name}({})", list(items)), ATOM);
    let signed = |text: String, binding| if text.starts_with('-') { (text, SUM) } else { (text, binding) };
    match expr {
        Expr::Number(value) => {
            signed(value.to_string(), if expr.as_integer().is_some() { ATOM } else { PRODUCT })
        }
        Expr::Decimal(value, _) => signed(decimal(value), ATOM),
        Expr::Percent(value) => (format!("{}%", shown(value, ATOM)), ATOM),
        // Only strict mode reads units; a parsed object is parity's.
        Expr::Quantity(value, _) => plainly(value),
        Expr::Symbol(name) => (name.to_string(), ATOM),
        Expr::Constant(constant) => {
            let name = match constant {
                Constant::E => "E",
                Constant::Pi => "pi",
                Constant::EulerGamma => "EulerGamma",
                Constant::ImaginaryUnit => "I",
                Constant::Infinity => "oo",
                Constant::NegativeInfinity => return ("-oo".to_owned(), SUM),
                Constant::ComplexInfinity => "zoo",
            };
            (name.to_owned(), ATOM)
        }
        Expr::Add(terms) => {
            let mut text = String::new();
            for (at, term) in terms.iter().enumerate() {
                let term =
                    shown(term, if at == 0 { SUM } else { SUM + u8::from(matches!(term, Expr::Add(_))) });
                match (at, term.strip_prefix('-')) {
                    (0, _) => text.push_str(&term),
                    (_, Some(rest)) => text.extend([" - ", rest]),
                    _ => text.extend([" + ", &term]),
                }
            }
            (text, SUM)
        }
        Expr::Mul(factors) => {
            let mut text = String::new();
            for (at, factor) in factors.iter().enumerate() {
                match factor {
                    Expr::Number(_) if *factor == Expr::integer(-1) && at == 0 && factors.len() > 1 => {
                        text.push('-')
                    }
                    Expr::Pow(pair) if pair[1] == Expr::integer(-1) => {
                        let one = if text.is_empty() || text == "-" { "1/" } else { "/" };
                        text.extend([one, &shown(&pair[0], POWER)]);
                    }
                    _ => {
                        let mark = if text.is_empty() || text == "-" { "" } else { "*" };
                        text.extend([mark, &shown(factor, if at == 0 { PRODUCT } else { POWER })]);
                    }
                }
            }
            signed(text, PRODUCT)
        }
        Expr::Pow(pair) if pair[1] == Expr::integer(-1) => (format!("1/{}", shown(&pair[0], POWER)), PRODUCT),
        Expr::Pow(pair) => (format!("{}**{}", shown(&pair[0], ATOM), shown(&pair[1], ATOM)), POWER),
        Expr::Call(function, items) => named(&format!("{function:?}").to_lowercase(), items),
        Expr::Apply(name, items) => named(name, items),
        Expr::Fold(kind, body, variable, ends) => {
            let name = match kind {
                Fold::Sum => "Sum",
                Fold::Product => "Product",
                Fold::Integral => "Integral",
            };
            let ends = ends.as_ref().map_or(String::new(), |ends| format!(", {}", list(&ends[..])));
            (format!("{name}({}, ({variable}{ends}))", shown(body, RELATION)), ATOM)
        }
        Expr::Limit(pair, variable, _) => {
            (format!("Limit({}, {variable}, {})", shown(&pair[0], RELATION), shown(&pair[1], RELATION)), ATOM)
        }
        Expr::Derivative(body, variable) => {
            (format!("Derivative({}, {variable})", shown(body, RELATION)), ATOM)
        }
        Expr::Relation(kind, pair) => {
            let sign = match kind {
                Relation::Equal => "=",
                Relation::NotEqual => "!=",
                Relation::Less => "<",
                Relation::LessEqual => "<=",
                Relation::Greater => ">",
                Relation::GreaterEqual => ">=",
            };
            (format!("{} {sign} {}", shown(&pair[0], SUM), shown(&pair[1], SUM)), RELATION)
        }
        Expr::Chain(items) => {
            (items.iter().map(|item| shown(item, RELATION)).collect::<Vec<_>>().join(" & "), RELATION)
        }
        Expr::Not(inner) => (format!("Not({})", shown(inner, RELATION)), ATOM),
        Expr::Tuple(items) | Expr::Ratio(items) => (format!("({})", list(items)), ATOM),
        Expr::Set(items) => (format!("{{{}}}", list(items)), ATOM),
        Expr::Interval(ends, left, right) => {
            let mut text = String::from(if *left { "(" } else { "[" });
            // Writing to a string does not fail.
            let _ = write!(text, "{}{}", list(&ends[..]), if *right { ")" } else { "]" });
            (text, ATOM)
        }
        Expr::Union(items) => named("Union", items),
        Expr::Intersection(items) => named("Intersection", items),
        Expr::Difference(pair) => named("Complement", &pair[..]),
        Expr::NumberSet(set) => (format!("{set:?}"), ATOM),
        Expr::Matrix(columns, entries) => {
            let rows: Vec<String> =
                entries.chunks((*columns).max(1)).map(|row| format!("[{}]", list(row))).collect();
            (format!("Matrix([{}])", rows.join(", ")), ATOM)
        }
    }
}

/// Formats a fraction of a power of ten as the decimal that it was read from.
fn decimal(value: &RBig) -> String {
    let Some((scaled, places)) = without_point(value, MAX_DIGITS) else { return value.to_string() };
    let sign = if scaled < IBig::ZERO { "-" } else { "" };
    let digits = format!("{:0>width$}", scaled.unsigned_abs().to_string(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    format!("{sign}{whole}.{}", if fraction.is_empty() { "0" } else { fraction })
}
