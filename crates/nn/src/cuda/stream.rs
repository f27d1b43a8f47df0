//! Ordered work on one device, and its first failure.
//!
//! Operations return no status, because a device reports failures late. The first failure is stored, later work is dropped, and the next call that
//! waits for results returns the failure.
//!
//! The work of a decoding step is recorded before it is submitted ([`super::graphs`]). During recording the host can't read, write or allocate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fgrpo_cuda::kernels::Kernel;
use fgrpo_cuda::{Command, DeviceMemory, Driver, Graph, Memory, Message, Pinned, Queue, Shape, Values};

use crate::error::Error;

/// Purpose of an allocation, which determines the advice if memory runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Parameters, gradient and moments.
    Model,
    Pass,
    /// Keys, values and recurrent states.
    Cache,
}

impl Purpose {
    fn remedy(self) -> &'static str {
        match self {
            Purpose::Model => {
                "the model with its optimizer is too large for this GPU: set compute.optimizer_offload = true or compute.moments = \"bf16\", train LoRA adapters ([lora]), set compute.precision = \"bf16\", or use a larger GPU"
            }
            Purpose::Pass => "lower update.micro_batch_tokens, or set compute.checkpoint_activations = true",
            Purpose::Cache => "lower rollout.max_cached_tokens",
        }
    }
}

#[derive(Debug, Clone)]
struct Failure {
    source: fgrpo_cuda::Error,
    remedy: &'static str,
}

#[derive(Debug)]
pub(super) struct Stream {
    driver: Arc<dyn Driver>,
    failure: Mutex<Option<Failure>>,
    /// Work of the step that is being recorded, or `None` if nothing is.
    recording: Mutex<Option<Sequence>>,
}

impl Stream {
    pub(super) fn new(driver: Arc<dyn Driver>) -> Stream {
        Stream { driver, failure: Mutex::default(), recording: Mutex::default() }
    }

    fn recording(&self) -> MutexGuard<'_, Option<Sequence>> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts recording: launches, products, copies and fills are stored in `sequence` instead of being submitted.
    pub(super) fn begin_recording(&self, sequence: Sequence) {
        *self.recording() = Some(sequence);
    }

    /// Ends recording and returns the recorded work, or `None` if nothing was being recorded.
    pub(super) fn end_recording(&self) -> Option<Sequence> {
        self.recording().take()
    }

    /// Ends recording and submits the recorded work, because memory that it uses is about to be freed.
    pub(super) fn submit_recorded_work(&self) {
        if let Some(sequence) = self.end_recording() {
            self.submit_all(sequence.commands());
        }
    }

    /// Records work, or submits it if nothing is being recorded.
    pub(super) fn submit_or_record(&self, command: Command) {
        let mut recording = self.recording();
        if let Some(sequence) = recording.as_mut() {
            return sequence.record(command);
        }
        drop(recording);
        self.run(|| self.driver.submit(&command));
    }

    pub(super) fn submit_all(&self, commands: &[Command]) {
        commands.iter().for_each(|command| self.run(|| self.driver.submit(command)));
    }

    /// Captures a graph. Returns `None` if the driver refuses or the device has failed.
    pub(super) fn capture(&self, commands: &[Command]) -> Option<Graph> {
        if self.failure().is_some() {
            return None;
        }
        let refused = |why| {
            tracing::warn!(
                "the driver refuses a CUDA graph; decoding continues without graphs, more slowly: {why}"
            )
        };
        Graph::capture(&self.driver, commands).map_err(refused).ok()
    }

    pub(super) fn replay(&self, graph: &Graph) {
        self.run(|| graph.replay());
    }

    /// Returns the device's memory, or `None` if the device has failed.
    pub(super) fn memory(&self) -> Option<DeviceMemory> {
        self.driver.memory().ok()
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

    /// Runs `work`, which submits something to the device, unless something has failed.
    ///
    /// # Panics
    /// If work is being recorded, because this work would run before it.
    pub(super) fn run(&self, work: impl FnOnce() -> Result<(), fgrpo_cuda::Error>) {
        assert!(self.recording().is_none(), "only launches, products, copies and zeros can be recorded");
        if self.failure().is_none() {
            self.keep(work(), LOST);
        }
    }

    /// Returns the first failure so far, without waiting.
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.failure() {
            Some(Failure { source, remedy }) => Err(Error::Device { source, remedy }),
            None => Ok(()),
        }
    }

    /// Launches a kernel, or records the launch for a graph, unless the grid is empty, which no device accepts.
    pub(super) fn launch(&self, shape: Shape, kernel: impl Kernel) {
        if !shape.grid.contains(&0) {
            self.submit_or_record(Command::Launch(kernel.launch(shape)));
        }
    }

    /// Allocates with `make`. Returns `None` if something has failed before, or if there is too little memory.
    fn make<T>(
        &self,
        remedy: &'static str,
        make: impl FnOnce(&Arc<dyn Driver>) -> Result<T, fgrpo_cuda::Error>,
    ) -> Option<T> {
        if self.failure().is_some() {
            return None;
        }
        make(&self.driver).map_err(|source| self.keep(Err(source), remedy)).ok()
    }

    /// Allocates `len` values, or returns `None` if there is too little memory.
    ///
    /// # Panics
    /// If work is being recorded.
    pub(super) fn allocate<T: Copy>(&self, len: usize, purpose: Purpose) -> Option<Memory<T>> {
        assert!(self.recording().is_none(), "an allocation while work is being recorded");
        self.make(purpose.remedy(), |driver| Memory::new(driver, len))
    }

    /// Allocates `len` zeros in page-locked host memory, or returns `None` if there is too little memory.
    pub(super) fn allocate_host<T: Copy + Default>(&self, len: usize) -> Option<Pinned<T>> {
        let remedy = "free memory on this machine, or set compute.optimizer_offload = false or compute.moments = \"bf16\"";
        self.make(remedy, |driver| Pinned::new(driver, len))
    }

    /// Allocates a buffer for messages of at least `len` words, or returns `None` if there is too little memory.
    pub(super) fn allocate_message(&self, len: usize) -> Option<Message<u32>> {
        self.make("free memory on this machine", |driver| Message::new(driver, len.next_power_of_two()))
    }

    /// Records an event after a queue's work so far.
    pub(super) fn record_event(&self, queue: Queue, event: usize) {
        self.run(|| self.driver.record(queue, event));
    }

    /// Makes further work of a queue wait for an event.
    pub(super) fn wait(&self, queue: Queue, event: usize) {
        self.run(|| self.driver.wait(queue, event));
    }

    pub(super) fn write<T: Copy>(&self, memory: &Memory<T>, first: usize, values: &[T]) {
        if !values.is_empty() {
            self.run(|| memory.write(first, values));
        }
    }

    /// Reads values, waiting for the device. `to` is unchanged if something has failed.
    pub(super) fn read<T: Copy>(&self, memory: &Memory<T>, first: usize, to: &mut [T]) {
        if !to.is_empty() {
            self.run(|| memory.read_into(first, to));
        }
    }

    /// Copies `len` values to memory of the same number type.
    pub(super) fn copy(&self, from: Values, to: Values, len: usize) {
        assert_eq!(from.bytes(), to.bytes(), "a copy between number types");
        if len > 0 {
            self.submit_or_record(Command::Copy {
                from: from.address(),
                to: to.address(),
                bytes: len * from.bytes(),
            });
        }
    }

    pub(super) fn zero(&self, at: Values, len: usize) {
        if len > 0 {
            self.submit_or_record(Command::Zero { at: at.address(), bytes: len * at.bytes() });
        }
    }
}

/// Advice after a failure of the device itself.
const LOST: &str = "resume from the last checkpoint, on this device or another";

/// Work of a decoding step. While it is recorded, it is compared with the work of the earlier step.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    commands: Vec<Command>,
    /// Number of commands recorded since [`Sequence::begin`].
    recorded: usize,
    /// Whether a recorded command differs from the earlier step's command at the same index.
    changed: bool,
    /// Graph of exactly these commands, if one was captured.
    pub(super) graph: Option<Graph>,
}

impl Sequence {
    pub(super) fn begin(&mut self) {
        (self.recorded, self.changed) = (0, false);
    }

    /// Records a command.
    pub(super) fn record(&mut self, command: Command) {
        if self.changed || self.commands.get(self.recorded) != Some(&command) {
            self.change();
            self.commands.push(command);
        }
        self.recorded += 1;
    }

    /// Marks the work from the next command on as different from the earlier step's, and drops the graph.
    fn change(&mut self) {
        self.changed = true;
        self.graph = None;
        self.commands.truncate(self.recorded);
    }

    /// Returns the commands recorded since [`Sequence::begin`].
    pub(super) fn commands(&self) -> &[Command] {
        &self.commands[..self.recorded]
    }

    /// Returns whether all commands equal the commands of the earlier step.
    pub(super) fn came_before(&mut self) -> bool {
        if self.recorded < self.commands.len() {
            self.change();
        }
        !self.changed
    }
}

#[cfg(test)]
mod tests {
    use fgrpo_cuda::{Address, Argument, Launch, Shape};

    use super::*;

    fn launch(kernel: &'static str, blocks: usize, address: u64, number: f32) -> Command {
        let arguments = vec![Argument::Address(Address(address)), Argument::F32(number)];
        Command::Launch(Launch { kernel, shape: Shape::of(blocks, 32, 0), arguments })
    }

    /// Returns whether a step with these commands repeats the previous one.
    fn record(sequence: &mut Sequence, commands: &[Command]) -> bool {
        sequence.begin();
        commands.iter().for_each(|command| sequence.record(command.clone()));
        assert_eq!(sequence.commands(), commands);
        sequence.came_before()
    }

    #[test]
    fn work_is_the_same_only_if_all_kernels_grids_arguments_and_the_length_are() {
        let step = [launch("a", 4, 64, 1.0), launch("b", 8, 128, 0.5), launch("a", 4, 64, 1.0)];
        let mut others = vec![step[..2].to_vec(), [&step[..], &step[..1]].concat(), Vec::new()];
        for other in [
            launch("c", 8, 128, 0.5),
            launch("b", 9, 128, 0.5),
            launch("b", 8, 132, 0.5),
            launch("b", 8, 128, 0.25),
            Command::Zero { at: Address(128), bytes: 8 },
        ] {
            others.push(vec![step[0].clone(), other, step[2].clone()]);
        }
        let mut sequence = Sequence::default();
        assert!(!record(&mut sequence, &step), "the first time");
        for other in others {
            assert!(record(&mut sequence, &step), "again");
            assert!(!record(&mut sequence, &other), "{other:?}");
            assert!(record(&mut sequence, &other), "{other:?} again");
            assert!(!record(&mut sequence, &step), "after {other:?}");
        }
    }
}
