//! The device that a model runs on, and its name on the command line.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::numbers::{Precision, ProductFormat};

/// Device that a model runs on, with its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// The CPU.
    Cpu {
        /// Number of threads, at least 1.
        threads: usize,
        /// Number format of the products in linear maps and in the vocabulary head.
        products: ProductFormat,
    },
    /// An NVIDIA GPU of this machine.
    Cuda {
        /// Index of the GPU.
        gpu: usize,
        /// Number type of weights and activations.
        precision: Precision,
        /// Number type of AdamW's two moments. In bf16 they take half the memory. After each step they are rounded stochastically: the expected
        /// value is exact, and the random bits depend only on the step, the parameter and the moment.
        moments: Precision,
        /// Whether a token's log-probability has the same bits when it is sampled, scored and trained on. This is slower, and it assumes that a
        /// cuBLASLt algorithm computes a row identically for any number of rows.
        exact: bool,
    },
    /// A GPU emulated on the CPU, for tests: slow and strict.
    #[cfg(feature = "cuda-emulator")]
    CudaEmulated {
        /// Bytes of memory.
        memory: usize,
        /// Number type of weights and activations.
        precision: Precision,
        /// Number type of AdamW's two moments.
        moments: Precision,
        /// Whether a token's log-probability always has the same bits, as in [`Device::Cuda`].
        exact: bool,
        /// Number of kernel launches after which the GPU is lost, or `None` if it never is.
        lost_after: Option<u64>,
    },
}

impl Device {
    /// Returns the CPU with `threads` threads and f32 products.
    pub const fn cpu(threads: usize) -> Device {
        Device::Cpu { threads, products: ProductFormat::F32 }
    }

    /// Returns an emulated GPU with `memory` bytes of memory and f32 moments.
    #[cfg(feature = "cuda-emulator")]
    pub const fn emulated(memory: usize, precision: Precision) -> Device {
        Device::CudaEmulated { memory, precision, moments: Precision::F32, exact: false, lost_after: None }
    }
}

/// Name of a device, without its settings: `cpu`, `cuda`, `cuda:1`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceName {
    /// The CPU, `cpu`.
    #[default]
    Cpu,
    /// A GPU: `cuda` or `cuda:0`, `cuda:1` and so on.
    Cuda(usize),
    /// The emulated GPU, `cuda-emulated`.
    #[cfg(feature = "cuda-emulator")]
    CudaEmulated,
}

const NAMES: &str = "cpu, cuda, or cuda:N for the GPU with index N";

/// Advice for users without a usable GPU.
pub(crate) const NO_GPU: &str = "`fgrpo devices` lists the available devices; --device cpu works everywhere";

impl DeviceName {
    /// Checks that this machine has the device.
    /// Returns an error if the driver is missing or too old, or if the GPU with this index doesn't exist or can't be used.
    pub fn check(self) -> Result<(), Error> {
        match self {
            DeviceName::Cuda(gpu) => {
                fgrpo_cuda::find(gpu).map(drop).map_err(|source| Error::Device { source, remedy: NO_GPU })
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the device is a GPU.
    pub fn is_gpu(self) -> bool {
        self != DeviceName::Cpu
    }

    /// Returns the device of this name: the CPU with `threads` and `products`, or a GPU with the other settings.
    pub fn device(
        self,
        threads: usize,
        products: ProductFormat,
        precision: Precision,
        moments: Precision,
        exact: bool,
    ) -> Device {
        match self {
            DeviceName::Cpu => Device::Cpu { threads, products },
            DeviceName::Cuda(gpu) => Device::Cuda { gpu, precision, moments, exact },
            #[cfg(feature = "cuda-emulator")]
            DeviceName::CudaEmulated => {
                Device::CudaEmulated { memory: 4 << 30, precision, moments, exact, lost_after: None }
            }
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Cpu => f.pad("cpu"),
            DeviceName::Cuda(gpu) => f.pad(&format!("cuda:{gpu}")),
            #[cfg(feature = "cuda-emulator")]
            DeviceName::CudaEmulated => f.pad("cuda-emulated"),
        }
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(name: &str) -> Result<DeviceName, Error> {
        let wrong = |expected: &str| Err(Error::request("device", name.to_string(), expected));
        match name {
            "cpu" => return Ok(DeviceName::Cpu),
            "cuda" => return Ok(DeviceName::Cuda(0)),
            #[cfg(feature = "cuda-emulator")]
            "cuda-emulated" => return Ok(DeviceName::CudaEmulated),
            #[cfg(not(feature = "cuda-emulator"))]
            "cuda-emulated" => {
                return wrong("cpu or cuda; this build has no emulator (feature cuda-emulator, for tests)");
            }
            _ => {}
        }
        match name.strip_prefix("cuda:") {
            Some(number) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
                number.parse().map(DeviceName::Cuda).or_else(|_| wrong(NAMES))
            }
            Some(numbers) if numbers == "all" || numbers.contains([',', '-']) => wrong(
                "one GPU, as in cuda:0; a process uses a single GPU. To run several seeds or settings at once, start one process per GPU: CUDA_VISIBLE_DEVICES=1 fgrpo ... --device cuda",
            ),
            _ => wrong(NAMES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_devices_are_read_and_written_and_others_refused() {
        for (name, written) in [("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:3", "cuda:3")] {
            let device: DeviceName = name.parse().unwrap();
            assert_eq!(device.to_string(), written);
            assert_eq!(written.parse::<DeviceName>().unwrap(), device);
        }
        let many = "9".repeat(30);
        for name in ["", "gpu", "cuda:", "cuda:+1", "cuda:x", "CPU", "cpu:0", &format!("cuda:{many}")] {
            let message = name.parse::<DeviceName>().unwrap_err().to_string();
            assert!(message.contains("cuda:N"), "{message}");
        }
        for name in ["cuda:0,1", "cuda:0,", "cuda:0-3", "cuda:all"] {
            let message = name.parse::<DeviceName>().unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
            assert!(message.contains("one GPU, as in cuda:0") && message.contains("CUDA_VISIBLE_DEVICES"));
        }
        let emulated = "cuda-emulated".parse::<DeviceName>();
        assert_eq!(emulated.is_ok(), cfg!(feature = "cuda-emulator"), "{emulated:?}");
    }
}
