//! Log-probabilities of all correct completions of problems where these can be listed.

use crate::policy::{Policy, Sequence};
use anyhow::Context;
use fgrpo_core::maze::tokens;
use fgrpo_eval::kind::Truth;
use fgrpo_eval::plan::Plan;
use std::sync::Arc;

/// Number of problems whose completions are scored at a time.
const PROBLEMS: usize = 64;

/// Scores every correct completion of each problem at temperature 1, including its end token.
///
/// # Errors
/// Bad input for a problem that isn't a maze or doesn't fit the model; errors from the engine.
pub fn solution_logp(policy: &mut Policy, plan: &Plan) -> anyhow::Result<Vec<Vec<f32>>> {
    let language = Arc::clone(policy.language());
    let mut logp = Vec::new();
    for problems in plan.problems().chunks(PROBLEMS) {
        let (mut sequences, mut counts) = (Vec::new(), Vec::new());
        for (problem, prompt) in problems {
            let Truth::Maze(truth) = &problem.truth else {
                bad_input!("problem {}: its correct completions can't be listed", problem.id);
            };
            let tokens = language
                .prompt(&problem.conversation(prompt.system.as_deref()), prompt.thinking)
                .with_context(|| format!("the prompt of problem {}", problem.id))?;
            let solutions = truth.maze.solutions();
            counts.push(solutions.len());
            let of = |moves: &Vec<_>| Sequence::completion(&tokens, &tokens::completion(moves));
            sequences.extend(solutions.iter().map(of));
        }
        let scores = policy.score(&sequences, 1.0)?;
        let mut sums = scores.iter().map(|s| s.logp.iter().map(|&l| f64::from(l)).sum::<f64>() as f32);
        logp.extend(counts.into_iter().map(|count| sums.by_ref().take(count).collect::<Vec<_>>()));
    }
    Ok(logp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::evaluation::in_training::Series;
    use crate::policy;
    use crate::problem::{Split, Task};
    use fgrpo_core::maze::{Move, Token};
    use fgrpo_nn::Device;
    use fgrpo_verify::verdict::Verdict;

    #[test]
    fn the_measured_mass_is_that_of_every_completion_which_the_grader_accepts() {
        let set = ["task.size=5", "task.held_out=4", "task.solution_count=[2,6]", "task.walls=0.1"];
        let text = include_str!("../../../../configs/grids-quick.toml");
        let config = Config::parse(text, &set.map(str::to_owned)).unwrap();
        let task = Task::open(&config).unwrap();
        let engine = policy::fresh(&config, &task, &Device::cpu(1)).unwrap();
        let mut policy = Policy::new(engine, Arc::clone(&task.language));
        let series = Series::of_run(&config, &task).pop().unwrap();
        let exact = series.exact(0, &mut policy, 2, &[]).unwrap();

        let length = 4;
        let completions = (0..4usize.pow(length)).map(|code| {
            let moves = (0..length).map(|i| Token::from(Move::ALL[code / 4usize.pow(i) % 4]) as u32);
            moves.chain([Token::Done as u32]).collect::<Vec<u32>>()
        });
        let completions: Vec<Vec<u32>> = completions.collect();
        let mut masses = Vec::new();
        for id in 0..task.len(Split::HeldOut) {
            let prompt = task.prompt(Split::HeldOut, id);
            let correct = completions.iter().filter(|c| task.grade(&prompt, c).verdict == Verdict::Correct);
            let sequences: Vec<Sequence> =
                correct.map(|completion| Sequence::completion(&prompt.tokens, completion)).collect();
            assert_eq!(sequences.len(), exact.logp[id as usize].len());
            let scores = policy.score(&sequences, 1.0).unwrap();
            let logp = scores.iter().map(|s| s.logp.iter().map(|&l| f64::from(l)).sum::<f64>());
            masses.push(logp.map(f64::exp).sum::<f64>());
        }
        let mean = masses.iter().sum::<f64>() / masses.len() as f64;
        assert!((exact.mass / mean - 1.0).abs() < 1e-5, "{} and {mean}", exact.mass);
        let passed = masses.iter().map(|q| 1.0 - (1.0 - q).powi(256)).sum::<f64>() / masses.len() as f64;
        assert!((exact.pass_at_k[&256] / passed - 1.0).abs() < 1e-5);
        assert_eq!((exact.retained, exact.below_a_tenth), (Some(1.0), Some(0.0)));
        // Without the policy before RL, nobody knows what is retained.
        assert_eq!(series.exact(1, &mut policy, 2, &[]).unwrap().retained, None);
    }
}
