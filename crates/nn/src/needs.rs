//! The needs of a run: bytes by purpose, and floating-point operations by kind of work. Computed only from sizes, before anything is allocated.
//!
//! The sizes mirror what the engine allocates: weights and optimizer by the parameters, activations buffer by buffer for the largest chunk that an
//! executor takes through the network. Not counted: the program itself, the batch, tokenizer and data.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::cache::PAGE;
use crate::config::Config;
use crate::cpu::backend::executors;
use crate::cpu::executor::rows_at_a_time;
use crate::cpu::memory::cache_bytes;
use crate::cpu::product::{Into, View, team_product};
use crate::cpu::{head, panels};
use crate::cuda::backend::POSITIONS;
use crate::cuda::executor::{LOGITS, SUMMED_ROWS};
use crate::cuda::lists::{ITEM_KEYS, bucket};
use crate::cuda::moments::staged_len;
use crate::cuda::replica::NORM_BLOCKS;
use crate::cuda::slices::{inbox_len, slice_len};
use crate::decoder::Keep;
use crate::engine::{Precision, Products};
use crate::generate::pages_needed;
use crate::layout::Layout;
use crate::lora::{AdapterLayout, LoraConfig};

/// GPUs, each with a replica of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicas {
    /// How many, at least 1.
    pub gpus: usize,
    /// Of weights and activations.
    pub precision: Precision,
}

/// The workload of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Threads of the CPU, which count where it is the device.
    pub threads: usize,
    /// Of the CPU.
    pub products: Products,
    /// The GPUs, if the device isn't the CPU.
    pub gpu: Option<Replicas>,
    /// As given to [`Engine::set_chunk_tokens`](crate::Engine::set_chunk_tokens).
    pub chunk_tokens: usize,
    /// As given to [`Engine::set_checkpointing`](crate::Engine::set_checkpointing).
    pub checkpointing: bool,
    /// As given to [`Engine::set_decode_copies`](crate::Engine::set_decode_copies).
    pub decode_copies: bool,
    /// As given to [`Engine::set_optimizer_offload`](crate::Engine::set_optimizer_offload).
    pub optimizer_offload: bool,
    /// As given to [`Engine::adapt`](crate::Engine::adapt).
    pub lora: Option<LoraConfig>,
    /// Rows of the largest family of a training batch: a prompt and all its completions. An upper bound, without shared prefixes. 0: nothing is
    /// trained.
    pub family_tokens: usize,
    /// The number of these rows that predict.
    pub predicting_rows: usize,
    /// Prompts of one `generate` call; 0: nothing is generated.
    pub prompts: usize,
    /// The longest of them.
    pub prompt_tokens: usize,
    /// Completions of one `generate` call, over all prompts.
    pub samples: usize,
    /// As in [`Sampling`](crate::Sampling).
    pub new_tokens: usize,
    /// As in [`Sampling`](crate::Sampling).
    pub max_cached_tokens: Option<usize>,
}

/// Bytes by purpose; on GPUs, of each of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// The weights, in f32.
    pub weights: u64,
    /// LoRA's copy of the adapted matrices without their update: half of this where the checkpoint is bfloat16.
    pub base_weights: u64,
    /// The weights once more, in the order in which decoding reads them.
    pub decode_copies: u64,
    /// The gradient: one, or two with more than one thread.
    pub gradient: u64,
    /// AdamW's two moments, or the buffers through which those of host memory pass, and LoRA's factors.
    pub optimizer: u64,
    /// AdamW's two moments in host memory, of all GPUs together.
    pub offloaded: u64,
    /// AdamW's two moments, wherever they are: the optimizer's state in a checkpoint.
    pub moments: u64,
    /// Buffers of the executors and threads: what the forward pass keeps for the backward pass, and scratch.
    pub activations: u64,
    /// Keys and values.
    pub cache: u64,
}

impl Needs {
    /// The needs of a workload.
    ///
    /// # Panics
    /// If the workload has no threads, or GPUs that are none.
    pub fn of(config: &Config, workload: &Workload) -> Needs {
        let Workload { threads, chunk_tokens, .. } = *workload;
        assert!(threads > 0, "a workload of 0 threads");
        let (precision, replicas) =
            (workload.gpu.map(|gpu| gpu.precision), workload.gpu.map_or(1, |g| g.gpus));
        assert!(replicas > 0, "a workload of 0 GPUs");
        let workload = &workload.share(replicas);
        let layout = Layout::new(config);
        let adapters = workload.lora.as_ref().map(|lora| AdapterLayout::new(&layout, lora));
        let base: usize =
            adapters.iter().flat_map(|a| &a.adapted).map(|adapted| adapted.outputs * adapted.inputs).sum();
        let trained = adapters.as_ref().map_or(layout.len, |adapters| adapters.len);
        let (training, generating) = (workload.family_tokens > 0, workload.prompts > 0);

        let mut buffers = Vec::new();
        let mut beside = 0;
        if training {
            let n = chunk_tokens.max(workload.family_tokens);
            let share = workload.predicting_rows as f64 / workload.family_tokens as f64;
            let m = ((n as f64 * share).ceil() as usize).clamp(1, n);
            let keep = if workload.checkpointing { Keep::Inputs } else { Keep::Everything };
            buffers = activations(config, n, m, keep);
            if let Some(Replicas { precision, .. }) = workload.gpu {
                beside = backward_on_gpu(config, precision, n, m);
            }
        }
        let executors = if workload.gpu.is_some() { 1 } else { executors(threads) };
        let (mut cache, mut copies, mut logits) = (0, 0, 0);
        let mut listed = if training { chunk_tokens.max(workload.family_tokens) } else { 0 };
        if generating {
            let share = workload.prompts.div_ceil(executors);
            let n = chunk_tokens.max(workload.prompt_tokens).min(share * workload.prompt_tokens);
            listed = listed.max(n);
            let prefill = activations(config, n, share.min(n), Keep::Nothing);
            buffers.resize(buffers.len().max(prefill.len()), 0);
            buffers.iter_mut().zip(prefill).for_each(|(buffer, other)| *buffer = other.max(*buffer));
            let mut rows = workload.samples.div_ceil(executors);
            if workload.gpu.is_some() {
                rows = bucket(rows);
                let step = activations(config, rows, rows, Keep::Nothing);
                buffers.iter_mut().zip(step).for_each(|(buffer, other)| *buffer = other.max(*buffer));
                beside += decoding_on_gpu(config, workload);
            }
            let at_a_time = match workload.gpu {
                Some(_) => (LOGITS / config.vocab_size).max(1),
                None => rows_at_a_time(config.vocab_size),
            };
            logits = at_a_time.min(rows) * config.vocab_size;
            let token = 2 * config.num_key_value_heads * config.head_dim * config.num_hidden_layers;
            // A GPU takes half of what its model leaves; here nobody knows how much that is.
            let bound = if workload.gpu.is_some() { usize::MAX } else { cache_bytes(layout.len) };
            cache = token * cached_tokens(workload, executors, 4 * token, bound);
            if workload.gpu.is_none() && workload.decode_copies && panels::available(workload.products) {
                let linears = layout.layers.iter().flat_map(|layer| layer.linears());
                let len = |n: usize, k: usize| panels::len(workload.products, n, k);
                copies = linears.map(|linear| len(linear.outputs, linear.inputs)).sum::<usize>()
                    + len(config.vocab_size, config.hidden_size);
            }
        }
        let mut positions = config.max_position_embeddings.min(
            workload.family_tokens.max(workload.prompt_tokens + workload.new_tokens).next_power_of_two(),
        );
        if workload.gpu.is_some() {
            positions = positions.max(POSITIONS);
            // Index lists, about 20 words a row, and the sums of the gradient's norm.
            beside += 4 * (20 * listed).next_power_of_two() as u64 + 8 * NORM_BLOCKS as u64;
        }
        // Logits are kept for a pass, or computed tile by tile.
        let pass_rows = if training { chunk_tokens.max(workload.family_tokens) } else { 0 };
        let share = workload.predicting_rows as f64 / workload.family_tokens.max(1) as f64;
        let kept = (pass_rows as f64 * share).ceil() as usize * config.vocab_size;
        let kept = match workload.gpu {
            Some(_) => kept.min(LOGITS),
            None if kept <= head::KEPT => kept,
            None => head::SCRATCH,
        };
        let scratch = logits + if training { kept } else { 0 };
        let bytes = |numbers: usize| 4 * numbers as u64;
        let of_activations = |numbers: usize| match precision {
            Some(Precision::Bf16) => 2 * numbers as u64,
            _ => bytes(numbers),
        };
        let panels = if workload.gpu.is_some() { 0 } else { threads * panels::SCRATCH };
        let (slice, inbox) = (slice_len(trained, replicas).min(trained), inbox_len(trained, replicas));
        let moments = |trained: usize| if training { bytes(2 * trained) } else { 0 };
        let offload = workload.optimizer_offload && workload.gpu.is_some();
        let staged = if training { bytes(staged_len(slice)) } else { 0 };
        Needs {
            weights: bytes(layout.len),
            base_weights: bytes(base),
            decode_copies: bytes(copies),
            gradient: if training { bytes(trained * executors + inbox) } else { 0 },
            optimizer: if offload { staged } else { moments(slice) }
                + bytes(adapters.map_or(0, |adapters| adapters.len)),
            offloaded: if offload { moments(trained) } else { 0 },
            moments: moments(trained),
            activations: of_activations(executors * buffers.iter().sum::<usize>())
                + bytes(executors * scratch + panels + positions * config.head_dim)
                + beside,
            cache: of_activations(cache),
        }
    }

    /// The total of the device: from the second step on, everything is in memory while completions are generated.
    pub fn total(&self) -> u64 {
        let Needs { weights, base_weights, decode_copies, gradient, optimizer, activations, cache, .. } =
            *self;
        weights + base_weights + decode_copies + gradient + optimizer + activations + cache
    }
}

impl Workload {
    /// The part of the largest of so many replicas.
    fn share(&self, replicas: usize) -> Workload {
        Workload {
            prompts: self.prompts.div_ceil(replicas),
            samples: self.samples.div_ceil(replicas),
            max_cached_tokens: self.max_cached_tokens.map(|tokens| tokens / replicas),
            ..self.clone()
        }
    }
}

/// Largest number of cached tokens over all executors.
fn cached_tokens(workload: &Workload, executors: usize, token_bytes: usize, cache_bytes: usize) -> usize {
    let Workload { prompts, prompt_tokens, samples, new_tokens, .. } = *workload;
    let wanted = match workload.gpu {
        // Made at once.
        Some(_) => prompts * pages_needed(prompt_tokens, samples.div_ceil(prompts).max(1), new_tokens) * PAGE,
        None => prompts * prompt_tokens.next_multiple_of(PAGE) + samples * new_tokens.next_multiple_of(PAGE),
    };
    let least = pages_needed(prompt_tokens, 1, new_tokens) * executors * PAGE;
    let limit = workload.max_cached_tokens.unwrap_or((cache_bytes / token_bytes).max(least));
    wanted.min(limit)
}

/// Bytes that only a GPU takes for a backward pass over `n` rows of which `m` predict.
fn backward_on_gpu(config: &Config, precision: Precision, n: usize, m: usize) -> u64 {
    let (d, f, v) = (config.hidden_size, config.intermediate_size, config.vocab_size);
    let q = config.num_attention_heads * config.head_dim;
    let kv = 2 * config.num_key_value_heads * config.head_dim;
    let logits = (m * v).min(LOGITS);
    // Rows on their way when families without a derivative are left out.
    let moved = n * q.max(kv).max(d).max(2 * f);
    let (full, half) = match precision {
        Precision::F32 => (moved.max(logits), 0),
        // The logits' derivatives too.
        Precision::Bf16 => (logits.max(n * config.num_attention_heads), moved + logits),
    };
    // Each head's part of its norm's derivative, and sums of columns over blocks of rows.
    let shares = if config.qk_norm { n * q.max(kv / 2) } else { 0 };
    let partials = n.div_ceil(SUMMED_ROWS) * d.max(q).max(kv);
    4 * (full + shares + partials) as u64 + 2 * half as u64
}

/// Bytes that only a GPU takes for decoding: results of attention over parts of a row's tokens, the lists of a step and its draws.
fn decoding_on_gpu(config: &Config, workload: &Workload) -> u64 {
    let Workload { prompts, prompt_tokens, samples, new_tokens, .. } = *workload;
    // With one part more: the first tokens of a completion are often those of others, too.
    let own = prompt_tokens.div_ceil(ITEM_KEYS) + new_tokens.div_ceil(ITEM_KEYS) + 1;
    let parts = (samples * own).next_power_of_two();
    let rows = bucket(samples);
    let pages = prompts * prompt_tokens.div_ceil(PAGE) + samples * new_tokens.div_ceil(PAGE);
    // By row: token, position, slot, draws and parts before it, uniform number. By part at most: an item, its place, the part's number.
    let words = (7 * rows + 6 * parts + 2 * pages).next_power_of_two() + (3 * rows).next_power_of_two();
    4 * (parts * config.num_attention_heads * (config.head_dim + 2) + words) as u64
}

/// Lengths of one executor's buffers for a pass over `n` rows of which `m` predict: shared ones, inputs of layers, then what each layer keeps.
fn activations(config: &Config, n: usize, m: usize, keep: Keep) -> Vec<usize> {
    let (d, f, layers) = (config.hidden_size, config.intermediate_size, config.num_hidden_layers);
    let q = config.num_attention_heads * config.head_dim;
    let kv = 2 * config.num_key_value_heads * config.head_dim;
    let norm = usize::from(config.qk_norm);
    // Rows beyond the keys: those of every layer but the last, if there is another.
    let most = if layers > 1 { n } else { m };
    let heads = config.num_attention_heads;
    let backward = |len: usize| if keep == Keep::Nothing { 0 } else { len };
    let mut buffers = vec![
        n * d,                                   // normed
        most * d,                                // normed_rows
        most * f,                                // act
        m * d,                                   // hidden
        3 * m,                                   // hidden_scale, head_saved
        backward(2 * n * d),                     // dx, dnormed
        backward(if m < n { n * d } else { 0 }), // dx_rows
        backward(2 * most * q),                  // dout, dq
        backward(n * kv),                        // dkv
        n * heads + backward(n * heads) + 3 * m, // sums of attention, of the head
    ];
    let inputs = if keep == Keep::Nothing { 2 } else { layers };
    buffers.extend(std::iter::repeat_n(n * d, inputs));
    buffers.push(backward(m * d));
    buffers.resize(buffers.len().max(11 + layers), 0);
    let kept = if keep == Keep::Everything { layers } else { 1 };
    for layer in 0..kept {
        let rows = if layer + 1 == layers { m } else { n };
        let of_rows = 2 * q + heads + d + 1 + 2 * f + norm * (q + heads);
        let of_keys = 1 + kv + norm * (kv / 2 + config.num_key_value_heads);
        buffers.push(rows * of_rows + n * of_keys);
    }
    buffers
}

/// Floating-point operations by kind of work (a multiplication and an addition are two).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flops {
    /// A row's forward pass, without what only predicting rows need.
    pub forward_token: f64,
    /// Its backward pass.
    pub backward_token: f64,
    /// Attention of a query over one key that it sees, in all layers.
    pub forward_pair: f64,
    /// Its backward pass.
    pub backward_pair: f64,
    /// Additional work of a predicting row: the rest of the last layer and the vocabulary head.
    pub forward_prediction: f64,
    /// Its backward pass.
    pub backward_prediction: f64,
}

impl Flops {
    /// The operations of a model. Norms, exponentials and similar work are not counted: they take a tenth of the time, but few operations.
    pub fn of(config: &Config, checkpointing: bool, lora: Option<&LoraConfig>) -> Flops {
        let layout = Layout::new(config);
        let adapters = lora.map(|lora| AdapterLayout::new(&layout, lora));
        let again = f64::from(u8::from(checkpointing));
        let mut flops = Flops {
            forward_token: 0.0,
            backward_token: 0.0,
            forward_pair: 0.0,
            backward_pair: 0.0,
            forward_prediction: 0.0,
            backward_prediction: 0.0,
        };
        let last = layout.layers.len() - 1;
        for (index, layer) in layout.layers.iter().enumerate() {
            for linear in layer.linears() {
                let product = 2.0 * (linear.outputs * linear.inputs) as f64;
                let weight = match &adapters {
                    None => product,
                    Some(adapters) => {
                        let parts = adapters.of(linear).iter();
                        parts.map(|p| 4.0 * (p.rank * (p.outputs + p.inputs)) as f64).sum()
                    }
                };
                let keys = linear.weight == layer.kv.weight;
                // Frozen, the first layer's input needs no derivative.
                let unused = index == 0 && adapters.is_some() && (keys || linear.weight == layer.q.weight);
                let input = if unused { 0.0 } else { product };
                // The last map's output is not needed for the backward pass.
                let repeated = if linear.weight == layer.down.weight { 0.0 } else { again * product };
                let backward = input + weight + repeated;
                if index == last && !keys {
                    flops.forward_prediction += product;
                    flops.backward_prediction += backward;
                } else {
                    flops.forward_token += product;
                    flops.backward_token += backward;
                }
            }
            let pair = 2.0 * (config.num_attention_heads * config.head_dim) as f64;
            flops.forward_pair += 2.0 * pair;
            flops.backward_pair += (5.0 + 2.0 * again) * pair;
        }
        let head = 2.0 * (config.vocab_size * config.hidden_size) as f64;
        flops.forward_prediction += head;
        flops.backward_prediction += if adapters.is_some() { 2.0 * head } else { 3.0 * head };
        flops
    }
}

/// Floating-point operations per second of large products on `threads` threads at once, measured for about a tenth of a second
/// of processor time: what the machine reaches when it does nothing else. Threads beyond its cores add nothing.
///
/// # Panics
/// If `threads` is 0 or they can't be started.
pub fn measure_flops(threads: usize, products: Products) -> f64 {
    assert!(threads > 0, "0 threads");
    const M: usize = 384;
    const N: usize = 512;
    const K: usize = 512;
    let rate = || {
        let (a, b) = (vec![0.5f32; M * K], vec![0.25f32; N * K]);
        let mut c = vec![0.0f32; M * N];
        let mut multiply = || {
            let by = View::rows(0, K).transposed();
            let (from, to) = (View::rows(0, K), View::rows(0, N));
            team_product(None, products, M, N, K, &a, from, &b, by, Into::Replace, &mut c, to);
        };
        // Once for memory and packing space.
        multiply();
        let start = thread_time();
        let mut done = 0.0;
        while thread_time() - start < Duration::from_millis(80) {
            multiply();
            done += (2 * M * N * K) as f64;
        }
        std::hint::black_box(&c);
        done / (thread_time() - start).as_secs_f64()
    };
    std::thread::scope(|scope| {
        let running = std::thread::available_parallelism().map_or(threads, |cores| threads.min(cores.get()));
        let others: Vec<_> = (1..running).map(|_| scope.spawn(rate)).collect();
        rate() + others.into_iter().map(|other| other.join().expect("no panic")).sum::<f64>()
    })
}

/// Processor time of this thread. Where the system doesn't tell, the time since the first call.
fn thread_time() -> Duration {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a `timespec` of this frame.
        if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } == 0 {
            return Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        }
    }
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::maze;
    use crate::cpu::product::counted;
    use crate::{Batch, Device, Engine};

    /// The operations of products that the engine's one thread has done so far.
    fn done(engine: &Engine) -> f64 {
        engine.in_thread(|| counted() as f64)
    }

    #[test]
    fn operations_are_those_that_the_engine_does() {
        let lora = LoraConfig { rank: 8, ..LoraConfig::default() };
        for (checkpointing, lora) in [(false, None), (true, None), (false, Some(&lora)), (true, Some(&lora))]
        {
            let config = Config { vocab_size: 512, num_hidden_layers: 3, ..maze() };
            let mut engine = Engine::init(&config, 0.02, &|_| 0.5, &Device::cpu(1)).unwrap();
            engine.set_checkpointing(checkpointing);
            if let Some(lora) = lora {
                engine.adapt(lora, &mut || 0.5).unwrap();
            }
            let flops = Flops::of(&config, checkpointing, lora);
            // Two sequences whose last 40 rows predict.
            let (rows, predicting) = (320, 40);
            let mut batch = Batch::default();
            for _ in 0..2 {
                batch.push_segment(&vec![1; rows], None);
                for row in batch.tokens.len() - predicting..batch.tokens.len() {
                    batch.predict(row, 2);
                }
            }
            let (rows, predictions) = (2.0 * 320.0, 2.0 * 40.0);
            let pairs = 320.0 * 321.0;
            let before = done(&engine);
            engine.score(&batch, 1.0).unwrap();
            let forward = done(&engine) - before;
            let wanted = rows * flops.forward_token
                + pairs * flops.forward_pair
                + predictions * flops.forward_prediction;
            assert!((forward / wanted - 1.0).abs() < 0.05, "forward {forward:e}, computed {wanted:e}");
            let before = done(&engine);
            engine.accumulate(&batch, 1.0, &|_, _, _, dlogp, _| dlogp.fill(1.0)).unwrap();
            let backward = done(&engine) - before - forward;
            let wanted = rows * flops.backward_token
                + pairs * flops.backward_pair
                + predictions * flops.backward_prediction;
            assert!(
                (backward / wanted - 1.0).abs() < 0.05,
                "checkpointing {checkpointing}, {lora:?}: backward {backward:e}, computed {wanted:e}"
            );
        }
    }

    #[test]
    fn measured_speed_of_products_is_that_of_some_machine() {
        let speed = measure_flops(1, Products::F32);
        assert!((1e7..1e14).contains(&speed), "{speed:e}");
        // More threads than cores are no faster than the cores, and cost no time to measure.
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let most = measure_flops(4096, Products::F32);
        assert!(most < 4.0 * cores as f64 * speed, "{most:e} with {cores} cores of {speed:e}");
    }

    #[test]
    fn a_needless_purpose_takes_nothing() {
        let nothing = Workload {
            threads: 2,
            products: Products::F32,
            gpu: None,
            chunk_tokens: 1024,
            checkpointing: false,
            decode_copies: true,
            optimizer_offload: false,
            lora: None,
            family_tokens: 0,
            predicting_rows: 0,
            prompts: 0,
            prompt_tokens: 0,
            samples: 0,
            new_tokens: 0,
            max_cached_tokens: None,
        };
        let needs = Needs::of(&maze(), &nothing);
        assert_eq!((needs.gradient, needs.optimizer, needs.cache, needs.decode_copies), (0, 0, 0, 0));
        assert_eq!(needs.base_weights, 0);
        assert!(needs.weights >= 4 * maze().parameters() && needs.weights < 4 * maze().parameters() + 10_000);
        // Adapters spare gradient and moments, and keep the matrices' base.
        let train = Workload { family_tokens: 500, predicting_rows: 400, ..nothing };
        let whole = Needs::of(&maze(), &train);
        let low = Needs::of(&maze(), &Workload { lora: Some(LoraConfig::default()), ..train });
        assert!(low.gradient * 10 < whole.gradient && low.optimizer * 5 < whole.optimizer);
        assert!(low.base_weights > whole.weights / 2 && low.base_weights < whole.weights);
        assert_eq!(low.activations, whole.activations);
        // Moments in host memory leave a GPU 8 bytes per parameter, but for two buffers of a sixteenth each.
        let gpus = |gpus| Some(Replicas { gpus, precision: Precision::Bf16 });
        let gpu = Workload { gpu: gpus(1), ..Workload { lora: None, ..train } };
        let (kept, offloaded) = (
            Needs::of(&maze(), &gpu),
            Needs::of(&maze(), &Workload { optimizer_offload: true, ..gpu.clone() }),
        );
        assert_eq!((kept.offloaded, offloaded.offloaded), (0, kept.optimizer));
        assert!(offloaded.optimizer.abs_diff(kept.optimizer / 8) < 64);
        assert_eq!(kept.total() - offloaded.total(), kept.optimizer - offloaded.optimizer);
        // Of several GPUs each has half of the moments and of the completions, and a buffer for a part of the other's gradient.
        let generating =
            Workload { prompts: 10, prompt_tokens: 20, samples: 80, new_tokens: 30, ..gpu.clone() };
        let one = Needs::of(&maze(), &generating);
        let two = Needs::of(&maze(), &Workload { gpu: gpus(2), ..generating.clone() });
        assert!(two.optimizer.abs_diff(one.optimizer / 2) < 1024);
        assert_eq!((two.cache, two.moments, two.weights), (one.cache / 2, one.moments, one.weights));
        assert!((two.gradient - one.gradient).abs_diff(one.gradient / 32) < 1024);
        // Where only one completion is asked for, each GPU may be the one that has it.
        let single = Workload { prompts: 1, samples: 1, ..generating };
        assert_eq!(
            Needs::of(&maze(), &single).cache,
            Needs::of(&maze(), &Workload { gpu: gpus(2), ..single }).cache
        );
        // Moments in host memory are those of all GPUs.
        let both = Needs::of(&maze(), &Workload { optimizer_offload: true, gpu: gpus(2), ..gpu });
        assert_eq!(both.offloaded, offloaded.offloaded);
    }
}
