//! Linear maps and their derivatives: dense, quantized, and LoRA updates.

use super::{Buffer, Columns, CudaExecutor, Matrix, MatrixProduct, Product, Purpose, Weights, Write};
use crate::executor::{LinearOps, LowRank, Map};
use crate::layout::{Linear, Span};
use crate::lora::Adapted;

impl CudaExecutor {
    fn linear_into(&mut self, map: Map<'_, Weights>, x: &Buffer, onto: Option<&Buffer>, y: Matrix) {
        let Map { weights, linear, rows } = map;
        let Linear { weight, bias, outputs, inputs } = linear;
        let (x, number) = (x.rows(0, inputs), self.precision.bytes());
        // Computes the outputs from `first` on.
        let product = |e: &Self, first: usize, outputs: usize, w: Matrix| {
            if rows > 0 {
                e.stream.product(&Product {
                    m: rows,
                    n: outputs,
                    k: inputs,
                    a: x,
                    b: w.transposed(),
                    c: y.at.plus(first * number),
                    c_stride: y.stride,
                    alpha: 1.0,
                    onto: onto.map(|onto| onto.at(first)),
                    bias: bias.map(|bias| weights.at(bias.offset + first)),
                    numbers: e.numbers(),
                    exact: e.exact,
                });
            }
        };
        if weight.is_separate() {
            let mut first = 0;
            for matrix in weights.quantized.parts(&linear) {
                let w = weights.quantized.values(&self.stream, self.precision, matrix, &mut self.values);
                product(self, first, matrix.rows, w);
                first += matrix.rows;
            }
        } else {
            product(self, 0, outputs, weights.rows(weight.offset, inputs));
        }
    }
}

impl LinearOps for CudaExecutor {
    fn linear(&mut self, map: Map<'_, Weights>, x: &Buffer, onto: Option<&Buffer>, y: &mut Buffer) {
        let y = y.rows(0, map.linear.outputs);
        self.linear_into(map, x, onto, y)
    }

    /// Maps with adjacent matrices are computed by one product, unless decoding must have the same bits as a pass, which computes them one by one.
    fn linears(&mut self, weights: &Weights, linears: &[Linear], rows: usize, x: &Buffer, y: &mut Buffer) {
        let (stride, mut first) = (linears.iter().map(|linear| linear.outputs).sum(), 0);
        let separately = self.exact;
        let adjacent = |a: &Linear, b: &Linear| {
            let follows = |a: Span, b: Span| a.offset + a.len == b.offset;
            let biases = match (a.bias, b.bias) {
                (Some(a), Some(b)) => follows(a, b),
                (a, b) => a.is_none() && b.is_none(),
            };
            !separately && !a.weight.is_separate() && follows(a.weight, b.weight) && biases
        };
        for group in linears.chunk_by(adjacent) {
            let outputs = group.iter().map(|linear| linear.outputs).sum();
            let weight = Span { len: outputs * group[0].inputs, ..group[0].weight };
            let linear = Linear { weight, outputs, ..group[0] };
            self.linear_into(Map { weights, linear, rows }, x, None, y.rows(first, stride));
            first += outputs;
        }
    }

    fn linear_backward_input(&mut self, map: Map<'_, Weights>, dy: &Buffer, write: Write, dx: &mut Buffer) {
        let Map { weights, linear, rows } = map;
        let Linear { weight, outputs, inputs, .. } = linear;
        if weight.is_separate() {
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

    fn linear_backward_weight(
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
            self.sum_columns(Columns::Activations(dy), rows, outputs, gradient.at(bias.offset).into());
        }
    }

    fn low_rank(&mut self, update: LowRank<'_, Weights>, x: &Buffer, y: &mut Buffer) {
        let LowRank { factors, adapted, scale, rows } = update;
        let Adapted { outputs, inputs, rank, a, b, stride, first, .. } = adapted;
        self.low_rank.reserve(&self.stream, self.precision, rows * rank, Purpose::Pass);
        let (low, x, y) = (self.low_rank.rows(0, rank), x.rows(0, inputs), y.rows(first, stride));
        let (a, b) = (factors.rows(a.offset, inputs), factors.rows(b.offset, rank));
        let (numbers, exact) = (self.numbers(), self.exact);
        let sizes = [rows, rank, inputs];
        let product =
            MatrixProduct { sizes, a: x, b: a.transposed(), c: low, alpha: scale, write: Write::Replace };
        self.product_of(numbers, exact, product);
        let sizes = [rows, outputs, rank];
        let product = MatrixProduct { sizes, a: low, b: b.transposed(), c: y, alpha: 1.0, write: Write::Add };
        self.product_of(numbers, exact, product);
    }

    fn low_rank_backward_input(&mut self, update: LowRank<'_, Weights>, dy: &Buffer, dx: &mut Buffer) {
        let LowRank { factors, adapted, scale, rows } = update;
        let Adapted { outputs, inputs, rank, a, b, stride, first, .. } = adapted;
        self.low_rank.reserve(&self.stream, self.precision, rows * rank, Purpose::Pass);
        let (low, dy, dx) = (self.low_rank.rows(0, rank), dy.rows(first, stride), dx.rows(0, inputs));
        let (a, b) = (factors.rows(a.offset, inputs), factors.rows(b.offset, rank));
        self.product([rows, rank, outputs], dy, b, low, scale, Write::Replace);
        self.product([rows, inputs, rank], low, a, dx, 1.0, Write::Add);
    }

    fn low_rank_backward(
        &mut self,
        update: LowRank<'_, Weights>,
        gradient: &mut Buffer,
        dy: &Buffer,
        x: &Buffer,
    ) {
        let LowRank { factors, adapted, scale, rows } = update;
        if rows == 0 {
            return;
        }
        let Adapted { outputs, inputs, rank, a, b, stride, first, .. } = adapted;
        self.low_rank.reserve(&self.stream, self.precision, rows * rank, Purpose::Pass);
        let (low, x, dy) = (self.low_rank.rows(0, rank), x.rows(0, inputs), dy.rows(first, stride));
        let (at_a, at_b) = (factors.rows(a.offset, inputs), factors.rows(b.offset, rank));
        let (da, db) = (gradient.rows(a.offset, inputs), gradient.rows(b.offset, rank));
        self.product([rows, rank, inputs], x, at_a.transposed(), low, scale, Write::Replace);
        self.product_full([outputs, rank, rows], dy.transposed(), low, db, Write::Add);
        self.product([rows, rank, outputs], dy, at_b, low, scale, Write::Replace);
        self.product_full([rank, inputs, rows], low.transposed(), x, da, Write::Add);
    }
}
