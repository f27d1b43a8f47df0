//! Decoding: attention to the cache, and sampling on the device.

use fgrpo_cuda::kernels::{self, Variant};
use fgrpo_cuda::{Pointer, Values};

use super::super::decoding::Draws;
use super::super::launches::decodes_on_tensor_cores;
use super::super::lists::{ITEM_KEYS, Items};
use super::super::words::Words;
use super::{
    Buffer, Cache, CudaExecutor, Decoding, FULL, Lists, Precision, Purpose, Shape, THREADS, Weights,
    warp_shape,
};
use crate::error::Error;
use crate::executor::{DecodeChanges, DecodeOps, Head, Heads, StepAttention, StepTokens};
use crate::layout::Span;
use crate::sampling::{Draw, Drawn, Sampling};

/// Bytes of shared memory of a sampling block: 768 8-byte values, three histograms of 2,048 words, a list of 2,048 words, and two words.
const SHARED: usize = 768 * 8 + (4 * 2048 + 2) * 4;

/// Returns the number of latest tokens that a query sees, as the kernels' argument.
pub(super) fn window(tokens: Option<usize>) -> usize {
    tokens.unwrap_or(usize::MAX).min(u32::MAX as usize)
}

/// Returns the variant of the kernels that compute partial attention results, in decoding steps and passes, and their
/// launch shape: one block per item and key head.
pub(super) fn parts_variant(precision: Precision, heads: Heads, items: usize) -> (Variant, Shape) {
    let Heads { keys, size, .. } = heads;
    let (variant, words) = if precision == Precision::Bf16 && decodes_on_tensor_cores(heads) {
        let variant = if size == 64 { Variant::Mma64 } else { Variant::Mma128 };
        // Words of shared memory: slots; weights of eight (row, head) pairs in bf16; maxima and sums of four warps; queries and a key.
        (variant, ITEM_KEYS + 8 * (ITEM_KEYS + 8) / 2 + 2 * 4 * 8 + 9 * (size + 4))
    } else {
        // A key is spread over eight lanes with 8, 16 or 32 values each, loaded 16 bytes at a time. Other sizes are loaded value by value.
        let variants = [(8, Variant::Size8), (16, Variant::Size16), (32, Variant::Size32)];
        let variant = variants.into_iter().find(|(n, _)| size.is_multiple_of(*n) && size <= 8 * n);
        // For two (row, head) pairs: sums of four warps, and a query; and a key.
        (variant.map_or(Variant::General, |(_, variant)| variant), 4 * 2 * (size + 2) + 3 * size)
    };
    let shared = (words * size_of::<f32>()) as u32;
    (variant, Shape { grid: [items as u32, keys as u32, 1], threads: 128, shared })
}

/// Rows whose partial attention results are to be merged.
pub(super) struct Merged<'a> {
    pub(super) words: &'a Words,
    pub(super) items: &'a Items,
    pub(super) positions: Pointer<u32>,
    pub(super) window: usize,
    pub(super) rows: usize,
}

impl CudaExecutor {
    /// Merges the partial attention results of rows into `out`, and their log-sum-exps into `lse` if given.
    pub(super) fn merge(&self, heads: Heads, merged: Merged<'_>, out: Values, lse: Option<Pointer<f32>>) {
        let Merged { words, items, positions, window, rows } = merged;
        let Heads { queries: heads, size, .. } = heads;
        let parts = self.parts.full(0);
        let kernel = kernels::DecodeMerge {
            row_first: words.at(items.row_first, 0),
            row_parts: words.at(items.row_parts, 0),
            positions,
            window,
            parts,
            out,
            lse: lse.unwrap_or(parts),
            of_pass: usize::from(lse.is_some()),
            heads,
            size,
            rows,
        };
        self.stream.launch(warp_shape(rows * heads), kernel);
    }
}

impl DecodeOps for CudaExecutor {
    const RUNS_AHEAD: bool = true;

    fn begin_step(&mut self, changes: &DecodeChanges, decoding: &mut Decoding) {
        decoding.begin(&self.stream, changes, self.taps.is_some());
        let ahead = matches!(changes.tokens, StepTokens::Sampled(_));
        self.graphs.begin_step(&self.stream, decoding.bucket, ahead);
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
        let StepAttention { weights, heads, spec, layer, .. } = attention;
        let cache = &cache.layers[layer];
        let Heads { queries, keys, size, scale } = heads;
        let (items, lists) = (decoding.items, &decoding.lists);
        let words = &lists.words;
        let room = decoding.bucket.parts * queries * (size + 2);
        self.parts.reserve(&self.stream, FULL, room, Purpose::Pass);
        // Without norms, the kernel doesn't read their weights.
        let norm = |norm: Option<Span>| norm.map_or(qkv.at(0), |norm| weights.at(norm.offset));
        let (variant, shape) = parts_variant(self.precision, heads, items.first_part.len);
        let (positions, window) = (words.at(lists.positions, 0), window(spec.window));
        let kernel = kernels::DecodeParts {
            variant,
            items: words.at(items.items, 0).cast(),
            place: words.at(items.first_part, 0),
            ranges: words.at(items.ranges, 0),
            positions,
            starts: words.at(items.starts, 0),
            window,
            slots: words.at(lists.slots, 0),
            angles: self.table(spec.rope).full(0),
            rotary: self.rotary,
            q_norm: norm(attention.q_norm),
            k_norm: norm(attention.k_norm),
            normed: usize::from(attention.q_norm.is_some()),
            offset: attention.offset,
            eps: attention.eps,
            qkv: qkv.at(0),
            cache: cache.at(0),
            parts: self.parts.full(0),
            heads: queries,
            key_heads: keys,
            size,
            scale,
        };
        // Blocks run in any order. If rows attend to keys that other rows of the step store, launch again when all keys are stored.
        for _ in 0..if decoding.step.reads_its_own() { 2 } else { 1 } {
            self.stream.launch(shape, kernel);
        }
        let rows = decoding.bucket.rows;
        self.merge(heads, Merged { words, items: &decoding.items, positions, window, rows }, out.at(0), None);
    }

    fn upload_draws(&mut self, rows: usize, draws: &[Draw], decoding: &mut Decoding) {
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
            let kernel = kernels::Sample {
                logits: logits.full(0),
                draw_first: words.at(lists.first, first),
                uniforms: words.at(lists.uniforms, 0).cast(),
                tokens: results.pointer(0),
                logp: results.pointer(*room).cast(),
                entropy: results.pointer(2 * room).cast(),
                vocabulary: head.vocabulary,
                factor,
                top_k: sampling.top_k.min(u32::MAX as usize),
                top_p: sampling.top_p,
                min_p: sampling.min_p,
                greedy: usize::from(greedy),
            };
            self.stream.launch(Shape::of(m, THREADS, SHARED), kernel);
        }
        self.logits = logits;
    }

    fn end_step(&mut self, decoding: &mut Decoding) {
        self.graphs.end_step(&self.stream, decoding.bucket);
        decoding.send_results(&self.stream);
    }

    fn wait_for_tokens(&mut self, decoding: &mut Decoding, drawn: &mut Vec<Drawn>) -> Result<(), Error> {
        decoding.read_results(&self.stream, drawn)
    }
}
