//! Ways to create an engine: fresh weights, a checkpoint, or a checkpoint with an adapter.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::{Engine, check};
use crate::config::Config;
use crate::cpu::backend::CpuBackend;
use crate::cpu::lora::add_update;
use crate::cuda::backend::CudaBackend;
use crate::decoder::Decoder;
use crate::device::{Device, NO_GPU};
use crate::error::Error;
use crate::executor::checks::CHECK_LAYERS;
use crate::layout::TensorLayout;
use crate::lora::{ADAPTER_CONFIG, Adapter, Trained, Update, open_weights};
use crate::numbers::Precision;
use crate::quantized::BaseFormat;
use crate::switch;
use crate::weights::Checkpoint;

/// Minimum number of parameters for which products dominate the time of a step.
const LARGE: usize = 100_000_000;

impl Engine {
    /// Creates a decoder with fresh weights: matrices are normal with standard deviation `std`, biases 0, norms 1. `normal` returns the standard normal number
    /// with an index; it is called from several threads at the same time.
    /// Returns an error if the threads can't be started, the environment variable `FGRPO_SIMD` names an unsupported instruction set, or the GPU doesn't exist or
    /// has too little memory.
    ///
    /// # Panics
    /// If the device's number of threads is 0, or a size in the configuration is impossible.
    pub fn init(
        config: &Config,
        std: f32,
        normal: &(dyn Fn(u64) -> f64 + Sync),
        device: &Device,
    ) -> Result<Engine, Error> {
        Engine::init_with_base(config, std, normal, None, device)
    }

    /// Like [`Engine::init`], with the layers' matrices in the quantized format `base` if given. Quantized matrices are frozen, and can only be trained
    /// through adapters.
    ///
    /// # Panics
    /// See [`Engine::init`].
    pub fn init_with_base(
        config: &Config,
        std: f32,
        normal: &(dyn Fn(u64) -> f64 + Sync),
        base: Option<BaseFormat>,
        device: &Device,
    ) -> Result<Engine, Error> {
        let mut engine = Engine::zeros(config, base, device)?;
        engine.fill_fresh(std, normal)?;
        Ok(engine)
    }

    /// Opens a checkpoint, with its weights in f32.
    /// Returns an error if a tensor is missing or has another shape, the threads can't be started, or the GPU doesn't exist or has too little memory.
    ///
    /// # Panics
    /// If the device's number of threads is 0.
    pub fn open(checkpoint: &Checkpoint, device: &Device) -> Result<Engine, Error> {
        Engine::open_with_base(checkpoint, None, device)
    }

    /// Like [`Engine::open`], with the layers' matrices in the quantized format `base` if given. These matrices are frozen, and can only be trained
    /// through adapters. Each is quantized when it is read, so memory never holds a second model. Matrices that are stored in bitsandbytes' NF4 are
    /// used unchanged, or dequantized without a `base`. Also returns an error if the checkpoint is quantized in another format.
    ///
    /// # Panics
    /// See [`Engine::open`].
    pub fn open_with_base(
        checkpoint: &Checkpoint,
        base: Option<BaseFormat>,
        device: &Device,
    ) -> Result<Engine, Error> {
        let (_, quantized) = checkpoint.layer_matrices();
        if let Some(base) = base.filter(|&base| quantized > 0 && base != BaseFormat::Nf4) {
            return Err(Error::file(
                checkpoint.path(),
                format!("{quantized} matrices in the format nf4"),
                format!(
                    "lora.base = \"nf4\", or a checkpoint without quantized matrices for {:?}",
                    base.name()
                ),
            ));
        }
        let mut engine = Engine::zeros(checkpoint.config(), base, device)?;
        engine.inner = checkpoint.inner;
        let mut read = |tensor: &TensorLayout, out: &mut [f32]| checkpoint.read_into(&tensor.name, out);
        let stored = |tensor: &TensorLayout| checkpoint.quantized(&tensor.name);
        engine.fill_with(&mut read, &stored)?;
        Ok(engine)
    }

    /// Like [`Engine::open_with_base`], with an adapter in PEFT's layout. Tensors that it trains outside of the
    /// layers' matrices become part of the model's weights; a tied head becomes separate if it differs. Also returns an
    /// error if the folder is not an adapter of this model or uses an unsupported setting, which is named.
    ///
    /// # Panics
    /// See [`Engine::open`].
    pub fn open_adapted(
        checkpoint: Checkpoint,
        base: Option<BaseFormat>,
        dir: &Path,
        device: &Device,
    ) -> Result<Engine, Error> {
        let (adapter, _) = Adapter::read(dir)?;
        let file = open_weights(dir)?;
        let refuse = |found: &str, expected: &str| {
            let place = dir.join(ADAPTER_CONFIG).display().to_string();
            Error::Config {
                place,
                field: "modules_to_save".into(),
                found: found.into(),
                expected: expected.into(),
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
                adapter.tensor(&name, &shape, tied, &file, &values, &mut used)?
            {
                if base.is_some() && name.starts_with("model.layers.") && shape.len() == 2 {
                    return Err(refuse(&name, "no matrix that is quantized in the base"));
                }
                if let Some(Update { sizes, a, b, scale }) = update {
                    add_update(sizes, [&a, &b], scale, &mut values);
                }
                engine.set_tensor(&name, &values)?;
            }
        }
        engine.read_factors(dir, &adapter.lora, &used)?;
        Ok(engine)
    }

    fn zeros(config: &Config, base: Option<BaseFormat>, device: &Device) -> Result<Engine, Error> {
        let checks = switch::is_on(CHECK_LAYERS, false)?;
        let mut engine = Engine::unchecked(config, base, device)?;
        engine.set_layer_checks(checks);
        Ok(engine)
    }

    /// Creates an engine without layer checks, with weights of 0.
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
                return Ok(Engine::new(decoder, backend));
            }
            Device::Cuda { gpu, precision, moments, exact } => {
                let gpu = fgrpo_cuda::Gpu::open(gpu, None)
                    .map_err(|source| Error::Device { source, remedy: NO_GPU })?;
                (Arc::new(gpu), precision, moments, exact)
            }
            #[cfg(feature = "cuda-emulator")]
            Device::CudaEmulated { memory, precision, moments, exact, lost_after } => {
                let emulated = fgrpo_cuda::emulated::Emulated::with_memory(0, memory).lost_after(lost_after);
                (Arc::new(emulated), precision, moments, exact)
            }
        };
        if precision == Precision::F32 && decoder.layout.len >= LARGE {
            tracing::warn!(
                "compute.precision is \"f32\"; with \"bf16\" the products of this model run 10 to 15 times faster, on tensor cores"
            );
        }
        let backend = CudaBackend::new(&decoder, precision, moments, exact, driver)?;
        Ok(Engine::new(decoder, backend))
    }

    /// Reads all tensors again from a checkpoint with the same sizes. Gradient and optimizer state are retained.
    /// Returns an error if the engine has adapters, or a tensor is missing or has another shape; the weights are then unspecified.
    pub fn reload(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        if self.lora().is_some() {
            return Err(Error::request(
                "reload",
                "an engine that has adapters",
                "an engine without adapters",
            ));
        }
        let mut read = |tensor: &TensorLayout, out: &mut [f32]| checkpoint.read_into(&tensor.name, out);
        self.fill_with(&mut read, &|_| Ok(None))
    }
}
