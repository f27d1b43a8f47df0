//! Upper bound of a run's memory: all completions have full length, and prefixes aren't shared.

use super::Lengths;
use crate::config::{Config, EvalConfig};
use fgrpo_eval::io::machine::resident;
use fgrpo_nn::config::Config as ModelConfig;
use fgrpo_nn::{DEFAULT_CHUNK_TOKENS, GpuSettings, Needs, Workload};

/// Bytes per token of a rollout batch outside the engine: ids, log-probabilities, entropies and copies of them.
const BATCH_TOKEN: u64 = 64;

/// Bytes per sample of an evaluation while it is scored and counted.
const SCORED_SAMPLE: u64 = 512;

/// The memory of a run, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Memory of the engine that trains.
    pub engine: Needs,
    /// The reference model, if the KL penalty needs a separate one.
    pub reference: u64,
    /// The teacher, if it is a separate model.
    pub teacher: u64,
    /// Completions that wait for grading and the update, or an evaluation's scores.
    pub batch: u64,
    /// Program, tokenizer and data: the current memory of this process, or 0 if the data doesn't exist.
    pub program: u64,
}

/// Rejects settings with which a step would need an exabyte, because sums of such sizes would overflow 64 bits. The
/// error names the settings that determine the size of a step.
pub fn refuse_uncountable(config: &Config, model: &ModelConfig, lengths: &Lengths) -> anyhow::Result<()> {
    let [step, evaluation] = workloads(config, lengths, None);
    let tokens = |w: &Workload| {
        let sampled = w.prompts as f64 * w.prompt_tokens as f64 + w.samples as f64 * w.new_tokens as f64;
        sampled + w.family_tokens as f64 + w.chunk_tokens as f64
    };
    let size = |n: usize| n as f64;
    let heads = (model.num_attention_heads + 2 * model.num_key_value_heads) as f64 * size(model.head_dim);
    let layer = 4.0 * (size(model.hidden_size) + heads + size(model.intermediate_size));
    let token = layer * (model.num_hidden_layers + 20) as f64 + size(model.vocab_size);
    let bytes = 4.0 * tokens(&step).max(tokens(&evaluation)) * token * config.compute.threads() as f64;
    if bytes > 1e18 {
        bad_input!(
            "rollout.group_size, rollout.max_new_tokens, update.micro_batch_tokens: a step would need up to {bytes:.0e} bytes; reduce these settings"
        );
    }
    Ok(())
}

impl Memory {
    /// Estimates the memory for a configuration and a model, without a teacher, on the CPU or on a GPU.
    pub fn of(config: &Config, model: &ModelConfig, lengths: &Lengths, gpu: Option<GpuSettings>) -> Self {
        // With an adapter on the model that RL starts from, the reference model is already in the engine.
        let reference = match (!config.algorithm.penalises_kl(), &config.lora, &config.sft) {
            (true, ..) | (_, Some(_), None) => 0,
            _ => weights(config, model, lengths, gpu),
        };
        let remaining = |memory: u64| memory.saturating_sub(reference);
        let gpu = gpu.map(|gpu| GpuSettings { memory: gpu.memory.map(remaining), ..gpu });
        let [rollout, mut evaluation] = workloads(config, lengths, gpu);
        let a = Needs::of(model, &rollout);
        if let Some(GpuSettings { memory: Some(memory), .. }) = &mut evaluation.gpu {
            *memory = memory.saturating_sub(a.optimizer);
        }
        let b = Needs::of(model, &evaluation);
        let engine = Needs {
            decode_copies: a.decode_copies.max(b.decode_copies),
            activations: a.activations.max(b.activations),
            cache: a.cache.max(b.cache),
            rollout: a.rollout.max(b.rollout),
            ..a
        };
        Self {
            reference,
            teacher: 0,
            batch: (BATCH_TOKEN * super::tokens_per_step(config, lengths))
                .max(SCORED_SAMPLE * evaluation.samples as u64),
            program: if lengths.measured { resident().unwrap_or(0) } else { 0 },
            engine,
        }
    }

    /// Returns the total memory.
    pub fn total(&self) -> u64 {
        self.on_device() + self.on_host()
    }

    /// Returns the memory of the models.
    pub fn on_device(&self) -> u64 {
        self.engine.total() + self.reference + self.teacher
    }

    /// Returns the memory besides the models, including what a GPU offloads to the host.
    pub fn on_host(&self) -> u64 {
        self.batch + self.program + self.engine.offloaded
    }
}

/// Returns the bytes of a separate model that only scores, at most with the adapter of the configuration.
pub(super) fn weights(
    config: &Config,
    model: &ModelConfig,
    lengths: &Lengths,
    gpu: Option<GpuSettings>,
) -> u64 {
    let [rollout, _] = workloads(config, lengths, gpu);
    let needs = Needs::of(model, &rollout);
    needs.weights + needs.base_weights
}

/// Returns the engine's work in a step and in an evaluation.
fn workloads(config: &Config, lengths: &Lengths, gpu: Option<GpuSettings>) -> [Workload; 2] {
    let r = &config.rollout;
    let (prompt, new) = (lengths.prompt_longest, lengths.completion_longest);
    let group = prompt + r.group_size * new;
    let family = group.min(config.update.micro_batch_tokens().max(prompt + new));
    // A pass can't be larger than the total work.
    let mini_batch = config.update.mini_batch.unwrap_or(r.prompts) * group;
    let demonstrations = config.sft.as_ref().map_or(0, |sft| sft.batch_size * (prompt + new));
    let train = Workload {
        threads: config.compute.threads(),
        products: config.compute.products,
        gpu,
        chunk_tokens: DEFAULT_CHUNK_TOKENS.min(mini_batch.max(demonstrations)),
        checkpointing: config.compute.checkpointing(),
        optimizer_offload: config.compute.optimizer_offload,
        lora: config.lora.as_ref().map(|lora| lora.engine()),
        base: config.lora.as_ref().and_then(|lora| lora.base),
        family_tokens: family,
        predicting_rows: family - prompt + 1,
        // The server samples, so the engine doesn't.
        prompts: if r.server.is_some() { 0 } else { r.prompts },
        prompt_tokens: prompt,
        samples: if r.server.is_some() { 0 } else { r.prompts * r.group_size },
        new_tokens: new,
        max_cached_tokens: r.max_cached_tokens,
    };
    let evaluations = if config.has_steps() { lengths.evaluations(config) } else { Vec::new() };
    let samples = |(e, problems): &(EvalConfig, usize)| problems.max(&1) * e.samples;
    let largest = evaluations.iter().max_by_key(|e| samples(e));
    let evaluation = Workload {
        prompts: largest.map_or(0, |(_, problems)| *problems.max(&1)),
        samples: largest.map_or(0, samples),
        family_tokens: 0,
        predicting_rows: 0,
        ..train.clone()
    };
    [train, evaluation]
}
