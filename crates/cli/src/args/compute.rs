//! Flags for the device and number formats of the built-in engine, shared by all commands that open a checkpoint.

use super::overrides::given;
use fgrpo_nn::{Device, DeviceName, Precision, ProductFormat};
use fgrpo_train::config::{ComputeConfig, Config, Override, threads};
use fgrpo_train::device as devices;

/// Device and number formats of the built-in engine. Flags that aren't given keep the values of the training configuration,
/// if the command has one.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Compute")]
#[group(id = "compute")]
pub(crate) struct Flags {
    /// Device: cpu, cuda, or cuda:N for GPU N [default: cpu].
    #[arg(long)]
    pub(crate) device: Option<DeviceName>,
    /// Number of CPU threads, or 0 for one per core [default: the configuration's, or 0].
    #[arg(long, value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// Number format of matrix products on the CPU: f32, bf16x3 (error 1e-5, faster with AMX), bf16, or blas (f32, with the system's BLAS in updates) [default: the configuration's, or f32].
    #[arg(long)]
    pub(crate) products: Option<ProductFormat>,
    /// Number format of weights and activations on a GPU: f32 or bf16 [default: the configuration's, or f32].
    #[arg(long)]
    pub(crate) precision: Option<Precision>,
    /// On a GPU, compute bit-identical log-probabilities in sampling, scoring and training; slower [default: the configuration's, or off].
    #[arg(long)]
    pub(crate) exact: bool,
}

impl Flags {
    /// Returns the keys of `[compute]` that the flags set.
    pub(crate) fn overrides(&self) -> impl Iterator<Item = Override> + use<> {
        let Self { device: _, threads, products, precision, exact } = self;
        let all = [
            given("--threads", "compute.threads", threads),
            given("--products", "compute.products", products),
            given("--precision", "compute.precision", precision),
            given("--exact", "compute.exact", &exact.then_some(true)),
        ];
        all.into_iter().flatten()
    }

    /// Returns `config.compute`, to which these flags have already been applied, or without a configuration the flags' values.
    pub(crate) fn settings(&self, config: Option<&Config>) -> ComputeConfig {
        config.map(|config| config.compute.clone()).unwrap_or_else(|| ComputeConfig {
            threads: self.threads.unwrap_or_default(),
            products: self.products.unwrap_or_default(),
            precision: self.precision.unwrap_or_default(),
            exact: self.exact,
            ..ComputeConfig::default()
        })
    }

    pub(crate) fn device(&self, config: Option<&Config>) -> anyhow::Result<Device> {
        if self.exact && self.device.is_none_or(|device| device == DeviceName::Cpu) {
            bad_input!(
                "--exact requires a GPU (--device cuda): on a CPU, sampled and scored log-probabilities differ by rounding"
            );
        }
        devices::named(self.device.unwrap_or_default(), &self.settings(config))
    }
}
