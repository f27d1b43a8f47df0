//! Bracket sequences: dyck_language, dyck_language_errors, dyck_language_reasoning_errors.

use std::collections::BTreeSet;

use dashu_int::IBig;

use super::extract::{named_answers, only, only_statement, undressed};
use super::game::{self, Game};
use super::value::Value;
use super::{Error, Mode, Rules, correct, exact, python, unparsed, wrong};
use crate::finder::{self, Candidate};
use crate::python_text::{is_space, plain_int, regex, strip};
use crate::verdict::Outcome;

/// Rules for dyck_language: the answer is the whole sequence with all brackets closed.
pub(crate) fn dyck_language(game: &Game) -> Result<Rules, Error> {
    let wanted = game.text("full_sequence")?;
    Ok(Box::new(move |text, mode| {
        let answer = match mode {
            Mode::Parity => unescaped(text),
            Mode::Strict => {
                // A sequence may have line breaks.
                let sequence = |c: char| is_space(c) || "()[]{}<>".contains(c);
                let whole = strip(text).chars().all(sequence) && !strip(text).contains("\n\n");
                let value = |part: &str| part.contains(['(', '[', '{', '<']) && part.chars().all(sequence);
                let answer = if whole { text } else { only_statement(text, value)? };
                let answer = answer.trim_matches(|c: char| is_space(c) || ".。`*\"'$".contains(c));
                answer.chars().filter(|c| !is_space(*c)).collect()
            }
        };
        Ok(if answer.is_empty() { unparsed("empty") } else { exact(answer == wanted) })
    }))
}

/// Removes white space, escaped white space and a pair of quotes around the string.
fn unescaped(text: &str) -> String {
    let mut answer: String = text.chars().filter(|c| !is_space(*c)).collect();
    for escape in ["\\n", "\\t", "\\r"] {
        answer = answer.replace(escape, "");
    }
    answer = answer.replace("\\\\", "\\");
    let inside = |quote: char| answer.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).map(str::to_owned).unwrap_or(answer)
}

/// Rules for dyck_language_errors: the answer is the position of the first error, or -1 if the sequence is valid.
/// Quirk: in parity mode a string with "valid" or "correct" anywhere, so also "invalid", means -1.
pub(crate) fn dyck_language_errors(game: &Game) -> Result<Rules, Error> {
    let wanted = if game.field("is_valid")?.truthy() {
        None
    } else {
        let position = game::int(game.field("first_error_pos")?);
        Some(position.ok_or_else(|| game.error("first_error_pos", "a whole number"))?)
    };
    Ok(Box::new(move |text, mode| {
        let (answer, found) = match mode {
            Mode::Parity => {
                let lower = text.to_lowercase();
                let says_valid = ["合法", "valid", "correct"].iter().any(|word| lower.contains(word));
                let answer = if says_valid { "-1" } else { strip(text) };
                (answer.to_owned(), python::int(answer))
            }
            Mode::Strict => {
                let answer = match stated_position(text) {
                    Some(position) => only(text, vec![position])?.to_owned(),
                    None => undressed(only_statement(text, |part| plain_int(part).is_some())?).to_lowercase(),
                };
                let valid = ["合法", "valid", "correct", "the sequence is valid"]
                    .contains(&answer.trim_end_matches('!'));
                let answer = if valid { "-1".to_owned() } else { answer };
                let found = plain_int(&answer);
                (answer, found)
            }
        };
        let same = match (&wanted, mode) {
            (None, Mode::Parity) => answer == "-1",
            (None, Mode::Strict) => found == Some(IBig::from(-1)),
            (Some(position), _) => found.as_ref() == Some(position),
        };
        Ok(match (same, found) {
            (true, _) => correct("exact"),
            (false, Some(_)) => wrong("mismatch"),
            (false, None) => unparsed("not_an_integer"),
        })
    }))
}

/// Returns the number in a last line that only states a position: `The first error is at position 12.`
fn stated_position(text: &str) -> Option<Candidate<&str>> {
    let line = finder::last_lines(text).next()?;
    const SAYS: &str = r"(?i)^(?:(?:so|thus|hence|therefore|the|first|an|error|mistake|is|was|occurs|appears|found|located|at|in|position|index|bracket|character|number)\b[^\w-]*|[因此所以第一个處处错误錯誤出现出現发生在于的位置是为為：:，]|[^\w-])*(-?\d+)\s*(?:个|位|个?字符|个?位置|处)*\W*$";
    let number = regex!(SAYS).captures(&text[line.clone()])?.get(1)?;
    let alone = number.len() == undressed(&text[line.clone()]).len();
    (!alone).then(|| Candidate::new(line, number.as_str()))
}

const NO_ERRORS: [&str; 7] =
    ["无问题", "no", "无错误", "no error", "no errors", "no mistakes", "all correct"];

/// Rules for dyck_language_reasoning_errors: the answer lists the numbers of the wrong steps.
/// Quirk: in parity mode only digits and commas are kept, so `[1, 2]` and `1a2,3` are read too (the latter as 12 and 3),
/// and any text without digits means that no step is wrong.
pub(crate) fn dyck_language_reasoning_errors(game: &Game) -> Result<Rules, Error> {
    let indices = game.list("error_indices", "a list of whole numbers", |v| match v {
        Value::Int(n) => Some(n.clone()),
        _ => None,
    })?;
    let wanted: BTreeSet<IBig> = indices.into_iter().collect();
    Ok(Box::new(move |text, mode| {
        if text.contains("不确定") || text.contains("不知道") || text.to_lowercase().contains("unclear")
        {
            return Err(wrong("uncertain"));
        }
        if mode == Mode::Strict {
            let text = &named_answers(text, true);
            let stated = only_statement(text, |part| steps(part).is_some())?;
            return Ok(stated_steps(&undressed(stated), &wanted));
        }
        let none = strip(text).is_empty() || NO_ERRORS.contains(&text.to_lowercase().as_str());
        let kept: String = if none {
            String::new()
        } else {
            text.chars()
                .map(|c| if c == '，' { ',' } else { c })
                .filter(|c| c.is_ascii_digit() || *c == ',')
                .collect()
        };
        if wanted.is_empty() && kept.is_empty() {
            return Ok(correct("exact"));
        }
        // If a number is too long for Python, the whole set is empty, as in the reference.
        let numbers: Option<BTreeSet<IBig>> =
            kept.split(',').filter(|s| !s.is_empty()).map(python::int).collect();
        Ok(exact(numbers.unwrap_or_default() == wanted))
    }))
}

/// Reads a list of steps with or without brackets.
fn steps(text: &str) -> Option<Vec<IBig>> {
    let list = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    regex!(r"[,，]\s*(?:and\b)?|\band\b").split(list).map(plain_int).collect()
}

/// Strict mode: compares a list of steps with the numbers of the wrong steps.
fn stated_steps(text: &str, wanted: &BTreeSet<IBig>) -> Outcome {
    // If no step is wrong, the questions of the public data ask for an empty string in quotes.
    let trimmed = text.trim_matches('"');
    let none = trimmed.is_empty() || NO_ERRORS.contains(&trimmed.to_lowercase().as_str());
    let found = if none { Some(Vec::new()) } else { steps(trimmed) };
    found.map_or(unparsed("not_a_list"), |list| {
        exact(list.len() == wanted.len() && wanted.iter().all(|n| list.contains(n)))
    })
}
