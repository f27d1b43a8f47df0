//! The device, and its name on a command line.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::gpus::Gpus;
use crate::cpu::bf16::Unit;
use crate::error::Error;
#[cfg(feature = "cuda-emulator")]
use fgrpo_cuda::emulated::Fault;

/// The names of an enum's variants.
macro_rules! named {
    ($type:ident, $field:literal, $all:literal, $($variant:ident = $name:literal),*) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $($type::$variant => $name),* })
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(name: &str) -> Result<$type, Error> {
                match name {
                    $($name => Ok($type::$variant),)*
                    other => Err(Error::request($field, other, $all)),
                }
            }
        }
    };
}

/// The device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// This many threads.
    Cpu {
        /// At least 1.
        threads: usize,
        /// The products of linear maps and the vocabulary head.
        products: Products,
    },
    /// NVIDIA GPUs of this machine, each with a replica of the weights.
    Cuda {
        /// Their numbers.
        gpus: Gpus,
        /// Of weights and activations.
        precision: Precision,
        /// Of AdamW's two moments. In bf16 they take half of the memory. They are rounded stochastically after each step: the mean is the exact number, and
        /// the random bits follow from the step, the parameter and the moment alone.
        moments: Precision,
        /// Whether a token's log-probability has the same bits when it is sampled, scored and trained on. It costs speed, and rests on the assumption that
        /// one algorithm of cuBLASLt computes a row alike among any number of rows.
        exact: bool,
    },
    /// GPUs emulated on the CPU, for tests: slow and strict.
    #[cfg(feature = "cuda-emulator")]
    CudaEmulated {
        /// Their numbers.
        gpus: Gpus,
        /// Bytes of memory of each.
        memory: usize,
        /// Of weights and activations.
        precision: Precision,
        /// Of AdamW's two moments.
        moments: Precision,
        /// As on GPUs.
        exact: bool,
        /// What goes wrong.
        fault: Option<Fault>,
    },
}

/// Number type on a GPU: of weights and activations, or of AdamW's moments. The optimizer updates f32 weights in each, and statistics, sums, logits and
/// gradients of parameters are f32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// bfloat16. The 16 bits that rounding takes from each weight are kept beside it, so that no update is lost.
    Bf16,
}

impl Precision {
    /// Bytes of a number.
    pub const fn bytes(self) -> usize {
        if matches!(self, Precision::F32) { 4 } else { 2 }
    }
}

impl Device {
    /// The CPU with this number of threads, in f32.
    pub const fn cpu(threads: usize) -> Device {
        Device::Cpu { threads, products: Products::F32 }
    }

    /// Emulated GPUs, each with so many bytes of memory. The moments are f32.
    #[cfg(feature = "cuda-emulator")]
    pub const fn emulated(gpus: Gpus, memory: usize, precision: Precision) -> Device {
        Device::CudaEmulated { gpus, memory, precision, moments: Precision::F32, exact: false, fault: None }
    }
}

named!(Precision, "precision", "f32 or bf16", F32 = "f32", Bf16 = "bf16");

/// The CPU's products in linear maps and the vocabulary head, forward and backward. Weights, activations, gradients, sums, attention and the
/// optimizer are f32 in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Products {
    /// Numbers in f32.
    #[default]
    F32,
    /// Each number is the sum of two in bfloat16; the product of the two small parts is left out. A result is off by about 1e-5 of the size of its
    /// terms.
    Bf16x3,
    /// Numbers are rounded to bfloat16; a result is off by about 4e-3 of the size of its terms.
    Bf16,
}

impl Products {
    /// The instructions that multiply on this processor: those in use for f32, otherwise AMX or AVX-512 BF16. `None` if bfloat16 is emulated, which
    /// is much slower than f32.
    pub fn unit(self) -> Option<&'static str> {
        match (self, crate::cpu::bf16::unit()) {
            (Products::F32, _) => Some(crate::cpu::level::level().name()),
            (_, Unit::Amx) => Some("AMX"),
            (_, Unit::Avx512) => Some("AVX-512 BF16"),
            (_, Unit::Portable) => None,
        }
    }
}

named!(Products, "products", "f32, bf16x3 or bf16", F32 = "f32", Bf16x3 = "bf16x3", Bf16 = "bf16");

/// A device by name, without the number of CPU threads: `cpu`, `cuda`, `cuda:1`, `cuda:0,1`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceName {
    /// `cpu`.
    #[default]
    Cpu,
    /// `cuda` or `cuda:0`, `cuda:1`, `cuda:0,1` and so on.
    Cuda(Gpus),
    /// `cuda-emulated`, or `cuda-emulated:0,1` and so on.
    #[cfg(feature = "cuda-emulator")]
    CudaEmulated(Gpus),
}

/// Advice without a GPU.
pub(super) const NO_GPU: &str = "`fgrpo devices` lists what is found; --device cpu works everywhere";

impl DeviceName {
    /// Whether it can be used on this machine.
    /// Fails if there is no driver or an old one, or no such GPU that can be used.
    pub fn check(self) -> Result<(), Error> {
        match self {
            DeviceName::Cuda(gpus) => gpus
                .numbers()
                .try_for_each(|number| fgrpo_cuda::find(number).map(drop))
                .map_err(|source| Error::Device { gpu: None, source, remedy: NO_GPU }),
            _ => Ok(()),
        }
    }

    /// The GPUs, if it isn't the CPU.
    pub fn gpus(self) -> Option<Gpus> {
        match self {
            DeviceName::Cpu => None,
            DeviceName::Cuda(gpus) => Some(gpus),
            #[cfg(feature = "cuda-emulator")]
            DeviceName::CudaEmulated(gpus) => Some(gpus),
        }
    }

    /// The device: the CPU with this number of threads and these products, or GPUs with this precision, moments of this number type, and `exact` or not.
    pub fn device(
        self,
        threads: usize,
        products: Products,
        precision: Precision,
        moments: Precision,
        exact: bool,
    ) -> Device {
        match self {
            DeviceName::Cpu => Device::Cpu { threads, products },
            DeviceName::Cuda(gpus) => Device::Cuda { gpus, precision, moments, exact },
            #[cfg(feature = "cuda-emulator")]
            DeviceName::CudaEmulated(gpus) => {
                Device::CudaEmulated { gpus, memory: 4 << 30, precision, moments, exact, fault: None }
            }
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Cpu => f.pad("cpu"),
            DeviceName::Cuda(gpus) => f.pad(&format!("cuda:{gpus}")),
            #[cfg(feature = "cuda-emulator")]
            DeviceName::CudaEmulated(gpus) => f.pad(&format!("cuda-emulated:{gpus}")),
        }
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(name: &str) -> Result<DeviceName, Error> {
        let wrong = |wanted: &str| Err(Error::request("device", name.to_string(), wanted));
        let (kind, gpus) = match name.split_once(':') {
            Some((kind, gpus)) => (kind, Some(gpus)),
            None => (name, None),
        };
        let gpus = || gpus.map_or(Ok(Gpus::one(0)), str::parse);
        match kind {
            "cpu" if name == kind => Ok(DeviceName::Cpu),
            "cuda" => gpus().map(DeviceName::Cuda),
            #[cfg(feature = "cuda-emulator")]
            "cuda-emulated" => gpus().map(DeviceName::CudaEmulated),
            #[cfg(not(feature = "cuda-emulator"))]
            "cuda-emulated" => {
                wrong("cpu or cuda: this build has no emulator (feature cuda-emulator, for tests)")
            }
            _ => wrong("cpu, cuda, cuda:N for the GPU with number N, or cuda:0,1 for several"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_are_read_and_written_and_others_refused() {
        for (name, written) in
            [("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:3", "cuda:3"), ("cuda:2,0", "cuda:0,2")]
        {
            let device: DeviceName = name.parse().unwrap();
            assert_eq!(device.to_string(), written);
            assert_eq!(written.parse::<DeviceName>().unwrap(), device);
        }
        for name in
            ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:0,", "cuda:0-3", "cuda:all", "CPU", "cpu:0"]
        {
            let message = name.parse::<DeviceName>().unwrap_err().to_string();
            assert!(message.contains("cuda:N"), "{message}");
        }
        let emulated = "cuda-emulated".parse::<DeviceName>();
        assert_eq!(emulated.is_ok(), cfg!(feature = "cuda-emulator"), "{emulated:?}");
    }
}
