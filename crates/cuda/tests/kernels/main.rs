//! Every kernel compared with its definition in f64: on the emulator with threads in ascending, descending and shuffled order, or with
//! `FGRPO_TEST_DEVICE=cuda` three times on a GPU with poisoned fresh memory.

mod attention;
mod checks;
mod head;
mod mixer;
mod optimizer;
mod pointwise;
mod poisoned;
mod product;
mod quantized;

use fgrpo_cuda::emulated::Emulated;
use fgrpo_cuda::{Argument, Command, Driver, Gpu, Launch, Memory, Pinned, Queue, Shape, fake};
use poisoned::Poisoned;
use std::sync::{Arc, OnceLock};

/// The emulator with a given order of threads, or the GPU. A process opens the GPU once, because a sanitizer instruments the kernels each time they are loaded.
fn device(order: u32) -> Arc<dyn Driver> {
    if std::env::var("FGRPO_TEST_DEVICE").is_ok_and(|device| device == "cuda") {
        static OPENED: OnceLock<Arc<dyn Driver>> = OnceLock::new();
        Arc::clone(OPENED.get_or_init(|| Arc::new(Poisoned(Gpu::open(0, None).expect("a GPU")))))
    } else {
        Arc::new(Emulated::new(order))
    }
}

#[test]
fn a_process_loads_the_kernels_once() {
    const NAME: &str = "a_process_loads_the_kernels_once";
    // If these tests run on a GPU from a pack, the fake driver doesn't replace the driver.
    if fake::folder().exists() && fake::is_here(NAME, true, &[("FGRPO_TEST_DEVICE", "cuda")]) {
        (0..3).for_each(|order| drop(device(order)));
        assert_eq!(fake::report().calls["cuModuleLoadDataEx"], 1);
    }
}

/// Runs a test three times, on the emulator in three orders of threads. All must give the same bits.
fn in_every_order<T: PartialEq + std::fmt::Debug>(test: impl Fn(&Arc<dyn Driver>) -> T) -> T {
    let mut results = [0, 1, 7].map(|order| Some(test(&device(order))));
    assert_eq!(results[0], results[1], "the result depends on the order of threads");
    assert_eq!(results[0], results[2], "the result depends on the order of threads");
    results[0].take().expect("it ran")
}

fn launch(driver: &Arc<dyn Driver>, kernel: &'static str, shape: Shape, arguments: &[Argument]) {
    let launch = Launch { kernel, shape, arguments: arguments.to_vec() };
    driver.submit(&Command::Launch(launch)).expect(kernel);
}

/// Numbers in [-1, 1), the same for the same seed.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn to_bf16(values: &[f32]) -> Vec<u16> {
    values
        .iter()
        .map(|v| {
            let u = v.to_bits();
            ((u + 0x7fff + (u >> 16 & 1)) >> 16) as u16
        })
        .collect()
}

fn from_bf16(values: &[u16]) -> Vec<f32> {
    values.iter().map(|&v| f32::from_bits(u32::from(v) << 16)).collect()
}

fn memory<T: Copy>(driver: &Arc<dyn Driver>, values: &[T]) -> Memory<T> {
    Memory::from(driver, values).expect("memory")
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&v| f64::from(v)).collect()
}

fn close(found: &[f32], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (i, (&f, &w)) in found.iter().zip(wanted).enumerate() {
        assert!(
            (f64::from(f) - w).abs() <= tolerance * (1.0 + w.abs()),
            "{what}[{i}]: found {f}, wanted {w}"
        );
    }
}
