//! Logits and sampling.

use std::sync::Mutex;

use super::super::buffer::Buffer;
use super::super::decoding::Decoding;
use super::super::product::{Into, View, product_with_panels};
use super::super::sampler;
use super::{CpuExecutor, Scratch, rows_at_a_time};
use crate::executor::Head;
use crate::sampling::Sampling;

impl CpuExecutor {
    pub(super) fn sample(
        &mut self,
        weights: &[f32],
        head: Head,
        sampling: &Sampling,
        rows: usize,
        x: &Buffer,
        decoding: &mut Decoding,
    ) {
        // Rows at a time such that the logits of a large vocabulary stay small.
        let chunk = rows_at_a_time(head.vocabulary);
        let mut logits = std::mem::take(&mut self.logits);
        let (v, d) = (head.vocabulary, head.width);
        logits.resize(chunk.min(rows.max(1)) * v, 0.0);
        let Decoding { draws, drawn: all, failed: failure, .. } = decoding;
        all.clear();
        for first in (0..rows).step_by(chunk) {
            let m = chunk.min(rows - first);
            if let Some(packed) = &self.packed {
                let panels = packed.at(head.weight.offset);
                let x = &x[first * d..];
                let (team, products) = (Some(&self.team), self.products);
                let (into, to) = (Into::Replace, View::rows(0, v));
                product_with_panels(team, products, m, v, d, x, panels, into, &mut logits, to);
            } else {
                let (x_view, w) = (View::rows(first * d, d), View::rows(head.weight.offset, d).transposed());
                let to = View::rows(0, v);
                self.product(m, v, d, x, x_view, weights, w, Into::Replace, &mut logits, to);
            }
            let failed = Mutex::new(None);
            let at = |row: usize| draws.partition_point(|draw| draw.row < first + row);
            let parts = Mutex::new(0);
            self.team.split(m, 1, 8 * m * v, |part, own| {
                let scratch = &mut *self.scratch(part);
                scratch.drawn.clear();
                for row in own {
                    let (logits, draws) = (&logits[row * v..][..v], &draws[at(row)..at(row + 1)]);
                    let Scratch { drawn, sampler, .. } = scratch;
                    if let Err(error) = sampler::draw(logits, first + row, sampling, draws, drawn, sampler) {
                        failed.lock().expect("no panic").get_or_insert(error);
                        break;
                    }
                }
                *parts.lock().expect("no panic") += 1;
            });
            for part in 0..parts.into_inner().expect("no panic") {
                let drawn = std::mem::take(&mut self.scratch(part).drawn);
                all.extend_from_slice(&drawn);
                self.scratch(part).drawn = drawn;
            }
            *failure = failed.into_inner().expect("no panic");
            if failure.is_some() {
                break;
            }
        }
        self.logits = logits;
    }
}
