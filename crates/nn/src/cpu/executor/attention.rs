//! Attention of a pass and of a decoding step.

use super::super::attention::{self, Keys};
use super::super::buffer::Buffer;
use super::super::decoding::Decoding;
use super::super::lists::Lists;
use super::super::simd;
use super::super::team::Shared;
use super::{Cache, CpuExecutor, part};
use crate::executor::{HeadNorms, Heads, Rows};
use crate::layout::Span;

/// Attention's plan, of a pass or of a decoding step.
#[derive(Clone, Copy)]
struct Plan<'a> {
    queries: usize,
    /// The row of each query, if a piece is causal.
    rows: &'a [u32],
    pieces: &'a [crate::segments::Piece],
}

impl CpuExecutor {
    /// Attention of queries over keys; each thread has its own queries.
    fn attend(
        &self,
        heads: Heads,
        plan: Plan<'_>,
        q: &[f32],
        keys: Keys<'_>,
        out: &mut [f32],
        lse: &mut [f32],
    ) {
        let (width, h) = (heads.query_width(), heads.queries);
        let work = plan.queries * width * 64;
        let parts = self.team.size().min(work / (1 << 15)).max(1);
        let parts = attention::balanced(plan.pieces, plan.queries, parts, false);
        let (out, lse) = (Shared::new(out), Shared::new(lse));
        self.team.run(parts.len(), &|part| {
            let own = parts[part].clone();
            // SAFETY: each query is one thread's.
            let (out, lse) = unsafe {
                (out.part(own.start * width..own.end * width), lse.part(own.start * h..own.end * h))
            };
            let scratch = &mut self.scratch(part).attention;
            attention::forward(heads, own, plan.rows, plan.pieces, q, keys, out, lse, scratch);
        });
    }

    pub(super) fn attention(
        &mut self,
        heads: Heads,
        lists: &Lists,
        rows: Rows,
        q: &Buffer,
        kv: &Buffer,
        out: &mut Buffer,
        lse: &mut Buffer,
    ) {
        let keys = Keys { data: kv, stride: heads.key_width(), values: heads.keys * heads.size };
        let plan = lists.plan(rows);
        let plan = Plan { queries: plan.rows.len(), rows: &plan.rows, pieces: &plan.pieces };
        self.attend(heads, plan, q, keys, out, lse);
    }

    pub(super) fn attention_backward(
        &mut self,
        heads: Heads,
        lists: &Lists,
        rows: Rows,
        keys: usize,
        q: &Buffer,
        kv: &Buffer,
        out: &Buffer,
        lse: &Buffer,
        dout: &Buffer,
        dq: &mut Buffer,
        dkv: &mut Buffer,
    ) {
        let plan = lists.plan(rows);
        let (queries, width, stride) = (plan.rows.len(), heads.query_width(), heads.key_width());
        let mut delta = std::mem::take(&mut self.delta);
        delta.reserve(queries * heads.queries);
        let shared = Shared::new(&mut delta);
        self.rows(queries, width, |own| {
            let at = own.start * width..own.end * width;
            // SAFETY: ranges of a split are apart.
            let delta = unsafe { shared.part(own.start * heads.queries..own.end * heads.queries) };
            attention::deltas(heads, &out[at.clone()], &dout[at], delta);
        });
        let source = Keys { data: kv, stride, values: heads.keys * heads.size };
        let of = attention::Backward { heads, plan, q, keys: source, lse, delta: &delta, dout };
        if self.team.size() == 1 {
            let scratch = &mut self.scratch(0).attention;
            attention::backward(&of, 0..queries, 0..keys, Some(dq), Some(dkv), scratch);
        } else {
            // The scores are computed twice, so that each thread has the queries, then the keys, whose derivatives it sums.
            let parts = attention::balanced(&plan.pieces, queries, self.team.size(), false);
            let shared = Shared::new(dq);
            self.team.run(parts.len(), &|part| {
                let own = parts[part].clone();
                // SAFETY: each query is one thread's.
                let dq = unsafe { shared.part(own.start * width..own.end * width) };
                let scratch = &mut self.scratch(part).attention;
                attention::backward(&of, own, 0..keys, Some(dq), None, scratch);
            });
            let parts = attention::balanced(&plan.pieces, keys, self.team.size(), true);
            let shared = Shared::new(dkv);
            self.team.run(parts.len(), &|part| {
                let own = parts[part].clone();
                // SAFETY: each key is one thread's.
                let dkv = unsafe { shared.part(own.start * stride..own.end * stride) };
                let scratch = &mut self.scratch(part).attention;
                attention::backward(&of, 0..queries, own, None, Some(dkv), scratch);
            });
        }
        self.delta = delta;
    }

    pub(super) fn step_attention(
        &mut self,
        weights: &[f32],
        norms: &HeadNorms,
        heads: Heads,
        decoding: &Decoding,
        cache: &mut Cache,
        layer: usize,
        qkv: &Buffer,
        out: &mut Buffer,
    ) {
        let (width, stride, size) = (heads.query_width(), heads.key_width(), heads.size);
        let Decoding { step, lists, pieces, .. } = decoding;
        let mut q = std::mem::take(&mut self.queries);
        q.reserve(step.rows() * width);
        let (queries, keys) = (Shared::new(&mut q), Shared::new(&mut cache.layers[layer]));
        self.rows(step.rows(), width + stride, |own| {
            for row in own {
                let at = lists.slots[row] as usize * stride;
                // SAFETY: ranges of a split are apart, and each slot is one row's.
                let (q, kv) =
                    unsafe { (queries.part(row * width..(row + 1) * width), keys.part(at..at + stride)) };
                let (from_q, from_kv) = qkv[row * (width + stride)..][..width + stride].split_at(width);
                let (cos, sin) = self.rope.at(step.positions[row] as usize);
                let heads_of = |from: &[f32], to: &mut [f32], norm: Option<Span>| {
                    for (from, to) in from.chunks_exact(size).zip(to.chunks_exact_mut(size)) {
                        match norm {
                            Some(norm) => _ = simd::rms_norm(from, part(weights, norm), norms.eps, to),
                            None => to.copy_from_slice(from),
                        }
                        let (low, high) = to.split_at_mut(size / 2);
                        simd::rotate(low, high, cos, sin, 1.0);
                    }
                };
                heads_of(from_q, q, norms.q);
                let (k, v) = kv.split_at_mut(stride / 2);
                heads_of(&from_kv[..stride / 2], k, norms.k);
                v.copy_from_slice(&from_kv[stride / 2..]);
            }
        });
        let keys = Keys { data: &cache.layers[layer], stride, values: stride / 2 };
        let mut lse = std::mem::take(&mut self.lse);
        lse.reserve(step.rows() * heads.queries);
        self.attend(heads, Plan { queries: step.rows(), rows: &[], pieces }, &q, keys, out, &mut lse);
        (self.lse, self.queries) = (lse, q);
    }
}
