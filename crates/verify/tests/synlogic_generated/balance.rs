//! No constant answer earns much on generated problems. Over 300 problems of each task at each difficulty, neither a guess without
//! content nor the solution of another problem is right for more than 5 %.
//! `cargo test -p fgrpo-verify --test synlogic_generated -- --nocapture` prints the best guess of each task.

use std::collections::{BTreeSet, HashMap};

use fgrpo_verify::synlogic::{Mode, Options, Task, Verifier, generate, has_generator};

use crate::problems::numbers;

const PROBLEMS: usize = 300;
const MOST: f64 = 0.05;

const GUESSES: [&str; 20] = [
    "",
    "yes",
    "no",
    "invalid",
    "nothing",
    "[]",
    "[[]]",
    "{}",
    "0",
    "1",
    "-1",
    "True",
    "No",
    "no errors",
    "[0, 0]",
    "\\boxed{0}",
    "\\boxed{No}",
    "\\boxed{unknown}",
    "```python\n[]\n```",
    "The answer is **yes**.",
];

/// The guess that is right for the largest fraction of one task's problems at one difficulty.
fn best_guess(task: Task, difficulty: u32) -> (f64, String) {
    let mut verifiers = Vec::new();
    let mut solutions: HashMap<String, usize> = HashMap::new();
    for index in 0..PROBLEMS as u64 {
        let mut random = numbers(u64::from(difficulty) << 32 | index);
        let made = generate(task, difficulty, index, &mut random).unwrap_or_else(|e| panic!("{e}"));
        verifiers.push(Verifier::parse(task, &made.game_data_str()).unwrap_or_else(|e| panic!("{e}")));
        *solutions.entry(made.solution).or_default() += 1;
    }
    let mut common: Vec<(usize, String)> = solutions.into_iter().map(|(text, count)| (count, text)).collect();
    common.sort_unstable_by(|a, b| b.cmp(a));
    let common = common.into_iter().take(4).map(|(_, text)| text);
    let guesses: BTreeSet<String> = GUESSES.map(str::to_owned).into_iter().chain(common).collect();
    let share = |guess: &str, mode| {
        let options = Options { mode, format_gate: false };
        let right = verifiers.iter().filter(|verifier| verifier.check(guess, &options).is_correct()).count();
        right as f64 / PROBLEMS as f64
    };
    let both = |guess: String| (share(&guess, Mode::Parity).max(share(&guess, Mode::Strict)), guess);
    guesses.into_iter().map(both).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default()
}

#[test]
fn no_constant_answer_earns_more_than_five_percent() {
    let mut refused = Vec::new();
    for task in Task::ALL.into_iter().filter(|task| has_generator(*task)) {
        let shares: Vec<(f64, String)> = (1..=10).map(|difficulty| best_guess(task, difficulty)).collect();
        let percent =
            shares.iter().map(|(share, _)| format!("{:.1}", 100.0 * share)).collect::<Vec<_>>().join(" | ");
        println!("| {task} | {percent} |");
        for (difficulty, (share, guess)) in (1..).zip(shares) {
            if share > MOST {
                refused.push(format!("{task} at difficulty {difficulty}: {guess:?} earns {share:.3}"));
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
