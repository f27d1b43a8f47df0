//! The public engine: one type over the devices.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::{EngineOn, FamilyScores, NamedTensor, OptimizerState, Scores, TrainingState, check};
use crate::adamw::{AdamW, UpdateReport};
use crate::backend::{Backend, GraphCounts, Store};
use crate::config::Config;
use crate::cpu::backend::CpuBackend;
use crate::cpu::lora::add_update;
use crate::cuda::backend::CudaBackend;
use crate::decoder::Decoder;
use crate::device::{Device, NO_GPU};
use crate::error::Error;
use crate::executor::checks::CHECK_LAYERS;
use crate::generate::{Completion, Feed, Prompt, StopFn, UniformFn};
use crate::layout::TensorLayout;
use crate::lora::{ADAPTER_CONFIG, Adapter, LoraConfig, Trained, Update, weights_of};
use crate::numbers::Precision;
use crate::quantized::BaseFormat;
use crate::sampling::Sampling;
use crate::segments::Batch;
use crate::switch;
use crate::weights::{Checkpoint, Dtype, TensorFile};

/// Parameters from which products decide how long a step takes.
const LARGE: usize = 100_000_000;

// One lives as long as a run: its size in place is no cost.
#[allow(clippy::large_enum_variant)]
/// The device that an engine is on.
enum Any {
    Cpu(EngineOn<CpuBackend>),
    Cuda(EngineOn<CudaBackend>),
}

/// A decoder with its weights, gradient and optimizer, on a device.
pub struct Engine(Any);

/// The result of `$body` for the engine on any device.
macro_rules! on_device {
    ($any:expr, $engine:ident => $body:expr) => {
        match $any {
            Any::Cpu($engine) => $body,
            Any::Cuda($engine) => $body,
        }
    };
}

/// The methods that each device's engine has: how each is called there.
macro_rules! forward {
    ($(#[$meta:meta])* fn $name:ident(&mut $me:ident $(, $arg:ident: $ty:ty)*) $(-> $out:ty)? = $engine:ident => $call:expr; $($rest:tt)*) => {
        $(#[$meta])*
        pub fn $name(&mut $me $(, $arg: $ty)*) $(-> $out)? {
            on_device!(&mut $me.0, $engine => $call)
        }
        forward! { $($rest)* }
    };
    ($(#[$meta:meta])* fn $name:ident(&$me:ident $(, $arg:ident: $ty:ty)*) $(-> $out:ty)? = $engine:ident => $call:expr; $($rest:tt)*) => {
        $(#[$meta])*
        pub fn $name(&$me $(, $arg: $ty)*) $(-> $out)? {
            on_device!(&$me.0, $engine => $call)
        }
        forward! { $($rest)* }
    };
    () => {};
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("config", self.config()).finish_non_exhaustive()
    }
}

impl Engine {
    /// A decoder with fresh weights: matrices normal with standard deviation `std`, biases 0, norms 1. `normal` gives the standard normal number of
    /// an index; it is called from several threads at the same time.
    /// Fails if the threads can't be started, the environment variable `FGRPO_SIMD` names an instruction set that isn't there, or there is no such GPU or too
    /// little memory on it.
    ///
    /// # Panics
    /// If the device has no threads, or the configuration's sizes are impossible.
    pub fn init(
        config: &Config,
        std: f32,
        normal: &(dyn Fn(u64) -> f64 + Sync),
        device: &Device,
    ) -> Result<Engine, Error> {
        Engine::init_with_base(config, std, normal, None, device)
    }

    /// [`Engine::init`] with the matrices of the layers in a `base` format, if one is given: they are frozen, and can only be trained through adapters.
    ///
    /// # Panics
    /// As [`Engine::init`].
    pub fn init_with_base(
        config: &Config,
        std: f32,
        normal: &(dyn Fn(u64) -> f64 + Sync),
        base: Option<BaseFormat>,
        device: &Device,
    ) -> Result<Engine, Error> {
        let mut engine = Engine::zeros(config, base, device)?;
        on_device!(&mut engine.0, engine => engine.fill_fresh(std, normal))?;
        Ok(engine)
    }

    /// The decoder of a checkpoint, its weights in f32.
    /// Fails if a tensor is missing or of another shape, the threads can't be started, or there is no such GPU or too little memory on it.
    ///
    /// # Panics
    /// If the device has no threads.
    pub fn open(checkpoint: &Checkpoint, device: &Device) -> Result<Engine, Error> {
        Engine::open_with_base(checkpoint, None, device)
    }

    /// [`Engine::open`] with the matrices of the layers in a `base` format, if one is given: they are frozen, and can only be trained through adapters.
    /// Each is converted when it is read, so that memory never holds a second model. Those that bitsandbytes has converted to NF4 are taken as they are;
    /// without a `base`, they have their values in full.
    /// Fails as [`Engine::open`], or if the checkpoint is in another format.
    ///
    /// # Panics
    /// As [`Engine::open`].
    pub fn open_with_base(
        checkpoint: &Checkpoint,
        base: Option<BaseFormat>,
        device: &Device,
    ) -> Result<Engine, Error> {
        let (_, quantized) = checkpoint.layer_matrices();
        if let Some(wanted) = base.filter(|&base| quantized > 0 && base != BaseFormat::Nf4) {
            return Err(Error::file(
                checkpoint.path(),
                format!("{quantized} matrices in the format nf4"),
                format!("lora.base = \"nf4\", or a checkpoint without such for {:?}", wanted.name()),
            ));
        }
        let mut engine = Engine::zeros(checkpoint.config(), base, device)?;
        let mut read = |tensor: &TensorLayout, out: &mut [f32]| checkpoint.read_into(&tensor.name, out);
        let stored = |tensor: &TensorLayout| checkpoint.quantized(&tensor.name);
        on_device!(&mut engine.0, engine => engine.fill_with(&mut read, &stored))?;
        Ok(engine)
    }

    /// [`Engine::open_with_base`] with an adapter in PEFT's layout. What it trains outside of the layers' matrices (whole modules, factors of embedding
    /// and head) becomes part of the model's own weights; a head that is tied to the embedding is then one of its own if the adapter makes it differ.
    /// Fails as [`Engine::open_with_base`], or if the folder is not an adapter of this model or uses what is not supported; the setting is named.
    ///
    /// # Panics
    /// As [`Engine::open`].
    pub fn open_adapted(
        checkpoint: Checkpoint,
        base: Option<BaseFormat>,
        dir: &Path,
        device: &Device,
    ) -> Result<Engine, Error> {
        let (adapter, _) = Adapter::read(dir)?;
        let file = TensorFile::open(&weights_of(dir)?)?;
        let refuse = |found: &str, wanted: &str| {
            let place = dir.join(ADAPTER_CONFIG).display().to_string();
            Error::Config {
                place,
                field: "modules_to_save".into(),
                found: found.into(),
                wanted: wanted.into(),
            }
        };
        if let Some(module) = adapter.unknown(checkpoint.config()) {
            return Err(refuse(module, "modules of the model"));
        }
        let tied = checkpoint.config().tie_word_embeddings;
        let checkpoint = if tied && adapter.unties() { checkpoint.untied() } else { checkpoint };
        let mut engine = Engine::open_with_base(&checkpoint, base, device)?;
        let mut used = BTreeSet::new();
        for (name, shape) in checkpoint.config().tensors() {
            let values = || checkpoint.tensor(&name);
            if let Some(Trained { mut values, update }) =
                adapter.tensor((&name, &shape), tied, &file, &values, &mut used)?
            {
                if base.is_some() && name.starts_with("model.layers.") && shape.len() == 2 {
                    return Err(refuse(&name, "none of the matrices that the base has in a format"));
                }
                if let Some(Update { sizes, a, b, scale }) = update {
                    add_update(sizes, [&a, &b], scale, &mut values);
                }
                engine.set_tensor(&name, &values)?;
            }
        }
        on_device!(&mut engine.0, engine => engine.read_factors(dir, &adapter.lora, &used))?;
        Ok(engine)
    }

    fn zeros(config: &Config, base: Option<BaseFormat>, device: &Device) -> Result<Engine, Error> {
        let checks = switch::is_on(CHECK_LAYERS, false)?;
        let mut engine = Engine::unchecked(config, base, device)?;
        engine.set_layer_checks(checks);
        Ok(engine)
    }

    /// The engine without layer checks, with weights of 0.
    fn unchecked(config: &Config, base: Option<BaseFormat>, device: &Device) -> Result<Engine, Error> {
        if !matches!(device, Device::Cpu { .. }) {
            config.check_on_gpus()?;
        }
        check(config);
        let decoder = Decoder::new(config, base);
        let (driver, precision, moments, exact): (Arc<dyn fgrpo_cuda::Driver>, _, _, _) = match *device {
            Device::Cpu { threads, products } => {
                assert!(threads > 0, "a device of 0 threads");
                crate::cpu::level::check()?;
                let backend = CpuBackend::new(config, &decoder.layout, decoder.head(), threads, products)?;
                return Ok(Engine(Any::Cpu(EngineOn::new(decoder, backend))));
            }
            Device::Cuda { gpu, precision, moments, exact } => {
                let opened = fgrpo_cuda::Gpu::open(gpu, None)
                    .map_err(|source| Error::Device { source, remedy: NO_GPU })?;
                (Arc::new(opened), precision, moments, exact)
            }
            #[cfg(feature = "cuda-emulator")]
            Device::CudaEmulated { memory, precision, moments, exact, lost_after } => {
                let made = fgrpo_cuda::emulated::Emulated::with_memory(0, memory).lost_after(lost_after);
                (Arc::new(made), precision, moments, exact)
            }
        };
        if precision == Precision::F32 && decoder.layout.len >= LARGE {
            tracing::warn!(
                "compute.precision is \"f32\": products of this model run 10 to 15 times faster in \"bf16\", on tensor cores"
            );
        }
        let backend = CudaBackend::new(config, &decoder.layout, precision, moments, exact, driver)?;
        Ok(Engine(Any::Cuda(EngineOn::new(decoder, backend))))
    }

    /// Number of parameters; a tied head counts once.
    pub fn parameters(&self) -> usize {
        on_device!(&self.0, engine => &engine.decoder.layout.tensors)
            .iter()
            .map(|tensor| tensor.span.len)
            .sum()
    }

    /// Number of parameters that are trained: all, or LoRA's factors.
    pub fn trained_parameters(&self) -> usize {
        self.trained().iter().map(|tensor| tensor.span.len).sum()
    }

    /// The result of `question` on the main thread.
    #[cfg(test)]
    pub(crate) fn in_thread<T: Send>(&self, question: impl FnOnce() -> T + Send) -> T {
        let Any::Cpu(engine) = &self.0 else { panic!("an engine on the CPU") };
        engine.backend.in_thread(question)
    }

    fn trained(&self) -> &[TensorLayout] {
        on_device!(&self.0, engine => engine.trained())
    }

    fn read(&self, store: Store, tensor: &TensorLayout) -> Cow<'_, [f32]> {
        on_device!(&self.0, engine => engine.backend.read(store, tensor.span))
    }

    /// All tensors, in the checkpoint's order; with LoRA the matrices are merged, so that they are those of a model without. Those of a base in a format
    /// have the values that the format keeps.
    ///
    /// # Panics
    /// If a GPU has failed, while the iterator runs; so do the other functions that read numbers.
    pub fn tensors(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        let tensors = on_device!(&self.0, engine => &engine.decoder.layout.tensors);
        let values = |tensor| on_device!(&self.0, engine => engine.weight(tensor));
        tensors.iter().map(move |tensor| (tensor.name.as_str(), tensor.shape.as_slice(), values(tensor)))
    }

    fn named<'a>(
        &'a self,
        store: Store,
        tensors: &'a [TensorLayout],
    ) -> impl Iterator<Item = NamedTensor<'a>> {
        let named = move |t: &'a TensorLayout| (t.name.as_str(), t.shape.as_slice(), self.read(store, t));
        tensors.iter().map(named)
    }

    /// Scores the batch, calls `loss` for each family's derivatives and ADDS their gradient. Families whose derivatives are all zero need no backward
    /// pass. Returns the scores and what `loss` returned for each family with predictions, in their order.
    /// Fails if the scores aren't finite, or the device fails; the gradient is then incomplete and must be zeroed.
    ///
    /// # Panics
    /// As [`Engine::score`].
    pub fn accumulate<S: Send>(
        &mut self,
        batch: &Batch,
        temperature: f32,
        loss: &(impl Fn(FamilyScores<'_>) -> S + Sync + ?Sized),
    ) -> Result<(Scores, Vec<S>), Error> {
        let returned = Mutex::new(Vec::new());
        let loss = |scores: FamilyScores<'_>| {
            let family = scores.family;
            let own = loss(scores);
            returned.lock().unwrap_or_else(PoisonError::into_inner).push((family, own));
        };
        let scores = on_device!(&mut self.0, engine => engine.pass(batch, temperature, Some(&loss)))?;
        let mut returned = returned.into_inner().unwrap_or_else(PoisonError::into_inner);
        returned.sort_unstable_by_key(|(family, _)| *family);
        Ok((scores, returned.into_iter().map(|(_, own)| own).collect()))
    }

    /// The gradient of each tensor that is trained: all of them, or LoRA's factors.
    pub fn gradients(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        self.named(Store::Gradient, self.trained())
    }

    /// Loads a state from [`Engine::optimizer_state`]. A GPU with moments in bf16 rounds them to nearest, which changes none that were bf16.
    /// Fails if a tensor is missing, unknown, or of another length; nothing has changed then.
    pub fn load_state(&mut self, state: &OptimizerState<'_>) -> Result<(), Error> {
        let tensors: Vec<(&str, usize)> =
            state.tensors.iter().map(|(name, _, values)| (name.as_str(), values.len())).collect();
        self.load_optimizer(state.step, &tensors, &mut |index, out| {
            out.copy_from_slice(&state.tensors[index].2);
            Ok(())
        })
    }

    /// LoRA's factors under PEFT's names, `A` before `B`, in the order of the checkpoint; none without adapters.
    pub fn adapter_tensors(&self) -> impl Iterator<Item = NamedTensor<'_>> {
        let tensors = if self.lora().is_some() { self.trained() } else { &[] };
        self.named(Store::Factors, tensors)
    }

    /// Reads all tensors again from a checkpoint of the same sizes, with its weights in f32. Gradient and optimizer state stay.
    /// Fails if the engine has adapters, or a tensor is missing or of another shape; the weights are then unknown.
    pub fn reload(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        if self.lora().is_some() {
            return Err(Error::request("reload", "an engine that has adapters", "one without"));
        }
        let mut read = |tensor: &TensorLayout, out: &mut [f32]| checkpoint.read_into(&tensor.name, out);
        on_device!(&mut self.0, engine => engine.fill_with(&mut read, &|_| Ok(None)))
    }

    forward! {
        /// The decoder's configuration.
        fn config(&self) -> &Config = engine => &engine.decoder.config;

        /// Sets the approximate number of tokens per pass of each executor, of which a CPU has at most two (a family is never split); the default is
        /// [`DEFAULT_CHUNK_TOKENS`](crate::DEFAULT_CHUNK_TOKENS). More is a little faster, less needs less memory; results differ by rounding.
        fn set_chunk_tokens(&mut self, tokens: usize) = engine => engine.chunk_tokens = tokens.max(1);

        /// Whether `accumulate` keeps only each layer's input and computes the layer again in the backward pass: a third more work, a fraction of
        /// the memory, the same result. Off at first.
        fn set_checkpointing(&mut self, checkpointing: bool) = engine => engine.checkpointing = checkpointing;

        /// Whether `generate` copies the weights into the order in which decoding reads them. With AVX-512 or AVX2 that makes decoding up to twice as fast and
        /// needs the memory of the matrices once more; elsewhere it does nothing. The copies are made when `generate` finds the weights changed, and given back
        /// when an update is being prepared, unless they are small. Samples are the same with and without, but for rounding. On at first.
        fn set_decode_copies(&mut self, wanted: bool) = engine => engine.backend.set_decode_copies(wanted);

        /// Whether AdamW's moments of a GPU's engine are kept in page-locked host memory: 8 bytes less per trained parameter on the GPU (4 if they are bf16), but
        /// for buffers of at most 256 MiB, and every update copies them there and back. The results are the same bit for bit. On the CPU it does nothing. Off at first.
        fn set_optimizer_offload(&mut self, wanted: bool) = engine => engine.backend.set_optimizer_offload(wanted);

        /// The format of the layers' matrices, if they are in one.
        fn base(&self) -> Option<BaseFormat> = engine => engine.decoder.layout.base;

        /// Writes the model to a checkpoint folder as transformers does with bitsandbytes: the layers' matrices in NF4, other tensors in `dtype`. Matrices that
        /// are in NF4, and have no adapters, keep their codes; others are quantized.
        /// Fails if the folder holds weights or can't be written, or a number is not finite in `dtype`. `config.json` is then missing.
        fn write_in_4_bits(&self, dir: &Path, dtype: Dtype) -> Result<(), Error> = engine => engine.write_in_4_bits(dir, dtype);

        /// Overwrites one tensor.
        /// Fails if there is no such tensor, it has another length, or it is a matrix with adapters: that is computed from its base and factors.
        fn set_tensor(&mut self, name: &str, values: &[f32]) -> Result<(), Error> = engine => engine.set_tensor(name, values);

        /// Computes log-probabilities and entropies of the batch's predictions.
        /// Fails if they aren't finite, or the device fails.
        ///
        /// # Panics
        /// If the batch is malformed (see [`Batch`]), or the temperature is not positive.
        fn score(&mut self, batch: &Batch, temperature: f32) -> Result<Scores, Error> = engine => engine.pass(batch, temperature, None);

        /// The logits of the batch's predictions, untempered: `[predictions, V]`. For tests and small inputs.
        ///
        /// # Panics
        /// If the batch is malformed.
        fn logits(&mut self, batch: &Batch) -> Result<Vec<f32>, Error> = engine => engine.logits(batch);

        /// Resets the gradient.
        fn zero_gradient(&mut self) = engine => engine.backend.zero_gradient();

        /// Norm of the whole gradient.
        fn gradient_norm(&self) -> f64 = engine => engine.backend.gradient_norm();

        /// Clips the gradient to `max_norm`, takes an AdamW step and zeroes the gradient. If the gradient isn't finite, the weights don't change, but the
        /// gradient is still zeroed, and the report says so.
        /// Fails if the device fails. The weights are then unknown.
        fn update(&mut self, adamw: &AdamW, max_norm: Option<f64>) -> Result<UpdateReport, Error> = engine => engine.update(adamw, max_norm);

        /// Whether a GPU's decoding steps are submitted as CUDA graphs. They are at first, unless the environment variable `FGRPO_CUDA_GRAPHS` is `off`. Results
        /// are the same bits; for measuring. The CPU ignores it.
        fn set_cuda_graphs(&mut self, wanted: bool) = engine => engine.backend.set_graphs(wanted && !engine.decoder.check_layers);

        /// Whether the results of all operations of a pass are searched for numbers that are not finite, so that the error names the layer and the operation, and
        /// an update with a gradient that is not finite is an error that names the tensor. For debugging: slower, CUDA graphs are turned off, results are the
        /// same bits. Off at first, unless the environment variable [`CHECK_LAYERS`](crate::CHECK_LAYERS) is `on`.
        fn set_layer_checks(&mut self, wanted: bool) = engine => engine.set_layer_checks(wanted);

        /// How decoding steps were submitted to a GPU since the engine was made, or since [`Engine::set_cuda_graphs`].
        fn graph_counts(&self) -> GraphCounts = engine => engine.backend.graph_counts();

        /// The state that a resumed run needs in addition to the tensors (with LoRA: in addition to the adapter).
        fn optimizer_state(&self) -> OptimizerState<'_> = engine => engine.optimizer_state();

        /// Loads the state of an optimizer tensor by tensor, so that there is never a second copy: `tensors` are the names and lengths of
        /// [`OptimizerState::tensors`], and `read` writes the values of the one with an index.
        /// Fails if a tensor is missing, unknown, or of another length; nothing has changed then. If `read` fails: the state is then that of no update.
        fn load_optimizer(&mut self, step: u64, tensors: &[(&str, usize)], read: &mut dyn FnMut(usize, &mut [f32]) -> Result<(), Error>)
            -> Result<(), Error> = engine => engine.load_optimizer(step, tensors, read);

        /// Samples completions of `prompts`.
        ///
        /// Every draw is `uniform(prompt, sample, position)`, so a sample does not depend on what else is sampled. `stop`, if given, is called with a
        /// completion's tokens after each draw and ends it by returning `true`. `on_done` receives completions as they finish, in an order that may
        /// differ between runs, and ends generation by breaking.
        /// Fails if a setting is out of range, the bound on cached tokens is too small for one sequence, or logits are not finite.
        ///
        /// # Panics
        /// If a prompt is empty or has a token outside the vocabulary.
        fn generate(&mut self, prompts: &[Prompt<'_>], sampling: &Sampling, uniform: &UniformFn<'_>,
            stop: Option<&StopFn<'_>>, on_done: &mut dyn FnMut(Completion) -> ControlFlow<()>)
            -> Result<(), Error> = engine => engine.generate(prompts, sampling, uniform, stop, on_done);

        /// Samples completions of prompts that arrive while it runs: those of `feed`, until it has none and all are done.
        ///
        /// `longest` bounds the tokens of a prompt with its completion, and replaces `max_new_tokens` of `sampling`. With `keep`, keys and values stay in the
        /// cache until their memory or the weights change, so a prompt that begins like an earlier one, or like one with its completion, has only its end
        /// computed ([`Completion::cached`] says how much was there); its log-probabilities then differ by rounding. `on_done` as in [`Engine::generate`].
        ///
        /// # Panics
        /// If a prompt of the feed is empty, has a token outside the vocabulary or leaves no room within `longest`.
        fn generate_fed(&mut self, feed: &dyn Feed, longest: usize, sampling: &Sampling, keep: bool,
            on_done: &mut dyn FnMut(Completion) -> ControlFlow<()>)
            -> Result<(), Error> = engine => engine.generate_fed(feed, longest, sampling, keep, on_done);

        /// Adds LoRA's factors to the matrices that `lora` names. From now on only the factors are trained; nothing else has a gradient or optimizer state.
        /// The weights are unchanged at first: `B` is 0, and `A` uniform within `1 / √inputs` from `uniform`, which gives numbers in [0, 1), as in PEFT.
        /// An existing gradient or optimizer state is dropped.
        /// Fails if a setting is impossible ([`LoraConfig::check`]), or the engine has adapters already.
        fn adapt(&mut self, lora: &LoraConfig, uniform: &mut dyn FnMut() -> f64) -> Result<(), Error> = engine => engine.adapt(lora, uniform);

        /// LoRA's settings, where the engine has adapters.
        fn lora(&self) -> Option<&LoraConfig> = engine => engine.lora();

        /// Whether the weights are those with adapters (as at first) or, bit for bit, the base model's: what a reference policy needs, without a second model.
        /// Gradients can only be accumulated, and updates made, with them.
        ///
        /// # Panics
        /// If the engine has no adapters.
        fn set_adapter_applied(&mut self, applied: bool) = engine => engine.set_adapter_applied(applied);

        /// Writes the factors as PEFT does: `adapter_model.safetensors`, in f32, and `adapter_config.json` with `base` as the base model's name or path.
        /// The folder is created if necessary and must not contain an adapter.
        /// Fails if the folder can't be written or holds an adapter, or a factor is not finite.
        ///
        /// # Panics
        /// If the engine has no adapters.
        fn write_adapter(&self, dir: &Path, base: &str) -> Result<(), Error> = engine => engine.write_adapter(dir, base);

        /// Loads an adapter in PEFT's layout. An engine without adapters gets the folder's settings; one with adapters must have the same settings.
        /// Fails if the folder is not an adapter of this model, uses what is not supported (the setting is named), or has other settings. Nothing has changed
        /// then.
        fn read_adapter(&mut self, dir: &Path) -> Result<(), Error> = engine => engine.read_adapter(dir);

        /// Restores the base weights and removes the factors, with their gradient and optimizer state. Without adapters it does nothing.
        fn remove_adapters(&mut self) = engine => engine.remove_adapters();

        /// A copy of what training has made of the model: trained parameters, gradient and optimizer state.
        fn training_state(&self) -> TrainingState = engine => engine.training_state();

        /// Continues from a state of [`Engine::training_state`], bit for bit if [`Engine::gather_gradient`] was called before. The engine's adapters are
        /// replaced by the state's if their settings differ.
        /// Fails if the state is one of another model, or the device fails.
        fn set_training_state(&mut self, state: &TrainingState) -> Result<(), Error> = engine => engine.set_training_state(state);

        /// Adds up the executors' parts of the gradient. Later sums then no longer depend on whether the gradient was copied in between.
        fn gather_gradient(&mut self) = engine => engine.gather_gradient();

        /// Overwrites one of LoRA's factors, by its PEFT name.
        /// Fails if there is no such factor, or it has another length.
        ///
        /// # Panics
        /// If the engine has no adapters.
        fn set_adapter_tensor(&mut self, name: &str, values: &[f32]) -> Result<(), Error> = engine => engine.set_adapter_tensor(name, values);
    }
}
