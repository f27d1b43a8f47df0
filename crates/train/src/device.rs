//! The device of a run, and its number formats.

use crate::config::{ComputeConfig, Config};
use fgrpo_eval::events::Events;
pub use fgrpo_nn::DeviceName;
use fgrpo_nn::{Device, Precision, ProductFormat};

/// Returns the device of a run of `config`.
pub fn of_run(name: DeviceName, config: &Config) -> anyhow::Result<Device> {
    check_run(name, &config.compute)?;
    named(name, &config.compute)
}

/// Returns the device `name` with the settings `compute`. Settings of the optimizer only matter for training. Fails if
/// the device doesn't exist, can't be used, or doesn't support a number format.
pub fn named(name: DeviceName, compute: &ComputeConfig) -> anyhow::Result<Device> {
    check_formats(name, compute)?;
    if let Err(error) = name.check() {
        bad_input!("device {name}: {error}");
    }
    if let Err(error) = compute.products.check() {
        bad_input!("compute.products: {error}");
    }
    Ok(name.device(compute.threads(), compute.products, compute.precision, compute.moments, compute.exact))
}

/// Rejects settings that the device of a run doesn't support.
pub fn check_run(name: DeviceName, compute: &ComputeConfig) -> anyhow::Result<()> {
    check_formats(name, compute)?;
    if name == DeviceName::Cpu && compute.moments != Precision::F32 {
        bad_input!(
            "compute.moments: expected \"f32\" on the device cpu, found \"{}\"; use the device cuda for it",
            compute.moments
        );
    }
    if name == DeviceName::Cpu && compute.exact {
        bad_input!(
            "compute.exact: requires the device cuda: on a CPU, sampled and scored log-probabilities differ by rounding"
        );
    }
    Ok(())
}

/// Rejects number formats that the device doesn't support.
fn check_formats(name: DeviceName, compute: &ComputeConfig) -> anyhow::Result<()> {
    let ComputeConfig { products, precision, .. } = *compute;
    if name == DeviceName::Cpu && precision != Precision::F32 {
        bad_input!(
            "compute.precision: expected \"f32\" on the device cpu, found \"{precision}\"; use the device cuda for it, or compute.products on a CPU"
        );
    }
    if name != DeviceName::Cpu && products != ProductFormat::F32 {
        bad_input!(
            "compute.products: expected \"f32\" on the device {name}, found \"{products}\": on a GPU, set compute.precision"
        );
    }
    Ok(())
}

/// Logs how the CPU computes matrix products, and tells the user if it emulates a format.
pub fn announce(device: &Device, events: &mut dyn Events) {
    let Device::Cpu { products, .. } = *device else { return };
    match products.unit() {
        Some(unit) if products == ProductFormat::Blas => events.say(&format!(
            "products: blas ({unit}) in updates: a gradient's last bits may depend on the number of threads and on the library; samples and scores are computed as with f32"
        )),
        Some(unit) => events.note(&format!("products: {products} ({unit})")),
        None => events.say(&format!(
            "products: {products}, emulated, so slower than f32: this processor has no bfloat16 instructions (AMX, AVX-512 BF16 or NEON BF16), or FGRPO_SIMD disables them"
        )),
    }
}
