//! A GPU with poisoned fresh memory, like the emulator's, which reveals a kernel that doesn't write all its results.

use fgrpo_cuda::{Address, Command, DeviceMemory, Driver, Error, Gpu, Limits, Queue};

#[derive(Debug)]
pub(crate) struct Poisoned(pub(crate) Gpu);

impl Driver for Poisoned {
    fn allocate(&self, bytes: usize) -> Result<Address, Error> {
        let at = self.0.allocate(bytes)?;
        self.0.write(at, &vec![0xff; bytes])?;
        Ok(at)
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn memory(&self) -> Result<DeviceMemory, Error> {
        self.0.memory()
    }

    fn free(&self, at: Address, bytes: usize) {
        self.0.free(at, bytes);
    }

    fn write(&self, to: Address, from: &[u8]) -> Result<(), Error> {
        self.0.write(to, from)
    }

    fn read(&self, from: Address, to: &mut [u8]) -> Result<(), Error> {
        self.0.read(from, to)
    }

    fn submit(&self, command: &Command) -> Result<(), Error> {
        self.0.submit(command)
    }

    fn capture(&self, commands: &[Command]) -> Result<u64, Error> {
        self.0.capture(commands)
    }

    fn replay(&self, graph: u64) -> Result<(), Error> {
        self.0.replay(graph)
    }

    fn free_graph(&self, graph: u64) {
        self.0.free_graph(graph);
    }

    fn allocate_host(&self, bytes: usize) -> Result<Address, Error> {
        self.0.allocate_host(bytes)
    }

    fn free_host(&self, at: Address, bytes: usize) {
        self.0.free_host(at, bytes);
    }

    fn transfer(&self, queue: Queue, from: Address, to: Address, bytes: usize) -> Result<(), Error> {
        self.0.transfer(queue, from, to, bytes)
    }

    fn record(&self, queue: Queue, event: usize) -> Result<(), Error> {
        self.0.record(queue, event)
    }

    fn wait(&self, queue: Queue, event: usize) -> Result<(), Error> {
        self.0.wait(queue, event)
    }

    fn wait_here(&self, event: usize) -> Result<(), Error> {
        self.0.wait_here(event)
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.0.synchronize()
    }
}
