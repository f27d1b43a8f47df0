//! Requests to generate: bounds, dealing to threads, copies of the weights.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use super::{Engine, Worker};
use crate::cache::PAGE;
use crate::cpu::copies::Copies;
use crate::error::Error;
use crate::generate::{self, Completion, Job, Prompt, Request, StopFn, UniformFn};
use crate::sampler::Sampling;

/// Memory for keys and values where the request names no bound.
pub(crate) const CACHE_BYTES: usize = 512 << 20;
/// Memory for keys and values that a thread keeps from one request to the next, so that it needn't be faulted in again.
const KEPT_CACHE_BYTES: usize = 64 << 20;

impl Engine {
    /// Samples completions of `prompts`.
    ///
    /// Every draw is `uniform(prompt, sample, position)`, so a sample does not depend on what else is sampled. `stop`, where given, sees
    /// a completion's tokens after each draw and ends it by `true`. `on_done` receives completions as they finish, in an order that may differ
    /// between runs, and ends everything by breaking.
    ///
    /// # Errors
    /// If a setting is out of range, the bound on cached tokens is too small for one sequence, or logits are not finite.
    ///
    /// # Panics
    /// If a prompt is empty or has a token outside the vocabulary.
    pub fn generate(
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
        let threads = self.workers.len();
        let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
        self.reach(Some(longest + sampling.max_new_tokens));
        let token_bytes = 4 * self.decoder.key_width() * self.decoder.config.num_hidden_layers;
        let needed = generate::pages_needed(longest, sampling.max_new_tokens);
        let limit = match sampling.max_cached_tokens {
            Some(tokens) => {
                let limit = tokens / PAGE / threads;
                if limit < needed {
                    return Err(Error::Request {
                        field: "max_cached_tokens",
                        found: tokens.to_string(),
                        wanted: format!(
                            "at least {}: {threads} threads, a prompt of {longest} tokens and max_new_tokens {}",
                            needed * PAGE * threads,
                            sampling.max_new_tokens
                        ),
                    });
                }
                limit
            }
            None => (CACHE_BYTES / token_bytes / PAGE / threads).max(needed),
        };
        let shares = share_prompts(prompts, threads, sampling.max_new_tokens);
        let request = Request { sampling, uniform, stop };
        let copies = self.decode_copies();
        for worker in &mut self.workers {
            worker.cpu.set_copies(copies.clone());
        }
        let (decoder, weights, chunk_tokens) = (&self.decoder, &self.weights, self.chunk_tokens);
        let cancelled = AtomicBool::new(false);
        let mut results: Vec<Result<(), Error>> = Vec::new();
        results.resize_with(threads, || Ok(()));
        let (sender, receiver) = mpsc::channel();
        self.pool.in_place_scope(|scope| {
            for ((worker, jobs), result) in self.workers.iter_mut().zip(&shares).zip(&mut results) {
                if jobs.is_empty() {
                    continue;
                }
                let (sender, request, cancelled) = (sender.clone(), &request, &cancelled);
                scope.spawn(move |_| {
                    let mut emit = |completion| {
                        if cancelled.load(Ordering::Relaxed) || sender.send(completion).is_err() {
                            return ControlFlow::Break(());
                        }
                        ControlFlow::Continue(())
                    };
                    let Worker { cpu, workspace, cache, .. } = worker;
                    *result = generate::generate(
                        decoder,
                        cpu,
                        weights,
                        workspace,
                        cache,
                        chunk_tokens,
                        jobs,
                        limit,
                        request,
                        &mut emit,
                    );
                    cache.shrink(KEPT_CACHE_BYTES);
                });
            }
            drop(sender);
            for completion in receiver {
                if !cancelled.load(Ordering::Relaxed) && on_done(completion).is_break() {
                    cancelled.store(true, Ordering::Relaxed);
                }
            }
        });
        for worker in &mut self.workers {
            worker.cpu.set_copies(None);
        }
        self.copies.made = copies.and_then(Arc::into_inner);
        results.into_iter().collect()
    }

    /// The present weights' copies, taken out of their place.
    fn decode_copies(&mut self) -> Option<Arc<Copies>> {
        if self.copies.unwanted {
            return None;
        }
        let made = self.copies.made.take();
        if self.copies.fresh && made.is_some() {
            return made.map(Arc::new);
        }
        self.copies.fresh = true;
        let (decoder, weights) = (&self.decoder, &self.weights);
        self.pool.install(|| Copies::of(&decoder.layout, decoder.head(), weights, made)).map(Arc::new)
    }
}

/// Deals prompts to threads by cost; with fewer prompts than threads, a prompt's samples are dealt.
fn share_prompts<'a>(prompts: &[Prompt<'a>], threads: usize, max_new_tokens: usize) -> Vec<Vec<Job<'a>>> {
    let parts = threads.div_ceil(prompts.len().max(1));
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
    let mut shares: Vec<Vec<Job<'a>>> = vec![Vec::new(); threads];
    let mut loads = vec![0; threads];
    for job in jobs {
        let least = (0..threads).min_by_key(|&thread| loads[thread]).expect("there is a thread");
        loads[least] += cost(&job);
        shares[least].push(job);
    }
    shares
}
