//! Work on the executors of a device: passes over a batch, and generation.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::generate::Generation;
use super::pass::{BatchPass, ExecutorBuffers, Output, Score};
use crate::backend::{Backend, ExecutorAccess, ExecutorBackend, Work};
use crate::cache::{KEPT_BYTES, PAGE, pages_of_keys};
use crate::error::Error;
use crate::executor::checks::Checked;
use crate::scheduler::{self, Completion, DoneFn, Job, StepRunner, pages_needed, slots_needed};
use crate::segments::PromptTree;

/// A device with the buffers of its executors.
pub(super) struct BackendRuntime<D: ExecutorBackend> {
    backend: D,
    buffers_of_executors: Vec<ExecutorBuffers<D::Executor>>,
}

impl<D: ExecutorBackend> BackendRuntime<D> {
    pub(super) fn new(backend: D) -> BackendRuntime<D> {
        let buffers_of_executors = backend.executors().iter().map(|_| ExecutorBuffers::default()).collect();
        BackendRuntime { backend, buffers_of_executors }
    }
}

/// Operations of an engine that depend on the type of its device. [`BackendRuntime`] implements them for every backend; the trait
/// hides the backend's type, so that [`Engine`](super::Engine) has none.
pub(super) trait Runtime: Send + Sync {
    fn backend(&self) -> &dyn Backend;

    fn backend_mut(&mut self) -> &mut dyn Backend;

    /// Drops cached prompts, because the weights change or the memory is needed.
    fn forget_prompts(&mut self);

    /// Runs a pass over each share of trees, one share per executor.
    fn pass(&mut self, pass: &BatchPass<'_>, shares: &[Vec<&PromptTree>]) -> Result<Vec<Score>, Error>;

    /// Generates completions for each share of jobs, one share per executor.
    fn generate(
        &mut self,
        generation: Generation<'_>,
        shares: &[Vec<Job<'_>>],
        on_done: &mut DoneFn<'_>,
    ) -> Result<(), Error>;
}

impl<D: ExecutorBackend> Runtime for BackendRuntime<D> {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn backend_mut(&mut self) -> &mut dyn Backend {
        &mut self.backend
    }

    fn forget_prompts(&mut self) {
        for buffers in &mut self.buffers_of_executors {
            if buffers.tree.keep {
                (buffers.tree, buffers.cache) = Default::default();
            }
        }
    }

    fn pass(&mut self, pass: &BatchPass<'_>, shares: &[Vec<&PromptTree>]) -> Result<Vec<Score>, Error> {
        let work = if matches!(pass.output, Output::Gradient(_)) { Work::Accumulate } else { Work::Score };
        if work == Work::Accumulate && !self.backend.has_gradient() {
            // The gradient may need the memory of cached keys and values.
            self.forget_prompts();
            self.buffers_of_executors.iter_mut().for_each(|buffers| buffers.cache = Default::default());
        }
        if self.backend.passes_need_cache() {
            self.forget_prompts();
        }
        let mut tasks: Vec<_> = self
            .buffers_of_executors
            .iter_mut()
            .zip(shares)
            .filter(|(_, share)| !share.is_empty())
            .map(|(buffers, share)| (buffers, share, Ok(Vec::new())))
            .collect();
        let body = |access: ExecutorAccess<'_, D::Executor>, task: &mut (_, _, _)| {
            let (buffers, share, result): &mut (&mut ExecutorBuffers<D::Executor>, &Vec<&PromptTree>, _) =
                task;
            *result = pass.run(access, buffers, share);
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
        let Generation { decoder, chunk_tokens, unmerged, settings, longest, reach, mut rollout } =
            generation;
        let (sampling, executors, state) = (settings.sampling, shares.len(), self.backend.state_pages());
        let needed = match settings.queue {
            Some(_) => pages_needed(state, longest, 1, 1) + 1,
            None => pages_needed(state, longest, 1, sampling.max_new_tokens),
        };
        let keep = settings.queue.is_some_and(|queue| queue.keep);
        if !keep || self.buffers_of_executors[..executors].iter().any(|buffers| buffers.tree.limit < needed) {
            self.forget_prompts();
        }
        self.buffers_of_executors.iter_mut().for_each(|buffers| buffers.tree.keep = keep);
        // A retained cache keeps its limit, because another limit would require another cache.
        let kept_limit = self.buffers_of_executors.first().map_or(0, |buffers| buffers.tree.limit);
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
        let limit = match settings.queue {
            // Half of the free memory: other engines may use the device, and an update follows.
            Some(_) if kept_limit == 0 && sampling.max_cached_tokens.is_none() => {
                (limit / 2).min(rollout.cached_tokens / PAGE).max(needed)
            }
            _ => limit,
        };
        rollout.cached_tokens = rollout.cached_tokens.min(limit * PAGE);
        if kept_limit == 0 && !self.backend.fits(&rollout) {
            // Free the gradient and activations of updates, which aren't needed now.
            self.buffers_of_executors.iter_mut().for_each(|buffers| *buffers = ExecutorBuffers::default());
            self.buffers_of_executors.iter_mut().for_each(|buffers| buffers.tree.keep = keep);
            self.backend.free_update();
        }
        let cancelled = AtomicBool::new(false);
        let (sender, receiver) = mpsc::channel();
        let mut tasks: Vec<_> = self
            .buffers_of_executors
            .iter_mut()
            .zip(shares)
            .map(|(buffers, jobs)| (buffers, jobs, Some(sender.clone()), Ok(())))
            .collect();
        drop(sender);
        let body = |access: ExecutorAccess<'_, D::Executor>, task: &mut (_, _, _, _)| {
            let (buffers, jobs, sender, result): &mut (
                &mut ExecutorBuffers<D::Executor>,
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
            let ExecutorBuffers { workspace, cache, lists, decoding, tree, .. } = &mut **buffers;
            let ExecutorAccess { executor, weights, factors, .. } = access;
            let executor = &mut Checked::new(executor, decoder.checked_layout());
            let parameters = decoder.parameters(weights, factors.zip(unmerged));
            let most_slots = match settings.queue {
                // With a queue, the number of slots is the same for all requests, so that the cache can be retained.
                Some(_) => limit * PAGE,
                None => slots_needed(jobs).min(PAGE * pages_of_keys(limit, state, reach)),
            };
            tree.state_pages = state;
            if tree.keep {
                tree.limit = limit;
            }
            let mut runner = StepRunner {
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
            *result = scheduler::run(&mut runner, jobs, limit, most_slots, settings, &mut emit);
            if !tree.keep {
                cache.shrink::<D::Executor>(KEPT_BYTES);
            } else if tree.is_empty() {
                // The generation was cancelled or failed.
                (tree.keep, tree.limit) = (false, 0);
                cache.shrink::<D::Executor>(KEPT_BYTES);
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
