//! The interface of a driver: memory, copies, launches. Work runs in submission order; only reads and [`Driver::synchronize`] wait for it.

use crate::product::Product;
use std::marker::PhantomData;
use std::sync::Arc;

/// What can go wrong on a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No driver, or one that is too old.
    #[error("CUDA: {0}")]
    Unavailable(String),
    /// The driver refused a call, or a kernel failed.
    #[error("CUDA: {call}: {why}")]
    Failed {
        /// What was being done.
        call: String,
        /// The message of the driver or the emulator.
        why: String,
    },
    /// The device has too little memory.
    #[error("CUDA: out of memory: {wanted} bytes wanted, {free} of {total} free")]
    OutOfMemory {
        /// Bytes requested.
        wanted: usize,
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
        /// What is wrong with it.
        why: String,
    },
}

/// An address in a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(pub u64);

impl Address {
    /// The address `bytes` bytes further.
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
    /// `unsigned`.
    U32(u32),
    /// `uint64_t`.
    U64(u64),
    /// `float`.
    F32(f32),
}

impl Argument {
    /// Its bytes in native order, and how many of them are used.
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
            Argument::F32(value) => {
                bytes[..4].copy_from_slice(&value.to_ne_bytes());
                (bytes, 4)
            }
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

impl<T: Copy> From<&Memory<T>> for Argument {
    fn from(memory: &Memory<T>) -> Self {
        Argument::Address(memory.address())
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
    /// `blocks` blocks in one dimension.
    pub fn of(blocks: usize, threads: u32, shared: usize) -> Self {
        Self { grid: [blocks as u32, 1, 1], threads, shared: shared as u32 }
    }

    /// Enough blocks of `threads` for `count` threads.
    pub fn covering(count: usize, threads: u32) -> Self {
        Self::of(count.div_ceil(threads as usize), threads, 0)
    }

    /// Refuses launches that no supported device can run.
    ///
    /// # Errors
    /// Naming the kernel and the bound.
    pub fn check(&self, kernel: &str, limits: &Limits) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Launch { kernel: kernel.to_owned(), why });
        if self.threads == 0 || self.threads > limits.threads || !self.threads.is_multiple_of(32) {
            return wrong(format!("{} threads, wanted whole warps up to {}", self.threads, limits.threads));
        }
        if self.grid.contains(&0) || self.grid[1] > 65_535 || self.grid[2] > 65_535 {
            return wrong(format!(
                "grid {:?}, wanted 1 to 65535 in the second and third dimension",
                self.grid
            ));
        }
        if self.shared > limits.shared {
            return wrong(format!("{} bytes of shared memory, at most {}", self.shared, limits.shared));
        }
        Ok(())
    }
}

/// The limits of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory of a block.
    pub shared: u32,
}

/// A device that runs kernels. Any thread may submit work; it runs in submission order.
pub trait Driver: Send + Sync + std::fmt::Debug {
    /// The limits of a block on this device.
    fn limits(&self) -> Limits;

    /// Free and total memory in bytes.
    ///
    /// # Errors
    /// As reported by the driver.
    fn memory(&self) -> Result<(usize, usize), Error>;

    /// Allocates `bytes` bytes with unspecified content.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], with the free memory.
    fn allocate(&self, bytes: usize) -> Result<Address, Error>;

    /// Frees memory. Work that was submitted before may still use it.
    fn free(&self, at: Address, bytes: usize);

    /// Copies to the device, in order with launches.
    ///
    /// # Errors
    /// As reported by the driver.
    fn write(&self, to: Address, from: &[u8]) -> Result<(), Error>;

    /// Waits for all work and copies from the device.
    ///
    /// # Errors
    /// As reported by the driver, including a kernel's failure.
    fn read(&self, from: Address, to: &mut [u8]) -> Result<(), Error>;

    /// Copies `bytes` bytes within the device; the two ranges must not overlap.
    ///
    /// # Errors
    /// As reported by the driver.
    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), Error>;

    /// Sets `bytes` bytes to 0.
    ///
    /// # Errors
    /// As reported by the driver.
    fn zero(&self, at: Address, bytes: usize) -> Result<(), Error>;

    /// A matrix product, by the device's library or by our kernel.
    ///
    /// # Errors
    /// For operands that the library would refuse, and as reported by the driver.
    fn product(&self, product: &Product) -> Result<(), Error>;

    /// Launches a kernel.
    ///
    /// # Errors
    /// For an unknown kernel, wrong arguments, or a shape that no device can run.
    fn launch(&self, kernel: &'static str, shape: Shape, arguments: &[Argument]) -> Result<(), Error>;

    /// Waits for all work.
    ///
    /// # Errors
    /// A kernel's failure.
    fn synchronize(&self) -> Result<(), Error>;
}

/// Numbers in a device's memory, which is freed on drop.
pub struct Memory<T: Copy> {
    driver: Arc<dyn Driver>,
    at: Address,
    len: usize,
    numbers: PhantomData<T>,
}

impl<T: Copy> std::fmt::Debug for Memory<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("at", &self.at).field("len", &self.len).finish()
    }
}

impl<T: Copy> Memory<T> {
    /// Allocates `len` numbers with unspecified content.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(driver: &Arc<dyn Driver>, len: usize) -> Result<Self, Error> {
        let at = driver.allocate(len * size_of::<T>())?;
        Ok(Self { driver: Arc::clone(driver), at, len, numbers: PhantomData })
    }

    /// Copies the numbers of a slice to the device.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or as reported by the driver.
    pub fn from(driver: &Arc<dyn Driver>, values: &[T]) -> Result<Self, Error> {
        let memory = Self::new(driver, values.len())?;
        driver.write(memory.at, bytes_of(values))?;
        Ok(memory)
    }

    /// Its address.
    pub fn address(&self) -> Address {
        self.at
    }

    /// The address of number `index`.
    ///
    /// # Panics
    /// If it is beyond the end.
    pub fn at(&self, index: usize) -> Address {
        assert!(index <= self.len, "number {index} of {}", self.len);
        self.at.plus(index * size_of::<T>())
    }

    /// Overwrites the numbers from `first` on.
    ///
    /// # Errors
    /// As reported by the driver.
    ///
    /// # Panics
    /// If they don't fit.
    pub fn write(&self, first: usize, values: &[T]) -> Result<(), Error> {
        assert!(
            first + values.len() <= self.len,
            "{} numbers from {first}, room for {}",
            values.len(),
            self.len
        );
        self.driver.write(self.at(first), bytes_of(values))
    }

    /// Reads the numbers from `first` on, after all work submitted so far.
    ///
    /// # Errors
    /// As reported by the driver, including a kernel's failure.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn read_into(&self, first: usize, to: &mut [T]) -> Result<(), Error> {
        assert!(first + to.len() <= self.len, "{} numbers from {first} of {}", to.len(), self.len);
        let bytes = size_of_val(to);
        // SAFETY: the slice covers exactly these numbers, which are plain data for every T used here.
        let view = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u8>(), bytes) };
        self.driver.read(self.at(first), view)
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads all numbers, after all work submitted so far.
    ///
    /// # Errors
    /// As reported by the driver, including a kernel's failure.
    pub fn read(&self) -> Result<Vec<T>, Error>
    where
        T: Default,
    {
        let mut values = vec![T::default(); self.len];
        self.read_into(0, &mut values)?;
        Ok(values)
    }
}

impl<T: Copy> Drop for Memory<T> {
    fn drop(&mut self) {
        self.driver.free(self.at, self.len * size_of::<T>());
    }
}

fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: plain data may be read as bytes; the length is the slice's own.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
}
