//! Reads the machine's properties through macOS's calls. This code is only type-checked: it hasn't run on a Mac.

use std::ffi::CStr;

/// Returns the number of bytes that this program may still allocate, from the kernel's percentage of available memory.
pub fn available() -> Option<u64> {
    let percent = number(c"kern.memorystatus_level")?.min(100);
    Some(number(c"hw.memsize")? / 100 * percent)
}

/// Returns the number of cores that compute equally fast: the performance cores. Work is divided into equal parts, so
/// slower cores would delay it.
pub fn cores() -> usize {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let fast = number(c"hw.perflevel0.physicalcpu").and_then(|cores| usize::try_from(cores).ok());
    fast.filter(|&cores| cores > 0).map_or(all, |cores| cores.min(all))
}

/// Returns the current memory of this process, in bytes.
pub fn resident() -> Option<u64> {
    Some(usage()?.ri_phys_footprint)
}

/// Returns the peak memory of this process, in bytes.
pub fn peak() -> Option<u64> {
    Some(usage()?.ri_lifetime_max_phys_footprint)
}

/// Returns the name of this machine's processor.
pub fn processor() -> Option<String> {
    let mut text = [0; 256];
    let len = setting(c"machdep.cpu.brand_string", &mut text)?;
    Some(CStr::from_bytes_until_nul(text.get(..len)?).ok()?.to_str().ok()?.to_owned())
}

fn usage() -> Option<libc::rusage_info_v4> {
    // SAFETY: a struct of integers, for which zeros are valid.
    let mut usage: libc::rusage_info_v4 = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills a struct of version 4, which is the version that is requested.
    let status =
        unsafe { libc::proc_pid_rusage(libc::getpid(), libc::RUSAGE_INFO_V4, (&raw mut usage).cast()) };
    (status == 0).then_some(usage)
}

/// Returns a system setting that is an integer of 4 or 8 bytes.
fn number(name: &CStr) -> Option<u64> {
    let mut bytes = [0; 8];
    match setting(name, &mut bytes)? {
        4 => Some(u32::from_ne_bytes(bytes[..4].try_into().expect("4 bytes")).into()),
        8 => Some(u64::from_ne_bytes(bytes)),
        _ => None,
    }
}

/// Reads a system setting into `bytes` and returns its length, or `None` if the setting is unknown or longer.
fn setting(name: &CStr, bytes: &mut [u8]) -> Option<usize> {
    let mut len = bytes.len();
    let (to, new) = (bytes.as_mut_ptr().cast(), std::ptr::null_mut());
    // SAFETY: at most `len` bytes are written to `bytes`, and no setting is changed.
    let status = unsafe { libc::sysctlbyname(name.as_ptr(), to, &raw mut len, new, 0) };
    (status == 0).then_some(len)
}
