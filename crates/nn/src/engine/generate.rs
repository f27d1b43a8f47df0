//! Generation requests: limits, and distribution over executors.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use super::adapters::unmerged;
use super::{EngineOn, Worker};
use crate::backend::{Backend, Lane, Work, deal};
use crate::cache::{KEPT_BYTES, PAGE, pages_of_keys};
use crate::error::Error;
use crate::executor::AttentionOps;
use crate::executor::checks::Checked;
use crate::generate::{self, Completion, Fed, Feed, Generator, Job, Prompt, Request, StopFn, UniformFn};
use crate::sampling::{Rollout, Sampling};

/// Samples for whose buffers a generation with a feed has room at least; more wait, or take what memory is left.
const FED_SAMPLES: usize = 256;

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
        let shares = share_prompts(prompts, &self.backend.executors(), sampling.max_new_tokens);
        let ended = |_: usize, tokens: &[u32]| stop.is_some_and(|stop| stop(tokens));
        let request = Request { sampling, uniform, ended: &ended, feed: None };
        let rollout = largest_share(&shares, sampling.max_new_tokens, self.chunk_tokens);
        self.forget_prompts();
        self.run_generation(&shares, (longest, rollout), &request, on_done)
    }

    pub(crate) fn generate_fed(
        &mut self,
        feed: &dyn Feed,
        longest: usize,
        sampling: &Sampling,
        keep: bool,
        on_done: &mut dyn FnMut(Completion) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        sampling.check()?;
        let (executors, state) = (self.backend.fed_executors(), self.backend.state_pages());
        let working = AtomicUsize::new(executors);
        let uniform = |prompt: usize, sample: usize, position: usize| feed.uniform(prompt, sample, position);
        let ended = |prompt: usize, tokens: &[u32]| feed.ended(prompt, tokens);
        let fed = Fed { feed, working: &working, longest, vocabulary: self.decoder.config.vocab_size };
        let request = Request { sampling, uniform: &uniform, ended: &ended, feed: Some(fed) };
        let rollout = Rollout {
            prompts: FED_SAMPLES,
            prompt_tokens: longest,
            samples: FED_SAMPLES,
            new_tokens: longest,
            chunk_tokens: self.chunk_tokens,
            cached_tokens: FED_SAMPLES * generate::pages_needed(state, longest, 1, 1) * PAGE,
        };
        let needed = generate::pages_needed(state, longest, 1, 1) + 1;
        if !keep || self.workers[..executors].iter().any(|worker| worker.tree.limit < needed) {
            self.forget_prompts();
        }
        self.workers.iter_mut().for_each(|worker| worker.tree.keep = keep);
        self.run_generation(&vec![Vec::new(); executors], (longest, rollout), &request, on_done)
    }

    /// Forgets the prompts whose keys and values are in the cache: the weights change, or the memory is needed.
    pub(crate) fn forget_prompts(&mut self) {
        for worker in &mut self.workers {
            if worker.tree.keep {
                (worker.tree, worker.cache) = Default::default();
            }
        }
    }

    /// Runs shares of jobs on as many executors. `longest`: tokens of the longest prompt, without a feed; with one, of a prompt and its completion.
    fn run_generation(
        &mut self,
        shares: &[Vec<Job<'_>>],
        (longest, mut rollout): (usize, Rollout),
        request: &Request<'_>,
        on_done: &mut dyn FnMut(Completion) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let (sampling, executors, state) = (request.sampling, shares.len(), self.backend.state_pages());
        let (reach, needed) = match request.feed {
            Some(_) => (longest, generate::pages_needed(state, longest, 1, 1) + 1),
            None => (
                longest + sampling.max_new_tokens,
                generate::pages_needed(state, longest, 1, sampling.max_new_tokens),
            ),
        };
        self.reach(reach)?;
        // Another limit would be another cache, without the prompts in this one.
        let kept = self.workers.first().map_or(0, |worker| worker.tree.limit);
        let limit = match sampling.max_cached_tokens {
            _ if kept > 0 => kept,
            Some(tokens) => {
                let limit = tokens / PAGE / executors.max(1);
                if limit < needed && executors > 0 {
                    return Err(Error::request(
                        "max_cached_tokens",
                        tokens.to_string(),
                        format!(
                            "at least {}: {executors} batches side by side, a prompt of {longest} tokens and max_new_tokens {}",
                            needed * PAGE * executors,
                            sampling.max_new_tokens
                        ),
                    ));
                }
                limit
            }
            None => (self.backend.cached_tokens(executors.max(1), &rollout) / PAGE).max(needed),
        };
        let limit = match request.feed {
            // Half of what is left: other engines may be on the device, and an update follows.
            Some(_) if kept == 0 && sampling.max_cached_tokens.is_none() => {
                (limit / 2).min(rollout.cached_tokens / PAGE).max(needed)
            }
            _ => limit,
        };
        rollout.cached_tokens = rollout.cached_tokens.min(limit * PAGE);
        if kept == 0 && !self.backend.fits(&rollout) {
            // Gradient and activations of an update are not needed now: keys and values take their place.
            let keep = self.workers.first().is_some_and(|worker| worker.tree.keep);
            self.workers.iter_mut().for_each(|worker| *worker = Worker::default());
            self.workers.iter_mut().for_each(|worker| worker.tree.keep = keep);
            self.backend.free_update();
        }
        let (decoder, chunk_tokens, unmerged) = (&self.decoder, self.chunk_tokens, unmerged(&self.adapters));
        let cancelled = AtomicBool::new(false);
        let (sender, receiver) = mpsc::channel();
        let mut tasks: Vec<_> = self
            .workers
            .iter_mut()
            .zip(shares)
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
            let Worker { workspace, cache, lists, decoding, tree, .. } = &mut **worker;
            let Lane { executor, weights, factors, .. } = lane;
            let executor = &mut Checked::new(executor, decoder.checked_layout());
            let parameters = decoder.parameters(weights, factors.zip(unmerged));
            let most_slots = match request.feed {
                // The same for all requests, whose keys and values stay.
                Some(_) => limit * PAGE,
                None => generate::slots_needed(jobs).min(PAGE * pages_of_keys(limit, state, reach)),
            };
            tree.state_pages = state;
            if tree.keep {
                tree.limit = limit;
            }
            let mut generator = Generator {
                decoder,
                executor,
                parameters,
                workspace,
                cache,
                lists,
                decoding,
                tree,
                chunk_tokens,
            };
            *result = generate::generate(&mut generator, jobs, (limit, most_slots), request, &mut emit);
            if !tree.keep {
                executor.shrink_cache(cache, KEPT_BYTES);
            } else if tree.is_empty() {
                // Cancelled or failed.
                (tree.keep, tree.limit) = (false, 0);
                executor.shrink_cache(cache, KEPT_BYTES);
            }
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
    let cached = |jobs: &[Job<'_>]| generate::slots_needed(jobs);
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
                let tokens = Cow::Borrowed(prompt.tokens);
                jobs.push(Job { prompt: index, tokens, samples, most: max_new_tokens });
            }
        }
    }
    let cost = |job: &Job<'_>| job.tokens.len() + job.samples.len() * max_new_tokens;
    let mut shares = deal(jobs, speeds, |job| cost(job) as u64);
    shares.retain(|share| !share.is_empty());
    shares
}
