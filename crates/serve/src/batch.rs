//! From sequences to one batch of the engine. Sequences with a long common beginning share its rows, so a prompt is computed once for all its
//! completions; equal predictions of shared rows are made once.

use crate::loss::{Pass, Sequence};
use crate::wire::{ArrayRecord, BatchedTensor, DType, ForwardBackwardOutput, floats};
use fgrpo_nn::{Batch, Engine, Error};
use std::collections::{BTreeMap, HashMap};

/// Maximum number of tokens in a family of several sequences, which is computed in one piece.
const FAMILY_TOKENS: usize = 8192;

/// A batch and where each sequence's targets are in it.
pub(crate) struct Packed {
    batch: Batch,
    /// The prediction of each target of each sequence; `None` for a target that wasn't given.
    places: Vec<Vec<Option<usize>>>,
    /// The (sequence, target) pairs of each prediction.
    uses: Vec<Vec<(usize, usize)>>,
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Packed {
    pub(crate) fn new(sequences: &[Sequence]) -> Self {
        let rows = share(&sequences.iter().map(|s| &s.tokens[..]).collect::<Vec<_>>());
        let Rows { mut batch, rows } = rows;
        let mut made: HashMap<(usize, u32), usize> = HashMap::new();
        let mut uses: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut places = Vec::with_capacity(sequences.len());
        for (index, (sequence, rows)) in sequences.iter().zip(&rows).enumerate() {
            let targets = &sequence.targets;
            let place = |at: usize| {
                if !targets.is_given(at) {
                    return None;
                }
                let (row, token) = (rows[at / targets.columns], targets.numbers[at] as u32);
                let place = *made.entry((row, token)).or_insert_with(|| batch.predict(row, token));
                uses.resize_with(uses.len().max(place + 1), Vec::new);
                uses[place].push((index, at));
                Some(place)
            };
            places.push((0..targets.numbers.len()).map(place).collect());
        }
        Self { batch, places, uses }
    }

    /// Runs the pass: scores, and unless it is `forward_only`, the gradient, which is added to the engine's.
    pub(crate) fn run(&self, pass: &Pass, engine: &mut Engine) -> Result<ForwardBackwardOutput, Error> {
        let term = |&(sequence, target): &(usize, usize), logp: f32| {
            pass.sequences[sequence].term(target, f64::from(logp))
        };
        let (logp, loss) = if pass.forward_only {
            let scores = engine.score(&self.batch, 1.0)?;
            let terms = self.uses.iter().zip(&scores.logp);
            let loss: f64 = terms.map(|(uses, &l)| uses.iter().map(|own| term(own, l).0).sum::<f64>()).sum();
            (scores.logp, loss)
        } else {
            let (scores, losses) = engine.accumulate(&self.batch, 1.0, &|family| {
                let mut loss = 0.0;
                for (i, &prediction) in family.predictions.iter().enumerate() {
                    let mut dlogp = 0.0;
                    for own in &self.uses[prediction] {
                        let (value, derivative) = term(own, family.logp[i]);
                        loss += value;
                        dlogp += derivative;
                    }
                    family.dlogp[i] = dlogp as f32;
                }
                loss
            })?;
            engine.gather_gradient();
            (scores.logp, losses.iter().sum())
        };
        Ok(ForwardBackwardOutput {
            loss_fn_output_type: "ArrayRecord".into(),
            loss_fn_outputs: self.records(&pass.sequences, &logp),
            metrics: BTreeMap::from([("loss:sum".into(), loss)]),
        })
    }

    /// The log-probability of each target; 0 where none was given.
    fn records(&self, sequences: &[Sequence], logp: &[f32]) -> Vec<ArrayRecord> {
        let trailing = |index: usize| {
            let targets = &sequences[index].targets;
            targets.two_dimensional.then_some(targets.columns as i64)
        };
        let mut records = Vec::new();
        let mut first = 0;
        while first < sequences.len() {
            let shape = trailing(first);
            let end = (first..sequences.len()).find(|&i| trailing(i) != shape).unwrap_or(sequences.len());
            let mut data = Vec::new();
            let mut offsets = vec![0i64];
            for places in &self.places[first..end] {
                let own: Vec<f32> =
                    places.iter().map(|place| place.map_or(0.0, |place| logp[place])).collect();
                data.extend(floats(&own));
                offsets.push(data.len() as i64);
            }
            let tensor = BatchedTensor {
                data,
                offsets: offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect(),
                dtype: DType::Float32 as i32,
                trailing_shape: shape.into_iter().collect(),
            };
            records.push(ArrayRecord {
                type_tag: String::new(),
                fields: BTreeMap::from([("logprobs".into(), tensor)]),
                num_datums: (end - first) as i64,
            });
            first = end;
        }
        records
    }
}

/// A batch without predictions, and the row of each token of each sequence.
pub(crate) struct Rows {
    pub(crate) batch: Batch,
    pub(crate) rows: Vec<Vec<usize>>,
}

/// Lays sequences out as prefix trees. Two neighbours in lexical order are in the same tree if they have at least half of the shorter one in common.
pub(crate) fn share(sequences: &[&[u32]]) -> Rows {
    let mut order: Vec<usize> = (0..sequences.len()).collect();
    order.sort_by(|&a, &b| sequences[a].cmp(sequences[b]));
    let mut out = Rows { batch: Batch::default(), rows: vec![Vec::new(); sequences.len()] };
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

impl Rows {
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
            let Rows { batch, rows } = share(&slices);
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
        // Two sequences that share only their first token are computed apart.
        assert_eq!(share(&[&[1, 2, 3, 4], &[1, 5, 6, 7]]).batch.segments.len(), 2);
    }
}
