//! `fgrpo devices --check`: computes on the CPU what PyTorch has computed, compares sampled with scored log-probabilities, and measures speed.

use fgrpo_core::rng::Key;
use fgrpo_nn::kernels::small_decoder;
use fgrpo_nn::weights::{Checkpoint, TensorFile};
use fgrpo_nn::{Batch, Completion, Device, Engine, ProductFormat, Prompt, Sampling, measure_flops};
use std::ops::ControlFlow;
use std::time::Instant;

/// A model with random weights that transformers saved, and PyTorch's results for it (`nn/tests/golden/make.py`).
const FILES: [(&str, &[u8]); 3] = [
    ("config.json", include_bytes!("../../../../nn/tests/golden/qwen3_tied_bf16/config.json")),
    ("model.safetensors", include_bytes!("../../../../nn/tests/golden/qwen3_tied_bf16/model.safetensors")),
    (
        "expected.safetensors",
        include_bytes!("../../../../nn/tests/golden/qwen3_tied_bf16/expected.safetensors"),
    ),
];

/// Largest allowed difference of log-probabilities and entropies, and of a gradient relative to its tensor's largest value.
const TOLERANCE: f32 = 1e-5;

/// Largest allowed difference with `bf16x3` products.
const BF16X3_TOLERANCE: f32 = 3e-4;

/// Prints a report in Markdown. Returns an error if a result is wrong.
pub(super) fn run(threads: usize) -> anyhow::Result<()> {
    outln!("\n| result | largest difference | |\n|---|---|---|");
    let mut failed = 0;
    let mut row = |name: &str, off: f32, allowed: f32| {
        // Also fails if the difference is NaN.
        let passed = off <= allowed;
        failed += usize::from(!passed);
        outln!("| {name} | {off:.1e} | {} |", if passed { "ok" } else { "WRONG" });
    };
    let device = Device::cpu(threads);
    let [scores, gradient] = golden(&device)?;
    row("log-probabilities and entropies, against PyTorch's", scores, TOLERANCE);
    row("gradients, against PyTorch's", gradient, TOLERANCE);
    // Emulated bfloat16 is of no use, so it isn't checked.
    let bf16x3 = ProductFormat::Bf16x3.unit();
    if let Some(unit) = bf16x3 {
        let [scores, gradient] = golden(&Device::Cpu { threads, products: ProductFormat::Bf16x3 })?;
        row(&format!("the same with products bf16x3 ({unit})"), scores.max(gradient), BF16X3_TOLERANCE);
    }
    let (sampled, rate) = sampled(&device)?;
    row("log-probabilities of sampling, against scoring", sampled, TOLERANCE);
    outln!("\n| speed | |\n|---|---|");
    outln!("| sampling, 3.9M parameters, 64 sequences | {rate:.0} tokens/s |");
    for threads in [1, threads] {
        let rate = measure_flops(threads, ProductFormat::F32) / 1e9;
        let unit = ProductFormat::F32.unit().unwrap_or_default();
        outln!("| products f32 ({unit}), {threads} threads | {rate:.0} GFLOP/s |");
    }
    if let Some(unit) = bf16x3 {
        let rate = measure_flops(threads, ProductFormat::Bf16x3) / 1e9;
        outln!("| products bf16x3 ({unit}), {threads} threads | {rate:.0} GFLOP/s |");
    }
    match (ProductFormat::Blas.check(), ProductFormat::Blas.unit()) {
        (Ok(()), Some(library)) => {
            let rate = measure_flops(threads, ProductFormat::Blas) / 1e9;
            outln!("| products blas ({library}), its number of threads | {rate:.0} GFLOP/s |");
        }
        (Err(why), _) => outln!("| products blas | {why} |"),
        _ => {}
    }
    if failed > 0 {
        anyhow::bail!(
            "{failed} of the results are wrong on this machine: please report it with the lines above"
        );
    }
    Ok(())
}

/// Returns the largest difference of the values of two lists, or NaN if one is NaN. Panics if their lengths differ.
fn largest_difference(actual: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(actual.len(), expected.len(), "numbers of values");
    let differences = actual.iter().zip(expected).map(|(a, e)| (a - e).abs());
    differences.fold(0.0, |largest, next| if largest.is_nan() || next <= largest { largest } else { next })
}

/// Returns the differences from PyTorch's scores, and from its gradients relative to the largest value of a tensor.
fn golden(device: &Device) -> anyhow::Result<[f32; 2]> {
    let folder = tempfile::tempdir()?;
    for (name, bytes) in FILES {
        std::fs::write(folder.path().join(name), bytes)?;
    }
    let expected = TensorFile::open(&folder.path().join("expected.safetensors"))?;
    let mut engine = Engine::open(&Checkpoint::open(folder.path())?, device)?;
    // The group and the lengths of prompt and completion of each sequence, followed by the tokens of all sequences.
    let tokens: Vec<u32> = expected.integers("tokens")?.iter().map(|&token| token as u32).collect();
    let (mut rest, mut batch) = (&tokens[..], Batch::default());
    for &[_, prompt, completion] in expected.integers("shape")?.as_chunks().0 {
        let (prompt, completion) = (prompt as usize, completion as usize);
        let (sequence, others) = rest.split_at(prompt + completion);
        rest = others;
        if completion > 0 {
            let first = batch.tokens.len() + prompt - 1;
            batch.push_segment(&sequence[..sequence.len() - 1], None);
            for (i, &token) in sequence[prompt..].iter().enumerate() {
                batch.predict(first + i, token);
            }
        }
    }
    let temperature = expected.metadata()["temperature"].parse()?;
    let tensor = |name: &str| expected.tensor(name);
    // The loss is the sum of a logp + c / 2 logp² + b entropy.
    let (a, b, c) = (tensor("a")?, tensor("b")?, tensor("c")?);
    let (scores, _) = engine.accumulate(&batch, temperature, &|family| {
        for (i, &token) in family.predictions.iter().enumerate() {
            family.dlogp[i] = a[token] + c[token] * family.logp[i];
            family.dentropy[i] = b[token];
        }
    })?;
    let mut gradient: f32 = 0.0;
    for (name, _, actual) in engine.gradients() {
        let expected = tensor(&format!("grad.{name}"))?;
        let size = expected.iter().fold(0f32, |size, x| size.max(x.abs()));
        let relative = largest_difference(&actual, &expected) / size;
        gradient = largest_difference(&[gradient, relative], &[0.0; 2]);
    }
    Ok([
        largest_difference(
            &[scores.logp, scores.entropy].concat(),
            &[tensor("logp")?, tensor("entropy")?].concat(),
        ),
        gradient,
    ])
}

/// Returns the largest difference between the log-probability of a token when it is sampled and when it is scored, and
/// the number of tokens sampled per second.
fn sampled(device: &Device) -> anyhow::Result<(f32, f64)> {
    let key = Key::new(1);
    let mut engine = Engine::init(&small_decoder(1024), 0.05, &|i| key.normal(i), device)?;
    let texts: Vec<Vec<u32>> =
        (0..8).map(|p| (0..20).map(|i| ((7 * p + i * i) % 32) as u32).collect()).collect();
    let prompts: Vec<Prompt<'_>> = texts.iter().map(|tokens| Prompt { tokens, samples: 0..8 }).collect();
    let sampling = Sampling { max_new_tokens: 100, ..Sampling::default() };
    let uniform = |prompt: usize, sample: usize, position: usize| {
        key.with(prompt as u64).with(sample as u64).uniform(position as u64)
    };
    let mut done: Vec<Completion> = Vec::new();
    let start = Instant::now();
    engine.generate(&prompts, &sampling, &uniform, None, &mut |completion| {
        done.push(completion);
        ControlFlow::Continue(())
    })?;
    let rate = (64 * 100) as f64 / start.elapsed().as_secs_f64();
    let mut batch = Batch::default();
    let places: Vec<Vec<usize>> =
        done.iter().flat_map(|c| batch.push_group(&texts[c.prompt], &[&c.tokens])).collect();
    let scores = engine.score(&batch, 1.0)?;
    let scored: Vec<f32> = places.concat().iter().map(|&place| scores.logp[place]).collect();
    let drawn: Vec<f32> = done.iter().flat_map(|c| c.logp.iter().copied()).collect();
    Ok((largest_difference(&drawn, &scored), rate))
}
