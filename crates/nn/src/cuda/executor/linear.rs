//! Linear maps and their derivatives, in full, from quantized matrices or through LoRA's factors.

use fgrpo_cuda::Shape;

use super::super::buffer::Buffer;
use super::super::stream::Purpose;
use super::super::weights::Weights;
use super::{Columns, CudaExecutor, args, kernel, row_threads};
use crate::executor::Write;
use crate::layout::Linear;
use crate::lora::Adapted;

impl CudaExecutor {
    pub(super) fn linear(
        &mut self,
        weights: &Weights,
        linear: Linear,
        rows: usize,
        x: &Buffer,
        write: Write,
        y: &mut Buffer,
    ) {
        let Linear { weight, bias, outputs, inputs } = linear;
        if weight.is_apart() {
            let mut first = 0;
            for matrix in weights.quantized.parts(&linear) {
                let w = weights.quantized.values(&self.stream, self.precision, matrix, &mut self.values);
                let (x, w, to) = (x.rows(0, inputs), w.transposed(), y.rows(first, outputs));
                self.product([rows, matrix.rows, inputs], x, w, to, 1.0, write);
                first += matrix.rows;
            }
        } else {
            let w = weights.rows(weight.offset, inputs).transposed();
            self.product([rows, outputs, inputs], x.rows(0, inputs), w, y.rows(0, outputs), 1.0, write);
        }
        if let Some(bias) = bias {
            let shape = Shape::of(rows, row_threads(outputs), 0);
            self.stream.launch(
                kernel!(self.precision, "add_bias"),
                shape,
                args![weights.at(bias.offset), &*y, outputs as u32],
            );
        }
    }

    pub(super) fn linear_backward_input(
        &mut self,
        weights: &Weights,
        linear: Linear,
        rows: usize,
        dy: &Buffer,
        write: Write,
        dx: &mut Buffer,
    ) {
        let Linear { weight, outputs, inputs, .. } = linear;
        if weight.is_apart() {
            let (mut first, mut write) = (0, write);
            for matrix in weights.quantized.parts(&linear) {
                let w = weights.quantized.values(&self.stream, self.precision, matrix, &mut self.values);
                let dy = dy.rows(first, outputs);
                self.product([rows, inputs, matrix.rows], dy, w, dx.rows(0, inputs), 1.0, write);
                (first, write) = (first + matrix.rows, Write::Add);
            }
            return;
        }
        let w = weights.rows(weight.offset, inputs);
        self.product([rows, inputs, outputs], dy.rows(0, outputs), w, dx.rows(0, inputs), 1.0, write);
    }

    pub(super) fn low_rank(
        &mut self,
        factors: &Weights,
        adapted: &Adapted,
        scale: f32,
        rows: usize,
        x: &Buffer,
        y: &mut Buffer,
    ) {
        let Adapted { outputs, inputs, rank, a, b, stride, first, .. } = *adapted;
        self.low_rank.reserve(&self.stream, self.precision, rows * rank, Purpose::Pass);
        let (low, x, y) = (self.low_rank.rows(0, rank), x.rows(0, inputs), y.rows(first, stride));
        let (a, b) = (factors.rows(a.offset, inputs), factors.rows(b.offset, rank));
        self.product([rows, rank, inputs], x, a.transposed(), low, scale, Write::Replace);
        self.product([rows, outputs, rank], low, b.transposed(), y, 1.0, Write::Add);
    }

    pub(super) fn low_rank_backward_input(
        &mut self,
        factors: &Weights,
        adapted: &Adapted,
        scale: f32,
        rows: usize,
        dy: &Buffer,
        dx: &mut Buffer,
    ) {
        let Adapted { outputs, inputs, rank, a, b, stride, first, .. } = *adapted;
        self.low_rank.reserve(&self.stream, self.precision, rows * rank, Purpose::Pass);
        let (low, dy, dx) = (self.low_rank.rows(0, rank), dy.rows(first, stride), dx.rows(0, inputs));
        let (a, b) = (factors.rows(a.offset, inputs), factors.rows(b.offset, rank));
        self.product([rows, rank, outputs], dy, b, low, scale, Write::Replace);
        self.product([rows, inputs, rank], low, a, dx, 1.0, Write::Add);
    }

    pub(super) fn low_rank_backward(
        &mut self,
        factors: &Weights,
        gradient: &mut Buffer,
        adapted: &Adapted,
        scale: f32,
        rows: usize,
        dy: &Buffer,
        x: &Buffer,
    ) {
        if rows == 0 {
            return;
        }
        let Adapted { outputs, inputs, rank, a, b, stride, first, .. } = *adapted;
        self.low_rank.reserve(&self.stream, self.precision, rows * rank, Purpose::Pass);
        let (low, x, dy) = (self.low_rank.rows(0, rank), x.rows(0, inputs), dy.rows(first, stride));
        let (at_a, at_b) = (factors.rows(a.offset, inputs), factors.rows(b.offset, rank));
        let (da, db) = (gradient.rows(a.offset, inputs), gradient.rows(b.offset, rank));
        self.product([rows, rank, inputs], x, at_a.transposed(), low, scale, Write::Replace);
        self.product_full([outputs, rank, rows], dy.transposed(), low, db, Write::Add);
        self.product([rows, rank, outputs], dy, at_b, low, scale, Write::Replace);
        self.product_full([rank, inputs, rows], low.transposed(), x, da, Write::Add);
    }

    pub(super) fn linear_backward_weight(
        &mut self,
        gradient: &mut Buffer,
        linear: Linear,
        rows: usize,
        dy: &Buffer,
        x: &Buffer,
    ) {
        if rows == 0 {
            return;
        }
        let Linear { weight, bias, outputs, inputs } = linear;
        let (dyt, x) = (dy.rows(0, outputs).transposed(), x.rows(0, inputs));
        let dw = gradient.rows(weight.offset, inputs);
        self.product_full([outputs, inputs, rows], dyt, x, dw, Write::Add);
        if let Some(bias) = bias {
            self.sum_columns(Columns::Of(dy), rows, outputs, gradient.at(bias.offset).into());
        }
    }
}
