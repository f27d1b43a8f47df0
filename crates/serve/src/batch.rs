//! From sequences to one batch of the engine; equal predictions of shared rows are made once.

use crate::loss::{Pass, Sequence};
use crate::wire::{ArrayRecord, BatchedTensor, DType, ForwardBackwardOutput, floats};
use fgrpo_nn::{Batch, Engine, Error};
use fgrpo_train::policy::share;
use std::collections::BTreeMap;

/// A batch and where each sequence's targets are in it.
pub(crate) struct Packed {
    batch: Batch,
    /// The prediction of each target of each sequence; `None` for a target that wasn't given.
    places: Vec<Vec<Option<usize>>>,
    /// The (sequence, target) pairs of each prediction.
    uses: Vec<Vec<(usize, usize)>>,
}

impl Packed {
    pub(crate) fn new(sequences: &[Sequence]) -> Self {
        let mut shared = share(&sequences.iter().map(|s| &s.tokens[..]).collect::<Vec<_>>());
        let mut uses: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut places = Vec::with_capacity(sequences.len());
        for (index, sequence) in sequences.iter().enumerate() {
            let targets = &sequence.targets;
            let mut place = |at: usize| {
                if !targets.is_given(at) {
                    return None;
                }
                let place = shared.predict(index, at / targets.columns, targets.numbers[at] as u32);
                uses.resize_with(uses.len().max(place + 1), Vec::new);
                uses[place].push((index, at));
                Some(place)
            };
            places.push((0..targets.numbers.len()).map(&mut place).collect());
        }
        Self { batch: shared.batch, places, uses }
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
