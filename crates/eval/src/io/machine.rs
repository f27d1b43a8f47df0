//! Describes this machine's processor and the memory of the machine and of this process.

use crate::amounts::bytes;

#[cfg_attr(target_os = "macos", path = "machine/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "machine/linux.rs")]
mod system;

pub use system::{available, cores, peak, processor, resident};

/// Returns an error if a model's parameters, at `bytes_each` bytes per parameter, need more memory than is available.
///
/// The error states what determines the size (`what`), the memory needed and the memory available.
pub fn fits(what: &str, parameters: u64, bytes_each: u64) -> anyhow::Result<()> {
    let needed = parameters.saturating_mul(bytes_each);
    match available() {
        Some(free) if needed > free => bad_input!(
            "{what}: {parameters} parameters take {}, but this machine has only {} of free memory",
            bytes(needed),
            bytes(free)
        ),
        _ => Ok(()),
    }
}
