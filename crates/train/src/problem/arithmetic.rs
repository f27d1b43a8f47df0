//! Multi-step arithmetic problems. A demonstration solves a problem step by step and boxes the result. The math
//! verifier grades answers.

use super::generated::{Amounts, Generator};
use crate::config::ArithmeticConfig;
use fgrpo_core::rng::{Key, Stream};
use fgrpo_eval::dataset::{Message, Problem, id_of};
use fgrpo_eval::kind::{self, TaskKind, Truth};
use fgrpo_eval::verifier::Settings;
use std::fmt::Write;

impl Generator for ArithmeticConfig {
    fn name(&self) -> &str {
        "arithmetic"
    }

    fn grading(&self) -> (TaskKind, Settings) {
        (TaskKind::Math, Settings { mode: self.mode, ..Settings::default() })
    }

    fn amounts(&self) -> Amounts {
        Amounts { train: self.train, held_out: self.held_out, seed: self.seed, vocab_size: self.vocab_size }
    }

    fn problem(&self, key: Key) -> Option<Problem> {
        Some(problem(self, key))
    }
}

/// Draws a problem: a start value and operations that keep every value in `0..=largest`.
fn problem(config: &ArithmeticConfig, key: Key) -> Problem {
    let mut draws = key.stream();
    let spread = (config.most_operations - config.fewest_operations) as u64 + 1;
    let operations = config.fewest_operations + draws.below(spread) as usize;
    let mut value = 1 + draws.below(config.largest);
    let begin = ["Start with", "Begin with", "Take"][draws.below(3) as usize];
    let mut question = format!("{begin} {value}.");
    let mut solution = String::new();
    for _ in 0..operations {
        let (text, sign, operand, result) = operation(config.largest, value, &mut draws);
        let _ = write!(question, " {text}");
        let _ = writeln!(solution, "{value} {sign} {operand} = {result}");
        value = result;
    }
    question.push_str(" What is the result?");
    let _ = write!(solution, "\\boxed{{{value}}}");
    let messages = vec![Message::new("user", question)];
    let truth = Truth::Math(kind::math::Truth { gold: value.to_string() });
    Problem {
        solution: Some(solution),
        level: Some(operations.to_string()),
        ..Problem::new(id_of(&messages), messages, truth)
    }
}

/// Draws an operation. Returns its text, its sign, its operand and its result for `value`.
fn operation(largest: u64, value: u64, draws: &mut Stream) -> (String, char, u64, u64) {
    loop {
        let n = 1 + draws.below(20);
        let wording = draws.below(2) as usize;
        match draws.below(4) {
            0 if value + n <= largest => {
                let text = [format!("Add {n}."), format!("Increase it by {n}.")][wording].clone();
                return (text, '+', n, value + n);
            }
            1 if value >= n => {
                let text = [format!("Subtract {n}."), format!("Take away {n}.")][wording].clone();
                return (text, '-', n, value - n);
            }
            2 if value > 0 && 2 * value <= largest => {
                let text = ["Double it.", "Multiply by 2."][wording].to_owned();
                return (text, '*', 2, 2 * value);
            }
            3 if value > 0 && 3 * value <= largest => {
                let text = ["Triple it.", "Multiply by 3."][wording].to_owned();
                return (text, '*', 3, 3 * value);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::generated::language;
    use super::*;
    use crate::config::{Config, TaskConfig};
    use crate::language::Language;
    use crate::problem::{Split, Task};
    use fgrpo_verify::verdict::Verdict;
    use std::collections::HashSet;

    fn config(train: u64, held_out: u64) -> ArithmeticConfig {
        ArithmeticConfig { train, held_out, ..ArithmeticConfig::default() }
    }

    fn open(task: &ArithmeticConfig) -> anyhow::Result<Task> {
        let mut config = Config::parse(include_str!("../../../../configs/arithmetic-quick.toml"), &[])?;
        config.task = TaskConfig::Arithmetic(task.clone());
        Task::open(&config)
    }

    #[test]
    fn every_demonstration_is_graded_correct_and_a_changed_result_is_not() {
        let task = open(&config(300, 20)).unwrap();
        let language = &task.language;
        for id in 0..300 {
            let prompt = task.prompt(Split::Train, id);
            let mut tokens = task.demonstration(&prompt).unwrap();
            let graded = task.grade(&prompt, &tokens);
            assert_eq!(graded.verdict, Verdict::Correct, "{}", language.text(&tokens));
            // The last digit comes before the brace and the end token.
            let at = tokens.len() - 3;
            let digit = language.text(&tokens[at..=at]);
            let other = if digit == "7" { "8" } else { "7" };
            tokens[at] = language.encode(other).unwrap()[0];
            if id < 20 {
                let graded = task.grade(&prompt, &tokens);
                assert_eq!(graded.verdict, Verdict::Wrong, "{}", language.text(&tokens));
            }
        }
    }

    #[test]
    fn no_held_out_problem_is_trained_on_or_held_out_twice() {
        // With so few operations, many drawn problems are equal.
        let mut few = config(2000, 50);
        (few.fewest_operations, few.most_operations, few.largest) = (1, 1, 20);
        let task = open(&few).unwrap();
        let text = |split, id| task.prompt(split, id).problem.question().to_owned();
        let held_out: HashSet<String> = (0..50).map(|i| text(Split::HeldOut, i)).collect();
        assert_eq!(held_out.len(), 50);
        assert!((0..2000).all(|i| !held_out.contains(&text(Split::Train, i))));
        few.held_out = 1_000_000;
        assert!(format!("{:#}", open(&few).err().unwrap()).contains("task.held_out: "));
    }

    #[test]
    fn the_tokenizer_is_the_same_each_time_and_gives_back_any_text() {
        let (a, b) = (language(&config(5, 5), &[]).unwrap(), language(&config(5, 5), &[]).unwrap());
        let (x, y) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        a.write(x.path()).unwrap();
        b.write(y.path()).unwrap();
        let read = |d: &tempfile::TempDir| std::fs::read(d.path().join("tokenizer.json")).unwrap();
        assert_eq!(read(&x), read(&y));
        let language = Language::open(x.path(), &[]).unwrap();
        assert_eq!((language.vocab_size(), a.vocab_size()), (320, 320));
        assert_eq!(language.stop_tokens(), a.stop_tokens());
        for text in ["Start with 12. Añada 3 🙂", "12 + 3 = 15\n\\boxed{15}"] {
            assert_eq!(language.text(&language.encode(text).unwrap()), text);
        }
    }

    #[test]
    fn a_prompt_is_what_the_chat_template_renders() {
        let task = open(&config(3, 3)).unwrap();
        let prompt = task.prompt(Split::HeldOut, 1);
        let question = prompt.problem.question();
        let prompt = task.language.text(&prompt.tokens);
        assert_eq!(prompt, format!("<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"));
    }
}
