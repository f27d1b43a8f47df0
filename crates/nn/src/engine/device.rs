//! What runs on the executors of a device: passes of a batch, and generation.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::generate::Generation;
use super::pass::{Request, Score, Wanted};
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

/// The part of an engine that knows the type of its device.
pub(super) trait OnDevice: Send + Sync {
    fn backend(&self) -> &dyn Backend;

    fn backend_mut(&mut self) -> &mut dyn Backend;

    /// Forgets the prompts whose keys and values are in the cache: the weights change, or the memory is needed.
    fn forget_prompts(&mut self);

    /// Runs the families of each share on an executor.
    fn pass(&mut self, request: &Request<'_>, shares: &[Vec<&Family>]) -> Result<Vec<Score>, Error>;

    /// Runs each share of jobs on an executor.
    fn generate(
        &mut self,
        of: Generation<'_>,
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
        let work = if matches!(request.wanted, Wanted::Gradient(_)) { Work::Accumulate } else { Work::Score };
        if work == Work::Accumulate && !self.backend.has_gradient() {
            // The gradient may need the memory of keys and values that were kept for the next rollout.
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
        of: Generation<'_>,
        shares: &[Vec<Job<'_>>],
        on_done: &mut DoneFn<'_>,
    ) -> Result<(), Error> {
        let Generation { decoder, chunk_tokens, unmerged, request, longest, reach, mut rollout } = of;
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
            *result = generate(&mut generator, jobs, (limit, most_slots), request, &mut emit);
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
        tasks.into_iter().try_for_each(|(_, _, _, result)| result)
    }
}
