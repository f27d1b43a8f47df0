//! Copies of rows, the embedding, rotary embedding, and the MLP's activation.

use std::ops::Range;

use super::{Buffer, CpuExecutor, Lists, Weights, part, part_mut, simd};
use crate::executor::{HeadRows, Rotation, RowOps, Strip, Subset};
use crate::families::Activation;
use crate::layout::Span;

impl RowOps for CpuExecutor {
    fn gather(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
        let rows = &lists.predicting.rows;
        self.rows(rows.len(), width, [(y, width)], |range, [y]| {
            for (y, &row) in y.chunks_exact_mut(width).zip(&rows[range]) {
                y.copy_from_slice(&x[row as usize * width..][..width]);
            }
        });
    }

    fn take_row(&mut self, width: usize, row: usize, x: &Buffer, y: &mut Buffer) {
        y[..width].copy_from_slice(&x[row * width..][..width]);
    }

    fn scatter_add(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
        let rows = &lists.predicting.rows;
        let count = rows.last().map_or(0, |&last| last as usize + 1);
        self.rows(count, width, [(y, width)], |range, [y]| {
            let [first, end] =
                [range.start, range.end].map(|row| rows.partition_point(|&r| (r as usize) < row));
            for (x, &row) in x[first * width..].chunks_exact(width).zip(&rows[first..end]) {
                simd::add(x, &mut y[(row as usize - range.start) * width..][..width]);
            }
        });
    }

    fn zero(&mut self, len: usize, y: &mut Buffer) {
        self.rows(len, 1, [(&mut y[..len], 1)], |_, [y]| y.fill(0.0));
    }

    fn add(&mut self, len: usize, x: &Buffer, y: &mut Buffer) {
        self.rows(len, 1, [(&mut y[..len], 1)], |range, [y]| simd::add(&x[range], y));
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
        self.rows(lists.tokens.len(), width, [(x, width)], |range, [x]| {
            for (x, &token) in x.chunks_exact_mut(width).zip(&lists.tokens[range]) {
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
        self.columns(lists.tokens.len(), width, part_mut(gradient, table), |range, mut gradient| {
            for (dx, &token) in dx.chunks_exact(width).zip(&lists.tokens) {
                simd::add(&dx[range.clone()], gradient.row(token as usize));
            }
        });
    }

    fn rotate(&mut self, rotation: Rotation, heads: HeadRows, lists: &Lists, rows: Subset, x: &mut Buffer) {
        let Rotation { theta, sign } = rotation;
        let positions = lists.positions(rows);
        self.rows(heads.rows, heads.count * heads.size, [(x, heads.stride)], |range, [x]| {
            for (row, x) in range.zip(x.chunks_exact_mut(heads.stride)) {
                let (cos, sin) = self.rope.at(theta, positions[row] as usize);
                for head in x[heads.first..].chunks_exact_mut(heads.size).take(heads.count) {
                    let (low, high) = head.split_at_mut(cos.len());
                    simd::rotate(low, high, cos, sin, sign);
                }
            }
        });
    }

    fn scale(&mut self, len: usize, factor: f32, y: &mut Buffer) {
        self.rows(len, 1, [(&mut y[..len], 1)], |_, [y]| simd::scale(y, factor));
    }

    fn scale_by(&mut self, weights: &Weights, factor: Span, len: usize, y: &mut Buffer) {
        self.scale(len, weights[factor.offset], y);
    }

    fn copy_columns(
        &mut self,
        rows: usize,
        width: usize,
        from: Strip,
        x: &Buffer,
        to: Strip,
        y: &mut Buffer,
    ) {
        self.rows(rows, width, [(y, to.stride)], |range, [y]| {
            for (row, y) in range.zip(y.chunks_exact_mut(to.stride)) {
                let x = &x[row * from.stride + from.first..][..width];
                y[to.first..][..width].copy_from_slice(x);
            }
        });
    }

    fn gated(&mut self, kind: Activation, rows: usize, width: usize, gate_up: &Buffer, act: &mut Buffer) {
        let gated = match kind {
            Activation::Silu => simd::swiglu,
            Activation::GeluTanh => simd::geglu,
        };
        self.rows(rows, 3 * width, [(act, width)], |range, [act]| {
            let rows = gate_up[2 * width * range.start..].chunks_exact(2 * width);
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
        self.rows(rows, 3 * width, [(gate_up, 2 * width), (dact, width)], |_, [gate_up, dact]| {
            for (row, dact) in gate_up.chunks_exact_mut(2 * width).zip(dact.chunks_exact_mut(width)) {
                let (gate, up) = row.split_at_mut(width);
                backward(gate, up, dact);
            }
        });
    }
}
