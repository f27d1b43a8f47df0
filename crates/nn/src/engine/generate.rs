//! Generation requests: limits, and distribution over executors.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::adapters::unmerged;
use super::{EngineOn, Worker};
use crate::backend::{Backend, Lane, Rollout, Work};
use crate::cache::{KEPT_BYTES, PAGE};
use crate::decoder::Parameters;
use crate::error::Error;
use crate::executor::Executor;
use crate::generate::{self, Completion, Generator, Job, Prompt, Request, StopFn, UniformFn};
use crate::sampling::Sampling;

impl<D: Backend> EngineOn<D> {
    pub(crate) fn generate(
        &mut self,
        prompts: &[Prompt<'_>],
        sampling: &Sampling,
        uniform: &UniformFn<'_>,
        stop: Option<&StopFn<'_>>,
        on_done: &mut dyn FnMut(Completion) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        sampling.check()?;
        let v = self.decoder.config.vocab_size;
        for (index, prompt) in prompts.iter().enumerate() {
            assert!(!prompt.tokens.is_empty(), "prompt {index} is empty");
            assert!(
                prompt.tokens.iter().all(|&t| (t as usize) < v),
                "prompt {index} leaves the vocabulary of {v}"
            );
        }
        let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
        self.backend.reach(longest + sampling.max_new_tokens);
        let needed = generate::pages_needed(longest, 1, sampling.max_new_tokens);
        let speeds = self.backend.executors();
        let shares = share_prompts(prompts, &speeds, sampling.max_new_tokens);
        let executors = shares.len();
        let mut rollout = largest_share(&shares, sampling.max_new_tokens, self.chunk_tokens);
        let limit = match sampling.max_cached_tokens {
            Some(tokens) => {
                let limit = tokens / PAGE / executors.max(1);
                if limit < needed && executors > 0 {
                    return Err(Error::Request {
                        field: "max_cached_tokens",
                        found: tokens.to_string(),
                        wanted: format!(
                            "at least {}: {executors} batches side by side, a prompt of {longest} tokens and max_new_tokens {}",
                            needed * PAGE * executors,
                            sampling.max_new_tokens
                        ),
                    });
                }
                limit
            }
            None => (self.backend.cached_tokens(executors.max(1), &rollout) / PAGE).max(needed),
        };
        rollout.cached_tokens = rollout.cached_tokens.min(limit * PAGE);
        if !self.backend.fits(executors, &rollout) {
            // Gradient and activations of an update are not needed now: keys and values take their place.
            self.workers.iter_mut().for_each(|worker| *worker = Worker::default());
            self.backend.free_update();
        }
        let request = Request { sampling, uniform, stop };
        let (decoder, chunk_tokens, unmerged) = (&self.decoder, self.chunk_tokens, unmerged(&self.adapters));
        let cancelled = AtomicBool::new(false);
        let (sender, receiver) = mpsc::channel();
        let mut tasks: Vec<_> = self
            .workers
            .iter_mut()
            .zip(&shares)
            .map(|(worker, jobs)| (worker, jobs, Some(sender.clone()), Ok(())))
            .collect();
        drop(sender);
        let body = |lane: Lane<'_, D::Executor>, task: &mut (_, _, _, _)| {
            let (worker, jobs, sender, result): &mut (
                &mut Worker<D::Executor>,
                &Vec<Job<'_>>,
                Option<mpsc::Sender<Completion>>,
                Result<(), Error>,
            ) = task;
            // Dropped at the end, which ends the receiver.
            let sender = sender.take().expect("a task runs once");
            let mut emit = |completion| {
                if cancelled.load(Ordering::Relaxed) || sender.send(completion).is_err() {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            };
            let Worker { workspace, cache, lists, decoding, .. } = &mut **worker;
            let Lane { executor, weights, factors, .. } = lane;
            let parameters = Parameters { weights, factors: factors.zip(unmerged) };
            let mut generator =
                Generator { decoder, executor, parameters, workspace, cache, lists, decoding, chunk_tokens };
            *result = generate::generate(&mut generator, jobs, limit, &request, &mut emit);
            // After a failed GPU the others need not go on.
            if matches!(result, Err(Error::Device { .. })) {
                cancelled.store(true, Ordering::Relaxed);
            }
            executor.shrink_cache(cache, KEPT_BYTES);
        };
        self.backend.run(Work::Generate, &mut tasks, &body, &mut || {
            for completion in &receiver {
                if !cancelled.load(Ordering::Relaxed) && on_done(completion).is_break() {
                    cancelled.store(true, Ordering::Relaxed);
                }
            }
        });
        let results: Vec<_> = tasks.into_iter().map(|(_, _, _, result)| result).collect();
        results.into_iter().try_for_each(|result| result.map_err(|error| self.diagnose(error)))
    }
}

/// The sizes of the largest share: the maximum of each.
fn largest_share(shares: &[Vec<Job<'_>>], new_tokens: usize, chunk_tokens: usize) -> Rollout {
    let most = |size: &dyn Fn(&[Job<'_>]) -> usize| shares.iter().map(|jobs| size(jobs)).max().unwrap_or(0);
    let cached = |jobs: &[Job<'_>]| generate::slots_needed(jobs, new_tokens);
    Rollout {
        prompts: most(&|jobs| jobs.len()),
        prompt_tokens: most(&|jobs| jobs.iter().map(|job| job.tokens.len()).max().unwrap_or(0)),
        samples: most(&|jobs| jobs.iter().map(|job| job.samples.len()).sum()),
        new_tokens,
        chunk_tokens,
        cached_tokens: most(&cached),
    }
}

/// Distributes prompts over executors by cost; with fewer prompts than executors, the samples of a prompt are distributed. Executors without work are
/// left out.
fn share_prompts<'a>(prompts: &[Prompt<'a>], speeds: &[usize], max_new_tokens: usize) -> Vec<Vec<Job<'a>>> {
    let parts = speeds.len().div_ceil(prompts.len().max(1));
    let mut jobs = Vec::new();
    for (index, prompt) in prompts.iter().enumerate() {
        let Range { start, end } = prompt.samples.clone();
        let count = end.saturating_sub(start);
        for part in 0..parts {
            let samples = start + count * part / parts..start + count * (part + 1) / parts;
            if !samples.is_empty() {
                jobs.push(Job { prompt: index, tokens: prompt.tokens, samples });
            }
        }
    }
    let cost = |job: &Job<'_>| job.tokens.len() + job.samples.len() * max_new_tokens;
    jobs.sort_by_key(|job| std::cmp::Reverse(cost(job)));
    let mut shares: Vec<Vec<Job<'a>>> = vec![Vec::new(); speeds.len()];
    let mut loads = vec![0; speeds.len()];
    for job in jobs {
        let time = |&executor: &usize| loads[executor] * 1000 / speeds[executor];
        let least = (0..speeds.len()).min_by_key(time).expect("there is an executor");
        loads[least] += cost(&job);
        shares[least].push(job);
    }
    shares.retain(|share| !share.is_empty());
    shares
}
