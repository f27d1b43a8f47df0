//! Linear maps and their derivatives: dense, quantized, and LoRA updates.

use fgrpo_cuda::Command;

use super::{Buffer, CudaExecutor, Matrix, Product, Purpose, Weights, Write};
use crate::executor::{LinearOps, LowRank};
use crate::layout::{Linear, Span};
use crate::lora::Adapted;

impl CudaExecutor {
    /// Computes `c = alpha a b` or `c += alpha a b` in a backward pass, where all operands are activations or weights.
    pub(super) fn product(
        &self,
        sizes: [usize; 3],
        a: Matrix,
        b: Matrix,
        c: Matrix,
        alpha: f32,
        write: Write,
    ) {
        self.add_product(Product { alpha, ..Product::new(sizes, a, b, c, self.numbers()) }, write);
    }

    /// Computes `c += a b` in a backward pass, with `c` in f32.
    pub(super) fn product_full(&self, sizes: [usize; 3], a: Matrix, b: Matrix, c: Matrix) {
        self.add_product(Product::new(sizes, a, b, c, self.full_numbers()), Write::Add);
    }

    /// Submits a product, or records it for the graph of a decoding step (`graphs.rs`), unless it has no rows. With [`Write::Add`], the product is
    /// added to `c`.
    pub(super) fn add_product(&self, product: Product, write: Write) {
        let onto = if write == Write::Add { Some(product.c) } else { product.onto };
        if product.m > 0 {
            self.stream.submit_or_record(Command::Product(Product { onto, ..product }));
        }
    }
}

impl LinearOps for CudaExecutor {
    /// Maps with adjacent matrices are computed by one product. If decoding must have the same bits as a pass, they are computed one by one, as a pass does.
    fn linear(
        &mut self,
        weights: &Weights,
        linears: &[Linear],
        rows: usize,
        x: &Buffer,
        onto: Option<&Buffer>,
        y: &mut Buffer,
    ) {
        let (stride, mut first) = (linears.iter().map(|linear| linear.outputs).sum(), 0);
        let separately = self.exact;
        let adjacent = |a: &Linear, b: &Linear| {
            let follows = |a: Span, b: Span| a.offset + a.len == b.offset;
            let biases = match (a.bias, b.bias) {
                (Some(a), Some(b)) => follows(a, b),
                (a, b) => a.is_none() && b.is_none(),
            };
            !separately && !a.weight.is_quantized() && follows(a.weight, b.weight) && biases
        };
        for group in linears.chunk_by(adjacent) {
            let (Linear { weight, bias, inputs, .. }, begin) = (group[0], first);
            // Computes the outputs from `at` on.
            let compute = |executor: &Self, at: usize, outputs: usize, w: Matrix| {
                let (x, to) = (x.rows(0, inputs), y.rows(at, stride));
                let product = Product {
                    onto: onto.map(|onto| onto.at(at).address()),
                    bias: bias.map(|bias| weights.at(bias.offset + at - begin).address()),
                    exact: executor.exact,
                    ..Product::new([rows, outputs, inputs], x, w.transposed(), to, executor.numbers())
                };
                executor.add_product(product, Write::Replace);
            };
            if weight.is_quantized() {
                let stored = &weights.quantized;
                for (matrix, of) in stored.parts(group[0]) {
                    let w = stored.values(&self.stream, self.precision, matrix, of.start, &mut self.values);
                    compute(self, first, of.len(), w);
                    first += of.len();
                }
            } else {
                let outputs = group.iter().map(|linear| linear.outputs).sum();
                compute(self, first, outputs, weights.rows(weight.offset, inputs));
                first += outputs;
            }
        }
    }

    fn linear_backward_input(
        &mut self,
        weights: &Weights,
        linear: Linear,
        rows: usize,
        dy: &Buffer,
        write: Write,
        dx: &mut Buffer,
    ) {
        let Linear { weight, outputs, inputs, .. } = linear;
        if weight.is_quantized() {
            let (mut first, mut write, stored) = (0, write, &weights.quantized);
            for (matrix, of) in stored.parts(linear) {
                let w = stored.values(&self.stream, self.precision, matrix, of.start, &mut self.values);
                let dy = dy.rows(first, outputs);
                self.product([rows, inputs, of.len()], dy, w, dx.rows(0, inputs), 1.0, write);
                (first, write) = (first + of.len(), Write::Add);
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
        self.product_full([outputs, inputs, rows], dyt, x, dw);
        if let Some(bias) = bias {
            self.add_columns([rows, outputs], dy.at(0), gradient.full(bias.offset));
        }
    }

    fn low_rank(&mut self, update: LowRank<'_, Weights>, x: &Buffer, y: &mut Buffer) {
        let LowRank { factors, adapted, scale, rows } = update;
        let Adapted { outputs, inputs, rank, a, b, stride, first, .. } = adapted;
        self.low_rank.reserve(&self.stream, self.precision, rows * rank, Purpose::Pass);
        let (low, x, y) = (self.low_rank.rows(0, rank), x.rows(0, inputs), y.rows(first, stride));
        let (a, b) = (factors.rows(a.offset, inputs), factors.rows(b.offset, rank));
        let (numbers, exact) = (self.numbers(), self.exact);
        let reduction = Product::new([rows, rank, inputs], x, a.transposed(), low, numbers);
        self.add_product(Product { alpha: scale, exact, ..reduction }, Write::Replace);
        let expansion = Product::new([rows, outputs, rank], low, b.transposed(), y, numbers);
        self.add_product(Product { exact, ..expansion }, Write::Add);
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
        self.product_full([outputs, rank, rows], dy.transposed(), low, db);
        self.product([rows, rank, outputs], dy, at_b, low, scale, Write::Replace);
        self.product_full([rank, inputs, rows], low.transposed(), x, da);
    }
}
