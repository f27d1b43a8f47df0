//! Times the engine on fixed shapes and prints one JSON object per case, for comparison with other programs on the same machine.
//!
//! ```text
//! cargo run --release -p fgrpo-nn --example step_time -- [--gpu | --gpu-bf16 | --products f32|bf16x3|bf16|blas] [--threads N] [--repeats N] [--chunk TOKENS] [--small] [CASE...]
//! ```
//!
//! Each case runs once to warm up, then `repeats` times; `ms` is the median, `best_ms` the fastest, `cpu_ms` the median of the processor time of all
//! threads (Linux), which other work on the machine affects less. Weights are random. `graphs` are the decoding steps on a GPU and how many of them were
//! submitted as CUDA graphs; `FGRPO_CUDA_GRAPHS=off` measures without.

use std::ops::ControlFlow;
use std::time::Instant;

use fgrpo_nn::config::{Architecture, Config, GatedDeltaNet, LayerType};
use fgrpo_nn::kernels::small_decoder;
use fgrpo_nn::{
    AdamW, Batch, Completion, Device, Engine, Flops, GraphCounts, LoraConfig, Precision, ProductFormat,
    Prompt, Sampling,
};
use serde_json::json;

/// A small generator of numbers.
struct Numbers(u64);

impl Numbers {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 32)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (a, b) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * a.ln()).sqrt() * (2.0 * std::f64::consts::PI * b).cos()
    }

    fn tokens(&mut self, count: usize, vocabulary: usize) -> Vec<u32> {
        (0..count).map(|_| (self.uniform() * vocabulary as f64) as u32).collect()
    }
}

/// A Qwen3 language model of about 50M parameters.
fn language() -> Config {
    Config {
        architecture: Architecture::Qwen3,
        vocab_size: 16_384,
        hidden_size: 512,
        intermediate_size: 1536,
        num_hidden_layers: 12,
        num_attention_heads: 8,
        num_key_value_heads: 4,
        head_dim: 64,
        ..small_decoder(0)
    }
}

/// The shapes of Qwen3-0.6B, Qwen3-1.7B and Qwen2.5-7B.
fn qwen(size: &str) -> Config {
    let (hidden_size, intermediate_size, num_attention_heads, num_key_value_heads) = match size {
        "0.6b" => (1024, 3072, 16, 8),
        "1.7b" => (2048, 6144, 16, 8),
        _ => (3584, 18944, 28, 4),
    };
    let qwen3 = size != "7b";
    Config {
        architecture: if qwen3 { Architecture::Qwen3 } else { Architecture::Qwen2 },
        vocab_size: if qwen3 { 151_936 } else { 152_064 },
        hidden_size,
        intermediate_size,
        num_hidden_layers: 28,
        num_attention_heads,
        num_key_value_heads,
        head_dim: 128,
        tie_word_embeddings: qwen3,
        ..language()
    }
}

/// The shapes of Qwen3.5-0.8B in 4 of its 24 layers, and a sixth of its vocabulary.
fn recurrent() -> Config {
    let (linear, full) = (LayerType::LinearAttention, LayerType::FullAttention);
    Config {
        architecture: Architecture::Qwen3_5Text,
        vocab_size: 41_387,
        hidden_size: 1024,
        intermediate_size: 3584,
        num_hidden_layers: 4,
        num_attention_heads: 8,
        num_key_value_heads: 2,
        head_dim: 256,
        layer_types: vec![linear, linear, linear, full],
        partial_rotary_factor: Some(0.25),
        linear_attention: Some(GatedDeltaNet {
            linear_conv_kernel_dim: 4,
            linear_key_head_dim: 128,
            linear_value_head_dim: 128,
            linear_num_key_heads: 16,
            linear_num_value_heads: 16,
        }),
        ..language()
    }
}

/// Prompts with completions, and one update on all of them.
struct Step {
    prompts: usize,
    samples: usize,
    prompt: usize,
    new: usize,
    temperature: f32,
}

/// Seconds of the repeats, each list sorted.
struct Times {
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

impl Times {
    fn median(&self) -> f64 {
        self.wall[self.wall.len() / 2]
    }

    fn cpu_median(&self) -> f64 {
        self.cpu[self.cpu.len() / 2]
    }
}

/// Processor time of all threads of this process, in seconds; 0 if the system doesn't provide it.
fn cpu_seconds() -> f64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0.0 };
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|line| line.split(' ').next()?.parse::<f64>().ok())
        .sum::<f64>()
        / 1e9
}

/// Runs `body` once to warm up, then `repeats` times.
fn time(repeats: usize, mut body: impl FnMut()) -> Times {
    body();
    let mut times = Times { wall: Vec::new(), cpu: Vec::new() };
    for _ in 0..repeats {
        let (start, cpu) = (Instant::now(), cpu_seconds());
        body();
        times.wall.push(start.elapsed().as_secs_f64());
        times.cpu.push(cpu_seconds() - cpu);
    }
    times.wall.sort_by(f64::total_cmp);
    times.cpu.sort_by(f64::total_cmp);
    times
}

fn uniform(prompt: usize, sample: usize, position: usize) -> f64 {
    Numbers(((prompt * 1009 + sample) * 4099 + position) as u64 + 1).uniform()
}

fn generate(
    engine: &mut Engine,
    prompts: &[Vec<u32>],
    samples: usize,
    sampling: &Sampling,
) -> Vec<Completion> {
    let requests: Vec<Prompt<'_>> =
        prompts.iter().map(|tokens| Prompt { tokens, samples: 0..samples }).collect();
    let mut done = Vec::new();
    engine
        .generate(&requests, sampling, &uniform, None, &mut |completion| {
            done.push(completion);
            ControlFlow::Continue(())
        })
        .unwrap();
    done.sort_by_key(|completion| (completion.prompt, completion.sample));
    done
}

struct Bench {
    device: Device,
    repeats: usize,
    chunk: Option<usize>,
    numbers: Numbers,
    /// Whether every case is a few tokens through a few narrow layers: a check of this program.
    small: bool,
}

impl Bench {
    fn engine(&mut self, config: &Config) -> Engine {
        // Billions of normal numbers would take a minute.
        let large = config.num_hidden_layers * config.hidden_size > 20_000;
        let number = |index: u64| {
            let mut numbers = Numbers(index);
            if large { (numbers.uniform() - 0.5) * 12f64.sqrt() } else { numbers.normal() }
        };
        let mut engine = Engine::init(config, 0.02, &number, &self.device).unwrap();
        if let Some(tokens) = self.chunk {
            engine.set_chunk_tokens(tokens);
        }
        engine
    }

    fn print(&self, case: &str, times: &Times, tokens: usize, more: serde_json::Value) {
        let (median, cpu) = (times.median(), times.cpu_median());
        let (device, threads, products) = match self.device {
            Device::Cpu { threads, products } => {
                ("cpu", threads, format!("{products}, {}", products.unit().unwrap_or("emulated")))
            }
            _ => ("cuda", 0, String::new()),
        };
        let mut line = json!({
            "engine": "fgrpo", "simd": fgrpo_nn::kernels::simd(), "case": case, "device": device, "threads": threads, "products": products, "ms": median * 1e3,
            "best_ms": times.wall[0] * 1e3, "cpu_ms": cpu * 1e3, "tokens": tokens,
            "tokens_per_second": tokens as f64 / median, "tokens_per_cpu_second": tokens as f64 / cpu,
        });
        if let (Some(line), Some(more)) = (line.as_object_mut(), more.as_object()) {
            line.extend(more.clone());
        }
        println!("{line}");
    }

    /// Random sequences with predictions for every token but the first.
    fn sequences(&mut self, config: &Config, rows: usize, len: usize) -> Batch {
        let mut batch = Batch::default();
        for _ in 0..rows {
            let tokens = self.numbers.tokens(len, config.vocab_size);
            batch.push_segment(&tokens, None);
            let first = batch.tokens.len() - len;
            for (offset, &token) in tokens.iter().enumerate().skip(1) {
                batch.predict(first + offset - 1, token);
            }
        }
        batch
    }

    /// A training step on `rows` whole sequences, every token predicted but the first: forward, backward, AdamW; of all
    /// parameters or of adapters.
    fn train(&mut self, case: &str, config: &Config, rows: usize, len: usize, lora: Option<&LoraConfig>) {
        let mut engine = self.engine(config);
        if let Some(lora) = lora {
            engine.adapt(lora, &mut || self.numbers.uniform()).unwrap();
        }
        let batch = self.sequences(config, rows, len);
        let weight = -1.0 / batch.predictions.len() as f32;
        let seconds = time(self.repeats, || {
            engine.accumulate(&batch, 1.0, &|family| family.dlogp.fill(weight)).unwrap();
            assert!(engine.update(&AdamW { lr: 1e-4, ..AdamW::default() }, Some(1.0)).unwrap().applied);
        });
        let per = Flops::of(config, false, lora);
        let (tokens, pairs) = ((rows * len) as f64, (rows * len * (len + 1) / 2) as f64);
        let flops = tokens * (per.forward_token + per.backward_token)
            + pairs * (per.forward_pair + per.backward_pair)
            + batch.predictions.len() as f64 * (per.forward_prediction + per.backward_prediction);
        self.print(case, &seconds, rows * len, json!({"gflops": flops / seconds.median() / 1e9, "gflops_per_cpu": flops / seconds.cpu_median() / 1e9}));
    }

    /// Scores each sequence's last token.
    fn prefill(&mut self, case: &str, config: &Config, rows: usize, len: usize) {
        let mut engine = self.engine(config);
        let mut batch = Batch::default();
        for _ in 0..rows {
            batch.push_segment(&self.numbers.tokens(len, config.vocab_size), None);
            batch.predict(batch.tokens.len() - 1, 0);
        }
        let times = time(self.repeats, || {
            engine.score(&batch, 1.0).unwrap();
        });
        self.print(case, &times, rows * len, json!({}));
    }

    /// Samples `new` tokens after each of `rows` different prompts; prefill is timed separately and subtracted.
    fn decode(&mut self, case: &str, config: &Config, rows: usize, prompt: usize, new: usize) {
        let mut engine = self.engine(config);
        let prompts: Vec<Vec<u32>> =
            (0..rows).map(|_| self.numbers.tokens(prompt, config.vocab_size)).collect();
        let mut run = |new: usize| {
            let sampling = Sampling { max_new_tokens: new, ..Sampling::default() };
            time(self.repeats, || assert_eq!(generate(&mut engine, &prompts, 1, &sampling).len(), rows))
        };
        let (prefill, whole) = (run(1), run(new));
        let less = |list: &[f64], before: f64| list.iter().map(|seconds| seconds - before).collect();
        let times =
            Times { wall: less(&whole.wall, prefill.median()), cpu: less(&whole.cpu, prefill.cpu_median()) };
        let GraphCounts { steps, captured, replayed, ahead, nodes } = engine.graph_counts();
        // The weights in every step, and for every token the keys and values before it.
        let number =
            if matches!(self.device, Device::Cuda { precision: Precision::Bf16, .. }) { 2 } else { 4 };
        let token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim;
        let context = prompt * (new - 1) + new * (new - 1) / 2;
        let bytes = number * ((new - 1) * engine.parameters() + rows * context * token);
        let more = json!({
            "bytes_per_second": bytes as f64 / times.median(),
            "prefill_ms": prefill.median() * 1e3, "prefill_cpu_ms": prefill.cpu_median() * 1e3,
            "steps": {"all": steps, "captured": captured, "replayed": replayed, "ahead": ahead, "nodes": nodes},
        });
        self.print(case, &times, rows * (new - 1), more);
    }

    /// Samples of prompts and completions whose lengths are uniform in 100 to 1,024, as RL.cu's are measured: from the prompts to the last token, once.
    fn serve(&mut self, case: &str, config: &Config, rows: usize, lengths: std::ops::Range<usize>) {
        let mut engine = self.engine(config);
        let (first, span) = (lengths.start, lengths.len());
        let length = move |of: u64| first + (Numbers(of).uniform() * span as f64) as usize;
        let prompts: Vec<Vec<u32>> =
            (0..rows).map(|row| self.numbers.tokens(length(row as u64), config.vocab_size)).collect();
        // A sample's length follows from its first token.
        let stop = move |tokens: &[u32]| tokens.len() >= length(1000 + u64::from(tokens[0]));
        let sampling =
            Sampling { temperature: 0.6, top_k: 50, max_new_tokens: lengths.end, ..Sampling::default() };
        let requests: Vec<Prompt<'_>> =
            prompts.iter().map(|tokens| Prompt { tokens, samples: 0..1 }).collect();
        let mut run = |sampling: &Sampling| {
            let (start, cpu) = (Instant::now(), cpu_seconds());
            let mut sampled = 0;
            let mut count = |completion: Completion| {
                sampled += completion.tokens.len();
                ControlFlow::Continue(())
            };
            engine.generate(&requests, sampling, &uniform, Some(&stop), &mut count).unwrap();
            (sampled, Times { wall: vec![start.elapsed().as_secs_f64()], cpu: vec![cpu_seconds() - cpu] })
        };
        run(&Sampling { max_new_tokens: 8, ..sampling.clone() });
        let (sampled, times) = run(&sampling);
        let context = prompts.iter().map(Vec::len).sum::<usize>();
        self.print(
            case,
            &times,
            sampled,
            json!({"rows": rows, "prompt_tokens": context, "steps": engine.graph_counts().steps}),
        );
    }

    /// A reinforcement step: rollout and update.
    fn step(&mut self, case: &str, config: &Config, step: Step) {
        let Step { prompts: count, samples, prompt, new, temperature } = step;
        let mut engine = self.engine(config);
        let prompts: Vec<Vec<u32>> =
            (0..count).map(|_| self.numbers.tokens(prompt, config.vocab_size)).collect();
        let sampling = Sampling { temperature, max_new_tokens: new, ..Sampling::default() };
        let (mut rollout, mut update) = (Vec::new(), Vec::new());
        let (mut rows, mut entropy) = (0, 0.0);
        let seconds = time(self.repeats, || {
            let start = Instant::now();
            let done = generate(&mut engine, &prompts, samples, &sampling);
            rollout.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            let mut batch = Batch::default();
            let mut weights = Vec::new();
            for (prompt, group) in prompts.iter().zip(done.chunks(samples)) {
                let slices: Vec<&[u32]> =
                    group.iter().map(|completion| completion.tokens.as_slice()).collect();
                let indices = batch.push_group(prompt, &slices);
                weights.resize(batch.predictions.len(), 0.0f32);
                for (sample, indices) in indices.iter().enumerate() {
                    // An advantage of either sign, as a group with one success in four has.
                    let advantage = if sample % 4 == 0 { 1.5 } else { -0.5 };
                    indices
                        .iter()
                        .for_each(|&index| weights[index] -= advantage / (samples * count * new) as f32);
                }
            }
            rows = batch.tokens.len();
            entropy = done.iter().flat_map(|c| &c.entropy).sum::<f32>() / (done.len() * new) as f32;
            engine
                .accumulate(&batch, temperature, &|family| {
                    let own = family.predictions.iter().zip(family.dlogp);
                    own.for_each(|(&index, d)| *d = weights[index]);
                })
                .unwrap();
            // A rate of 0: every repeat is the same work.
            engine.update(&AdamW { lr: 0.0, ..AdamW::default() }, Some(1.0)).unwrap();
            update.push(start.elapsed().as_secs_f64());
        });
        let median = |list: &mut Vec<f64>| {
            list.sort_by(f64::total_cmp);
            list[list.len() / 2] * 1e3
        };
        let dense = count * samples * (prompt + new);
        let update_ms = median(&mut update);
        let per = Flops::of(config, false, None);
        let seen = prompt * (prompt + 1) / 2 + samples * new * (2 * prompt + new + 1) / 2;
        let flops = (count * (prompt + samples * new)) as f64 * (per.forward_token + per.backward_token)
            + (count * seen) as f64 * (per.forward_pair + per.backward_pair)
            + (count * samples * new) as f64 * (per.forward_prediction + per.backward_prediction);
        self.print(
            case,
            &seconds,
            dense,
            json!({
                "rollout_ms": median(&mut rollout), "update_ms": update_ms, "rows": rows,
                // Of prompts once and completions one by one: more than is computed where they share beginnings.
                "update_gflops": flops / update_ms / 1e6,
                "rows_without_sharing": dense, "mean_entropy": entropy,
            }),
        );
    }
}

/// The first GPU, with moments in f32.
fn gpu(precision: Precision) -> Device {
    Device::Cuda { gpu: 0, precision, moments: Precision::F32, exact: false }
}

fn main() {
    let mut bench =
        Bench { device: Device::cpu(2), repeats: 5, chunk: None, numbers: Numbers(7), small: false };
    let (mut cores, mut products) = (2, ProductFormat::F32);
    let mut wanted: Vec<String> = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|n| n.parse().ok()).expect("a number after the option");
        match argument.as_str() {
            "--gpu" => bench.device = gpu(Precision::F32),
            "--gpu-bf16" => bench.device = gpu(Precision::Bf16),
            "--threads" => cores = number(),
            "--products" => products = arguments.next().expect("f32, bf16x3, bf16 or blas").parse().unwrap(),
            "--repeats" => bench.repeats = number(),
            "--small" => bench.small = true,
            "--chunk" => bench.chunk = Some(number()),
            _ => wanted.push(argument),
        }
    }
    if matches!(bench.device, Device::Cpu { .. }) {
        bench.device = Device::Cpu { threads: cores, products };
    }
    let cases = [
        "train",
        "prefill",
        "decode",
        "maze-8",
        "maze-128",
        "maze-8-sure",
        "maze-128-sure",
        "lm-train",
        "lm-train-lora",
        "lm-prefill",
        "lm-decode",
    ];
    // Large: only if they are named.
    let large = [
        "qwen3-0.6b-decode",
        "qwen3-0.6b-served",
        "qwen3-0.6b-step",
        "qwen3-1.7b-step",
        "qwen2.5-7b-decode",
        "qwen2.5-7b-train",
        "qwen3.5-0.8b-train",
        "qwen3.5-0.8b-prefill",
    ];
    let named = |case: &&str| wanted.iter().any(|name| name == case);
    let all = wanted.is_empty();
    // Of a case: as it is, or little of it.
    let small = bench.small;
    let of = |count: usize, little: usize| if small { count.min(little) } else { count };
    let shape = |config: Config| {
        if !small {
            return config;
        }
        let (hidden_size, heads) = (64, (2, 1));
        Config {
            vocab_size: 64,
            hidden_size,
            intermediate_size: 64,
            num_hidden_layers: 1,
            num_attention_heads: heads.0,
            num_key_value_heads: heads.1,
            ..config
        }
    };
    for case in cases.into_iter().filter(|_| all).chain(cases.into_iter().chain(large).filter(named)) {
        let decode = |bench: &mut Bench, config, rows, prompt, new| {
            bench.decode(case, &shape(config), of(rows, 4), of(prompt, 12), of(new, 8));
        };
        let train = |bench: &mut Bench, config, rows, len, lora: Option<LoraConfig>| {
            bench.train(case, &shape(config), of(rows, 2), of(len, 24), lora.as_ref());
        };
        let prefill = |bench: &mut Bench, config, rows, len| {
            bench.prefill(case, &shape(config), of(rows, 2), of(len, 24));
        };
        let step = |bench: &mut Bench, config, samples, prompt, new, temperature| {
            let (prompts, samples) = (of(8, 2), of(samples, 2));
            bench.step(
                case,
                &shape(config),
                Step { prompts, samples, prompt: of(prompt, 12), new: of(new, 8), temperature },
            );
        };
        // The maze's: the temperature determines how often samples diverge; a trained policy is nearly certain at most positions.
        let maze = |bench: &mut Bench, samples, temperature| {
            step(bench, small_decoder(1024), samples, 310, 32, temperature);
        };
        let bench = &mut bench;
        match case {
            "train" => train(bench, small_decoder(688), 64, 160, None),
            "prefill" => prefill(bench, small_decoder(688), 256, 96),
            "decode" => decode(bench, small_decoder(688), 256, 96, 32),
            "maze-8" => maze(bench, 8, 1.0),
            "maze-128" => maze(bench, 128, 1.0),
            "maze-8-sure" => maze(bench, 8, 0.02),
            "maze-128-sure" => maze(bench, 128, 0.02),
            "lm-train" => train(bench, language(), 8, 256, None),
            "lm-train-lora" => train(bench, language(), 8, 256, Some(LoraConfig::default())),
            "lm-prefill" => prefill(bench, language(), 16, 256),
            "qwen3-0.6b-decode" => decode(bench, qwen("0.6b"), 256, 100, 128),
            "qwen3-0.6b-served" => {
                let lengths = if small { 4..16 } else { 100..1025 };
                bench.serve(case, &shape(qwen("0.6b")), of(256, 4), lengths);
            }
            "qwen3.5-0.8b-train" => train(bench, recurrent(), 2, 512, None),
            "qwen3.5-0.8b-prefill" => prefill(bench, recurrent(), 2, 512),
            "qwen3-0.6b-step" => step(bench, qwen("0.6b"), 8, 128, 256, 1.0),
            "qwen3-1.7b-step" => step(bench, qwen("1.7b"), 8, 128, 256, 1.0),
            "qwen2.5-7b-decode" => decode(bench, qwen("7b"), 512, 100, 64),
            // 12 bytes a parameter, with moments in bf16, leave room for this pass on a GPU of 141 GB.
            "qwen2.5-7b-train" => {
                if let Device::Cuda { moments, .. } = &mut bench.device {
                    *moments = Precision::Bf16;
                }
                train(bench, qwen("7b"), 8, 1024, None);
            }
            _ => decode(bench, language(), 64, 64, 32),
        }
    }
}
