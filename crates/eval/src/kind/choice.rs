//! Reads and grades multiple-choice problems: the options in the order shown to the model, and the correct letter.

use super::math;
use crate::graded::{Graded, Response};
use crate::row::{Row, Table, Unusable, plain_text, shown, shown_text, structured, value};
use crate::verifier::{Beside, Grading, Reader, Reference, Unreadable, Verifier};
use fgrpo_verify::choice;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The correct letter, the options in the order shown to the model, and the original index of each option.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Letter of the correct option.
    pub gold: String,
    /// The options, A first.
    #[serde(default)]
    pub options: Vec<String>,
    /// `order[i]` is the index, in the file, of the option shown at position `i`.
    #[serde(default)]
    pub order: Vec<usize>,
}

impl Reference for Truth {
    fn verifier(&self, grading: &Grading) -> Result<Box<dyn Verifier>, Unreadable> {
        match choice::Verifier::new(&self.gold, &self.options, grading.settings.choice) {
            Ok(verifier) => Ok(Box::new(verifier)),
            Err(error) => Err(Unreadable::new("bad_gold", error)),
        }
    }

    fn read_as(&self) -> Option<String> {
        let place = self.gold.bytes().next().unwrap_or_default().wrapping_sub(b'A');
        self.options.get(usize::from(place)).map(|o| format!("the option {o:?}"))
    }

    fn gold(&self) -> Option<String> {
        Some(self.gold.clone())
    }

    /// Returns the options, one per line.
    fn shown_below(&self, _question: &str) -> Option<String> {
        let line = |(i, option): (usize, &String)| format!("{}) {}\n", choice::letter(i), option.trim());
        let lines: String = self.options.iter().enumerate().map(line).collect();
        Some(lines + "\nAnswer with the letter of the correct option.")
    }

    fn vote(&self, completion: &str) -> Option<Option<String>> {
        math::vote(math::boxed(completion).or_else(|| math::tagged(completion)))
    }
}

impl Verifier for choice::Verifier {
    fn doubt(&self) -> Option<&'static str> {
        self.has_equal_options()
            .then_some("options: two are equal; only an answer with a letter can choose one of them")
    }

    fn check(&self, response: Response<'_>) -> Graded {
        Self::check(self, response.answer).into()
    }
}

enum Options {
    /// Column that lists the options. They are shown in their original order, because answers may refer to letters.
    List(String),
    /// Columns of the wrong options. The options are shown in a random order that depends on the question.
    Wrong(Vec<String>),
}

/// Finds the columns of the options and the correct answer.
pub fn reader(table: &Table<'_>, beside: &Beside<'_>) -> anyhow::Result<Reader<Truth>> {
    let (options, usual) = match table.first_of(&["options", "choices"]) {
        Some(list) => (Options::List(list), math::ANSWER),
        None => {
            let wrong = (1..).map_while(|i| {
                table.first_of(&[&format!("incorrect answer {i}"), &format!("incorrect_answer_{i}")])
            });
            let wrong: Vec<String> = wrong.collect();
            if wrong.is_empty() {
                table.require("the options", None, &["Incorrect Answer 1", "options", "choices"])?;
            }
            (Options::Wrong(wrong), &["correct answer", "correct_answer"][..])
        }
    };
    let answer = table.column("answer", beside.answer, usual)?;
    let column = table.require("the answer", answer, &["Correct Answer", "answer"])?;
    let (letters, indices) = match &options {
        Options::List(list) => (hold_letters(table, list, &column), hold_indices(table, list, &column)?),
        Options::Wrong(_) => (false, false),
    };
    let equal: Vec<usize> = (0..table.rows.len())
        .filter(|at| {
            let row = &table.rows[*at];
            let mut texts = match &options {
                Options::List(list) => value(row, list)
                    .map(structured)
                    .and_then(|list| Listed::of(&list))
                    .map_or_else(Vec::new, |listed| listed.texts),
                Options::Wrong(columns) => {
                    columns.iter().chain([&column]).filter_map(|column| text(row, column)).collect()
                }
            };
            texts.sort_unstable();
            texts.windows(2).any(|pair| pair[0].trim() == pair[1].trim())
        })
        .collect();
    if let Some(first) = equal.first() {
        tracing::warn!(
            "{} of {} rows have two equal options, the first is row {}; only an answer with a letter can choose one of them",
            equal.len(),
            table.rows.len(),
            first + 1
        );
    }
    Ok(Box::new(move |cells| {
        let row = cells.row;
        let answer = text(row, &column).ok_or_else(|| Unusable::new("empty answer", shown(row, &column)))?;
        match &options {
            Options::Wrong(columns) => {
                let mut options = vec![answer];
                options.extend(columns.iter().filter_map(|column| text(row, column)));
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                // The first option is the correct one.
                let listing = choice::show(cells.question, &options)
                    .map_err(|_| Unusable::new(FEW_OR_MANY, format!("{} options", options.len())))?;
                Ok(Truth { gold: listing.gold.to_string(), options: listing.options, order: listing.order })
            }
            Options::List(list) => {
                let cell = value(row, list).map(structured);
                let options = cell.as_ref().and_then(Listed::of);
                let options = options.ok_or_else(|| Unusable::new("no list of options", shown(row, list)))?;
                if !(2..=choice::MOST_OPTIONS).contains(&options.texts.len()) {
                    return Err(Unusable::new(FEW_OR_MANY, shown(row, list)));
                }
                let place = options.place(&answer, letters, indices).ok_or_else(|| {
                    let detail = format!("answer {} of {} options", shown_text(&answer), options.texts.len());
                    Unusable::new("the answer is no option", detail)
                })?;
                let order = (0..options.texts.len()).collect();
                Ok(Truth { gold: choice::letter(place).to_string(), options: options.texts, order })
            }
        }
    }))
}

/// Returns the text of a cell, or `None` if it is empty.
fn text(row: &Row, column: &str) -> Option<String> {
    value(row, column).and_then(plain_text).map(|t| t.trim().to_owned()).filter(|t| !t.is_empty())
}

const FEW_OR_MANY: &str = "fewer than 2 or more than 26 options";

/// The options of a row. If they are labelled, as in ARC, each option has a label.
struct Listed {
    texts: Vec<String>,
    labels: Vec<String>,
}

impl Listed {
    fn of(list: &Value) -> Option<Self> {
        let texts = |list: &Value| list.as_array()?.iter().map(plain_text).collect::<Option<Vec<String>>>();
        match list {
            Value::Object(object) => {
                let labels = object.get("label").map(texts).unwrap_or(Some(Vec::new()))?;
                Some(Self { texts: texts(object.get("text")?)?, labels })
            }
            list => Some(Self { texts: texts(list)?, labels: Vec::new() }),
        }
    }

    /// Returns the index of the option that an answer names by label or text.
    fn named(&self, answer: &str) -> Option<usize> {
        let among = |texts: &[String]| texts.iter().position(|text| text.trim() == answer);
        among(&self.labels).or_else(|| among(&self.texts))
    }

    /// Returns the index of the option that an answer names. In a column of `letters` or `indices`, the answer is read as
    /// one first; otherwise it is read as a label, the option's words, a letter or an index, in this order.
    fn place(&self, answer: &str, letters: bool, indices: bool) -> Option<usize> {
        let index = || answer.parse().ok();
        let first = if letters { lettered(answer) } else { None };
        let first = first.or_else(|| if indices { index() } else { None });
        first
            .or_else(|| self.named(answer))
            .or_else(|| lettered(answer))
            .or_else(index)
            .filter(|&place| place < self.texts.len())
    }
}

/// Returns the index of the option with this capital letter.
fn lettered(answer: &str) -> Option<usize> {
    match answer.as_bytes() {
        [letter @ b'A'..=b'Z'] => Some(usize::from(letter - b'A')),
        _ => None,
    }
}

/// Returns whether a column of answers contains letters. It does if each answer is the letter of an option, options
/// aren't labelled, and a column of indices, if there is one, agrees. A letter may also be the text of another option.
fn hold_letters(table: &Table<'_>, list: &str, answers: &str) -> bool {
    let index = table.first_of(&["answer_index", "answer_idx"]);
    let mut rows = table.rows.iter().filter_map(|row| {
        let listed = value(row, list).map(structured).as_ref().and_then(Listed::of)?;
        Some((row, listed, text(row, answers)?))
    });
    rows.all(|(row, listed, answer)| {
        let place = lettered(&answer).filter(|place| *place < listed.texts.len() && listed.labels.is_empty());
        let index = index.as_ref().and_then(|column| value(row, column)).and_then(Value::as_u64);
        place.is_some_and(|place| index.is_none_or(|index| index == place as u64))
    })
}

/// Returns whether the numbers in a column of answers are indices. They are if a number can't be the text of an option.
/// Even a number that is also the text of an option then counts as an index.
fn hold_indices(table: &Table<'_>, list: &str, answers: &str) -> anyhow::Result<bool> {
    let (mut indices, mut from_0, mut end) = (false, false, None);
    for row in table.rows {
        let (Some(cell), Some(answer)) = (value(row, answers), text(row, answers)) else { continue };
        let Some(values) = value(row, list).map(structured) else { continue };
        let (Some(options), Ok(number)) = (Listed::of(&values), answer.parse::<usize>()) else { continue };
        let texts = || values.as_array().is_some_and(|list| list.iter().all(Value::is_string));
        indices |= options.named(&answer).is_none() || (cell.is_number() && texts());
        from_0 |= number == 0;
        if number == options.texts.len() {
            end = Some(number);
        }
    }
    if let Some(end) = end.filter(|_| indices && !from_0) {
        bad_input!(
            "{answers}: expected letters, options, or indices from 0; found {end} of {end} options and no 0"
        );
    }
    Ok(indices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_a_label_a_text_a_letter_or_an_index() {
        let options = |list: Value| Listed::of(&list).unwrap();
        let numbers = options(json!(["4", "2", "3", "1"]));
        assert_eq!(numbers.place("1", false, false), Some(3));
        assert_eq!(numbers.place("1", false, true), Some(1));
        assert_eq!(numbers.place("B", false, true), Some(1));
        assert_eq!(numbers.place("0", false, false), Some(0));
        assert_eq!(numbers.place("5", false, false), None);
        let types = options(json!(["B", "A", "AB", "O"]));
        assert_eq!((types.place("A", true, false), types.place("A", false, false)), (Some(0), Some(1)));
        let arc = options(json!({"text": ["x", "y", "z"], "label": ["1", "2", "3"]}));
        assert_eq!(arc.place("2", false, false), Some(1));
        // An option that isn't there would shift the letters of the others.
        assert!(Listed::of(&json!([null, "x", "y"])).is_none());
    }

    #[test]
    fn options_are_lettered_in_their_order() {
        let truth = Truth { gold: "A".into(), options: vec!["x".into(), " y ".into()], order: vec![0, 1] };
        let options = truth.shown_below("Which?").unwrap();
        assert_eq!(options, "A) x\nB) y\n\nAnswer with the letter of the correct option.");
    }
}
