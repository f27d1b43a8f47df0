//! The engine: weights, gradient and optimizer of one decoder, and the threads that run it.
//!
//! A batch's families (trees of segments) are dealt to the threads by cost; each thread takes its own through the whole network, some at a time. Within
//! one thread count everything is repeatable bit for bit; between thread counts results differ by rounding only.

mod adapters;
mod generate;
mod pass;
mod update;

use std::borrow::Cow;
use std::sync::Arc;

use crate::config::Config;
use crate::cpu::buffer::Buffer;
use crate::cpu::copies::Copies;
use crate::cpu::rope::Rope;
use crate::cpu::{Cache, Cpu};
use crate::decoder::{Decoder, Workspace};
use crate::error::Error;
use crate::layout::{Kind, TensorLayout};
use crate::segments::Chunk;
use crate::weights::Checkpoint;
use adapters::Adapters;
pub(crate) use generate::CACHE_BYTES;

/// What executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// This many threads.
    Cpu {
        /// At least 1.
        threads: usize,
    },
}

/// The caller's loss: prediction indices, their log-probabilities and entropies; fills the derivatives, which come zeroed. It is called for
/// disjoint sets of predictions, a family's never cut apart, possibly from several threads at a time.
pub type LossFn<'a> = dyn Fn(&[usize], &[f32], &[f32], &mut [f32], &mut [f32]) + Sync + 'a;

/// Per prediction, of softmax(logits / temperature).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scores {
    /// Log-probability of the predicted token.
    pub logp: Vec<f32>,
    /// Entropy of the distribution it was predicted from, in nats.
    pub entropy: Vec<f32>,
}

/// AdamW's state, enough to resume exactly.
#[derive(Debug, Clone, PartialEq)]
pub struct OptimizerState<'a> {
    /// Updates applied.
    pub step: u64,
    /// (name, shape, values): each parameter's name with `.exp_avg` and `.exp_avg_sq`. Empty before the first update.
    pub tensors: Vec<(String, Vec<usize>, Cow<'a, [f32]>)>,
}

/// A named tensor: (Hugging Face name, shape, values).
pub type NamedTensor<'a> = (&'a str, &'a [usize], Cow<'a, [f32]>);

/// Writes a tensor's initial values.
type Fill<'a> = dyn FnMut(&TensorLayout, &mut [f32]) -> Result<(), Error> + 'a;

/// Tokens that a thread takes through the network at a time, unless told otherwise.
pub const DEFAULT_CHUNK_TOKENS: usize = 1024;
/// Elements per block of the loops over all parameters.
const BLOCK: usize = 1 << 16;

/// Memory for copies of the weights that is kept through an update; larger ones are given back before it.
const KEPT_COPIES_BYTES: usize = 64 << 20;

/// The weights' copies for generation.
#[derive(Default)]
struct DecodeCopies {
    made: Option<Copies>,
    /// Whether they are the present weights'.
    fresh: bool,
    unwanted: bool,
}

/// One thread's executor and memory.
struct Worker {
    cpu: Cpu,
    workspace: Workspace<Cpu>,
    chunk: Chunk,
    /// Memory only: what it holds means nothing outside of a request.
    cache: Cache,
    /// Empty until it is needed.
    gradient: Buffer,
}

/// A decoder with its weights, gradient and optimizer, on a device.
pub struct Engine {
    decoder: Decoder,
    pool: rayon::ThreadPool,
    workers: Vec<Worker>,
    rope: Arc<Rope>,
    weights: Buffer,
    /// AdamW's first and second moment of what is trained; empty before the first update.
    moments: [Buffer; 2],
    step: u64,
    chunk_tokens: usize,
    checkpointing: bool,
    copies: DecodeCopies,
    adapters: Option<Adapters>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let threads = self.workers.len();
        f.debug_struct("Engine")
            .field("config", &self.decoder.config)
            .field("threads", &threads)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// A decoder with fresh weights: matrices normal with standard deviation `std`, biases 0, norms 1. `normal` gives standard normal numbers.
    ///
    /// # Errors
    /// If the threads can't be started.
    ///
    /// # Panics
    /// If the device has no threads, or the configuration's sizes are impossible.
    pub fn init(
        config: &Config,
        std: f32,
        normal: &mut dyn FnMut() -> f64,
        device: &Device,
    ) -> Result<Engine, Error> {
        Engine::from_tensors(config, device, &mut |tensor, out| {
            match tensor.kind {
                Kind::Matrix => out.fill_with(|| (normal() * f64::from(std)) as f32),
                Kind::Bias => out.fill(0.0),
                Kind::Norm => out.fill(1.0),
            }
            Ok(())
        })
    }

    /// The decoder of a checkpoint, its weights in f32.
    ///
    /// # Errors
    /// If a tensor is missing or of another shape, or the threads can't be started.
    ///
    /// # Panics
    /// If the device has no threads.
    pub fn open(checkpoint: &Checkpoint, device: &Device) -> Result<Engine, Error> {
        Engine::from_tensors(checkpoint.config(), device, &mut |tensor, out| {
            checkpoint.read_into(&tensor.name, out)
        })
    }

    /// A decoder whose tensors `fill` writes.
    fn from_tensors(config: &Config, device: &Device, fill: &mut Fill<'_>) -> Result<Engine, Error> {
        let Device::Cpu { threads } = *device;
        assert!(threads > 0, "a device of 0 threads");
        let (h, k) = (config.num_attention_heads, config.num_key_value_heads);
        assert!(k > 0 && h % k == 0, "{k} key/value heads for {h} heads");
        assert!(config.head_dim > 0 && config.head_dim.is_multiple_of(2), "head_dim {}", config.head_dim);
        assert!(
            config.num_hidden_layers > 0 && config.vocab_size > 0 && config.hidden_size > 0,
            "{config:?}"
        );
        let decoder = Decoder::new(config);
        let mut weights = Buffer::zeros(decoder.layout.len);
        for tensor in &decoder.layout.tensors {
            fill(tensor, &mut weights[tensor.span.offset..tensor.span.offset + tensor.span.len])?;
        }
        let pool =
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(|error| Error::Request {
                field: "threads",
                found: format!("{threads}: {error}"),
                wanted: "a number of threads that the system can start".into(),
            })?;
        let rope = Arc::new(Rope::new(config, 512));
        let workers = (0..threads)
            .map(|_| Worker {
                cpu: Cpu::new(Arc::clone(&rope)),
                workspace: Workspace::default(),
                chunk: Chunk::default(),
                cache: Cache::new(config.num_hidden_layers, decoder.key_width()),
                gradient: Buffer::default(),
            })
            .collect();
        Ok(Engine {
            decoder,
            pool,
            workers,
            rope,
            weights,
            moments: Default::default(),
            step: 0,
            chunk_tokens: DEFAULT_CHUNK_TOKENS,
            checkpointing: false,
            copies: DecodeCopies::default(),
            adapters: None,
        })
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
        self.trained().0.iter().map(|tensor| tensor.span.len).sum()
    }

    /// What `question` answers on the first of the threads.
    #[cfg(test)]
    pub(crate) fn in_thread<T: Send>(&self, question: impl FnOnce() -> T + Send) -> T {
        self.pool.install(question)
    }

    /// What is trained, and the length of its store.
    fn trained(&self) -> (&[TensorLayout], usize) {
        match &self.adapters {
            Some(adapters) => (&adapters.layout.tensors, adapters.layout.len),
            None => (&self.decoder.layout.tensors, self.decoder.layout.len),
        }
    }

    /// About how many tokens a thread takes through the network at a time (a family is never cut); the default is
    /// [`DEFAULT_CHUNK_TOKENS`]. More is a little
    /// faster, less needs less memory; results differ by rounding.
    pub fn set_chunk_tokens(&mut self, tokens: usize) {
        self.chunk_tokens = tokens.max(1);
    }

    /// Whether `accumulate` keeps only each layer's input and computes the layer again in the backward pass: a third more work, a fraction of
    /// the memory, the same result. Off at first.
    pub fn set_checkpointing(&mut self, checkpointing: bool) {
        self.checkpointing = checkpointing;
    }

    /// Whether `generate` copies the weights into the order in which decoding reads them. With AVX-512 that makes decoding up to twice as fast and
    /// needs the memory of the matrices once more; elsewhere it does nothing. The copies are made when `generate` finds the weights changed, and given back
    /// when an update is being prepared, unless they are small. Samples are the same with and without, but for rounding. On at first.
    pub fn set_decode_copies(&mut self, wanted: bool) {
        self.copies = DecodeCopies { unwanted: !wanted, ..DecodeCopies::default() };
    }

    /// All tensors, in the checkpoint's order; with LoRA the matrices are merged, so that they are those of a model without.
    pub fn tensors(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        self.decoder.layout.tensors.iter().map(|tensor| {
            let range = tensor.span.offset..tensor.span.offset + tensor.span.len;
            (tensor.name.as_str(), tensor.shape.as_slice(), Cow::Borrowed(&self.weights[range]))
        })
    }

    /// Overwrites one tensor.
    ///
    /// # Errors
    /// If there is no such tensor, it has another length, or it is a matrix with adapters: that is computed from its base and factors.
    pub fn set_tensor(&mut self, name: &str, values: &[f32]) -> Result<(), Error> {
        let span = find(&self.decoder.layout.tensors, name, values.len())?.span;
        if self.adapters.as_ref().is_some_and(|a| a.layout.adapted.iter().any(|part| part.weight == span)) {
            return Err(Error::Request {
                field: "tensor",
                found: format!("{name}, which has adapters"),
                wanted: "a tensor without, or one of the factors by set_adapter_tensor".into(),
            });
        }
        self.weights[span.offset..span.offset + span.len].copy_from_slice(values);
        self.copies.fresh = false;
        Ok(())
    }
}

/// The tensor called `name`, which must have `len` elements.
fn find<'a>(tensors: &'a [TensorLayout], name: &str, len: usize) -> Result<&'a TensorLayout, Error> {
    let wrong = |found: String, wanted: String| Error::Request { field: "tensor", found, wanted };
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
