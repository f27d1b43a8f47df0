//! Sequences as prefix trees: those with a long common beginning share its rows, so a prompt is computed once for all its completions.

use fgrpo_nn::Batch;
use std::collections::HashMap;

/// Maximum number of tokens in a family of several sequences, which is computed in one piece.
const FAMILY_TOKENS: usize = 8192;

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Sequences as prefix trees.
#[derive(Debug)]
pub struct Rows {
    /// The segments, without predictions at first.
    pub batch: Batch,
    /// For each sequence, the row of each of its tokens.
    pub rows: Vec<Vec<usize>>,
    made: HashMap<(usize, u32), usize>,
}

/// Lays sequences out as prefix trees. Two neighbours in lexical order are in the same tree if they have at least half of the shorter one in common.
pub fn share(sequences: &[&[u32]]) -> Rows {
    let mut order: Vec<usize> = (0..sequences.len()).collect();
    order.sort_by(|&a, &b| sequences[a].cmp(sequences[b]));
    let mut out =
        Rows { batch: Batch::default(), rows: vec![Vec::new(); sequences.len()], made: HashMap::new() };
    let mut first = 0;
    while first < order.len() {
        let mut end = first + 1;
        let mut tokens = sequences[order[first]].len();
        while end < order.len() {
            let (before, next) = (sequences[order[end - 1]], sequences[order[end]]);
            let shared = common(before, next);
            tokens += next.len() - shared;
            if 2 * shared < before.len().min(next.len()) || tokens > FAMILY_TOKENS {
                break;
            }
            end += 1;
        }
        out.tree(sequences, &order[first..end]);
        first = end;
    }
    out
}

/// Lays sequences out as one tree at the end of a batch, if they all begin with the same token.
pub fn share_all(batch: &mut Batch, sequences: &[&[u32]]) -> Option<Rows> {
    let mut order: Vec<usize> = (0..sequences.len()).collect();
    order.sort_by(|&a, &b| sequences[a].cmp(sequences[b]));
    let same = order.windows(2).all(|pair| common(sequences[pair[0]], sequences[pair[1]]) > 0);
    same.then(|| {
        let rows = vec![Vec::new(); sequences.len()];
        let mut out = Rows { batch: std::mem::take(batch), rows, made: HashMap::new() };
        if !order.is_empty() {
            out.tree(sequences, &order);
        }
        out
    })
}

impl Rows {
    /// The index of the prediction of `token` after token `at` of a sequence; sequences that share both share the prediction.
    pub fn predict(&mut self, sequence: usize, at: usize, token: u32) -> usize {
        let row = self.rows[sequence][at];
        *self.made.entry((row, token)).or_insert_with(|| self.batch.predict(row, token))
    }

    /// Appends sequences in lexical order with at least one token in common as one tree.
    fn tree(&mut self, sequences: &[&[u32]], members: &[usize]) {
        // (members, tokens they have in common already, their segment)
        let mut waiting = vec![(members, 0, None)];
        while let Some((members, depth, parent)) = waiting.pop() {
            let (first, last) = (sequences[members[0]], sequences[members[members.len() - 1]]);
            let end = common(first, last);
            let row = self.batch.tokens.len();
            let segment = self.batch.push_segment(&first[depth..end], parent);
            for &member in members {
                self.rows[member].extend(row..row + end - depth);
            }
            let mut rest = &members[members.partition_point(|&member| sequences[member].len() == end)..];
            while let Some(&member) = rest.first() {
                let token = sequences[member][end];
                let (part, others) = rest.split_at(rest.partition_point(|&m| sequences[m][end] <= token));
                waiting.push((part, end, Some(segment)));
                rest = others;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The tokens on the path from the root to a row.
    fn path(batch: &Batch, row: usize) -> Vec<u32> {
        let mut starts = vec![0];
        for segment in &batch.segments {
            starts.push(starts[starts.len() - 1] + segment.len);
        }
        let mut segment = starts.partition_point(|&start| start <= row) - 1;
        let mut tokens = batch.tokens[starts[segment]..=row].to_vec();
        while let Some(parent) = batch.segments[segment].parent {
            tokens.splice(0..0, batch.tokens[starts[parent]..starts[parent + 1]].iter().copied());
            segment = parent;
        }
        tokens
    }

    proptest! {
        #[test]
        fn every_row_follows_the_tokens_before_it(sequences in proptest::collection::vec(proptest::collection::vec(0u32..3, 1..12), 1..9)) {
            let slices: Vec<&[u32]> = sequences.iter().map(|s| &s[..]).collect();
            let Rows { batch, rows, .. } = share(&slices);
            for (sequence, rows) in sequences.iter().zip(&rows) {
                prop_assert_eq!(rows.len(), sequence.len());
                for (t, &row) in rows.iter().enumerate() {
                    prop_assert_eq!(path(&batch, row), &sequence[..=t]);
                }
            }
        }
    }

    #[test]
    fn a_prompt_is_laid_out_once_for_all_its_completions() {
        let group: Vec<Vec<u32>> = (0..4).map(|i| vec![1, 2, 3, 4, 5, 6, 10 + i, 20]).collect();
        let slices: Vec<&[u32]> = group.iter().map(|s| &s[..]).collect();
        assert_eq!(share(&slices).batch.tokens.len(), 6 + 4 * 2);
        // All of a group's episodes may have failed before their first token.
        assert!(share_all(&mut Batch::default(), &[]).unwrap().batch.tokens.is_empty());
        // Two sequences that share only their first token are computed apart.
        assert_eq!(share(&[&[1, 2, 3, 4], &[1, 5, 6, 7]]).batch.segments.len(), 2);
    }
}
