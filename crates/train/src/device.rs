//! Where a run computes, and in which numbers.

use crate::bad_input;
use crate::config::{Config, PrecisionName};
use crate::events::Events;
pub use fgrpo_nn::DeviceName;
use fgrpo_nn::{Device, Precision, Products};

/// The device that a run of `config` computes on.
///
/// # Errors
/// Bad input: a device that isn't on this machine or can't be used, or a precision or kind of products that the device doesn't have.
pub fn of_run(name: DeviceName, config: &Config) -> anyhow::Result<Device> {
    named(name, config.threads(), config.compute.products, precision(name, config)?)
}

/// The precision of a run.
///
/// # Errors
/// Bad input: one that the device doesn't have, or such products.
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

/// Notes in the run's log how the CPU multiplies, and says it where that is not what a user expects.
pub fn tell(device: &Device, events: &mut dyn Events) {
    let Device::Cpu { products, .. } = *device else { return };
    match products.unit() {
        Some(unit) => events.note(&format!("products: {products} ({unit})")),
        None => events.say(&format!(
            "products: {products}, emulated and so slower than f32: this processor has neither AMX nor AVX-512 BF16, or FGRPO_SIMD rules them out"
        )),
    }
}

/// A device by its name, with so many threads and such products where it is the CPU.
///
/// # Errors
/// Bad input: a device that isn't on this machine or can't be used, or products other than f32 on a GPU.
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

/// Refuses products on a device that has only one kind.
fn check_products(name: DeviceName, products: Products) -> anyhow::Result<()> {
    if name != DeviceName::Cpu && products != Products::F32 {
        bad_input!(
            "compute.products: found \"{products}\" with --device {name}, wanted \"f32\": a GPU's products follow compute.precision"
        );
    }
    Ok(())
}
