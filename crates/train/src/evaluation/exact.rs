//! Probabilities of all correct completions of problems whose correct completions can be listed: of held-out problems,
//! and of a step's problems before and after the update.

use crate::credit::Credited;
use crate::policy::{Policy, Sequence};
use anyhow::Context;
use fgrpo_core::group::Rewards;
use fgrpo_core::maze::tokens;
use fgrpo_core::stats::mean;
use fgrpo_core::theory::mass::Step;
use fgrpo_core::theory::solutions::Solutions;
use fgrpo_eval::dataset::Problem;
use fgrpo_eval::dataset::presets::Preset;
use fgrpo_eval::kind::Truth;
use fgrpo_eval::plan::Plan;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of problems whose completions are scored at a time.
const PROBLEMS: usize = 64;

/// Returns all correct completions of a problem, including their end tokens.
fn solutions(problem: &Problem) -> anyhow::Result<Vec<Vec<u32>>> {
    let Truth::Maze(truth) = &problem.truth else {
        bad_input!(
            "problem {}: only mazes have exact measures, because their correct completions can be listed",
            problem.id
        );
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
    score(policy, &problems, 1.0)
}

/// Scores the completions of each prompt at a temperature.
fn score(
    policy: &mut Policy,
    problems: &[(Vec<u32>, Vec<Vec<u32>>)],
    temperature: f32,
) -> anyhow::Result<Vec<Vec<f32>>> {
    let mut logp = Vec::new();
    for problems in problems.chunks(PROBLEMS) {
        let sequences = |(prompt, solutions): &(Vec<u32>, Vec<Vec<u32>>)| -> Vec<Sequence> {
            solutions.iter().map(|solution| Sequence::completion(prompt, solution)).collect()
        };
        let scores = policy.score(&problems.iter().flat_map(sequences).collect::<Vec<_>>(), temperature)?;
        let mut sums = scores.iter().map(|s| s.logp.iter().map(|&l| f64::from(l)).sum::<f64>() as f32);
        logp.extend(problems.iter().map(|(_, all)| sums.by_ref().take(all.len()).collect::<Vec<_>>()));
    }
    Ok(logp)
}

/// Change of the probability mass of correct completions by an update, and the predictions of the paper's theory for
/// the step's groups. Changes are means over the active groups, which have both correct and wrong completions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct MassMetrics<N = f64> {
    /// Change of the mass on all correct completions.
    pub mass_change: N,
    /// Change of the mass on the correct completions that the group didn't sample.
    pub unsampled_mass_change: N,
    /// Fraction of the groups in which the mass on all correct completions rose, but the mass on the unsampled ones
    /// fell.
    pub unsampled_falls: N,
    /// Fraction of the groups for which the mass balance and proposition 1 predict that the mass on all correct
    /// completions rises, but the mass on the unsampled ones falls.
    pub unsampled_falls_predicted: N,
    /// Fraction of the groups in which the mass on unsampled correct completions changed in the direction of
    /// proposition 1.
    pub unsampled_sign_agrees: N,
    /// Like `unsampled_sign_agrees`, for proposition 1 with the group's mean reward subtracted, as in GRPO.
    pub unsampled_sign_agrees_centred: N,
    /// Direct drift of proposition 1, for a learning rate that equals the group size.
    pub direct_drift: N,
    /// Normalization coupling of proposition 1, for the same learning rate.
    pub normalization_coupling: N,
    /// Probability of lemma 1 that a group is active and misses a correct completion, averaged over completions and
    /// groups.
    pub tail_miss_predicted: N,
    /// Fraction of the correct completions of all groups that an active group has missed.
    pub tail_miss_observed: N,
}

/// Correct completions of a problem and the completions that its group sampled, with probabilities before the update.
struct Group {
    /// Probability and number of draws of each correct completion.
    correct: Vec<(f64, u64)>,
    /// Probability and number of draws of each distinct wrong completion sampled.
    wrong: Vec<(f64, u64)>,
}

impl Group {
    fn new(group: &Credited, solutions: &[Vec<u32>], before: Vec<f64>) -> Self {
        let mut draws = BTreeMap::<&[u32], (f64, u64)>::new();
        for completion in &group.rollouts.completions {
            let logp: f64 = completion.logp.iter().map(|&l| f64::from(l)).sum();
            draws.entry(&completion.tokens).or_insert((logp.exp().min(1.0), 0)).1 += 1;
        }
        let take_draws =
            |solution: &Vec<u32>| draws.remove(solution.as_slice()).map_or(0, |(_, draws)| draws);
        let counts: Vec<u64> = solutions.iter().map(take_draws).collect();
        Self { correct: before.into_iter().zip(counts).collect(), wrong: draws.into_values().collect() }
    }

    fn is_active(&self) -> bool {
        let has_draws = |side: &[(f64, u64)]| side.iter().any(|&(_, draws)| draws > 0);
        has_draws(&self.correct) && has_draws(&self.wrong)
    }

    /// Returns lemma 1's probability and the observed fraction of the correct completions that an active group missed.
    fn tail_miss(&self) -> anyhow::Result<(f64, f64)> {
        let n = self.correct.iter().chain(&self.wrong).map(|&(_, draws)| draws).sum();
        let misses = self.correct.iter().filter(|&&(_, draws)| draws == 0).count() as f64;
        let observed = if self.is_active() { misses / self.correct.len() as f64 } else { 0.0 };
        Ok((Solutions::new(self.correct.iter().map(|(p, _)| p.ln()))?.tail_miss(n), observed))
    }

    /// Returns the updates of the policy that the paper's theory predicts for this group: with the rewards 1 and 0, and
    /// with the group's mean subtracted from them.
    fn steps(&self) -> anyhow::Result<[Step; 2]> {
        let draws = |side: &[(f64, u64)]| side.iter().map(|&(_, draws)| draws).sum::<u64>() as f64;
        let (correct, n) = (draws(&self.correct), draws(&self.correct) + draws(&self.wrong));
        let step = |mean: f64| {
            let rewards = Rewards { correct: 1.0 - mean, wrong: -mean, threshold: None };
            Step::of_draws(&self.correct, &self.wrong, rewards, n)
        };
        Ok([step(0.0)?, step(correct / n)?])
    }
}

impl MassMetrics {
    /// Computes the metrics from each group and the probabilities of its correct completions after the update. Returns
    /// `None` if no group is active.
    fn of(groups: &[Group], after: &[Vec<f64>]) -> anyhow::Result<Option<Self>> {
        let active = || groups.iter().zip(after).filter(|(group, _)| group.is_active());
        let change = |(group, after): (&Group, &Vec<f64>)| {
            let changes = group.correct.iter().zip(after).map(|(&(before, draws), p)| (p - before, draws));
            let unsampled =
                changes.clone().filter(|&(_, draws)| draws == 0).map(|(change, _)| change).sum::<f64>();
            (changes.map(|(change, _)| change).sum::<f64>(), unsampled)
        };
        let steps = active().map(|(group, _)| group.steps()).collect::<anyhow::Result<Vec<_>>>()?;
        let changes: Vec<_> = active().map(change).zip(&steps).collect();
        let misses = groups.iter().map(Group::tail_miss).collect::<anyhow::Result<Vec<_>>>()?;
        let average = |value: &dyn Fn(f64, f64, &Step) -> f64| {
            mean(changes.iter().map(|((all, unsampled), [step, _])| value(*all, *unsampled, step)))
        };
        let falls = |all: f64, unsampled: f64| f64::from(all > 0.0 && unsampled < 0.0);
        let agrees = |kind: usize| {
            let some = changes.iter().filter(|(_, steps)| steps[kind].q_unsampled_pos > 0.0);
            let same = |((_, change), steps): &((f64, f64), &[Step; 2])| {
                (*change < 0.0) == (steps[kind].unsampled_correct().total() < 0.0)
            };
            mean(some.map(|change| f64::from(same(change))))
        };
        Ok((!changes.is_empty()).then(|| Self {
            mass_change: average(&|all, _, _| all),
            unsampled_mass_change: average(&|_, unsampled, _| unsampled),
            unsampled_falls: average(&|all, unsampled, _| falls(all, unsampled)),
            unsampled_falls_predicted: average(&|_, _, step| {
                falls(step.mass_balance().total(), step.unsampled_correct().total())
            }),
            unsampled_sign_agrees: agrees(0),
            unsampled_sign_agrees_centred: agrees(1),
            direct_drift: average(&|_, _, step| step.unsampled_correct().direct_drift),
            normalization_coupling: average(&|_, _, step| step.unsampled_correct().normalization_coupling()),
            tail_miss_predicted: mean(misses.iter().map(|miss| miss.0)),
            tail_miss_observed: mean(misses.iter().map(|miss| miss.1)),
        }))
    }
}

/// The groups of a step, and the correct completions of their problems.
pub struct BeforeUpdate {
    problems: Vec<(Vec<u32>, Vec<Vec<u32>>)>,
    groups: Vec<Group>,
    temperature: f32,
}

impl BeforeUpdate {
    /// Scores the correct completions of the problems of a step's groups, at the temperature that sampled the groups.
    ///
    /// # Errors
    /// As [`solution_logp`].
    pub fn new(policy: &mut Policy, groups: &[Credited], temperature: f32) -> anyhow::Result<Self> {
        let problem = |group: &Credited| {
            let prompt = &group.rollouts.prompt;
            Ok((prompt.tokens.clone(), solutions(&prompt.problem)?))
        };
        let problems = groups.iter().map(problem).collect::<anyhow::Result<Vec<_>>>()?;
        let before = probabilities(policy, &problems, temperature)?;
        let scored = groups.iter().zip(&problems).zip(before);
        let groups =
            scored.map(|((group, (_, solutions)), before)| Group::new(group, solutions, before)).collect();
        Ok(Self { problems, groups, temperature })
    }

    /// Measures the changes of the mass by the update, or returns `None` if no group was active.
    ///
    /// # Errors
    /// As [`solution_logp`].
    pub fn changes(self, policy: &mut Policy) -> anyhow::Result<Option<MassMetrics>> {
        MassMetrics::of(&self.groups, &probabilities(policy, &self.problems, self.temperature)?)
    }
}

fn probabilities(
    policy: &mut Policy,
    problems: &[(Vec<u32>, Vec<Vec<u32>>)],
    temperature: f32,
) -> anyhow::Result<Vec<Vec<f64>>> {
    let probability = |logp: Vec<f32>| logp.into_iter().map(|l| f64::from(l).exp()).collect();
    Ok(score(policy, problems, temperature)?.into_iter().map(probability).collect())
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
    fn theory_of_a_step_equals_the_sum_over_all_groups_of_a_tiny_policy() {
        let p = [0.6, 0.1, 0.05, 0.25];
        let whole = fgrpo_core::theory::mass::Policy::new(p.to_vec(), vec![true, true, true, false]).unwrap();
        let (mut predicted, mut observed, mut falls, mut active) = (0.0, 0.0, 0.0, 0.0);
        let (mut centred_agrees, mut partial) = (0.0, 0.0);
        let (mut groups, mut moved) = (Vec::new(), Vec::new());
        for code in 0..4usize.pow(4) {
            let sample: Vec<usize> = (0..4).map(|i| code / 4usize.pow(i) % 4).collect();
            let draws = |i: usize| (p[i], sample.iter().filter(|&&drawn| drawn == i).count() as u64);
            let wrong = [draws(3)].into_iter().filter(|action| action.1 > 0);
            let group = Group { correct: (0..3).map(draws).collect(), wrong: wrong.collect() };
            let chance: f64 = sample.iter().map(|&i| p[i]).product();
            let miss = group.tail_miss().unwrap();
            (predicted, observed) = (predicted + chance * miss.0, observed + chance * miss.1);
            // A step that is small enough for the first order to have the right sign.
            let step = Step::new(&whole, &sample, Rewards::default(), 1e-4).unwrap();
            let weights: Vec<f64> = p.iter().zip(&step.logit_change).map(|(p, dz)| p * dz.exp()).collect();
            let total: f64 = weights.iter().sum();
            let after: Vec<f64> = weights[..3].iter().map(|weight| weight / total).collect();
            let correct = sample.iter().filter(|&&i| i < 3).count();
            if 0 < correct && correct < 4 {
                let unsampled = (0..3).filter(|i| !sample.contains(i)).map(|i| after[i] - p[i]).sum::<f64>();
                falls += f64::from(after.iter().sum::<f64>() > 0.75 && unsampled < 0.0);
                active += 1.0;
                let mean = correct as f64 / 4.0;
                let centred = Rewards { correct: 1.0 - mean, wrong: -mean, threshold: None };
                let centred = Step::new(&whole, &sample, centred, 1.0).unwrap().unsampled_correct().total();
                if (0..3).any(|i| !sample.contains(&i)) {
                    centred_agrees += f64::from((unsampled < 0.0) == (centred < 0.0));
                    partial += 1.0;
                }
            }
            groups.push(group);
            moved.push(after);
        }
        assert!((predicted - observed).abs() < 1e-12, "{predicted} and {observed}");
        let metrics = MassMetrics::of(&groups, &moved).unwrap().unwrap();
        assert_eq!(metrics.unsampled_sign_agrees, 1.0);
        assert_eq!(metrics.unsampled_sign_agrees_centred, centred_agrees / partial);
        assert!(0.0 < centred_agrees && centred_agrees < partial);
        assert_eq!(metrics.unsampled_falls, falls / active);
        assert_eq!(metrics.unsampled_falls, metrics.unsampled_falls_predicted);
        assert!(falls > 0.0 && falls < active && metrics.direct_drift < 0.0);
        // The same groups with unchanged probabilities: all changes are 0, whatever the theory predicts.
        let still: Vec<Vec<f64>> = groups.iter().map(|_| p[..3].to_vec()).collect();
        let still = MassMetrics::of(&groups, &still).unwrap().unwrap();
        assert_eq!((still.mass_change, still.unsampled_falls), (0.0, 0.0));
        assert!(still.unsampled_sign_agrees < 1.0);
        assert_eq!(MassMetrics::of(&groups[..1], &moved[..1]).unwrap(), None);
    }

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
        // A step's groups are scored at the temperature that sampled them.
        let prompt = task.prompt(Split::HeldOut, 0);
        let all = solutions(&prompt.problem).unwrap();
        let problems = [(prompt.tokens.clone(), all.clone())];
        let warm = probabilities(&mut policy, &problems, 2.0).unwrap().swap_remove(0);
        let first = Sequence::completion(&prompt.tokens, &all[0]);
        let logp: f64 = policy.score(&[first], 2.0).unwrap()[0].logp.iter().map(|&l| f64::from(l)).sum();
        assert!((warm[0] / logp.exp() - 1.0).abs() < 1e-4, "{} and {}", warm[0], logp.exp());
        // Without the policy before RL, the retained mass is unknown.
        assert_eq!(series.exact(1, &mut policy, 2, &[]).unwrap().retained, None);
    }
}
