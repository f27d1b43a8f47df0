//! Where the embedded engine computes, as flags: the same for every command that opens a checkpoint.

use super::overrides::given;
use fgrpo_nn::{Device, DeviceName, Precision, Products};
use fgrpo_train::config::{ComputeConfig, Config, Override, threads};
use fgrpo_train::device as devices;

/// Where the embedded engine computes. What the flags leave out comes from a training configuration, where the command has one.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Compute")]
#[group(id = "compute")]
pub(crate) struct Flags {
    /// Where to compute: cpu, cuda, or cuda:N for the GPU with number N [default: cpu].
    #[arg(long)]
    pub(crate) device: Option<DeviceName>,
    /// Threads of the CPU; 0 is one per core [default: the configuration's, or 0].
    #[arg(long, value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// Number format of the CPU's matrix products: f32, bf16x3 (error 1e-5, faster with AMX) or bf16 [default: the configuration's, or f32].
    #[arg(long)]
    pub(crate) products: Option<Products>,
    /// Number type of weights and activations on a GPU: f32 or bf16 [default: the configuration's, or f32].
    #[arg(long)]
    pub(crate) precision: Option<Precision>,
    /// Compute a token's log-probability on a GPU in the same bits when it is sampled, scored and trained on; slower [default: the configuration's, or off].
    #[arg(long)]
    pub(crate) exact: bool,
}

impl Flags {
    /// The values that the flags set in `[compute]`.
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

    /// The settings of a configuration, which these flags have changed already, or of the flags alone.
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
                "--exact: found --device cpu, wanted a GPU: on a CPU sampled and scored log-probabilities differ by rounding"
            );
        }
        devices::named(self.device.unwrap_or_default(), &self.settings(config))
    }
}
