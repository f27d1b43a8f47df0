//! From prompts to graded groups of completions.

mod answer;
mod from_server;

pub use from_server::ServerRollouts;

use crate::episode::{self, Episode, Part, Wanted};
use crate::policy::{Policy, Request, Sampling, Sequence};
use crate::problem::{Prompt, Task};
use fgrpo_core::rng::Key;
use fgrpo_eval::graded::Graded;
use fgrpo_eval::io::interrupt;
use fgrpo_nn::Completion;
use rayon::prelude::*;
use std::collections::HashMap;

/// One prompt with its completions, ordered by sample index.
#[derive(Debug, Clone)]
pub struct Rollouts {
    /// The prompt.
    pub prompt: Prompt,
    /// `N` completions. Their log-probabilities are from the trainer's engine.
    pub completions: Vec<Completion>,
    /// Log-probability of each token from the engine that sampled, if that is another engine.
    pub sampler_logp: Option<Vec<Vec<f32>>>,
    /// Log-probability of each token under the reference policy, if there is a KL penalty.
    pub ref_logp: Option<Vec<Vec<f32>>>,
    /// With an environment, the episode of each completion, which has its turns' tokens.
    pub episodes: Option<Vec<Episode>>,
}

impl Rollouts {
    /// A group as this engine sampled it.
    pub fn new(prompt: Prompt, completions: Vec<Completion>) -> Self {
        Self { prompt, completions, sampler_logp: None, ref_logp: None, episodes: None }
    }

    /// The sequences of a sample, of which the sampled tokens are the targets.
    pub fn sequences(&self, sample: usize) -> Vec<Sequence> {
        match &self.episodes {
            Some(episodes) => {
                let sequence = |part: &Part| Sequence::of_indices(part.tokens.clone(), &part.sampled);
                episodes[sample].parts.iter().map(sequence).collect()
            }
            None => vec![Sequence::completion(&self.prompt.tokens, &self.completions[sample].tokens)],
        }
    }
}

/// How completions of a task's prompts are sampled.
#[derive(Debug, Clone, Copy)]
pub struct Draws {
    /// Completions of each prompt.
    pub group_size: usize,
    /// Length limit of a completion in tokens.
    pub max_new_tokens: usize,
    /// How their tokens are drawn.
    pub sampling: Sampling,
}

/// Samples completions of each prompt, or plays as many episodes if its task has an environment.
///
/// The random draw at `position` of sample `i` of a prompt comes from `key.with(prompt id).with(i)`, so a sample
/// depends neither on its batch nor on the other prompts. If a problem occurs twice in a batch, as in a small part of
/// a mix, the second occurrence gets different draws. A completion ends where the model's positions end. Returns `None`
/// if `go_on` returns false; it is called after each token.
///
/// # Errors
/// A prompt that leaves no position; errors from the engine, as logits that aren't finite.
pub fn sample(
    policy: &mut Policy,
    task: &Task,
    prompts: Vec<Prompt>,
    draws: &Draws,
    key: Key,
    go_on: &(dyn Fn() -> bool + Sync),
) -> anyhow::Result<Option<Vec<Rollouts>>> {
    let (keys, samples) = (keys(&prompts, key), 0..draws.group_size);
    let mut requests = Vec::new();
    let mut wanted = Vec::new();
    for (prompt, &key) in prompts.iter().zip(&keys) {
        let (set, problem) = (task.set(prompt), &prompt.problem);
        if set.grader.environment().is_some() {
            wanted.push(Wanted { set, problem, samples: samples.clone(), key });
            continue;
        }
        check_prompt(policy, prompt)?;
        let (prompt, max_tokens) = (prompt.tokens.clone(), draws.max_new_tokens);
        requests.push(Request { prompt, samples: samples.clone(), max_tokens, stop: None, key });
    }
    let Some(episodes) = episode::play(policy, &wanted, draws.max_new_tokens, &draws.sampling, go_on)? else {
        return Ok(None);
    };
    let Some(groups) = policy.sample_while(&requests, &draws.sampling, go_on)? else { return Ok(None) };
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

/// The random key of each prompt: a function of its problem and of how often that problem occurred earlier in the
/// batch.
fn keys(prompts: &[Prompt], key: Key) -> Vec<Key> {
    let mut seen: HashMap<u64, u64> = HashMap::new();
    prompts
        .iter()
        .map(|p| {
            let before = seen.entry(p.id).or_default();
            *before += 1;
            match *before {
                1 => key.with(p.id),
                n => key.with(p.id).with(AGAIN + n),
            }
        })
        .collect()
}

/// Larger than any sample index, which follows a problem's key.
const AGAIN: u64 = 1 << 32;

/// Grades every completion in parallel and returns the grades in order. `None` if asked to stop: an interrupted
/// verifier gives no verdict.
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
