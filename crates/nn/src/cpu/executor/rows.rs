//! Operations on rows.

use std::ops::Range;

use super::super::buffer::Buffer;
use super::super::lists::Lists;
use super::super::simd;
use super::super::team::Shared;
use super::super::weights::Weights;
use super::{CpuExecutor, part, part_mut};
use crate::executor::{HeadRows, Rotation, RowOps, Rows};
use crate::families::Activation;
use crate::layout::Span;

impl RowOps for CpuExecutor {
    fn gather(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
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

    fn take_row(&mut self, width: usize, row: usize, x: &Buffer, y: &mut Buffer) {
        y[..width].copy_from_slice(&x[row * width..][..width]);
    }

    fn scatter_add(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
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

    fn scatter(&mut self, width: usize, lists: &Lists, x: &Buffer, count: usize, y: &mut Buffer) {
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

    fn zero(&mut self, len: usize, y: &mut Buffer) {
        let y = Shared::new(&mut y[..len]);
        // SAFETY: ranges of a split are apart.
        self.rows(len, 1, |own| unsafe { y.part(own) }.fill(0.0));
    }

    fn add(&mut self, len: usize, x: &Buffer, y: &mut Buffer) {
        let y = Shared::new(&mut y[..len]);
        // SAFETY: ranges of a split are apart.
        self.rows(len, 1, |own| simd::add(&x[own.clone()], unsafe { y.part(own) }));
    }

    fn keep_rows(&mut self, width: usize, ranges: &[Range<usize>], x: &mut Buffer) {
        let mut to = 0;
        for range in ranges {
            x.copy_within(range.start * width..range.end * width, to);
            to += range.len() * width;
        }
    }

    fn embed(&mut self, weights: &Weights, table: Span, width: usize, lists: &Lists, x: &mut Buffer) {
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

    fn embed_backward(
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

    fn rotate(&mut self, rotation: Rotation, heads: HeadRows, lists: &Lists, rows: Rows, x: &mut Buffer) {
        let Rotation { theta, sign } = rotation;
        let positions = lists.positions(rows);
        let x = Shared::new(x);
        self.rows(heads.rows, heads.count * heads.size, |own| {
            for row in own {
                let (cos, sin) = self.rope.at(theta, positions[row] as usize);
                for head in 0..heads.count {
                    let at = row * heads.stride + heads.first + head * heads.size;
                    // SAFETY: ranges of a split are apart.
                    let (low, high) = unsafe { x.part(at..at + heads.size) }.split_at_mut(cos.len());
                    simd::rotate(low, high, cos, sin, sign);
                }
            }
        });
    }

    fn scale(&mut self, len: usize, factor: f32, y: &mut Buffer) {
        let y = Shared::new(&mut y[..len]);
        // SAFETY: ranges of a split are apart.
        self.rows(len, 1, |own| simd::scale(unsafe { y.part(own) }, factor));
    }

    fn gated(&mut self, kind: Activation, rows: usize, width: usize, gate_up: &Buffer, act: &mut Buffer) {
        let gated = match kind {
            Activation::Silu => simd::swiglu,
            Activation::GeluTanh => simd::geglu,
        };
        let act = Shared::new(act);
        self.rows(rows, 3 * width, |own| {
            // SAFETY: ranges of a split are apart.
            let act = unsafe { act.part(own.start * width..own.end * width) };
            let rows = gate_up[2 * width * own.start..].chunks_exact(2 * width);
            for (row, act) in rows.zip(act.chunks_exact_mut(width)) {
                gated(&row[..width], &row[width..], act);
            }
        });
    }

    fn gated_backward(
        &mut self,
        kind: Activation,
        rows: usize,
        width: usize,
        gate_up: &mut Buffer,
        dact: &mut Buffer,
    ) {
        let backward = match kind {
            Activation::Silu => simd::swiglu_backward,
            Activation::GeluTanh => simd::geglu_backward,
        };
        let (gate_up, dact) = (Shared::new(gate_up), Shared::new(dact));
        self.rows(rows, 3 * width, |own| {
            // SAFETY: ranges of a split are apart.
            let (gate_up, dact) = unsafe {
                let pairs = 2 * width * own.start..2 * width * own.end;
                (gate_up.part(pairs), dact.part(own.start * width..own.end * width))
            };
            for (row, dact) in gate_up.chunks_exact_mut(2 * width).zip(dact.chunks_exact_mut(width)) {
                let (gate, up) = row.split_at_mut(width);
                backward(gate, up, dact);
            }
        });
    }
}
