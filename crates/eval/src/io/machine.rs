//! This machine: its processor, and the memory of the machine and of this process.

use crate::amounts::bytes;

#[cfg_attr(target_os = "macos", path = "machine/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "machine/linux.rs")]
mod system;

pub use system::{available, cores, peak, processor, resident};

/// Fails before allocation if a model's parameters, with `each` bytes each, need more memory than is available.
/// The error says what determines the size, the memory needed and the memory available.
pub fn fits(what: &str, parameters: u64, each: u64) -> anyhow::Result<()> {
    let needed = parameters.saturating_mul(each);
    match available() {
        Some(left) if needed > left => bad_input!(
            "{what}: found {parameters} parameters, which take {}, wanted at most the {} that this machine has free",
            bytes(needed),
            bytes(left)
        ),
        _ => Ok(()),
    }
}
