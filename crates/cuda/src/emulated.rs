//! A device that runs the kernels on the CPU, and finds mistakes that a GPU would hide.
//!
//! Work waits in its queue until the host synchronizes, so a host that reads too early reads poison. A pseudo-random choice decides which queue runs
//! first, so that a missing wait between queues shows. New memory is poisoned, the pages before and after each allocation are inaccessible, and a
//! kernel's pointers must be in the device's memory.

use crate::driver::{Command, DeviceMemory, Driver, Queue};
use crate::launch::{Address, Argument, Error, Launch, Limits};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[repr(C)]
struct Entry {
    name: *const c_char,
    call: Option<unsafe extern "C" fn(*mut *mut c_void)>,
    sizes: *const usize,
    count: usize,
}

// SAFETY: entries are constants.
unsafe impl Sync for Entry {}

unsafe extern "C" {
    static fgrpo_emulator_kernels: [Entry; 1];
    fn fgrpo_emulator_launch(
        name: *const c_char,
        call: unsafe extern "C" fn(*mut *mut c_void),
        arguments: *mut *mut c_void,
        grid: *const u32,
        threads: *const u32,
        shared: usize,
        order: u32,
    ) -> *const c_char;
    fn fgrpo_emulator_allocate(bytes: usize) -> *mut c_void;
    fn fgrpo_emulator_free(at: *mut c_void, bytes: usize);
}

/// One piece of submitted work.
enum Work {
    Write {
        to: Address,
        bytes: Vec<u8>,
    },
    /// A command that `Emulated::checked` returned, which is never a product.
    Command(Command),
    Free {
        at: Address,
        bytes: usize,
    },
    /// Waits until the first `until` pieces of work of the queue `line` are done.
    Wait {
        line: usize,
        until: u64,
    },
}

/// The emulated device.
pub struct Emulated {
    work: Mutex<Pending>,
    /// Order in which the threads of a block run: 0 ascending, 1 descending, other values are seeds of a shuffle.
    order: u32,
    /// Bytes of memory of the device.
    total: usize,
    used: AtomicUsize,
    /// Sizes of allocations in bytes, by address.
    allocations: Mutex<BTreeMap<u64, usize>>,
}

#[derive(Default)]
struct Line {
    /// Work that has not run yet.
    work: VecDeque<Work>,
    /// Number of pieces of work submitted so far.
    submitted: u64,
    /// Number of pieces of work done so far.
    done: u64,
}

/// The state of the device that changes, behind one lock.
#[derive(Default)]
struct Pending {
    /// Queues with their work, indexed by `Queue`.
    lines: [Line; Queue::ALL.len()],
    /// Recorded events: the queue, and the number of pieces submitted to it at the time.
    events: HashMap<usize, (usize, u64)>,
    /// Number of times that the host has waited.
    turns: u64,
    /// Number of kernels run so far.
    launched: u64,
    /// The first failure. Later work doesn't run.
    failure: Option<Error>,
    /// Number of launches after which all work fails.
    lost_after: Option<u64>,
    /// Commands of the graphs, by id.
    graphs: HashMap<u64, Vec<Command>>,
    captured: u64,
}

impl Pending {
    /// Returns a pseudo-random number that decides which queue runs first.
    fn turn(&mut self, order: u32) -> u64 {
        self.turns += 1;
        self.turns.wrapping_add(u64::from(order)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
    }

    fn submit(&mut self, queue: Queue, work: Work) {
        let line = &mut self.lines[queue as usize];
        line.submitted += 1;
        line.work.push_back(work);
    }
}

/// Returns the addresses that a graph's command uses.
fn addresses(command: &Command) -> Vec<Address> {
    match command {
        Command::Launch(Launch { arguments, .. }) => {
            let address = |argument: &Argument| match argument {
                Argument::Address(at) => Some(*at),
                _ => None,
            };
            arguments.iter().filter_map(address).collect()
        }
        Command::Copy { from, to, .. } => vec![*from, *to],
        Command::Zero { at, .. } => vec![*at],
        Command::Product(_) => unreachable!("`checked` turns products into launches"),
    }
}

impl std::fmt::Debug for Emulated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Emulated").field("order", &self.order).field("launched", &self.launched()).finish()
    }
}

impl Emulated {
    /// Creates a device with 4 GiB of memory. `order` is the order in which the threads of a block run: 0 ascending, 1 descending, other values are
    /// seeds of a shuffle.
    pub fn new(order: u32) -> Self {
        Self::with_memory(order, 4 << 30)
    }

    /// Creates a device with `total` bytes of memory.
    pub fn with_memory(order: u32, total: usize) -> Self {
        Self {
            work: Mutex::default(),
            order,
            total,
            used: AtomicUsize::new(0),
            allocations: Mutex::default(),
        }
    }

    /// Lets all work fail after this number of launches, as if the GPU was lost. `None` changes nothing.
    pub fn lost_after(self, launches: Option<u64>) -> Self {
        self.work().lost_after = launches;
        self
    }

    fn work(&self) -> MutexGuard<'_, Pending> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allocations(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether an address is null, or within or at the end of an allocation of this device.
    fn owns(&self, at: Address) -> bool {
        let allocations = self.allocations();
        let before = allocations.range(..=at.0).next_back();
        at.0 == 0 || before.is_some_and(|(first, bytes)| at.0 <= first + *bytes as u64)
    }

    /// Runs the work of a queue until `until` pieces are done, including work of other queues that it waits for.
    fn advance(&self, pending: &mut Pending, line: usize, until: u64) {
        while pending.lines[line].done < until {
            let work = pending.lines[line].work.pop_front().expect("`until` is at most the number submitted");
            match work {
                Work::Wait { line: other, until } => self.advance(pending, other, until),
                // SAFETY: the address and size of an allocation; work that uses it was submitted before and is done.
                Work::Free { at, bytes } => unsafe { fgrpo_emulator_free(at.0 as *mut c_void, bytes) },
                _ if pending.failure.is_some() => {}
                work => {
                    let launch = matches!(work, Work::Command(Command::Launch(_)));
                    let lost = launch && pending.lost_after.is_some_and(|limit| pending.launched >= limit);
                    pending.launched += u64::from(launch);
                    let injected = || Error::Failed {
                        call: "running a kernel".to_owned(),
                        why: "the GPU was lost (injected fault)".to_owned(),
                    };
                    let done = if lost { Err(injected()) } else { self.perform(work) };
                    pending.failure = done.err();
                }
            }
            pending.lines[line].done += 1;
        }
    }

    fn perform(&self, work: Work) -> Result<(), Error> {
        match work {
            Work::Write { to, bytes } => {
                // SAFETY: as in `read`.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.0 as *mut u8, bytes.len()) };
            }
            Work::Command(Command::Copy { from, to, bytes }) => {
                let disjoint = from.0 + bytes as u64 <= to.0 || to.0 + bytes as u64 <= from.0;
                assert!(disjoint, "a copy of {bytes} bytes from {from:?} to {to:?} overlaps");
                // SAFETY: both ranges are in the device's memory, and they are disjoint.
                unsafe { std::ptr::copy_nonoverlapping(from.0 as *const u8, to.0 as *mut u8, bytes) };
            }
            Work::Command(Command::Zero { at, bytes }) => {
                // SAFETY: the range is in the device's memory.
                unsafe { std::ptr::write_bytes(at.0 as *mut u8, 0, bytes) };
            }
            Work::Command(Command::Launch(launch)) => return self.run(&launch),
            Work::Command(Command::Product(_)) | Work::Free { .. } | Work::Wait { .. } => {
                unreachable!("products are launches, and `advance` handles the others")
            }
        }
        Ok(())
    }

    /// Returns the number of kernels run so far.
    pub fn launched(&self) -> u64 {
        self.work().launched
    }

    /// Returns the names of all kernels.
    pub fn kernels() -> Vec<&'static str> {
        entries().map(name_of).collect()
    }

    /// Checks a command's shape and arguments. A product becomes a launch of the product kernel.
    fn checked(&self, command: Command) -> Result<Command, Error> {
        let launch = match command {
            Command::Product(product) => {
                product.check()?;
                product.launch()
            }
            Command::Launch(launch) => launch,
            Command::Copy { .. } | Command::Zero { .. } => return Ok(command),
        };
        let Launch { kernel, shape, arguments } = &launch;
        shape.check(kernel, &self.limits())?;
        let wrong = |why: String| Error::Launch { kernel: (*kernel).to_owned(), why };
        let entry = entry(kernel).ok_or_else(|| wrong("no such kernel".to_owned()))?;
        // SAFETY: `sizes` has `count` elements.
        let sizes = unsafe { std::slice::from_raw_parts(entry.sizes, entry.count) };
        let passed: Vec<usize> = arguments.iter().map(|a| a.bytes().1).collect();
        if passed != sizes {
            return Err(wrong(format!("its arguments have {sizes:?} bytes, but {passed:?} were passed")));
        }
        for (index, argument) in arguments.iter().enumerate() {
            if matches!(argument, Argument::Address(at) if !self.owns(*at)) {
                return Err(wrong(format!("argument {index} is not in this device's memory")));
            }
        }
        Ok(Command::Launch(launch))
    }

    fn run(&self, Launch { kernel, shape, arguments }: &Launch) -> Result<(), Error> {
        let entry = entry(kernel).expect("the kernel was checked");
        let mut values: Vec<[u8; 8]> = arguments.iter().map(|a| a.bytes().0).collect();
        let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|v| v.as_mut_ptr().cast()).collect();
        let call = entry.call.expect("every entry of the table has a function");
        let threads = [shape.threads, 1, 1];
        // SAFETY: the number and sizes of the arguments match the kernel (checked before). The memory behind its pointers is between inaccessible
        // pages, so that an access out of bounds ends the process with a message.
        let failed = unsafe {
            fgrpo_emulator_launch(
                entry.name,
                call,
                pointers.as_mut_ptr(),
                shape.grid.as_ptr(),
                threads.as_ptr(),
                shape.shared as usize,
                self.order,
            )
        };
        if failed.is_null() {
            return Ok(());
        }
        // SAFETY: the emulator returns a C string that lives until the next launch of this thread.
        let why = unsafe { CStr::from_ptr(failed) }.to_string_lossy().into_owned();
        Err(Error::Failed { call: (*kernel).to_owned(), why })
    }
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    // SAFETY: the table is static and ends with an entry without a name.
    let first = unsafe { fgrpo_emulator_kernels.as_ptr() };
    (0..)
        .map(move |i| {
            // SAFETY: `take_while` stops at the terminating entry.
            unsafe { &*first.add(i) }
        })
        .take_while(|entry| !entry.name.is_null())
}

fn entry(kernel: &str) -> Option<&'static Entry> {
    entries().find(|entry| name_of(entry) == kernel)
}

fn name_of(entry: &Entry) -> &'static str {
    // SAFETY: names are C string literals.
    unsafe { CStr::from_ptr(entry.name) }.to_str().expect("kernels have ASCII names")
}

impl Driver for Emulated {
    fn limits(&self) -> Limits {
        // The smallest limits among supported GPUs: 99 KiB on sm_86 and sm_120.
        Limits { threads: 1024, shared: 99 << 10 }
    }

    fn memory(&self) -> Result<DeviceMemory, Error> {
        let allocated = self.used.load(Ordering::Relaxed);
        Ok(DeviceMemory { free: self.total - allocated, total: self.total, allocated })
    }

    fn allocate(&self, bytes: usize) -> Result<Address, Error> {
        let DeviceMemory { free, total, .. } = self.memory()?;
        if bytes > free {
            return Err(Error::OutOfMemory { bytes, free, total });
        }
        // SAFETY: has no requirements; returns new memory or null.
        let at = unsafe { fgrpo_emulator_allocate(bytes) };
        if at.is_null() {
            return Err(Error::OutOfMemory { bytes, free, total });
        }
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.allocations().insert(at as u64, bytes);
        Ok(Address(at as u64))
    }

    fn free(&self, at: Address, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.allocations().remove(&at.0);
        self.work().submit(Queue::Compute, Work::Free { at, bytes });
    }

    fn write(&self, to: Address, from: &[u8]) -> Result<(), Error> {
        self.work().submit(Queue::Compute, Work::Write { to, bytes: from.to_vec() });
        Ok(())
    }

    fn read(&self, from: Address, to: &mut [u8]) -> Result<(), Error> {
        self.synchronize()?;
        // SAFETY: the caller's memory holds that many bytes at this address.
        unsafe { std::ptr::copy_nonoverlapping(from.0 as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn submit(&self, command: &Command) -> Result<(), Error> {
        let command = self.checked(command.clone())?;
        self.work().submit(Queue::Compute, Work::Command(command));
        Ok(())
    }

    fn capture(&self, commands: &[Command]) -> Result<u64, Error> {
        let work = commands
            .iter()
            .map(|command| self.checked(command.clone()))
            .collect::<Result<Vec<Command>, Error>>()?;
        let mut pending = self.work();
        pending.captured += 1;
        let number = pending.captured;
        pending.graphs.insert(number, work);
        Ok(number)
    }

    fn replay(&self, graph: u64) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::Failed { call: "launching a graph".to_owned(), why });
        let mut pending = self.work();
        let Some(work) = pending.graphs.get(&graph).cloned() else {
            return refuse(format!("there is no graph {graph}"));
        };
        for (index, command) in work.iter().enumerate() {
            if let Some(at) = addresses(command).into_iter().find(|&at| !self.owns(at)) {
                return refuse(format!("command {index} uses memory at {:#x}, which was freed", at.0));
            }
        }
        work.into_iter().for_each(|command| pending.submit(Queue::Compute, Work::Command(command)));
        Ok(())
    }

    fn free_graph(&self, graph: u64) {
        self.work().graphs.remove(&graph);
    }

    fn allocate_host(&self, bytes: usize) -> Result<Address, Error> {
        // SAFETY: has no requirements; returns new memory or null.
        let at = unsafe { fgrpo_emulator_allocate(bytes) };
        if at.is_null() {
            return Err(Error::host_memory(bytes, "the emulator can't allocate more".to_owned()));
        }
        Ok(Address(at as u64))
    }

    fn free_host(&self, at: Address, bytes: usize) {
        // SAFETY: the address and size of an allocation, which the caller no longer uses.
        unsafe { fgrpo_emulator_free(at.0 as *mut c_void, bytes) };
    }

    fn transfer(&self, queue: Queue, from: Address, to: Address, bytes: usize) -> Result<(), Error> {
        self.work().submit(queue, Work::Command(Command::Copy { from, to, bytes }));
        Ok(())
    }

    fn record(&self, queue: Queue, event: usize) -> Result<(), Error> {
        let mut pending = self.work();
        let submitted = pending.lines[queue as usize].submitted;
        pending.events.insert(event, (queue as usize, submitted));
        Ok(())
    }

    fn wait(&self, queue: Queue, event: usize) -> Result<(), Error> {
        let mut pending = self.work();
        if let Some(&(line, until)) = pending.events.get(&event) {
            pending.submit(queue, Work::Wait { line, until });
        }
        Ok(())
    }

    fn wait_here(&self, event: usize) -> Result<(), Error> {
        let mut pending = self.work();
        let choice = pending.turn(self.order);
        let Some(&(line, until)) = pending.events.get(&event) else { return Ok(()) };
        self.advance(&mut pending, line, until);
        let failure = pending.failure.clone();
        // A real device may be far ahead of the event that the host waits for.
        drop(pending);
        if choice.is_multiple_of(2) { self.synchronize() } else { failure.map_or(Ok(()), Err) }
    }

    fn synchronize(&self) -> Result<(), Error> {
        let mut pending = self.work();
        // Over many calls, each queue is the first to run, before everything that it doesn't wait for.
        let lines = pending.lines.len();
        let first = pending.turn(self.order) as usize % lines;
        for line in (first..first + lines).map(|line| line % lines) {
            let until = pending.lines[line].submitted;
            self.advance(&mut pending, line, until);
        }
        // As on a GPU, the host sees a failure when it waits, and from then on at every call.
        pending.failure.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let _ = self.synchronize();
    }
}
