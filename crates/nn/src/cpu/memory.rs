//! The machine's memory, from Linux's files or macOS's system call; unknown on other systems.

/// Minimum number of bytes for keys and values, also used if the machine's memory is unknown.
const LEAST: u64 = 512 << 20;

/// Returns the bytes of the machine's memory. Compiled, but not tested on a Mac.
#[cfg(target_os = "macos")]
fn total() -> Option<u64> {
    let (mut bytes, mut len) = (0u64, size_of::<u64>());
    let (to, new) = ((&raw mut bytes).cast(), std::ptr::null_mut());
    // SAFETY: at most `len` bytes are written to the integer, and no setting is changed.
    let status = unsafe { libc::sysctlbyname(c"hw.memsize".as_ptr(), to, &raw mut len, new, 0) };
    (status == 0 && len == size_of::<u64>()).then_some(bytes)
}

/// Returns the bytes of the machine's memory, or of the control group's limit if that is lower.
#[cfg(not(target_os = "macos"))]
fn total() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let machine = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024;
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse::<u64>().ok());
    Some(group.map_or(machine, |group| group.min(machine)))
}

/// Returns the default bytes for keys and values for a model of `parameters` parameters: a third of the memory that weights, packed weights,
/// two gradients and both moments leave free, but at least 512 MiB.
pub(crate) fn cache_bytes(parameters: usize) -> usize {
    let model = 6 * 4 * parameters as u64;
    let bytes = total().map_or(LEAST, |total| (total.saturating_sub(model) / 3).max(LEAST));
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_model_leaves_less_for_the_cache_but_never_nothing() {
        assert!(cache_bytes(1 << 20) >= cache_bytes(1 << 30));
        assert_eq!(cache_bytes(1 << 45), LEAST as usize);
    }
}
