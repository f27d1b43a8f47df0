//! The fake driver (`emulator/fake_driver.cpp`). A process loads it in place of NVIDIA's driver and cuBLASLt, so that [`Gpu`](crate::Gpu) runs without
//! a GPU.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_long};
use std::path::Path;
use std::process::Command;

/// The state that tests read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Number of objects that were created and not freed, by name.
    pub live: BTreeMap<String, u64>,
    /// Number of calls since the process began, by name.
    pub calls: BTreeMap<String, u64>,
    /// Calls that the driver's documentation forbids.
    pub complaints: Vec<String>,
}

/// The folder of the driver; cuBLASLt lies in its folder `cublaslt`.
pub fn folder() -> &'static Path {
    Path::new(env!("FGRPO_FAKE_DRIVER"))
}

/// Runs a program on the fake driver, with cuBLASLt or without.
pub fn run(command: &mut Command, with_cublaslt: bool) -> &mut Command {
    let mut path = folder().display().to_string();
    if with_cublaslt {
        path = format!("{path}:{path}/cublaslt");
    }
    command.env("LD_LIBRARY_PATH", path).env("PATH", "/usr/bin:/bin").env_remove("VIRTUAL_ENV")
}

/// Runs the test of this name in a process of its own on the fake driver, with these environment variables; there it returns true, here false, once the
/// test has passed.
///
/// # Panics
/// With what the process has printed, if it fails.
pub fn is_here(test: &str, with_cublaslt: bool, variables: &[(&str, &str)]) -> bool {
    if is_loaded() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture"]);
    let output =
        run(&mut command, with_cublaslt).envs(variables.iter().copied()).output().expect("a process");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
    false
}

/// Whether this process runs on the fake driver.
fn is_loaded() -> bool {
    std::env::var("LD_LIBRARY_PATH")
        .is_ok_and(|path| Path::new(path.split(':').next().unwrap_or("")) == folder())
}

/// Plants an error in the call of this name that comes after `number` others of it; the call "kernel" is a kernel's own failure. Clears what earlier
/// ones have broken. `None` plants nothing.
///
/// # Panics
/// If this process doesn't run on the fake driver.
pub fn plant(fault: Option<(&str, u64, i32)>) {
    let (call, number, code) = fault.unwrap_or(("", 0, 0));
    let call = CString::new(call).expect("a name");
    // SAFETY: the function's type is that of its source; the name lives during the call.
    unsafe {
        let plant = symbol::<unsafe extern "C" fn(*const c_char, c_long, c_int)>(b"fgrpo_fake_plant\0");
        plant(call.as_ptr(), number as c_long, code);
    }
}

/// The current state.
///
/// # Panics
/// If this process doesn't run on the fake driver.
pub fn report() -> Report {
    // SAFETY: the function's type is that of its source; its text lives until the next call.
    let text = unsafe {
        CStr::from_ptr(symbol::<unsafe extern "C" fn() -> *const c_char>(b"fgrpo_fake_report\0")())
    };
    let mut report = Report::default();
    for line in text.to_string_lossy().lines() {
        let mut parts = line.splitn(3, '\t');
        let [kind, count, name] = [(); 3].map(|()| parts.next().expect("three parts"));
        let count = count.parse().expect("a count");
        match kind {
            "live" => drop(report.live.insert(name.to_owned(), count)),
            "call" => drop(report.calls.insert(name.to_owned(), count)),
            _ => report.complaints.push(name.to_owned()),
        }
    }
    report
}

/// # Safety
/// The symbol must have this type.
unsafe fn symbol<T: Copy>(name: &[u8]) -> T {
    // SAFETY: as the caller promises.
    let found = unsafe { cudarc::driver::sys::culib().get::<T>(name) };
    *found.expect("a function of the fake driver: run this test with its folder in LD_LIBRARY_PATH")
}
