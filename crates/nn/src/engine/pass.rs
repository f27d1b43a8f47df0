//! Passes over a batch: scores, gradients, logits.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::adapters::unmerged;
use super::{Engine, FamilyScores, LossFn, Scores};
use crate::backend::{ExecutorAccess, deal};
use crate::decoder::{Decoder, Gradients, Keep, KeySource, Pass, PickScores, RemainingRows, Workspace};
use crate::error::Error;
use crate::executor::checks::{Checked, finite_loss};
use crate::executor::{Cache, Executor, HeadOps, Memory};
use crate::lora::AdapterLayout;
use crate::segments::{Batch, Chunk, PromptTree};
use crate::tree::Tree;

/// Result of one prediction: (its index in the batch, log-probability, entropy).
pub(super) type Score = (usize, f32, f32);

/// The buffers of an executor, which passes and generation share.
pub(super) struct ExecutorBuffers<X: Executor> {
    pub(super) workspace: Workspace<X>,
    pub(super) chunk: Chunk,
    pub(super) lists: X::Lists,
    /// Keys and values of the sequences in `tree`. Between requests, they are only valid if `tree` is kept.
    pub(super) cache: Cache<X::Buffer>,
    pub(super) decoding: X::Decoding,
    /// Sequences in the cache, if the cache is kept for later requests.
    pub(super) tree: Tree,
}

impl<X: Executor> Default for ExecutorBuffers<X> {
    fn default() -> Self {
        ExecutorBuffers {
            workspace: Workspace::<X>::default(),
            chunk: Chunk::default(),
            lists: Default::default(),
            cache: Cache::default(),
            decoding: Default::default(),
            tree: Tree::default(),
        }
    }
}

/// A pass over a batch, shared by all executors.
pub(super) struct BatchPass<'a> {
    decoder: &'a Decoder,
    adapters: Option<&'a AdapterLayout>,
    /// Layout of the adapters, if the pass applies them separately from the weights.
    unmerged: Option<&'a AdapterLayout>,
    batch: &'a Batch,
    chunk_tokens: usize,
    temperature: f32,
    keep: Keep,
    pub(super) output: Output<'a>,
}

/// Results to compute in a pass.
#[derive(Clone, Copy)]
pub(super) enum Output<'a> {
    Scores,
    /// Scores, and the gradient of a loss, which is added to the existing gradient.
    Gradient(&'a LossFn<'a>),
    /// Logits of the predictions instead of scores: `[predictions, V]`.
    Logits(&'a Mutex<Vec<f32>>),
}

impl Engine {
    /// Scores the batch, calls `loss` for the derivatives of each tree, and adds the resulting gradient to the existing gradient. Trees whose derivatives are
    /// all zero skip the backward pass. Returns the scores, and the results of `loss` in the order of the trees, for the trees with predictions.
    /// Returns an error if the scores aren't finite or the device fails; the gradient is then incomplete and must be zeroed.
    ///
    /// # Panics
    /// See [`Engine::score`].
    pub fn accumulate<S: Send>(
        &mut self,
        batch: &Batch,
        temperature: f32,
        loss: &(impl Fn(FamilyScores<'_>) -> S + Sync + ?Sized),
    ) -> Result<(Scores, Vec<S>), Error> {
        let returned = Mutex::new(Vec::new());
        let loss = |scores: FamilyScores<'_>| {
            let family = scores.family;
            let result = loss(scores);
            returned.lock().unwrap_or_else(PoisonError::into_inner).push((family, result));
        };
        let scores = self.pass(batch, temperature, Output::Gradient(&loss))?;
        let mut returned = returned.into_inner().unwrap_or_else(PoisonError::into_inner);
        returned.sort_unstable_by_key(|(family, _)| *family);
        Ok((scores, returned.into_iter().map(|(_, result)| result).collect()))
    }

    /// Computes log-probabilities and entropies of the batch's predictions.
    /// Returns an error if they aren't finite or the device fails.
    ///
    /// # Panics
    /// If the batch is invalid (see [`Batch`]), or the temperature is not positive.
    pub fn score(&mut self, batch: &Batch, temperature: f32) -> Result<Scores, Error> {
        self.pass(batch, temperature, Output::Scores)
    }

    /// Computes the logits of the batch's predictions without temperature: `[predictions, V]`. For tests and small inputs.
    ///
    /// # Panics
    /// If the batch is invalid.
    pub fn logits(&mut self, batch: &Batch) -> Result<Vec<f32>, Error> {
        let logits = Mutex::new(vec![0.0; batch.predictions.len() * self.decoder.config.vocab_size]);
        self.pass(batch, 1.0, Output::Logits(&logits))?;
        Ok(logits.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn pass(&mut self, batch: &Batch, temperature: f32, output: Output<'_>) -> Result<Scores, Error> {
        assert!(temperature > 0.0 && temperature.is_finite(), "temperature {temperature}");
        let applied = self.adapters.as_ref().is_none_or(|adapters| adapters.applied);
        let trains = matches!(output, Output::Gradient(_));
        assert!(!trains || applied, "a gradient while the adapters are not applied");
        if let (Some(base), None, true) = (self.decoder.layout.base, &self.adapters, trains) {
            return Err(Error::request(
                "lora",
                format!("no adapters on a base in {}", base.name()),
                "adapters; the matrices of such a base are not trained",
            ));
        }
        batch.check(self.decoder.config.vocab_size);
        let trees = batch.prompt_trees();
        self.reach_trees(&trees)?;
        let shares = self.shares(&trees);
        let keep = match (trains, self.checkpointing) {
            (false, _) => Keep::Nothing,
            (true, true) => Keep::Inputs,
            (true, false) => Keep::Everything,
        };
        let pass = BatchPass {
            decoder: &self.decoder,
            adapters: self.adapters.as_ref().map(|adapters| &adapters.layout),
            unmerged: unmerged(&self.adapters),
            batch,
            chunk_tokens: self.chunk_tokens,
            temperature,
            keep,
            output,
        };
        let results = self.runtime.pass(&pass, &shares).map_err(|error| self.diagnose(error))?;
        let zeros = vec![0.0; batch.predictions.len()];
        let mut scores = Scores { logp: zeros.clone(), entropy: zeros };
        for (index, logp, entropy) in results {
            scores.logp[index] = logp;
            scores.entropy[index] = entropy;
        }
        Ok(scores)
    }

    /// Distributes the trees that have predictions over the executors.
    fn shares<'a>(&self, trees: &'a [PromptTree]) -> Vec<Vec<&'a PromptTree>> {
        let config = &self.decoder.config;
        let per_token = self.decoder.layout.len as u64;
        let per_pair = (config.num_hidden_layers * config.num_attention_heads * config.head_dim * 2) as u64;
        let cost = |tree: &PromptTree| tree.tokens as u64 * per_token + tree.pairs as u64 * per_pair;
        let predicting = trees.iter().filter(|tree| !tree.predictions.is_empty()).collect();
        deal(predicting, &self.runtime.backend().executors(), |tree: &&PromptTree| cost(tree))
    }

    /// Extends the rotary tables to the positions of the trees.
    fn reach_trees(&mut self, trees: &[PromptTree]) -> Result<(), Error> {
        let ends = trees.iter().flat_map(|tree| &tree.segments).map(|s| s.position + s.len);
        self.reach(ends.max().unwrap_or(0))
    }

    /// Extends the rotary tables to sequences of `tokens` tokens.
    /// Returns an error if such sequences aren't computed as the model defines.
    pub(super) fn reach(&mut self, tokens: usize) -> Result<(), Error> {
        if let Some((limit, setting)) = self.decoder.config.longest_sequence()
            && tokens > limit
        {
            return Err(Error::request(
                "sequence",
                format!("{tokens} tokens"),
                format!("at most {limit}, the model's {setting}; longer sequences are not supported"),
            ));
        }
        self.runtime.backend_mut().reach(tokens);
        Ok(())
    }
}

impl BatchPass<'_> {
    /// Computes the requested output for the prefix trees assigned to one executor, in chunks of about `chunk_tokens` tokens. Returns the log-probability and
    /// entropy of each prediction, or nothing for [`Output::Logits`].
    pub(super) fn run<X: Executor>(
        &self,
        access: ExecutorAccess<'_, X>,
        buffers: &mut ExecutorBuffers<X>,
        trees: &[&PromptTree],
    ) -> Result<Vec<Score>, Error> {
        let ExecutorAccess { executor, weights, factors, mut gradient } = access;
        let BatchPass { decoder, adapters, unmerged, batch, chunk_tokens, temperature, keep, output } = *self;
        let executor = &mut Checked::new(executor, decoder.checked_layout());
        let parameters = decoder.parameters(weights, factors.zip(unmerged));
        let (mut scores, mut logits) = (Vec::new(), Vec::new());
        let [mut scored, mut derivatives] = <[PickScores; 2]>::default();
        let mut next = 0;
        while next < trees.len() {
            let first = next;
            let mut tokens = 0;
            while next < trees.len() && (next == first || tokens + trees[next].tokens <= chunk_tokens) {
                tokens += trees[next].tokens;
                next += 1;
            }
            let group = &trees[first..next];
            let ExecutorBuffers { workspace, chunk, lists, .. } = buffers;
            chunk.lay_out(batch, group.iter().copied());
            executor.upload(chunk, &[], lists);
            let pass = Pass::new(parameters, chunk, lists, keep);
            decoder.forward(executor, &pass, KeySource::Batch(None), workspace);
            if let Output::Logits(all) = output {
                let v = decoder.config.vocab_size;
                executor.logits(weights, decoder.head(), pass.predicting, workspace.hidden(), &mut logits);
                executor.checked()?;
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                for (pick, &index) in chunk.picks.iter().zip(&chunk.indices) {
                    all[index * v..(index + 1) * v].copy_from_slice(&logits[pick.slot as usize * v..][..v]);
                }
                continue;
            }
            scored.reset(chunk.picks.len());
            derivatives.reset(chunk.picks.len());
            decoder.score(executor, &pass, temperature, workspace, &mut scored)?;
            let PickScores { logp, entropy } = &scored;
            let pairs = logp.iter().zip(entropy);
            scores.extend(chunk.indices.iter().zip(pairs).map(|(&i, (&logp, &entropy))| (i, logp, entropy)));
            let Output::Gradient(loss) = output else { continue };
            let PickScores { logp: dlogp, entropy: dentropy } = &mut derivatives;
            let mut first = 0;
            for (tree, &(.., end)) in group.iter().zip(&chunk.ends) {
                loss(FamilyScores {
                    family: tree.index,
                    predictions: &chunk.indices[first..end],
                    logp: &logp[first..end],
                    entropy: &entropy[first..end],
                    dlogp: &mut dlogp[first..end],
                    dentropy: &mut dentropy[first..end],
                });
                first = end;
            }
            if decoder.check_layers {
                finite_loss(&chunk.indices, dlogp, dentropy)?;
            }
            if !self.drop_idle(executor, buffers, group, &mut derivatives) {
                continue;
            }
            let ExecutorBuffers { workspace, chunk, lists, .. } = buffers;
            let pass = Pass::new(parameters, chunk, lists, keep);
            let gradient = gradient.as_deref_mut().expect("a pass with a loss has a gradient");
            let mut gradients = match (adapters, factors) {
                (Some(layout), Some(factors)) => Gradients::Adapters { gradient, factors, layout },
                _ => Gradients::All(gradient),
            };
            decoder.backward(executor, &mut gradients, &pass, temperature, &derivatives, workspace)?;
        }
        Ok(scores)
    }

    /// Removes the trees whose derivatives are all zero from chunk, activations and derivatives. Returns if any remain.
    fn drop_idle<X: Executor>(
        &self,
        executor: &mut Checked<'_, X>,
        buffers: &mut ExecutorBuffers<X>,
        trees: &[&PromptTree],
        derivatives: &mut PickScores,
    ) -> bool {
        let ExecutorBuffers { workspace, chunk, lists, .. } = buffers;
        let PickScores { logp: dlogp, entropy: dentropy } = derivatives;
        let mut starts = (0, 0, 0);
        let mut active = Vec::new();
        let [mut all, mut predicting, mut picks] = [const { Vec::<Range<usize>>::new() }; 3];
        for (&tree, &ends) in trees.iter().zip(&chunk.ends) {
            let range = starts.2..ends.2;
            if dlogp[range.clone()].iter().chain(&dentropy[range.clone()]).any(|&d| d != 0.0) {
                active.push(tree);
                all.push(starts.0..ends.0);
                predicting.push(starts.1..ends.1);
                picks.push(range);
            }
            starts = ends;
        }
        if active.is_empty() || active.len() == trees.len() {
            return !active.is_empty();
        }
        let remaining = RemainingRows { all: &all, predicting: &predicting };
        self.decoder.keep_rows(executor, remaining, self.keep, workspace);
        for list in [dlogp, dentropy] {
            *list = picks.iter().flat_map(|range| list[range.clone()].iter().copied()).collect();
        }
        chunk.lay_out(self.batch, active.into_iter());
        executor.upload(chunk, &[], lists);
        true
    }
}
