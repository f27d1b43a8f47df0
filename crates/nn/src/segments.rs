//! Batches without padding: one flat sequence of tokens, divided into segments that may have parents.
//!
//! A prompt is a segment, and its completions are child segments; completions with a common prefix share a segment for it. Packing, prompt sharing and prefix
//! sharing are therefore all expressed by a forest of segments. A token attends causally to its own segment and to all tokens of its
//! segment's ancestors, and a recurrent mixer's state follows the same path. All other operations work per token and ignore segments.

use std::ops::Range;

/// A range of tokens that continues another segment or starts a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Number of tokens, at least 1.
    pub len: usize,
    /// Index of the segment that this one continues, which must be earlier in the batch. `None` starts a sequence.
    pub parent: Option<usize>,
}

/// A request for the log-probability of `token` after the token at `row`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// Flat index of the token from which the prediction is made.
    pub row: usize,
    /// The predicted token.
    pub token: u32,
}

/// A forest of segments, and predictions in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Tokens of all segments, concatenated.
    pub tokens: Vec<u32>,
    /// Segments; parents precede their children.
    pub segments: Vec<Segment>,
    /// Predictions; several may share a row.
    pub predictions: Vec<Prediction>,
}

impl Batch {
    /// Appends a segment and returns its index.
    ///
    /// # Panics
    /// If `tokens` is empty or `parent` is not an earlier segment.
    pub fn push_segment(&mut self, tokens: &[u32], parent: Option<usize>) -> usize {
        assert!(!tokens.is_empty(), "a segment needs at least one token");
        if let Some(parent) = parent {
            assert!(
                parent < self.segments.len(),
                "parent {parent} is not one of the {} segments so far",
                self.segments.len()
            );
        }
        self.tokens.extend_from_slice(tokens);
        self.segments.push(Segment { len: tokens.len(), parent });
        self.segments.len() - 1
    }

    /// Adds a prediction of `token` after `row` and returns its index.
    ///
    /// # Panics
    /// If `row` is not a row of the batch.
    pub fn predict(&mut self, row: usize, token: u32) -> usize {
        assert!(row < self.tokens.len(), "row {row} of {}", self.tokens.len());
        self.predictions.push(Prediction { row, token });
        self.predictions.len() - 1
    }

    /// Appends a prompt and its completions as a prefix tree: the prompt is computed once, and so are common prefixes of completions.
    ///
    /// Returns the prediction index of each token of each completion. Completions with a common prefix share indices, so per-token derivatives
    /// must be summed per index. The last token of a completion predicts nothing and has no row.
    ///
    /// # Panics
    /// If the prompt is empty.
    pub fn push_group(&mut self, prompt: &[u32], completions: &[&[u32]]) -> Vec<Vec<usize>> {
        let mut indices: Vec<Vec<usize>> =
            completions.iter().map(|completion| Vec::with_capacity(completion.len())).collect();
        let members: Vec<usize> = (0..completions.len()).filter(|&c| !completions[c].is_empty()).collect();
        // Segments to append: (parent, first tokens, depth of the next token in the completions, completions that continue).
        let mut forks = vec![(None, prompt.to_vec(), 0, members)];
        while let Some((parent, mut tokens, mut depth, mut members)) = forks.pop() {
            let first = self.tokens.len();
            let parts = loop {
                let mut parts: Vec<(u32, Vec<usize>)> = Vec::new();
                for member in members {
                    let token = completions[member][depth];
                    match parts.iter_mut().find(|part| part.0 == token) {
                        Some(part) => part.1.push(member),
                        None => parts.push((token, vec![member])),
                    }
                }
                for (token, part) in &mut parts {
                    part.iter().for_each(|&member| indices[member].push(self.predictions.len()));
                    self.predictions.push(Prediction { row: first + tokens.len() - 1, token: *token });
                    part.retain(|&member| completions[member].len() > depth + 1);
                }
                depth += 1;
                match &mut parts[..] {
                    // Completions don't extend the prompt's segment, even if all have the same first token.
                    [(token, part)] if parent.is_some() && !part.is_empty() => {
                        tokens.push(*token);
                        members = std::mem::take(part);
                    }
                    _ => break parts,
                }
            };
            let segment = Some(self.push_segment(&tokens, parent));
            // Reversed, so that the stack yields the parts in order and a subtree's rows are contiguous.
            let parts = parts.into_iter().rev().filter(|part| !part.1.is_empty());
            forks.extend(parts.map(|(token, members)| (segment, vec![token], depth, members)));
        }
        indices
    }

    /// Checks the batch.
    ///
    /// # Panics
    /// If the segment lengths don't add up, a parent isn't earlier, or a token or row doesn't exist.
    pub(crate) fn check(&self, vocab_size: usize) {
        let mut total = 0;
        for (index, segment) in self.segments.iter().enumerate() {
            assert!(segment.len > 0, "segment {index} is empty");
            assert!(
                segment.parent.is_none_or(|parent| parent < index),
                "segment {index} has parent {:?}, which is not earlier",
                segment.parent
            );
            total += segment.len;
        }
        assert!(total == self.tokens.len(), "segments of {total} tokens over {} tokens", self.tokens.len());
        for (row, &token) in self.tokens.iter().enumerate() {
            assert!((token as usize) < vocab_size, "token {token} at row {row}, vocabulary {vocab_size}");
        }
        for (index, prediction) in self.predictions.iter().enumerate() {
            assert!(prediction.row < total, "prediction {index} of row {}, rows {total}", prediction.row);
            assert!(
                (prediction.token as usize) < vocab_size,
                "prediction {index} of token {}, vocabulary {vocab_size}",
                prediction.token
            );
        }
    }

    /// Returns the trees of the forest, each with its segments in depth-first order and its predictions.
    pub(crate) fn prompt_trees(&self) -> Vec<PromptTree> {
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.segments.len()];
        let mut start = Vec::with_capacity(self.segments.len());
        let mut tree_of = Vec::with_capacity(self.segments.len());
        let mut trees: Vec<PromptTree> = Vec::new();
        let mut next = 0;
        let mut roots = Vec::new();
        for (index, segment) in self.segments.iter().enumerate() {
            start.push(next);
            next += segment.len;
            match segment.parent {
                Some(parent) => {
                    children[parent].push(index);
                    tree_of.push(tree_of[parent]);
                }
                None => {
                    tree_of.push(trees.len());
                    trees.push(PromptTree {
                        index: trees.len(),
                        segments: Vec::new(),
                        tokens: 0,
                        pairs: 0,
                        predictions: Vec::new(),
                    });
                    roots.push(index);
                }
            }
        }
        for (tree, &root) in trees.iter_mut().zip(&roots) {
            // (segment, position of its first token, depth in the segment tree)
            let mut stack = vec![(root, 0usize, 0usize)];
            while let Some((index, position, depth)) = stack.pop() {
                let len = self.segments[index].len;
                tree.segments.push(Placed { first: start[index], len, position, depth });
                tree.tokens += len;
                tree.pairs += len * position + len * (len + 1) / 2;
                stack.extend(children[index].iter().rev().map(|&child| (child, position + len, depth + 1)));
            }
        }
        for (index, prediction) in self.predictions.iter().enumerate() {
            let segment = start.partition_point(|&first| first <= prediction.row) - 1;
            trees[tree_of[segment]].predictions.push(index);
        }
        trees
    }
}

/// One tree of a batch.
#[derive(Debug, Clone)]
pub(crate) struct PromptTree {
    /// Index among the trees of the batch.
    pub(crate) index: usize,
    /// Segments in depth-first order.
    pub(crate) segments: Vec<Placed>,
    pub(crate) tokens: usize,
    /// Number of pairs of a query and a key that it sees.
    pub(crate) pairs: usize,
    /// Indices of the predictions in the batch.
    pub(crate) predictions: Vec<usize>,
}

/// A segment at its position in a tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    /// Flat index of the first token in the batch.
    pub(crate) first: usize,
    pub(crate) len: usize,
    /// Position of the first token in its sequence.
    pub(crate) position: usize,
    /// Number of ancestors.
    pub(crate) depth: usize,
}

/// A range of queries that see the same range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Range of queries, as indices into [`AttentionPlan::rows`].
    pub(crate) queries: Range<usize>,
    /// Range of consecutive rows of the key source.
    pub(crate) keys: Range<usize>,
    /// Position of the first key.
    pub(crate) position: u32,
    /// Whether a query sees only keys up to its own row.
    pub(crate) causal: bool,
}

/// Assignment of keys to queries.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttentionPlan {
    /// Row of each query, ascending.
    pub(crate) rows: Vec<u32>,
    /// Pieces. The pieces of a query are in the order of its ancestors.
    pub(crate) pieces: Vec<Piece>,
}

/// Maximum number of rows of a [`Stretch`]. A larger value makes the row-by-row matrices larger, a smaller one stores more states between stretches.
pub(crate) const STRETCH: usize = 32;

/// Consecutive rows of a segment, which recurrent mixers process at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) rows: Range<usize>,
    /// Index of the earlier stretch that this one continues.
    pub(crate) parent: Option<usize>,
    /// Slot of the state after this stretch, counted within the tree, or `None` if no stretch continues this one.
    pub(crate) state_slot: Option<usize>,
}

/// A requested log-probability within a chunk: a [`Prediction`] whose row is in the chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    /// Index into the chunk's predicting rows.
    pub(crate) slot: u32,
    pub(crate) token: u32,
}

/// A set of trees, arranged for one pass through the network with their rows in depth-first order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chunk {
    pub(crate) tokens: Vec<u32>,
    pub(crate) positions: Vec<u32>,
    /// Attention of all rows.
    pub(crate) all: AttentionPlan,
    /// Attention of the rows that predict; the last layer needs only these.
    pub(crate) predicting: AttentionPlan,
    pub(crate) picks: Vec<Pick>,
    /// For each pick, the index of its prediction in the batch.
    pub(crate) indices: Vec<usize>,
    /// Stretches of all rows, tree by tree.
    pub(crate) stretches: Vec<Stretch>,
    /// For each tree, the cache node that stores the recurrent state after its last row, if the tree is cached.
    pub(crate) nodes: Vec<usize>,
    /// End of each tree, as (rows, predicting rows, picks).
    pub(crate) ends: Vec<(usize, usize, usize)>,
}

impl Chunk {
    /// Fills the chunk with the tokens and plans of `trees` of `batch`. Reuses the allocations.
    pub(crate) fn lay_out<'a>(&mut self, batch: &Batch, trees: impl Iterator<Item = &'a PromptTree>) {
        self.tokens.clear();
        self.positions.clear();
        self.picks.clear();
        self.indices.clear();
        self.ends.clear();
        self.stretches.clear();
        self.nodes.clear();
        for plan in [&mut self.all, &mut self.predicting] {
            plan.rows.clear();
            plan.pieces.clear();
        }
        let mut predicted: Vec<(usize, usize)> = Vec::new();
        let mut segments: Vec<(usize, usize, u32, usize)> = Vec::new();
        for tree in trees {
            let base = self.tokens.len();
            let slots = self.predicting.rows.len();
            predicted.clear();
            segments.clear();
            // (batch row, length, chunk row) of each segment, to find the chunk row of a prediction.
            let mut starts: Vec<(usize, usize, usize)> = Vec::with_capacity(tree.segments.len());
            for segment in &tree.segments {
                let row = self.tokens.len();
                starts.push((segment.first, segment.len, row));
                self.tokens.extend_from_slice(&batch.tokens[segment.first..segment.first + segment.len]);
                self.positions.extend(
                    (segment.position..segment.position + segment.len).map(|position| position as u32),
                );
                segments.push((row, segment.len, segment.position as u32, segment.depth));
            }
            starts.sort_unstable();
            for &index in &tree.predictions {
                let row = batch.predictions[index].row;
                let (first, _, to) = starts[starts.partition_point(|start| start.0 <= row) - 1];
                predicted.push((to + row - first, index));
            }
            predicted.sort_unstable();
            for &(row, index) in &predicted {
                if self.predicting.rows.last() != Some(&(row as u32)) || self.predicting.rows.len() == slots {
                    self.predicting.rows.push(row as u32);
                }
                self.picks.push(Pick {
                    slot: self.predicting.rows.len() as u32 - 1,
                    token: batch.predictions[index].token,
                });
                self.indices.push(index);
            }
            let rows = self.tokens.len();
            self.all.rows.extend(base as u32..rows as u32);
            for (order, &(row, len, position, depth)) in segments.iter().enumerate() {
                // In depth-first order, the descendants of a segment are the rows up to the next segment that isn't deeper.
                let end =
                    segments[order + 1..].iter().find(|other| other.3 <= depth).map_or(rows, |other| other.0);
                for plan in [&mut self.all, &mut self.predicting] {
                    let at = |row: usize| plan.rows.partition_point(|&other| (other as usize) < row);
                    let (start, below, after) = (at(row), at(row + len), at(end));
                    for (queries, causal) in [(start..below, true), (below..after, false)] {
                        if !queries.is_empty() {
                            plan.pieces.push(Piece { queries, keys: row..row + len, position, causal });
                        }
                    }
                }
            }
            self.ends.push((rows, self.predicting.rows.len(), self.picks.len()));
            self.lay_out_stretches(&segments);
        }
    }

    /// Returns the row that precedes each row on its path, or `u32::MAX` for a root.
    pub(crate) fn previous(&self) -> impl Iterator<Item = u32> + '_ {
        self.stretches.iter().flat_map(|Stretch { rows, parent, .. }| {
            let before = parent.map_or(u32::MAX, |parent| self.stretches[parent].rows.end as u32 - 1);
            std::iter::once(before).chain(rows.start as u32..rows.end as u32 - 1)
        })
    }

    /// Adds the stretches of a tree's segments, given as (first row, length, _, depth) in depth-first order.
    fn lay_out_stretches(&mut self, segments: &[(usize, usize, u32, usize)]) {
        let first = self.stretches.len();
        // Last stretch of the latest segment at each depth.
        let mut ends: Vec<usize> = Vec::new();
        for &(row, len, _, depth) in segments {
            ends.truncate(depth);
            for start in (row..row + len).step_by(STRETCH) {
                let level = if start == row { depth } else { depth + 1 };
                let parent = level.checked_sub(1).map(|above| ends[above]);
                let rows = start..(start + STRETCH).min(row + len);
                ends.truncate(depth);
                ends.push(self.stretches.len());
                self.stretches.push(Stretch { rows, parent, state_slot: None });
            }
        }
        let mut slots = 0;
        for index in first..self.stretches.len() {
            if let Some(parent) = self.stretches[index].parent
                && self.stretches[parent].state_slot.is_none()
            {
                self.stretches[parent].state_slot = Some(slots);
                slots += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_shares_common_prefixes_and_the_last_token_has_no_row() {
        let mut batch = Batch::default();
        let indices = batch.push_group(&[1, 2], &[&[5, 6, 7], &[5, 6, 8], &[5, 9], &[], &[5, 6, 7]]);
        // Rows: 1 2 | 5 | 6, since 7, 8 and 9 end their completions.
        assert_eq!(batch.tokens, [1, 2, 5, 6]);
        assert_eq!(batch.segments.len(), 3);
        assert_eq!(batch.predictions.len(), 5);
        assert_eq!(indices[0], indices[4]);
        assert_eq!(indices[0][..2], indices[1][..2]);
        assert_eq!(indices[0][0], indices[2][0]);
        assert!(indices[3].is_empty());
        for (completion, indices) in
            [(&[5u32, 6, 7][..], &indices[0]), (&[5, 6, 8], &indices[1]), (&[5, 9], &indices[2])]
        {
            let tokens: Vec<u32> = indices.iter().map(|&index| batch.predictions[index].token).collect();
            assert_eq!(tokens, completion);
        }
    }

    #[test]
    fn stretches_continue_the_end_of_their_parent_and_continued_ones_have_a_state_slot() {
        let mut batch = Batch::default();
        let root = batch.push_segment(&[1; STRETCH + 3], None);
        let branch = batch.push_segment(&[2; 2], Some(root));
        batch.push_segment(&[3; 1], Some(branch));
        batch.push_segment(&[4; 2 * STRETCH], Some(root));
        batch.push_segment(&[5; 1], None);
        let mut chunk = Chunk::default();
        chunk.lay_out(&batch, batch.prompt_trees().iter());
        let stretches = chunk.stretches.iter().map(|s| (s.rows.len(), s.parent, s.state_slot));
        let expected = [
            (STRETCH, None, Some(0)),
            (3, Some(0), Some(1)),
            (2, Some(1), Some(2)),
            (1, Some(2), None),
            (STRETCH, Some(1), Some(3)),
            (STRETCH, Some(4), None),
            (1, None, None),
        ];
        assert_eq!(stretches.collect::<Vec<_>>(), expected);
        assert!(chunk.stretches.windows(2).all(|pair| pair[0].rows.end == pair[1].rows.start));
    }
}
