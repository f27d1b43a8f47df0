//! Ordered work on one device, and its first failure.
//!
//! Operations return no status, because a device reports failures late, and results are meaningless after a failed allocation. The first failure is
//! stored, later work is dropped, and the next call that waits for results returns the failure.

use std::sync::{Arc, Mutex, PoisonError};

use fgrpo_cuda::{Address, Argument, Driver, Memory, Pinned, Product, Queue, Shape};

use crate::error::Error;

/// The purpose of memory, which determines the advice if there is too little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Parameters, gradient, moments.
    Model,
    /// Buffers of a pass.
    Pass,
    /// Keys and values.
    Cache,
}

impl Purpose {
    fn remedy(self) -> &'static str {
        match self {
            Purpose::Model => {
                "the model with its optimizer is too large for this GPU: set compute.optimizer_offload = true, train LoRA adapters ([lora]), set compute.precision = \"bf16\", or use a larger GPU"
            }
            Purpose::Pass => "lower update.micro_batch_tokens, or set compute.checkpoint_activations = true",
            Purpose::Cache => "lower rollout.max_cached_tokens",
        }
    }
}

/// The first failure, and the advice.
#[derive(Debug, Clone)]
struct Failure {
    source: fgrpo_cuda::Error,
    remedy: &'static str,
}

/// The device.
#[derive(Debug)]
pub(super) struct Stream {
    driver: Arc<dyn Driver>,
    /// Its number, if the engine is on several.
    gpu: Option<usize>,
    failure: Mutex<Option<Failure>>,
}

impl Stream {
    pub(super) fn new(driver: Arc<dyn Driver>, gpu: Option<usize>) -> Stream {
        Stream { driver, gpu, failure: Mutex::default() }
    }

    /// Free memory in bytes.
    pub(super) fn free_bytes(&self) -> usize {
        self.driver.memory().map_or(0, |(free, _)| free)
    }

    fn failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, result: Result<(), fgrpo_cuda::Error>, remedy: &'static str) {
        if let Err(source) = result {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert(Failure { source, remedy });
        }
    }

    /// Submits work, unless something has failed.
    pub(super) fn ask(&self, work: impl FnOnce() -> Result<(), fgrpo_cuda::Error>) {
        if self.failure().is_none() {
            self.keep(work(), LOST);
        }
    }

    /// The first failure so far, without waiting.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.failure() {
            Some(Failure { source, remedy }) => Err(Error::Device { gpu: self.gpu, source, remedy }),
            None => Ok(()),
        }
    }

    pub(super) fn launch(&self, kernel: &'static str, shape: Shape, arguments: &[Argument]) {
        // Nothing to do is no launch.
        if !shape.grid.contains(&0) {
            self.ask(|| self.driver.launch(kernel, shape, arguments));
        }
    }

    pub(super) fn product(&self, product: &Product) {
        self.ask(|| self.driver.product(product));
    }

    /// Allocates `len` numbers; `None` if there is no memory.
    pub(super) fn allocate<T: Copy>(&self, len: usize, purpose: Purpose) -> Option<Memory<T>> {
        if self.failure().is_some() {
            return None;
        }
        match Memory::new(&self.driver, len) {
            Ok(memory) => Some(memory),
            Err(source) => {
                self.keep(Err(source), purpose.remedy());
                None
            }
        }
    }

    /// Allocates page-locked memory of the host for `len` zeros; `None` if there is none.
    pub(super) fn allocate_host(&self, len: usize) -> Option<Pinned<f32>> {
        if self.failure().is_some() {
            return None;
        }
        Pinned::new(&self.driver, len)
            .map_err(|source| {
                self.keep(
                    Err(source),
                    "free memory of this machine, or set compute.optimizer_offload = false",
                )
            })
            .ok()
    }

    /// Marks the work of a queue so far.
    pub(super) fn record(&self, queue: Queue, event: usize) {
        self.ask(|| self.driver.record(queue, event));
    }

    /// Makes further work of a queue wait for what is marked.
    pub(super) fn wait(&self, queue: Queue, event: usize) {
        self.ask(|| self.driver.wait(queue, event));
    }

    /// Makes further work wait for what another GPU's stream has marked.
    pub(super) fn wait_for(&self, gpu: usize, event: usize) {
        self.ask(|| self.driver.wait_for(Queue::Compute, gpu, event));
    }

    /// Copies from another GPU's memory.
    pub(super) fn copy_from(&self, gpu: usize, from: Address, to: Address, bytes: usize) {
        if bytes > 0 {
            self.ask(|| self.driver.copy_from(gpu, from, to, bytes));
        }
    }

    /// Waits for all work.
    pub(super) fn synchronize(&self) {
        self.ask(|| self.driver.synchronize());
    }

    pub(super) fn write<T: Copy>(&self, memory: &Memory<T>, first: usize, values: &[T]) {
        if !values.is_empty() {
            self.ask(|| memory.write(first, values));
        }
    }

    /// Waits. `to` is unchanged if something has failed.
    pub(super) fn read<T: Copy>(&self, memory: &Memory<T>, first: usize, to: &mut [T]) {
        if !to.is_empty() {
            self.ask(|| memory.read_into(first, to));
        }
    }

    pub(super) fn copy(&self, from: Address, to: Address, bytes: usize) {
        if bytes > 0 {
            self.ask(|| self.driver.copy(from, to, bytes));
        }
    }

    pub(super) fn zero(&self, at: Address, bytes: usize) {
        if bytes > 0 {
            self.ask(|| self.driver.zero(at, bytes));
        }
    }
}

/// Advice for a failure of the device itself.
const LOST: &str = "go on from the last checkpoint with --resume, on this device or another";
