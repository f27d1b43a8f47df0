//! Where the embedded engine computes, as flags: the same for every command that opens a checkpoint.

use fgrpo_nn::{Device, DeviceName, Precision, Products};
use fgrpo_train::config::{ComputeConfig, Config, threads};
use fgrpo_train::device as devices;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where the embedded engine computes. What the flags leave out comes from a training configuration, where the command has one.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
#[command(next_help_heading = "Compute")]
#[group(id = "compute")]
pub(crate) struct Flags {
    /// Where to compute: cpu, cuda, or cuda:N for the GPU with number N [default: cpu].
    #[arg(long)]
    #[serde(serialize_with = "as_text", deserialize_with = "device")]
    pub(crate) device: Option<DeviceName>,
    /// Threads of the CPU; 0 is one per core [default: the configuration's, or 0].
    #[arg(long, value_parser = threads)]
    #[serde(deserialize_with = "some_threads")]
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

fn as_text<S: Serializer>(device: &Option<DeviceName>, serializer: S) -> Result<S::Ok, S::Error> {
    device.map(|device| device.to_string()).serialize(serializer)
}

fn device<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DeviceName>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(Error::custom)
}

fn some_threads<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    threads(&u64::deserialize(deserializer)?.to_string()).map(Some).map_err(Error::custom)
}

impl Flags {
    /// The settings: those of the flags, else of the configuration.
    pub(crate) fn settings(&self, config: Option<&Config>) -> ComputeConfig {
        let base = config.map(|config| config.compute.clone()).unwrap_or_default();
        ComputeConfig {
            threads: self.threads.unwrap_or(base.threads),
            products: self.products.unwrap_or(base.products),
            precision: self.precision.unwrap_or(base.precision),
            exact: self.exact || base.exact,
            ..base
        }
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
