//! Decoding steps: attention to the cache, and sampling.

use std::borrow::Cow;

use super::super::attention::{Keys, Plan};
use super::super::sampler;
use super::norms::weight_of;
use super::{
    Buffer, Cache, CpuExecutor, Decoding, Lists, Scratch, Shared, View, Weights, rows_at_a_time, simd,
};
use crate::error::Error;
use crate::executor::{DecodeChanges, DecodeOps, Head, StepAttention};
use crate::layout::Write;
use crate::sampling::{Draw, Drawn, Sampling};

impl DecodeOps for CpuExecutor {
    /// Always false: a step is complete when its submission returns, so the host can read its tokens before the next step.
    const RUNS_AHEAD: bool = false;

    fn begin_step(&mut self, changes: &DecodeChanges, decoding: &mut Decoding) {
        decoding.begin_step(changes);
    }

    fn step_rows(decoding: &Decoding) -> usize {
        decoding.step.rows()
    }

    fn step_lists(decoding: &Decoding) -> &Lists {
        &decoding.lists
    }

    fn step_attention(
        &mut self,
        attention: StepAttention<'_, Weights>,
        decoding: &Decoding,
        cache: &mut Cache,
        qkv: &Buffer,
        out: &mut Buffer,
    ) {
        let StepAttention { weights, heads, spec, layer, .. } = attention;
        let (width, stride, size) = (heads.query_width(), heads.key_width(), heads.size);
        let Decoding { step, lists, pieces, .. } = decoding;
        let [q_norm, k_norm] = [attention.q_norm, attention.k_norm]
            .map(|norm| norm.map(|norm| weight_of(weights, norm, attention.offset)));
        let v_norm = attention.v_norm.map(|zeros| weight_of(weights, zeros, 1.0));
        let computed = if spec.computes_keys() { stride } else { 0 };
        let mut q = std::mem::take(&mut self.queries);
        q.reserve(step.rows() * width);
        let keys = Shared::new(&mut cache.layers[layer]);
        self.rows(step.rows(), width + computed, [(&mut q, width)], |range, [q]| {
            for (row, q) in range.zip(q.chunks_exact_mut(width)) {
                let at = lists.slots[row] as usize * stride;
                // SAFETY: each slot belongs to one row.
                let kv = unsafe { keys.part(at..at + computed) };
                let (from_q, from_kv) = qkv[row * (width + computed)..][..width + computed].split_at(width);
                let angles = spec.rope.map(|theta| self.rope.at(theta, step.positions[row] as usize));
                let prepare = |from: &[f32], to: &mut [f32], norm: &Option<Cow<'_, [f32]>>, rotates: bool| {
                    for (from, to) in from.chunks_exact(size).zip(to.chunks_exact_mut(size)) {
                        match norm {
                            Some(norm) => _ = simd::rms_norm(from, norm, attention.eps, to),
                            None => to.copy_from_slice(from),
                        }
                        if let Some((cos, sin)) = angles.filter(|_| rotates) {
                            let (low, high) = to.split_at_mut(cos.len());
                            simd::rotate(low, high, cos, sin, 1.0);
                        }
                    }
                };
                prepare(from_q, q, &q_norm, true);
                let (k, v) = kv.split_at_mut(computed / 2);
                prepare(&from_kv[..computed / 2], k, &k_norm, true);
                prepare(&from_kv[computed / 2..], v, &v_norm, false);
            }
        });
        let keys = Keys { data: &cache.layers[layer], stride, values: stride / 2 };
        let mut lse = std::mem::take(&mut self.lse);
        lse.reserve(step.rows() * heads.queries);
        let (queries, positions, window) = (step.rows(), &step.positions, spec.window);
        self.attend(heads, Plan { queries, positions, pieces, window }, &q, keys, out, &mut lse);
        (self.lse, self.queries) = (lse, q);
    }

    fn upload_draws(&mut self, _: usize, draws: &[Draw], decoding: &mut Decoding) {
        decoding.upload_draws(draws);
    }

    fn sample(
        &mut self,
        weights: &Weights,
        head: Head,
        sampling: &Sampling,
        rows: usize,
        x: &Buffer,
        decoding: &mut Decoding,
    ) {
        // A few rows at a time, so that the logits of a large vocabulary take little memory.
        let chunk = rows_at_a_time(head.vocabulary);
        let mut logits = std::mem::take(&mut self.logits);
        let (v, d) = (head.vocabulary, head.width);
        logits.resize(chunk.min(rows.max(1)) * v, 0.0);
        let Decoding { draws, drawn: all, failed: failure, .. } = decoding;
        all.clear();
        *failure = None;
        for first in (0..rows).step_by(chunk) {
            let m = chunk.min(rows - first);
            let to = View::rows(0, v).to(Write::Replace, &mut logits);
            self.product_with_weight([m, v, d], &x[first * d..], weights, head.weight.offset, to);
            self.cap(head, [m, v, v], &mut logits);
            let at = |row: usize| draws.partition_point(|draw| draw.row < first + row);
            self.team.split(m, 1, 8 * m * v, |part, range| {
                let Scratch { drawn, sampler, failed, .. } = &mut *self.scratch(part);
                for row in range {
                    let (logits, draws) = (&logits[row * v..][..v], &draws[at(row)..at(row + 1)]);
                    if let Err(error) = sampler::draw(logits, first + row, sampling, draws, drawn, sampler) {
                        *failed = Some(error);
                        break;
                    }
                }
            });
            for part in 0..self.scratch.len() {
                let Scratch { drawn, failed, .. } = &mut *self.scratch(part);
                all.append(drawn);
                *failure = failure.take().or(failed.take());
            }
            if failure.is_some() {
                break;
            }
        }
        self.logits = logits;
    }

    fn end_step(&mut self, _: &mut Decoding) {}

    fn wait_for_tokens(&mut self, decoding: &mut Decoding, drawn: &mut Vec<Drawn>) -> Result<(), Error> {
        if let Some(error) = decoding.failed.take() {
            return Err(error);
        }
        drawn.clone_from(&decoding.drawn);
        Ok(())
    }
}
