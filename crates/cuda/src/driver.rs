//! The interface to a device: memory, copies, launches, queues. The host waits for the device only in [`Driver::read`], [`Driver::wait_here`] and
//! [`Driver::synchronize`].

use crate::launch::{Address, Error, Launch, Limits};
use crate::product::Product;

/// A queue of work, a CUDA stream. Work in one queue runs in submission order. Queues run concurrently; [`Driver::wait`] makes one wait for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Launches, and all calls without a queue.
    Compute,
    /// Copies from the host to the device.
    Upload,
    /// Copies from the device to the host.
    Download,
}

impl Queue {
    /// All queues, in the order of their discriminants.
    pub const ALL: [Queue; 3] = [Queue::Compute, Queue::Upload, Queue::Download];
}

/// Memory of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Free memory of the device.
    pub free: usize,
    /// Total memory of the device.
    pub total: usize,
    /// Memory allocated through this driver and not yet freed.
    pub allocated: usize,
}

/// One piece of work of [`Queue::Compute`] that needs no data from the host.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Launch of a kernel.
    Launch(Launch),
    /// A matrix product, with cuBLASLt, or with a kernel of this crate if the library is not available.
    Product(Product),
    /// A copy within the device. The ranges must not overlap.
    Copy {
        /// Address of the source.
        from: Address,
        /// Address of the destination.
        to: Address,
        /// Number of bytes.
        bytes: usize,
    },
    /// Sets bytes to 0.
    Zero {
        /// Address of the first byte.
        at: Address,
        /// Number of bytes.
        bytes: usize,
    },
}

/// A device that runs kernels. Any thread may submit work.
pub trait Driver: Send + Sync + std::fmt::Debug {
    /// Returns the limits of a block on this device.
    fn limits(&self) -> Limits;

    /// Returns the device's free and allocated memory.
    fn memory(&self) -> Result<DeviceMemory, Error>;

    /// Allocates `bytes` bytes with unspecified contents.
    ///
    /// Returns [`Error::OutOfMemory`] if the device has too little free memory.
    fn allocate(&self, bytes: usize) -> Result<Address, Error>;

    /// Frees memory. Work that is already submitted may still use it.
    fn free(&self, at: Address, bytes: usize);

    /// Copies `from` to the device, in order with launches.
    fn write(&self, to: Address, from: &[u8]) -> Result<(), Error>;

    /// Waits for all submitted work, then copies from the device to `to`.
    fn read(&self, from: Address, to: &mut [u8]) -> Result<(), Error>;

    /// Submits a piece of work to [`Queue::Compute`].
    ///
    /// Returns an error if [`Product::check`] rejects the operands of a product, a kernel is unknown, or the device can't run the shape of its launch.
    /// The emulator also checks the arguments' number and sizes.
    fn submit(&self, command: &Command) -> Result<(), Error>;

    /// Records work of [`Queue::Compute`] as a graph, without running it, and returns the graph's id. Other threads must not submit work meanwhile.
    fn capture(&self, commands: &[Command]) -> Result<u64, Error>;

    /// Submits the work of a graph to [`Queue::Compute`] in one call.
    ///
    /// The emulator returns an error if memory that the graph uses has been freed.
    fn replay(&self, graph: u64) -> Result<(), Error>;

    /// Frees a graph. Work that it has already submitted still runs.
    fn free_graph(&self, graph: u64);

    /// Allocates page-locked host memory with unspecified contents.
    fn allocate_host(&self, bytes: usize) -> Result<Address, Error>;

    /// Frees page-locked host memory. No submitted work may still use it.
    fn free_host(&self, at: Address, bytes: usize);

    /// Copies `bytes` bytes between the device and page-locked host memory, in the given queue.
    fn transfer(&self, queue: Queue, from: Address, to: Address, bytes: usize) -> Result<(), Error>;

    /// Records an event after the work submitted to a queue so far. It replaces an earlier record of the same event.
    fn record(&self, queue: Queue, event: usize) -> Result<(), Error>;

    /// Makes later work of a queue wait for an event. Does nothing if the event was never recorded.
    fn wait(&self, queue: Queue, event: usize) -> Result<(), Error>;

    /// Blocks the host until an event has happened. Returns at once if the event was never recorded.
    fn wait_here(&self, event: usize) -> Result<(), Error>;

    /// Blocks the host until all work of all queues is done.
    fn synchronize(&self) -> Result<(), Error>;
}
