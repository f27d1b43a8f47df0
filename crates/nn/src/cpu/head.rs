//! The vocabulary head: log-probabilities, entropies and their derivatives, tile by tile.
//!
//! Rows are divided into chunks and the vocabulary into tiles; the sums of softmax and entropy run over the tiles. If there are few logits, they are
//! kept for the backward pass; otherwise each tile is computed again. A weight is read once per chunk of rows.

use super::product::{View, team_product};
use super::simd;
use super::team::Team;
use crate::executor::Head;
use crate::layout::Write;
use crate::numbers::Products;
use crate::segments::Pick;

/// Rows per chunk.
const ROWS: usize = 256;
/// Tokens per tile.
const TILE: usize = 2048;

/// Largest number of logits that a pass keeps: 64 MiB.
pub(crate) const KEPT: usize = 1 << 24;

/// Numbers in a tile of logits.
pub(crate) const SCRATCH: usize = ROWS * TILE;

/// Tile scratch of one executor.
#[derive(Default)]
pub(crate) struct Scratch {
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

/// Whether the logits of a pass must be computed, or were kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Logits {
    Compute,
    Kept,
}

/// What both passes read.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) team: &'a Team,
    pub(crate) products: Products,
    pub(crate) weight: &'a [f32],
    pub(crate) head: Head,
    pub(crate) temperature: f32,
    pub(crate) rows: usize,
    pub(crate) x: &'a [f32],
    pub(crate) picks: &'a [Pick],
}

/// Visits tiles of logits, which are all in `kept`, or one after another in `scratch`.
fn tiles(
    Inputs { team, products, weight, head, rows, x, .. }: Inputs<'_>,
    mut kept: Option<&mut [f32]>,
    which: Logits,
    scratch: &mut Vec<f32>,
    mut visit: impl FnMut(Tile<'_>),
) {
    let (d, v) = (head.width, head.vocabulary);
    if kept.is_none() {
        scratch.resize(SCRATCH, 0.0);
    }
    for first_row in (0..rows).step_by(ROWS) {
        let m = ROWS.min(rows - first_row);
        for token in (0..v).step_by(TILE) {
            let n = TILE.min(v - token);
            let (logits, offset, stride) = match &mut kept {
                Some(kept) => (&mut **kept, first_row * v + token, v),
                None => (&mut scratch[..], 0, n),
            };
            if which == Logits::Compute {
                let w = View::rows(token * d, d).transposed();
                let (x_view, to) = (View::rows(first_row * d, d), View { offset, ..View::rows(0, stride) });
                let (by, to) = ((Some(team), products), to.to(Write::Replace, logits));
                team_product(by, [m, n, d], x_view.of(x), w.of(weight), to);
            }
            visit(Tile { first_row, rows: m, token, tokens: n, logits, offset, stride });
        }
    }
}

/// The picks of rows `first..first + rows`, with their indices.
fn picks_of(picks: &[Pick], first: usize, rows: usize) -> impl Iterator<Item = (usize, &Pick)> {
    let from = picks.partition_point(|pick| (pick.slot as usize) < first);
    picks.iter().enumerate().skip(from).take_while(move |(_, pick)| (pick.slot as usize) < first + rows)
}

/// Fills `scores`: the log-probability of each pick, then the entropy of each; `saved` gets (log Σ exp, entropy) per row, and `kept` the logits.
pub(crate) fn forward(
    of: Inputs<'_>,
    kept: Option<&mut [f32]>,
    saved: &mut [f32],
    scores: &mut [f32],
    scratch: &mut Scratch,
) {
    let Inputs { team, temperature, rows, picks, .. } = of;
    let factor = 1.0 / temperature;
    let (logp, entropy) = scores.split_at_mut(picks.len());
    let Scratch { logits, state, .. } = scratch;
    state.clear();
    state.extend((0..rows).flat_map(|_| [f32::NEG_INFINITY, 0.0, 0.0]));
    tiles(of, kept, Logits::Compute, logits, |tile| {
        let Tile { first_row: first, rows: m, token, tokens: n, offset, stride, .. } = tile;
        let logits = &*tile.logits;
        team.split_rows(m, 8 * m * n, [(&mut state[3 * first..], 3)], |_, own, [state]| {
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
        for (index, pick) in picks_of(picks, first, m) {
            if let Some(column) = (pick.token as usize).checked_sub(token).filter(|&column| column < n) {
                logp[index] = logits[offset + (pick.slot as usize - first) * stride + column] * factor;
            }
        }
    });
    for (row, state) in state.chunks_exact(3).enumerate() {
        let (max, sum, weighted) = (state[0], state[1], state[2]);
        saved[2 * row] = max + sum.ln();
        saved[2 * row + 1] = (sum.ln() - weighted / sum).max(0.0);
    }
    for (index, pick) in picks.iter().enumerate() {
        let row = pick.slot as usize;
        // Not `min` alone, which passes over a number that isn't one.
        let found = logp[index] - saved[2 * row];
        logp[index] = if found > 0.0 { 0.0 } else { found };
        entropy[index] = saved[2 * row + 1];
    }
}

/// Overwrites `dx` and adds to the weight's gradient, if it has one. `derivatives` are those of `scores` in [`forward`]. `kept` has the logits that
/// it kept, and is overwritten.
pub(crate) fn backward(
    of: Inputs<'_>,
    mut gradient: Option<&mut [f32]>,
    kept: Option<&mut [f32]>,
    saved: &[f32],
    derivatives: &[f32],
    dx: &mut [f32],
    scratch: &mut Scratch,
) {
    let Inputs { team, products, weight, head, temperature, rows, x, picks } = of;
    let d = head.width;
    let factor = 1.0 / temperature;
    let (dlogp, dentropy) = derivatives.split_at(picks.len());
    let Scratch { logits, coefficients, .. } = scratch;
    coefficients.clear();
    coefficients.resize(rows, [0.0; 2]);
    for (index, pick) in picks.iter().enumerate() {
        let [a, b] = &mut coefficients[pick.slot as usize];
        *a += dlogp[index];
        *b += dentropy[index];
    }
    dx[..rows * d].fill(0.0);
    let which = if kept.is_some() { Logits::Kept } else { Logits::Compute };
    tiles(of, kept, which, logits, |tile| {
        let Tile { first_row: first, rows: m, token, tokens: n, logits, offset, stride } = tile;
        team.split_rows(m, 8 * m * n, [(&mut logits[offset..], stride)], |_, own, [logits]| {
            for (i, row) in own.zip(logits.chunks_mut(stride)) {
                let [a, b] = coefficients[first + i];
                let (lse, entropy) = (saved[2 * (first + i)], saved[2 * (first + i) + 1]);
                simd::logit_backward(&mut row[..n], factor, lse, entropy, a, b);
            }
        });
        for (index, pick) in picks_of(picks, first, m) {
            if let Some(column) = (pick.token as usize).checked_sub(token).filter(|&column| column < n) {
                logits[offset + (pick.slot as usize - first) * stride + column] += dlogp[index] * factor;
            }
        }
        let dz = View { offset, ..View::rows(0, stride) };
        let w = View::rows(token * d, d);
        let rows = View::rows(first * d, d);
        let by = (Some(team), products);
        team_product(by, [m, d, n], dz.of(logits), w.of(weight), rows.to(Write::Add, dx));
        if let Some(gradient) = &mut gradient {
            let dz = dz.transposed().of(logits);
            team_product(by, [n, d, m], dz, rows.of(x), w.to(Write::Add, gradient));
        }
    });
}
