//! Decoding: attention over the cache, and sampling on the device.

use fgrpo_cuda::{Argument, Shape};

use super::super::buffer::Buffer;
use super::super::decoding::{Decoding, Draws};
use super::super::lists::Items;
use super::super::stream::Purpose;
use super::super::weights::Weights;
use super::{CudaExecutor, FULL, THREADS, WARPS, args, kernel};
use crate::engine::Precision;
use crate::executor::{Head, HeadNorms, Heads};
use crate::layout::Span;
use crate::sampling::Sampling;

/// Bytes of shared memory of a sampling block: 768 numbers of 8 bytes, a histogram of three times 2,048 words, a list of 2,048, and its length.
const SHARED: usize = 768 * 8 + (4 * 2048 + 2) * 4;

/// The kernel for heads of this size. A key lies over eight lanes with 8 or 16 numbers each, loaded by 16 bytes; other sizes number by number.
fn parts_kernel(precision: Precision, size: usize) -> &'static str {
    match [8, 16].into_iter().find(|n| size.is_multiple_of(*n) && size <= 8 * n) {
        Some(8) => kernel!(precision, "decode_parts_8"),
        Some(16) => kernel!(precision, "decode_parts_16"),
        _ => kernel!(precision, "decode_parts"),
    }
}

impl CudaExecutor {
    pub(super) fn step_attention(
        &mut self,
        weights: &Weights,
        norms: &HeadNorms,
        heads: Heads,
        decoding: &Decoding,
        cache: &Buffer,
        qkv: &Buffer,
        out: &Buffer,
    ) {
        let Heads { queries, keys, size } = heads;
        let (Items { items, place, row_first, row_parts, ranges }, lists) = (decoding.items, &decoding.lists);
        let words = &lists.words;
        let room = decoding.bucket.parts * queries * (size + 2);
        self.parts.reserve(&self.stream, FULL, room, Purpose::Pass);
        let scale = 1.0 / (size as f32).sqrt();
        // For two pairs of a row and a head, the sums of four warps and a query; and a key.
        let shared = ((4 * 2 * (size + 2) + 3 * size) * size_of::<f32>()) as u32;
        let norm = |norm: Option<Span>| norm.map_or(self.angles.at(0), |norm| weights.at(norm.offset));
        self.stream.launch(
            parts_kernel(self.precision, size),
            Shape { grid: [place.len as u32, keys as u32, 1], threads: 128, shared },
            args![
                words.at(items, 0),
                words.at(place, 0),
                words.at(ranges, 0),
                words.at(lists.positions, 0),
                words.at(lists.slots, 0),
                &self.angles,
                norm(norms.q),
                norm(norms.k),
                u32::from(norms.q.is_some()),
                norms.eps,
                qkv,
                cache,
                &self.parts,
                queries as u32,
                keys as u32,
                size as u32,
                scale
            ],
        );
        let rows = decoding.bucket.rows;
        self.stream.launch(
            kernel!(self.precision, "decode_merge"),
            Shape::of((rows * queries).div_ceil(WARPS as usize), 32 * WARPS, 0),
            args![
                words.at(row_first, 0),
                words.at(row_parts, 0),
                &self.parts,
                out,
                queries as u32,
                size as u32,
                rows as u32
            ],
        );
    }

    pub(super) fn draw(
        &mut self,
        weights: &Weights,
        head: Head,
        sampling: &Sampling,
        rows: usize,
        x: &Buffer,
        decoding: &Decoding,
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
            self.stream.launch(
                "sample",
                Shape::of(m, THREADS, SHARED),
                args![
                    &logits,
                    words.at(lists.first, first),
                    words.at(lists.uniforms, 0),
                    tokens,
                    logp,
                    entropy,
                    head.vocabulary as u32,
                    factor,
                    u32::try_from(sampling.top_k).unwrap_or(u32::MAX),
                    sampling.top_p,
                    sampling.min_p,
                    u32::from(greedy)
                ],
            );
        }
        self.logits = logits;
    }
}
