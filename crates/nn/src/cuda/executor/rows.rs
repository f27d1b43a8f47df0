//! Row operations.

use std::ops::Range;

use super::{
    Buffer, CudaExecutor, FULL, Lists, MOVED, Precision, Purpose, Shape, THREADS, Weights, args, kernel,
    row_threads,
};
use crate::executor::{HeadRows, Rotation, RowOps, Rows};
use crate::families::Activation;
use crate::layout::Span;

fn is_gelu(kind: Activation) -> u32 {
    u32::from(kind == Activation::GeluTanh)
}

impl RowOps for CudaExecutor {
    fn gather(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
        let rows = lists.plan(Rows::Predicting).rows;
        self.rows(kernel!(self.precision, "gather"), width, lists, rows, x.into(), (&*y).into());
    }

    fn take_row(&mut self, width: usize, row: usize, x: &Buffer, y: &mut Buffer) {
        self.stream.copy(x.at(row * width), y.at(0), x.bytes(width));
    }

    fn scatter_add(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
        let rows = lists.plan(Rows::Predicting).rows;
        self.rows(kernel!(self.precision, "scatter_add"), width, lists, rows, x.into(), (&*y).into());
    }

    fn zero(&mut self, len: usize, y: &mut Buffer) {
        self.stream.zero(y.at(0), y.bytes(len));
    }

    fn add(&mut self, len: usize, x: &Buffer, y: &mut Buffer) {
        let shape = Shape::covering(len, THREADS);
        self.stream.launch(kernel!(self.precision, "add"), shape, args![x, &*y, len]);
    }

    fn keep_rows(&mut self, width: usize, ranges: &[Range<usize>], x: &mut Buffer) {
        let full = x.bytes(1) == 4;
        let (moved, precision) =
            if full { (&mut self.moved_full, FULL) } else { (&mut self.moved, Precision::Bf16) };
        let mut to = 0;
        for range in ranges {
            let (mut from, end) = (range.start * width, range.end * width);
            // Values move towards the front, so values that a copy overwrites have already moved.
            while from < end {
                let len = (end - from).min(MOVED);
                if from > to {
                    moved.reserve(&self.stream, precision, len, Purpose::Pass);
                    self.stream.copy(x.at(from), moved.at(0), x.bytes(len));
                    self.stream.copy(moved.at(0), x.at(to), x.bytes(len));
                }
                (from, to) = (from + len, to + len);
            }
        }
    }

    fn embed(&mut self, weights: &Weights, table: Span, width: usize, lists: &Lists, x: &mut Buffer) {
        let table = weights.at(table.offset).into();
        self.rows(kernel!(self.precision, "gather"), width, lists, lists.tokens, table, (&*x).into());
    }

    fn embed_backward(
        &mut self,
        gradient: &mut Buffer,
        table: Span,
        width: usize,
        lists: &Lists,
        dx: &Buffer,
    ) {
        let [tokens, starts, order] =
            [lists.distinct, lists.starts, lists.order].map(|list| lists.words.at(list, 0));
        let shape = Shape::of(lists.distinct.len, row_threads(width), 0);
        let arguments = args![dx, tokens, starts, order, gradient.at(table.offset), width];
        self.stream.launch(kernel!(self.precision, "embed_backward"), shape, arguments);
    }

    fn rotate(&mut self, rotation: Rotation, heads: HeadRows, lists: &Lists, rows: Rows, x: &mut Buffer) {
        let HeadRows { rows: count, first, stride, count: per_row, size } = heads;
        let positions = lists.words.at(lists.plan(rows).positions, 0);
        let pairs = count * per_row * self.rotary / 2;
        let angles = self.table(Some(rotation.theta));
        let arguments =
            args![angles, positions, x.at(first), per_row, stride, size, self.rotary, rotation.sign, pairs];
        self.stream.launch(kernel!(self.precision, "rotate"), Shape::covering(pairs, THREADS), arguments);
    }

    fn scale(&mut self, len: usize, factor: f32, y: &mut Buffer) {
        let shape = Shape::covering(len, THREADS);
        self.stream.launch(kernel!(self.precision, "scale"), shape, args![&*y, factor, len]);
    }

    fn gated(&mut self, kind: Activation, rows: usize, width: usize, gate_up: &Buffer, act: &mut Buffer) {
        self.stream.launch(
            kernel!(self.precision, "gated"),
            self.line_shape(rows, width),
            args![gate_up, &*act, width, rows, is_gelu(kind)],
        );
    }

    fn gated_backward(
        &mut self,
        kind: Activation,
        rows: usize,
        width: usize,
        gate_up: &mut Buffer,
        dact: &mut Buffer,
    ) {
        self.stream.launch(
            kernel!(self.precision, "gated_backward"),
            self.line_shape(rows, width),
            args![&*gate_up, &*dact, width, rows, is_gelu(kind)],
        );
    }
}
