//! The device on which the engine's tests run, so that each test is written once.
//!
//! `FGRPO_TEST_PRODUCTS=bf16x3` (or `bf16`) sets the CPU's products. `FGRPO_TEST_DEVICE=cuda-emulated` selects the emulated GPU (feature
//! `cuda-emulator`), and `cuda` or `cuda:1` a real one. If unset, it is the CPU.

use fgrpo_nn::{Device, DeviceName, Precision, ProductFormat};

/// The device. The CPU gets this many threads.
pub(crate) fn device(threads: usize) -> Device {
    let name = std::env::var("FGRPO_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let name: DeviceName = name.parse().unwrap_or_else(|error| panic!("FGRPO_TEST_DEVICE: {error}"));
    name.device(threads, products(), Precision::F32, Precision::F32, false)
}

/// The CPU's products.
fn products() -> ProductFormat {
    std::env::var("FGRPO_TEST_PRODUCTS").map_or(ProductFormat::F32, |name| name.parse().unwrap())
}

/// Tolerance for values that are off by `f32` with products in f32. Numbers in bfloat16 have 16 or 8 bits instead of 24, and a number that is rounded the other way because of
/// a difference in its last place passes the error on: in bf16, the log-probabilities of these tests differ by up to 1.4e-2 and the gradients of a Qwen2 by 6.2e-3 of the
/// largest value, on AVX-512 and without vector instructions.
#[allow(dead_code, reason = "not every program compares numbers")]
pub(crate) fn tolerance(f32: f32) -> f32 {
    match products() {
        ProductFormat::F32 | ProductFormat::Blas => f32,
        ProductFormat::Bf16x3 => 20.0 * f32,
        ProductFormat::Bf16 => 2500.0 * f32,
    }
}

/// [`tolerance`] of a family's gradients. OLMo 2 and 3 have no norm before attention and MLP, but norms of whole queries, of keys and of results, which pass on their
/// rounding. With operands of linear maps rounded in the same way and sums in f32, PyTorch 2.15 is off from f64 by 5.0e-4 of the largest value in the gradient of
/// `layers.0.self_attn.q_proj` of the golden OLMo 2 in two parts (here 4.2e-4), and by at most 1.4e-4 in those of all other golden files. In one part, prefix trees
/// differ there from separate sequences by 3e-3 to 1.5e-2 of the largest value, depending on the seed, for the sizes of these tests.
#[allow(dead_code, reason = "not every program compares gradients")]
pub(crate) fn gradient_tolerance(case: &str, f32: f32) -> f32 {
    let in_bf16 = if products() == ProductFormat::Bf16 { 2.0 } else { 1.0 };
    let of_olmo = if case.starts_with("olmo") && products() != ProductFormat::F32 { 2.0 } else { 1.0 };
    in_bf16 * of_olmo * tolerance(f32)
}

/// Whether the device supports the family of a golden case. GPUs support neither gated short convolutions nor Gemma 4.
#[allow(dead_code, reason = "not every program has golden cases")]
pub(crate) fn supports(case: &str) -> bool {
    on_cpu() || !(case == "lfm2" || case.starts_with("gemma4"))
}

/// Whether the device is the CPU, which can use different instruction sets.
#[allow(dead_code, reason = "not every test program calls it")]
pub(crate) fn on_cpu() -> bool {
    matches!(device(1), Device::Cpu { .. })
}

/// Whether the device is the emulated GPU, which is slow.
#[allow(dead_code, reason = "not every test program calls it")]
pub(crate) fn is_emulated() -> bool {
    std::env::var("FGRPO_TEST_DEVICE").is_ok_and(|name| name == "cuda-emulated")
}
