//! Decoding: attention over the cache, and sampling on the device.

use fgrpo_cuda::{Argument, Shape};

use super::super::buffer::Buffer;
use super::super::decoding::{Decoding, DrawLists};
use super::super::lists::Items;
use super::super::stream::Purpose;
use super::super::weights::Weights;
use super::{CudaExecutor, FULL, THREADS, WARPS, args, kernel};
use crate::cpu::head::non_finite;
use crate::error::Error;
use crate::executor::{Head, Heads};
use crate::sampling::{Draw, Drawn, Sampling};

/// Bytes of shared memory of a sampling block: 768 numbers of 8 bytes.
const SHARED: usize = 768 * 8;

impl CudaExecutor {
    pub(super) fn attend_cache(
        &mut self,
        heads: Heads,
        decoding: &Decoding,
        cache: &Buffer,
        q: &Buffer,
        out: &Buffer,
    ) {
        let Heads { queries, keys, size } = heads;
        let (Items { items, place, row_first, row_parts, parts }, words) =
            (decoding.items, &decoding.lists.words);
        self.parts.reserve(&self.stream, FULL, parts * queries * (size + 2), Purpose::Pass);
        let scale = 1.0 / (size as f32).sqrt();
        let shape = Shape { grid: [place.len as u32, queries as u32, 1], threads: 32 * WARPS, shared: 0 };
        self.stream.launch(
            kernel!(self.precision, "decode_parts"),
            shape,
            args![
                words.at(items, 0),
                words.at(place, 0),
                q,
                cache,
                &self.parts,
                queries as u32,
                keys as u32,
                size as u32,
                scale
            ],
        );
        let rows = decoding.step.rows();
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
        draws: &[Draw],
        decoding: &mut Decoding,
    ) {
        let lists = &mut decoding.draws;
        lists.count = draws.len();
        lists.rows.clear();
        lists.rows.extend(draws.iter().map(|draw| draw.row));
        lists.words.clear();
        let halves = |draw: &Draw| {
            let bits = draw.uniform.to_bits();
            [bits as u32, (bits >> 32) as u32]
        };
        let uniforms = lists.words.put(draws.iter().flat_map(halves));
        let before = |row: usize| draws.partition_point(|draw| draw.row < row) as u32;
        let first_draw = lists.words.put((0..=rows).map(before));
        lists.words.stage(&self.stream);
        if lists.results.as_ref().is_none_or(|results| results.len() < 3 * draws.len()) {
            lists.results = None;
            lists.results = self.stream.allocate((3 * draws.len()).next_power_of_two(), Purpose::Pass);
        }
        let Some(results) = &lists.results else { return };
        let greedy = sampling.temperature == 0.0;
        let factor = if greedy { 1.0 } else { 1.0 / sampling.temperature };
        let chunk = self.logit_rows(head, rows);
        let mut logits = std::mem::take(&mut self.logits);
        for first in (0..rows).step_by(chunk) {
            let m = chunk.min(rows - first);
            self.logits_of(weights, head, first, m, x, &mut logits);
            let [tokens, logp, entropy] =
                [0, 1, 2].map(|part| Argument::from(results.at(part * draws.len())));
            self.stream.launch(
                "sample",
                Shape::of(m, THREADS, SHARED),
                args![
                    &logits,
                    lists.words.at(first_draw, first),
                    lists.words.at(uniforms, 0),
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

    pub(super) fn fetch_drawn(&self, decoding: &mut Decoding, drawn: &mut Vec<Drawn>) -> Result<(), Error> {
        let DrawLists { results, count, rows, .. } = &decoding.draws;
        let mut words = vec![0u32; 3 * count];
        if let Some(results) = results {
            self.stream.read(results, 0, &mut words);
        }
        self.stream.check()?;
        let (tokens, scores) = words.split_at(*count);
        let (logp, entropy) = scores.split_at(*count);
        drawn.clear();
        for (index, &token) in tokens.iter().enumerate() {
            let [logp, entropy] = [logp[index], entropy[index]].map(f32::from_bits);
            if !(logp.is_finite() && entropy.is_finite()) {
                return Err(non_finite(logp, rows[index]));
            }
            drawn.push(Drawn { token, logp, entropy });
        }
        decoding.step.drawn.clone_from(drawn);
        Ok(())
    }
}
