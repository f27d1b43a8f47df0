//! Samples completions of prompts and grades them.

mod answer;
mod from_server;

pub use from_server::ServerRollouts;

use crate::episode::{self, Episode, Part, Wanted};
use crate::policy::{Policy, Request, Sampling, Sequence};
use crate::problem::{Prompt, Task};
use fgrpo_core::rng::Key;
use fgrpo_eval::graded::Graded;
use fgrpo_eval::io::interrupt;
use fgrpo_eval::io::server::sampling::RequestSampling;
use fgrpo_nn::Completion;
use rayon::prelude::*;
use std::collections::HashMap;

/// One prompt with its completions, ordered by sample index.
#[derive(Debug, Clone)]
pub struct Rollouts {
    /// The prompt.
    pub prompt: Prompt,
    /// Completions, with log-probabilities from the trainer's engine.
    pub completions: Vec<Completion>,
    /// Log-probability of each token as reported by the server, if a server sampled.
    pub sampler_logp: Option<Vec<Vec<f32>>>,
    /// Log-probability of each token under the reference policy, if there is a KL penalty.
    pub ref_logp: Option<Vec<Vec<f32>>>,
    /// Log-probability of each token under the teacher, if there is a teacher.
    pub teacher_logp: Option<Vec<Vec<f32>>>,
    /// With an environment, the episode of each completion, with the tokens of its turns.
    pub episodes: Option<Vec<Episode>>,
}

impl Rollouts {
    /// Makes a group that the trainer's engine sampled.
    pub fn new(prompt: Prompt, completions: Vec<Completion>) -> Self {
        Self { prompt, completions, sampler_logp: None, ref_logp: None, teacher_logp: None, episodes: None }
    }

    /// Returns the sequences of a sample. The sampled tokens are the targets.
    pub fn sequences(&self, sample: usize) -> Vec<Sequence> {
        match &self.episodes {
            Some(episodes) => episodes[sample].parts.iter().filter_map(Part::sequence).collect(),
            None => vec![Sequence::completion(&self.prompt.tokens, &self.completions[sample].tokens)],
        }
    }
}

/// Settings of sampling for training.
#[derive(Debug, Clone, Copy)]
pub struct Draws {
    /// Number of completions of each prompt.
    pub group_size: usize,
    /// Settings of drawing tokens, with the length limit of a completion.
    pub sampling: RequestSampling,
    /// Maximum number of cached tokens. If `None`, as many as fit in memory.
    pub max_cached_tokens: Option<usize>,
    /// Whether the environment's feedback on each episode is requested.
    pub feedback: bool,
}

/// Samples completions of each prompt, or plays episodes if the prompt's task has an environment.
///
/// The random draw at `position` of sample `i` of a prompt comes from `key.with(prompt id).with(i)`, so a sample
/// doesn't depend on the other samples of its batch. If a problem occurs twice in a batch, as it may in a small part of
/// a mix, the second occurrence gets different draws. A completion ends at the model's last position at the latest.
/// Returns `None` once `go_on` returns `false`, which is called after each token.
///
/// # Errors
/// A prompt that leaves no position for a completion; errors from the engine, such as logits that aren't finite.
pub fn sample(
    policy: &mut Policy,
    task: &Task,
    prompts: Vec<Prompt>,
    draws: &Draws,
    key: Key,
    go_on: &(dyn Fn() -> bool + Sync),
) -> anyhow::Result<Option<Vec<Rollouts>>> {
    let (keys, samples) = (keys(&prompts, key), 0..draws.group_size);
    let Draws { sampling: RequestSampling { max_tokens, .. }, max_cached_tokens, feedback, .. } = *draws;
    let sampling = Sampling { max_cached_tokens, ..Sampling::from(&draws.sampling) };
    let mut requests = Vec::new();
    let mut wanted = Vec::new();
    for (prompt, &key) in prompts.iter().zip(&keys) {
        let (set, problem) = (task.set(prompt), &prompt.problem);
        if set.grader.environment().is_some() {
            wanted.push(Wanted { set, problem, samples: samples.clone(), key, feedback });
            continue;
        }
        check_prompt(policy, prompt)?;
        let (prompt, samples) = (prompt.tokens.clone(), samples.clone());
        requests.push(Request { prompt, samples, max_tokens, stop: None, key });
    }
    let Some(episodes) = episode::play(policy, &wanted, max_tokens, &sampling, go_on)? else {
        return Ok(None);
    };
    let Some(groups) = policy.sample_while(&requests, &sampling, go_on)? else { return Ok(None) };
    let (mut episodes, mut groups) = (episodes.into_iter(), groups.into_iter());
    let mut rollouts = |prompt: Prompt| match task.set(&prompt).grader.environment() {
        Some(_) => {
            let episodes = episodes.next().expect("each prompt has its episodes");
            let completions = episodes.iter().map(|episode| episode.completion.clone()).collect();
            Rollouts { episodes: Some(episodes), ..Rollouts::new(prompt, completions) }
        }
        None => Rollouts::new(prompt, groups.next().expect("each prompt has its completions")),
    };
    Ok(Some(prompts.into_iter().map(&mut rollouts).collect()))
}

fn check_prompt(policy: &Policy, prompt: &Prompt) -> anyhow::Result<()> {
    policy.check_prompt(&format!("problem {}", prompt.problem.id), &prompt.tokens)
}

/// Returns the random key of each prompt, which depends on its problem and the number of earlier occurrences of the
/// problem in the batch.
fn keys(prompts: &[Prompt], key: Key) -> Vec<Key> {
    let mut seen: HashMap<u64, u64> = HashMap::new();
    prompts
        .iter()
        .map(|p| {
            let count = seen.entry(p.id).or_default();
            *count += 1;
            match *count {
                1 => key.with(p.id),
                n => key.with(p.id).with(AGAIN + n),
            }
        })
        .collect()
}

/// Offset of the sub-keys of repeated problems in a batch. It exceeds all sample indices, so these keys differ from the
/// keys of samples.
const AGAIN: u64 = 1 << 32;

/// Grades all completions in parallel and returns the grades in order, or `None` if interrupted, because an
/// interrupted verifier doesn't give a verdict.
pub fn grade(task: &Task, rollouts: &[Rollouts]) -> Option<Vec<Vec<Graded>>> {
    let one =
        |r: &Rollouts, c: &Completion| (!interrupt::requested()).then(|| task.grade(&r.prompt, &c.tokens));
    let grades = rollouts
        .par_iter()
        .map(|r| match &r.episodes {
            Some(episodes) => episodes.iter().map(|episode| Some(episode.graded.clone())).collect(),
            None => r.completions.iter().map(|c| one(r, c)).collect(),
        })
        .collect::<Option<Vec<Vec<Graded>>>>()?;
    (!interrupt::requested()).then_some(grades)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_that_comes_twice_in_a_step_has_other_draws_the_second_time() {
        let prompts: Vec<Prompt> = [4, 9, 4, 4].map(|id| Prompt::of_tokens(id, &[1])).into_iter().collect();
        let keys = keys(&prompts, Key::new(1));
        let draw = |i: usize| keys[i].with(0).uniform(0);
        assert_eq!(draw(0), Key::new(1).with(4).with(0).uniform(0));
        assert!(draw(0) != draw(2) && draw(2) != draw(3) && draw(0) != draw(3));
    }
}
