//! Decoding: attention to the cache, and sampling on the device.

use super::super::decoding::Draws;
use super::super::launches::decodes_on_tensor_cores;
use super::super::lists::{ITEM_KEYS, Items};
use super::super::words::Words;
use super::{
    Address, Argument, Buffer, Cache, CudaExecutor, Decoding, FULL, Lists, Precision, Purpose, Shape,
    THREADS, Weights, args, kernel, warp_shape,
};
use crate::error::Error;
use crate::executor::{DecodeChanges, DecodeOps, Head, Heads, StepAttention, StepTokens};
use crate::layout::Span;
use crate::sampling::{Draw, Drawn, Sampling};

/// Bytes of shared memory of a sampling block: 768 8-byte values, three histograms of 2,048 words, a list of 2,048 words, and two words.
const SHARED: usize = 768 * 8 + (4 * 2048 + 2) * 4;

/// Number of latest tokens that a query sees, as the kernels' argument.
pub(super) fn window(tokens: Option<usize>) -> u32 {
    tokens.and_then(|tokens| u32::try_from(tokens).ok()).unwrap_or(u32::MAX)
}

/// Kernels for attention parts in a decoding step and in a pass, and their launch shape: a block per item and key head.
pub(super) fn parts_kernels(precision: Precision, heads: Heads, items: usize) -> ([&'static str; 2], Shape) {
    let Heads { keys, size, .. } = heads;
    let (kernels, words) = if precision == Precision::Bf16 && decodes_on_tensor_cores(heads) {
        let kernels = match size {
            64 => ["decode_parts_mma_bf16_64", "attention_parts_mma_bf16_64"],
            _ => ["decode_parts_mma_bf16_128", "attention_parts_mma_bf16_128"],
        };
        // Slots; weights of eight (row, head) pairs in bf16; maxima and sums of four warps; queries and a key.
        (kernels, ITEM_KEYS + 8 * (ITEM_KEYS + 8) / 2 + 2 * 4 * 8 + 9 * (size + 4))
    } else {
        // A key is spread over eight lanes with 8, 16 or 32 values each, loaded 16 bytes at a time. Other sizes are loaded value by value.
        let kernels = match [8, 16, 32].into_iter().find(|n| size.is_multiple_of(*n) && size <= 8 * n) {
            Some(8) => [kernel!(precision, "decode_parts_8"), kernel!(precision, "attention_parts_8")],
            Some(16) => [kernel!(precision, "decode_parts_16"), kernel!(precision, "attention_parts_16")],
            Some(32) => [kernel!(precision, "decode_parts_32"), kernel!(precision, "attention_parts_32")],
            _ => [kernel!(precision, "decode_parts"), kernel!(precision, "attention_parts")],
        };
        // For two (row, head) pairs: sums of four warps, and a query; and a key.
        (kernels, 4 * 2 * (size + 2) + 3 * size)
    };
    let shared = (words * size_of::<f32>()) as u32;
    (kernels, Shape { grid: [items as u32, keys as u32, 1], threads: 128, shared })
}

/// Rows whose attention is merged from parts.
pub(super) struct Merged<'a> {
    pub(super) words: &'a Words,
    pub(super) items: &'a Items,
    pub(super) positions: Address,
    pub(super) window: u32,
    pub(super) rows: usize,
}

impl CudaExecutor {
    /// Computes the attention of rows from their parts, and their log-sum-exps if `lse` is given.
    pub(super) fn merge(&self, heads: Heads, merged: Merged<'_>, out: Address, lse: Option<Address>) {
        let Merged { words, items, positions, window, rows } = merged;
        let Heads { queries, size, .. } = heads;
        let [first, parts] = [items.row_first, items.row_parts].map(|list| words.at(list, 0));
        let (h, e, n, to) = (queries, size, rows, lse.unwrap_or(self.parts.at(0)));
        self.stream.launch(
            kernel!(self.precision, "decode_merge"),
            warp_shape(rows * queries),
            args![first, parts, positions, window, &self.parts, out, to, u32::from(lse.is_some()), h, e, n],
        );
    }
}

impl DecodeOps for CudaExecutor {
    const RUNS_AHEAD: bool = true;

    fn begin_step(&mut self, changes: &DecodeChanges, decoding: &mut Decoding) {
        decoding.begin(&self.stream, changes, self.taps.is_some());
        let ahead = matches!(changes.tokens, StepTokens::Sampled(_));
        self.graphs.begin(&self.stream, decoding.bucket, ahead);
    }

    fn step_rows(decoding: &Decoding) -> usize {
        decoding.bucket.rows
    }

    fn step_lists(decoding: &Decoding) -> &Lists {
        &decoding.lists
    }

    fn step_attention(
        &mut self,
        attention: StepAttention<'_, Weights>,
        decoding: &Decoding,
        cache: &mut Cache,
        qkv: &Buffer,
        out: &mut Buffer,
    ) {
        let StepAttention { weights, heads, layer, .. } = attention;
        let cache = &cache.layers[layer];
        let Heads { queries, keys, size, scale } = heads;
        let (Items { items, first_part, starts, ranges, .. }, lists) = (decoding.items, &decoding.lists);
        let words = &lists.words;
        let room = decoding.bucket.parts * queries * (size + 2);
        self.parts.reserve(&self.stream, FULL, room, Purpose::Pass);
        let (angles, window) = (self.table(attention.rope), window(attention.window));
        let norm = |norm: Option<Span>| norm.map_or(angles.at(0), |norm| weights.at(norm.offset));
        let ([parts, _], shape) = parts_kernels(self.precision, heads, first_part.len);
        let [items, first_part, ranges, positions, starts, slots] =
            [items, first_part, ranges, lists.positions, starts, lists.slots].map(|list| words.at(list, 0));
        let normed = u32::from(attention.q_norm.is_some());
        let ([q_norm, k_norm], offset, eps) =
            ([attention.q_norm, attention.k_norm].map(norm), attention.offset, attention.eps);
        let (to, rotary) = (&self.parts, self.rotary);
        let arguments = args![
            items, first_part, ranges, positions, starts, window, slots, angles, rotary, q_norm, k_norm,
            normed, offset, eps, qkv, cache, to, queries, keys, size, scale
        ];
        // Blocks run in any order. If rows attend to keys that other rows of the step store, launch again when all keys are stored.
        for _ in 0..if decoding.step.reads_its_own() { 2 } else { 1 } {
            self.stream.launch(parts, shape, arguments);
        }
        let rows = decoding.bucket.rows;
        self.merge(heads, Merged { words, items: &decoding.items, positions, window, rows }, out.at(0), None);
    }

    fn stage_draws(&mut self, rows: usize, draws: &[Draw], decoding: &mut Decoding) {
        decoding.begin_draws(&self.stream, rows, draws);
    }

    fn sample(
        &mut self,
        weights: &Weights,
        head: Head,
        sampling: &Sampling,
        rows: usize,
        x: &Buffer,
        decoding: &mut Decoding,
    ) {
        let (Draws { lists, results, room, .. }, words) = (&decoding.draws, &decoding.lists.words);
        let Some(results) = results else { return };
        let greedy = sampling.temperature == 0.0;
        let factor = if greedy { 1.0 } else { 1.0 / sampling.temperature };
        let chunk = self.logit_rows(head, rows);
        let mut logits = std::mem::take(&mut self.logits);
        for first in (0..rows).step_by(chunk) {
            let m = chunk.min(rows - first);
            self.logits_of(weights, head, first, m, x, &mut logits);
            let [tokens, logp, entropy] = [0, 1, 2].map(|part| Argument::from(results.at(part * room)));
            let (draws, uniforms) = (words.at(lists.first, first), words.at(lists.uniforms, 0));
            let top_k = u32::try_from(sampling.top_k).unwrap_or(u32::MAX);
            let (v, greedy) = (head.vocabulary, u32::from(greedy));
            let Sampling { top_p, min_p, .. } = *sampling;
            let arguments = args![
                &logits, draws, uniforms, tokens, logp, entropy, v, factor, top_k, top_p, min_p, greedy
            ];
            self.stream.launch("sample", Shape::of(m, THREADS, SHARED), arguments);
        }
        self.logits = logits;
    }

    fn end_step(&mut self, decoding: &mut Decoding) {
        self.graphs.submit(&self.stream, decoding.bucket);
        decoding.send_results(&self.stream);
    }

    fn drawn(&mut self, decoding: &mut Decoding, drawn: &mut Vec<Drawn>) -> Result<(), Error> {
        decoding.read_results(&self.stream, drawn)
    }
}
