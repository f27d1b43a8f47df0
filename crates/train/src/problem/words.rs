//! Word problems in plain English, of one or two steps, with a worked solution. `fgrpo data words` writes them to files,
//! which any language model can be trained on.

use super::generated::{self, Amounts, Generator};
use fgrpo_core::rng::{Key, Stream};
use fgrpo_eval::dataset::{Message, Problem, id_of};
use fgrpo_eval::kind::{self, TaskKind, Truth};
use fgrpo_eval::verifier::Settings;
use std::fmt::Write;

/// Word problems: how many, from which seed, and how many steps a solution takes.
#[derive(Debug, Clone, Copy)]
pub struct Words {
    /// Steps of a solution: 1 or 2.
    pub steps: usize,
    /// Number of problems, all different.
    pub problems: u64,
    /// Seed of the problems.
    pub seed: u64,
}

impl Words {
    /// Draws the problems. The first `n` problems are the same whatever their number.
    ///
    /// # Errors
    /// Bad input if fewer than `problems` different problems exist.
    pub fn draw(&self) -> anyhow::Result<Vec<Problem>> {
        Ok(generated::problems(self)?.1)
    }
}

/// A kind of problem. The text has placeholders for two names (`{A}`, `{B}`), things (`{T}`), containers (`{C}`) and the
/// numbers `{a}`, `{b}`, `{c}`, each drawn from its range.
struct Shape {
    text: &'static str,
    /// Steps, separated by blanks: operand, sign, operand. `r` is the result of the step before.
    work: &'static str,
    ranges: [(u64, u64); 3],
}

const fn shape(text: &'static str, work: &'static str, ranges: [(u64, u64); 3]) -> Shape {
    Shape { text, work, ranges }
}

const UNUSED: (u64, u64) = (0, 0);
const MANY: (u64, u64) = (10, 99);
const SOME: (u64, u64) = (2, 40);
const FEW: (u64, u64) = (2, 12);

const ONE_STEP: [Shape; 8] = [
    shape(
        "{A} has {a} {T} and {B} has {b} {T}. How many {T} do they have together?",
        "a+b",
        [MANY, MANY, UNUSED],
    ),
    shape("{A} had {a} {T} and found {b} more. How many {T} does {A} have now?", "a+b", [MANY, SOME, UNUSED]),
    shape(
        "{A} had {a} {T} and gave {b} of them to {B}. How many {T} does {A} have left?",
        "a-b",
        [MANY, SOME, UNUSED],
    ),
    shape(
        "{A} has {a} {T}. {B} has {b} {T}. How many more {T} does {A} have than {B}?",
        "a-b",
        [MANY, MANY, UNUSED],
    ),
    shape(
        "There are {a} {C} with {b} {T} in each. How many {T} are there in all?",
        "a*b",
        [FEW, FEW, UNUSED],
    ),
    shape(
        "{A} saves {a} dollars every week. How many dollars does {A} save in {b} weeks?",
        "a*b",
        [SOME, FEW, UNUSED],
    ),
    shape(
        "{A} shares {a} {T} equally among {b} friends. How many {T} does each friend get?",
        "a/b",
        [MANY, FEW, UNUSED],
    ),
    shape(
        "{A} packs {a} {T} into {C}, {b} {T} in each. How many {C} does {A} fill?",
        "a/b",
        [MANY, FEW, UNUSED],
    ),
];

const TWO_STEPS: [Shape; 12] = [
    shape(
        "{A} had {a} {T}, bought {b} more and gave {c} to {B}. How many {T} does {A} have left?",
        "a+b r-c",
        [MANY, SOME, SOME],
    ),
    shape(
        "{A} had {a} {T}. {A} gave {b} of them to {B} and then found {c} more. How many {T} does {A} have now?",
        "a-b r+c",
        [MANY, SOME, SOME],
    ),
    shape(
        "{A} buys {a} {C} with {b} {T} in each and gives {c} {T} to {B}. How many {T} does {A} keep?",
        "a*b r-c",
        [FEW, FEW, SOME],
    ),
    shape(
        "{A} has {a} {C} with {b} {T} in each, and {c} loose {T}. How many {T} does {A} have in all?",
        "a*b r+c",
        [FEW, FEW, SOME],
    ),
    shape(
        "{A} has {a} {T} and {B} has {b} {T}. They share all of them equally among {c} friends. How many {T} does each friend get?",
        "a+b r/c",
        [MANY, MANY, FEW],
    ),
    shape(
        "{A} had {a} {T} and lost {b} of them. {A} packs the rest into {C}, {c} {T} in each. How many {C} does {A} fill?",
        "a-b r/c",
        [MANY, SOME, FEW],
    ),
    shape(
        "{A} has {a} {T}. {B} has {b} {T} more than {A}. How many {T} do they have together?",
        "a+b r+a",
        [MANY, SOME, UNUSED],
    ),
    shape(
        "{A} has {a} {T}. {B} has {b} {T} fewer than {A}. How many {T} do they have together?",
        "a-b r+a",
        [MANY, SOME, UNUSED],
    ),
    shape(
        "{A} has {a} {T}. {B} has {b} times as many. How many {T} do they have together?",
        "a*b r+a",
        [SOME, FEW, UNUSED],
    ),
    shape(
        "A pen costs {a} dollars. A book costs {b} dollars more than a pen. How many dollars do {c} books cost?",
        "a+b r*c",
        [FEW, SOME, FEW],
    ),
    shape(
        "{A} reads {a} pages a day for {b} days. The book has {c} pages. How many pages are left?",
        "a*b c-r",
        [SOME, FEW, (50, 300)],
    ),
    shape(
        "{A} has {c} dollars and buys {a} {T} for {b} dollars each. How many dollars does {A} have left?",
        "a*b c-r",
        [FEW, FEW, (20, 200)],
    ),
];

const NAMES: [&str; 20] = [
    "Ann", "Ben", "Carla", "Dev", "Emma", "Finn", "Grace", "Hugo", "Ines", "Jack", "Kira", "Liam", "Maya",
    "Noah", "Olga", "Paul", "Rosa", "Sam", "Tara", "Yusuf",
];
const THINGS: [&str; 12] = [
    "apples", "beads", "buttons", "cards", "coins", "marbles", "pencils", "shells", "stamps", "stickers",
    "stones", "tokens",
];
const CONTAINERS: [&str; 6] = ["bags", "baskets", "boxes", "crates", "jars", "trays"];

impl Generator for Words {
    fn name(&self) -> &str {
        "words"
    }

    fn grading(&self) -> (TaskKind, Settings) {
        (TaskKind::Math, Settings::default())
    }

    fn amounts(&self) -> Amounts {
        // Declared as held-out, because `generated` makes held-out problems distinct.
        Amounts { train: 0, held_out: self.problems, seed: self.seed, vocab_size: 0 }
    }

    fn problem(&self, key: Key) -> Option<Problem> {
        let mut draws = key.stream();
        let shapes: &[Shape] = if self.steps == 1 { &ONE_STEP } else { &TWO_STEPS };
        let shape = &shapes[draws.below(shapes.len() as u64) as usize];
        let numbers = shape.ranges.map(|(min, max)| min + draws.below(max - min + 1));
        let (solution, answer) = solve(shape.work, numbers)?;
        let messages = vec![Message::new("user", question(shape.text, numbers, &mut draws))];
        let truth = Truth::Math(kind::math::Truth { gold: answer.to_string() });
        Some(Problem {
            solution: Some(solution),
            level: Some(self.steps.to_string()),
            ..Problem::new(id_of(&messages), messages, truth)
        })
    }
}

/// Returns the worked solution and its answer, or `None` if a value is negative or not whole, or the answer is 0.
fn solve(work: &str, [a, b, c]: [u64; 3]) -> Option<(String, u64)> {
    let (mut solution, mut result) = (String::new(), 0);
    for step in work.split(' ') {
        let value = |name| match name {
            b'a' => a,
            b'b' => b,
            b'c' => c,
            _ => result,
        };
        let [left, sign, right] = *step.as_bytes() else {
            unreachable!("{step}: a step has three characters")
        };
        let (left, right) = (value(left), value(right));
        let value = match sign {
            b'+' => left + right,
            b'-' => left.checked_sub(right)?,
            b'*' => left * right,
            _ => (left % right == 0).then(|| left / right)?,
        };
        let _ = writeln!(solution, "{left} {} {right} = {value}", sign as char);
        result = value;
    }
    let _ = write!(solution, "\\boxed{{{result}}}");
    (result > 0).then_some((solution, result))
}

fn question(text: &str, [a, b, c]: [u64; 3], draws: &mut Stream) -> String {
    let mut pick = |words: &[&'static str]| words[draws.below(words.len() as u64) as usize];
    let (first, second) = loop {
        let pair = (pick(&NAMES), pick(&NAMES));
        if pair.0 != pair.1 {
            break pair;
        }
    };
    text.replace("{A}", first)
        .replace("{B}", second)
        .replace("{T}", pick(&THINGS))
        .replace("{C}", pick(&CONTAINERS))
        .replace("{a}", &a.to_string())
        .replace("{b}", &b.to_string())
        .replace("{c}", &c.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_shape_is_solved_by_its_worked_solution_and_leaves_no_placeholder() {
        assert_eq!(solve("a*b c-r", [7, 8, 60]).unwrap(), ("7 * 8 = 56\n60 - 56 = 4\n\\boxed{4}".into(), 4));
        assert!(solve("a+b r/c", [7, 8, 4]).is_none() && solve("a-b", [5, 5, 0]).is_none());
        for steps in [1, 2] {
            let problems = Words { steps, problems: 500, seed: 3 }.draw().unwrap();
            let questions: HashSet<&str> = problems.iter().map(Problem::question).collect();
            assert_eq!(questions.len(), 500);
            for problem in &problems {
                assert!(!problem.question().contains(['{', '}']));
                assert_eq!(problem.solution.as_ref().unwrap().lines().count(), steps + 1);
            }
        }
    }
}
