//! The interface of a driver: memory, copies, launches, queues. Only reads, [`Driver::wait_here`] and
//! [`Driver::synchronize`] wait for work.

use crate::launch::{Address, Argument, Error, Limits, Shape};
use crate::node::Node;
use crate::product::Product;

/// A queue of a device. Work of one queue runs in submission order. Different queues run at the same time; [`Driver::wait`] makes one wait for
/// another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Launches, and all calls that name no queue.
    Compute,
    /// Copies from the host.
    Upload,
    /// Copies to the host.
    Download,
}

impl Queue {
    /// All queues, by their numbers.
    pub const ALL: [Queue; 3] = [Queue::Compute, Queue::Upload, Queue::Download];
}

/// A device's memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Free bytes.
    pub free: usize,
    /// Total bytes.
    pub total: usize,
    /// Bytes allocated through this driver and not freed.
    pub allocated: usize,
}

/// A device that runs kernels. Any thread may submit work; the work of [`Queue::Compute`] runs in submission order.
pub trait Driver: Send + Sync + std::fmt::Debug {
    /// The limits of a block on this device.
    fn limits(&self) -> Limits;

    /// The device's memory.
    fn memory(&self) -> Result<DeviceMemory, Error>;

    /// Allocates `bytes` bytes with unspecified content.
    /// Fails with [`Error::OutOfMemory`], with the free memory.
    fn allocate(&self, bytes: usize) -> Result<Address, Error>;

    /// Frees memory. Work that was submitted before may still use it.
    fn free(&self, at: Address, bytes: usize);

    /// Copies to the device, in order with launches.
    fn write(&self, to: Address, from: &[u8]) -> Result<(), Error>;

    /// Waits for all work and copies from the device.
    fn read(&self, from: Address, to: &mut [u8]) -> Result<(), Error>;

    /// Copies `bytes` bytes within the device; the two ranges must not overlap.
    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), Error>;

    /// Sets `bytes` bytes to 0.
    fn zero(&self, at: Address, bytes: usize) -> Result<(), Error>;

    /// A matrix product, by the device's library or by our kernel.
    /// Fails for operands that the library would refuse, and as reported by the driver.
    fn product(&self, product: &Product) -> Result<(), Error>;

    /// Launches a kernel.
    /// Fails for an unknown kernel, wrong arguments, or a shape that no device can run.
    fn launch(&self, kernel: &'static str, shape: Shape, arguments: &[Argument]) -> Result<(), Error>;

    /// Makes a graph of work of [`Queue::Compute`] without running it, and returns its number. No other thread may submit work meanwhile.
    fn capture(&self, nodes: &[Node]) -> Result<u64, Error>;

    /// Submits the work of a graph to [`Queue::Compute`] in one call.
    /// The emulator refuses a graph whose memory was freed.
    fn replay(&self, graph: u64) -> Result<(), Error>;

    /// Frees a graph. Work that it has submitted still runs.
    fn free_graph(&self, graph: u64);

    /// Allocates page-locked memory of the host with unspecified content.
    fn allocate_host(&self, bytes: usize) -> Result<Address, Error>;

    /// Frees memory of the host, which no submitted work may still use.
    fn free_host(&self, at: Address, bytes: usize);

    /// Copies `bytes` bytes in a queue, between the device and page-locked memory of the host.
    fn transfer(&self, queue: Queue, from: Address, to: Address, bytes: usize) -> Result<(), Error>;

    /// Marks the work submitted to a queue so far with a number; an earlier mark with this number is lost.
    fn record(&self, queue: Queue, event: usize) -> Result<(), Error>;

    /// Makes further work of a queue wait for the work marked with a number, if there is any.
    fn wait(&self, queue: Queue, event: usize) -> Result<(), Error>;

    /// Waits until the work marked with a number is done, if there is any.
    fn wait_here(&self, event: usize) -> Result<(), Error>;

    /// Waits for all work of all queues.
    fn synchronize(&self) -> Result<(), Error>;
}
