//! The vocabulary head of a pass: log-probabilities, entropies and their derivatives, tile by tile.
//!
//! Rows are divided into chunks and the vocabulary into tiles; the sums of softmax and entropy run over the tiles. If there are few logits, they are
//! kept for the backward pass; otherwise each tile is computed again. A weight is read once per chunk of rows.

use super::{Buffer, CpuExecutor, Lists, View, Weights, part, part_mut, simd};
use crate::error::Error;
use crate::executor::checks::check_scores;
use crate::executor::{Head, HeadKept, HeadOps, HeadPass};
use crate::layout::Write;
use crate::segments::Pick;

/// Rows per chunk.
const ROWS: usize = 256;
/// Tokens per tile.
const TILE: usize = 2048;

/// Largest number of logits that a pass keeps: 64 MiB.
pub(crate) const KEPT_LOGITS: usize = 1 << 24;

/// Numbers in a tile of logits.
pub(crate) const LOGITS_SCRATCH: usize = ROWS * TILE;

#[derive(Default)]
pub(super) struct HeadScratch {
    logits: Vec<f32>,
    coefficients: Vec<[f32; 2]>,
    /// Running statistics per row: maximum, Σ exp, Σ exp·z.
    state: Vec<f32>,
}

/// Layout of a tile's logits: rows of `stride` numbers.
struct Tile<'a> {
    first_row: usize,
    rows: usize,
    token: usize,
    tokens: usize,
    logits: &'a mut [f32],
    offset: usize,
    stride: usize,
}

/// The logits of a pass.
enum Logits<'a> {
    /// Computed, and kept for the backward pass.
    Keep(&'a mut [f32]),
    /// Kept from the forward pass.
    Kept(&'a mut [f32]),
    /// Computed one tile after another in scratch memory.
    Tiles(&'a mut Vec<f32>),
}

/// The picks of a tile: index, and offset of the pick's logit in the tile's logits.
fn picks_of<'a>(picks: &'a [Pick], tile: &Tile<'_>) -> impl Iterator<Item = (usize, usize)> + 'a {
    let &Tile { first_row: first, rows, token, tokens, offset, stride, .. } = tile;
    let from = picks.partition_point(|pick| (pick.slot as usize) < first);
    let own = picks.iter().enumerate().skip(from);
    let own = own.take_while(move |(_, pick)| (pick.slot as usize) < first + rows);
    own.filter_map(move |(index, pick)| {
        let column = (pick.token as usize).checked_sub(token).filter(|&column| column < tokens)?;
        Some((index, offset + (pick.slot as usize - first) * stride + column))
    })
}

impl CpuExecutor {
    fn logit_tiles(
        &self,
        of: &HeadPass<'_, Weights, Lists>,
        x: &[f32],
        mut logits: Logits<'_>,
        mut visit: impl FnMut(Tile<'_>),
    ) {
        let (d, v) = (of.head.width, of.head.vocabulary);
        if let Logits::Tiles(scratch) = &mut logits {
            scratch.resize(LOGITS_SCRATCH, 0.0);
        }
        for first_row in (0..of.rows).step_by(ROWS) {
            let m = ROWS.min(of.rows - first_row);
            for token in (0..v).step_by(TILE) {
                let n = TILE.min(v - token);
                let computed = !matches!(logits, Logits::Kept(_));
                let (logits, offset, stride) = match &mut logits {
                    Logits::Keep(all) | Logits::Kept(all) => (&mut **all, first_row * v + token, v),
                    Logits::Tiles(scratch) => (&mut scratch[..], 0, n),
                };
                if computed {
                    let w = View::rows(of.head.weight.offset + token * d, d).transposed().of(of.weights);
                    let to = View::rows(offset, stride).to(Write::Replace, logits);
                    self.product([m, n, d], View::rows(first_row * d, d).of(x), w, to);
                }
                visit(Tile { first_row, rows: m, token, tokens: n, logits, offset, stride });
            }
        }
    }
}

impl HeadOps for CpuExecutor {
    fn keeps_logits(&self, head: Head, rows: usize) -> bool {
        rows * head.vocabulary <= KEPT_LOGITS
    }

    /// `saved` gets (log Σ exp, entropy) per row.
    fn head(
        &mut self,
        of: HeadPass<'_, Weights, Lists>,
        x: &Buffer,
        logits: &mut Buffer,
        saved: &mut Buffer,
        scores: &mut Buffer,
    ) {
        let (factor, picks) = (1.0 / of.temperature, &of.lists.picks);
        let (logp, entropy) = scores[..2 * picks.len()].split_at_mut(picks.len());
        let HeadScratch { logits: mut scratch, mut state, coefficients } = std::mem::take(&mut self.head);
        state.clear();
        state.extend((0..of.rows).flat_map(|_| [f32::NEG_INFINITY, 0.0, 0.0]));
        let to = if of.kept { Logits::Keep(logits) } else { Logits::Tiles(&mut scratch) };
        self.logit_tiles(&of, x, to, |tile| {
            let Tile { first_row: first, rows: m, tokens: n, offset, stride, .. } = tile;
            let logits = &*tile.logits;
            self.team.split_rows(m, 8 * m * n, [(&mut state[3 * first..], 3)], |_, own, [state]| {
                for (i, state) in own.zip(state.chunks_exact_mut(3)) {
                    let row = &logits[offset + i * stride..][..n];
                    let [max, sum, weighted] = state else { unreachable!("three numbers") };
                    let now = (simd::max(row) * factor).max(*max);
                    let [tile_sum, tile_weighted] = simd::entropy_sums(row, factor, now);
                    if *sum > 0.0 {
                        let shift = *max - now;
                        let keep = shift.exp();
                        *weighted = keep * (*weighted + shift * *sum);
                        *sum *= keep;
                    }
                    (*max, *sum, *weighted) = (now, *sum + tile_sum, *weighted + tile_weighted);
                }
            });
            picks_of(picks, &tile).for_each(|(index, at)| logp[index] = logits[at] * factor);
        });
        for (row, state) in state.chunks_exact(3).enumerate() {
            let (max, sum, weighted) = (state[0], state[1], state[2]);
            saved[2 * row] = max + sum.ln();
            saved[2 * row + 1] = (sum.ln() - weighted / sum).max(0.0);
        }
        for (index, pick) in picks.iter().enumerate() {
            let row = pick.slot as usize;
            // Not `min` alone, which passes over a number that isn't one.
            let difference = logp[index] - saved[2 * row];
            logp[index] = if difference > 0.0 { 0.0 } else { difference };
            entropy[index] = saved[2 * row + 1];
        }
        self.head = HeadScratch { logits: scratch, coefficients, state };
    }

    fn scores(
        &mut self,
        lists: &Lists,
        scores: &Buffer,
        logp: &mut [f32],
        entropy: &mut [f32],
    ) -> Result<(), Error> {
        let count = lists.picks.len();
        logp.copy_from_slice(&scores[..count]);
        entropy.copy_from_slice(&scores[count..2 * count]);
        check_scores(logp, entropy, lists.picks.iter().map(|pick| pick.slot))
    }

    fn derivatives(&mut self, dlogp: &[f32], dentropy: &[f32], to: &mut Buffer) {
        to[..dlogp.len()].copy_from_slice(dlogp);
        to[dlogp.len()..dlogp.len() + dentropy.len()].copy_from_slice(dentropy);
    }

    fn head_backward(
        &mut self,
        of: HeadPass<'_, Weights, Lists>,
        gradient: Option<&mut [f32]>,
        HeadKept { x, saved, derivatives }: HeadKept<'_, Buffer>,
        logits: &mut Buffer,
        dx: &mut Buffer,
    ) {
        let mut gradient = gradient.map(|gradient| part_mut(gradient, of.head.weight));
        let (d, factor, picks) = (of.head.width, 1.0 / of.temperature, &of.lists.picks);
        let (dlogp, dentropy) = derivatives[..2 * picks.len()].split_at(picks.len());
        let HeadScratch { logits: mut scratch, mut coefficients, state } = std::mem::take(&mut self.head);
        coefficients.clear();
        coefficients.resize(of.rows, [0.0; 2]);
        for (index, pick) in picks.iter().enumerate() {
            let [a, b] = &mut coefficients[pick.slot as usize];
            *a += dlogp[index];
            *b += dentropy[index];
        }
        dx[..of.rows * d].fill(0.0);
        let from = if of.kept { Logits::Kept(logits) } else { Logits::Tiles(&mut scratch) };
        self.logit_tiles(&of, x, from, |tile| {
            let own_picks = picks_of(picks, &tile);
            let Tile { first_row: first, rows: m, token, tokens: n, logits, offset, stride } = tile;
            self.team.split_rows(m, 8 * m * n, [(&mut logits[offset..], stride)], |_, own, [logits]| {
                for (i, row) in own.zip(logits.chunks_mut(stride)) {
                    let [a, b] = coefficients[first + i];
                    let (lse, entropy) = (saved[2 * (first + i)], saved[2 * (first + i) + 1]);
                    simd::logit_backward(&mut row[..n], factor, lse, entropy, a, b);
                }
            });
            own_picks.for_each(|(index, at)| logits[at] += dlogp[index] * factor);
            let (dz, w, rows) =
                (View::rows(offset, stride), View::rows(token * d, d), View::rows(first * d, d));
            let weight = w.of(part(of.weights, of.head.weight));
            self.product([m, d, n], dz.of(logits), weight, rows.to(Write::Add, dx));
            if let Some(gradient) = &mut gradient {
                let dz = dz.transposed().of(logits);
                self.product([n, d, m], dz, rows.of(x), w.to(Write::Add, gradient));
            }
        });
        self.head = HeadScratch { logits: scratch, coefficients, state };
    }

    fn logits(&mut self, weights: &Weights, head: Head, rows: usize, x: &Buffer, logits: &mut Vec<f32>) {
        let (v, d) = (head.vocabulary, head.width);
        if logits.len() < rows * v {
            logits.resize(rows * v, 0.0);
        }
        let (x, w) = (View::rows(0, d).of(x), View::rows(head.weight.offset, d).transposed().of(weights));
        self.product([rows, v, d], x, w, View::rows(0, v).to(Write::Replace, logits));
    }
}
