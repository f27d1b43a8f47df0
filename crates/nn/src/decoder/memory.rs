//! Memory of the buffers of passes, found by running the passes on an executor that only counts.

use super::{Decoder, Gradients, Keep, KeySource, Pass, PickScores, Workspace};
use crate::executor::{Cache, Counter};
use crate::families::Recurrence;
use crate::numbers::Precision;
use crate::sampling::Rollout;

/// Computes the memory of one executor's buffers, which grow to the largest of the added passes.
pub(crate) struct PassMemory<'a> {
    decoder: &'a Decoder,
    counter: Counter,
    work: Workspace<Counter>,
    /// Bytes of the executor's internal buffers whose size depends on the number of rows.
    scratch: u64,
}

impl<'a> PassMemory<'a> {
    /// Creates the memory before any pass. `precision` is the number type of activations.
    pub(crate) fn new(decoder: &'a Decoder, precision: Precision) -> PassMemory<'a> {
        let counter = Counter { precision, bytes: 0 };
        PassMemory { decoder, counter, work: Workspace::<Counter>::default(), scratch: 0 }
    }

    /// Adds a forward pass over `rows` rows, of which `predicting` predict, and a backward pass if anything is kept.
    pub(crate) fn pass(&mut self, rows: usize, predicting: usize, keep: Keep) {
        let PassMemory { decoder, counter, work, .. } = self;
        let parameters = decoder.parameters(&(), None);
        let pass = Pass { parameters, lists: &(), rows, predicting, picks: predicting, keep };
        decoder.forward(counter, &pass, KeySource::Batch(None), work);
        if keep != Keep::Nothing {
            let mut scores = PickScores::default();
            let scored = decoder.score(counter, &pass, 1.0, work, &mut scores);
            let mut gradients = Gradients::All(&mut ());
            let backward = decoder.backward(counter, &mut gradients, &pass, 1.0, &scores, work);
            scored.and(backward).expect("a counter has no errors");
        }
        self.add_scratch(rows, predicting, keep != Keep::Nothing);
    }

    /// Adds a rollout's passes over its prompts.
    pub(crate) fn prompts(&mut self, rollout: &Rollout) {
        let rows = rollout.prefilled();
        self.pass(rows, rollout.prompts.min(rows), Keep::Nothing);
    }

    /// Adds a decoding step over `rows` rows.
    pub(crate) fn step(&mut self, rows: usize) {
        let PassMemory { decoder, counter, work, .. } = self;
        let pass = Pass::of_step(decoder.parameters(&(), None), &rows);
        let source: KeySource<'_, Counter> =
            KeySource::Step { decoding: &rows, cache: &mut Cache::default() };
        decoder.forward(counter, &pass, source, work);
        self.add_scratch(rows, rows, false);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.counter.bytes + self.scratch
    }

    fn add_scratch(&mut self, rows: usize, predicting: usize, trains: bool) {
        // Bytes per row of each kind of layer.
        let (mut kinds, bytes) = ([0; 3], self.counter.precision.bytes());
        for layer in &self.decoder.layout.layers {
            let (kind, size) = match layer.spec.mixer {
                // Sums of attention.
                None => (0, 4 * self.decoder.config.num_attention_heads),
                // Gates, factors of queries and keys, and the derivative of the convolution's result.
                Some(Recurrence::DeltaRule(sizes)) => {
                    let heads = sizes.linear_num_value_heads + sizes.linear_num_key_heads;
                    (1, 4 * 2 * heads + if trains { bytes * sizes.channels() } else { 0 })
                }
                // Inputs of the convolution.
                Some(Recurrence::Convolution(sizes)) => (2, bytes * sizes.width),
            };
            kinds[kind] = size.max(kinds[kind]);
        }
        // The head has three sums per predicting row, and two derivatives.
        let head = 4 * if trains { 5 } else { 3 } * predicting;
        self.scratch = self.scratch.max((rows * kinds.iter().sum::<usize>() + head) as u64);
    }
}
