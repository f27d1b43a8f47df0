//! Packs sequences into prefix trees, so that a prompt, and every other common prefix of its completions, is computed
//! once.

use fgrpo_nn::Batch;
use std::collections::HashMap;

/// Minimum number of common tokens for which two sequences with different prompts are put into one tree.
const LONG: usize = 256;

/// Tokens that the model reads, and the predictions to compute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sequence {
    /// Tokens of the sequence.
    pub tokens: Vec<u32>,
    /// Predictions to compute, in ascending order of `after`.
    pub targets: Vec<Target>,
}

/// The prediction that `token` follows the token at index `after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Index of the token that precedes the prediction.
    pub after: usize,
    /// Predicted token.
    pub token: u32,
}

impl Sequence {
    /// Makes a sequence in which every token but the first is a target.
    pub fn new(tokens: Vec<u32>) -> Self {
        let indices: Vec<usize> = (1..tokens.len()).collect();
        Self::of_indices(tokens, &indices)
    }

    /// Makes a sequence in which the tokens at `indices` are targets. Indices are ascending and at least 1.
    pub fn of_indices(tokens: Vec<u32>, indices: &[usize]) -> Self {
        let targets = indices.iter().map(|&t| Target { after: t - 1, token: tokens[t] }).collect();
        Self { tokens, targets }
    }

    /// Makes a sequence of a prompt, which has at least one token, and its completion, whose tokens are the targets.
    pub fn completion(prompt: &[u32], completion: &[u32]) -> Self {
        let tokens = [prompt, completion].concat();
        let indices: Vec<usize> = (prompt.len()..tokens.len()).collect();
        Self::of_indices(tokens, &indices)
    }

    /// Returns the number of tokens before the first target.
    fn prompt(&self) -> usize {
        self.targets.first().map_or(self.tokens.len(), |target| target.after + 1)
    }

    /// Returns the number of tokens that the model reads.
    fn read(&self) -> usize {
        self.targets.last().map_or(0, |target| target.after + 1)
    }
}

/// A batch of the engine, as trees of members. A member has one or more sequences, all in the same tree.
#[derive(Debug, Default)]
pub(super) struct Packed {
    pub(super) batch: Batch,
    /// Members of each tree, ascending.
    pub(super) trees: Vec<Vec<usize>>,
    /// For each member, the index in the batch of the prediction of each target.
    pub(super) places: Vec<Vec<usize>>,
}

/// Packs members into trees of at most about `budget` tokens. A member is the sequences of one datum. Members are in
/// the same tree if they share a prompt or a long prefix. Members for which `computed` returns `false` are left out.
/// Fails with the index of a member whose sequences begin with different tokens.
pub(super) fn pack(
    members: &[&[Sequence]],
    budget: usize,
    computed: impl Fn(&[usize]) -> bool,
) -> Result<Packed, usize> {
    let mut packed = Packed { places: vec![Vec::new(); members.len()], ..Packed::default() };
    for related in related(members) {
        if !computed(&related) {
            continue;
        }
        let mut tree: Vec<usize> = Vec::new();
        let mut tokens = 0;
        for member in related {
            let prompt = members[member][0].prompt();
            let completion =
                members[member].iter().map(|s| s.tokens.len().saturating_sub(prompt)).sum::<usize>();
            if !tree.is_empty() && tokens + completion > budget {
                packed.push(members, std::mem::take(&mut tree))?;
            }
            tokens = completion + if tree.is_empty() { prompt } else { tokens };
            tree.push(member);
        }
        packed.push(members, tree)?;
    }
    Ok(packed)
}

/// Groups the members that share a prompt or a long prefix. Members without targets are left out. Groups are ordered by
/// their first member, and members are ascending in each group.
fn related(members: &[&[Sequence]]) -> Vec<Vec<usize>> {
    let has_targets = |&m: &usize| members[m].iter().any(|sequence| !sequence.targets.is_empty());
    let mut order: Vec<usize> = (0..members.len()).filter(has_targets).collect();
    order.sort_by(|&a, &b| members[a][0].tokens.cmp(&members[b][0].tokens));
    let belongs = |a: &usize, b: &usize| {
        let (a, b) = (&members[*a][0], &members[*b][0]);
        let shared = a.tokens.iter().zip(&b.tokens).take_while(|(a, b)| a == b).count();
        let prompt = a.prompt().min(b.prompt());
        let half = 2 * shared >= a.tokens.len().min(b.tokens.len());
        prompt > 1 && shared >= prompt || half && (prompt == 1 || shared >= LONG)
    };
    let mut groups: Vec<Vec<usize>> = order.chunk_by(belongs).map(<[usize]>::to_vec).collect();
    groups.iter_mut().for_each(|group| group.sort_unstable());
    groups.sort_unstable_by_key(|group| group[0]);
    groups
}

impl Packed {
    /// Returns each member's values from the values of the batch's predictions. Empty for members that were left out.
    pub(super) fn of_members(&self, values: &[f32]) -> Vec<Vec<f32>> {
        self.places.iter().map(|places| places.iter().map(|&place| values[place]).collect()).collect()
    }

    /// Appends a tree.
    fn push(&mut self, members: &[&[Sequence]], tree: Vec<usize>) -> Result<(), usize> {
        let parts = || tree.iter().flat_map(|&m| members[m].iter().map(move |part| (m, part)));
        let parts: Vec<(usize, &Sequence)> = parts().filter(|(_, part)| !part.targets.is_empty()).collect();
        let first = parts[0].1.tokens[0];
        if let Some((member, _)) = parts.iter().find(|(_, part)| part.tokens[0] != first) {
            return Err(*member);
        }
        let sequences: Vec<&Sequence> = parts.iter().map(|(_, part)| *part).collect();
        let rows = grow(&mut self.batch, &sequences);
        let mut predictions: HashMap<(usize, u32), usize> = HashMap::new();
        for ((member, part), rows) in parts.into_iter().zip(rows) {
            for &Target { after, token } in &part.targets {
                let row = rows[after];
                let place =
                    *predictions.entry((row, token)).or_insert_with(|| self.batch.predict(row, token));
                self.places[member].push(place);
            }
        }
        self.trees.push(tree);
        Ok(())
    }
}

/// Appends sequences with the same first token to a batch as one tree, in the layout of [`Batch::push_group`]: the
/// prompt is a segment, and branches are in the order of the sequences. Returns the row of each token that is read.
fn grow(batch: &mut Batch, sequences: &[&Sequence]) -> Vec<Vec<usize>> {
    let mut rows: Vec<Vec<usize>> = sequences.iter().map(|s| Vec::with_capacity(s.read())).collect();
    let root = sequences.iter().map(|sequence| sequence.prompt()).min().unwrap_or(0);
    // (sequences, number of common tokens so far, segment with the last of these tokens)
    let mut stack: Vec<(Vec<usize>, usize, Option<usize>)> = vec![((0..sequences.len()).collect(), 0, None)];
    while let Some((mut members, depth, parent)) = stack.pop() {
        let row = batch.tokens.len();
        let (mut end, mut longest) = (depth, members[0]);
        loop {
            let ends: Vec<usize> = members.extract_if(.., |&mut m| sequences[m].read() <= end).collect();
            let Some(&next) = members.first() else { break };
            let token = sequences[next].tokens[end];
            let last = |m: usize| sequences[m].targets.last().is_some_and(|target| target.token == token);
            let agree =
                members.iter().all(|&m| sequences[m].tokens[end] == token) && ends.into_iter().all(last);
            if !agree || parent.is_none() && end == root {
                break;
            }
            members.iter().for_each(|&m| rows[m].push(row + end - depth));
            (end, longest) = (end + 1, next);
        }
        let segment = batch.push_segment(&sequences[longest].tokens[depth..end], parent);
        let mut branches: Vec<Vec<usize>> = Vec::new();
        for member in members {
            let token = sequences[member].tokens[end];
            match branches.iter_mut().find(|branch| sequences[branch[0]].tokens[end] == token) {
                Some(branch) => branch.push(member),
                None => branches.push(vec![member]),
            }
        }
        // Reversed, so that the rows of a subtree stay together and in order.
        stack.extend(branches.into_iter().rev().map(|branch| (branch, end, Some(segment))));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the tokens on the path to a row.
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

    fn packed(sequences: &[Sequence], budget: usize) -> Packed {
        let members: Vec<&[Sequence]> = sequences.iter().map(std::slice::from_ref).collect();
        pack(&members, budget, |_| true).unwrap()
    }

    proptest! {
        #[test]
        fn every_prediction_follows_the_tokens_before_it(
            sequences in proptest::collection::vec(proptest::collection::vec(0u32..3, 2..12), 1..9),
            prompt in 1usize..4,
            budget in 1usize..40,
        ) {
            let sequence = |tokens: &Vec<u32>| {
                 let indices: Vec<usize> = (prompt.min(tokens.len() - 1)..tokens.len()).collect();
                Sequence::of_indices(tokens.clone(), &indices)
            };
            let sequences: Vec<Sequence> = sequences.iter().map(sequence).collect();
            let Packed { batch, trees, places } = packed(&sequences, budget);
            let mut all: Vec<usize> = trees.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..sequences.len()).collect::<Vec<_>>());
            for (sequence, places) in sequences.iter().zip(&places) {
                prop_assert_eq!(places.len(), sequence.targets.len());
                for (target, &place) in sequence.targets.iter().zip(places) {
                    let prediction = batch.predictions[place];
                    prop_assert_eq!(prediction.token, target.token);
                    prop_assert_eq!(path(&batch, prediction.row), &sequence.tokens[..=target.after]);
                }
            }
        }
    }

    #[test]
    fn a_group_is_laid_out_as_the_engine_lays_out_a_prompt_with_its_completions() {
        let prompt = [1, 2, 3];
        let completions: [&[u32]; 5] = [&[5, 6, 7, 0], &[5, 6, 0], &[8], &[5, 9, 0], &[8, 4]];
        let sequences: Vec<Sequence> = completions.iter().map(|c| Sequence::completion(&prompt, c)).collect();
        let batch = packed(&sequences, 1 << 16).batch;
        let mut group = Batch::default();
        group.push_group(&prompt, &completions);
        assert_eq!((&batch.tokens, &batch.segments), (&group.tokens, &group.segments));
        assert_eq!(batch.predictions.len(), group.predictions.len());
    }

    #[test]
    fn sequences_share_a_tree_if_they_share_a_prompt_or_half_of_a_text_and_the_budget_cuts_it() {
        let group =
            |prompt: u32| (0..3).map(move |i| Sequence::completion(&[prompt, 2, 3], &[10 + i, 20, 0]));
        let two: Vec<Sequence> = group(1).chain(group(4)).collect();
        assert_eq!(packed(&two, 1 << 16).trees, [vec![0, 1, 2], vec![3, 4, 5]]);
        // A prompt of 3 tokens and two completions of 3.
        assert_eq!(packed(&two, 9).trees, [vec![0, 1], vec![2], vec![3, 4], vec![5]]);
        let texts = [[1, 2, 3, 4], [1, 5, 6, 7], [1, 2, 9, 9]].map(|tokens| Sequence::new(tokens.to_vec()));
        assert_eq!(packed(&texts, 1 << 16).trees, [vec![0, 2], vec![1]]);
    }
}
