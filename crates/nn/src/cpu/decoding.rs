//! The state of the CPU's executor between decoding steps.

use super::lists::Lists;
use crate::decoding::Step;
use crate::error::Error;
use crate::executor::DecodeChanges;

/// The step, its lists, and a stored error.
#[derive(Default)]
pub(crate) struct Decoding {
    pub(super) step: Step,
    pub(super) lists: Lists,
    pub(super) failed: Option<Error>,
}

impl Decoding {
    /// Applies changes and prepares the next step.
    pub(super) fn begin_step(&mut self, changes: &DecodeChanges) {
        self.step.begin(changes);
        let Lists { tokens, positions, query_positions, slots, .. } = &mut self.lists;
        tokens.clone_from(&self.step.tokens);
        positions.clone_from(&self.step.positions);
        query_positions.clone_from(&self.step.positions);
        slots.clone_from(&self.step.slots);
    }
}
