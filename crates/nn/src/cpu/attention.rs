//! Attention of queries over pieces of keys, in blocks, without ever holding a row of all scores.
//!
//! Forward keeps for each query and head the running maximum and sum of its scores (two numbers that end as log Σ exp); backward rebuilds the
//! probabilities from that.

use super::product::{View, product};
use super::simd;
use crate::ops::Heads;
use crate::segments::{Piece, Sight};

/// Queries per block.
const QUERIES: usize = 64;
/// Keys per block.
const KEYS: usize = 256;

/// Block scratch of one thread.
#[derive(Default)]
pub(crate) struct Scratch {
    scores: Vec<f32>,
    products: Vec<f32>,
    sums: Vec<f32>,
    delta: Vec<f32>,
}

/// Where keys lie: rows of `stride` numbers, keys from 0, values from `values`.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) stride: usize,
    pub(crate) values: usize,
}

/// The blocks of one piece: queries, keys.
fn blocks(
    piece: &Piece,
    rows: &[u32],
    mut visit: impl FnMut(std::ops::Range<usize>, std::ops::Range<usize>),
) {
    let mut first = piece.queries.start;
    while first < piece.queries.end {
        let last = (first + QUERIES).min(piece.queries.end);
        let end = if piece.causal { rows[last - 1] as usize + 1 } else { piece.keys.end };
        let mut key = piece.keys.start;
        while key < end {
            let stop = (key + KEYS).min(end);
            visit(first..last, key..stop);
            key = stop;
        }
        first = last;
    }
}

/// How many keys of `keys` query `row` sees.
fn visible(piece: &Piece, row: usize, keys: &std::ops::Range<usize>) -> usize {
    if piece.causal { (row + 1).saturating_sub(keys.start).min(keys.len()) } else { keys.len() }
}

/// `out` and `lse` of all queries. `rows` is the row of each query (unused where no piece is causal).
pub(crate) fn forward(
    heads: Heads,
    queries: usize,
    rows: &[u32],
    pieces: &[Piece],
    q: &[f32],
    keys: Keys<'_>,
    out: &mut [f32],
    lse: &mut [f32],
    scratch: &mut Scratch,
) {
    let (h, e, width) = (heads.queries, heads.size, heads.query_width());
    let group = h / heads.keys;
    let factor = 1.0 / (e as f32).sqrt();
    out[..queries * width].fill(0.0);
    // `lse` holds the maximum until the end.
    lse[..queries * h].fill(f32::NEG_INFINITY);
    scratch.sums.clear();
    scratch.sums.resize(queries * h, 0.0);
    scratch.scores.resize(QUERIES * KEYS, 0.0);
    let (scores, sums) = (&mut scratch.scores, &mut scratch.sums);
    for piece in pieces {
        for head in 0..h {
            let column = head / group * e;
            blocks(piece, rows, |block, span| {
                let (m, n) = (block.len(), span.len());
                let queries = View::rows(block.start * width + head * e, width);
                let k = View::rows(span.start * keys.stride + column, keys.stride);
                product(m, n, e, q, queries, keys.data, k.transposed(), 0.0, 1.0, scores, View::rows(0, n));
                for (i, query) in block.clone().enumerate() {
                    let row = if piece.causal { rows[query] as usize } else { 0 };
                    let seen = visible(piece, row, &span);
                    let (visible, hidden) = scores[i * n..][..n].split_at_mut(seen);
                    hidden.fill(0.0);
                    if seen == 0 {
                        continue;
                    }
                    let state = query * h + head;
                    let max = (simd::max(visible) * factor).max(lse[state]);
                    let sum = simd::exp_sum(visible, factor, max);
                    let keep = (lse[state] - max).exp();
                    if keep != 1.0 {
                        simd::scale(&mut out[query * width + head * e..][..e], keep);
                    }
                    sums[state] = sums[state] * keep + sum;
                    lse[state] = max;
                }
                let v = View::rows(span.start * keys.stride + keys.values + column, keys.stride);
                product(m, e, n, scores, View::rows(0, n), keys.data, v, 1.0, 1.0, out, queries);
            });
        }
    }
    for query in 0..queries {
        for head in 0..h {
            let state = query * h + head;
            simd::scale(&mut out[query * width + head * e..][..e], 1.0 / sums[state]);
            lse[state] += sums[state].ln();
        }
    }
}

/// `dq` and `dkv`, both replaced; `dkv` has the layout of the keys' rows.
pub(crate) fn backward(
    heads: Heads,
    key_rows: usize,
    sight: &Sight,
    q: &[f32],
    keys: Keys<'_>,
    out: &[f32],
    lse: &[f32],
    dout: &[f32],
    dq: &mut [f32],
    dkv: &mut [f32],
    scratch: &mut Scratch,
) {
    let (h, e, width) = (heads.queries, heads.size, heads.query_width());
    let group = h / heads.keys;
    let factor = 1.0 / (e as f32).sqrt();
    let queries = sight.rows.len();
    dq[..queries * width].fill(0.0);
    dkv[..key_rows * keys.stride].fill(0.0);
    scratch.delta.clear();
    scratch.delta.extend((0..queries * h).map(|state| {
        let at = state / h * width + state % h * e;
        simd::dot(&out[at..at + e], &dout[at..at + e])
    }));
    scratch.scores.resize(QUERIES * KEYS, 0.0);
    scratch.products.resize(QUERIES * KEYS, 0.0);
    let (scores, products, delta) = (&mut scratch.scores, &mut scratch.products, &scratch.delta);
    for piece in &sight.pieces {
        for head in 0..h {
            let column = head / group * e;
            blocks(piece, &sight.rows, |block, span| {
                let (m, n) = (block.len(), span.len());
                let queries = View::rows(block.start * width + head * e, width);
                let k = View::rows(span.start * keys.stride + column, keys.stride);
                let v = View { offset: k.offset + keys.values, ..k };
                let s = View::rows(0, n);
                product(m, n, e, q, queries, keys.data, k.transposed(), 0.0, 1.0, scores, s);
                product(m, n, e, dout, queries, keys.data, v.transposed(), 0.0, 1.0, products, s);
                for (i, query) in block.clone().enumerate() {
                    let seen = visible(piece, sight.rows[query] as usize, &span);
                    let (p, hidden) = scores[i * n..][..n].split_at_mut(seen);
                    hidden.fill(0.0);
                    let (dp, hidden) = products[i * n..][..n].split_at_mut(seen);
                    hidden.fill(0.0);
                    let state = query * h + head;
                    simd::score_backward(p, dp, factor, lse[state], delta[state]);
                }
                product(n, e, m, scores, s.transposed(), dout, queries, 1.0, 1.0, dkv, v);
                product(m, e, n, products, s, keys.data, k, 1.0, 1.0, dq, queries);
                product(n, e, m, products, s.transposed(), q, queries, 1.0, 1.0, dkv, k);
            });
        }
    }
}
