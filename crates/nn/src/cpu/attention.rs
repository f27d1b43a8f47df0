//! Attention of queries over pieces of keys, in blocks, without ever holding a row of all scores.
//!
//! Forward keeps for each query and head the running maximum and sum of its scores (two numbers that end as log Σ exp); backward rebuilds the
//! probabilities from that.

use super::narrow;
use super::product::{Into, View, product};
use super::simd;
use crate::ops::Heads;
use crate::segments::{Piece, Sight};
use std::ops::Range;

/// Queries per block.
const QUERIES: usize = 32;
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

/// Query rows that meet the same keys in one product.
struct Block {
    /// Row `i` starts at `first + i * stride` of the queries, and has its two numbers at `state + i * state_stride`.
    first: usize,
    stride: usize,
    state: usize,
    state_stride: usize,
    count: usize,
    /// Column of the key head.
    column: usize,
    keys: Range<usize>,
    /// The query of row `i` is `query + i * query_stride`.
    query: usize,
    query_stride: usize,
}

/// The blocks of one piece. Many queries are taken head by head; a single one with all heads of a key head together.
fn blocks(heads: Heads, piece: &Piece, rows: &[u32], mut visit: impl FnMut(Block)) {
    let (h, e, width) = (heads.queries, heads.size, heads.query_width());
    let group = h / heads.keys;
    let single = piece.queries.len() == 1;
    let mut query = piece.queries.start;
    while query < piece.queries.end {
        let last = (query + QUERIES).min(piece.queries.end);
        let end = if piece.causal { rows[last - 1] as usize + 1 } else { piece.keys.end };
        for head in (0..h).step_by(if single { group } else { 1 }) {
            let (first, state, column) = (query * width + head * e, query * h + head, head / group * e);
            let (stride, state_stride, count, query_stride) =
                if single { (e, 1, group, 0) } else { (width, h, last - query, 1) };
            let mut key = piece.keys.start;
            while key < end {
                let keys = key..(key + KEYS).min(end);
                key = keys.end;
                visit(Block { first, stride, state, state_stride, count, column, keys, query, query_stride });
            }
        }
        query = last;
    }
}

impl Block {
    /// How many of the block's keys row `i` sees.
    fn visible(&self, piece: &Piece, rows: &[u32], i: usize) -> usize {
        if piece.causal {
            let row = rows[self.query + i * self.query_stride] as usize;
            (row + 1).saturating_sub(self.keys.start).min(self.keys.len())
        } else {
            self.keys.len()
        }
    }
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
    scratch.scores.resize(QUERIES.max(group) * KEYS, 0.0);
    let (scores, sums) = (&mut scratch.scores, &mut scratch.sums);
    for (index, piece) in pieces.iter().enumerate() {
        let next = pieces.get(index + 1).filter(|_| piece.queries.len() == 1);
        blocks(heads, piece, rows, |block| {
            if let Some(next) = next {
                // Decoding reads each sequence's keys once per step, from memory: the next one's come while this one's are used, a share with each key head.
                let (head, len) = (block.column / e, next.keys.len().min(KEYS));
                let share = next.keys.start + len * head / heads.keys
                    ..next.keys.start + len * (head + 1) / heads.keys;
                narrow::fetch(&keys.data[share.start * keys.stride..share.end * keys.stride]);
            }
            let (m, n) = (block.count, block.keys.len());
            let queries = View::rows(block.first, block.stride);
            let k = View::rows(block.keys.start * keys.stride + block.column, keys.stride);
            let v = View { offset: k.offset + keys.values, ..k };
            product(m, n, e, q, queries, keys.data, k.transposed(), Into::Replace, scores, View::rows(0, n));
            for i in 0..m {
                let seen = block.visible(piece, rows, i);
                let (visible, hidden) = scores[i * n..][..n].split_at_mut(seen);
                hidden.fill(0.0);
                if seen == 0 {
                    continue;
                }
                let state = block.state + i * block.state_stride;
                let max = (simd::max(visible) * factor).max(lse[state]);
                let sum = simd::exp_sum(visible, factor, max);
                let keep = (lse[state] - max).exp();
                if keep != 1.0 {
                    simd::scale(&mut out[block.first + i * block.stride..][..e], keep);
                }
                sums[state] = sums[state] * keep + sum;
                lse[state] = max;
            }
            product(m, e, n, scores, View::rows(0, n), keys.data, v, Into::Add, out, queries);
        });
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
    scratch.scores.resize(QUERIES.max(group) * KEYS, 0.0);
    scratch.products.resize(QUERIES.max(group) * KEYS, 0.0);
    let (scores, products, delta) = (&mut scratch.scores, &mut scratch.products, &scratch.delta);
    for piece in &sight.pieces {
        blocks(heads, piece, &sight.rows, |block| {
            let (m, n) = (block.count, block.keys.len());
            let queries = View::rows(block.first, block.stride);
            let k = View::rows(block.keys.start * keys.stride + block.column, keys.stride);
            let v = View { offset: k.offset + keys.values, ..k };
            let s = View::rows(0, n);
            product(m, n, e, q, queries, keys.data, k.transposed(), Into::Replace, scores, s);
            product(m, n, e, dout, queries, keys.data, v.transposed(), Into::Replace, products, s);
            for i in 0..m {
                let seen = block.visible(piece, &sight.rows, i);
                let (p, hidden) = scores[i * n..][..n].split_at_mut(seen);
                hidden.fill(0.0);
                let (dp, hidden) = products[i * n..][..n].split_at_mut(seen);
                hidden.fill(0.0);
                let state = block.state + i * block.state_stride;
                simd::score_backward(p, dp, factor, lse[state], delta[state]);
            }
            product(n, e, m, scores, s.transposed(), dout, queries, Into::Add, dkv, v);
            product(m, e, n, products, s, keys.data, k, Into::Add, dq, queries);
            product(n, e, m, products, s.transposed(), q, queries, Into::Add, dkv, k);
        });
    }
}
