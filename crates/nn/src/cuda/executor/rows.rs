//! Copies of rows, the embedding, rotary embedding, and the MLP's activation.

use std::ops::Range;

use super::{
    Buffer, CudaExecutor, FULL, Lists, MOVED, Precision, Purpose, Shape, THREADS, Weights, kernels,
    row_threads,
};
use crate::executor::{HeadRows, Rotation, RowOps, Subset};
use crate::families::Activation;
use crate::layout::Span;

fn is_gelu(kind: Activation) -> usize {
    usize::from(kind == Activation::GeluTanh)
}

impl RowOps for CudaExecutor {
    fn gather(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
        let rows = lists.plan(Subset::Predicting).rows;
        let (x, y) = (x.at(0), y.at(0));
        self.rows(width, lists, rows, |rows| kernels::Gather { x, rows, y, width });
    }

    fn take_row(&mut self, width: usize, row: usize, x: &Buffer, y: &mut Buffer) {
        self.stream.copy(x.at(row * width), y.at(0), width);
    }

    fn scatter_add(&mut self, width: usize, lists: &Lists, x: &Buffer, y: &mut Buffer) {
        let rows = lists.plan(Subset::Predicting).rows;
        let (x, y) = (x.at(0), y.at(0));
        self.rows(width, lists, rows, |rows| kernels::ScatterAdd { x, rows, y, width });
    }

    fn zero(&mut self, len: usize, y: &mut Buffer) {
        self.stream.zero(y.at(0), len);
    }

    fn add(&mut self, len: usize, x: &Buffer, y: &mut Buffer) {
        let (shape, x, y) = (Shape::covering(len, THREADS), x.at(0), y.at(0));
        self.stream.launch(shape, kernels::Add { x, y, count: len });
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
                    self.stream.copy(x.at(from), moved.at(0), len);
                    self.stream.copy(moved.at(0), x.at(to), len);
                }
                (from, to) = (from + len, to + len);
            }
        }
    }

    fn embed(&mut self, weights: &Weights, table: Span, width: usize, lists: &Lists, x: &mut Buffer) {
        let (x, y) = (weights.at(table.offset), x.at(0));
        self.rows(width, lists, lists.tokens, |rows| kernels::Gather { x, rows, y, width });
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
        let (dx, gradient) = (dx.at(0), gradient.full(table.offset));
        self.stream.launch(shape, kernels::EmbedBackward { dx, tokens, starts, order, gradient, width });
    }

    fn rotate(&mut self, rotation: Rotation, heads: HeadRows, lists: &Lists, rows: Subset, x: &mut Buffer) {
        let HeadRows { rows: row_count, first, stride, count: heads, size } = heads;
        let positions = lists.words.at(lists.plan(rows).positions, 0);
        let (rotary, sign, table) = (self.rotary, rotation.sign, self.table(Some(rotation.theta)).full(0));
        let (x, count) = (x.at(first), row_count * heads * rotary / 2);
        let kernel = kernels::Rotate { table, positions, x, heads, stride, size, rotary, sign, count };
        self.stream.launch(Shape::covering(count, THREADS), kernel);
    }

    fn scale(&mut self, len: usize, factor: f32, y: &mut Buffer) {
        let kernel = kernels::Scale { y: y.at(0), factor, count: len };
        self.stream.launch(Shape::covering(len, THREADS), kernel);
    }

    fn gated(&mut self, kind: Activation, rows: usize, width: usize, gate_up: &Buffer, act: &mut Buffer) {
        let (gate_up, act, gelu) = (gate_up.at(0), act.at(0), is_gelu(kind));
        let kernel = kernels::Gated { gate_up, act, width, rows, gelu };
        self.stream.launch(self.line_shape(rows, width), kernel);
    }

    fn gated_backward(
        &mut self,
        kind: Activation,
        rows: usize,
        width: usize,
        gate_up: &mut Buffer,
        dact: &mut Buffer,
    ) {
        let (gate_up, dact, gelu) = (gate_up.at(0), dact.at(0), is_gelu(kind));
        let kernel = kernels::GatedBackward { gate_up, dact, width, rows, gelu };
        self.stream.launch(self.line_shape(rows, width), kernel);
    }
}
