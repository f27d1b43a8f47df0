//! Tasks answered inside `\boxed{}` or, in strict mode without a box, by a last line: boolean_expressions, object_counting,
//! object_properties, space_reasoning, space_reasoning_tree, word_sorting, word_sorting_mistake and gpqa_diamond.

use std::collections::BTreeSet;

use super::extract::{
    last_boxed, last_boxed_simple, named_answers, only, only_boxed, undressed, whole_number, written,
};
use super::game::{self, Game};
use super::value::Value;
use super::{Checked, Error, Mode, Rules, exact, python, unparsed};
use crate::python_text::{plain_int, regex, strip};
use crate::verdict::Outcome;

const NO_BOX: Outcome = unparsed("no_box");

fn equal(equal: bool) -> Checked {
    Ok(exact(equal))
}

/// Rules for boolean_expressions: the answer is the letters of the true options.
/// Quirk: in parity mode every letter in the box counts, including those of `\text`.
pub(crate) fn boolean_expressions(game: &Game) -> Result<Rules, Error> {
    let wanted = letters(&game.answer_text()?);
    Ok(Box::new(move |text, mode| match mode {
        Mode::Parity => equal(letters(last_boxed(text).ok_or(NO_BOX)?) == wanted),
        Mode::Strict => {
            const DRESS: &str = r"(?i)^(?:the )?(?:true )?(?:options?|expressions?|answers?) (?:(?:are|is):? )?|(?: are| is) true$";
            let named = |part: &str| {
                plain_letters(&regex!(DRESS).replace_all(part, "")).filter(|letters| !letters.is_empty())
            };
            equal(
                named(&only_boxed(&named_answers(text, false), |part| named(part).is_some())?).as_ref()
                    == Some(&wanted),
            )
        }
    }))
}

/// Reads letters in strict mode: separated by only punctuation and "and", or as adjacent capital letters.
fn plain_letters(text: &str) -> Option<BTreeSet<char>> {
    let words = text.split(|c: char| c.is_whitespace() || ",，、;(){}[].&$*".contains(c));
    let words: Vec<&str> = words.filter(|word| !word.is_empty() && *word != "and").collect();
    let plain = |word: &&str| word.len() == 1 || word.bytes().all(|b| b.is_ascii_uppercase());
    words.iter().all(plain).then(|| letters(&words.concat()))
}

fn letters(text: &str) -> BTreeSet<char> {
    text.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).collect()
}

pub(crate) use count as object_counting;
pub(crate) use count as object_properties;

/// Rules for the counting tasks: the answer is an integer.
pub(crate) fn count(game: &Game) -> Result<Rules, Error> {
    let wanted = game::int(&game.answer).ok_or_else(|| game.error("answer", "a whole number"))?;
    Ok(Box::new(move |text, mode| {
        let number = match mode {
            Mode::Parity => python::int(last_boxed_simple(text).ok_or(NO_BOX)?),
            Mode::Strict => whole_number(&only_boxed(text, |part| plain_int(part).is_some())?),
        };
        equal(number.ok_or(unparsed("not_an_integer"))? == wanted)
    }))
}

/// Rules for space_reasoning: the answer is a name, compared without case.
pub(crate) fn space_reasoning(game: &Game) -> Result<Rules, Error> {
    let wanted = game.answer_text()?.to_lowercase();
    Ok(Box::new(move |text, mode| {
        equal(match mode {
            Mode::Parity => last_boxed(text).ok_or(NO_BOX)?.to_lowercase() == wanted,
            Mode::Strict => {
                let wanted = undressed(&wanted);
                only_boxed(text, |part| part.to_lowercase() == wanted)?.to_lowercase() == wanted
            }
        })
    }))
}

/// Rules for space_reasoning_tree: the answer is a set of names.
pub(crate) fn space_reasoning_tree(game: &Game) -> Result<Rules, Error> {
    let wanted = name_set(&game.answer_text()?);
    Ok(Box::new(move |text, mode| {
        equal(match mode {
            Mode::Parity => name_set(last_boxed(text).ok_or(NO_BOX)?) == wanted,
            Mode::Strict => {
                let wanted = wanted.iter().map(|name| name.to_lowercase()).collect();
                let names = |part: &str| name_set(&part.replace(" and ", ",").to_lowercase());
                names(&only_boxed(text, |part| names(part) == wanted)?) == wanted
            }
        })
    }))
}

fn name_set(text: &str) -> BTreeSet<String> {
    text.replace('，', ",").replace(' ', "").split(',').map(str::to_owned).collect()
}

/// Rules for word_sorting: the answer is a list of words in order.
pub(crate) fn word_sorting(game: &Game) -> Result<Rules, Error> {
    let wanted = word_list(&game.answer_text()?);
    Ok(Box::new(move |text, mode| {
        equal(match mode {
            Mode::Parity => word_list(last_boxed_simple(text).ok_or(NO_BOX)?) == wanted,
            Mode::Strict => {
                let item = |line: &str| {
                    Some(regex!(r"^(?:\d+[.)]|[-*•])\s*([^\s,]+)$").captures(line)?[1].to_owned())
                };
                let listed = |part: &str| word_list(part) == wanted;
                match only_boxed(text, listed) {
                    Ok(stated) => listed(&stated),
                    Err(missing) => {
                        only(text, written(text, wanted.len(), item)).map_err(|_| missing)? == wanted
                    }
                }
            }
        })
    }))
}

fn word_list(text: &str) -> Vec<String> {
    text.replace('，', ",").replace(' ', "").split(',').map(|w| strip(w).to_owned()).collect()
}

/// Rules for word_sorting_mistake: the answer is the number of the wrong step, or text such as "No".
pub(crate) fn word_sorting_mistake(game: &Game) -> Result<Rules, Error> {
    let wanted = match &game.answer {
        Value::None => Value::Str("No".into()),
        answer @ (Value::Str(_) | Value::Int(_)) => answer.clone(),
        _ => return Err(game.error("answer", "a number, text or null")),
    };
    Ok(Box::new(move |text, mode| {
        let content = match mode {
            Mode::Parity => last_boxed_simple(text).ok_or(NO_BOX)?.to_owned(),
            Mode::Strict => only_boxed(&named_answers(text, true), |part| plain_int(part).is_some())?,
        };
        if !content.is_empty() && content.chars().all(|c| crate::python_text::decimal(c).is_some()) {
            let number = if mode == Mode::Parity { python::int(&content) } else { plain_int(&content) };
            return equal(number.is_some() && number == game::int(&wanted));
        }
        equal(matches!(&wanted, Value::Str(s) if content.to_lowercase() == s.to_lowercase()))
    }))
}

/// Rules for gpqa_diamond: the answer is the letter of an option, or the option's content.
pub(crate) fn gpqa_diamond(game: &Game) -> Result<Rules, Error> {
    let wanted = strip(&game.answer_text()?).to_lowercase();
    Ok(Box::new(move |text, mode| {
        let lower = strip(text).to_lowercase();
        match mode {
            // Without a box the reference compares the empty string.
            Mode::Parity => {
                let content = last_boxed_simple(&lower);
                let same = fuzzy(content.unwrap_or(""), &wanted);
                if content.is_none() && !same { Err(NO_BOX) } else { equal(same) }
            }
            Mode::Strict => {
                let bare =
                    |s: &str| s.strip_prefix('(').and_then(|s| s.strip_suffix(')')).unwrap_or(s).to_owned();
                equal(bare(&only_boxed(&lower, |_| false)?) == bare(&undressed(&wanted)))
            }
        }
    }))
}

/// Compares loosely, as the reference does: ignores parentheses around letters, the notation of numbers, quotes,
/// brackets and a question mark.
fn fuzzy(prediction: &str, reference: &str) -> bool {
    let (prediction, reference) = (strip(prediction), strip(reference));
    if prediction == reference {
        return true;
    }
    let option = |s: &str| regex!(r"(?s)^\((.)\)$").captures(s).map(|found| found[1].to_lowercase());
    if let Some(letter) = option(prediction) {
        return letter == reference.to_lowercase();
    }
    if let Some(letter) = option(reference) {
        return letter == prediction.to_lowercase();
    }
    if let (Some(a), Some(b)) = (float(prediction), float(reference))
        && a == b
    {
        return true;
    }
    prediction.replace('\'', "") == reference.replace('\'', "")
        || format!("[{reference}]") == prediction
        || format!("[{prediction}]") == reference
        || prediction.strip_suffix('?') == Some(reference)
}

/// Like Python's `float(text)`.
fn float(text: &str) -> Option<f64> {
    let plain = strip(text);
    if regex!(r"(?:^|[^0-9])_|_(?:[^0-9]|$)").is_match(plain) {
        return None;
    }
    plain.replace('_', "").parse().ok()
}
