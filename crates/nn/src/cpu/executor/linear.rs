//! Linear maps and their derivatives, in full, from quantized matrices or through LoRA's factors.

use super::super::buffer::Buffer;
use super::super::product::{Into, View, product_with_panels};
use super::super::simd;
use super::super::team::Shared;
use super::super::weights::Weights;
use super::{CpuExecutor, part, part_mut};
use crate::cpu::format::CUT;
use crate::executor::Write;
use crate::layout::Linear;
use crate::lora::Adapted;

/// Most numbers of a quantized matrix whose values are in memory at a time.
const TILE: usize = 1 << 20;

/// Rows of a quantized matrix whose values are in memory at a time.
pub(crate) fn tile_rows(inputs: usize) -> usize {
    (TILE / inputs / CUT * CUT).max(CUT)
}

impl CpuExecutor {
    /// Calls `body(executor, first, values)` for the values of rows of a quantized linear map from row `first` on, in order.
    fn tiles(&mut self, weights: &Weights, linear: Linear, mut body: impl FnMut(&Self, usize, &[f32])) {
        let Linear { inputs, outputs, .. } = linear;
        let most = tile_rows(inputs).min(outputs);
        let mut tile = std::mem::take(&mut self.tile);
        tile.reserve(most * inputs);
        for first in (0..outputs).step_by(most) {
            let count = most.min(outputs - first);
            let values = Shared::new(&mut tile[..count * inputs]);
            self.rows(count, 4 * inputs, |own| {
                let (own, mut part) = (first + own.start..first + own.end, 0);
                for matrix in weights.quantized.parts(&linear) {
                    let rows = own.start.max(part)..own.end.min(part + matrix.rows);
                    if !rows.is_empty() {
                        // SAFETY: ranges of a split are apart.
                        let values = unsafe {
                            values.part((rows.start - first) * inputs..(rows.end - first) * inputs)
                        };
                        matrix.write_rows(rows.start - part..rows.end - part, values);
                    }
                    part += matrix.rows;
                }
            });
            body(self, first, &tile[..count * inputs]);
        }
        self.tile = tile;
    }

    /// Into columns `first..` of rows of `stride` numbers.
    pub(super) fn linear(
        &mut self,
        weights: &Weights,
        linear: Linear,
        rows: usize,
        x: &Buffer,
        onto: Option<&Buffer>,
        y: &mut Buffer,
        (first, stride): (usize, usize),
    ) {
        let Linear { inputs, outputs, .. } = linear;
        let mut into = Into::Replace;
        if linear.bias.is_some() || onto.is_some() {
            let bias = linear.bias.map(|bias| part(weights, bias));
            let y = Shared::new(y);
            self.rows(rows, outputs, |own| {
                for row in own {
                    let at = row * stride + first;
                    // SAFETY: ranges of a split are apart.
                    let y = unsafe { y.part(at..at + outputs) };
                    match (onto, bias) {
                        (Some(onto), bias) => {
                            y.copy_from_slice(&onto[row * outputs..][..outputs]);
                            bias.into_iter().for_each(|bias| simd::add(bias, y));
                        }
                        (None, bias) => bias.into_iter().for_each(|bias| y.copy_from_slice(bias)),
                    }
                }
            });
            into = Into::Add;
        }
        if linear.weight.is_apart() {
            let from = View::rows(0, inputs);
            return self.tiles(weights, linear, |e, part, tile| {
                let (count, w) = (tile.len() / inputs, View::rows(0, inputs).transposed());
                let to = View::rows(first + part, stride);
                e.packing_product(rows, count, inputs, x, from, tile, w, into, y, to);
            });
        }
        let to = View::rows(first, stride);
        if let Some(packed) = &self.packed {
            let panels = packed.at(linear.weight.offset);
            let (team, products) = (Some(&self.team), self.products);
            return product_with_panels(team, products, rows, outputs, inputs, x, panels, into, y, to);
        }
        let w = View::rows(linear.weight.offset, inputs).transposed();
        let from = View::rows(0, inputs);
        self.product(rows, outputs, inputs, x, from, weights, w, into, y, to);
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
        let Linear { inputs, outputs, .. } = linear;
        let into = if write == Write::Add { Into::Add } else { Into::Replace };
        let (from, to) = (View::rows(0, outputs), View::rows(0, inputs));
        if linear.weight.is_apart() {
            let mut into = into;
            return self.tiles(weights, linear, |e, first, tile| {
                let (count, from, w) =
                    (tile.len() / inputs, View::rows(first, outputs), View::rows(0, inputs));
                e.product(rows, inputs, count, dy, from, tile, w, into, dx, to);
                into = Into::Add;
            });
        }
        let w = View::rows(linear.weight.offset, inputs);
        self.product(rows, inputs, outputs, dy, from, weights, w, into, dx, to);
    }

    pub(super) fn linear_backward_weight(
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
        self.product(outputs, inputs, rows, dy, dyt, x, View::rows(0, inputs), Into::Add, gradient, w);
        if let Some(bias) = linear.bias {
            let bias = Shared::new(part_mut(gradient, bias));
            self.columns(rows, outputs, |own| {
                // SAFETY: each column is one thread's.
                let bias = unsafe { bias.part(own.clone()) };
                for dy in dy.chunks_exact(outputs).take(rows) {
                    simd::add(&dy[own.clone()], bias);
                }
            });
        }
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
        let mut low = std::mem::take(&mut self.low_rank);
        low.reserve(rows * rank);
        let (low_view, x_view, y_view) =
            (View::rows(0, rank), View::rows(0, inputs), View::rows(first, stride));
        let [a, b] = [(a, inputs), (b, rank)].map(|(span, row)| View::rows(span.offset, row).transposed());
        self.packing_product(rows, rank, inputs, x, x_view, factors, a, Into::Replace, &mut low, low_view);
        simd::scale(&mut low[..rows * rank], scale);
        self.packing_product(rows, outputs, rank, &low, low_view, factors, b, Into::Add, y, y_view);
        self.low_rank = low;
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
        let mut low = std::mem::take(&mut self.low_rank);
        low.reserve(rows * rank);
        let (low_view, dy_view, dx_view) =
            (View::rows(0, rank), View::rows(first, stride), View::rows(0, inputs));
        let [a, b] = [(a, inputs), (b, rank)].map(|(span, row)| View::rows(span.offset, row));
        self.product(rows, rank, outputs, dy, dy_view, factors, b, Into::Replace, &mut low, low_view);
        simd::scale(&mut low[..rows * rank], scale);
        self.product(rows, inputs, rank, &low, low_view, factors, a, Into::Add, dx, dx_view);
        self.low_rank = low;
    }

    pub(super) fn low_rank_backward(
        &mut self,
        factors: &Weights,
        gradient: &mut [f32],
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
        let mut low = std::mem::take(&mut self.low_rank);
        low.reserve(rows * rank);
        let (low_view, x_view) = (View::rows(0, rank), View::rows(0, inputs));
        let dy_view = View::rows(first, stride);
        let (a_view, b_view) = (View::rows(a.offset, inputs), View::rows(b.offset, rank));
        let replace = Into::Replace;
        self.product(
            rows,
            rank,
            inputs,
            x,
            x_view,
            factors,
            a_view.transposed(),
            replace,
            &mut low,
            low_view,
        );
        simd::scale(&mut low[..rows * rank], scale);
        let dyt = dy_view.transposed();
        self.product(outputs, rank, rows, dy, dyt, &low, low_view, Into::Add, gradient, b_view);
        self.product(rows, rank, outputs, dy, dy_view, factors, b_view, replace, &mut low, low_view);
        simd::scale(&mut low[..rows * rank], scale);
        let low_t = low_view.transposed();
        self.product(rank, inputs, rows, &low, low_t, x, x_view, Into::Add, gradient, a_view);
        self.low_rank = low;
    }
}
