//! The state of decoding that every executor keeps: sequences of tokens in the cache, and the rows of a step.

use std::ops::Range;

use crate::cache::Run;
use crate::executor::{DecodeChanges, DecodeRow};
use crate::tree::NodeChange;

/// A sequence of tokens that continues its parent's.
#[derive(Default)]
struct Node {
    parent: Option<usize>,
    run: Run,
    /// Its last entry in the step's list of spans.
    span: usize,
}

/// A decoding step, and the state for building the next one.
#[derive(Default)]
pub(crate) struct Step {
    nodes: Vec<Node>,
    /// (node, its rows).
    spans: Vec<(usize, Range<usize>)>,
    /// By row.
    pub(crate) positions: Vec<u32>,
    /// The slots of its keys and values.
    pub(crate) slots: Vec<u32>,
}

impl Step {
    /// Applies changes and builds the next step, with a slot for each row's last token.
    pub(crate) fn begin(&mut self, changes: &DecodeChanges) {
        for &change in &changes.nodes {
            match change {
                NodeChange::Begin { node, parent, stored } => {
                    if node >= self.nodes.len() {
                        self.nodes.resize_with(node + 1, Node::default);
                    }
                    let place = &mut self.nodes[node];
                    place.parent = parent;
                    place.run.pages.clear();
                    place.run.len = stored;
                }
                NodeChange::Page { node, page } => self.nodes[node].run.pages.push(page),
            }
        }
        for list in [&mut self.positions, &mut self.slots] {
            list.clear();
        }
        self.spans.clear();
        let mut chain = Vec::new();
        for (index, &DecodeRow { node, position }) in changes.rows.iter().enumerate() {
            self.positions.push(position);
            self.slots.push(self.nodes[node].run.push());
            chain.clear();
            let mut next = Some(node);
            while let Some(node) = next {
                chain.push(node);
                next = self.nodes[node].parent;
            }
            // From the prompt down, so that a row's sequences come in order.
            for &node in chain.iter().rev() {
                match self.spans.get_mut(self.nodes[node].span) {
                    Some((owner, rows)) if *owner == node && rows.end == index => rows.end += 1,
                    _ => {
                        self.nodes[node].span = self.spans.len();
                        self.spans.push((node, index..index + 1));
                    }
                }
            }
        }
    }

    /// The sequences of the step, each one's rows and its slots in order. Those of a row come in the order of its ancestors.
    pub(crate) fn sequences(
        &self,
    ) -> impl Iterator<Item = (Range<usize>, impl Iterator<Item = Range<usize>> + '_)> + '_ {
        self.spans.iter().map(|(node, rows)| (rows.clone(), self.nodes[*node].run.ranges()))
    }

    /// Rows of the step.
    pub(crate) fn rows(&self) -> usize {
        self.positions.len()
    }
}
