//! Arithmetic: game_of_24 (mathador), math_path, cryptarithm, buggy_tables, operation.

use super::extract::{only, only_statement, undressed};
use super::game::Game;
use super::python::{self, EvalError};
use super::value::Value;
use super::{Error, Mode, Rules, correct, exact, rational, unparsed, unscorable, wrong};
use crate::finder::Candidate;
use crate::math::{self, MatchTypes};
use crate::python_text::{is_space, pattern, regex, strip};
use crate::verdict::{Outcome, Verdict};
use dashu_ratio::RBig;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Rules for game_of_24: an expression of the given numbers has the target as its value.
/// Quirk: in parity mode the value is not compared with the target; any expression that has a value passes.
pub(crate) fn game_of_24(game: &Game) -> Result<Rules, Error> {
    let numbers = game.list("numbers", "a list of whole numbers", |v| Some(v.as_i64()?.to_string()))?;
    let operators = game.list("operators", "a list of operators", super::game::cell)?;
    let result = python::whole(game.field("result")?).map(RBig::from);
    // `8 * 3 = 24`, or behind a block `This equals 24.`
    const EQUALS: &str = r"(?i)^\W*(?:(?:this|that|it|which)\s+)?(?:=|equals|is|gives)\s*";
    let equals = OnceLock::new();
    Ok(Box::new(move |text, mode| {
        let blocks = regex!(r"(?s)```python.*?```").find_iter(text);
        let bare = |block: &str| strip(&block.replace("```python", "").replace("```", "")).to_owned();
        let mut blocks: Vec<_> = blocks.map(|m| Candidate::new(m.range(), bare(m.as_str()))).collect();
        let expression = match (mode, &result) {
            (Mode::Parity, _) => blocks.pop().ok_or(unparsed("no_code_block"))?.value,
            (Mode::Strict, Some(result)) => {
                let equals = equals.get_or_init(|| pattern(&format!("{EQUALS}{result}\\b\\W*")));
                let side = format!("= {result}");
                let bare = |said: &str| undressed(said).trim_end_matches(&*side).trim_end().to_owned();
                let computes = |part: &str| {
                    let sum = |c: char| c.is_ascii_digit() || " ()+-*/%=.$`".contains(c);
                    part.contains(|c: char| c.is_ascii_digit())
                        && part.contains(['+', '-', '*', '/'])
                        && part.chars().all(sum)
                        && rational::evaluate(&bare(part)).is_ok()
                };
                if blocks.is_empty() {
                    bare(only_statement(text, computes)?)
                } else {
                    let restated = |at: usize| equals.find(&text[at..]).map_or(0, |found| found.end());
                    blocks.iter_mut().for_each(|block| block.place.end += restated(block.place.end));
                    bare(&only(text, blocks)?)
                }
            }
            (Mode::Strict, None) => return Err(unscorable("problem")),
        };
        let mut found: HashMap<&str, usize> = HashMap::new();
        let mut count = 0;
        for number in expression.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty()) {
            *found.entry(number).or_default() += 1;
            count += 1;
        }
        let allowed = |c: char| {
            c.is_ascii_digit()
                || crate::python_text::is_space(c)
                || c == '('
                || c == ')'
                || operators.iter().any(|op| op.len() == c.len_utf8() && op.starts_with(c))
        };
        if !expression.chars().all(allowed) {
            return Err(wrong("unknown_character"));
        }
        if mode == Mode::Strict {
            let given = |op: &str| operators.iter().any(|given| given == op);
            let double = ["**", "//"].iter().any(|op| expression.contains(op) && !given(op));
            if double || regex!(r"[-+]\s*[-+]").is_match(&expression) {
                return Err(wrong("unknown_operator"));
            }
        }
        let available = |number: &str| numbers.iter().filter(|n| *n == number).count();
        if count != numbers.len() || found.iter().any(|(number, n)| *n > available(number)) {
            return Err(wrong("numbers"));
        }
        Ok(match mode {
            Mode::Parity => match python::evaluate(&expression) {
                Ok(value) => finite(&value),
                Err(EvalError::Budget) => wrong("budget"),
                Err(_) => wrong("no_value"),
            },
            Mode::Strict => match rational::evaluate(&expression) {
                Ok(value) if result.as_ref() == Some(&value) => correct("exact"),
                Ok(_) => wrong("value"),
                Err(EvalError::Budget) => wrong("budget"),
                Err(_) => wrong("no_value"),
            },
        })
    }))
}

/// Returns the outcome of SynLogic's test `abs(x - x) < 1e-10`, which holds for every number but infinities and NaN.
fn finite(value: &Value) -> Outcome {
    let holds = match value {
        Value::Bool(_) | Value::Int(_) => true,
        Value::Float(x) => x.is_finite(),
        Value::Complex(re, im) => re.is_finite() && im.is_finite(),
        _ => false,
    };
    if holds { correct("any_value") } else { wrong("no_value") }
}

fn digits(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|c| c.is_ascii_digit() || *c == '?')
}

fn symbols(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().filter(|c| "+-*/%".contains(*c))
}

/// Rules for math_path: the answer restores the missing digits of an equation.
pub(crate) fn math_path(game: &Game) -> Result<Rules, Error> {
    let query = game.text("query_expr")?.replace(' ', "");
    Ok(Box::new(move |text, mode| {
        let found = regex!(r"\[\[(.*?)\]\]").captures_iter(text);
        let found = found
            .filter_map(|c| Some(Candidate::new(c.get(0)?.range(), c.get(1)?.as_str().replace(' ', ""))));
        let mut found: Vec<_> = found.collect();
        if mode == Mode::Strict {
            let equation = |part: &str| {
                part.contains('=') && part.chars().all(|c| " ()+-*/%=.".contains(c) || c.is_ascii_digit())
            };
            let stated = if found.is_empty() {
                undressed(only_statement(text, equation)?).replace(' ', "")
            } else {
                only(text, found)?
            };
            return Ok(restored(&query, strip(&stated)));
        }
        let last = found.pop().ok_or(unparsed("no_brackets"))?;
        let answer = strip(&last.value);
        let (wanted, given): (Vec<char>, Vec<char>) =
            (digits(&query).collect(), answer.chars().filter(char::is_ascii_digit).collect());
        if wanted.len() != given.len() || wanted.iter().zip(&given).any(|(w, g)| *w != '?' && w != g) {
            return Err(wrong("digits"));
        }
        if !symbols(&query).eq(symbols(answer)) {
            return Err(wrong("operators"));
        }
        Ok(match python::evaluate(&answer.replace('=', "==")) {
            Ok(value) if value.truthy() => correct("equation_holds"),
            Ok(_) => wrong("equation_fails"),
            Err(EvalError::Budget) => wrong("budget"),
            Err(_) => wrong("no_value"),
        })
    }))
}

/// Strict mode: checks that the answer is the query with a digit for each question mark, and that its two sides are
/// equal rational numbers.
fn restored(query: &str, answer: &str) -> Outcome {
    let fits = query.chars().count() == answer.chars().count()
        && query.chars().zip(answer.chars()).all(|(q, a)| if q == '?' { a.is_ascii_digit() } else { q == a });
    if !fits {
        return wrong("changed");
    }
    let Some((left, right)) = answer.split_once('=') else { return wrong("no_equation") };
    match (rational::evaluate(left), rational::evaluate(right)) {
        (Ok(a), Ok(b)) if a == b => correct("equation_holds"),
        (Ok(_), Ok(_)) => wrong("equation_fails"),
        (Err(EvalError::Budget), _) | (_, Err(EvalError::Budget)) => wrong("budget"),
        _ => wrong("no_value"),
    }
}

/// Rules for cryptarithm: the answer is the equation with digits for letters.
pub(crate) fn cryptarithm(game: &Game) -> Result<Rules, Error> {
    let wanted = game.answer_text()?.replace(' ', "");
    Ok(Box::new(move |text, mode| {
        let pattern = regex!(r"\d+(?:\s*(?:\+|\-|\*)\s*\d+)+\s*=\s*-?\d+");
        let answer = match mode {
            Mode::Parity => {
                let found = pattern.find_iter(text).last().ok_or(unparsed("no_equation"))?;
                strip(found.as_str()).replace(' ', "")
            }
            Mode::Strict => {
                let found = pattern.find_iter(text).filter(|m| {
                    let before = text[..m.start()].trim_end_matches(is_space);
                    let after = &text[m.end()..];
                    let bold = before.strip_suffix("**").zip(after.strip_prefix("**"));
                    let (before, after) = bold.unwrap_or((before, after));
                    let continues = |c: char| c.is_alphanumeric() || "+-*/=^%_".contains(c);
                    let decimals = after
                        .strip_prefix(['.', ','])
                        .is_some_and(|t| t.starts_with(|c: char| c.is_ascii_digit()));
                    !(before.ends_with(['+', '-', '*', '/', '=', '.', '^', '%', '_'])
                        || before.len() == m.start() && before.ends_with(char::is_alphanumeric)
                        || after.starts_with(char::is_alphanumeric)
                        || after
                            .trim_start_matches([' ', '\t'])
                            .starts_with(|c| continues(c) && !c.is_alphanumeric())
                        || decimals)
                });
                let bare =
                    |m: regex::Match<'_>| m.as_str().chars().filter(|c| !is_space(*c)).collect::<String>();
                only(text, found.map(|m| Candidate::new(m.range(), bare(m))).collect())?
            }
        };
        Ok(exact(answer == wanted))
    }))
}

/// Rules for buggy_tables: the answer is a number with two decimals.
pub(crate) fn buggy_tables(game: &Game) -> Result<Rules, Error> {
    let answer = game.answer_text()?;
    let expected = two_decimals(&answer).to_owned();
    Ok(Box::new(move |text, mode| {
        let found = match mode {
            Mode::Parity if answer.is_empty() && text.is_empty() => return Ok(correct("empty")),
            Mode::Strict if expected.is_empty() => return Err(unscorable("problem")),
            Mode::Parity => two_decimals(text).to_owned(),
            Mode::Strict => {
                // A number includes all adjacent digits, letters and separators.
                let words = regex!(r"[-−]?[\w.,]*\d").find_iter(text);
                let plain = |word: &str| {
                    let pattern = regex!(r"^[-−]?(?:0|[1-9]\d*|[1-9]\d{0,2}(?:,\d{3})+)\.\d{2}$");
                    pattern.is_match(word).then(|| word.replace(',', "").replace('−', "-"))
                };
                let numbers = words.filter_map(|m| Some(Candidate::new(m.range(), plain(m.as_str())?)));
                only(text, numbers.collect())?
            }
        };
        Ok(if found == expected {
            correct("exact")
        } else if last_two_decimals(text).is_some() {
            wrong("mismatch")
        } else {
            unparsed("no_number")
        })
    }))
}

/// Returns the last number with exactly two decimals, or else the stripped text.
fn two_decimals(text: &str) -> &str {
    let text = strip(text);
    last_two_decimals(text).unwrap_or(text)
}

/// Returns the last `-?\d+\.\d{2}\b`, with Python's word boundary: superscript digits and similar characters are word
/// characters.
fn last_two_decimals(text: &str) -> Option<&str> {
    let pattern = regex!(r"-?\d+\.\d{2}");
    let mut last = None;
    let mut at = 0;
    while let Some(found) = pattern.find_at(text, at) {
        let next = text[found.end()..].chars().next();
        if next.is_some_and(|c| c == '_' || c.is_alphanumeric()) {
            // No later start before this point can do better.
            at = found.start() + found.as_str().find('.').map_or(found.len(), |dot| dot + 1);
        } else {
            last = Some(found.as_str());
            at = found.end();
        }
    }
    last
}

/// Rules for operation: the answer is the value of an expression, compared by the math verifier.
/// Quirk: in parity mode the response and the stored answer are swapped in the comparison, as in SynLogic's code;
/// both are parsed in either notation.
pub(crate) fn operation(game: &Game) -> Result<Rules, Error> {
    let answer = match &game.answer {
        Value::Int(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        _ => game.answer_text()?,
    };
    let options = math::Options { mode: math::Mode::Strict, ..math::Options::default() };
    let strict = math::Verifier::new(&answer, &options);
    Ok(Box::new(move |text, mode| {
        Ok(match mode {
            Mode::Parity => {
                let types = MatchTypes { latex: true, expr: true };
                let options = math::Options { match_types: Some(types), ..math::Options::default() };
                let swapped = math::Verifier::new(text, &options).check(&answer);
                match swapped.verdict {
                    // The response is passed as the gold answer, so "gold" means that the response can't be parsed,
                    // and the verdict isn't "unscorable".
                    Verdict::Unscorable if swapped.reason == "gold" => unparsed("no_answer"),
                    Verdict::Unscorable => wrong("budget"),
                    _ => swapped,
                }
            }
            Mode::Strict => {
                let stated = undressed(only_statement(text, |_| false)?).replace("{,}", ",");
                let boxed = format!("\\boxed{{{stated}}}");
                if regex!(r"(?:^|[^\w.,])0\d|\d_\d|[\d&&[^0-9]]|[-+−]\s*[-+−]").is_match(&stated) {
                    return Err(wrong("not_plain"));
                }
                // If the stated answer is a single number, it is boxed. Otherwise the math verifier searches the
                // text.
                let alone = regex!(r"^[-+−]?\d[\d.,]*$").is_match(&stated);
                strict.check(if alone { &boxed } else { text })
            }
        })
    }))
}
