//! Work on the executors of a device: passes over a batch, and generation.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::generate::Generation;
use super::pass::{Output, Request, Score};
use super::worker::Worker;
use crate::backend::{Backend, Executors, Lane, Work};
use crate::cache::{KEPT_BYTES, PAGE, pages_of_keys};
use crate::error::Error;
use crate::executor::AttentionOps;
use crate::executor::checks::Checked;
use crate::generate::{Completion, DoneFn, Generator, Job, generate, pages_needed, slots_needed};
use crate::segments::Family;

/// A device with the buffers of its executors.
pub(super) struct OnBackend<D: Executors> {
    backend: D,
    workers: Vec<Worker<D::Executor>>,
}

impl<D: Executors> OnBackend<D> {
    pub(super) fn new(backend: D) -> OnBackend<D> {
        let workers = backend.executors().iter().map(|_| Worker::default()).collect();
        OnBackend { backend, workers }
    }
}

/// Operations of an engine that depend on the type of its device. [`OnBackend`] implements them for every backend; the trait
/// hides the backend's type, so that [`Engine`](super::Engine) has none.
pub(super) trait OnDevice: Send + Sync {
    fn backend(&self) -> &dyn Backend;

    fn backend_mut(&mut self) -> &mut dyn Backend;

    /// Drops cached prompts, because the weights change or the memory is needed.
    fn forget_prompts(&mut self);

    /// Runs a pass over each share of trees, one share per executor.
    fn pass(&mut self, request: &Request<'_>, shares: &[Vec<&Family>]) -> Result<Vec<Score>, Error>;

    /// Generates completions for each share of jobs, one share per executor.
    fn generate(
        &mut self,
        generation: Generation<'_>,
        shares: &[Vec<Job<'_>>],
        on_done: &mut DoneFn<'_>,
    ) -> Result<(), Error>;
}

impl<D: Executors> OnDevice for OnBackend<D> {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn backend_mut(&mut self) -> &mut dyn Backend {
        &mut self.backend
    }

    fn forget_prompts(&mut self) {
        for worker in &mut self.workers {
            if worker.tree.keep {
                (worker.tree, worker.cache) = Default::default();
            }
        }
    }

    fn pass(&mut self, request: &Request<'_>, shares: &[Vec<&Family>]) -> Result<Vec<Score>, Error> {
        let work = if matches!(request.output, Output::Gradient(_)) { Work::Accumulate } else { Work::Score };
        if work == Work::Accumulate && !self.backend.has_gradient() {
            // The gradient may need the memory of cached keys and values.
            self.forget_prompts();
            self.workers.iter_mut().for_each(|worker| worker.cache = Default::default());
        }
        if self.backend.passes_need_cache() {
            self.forget_prompts();
        }
        let mut tasks: Vec<_> = self
            .workers
            .iter_mut()
            .zip(shares)
            .filter(|(_, share)| !share.is_empty())
            .map(|(worker, share)| (worker, share, Ok(Vec::new())))
            .collect();
        let body = |lane: Lane<'_, D::Executor>, task: &mut (_, _, _)| {
            let (worker, share, result): &mut (&mut Worker<D::Executor>, &Vec<&Family>, _) = task;
            *result = request.run(lane, worker, share);
        };
        self.backend.run(work, &mut tasks, &body, &mut || {});
        self.backend.check()?;
        let scores: Result<Vec<_>, Error> = tasks.into_iter().map(|(_, _, result)| result).collect();
        Ok(scores?.concat())
    }

    fn generate(
        &mut self,
        generation: Generation<'_>,
        shares: &[Vec<Job<'_>>],
        on_done: &mut DoneFn<'_>,
    ) -> Result<(), Error> {
        let Generation { decoder, chunk_tokens, unmerged, request, longest, reach, mut rollout } = generation;
        let (sampling, executors, state) = (request.sampling, shares.len(), self.backend.state_pages());
        let needed = match request.feed {
            Some(_) => pages_needed(state, longest, 1, 1) + 1,
            None => pages_needed(state, longest, 1, sampling.max_new_tokens),
        };
        let keep = request.feed.is_some_and(|fed| fed.keep);
        if !keep || self.workers[..executors].iter().any(|worker| worker.tree.limit < needed) {
            self.forget_prompts();
        }
        self.workers.iter_mut().for_each(|worker| worker.tree.keep = keep);
        // A retained cache keeps its limit, because another limit would require another cache.
        let kept_limit = self.workers.first().map_or(0, |worker| worker.tree.limit);
        let limit = match sampling.max_cached_tokens {
            _ if kept_limit > 0 => kept_limit,
            Some(tokens) => {
                let limit = tokens / PAGE / executors.max(1);
                if limit < needed && executors > 0 {
                    return Err(Error::request(
                        "max_cached_tokens",
                        tokens.to_string(),
                        format!(
                            "at least {}; {executors} batches run at the same time, the longest prompt has {longest} tokens, and max_new_tokens is {}",
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
            // Half of the free memory: other engines may use the device, and an update follows.
            Some(_) if kept_limit == 0 && sampling.max_cached_tokens.is_none() => {
                (limit / 2).min(rollout.cached_tokens / PAGE).max(needed)
            }
            _ => limit,
        };
        rollout.cached_tokens = rollout.cached_tokens.min(limit * PAGE);
        if kept_limit == 0 && !self.backend.fits(&rollout) {
            // Free the gradient and activations of updates, which aren't needed now.
            self.workers.iter_mut().for_each(|worker| *worker = Worker::default());
            self.workers.iter_mut().for_each(|worker| worker.tree.keep = keep);
            self.backend.free_update();
        }
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
            // Each task drops its sender at the end. The receiver ends when all senders are dropped.
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
                // With a feed, the number of slots is the same for all requests, so that the cache can be retained.
                Some(_) => limit * PAGE,
                None => slots_needed(jobs).min(PAGE * pages_of_keys(limit, state, reach)),
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
            *result = generate(&mut generator, jobs, limit, most_slots, request, &mut emit);
            if !tree.keep {
                executor.shrink_cache(cache, KEPT_BYTES);
            } else if tree.is_empty() {
                // The generation was cancelled or failed.
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
        tasks.into_iter().try_for_each(|(_, _, _, result)| result)
    }
}
