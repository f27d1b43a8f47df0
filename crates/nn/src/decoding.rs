//! Decoding state that every executor keeps: token sequences in the cache, and the rows of a step.

use std::ops::Range;

use crate::cache::Run;
use crate::executor::{DecodeChanges, DecodeRow, NodeChange};

/// A sequence of tokens that continues its parent's sequence.
#[derive(Default)]
struct Node {
    parent: Option<usize>,
    run: Run,
    /// Index of the node's last entry in [`Step::spans`].
    span: usize,
}

/// A decoding step, and the state from which the next one is built.
#[derive(Default)]
pub(crate) struct Step {
    nodes: Vec<Node>,
    /// For each node on a row's path, the range of the rows whose paths contain the node: (node, rows).
    spans: Vec<(usize, Range<usize>)>,
    /// For each row, the node that its token continues.
    owners: Vec<usize>,
    /// For each row, the position of its token.
    pub(crate) positions: Vec<u32>,
    /// For each row, the slot of its keys and values.
    pub(crate) slots: Vec<u32>,
    /// For each row, the node whose recurrent state it reads, and the node whose state it writes.
    pub(crate) states: Vec<[usize; 2]>,
}

impl Step {
    /// Applies changes and builds the next step, with a slot for the last token of each row.
    pub(crate) fn begin(&mut self, changes: &DecodeChanges) {
        for &change in &changes.nodes {
            match change {
                NodeChange::Begin { node, parent, stored } => {
                    if node >= self.nodes.len() {
                        self.nodes.resize_with(node + 1, Node::default);
                    }
                    let entry = &mut self.nodes[node];
                    entry.parent = parent;
                    entry.run.pages.clear();
                    entry.run.len = stored;
                }
                NodeChange::Page { node, page } => self.nodes[node].run.pages.push(page),
            }
        }
        for list in [&mut self.positions, &mut self.slots] {
            list.clear();
        }
        self.owners.clear();
        self.spans.clear();
        self.states.clear();
        let mut chain = Vec::new();
        for (index, &DecodeRow { node, position, states }) in changes.rows.iter().enumerate() {
            self.owners.push(node);
            self.positions.push(position);
            self.states.push(states);
            self.slots.push(self.nodes[node].run.push());
            chain.clear();
            let mut next = Some(node);
            while let Some(node) = next {
                chain.push(node);
                next = self.nodes[node].parent;
            }
            // From the prompt down, so a row's sequences are in order.
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

    /// Cuts the rows' paths into blocks of `len` tokens, from the start of the path. A block is (rows that share it,
    /// its cache slots). The blocks of a row are in the order of its path; the last may be shorter.
    pub(crate) fn blocks(&self, len: usize) -> Vec<(Range<usize>, Vec<Range<usize>>)> {
        let mut blocks = Vec::new();
        for (node, rows) in &self.spans {
            let chain = || {
                std::iter::successors(Some(*node), |&node| self.nodes[node].parent)
                    .map(|node| &self.nodes[node].run)
            };
            // A block that begins in an ancestor includes the ancestor's slots.
            let mut missing = chain().skip(1).map(|run| run.len).sum::<usize>() % len;
            let mut runs = vec![(&self.nodes[*node].run, 0)];
            for run in chain().skip(1) {
                if missing == 0 {
                    break;
                }
                let count = missing.min(run.len);
                runs.push((run, run.len - count));
                missing -= count;
            }
            let (mut slots, mut room) = (Vec::new(), len);
            for mut range in runs.into_iter().rev().flat_map(|(run, first)| run.ranges_from(first)) {
                while !range.is_empty() {
                    let end = range.end.min(range.start + room);
                    room -= end - range.start;
                    slots.push(range.start..end);
                    range.start = end;
                    if room == 0 {
                        blocks.push((rows.clone(), std::mem::take(&mut slots)));
                        room = len;
                    }
                }
            }
            // If other sequences continue this one, its incomplete block is part of theirs.
            if room < len && self.owners[rows.start] == *node {
                blocks.push((rows.clone(), slots));
            }
        }
        blocks
    }

    /// Returns whether a row of the step attends to a key that another row of the same step adds.
    pub(crate) fn reads_its_own(&self) -> bool {
        let first = |&node: &usize| self.nodes[node].run.pages[0];
        self.owners.windows(2).any(|pair| first(&pair[0]) == first(&pair[1]))
    }

    /// Returns the sequences of the step: for each, the rows that contain it, the position of its first token, and its slots. The sequences of a row are in
    /// the order of its ancestors.
    pub(crate) fn sequences(
        &self,
    ) -> impl Iterator<Item = (Range<usize>, usize, impl Iterator<Item = Range<usize>> + '_)> + '_ {
        self.spans.iter().map(|(node, rows)| {
            let parent = |&node: &usize| self.nodes[node].parent;
            let before = std::iter::successors(parent(node), parent).map(|node| self.nodes[node].run.len);
            (rows.clone(), before.sum(), self.nodes[*node].run.ranges())
        })
    }

    pub(crate) fn rows(&self) -> usize {
        self.positions.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::PAGE;
    use crate::executor::StepTokens;

    /// Builds a step. Sequences are (parent, length). `rows` are the sequences that the rows continue.
    fn step(sequences: &[(Option<usize>, usize)], rows: &[usize]) -> Step {
        let mut changes =
            DecodeChanges { tokens: StepTokens::Known(vec![0; rows.len()]), ..DecodeChanges::default() };
        let mut page = 0;
        for (node, &(parent, len)) in sequences.iter().enumerate() {
            let stored = if rows.contains(&node) { len - 1 } else { len };
            changes.nodes.push(NodeChange::Begin { node, parent, stored });
            for _ in 0..len.div_ceil(PAGE) {
                changes.nodes.push(NodeChange::Page { node, page });
                // Some pages are not adjacent.
                page += 1 + u32::from(page.is_multiple_of(3));
            }
        }
        changes.rows.extend(rows.iter().map(|&node| DecodeRow { node, position: 0, states: [node; 2] }));
        let mut step = Step::default();
        step.begin(&changes);
        step
    }

    #[test]
    fn blocks_end_at_multiples_of_their_length_however_a_path_is_divided() {
        const LEN: usize = 32;
        // A prompt, two continuations, one of which is continued twice; a separate path, and one that ends with a full block.
        let sequences =
            [(None, 70), (Some(0), 9), (Some(0), 60), (Some(1), 5), (Some(1), 47), (None, 84), (None, 64)];
        let rows = [3, 4, 2, 5, 6];
        let step = step(&sequences, &rows);
        let blocks = step.blocks(LEN);
        for (row, &node) in rows.iter().enumerate() {
            let path_blocks: Vec<_> = blocks.iter().filter(|(rows, _)| rows.contains(&row)).collect();
            let lengths: Vec<usize> =
                path_blocks.iter().map(|(_, slots)| slots.iter().map(Range::len).sum()).collect();
            let path: usize = std::iter::successors(Some(node), |&node| sequences[node].0)
                .map(|node| sequences[node].1)
                .sum();
            assert_eq!(lengths.iter().sum::<usize>(), path);
            let (last, whole) = lengths.split_last().unwrap();
            assert!(whole.iter().all(|&len| len == LEN) && (1..=LEN).contains(last), "{lengths:?}");
            let slots: Vec<usize> =
                path_blocks.iter().flat_map(|(_, slots)| slots.iter().cloned().flatten()).collect();
            let mut chain: Vec<usize> =
                std::iter::successors(Some(node), |&node| sequences[node].0).collect();
            chain.reverse();
            let expected = chain.into_iter().flat_map(|node| step.nodes[node].run.ranges().flatten());
            assert_eq!(slots, expected.collect::<Vec<_>>());
            assert_eq!(*slots.last().unwrap(), step.slots[row] as usize);
        }
        // The full blocks before the paths diverge belong to all three.
        assert_eq!(blocks.iter().filter(|(rows, _)| *rows == (0..3)).count(), 2);
        assert!(blocks.iter().all(|(rows, _)| rows.len() == 1 || *rows == (0..3)), "{blocks:?}");
        assert!(!step.reads_its_own());
    }
}
