//! The vocabulary head in a pass: log-probabilities, entropies and their derivatives, tile by tile.
//!
//! Rows are divided into chunks, and the vocabulary into tiles; the sums of softmax and entropy are updated tile by tile. If there are few logits,
//! they are stored for the backward pass; otherwise each tile is recomputed. A weight is read once per chunk of rows.

use super::{Buffer, CpuExecutor, Lists, View, Weights, part, part_mut, simd};
use crate::error::Error;
use crate::executor::checks::check_scores;
use crate::executor::{Head, HeadInputs, HeadOps, HeadPass};
use crate::layout::Write;
use crate::segments::Pick;

/// Number of rows per chunk.
const ROWS: usize = 256;
/// Number of tokens per tile.
const TILE: usize = 2048;

/// Maximum number of logits that a pass stores: 64 MiB.
pub(crate) const KEPT_LOGITS: usize = 1 << 24;

/// Number of values in a tile of logits.
pub(crate) const LOGITS_SCRATCH: usize = ROWS * TILE;

#[derive(Default)]
pub(super) struct HeadScratch {
    logits: Vec<f32>,
    coefficients: Vec<[f32; 2]>,
    /// Derivatives of the soft cap in a tile.
    slopes: Vec<f32>,
    /// Running statistics of each row: maximum, Σ exp, Σ exp·z.
    state: Vec<f32>,
}

/// A tile of logits: rows of `stride` values from `offset` on.
struct Tile<'a> {
    first_row: usize,
    rows: usize,
    token: usize,
    tokens: usize,
    logits: &'a mut [f32],
    offset: usize,
    stride: usize,
}

enum Logits<'a> {
    /// Compute the logits, and store them for the backward pass.
    Keep(&'a mut [f32]),
    /// Read the logits that the forward pass stored.
    Kept(&'a mut [f32]),
    /// Compute the logits one tile at a time in scratch memory.
    Tiles(&'a mut Vec<f32>),
}

/// Returns the picks whose tokens are in the tile: each pick's index, and the offset of its logit.
fn picks_of<'a>(picks: &'a [Pick], tile: &Tile<'_>) -> impl Iterator<Item = (usize, usize)> + 'a {
    let &Tile { first_row: first, rows, token, tokens, offset, stride, .. } = tile;
    let from = picks.partition_point(|pick| (pick.slot as usize) < first);
    let range = picks.iter().enumerate().skip(from);
    let range = range.take_while(move |(_, pick)| (pick.slot as usize) < first + rows);
    range.filter_map(move |(index, pick)| {
        let column = (pick.token as usize).checked_sub(token).filter(|&column| column < tokens)?;
        Some((index, offset + (pick.slot as usize - first) * stride + column))
    })
}

impl CpuExecutor {
    /// Applies the head's soft cap to the first `n` of `stride` values in `m` rows of logits.
    pub(super) fn cap(&self, head: Head, [m, n, stride]: [usize; 3], logits: &mut [f32]) {
        let Some(cap) = head.softcap else { return };
        self.team.split_rows(m, 16 * m * n, [(logits, stride)], |_, range, [logits]| {
            for (_, row) in range.zip(logits.chunks_mut(stride)) {
                row[..n].iter_mut().for_each(|logit| *logit = cap * (*logit / cap).tanh());
            }
        });
    }

    fn logit_tiles(
        &self,
        pass: &HeadPass<'_, Weights, Lists>,
        x: &[f32],
        mut logits: Logits<'_>,
        mut visit: impl FnMut(Tile<'_>),
    ) {
        let (d, v) = (pass.head.width, pass.head.vocabulary);
        if let Logits::Tiles(scratch) = &mut logits {
            scratch.resize(LOGITS_SCRATCH, 0.0);
        }
        for first_row in (0..pass.rows).step_by(ROWS) {
            let m = ROWS.min(pass.rows - first_row);
            for token in (0..v).step_by(TILE) {
                let n = TILE.min(v - token);
                let computed = !matches!(logits, Logits::Kept(_));
                let (logits, offset, stride) = match &mut logits {
                    Logits::Keep(all) | Logits::Kept(all) => (&mut **all, first_row * v + token, v),
                    Logits::Tiles(scratch) => (&mut scratch[..], 0, n),
                };
                if computed {
                    let w = View::rows(pass.head.weight.offset + token * d, d).transposed().of(pass.weights);
                    let to = View::rows(offset, stride).to(Write::Replace, logits);
                    self.product([m, n, d], View::rows(first_row * d, d).of(x), w, to);
                    self.cap(pass.head, [m, n, stride], &mut logits[offset..]);
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

    /// Saves (log-sum-exp, entropy) per row.
    fn head(
        &mut self,
        pass: HeadPass<'_, Weights, Lists>,
        x: &Buffer,
        logits: &mut Buffer,
        saved: &mut Buffer,
        scores: &mut Buffer,
    ) {
        let (factor, picks) = (1.0 / pass.temperature, &pass.lists.picks);
        let (logp, entropy) = scores[..2 * picks.len()].split_at_mut(picks.len());
        let HeadScratch { logits: mut scratch, mut state, coefficients, slopes } =
            std::mem::take(&mut self.head);
        state.clear();
        state.extend((0..pass.rows).flat_map(|_| [f32::NEG_INFINITY, 0.0, 0.0]));
        let to = if pass.keeps_logits { Logits::Keep(logits) } else { Logits::Tiles(&mut scratch) };
        self.logit_tiles(&pass, x, to, |tile| {
            let Tile { first_row: first, rows: m, tokens: n, offset, stride, .. } = tile;
            let logits = &*tile.logits;
            self.team.split_rows(m, 8 * m * n, [(&mut state[3 * first..], 3)], |_, range, [state]| {
                for (i, state) in range.zip(state.chunks_exact_mut(3)) {
                    let row = &logits[offset + i * stride..][..n];
                    let [max, sum, weighted] = state else { unreachable!("three values") };
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
            // `f32::min` would hide a NaN.
            let difference = logp[index] - saved[2 * row];
            logp[index] = if difference > 0.0 { 0.0 } else { difference };
            entropy[index] = saved[2 * row + 1];
        }
        self.head = HeadScratch { logits: scratch, coefficients, state, slopes };
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
        pass: HeadPass<'_, Weights, Lists>,
        gradient: Option<&mut [f32]>,
        HeadInputs { x, saved, derivatives }: HeadInputs<'_, Buffer>,
        logits: &mut Buffer,
        dx: &mut Buffer,
    ) {
        let mut gradient = gradient.map(|gradient| part_mut(gradient, pass.head.weight));
        let (d, factor, picks) = (pass.head.width, 1.0 / pass.temperature, &pass.lists.picks);
        let (dlogp, dentropy) = derivatives[..2 * picks.len()].split_at(picks.len());
        let HeadScratch { logits: mut scratch, mut coefficients, state, mut slopes } =
            std::mem::take(&mut self.head);
        coefficients.clear();
        coefficients.resize(pass.rows, [0.0; 2]);
        for (index, pick) in picks.iter().enumerate() {
            let [a, b] = &mut coefficients[pick.slot as usize];
            *a += dlogp[index];
            *b += dentropy[index];
        }
        dx[..pass.rows * d].fill(0.0);
        let from = if pass.keeps_logits { Logits::Kept(logits) } else { Logits::Tiles(&mut scratch) };
        self.logit_tiles(&pass, x, from, |tile| {
            let tile_picks = picks_of(picks, &tile);
            let Tile { first_row: first, rows: m, token, tokens: n, logits, offset, stride } = tile;
            if let Some(cap) = pass.head.softcap {
                // tanh' = 1 - tanh²
                let rows = logits[offset..].chunks(stride).take(m).map(|row| &row[..n]);
                slopes.clear();
                slopes.extend(rows.flatten().map(|logit| 1.0 - (logit / cap).powi(2)));
            }
            self.team.split_rows(m, 8 * m * n, [(&mut logits[offset..], stride)], |_, range, [logits]| {
                for (i, row) in range.zip(logits.chunks_mut(stride)) {
                    let [a, b] = coefficients[first + i];
                    let (lse, entropy) = (saved[2 * (first + i)], saved[2 * (first + i) + 1]);
                    simd::logit_backward(&mut row[..n], factor, lse, entropy, a, b);
                }
            });
            tile_picks.for_each(|(index, at)| logits[at] += dlogp[index] * factor);
            if pass.head.softcap.is_some() {
                let rows = logits[offset..].chunks_mut(stride).take(m).zip(slopes.chunks(n));
                rows.for_each(|(row, slopes)| {
                    row.iter_mut().zip(slopes).for_each(|(dz, slope)| *dz *= slope)
                });
            }
            let (dz, w, rows) =
                (View::rows(offset, stride), View::rows(token * d, d), View::rows(first * d, d));
            let weight = w.of(part(pass.weights, pass.head.weight));
            self.product([m, d, n], dz.of(logits), weight, rows.to(Write::Add, dx));
            if let Some(gradient) = &mut gradient {
                let dz = dz.transposed().of(logits);
                self.product([n, d, m], dz, rows.of(x), w.to(Write::Add, gradient));
            }
        });
        self.head = HeadScratch { logits: scratch, coefficients, state, slopes };
    }

    fn logits(&mut self, weights: &Weights, head: Head, rows: usize, x: &Buffer, logits: &mut Vec<f32>) {
        let (v, d) = (head.vocabulary, head.width);
        if logits.len() < rows * v {
            logits.resize(rows * v, 0.0);
        }
        let (x, w) = (View::rows(0, d).of(x), View::rows(head.weight.offset, d).transposed().of(weights));
        self.product([rows, v, d], x, w, View::rows(0, v).to(Write::Replace, logits));
        self.cap(head, [rows, v, v], logits);
    }
}
