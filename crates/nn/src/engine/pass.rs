//! Passes of a batch through the network: scores, gradients, logits.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::{BLOCK, Engine, KEPT_COPIES_BYTES, LossFn, NamedTensor, Scores, Worker};
use crate::cpu::buffer::Buffer;
use crate::cpu::rope::Rope;
use crate::cpu::{Cpu, simd};
use crate::decoder::{Decoder, Gradients, Keep, Workspace};
use crate::error::Error;
use crate::lora::AdapterLayout;
use crate::ops::Backend;
use crate::segments::{Batch, Chunk, Family};

/// (prediction, log-probability, entropy).
type Score = (usize, f32, f32);

impl Engine {
    /// Log-probabilities and entropies of the batch's predictions.
    ///
    /// # Errors
    /// If they aren't finite.
    ///
    /// # Panics
    /// If the batch is malformed (see [`Batch`]), or the temperature is not positive.
    pub fn score(&mut self, batch: &Batch, temperature: f32) -> Result<Scores, Error> {
        self.pass(batch, temperature, None)
    }

    /// Scores the batch, asks `loss` for the derivatives and ADDS what they make to the gradient. Families whose derivatives are all zero cost no
    /// backward pass.
    ///
    /// # Errors
    /// If the scores aren't finite; the gradient is then incomplete and must be zeroed.
    ///
    /// # Panics
    /// As [`Engine::score`].
    pub fn accumulate(
        &mut self,
        batch: &Batch,
        temperature: f32,
        loss: &LossFn<'_>,
    ) -> Result<Scores, Error> {
        self.pass(batch, temperature, Some(loss))
    }

    fn pass(&mut self, batch: &Batch, temperature: f32, loss: Option<&LossFn<'_>>) -> Result<Scores, Error> {
        assert!(temperature > 0.0 && temperature.is_finite(), "temperature {temperature}");
        let applied = self.adapters.as_ref().is_none_or(|adapters| adapters.applied);
        assert!(loss.is_none() || applied, "a gradient while the adapters are not applied");
        batch.check(self.decoder.config.vocab_size);
        let families = batch.families();
        self.reach(families.iter().flat_map(|family| &family.segments).map(|s| s.position + s.len).max());
        let shares = self.deal(&families);
        let keep = match (loss, self.checkpointing) {
            (None, _) => Keep::Nothing,
            (Some(_), true) => Keep::Inputs,
            (Some(_), false) => Keep::Everything,
        };
        let trained = self.trained().1;
        if loss.is_some() {
            if self.copies.made.as_ref().is_some_and(|made| made.bytes() > KEPT_COPIES_BYTES) {
                self.copies.made = None;
            }
            for worker in &mut self.workers {
                worker.gradient.reserve(trained);
            }
        }
        let (decoder, weights, chunk_tokens) = (&self.decoder, &self.weights, self.chunk_tokens);
        let adapters = self.adapters.as_ref().map(|adapters| (&adapters.values[..], &adapters.layout));
        let mut results: Vec<Result<Vec<Score>, Error>> = Vec::new();
        results.resize_with(self.workers.len(), || Ok(Vec::new()));
        self.pool.in_place_scope(|scope| {
            for ((worker, share), result) in self.workers.iter_mut().zip(&shares).zip(&mut results) {
                if share.is_empty() {
                    continue;
                }
                scope.spawn(move |_| {
                    *result = worker.pass(
                        decoder,
                        weights,
                        adapters,
                        batch,
                        share,
                        chunk_tokens,
                        temperature,
                        keep,
                        loss,
                    );
                });
            }
        });
        let mut scores =
            Scores { logp: vec![0.0; batch.predictions.len()], entropy: vec![0.0; batch.predictions.len()] };
        for result in results {
            for (index, logp, entropy) in result? {
                scores.logp[index] = logp;
                scores.entropy[index] = entropy;
            }
        }
        Ok(scores)
    }

    /// Families with predictions, dealt to the threads: the costliest first, each to the thread with least so far.
    fn deal<'a>(&self, families: &'a [Family]) -> Vec<Vec<&'a Family>> {
        let config = &self.decoder.config;
        let per_token = self.decoder.layout.len as u64;
        let per_pair = (config.num_hidden_layers * config.num_attention_heads * config.head_dim * 2) as u64;
        let cost = |family: &Family| family.tokens as u64 * per_token + family.pairs as u64 * per_pair;
        let mut order: Vec<&Family> =
            families.iter().filter(|family| !family.predictions.is_empty()).collect();
        order.sort_by_key(|family| std::cmp::Reverse(cost(family)));
        let mut shares = vec![Vec::new(); self.workers.len()];
        let mut loads = vec![0u64; self.workers.len()];
        for family in order {
            let least = (0..loads.len()).min_by_key(|&worker| loads[worker]).expect("there is a worker");
            loads[least] += cost(family);
            shares[least].push(family);
        }
        shares
    }

    /// Makes the rotary tables reach `positions`.
    pub(super) fn reach(&mut self, positions: Option<usize>) {
        let positions = positions.unwrap_or(0);
        if positions > self.rope.positions() {
            self.rope = Arc::new(Rope::new(&self.decoder.config, positions.next_power_of_two()));
            for worker in &mut self.workers {
                worker.cpu.set_rope(Arc::clone(&self.rope));
            }
        }
    }

    /// The logits of the batch's predictions, untempered: `[predictions, V]`. For tests and small inputs.
    ///
    /// # Errors
    /// None today; a device may fail.
    ///
    /// # Panics
    /// If the batch is malformed.
    pub fn logits(&mut self, batch: &Batch) -> Result<Vec<f32>, Error> {
        batch.check(self.decoder.config.vocab_size);
        let families = batch.families();
        self.reach(families.iter().flat_map(|family| &family.segments).map(|s| s.position + s.len).max());
        let v = self.decoder.config.vocab_size;
        let mut all = vec![0.0; batch.predictions.len() * v];
        let mut rows = Vec::new();
        let worker = &mut self.workers[0];
        for family in families.iter().filter(|family| !family.predictions.is_empty()) {
            worker.chunk.lay_out(batch, std::iter::once(family));
            let (cpu, chunk, workspace) = (&mut worker.cpu, &worker.chunk, &mut worker.workspace);
            self.decoder.forward(cpu, &self.weights, chunk, Keep::Nothing, None, workspace);
            cpu.logits(
                &self.weights,
                self.decoder.head(),
                chunk.predicting.rows.len(),
                workspace.hidden(),
                &mut rows,
            );
            for (pick, &index) in chunk.picks.iter().zip(&chunk.indices) {
                all[index * v..(index + 1) * v].copy_from_slice(&rows[pick.slot as usize * v..][..v]);
            }
        }
        Ok(all)
    }

    /// Forgets the gradient.
    pub fn zero_gradient(&mut self) {
        for worker in &mut self.workers {
            worker.gradient.fill(0.0);
        }
    }

    /// Norm of the whole gradient.
    pub fn gradient_norm(&self) -> f64 {
        let gradients: Vec<&Buffer> = self.filled_gradients();
        let len = self.trained().1;
        let mut sum = vec![0.0f32; BLOCK];
        let mut total = 0.0;
        for first in (0..len).step_by(BLOCK) {
            let range = first..(first + BLOCK).min(len);
            let sum = &mut sum[..range.len()];
            sum.fill(0.0);
            for gradient in &gradients {
                simd::add(&gradient[range.clone()], sum);
            }
            total += simd::square_sum(sum);
        }
        total.sqrt()
    }

    fn filled_gradients(&self) -> Vec<&Buffer> {
        self.workers.iter().map(|worker| &worker.gradient).filter(|gradient| !gradient.is_empty()).collect()
    }

    /// The gradient of each tensor that is trained: all of them, or LoRA's factors.
    pub fn gradients(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        let gradients = self.filled_gradients();
        self.trained().0.iter().map(move |tensor| {
            let range = tensor.span.offset..tensor.span.offset + tensor.span.len;
            let mut sum = vec![0.0; tensor.span.len];
            for gradient in &gradients {
                simd::add(&gradient[range.clone()], &mut sum);
            }
            (tensor.name.as_str(), tensor.shape.as_slice(), Cow::Owned(sum))
        })
    }
}

impl Worker {
    /// This thread's families through the network, some at a time; (prediction, logp, entropy) of each.
    fn pass(
        &mut self,
        decoder: &Decoder,
        weights: &[f32],
        adapters: Option<(&[f32], &AdapterLayout)>,
        batch: &Batch,
        families: &[&Family],
        chunk_tokens: usize,
        temperature: f32,
        keep: Keep,
        loss: Option<&LossFn<'_>>,
    ) -> Result<Vec<Score>, Error> {
        let Worker { cpu, workspace, chunk, gradient, .. } = self;
        let mut scores = Vec::new();
        let [mut logp, mut entropy, mut dlogp, mut dentropy] = [const { Vec::new() }; 4];
        let mut next = 0;
        while next < families.len() {
            let first = next;
            let mut tokens = 0;
            while next < families.len() && (next == first || tokens + families[next].tokens <= chunk_tokens) {
                tokens += families[next].tokens;
                next += 1;
            }
            let group = &families[first..next];
            chunk.lay_out(batch, group.iter().copied());
            decoder.forward(cpu, weights, chunk, keep, None, workspace);
            for list in [&mut logp, &mut entropy, &mut dlogp, &mut dentropy] {
                list.clear();
                list.resize(chunk.picks.len(), 0.0f32);
            }
            decoder.score(cpu, weights, chunk, temperature, workspace, &mut logp, &mut entropy)?;
            scores
                .extend(chunk.indices.iter().zip(logp.iter().zip(&entropy)).map(|(&i, (&l, &e))| (i, l, e)));
            let Some(loss) = loss else { continue };
            loss(&chunk.indices, &logp, &entropy, &mut dlogp, &mut dentropy);
            if !self::drop_idle(decoder, cpu, workspace, chunk, batch, group, keep, &mut dlogp, &mut dentropy)
            {
                continue;
            }
            let gradient = &mut gradient[..];
            let mut gradients: Gradients<'_, Cpu> = match adapters {
                None => Gradients::All(gradient),
                Some((values, layout)) => Gradients::Adapters { gradient, values, layout },
            };
            let gradients = &mut gradients;
            decoder.backward(cpu, weights, gradients, chunk, keep, temperature, &dlogp, &dentropy, workspace);
        }
        Ok(scores)
    }
}

/// Takes families without any derivative out of the chunk and of what the forward pass kept; whether any family is left.
fn drop_idle(
    decoder: &Decoder,
    cpu: &mut Cpu,
    workspace: &mut Workspace<Cpu>,
    chunk: &mut Chunk,
    batch: &Batch,
    families: &[&Family],
    keep: Keep,
    dlogp: &mut Vec<f32>,
    dentropy: &mut Vec<f32>,
) -> bool {
    let mut starts = (0, 0, 0);
    let mut active = Vec::new();
    let [mut rows, mut queries, mut picks] = [const { Vec::<Range<usize>>::new() }; 3];
    for (&family, &ends) in families.iter().zip(&chunk.ends) {
        let own = starts.2..ends.2;
        if dlogp[own.clone()].iter().chain(&dentropy[own.clone()]).any(|&d| d != 0.0) {
            active.push(family);
            rows.push(starts.0..ends.0);
            queries.push(starts.1..ends.1);
            picks.push(own);
        }
        starts = ends;
    }
    if active.is_empty() || active.len() == families.len() {
        return !active.is_empty();
    }
    decoder.keep_rows(cpu, &rows, &queries, keep, workspace);
    for list in [dlogp, dentropy] {
        *list = picks.iter().flat_map(|own| list[own.clone()].iter().copied()).collect();
    }
    chunk.lay_out(batch, active.into_iter());
    true
}
