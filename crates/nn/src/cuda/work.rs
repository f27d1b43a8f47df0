//! What the kernels of a GPU do beside large products: bytes that they move, instructions, and the nodes of a decoding step. Counted from the kernels and
//! their assembled code, not measured.

use super::launches::decodes_on_tensor_cores;
use super::needs::pass_logits;
use crate::config::Config;
use crate::executor::Heads;
use crate::flops::Flops;
use crate::lora::LoraConfig;
use crate::sampling::Sampling;

/// Instructions of a warp for a cached key and a query head in decoding's attention, as `scripts/gpu/kernels --decode` counts them: of two heads side by
/// side, and of one that is left over.
const PAIR_INSTRUCTIONS: [f64; 2] = [26.7, 36.5];
/// On tensor cores, for a cached key and up to eight query heads: of an item of 256 keys, all instructions.
const EIGHT_PAIRS_INSTRUCTIONS: f64 = 33.0;
/// Bytes of a logit, a statistic, or a parameter's gradient.
const FULL: f64 = 4.0;
/// Bytes of an activation.
const HALF: f64 = 2.0;

/// The work of a model in bf16 on one GPU beside its large products.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuWork {
    /// Bytes that passes move, where [`Flops`] has operations. What products read and write is not counted: they do it meanwhile.
    pub bytes: Flops,
    /// Instructions of a warp of passes' attention, where [`Flops`] has operations: none but for exact attention, which tensor cores don't compute.
    pub instructions: Flops,
    /// Launches and products of a decoding step.
    pub step_nodes: usize,
    /// Instructions of a warp in a decoding step for each cached token that a row reads.
    pub cached_token_instructions: f64,
    /// Bytes that a decoding step moves for each row beside weights, keys and values.
    pub step_row: f64,
}

impl GpuWork {
    /// The work of a model on a GPU of so many bytes of memory, `exact` or not.
    pub fn of(
        config: &Config,
        checkpointing: bool,
        exact: bool,
        lora: Option<&LoraConfig>,
        sampling: &Sampling,
        memory: u64,
    ) -> GpuWork {
        let [d, f, v] =
            [config.hidden_size, config.intermediate_size, config.vocab_size].map(|size| size as f64);
        let (layers, heads) = (config.num_hidden_layers as f64, config.num_attention_heads as f64);
        let q = heads * config.head_dim as f64;
        let k = (config.num_key_value_heads * config.head_dim) as f64;
        let norms = f64::from(u8::from(config.layer().qk_norm));
        // Norms of rows; norms of heads, which keep what they replace; rotary embedding; SwiGLU.
        let forward = HALF * (4.0 * d + (3.0 * norms + 2.0) * (q + k) + 3.0 * f);
        // The norms again, their derivatives by the input and by the weight; of heads, with shares in f32; SwiGLU in its place; attention's delta.
        let trained = f64::from(u8::from(lora.is_none()));
        let backward = HALF
            * ((4.0 + 8.0 + 4.0 * trained) * d + (3.0 * norms + 2.0) * (q + k) + 2.0 * q + 6.0 * f)
            + FULL * norms * (1.0 + trained) * (q + k);
        let again = f64::from(u8::from(checkpointing));
        // Logits are written and read; for derivatives read, and written in 16 bits; the gradient of the head is read and written once a chunk.
        let chunk = (pass_logits(Some(memory)) / config.vocab_size).max(1) as f64;
        let bytes = Flops {
            forward_token: layers * forward,
            backward_token: layers * (backward + again * forward),
            forward_pair: 0.0,
            backward_pair: 0.0,
            forward_prediction: 2.0 * FULL * v,
            backward_prediction: (FULL + HALF) * v + trained * 2.0 * FULL * v * d / chunk,
        };
        let truncations = usize::from(sampling.top_k > 0) + usize::from(sampling.top_p < 1.0);
        // Written; read for the statistics, for the masses, twice for a truncation, and for ties.
        let passes = 3 + 2 * truncations + usize::from(truncations > 0);
        let [pairs, left_over] = PAIR_INSTRUCTIONS;
        let [queries, keys] = [config.num_attention_heads, config.num_key_value_heads];
        let group = queries / keys;
        let of_group = if decodes_on_tensor_cores(Heads { queries, keys, size: config.head_dim }) {
            group.div_ceil(8) as f64 * EIGHT_PAIRS_INSTRUCTIONS
        } else {
            (group / 2 * 2) as f64 * pairs + (group % 2) as f64 * left_over
        };
        let cached_token_instructions = layers * keys as f64 * of_group;
        let of_pass = f64::from(u8::from(exact)) * cached_token_instructions;
        let instructions =
            Flops { forward_pair: of_pass, backward_pair: again * of_pass, ..Flops::default() };
        GpuWork {
            bytes,
            instructions,
            step_nodes: config.num_hidden_layers * (9 + usize::from(exact)) + 4,
            cached_token_instructions,
            step_row: layers * HALF * (4.0 * d + 3.0 * f) + FULL * v * passes as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Architecture, tests::maze};

    #[test]
    fn work_is_what_a_calculation_by_hand_gives() {
        // The sizes of Qwen3-0.6B, on 80 GB: 8,227 rows of logits at a time.
        let config = Config {
            architecture: Architecture::Qwen3,
            vocab_size: 151_936,
            hidden_size: 1024,
            intermediate_size: 3072,
            num_hidden_layers: 28,
            num_attention_heads: 16,
            num_key_value_heads: 8,
            head_dim: 128,
            ..maze()
        };
        let sampling = Sampling { top_k: 50, ..Sampling::default() };
        let work =
            |lora: Option<&LoraConfig>| GpuWork::of(&config, false, false, lora, &sampling, 80_000_000_000);
        let whole = work(None);
        assert_eq!(whole.step_nodes, 256);
        assert!((whole.cached_token_instructions - 28.0 * 16.0 * 26.7).abs() < 1e-6);
        // Nine query heads a key head, on tensor cores eight at a time; a single one with the plain kernel.
        let cached = |heads: usize| {
            let config = Config { num_attention_heads: heads, ..config.clone() };
            GpuWork::of(&config, false, false, None, &sampling, 1 << 36).cached_token_instructions
        };
        assert_eq!([cached(72), cached(24), cached(8)], [66.0, 33.0, 36.5].map(|each| 28.0 * 8.0 * each));
        // By layer: 4,096 of norms, 15,360 of heads, 9,216 of SwiGLU.
        assert_eq!(whole.bytes.forward_token, 28.0 * 2.0 * 28_672.0);
        // Written, and read for sums, for a histogram, for its list, for ties and for masses.
        assert_eq!(whole.step_row, 28.0 * 2.0 * 13_312.0 + 6.0 * 4.0 * 151_936.0);
        let gradient = 8.0 * 151_936.0 * 1024.0 / 8227.0;
        let head = whole.bytes.backward_prediction;
        assert!((head - 6.0 * 151_936.0 - gradient).abs() < 1.0, "{head}, {gradient}");
        // Frozen weights of norms have no gradient.
        let adapted = work(Some(&LoraConfig::default())).bytes;
        let norms = 28.0 * (2.0 * 4.0 * 1024.0 + 4.0 * 3072.0);
        assert_eq!(whole.bytes.backward_token - adapted.backward_token, norms);
        assert_eq!(adapted.backward_prediction, 6.0 * 151_936.0);
    }
}
