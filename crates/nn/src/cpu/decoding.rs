//! State of a CPU executor between decoding steps.

use super::lists::Lists;
use crate::decoding::Step;
use crate::error::Error;
use crate::executor::{DecodeChanges, StepTokens};
use crate::sampling::{Draw, Drawn};
use crate::segments::Piece;

/// The current decoding step: its index lists, attention plan, random numbers and sampled tokens.
#[derive(Default)]
pub(crate) struct Decoding {
    pub(super) step: Step,
    pub(super) lists: Lists,
    /// Assignment of the step's rows to ranges of cache slots, for attention.
    pub(super) pieces: Vec<Piece>,
    pub(super) draws: Vec<Draw>,
    pub(super) drawn: Vec<Drawn>,
    /// First error of sampling, which the next read returns.
    pub(super) failed: Option<Error>,
}

impl Decoding {
    /// Applies changes and prepares the next step.
    pub(super) fn begin_step(&mut self, changes: &DecodeChanges) {
        self.step.begin(changes);
        self.upload_draws(&changes.draws);
        self.pieces.clear();
        for (queries, mut first, slots) in self.step.sequences() {
            self.pieces.extend(slots.map(|keys| {
                let position = first as u32;
                first += keys.len();
                Piece { queries: queries.clone(), keys, position, causal: false }
            }));
        }
        let Lists { tokens, positions, query_positions, slots, .. } = &mut self.lists;
        match &changes.tokens {
            StepTokens::Known(known) => tokens.clone_from(known),
            StepTokens::Sampled(_) => unreachable!("this executor doesn't run ahead"),
        }
        positions.clone_from(&self.step.positions);
        query_positions.clone_from(&self.step.positions);
        slots.clone_from(&self.step.slots);
    }

    /// Stores the draws for the next call of `sample`.
    pub(super) fn upload_draws(&mut self, draws: &[Draw]) {
        self.draws.clear();
        self.draws.extend_from_slice(draws);
    }
}
