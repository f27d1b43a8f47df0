//! Causal convolution of each channel along the paths of a forest.

use std::ops::Range;

use super::lists::Lists;
use super::simd;
use super::team::Shared;
use crate::segments::Stretch;

/// A causal convolution of the first `channels` columns of each row.
#[derive(Clone, Copy)]
pub(crate) struct Convolution<'a> {
    /// Weights of the inputs: `[kernel, channels]`.
    pub(crate) filter: &'a [f32],
    pub(crate) channels: usize,
    /// Number of values in a row of inputs.
    pub(crate) stride: usize,
    /// Rows of inputs.
    pub(crate) x: &'a [f32],
}

impl<'a> Convolution<'a> {
    pub(crate) fn kernel(&self) -> usize {
        self.filter.len() / self.channels
    }

    /// Returns a row's inputs in a range of channels.
    pub(crate) fn input(&self, row: usize, range: &Range<usize>) -> &'a [f32] {
        &self.x[row * self.stride..][range.clone()]
    }

    /// Returns the weights of the inputs at index `at` of the kernel. The last index belongs to the row's own input.
    pub(crate) fn weights(&self, at: usize, range: &Range<usize>) -> &'a [f32] {
        &self.filter[at * self.channels..][range.clone()]
    }

    /// Returns the rows that a row's result depends on, from the row itself backwards, with the indices of their weights.
    pub(crate) fn seen<'b>(
        &self,
        lists: &'b Lists,
        row: usize,
    ) -> impl Iterator<Item = (usize, usize)> + use<'b> {
        path(lists, row).zip((0..self.kernel()).rev())
    }

    /// Computes a row's results in a range of channels.
    pub(crate) fn row(&self, lists: &Lists, row: usize, range: &Range<usize>, y: &mut [f32]) {
        y.fill(0.0);
        for (from, at) in self.seen(lists, row) {
            simd::multiply_add(self.weights(at, range), self.input(from, range), y);
        }
    }

    /// Stores the latest inputs of each tree, newest first, at the end of the state of the tree's node. `state` is the number of values in a state.
    pub(crate) fn store(&self, lists: &Lists, state: usize, states: &mut [f32]) {
        let (channels, kernel) = (self.channels, self.kernel());
        let ends = trees(&lists.stretches).map(|tree| lists.stretches[tree.end - 1].rows.end - 1);
        for (end, &node) in ends.zip(&lists.nodes) {
            let inputs = &mut states[(node + 1) * state - (kernel - 1) * channels..(node + 1) * state];
            inputs.fill(0.0);
            for (input, from) in inputs.chunks_exact_mut(channels).zip(path(lists, end)) {
                input.copy_from_slice(self.input(from, &(0..channels)));
            }
        }
    }

    /// Computes the results of a new token with inputs `x`. Reads the earlier inputs from the state of node `from`, and writes the latest inputs to
    /// the state of node `to`, which may be the same.
    ///
    /// # Safety
    /// No other thread accesses these channels of the states.
    pub(crate) unsafe fn step(
        &self,
        (states, state, [from, to]): (&Shared<'_>, usize, [usize; 2]),
        range: &Range<usize>,
        x: &[f32],
        y: &mut [f32],
    ) {
        let kernel = self.kernel();
        // The input `back` tokens ago.
        let input = |node: usize, back: usize| {
            let at = (node + 1) * state - (kernel - back) * self.channels;
            // SAFETY: each channel belongs to one thread, and slices that are used together are disjoint.
            unsafe { states.part(at + range.start..at + range.end) }
        };
        y.fill(0.0);
        simd::multiply_add(self.weights(kernel - 1, range), x, y);
        for back in 1..kernel {
            simd::multiply_add(self.weights(kernel - 1 - back, range), input(from, back), y);
        }
        for back in (2..kernel).rev() {
            input(to, back).copy_from_slice(input(from, back - 1));
        }
        if kernel > 1 {
            input(to, 1).copy_from_slice(x);
        }
    }
}

/// Returns the rows of the path that ends with `row`, from the end.
fn path(lists: &Lists, row: usize) -> impl Iterator<Item = usize> + '_ {
    let before =
        |&row: &usize| Some(lists.previous[row]).filter(|&row| row != u32::MAX).map(|row| row as usize);
    std::iter::successors(Some(row), before)
}

/// Returns the range of each tree's stretches.
pub(crate) fn trees(stretches: &[Stretch]) -> impl Iterator<Item = Range<usize>> + '_ {
    let roots = (0..stretches.len()).filter(|&index| stretches[index].parent.is_none());
    roots.map(|root| {
        let rest = stretches[root + 1..].iter().position(|stretch| stretch.parent.is_none());
        root..rest.map_or(stretches.len(), |rest| root + 1 + rest)
    })
}
