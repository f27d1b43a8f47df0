//! Gated short convolutions: the values times a first gate, convolved along the paths of a forest, times a second gate.

use std::ops::Range;

use super::super::convolution::Convolution;
use super::super::simd;
use super::{Buffer, Cache, CpuExecutor, Decoding, Lists, Shared, Weights};
use crate::executor::{ConvolutionOps, Mixer};
use crate::layout::ConvolutionLayout;

/// Returns the two gates and the values of a row in a range of channels.
fn parts(x: &[f32], row: usize, width: usize, range: Range<usize>) -> [&[f32]; 3] {
    [0, 1, 2].map(|part| &x[(3 * row + part) * width..][range.clone()])
}

/// Computes `y = a * b`.
fn multiply(a: &[f32], b: &[f32], y: &mut [f32]) {
    y.fill(0.0);
    simd::multiply_add(a, b, y);
}

impl CpuExecutor {
    /// Computes the inputs of the convolution of `rows` rows in `mixer.gates`.
    fn gate_inputs(&mut self, rows: usize, width: usize, x: &[f32]) {
        let mut inputs = std::mem::take(&mut self.mixer.gates);
        inputs.reserve(rows * width);
        self.rows(rows, width, [(&mut inputs[..], width)], |range, [inputs]| {
            for (row, input) in range.zip(inputs.chunks_exact_mut(width)) {
                let [before, _, values] = parts(x, row, width, 0..width);
                multiply(before, values, input);
            }
        });
        self.mixer.gates = inputs;
    }

    /// Returns the convolution of inputs `x`, after [`CpuExecutor::transpose_filter`].
    fn inputs_convolution<'a>(&'a self, layout: ConvolutionLayout, x: &'a [f32]) -> Convolution<'a> {
        let width = layout.sizes.width;
        Convolution { filter: &self.mixer.filter[0][..layout.filter.len], channels: width, stride: width, x }
    }
}

impl ConvolutionOps for CpuExecutor {
    fn short_convolution(
        &mut self,
        mixer: Mixer<'_, Weights, Lists, ConvolutionLayout>,
        cache: Option<&mut Cache>,
        x: &Buffer,
        out: &mut Buffer,
    ) {
        let (lists, width) = (mixer.lists, mixer.layout.sizes.width);
        self.gate_inputs(lists.tokens.len(), width, x);
        self.transpose_filter(mixer.weights, mixer.layout.filter, width);
        let convolution = self.inputs_convolution(mixer.layout, &self.mixer.gates);
        let queries = &lists.plan(mixer.rows).rows;
        self.rows(queries.len(), width, [(out, width)], |range, [out]| {
            for (&row, out) in queries[range].iter().zip(out.chunks_exact_mut(width)) {
                convolution.row(lists, row as usize, &(0..width), out);
                let [_, after, _] = parts(x, row as usize, width, 0..width);
                out.iter_mut().zip(after).for_each(|(out, gate)| *out *= gate);
            }
        });
        if let Some(cache) = cache {
            convolution.store(lists, mixer.layout.sizes.state(), &mut cache.states[mixer.index]);
        }
    }

    fn short_convolution_backward(
        &mut self,
        mixer: Mixer<'_, Weights, Lists, ConvolutionLayout>,
        gradient: Option<&mut [f32]>,
        x: &Buffer,
        dout: &Buffer,
        dx: &mut Buffer,
    ) {
        let (lists, width) = (mixer.lists, mixer.layout.sizes.width);
        let rows = lists.tokens.len();
        self.gate_inputs(rows, width, x);
        self.transpose_filter(mixer.weights, mixer.layout.filter, width);
        let (len, mut derivative) = (mixer.layout.filter.len, std::mem::take(&mut self.mixer.filter[1]));
        derivative[..len].fill(0.0);
        let convolution = self.inputs_convolution(mixer.layout, &self.mixer.gates);
        let queries = &lists.plan(mixer.rows).rows;
        // A row of `dx` is three rows of `width` columns. The derivative of the convolution's input is first summed in the values' row.
        let outputs = [(&mut derivative[..], width), (&mut dx[..], width)];
        let work = rows * len;
        self.team.split_columns(width, 16, work, outputs, |_, range, [mut dfilter, mut dx]| {
            let (mut result, mut d) = (vec![0.0; range.len()], vec![0.0; range.len()]);
            (0..3 * rows).for_each(|row| dx.row(row).fill(0.0));
            for (at, &row) in queries.iter().enumerate() {
                let (row, dout) = (row as usize, &dout[at * width..][range.clone()]);
                let [_, after, _] = parts(x, row, width, range.clone());
                convolution.row(lists, row, &range, &mut result);
                multiply(dout, &result, dx.row(3 * row + 1));
                multiply(dout, after, &mut d);
                for (from, at) in convolution.seen(lists, row) {
                    simd::multiply_add(convolution.weights(at, &range), &d, dx.row(3 * from + 2));
                    simd::multiply_add(convolution.input(from, &range), &d, dfilter.row(at));
                }
            }
            for row in 0..rows {
                let [before, _, values] = parts(x, row, width, range.clone());
                d.copy_from_slice(dx.row(3 * row + 2));
                multiply(&d, values, dx.row(3 * row));
                multiply(&d, before, dx.row(3 * row + 2));
            }
        });
        self.add_filter(gradient, mixer.layout.filter, width, derivative);
    }

    fn step_convolution(
        &mut self,
        mixer: Mixer<'_, Weights, Lists, ConvolutionLayout>,
        decoding: &Decoding,
        cache: &mut Cache,
        x: &Buffer,
        out: &mut Buffer,
    ) {
        let (sizes, nodes) = (mixer.layout.sizes, &decoding.step.states);
        let width = sizes.width;
        self.transpose_filter(mixer.weights, mixer.layout.filter, width);
        let convolution = self.inputs_convolution(mixer.layout, x);
        let states = Shared::new(&mut cache.states[mixer.index]);
        self.columns(nodes.len(), width, out, |range, mut out| {
            let mut input = vec![0.0; range.len()];
            for (row, &nodes) in nodes.iter().enumerate() {
                let [before, after, values] = parts(x, row, width, range.clone());
                multiply(before, values, &mut input);
                let out = out.row(row);
                // SAFETY: each channel belongs to one thread.
                unsafe { convolution.step((&states, sizes.state(), nodes), &range, &input, out) };
                out.iter_mut().zip(after).for_each(|(out, gate)| *out *= gate);
            }
        });
    }
}
