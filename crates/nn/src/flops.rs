//! Counts the floating-point operations of a model's passes, and measures this machine's throughput.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::kernels::{self, Operands};
use crate::layout::{Layout, Mixing};
use crate::lora::{AdapterLayout, LoraConfig};
use crate::numbers::ProductFormat;

/// Floating-point operations by kind of work; a multiplication and an addition are two.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Flops {
    /// Forward pass of one row, without the work that only predicting rows need.
    pub forward_token: f64,
    /// Backward pass of one row, without the work that only predicting rows need.
    pub backward_token: f64,
    /// Forward pass of attention of one query to one visible key, summed over all layers.
    pub forward_pair: f64,
    /// Backward pass of attention of one query to one visible key, summed over all layers.
    pub backward_pair: f64,
    /// Additional forward work of a predicting row: the part of the last layer after keys and values, and the vocabulary head.
    pub forward_prediction: f64,
    /// Additional backward work of a predicting row.
    pub backward_prediction: f64,
}

impl Flops {
    /// Counts the operations of a model. Norms, exponentials, convolutions and similar work are excluded: they take a tenth of the time, but few operations.
    pub fn of(config: &Config, checkpointing: bool, lora: Option<&LoraConfig>) -> Flops {
        let layout = Layout::new(config, None);
        let adapters = lora.map(|lora| AdapterLayout::new(&layout, lora));
        let again = f64::from(u8::from(checkpointing));
        let mut flops = Flops::default();
        let last = layout.layers.len() - 1;
        for (index, layer) in layout.layers.iter().enumerate() {
            for linear in layer.linears() {
                let product = 2.0 * (linear.outputs * linear.inputs) as f64;
                let weight = match &adapters {
                    None => product,
                    Some(adapters) => {
                        let parts = adapters.of(linear).iter();
                        parts.map(|p| 4.0 * (p.rank * (p.outputs + p.inputs)) as f64).sum()
                    }
                };
                let (needed_rows, all_rows) = layer.input_maps();
                let keys = all_rows.is_some_and(|all_rows| linear.weight == all_rows.weight);
                // With a frozen base, the first layer's input needs no gradient.
                let unused = index == 0
                    && adapters.is_some()
                    && (keys || needed_rows.is_some_and(|map| linear.weight == map.weight));
                let input = if unused { 0.0 } else { product };
                // Recomputation skips the last map, unless a norm needs its output.
                let unneeded = linear.weight == layer.down.weight && layer.mlp.after.is_none();
                let repeated = if unneeded { 0.0 } else { again * product };
                let backward = input + weight + repeated;
                if index == last && !keys {
                    flops.forward_prediction += product;
                    flops.backward_prediction += backward;
                } else {
                    flops.forward_token += product;
                    flops.backward_token += backward;
                }
            }
            if let Mixing::Convolution(_) = layer.mixing {
                continue;
            }
            if let Mixing::Recurrent(mixer) = &layer.mixing {
                // Per head and token: three products with the state or outer products in the forward pass, and seven more in the backward pass.
                let state = 2.0 * (mixer.sizes.linear_num_value_heads * mixer.sizes.head_state()) as f64;
                flops.forward_token += 3.0 * state;
                flops.backward_token += (10.0 + 3.0 * again) * state;
                continue;
            }
            let pair = 2.0 * (config.num_attention_heads * layer.spec.head_dim) as f64;
            flops.forward_pair += 2.0 * pair;
            flops.backward_pair += (5.0 + 2.0 * again) * pair;
        }
        let head = 2.0 * (config.vocab_size * config.hidden_size) as f64;
        flops.forward_prediction += head;
        flops.backward_prediction += if adapters.is_some() { 2.0 * head } else { 3.0 * head };
        flops
    }
}

/// Returns the floating-point operations per second of large products on `threads` threads at once, measured for about a tenth of a second of
/// processor time. This is the machine's peak when nothing else runs. Threads beyond the number of cores aren't started. With
/// [`ProductFormat::Blas`], the library decides how many threads it uses.
///
/// # Panics
/// If `threads` is 0, or a thread can't be started.
pub fn measure_flops(threads: usize, products: ProductFormat) -> f64 {
    assert!(threads > 0, "0 threads");
    if products == ProductFormat::Blas {
        // The library has threads of its own, so their time isn't this thread's.
        let (start, mut product) = (Instant::now(), Product::new(products));
        return rate(|| start.elapsed(), || product.multiply());
    }
    let rate = || {
        let mut product = Product::new(products);
        rate(thread_time, || product.multiply())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..running(threads)).map(|_| scope.spawn(rate)).collect();
        rate() + others.into_iter().map(|other| other.join().expect("no panic")).sum::<f64>()
    })
}

/// Returns how many of `threads` threads can run at the same time: at most one per core.
fn running(threads: usize) -> usize {
    std::thread::available_parallelism().map_or(threads, |cores| threads.min(cores.get()))
}

/// Returns the floating-point operations per second of `work`, which returns how many it did, over at least 80 ms of `clock`. The first call
/// isn't timed, because it allocates memory.
fn rate(clock: impl Fn() -> Duration, mut work: impl FnMut() -> f64) -> f64 {
    work();
    let start = clock();
    let mut done = 0.0;
    loop {
        done += work();
        let time = clock() - start;
        if time >= Duration::from_millis(80) {
            return done / time.as_secs_f64();
        }
    }
}

/// A large product, `c = a bᵀ`.
struct Product {
    products: ProductFormat,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
}

impl Product {
    const SIZES: [usize; 3] = [384, 512, 512];

    fn new(products: ProductFormat) -> Product {
        let [m, n, k] = Product::SIZES;
        Product { products, a: vec![0.5; m * k], b: vec![0.25; n * k], c: vec![0.0; m * n] }
    }

    /// Computes the product once, and returns its number of floating-point operations.
    fn multiply(&mut self) -> f64 {
        let [m, n, k] = Product::SIZES;
        kernels::product(self.products, Operands::Forward, [m, n, k], &self.a, &self.b, &mut self.c);
        std::hint::black_box(&self.c);
        (2 * m * n * k) as f64
    }
}

/// Returns the processor time of this thread, or the time since the first call if the system doesn't report it.
fn thread_time() -> Duration {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a local `timespec`.
        if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } == 0 {
            return Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        }
    }
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::config::tests::maze;
    use crate::cpu::product::counted;
    use crate::{Batch, Device, Engine, FamilyScores};

    #[test]
    fn counted_operations_match_the_engines() {
        let lora = LoraConfig { rank: 8, ..LoraConfig::default() };
        for (checkpointing, lora) in [(false, None), (true, None), (false, Some(&lora)), (true, Some(&lora))]
        {
            let config = Config { vocab_size: 512, num_hidden_layers: 3, ..maze() };
            let mut engine = Engine::init(&config, 0.02, &|_| 0.5, &Device::cpu(1)).unwrap();
            engine.set_checkpointing(checkpointing);
            if let Some(lora) = lora {
                engine.adapt(lora, &mut || 0.5).unwrap();
            }
            let flops = Flops::of(&config, checkpointing, lora);
            // Two sequences whose last 40 rows predict.
            let (rows, predicting) = (320, 40);
            let mut batch = Batch::default();
            for _ in 0..2 {
                batch.push_segment(&vec![1; rows], None);
                for row in batch.tokens.len() - predicting..batch.tokens.len() {
                    batch.predict(row, 2);
                }
            }
            let (rows, predictions) = (2.0 * 320.0, 2.0 * 40.0);
            let pairs = 320.0 * 321.0;
            // Products that the engine's only thread has computed by the end of a forward pass. A backward pass follows unless the derivative is 0.
            let mut count = |derivative: f32| {
                let loss = |family: FamilyScores<'_>| {
                    family.dlogp.fill(derivative);
                    counted() as f64
                };
                engine.accumulate(&batch, 1.0, &loss).unwrap().1[0]
            };
            let [first, second, third] = [0.0, 1.0, 0.0].map(&mut count);
            let (forward, backward) = (second - first, (third - second) - (second - first));
            let expected = rows * flops.forward_token
                + pairs * flops.forward_pair
                + predictions * flops.forward_prediction;
            assert!((forward / expected - 1.0).abs() < 0.05, "forward {forward:e}, computed {expected:e}");
            let expected = rows * flops.backward_token
                + pairs * flops.backward_pair
                + predictions * flops.backward_prediction;
            assert!(
                (backward / expected - 1.0).abs() < 0.05,
                "checkpointing {checkpointing}, {lora:?}: backward {backward:e}, computed {expected:e}"
            );
        }
    }

    #[test]
    fn the_first_call_and_waiting_threads_do_not_count_in_the_rate() {
        let (time, calls) = (Cell::new(Duration::from_secs(7)), Cell::new(0));
        // The first call takes a second. The other calls take 3 ms each, so 27 of them exceed 80 ms.
        let work = || {
            let first = calls.replace(calls.get() + 1) == 0;
            time.set(time.get() + Duration::from_millis(if first { 1000 } else { 3 }));
            6e6
        };
        let speed = rate(|| time.get(), work);
        assert_eq!(calls.get(), 1 + 27);
        assert!((speed / 2e9 - 1.0).abs() < 1e-9, "{speed:e}");
        // A thread that waits takes no processor time.
        let before = thread_time();
        std::thread::sleep(Duration::from_millis(200));
        assert!(thread_time() - before < Duration::from_millis(100));
    }

    #[test]
    fn the_timed_product_reports_the_operations_that_it_does() {
        for products in [ProductFormat::F32, ProductFormat::Bf16x3, ProductFormat::Bf16] {
            let (mut product, before) = (Product::new(products), counted());
            let reported = product.multiply();
            assert_eq!(reported, (counted() - before) as f64, "{products}");
            // 512 products of 0.5 and 0.25.
            assert!(product.c.iter().all(|&sum| sum == 64.0), "{products}");
        }
        assert!(measure_flops(1, ProductFormat::F32) > 0.0);
    }

    #[test]
    fn threads_beyond_the_cores_are_not_started() {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        assert_eq!([1, cores, cores + 1, 4096].map(running), [1, cores, cores, cores.max(1)]);
    }
}
