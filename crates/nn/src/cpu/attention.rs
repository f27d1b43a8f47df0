//! Attention of queries to pieces of keys, computed in blocks without storing whole rows of scores.
//!
//! The forward pass updates the running maximum and sum of the scores per query and head, and finally stores the log-sum-exp, from which the
//! backward pass recomputes the probabilities.

use super::microkernel;
use super::product::{View, product};
use super::simd;
use crate::executor::Heads;
use crate::layout::Write;
use crate::segments::Piece;
use std::ops::Range;

/// Number of queries per block.
const QUERIES: usize = 32;
/// Number of keys per block.
const KEYS: usize = 256;

#[derive(Default)]
pub(crate) struct Scratch {
    scores: Vec<f32>,
    products: Vec<f32>,
    sums: Vec<f32>,
}

/// Rows of `stride` values: keys at offset 0, and values at offset `values`.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) stride: usize,
    pub(crate) values: usize,
}

/// Query rows that one product multiplies by the same keys.
struct Block {
    /// Row `i` starts at `first + i * stride` of the queries; its statistics are at `state + i * state_stride`.
    first: usize,
    stride: usize,
    state: usize,
    state_stride: usize,
    count: usize,
    /// First column of the key head.
    column: usize,
    keys: Range<usize>,
    /// Row `i` is a head of the query with index `query + i * query_stride`.
    query: usize,
    query_stride: usize,
}

/// Assignment of keys to queries. In each piece, a query sees the keys up to the query's position, or only the latest `window` of these keys.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) queries: usize,
    /// Position of each query.
    pub(crate) positions: &'a [u32],
    pub(crate) pieces: &'a [Piece],
    pub(crate) window: Option<usize>,
}

impl Plan<'_> {
    /// Returns the keys of a piece that a query sees.
    fn seen(&self, piece: &Piece, query: usize) -> Range<usize> {
        let (end, first) = (self.positions[query] as usize + 1, piece.position as usize);
        let key = |position: usize| piece.keys.start + position.saturating_sub(first).min(piece.keys.len());
        key(self.window.map_or(0, |window| end.saturating_sub(window)))..key(end)
    }
}

/// Calls `visit` for each block of a piece: the products of up to [`QUERIES`] query rows and up to [`KEYS`] keys. The rows are one head of several queries
/// or, if the piece has a single query, all of its heads that share a key head.
fn blocks(heads: Heads, plan: Plan<'_>, piece: &Piece, mut visit: impl FnMut(Block)) {
    let (h, e, width) = (heads.queries, heads.size, heads.query_width());
    let group = h / heads.keys;
    let single = piece.queries.len() == 1;
    let mut query = piece.queries.start;
    while query < piece.queries.end {
        let last = (query + QUERIES).min(piece.queries.end);
        let seen = |query| plan.seen(piece, query);
        let start = (query..last).map(|query| seen(query).start).min().unwrap_or(0);
        let end = (query..last).map(|query| seen(query).end).max().unwrap_or(0);
        for head in (0..h).step_by(if single { group } else { 1 }) {
            let (first, state, column) = (query * width + head * e, query * h + head, head / group * e);
            let (stride, state_stride, count, query_stride) =
                if single { (e, 1, group, 0) } else { (width, h, last - query, 1) };
            let mut key = start;
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
    /// Returns row `i` of a matrix with one column per key, restricted to the keys that the row's query sees. Sets the other columns to 0.
    fn visible<'a>(&self, plan: Plan<'_>, piece: &Piece, i: usize, numbers: &'a mut [f32]) -> &'a mut [f32] {
        let n = self.keys.len();
        let seen = plan.seen(piece, self.query + i * self.query_stride);
        let [from, to] = [seen.start, seen.end].map(|key| key.saturating_sub(self.keys.start).min(n));
        let row = &mut numbers[i * n..][..n];
        row[..from].fill(0.0);
        row[to..].fill(0.0);
        &mut row[from..to]
    }
}

/// Returns the part of a piece inside ranges of queries and keys, or `None` if it is empty.
fn clip(piece: &Piece, queries: &Range<usize>, keys: &Range<usize>) -> Option<Piece> {
    let both = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start)..a.end.min(b.end);
    let (queries, keys) = (both(&piece.queries, queries), both(&piece.keys, keys));
    let position = piece.position + (keys.start.saturating_sub(piece.keys.start)) as u32;
    (!queries.is_empty() && !keys.is_empty()).then_some(Piece { queries, keys, position, ..*piece })
}

/// Divides a plan's queries, or its keys if `by_keys`, into at most `parts` ranges with about equal work.
pub(crate) fn balanced(pieces: &[Piece], count: usize, parts: usize, by_keys: bool) -> Vec<Range<usize>> {
    if parts <= 1 || count <= 1 {
        return std::iter::once(0..count).collect();
    }
    // Work per query or key: first its changes at the ends of pieces, then their cumulative sum. Each query or key also has a small constant cost.
    let mut work = vec![0i64; count + 1];
    for piece in pieces {
        let (range, other) =
            if by_keys { (&piece.keys, &piece.queries) } else { (&piece.queries, &piece.keys) };
        work[range.start] += other.len() as i64;
        work[range.end] -= other.len() as i64;
    }
    let (mut level, mut total) = (0, 0);
    for work in &mut work[..count] {
        level += *work;
        total += level + 16;
        *work = total;
    }
    let at = |part: usize| {
        let share = total * part as i64 / parts as i64;
        if part == parts { count } else { work[..count].partition_point(|&before| before <= share) }
    };
    (0..parts).map(|part| at(part)..at(part + 1)).filter(|range| !range.is_empty()).collect()
}

/// Operands of attention for a range of queries.
pub(crate) struct Inputs<'a> {
    pub(crate) heads: Heads,
    pub(crate) query_range: Range<usize>,
    pub(crate) plan: Plan<'a>,
    pub(crate) q: &'a [f32],
    pub(crate) keys: Keys<'a>,
}

/// Computes `out` and `lse` for a range of queries. Both slices begin with the range's first row.
pub(crate) fn forward(
    Inputs { heads, query_range, plan, q, keys }: Inputs<'_>,
    out: &mut [f32],
    lse: &mut [f32],
    scratch: &mut Scratch,
) {
    let (h, e, width) = (heads.queries, heads.size, heads.query_width());
    let group = h / heads.keys;
    let factor = heads.scale;
    let (queries, out_base, state_base) =
        (query_range.len(), query_range.start * width, query_range.start * h);
    out[..queries * width].fill(0.0);
    // `lse` holds the running maximum until the end.
    lse[..queries * h].fill(f32::NEG_INFINITY);
    scratch.sums.clear();
    scratch.sums.resize(queries * h, 0.0);
    scratch.scores.resize(QUERIES.max(group) * KEYS, 0.0);
    let (scores, sums) = (&mut scratch.scores, &mut scratch.sums);
    for (index, piece) in plan.pieces.iter().enumerate() {
        let Some(piece) = &clip(piece, &query_range, &piece.keys) else { continue };
        let next = plan.pieces.get(index + 1).filter(|_| piece.queries.len() == 1);
        blocks(heads, plan, piece, |block| {
            if let Some(next) = next {
                // Decoding reads each sequence's keys from memory once per step. Prefetch a part of the next piece with each key head.
                let (head, len) = (block.column / e, next.keys.len().min(KEYS));
                let share = next.keys.start + len * head / heads.keys
                    ..next.keys.start + len * (head + 1) / heads.keys;
                microkernel::fetch(&keys.data[share.start * keys.stride..share.end * keys.stride]);
            }
            let (m, n) = (block.count, block.keys.len());
            let queries = View::rows(block.first, block.stride);
            let results = View { offset: block.first - out_base, ..queries };
            let k = View::rows(block.keys.start * keys.stride + block.column, keys.stride);
            let v = View { offset: k.offset + keys.values, ..k };
            product(
                [m, n, e],
                queries.of(q),
                k.transposed().of(keys.data),
                View::rows(0, n).to(Write::Replace, scores),
            );
            for i in 0..m {
                let visible = block.visible(plan, piece, i, scores);
                if visible.is_empty() {
                    continue;
                }
                let state = block.state + i * block.state_stride - state_base;
                let max = (simd::max(visible) * factor).max(lse[state]);
                let sum = simd::exp_sum(visible, factor, max);
                let keep = (lse[state] - max).exp();
                if keep != 1.0 {
                    simd::scale(&mut out[results.offset + i * block.stride..][..e], keep);
                }
                sums[state] = sums[state] * keep + sum;
                lse[state] = max;
            }
            product([m, e, n], View::rows(0, n).of(scores), v.of(keys.data), results.to(Write::Add, out));
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

pub(crate) struct Backward<'a> {
    pub(crate) heads: Heads,
    pub(crate) plan: Plan<'a>,
    pub(crate) q: &'a [f32],
    pub(crate) keys: Keys<'a>,
    pub(crate) lse: &'a [f32],
    /// `Σ out · dout` for each query and head, from [`deltas`].
    pub(crate) delta: &'a [f32],
    pub(crate) dout: &'a [f32],
}

/// Computes `Σ out · dout` for each head of a range of rows.
pub(crate) fn deltas(heads: Heads, out: &[f32], dout: &[f32], delta: &mut [f32]) {
    let e = heads.size;
    for ((out, dout), delta) in out.chunks_exact(e).zip(dout.chunks_exact(e)).zip(delta) {
        *delta = simd::dot(out, dout);
    }
}

/// Computes `dq` for a range of queries, and the contribution of these queries to `dkv` for a range of keys. `dq` and `dkv` begin with the first
/// row of the ranges. Both are replaced, and either may be absent.
pub(crate) fn backward(
    inputs: &Backward<'_>,
    query_range: Range<usize>,
    key_range: Range<usize>,
    mut dq: Option<&mut [f32]>,
    mut dkv: Option<&mut [f32]>,
    scratch: &mut Scratch,
) {
    let Backward { heads, plan, q, keys, lse, delta, dout } = *inputs;
    let (e, width) = (heads.size, heads.query_width());
    let group = heads.queries / heads.keys;
    let factor = heads.scale;
    if let Some(dq) = &mut dq {
        dq[..query_range.len() * width].fill(0.0);
    }
    if let Some(dkv) = &mut dkv {
        dkv[..key_range.len() * keys.stride].fill(0.0);
    }
    scratch.scores.resize(QUERIES.max(group) * KEYS, 0.0);
    scratch.products.resize(QUERIES.max(group) * KEYS, 0.0);
    let (scores, products) = (&mut scratch.scores, &mut scratch.products);
    for piece in plan.pieces {
        let Some(piece) = &clip(piece, &query_range, &key_range) else { continue };
        blocks(heads, plan, piece, |block| {
            let (m, n) = (block.count, block.keys.len());
            let queries = View::rows(block.first, block.stride);
            let k = View::rows(block.keys.start * keys.stride + block.column, keys.stride);
            let v = View { offset: k.offset + keys.values, ..k };
            let s = View::rows(0, n);
            product([m, n, e], queries.of(q), k.transposed().of(keys.data), s.to(Write::Replace, scores));
            product(
                [m, n, e],
                queries.of(dout),
                v.transposed().of(keys.data),
                s.to(Write::Replace, products),
            );
            for i in 0..m {
                let p = block.visible(plan, piece, i, scores);
                let dp = block.visible(plan, piece, i, products);
                let state = block.state + i * block.state_stride;
                simd::score_backward(p, dp, factor, lse[state], delta[state]);
            }
            if let Some(dkv) = &mut dkv {
                let before = key_range.start * keys.stride;
                let (dk, dv) =
                    (View { offset: k.offset - before, ..k }, View { offset: v.offset - before, ..v });
                product([n, e, m], s.transposed().of(scores), queries.of(dout), dv.to(Write::Add, dkv));
                product([n, e, m], s.transposed().of(products), queries.of(q), dk.to(Write::Add, dkv));
            }
            if let Some(dq) = &mut dq {
                let to = View { offset: block.first - query_range.start * width, ..queries };
                product([m, e, n], s.of(products), k.of(keys.data), to.to(Write::Add, dq));
            }
        });
    }
}
