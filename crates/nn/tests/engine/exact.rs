//! `exact` devices: a token's log-probability has the same bits in sampling, scoring and training. On the emulator, and on the fake driver, whose
//! cuBLASLt sums in an order that depends on the number of rows.

use std::collections::BTreeMap;
use std::sync::Mutex;

use fgrpo_cuda::fake;
use fgrpo_nn::config::Config;
use fgrpo_nn::{
    AdamW, BaseFormat, Batch, Completion, Device, Engine, LoraConfig, Precision, Prompt, Sampling,
};

use crate::device::device;
use crate::generation::{Samples, queued, sample};
use crate::lora::adapted;
use crate::reference::{GEMMA, MISTRAL, Numbers, QWEN3_5, configs, engine_with_base, seven_heads};

fn emulated(precision: Precision, exact: bool) -> Device {
    match device(1) {
        Device::Cuda { gpu, moments, .. } => Device::Cuda { gpu, precision, moments, exact },
        _ => {
            let moments = Precision::F32;
            Device::CudaEmulated { memory: 1 << 30, precision, moments, exact, lost_after: None }
        }
    }
}

fn faked(precision: Precision, exact: bool) -> Device {
    Device::Cuda { gpu: 0, precision, moments: Precision::F32, exact }
}

/// A form of a model: Qwen2, with biases and, in bf16, tensor cores for passes that aren't exact; Qwen3, with norms of heads; forms with a window, of three tokens, so
/// that some rows see none of the first 256.
fn engine(form: usize, head_dim: usize, base: Option<BaseFormat>, device: &Device) -> Engine {
    let (_, config) = configs().swap_remove(form);
    let sliding_window = config.sliding_window.map(|_| 3);
    // The layers of Gemma and Qwen3.5 differ.
    let num_hidden_layers = if matches!(form, GEMMA | QWEN3_5) { 2 } else { 1 };
    engine_with_base(&Config { head_dim, num_hidden_layers, sliding_window, ..config }, 90, base, device)
}

fn with_adapters(engine: Engine) -> Engine {
    adapted(engine, &LoraConfig { rank: 3, alpha: 5.0, ..LoraConfig::default() })
}

/// Prompts within the first 256 tokens of a path, also with completions beyond them.
fn prompts(config: &Config) -> Vec<Vec<u32>> {
    let mut numbers = Numbers::new(92);
    [3, 252, 20, 1].map(|len| numbers.tokens(len, config.vocab_size)).into()
}

type Bits = (u32, u32);

fn bits((logp, entropy): (&f32, &f32)) -> Bits {
    (logp.to_bits(), entropy.to_bits())
}

/// The bits of scored or trained tokens of groups, by prompt and sample.
fn of_pass(
    engine: &mut Engine,
    groups: &[(usize, Vec<&Completion>)],
    prompts: &[Vec<u32>],
    temperature: f32,
    trains: bool,
) -> BTreeMap<(usize, usize), Vec<Bits>> {
    let mut batch = Batch::default();
    let mut places = Vec::new();
    for (prompt, group) in groups {
        let completions: Vec<&[u32]> = group.iter().map(|completion| completion.tokens.as_slice()).collect();
        let indices = batch.push_group(&prompts[*prompt], &completions);
        places.extend(group.iter().map(|completion| (*prompt, completion.sample)).zip(indices));
    }
    let found: Vec<Bits> = if trains {
        let all = Mutex::new(vec![(0, 0); batch.predictions.len()]);
        let (scores, _) = engine
            .accumulate(&batch, temperature, &|family| {
                let mut all = all.lock().unwrap();
                for (i, &index) in family.predictions.iter().enumerate() {
                    all[index] = bits((&family.logp[i], &family.entropy[i]));
                    family.dlogp[i] = (index % 5) as f32 * 0.1 - 0.2;
                }
            })
            .unwrap();
        let all = all.into_inner().unwrap();
        assert!(all == scores.logp.iter().zip(&scores.entropy).map(bits).collect::<Vec<_>>());
        all
    } else {
        let scores = engine.score(&batch, temperature).unwrap();
        scores.logp.iter().zip(&scores.entropy).map(bits).collect()
    };
    places
        .into_iter()
        .map(|(key, indices)| (key, indices.into_iter().map(|at| found[at]).collect()))
        .collect()
}

/// Number of sampled tokens, and of those whose bits differ when they are scored or trained on.
fn compare(name: &str, engine: &mut Engine, temperature: f32) -> (usize, usize) {
    let config = engine.config().clone();
    let prompts = prompts(&config);
    let requests: Vec<Prompt<'_>> = prompts.iter().map(|tokens| Prompt { tokens, samples: 0..2 }).collect();
    let sampling =
        Sampling { temperature, max_new_tokens: 7, stop_tokens: vec![4], top_p: 0.95, ..Sampling::default() };
    let samples: Samples = sample(engine, &requests, &sampling);
    assert_eq!(samples.len(), 8);
    // With other sequences in a batch, in another order, with other common beginnings: all at once, and some without the sequences with which they were sampled.
    let group = |prompt: usize, of: &[usize]| -> (usize, Vec<&Completion>) {
        (prompt, of.iter().map(|&sample| &samples[&(prompt, sample)]).collect())
    };
    let all: Vec<_> = (0..prompts.len()).rev().map(|prompt| group(prompt, &[1, 0])).collect();
    let few = [group(1, &[1]), group(2, &[0])];
    let (mut tokens, mut differ) = (0, 0);
    let mut against = |found: BTreeMap<(usize, usize), Vec<Bits>>| {
        for (key, found) in found {
            let sampled: Vec<Bits> =
                samples[&key].logp.iter().zip(&samples[&key].entropy).map(bits).collect();
            assert_eq!(found.len(), sampled.len());
            tokens += found.len();
            differ += found.iter().zip(&sampled).filter(|(found, sampled)| found != sampled).count();
        }
    };
    against(of_pass(engine, &few, &prompts, temperature, false));
    engine.set_checkpointing(true);
    against(of_pass(engine, &all, &prompts, temperature, true));
    engine.set_checkpointing(false);
    println!("{name}: {differ} of {tokens} differ");
    (tokens, differ)
}

/// Checks that exact devices have no differing bits, before and after an update, at two temperatures. A device that isn't exact must have some.
fn compare_all(device: &dyn Fn(Precision, bool) -> Device, models: &[(Precision, &str)]) {
    let made = |precision, model: &str, exact| -> Engine {
        let device = device(precision, exact);
        match model {
            "qwen2" => engine(0, 64, None, &device),
            "qwen2, seven heads" => engine_with_base(&seven_heads().1, 90, None, &device),
            "qwen2, nf4" => with_adapters(engine(0, 8, Some(BaseFormat::Nf4), &device)),
            "qwen3, adapters" => with_adapters(engine(1, 8, None, &device)),
            "gemma, adapters" => with_adapters(engine(GEMMA, 8, None, &device)),
            "gemma, nf4" => with_adapters(engine(GEMMA, 256, Some(BaseFormat::Nf4), &device)),
            "mistral" => engine(MISTRAL, 64, None, &device),
            "qwen3.5" => engine(QWEN3_5, 8, None, &device),
            "qwen3, nf4, odd head size" => with_adapters(engine(1, 10, Some(BaseFormat::Nf4), &device)),
            _ => panic!("{model}"),
        }
    };
    for &(precision, model) in models {
        let mut engine = made(precision, model, true);
        for temperature in [0.7, 1.0] {
            let (tokens, differ) = compare(&format!("{precision}, {model}"), &mut engine, temperature);
            assert!(tokens > 30 && differ == 0, "{precision}, {model}: {differ} of {tokens}");
            let report = engine.update(&AdamW { lr: 1e-2, ..AdamW::default() }, Some(1.0)).unwrap();
            assert!(report.applied);
        }
    }
    let (precision, model) = models[0];
    let mut engine = made(precision, model, false);
    let (tokens, differ) = compare(&format!("{precision}, {model}, not exact"), &mut engine, 1.0);
    assert!(10 * differ > tokens, "{differ} of {tokens}");
}

#[test]
fn sampled_scored_and_trained_log_probabilities_have_the_same_bits_in_f32() {
    let models = ["qwen3, adapters", "qwen3, nf4, odd head size", "gemma, adapters", "qwen3.5"];
    compare_all(&emulated, &models.map(|model| (Precision::F32, model)));
}

#[test]
fn sampled_scored_and_trained_log_probabilities_have_the_same_bits_in_bf16() {
    let models = ["qwen2", "qwen2, seven heads", "qwen2, nf4", "mistral", "gemma, nf4", "qwen3.5"];
    compare_all(&emulated, &models.map(|model| (Precision::Bf16, model)));
}

#[test]
fn they_have_with_algorithms_of_cublaslt_too() {
    // On a machine with a GPU the real cuBLASLt replaces the fake, and the tests above run with it.
    if fake::folder().exists() && fake::is_here("exact::they_have_with_algorithms_of_cublaslt_too", true, &[])
    {
        compare_all(&faked, &[(Precision::F32, "qwen3, adapters"), (Precision::Bf16, "qwen2, nf4")]);
        let report = fake::report();
        assert!(report.complaints.is_empty() && report.calls["cublasLtMatmulAlgoCheck"] > 0, "{report:?}");
    }
}

#[test]
fn a_prompt_that_continues_what_is_in_the_cache_has_the_bits_of_one_that_doesnt() {
    for precision in [Precision::F32, Precision::Bf16] {
        for (name, config) in configs().into_iter().take(2) {
            let mut engine = engine_with_base(&config, 93, None, &emulated(precision, true));
            let mut numbers = Numbers::new(94);
            let first = numbers.tokens(70, config.vocab_size);
            let _ = queued(&mut engine, std::slice::from_ref(&first), 3, 0, true);
            let second = [first, numbers.tokens(35, config.vocab_size)].concat();
            let continued = queued(&mut engine, std::slice::from_ref(&second), 3, 0, true);
            assert!(continued.values().all(|completion| completion.cached >= 64), "{continued:?}");
            let alone = queued(&mut engine, &[second], 3, 0, false);
            assert!(alone.values().all(|completion| completion.cached == 0));
            for (key, alone) in &alone {
                let Completion { tokens, logp, entropy, .. } = &continued[key];
                assert!(
                    (tokens, logp, entropy) == (&alone.tokens, &alone.logp, &alone.entropy),
                    "{precision}, {name}"
                );
            }
        }
    }
}
