//! The device of a run, and its number formats.

use crate::bad_input;
use crate::config::{Config, PrecisionName};
use crate::events::Events;
pub use fgrpo_nn::DeviceName;
use fgrpo_nn::{Device, Precision, Products};

/// The device that a run of `config` computes on.
///
/// # Errors
/// Bad input: a device that doesn't exist or can't be used, or a precision or kind of products that it doesn't
/// support.
pub fn of_run(name: DeviceName, config: &Config) -> anyhow::Result<Device> {
    named(name, config.threads(), config.compute.products, precision(name, config)?)
}

/// The precision of a run.
///
/// # Errors
/// Bad input: a precision or kind of products that the device doesn't support.
pub fn precision(name: DeviceName, config: &Config) -> anyhow::Result<Precision> {
    check_products(name, config.compute.products)?;
    Ok(match config.compute.precision {
        PrecisionName::F32 => Precision::F32,
        PrecisionName::Bf16 if name == DeviceName::Cpu => {
            bad_input!(
                "compute.precision: found \"bf16\" with --device cpu, wanted \"f32\", or --device cuda"
            )
        }
        PrecisionName::Bf16 => Precision::Bf16,
    })
}

/// Logs how the CPU computes matrix products, and tells the user if this isn't what they would expect.
pub fn tell(device: &Device, events: &mut dyn Events) {
    let Device::Cpu { products, .. } = *device else { return };
    match products.unit() {
        Some(unit) => events.note(&format!("products: {products} ({unit})")),
        None => events.say(&format!(
            "products: {products}, emulated and so slower than f32: this processor has neither AMX nor AVX-512 BF16, or FGRPO_SIMD rules them out"
        )),
    }
}

/// A device by its name, with this number of threads and kind of products on the CPU.
///
/// # Errors
/// Bad input: a device that doesn't exist or can't be used, or products other than f32 on a GPU.
pub fn named(
    name: DeviceName,
    threads: usize,
    products: Products,
    precision: Precision,
) -> anyhow::Result<Device> {
    check_products(name, products)?;
    if let Err(why) = name.check() {
        bad_input!("--device {name}: {why}");
    }
    Ok(name.device(threads, products, precision))
}

/// Rejects a setting for products on a device that supports only one kind.
fn check_products(name: DeviceName, products: Products) -> anyhow::Result<()> {
    if name != DeviceName::Cpu && products != Products::F32 {
        bad_input!(
            "compute.products: found \"{products}\" with --device {name}, wanted \"f32\": a GPU's products follow compute.precision"
        );
    }
    Ok(())
}
