//! Peak speed of a GPU, for comparison with the engine's times: bytes per second of copies, floating-point operations per second of products.
//!
//! Prints one JSON object per line. Run by `scripts/gpu/check`.

use std::sync::Arc;
use std::time::Instant;

use fgrpo_cuda::{Command, DeviceMemory, Driver, Gpu, Matrix, Memory, Numbers, Product, products_library};

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

/// Root mean square of the first row of a product, for factors of this many random numbers of size 1.
fn size_of_results(product: &Memory<u8>, numbers: Numbers, size: usize) -> f64 {
    let width = if numbers == Numbers::Bf16 { 2 } else { 4 };
    let mut row = vec![0; size * width];
    product.read_into(0, &mut row).expect("a row");
    // A bf16 is the upper half of an f32.
    let value = |bytes: &[u8]| {
        let mut whole = [0; 4];
        whole[4 - width..].copy_from_slice(bytes);
        f64::from(f32::from_le_bytes(whole))
    };
    let squares: f64 = row.chunks(width).map(|bytes| value(bytes).powi(2)).sum();
    (squares / (size * size) as f64).sqrt()
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
    // On the fake driver the same with little. Its library is no faster than our kernel, which only `--strict` minds.
    let [small, strict] = ["--small", "--strict"].map(|wanted| std::env::args().any(|given| given == wanted));
    let bytes = if small { 1 << 16 } else { 2usize << 30 };
    let [from, to] = [0; 2].map(|_| Memory::<u8>::new(&driver, bytes).expect("4 GiB"));
    // Zeros would be multiplied faster: random numbers of size 1, in 16 or 32 bits.
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        0x3f00 | (state >> 40) as u16 & 0x807f
    };
    let block: Vec<u8> = (0..bytes.min(64 << 20) / 2).flat_map(|_| random().to_le_bytes()).collect();
    (0..bytes).step_by(block.len()).for_each(|first| from.write(first, &block).expect("random numbers"));
    let time = seconds(&driver, || {
        driver.submit(&Command::Copy { from: from.address(), to: to.address(), bytes }).expect("a copy");
    });
    println!("{{\"what\": \"copy\", \"bytes_per_second\": {:.3e}}}", 2.0 * bytes as f64 / time);
    let mut fastest = 0.0f64;
    for (name, numbers, size) in [
        ("bf16", Numbers::Bf16, if small { 64 } else { 8192usize }),
        ("bf16 to f32", Numbers::Bf16ToF32, if small { 64 } else { 8192 }),
        ("f32", Numbers::F32, if small { 64 } else { 4096 }),
    ] {
        let product = Product {
            m: size,
            n: size,
            k: size,
            a: Matrix::rows(from.at(0), size),
            b: Matrix::rows(from.at(bytes / 4), size).transposed(),
            c: to.address(),
            c_stride: size,
            alpha: 1.0,
            onto: None,
            bias: None,
            numbers,
            exact: false,
        };
        let work = 2.0 * (size as f64).powi(3);
        driver.submit(&Command::Product(product)).expect("a product");
        let size_of_results = size_of_results(&to, numbers, size);
        if !(0.2..2.0).contains(&size_of_results) {
            eprintln!(
                "{name}: found results of size {size_of_results}, wanted about 0.6: these are no products of random numbers"
            );
            std::process::exit(1);
        }
        let library = seconds(&driver, || driver.submit(&Command::Product(product)).expect("a product"));
        let plain = Command::Launch(product.launch());
        let ours = seconds(&driver, || driver.submit(&plain).expect("a product"));
        fastest = fastest.max(ours / library);
        println!(
            "{{\"what\": \"product\", \"numbers\": \"{name}\", \"size\": {size}, \"flops\": {:.3e}, \"flops_of_our_kernel\": {:.3e}}}",
            work / library,
            work / ours
        );
    }
    // Without the library both are our kernel, and all times that follow say nothing.
    if (strict || !small) && fastest < 2.0 {
        eprintln!(
            "products are no faster than our plain kernel: {}",
            match products_library() {
                Ok(library) => format!("although {} is used", library.path.display()),
                Err(why) => why.to_string(),
            }
        );
        std::process::exit(1);
    }
}
