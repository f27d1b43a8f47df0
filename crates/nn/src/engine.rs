//! The engine: one decoder on one device, its weights, gradient and optimizer.
//!
//! On the same device with the same number of threads, results repeat bit for bit. With more than one thread, gradients are summed in two parts and
//! differ from those of one thread by rounding.

mod adapters;
mod device;
mod generate;
mod open;
mod pass;
mod state;
mod update;
mod worker;

use std::borrow::Cow;
use std::path::Path;

use rayon::prelude::*;

use crate::backend::{Executors, GraphCounts, NormalFn, Store};
use crate::config::Config;
use crate::cpu::lora::add_update;
use crate::decoder::Decoder;
use crate::error::Error;
use crate::layout::{Kind, TensorLayout};
use crate::quantized::{BaseFormat, Quantized};
use crate::weights::Dtype;
use crate::weights::bitsandbytes::{self, Tensor};
use adapters::Adapters;
use device::{OnBackend, OnDevice};
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

/// A decoder with its weights, gradient and optimizer, on a device.
pub struct Engine {
    decoder: Decoder,
    device: Box<dyn OnDevice>,
    step: u64,
    chunk_tokens: usize,
    checkpointing: bool,
    adapters: Option<Adapters>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("config", self.config()).finish_non_exhaustive()
    }
}

/// Panics unless the sizes are possible.
fn check(config: &Config) {
    let (h, k) = (config.num_attention_heads, config.num_key_value_heads);
    assert!(k > 0 && h % k == 0, "{k} key/value heads for {h} heads");
    assert!(config.head_dim > 0 && config.head_dim.is_multiple_of(2), "head_dim {}", config.head_dim);
    assert!(config.num_hidden_layers > 0 && config.vocab_size > 0 && config.hidden_size > 0, "{config:?}");
}

impl Engine {
    /// The engine of a decoder whose weights are all 0.
    fn new<D: Executors + 'static>(decoder: Decoder, backend: D) -> Engine {
        Engine {
            decoder,
            device: Box::new(OnBackend::new(backend)),
            step: 0,
            chunk_tokens: DEFAULT_CHUNK_TOKENS,
            checkpointing: false,
            adapters: None,
        }
    }

    /// The decoder's configuration.
    pub fn config(&self) -> &Config {
        &self.decoder.config
    }

    /// Number of parameters; a tied head counts once.
    pub fn parameters(&self) -> usize {
        self.decoder.layout.tensors.iter().map(|tensor| tensor.span.len).sum()
    }

    /// Number of parameters that are trained: all, or LoRA's factors.
    pub fn trained_parameters(&self) -> usize {
        self.trained().iter().map(|tensor| tensor.span.len).sum()
    }

    /// The format of the layers' matrices, if they are in one.
    pub fn base(&self) -> Option<BaseFormat> {
        self.decoder.layout.base
    }

    /// Sets the approximate number of tokens per pass of each executor, of which a CPU has at most two (a family is never split); the default is
    /// [`DEFAULT_CHUNK_TOKENS`](crate::DEFAULT_CHUNK_TOKENS). More is a little faster, less needs less memory; results differ by rounding.
    pub fn set_chunk_tokens(&mut self, tokens: usize) {
        self.chunk_tokens = tokens.max(1);
    }

    /// Whether `accumulate` keeps only each layer's input and computes the layer again in the backward pass: a third more work, a fraction of
    /// the memory, the same result. Off at first.
    pub fn set_checkpointing(&mut self, checkpointing: bool) {
        self.checkpointing = checkpointing;
    }

    /// Whether `generate` copies the weights into the order in which decoding reads them. With AVX-512 or AVX2 that makes decoding up to twice as fast and
    /// needs the memory of the matrices once more; elsewhere it does nothing. The copies are made when `generate` finds the weights changed, and given back
    /// when an update is being prepared, unless they are small. Samples are the same with and without, but for rounding. On at first.
    pub fn set_decode_copies(&mut self, wanted: bool) {
        self.device.backend_mut().set_decode_copies(wanted);
    }

    /// Whether AdamW's moments of a GPU's engine are kept in page-locked host memory: 8 bytes less per trained parameter on the GPU (4 if they are bf16), but
    /// for buffers of at most 256 MiB, and every update copies them there and back. The results are the same bit for bit. On the CPU it does nothing. Off at first.
    pub fn set_optimizer_offload(&mut self, wanted: bool) {
        self.device.backend_mut().set_optimizer_offload(wanted);
    }

    /// Whether a GPU's decoding steps are submitted as CUDA graphs. They are at first, unless the environment variable `FGRPO_CUDA_GRAPHS` is `off`. Results
    /// are the same bits; for measuring. The CPU ignores it.
    pub fn set_cuda_graphs(&mut self, wanted: bool) {
        self.device.backend_mut().set_graphs(wanted && !self.decoder.check_layers);
    }

    /// How decoding steps were submitted to a GPU since the engine was made, or since [`Engine::set_cuda_graphs`].
    pub fn graph_counts(&self) -> GraphCounts {
        self.device.backend().graph_counts()
    }

    /// All tensors, in the checkpoint's order; with LoRA the matrices are merged, so that they are those of a model without. Those of a base in a format
    /// have the values that the format keeps.
    ///
    /// # Panics
    /// If a GPU has failed, while the iterator runs; so do the other functions that read numbers.
    pub fn tensors(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        let tensors = self.decoder.layout.tensors.iter();
        tensors.map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice(), self.weight(tensor)))
    }

    fn named<'a>(
        &'a self,
        store: Store,
        tensors: &'a [TensorLayout],
    ) -> impl Iterator<Item = NamedTensor<'a>> {
        let named = move |t: &'a TensorLayout| {
            (t.name.as_str(), t.shape.as_slice(), self.device.backend().read(store, t.span))
        };
        tensors.iter().map(named)
    }

    /// Matrices of `std` times normal numbers, biases of 0, norms of 1.
    fn fill_fresh(&mut self, std: f32, normal: &NormalFn<'_>) -> Result<(), Error> {
        let mut next = 0;
        for TensorLayout { span, shape, kind, .. } in &self.decoder.layout.tensors {
            match kind {
                Kind::Matrix => {
                    match self.decoder.layout.base {
                        Some(base) if span.is_separate() => {
                            let number = |i| (normal(next + i as u64) * f64::from(std)) as f32;
                            let values: Vec<f32> = (0..span.len).into_par_iter().map(number).collect();
                            self.device
                                .backend_mut()
                                .put_quantized(*span, Quantized::new(base, shape[1], &values));
                        }
                        _ => self.device.backend_mut().normal(*span, std, normal, next),
                    }
                    next += span.len as u64;
                }
                Kind::Filter => {
                    self.device.backend_mut().normal(*span, std, normal, next);
                    next += span.len as u64;
                }
                Kind::Bias => {}
                // Rates spread evenly over transformers' range.
                Kind::Rates => {
                    let rate = |head| (16.0 * (head as f32 + 0.5) / span.len as f32).ln();
                    let values: Vec<f32> = (0..span.len).map(rate).collect();
                    self.device.backend_mut().write(Store::Weights, *span, &values);
                }
                Kind::Ones => self.device.backend_mut().write(Store::Weights, *span, &vec![1.0; span.len]),
                Kind::Norm => {
                    let one = 1.0 - self.decoder.config.architecture.family().norm_offset;
                    self.device.backend_mut().write(Store::Weights, *span, &vec![one; span.len]);
                }
            }
        }
        self.device.backend().check()
    }

    /// Fills every tensor by `read`, but for matrices that `stored` has in the format of the base.
    fn fill_with(
        &mut self,
        read: &mut dyn FnMut(&TensorLayout, &mut [f32]) -> Result<(), Error>,
        stored: &dyn Fn(&TensorLayout) -> Result<Option<Quantized>, Error>,
    ) -> Result<(), Error> {
        self.device.forget_prompts();
        for tensor in &self.decoder.layout.tensors {
            match self.decoder.layout.base {
                Some(base) if tensor.span.is_separate() => {
                    let matrix = match stored(tensor)? {
                        Some(matrix) => matrix,
                        None => {
                            let mut values = vec![0.0; tensor.span.len];
                            read(tensor, &mut values)?;
                            Quantized::new(base, tensor.shape[1], &values)
                        }
                    };
                    self.device.backend_mut().put_quantized(tensor.span, matrix);
                    self.device.backend().check()?;
                }
                _ => self
                    .device
                    .backend_mut()
                    .fill(Store::Weights, tensor.span, &mut |out| read(tensor, out))?,
            }
        }
        Ok(())
    }

    /// A tensor of the model: a quantized matrix has its values, with the update of its adapter while that is applied.
    fn weight(&self, tensor: &TensorLayout) -> Cow<'_, [f32]> {
        if !tensor.span.is_separate() {
            return self.device.backend().read(Store::Weights, tensor.span);
        }
        let matrix = self.device.backend().quantized(tensor.span);
        let mut values = vec![0.0; tensor.span.len];
        matrix.write_rows(0..matrix.rows, &mut values);
        if let Some(layout) = adapters::unmerged(&self.adapters)
            && let Some(adapted) = layout.adapted.iter().find(|adapted| adapted.weight == tensor.span)
        {
            let [a, b] = [adapted.a, adapted.b].map(|span| self.device.backend().read(Store::Factors, span));
            add_update(adapted.sizes(), [&a, &b], layout.scale, &mut values);
        }
        Cow::Owned(values)
    }

    /// Writes the model to a checkpoint folder as transformers does with bitsandbytes: the layers' matrices in NF4, other tensors in `dtype`. Matrices that
    /// are in NF4, and have no adapters, keep their codes; others are quantized.
    /// Fails if the folder holds weights or can't be written, or a number is not finite in `dtype`. `config.json` is then missing.
    pub fn write_in_4_bits(&self, dir: &Path, dtype: Dtype) -> Result<(), Error> {
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
                true => self.device.backend().quantized(tensor.span).into_owned(),
                false => Quantized::new(BaseFormat::Nf4, tensor.shape[1], &self.weight(tensor)),
            })
        };
        bitsandbytes::write(dir, &self.decoder.config, dtype, &tensor)
    }

    fn trained(&self) -> &[TensorLayout] {
        match &self.adapters {
            Some(adapters) => &adapters.layout.tensors,
            None => &self.decoder.layout.tensors,
        }
    }

    /// Whether the results of all operations of a pass are searched for numbers that are not finite, so that the error names the layer and the operation, and
    /// an update with a gradient that is not finite is an error that names the tensor. For debugging: slower, CUDA graphs are turned off, results are the
    /// same bits. Off at first, unless the environment variable [`CHECK_LAYERS`](crate::CHECK_LAYERS) is `on`.
    pub fn set_layer_checks(&mut self, wanted: bool) {
        self.decoder.check_layers = wanted;
        if wanted {
            self.device.backend_mut().set_graphs(false);
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
                _ => self.device.backend().read(store, tensor.span),
            };
            let index = values.iter().position(|value| !value.is_finite())?;
            Some((tensor.name.as_str(), index, values[index]))
        })
    }

    /// With layer checks, adds to the error of a number that is not finite whether a weight is the cause.
    fn diagnose(&self, error: Error) -> Error {
        match error {
            Error::NonFinite { what, found, .. } if self.decoder.check_layers => {
                if let Err(failed) = self.device.backend().check() {
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

    /// Overwrites one tensor.
    /// Fails if there is no such tensor, it has another length, or it is a matrix with adapters: that is computed from its base and factors.
    pub fn set_tensor(&mut self, name: &str, values: &[f32]) -> Result<(), Error> {
        self.device.forget_prompts();
        let &TensorLayout { span, ref shape, .. } = find(&self.decoder.layout.tensors, name, values.len())?;
        if self.adapters.as_ref().is_some_and(|a| a.layout.adapted.iter().any(|part| part.weight == span)) {
            return Err(Error::request(
                "tensor",
                format!("{name}, which has adapters"),
                "a tensor without, or one of the factors by set_adapter_tensor",
            ));
        }
        match self.decoder.layout.base {
            Some(base) if span.is_separate() => {
                self.device.backend_mut().put_quantized(span, Quantized::new(base, shape[1], values));
            }
            _ => self.device.backend_mut().write(Store::Weights, span, values),
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
