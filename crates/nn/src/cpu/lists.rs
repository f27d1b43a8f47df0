//! The lists of a pass: tokens, positions, and the attention plan.

use crate::executor::Subset;
use crate::segments::{AttentionPlan, Pick, Stretch};

/// The lists of a pass, or of a decoding step.
#[derive(Default)]
pub(crate) struct Lists {
    pub(super) tokens: Vec<u32>,
    pub(super) positions: Vec<u32>,
    /// Positions of the predicting rows.
    pub(super) query_positions: Vec<u32>,
    pub(super) all: AttentionPlan,
    pub(super) predicting: AttentionPlan,
    pub(super) picks: Vec<Pick>,
    pub(super) slots: Vec<u32>,
    pub(super) stretches: Vec<Stretch>,
    /// Row that precedes each row on its path, or `u32::MAX` for the first.
    pub(super) previous: Vec<u32>,
    /// For each tree, the cache node that stores the recurrent state after its last row. Empty if states aren't cached.
    pub(super) nodes: Vec<usize>,
}

impl Lists {
    pub(super) fn plan(&self, rows: Subset) -> &AttentionPlan {
        if rows == Subset::All { &self.all } else { &self.predicting }
    }

    pub(super) fn positions(&self, rows: Subset) -> &[u32] {
        if rows == Subset::All { &self.positions } else { &self.query_positions }
    }
}
