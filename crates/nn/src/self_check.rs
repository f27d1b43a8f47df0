//! Checks of the engine on the user's machine: its results against PyTorch's, and sampled against scored log-probabilities.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use crate::kernels::small_decoder;
use crate::weights::{Checkpoint, TensorFile};
use crate::{Batch, Completion, Device, Engine, Error, Prompt, Sampling};

/// A model with random weights that transformers saved, and PyTorch's results for it (`tests/golden/make.py`).
const FILES: [(&str, &[u8]); 3] = [
    ("config.json", include_bytes!("../tests/golden/qwen3_tied_bf16/config.json")),
    ("model.safetensors", include_bytes!("../tests/golden/qwen3_tied_bf16/model.safetensors")),
    ("expected.safetensors", include_bytes!("../tests/golden/qwen3_tied_bf16/expected.safetensors")),
];

/// Largest differences from PyTorch's results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Differences {
    /// Largest difference of log-probabilities and entropies.
    pub scores: f32,
    /// Largest difference of gradients, relative to the largest value of their tensor.
    pub gradients: f32,
}

/// Compares scores and gradients of a small model with PyTorch's. `folder` receives the model's files.
///
/// # Errors
/// If a file can't be written or the device fails.
pub fn against_pytorch(folder: &Path, device: &Device) -> Result<Differences, Error> {
    for (name, bytes) in FILES {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(Error::io("write", &path))?;
    }
    let expected = TensorFile::open(&folder.join("expected.safetensors"))?;
    let mut engine = Engine::open(&Checkpoint::open(folder)?, device)?;
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
    let temperature = expected.metadata()["temperature"].parse().expect("the file has a number");
    let tensor = |name: &str| expected.tensor(name);
    // The loss is the sum of a logp + c / 2 logp² + b entropy.
    let (a, b, c) = (tensor("a")?, tensor("b")?, tensor("c")?);
    let (scores, _) = engine.accumulate(&batch, temperature, &|family| {
        for (i, &token) in family.predictions.iter().enumerate() {
            family.dlogp[i] = a[token] + c[token] * family.logp[i];
            family.dentropy[i] = b[token];
        }
    })?;
    let mut gradients: f32 = 0.0;
    for (name, _, actual) in engine.gradients() {
        let expected = tensor(&format!("grad.{name}"))?;
        let size = expected.iter().fold(0f32, |size, x| size.max(x.abs()));
        let relative = largest_difference(&actual, &expected) / size;
        gradients = largest_difference(&[gradients, relative], &[0.0; 2]);
    }
    let scores = [scores.logp, scores.entropy].concat();
    Ok(Differences {
        scores: largest_difference(&scores, &[tensor("logp")?, tensor("entropy")?].concat()),
        gradients,
    })
}

/// Returns the largest difference between the log-probability of a token when it is sampled and when it is scored, and
/// the number of tokens sampled per second, for a model of 3.9M parameters and 64 sequences.
///
/// # Errors
/// If the device fails.
pub fn sampled_against_scored(device: &Device) -> Result<(f32, f64), Error> {
    // Uniform numbers of the same variance as normal ones.
    let number = |index: u64| 12f64.sqrt() * (uniform(index) - 0.5);
    let mut engine = Engine::init(&small_decoder(1024), 0.05, &number, device)?;
    let texts: Vec<Vec<u32>> =
        (0..8).map(|p| (0..20).map(|i| ((7 * p + i * i) % 32) as u32).collect()).collect();
    let prompts: Vec<Prompt<'_>> = texts.iter().map(|tokens| Prompt { tokens, samples: 0..8 }).collect();
    let sampling = Sampling { max_new_tokens: 100, ..Sampling::default() };
    let draw = |prompt: usize, sample: usize, position: usize| {
        uniform(((prompt * 8 + sample) * 100 + position) as u64)
    };
    let mut done: Vec<Completion> = Vec::new();
    let start = Instant::now();
    engine.generate(&prompts, &sampling, &draw, None, &mut |completion| {
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

/// Returns a random number in [0, 1) for each index, by SplitMix64.
fn uniform(index: u64) -> f64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns the largest difference of the values of two lists, or NaN if one is NaN. Panics if their lengths differ.
fn largest_difference(actual: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(actual.len(), expected.len(), "numbers of values");
    let differences = actual.iter().zip(expected).map(|(a, e)| (a - e).abs());
    differences.fold(0.0, |largest, next| if largest.is_nan() || next <= largest { largest } else { next })
}
