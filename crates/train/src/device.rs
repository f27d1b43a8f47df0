//! The device of a run, and its number formats.

use crate::config::{ComputeConfig, Config};
use fgrpo_eval::events::Events;
pub use fgrpo_nn::DeviceName;
use fgrpo_nn::{Device, Precision, Products};

/// The device that a run of `config` computes on.
pub fn of_run(name: DeviceName, config: &Config) -> anyhow::Result<Device> {
    check_run(name, &config.compute)?;
    named(name, &config.compute)
}

/// A device by its name, with these settings. Those of the optimizer have no effect where nothing is trained.
/// Fails on a device that doesn't exist or can't be used, or a number format that it doesn't support.
pub fn named(name: DeviceName, compute: &ComputeConfig) -> anyhow::Result<Device> {
    check_formats(name, compute)?;
    if let Err(why) = name.check() {
        bad_input!("device {name}: {why}");
    }
    Ok(name.device(compute.threads(), compute.products, compute.precision, compute.moments, compute.exact))
}

/// Rejects a setting that belongs to another kind of device than the one that a run trains on.
pub fn check_run(name: DeviceName, compute: &ComputeConfig) -> anyhow::Result<()> {
    check_formats(name, compute)?;
    if name == DeviceName::Cpu && compute.moments != Precision::F32 {
        bad_input!(
            "compute.moments: found \"{}\" on the device cpu, wanted \"f32\", or the device cuda",
            compute.moments
        );
    }
    if name == DeviceName::Cpu && compute.exact {
        bad_input!(
            "compute.exact: found true on the device cpu, wanted false, or the device cuda: on a CPU sampled and scored log-probabilities differ by rounding"
        );
    }
    Ok(())
}

/// Rejects a number format of computations that belongs to another kind of device.
fn check_formats(name: DeviceName, compute: &ComputeConfig) -> anyhow::Result<()> {
    let ComputeConfig { products, precision, .. } = *compute;
    if name == DeviceName::Cpu && precision != Precision::F32 {
        bad_input!(
            "compute.precision: found \"{precision}\" on the device cpu, wanted \"f32\", or the device cuda; compute.products rounds on a CPU"
        );
    }
    if name != DeviceName::Cpu && products != Products::F32 {
        bad_input!(
            "compute.products: found \"{products}\" on the device {name}, wanted \"f32\": a GPU's products follow compute.precision"
        );
    }
    Ok(())
}

/// Logs how the CPU computes matrix products; if it emulates them, prints that.
pub fn announce(device: &Device, events: &mut dyn Events) {
    let Device::Cpu { products, .. } = *device else { return };
    match products.unit() {
        Some(unit) => events.note(&format!("products: {products} ({unit})")),
        None => events.say(&format!(
            "products: {products}, emulated, so slower than f32: this processor has neither AMX nor AVX-512 BF16, or FGRPO_SIMD disables them"
        )),
    }
}
