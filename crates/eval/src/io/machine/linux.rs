//! Reads the machine's properties from Linux's files. On systems without these files, everything but the number of cores
//! is unknown.

/// Returns the number of bytes that this program may still allocate: the machine's available memory, or less if a
/// control group or an address-space limit applies.
pub fn available() -> Option<u64> {
    let machine = field("/proc/meminfo", "MemAvailable:")?;
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .zip(number("/sys/fs/cgroup/memory.current"))
        .map(|(limit, now)| limit.saturating_sub(now));
    [group, address_space()].into_iter().flatten().chain([machine]).min()
}

/// Returns the number of bytes that an address-space limit (`ulimit -v`) leaves for this process, or `None`.
fn address_space() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes to a local variable.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    if !known || limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    Some(limit.rlim_cur.saturating_sub(field("/proc/self/status", "VmSize:")?))
}

/// Returns the current memory of this process, in bytes.
pub fn resident() -> Option<u64> {
    field("/proc/self/status", "VmRSS:")
}

/// Returns the peak memory of this process, in bytes.
pub fn peak() -> Option<u64> {
    field("/proc/self/status", "VmHWM:")
}

/// Returns the name of this machine's processor. On Arm, Linux doesn't report a name, so it consists of the ids of the
/// implementer and the part.
pub fn processor() -> Option<String> {
    processor_in(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

/// Finds the processor's name in the contents of `/proc/cpuinfo`, as [`processor`] does.
fn processor_in(text: &str) -> Option<String> {
    let field = |name: &str| {
        let (_, value) = text.lines().find(|line| line.starts_with(name))?.split_once(':')?;
        Some(value.trim())
    };
    field("model name").map(str::to_owned).or_else(|| {
        Some(format!("Arm, implementer {}, part {}", field("CPU implementer")?, field("CPU part")?))
    })
}

/// Returns the number of cores that compute equally fast.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Reads a field such as `Name:   123 kB` in bytes.
fn field(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_without_a_name_is_known_by_its_ids() {
        let named = "processor\t: 0\nmodel name\t: Some Processor\n";
        assert_eq!(processor_in(named).as_deref(), Some("Some Processor"));
        let arm = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        let name = processor_in(arm).unwrap();
        assert!(name.contains("0x41") && name.contains("0xd0c"), "{name}");
        assert_eq!(processor_in(""), None);
    }
}
