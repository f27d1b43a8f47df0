//! Multiple choice: the options as shown, and the correct letter.

use super::math;
use crate::graded::{Graded, Verifier};
use crate::row::{Row, Table, Unusable, plain_text, shown, shown_text, structured, value};
use crate::verifier::{Beside, Grading, Reader, Reference, Unreadable};
use fgrpo_verify::choice;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The correct letter, the options as shown, and the original index of each option.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// The letter.
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

    /// The question followed by the options, one per line.
    fn shown_below(&self, question: &str) -> Option<String> {
        let mut prompt = question.trim_end().to_owned();
        prompt.push('\n');
        for (i, option) in self.options.iter().enumerate() {
            prompt.push_str(&format!("\n{}) {}", choice::letter(i), option.trim()));
        }
        prompt.push_str("\n\nAnswer with the letter of the correct option.");
        Some(prompt)
    }

    fn vote(&self, completion: &str) -> Option<Option<String>> {
        math::vote(math::boxed(completion).or_else(|| math::tagged(completion)))
    }
}

impl Verifier for choice::Verifier {
    fn check(&self, completion: &str) -> Graded {
        Self::check(self, completion).into()
    }
}

enum Options {
    /// A list, shown in its original order, because its answers may refer to its letters.
    List(String),
    /// The wrong options, each in its own column; the display order is a shuffle that depends on the question.
    Wrong(Vec<String>),
}

/// Finds the columns of the options and the correct answer.
///
/// # Errors
/// Bad input if one is missing.
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
    Ok(Box::new(move |cells| {
        let row = cells.row;
        let answer = text(row, &column).ok_or_else(|| Unusable::new("empty answer", shown(row, &column)))?;
        match &options {
            Options::Wrong(columns) => {
                let mut options = vec![answer];
                options.extend(columns.iter().filter_map(|column| text(row, column)));
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                // The first option is the correct one.
                let shown = choice::show(cells.question, &options)
                    .map_err(|_| Unusable::new(FEW_OR_MANY, format!("{} options", options.len())))?;
                Ok(Truth { gold: shown.gold.to_string(), options: shown.options, order: shown.order })
            }
            Options::List(column) => {
                listed(value(row, column).map(structured), &answer).map_err(|(reason, found)| {
                    Unusable::new(reason, found.unwrap_or_else(|| shown(row, column)))
                })
            }
        }
    }))
}

/// A cell's text, if it has any.
fn text(row: &Row, column: &str) -> Option<String> {
    value(row, column).and_then(plain_text).map(|t| t.trim().to_owned()).filter(|t| !t.is_empty())
}

const FEW_OR_MANY: &str = "fewer than 2 or more than 26 options";

/// A list of options, and an answer that is an option, a letter or an index; or a reason, with what was found where that
/// is not the list.
fn listed(list: Option<Value>, answer: &str) -> Result<Truth, (&'static str, Option<String>)> {
    let list = match &list {
        Some(Value::Array(list)) => list,
        // ARC stores the texts of its choices under `text`.
        Some(Value::Object(object)) => {
            object.get("text").and_then(Value::as_array).ok_or(("no list of options", None))?
        }
        _ => return Err(("no list of options", None)),
    };
    let options: Vec<String> = list.iter().filter_map(plain_text).collect();
    if !(2..=choice::MOST_OPTIONS).contains(&options.len()) {
        return Err((FEW_OR_MANY, None));
    }
    let place = options
        .iter()
        .position(|option| option.trim() == answer)
        .or_else(|| match answer.as_bytes() {
            [b @ b'A'..=b'Z'] => Some(usize::from(b - b'A')),
            _ => answer.parse().ok(),
        })
        .filter(|&i| i < options.len())
        .ok_or_else(|| {
            let found = format!("answer {} of {} options", shown_text(answer), options.len());
            ("the answer is no option", Some(found))
        })?;
    let order = (0..options.len()).collect();
    Ok(Truth { gold: choice::letter(place).to_string(), options, order })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_lettered_in_their_order() {
        let truth = Truth { gold: "A".into(), options: vec!["x".into(), " y ".into()], order: vec![0, 1] };
        let prompt = truth.shown_below("Which?\n").unwrap();
        assert_eq!(prompt, "Which?\n\nA) x\nB) y\n\nAnswer with the letter of the correct option.");
    }
}
