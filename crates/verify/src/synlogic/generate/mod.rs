//! Generators of problems for all tasks except cipher, zebra_puzzle and arc_agi, whose problems are external.
//!
//! A problem is a function of the task, the difficulty and its random numbers. With counter-based random numbers, any
//! problem can be generated without those before it. Metadata has the fields that SynLogic's verifiers and
//! trainers read; the questions are our own, in English. Each problem is checked before it is returned: the known
//! answer must pass its verifier in both modes.

pub(super) mod arithmetic;
pub(super) mod brackets;
pub(super) mod fill;
pub(super) mod latin;
pub(super) mod placement;
pub(super) mod regions;
pub(super) mod sorting;
pub(super) mod space;
pub(super) mod stories;
pub(super) mod tables;
pub(super) mod words;

use serde_json::{Value, json};

use super::{Mode, Options, Task, Verifier};
use crate::forms;

/// Maximum number of attempts.
const ATTEMPTS: usize = 200;

/// Reason why a problem wasn't generated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// The task doesn't have a generator.
    #[error("{0} has no generator; choose a task other than arc_agi, cipher, gpqa_diamond and zebra_puzzle")]
    NoGenerator(Task),
    /// The difficulty is out of range.
    #[error("difficulty: expected 1 to 10, found {0}")]
    Difficulty(u32),
    /// No attempt gave a problem that its verifier accepts.
    #[error("{task}: {ATTEMPTS} attempts gave no problem of difficulty {difficulty}; choose another seed")]
    GaveUp {
        /// The task.
        task: Task,
        /// The difficulty.
        difficulty: u32,
    },
}

/// A problem and its known answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// The task.
    pub task: Task,
    /// Difficulty, from 1 to 10.
    pub difficulty: u32,
    /// The question, with the form of the answer.
    pub question: String,
    /// The stored answer, as in the public data; it may be empty if the verifier uses metadata.
    pub answer: Value,
    /// The data for the verifier.
    pub metadata: Value,
    /// A correct response, which the verifier accepts in both modes.
    pub solution: String,
}

impl Generated {
    /// Returns the problem in the form of `extra_info.game_data_str` in the public data.
    pub fn game_data_str(&self) -> String {
        json!({
            "question": self.question,
            "answer": self.answer,
            "difficulty": self.difficulty,
            "metadata": self.metadata,
            "gpt_response": "",
        })
        .to_string()
    }
}

/// Generates one problem. `difficulty` is from 1 to 10, `index` is stored in the problem's `trace_id`, `random` gives
/// uniform 64-bit numbers. Equal numbers give equal problems.
/// Fails if the task doesn't have a generator, the difficulty is out of range, or all attempts fail (which was never
/// observed).
pub fn generate(
    task: Task,
    difficulty: u32,
    index: u64,
    random: &mut dyn FnMut() -> u64,
) -> Result<Generated, GenerateError> {
    if !(1..=10).contains(&difficulty) {
        return Err(GenerateError::Difficulty(difficulty));
    }
    let Some(maker) = task.maker() else { return Err(GenerateError::NoGenerator(task)) };
    let mut source = Source { random };
    for _ in 0..ATTEMPTS {
        let Some(draft) = maker(difficulty as usize, &mut source) else { continue };
        let Some(question) = question(task, &draft.values) else { continue };
        let mut metadata = json!({ "trace_id": format!("{task}-{difficulty}-{index}") });
        if let (Some(target), Value::Object(fields)) = (metadata.as_object_mut(), draft.metadata) {
            target.extend(fields);
        }
        let made = Generated {
            task,
            difficulty,
            question,
            answer: draft.answer,
            metadata,
            solution: draft.solution,
        };
        let Ok(verifier) = Verifier::parse(task, &made.game_data_str()) else { continue };
        let accepted =
            |mode| verifier.check(&made.solution, &Options { mode, format_gate: false }).is_correct();
        if accepted(Mode::Parity) && accepted(Mode::Strict) {
            return Ok(made);
        }
    }
    Err(GenerateError::GaveUp { task, difficulty })
}

/// The result of a generator: a problem without its question's text.
pub(super) struct Draft {
    /// Values of the placeholders in the task's question.
    values: Values,
    answer: Value,
    metadata: Value,
    solution: String,
}

impl Draft {
    /// Makes a draft whose correct response is the bare answer.
    fn plain(answer: &str, values: Values, metadata: Value) -> Self {
        Self { answer: json!(answer), solution: answer.to_owned(), values, metadata }
    }

    /// Makes a draft whose correct response is the answer in a box.
    fn boxed(answer: impl ToString, values: Values, metadata: Value) -> Self {
        let answer = answer.to_string();
        Self { solution: format!("\\boxed{{{answer}}}"), answer: json!(answer), values, metadata }
    }

    /// Makes a draft without a stored answer: responses are judged by the metadata. `solution` is a correct response.
    fn solved(solution: String, values: Values, metadata: Value) -> Self {
        Self { answer: json!(""), solution, values, metadata }
    }
}

type Values = Vec<(&'static str, String)>;

/// Builds [`Values`]. `name` takes the variable of this name, `name = value` the given value.
macro_rules! values {
    ($($name:ident $(= $value:expr)?),*) => {
        vec![$((stringify!($name), values!(@ $name $($value)?).to_string())),*]
    };
    (@ $name:ident) => { $name };
    (@ $name:ident $value:expr) => { $value };
}
use values;

/// Returns a section of the data file.
fn section(name: &str) -> &'static str {
    forms::section(include_str!("../../../data/puzzles.txt"), name)
}

fn words(name: &str) -> Vec<&'static str> {
    section(name).split_whitespace().collect()
}

/// Returns a task's question with `values` in place of its placeholders.
fn question(task: Task, values: &Values) -> Option<String> {
    let mut parts = section(task.name()).split("{{");
    let mut question = parts.next()?.to_owned();
    for part in parts {
        let (name, text) = part.split_once("}}")?;
        question += &values.iter().find(|value| value.0 == name)?.1;
        question += text;
    }
    Some(question)
}

/// Function that makes a problem of the given difficulty, or returns `None` if these random numbers don't give one.
pub(super) type Maker = fn(usize, &mut Source<'_>) -> Option<Draft>;

/// Returns whether the task has a generator.
pub fn has_generator(task: Task) -> bool {
    task.maker().is_some()
}

/// Makes random choices with a stream of uniform 64-bit numbers.
pub(super) struct Source<'a> {
    random: &'a mut dyn FnMut() -> u64,
}

impl Source<'_> {
    /// Returns a uniform number less than `n`: the upper half of a 128-bit product, with rejection of the uneven part.
    ///
    /// # Panics
    /// If `n` is 0.
    fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "below(0)");
        let n = n as u64;
        loop {
            let product = u128::from((self.random)()) * u128::from(n);
            if product as u64 >= n.wrapping_neg() % n {
                return (product >> 64) as usize;
            }
        }
    }

    /// Returns a uniform number from `low` to `high`, inclusive.
    fn range(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1).max(1) as usize) as i64
    }

    /// Returns true with probability `parts / whole`.
    fn chance(&mut self, parts: usize, whole: usize) -> bool {
        self.below(whole) < parts
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// Draws `count` distinct items in random order, or all items if there are fewer.
    fn sample<T: Clone>(&mut self, items: &[T], count: usize) -> Vec<T> {
        let mut items = items.to_vec();
        self.shuffle(&mut items);
        items.truncate(count);
        items
    }
}

/// Returns the rows of cells, separated by blanks.
fn table<T: std::fmt::Display>(grid: &[Vec<T>]) -> String {
    let line = |row: &Vec<T>| row.iter().map(T::to_string).collect::<Vec<_>>().join(" ");
    grid.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns a grid with X in place of each 0.
fn blanked<T: Copy + Into<i64>>(grid: &[Vec<T>]) -> Vec<Vec<Value>> {
    let cell = |v: &T| if (*v).into() == 0 { json!("X") } else { json!((*v).into()) };
    grid.iter().map(|row| row.iter().map(cell).collect()).collect()
}

/// Formats a table of numbers and words, without quotation marks.
fn shown(grid: &[Vec<Value>]) -> String {
    table(grid).replace('"', "")
}

/// Formats a list of lists as in Python, each on its own line.
fn listed<T: std::fmt::Debug>(rows: &[Vec<T>]) -> String {
    let rows: Vec<String> = rows.iter().map(|row| format!("    {row:?}")).collect();
    format!("[\n{}\n]", rows.join(",\n"))
}

/// Formats a Python code block.
fn python_block(content: &str) -> String {
    format!("```python\n{content}\n```")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_below_a_bound_are_even() {
        let mut state = 0_u64;
        let mut random = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            state
        };
        let mut source = Source { random: &mut random };
        let mut counts = [0; 3];
        (0..30_000).for_each(|_| counts[source.below(3)] += 1);
        assert!(counts.iter().all(|c| (9_600..10_400).contains(c)), "{counts:?}");
    }
}
