//! The state of decoding between its steps: the lists of a step on the device, its draws and what they gave.

use fgrpo_cuda::Memory;

use super::lists::{Items, Lists, Words};
use super::stream::Stream;
use crate::decoding::Step;
use crate::executor::DecodeChanges;

/// The executor's state between decoding steps.
#[derive(Default)]
pub(crate) struct Decoding {
    pub(super) step: Step,
    pub(super) lists: Lists,
    pub(super) items: Items,
    pub(super) draws: DrawLists,
}

/// The draws of a step and their results.
#[derive(Default)]
pub(super) struct DrawLists {
    pub(super) words: Words,
    /// Tokens, then log-probabilities, then entropies.
    pub(super) results: Option<Memory<u32>>,
    pub(super) count: usize,
    /// The row of each draw.
    pub(super) rows: Vec<usize>,
}

impl Decoding {
    pub(super) fn begin(&mut self, stream: &Stream, changes: &DecodeChanges) {
        self.step.begin(changes);
        self.items = self.lists.stage_step(stream, &self.step);
    }
}
