//! The engine: one decoder on one device, with its weights, gradient and optimizer.
//!
//! On the same device with the same number of threads, results repeat bit for bit. With more than one thread, gradients are summed in two parts, so
//! they differ from the gradients of one thread by rounding.

mod adapters;
mod generate;
mod open;
mod pass;
mod runtime;
mod state;
mod update;

use std::borrow::Cow;
use std::path::Path;

use rayon::prelude::*;

use crate::backend::{ExecutorBackend, GraphCounts, Store};
use crate::config::Config;
use crate::cpu::lora::add_update;
use crate::decoder::Decoder;
use crate::error::Error;
use crate::layout::{Kind, Span, TensorLayout};
use crate::lora::{Adapted, AdapterLayout};
use crate::quantized::{BaseFormat, Quantized};
use crate::weights::Dtype;
use crate::weights::bitsandbytes::{self, Tensor};
use adapters::Adapters;
use runtime::{BackendRuntime, Runtime};
pub use state::TrainingState;

/// Scores of one tree of a batch, as passed to a loss, and the destinations of the loss's derivatives. All slices are in the order of `predictions`.
#[derive(Debug)]
pub struct FamilyScores<'a> {
    /// Index of the tree in the batch, in the order of first segments.
    pub family: usize,
    /// Indices of the tree's predictions, sorted by row in depth-first order. If [`Batch::push_group`](crate::Batch::push_group) made the tree, they are
    /// consecutive.
    pub predictions: &'a [usize],
    /// Log-probabilities of the predicted tokens.
    pub logp: &'a [f32],
    /// Entropies of the predicting distributions, in nats.
    pub entropy: &'a [f32],
    /// Derivatives of the loss with respect to `logp`, initially zero.
    pub dlogp: &'a mut [f32],
    /// Derivatives of the loss with respect to `entropy`, initially zero.
    pub dentropy: &'a mut [f32],
}

/// A loss, which is called once for each tree with predictions, possibly from several threads at the same time.
type LossFn<'a> = dyn Fn(FamilyScores<'_>) + Sync + 'a;

/// Scores of each prediction under softmax(logits / temperature).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scores {
    /// Log-probability of each predicted token.
    pub logp: Vec<f32>,
    /// Entropy of each predicting distribution, in nats.
    pub entropy: Vec<f32>,
}

/// State of AdamW, sufficient to resume exactly.
#[derive(Debug, Clone, PartialEq)]
pub struct OptimizerState<'a> {
    /// Number of updates that were applied.
    pub step: u64,
    /// (name, shape, values): each parameter's name with `.exp_avg` and `.exp_avg_sq`. Empty before the first update.
    pub tensors: Vec<(String, Vec<usize>, Cow<'a, [f32]>)>,
}

/// A named tensor: (Hugging Face name, shape, values).
pub type NamedTensor<'a> = (&'a str, &'a [usize], Cow<'a, [f32]>);

/// Default number of tokens per pass of an executor.
pub const DEFAULT_CHUNK_TOKENS: usize = 1024;

/// A decoder with its weights, gradient and optimizer, on a device.
pub struct Engine {
    decoder: Decoder,
    runtime: Box<dyn Runtime>,
    step: u64,
    chunk_tokens: usize,
    checkpointing: bool,
    adapters: Option<Adapters>,
    /// Whether the weights came from the text part of a multimodal model.
    inner: bool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("config", self.config()).finish_non_exhaustive()
    }
}

/// Checks the sizes of a configuration, and panics if one is impossible.
fn check(config: &Config) {
    let (h, k) = (config.num_attention_heads, config.num_key_value_heads);
    assert!(k > 0 && h % k == 0, "{k} key/value heads for {h} heads");
    assert!(config.head_dim > 0 && config.head_dim.is_multiple_of(2), "head_dim {}", config.head_dim);
    assert!(config.num_hidden_layers > 0 && config.vocab_size > 0 && config.hidden_size > 0, "{config:?}");
}

impl Engine {
    /// Creates an engine whose weights are all 0.
    fn new<D: ExecutorBackend + 'static>(decoder: Decoder, backend: D) -> Engine {
        Engine {
            decoder,
            runtime: Box::new(BackendRuntime::new(backend)),
            step: 0,
            chunk_tokens: DEFAULT_CHUNK_TOKENS,
            checkpointing: false,
            adapters: None,
            inner: false,
        }
    }

    /// Returns the configuration of the decoder.
    pub fn config(&self) -> &Config {
        &self.decoder.config
    }

    /// Returns the number of parameters; a tied head counts once.
    pub fn parameters(&self) -> usize {
        self.decoder.layout.tensors.iter().map(|tensor| tensor.span.len).sum()
    }

    /// Returns the number of trained parameters: all, or LoRA's factors.
    pub fn trained_parameters(&self) -> usize {
        self.trained().iter().map(|tensor| tensor.span.len).sum()
    }

    /// Returns the format of the layers' matrices if they are quantized, otherwise `None`.
    pub fn base(&self) -> Option<BaseFormat> {
        self.decoder.layout.base
    }

    /// Sets the approximate number of tokens per pass of each executor; a CPU has at most two executors, and a tree is never split. The default is
    /// [`DEFAULT_CHUNK_TOKENS`](crate::DEFAULT_CHUNK_TOKENS). A larger value is a little faster, and a smaller one takes less memory; results differ by rounding.
    pub fn set_chunk_tokens(&mut self, tokens: usize) {
        self.chunk_tokens = tokens.max(1);
    }

    /// Sets whether `accumulate` saves only the input of each layer and recomputes the layer in the backward pass. This takes a third more work and a fraction of
    /// the memory, with the same result. Disabled by default.
    pub fn set_checkpointing(&mut self, checkpointing: bool) {
        self.checkpointing = checkpointing;
    }

    /// Sets whether AdamW's moments are stored in page-locked host memory instead of on the GPU. This saves 8 bytes per trained parameter on the GPU (4 with bf16
    /// moments), except for buffers of at most 256 MiB, and every update copies the moments to the GPU and back. Results have the same bits. It has no effect on the
    /// CPU. Disabled by default.
    pub fn set_optimizer_offload(&mut self, enabled: bool) {
        self.runtime.backend_mut().set_optimizer_offload(enabled);
    }

    /// Sets whether a GPU's decoding steps are submitted as CUDA graphs, for measuring. Results have the same bits. Enabled by default, unless the environment
    /// variable `FGRPO_CUDA_GRAPHS` is `off`. It has no effect on the CPU.
    pub fn set_cuda_graphs(&mut self, enabled: bool) {
        self.runtime.backend_mut().set_graphs(enabled && !self.decoder.check_layers);
    }

    /// Returns the counts of a GPU's decoding steps since the engine was created or [`Engine::set_cuda_graphs`] was called.
    pub fn graph_counts(&self) -> GraphCounts {
        self.runtime.backend().graph_counts()
    }

    /// Returns all tensors, in the checkpoint's order. With LoRA, matrices include the update, as in a model without adapters. Quantized matrices
    /// have their dequantized values.
    ///
    /// # Panics
    /// If a GPU has failed, while iterating. The same applies to all functions that read values.
    pub fn tensors(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        let tensors = self.decoder.layout.tensors.iter();
        tensors.map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice(), self.weight(tensor)))
    }

    fn named<'a>(
        &'a self,
        store: Store,
        tensors: &'a [TensorLayout],
    ) -> impl Iterator<Item = NamedTensor<'a>> {
        let read = move |t: &'a TensorLayout| {
            (t.name.as_str(), t.shape.as_slice(), self.runtime.backend().read(store, t.span))
        };
        tensors.iter().map(read)
    }

    /// Initialises matrices with `std` times normal numbers, biases with 0, and norms with 1.
    fn fill_fresh(&mut self, std: f32, normal: &(dyn Fn(u64) -> f64 + Sync)) -> Result<(), Error> {
        let (mut next, norm) = (0, 1.0 - self.decoder.config.architecture.family().norm_offset);
        let mut fresh = |tensor: &TensorLayout, out: &mut [f32]| {
            let len = out.len();
            match tensor.kind {
                Kind::Matrix | Kind::Filter => {
                    let number = |i: usize| (normal(next + i as u64) * f64::from(std)) as f32;
                    out.par_iter_mut().enumerate().for_each(|(i, value)| *value = number(i));
                    next += len as u64;
                }
                Kind::Bias => out.fill(0.0),
                // Rates evenly spread over the range that transformers draws from.
                Kind::Rates => {
                    let rate = |head: usize| (16.0 * (head as f32 + 0.5) / len as f32).ln();
                    out.iter_mut().enumerate().for_each(|(head, value)| *value = rate(head));
                }
                Kind::Ones | Kind::Fixed => out.fill(1.0),
                Kind::Norm => out.fill(norm),
            }
            Ok(())
        };
        self.fill_with(&mut fresh, &|_| Ok(None))?;
        self.runtime.backend().check()
    }

    /// Fills every tensor with `read`, except for matrices that `stored` returns in the base's format.
    fn fill_with(
        &mut self,
        read: &mut dyn FnMut(&TensorLayout, &mut [f32]) -> Result<(), Error>,
        stored: &dyn Fn(&TensorLayout) -> Result<Option<Quantized>, Error>,
    ) -> Result<(), Error> {
        self.runtime.forget_prompts();
        for tensor in &self.decoder.layout.tensors {
            match self.decoder.layout.base {
                Some(base) if tensor.span.is_quantized() => {
                    let matrix = match stored(tensor)? {
                        Some(matrix) => matrix,
                        None => {
                            let mut values = vec![0.0; tensor.span.len];
                            read(tensor, &mut values)?;
                            Quantized::new(base, tensor.shape[1], &values)
                        }
                    };
                    self.runtime.backend_mut().put_quantized(tensor.span, matrix);
                    self.runtime.backend().check()?;
                }
                _ => self
                    .runtime
                    .backend_mut()
                    .fill(Store::Weights, tensor.span, &mut |out| read(tensor, out))?,
            }
        }
        Ok(())
    }

    /// Reads a tensor of the model. Quantized matrices are dequantized, with the update of an applied adapter.
    fn weight(&self, tensor: &TensorLayout) -> Cow<'_, [f32]> {
        if !tensor.span.is_quantized() {
            return self.runtime.backend().read(Store::Weights, tensor.span);
        }
        let matrix = self.runtime.backend().quantized(tensor.span);
        let mut values = vec![0.0; tensor.span.len];
        matrix.write_rows(0..matrix.rows, &mut values);
        for (adapted, scale) in self.unmerged(tensor.span) {
            let [a, b] = [adapted.a, adapted.b].map(|span| self.runtime.backend().read(Store::Factors, span));
            let part = &mut values[adapted.weight.offset - tensor.span.offset..][..adapted.weight.len];
            add_update(adapted.sizes(), [&a, &b], scale, part);
        }
        Cow::Owned(values)
    }

    /// Returns the parts of a matrix whose updates aren't merged, with their scale.
    fn unmerged<'a>(&'a self, matrix: Span) -> impl Iterator<Item = (&'a Adapted, f32)> {
        let parts = move |layout: &'a AdapterLayout| {
            let AdapterLayout { adapted, scale, .. } = layout;
            let parts = adapted.iter().filter(move |part| part.weight.intersection(matrix).is_some());
            parts.map(|part| (part, *scale))
        };
        adapters::unmerged(&self.adapters).into_iter().flat_map(parts)
    }

    /// Writes the model to a checkpoint folder in transformers' bitsandbytes format: the layers' matrices in NF4, other tensors in `dtype`. Matrices that are in
    /// NF4 and aren't adapted keep their codes; other matrices are quantized.
    /// Returns an error if the folder contains weights or can't be written, or a value is not finite in `dtype`; `config.json` is then missing.
    pub fn write_in_4_bits(&self, dir: &Path, dtype: Dtype) -> Result<(), Error> {
        let tensors = &self.decoder.layout.tensors;
        let is_nf4 = self.decoder.layout.base == Some(BaseFormat::Nf4);
        let tensor = |name: &str| {
            let tensor = tensors.iter().find(|tensor| tensor.name == name).expect("a tensor of the model");
            if !name.starts_with("model.layers.") || tensor.kind != Kind::Matrix {
                return Tensor::Numbers(self.weight(tensor));
            }
            Tensor::Matrix(if is_nf4 && self.unmerged(tensor.span).next().is_none() {
                self.runtime.backend().quantized(tensor.span).into_owned()
            } else {
                Quantized::new(BaseFormat::Nf4, tensor.shape[1], &self.weight(tensor))
            })
        };
        bitsandbytes::write(dir, &self.decoder.config, dtype, &tensor)
    }

    fn trained(&self) -> &[TensorLayout] {
        match &self.adapters {
            Some(adapters) => &adapters.layout.tensors,
            None => self.decoder.layout.trained(),
        }
    }

    /// Sets whether the results of all operations are searched for values that are not finite. If one is found, the call fails, and the error names the layer
    /// and the operation, or the tensor of a gradient. For debugging: passes are slower and don't use CUDA graphs, but results are the same bit for bit.
    /// Disabled by default, unless the environment variable [`CHECK_LAYERS`](crate::CHECK_LAYERS) is `on`.
    pub fn set_layer_checks(&mut self, enabled: bool) {
        self.decoder.check_layers = enabled;
        if enabled {
            self.runtime.backend_mut().set_graphs(false);
        }
    }

    /// Returns the tensor, index and value of the first value in a store that is not finite.
    fn first_non_finite<'a>(
        &self,
        store: Store,
        tensors: &'a [TensorLayout],
    ) -> Option<(&'a str, usize, f32)> {
        tensors.iter().find_map(|tensor| {
            let values = match store {
                Store::Weights => self.weight(tensor),
                _ => self.runtime.backend().read(store, tensor.span),
            };
            let index = values.iter().position(|value| !value.is_finite())?;
            Some((tensor.name.as_str(), index, values[index]))
        })
    }

    /// Adds to an error about a non-finite value whether a weight is the cause, if layer checks are enabled.
    fn diagnose(&self, error: Error) -> Error {
        match error {
            Error::NonFinite { what, found, .. } if self.decoder.check_layers => {
                if let Err(failed) = self.runtime.backend().check() {
                    return failed;
                }
                let remedy = match self.first_non_finite(Store::Weights, &self.decoder.layout.tensors) {
                    Some((name, index, value)) => {
                        format!("the weight {name} has {value} at index {index}: return to an earlier checkpoint")
                    }
                    None => "all weights are finite, so the values have grown too large here: return to an earlier checkpoint and lower the learning rate".into(),
                };
                Error::NonFinite { what, found, remedy }
            }
            error => error,
        }
    }

    /// Replaces one tensor.
    /// Returns an error if the tensor doesn't exist, has another length, or is a matrix with adapters, which is computed from its base and factors.
    pub fn set_tensor(&mut self, name: &str, values: &[f32]) -> Result<(), Error> {
        self.runtime.forget_prompts();
        let &TensorLayout { span, ref shape, .. } = find(&self.decoder.layout.tensors, name, values.len())?;
        if self
            .adapters
            .as_ref()
            .is_some_and(|a| a.layout.adapted.iter().any(|part| part.weight.intersection(span).is_some()))
        {
            return Err(Error::request(
                "tensor",
                format!("{name}, which has adapters"),
                "a tensor without adapters; set the factors with set_adapter_tensor",
            ));
        }
        match self.decoder.layout.base {
            Some(base) if span.is_quantized() => {
                self.runtime.backend_mut().put_quantized(span, Quantized::new(base, shape[1], values));
            }
            _ => self.runtime.backend_mut().write(Store::Weights, span, values),
        }
        Ok(())
    }
}

/// Returns the tensor named `name`, which must have `len` values.
fn find<'a>(tensors: &'a [TensorLayout], name: &str, len: usize) -> Result<&'a TensorLayout, Error> {
    let wrong = |found: String, expected: String| Error::request("tensor", found, expected);
    let tensor = tensors
        .iter()
        .find(|tensor| tensor.name == name)
        .ok_or_else(|| wrong(name.to_string(), "a tensor of the model".into()))?;
    if tensor.span.len != len {
        return Err(wrong(
            format!("{len} values for {name}"),
            format!("{} ({:?})", tensor.span.len, tensor.shape),
        ));
    }
    Ok(tensor)
}
