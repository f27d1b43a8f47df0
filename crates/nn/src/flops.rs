//! Floating-point operations of a model's passes, and how many a second this machine does.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::cpu::product::{View, team_product};
use crate::layout::Layout;
use crate::layout::Write;
use crate::lora::{AdapterLayout, LoraConfig};
use crate::numbers::Products;

/// Floating-point operations by kind of work (a multiplication and an addition are two).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Flops {
    /// A row's forward pass, without what only predicting rows need.
    pub forward_token: f64,
    /// Its backward pass.
    pub backward_token: f64,
    /// Attention of a query over one key that it sees, in all layers.
    pub forward_pair: f64,
    /// Its backward pass.
    pub backward_pair: f64,
    /// Additional work of a predicting row: the rest of the last layer and the vocabulary head.
    pub forward_prediction: f64,
    /// Its backward pass.
    pub backward_prediction: f64,
}

impl Flops {
    /// The operations of a model. Norms, exponentials and similar work are not counted: they take a tenth of the time, but few operations.
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
                let keys = linear.weight == layer.kv.weight;
                // Frozen, the first layer's input needs no derivative.
                let unused = index == 0 && adapters.is_some() && (keys || linear.weight == layer.q.weight);
                let input = if unused { 0.0 } else { product };
                // The last map's output is not needed for the backward pass, but by a norm of it.
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
            if let Some(mixer) = layer.mixer {
                // Products of states with a vector, or of two vectors: three forward, and in the backward pass seven more.
                let state = 2.0 * (mixer.of.linear_num_value_heads * mixer.of.head_state()) as f64;
                flops.forward_token += 3.0 * state;
                flops.backward_token += (10.0 + 3.0 * again) * state;
                continue;
            }
            let pair = 2.0 * (config.num_attention_heads * config.head_dim) as f64;
            flops.forward_pair += 2.0 * pair;
            flops.backward_pair += (5.0 + 2.0 * again) * pair;
        }
        let head = 2.0 * (config.vocab_size * config.hidden_size) as f64;
        flops.forward_prediction += head;
        flops.backward_prediction += if adapters.is_some() { 2.0 * head } else { 3.0 * head };
        flops
    }
}

/// Floating-point operations per second of large products on `threads` threads at once, measured for about a tenth of a second
/// of processor time: what the machine reaches when it does nothing else. Threads beyond its cores add nothing.
///
/// # Panics
/// If `threads` is 0 or they can't be started.
pub fn measure_flops(threads: usize, products: Products) -> f64 {
    assert!(threads > 0, "0 threads");
    const M: usize = 384;
    const N: usize = 512;
    const K: usize = 512;
    let rate = || {
        let (a, b) = (vec![0.5f32; M * K], vec![0.25f32; N * K]);
        let mut c = vec![0.0f32; M * N];
        let mut multiply = || {
            let by = View::rows(0, K).transposed();
            let (from, to) = (View::rows(0, K), View::rows(0, N));
            team_product((None, products), [M, N, K], from.of(&a), by.of(&b), to.to(Write::Replace, &mut c));
        };
        // Once for memory and packing space.
        multiply();
        let start = thread_time();
        let mut done = 0.0;
        while thread_time() - start < Duration::from_millis(80) {
            multiply();
            done += (2 * M * N * K) as f64;
        }
        std::hint::black_box(&c);
        done / (thread_time() - start).as_secs_f64()
    };
    std::thread::scope(|scope| {
        let running = std::thread::available_parallelism().map_or(threads, |cores| threads.min(cores.get()));
        let others: Vec<_> = (1..running).map(|_| scope.spawn(rate)).collect();
        rate() + others.into_iter().map(|other| other.join().expect("no panic")).sum::<f64>()
    })
}

/// Processor time of this thread. Where the system doesn't tell, the time since the first call.
fn thread_time() -> Duration {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is to a `timespec` of this frame.
        if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } == 0 {
            return Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        }
    }
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::maze;
    use crate::cpu::product::counted;
    use crate::{Batch, Device, Engine};

    /// The operations of products that the engine's one thread has done so far.
    fn done(engine: &Engine) -> f64 {
        engine.in_thread(|| counted() as f64)
    }

    #[test]
    fn operations_are_those_that_the_engine_does() {
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
            let before = done(&engine);
            engine.score(&batch, 1.0).unwrap();
            let forward = done(&engine) - before;
            let wanted = rows * flops.forward_token
                + pairs * flops.forward_pair
                + predictions * flops.forward_prediction;
            assert!((forward / wanted - 1.0).abs() < 0.05, "forward {forward:e}, computed {wanted:e}");
            let before = done(&engine);
            engine.accumulate(&batch, 1.0, &|family| family.dlogp.fill(1.0)).unwrap();
            let backward = done(&engine) - before - forward;
            let wanted = rows * flops.backward_token
                + pairs * flops.backward_pair
                + predictions * flops.backward_prediction;
            assert!(
                (backward / wanted - 1.0).abs() < 0.05,
                "checkpointing {checkpointing}, {lora:?}: backward {backward:e}, computed {wanted:e}"
            );
        }
    }

    #[test]
    fn measured_speed_of_products_is_that_of_some_machine() {
        let speed = measure_flops(1, Products::F32);
        assert!((1e7..1e14).contains(&speed), "{speed:e}");
        // More threads than cores are no faster than the cores, and cost no time to measure.
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let most = measure_flops(4096, Products::F32);
        assert!(most < 4.0 * cores as f64 * speed, "{most:e} with {cores} cores of {speed:e}");
    }
}
