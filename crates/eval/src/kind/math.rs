//! Mathematics: converts reference answers from data sets to the form that the verifier reads.

use crate::graded::{Graded, Response};
use crate::io::json;
use crate::row::{Table, Unusable, shown, shown_text, value};
use crate::verifier::{Beside, Grading, Mode, Reader, Reference, Settings, Unreadable, Verifier};
use fgrpo_verify::verdict::Verdict;
use fgrpo_verify::{boxed, math};
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::{LazyLock, Mutex};

/// The reference answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// LaTeX without its box; several answers are joined by commas.
    pub gold: String,
}

impl Reference for Truth {
    fn verifier(&self, grading: &Grading) -> Result<Box<dyn Verifier>, Unreadable> {
        Ok(Box::new(Prepared::new(&self.gold, &options(&grading.settings))))
    }

    fn read_as(&self) -> Option<String> {
        if !is_mathematics(&self.gold) {
            return Some("plain text, which an answer has to repeat".to_owned());
        }
        let Some(unfinished) = self.unfinished() else { return Some("mathematics".to_owned()) };
        let strict = math::Options { mode: math::Mode::Strict, ..math::Options::default() };
        let verifier = math::Verifier::new(&self.gold, &strict);
        let graded = |answer: &str| {
            let correct = verifier.check(&format!("\\boxed{{{answer}}}")).verdict == Verdict::Correct;
            format!("\\boxed{{{answer}}} is {}", if correct { "correct" } else { "wrong" })
        };
        let answers = match unfinished {
            Unfinished::Equation => self.gold.split('=').map(|side| side.trim().to_owned()).collect(),
            Unfinished::Unworked => Vec::from_iter(value_of(&self.gold)),
        };
        let mut readings = graded(&self.gold);
        for answer in answers.iter().filter(|answer| !answer.is_empty()) {
            readings = format!("{readings}, {}", graded(answer));
        }
        Some(format!("mathematics, {}: in mode strict {readings}", unfinished.words()))
    }

    fn gold(&self) -> Option<String> {
        Some(self.gold.clone())
    }

    fn vote(&self, completion: &str) -> Option<Option<String>> {
        vote(boxed(completion).or_else(|| tagged(completion)))
    }

    fn verifier_of_line(line: &[u8], grading: &Grading) -> Result<Box<dyn Verifier>, String> {
        let line = json::of_others(line);
        let line: Line<'_> = json::parse(&line).map_err(|why| why.to_string())?;
        let options = line.options(options(&grading.settings))?;
        // If the line names the kinds of answers (`match_types`), the reference answer is parsed without preparation.
        let gold = match (&line.gold, &line.match_types) {
            (Gold::Text(text), Some(_)) => Cow::Borrowed(&**text),
            (gold, _) => gold.text()?,
        };
        Ok(Box::new(Prepared::new(&gold, &options)))
    }
}

/// Forms of a reference answer that may be meant as a value only: `x = 5` as 5, or `2 * 3` as 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// Two sides with an equals sign between them.
    Equation,
    /// Numbers that are yet to be multiplied, added or subtracted.
    Unworked,
}

impl Unfinished {
    /// Returns the form in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Equation => "an equation",
            Self::Unworked => "an operation that isn't carried out",
        }
    }
}

impl Truth {
    /// Returns the form of the reference answer if it may be meant as a value only, or `None`.
    pub fn unfinished(&self) -> Option<Unfinished> {
        static OPERATION: LazyLock<Regex> = LazyLock::new(|| {
            let source = r"\d\s*(?:\*|×|·|\\times\b|\\cdot\b|\+|-|−|÷|\\div\b)\s*\d";
            Regex::new(source).unwrap_or_else(|error| panic!("pattern {source}: {error}"))
        });
        static POWER: LazyLock<Regex> = LazyLock::new(|| {
            let source = r"\d\s*(?:\*|×|·|\\times|\\cdot)\s*10\s*(?:\^|\*\*)";
            Regex::new(source).unwrap_or_else(|error| panic!("pattern {source}: {error}"))
        });
        let sides = self.gold.split('=').count();
        if sides > 1 && !self.gold.contains(['<', '>', '≤', '≥', '≠']) && !self.gold.contains("!=") {
            return Some(Unfinished::Equation);
        }
        let numbers_alone =
            !self.gold.replace("\\times", "").replace("\\cdot", "").contains(char::is_alphabetic);
        (numbers_alone && OPERATION.is_match(&self.gold) && !POWER.is_match(&self.gold))
            .then_some(Unfinished::Unworked)
    }
}

/// Computes an operation on plain numbers. Returns the value if it is a whole number.
fn value_of(gold: &str) -> Option<String> {
    let signs =
        [("\\times", "*"), ("\\cdot", "*"), ("×", "*"), ("·", "*"), ("−", "-"), ("^", "**"), ("\\", "?")];
    let python = signs.iter().fold(gold.to_owned(), |text, (sign, operator)| text.replace(sign, operator));
    match fgrpo_verify::synlogic::python::evaluate(&python) {
        Ok(fgrpo_verify::synlogic::value::Value::Int(value)) => Some(value.to_string()),
        _ => None,
    }
}

/// A verifier with a cache of the answers that it has checked, because completions of one problem often repeat answers.
struct Prepared {
    verifier: math::Verifier,
    memo: Mutex<math::Memo>,
}

impl Prepared {
    fn new(gold: &str, options: &math::Options) -> Self {
        Self { verifier: math::Verifier::new(gold, options), memo: Mutex::default() }
    }
}

impl Verifier for Prepared {
    fn doubt(&self) -> Option<&'static str> {
        (!self.verifier.is_parsed())
            .then_some("gold: no mathematics, so an answer must repeat it word for word")
    }

    fn check(&self, response: Response<'_>) -> Graded {
        // If another thread holds the cache, check without it, because waiting would take longer.
        match self.memo.try_lock() {
            Ok(mut memo) => self.verifier.check_with(response.answer, &mut memo).into(),
            Err(_) => self.verifier.check(response.answer).into(),
        }
    }
}

/// Returns the rules by which the math verifier judges under these settings.
pub(super) fn mode(settings: &Settings) -> math::Mode {
    match settings.mode {
        Mode::Parity => math::Mode::Parity,
        Mode::Strict => math::Mode::Strict,
    }
}

/// Returns the math verifier's options from the settings.
fn options(settings: &Settings) -> math::Options {
    let Settings { percent_as_number, accept_unfinished, .. } = *settings;
    math::Options { mode: mode(settings), percent_as_number, accept_unfinished, ..math::Options::default() }
}

/// An input line of `fgrpo verify`: the reference answer, and options that override the settings.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    gold: Gold<'a>,
    match_types: Option<Vec<String>>,
    precision: Option<usize>,
    strict: Option<bool>,
    allow_set_relation_comp: Option<bool>,
    percent_as_number: Option<bool>,
    accept_unfinished: Option<bool>,
    boxed_match_priority: Option<i32>,
}

/// Maximum `precision` of a line.
const MOST_DECIMALS: usize = 100;

impl Line<'_> {
    fn options(&self, mut options: math::Options) -> Result<math::Options, String> {
        if let Some(types) = &self.match_types {
            let mut match_types = math::MatchTypes { latex: false, expr: false };
            for name in types {
                match name.as_str() {
                    "latex" => match_types.latex = true,
                    "expr" => match_types.expr = true,
                    other => {
                        return Err(format!("match_types: expected latex or expr, found {other:?}"));
                    }
                }
            }
            if types.is_empty() {
                return Err("match_types: the list is empty; name latex, expr or both".to_owned());
            }
            options.match_types = Some(match_types);
        }
        if let Some(precision) = self.precision {
            if precision > MOST_DECIMALS {
                return Err(format!("precision: expected at most {MOST_DECIMALS}, found {precision}"));
            }
            options.precision = precision;
        }
        let strict_settings =
            [("percent_as_number", self.percent_as_number), ("accept_unfinished", self.accept_unfinished)];
        if let Some((key, _)) =
            strict_settings.iter().find(|(_, value)| value.is_some() && options.mode == math::Mode::Parity)
        {
            return Err(format!("{key}: requires mode strict"));
        }
        options.strict = self.strict.unwrap_or(options.strict);
        options.allow_set_relation_comp =
            self.allow_set_relation_comp.unwrap_or(options.allow_set_relation_comp);
        options.percent_as_number = self.percent_as_number.unwrap_or(options.percent_as_number);
        options.accept_unfinished = self.accept_unfinished.unwrap_or(options.accept_unfinished);
        options.boxed_match_priority = self.boxed_match_priority.unwrap_or(options.boxed_match_priority);
        Ok(options)
    }
}

/// A line's reference answer: a string, or another value that [`math::gold::gold_in`] converts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Gold<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    Other(Value),
}

impl Gold<'_> {
    fn text(&self) -> Result<Cow<'_, str>, String> {
        match self {
            Self::Text(text) => Ok(math::gold::gold(text)),
            Self::Other(value) => {
                math::gold::gold_in(value).map(Cow::Owned).map_err(|why| format!("gold: {why}"))
            }
        }
    }
}

/// Usual names of the answer column.
pub const ANSWER: &[&str] = &[
    "answer",
    "final_answer",
    "ground_truth",
    "gold",
    "target",
    "expected_answer",
    "label",
    "reward_model.ground_truth",
];

/// Finds the column of the answer. Without one, answers are taken from the worked solutions.
pub fn reader(table: &Table<'_>, beside: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
    let column = table.column("answer", beside.answer, ANSWER)?;
    if column.is_none() && !beside.worked {
        table.require("the answer", None, ANSWER)?;
    }
    Ok(Box::new(move |cells| {
        let stated = column.as_ref().and_then(|name| value(cells.row, name));
        let stated =
            stated.filter(|value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()));
        let stated = stated.map(math::gold::gold_in).transpose().map_err(|why| {
            Unusable::new("unreadable answer", format!("{}: {why}", column.as_deref().unwrap_or_default()))
        })?;
        let stated = stated.map(whole).filter(|gold| !gold.is_empty());
        let solution_gold = || {
            let boxed = cells.worked.and_then(math::gold::of_solution).map(Cow::into_owned);
            boxed.or_else(|| {
                cells
                    .worked
                    .map(str::trim)
                    .filter(|text| is_short_answer(text))
                    .map(|text| whole(math::gold::gold(text).into_owned()))
            })
        };
        let gold = stated.or_else(solution_gold).ok_or_else(|| {
            let answer = column.as_ref().map(|name| shown(cells.row, name));
            let solution = cells.worked.map(|text| {
                format!(
                    "a solution without a box: {} (if it is the answer itself, name its column, as in task.columns.answer = \"output\")",
                    shown_text(text)
                )
            });
            let fields: Vec<String> = answer.into_iter().chain(solution).collect();
            Unusable::new(
                "empty answer",
                if fields.is_empty() { "no solution".to_owned() } else { fields.join("; ") },
            )
        })?;
        Ok(Truth { gold })
    }))
}

/// Maximum length in bytes of an answer that counts as a vote. Longer answers hardly ever repeat.
const LONGEST_VOTE: usize = 200;

/// Converts an answer that was found in a completion to a vote.
pub fn vote(answer: Option<&str>) -> Option<Option<String>> {
    Some(answer.map(plain).filter(|a| !a.is_empty() && a.len() <= LONGEST_VOTE))
}

/// Maximum length in bytes of a solution that is taken as the bare answer.
const LONGEST_ANSWER: usize = 60;

/// Returns whether a solution is only a mathematical answer, as the `output` of Alpaca's format may be.
fn is_short_answer(text: &str) -> bool {
    let number = text.chars().any(|c| c.is_ascii_digit()) || text.contains('\\');
    number && text.len() <= LONGEST_ANSWER && !text.contains('\n') && is_mathematics(text)
}

/// Returns the content of the last `<answer>` tags in a completion.
pub fn tagged(text: &str) -> Option<&str> {
    let (_, after) = text.rsplit_once("<answer>")?;
    after.split_once("</answer>").map(|(inside, _)| inside)
}

/// Removes decimals that are zero, because a column of numbers turns 27 into 27.0, even as text.
fn whole(mut gold: String) -> String {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let keep = match gold.split_once('.') {
        Some((whole, decimals))
            if digits(whole) && digits(decimals) && decimals.bytes().all(|b| b == b'0') =>
        {
            whole.len()
        }
        _ => gold.len(),
    };
    gold.truncate(keep);
    gold
}

/// Returns the content of the last box with closed braces in a completion.
pub fn boxed(completion: &str) -> Option<&str> {
    boxed::last_closed(completion)
}

/// Removes spaces, dollar signs and LaTeX commands that only affect the appearance of an answer.
fn plain(answer: &str) -> String {
    let mut text = answer.to_owned();
    for noise in ["\\left", "\\right", "\\,", "\\;", "\\!", "$", "dfrac", "tfrac"] {
        text = text.replace(noise, if noise.ends_with("frac") { "frac" } else { "" });
    }
    text.split_whitespace().collect()
}

/// Returns whether the math verifier parses a reference answer as a value. Prose doesn't count, even if its letters can
/// be parsed as a product.
pub fn is_mathematics(gold: &str) -> bool {
    !math::gold::is_prose(gold) && math::Verifier::new(gold, &math::Options::default()).is_parsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_closed_box_is_the_vote() {
        let truth = Truth { gold: "1".into() };
        for (text, expected) in [
            ("so \\boxed{1} or \\boxed{\\dfrac{1}{2}}.", Some("\\frac{1}{2}")),
            ("\\boxed{ 1, 2 } then \\boxed{3", Some("1,2")),
            ("no box", None),
            ("\\boxed{}", None),
        ] {
            assert_eq!(truth.vote(text), Some(expected.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn prose_is_no_mathematics_and_units_and_functions_are() {
        for (gold, expected) in [
            ("\\frac{1}{2}", true),
            ("\\text{east}", true),
            ("\\sin 2x + \\max(a, b) \\text{ km}", true),
            ("sin(2x) and cos(x) and log(3)", true),
            ("3\\text{ apples}", true),
            ("the one that stands at the end", false),
            ("Natalia sold 48/2 = 24 clips in May", false),
            ("", false),
        ] {
            assert_eq!(is_mathematics(gold), expected, "{gold:?}");
        }
    }
}
