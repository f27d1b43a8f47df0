//! The engine: one decoder on one device, its weights, gradient and optimizer.
//!
//! On the same device with the same number of threads, results repeat bit for bit. With more than one thread, gradients are summed in two parts and
//! differ from those of one thread by rounding.

mod adapters;
mod any;
mod generate;
mod pass;
mod state;
mod update;

use std::borrow::Cow;
use std::path::Path;

use rayon::prelude::*;

use crate::backend::{Backend, NormalFn, Store};
use crate::config::Config;
use crate::cpu::lora::add_update;
use crate::decoder::{Decoder, Workspace};
use crate::error::Error;
use crate::executor::Executor;
use crate::layout::{Kind, TensorLayout};
use crate::quantized::{BaseFormat, Quantized};
use crate::segments::Chunk;
use crate::tree::Tree;
use crate::weights::Dtype;
use crate::weights::bitsandbytes::{self, Tensor};
use adapters::Adapters;
pub use any::Engine;
pub use state::TrainingState;

/// A family (a tree of segments) of a batch, as a loss gets it: scores of its predictions, and the place of the loss's derivatives by them. All slices
/// are in the order of `predictions`.
#[derive(Debug)]
pub struct FamilyScores<'a> {
    /// Which tree of the batch, counted by their first segments.
    pub family: usize,
    /// Indices of its predictions, by row, depth first: ascending and without a gap if [`Batch::push_group`](crate::Batch::push_group) made the
    /// family.
    pub predictions: &'a [usize],
    /// Log-probabilities of the predicted tokens.
    pub logp: &'a [f32],
    /// Entropies of the predicting distributions, in nats.
    pub entropy: &'a [f32],
    /// Derivatives of the loss by `logp`; zero at first.
    pub dlogp: &'a mut [f32],
    /// Derivatives of the loss by `entropy`; zero at first.
    pub dentropy: &'a mut [f32],
}

/// A loss: called once for each family with predictions, possibly from several threads at the same time.
type LossFn<'a> = dyn Fn(FamilyScores<'_>) + Sync + 'a;

/// Per prediction, of softmax(logits / temperature).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scores {
    /// Log-probability of the predicted token.
    pub logp: Vec<f32>,
    /// Entropy of the predicting distribution, in nats.
    pub entropy: Vec<f32>,
}

/// AdamW's state, sufficient to resume exactly.
#[derive(Debug, Clone, PartialEq)]
pub struct OptimizerState<'a> {
    /// Updates applied.
    pub step: u64,
    /// (name, shape, values): each parameter's name with `.exp_avg` and `.exp_avg_sq`. Empty before the first update.
    pub tensors: Vec<(String, Vec<usize>, Cow<'a, [f32]>)>,
}

/// A named tensor: (Hugging Face name, shape, values).
pub type NamedTensor<'a> = (&'a str, &'a [usize], Cow<'a, [f32]>);

/// Default number of tokens per pass of an executor.
pub const DEFAULT_CHUNK_TOKENS: usize = 1024;

/// One executor's buffers.
struct Worker<X: Executor> {
    workspace: Workspace<X>,
    chunk: Chunk,
    lists: X::Lists,
    /// Its content is that of `tree`; outside of a request it may be meaningless.
    cache: X::Cache,
    decoding: X::Decoding,
    /// The sequences in the cache, if it is kept for later requests.
    tree: Tree,
}

impl<X: Executor> Default for Worker<X> {
    fn default() -> Self {
        Worker {
            workspace: Workspace::<X>::default(),
            chunk: Chunk::default(),
            lists: Default::default(),
            cache: Default::default(),
            decoding: Default::default(),
            tree: Tree::default(),
        }
    }
}

/// A decoder on a device of one kind.
pub(crate) struct EngineOn<D: Backend> {
    decoder: Decoder,
    backend: D,
    workers: Vec<Worker<D::Executor>>,
    step: u64,
    chunk_tokens: usize,
    checkpointing: bool,
    adapters: Option<Adapters>,
}

/// Panics unless the sizes are possible.
fn check(config: &Config) {
    let (h, k) = (config.num_attention_heads, config.num_key_value_heads);
    assert!(k > 0 && h % k == 0, "{k} key/value heads for {h} heads");
    assert!(config.head_dim > 0 && config.head_dim.is_multiple_of(2), "head_dim {}", config.head_dim);
    assert!(config.num_hidden_layers > 0 && config.vocab_size > 0 && config.hidden_size > 0, "{config:?}");
}

impl<D: Backend> EngineOn<D> {
    /// The engine of a decoder whose weights are all 0.
    pub(crate) fn new(decoder: Decoder, backend: D) -> EngineOn<D> {
        let workers = backend.executors().iter().map(|_| Worker::default()).collect();
        EngineOn {
            decoder,
            backend,
            workers,
            step: 0,
            chunk_tokens: DEFAULT_CHUNK_TOKENS,
            checkpointing: false,
            adapters: None,
        }
    }

    /// Matrices of `std` times normal numbers, biases of 0, norms of 1.
    pub(crate) fn fill_fresh(&mut self, std: f32, normal: &NormalFn<'_>) -> Result<(), Error> {
        let mut next = 0;
        for TensorLayout { span, shape, kind, .. } in &self.decoder.layout.tensors {
            match kind {
                Kind::Matrix => {
                    match self.decoder.layout.base {
                        Some(base) if span.is_apart() => {
                            let number = |i| (normal(next + i as u64) * f64::from(std)) as f32;
                            let values: Vec<f32> = (0..span.len).into_par_iter().map(number).collect();
                            self.backend.put_quantized(*span, Quantized::of(base, shape[1], &values));
                        }
                        _ => self.backend.normal(*span, std, normal, next),
                    }
                    next += span.len as u64;
                }
                Kind::Filter => {
                    self.backend.normal(*span, std, normal, next);
                    next += span.len as u64;
                }
                Kind::Bias => {}
                // Rates spread evenly over transformers' range.
                Kind::Rates => {
                    let rate = |head| (16.0 * (head as f32 + 0.5) / span.len as f32).ln();
                    let values: Vec<f32> = (0..span.len).map(rate).collect();
                    self.backend.write(Store::Weights, *span, &values);
                }
                Kind::Ones => self.backend.write(Store::Weights, *span, &vec![1.0; span.len]),
                Kind::Norm => {
                    let one = 1.0 - self.decoder.config.architecture.family().norm_offset;
                    self.backend.write(Store::Weights, *span, &vec![one; span.len]);
                }
            }
        }
        self.backend.check()
    }

    /// Fills every tensor by `read`, but for matrices that `stored` has in the format of the base.
    pub(crate) fn fill_with(
        &mut self,
        read: &mut dyn FnMut(&TensorLayout, &mut [f32]) -> Result<(), Error>,
        stored: &dyn Fn(&TensorLayout) -> Result<Option<Quantized>, Error>,
    ) -> Result<(), Error> {
        self.forget_prompts();
        for tensor in &self.decoder.layout.tensors {
            match self.decoder.layout.base {
                Some(base) if tensor.span.is_apart() => {
                    let matrix = match stored(tensor)? {
                        Some(matrix) => matrix,
                        None => {
                            let mut values = vec![0.0; tensor.span.len];
                            read(tensor, &mut values)?;
                            Quantized::of(base, tensor.shape[1], &values)
                        }
                    };
                    self.backend.put_quantized(tensor.span, matrix);
                    self.backend.check()?;
                }
                _ => self.backend.fill(Store::Weights, tensor.span, &mut |out| read(tensor, out))?,
            }
        }
        Ok(())
    }

    /// A tensor of the model: a quantized matrix has its values, with the update of its adapter while that is applied.
    pub(crate) fn weight(&self, tensor: &TensorLayout) -> Cow<'_, [f32]> {
        if !tensor.span.is_apart() {
            return self.backend.read(Store::Weights, tensor.span);
        }
        let matrix = self.backend.quantized(tensor.span);
        let mut values = vec![0.0; tensor.span.len];
        matrix.write_rows(0..matrix.rows, &mut values);
        if let Some(layout) = adapters::unmerged(&self.adapters)
            && let Some(adapted) = layout.adapted.iter().find(|adapted| adapted.weight == tensor.span)
        {
            let [a, b] = [adapted.a, adapted.b].map(|span| self.backend.read(Store::Factors, span));
            add_update(adapted.sizes(), [&a, &b], layout.scale, &mut values);
        }
        Cow::Owned(values)
    }

    /// Writes a checkpoint as bitsandbytes keeps it in 4 bits.
    pub(crate) fn write_in_4_bits(&self, dir: &Path, dtype: Dtype) -> Result<(), Error> {
        let tensors = &self.decoder.layout.tensors;
        let kept = self.decoder.layout.base == Some(BaseFormat::Nf4);
        let adapted = |tensor: &TensorLayout| {
            let layout = adapters::unmerged(&self.adapters);
            layout.is_some_and(|layout| layout.adapted.iter().any(|adapted| adapted.weight == tensor.span))
        };
        let tensor = |name: &str| {
            let tensor = tensors.iter().find(|tensor| tensor.name == name).expect("a tensor of the model");
            if !name.starts_with("model.layers.") || tensor.kind != Kind::Matrix {
                return Tensor::Numbers(self.weight(tensor));
            }
            Tensor::Matrix(match kept && !adapted(tensor) {
                true => self.backend.quantized(tensor.span).into_owned(),
                false => Quantized::of(BaseFormat::Nf4, tensor.shape[1], &self.weight(tensor)),
            })
        };
        bitsandbytes::write(dir, &self.decoder.config, dtype, &tensor)
    }

    /// The trained parameters.
    pub(crate) fn trained(&self) -> &[TensorLayout] {
        match &self.adapters {
            Some(adapters) => &adapters.layout.tensors,
            None => &self.decoder.layout.tensors,
        }
    }

    pub(crate) fn set_layer_checks(&mut self, wanted: bool) {
        self.decoder.check_layers = wanted;
        if wanted {
            self.backend.set_graphs(false);
        }
    }

    /// (Tensor, index, value) of the first number of a store that is not finite.
    fn first_non_finite<'a>(
        &self,
        store: Store,
        tensors: &'a [TensorLayout],
    ) -> Option<(&'a str, usize, f32)> {
        tensors.iter().find_map(|tensor| {
            let values = match store {
                Store::Weights => self.weight(tensor),
                _ => self.backend.read(store, tensor.span),
            };
            let index = values.iter().position(|value| !value.is_finite())?;
            Some((tensor.name.as_str(), index, values[index]))
        })
    }

    /// With layer checks, adds to the error of a number that is not finite whether a weight is the cause.
    fn diagnose(&self, error: Error) -> Error {
        match error {
            Error::NonFinite { what, found, .. } if self.decoder.check_layers => {
                if let Err(failed) = self.backend.check() {
                    return failed;
                }
                let remedy = match self.first_non_finite(Store::Weights, &self.decoder.layout.tensors) {
                    Some((name, index, value)) => {
                        format!("the weight {name} has {value} at index {index}: go back to an earlier checkpoint")
                    }
                    None => "all weights are finite, so the numbers have grown too large here: go back to an earlier checkpoint, and lower the learning rate".into(),
                };
                Error::NonFinite { what, found, remedy }
            }
            error => error,
        }
    }

    pub(crate) fn set_tensor(&mut self, name: &str, values: &[f32]) -> Result<(), Error> {
        self.forget_prompts();
        let &TensorLayout { span, ref shape, .. } = find(&self.decoder.layout.tensors, name, values.len())?;
        if self.adapters.as_ref().is_some_and(|a| a.layout.adapted.iter().any(|part| part.weight == span)) {
            return Err(Error::request(
                "tensor",
                format!("{name}, which has adapters"),
                "a tensor without, or one of the factors by set_adapter_tensor",
            ));
        }
        match self.decoder.layout.base {
            Some(base) if span.is_apart() => {
                self.backend.put_quantized(span, Quantized::of(base, shape[1], values));
            }
            _ => self.backend.write(Store::Weights, span, values),
        }
        Ok(())
    }
}

/// The tensor called `name`, which must have `len` elements.
fn find<'a>(tensors: &'a [TensorLayout], name: &str, len: usize) -> Result<&'a TensorLayout, Error> {
    let wrong = |found: String, wanted: String| Error::request("tensor", found, wanted);
    let tensor = tensors
        .iter()
        .find(|tensor| tensor.name == name)
        .ok_or_else(|| wrong(name.to_string(), "a tensor of the model".into()))?;
    if tensor.span.len != len {
        return Err(wrong(
            format!("{len} elements for {name}"),
            format!("{} ({:?})", tensor.span.len, tensor.shape),
        ));
    }
    Ok(tensor)
}
