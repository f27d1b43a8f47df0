//! An NVIDIA GPU through its driver, which is loaded at run time.

use crate::blas::{Blas, Library, file_at};
use crate::driver::{Command, DeviceMemory, Driver, Queue};
use crate::launch::{Address, Error, Launch, Limits};
use cudarc::driver::{result, sys};
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The kernels for compute capability 8.0 and higher as PTX; the driver compiles them for the GPU.
const PTX: &str = include_str!("../ptx/kernels.ptx");
/// The first driver API version that supports this PTX (`PTX_VERSION` in scripts/gpu/kernels).
const MIN_DRIVER: i32 = 12_000;
/// The lowest compute capability that this PTX runs on.
const MIN_CAPABILITY: (i32, i32) = (8, 0);
/// Size in bytes of the buffer for the log of the driver's compiler.
const LOG: usize = 16 << 10;
/// The environment variable that makes the host wait for every launch, so that an error names the kernel that failed.
const SYNC: &str = "FGRPO_CUDA_SYNC";

/// A GPU in this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Index of the GPU, as in `--device cuda:1`.
    pub ordinal: usize,
    /// Name that the driver reports.
    pub name: String,
    /// Total memory in bytes.
    pub memory: usize,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Reason why the GPU can't be used, or `None` if it can be used.
    pub unusable: Option<String>,
}

/// Lists the GPUs of this machine, including unusable ones.
///
/// Returns [`Error::Unavailable`] if no driver is installed, it is too old, or it doesn't start.
pub fn probe() -> Result<Vec<Found>, Error> {
    start()?;
    let count = result::device::get_count().during("counting devices")?;
    (0..count)
        .map(|ordinal| {
            let device = result::device::get(ordinal).during("opening a device")?;
            let capability = capability(device)?;
            // SAFETY: the device was just opened.
            let memory = unsafe { result::device::total_mem(device) }.during("asking for its memory")?;
            let name = result::device::get_name(device).during("asking for its name")?;
            let unusable = (capability < MIN_CAPABILITY).then(|| {
                format!(
                    "compute capability {}.{}, but at least {}.{} is required",
                    capability.0, capability.1, MIN_CAPABILITY.0, MIN_CAPABILITY.1
                )
            });
            Ok(Found { ordinal: ordinal as usize, name, memory, capability, unusable })
        })
        .collect()
}

/// Returns the GPU with this index.
///
/// Returns an error if [`probe`] does, or the GPU doesn't exist or can't be used.
pub fn find(ordinal: usize) -> Result<Found, Error> {
    let gpus = probe()?;
    let Some(gpu) = gpus.get(ordinal) else {
        return Err(Error::Unavailable(format!("no GPU with number {ordinal}, found {}", gpus.len())));
    };
    match &gpu.unusable {
        Some(why) => Err(Error::Unavailable(format!("GPU {ordinal} ({}): {why}", gpu.name))),
        None => Ok(gpu.clone()),
    }
}

/// Returns the driver's file and the CUDA version that it supports: 13000 for 13.0.
pub fn driver_library() -> Result<Library, Error> {
    start()?;
    let mut version = 0;
    // SAFETY: the library is present, and the call writes one number.
    let at = unsafe {
        let _ = sys::cuDriverGetVersion(&raw mut version);
        sys::culib().get::<unsafe extern "C" fn()>(b"cuInit\0").map_or(0, |function| *function as usize)
    };
    Ok(Library { path: file_at(at).unwrap_or_default(), version: version as usize })
}

fn start() -> Result<(), Error> {
    // SAFETY: looks for the library by its names and opens it.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::Unavailable(
            "no driver found (libcuda.so.1): there is no NVIDIA GPU here, or its driver is not installed"
                .to_owned(),
        ));
    }
    result::init().map_err(|e| Error::Unavailable(format!("the driver doesn't start: {}", words(e))))?;
    let mut version = 0;
    // SAFETY: writes one number.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .during("asking for the driver's version")?;
    if version < MIN_DRIVER {
        let text = |v: i32| format!("{}.{}", v / 1000, v % 1000 / 10);
        return Err(Error::Unavailable(format!(
            "the driver supports CUDA {}, but at least {} is required: update the NVIDIA driver",
            text(version),
            text(MIN_DRIVER)
        )));
    }
    Ok(())
}

fn capability(device: sys::CUdevice) -> Result<(i32, i32), Error> {
    use sys::CUdevice_attribute_enum as Attribute;
    let ask = |what| {
        // SAFETY: the device was opened.
        unsafe { result::device::get_attribute(device, what) }.during("asking for its capability")
    };
    Ok((
        ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}

/// Loads kernels into the current context. The error includes the log of the driver's compiler.
fn load(ptx: &CStr) -> Result<sys::CUmodule, Error> {
    use sys::CUjit_option_enum as Option;
    let mut log = vec![0u8; LOG];
    let mut options = [Option::CU_JIT_ERROR_LOG_BUFFER, Option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(LOG - 1)];
    let mut module = std::ptr::null_mut();
    // SAFETY: the log is longer than the size passed for it, and both arrays have two elements.
    let result = unsafe {
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        sys::cuModuleLoadDataEx(&raw mut module, ptx.as_ptr().cast(), 2, options, values)
    };
    result.result().map(|()| module).map_err(|e| {
        let log =
            String::from_utf8_lossy(log.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned();
        let why = if log.is_empty() { words(e) } else { format!("{}: {}", words(e), log.trim()) };
        Error::Failed { call: "loading the kernels".to_owned(), why }
    })
}

/// Allocates memory of the device whose context is current on this thread.
fn allocate(bytes: usize) -> Result<u64, Error> {
    // SAFETY: the context is current on this thread.
    match unsafe { result::malloc_sync(bytes.max(1)) } {
        Ok(at) => Ok(at),
        Err(e) if e.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            let (free, total) = result::mem_get_info().unwrap_or((0, 0));
            Err(Error::OutOfMemory { bytes, free, total })
        }
        Err(e) => Err(failed("allocating memory", e)),
    }
}

fn words(error: result::DriverError) -> String {
    match error.error_string() {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => format!("{error:?}"),
    }
}

/// Adds the purpose of a call to the driver's error.
trait During<T> {
    fn during(self, call: &str) -> Result<T, Error>;
}

impl<T> During<T> for Result<T, result::DriverError> {
    fn during(self, call: &str) -> Result<T, Error> {
        self.map_err(|error| failed(call, error))
    }
}

fn failed(call: &str, error: result::DriverError) -> Error {
    Error::Failed { call: call.to_owned(), why: words(error) }
}

/// One GPU, its context, and a stream for each queue.
pub struct Gpu {
    device: sys::CUdevice,
    context: sys::CUcontext,
    /// Stream of each queue, indexed by [`Queue`].
    streams: [sys::CUstream; 3],
    /// Events by id, created when they are first recorded.
    events: Mutex<HashMap<usize, sys::CUevent>>,
    module: sys::CUmodule,
    functions: Mutex<HashMap<&'static str, sys::CUfunction>>,
    /// Bytes allocated and not yet freed.
    allocated: AtomicUsize,
    /// cuBLASLt, if it is installed.
    blas: Option<Blas>,
    limits: Limits,
    /// Whether the host waits for every launch (`FGRPO_CUDA_SYNC=on`).
    sync: bool,
    /// Whether the compute stream is capturing a graph.
    capturing: AtomicBool,
    /// Milliseconds that loading the kernels took.
    load_ms: f64,
}

// SAFETY: the driver's handles may be used from any thread that has made the context current, which every call does; the maps are locked.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

thread_local! {
    /// The context that is current on this thread.
    static CURRENT: Cell<sys::CUcontext> = const { Cell::new(std::ptr::null_mut()) };
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu").field("device", &self.device).field("limits", &self.limits).finish()
    }
}

impl Gpu {
    /// Opens the GPU with this index. `ptx` replaces the built-in kernels.
    ///
    /// Returns an error if [`find`] does, the kernels can't be loaded, or a driver call fails.
    pub fn open(ordinal: usize, ptx: Option<&str>) -> Result<Self, Error> {
        let gpu = find(ordinal)?;
        let device = result::device::get(ordinal as i32).during("opening a device")?;
        let ptx = CString::new(ptx.unwrap_or(PTX))
            .map_err(|_| Error::Unavailable("the kernels hold a zero byte".to_owned()))?;
        let shared = sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        // SAFETY: the context is made current before streams and module are created in it, and each result is checked before the next call.
        unsafe {
            let shared =
                result::device::get_attribute(device, shared).during("asking for its shared memory")?;
            let context = result::primary_ctx::retain(device).during("making a context")?;
            // On an error below, dropping `gpu` releases what was created.
            let mut opened = Self {
                device,
                context,
                streams: [std::ptr::null_mut(); 3],
                events: Mutex::default(),
                module: std::ptr::null_mut(),
                functions: Mutex::default(),
                allocated: AtomicUsize::new(0),
                blas: None,
                limits: Limits { threads: 1024, shared: shared as u32 },
                sync: std::env::var(SYNC).is_ok_and(|set| set == "on"),
                capturing: AtomicBool::new(false),
                load_ms: 0.0,
            };
            opened.enter()?;
            for stream in &mut opened.streams {
                *stream = result::stream::create(result::stream::StreamKind::NonBlocking)
                    .during("making a stream")?;
            }
            let clock = Instant::now();
            opened.module = load(&ptx)?;
            opened.load_ms = clock.elapsed().as_secs_f64() * 1e3;
            opened.blas = Blas::open(gpu.capability, allocate)?;
            Ok(opened)
        }
    }

    /// Returns the milliseconds that the driver took to load the kernels.
    pub fn load_ms(&self) -> f64 {
        self.load_ms
    }

    /// Waits for the work just launched if `FGRPO_CUDA_SYNC` is on.
    fn launched(&self, what: &str) -> Result<(), Error> {
        if !self.sync || self.capturing.load(Ordering::Relaxed) {
            return Ok(());
        }
        // SAFETY: the stream is this GPU's.
        unsafe { result::stream::synchronize(self.compute()) }.during(what)
    }

    /// Makes the context current on this thread.
    fn enter(&self) -> Result<(), Error> {
        if CURRENT.get() != self.context {
            // SAFETY: the context is retained until `self` is dropped.
            unsafe { result::ctx::set_current(self.context) }.during("making the context current")?;
            CURRENT.set(self.context);
        }
        Ok(())
    }

    fn stream(&self, queue: Queue) -> sys::CUstream {
        self.streams[queue as usize]
    }

    fn compute(&self) -> sys::CUstream {
        self.stream(Queue::Compute)
    }

    fn function(&self, kernel: &'static str) -> Result<sys::CUfunction, Error> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&function) = functions.get(kernel) {
            return Ok(function);
        }
        let name = CString::new(kernel).expect("kernels have no zero byte in their names");
        // SAFETY: the module is loaded; the attribute is set before the first launch.
        let function = unsafe {
            let function = result::module::get_function(self.module, name)
                .map_err(|e| Error::Launch { kernel: kernel.to_owned(), why: words(e) })?;
            result::function::set_function_attribute(
                function,
                sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                self.limits.shared as i32,
            )
            .during("allowing shared memory")?;
            function
        };
        functions.insert(kernel, function);
        Ok(function)
    }

    fn run(&self, &Launch { kernel, shape, ref arguments }: &Launch) -> Result<(), Error> {
        shape.check(kernel, &self.limits)?;
        let function = self.function(kernel)?;
        let mut values: Vec<[u8; 8]> = arguments.iter().map(|a| a.bytes().0).collect();
        let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|v| v.as_mut_ptr().cast()).collect();
        let [x, y, z] = shape.grid;
        // SAFETY: each pointer points to 8 bytes of `values`, and the driver copies the arguments before the call returns. It reads as many arguments and
        // bytes as the kernel's signature has; in tests, the emulator compares the arguments of every launch with the signature in the source. The caller
        // passes addresses of memory that this driver allocated and that is not freed before the work is submitted. The function belongs to the loaded
        // module, and the shape was checked against the GPU's limits.
        unsafe {
            result::launch_kernel(
                function,
                (x, y, z),
                (shape.threads, 1, 1),
                shape.shared,
                self.compute(),
                &mut pointers,
            )
        }
        .during(kernel)?;
        self.launched(kernel)
    }
}

impl Driver for Gpu {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn memory(&self) -> Result<DeviceMemory, Error> {
        self.enter()?;
        let (free, total) = result::mem_get_info().during("asking for free memory")?;
        Ok(DeviceMemory { free, total, allocated: self.allocated.load(Ordering::Relaxed) })
    }

    fn allocate(&self, bytes: usize) -> Result<Address, Error> {
        self.enter()?;
        let at = allocate(bytes)?;
        self.allocated.fetch_add(bytes, Ordering::Relaxed);
        Ok(Address(at))
    }

    fn free(&self, at: Address, bytes: usize) {
        self.allocated.fetch_sub(bytes, Ordering::Relaxed);
        if self.enter().is_err() {
            return;
        }
        // SAFETY: the address is from `allocate`. cuMemFree waits for work that uses the memory.
        let _ = unsafe { result::free_sync(at.0) };
    }

    fn write(&self, to: Address, from: &[u8]) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's memory at `to` has that many bytes. The driver copies from pageable memory before the call returns.
        unsafe { result::memcpy_htod_async(to.0, from, self.compute()) }.during("copying to the device")
    }

    fn read(&self, from: Address, to: &mut [u8]) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: as in `write`. `to` is borrowed until the copy is done.
        unsafe { result::memcpy_dtoh_async(to, from.0, self.compute()) }.during("copying from the device")?;
        self.synchronize()
    }

    fn submit(&self, command: &Command) -> Result<(), Error> {
        self.enter()?;
        match command {
            Command::Copy { from, to, bytes } => {
                // SAFETY: the caller's ranges have that many bytes and don't overlap.
                unsafe { result::memcpy_dtod_async(to.0, from.0, *bytes, self.compute()) }
                    .during("copying within the device")
            }
            Command::Zero { at, bytes } => {
                // SAFETY: the caller's range has that many bytes.
                unsafe { result::memset_d8_async(at.0, 0, *bytes, self.compute()) }
                    .during("setting memory to 0")
            }
            Command::Product(product) => {
                product.check()?;
                let Some(blas) = &self.blas else { return self.run(&product.launch()) };
                blas.product(product, self.compute())?;
                self.launched("matrix product")
            }
            Command::Launch(launch) => self.run(launch),
        }
    }

    fn capture(&self, commands: &[Command]) -> Result<u64, Error> {
        self.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is this GPU's.
        unsafe { result::stream::begin_capture(self.compute(), mode) }.during("starting a capture")?;
        self.capturing.store(true, Ordering::Relaxed);
        let submitted = commands.iter().try_for_each(|command| self.submit(command));
        self.capturing.store(false, Ordering::Relaxed);
        // Also after an error, because the stream captures all work until this call.
        // SAFETY: the capture was begun above, on this thread.
        let graph = unsafe { result::stream::end_capture(self.compute()) };
        // SAFETY: the graph was created above. The instantiated graph doesn't refer to it.
        unsafe {
            // The first error is the cause.
            let executable = submitted.and_then(|()| {
                let graph = graph.during("ending a capture")?;
                result::graph::instantiate(graph, sys::CUgraphInstantiate_flags_enum(0))
                    .during("instantiating a graph")
            });
            if let Ok(graph) = graph {
                let _ = result::graph::destroy(graph);
            }
            executable.map(|graph| graph as u64)
        }
    }

    fn replay(&self, graph: u64) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the number is from `capture`, and the graph isn't freed.
        unsafe { result::graph::launch(graph as sys::CUgraphExec, self.compute()) }
            .during("launching a graph")
    }

    fn free_graph(&self, graph: u64) {
        if self.enter().is_ok() {
            // SAFETY: as in `replay`. The driver frees a running graph when it ends.
            let _ = unsafe { result::graph::exec_destroy(graph as sys::CUgraphExec) };
        }
    }

    fn allocate_host(&self, bytes: usize) -> Result<Address, Error> {
        self.enter()?;
        // SAFETY: the context is current on this thread.
        match unsafe { result::malloc_host(bytes.max(1), 0) } {
            Ok(at) => Ok(Address(at as u64)),
            Err(e) => Err(Error::host_memory(bytes, words(e))),
        }
    }

    fn free_host(&self, at: Address, _bytes: usize) {
        if self.enter().is_ok() {
            // SAFETY: the address is from `allocate_host`, and no work uses it any more.
            let _ = unsafe { result::free_host(at.0 as *mut c_void) };
        }
    }

    fn transfer(&self, queue: Queue, from: Address, to: Address, bytes: usize) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's ranges have that many bytes. Host and device share one address space.
        unsafe { sys::cuMemcpyAsync(to.0, from.0, bytes, self.stream(queue)) }
            .result()
            .during("copying between host and device")
    }

    fn record(&self, queue: Queue, event: usize) -> Result<(), Error> {
        self.enter()?;
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let event = match events.entry(event) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let kind = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
                *entry.insert(result::event::create(kind).during("making an event")?)
            }
        };
        // SAFETY: event and stream are this GPU's.
        unsafe { result::event::record(event, self.stream(queue)) }.during("marking a stream")
    }

    fn wait(&self, queue: Queue, event: usize) -> Result<(), Error> {
        self.enter()?;
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(&event) = events.get(&event) else { return Ok(()) };
        let how = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: event and stream are this GPU's.
        unsafe { result::stream::wait_event(self.stream(queue), event, how) }.during("making a stream wait")
    }

    fn wait_here(&self, event: usize) -> Result<(), Error> {
        self.enter()?;
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(event) = events.get(&event).copied() else { return Ok(()) };
        drop(events);
        // SAFETY: an event of this GPU, which lives as long as `self`.
        unsafe { result::event::synchronize(event) }.during("waiting for the device")
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.enter()?;
        for queue in Queue::ALL {
            // SAFETY: the stream is this GPU's.
            unsafe { result::stream::synchronize(self.stream(queue)) }.during("waiting for the device")?;
        }
        Ok(())
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.enter().is_err() {
            return;
        }
        // SAFETY: everything was created by `open`, and nothing uses it once the streams are synchronized.
        unsafe {
            let streams = || self.streams.into_iter().filter(|stream| !stream.is_null());
            for stream in streams() {
                let _ = result::stream::synchronize(stream);
            }
            self.blas = None;
            if !self.module.is_null() {
                let _ = result::module::unload(self.module);
            }
            let events = self.events.get_mut().unwrap_or_else(PoisonError::into_inner);
            for (_, event) in events.drain() {
                let _ = result::event::destroy(event);
            }
            for stream in streams() {
                let _ = result::stream::destroy(stream);
            }
            let _ = result::primary_ctx::release(self.device);
        }
        CURRENT.set(std::ptr::null_mut());
    }
}
