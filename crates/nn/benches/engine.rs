//! Parts of the engine and whole steps: `cargo bench -p fgrpo-nn`. Each is checked before it is timed.
//!
//! Attention and the output layer are timed in decoders that do little else. For ratios against PyTorch see `peers/`.

use std::ops::ControlFlow;
use std::sync::Mutex;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fgrpo_nn::config::Config;
use fgrpo_nn::kernels::{self, Operands};
use fgrpo_nn::{AdamW, Batch, Device, Engine, ProductFormat, Prompt, PromptQueue, QueuedPrompt, Sampling};

const THREADS: usize = 2;

fn config() -> Config {
    Config { max_position_embeddings: 4096, ..kernels::small_decoder(688) }
}

/// Numbers in [-0.5, 0.5) that look random.
fn number(index: usize) -> f32 {
    ((index.wrapping_mul(2_654_435_761) >> 8) & 0xffff) as f32 / 65_536.0 - 0.5
}

fn engine(config: &Config) -> Engine {
    let normal = |index: u64| f64::from(number(index as usize)) * 3.46;
    Engine::init(config, 0.02, &normal, &Device::cpu(THREADS)).unwrap()
}

/// `rows` sequences of `len` tokens, with predictions at the last `predicted` positions of each.
fn sequences(config: &Config, rows: usize, len: usize, predicted: usize) -> Batch {
    let token = |index: usize| ((number(index) + 0.5) * config.vocab_size as f32) as u32;
    let mut batch = Batch::default();
    for row in 0..rows {
        let tokens: Vec<u32> = (0..len).map(|i| token(row * len + i)).collect();
        batch.push_segment(&tokens, None);
        for place in len - predicted..len {
            batch.predict(row * len + place, token(row + place));
        }
    }
    batch
}

fn products(c: &mut Criterion) {
    for products in [ProductFormat::F32, ProductFormat::Bf16x3, ProductFormat::Bf16] {
        products_of(c, products);
    }
}

fn products_of(c: &mut Criterion, products: ProductFormat) {
    let mut group = c.benchmark_group(format!("product, one thread, {products}"));
    // Sums of up to 688 products of numbers of at most a half.
    let off = if products == ProductFormat::Bf16 { 0.5 } else { 1e-3 };
    // (rows, outputs, inputs): the step's products, and decoding's.
    for (m, n, k) in [(1024, 1376, 256), (1024, 256, 688), (32, 1376, 256), (4, 1376, 256)] {
        let x: Vec<f32> = (0..m * k).map(number).collect();
        let w: Vec<f32> = (0..n * k).map(|i| number(i + 7)).collect();
        let dy: Vec<f32> = (0..m * n).map(|i| number(i + 11)).collect();
        let mut y = vec![0.0; m * n];
        kernels::product(products, Operands::Forward, [m, n, k], &x, &w, &mut y);
        let exact: f64 = (0..k).map(|i| f64::from(x[k + i]) * f64::from(w[2 * k + i])).sum();
        assert!((f64::from(y[n + 2]) - exact).abs() < off);
        group.throughput(Throughput::Elements((2 * m * n * k) as u64));
        let panels = kernels::panels(products, n, k, &w);
        let mut packed = vec![0.0; m * n];
        kernels::product_with_panels(products, m, n, k, &x, &panels, &mut packed);
        assert!(y.iter().zip(&packed).all(|(y, packed)| (y - packed).abs() < 1e-4));
        group.bench_function(format!("forward, panels {m}x{n}x{k}"), |b| {
            b.iter(|| kernels::product_with_panels(products, m, n, k, &x, &panels, &mut packed));
        });
        group.bench_function(format!("forward {m}x{n}x{k}"), |b| {
            b.iter(|| kernels::product(products, Operands::Forward, [m, n, k], &x, &w, &mut y));
        });
        if m > 100 {
            let (mut dx, mut dw) = (vec![0.0; m * k], vec![0.0; n * k]);
            group.bench_function(format!("input's gradient {m}x{n}x{k}"), |b| {
                b.iter(|| kernels::product(products, Operands::BackwardInput, [m, n, k], &dy, &w, &mut dx));
            });
            group.bench_function(format!("weight's gradient {m}x{n}x{k}"), |b| {
                b.iter(|| kernels::product(products, Operands::BackwardWeight, [m, n, k], &dy, &x, &mut dw));
            });
        }
    }
    group.finish();
}

/// Scores a batch, then does a whole training step on it.
fn passes(c: &mut Criterion, name: &str, config: &Config, batch: &Batch) {
    let mut engine = engine(config);
    let scores = engine.score(batch, 1.0).unwrap();
    assert!(scores.logp.iter().all(|logp| logp.is_finite() && *logp < 0.0));
    let mut group = c.benchmark_group(name);
    group.sample_size(10).throughput(Throughput::Elements(batch.tokens.len() as u64));
    group.bench_function("score", |b| b.iter(|| engine.score(batch, 1.0).unwrap()));
    group.bench_function("step", |b| {
        b.iter(|| {
            engine.accumulate(batch, 1.0, &|family| family.dlogp.fill(-1e-3)).unwrap();
            assert!(engine.update(&AdamW { lr: 0.0, ..AdamW::default() }, Some(1.0)).unwrap().applied);
        });
    });
    group.finish();
}

fn attention(c: &mut Criterion) {
    let config = Config { num_hidden_layers: 2, intermediate_size: 16, ..config() };
    passes(c, "attention, 4 x 1024", &config, &sequences(&config, 4, 1024, 1024));
}

fn head(c: &mut Criterion) {
    let config = Config { num_hidden_layers: 1, intermediate_size: 16, vocab_size: 32_768, ..config() };
    passes(c, "head, vocabulary 32768, 8 x 64", &config, &sequences(&config, 8, 64, 64));
}

fn dense(c: &mut Criterion) {
    passes(c, "dense, 64 x 160", &config(), &sequences(&config(), 64, 160, 160));
    passes(c, "prefill, 256 x 96", &config(), &sequences(&config(), 256, 96, 1));
}

fn decode(c: &mut Criterion) {
    let mut engine = engine(&config());
    let prompts: Vec<Vec<u32>> =
        (0..64).map(|p| (0..96).map(|i| ((number(p * 96 + i) + 0.5) * 32.0) as u32).collect()).collect();
    let mut group = c.benchmark_group("generate after 64 prompts of 96");
    group.sample_size(10);
    for (name, samples, new) in
        [("1 token each", 1, 1), ("32 tokens each", 1, 32), ("8 samples of 32", 8, 32)]
    {
        let requests: Vec<Prompt<'_>> =
            prompts.iter().map(|tokens| Prompt { tokens, samples: 0..samples }).collect();
        let sampling = Sampling { max_new_tokens: new, ..Sampling::default() };
        let uniform =
            |prompt, sample, position| f64::from(number((prompt * 1009 + sample) * 4099 + position)) + 0.5;
        let mut run = || {
            let mut tokens = 0;
            engine
                .generate(&requests, &sampling, &uniform, None, &mut |completion| {
                    tokens += completion.tokens.len();
                    ControlFlow::Continue(())
                })
                .unwrap();
            tokens
        };
        assert_eq!(run(), 64 * samples * new);
        group.throughput(Throughput::Elements((64 * samples * new) as u64));
        group.bench_function(name, |b| b.iter(&mut run));
    }
    group.finish();
}

/// Prompts of a server's clients, each with one sample of one token.
struct Requests(Mutex<std::vec::IntoIter<QueuedPrompt>>);

impl PromptQueue for Requests {
    fn next(&self) -> Option<QueuedPrompt> {
        self.0.lock().expect("no panic").next()
    }

    fn uniform(&self, _: usize, _: usize, _: usize) -> f64 {
        0.5
    }

    fn ended(&self, _: usize, _: &[u32]) -> bool {
        false
    }
}

/// 64 requests to an engine that has 10,000 sequences in its cache. All begin with the same 36 tokens, two pages and the first four tokens of a third, as
/// prompts of one chat template do; each new one takes the page of the oldest. The model is so small that the search for beginnings and pages is most of the work.
fn cached(c: &mut Criterion) {
    const SEQUENCES: usize = 10_000;
    let (hidden_size, vocab_size) = (16, 128);
    let config = Config {
        num_hidden_layers: 1,
        num_attention_heads: 1,
        num_key_value_heads: 1,
        head_dim: 16,
        intermediate_size: 16,
        hidden_size,
        vocab_size,
        ..config()
    };
    let normal = |index: u64| f64::from(number(index as usize)) * 3.46;
    let mut engine = Engine::init(&config, 0.02, &normal, &Device::cpu(1)).unwrap();
    let pages = SEQUENCES + 70;
    let sampling = Sampling { max_new_tokens: 1, max_cached_tokens: Some(16 * pages), ..Sampling::default() };
    let mut run = |requests: std::ops::Range<usize>| {
        let arrival = |request: usize| {
            let own = (0..4).map(|digit| (request / 100usize.pow(3 - digit) % 100) as u32 + 20);
            let tokens = (0..36).map(|i| i % 16).chain(own).collect();
            QueuedPrompt { prompt: request, tokens, samples: 0..1, max_new_tokens: 1 }
        };
        let arrivals: Vec<QueuedPrompt> = requests.map(arrival).collect();
        let mut cached = 0;
        engine
            .generate_queued(&Requests(Mutex::new(arrivals.into_iter())), 64, &sampling, true, &mut |done| {
                cached += done.cached;
                ControlFlow::Continue(())
            })
            .unwrap();
        cached
    };
    let mut next = SEQUENCES;
    run(0..next);
    // All but the first of them have found the two pages.
    assert_eq!(run(next..next + 64), 64 * 32);
    let mut group = c.benchmark_group("64 requests");
    group.sample_size(20).throughput(Throughput::Elements(64));
    group.bench_function(format!("{SEQUENCES} cached sequences"), |b| {
        b.iter(|| {
            next += 64;
            run(next..next + 64)
        });
    });
    group.finish();
}

criterion_group!(benches, products, attention, head, dense, decode, cached);
criterion_main!(benches);
