//! Memory requirements of a run: bytes by purpose, computed from sizes before anything is allocated.
//!
//! The sizes mirror what the engine allocates: weights and optimizer according to the parameters, and activations buffer by buffer for the largest chunk
//! of an executor. The program itself, the batch, the tokenizer and the data are not counted.

use crate::cache::{KEPT_BYTES, PAGE, numbers_per_token, state_pages};
use crate::config::Config;
use crate::cpu::backend::executors;
use crate::cpu::executor::{KEPT_LOGITS, LOGITS_SCRATCH, rows_at_a_time, scratch_len, tile_rows};
use crate::cpu::memory::cache_bytes;
use crate::cpu::panels;
use crate::cuda::backend::{NORM_BLOCKS, POSITIONS};
use crate::cuda::moments::staged_len;
use crate::cuda::needs as gpu;
use crate::decoder::{Decoder, Keep, PassMemory};
use crate::device::DeviceName;
use crate::lora::{AdapterLayout, LoraConfig};
use crate::numbers::{Precision, ProductFormat};
use crate::quantized::BaseFormat;
use crate::rope::rotated;
use crate::sampling::Rollout;
use crate::scheduler::pages_needed;
use crate::segments::STRETCH;

/// GPU settings that affect memory requirements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GpuSettings {
    /// Number type of weights and activations.
    pub precision: Precision,
    /// Number type of AdamW's two moments.
    pub moments: Precision,
    /// Whether passes compute attention as decoding does.
    pub exact: bool,
    /// Bytes of the GPU's memory, if known. It limits the memory for keys and values.
    pub memory: Option<u64>,
}

/// The work that a model has to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Workload {
    /// Number of CPU threads. Ignored on a GPU.
    pub threads: usize,
    /// Number format of the CPU's products.
    pub products: ProductFormat,
    /// Settings of the GPU, or `None` on the CPU.
    pub gpu: Option<GpuSettings>,
    /// Tokens per pass, see [`Engine::set_chunk_tokens`](crate::Engine::set_chunk_tokens).
    pub chunk_tokens: usize,
    /// Whether layers are recomputed in the backward pass, see [`Engine::set_checkpointing`](crate::Engine::set_checkpointing).
    pub checkpointing: bool,
    /// Whether the moments are in host memory, see [`Engine::set_optimizer_offload`](crate::Engine::set_optimizer_offload).
    pub optimizer_offload: bool,
    /// LoRA settings, or `None` without LoRA, see [`Engine::adapt`](crate::Engine::adapt).
    pub lora: Option<LoraConfig>,
    /// Quantized format of the base, or `None`, see [`Engine::open_with_base`](crate::Engine::open_with_base).
    pub base: Option<BaseFormat>,
    /// Number of rows of the largest tree in a training batch: a prompt and all its completions. An upper bound without shared
    /// prefixes. 0 if nothing is trained.
    pub family_tokens: usize,
    /// Number of rows of the same tree that predict.
    pub predicting_rows: usize,
    /// Number of prompts in a `generate` call. 0 if nothing is generated.
    pub prompts: usize,
    /// Length of the longest prompt.
    pub prompt_tokens: usize,
    /// Number of completions in a `generate` call, over all prompts.
    pub samples: usize,
    /// Maximum number of new tokens per completion, see [`Sampling`](crate::Sampling).
    pub new_tokens: usize,
    /// Maximum number of cached tokens, see [`Sampling`](crate::Sampling).
    pub max_cached_tokens: Option<usize>,
}

/// Memory requirements in bytes, by purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Weights in f32 (in bf16 on a GPU: two 16-bit halves). With a quantized base: the quantized matrices, scratch memory to dequantize them, and the
    /// other weights in the network's precision.
    pub weights: u64,
    /// LoRA's copy of the base weights of adapted matrices. A bfloat16 checkpoint needs only half of this.
    pub base_weights: u64,
    /// Copy of the weights in the order in which decoding reads them.
    pub decode_copies: u64,
    /// The gradient, or two gradients with more than one thread.
    pub gradient: u64,
    /// AdamW's two moments, or the device buffers for moments in host memory, and LoRA's factors.
    pub optimizer: u64,
    /// AdamW's two moments in host memory.
    pub offloaded: u64,
    /// AdamW's two moments in f32, which is their size in a checkpoint.
    pub moments: u64,
    /// Buffers of executors and threads: saved activations and scratch memory.
    pub activations: u64,
    /// Keys and values.
    pub cache: u64,
    /// Buffers of a rollout on a GPU, besides keys and values. If memory is short, they replace gradient and activations. `None` on the CPU, where
    /// everything is in memory at the same time.
    pub rollout: Option<u64>,
}

impl Needs {
    /// Computes the requirements of a workload.
    ///
    /// # Panics
    /// If the workload's number of threads is 0.
    pub fn of(config: &Config, workload: &Workload) -> Needs {
        let Workload { threads, chunk_tokens, .. } = *workload;
        assert!(threads > 0, "a workload of 0 threads");
        let precision = workload.gpu.map(|gpu| gpu.precision);
        let decoder = Decoder::new(config, workload.base);
        let layout = &decoder.layout;
        let adapters = workload.lora.as_ref().map(|lora| AdapterLayout::new(layout, lora));
        let merged = adapters.iter().filter(|adapters| adapters.merged);
        let base: usize =
            merged.flat_map(|a| &a.adapted).map(|adapted| adapted.outputs * adapted.inputs).sum();
        let trained = adapters.as_ref().map_or(layout.len, |adapters| adapters.len);
        let (training, generating) = (workload.family_tokens > 0, workload.prompts > 0);
        let bytes = |numbers: usize| 4 * numbers as u64;
        let activation_bytes = |numbers: usize| gpu::bytes_of(precision.unwrap_or_default(), numbers);
        let executors = if precision.is_some() { 1 } else { executors(threads) };
        let mut positions = config.max_position_embeddings.min(
            workload.family_tokens.max(workload.prompt_tokens + workload.new_tokens).next_power_of_two(),
        );
        if precision.is_some() {
            positions = positions.max(POSITIONS);
        }
        let moment_precision = workload.gpu.map_or(Precision::F32, |gpu| gpu.moments);
        let moment_bytes =
            |numbers: usize| if training { gpu::bytes_of(moment_precision, numbers) } else { 0 };
        let offload = workload.optimizer_offload && precision.is_some();
        let weights = match (workload.base, precision) {
            (None, _) => bytes(layout.len),
            (Some(_), Some(precision)) => {
                gpu::bytes_of(precision, layout.len) + gpu::quantized_bytes(layout, precision)
            }
            (Some(base), None) => {
                let matrices = layout.quantized().map(|tensor| base.bytes(tensor.shape[0], tensor.shape[1]));
                let linears = layout.layers.iter().flat_map(|layer| layer.linears());
                let tile = linears.map(|linear| tile_rows(linear.inputs).min(linear.outputs) * linear.inputs);
                bytes(layout.len + executors * tile.max().unwrap_or(0)) + matrices.sum::<u64>()
            }
        };
        let on_gpu =
            gpu::rope_tables(config).into_iter().filter(|table| *table).count() * config.rotary_dim();
        let angles = if precision.is_some() { on_gpu } else { rotated(config).sum() };
        let mut needs = Needs {
            // Including the tables of angles.
            weights: weights + bytes(angles * positions),
            base_weights: bytes(base),
            gradient: if training { bytes(trained * executors) } else { 0 },
            optimizer: moment_bytes(if offload { staged_len(trained) } else { 2 * trained })
                + bytes(adapters.map_or(0, |adapters| adapters.len)),
            offloaded: if offload { moment_bytes(2 * trained) } else { 0 },
            moments: if training { bytes(2 * trained) } else { 0 },
            ..Needs::default()
        };

        let pass_rows = if training { chunk_tokens.max(workload.family_tokens) } else { 0 };
        let fraction = workload.predicting_rows as f64 / workload.family_tokens.max(1) as f64;
        let predicting = (pass_rows as f64 * fraction).ceil() as usize;
        let (mut logits, mut gpu_only, mut listed) = (0, 0, pass_rows);
        let mut memory = PassMemory::new(&decoder, precision.unwrap_or_default());
        let exact = workload.gpu.is_some_and(|gpu| gpu.exact);
        let longest =
            if generating { workload.prompt_tokens + workload.new_tokens } else { workload.family_tokens };
        let mut exact_parts = gpu::exact_parts(exact, pass_rows, longest);
        if training {
            let keep = if workload.checkpointing { Keep::Inputs } else { Keep::Everything };
            let m = predicting.clamp(1, pass_rows);
            memory.pass(pass_rows, m, keep);
            // A pass stores its logits, or computes them tile by tile.
            let pass_logits = predicting * config.vocab_size;
            logits = match precision {
                Some(_) => pass_logits.min(gpu::pass_logits(workload.gpu.and_then(|gpu| gpu.memory))),
                None if pass_logits <= KEPT_LOGITS => pass_logits,
                None => LOGITS_SCRATCH,
            };
            gpu_only = precision.map_or(0, |precision| gpu::backward(config, precision, pass_rows, m));
        }
        if generating {
            let mut rollout = Rollout {
                prompts: workload.prompts.div_ceil(executors),
                prompt_tokens: workload.prompt_tokens,
                samples: workload.samples.div_ceil(executors),
                new_tokens: workload.new_tokens,
                chunk_tokens,
                cached_tokens: 0,
            };
            // On a GPU, the limit follows from its free memory (below).
            let bound = if precision.is_some() { usize::MAX } else { cache_bytes(layout.len) };
            let mut cached = cached_tokens(workload, executors, config, bound);
            listed = listed.max(rollout.prefilled());
            exact_parts = exact_parts.max(gpu::prefilled_parts(exact, &rollout));
            if let Some(GpuSettings { precision, memory: total, .. }) = workload.gpu {
                if let (Some(total), None) = (total, workload.max_cached_tokens) {
                    let room = total.saturating_sub(gpu::reserved(total, 0) + needs.permanent());
                    let state = state_pages(config, precision);
                    let least = pages_needed(state, workload.prompt_tokens, 1, workload.new_tokens);
                    let pages = gpu::cached_pages(&decoder, precision, exact, &rollout, room).max(least);
                    cached = cached.min(PAGE * pages);
                    rollout.samples = rollout.samples.min(pages);
                }
                rollout.cached_tokens = cached;
                gpu::add_rollout(&mut memory, &rollout);
                logits += gpu::sampled_logits(config, &rollout);
                gpu_only += gpu::decoding(config, &rollout, exact_parts);
                needs.rollout = Some(gpu::rollout_bytes(&decoder, precision, exact, &rollout));
            } else {
                memory.prompts(&rollout);
                logits += rows_at_a_time(config.vocab_size).min(rollout.samples) * config.vocab_size;
                let linears = layout.linears().filter(|linear| !linear.weight.is_quantized());
                let len = |n: usize, k: usize| panels::len(workload.products, n, k);
                let copies = linears.map(|linear| len(linear.outputs, linear.inputs)).sum::<usize>();
                needs.decode_copies = bytes(copies + len(config.vocab_size, config.hidden_size));
            }
            needs.cache = activation_bytes(cached * numbers_per_token(config));
        } else {
            gpu_only += gpu::exact_bytes(config, exact_parts);
        }
        needs.activations = executors as u64 * memory.bytes()
            + bytes(executors * logits)
            + match precision {
                Some(_) => {
                    let states = gpu::mixer_numbers(config, listed, training);
                    gpu_only
                        + gpu::listed(config, listed, exact_parts)
                        + bytes(states)
                        + 8 * NORM_BLOCKS as u64
                }
                None => {
                    let mixer = config.linear_attention.as_ref();
                    let tree = if training { workload.family_tokens } else { workload.prompt_tokens };
                    let slots = tree.div_ceil(STRETCH);
                    let mixer = mixer.map_or(0, |sizes| scratch_len(sizes, slots, training));
                    bytes(threads * (panels::SCRATCH + mixer))
                }
            };
        needs
    }

    /// Returns the bytes that are in memory at all times.
    fn permanent(&self) -> u64 {
        let Needs { weights, base_weights, decode_copies, optimizer, .. } = *self;
        weights + base_weights + decode_copies + optimizer
    }

    /// Returns the total bytes on the device. On a GPU, a rollout with its keys and values may replace gradient and activations; on the CPU, from the
    /// second step on, everything is in memory while completions are generated.
    pub fn total(&self) -> u64 {
        let update = self.gradient + self.activations;
        match self.rollout {
            None => self.permanent() + update + self.cache,
            // A small cache is retained between rollouts.
            Some(rollout) => {
                let cache = if self.cache > KEPT_BYTES as u64 { 0 } else { self.cache };
                self.permanent() + (update + cache).max(rollout + self.cache)
            }
        }
    }
}

impl DeviceName {
    /// Returns the number of batches that the device samples at the same time: two on a CPU with at least two threads.
    pub fn batches(self, threads: usize) -> usize {
        if self.is_gpu() { 1 } else { executors(threads) }
    }
}

/// Returns the smallest number of cached tokens with which each of `executors` executors can complete a prompt of `prompt_tokens` tokens. `model`
/// adds the memory of recurrent states; its precision is the number type of keys and values.
pub fn least_cached_tokens(
    model: Option<(&Config, Precision)>,
    prompt_tokens: usize,
    new_tokens: usize,
    executors: usize,
) -> usize {
    let state = model.map_or(0, |(config, precision)| state_pages(config, precision));
    pages_needed(state, prompt_tokens, 1, new_tokens) * executors * PAGE
}

/// Returns the maximum number of cached tokens over all executors. If the workload doesn't set it, it is limited by `cache_bytes`.
fn cached_tokens(workload: &Workload, executors: usize, config: &Config, cache_bytes: usize) -> usize {
    let Workload { prompts, prompt_tokens, samples, new_tokens, .. } = *workload;
    let precision = workload.gpu.map_or(Precision::F32, |gpu| gpu.precision);
    let (state, token_bytes) = (state_pages(config, precision), 4 * numbers_per_token(config));
    let needed = match workload.gpu {
        // Allocated at its maximum.
        Some(_) => {
            prompts * pages_needed(state, prompt_tokens, samples.div_ceil(prompts).max(1), new_tokens) * PAGE
        }
        None => {
            let states = (prompts + samples) * state * PAGE;
            prompts * prompt_tokens.next_multiple_of(PAGE)
                + samples * new_tokens.next_multiple_of(PAGE)
                + states
        }
    };
    let least = pages_needed(state, prompt_tokens, 1, new_tokens) * executors * PAGE;
    let limit = workload.max_cached_tokens.unwrap_or((cache_bytes / token_bytes).max(least));
    needed.min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::maze;

    #[test]
    fn a_needless_purpose_takes_nothing() {
        let nothing = Workload { threads: 2, chunk_tokens: 1024, ..Workload::default() };
        let needs = Needs::of(&maze(), &nothing);
        assert_eq!((needs.gradient, needs.optimizer, needs.cache, needs.decode_copies), (0, 0, 0, 0));
        assert_eq!(needs.base_weights, 0);
        assert!(needs.weights >= 4 * maze().parameters() && needs.weights < 4 * maze().parameters() + 10_000);
        // With adapters, gradient and moments are small, and the base matrices are stored.
        let train = Workload { family_tokens: 500, predicting_rows: 400, ..nothing };
        let whole = Needs::of(&maze(), &train);
        let low = Needs::of(&maze(), &Workload { lora: Some(LoraConfig::default()), ..train });
        assert!(low.gradient * 10 < whole.gradient && low.optimizer * 5 < whole.optimizer);
        assert!(low.base_weights > whole.weights / 2 && low.base_weights < whole.weights);
        assert_eq!(low.activations, whole.activations);
        // A 4-bit base replaces both copies of the matrices; nothing else changes.
        let base = Some(BaseFormat::Nf4);
        let small =
            Needs::of(&maze(), &Workload { lora: Some(LoraConfig::default()), base, ..train.clone() });
        assert_eq!(small.base_weights, 0);
        assert!(
            small.weights < low.weights
                && small.weights + low.base_weights < low.weights + low.base_weights / 2
        );
        assert_eq!(Needs { weights: low.weights, base_weights: low.base_weights, ..small }, low);
        // With moments in host memory, a GPU saves 8 bytes per parameter, except for two buffers of a sixteenth each.
        let gpu = Some(GpuSettings { precision: Precision::Bf16, ..GpuSettings::default() });
        let gpu = Workload { gpu, ..Workload { lora: None, ..train } };
        let offload = Workload { optimizer_offload: true, ..gpu.clone() };
        let [resident, offloaded] = [&gpu, &offload].map(|workload| Needs::of(&maze(), workload));
        assert_eq!((resident.offloaded, offloaded.offloaded), (0, resident.optimizer));
        assert!(offloaded.optimizer.abs_diff(resident.optimizer / 8) < 64);
        assert_eq!(resident.total() - offloaded.total(), resident.optimizer - offloaded.optimizer);
        // Moments in bf16 take half of that, on the GPU and in host memory, but not in a checkpoint.
        let half = |workload: &Workload| {
            let gpu = workload.gpu.map(|gpu| GpuSettings { moments: Precision::Bf16, ..gpu });
            Needs::of(&maze(), &Workload { gpu, ..workload.clone() })
        };
        let [half_resident, half_offloaded] = [&gpu, &offload].map(half);
        assert_eq!(half_resident, Needs { optimizer: resident.optimizer / 2, ..resident });
        let halves = (offloaded.optimizer / 2, offloaded.offloaded / 2);
        assert_eq!(half_offloaded, Needs { optimizer: halves.0, offloaded: halves.1, ..offloaded });
    }
}
