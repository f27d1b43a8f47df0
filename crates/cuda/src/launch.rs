//! The types of a launch: addresses, a kernel's arguments and shape, and errors.

/// An error of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The driver is missing or too old.
    #[error("CUDA: {0}")]
    Unavailable(String),
    /// The driver refused a call, or a kernel failed.
    #[error("CUDA: {call}: {why}")]
    Failed {
        /// Name of the call, or its purpose.
        call: String,
        /// The message of the driver or the emulator.
        why: String,
    },
    /// The device has too little memory.
    #[error("CUDA: out of memory: {bytes} bytes requested, {free} of {total} free")]
    OutOfMemory {
        /// Bytes requested.
        bytes: usize,
        /// Free bytes.
        free: usize,
        /// Total bytes of the device.
        total: usize,
    },
    /// A launch that no device can run.
    #[error("CUDA: launch of {kernel}: {why}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// Reason why the launch is invalid.
        why: String,
    },
}

impl Error {
    /// Returns the error for a failed allocation of page-locked host memory.
    pub(crate) fn host_memory(requested: usize, why: String) -> Self {
        let call = format!("out of page-locked host memory: {requested} bytes requested");
        Error::Failed { call, why }
    }
}

/// An address in device memory or in page-locked host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(pub u64);

impl Address {
    /// Returns the address `bytes` bytes after this one.
    #[must_use]
    pub fn plus(self, bytes: usize) -> Self {
        Address(self.0 + bytes as u64)
    }
}

/// One argument of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Argument {
    /// A pointer.
    Address(Address),
    /// Value of the C type `unsigned`.
    U32(u32),
    /// Value of the C type `uint64_t`.
    U64(u64),
    /// Value of the C type `float`.
    F32(f32),
}

impl Argument {
    /// Returns the value in native byte order, and the number of bytes used.
    pub fn bytes(&self) -> ([u8; 8], usize) {
        let mut bytes = [0; 8];
        match self {
            Argument::Address(Address(value)) | Argument::U64(value) => {
                bytes = value.to_ne_bytes();
                (bytes, 8)
            }
            Argument::U32(value) => {
                bytes[..4].copy_from_slice(&value.to_ne_bytes());
                (bytes, 4)
            }
            Argument::F32(value) => Argument::U32(value.to_bits()).bytes(),
        }
    }
}

macro_rules! argument {
    ($($type:ty => $variant:ident),*) => {
        $(impl From<$type> for Argument {
            fn from(value: $type) -> Self {
                Argument::$variant(value)
            }
        })*
    };
}
argument!(u32 => U32, u64 => U64, f32 => F32, Address => Address);

impl From<usize> for Argument {
    /// Converts a size to `unsigned`, the type of sizes in all kernels.
    ///
    /// # Panics
    /// If the size has more than 32 bits.
    fn from(size: usize) -> Self {
        Argument::U32(u32::try_from(size).expect("a size of at most 32 bits"))
    }
}

/// The number of blocks, the threads per block, and the shared memory per block in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks, in three dimensions.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
}

impl Shape {
    /// Returns a one-dimensional grid of `blocks` blocks.
    pub fn of(blocks: usize, threads: u32, shared: usize) -> Self {
        Self { grid: [blocks as u32, 1, 1], threads, shared: shared as u32 }
    }

    /// Returns enough blocks of `threads` threads for `count` threads in total.
    pub fn covering(count: usize, threads: u32) -> Self {
        Self::of(count.div_ceil(threads as usize), threads, 0)
    }

    /// Returns an error if a device with these limits can't run the shape.
    pub fn check(&self, kernel: &str, limits: &Limits) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Launch { kernel: kernel.to_owned(), why });
        if self.threads == 0 || self.threads > limits.threads || !self.threads.is_multiple_of(32) {
            return wrong(format!(
                "{} threads per block: a block has whole warps, up to {} threads",
                self.threads, limits.threads
            ));
        }
        if self.grid.contains(&0) || self.grid[1] > 65_535 || self.grid[2] > 65_535 {
            return wrong(format!(
                "grid {:?}: no dimension may be 0, and the second and third are at most 65535",
                self.grid
            ));
        }
        if self.shared > limits.shared {
            return wrong(format!(
                "{} bytes of shared memory: a block has at most {}",
                self.shared, limits.shared
            ));
        }
        Ok(())
    }
}

/// The largest block that a device can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of threads.
    pub threads: u32,
    /// Maximum size of the shared memory in bytes.
    pub shared: u32,
}

/// A kernel with its shape and arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Number of blocks, and the threads and shared memory of a block.
    pub shape: Shape,
    /// Arguments of the kernel, in order.
    pub arguments: Vec<Argument>,
}
