//! Generation: its limits, and its distribution over executors.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;

use super::Engine;
use super::adapters::unmerged;
use crate::backend::deal;
use crate::cache::PAGE;
use crate::decoder::Decoder;
use crate::error::Error;
use crate::lora::AdapterLayout;
use crate::sampling::{Rollout, Sampling};
use crate::scheduler::{
    self, DoneFn, GenerationSettings, Job, JobQueue, Prompt, PromptQueue, StopFn, UniformFn,
};

/// Minimum number of samples for which a generation with a queue reserves buffers. If there are more samples, they wait or use other free memory.
const QUEUE_SAMPLES: usize = 256;

impl Engine {
    /// Samples completions of `prompts`.
    ///
    /// Every draw is `uniform(prompt, sample, position)`, so a sample doesn't depend on what else is sampled. `stop`, if given, is called with a
    /// completion's tokens after each draw, and ends the completion by returning `true`. `on_done` receives completions as they finish, in an order that
    /// may differ between runs, and ends generation by breaking.
    /// Returns an error if a setting is out of range, the limit on cached tokens is too small for one sequence, or logits are not finite.
    ///
    /// # Panics
    /// If a prompt is empty or has a token outside the vocabulary.
    pub fn generate(
        &mut self,
        prompts: &[Prompt<'_>],
        sampling: &Sampling,
        uniform: &UniformFn<'_>,
        stop: Option<&StopFn<'_>>,
        on_done: &mut DoneFn<'_>,
    ) -> Result<(), Error> {
        sampling.check()?;
        let v = self.decoder.config.vocab_size;
        for (index, prompt) in prompts.iter().enumerate() {
            assert!(!prompt.tokens.is_empty(), "prompt {index} is empty");
            assert!(
                prompt.tokens.iter().all(|&t| (t as usize) < v),
                "prompt {index} has a token outside of the vocabulary of {v}"
            );
        }
        let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
        let shares = share_prompts(prompts, &self.runtime.backend().executors(), sampling.max_new_tokens);
        let ended = |_: usize, tokens: &[u32]| stop.is_some_and(|stop| stop(tokens));
        let settings = GenerationSettings { sampling, uniform, ended: &ended, queue: None };
        let rollout = largest_share(&shares, sampling.max_new_tokens, self.chunk_tokens);
        self.run_generation(&shares, longest, rollout, &settings, on_done)
    }

    /// Samples completions of prompts that arrive from `queue` while it runs. Returns when the queue is empty and all completions are done.
    ///
    /// `longest` is the maximum number of tokens of a prompt with its completion, and replaces `max_new_tokens` of `sampling`. With `keep`, keys
    /// and values stay in the cache until their memory is needed or the weights change. If a prompt begins like an earlier sequence of prompt and
    /// completion, only the tokens after the common prefix are computed ([`Completion::cached`](crate::Completion::cached) counts the cached
    /// tokens), and log-probabilities differ by rounding. `on_done` works as in [`Engine::generate`].
    ///
    /// # Panics
    /// If a prompt of the queue is empty, has a token outside the vocabulary, or exceeds `longest`.
    pub fn generate_queued(
        &mut self,
        queue: &dyn PromptQueue,
        longest: usize,
        sampling: &Sampling,
        keep: bool,
        on_done: &mut DoneFn<'_>,
    ) -> Result<(), Error> {
        sampling.check()?;
        let (executors, state) =
            (self.runtime.backend().executors_with_queue(), self.runtime.backend().state_pages());
        let working = AtomicUsize::new(executors);
        let uniform = |prompt: usize, sample: usize, position: usize| queue.uniform(prompt, sample, position);
        let ended = |prompt: usize, tokens: &[u32]| queue.ended(prompt, tokens);
        let vocabulary = self.decoder.config.vocab_size;
        let jobs = JobQueue { prompts: queue, working: &working, longest, vocabulary, keep };
        let settings = GenerationSettings { sampling, uniform: &uniform, ended: &ended, queue: Some(jobs) };
        let rollout = Rollout {
            prompts: QUEUE_SAMPLES,
            prompt_tokens: longest,
            samples: QUEUE_SAMPLES,
            new_tokens: longest,
            chunk_tokens: self.chunk_tokens,
            cached_tokens: QUEUE_SAMPLES * scheduler::pages_needed(state, longest, 1, 1) * PAGE,
        };
        self.run_generation(&vec![Vec::new(); executors], longest, rollout, &settings, on_done)
    }

    /// Runs each share of jobs on one executor. `longest` is the number of tokens of the longest prompt. With a queue it includes the completion.
    fn run_generation(
        &mut self,
        shares: &[Vec<Job<'_>>],
        longest: usize,
        rollout: Rollout,
        settings: &GenerationSettings<'_>,
        on_done: &mut DoneFn<'_>,
    ) -> Result<(), Error> {
        let new_tokens = if settings.queue.is_some() { 0 } else { settings.sampling.max_new_tokens };
        let reach = longest + new_tokens;
        self.reach(reach)?;
        let (decoder, chunk_tokens) = (&self.decoder, self.chunk_tokens);
        let unmerged = unmerged(&self.adapters);
        let generation = Generation { decoder, chunk_tokens, unmerged, settings, longest, reach, rollout };
        self.runtime.generate(generation, shares, on_done).map_err(|error| self.diagnose(error))
    }
}

/// A generation with its model.
pub(super) struct Generation<'a> {
    pub(super) decoder: &'a Decoder,
    pub(super) chunk_tokens: usize,
    /// Layout of the factors that are applied separately from the weights.
    pub(super) unmerged: Option<&'a AdapterLayout>,
    pub(super) settings: &'a GenerationSettings<'a>,
    /// Number of tokens of the longest prompt. With a queue it includes the completion.
    pub(super) longest: usize,
    /// Maximum number of tokens of a prompt and its completion.
    pub(super) reach: usize,
    pub(super) rollout: Rollout,
}

/// Returns the sizes of a rollout that is at least as large as every executor's share.
fn largest_share(shares: &[Vec<Job<'_>>], new_tokens: usize, chunk_tokens: usize) -> Rollout {
    let maximum =
        |size: &dyn Fn(&[Job<'_>]) -> usize| shares.iter().map(|jobs| size(jobs)).max().unwrap_or(0);
    let cached = |jobs: &[Job<'_>]| scheduler::slots_needed(jobs);
    Rollout {
        prompts: maximum(&|jobs| jobs.len()),
        prompt_tokens: maximum(&|jobs| jobs.iter().map(|job| job.tokens.len()).max().unwrap_or(0)),
        samples: maximum(&|jobs| jobs.iter().map(|job| job.samples.len()).sum()),
        new_tokens,
        chunk_tokens,
        cached_tokens: maximum(&cached),
    }
}

/// Distributes prompts over executors by cost. If there are fewer prompts than executors, the samples of a prompt are distributed. Executors without work
/// are omitted.
fn share_prompts<'a>(prompts: &[Prompt<'a>], speeds: &[usize], max_new_tokens: usize) -> Vec<Vec<Job<'a>>> {
    let parts = speeds.len().div_ceil(prompts.len().max(1));
    let mut jobs = Vec::new();
    for (index, prompt) in prompts.iter().enumerate() {
        let Range { start, end } = prompt.samples.clone();
        let count = end.saturating_sub(start);
        for part in 0..parts {
            let samples = start + count * part / parts..start + count * (part + 1) / parts;
            if !samples.is_empty() {
                let tokens = Cow::Borrowed(prompt.tokens);
                jobs.push(Job { prompt: index, tokens, samples, max_new_tokens });
            }
        }
    }
    let cost = |job: &Job<'_>| job.tokens.len() + job.samples.len() * max_new_tokens;
    let mut shares = deal(jobs, speeds, |job| cost(job) as u64);
    shares.retain(|share| !share.is_empty());
    shares
}
