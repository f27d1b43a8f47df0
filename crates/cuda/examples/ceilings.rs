//! Peak speed of a GPU, for comparison with the engine's times: bytes per second of copies, floating-point operations per second of products.
//!
//! Prints one JSON object per line. Run by `scripts/gpu/check`.

use std::sync::Arc;
use std::time::Instant;

use fgrpo_cuda::{DeviceMemory, Driver, Gpu, Matrix, Memory, Numbers, Product};

/// The shortest of several times of `work` in seconds, after two warm-up runs.
fn seconds(driver: &Arc<dyn Driver>, work: impl Fn()) -> f64 {
    let once = |_| {
        let clock = Instant::now();
        work();
        driver.synchronize().expect("the device works");
        clock.elapsed().as_secs_f64()
    };
    (0..8).map(once).skip(2).fold(f64::INFINITY, f64::min)
}

fn main() {
    let driver: Arc<dyn Driver> = match Gpu::open(0, None) {
        Ok(gpu) => Arc::new(gpu),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    let DeviceMemory { free, total, .. } = driver.memory().expect("memory");
    println!("{{\"what\": \"memory\", \"free\": {free}, \"total\": {total}}}");
    const BYTES: usize = 2 << 30;
    let [from, to] = [0; 2].map(|_| Memory::<u8>::new(&driver, BYTES).expect("4 GiB"));
    let time = seconds(&driver, || {
        driver.copy(from.address(), to.address(), BYTES).expect("a copy");
    });
    println!("{{\"what\": \"copy\", \"bytes_per_second\": {:.3e}}}", 2.0 * BYTES as f64 / time);
    for (name, numbers, size) in [
        ("bf16", Numbers::Bf16, 8192usize),
        ("bf16 to f32", Numbers::Bf16ToF32, 8192),
        ("f32", Numbers::F32, 4096),
    ] {
        let third = BYTES / 4;
        driver.zero(from.address(), BYTES).expect("zeros");
        let product = Product {
            m: size,
            n: size,
            k: size,
            a: Matrix::rows(from.at(0), size),
            b: Matrix::rows(from.at(third), size).transposed(),
            c: to.address(),
            c_stride: size,
            alpha: 1.0,
            add: false,
            numbers,
        };
        let work = 2.0 * (size as f64).powi(3);
        let library = seconds(&driver, || driver.product(&product).expect("a product"));
        let ours = seconds(&driver, || {
            let ours = product.launch();
            driver.launch(ours.kernel, ours.shape, &ours.arguments).expect("a product");
        });
        println!(
            "{{\"what\": \"product\", \"numbers\": \"{name}\", \"size\": {size}, \"flops\": {:.3e}, \"flops_of_our_kernel\": {:.3e}}}",
            work / library,
            work / ours
        );
    }
}
