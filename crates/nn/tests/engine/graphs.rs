//! Decoding as CUDA graphs gives the same bits as without, whatever changes between two steps. On the emulator, or with `FGRPO_TEST_DEVICE=cuda` on a GPU.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use fgrpo_nn::config::{Architecture, Config};
use fgrpo_nn::{
    AdamW, Batch, Completion, Device, Engine, GraphCounts, LoraConfig, Precision, Prompt, Sampling, StopFn,
};

use crate::device::device;
use crate::reference::{Numbers, configs, engine_on, seven_heads};

fn devices() -> [Device; 2] {
    [Precision::F32, Precision::Bf16].map(|precision| match device(1) {
        Device::Cuda { gpu, moments, .. } => Device::Cuda { gpu, precision, moments, exact: false },
        _ => Device::emulated(1 << 30, precision),
    })
}

fn exact_device(device: Device) -> Device {
    match device {
        Device::Cuda { gpu, precision, moments, .. } => Device::Cuda { gpu, precision, moments, exact: true },
        Device::CudaEmulated { memory, precision, moments, lost_after, .. } => {
            Device::CudaEmulated { memory, precision, moments, exact: true, lost_after }
        }
        _ => panic!("a GPU, not {device:?}"),
    }
}

/// A model for each precision, and one whose attention runs on tensor cores.
fn models() -> Vec<(Device, (&'static str, Config))> {
    let [full, half] = devices();
    let [first, second] = [0, 1].map(|index| configs().swap_remove(index));
    vec![(full, first), (half.clone(), second), (half, seven_heads())]
}

fn uniform(prompt: usize, sample: usize, position: usize) -> f64 {
    Numbers::new((prompt as u64 * 1009 + sample as u64) * 4099 + position as u64).uniform()
}

type Samples = BTreeMap<(usize, usize), Completion>;

fn sample(
    engine: &mut Engine,
    prompts: &[Prompt<'_>],
    sampling: &Sampling,
    stop: Option<&StopFn<'_>>,
) -> Samples {
    let mut done = Samples::new();
    engine
        .generate(prompts, sampling, &uniform, stop, &mut |completion| {
            done.insert((completion.prompt, completion.sample), completion);
            ControlFlow::Continue(())
        })
        .unwrap();
    done
}

fn train(engine: &mut Engine, tokens: &[u32]) {
    let mut batch = Batch::default();
    batch.push_segment(tokens, None);
    batch.predict(tokens.len() - 1, 3);
    engine.accumulate(&batch, 1.0, &|family| family.dlogp.fill(-1.0)).unwrap();
    assert!(engine.update(&AdamW { lr: 0.02, ..AdamW::default() }, None).unwrap().applied);
}

#[test]
fn samples_are_the_same_bits_with_and_without_graphs_whatever_changes_between_steps() {
    for (device, (name, config)) in models() {
        let mut numbers = Numbers::new(60);
        let short: Vec<Vec<u32>> = [3, 17, 40, 1, 9].map(|len| numbers.tokens(len, config.vocab_size)).into();
        // Beyond 256 tokens, where attention has several parts.
        let long = [numbers.tokens(270, config.vocab_size)];
        let settings = Sampling { max_new_tokens: 16, stop_tokens: vec![4, 7], ..Sampling::default() };
        let odd = |tokens: &[u32]| tokens.len() >= 5 && !tokens[tokens.len() - 1].is_multiple_of(2);
        let round = |engine: &mut Engine, round: usize| -> Samples {
            let request = |prompts: &'static str, samples: usize| -> Vec<Prompt<'_>> {
                let prompts = if prompts == "long" { &long[..] } else { &short[..] };
                prompts.iter().map(|tokens| Prompt { tokens, samples: 0..samples }).collect()
            };
            match round {
                // Again, with graphs from the beginning.
                0 | 1 => sample(engine, &request("short", 4), &settings, None),
                2 => {
                    let greedy = Sampling { temperature: 0.0, ..settings.clone() };
                    sample(engine, &request("short", 2), &greedy, None)
                }
                3 => {
                    let truncated =
                        Sampling { temperature: 0.7, top_p: 0.9, top_k: 12, min_p: 0.01, ..settings.clone() };
                    sample(engine, &request("short", 4), &truncated, None)
                }
                // Other weights at the same addresses.
                4 => {
                    train(engine, &short[1]);
                    sample(engine, &request("short", 4), &settings, None)
                }
                // A small cache, so that few rows run at a time.
                5 => {
                    let bounded = Sampling { max_cached_tokens: Some(128), ..settings.clone() };
                    sample(engine, &request("short", 4), &bounded, None)
                }
                // Another cache, rotary tables for more positions, and a stop condition.
                6 => {
                    let unbounded = Sampling { max_new_tokens: 300, ..settings.clone() };
                    sample(engine, &request("long", 12), &unbounded, Some(&odd))
                }
                7 => {
                    let mut numbers = Numbers::new(61);
                    let lora = LoraConfig { rank: 3, alpha: 6.0, ..LoraConfig::default() };
                    engine.adapt(&lora, &mut || numbers.uniform()).unwrap();
                    train(engine, &short[2]);
                    sample(engine, &request("short", 4), &settings, None)
                }
                _ => {
                    engine.set_adapter_applied(false);
                    sample(engine, &request("short", 4), &settings, None)
                }
            }
        };
        let [mut with, mut without] = [true, false].map(|graphs| {
            let mut engine = engine_on(&config, 62, &device);
            engine.set_cuda_graphs(graphs);
            engine
        });
        for number in 0..9 {
            let (found, wanted) = (round(&mut with, number), round(&mut without, number));
            println!("{device:?}, {name}, round {number}: {:?}", with.graph_counts());
            assert!(found.len() >= 10 && found == wanted, "{device:?}, {name}: round {number}");
        }
        let GraphCounts { steps, captured, replayed, ahead, .. } = with.graph_counts();
        assert_eq!(without.graph_counts(), GraphCounts { steps, captured: 0, replayed: 0, ahead, nodes: 0 });
        assert!(captured > 5 && 2 * replayed > steps && ahead > 20, "{:?}", with.graph_counts());
    }
}

#[test]
fn a_step_of_28_layers_has_256_nodes_and_284_if_it_is_exact() {
    for (exact, device) in [false, true].into_iter().flat_map(|exact| devices().map(|device| (exact, device)))
    {
        let device = if exact { exact_device(device) } else { device };
        for architecture in [Architecture::Qwen3, Architecture::Qwen2] {
            let config = Config { num_hidden_layers: 28, architecture, ..configs().swap_remove(0).1 };
            let mut engine = engine_on(&config, 67, &device);
            let prompts = [Prompt { tokens: &[1, 2, 3], samples: 0..3 }];
            let settings = Sampling { max_new_tokens: 4, top_k: 5, top_p: 0.9, ..Sampling::default() };
            assert_eq!(sample(&mut engine, &prompts, &settings, None).len(), 3);
            // Besides the layers: embedding, final norm, logits, drawing.
            let nodes = engine.graph_counts().nodes;
            assert_eq!(nodes, 28 * if exact { 10 } else { 9 } + 4, "{device:?}, {architecture:?}");
        }
    }
}

#[test]
fn rows_that_fill_up_a_bucket_and_places_in_the_cache_change_no_bit_of_a_sample() {
    // cuBLASLt may sum in another order for other numbers of rows.
    if !matches!(device(1), Device::Cuda { .. }) {
        for (device, (name, config)) in models() {
            let mut engine = engine_on(&config, 63, &device);
            let mut numbers = Numbers::new(64);
            let prompts: Vec<Vec<u32>> =
                [1, 5, 270, 20, 9].map(|len| numbers.tokens(len, config.vocab_size)).into();
            let request = |of: std::ops::Range<usize>| -> Vec<Prompt<'_>> {
                let samples = |index| if of.contains(&index) { 0..1 } else { 0..0 };
                let prompt = |(index, tokens)| Prompt { tokens, samples: samples(index) };
                prompts.iter().map(|tokens| tokens.as_slice()).enumerate().map(prompt).collect()
            };
            let settings = Sampling { max_new_tokens: 36, ..Sampling::default() };
            let all = sample(&mut engine, &request(0..5), &settings, None);
            assert_eq!(all.len(), 5);
            for part in [0..1, 2..4] {
                let few = sample(&mut engine, &request(part.clone()), &settings, None);
                assert_eq!(few.len(), part.len());
                for (key, found) in few {
                    assert!(found == all[&key], "{device:?}, {name}: {key:?} with {part:?}");
                }
            }
        }
    }
}

#[test]
fn steps_ahead_of_the_tokens_that_are_read_change_no_bit_of_a_sample() {
    for (device, (name, config)) in models() {
        let mut engine = engine_on(&config, 65, &device);
        let mut numbers = Numbers::new(66);
        let prompts: Vec<Vec<u32>> =
            [2, 9, 30, 4, 17, 1].map(|len| numbers.tokens(len, config.vocab_size)).into();
        let request = |samples: usize| -> Vec<Prompt<'_>> {
            prompts.iter().map(|tokens| Prompt { tokens, samples: 0..samples }).collect()
        };
        // Two greedy samples of a prompt are one row until their end, and two samples of a row may separate, so no step runs ahead.
        let greedy = Sampling { temperature: 0.0, max_new_tokens: 40, ..Sampling::default() };
        let ends = |tokens: &[u32]| tokens.iter().sum::<u32>().is_multiple_of(11);
        let together = sample(&mut engine, &request(2), &greedy, Some(&ends));
        let before = engine.graph_counts();
        assert_eq!(before.ahead, 0);
        let alone = sample(&mut engine, &request(1), &greedy, Some(&ends));
        let counts = engine.graph_counts();
        let steps = counts.steps - before.steps;
        assert!(steps > 5 && counts.ahead >= steps - 2, "{device:?}, {name}: {counts:?}");
        let lengths: Vec<usize> = alone.values().map(|completion| completion.tokens.len()).collect();
        assert!(lengths.iter().any(|len| *len != lengths[0]), "{name}: {lengths:?}");
        for (key, found) in &alone {
            assert!(*found == together[key], "{device:?}, {name}: {key:?}");
        }

        // The caller ends the rollout during a step, whose samples are dropped.
        let mut one = 0;
        let mut first = |_: Completion| {
            one += 1;
            ControlFlow::Break(())
        };
        engine.generate(&request(1), &greedy, &uniform, Some(&ends), &mut first).unwrap();
        assert_eq!(one, 1);
        assert!(sample(&mut engine, &request(1), &greedy, Some(&ends)) == alone, "{device:?}, {name}");
    }
}
