//! Puzzles of the SynLogic tasks that have a generator. Their verifiers grade answers, and a demonstration is the
//! known answer.

use super::generated::{Amounts, Generator};
use crate::config::PuzzlesConfig;
use fgrpo_core::rng::Key;
use fgrpo_eval::dataset::{Message, Problem, id_of};
use fgrpo_eval::kind::{TaskKind, Truth, synlogic};
use fgrpo_eval::verifier::Settings;
use fgrpo_verify::synlogic::generate;

impl Generator for PuzzlesConfig {
    fn name(&self) -> &str {
        &self.puzzle
    }

    fn grading(&self) -> (TaskKind, Settings) {
        let settings = Settings { mode: self.mode, format_gate: false, ..Settings::default() };
        (TaskKind::SynLogic, settings)
    }

    fn amounts(&self) -> Amounts {
        Amounts { train: self.train, held_out: self.held_out, seed: self.seed, vocab_size: self.vocab_size }
    }

    fn problem(&self, key: Key) -> Option<Problem> {
        let mut stream = key.stream();
        let puzzle = generate(self.puzzle.parse().ok()?, self.difficulty, 0, &mut || stream.bits()).ok()?;
        let messages = vec![Message::new("user", puzzle.question.clone())];
        let truth = Truth::SynLogic(synlogic::Truth {
            task: self.puzzle.clone(),
            game_data_str: puzzle.game_data_str(),
        });
        Some(Problem { solution: Some(puzzle.solution), ..Problem::new(id_of(&messages), messages, truth) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::generated::problems;
    use super::*;
    use crate::config::Config;
    use crate::problem::{Split, Task};
    use fgrpo_verify::verdict::Verdict;
    use std::collections::HashSet;

    #[test]
    fn demonstrations_are_correct_others_are_not_and_no_held_out_puzzle_is_trained_on() {
        let text = include_str!("../../../../configs/arena-puzzles.toml");
        let set = ["puzzle=\"game_of_24\"", "train=200", "held_out=40"].map(|key| format!("task.{key}"));
        let task = Task::open(&Config::parse(text, &set).unwrap()).unwrap();
        let held_out: HashSet<String> =
            (0..40).map(|id| task.prompt(Split::HeldOut, id).problem.question().to_owned()).collect();
        assert_eq!(held_out.len(), 40);
        let mut verdicts = Vec::new();
        for id in 0..200 {
            let prompt = task.prompt(Split::Train, id);
            assert!(!held_out.contains(prompt.problem.question()));
            let answer = task.demonstration(&prompt).unwrap();
            let text = task.language.text(&answer);
            assert_eq!(task.grade(&prompt, &answer).verdict, Verdict::Correct, "{text}");
            let other = task.demonstration(&task.prompt(Split::Train, (id + 1) % 200)).unwrap();
            verdicts.push(task.grade(&prompt, &other).verdict);
        }
        // Two puzzles may have the same numbers.
        assert!(verdicts.iter().filter(|v| **v == Verdict::Wrong).count() > 190);
    }

    #[test]
    fn a_puzzle_is_a_function_of_seed_and_index() {
        let config = |seed, train| PuzzlesConfig { seed, train, ..PuzzlesConfig::default() };
        let ids = |config: &PuzzlesConfig| -> Vec<String> {
            problems(config).unwrap().0.into_iter().map(|p| p.id).collect()
        };
        let few = ids(&config(1, 20));
        assert_eq!(ids(&config(1, 50))[..20], few);
        assert_ne!(ids(&config(2, 20)), few);
    }
}
