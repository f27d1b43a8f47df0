//! The engine: weights, gradient and optimizer of one decoder, and the threads that run it.
//!
//! A batch's families (trees of segments) are dealt to the threads by cost; each thread takes its own through the whole network, some at a time. Within
//! one thread count everything is repeatable bit for bit; between thread counts results differ by rounding only.

use std::borrow::Cow;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use rayon::prelude::*;

use crate::adamw::{self, AdamW, UpdateReport};
use crate::cache::PAGE;
use crate::config::Config;
use crate::cpu::buffer::Buffer;
use crate::cpu::copies::Copies;
use crate::cpu::rope::Rope;
use crate::cpu::{Cache, Cpu, simd};
use crate::decoder::{Decoder, Keep, Workspace};
use crate::error::Error;
use crate::generate::{self, Completion, Job, Prompt, Request, StopFn, UniformFn};
use crate::layout::{Kind, TensorLayout};
use crate::ops::Backend;
use crate::sampler::Sampling;
use crate::segments::{Batch, Chunk, Family};
use crate::weights::Checkpoint;

/// What executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// This many threads.
    Cpu {
        /// At least 1.
        threads: usize,
    },
}

/// The caller's loss: prediction indices, their log-probabilities and entropies; fills the derivatives, which come zeroed. It is called for
/// disjoint sets of predictions, a family's never cut apart, possibly from several threads at a time.
pub type LossFn<'a> = dyn Fn(&[usize], &[f32], &[f32], &mut [f32], &mut [f32]) + Sync + 'a;

/// Per prediction, of softmax(logits / temperature).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scores {
    /// Log-probability of the predicted token.
    pub logp: Vec<f32>,
    /// Entropy of the distribution it was predicted from, in nats.
    pub entropy: Vec<f32>,
}

/// AdamW's state, enough to resume exactly.
#[derive(Debug, Clone, PartialEq)]
pub struct OptimizerState<'a> {
    /// Updates applied.
    pub step: u64,
    /// (name, shape, values): each parameter's name with `.exp_avg` and `.exp_avg_sq`. Empty before the first update.
    pub tensors: Vec<(String, Vec<usize>, Cow<'a, [f32]>)>,
}

/// A named tensor: (Hugging Face name, shape, values).
pub type NamedTensor<'a> = (&'a str, &'a [usize], Cow<'a, [f32]>);

/// Writes a tensor's initial values.
type Fill<'a> = dyn FnMut(&TensorLayout, &mut [f32]) -> Result<(), Error> + 'a;

/// (prediction, log-probability, entropy).
type Score = (usize, f32, f32);

/// Elements per block of the loops over all parameters.
const BLOCK: usize = 1 << 16;
/// Memory for keys and values where the request names no bound.
const CACHE_BYTES: usize = 512 << 20;
/// Memory for keys and values that a thread keeps from one request to the next, so that it needn't be faulted in again.
const KEPT_CACHE_BYTES: usize = 64 << 20;

/// Memory for copies of the weights that is kept through an update; larger ones are given back before it.
const KEPT_COPIES_BYTES: usize = 64 << 20;

/// The weights' copies for generation.
#[derive(Default)]
struct DecodeCopies {
    made: Option<Copies>,
    /// Whether they are the present weights'.
    fresh: bool,
    unwanted: bool,
}

/// One thread's executor and memory.
struct Worker {
    cpu: Cpu,
    workspace: Workspace<Cpu>,
    chunk: Chunk,
    /// Memory only: what it holds means nothing outside of a request.
    cache: Cache,
    /// Empty until it is needed.
    gradient: Buffer,
}

/// A decoder with its weights, gradient and optimizer, on a device.
pub struct Engine {
    decoder: Decoder,
    pool: rayon::ThreadPool,
    workers: Vec<Worker>,
    rope: Arc<Rope>,
    weights: Buffer,
    /// AdamW's first and second moment; empty before the first update.
    moments: [Buffer; 2],
    step: u64,
    chunk_tokens: usize,
    checkpointing: bool,
    copies: DecodeCopies,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let threads = self.workers.len();
        f.debug_struct("Engine")
            .field("config", &self.decoder.config)
            .field("threads", &threads)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// A decoder with fresh weights: matrices normal with standard deviation `std`, biases 0, norms 1. `normal` gives standard normal numbers.
    ///
    /// # Errors
    /// If the threads can't be started.
    ///
    /// # Panics
    /// If the device has no threads, or the configuration's sizes are impossible.
    pub fn init(
        config: &Config,
        std: f32,
        normal: &mut dyn FnMut() -> f64,
        device: &Device,
    ) -> Result<Engine, Error> {
        Engine::from_tensors(config, device, &mut |tensor, out| {
            match tensor.kind {
                Kind::Matrix => out.fill_with(|| (normal() * f64::from(std)) as f32),
                Kind::Bias => out.fill(0.0),
                Kind::Norm => out.fill(1.0),
            }
            Ok(())
        })
    }

    /// The decoder of a checkpoint, its weights in f32.
    ///
    /// # Errors
    /// If a tensor is missing or of another shape, or the threads can't be started.
    ///
    /// # Panics
    /// If the device has no threads.
    pub fn open(checkpoint: &Checkpoint, device: &Device) -> Result<Engine, Error> {
        Engine::from_tensors(checkpoint.config(), device, &mut |tensor, out| {
            checkpoint.read_into(&tensor.name, out)
        })
    }

    /// A decoder whose tensors `fill` writes.
    fn from_tensors(config: &Config, device: &Device, fill: &mut Fill<'_>) -> Result<Engine, Error> {
        let Device::Cpu { threads } = *device;
        assert!(threads > 0, "a device of 0 threads");
        let (h, k) = (config.num_attention_heads, config.num_key_value_heads);
        assert!(k > 0 && h % k == 0, "{k} key/value heads for {h} heads");
        assert!(config.head_dim > 0 && config.head_dim.is_multiple_of(2), "head_dim {}", config.head_dim);
        assert!(
            config.num_hidden_layers > 0 && config.vocab_size > 0 && config.hidden_size > 0,
            "{config:?}"
        );
        let decoder = Decoder::new(config);
        let mut weights = Buffer::zeros(decoder.layout.len);
        for tensor in &decoder.layout.tensors {
            fill(tensor, &mut weights[tensor.span.offset..tensor.span.offset + tensor.span.len])?;
        }
        let pool =
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(|error| Error::Request {
                field: "threads",
                found: format!("{threads}: {error}"),
                wanted: "a number of threads that the system can start".into(),
            })?;
        let rope = Arc::new(Rope::new(config, 512));
        let workers = (0..threads)
            .map(|_| Worker {
                cpu: Cpu::new(Arc::clone(&rope)),
                workspace: Workspace::default(),
                chunk: Chunk::default(),
                cache: Cache::new(config.num_hidden_layers, decoder.key_width()),
                gradient: Buffer::default(),
            })
            .collect();
        Ok(Engine {
            decoder,
            pool,
            workers,
            rope,
            weights,
            moments: Default::default(),
            step: 0,
            chunk_tokens: 1024,
            checkpointing: false,
            copies: DecodeCopies::default(),
        })
    }

    /// The decoder's configuration.
    pub fn config(&self) -> &Config {
        &self.decoder.config
    }

    /// Number of parameters; a tied head counts once.
    pub fn parameters(&self) -> usize {
        self.decoder.layout.tensors.iter().map(|tensor| tensor.span.len).sum()
    }

    /// About how many tokens a thread takes through the network at a time (a family is never cut); the default is 1024. More is a little
    /// faster, less needs less memory; results differ by rounding.
    pub fn set_chunk_tokens(&mut self, tokens: usize) {
        self.chunk_tokens = tokens.max(1);
    }

    /// Whether `accumulate` keeps only each layer's input and computes the layer again in the backward pass: a third more work, a fraction of
    /// the memory, the same result. Off at first.
    pub fn set_checkpointing(&mut self, checkpointing: bool) {
        self.checkpointing = checkpointing;
    }

    /// Whether `generate` copies the weights into the order in which decoding reads them. With AVX-512 that makes decoding up to twice as fast and
    /// needs the memory of the matrices once more; elsewhere it does nothing. The copies are made when `generate` finds the weights changed, and given back
    /// when an update is being prepared, unless they are small. Samples are the same with and without, but for rounding. On at first.
    pub fn set_decode_copies(&mut self, wanted: bool) {
        self.copies = DecodeCopies { unwanted: !wanted, ..DecodeCopies::default() };
    }

    /// Log-probabilities and entropies of the batch's predictions.
    ///
    /// # Errors
    /// If they aren't finite.
    ///
    /// # Panics
    /// If the batch is malformed (see [`Batch`]), or the temperature is not positive.
    pub fn score(&mut self, batch: &Batch, temperature: f32) -> Result<Scores, Error> {
        self.pass(batch, temperature, None)
    }

    /// Scores the batch, asks `loss` for the derivatives and ADDS what they make to the gradient. Families whose derivatives are all zero cost no
    /// backward pass.
    ///
    /// # Errors
    /// If the scores aren't finite; the gradient is then incomplete and must be zeroed.
    ///
    /// # Panics
    /// As [`Engine::score`].
    pub fn accumulate(
        &mut self,
        batch: &Batch,
        temperature: f32,
        loss: &LossFn<'_>,
    ) -> Result<Scores, Error> {
        self.pass(batch, temperature, Some(loss))
    }

    fn pass(&mut self, batch: &Batch, temperature: f32, loss: Option<&LossFn<'_>>) -> Result<Scores, Error> {
        assert!(temperature > 0.0 && temperature.is_finite(), "temperature {temperature}");
        batch.check(self.decoder.config.vocab_size);
        let families = batch.families();
        self.reach(families.iter().flat_map(|family| &family.segments).map(|s| s.position + s.len).max());
        let shares = self.deal(&families);
        let keep = match (loss, self.checkpointing) {
            (None, _) => Keep::Nothing,
            (Some(_), true) => Keep::Inputs,
            (Some(_), false) => Keep::Everything,
        };
        if loss.is_some() {
            if self.copies.made.as_ref().is_some_and(|made| made.bytes() > KEPT_COPIES_BYTES) {
                self.copies.made = None;
            }
            for worker in &mut self.workers {
                worker.gradient.reserve(self.decoder.layout.len);
            }
        }
        let (decoder, weights, chunk_tokens) = (&self.decoder, &self.weights, self.chunk_tokens);
        let mut results: Vec<Result<Vec<Score>, Error>> = Vec::new();
        results.resize_with(self.workers.len(), || Ok(Vec::new()));
        self.pool.in_place_scope(|scope| {
            for ((worker, share), result) in self.workers.iter_mut().zip(&shares).zip(&mut results) {
                if share.is_empty() {
                    continue;
                }
                scope.spawn(move |_| {
                    *result =
                        worker.pass(decoder, weights, batch, share, chunk_tokens, temperature, keep, loss);
                });
            }
        });
        let mut scores =
            Scores { logp: vec![0.0; batch.predictions.len()], entropy: vec![0.0; batch.predictions.len()] };
        for result in results {
            for (index, logp, entropy) in result? {
                scores.logp[index] = logp;
                scores.entropy[index] = entropy;
            }
        }
        Ok(scores)
    }

    /// Families with predictions, dealt to the threads: the costliest first, each to the thread with least so far.
    fn deal<'a>(&self, families: &'a [Family]) -> Vec<Vec<&'a Family>> {
        let config = &self.decoder.config;
        let per_token = self.decoder.layout.len as u64;
        let per_pair = (config.num_hidden_layers * config.num_attention_heads * config.head_dim * 2) as u64;
        let cost = |family: &Family| family.tokens as u64 * per_token + family.pairs as u64 * per_pair;
        let mut order: Vec<&Family> =
            families.iter().filter(|family| !family.predictions.is_empty()).collect();
        order.sort_by_key(|family| std::cmp::Reverse(cost(family)));
        let mut shares = vec![Vec::new(); self.workers.len()];
        let mut loads = vec![0u64; self.workers.len()];
        for family in order {
            let least = (0..loads.len()).min_by_key(|&worker| loads[worker]).expect("there is a worker");
            loads[least] += cost(family);
            shares[least].push(family);
        }
        shares
    }

    /// Makes the rotary tables reach `positions`.
    fn reach(&mut self, positions: Option<usize>) {
        let positions = positions.unwrap_or(0);
        if positions > self.rope.positions() {
            self.rope = Arc::new(Rope::new(&self.decoder.config, positions.next_power_of_two()));
            for worker in &mut self.workers {
                worker.cpu.set_rope(Arc::clone(&self.rope));
            }
        }
    }

    /// The logits of the batch's predictions, untempered: `[predictions, V]`. For tests and small inputs.
    ///
    /// # Errors
    /// None today; a device may fail.
    ///
    /// # Panics
    /// If the batch is malformed.
    pub fn logits(&mut self, batch: &Batch) -> Result<Vec<f32>, Error> {
        batch.check(self.decoder.config.vocab_size);
        let families = batch.families();
        self.reach(families.iter().flat_map(|family| &family.segments).map(|s| s.position + s.len).max());
        let v = self.decoder.config.vocab_size;
        let mut all = vec![0.0; batch.predictions.len() * v];
        let mut rows = Vec::new();
        let worker = &mut self.workers[0];
        for family in families.iter().filter(|family| !family.predictions.is_empty()) {
            worker.chunk.lay_out(batch, std::iter::once(family));
            let (cpu, chunk, workspace) = (&mut worker.cpu, &worker.chunk, &mut worker.workspace);
            self.decoder.forward(cpu, &self.weights, chunk, Keep::Nothing, None, workspace);
            cpu.logits(
                &self.weights,
                self.decoder.head(),
                chunk.predicting.rows.len(),
                workspace.hidden(),
                &mut rows,
            );
            for (pick, &index) in chunk.picks.iter().zip(&chunk.indices) {
                all[index * v..(index + 1) * v].copy_from_slice(&rows[pick.slot as usize * v..][..v]);
            }
        }
        Ok(all)
    }

    /// Forgets the gradient.
    pub fn zero_gradient(&mut self) {
        for worker in &mut self.workers {
            worker.gradient.fill(0.0);
        }
    }

    /// Norm of the whole gradient.
    pub fn gradient_norm(&self) -> f64 {
        let gradients: Vec<&Buffer> = self.filled_gradients();
        let mut sum = vec![0.0f32; BLOCK];
        let mut total = 0.0;
        for first in (0..self.decoder.layout.len).step_by(BLOCK) {
            let range = first..(first + BLOCK).min(self.decoder.layout.len);
            let sum = &mut sum[..range.len()];
            sum.fill(0.0);
            for gradient in &gradients {
                simd::add(&gradient[range.clone()], sum);
            }
            total += simd::square_sum(sum);
        }
        total.sqrt()
    }

    fn filled_gradients(&self) -> Vec<&Buffer> {
        self.workers.iter().map(|worker| &worker.gradient).filter(|gradient| !gradient.is_empty()).collect()
    }

    /// Clips the gradient to `max_norm`, takes an AdamW step and zeroes the gradient. A gradient that isn't finite changes nothing but
    /// is zeroed as well, and the report says so.
    pub fn update(&mut self, adamw: &AdamW, max_norm: Option<f64>) -> UpdateReport {
        let len = self.decoder.layout.len;
        for moment in &mut self.moments {
            moment.reserve(len);
        }
        let (first, others) = self.workers.split_first_mut().expect("there is a worker");
        first.gradient.reserve(len);
        let gradient = &mut first.gradient;
        let others: Vec<&Buffer> =
            others.iter().map(|worker| &worker.gradient).filter(|gradient| !gradient.is_empty()).collect();
        let sums: Vec<f64> = self.pool.install(|| {
            gradient
                .par_chunks_mut(BLOCK)
                .enumerate()
                .map(|(block, sum)| {
                    for other in &others {
                        simd::add(&other[block * BLOCK..][..sum.len()], sum);
                    }
                    simd::square_sum(sum)
                })
                .collect()
        });
        let gradient_norm = sums.iter().sum::<f64>().sqrt();
        let applied = gradient_norm.is_finite();
        if applied {
            self.step += 1;
            self.copies.fresh = false;
            let clip = adamw::clip_factor(gradient_norm, max_norm) as f32;
            let step = self.step as f64;
            let rate = (adamw.lr / (1.0 - adamw.beta1.powf(step))) as f32;
            let root = (1.0 / (1.0 - adamw.beta2.powf(step)).sqrt()) as f32;
            let [m, v] = &mut self.moments;
            for (offset, len, decays) in adamw::decay_runs(&self.decoder.layout, adamw) {
                let decay = if decays { (1.0 - adamw.lr * adamw.weight_decay) as f32 } else { 1.0 };
                let range = offset..offset + len;
                let (w, g) = (&mut self.weights[range.clone()], &mut gradient[range.clone()]);
                let (m, v) = (&mut m[range.clone()], &mut v[range]);
                self.pool.install(|| {
                    w.par_chunks_mut(BLOCK)
                        .zip(g.par_chunks_mut(BLOCK))
                        .zip(m.par_chunks_mut(BLOCK).zip(v.par_chunks_mut(BLOCK)))
                        .for_each(|((w, g), (m, v))| {
                            let (take1, take2) = ((1.0 - adamw.beta1) as f32, (1.0 - adamw.beta2) as f32);
                            let (beta2, eps) = (adamw.beta2 as f32, adamw.eps as f32);
                            simd::adamw(w, g, m, v, clip, take1, beta2, take2, eps, decay, rate, root);
                        });
                });
            }
        }
        self.zero_gradient();
        UpdateReport { gradient_norm, applied }
    }

    /// All tensors, in the checkpoint's order.
    pub fn tensors(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        self.decoder.layout.tensors.iter().map(|tensor| {
            let range = tensor.span.offset..tensor.span.offset + tensor.span.len;
            (tensor.name.as_str(), tensor.shape.as_slice(), Cow::Borrowed(&self.weights[range]))
        })
    }

    /// The gradient of each tensor.
    pub fn gradients(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        let gradients = self.filled_gradients();
        self.decoder.layout.tensors.iter().map(move |tensor| {
            let range = tensor.span.offset..tensor.span.offset + tensor.span.len;
            let mut sum = vec![0.0; tensor.span.len];
            for gradient in &gradients {
                simd::add(&gradient[range.clone()], &mut sum);
            }
            (tensor.name.as_str(), tensor.shape.as_slice(), Cow::Owned(sum))
        })
    }

    /// Overwrites one tensor.
    ///
    /// # Errors
    /// If there is no such tensor, or it has another length.
    pub fn set_tensor(&mut self, name: &str, values: &[f32]) -> Result<(), Error> {
        let span = find(&self.decoder.layout.tensors, name, values.len())?.span;
        self.weights[span.offset..span.offset + span.len].copy_from_slice(values);
        self.copies.fresh = false;
        Ok(())
    }

    /// What a resumed run needs beside the tensors.
    pub fn optimizer_state(&self) -> OptimizerState<'_> {
        let mut tensors = Vec::new();
        if !self.moments[0].is_empty() {
            for tensor in &self.decoder.layout.tensors {
                let range = tensor.span.offset..tensor.span.offset + tensor.span.len;
                for (moment, suffix) in self.moments.iter().zip(["exp_avg", "exp_avg_sq"]) {
                    let name = format!("{}.{suffix}", tensor.name);
                    tensors.push((name, tensor.shape.clone(), Cow::Borrowed(&moment[range.clone()])));
                }
            }
        }
        OptimizerState { step: self.step, tensors }
    }

    /// Takes up a state that [`Engine::optimizer_state`] gave.
    ///
    /// # Errors
    /// If a tensor is missing, unknown, or of another length; nothing has changed then.
    pub fn load_state(&mut self, state: &OptimizerState<'_>) -> Result<(), Error> {
        let len = self.decoder.layout.len;
        let mut moments = [Buffer::default(), Buffer::default()];
        if !state.tensors.is_empty() {
            moments = [Buffer::zeros(len), Buffer::zeros(len)];
            let wanted = 2 * self.decoder.layout.tensors.len();
            if state.tensors.len() != wanted {
                return Err(Error::Request {
                    field: "optimizer state",
                    found: format!("{} tensors", state.tensors.len()),
                    wanted: format!("{wanted}: two for each of the model's"),
                });
            }
            let mut seen = std::collections::HashSet::new();
            for (name, _, values) in &state.tensors {
                let (which, parameter) = if let Some(parameter) = name.strip_suffix(".exp_avg") {
                    (0, parameter)
                } else if let Some(parameter) = name.strip_suffix(".exp_avg_sq") {
                    (1, parameter)
                } else {
                    (0, name.as_str())
                };
                let span = find(&self.decoder.layout.tensors, parameter, values.len())?.span;
                if !seen.insert(name) {
                    return Err(Error::Request {
                        field: "optimizer state",
                        found: format!("{name} twice"),
                        wanted: "each tensor once".into(),
                    });
                }
                moments[which][span.offset..span.offset + span.len].copy_from_slice(values);
            }
        }
        self.moments = moments;
        self.step = state.step;
        Ok(())
    }

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

/// The tensor called `name`, which must have `len` elements.
fn find<'a>(tensors: &'a [TensorLayout], name: &str, len: usize) -> Result<&'a TensorLayout, Error> {
    let wrong = |found: String, wanted: String| Error::Request { field: "tensor", found, wanted };
    let tensor = tensors
        .iter()
        .find(|tensor| tensor.name == name)
        .ok_or_else(|| wrong(name.to_string(), "a tensor of the model".into()))?;
    if tensor.span.len != len {
        return Err(wrong(
            format!("{len} elements for {name}"),
            format!("{} ({:?})", tensor.span.len, tensor.shape),
        ));
    }
    Ok(tensor)
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

impl Worker {
    /// This thread's families through the network, some at a time; (prediction, logp, entropy) of each.
    fn pass(
        &mut self,
        decoder: &Decoder,
        weights: &[f32],
        batch: &Batch,
        families: &[&Family],
        chunk_tokens: usize,
        temperature: f32,
        keep: Keep,
        loss: Option<&LossFn<'_>>,
    ) -> Result<Vec<Score>, Error> {
        let Worker { cpu, workspace, chunk, gradient, .. } = self;
        let mut scores = Vec::new();
        let [mut logp, mut entropy, mut dlogp, mut dentropy] = [const { Vec::new() }; 4];
        let mut next = 0;
        while next < families.len() {
            let first = next;
            let mut tokens = 0;
            while next < families.len() && (next == first || tokens + families[next].tokens <= chunk_tokens) {
                tokens += families[next].tokens;
                next += 1;
            }
            let group = &families[first..next];
            chunk.lay_out(batch, group.iter().copied());
            decoder.forward(cpu, weights, chunk, keep, None, workspace);
            for list in [&mut logp, &mut entropy, &mut dlogp, &mut dentropy] {
                list.clear();
                list.resize(chunk.picks.len(), 0.0f32);
            }
            decoder.score(cpu, weights, chunk, temperature, workspace, &mut logp, &mut entropy)?;
            scores
                .extend(chunk.indices.iter().zip(logp.iter().zip(&entropy)).map(|(&i, (&l, &e))| (i, l, e)));
            let Some(loss) = loss else { continue };
            loss(&chunk.indices, &logp, &entropy, &mut dlogp, &mut dentropy);
            if !self::drop_idle(decoder, cpu, workspace, chunk, batch, group, keep, &mut dlogp, &mut dentropy)
            {
                continue;
            }
            decoder.backward(cpu, weights, gradient, chunk, keep, temperature, &dlogp, &dentropy, workspace);
        }
        Ok(scores)
    }
}

/// Takes families without any derivative out of the chunk and of what the forward pass kept; whether any family is left.
fn drop_idle(
    decoder: &Decoder,
    cpu: &mut Cpu,
    workspace: &mut Workspace<Cpu>,
    chunk: &mut Chunk,
    batch: &Batch,
    families: &[&Family],
    keep: Keep,
    dlogp: &mut Vec<f32>,
    dentropy: &mut Vec<f32>,
) -> bool {
    let mut starts = (0, 0, 0);
    let mut active = Vec::new();
    let [mut rows, mut queries, mut picks] = [const { Vec::<Range<usize>>::new() }; 3];
    for (&family, &ends) in families.iter().zip(&chunk.ends) {
        let own = starts.2..ends.2;
        if dlogp[own.clone()].iter().chain(&dentropy[own.clone()]).any(|&d| d != 0.0) {
            active.push(family);
            rows.push(starts.0..ends.0);
            queries.push(starts.1..ends.1);
            picks.push(own);
        }
        starts = ends;
    }
    if active.is_empty() || active.len() == families.len() {
        return !active.is_empty();
    }
    decoder.keep_rows(cpu, &rows, &queries, keep, workspace);
    for list in [dlogp, dentropy] {
        *list = picks.iter().flat_map(|own| list[own.clone()].iter().copied()).collect();
    }
    chunk.lay_out(batch, active.into_iter());
    true
}
