//! The state of decoding between its steps: the lists of a step on the device, its draws and their results.

use fgrpo_cuda::Memory;

use super::lists::{Bucket, DrawLists, Items, Lists};
use super::stream::{Purpose, Stream};
use crate::decoding::Step;
use crate::executor::DecodeChanges;
use crate::sampling::Draw;

/// The executor's state between decoding steps.
#[derive(Default)]
pub(crate) struct Decoding {
    pub(super) step: Step,
    /// The sizes of the step.
    pub(super) bucket: Bucket,
    /// Of the step, or of draws from other rows.
    pub(super) lists: Lists,
    pub(super) items: Items,
    pub(super) draws: Draws,
}

/// Draws and their results.
#[derive(Default)]
pub(super) struct Draws {
    pub(super) lists: DrawLists,
    /// The row of each draw.
    pub(super) rows: Vec<usize>,
    /// Tokens, then log-probabilities, then entropies, `room` of each.
    pub(super) results: Option<Memory<u32>>,
    pub(super) room: usize,
}

impl Draws {
    fn begin(&mut self, stream: &Stream, lists: DrawLists, draws: &[Draw], room: usize) {
        (self.lists, self.room) = (lists, room);
        self.rows.clear();
        self.rows.extend(draws.iter().map(|draw| draw.row));
        if self.results.as_ref().is_none_or(|results| results.len() < 3 * room) {
            self.results = None;
            self.results = stream.allocate((3 * room).next_power_of_two(), Purpose::Pass);
        }
    }
}

impl Decoding {
    /// Applies changes, builds the next step and transfers its lists.
    pub(super) fn begin(&mut self, stream: &Stream, changes: &DecodeChanges) {
        self.step.begin(changes);
        let lists;
        (self.bucket, self.items, lists) = self.lists.stage_step(stream, &self.step, &changes.draws);
        self.draws.begin(stream, lists, &changes.draws, self.bucket.draws);
    }

    /// Transfers draws from rows that are no decoding step.
    pub(super) fn begin_draws(&mut self, stream: &Stream, rows: usize, draws: &[Draw]) {
        let lists = self.lists.stage_draws(stream, rows, draws);
        self.draws.begin(stream, lists, draws, draws.len());
    }
}
