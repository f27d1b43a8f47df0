//! Probabilities of all correct completions of problems where these can be listed: of held-out problems, and of a step's
//! problems before and after the update.

use crate::credit::Credited;
use crate::policy::{Policy, Sequence};
use crate::run::metrics::MassMetrics;
use anyhow::Context;
use fgrpo_core::maze::tokens;
use fgrpo_eval::dataset::Problem;
use fgrpo_eval::dataset::presets::Preset;
use fgrpo_eval::kind::Truth;
use fgrpo_eval::plan::Plan;
use std::sync::Arc;

/// Number of problems whose completions are scored at a time.
const PROBLEMS: usize = 64;

/// All correct completions of a problem, including their end tokens.
fn solutions(problem: &Problem) -> anyhow::Result<Vec<Vec<u32>>> {
    let Truth::Maze(truth) = &problem.truth else {
        bad_input!("problem {}: its correct completions can't be listed", problem.id);
    };
    Ok(truth.maze.solutions().iter().map(|moves| tokens::completion(moves)).collect())
}

/// Scores every correct completion of each problem at temperature 1, including its end token.
///
/// # Errors
/// Bad input for a problem that isn't a maze or doesn't fit the model; errors from the engine.
pub fn solution_logp(policy: &mut Policy, plan: &Plan) -> anyhow::Result<Vec<Vec<f32>>> {
    let language = Arc::clone(policy.language());
    let with_prompt = |(problem, prompt): (&Problem, &Preset)| {
        let conversation = problem.conversation(prompt.system.as_deref());
        let tokens = language.prompt(&conversation, prompt.thinking);
        Ok((tokens.with_context(|| format!("the prompt of problem {}", problem.id))?, solutions(problem)?))
    };
    let problems = plan.problems().into_iter().map(with_prompt).collect::<anyhow::Result<Vec<_>>>()?;
    score(policy, &problems)
}

/// Scores the completions of each prompt.
fn score(policy: &mut Policy, problems: &[(Vec<u32>, Vec<Vec<u32>>)]) -> anyhow::Result<Vec<Vec<f32>>> {
    let mut logp = Vec::new();
    for problems in problems.chunks(PROBLEMS) {
        let of = |(prompt, solutions): &(Vec<u32>, Vec<Vec<u32>>)| -> Vec<Sequence> {
            solutions.iter().map(|solution| Sequence::completion(prompt, solution)).collect()
        };
        let scores = policy.score(&problems.iter().flat_map(of).collect::<Vec<_>>(), 1.0)?;
        let mut sums = scores.iter().map(|s| s.logp.iter().map(|&l| f64::from(l)).sum::<f64>() as f32);
        logp.extend(problems.iter().map(|(_, all)| sums.by_ref().take(all.len()).collect::<Vec<_>>()));
    }
    Ok(logp)
}

/// The correct completions of the problems of a step's active groups, with their probabilities before the update.
pub struct BeforeUpdate {
    problems: Vec<(Vec<u32>, Vec<Vec<u32>>)>,
    /// Whether the group has sampled each of them.
    sampled: Vec<Vec<bool>>,
    logp: Vec<Vec<f32>>,
}

impl BeforeUpdate {
    /// Scores the correct completions of the active groups of a step.
    ///
    /// # Errors
    /// As [`solution_logp`].
    pub fn new(policy: &mut Policy, groups: &[Credited]) -> anyhow::Result<Self> {
        let (mut problems, mut sampled) = (Vec::new(), Vec::new());
        for Credited { rollouts, .. } in groups.iter().filter(|group| group.has_mixed_rewards()) {
            let all = solutions(&rollouts.prompt.problem)?;
            let drawn = |solution: &Vec<u32>| rollouts.completions.iter().any(|c| c.tokens == *solution);
            sampled.push(all.iter().map(drawn).collect());
            problems.push((rollouts.prompt.tokens.clone(), all));
        }
        let logp = score(policy, &problems)?;
        Ok(Self { problems, sampled, logp })
    }

    /// Measures how the update has changed the mass since, or returns `None` if no group was active.
    ///
    /// # Errors
    /// As [`solution_logp`].
    pub fn changes(self, policy: &mut Policy) -> anyhow::Result<Option<MassMetrics>> {
        let after = score(policy, &self.problems)?;
        let of_group = |((before, after), sampled): ((&Vec<f32>, &Vec<f32>), &Vec<bool>)| {
            let change = |(b, a): (&f32, &f32)| f64::from(*a).exp() - f64::from(*b).exp();
            let changes: Vec<f64> = before.iter().zip(after).map(change).collect();
            let unsampled = changes.iter().zip(sampled).filter(|(_, sampled)| !**sampled);
            (changes.iter().sum(), unsampled.map(|(change, _)| change).sum())
        };
        let groups: Vec<(f64, f64)> = self.logp.iter().zip(&after).zip(&self.sampled).map(of_group).collect();
        Ok(MassMetrics::of(&groups))
    }
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
