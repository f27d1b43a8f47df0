//! Linear maps and their derivatives: dense, quantized, and LoRA updates.

use super::super::product::{Matrix, Target, Workers, packing_product, product_with_panels, team_product};
use super::{Buffer, CpuExecutor, View, Weights, part, part_mut, simd};
use crate::cpu::format::CUT;
use crate::executor::{LinearOps, LowRank};
use crate::layout::{Linear, Span, Write};
use crate::lora::Adapted;

/// Maximum number of dequantized values in memory at a time.
const TILE: usize = 1 << 20;

/// Returns the number of rows of a quantized matrix that are dequantized at a time.
pub(crate) fn tile_rows(inputs: usize) -> usize {
    (TILE / inputs / CUT * CUT).max(CUT)
}

/// Returns LoRA's `A` and `B` of a matrix.
fn factors_of<'a>(factors: &'a Weights, adapted: &Adapted) -> [Matrix<'a>; 2] {
    let factor = |span: Span, row| View::rows(span.offset, row).of(factors);
    [factor(adapted.a, adapted.inputs), factor(adapted.b, adapted.rank)]
}

impl CpuExecutor {
    fn workers(&self) -> Workers<'_> {
        (Some(&self.team), self.products)
    }

    pub(super) fn product(&self, sizes: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, to: Target<'_>) {
        team_product(self.workers(), sizes, a, b, to);
    }

    /// Computes a product on the team, always with panels, so that an element depends only on its row and column.
    pub(super) fn packing_product(&self, sizes: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, to: Target<'_>) {
        packing_product(self.workers(), sizes, a, b, to);
    }

    /// Computes `x Wᵀ` on the team for the rows of `W` from offset `at` on, with their panels if available.
    pub(super) fn product_with_weight(
        &self,
        sizes: [usize; 3],
        x: &[f32],
        weights: &[f32],
        at: usize,
        to: Target<'_>,
    ) {
        match &self.packed {
            Some(packed) => {
                product_with_panels(self.workers(), sizes, x, packed.at(at), to);
            }
            None => {
                let row = sizes[2];
                let w = View::rows(at, row).transposed().of(weights);
                self.product(sizes, View::rows(0, row).of(x), w, to);
            }
        }
    }

    /// Dequantizes a linear map tile by tile, in order, and calls `body(executor, first row, values)` for each tile.
    fn tiles(&mut self, weights: &Weights, linear: Linear, mut body: impl FnMut(&Self, usize, &[f32])) {
        let Linear { inputs, outputs, .. } = linear;
        let most = tile_rows(inputs).min(outputs);
        let mut tile = std::mem::take(&mut self.tile);
        tile.reserve(most * inputs);
        for first in (0..outputs).step_by(most) {
            let count = most.min(outputs - first);
            self.rows(count, 4 * inputs, [(&mut tile[..count * inputs], inputs)], |range, [values]| {
                let begin = first + range.start;
                let (range, mut part) = (first + range.start..first + range.end, 0);
                for (matrix, of) in weights.quantized.parts(linear) {
                    let rows = range.start.max(part)..range.end.min(part + of.len());
                    if !rows.is_empty() {
                        let values = &mut values[(rows.start - begin) * inputs..(rows.end - begin) * inputs];
                        let first = of.start + rows.start - part;
                        matrix.write_rows(first..first + rows.len(), values);
                    }
                    part += of.len();
                }
            });
            body(self, first, &tile[..count * inputs]);
        }
        self.tile = tile;
    }
}

impl LinearOps for CpuExecutor {
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
        for &linear in linears {
            let Linear { inputs, outputs, weight, bias } = linear;
            let mut write = Write::Replace;
            if bias.is_some() || onto.is_some() {
                let bias = bias.map(|bias| part(weights, bias));
                self.rows(rows, outputs, [(&mut y[..rows * stride], stride)], |range, [y]| {
                    for (row, y) in range.zip(y.chunks_exact_mut(stride)) {
                        let y = &mut y[first..first + outputs];
                        match (onto, bias) {
                            (Some(onto), bias) => {
                                y.copy_from_slice(&onto[row * stride + first..][..outputs]);
                                bias.into_iter().for_each(|bias| simd::add(bias, y));
                            }
                            (None, bias) => bias.into_iter().for_each(|bias| y.copy_from_slice(bias)),
                        }
                    }
                });
                write = Write::Add;
            }
            if weight.is_quantized() {
                let x_rows = View::rows(0, inputs);
                self.tiles(weights, linear, |executor, part, tile| {
                    let w = x_rows.transposed().of(tile);
                    let to = View::rows(first + part, stride).to(write, y);
                    executor.packing_product([rows, tile.len() / inputs, inputs], x_rows.of(x), w, to);
                });
            } else {
                let to = View::rows(first, stride).to(write, y);
                self.product_with_weight([rows, outputs, inputs], x, weights, weight.offset, to);
            }
            first += outputs;
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
        let Linear { inputs, outputs, .. } = linear;
        let to = View::rows(0, inputs);
        if linear.weight.is_quantized() {
            let mut write = write;
            return self.tiles(weights, linear, |executor, first, tile| {
                let (dy, w) = (View::rows(first, outputs).of(dy), View::rows(0, inputs).of(tile));
                executor.product([rows, inputs, tile.len() / inputs], dy, w, to.to(write, dx));
                write = Write::Add;
            });
        }
        let (dy, w) = (View::rows(0, outputs).of(dy), View::rows(linear.weight.offset, inputs).of(weights));
        self.product([rows, inputs, outputs], dy, w, to.to(write, dx));
    }

    fn linear_backward_weight(
        &mut self,
        gradient: &mut [f32],
        linear: Linear,
        rows: usize,
        dy: &Buffer,
        x: &Buffer,
    ) {
        let Linear { inputs, outputs, .. } = linear;
        if rows == 0 {
            return;
        }
        let w = View::rows(linear.weight.offset, inputs);
        let dyt = View::rows(0, outputs).transposed();
        self.product(
            [outputs, inputs, rows],
            dyt.of(dy),
            View::rows(0, inputs).of(x),
            w.to(Write::Add, gradient),
        );
        if let Some(bias) = linear.bias {
            self.columns(rows, outputs, part_mut(gradient, bias), |range, mut bias| {
                let bias = bias.row(0);
                for dy in dy.chunks_exact(outputs).take(rows) {
                    simd::add(&dy[range.clone()], bias);
                }
            });
        }
    }

    fn low_rank(&mut self, update: LowRank<'_, Weights>, x: &Buffer, y: &mut Buffer) {
        let LowRank { factors, adapted, scale, rows } = update;
        let Adapted { outputs, inputs, rank, stride, first, .. } = adapted;
        let mut low = std::mem::take(&mut self.low_rank);
        low.reserve(rows * rank);
        let [a, b] = factors_of(factors, &adapted);
        let (at, x) = (View::rows(0, rank), View::rows(0, inputs).of(x));
        self.packing_product([rows, rank, inputs], x, a.transposed(), at.to(Write::Replace, &mut low));
        simd::scale(&mut low[..rows * rank], scale);
        let y = View::rows(first, stride).to(Write::Add, y);
        self.packing_product([rows, outputs, rank], at.of(&low), b.transposed(), y);
        self.low_rank = low;
    }

    fn low_rank_backward_input(&mut self, update: LowRank<'_, Weights>, dy: &Buffer, dx: &mut Buffer) {
        let LowRank { factors, adapted, scale, rows } = update;
        let Adapted { outputs, inputs, rank, stride, first, .. } = adapted;
        let mut low = std::mem::take(&mut self.low_rank);
        low.reserve(rows * rank);
        let [a, b] = factors_of(factors, &adapted);
        let (at, dy) = (View::rows(0, rank), View::rows(first, stride).of(dy));
        self.product([rows, rank, outputs], dy, b, at.to(Write::Replace, &mut low));
        simd::scale(&mut low[..rows * rank], scale);
        self.product([rows, inputs, rank], at.of(&low), a, View::rows(0, inputs).to(Write::Add, dx));
        self.low_rank = low;
    }

    fn low_rank_backward(
        &mut self,
        update: LowRank<'_, Weights>,
        gradient: &mut [f32],
        dy: &Buffer,
        x: &Buffer,
    ) {
        let LowRank { factors, adapted, scale, rows } = update;
        if rows == 0 {
            return;
        }
        let Adapted { outputs, inputs, rank, a, b, stride, first, .. } = adapted;
        let mut low = std::mem::take(&mut self.low_rank);
        low.reserve(rows * rank);
        let [at_a, at_b] = factors_of(factors, &adapted);
        let (at, x, dy) =
            (View::rows(0, rank), View::rows(0, inputs).of(x), View::rows(first, stride).of(dy));
        self.product([rows, rank, inputs], x, at_a.transposed(), at.to(Write::Replace, &mut low));
        simd::scale(&mut low[..rows * rank], scale);
        let db = View::rows(b.offset, rank).to(Write::Add, gradient);
        self.product([outputs, rank, rows], dy.transposed(), at.of(&low), db);
        self.product([rows, rank, outputs], dy, at_b, at.to(Write::Replace, &mut low));
        simd::scale(&mut low[..rows * rank], scale);
        let da = View::rows(a.offset, inputs).to(Write::Add, gradient);
        self.product([rank, inputs, rows], at.of(&low).transposed(), x, da);
        self.low_rank = low;
    }
}
