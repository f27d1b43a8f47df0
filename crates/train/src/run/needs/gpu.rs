//! Kinds of GPUs that a run can be planned for, and the time of a step on them.
//!
//! Everything is computed from data sheets, assumed shares of what they promise, and counts of operations, bytes and instructions. Nothing here was
//! measured.

use super::time::Costs;
use super::{Lengths, Memory, token_bytes};
use crate::config::Config;
use fgrpo_nn::config::Config as ModelConfig;
use fgrpo_nn::{GpuWork, Sampling};

/// Assumed share of the peak of products that products reach, without the work between them.
pub const PRODUCTS_SHARE: f64 = 0.55;

/// Assumed share of the peak bandwidth of memory that kernels reach.
pub const BANDWIDTH_SHARE: f64 = 0.75;

/// Assumed share of the peak of instructions that decoding's attention reaches.
pub const ISSUE_SHARE: f64 = 0.6;

/// Assumed time between two nodes of a decoding step's graph, in seconds.
pub const NODE_TIME: f64 = 1e-6;

/// Bytes that the optimizer moves per trained parameter in bf16 besides moments: weight with its lower half there and
/// back, gradient read twice and zeroed.
const OPTIMIZER_BYTES: f64 = 8.0 + 12.0;

/// A kind of GPU by its data sheet, in bytes and operations, per second where it is a speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuKind {
    /// Its name for `--gpu`.
    pub name: &'static str,
    /// Bytes of its memory.
    pub memory: f64,
    bandwidth: f64,
    /// Products in bf16 with sums in f32, without sparsity.
    products: f64,
    /// Instructions of warps: multiprocessors times four times the clock.
    issue: f64,
    /// To the machine's memory, one direction: PCIe 4 or 5 at about 80 % of its peak.
    host: f64,
    /// To other GPUs, one direction: NVLink, or PCIe.
    peers: f64,
}

/// NVIDIA's data sheets. A100, H100 and H200 are the SXM modules.
#[rustfmt::skip]
pub const GPU_KINDS: [GpuKind; 6] = [
    GpuKind { name: "rtx-4070", memory:  12e9, bandwidth: 0.504e12, products:  58e12, issue: 0.455e12, host: 25e9, peers:  25e9 },
    GpuKind { name: "rtx-4090", memory:  24e9, bandwidth: 1.008e12, products: 165e12, issue: 1.290e12, host: 25e9, peers:  25e9 },
    GpuKind { name: "l40s",     memory:  48e9, bandwidth: 0.864e12, products: 362e12, issue: 1.431e12, host: 25e9, peers:  25e9 },
    GpuKind { name: "a100",     memory:  80e9, bandwidth: 2.039e12, products: 312e12, issue: 0.609e12, host: 25e9, peers: 300e9 },
    GpuKind { name: "h100",     memory:  80e9, bandwidth:  3.35e12, products: 989e12, issue: 0.966e12, host: 50e9, peers: 450e9 },
    GpuKind { name: "h200",     memory: 141e9, bandwidth:   4.8e12, products: 989e12, issue: 0.966e12, host: 50e9, peers: 450e9 },
];

impl GpuKind {
    /// Its data sheet in a few words.
    pub fn about(&self) -> String {
        let bandwidth = format!("{:.2}", self.bandwidth / 1e12);
        let bandwidth = bandwidth.trim_end_matches('0');
        format!("{} GB, {bandwidth} TB/s, {} TFLOP/s", self.memory / 1e9, self.products / 1e12)
    }
}

/// Seconds of a step in bf16 on GPUs of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuTime {
    /// Sampling, or with a server computing the log-probabilities of its samples.
    pub rollout: f64,
    /// The optimizer updates, including the reference model's log-probabilities if needed.
    pub update: f64,
    /// Samples that each GPU decodes at the same time.
    pub rows: f64,
}

impl GpuTime {
    /// The estimate for so many GPUs, each with the memory that `memory` was computed for. It assumes completions of
    /// the mean length but for one of the longest, and as much memory for each sample at the same time as a completion
    /// of the mean length takes.
    pub fn of(
        config: &Config,
        model: &ModelConfig,
        lengths: &Lengths,
        memory: &Memory,
        kind: GpuKind,
        gpus: usize,
    ) -> Self {
        let GpuKind { bandwidth, products, issue, host, peers, .. } = kind;
        let (bandwidth, products, issue) =
            (BANDWIDTH_SHARE * bandwidth, PRODUCTS_SHARE * products, ISSUE_SHARE * issue);
        let (costs, r, gpus) = (Costs::of(config, model, lengths), &config.rollout, gpus as f64);
        let lora = config.lora.as_ref().map(|lora| lora.engine());
        let (again, exact) = (config.compute.checkpoint_activations, config.compute.exact);
        let sampling = Sampling { top_k: r.top_k, top_p: r.top_p, ..Sampling::default() };
        let work = GpuWork::of(model, again, exact, lora.as_ref(), &sampling, kind.memory as u64);
        let [moved, issued] = [work.bytes, work.instructions].map(|work| Costs::with(work, lengths));
        // Of prompts: products, then what is moved between them, and instructions of exact attention.
        let time =
            |of: &dyn Fn(&Costs) -> f64| of(&costs) / products + of(&moved) / bandwidth + of(&issued) / issue;
        let (prompt, completion) = (lengths.prompt_mean, lengths.completion_likely);
        let prompts = r.prompts as f64 / gpus;
        let samples = prompts * r.group_size as f64;

        // Decoding reads all weights in every step (of an untied embedding only some rows), and for every token the
        // keys and values before it.
        let token = token_bytes(model, config.compute.precision) as f64;
        let held = prompt / r.group_size as f64 + completion;
        let rows = (memory.engine.cache as f64 / token / held).floor().clamp(1.0, samples.max(1.0));
        let steps = (samples * completion / rows).max(lengths.completion_longest as f64);
        let unread = if model.tie_word_embeddings { 0 } else { model.vocab_size * model.hidden_size };
        let mut weights = 2.0 * (model.parameters() - unread as u64) as f64;
        if let Some(base) = config.lora.as_ref().and_then(|lora| lora.base) {
            // The layers' matrices are read in their format; but for bf16, values are then written and read.
            weights += base.step_bytes(model) - 2.0 * base.parameters(model) as f64;
        }
        let pairs = samples * completion * (prompt + completion / 2.0);
        let attention = (pairs * token / bandwidth).max(pairs * work.cached_token_instructions / issue);
        let weights = (steps * weights / bandwidth).max(prompts * costs.completions(r.group_size) / products);
        let decoding = weights
            + attention
            + samples * completion * work.step_row / bandwidth
            + steps * work.step_nodes as f64 * NODE_TIME;
        let rollout = match r.server {
            Some(_) => prompts * time(&|costs| costs.scored(r.group_size)),
            None => prompts * time(&Costs::prefill) + decoding,
        };

        let trained = memory.engine.moments as f64 / 8.0;
        let own = trained / gpus;
        let moments = 2.0 * config.compute.moments.bytes() as f64;
        let offloaded = if memory.engine.offloaded > 0 { moments * own / host } else { 0.0 };
        let exchange = 8.0 * (trained - own) / peers;
        let optimizer = ((OPTIMIZER_BYTES + 2.0 * moments) * own / bandwidth).max(offloaded) + exchange;
        let mini_batch = config.update.mini_batch.unwrap_or(r.prompts);
        let updates = (config.update.epochs * r.prompts.div_ceil(mini_batch)) as f64;
        let update = prompts * time(&|costs| costs.update(config)) + updates * optimizer;
        Self { rollout, update, rows }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model;
    use super::*;
    use fgrpo_nn::{Precision, Replicas};

    fn time(kind: &str, gpus: usize, set: &[&str]) -> GpuTime {
        let set: Vec<String> =
            ["compute.precision=bf16"].iter().chain(set).map(|s| (*s).to_owned()).collect();
        let config =
            Config::parse(include_str!("../../../../../configs/qwen3-1.7b-synlogic.toml"), &set).unwrap();
        let lengths = Lengths::of(&config, None).with_means([500.0, 3000.0]);
        let model = model(&config, None).unwrap().unwrap();
        let (moments, exact) = (config.compute.moments, config.compute.exact);
        let kind = GPU_KINDS.into_iter().find(|found| found.name == kind).unwrap();
        let replicas =
            Replicas { gpus, precision: Precision::Bf16, moments, exact, memory: Some(kind.memory as u64) };
        let memory = Memory::of(&config, &model, &lengths, Some(replicas));
        GpuTime::of(&config, &model, &lengths, &memory, kind, gpus)
    }

    #[test]
    fn a_step_of_the_papers_smallest_model_is_what_a_calculation_by_hand_gives() {
        let time = time("h200", 1, &["update.micro_batch_tokens=8192"]);
        // 2048 samples of 3000 tokens: 112 KiB of keys and values each; mean context 500 + 1500.
        let cached = 2048.0 * 3000.0 * 2000.0 * 114_688.0;
        // 1.7e9 weights of 2 bytes in every step of `rows` samples.
        let steps = (2048.0 * 3000.0 / time.rows).max(4096.0);
        let wanted = (cached + steps * 2.0 * 1_720_574_976.0) / 3.6e12;
        assert!(time.rollout > wanted && time.rollout < 1.1 * wanted, "{time:?}, wanted {wanted}");
        // Half of the groups, forward and backward: 6 operations per weight and token, and attention's.
        let products = 0.5 * 2048.0 * 3000.0 * 6.0 * 1.72e9 / (0.55 * 989e12);
        assert!(time.update > products && time.update < 2.0 * products, "{time:?}, products {products}");
    }

    #[test]
    fn time_follows_the_kind_of_gpu_their_number_and_the_settings() {
        let small = "update.micro_batch_tokens=8192";
        let one = time("h200", 1, &[small]);
        let slow = time("h100", 1, &[small]);
        assert!(slow.rows < one.rows && slow.rollout > 1.2 * one.rollout);
        let two = time("h200", 2, &[small]);
        assert!(two.rollout < 0.7 * one.rollout && two.update < 0.6 * one.update);
        let offloaded = time("h200", 1, &[small, "compute.optimizer_offload=true"]);
        assert!(offloaded.update > one.update && offloaded.rows > one.rows);
        let half = time("h200", 1, &[small, "compute.moments=bf16"]);
        assert!(half.update < one.update && half.rows > one.rows && half.rows < offloaded.rows);
        let exact = time("h200", 1, &[small, "compute.exact=true"]);
        assert!(exact.update > 1.1 * one.update && exact.rollout > one.rollout, "{exact:?}, {one:?}");
        let low = time("h200", 1, &[small, "lora.rank=16"]);
        assert!(low.update < one.update);
        let penalty = time("h200", 1, &[small, "algorithm.kl_coef=0.1"]);
        assert!(penalty.update > 1.2 * one.update);
    }
}
