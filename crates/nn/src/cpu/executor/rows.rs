//! Row operations: copies, gathers, the embedding.

use super::super::buffer::Buffer;
use super::super::lists::Lists;
use super::super::simd;
use super::super::team::Shared;
use super::{CpuExecutor, part, part_mut};
use crate::layout::Span;

impl CpuExecutor {
    pub(super) fn gather(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
        let rows = &lists.predicting.rows;
        let y = Shared::new(y);
        self.rows(rows.len(), width, |own| {
            // SAFETY: as above.
            let y = unsafe { y.part(own.start * width..own.end * width) };
            for (y, &row) in y.chunks_exact_mut(width).zip(&rows[own]) {
                y.copy_from_slice(&x[row as usize * width..][..width]);
            }
        });
    }

    pub(super) fn scatter_add(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
        let rows = &lists.predicting.rows;
        let y = Shared::new(y);
        self.rows(rows.len(), width, |own| {
            for (x, &row) in x[own.start * width..].chunks_exact(width).zip(&rows[own]) {
                let at = row as usize * width;
                // SAFETY: predicting rows are different rows.
                simd::add(x, unsafe { y.part(at..at + width) });
            }
        });
    }

    pub(super) fn scatter(&mut self, width: usize, lists: &Lists, x: &Buffer, count: usize, y: &mut Buffer) {
        let rows = &lists.predicting.rows;
        let y = Shared::new(y);
        self.rows(count, width, |own| {
            // SAFETY: ranges of a split are apart.
            let y = unsafe { y.part(own.start * width..own.end * width) };
            y.fill(0.0);
            let first = rows.partition_point(|&row| (row as usize) < own.start);
            for (x, &row) in x[first * width..].chunks_exact(width).zip(&rows[first..]) {
                if row as usize >= own.end {
                    break;
                }
                y[(row as usize - own.start) * width..][..width].copy_from_slice(x);
            }
        });
    }

    pub(super) fn embed(
        &mut self,
        weights: &[f32],
        table: Span,
        width: usize,
        lists: &Lists,
        x: &mut Buffer,
    ) {
        let table = part(weights, table);
        let x = Shared::new(x);
        self.rows(lists.tokens.len(), width, |own| {
            // SAFETY: ranges of a split are apart.
            let x = unsafe { x.part(own.start * width..own.end * width) };
            for (x, &token) in x.chunks_exact_mut(width).zip(&lists.tokens[own]) {
                x.copy_from_slice(&table[token as usize * width..][..width]);
            }
        });
    }

    pub(super) fn embed_backward(
        &mut self,
        gradient: &mut [f32],
        table: Span,
        width: usize,
        lists: &Lists,
        dx: &Buffer,
    ) {
        let gradient = Shared::new(part_mut(gradient, table));
        self.columns(lists.tokens.len(), width, |own| {
            for (dx, &token) in dx.chunks_exact(width).zip(&lists.tokens) {
                let at = token as usize * width;
                // SAFETY: each column is one thread's.
                simd::add(&dx[own.clone()], unsafe { gradient.part(at + own.start..at + own.end) });
            }
        });
    }
}
