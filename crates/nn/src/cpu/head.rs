//! The vocabulary head: log-probabilities, entropies and their derivatives, tile by tile.
//!
//! Logits are never held for a whole batch: rows are cut into chunks and the vocabulary into tiles, the sums of softmax and entropy run over the
//! tiles, and the backward pass computes each tile's logits a second time. A weight is read once per chunk of rows.

use super::product::{Into, View, product};
use super::simd;
use crate::error::Error;
use crate::ops::Head;
use crate::segments::Pick;

/// Rows per chunk.
const ROWS: usize = 256;
/// Tokens per tile.
const TILE: usize = 2048;

/// Numbers in a tile of logits.
pub(crate) const SCRATCH: usize = ROWS * TILE;

/// Tile scratch of one thread.
#[derive(Default)]
pub(crate) struct Scratch {
    logits: Vec<f32>,
    coefficients: Vec<[f32; 2]>,
}

impl Scratch {
    fn tile(&mut self) -> &mut [f32] {
        self.logits.resize(SCRATCH, 0.0);
        &mut self.logits
    }
}

/// Visits tiles of logits: (first row, rows, first token, logits `[rows, tokens]`, tokens).
fn tiles(
    weight: &[f32],
    head: Head,
    rows: usize,
    x: &[f32],
    logits: &mut [f32],
    mut visit: impl FnMut(usize, usize, usize, &mut [f32], usize),
) {
    let d = head.width;
    for row in (0..rows).step_by(ROWS) {
        let m = ROWS.min(rows - row);
        for token in (0..head.vocabulary).step_by(TILE) {
            let n = TILE.min(head.vocabulary - token);
            let w = View::rows(token * d, d).transposed();
            product(m, n, d, x, View::rows(row * d, d), weight, w, Into::Replace, logits, View::rows(0, n));
            visit(row, m, token, &mut logits[..m * n], n);
        }
    }
}

/// Fills `logp` and `entropy` per pick; `saved` gets (log Σ exp, entropy) per row.
pub(crate) fn forward(
    weight: &[f32],
    head: Head,
    temperature: f32,
    rows: usize,
    x: &[f32],
    picks: &[Pick],
    saved: &mut [f32],
    logp: &mut [f32],
    entropy: &mut [f32],
    scratch: &mut Scratch,
) -> Result<(), Error> {
    let factor = 1.0 / temperature;
    // Per row while tiles pass: maximum, Σ exp, Σ exp·z.
    let mut state = vec![[f32::NEG_INFINITY, 0.0, 0.0]; rows];
    tiles(weight, head, rows, x, scratch.tile(), |first, m, token, logits, n| {
        for (i, row) in logits.chunks_exact(n).enumerate() {
            let [max, sum, weighted] = &mut state[first + i];
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
        let from = picks.partition_point(|pick| (pick.slot as usize) < first);
        for (index, pick) in picks.iter().enumerate().skip(from) {
            let row = pick.slot as usize;
            if row >= first + m {
                break;
            }
            if let Some(column) = (pick.token as usize).checked_sub(token).filter(|&column| column < n) {
                logp[index] = logits[(row - first) * n + column] * factor;
            }
        }
    });
    for (row, [max, sum, weighted]) in state.into_iter().enumerate() {
        let lse = max + sum.ln();
        if !lse.is_finite() {
            return Err(non_finite(lse, row));
        }
        saved[2 * row] = lse;
        saved[2 * row + 1] = (sum.ln() - weighted / sum).max(0.0);
    }
    for (index, pick) in picks.iter().enumerate() {
        let row = pick.slot as usize;
        logp[index] = (logp[index] - saved[2 * row]).min(0.0);
        entropy[index] = saved[2 * row + 1];
        if !logp[index].is_finite() {
            return Err(non_finite(logp[index], row));
        }
    }
    Ok(())
}

/// The error of a row whose softmax isn't one.
pub(crate) fn non_finite(found: f32, row: usize) -> Error {
    Error::NonFinite {
        what: format!("log-probabilities of predicting row {row}"),
        found,
        remedy: "the weights have diverged or are damaged: go back to an earlier checkpoint, and lower the learning rate",
    }
}

/// Replaces `dx` and adds to the weight's gradient, where it has one.
pub(crate) fn backward(
    weight: &[f32],
    mut gradient: Option<&mut [f32]>,
    head: Head,
    temperature: f32,
    rows: usize,
    x: &[f32],
    picks: &[Pick],
    saved: &[f32],
    dlogp: &[f32],
    dentropy: &[f32],
    dx: &mut [f32],
    scratch: &mut Scratch,
) {
    let d = head.width;
    let factor = 1.0 / temperature;
    let mut coefficients = std::mem::take(&mut scratch.coefficients);
    coefficients.clear();
    coefficients.resize(rows, [0.0; 2]);
    for (index, pick) in picks.iter().enumerate() {
        let [a, b] = &mut coefficients[pick.slot as usize];
        *a += dlogp[index];
        *b += dentropy[index];
    }
    dx[..rows * d].fill(0.0);
    tiles(weight, head, rows, x, scratch.tile(), |first, m, token, logits, n| {
        for (i, row) in logits.chunks_exact_mut(n).enumerate() {
            let [a, b] = coefficients[first + i];
            simd::logit_backward(row, factor, saved[2 * (first + i)], saved[2 * (first + i) + 1], a, b);
        }
        let from = picks.partition_point(|pick| (pick.slot as usize) < first);
        for (index, pick) in picks.iter().enumerate().skip(from) {
            let row = pick.slot as usize;
            if row >= first + m {
                break;
            }
            if let Some(column) = (pick.token as usize).checked_sub(token).filter(|&column| column < n) {
                logits[(row - first) * n + column] += dlogp[index] * factor;
            }
        }
        let dz = View::rows(0, n);
        let w = View::rows(token * d, d);
        let rows = View::rows(first * d, d);
        product(m, d, n, logits, dz, weight, w, Into::Add, dx, rows);
        if let Some(gradient) = &mut gradient {
            product(n, d, m, logits, dz.transposed(), x, rows, Into::Add, gradient, w);
        }
    });
    scratch.coefficients = coefficients;
}
