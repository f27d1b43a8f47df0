//! From prompts to graded groups of completions.

mod answer;
mod from_server;

pub use from_server::ServerRollouts;

use crate::task::{Graded, Prompt, Split, Task};
use fgrpo_core::rng::Key;
use fgrpo_nn::{Completion, Engine, Finish, Prompt as EnginePrompt, Sampling};
use rayon::prelude::*;
use std::ops::ControlFlow;

/// One prompt with its completions, in order of their sample index.
#[derive(Debug)]
pub struct Rollouts {
    /// The prompt.
    pub prompt: Prompt,
    /// `N` completions. Their log-probabilities are the trainer's.
    pub completions: Vec<Completion>,
    /// Log-probability of each token as the engine that sampled says, where that was another one.
    pub sampler_logp: Option<Vec<Vec<f32>>>,
}

/// Samples `group_size` completions of each prompt.
///
/// Draw `position` of sample `i` of a prompt comes from `key.with(prompt id).with(i)`, so a sample
/// depends neither on its batch nor on the other prompts. Returns `None` when `go_on` says stop.
///
/// # Errors
/// What the engine reports: a prompt too long, logits that aren't finite.
pub fn sample(
    engine: &mut Engine,
    prompts: Vec<Prompt>,
    group_size: usize,
    sampling: &Sampling,
    key: Key,
    mut go_on: impl FnMut(usize) -> bool,
) -> anyhow::Result<Option<Vec<Rollouts>>> {
    let requests: Vec<EnginePrompt<'_>> =
        prompts.iter().map(|p| EnginePrompt { tokens: &p.tokens, samples: 0..group_size }).collect();
    let keys: Vec<Key> = prompts.iter().map(|p| key.with(p.id)).collect();
    let mut completions: Vec<Vec<Option<Completion>>> = vec![vec![None; group_size]; prompts.len()];
    let mut done = 0;
    let mut stopped = false;
    engine.generate(
        &requests,
        sampling,
        &|prompt, sample, position| keys[prompt].with(sample as u64).uniform(position as u64),
        None,
        &mut |completion| {
            let (prompt, sample) = (completion.prompt, completion.sample);
            completions[prompt][sample] = Some(completion);
            done += 1;
            if go_on(done) {
                ControlFlow::Continue(())
            } else {
                stopped = true;
                ControlFlow::Break(())
            }
        },
    )?;
    drop(requests);
    if stopped && done < prompts.len() * group_size {
        return Ok(None);
    }
    Ok(Some(
        prompts
            .into_iter()
            .zip(completions)
            .map(|(prompt, completions)| Rollouts {
                prompt,
                completions: completions
                    .into_iter()
                    .map(|c| c.expect("the engine returns every sample once"))
                    .collect(),
                sampler_logp: None,
            })
            .collect(),
    ))
}

/// Grades every completion, in parallel, in order.
pub fn grade(task: &dyn Task, split: Split, rollouts: &[Rollouts]) -> Vec<Vec<Graded>> {
    rollouts
        .par_iter()
        .map(|r| {
            r.completions
                .iter()
                .map(|c| task.grade(split, r.prompt.id, &c.tokens, c.finish == Finish::Length))
                .collect()
        })
        .collect()
}
