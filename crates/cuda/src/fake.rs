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

/// Returns the folder of the fake driver. The fake cuBLASLt is in its subfolder `cublaslt`.
pub fn folder() -> &'static Path {
    Path::new(env!("FGRPO_FAKE_DRIVER"))
}

/// Sets the environment of a command so that it runs on the fake driver, with or without cuBLASLt.
pub fn run(command: &mut Command, with_cublaslt: bool) -> &mut Command {
    let mut path = folder().display().to_string();
    if with_cublaslt {
        path = format!("{path}:{path}/cublaslt");
    }
    command.env("LD_LIBRARY_PATH", path).env("PATH", "/usr/bin:/bin").env_remove("VIRTUAL_ENV")
}

/// Runs the test of this name in a child process on the fake driver, with additional environment variables. Returns true in the child, and false in the
/// parent once the child's test has passed.
///
/// # Panics
/// If the test fails in the child, with what it printed.
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

/// Returns whether this process runs on the fake driver.
fn is_loaded() -> bool {
    std::env::var("LD_LIBRARY_PATH")
        .is_ok_and(|path| Path::new(path.split(':').next().unwrap_or("")) == folder())
}

/// Makes the driver return error `code` from call `number` (counted from 0) of the function `call`, given as `(call, number, code)`. The function
/// "kernel" means a kernel that fails while it runs. Earlier faults are cleared, also by `None`.
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

/// Returns the fake driver's current state.
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

/// Returns the symbol with a name from the process's libraries.
///
/// # Safety
/// The symbol must have this type.
unsafe fn symbol<T: Copy>(name: &[u8]) -> T {
    // SAFETY: the caller guarantees the type.
    let symbol = unsafe { cudarc::driver::sys::culib().get::<T>(name) };
    *symbol.expect("a function of the fake driver: run this test with its folder in LD_LIBRARY_PATH")
}
