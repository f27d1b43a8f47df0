//! Linear maps and their derivatives, in full or through LoRA's factors.

use super::super::buffer::Buffer;
use super::super::product::{Into, View, product_with_panels};
use super::super::simd;
use super::super::team::Shared;
use super::{CpuExecutor, part, part_mut};
use crate::executor::Write;
use crate::layout::Linear;
use crate::lora::Adapted;

impl CpuExecutor {
    pub(super) fn linear(
        &mut self,
        weights: &[f32],
        linear: Linear,
        rows: usize,
        x: &Buffer,
        write: Write,
        y: &mut Buffer,
    ) {
        let Linear { inputs, outputs, .. } = linear;
        let mut into = if write == Write::Add { Into::Add } else { Into::Replace };
        if let Some(bias) = linear.bias {
            let bias = part(weights, bias);
            let y = Shared::new(y);
            self.rows(rows, outputs, |own| {
                // SAFETY: ranges of a split are apart.
                let y = unsafe { y.part(own.start * outputs..own.end * outputs) };
                for y in y.chunks_exact_mut(outputs) {
                    match write {
                        Write::Add => simd::add(bias, y),
                        Write::Replace => y.copy_from_slice(bias),
                    }
                }
            });
            into = Into::Add;
        }
        if let Some(packed) = &self.packed {
            let panels = packed.at(linear.weight.offset);
            let (team, products) = (Some(&self.team), self.products);
            return product_with_panels(team, products, rows, outputs, inputs, x, panels, into, y);
        }
        let w = View::rows(linear.weight.offset, inputs).transposed();
        let (from, to) = (View::rows(0, inputs), View::rows(0, outputs));
        self.product(rows, outputs, inputs, x, from, weights, w, into, y, to);
    }

    pub(super) fn linear_backward_input(
        &mut self,
        weights: &[f32],
        linear: Linear,
        rows: usize,
        dy: &Buffer,
        write: Write,
        dx: &mut Buffer,
    ) {
        let Linear { inputs, outputs, .. } = linear;
        let into = if write == Write::Add { Into::Add } else { Into::Replace };
        let w = View::rows(linear.weight.offset, inputs);
        let (from, to) = (View::rows(0, outputs), View::rows(0, inputs));
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

    pub(super) fn low_rank_backward(
        &mut self,
        factors: &[f32],
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
