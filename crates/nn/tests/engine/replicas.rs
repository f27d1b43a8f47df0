//! Replicas on several GPUs: one GPU's numbers to rounding, the same bits in every run, and no update that is half done. On the emulator, or on real
//! GPUs where the tests run on a GPU and there are enough.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fgrpo_cuda::emulated::Fault;
use fgrpo_nn::{
    AdamW, Batch, Completion, Device, Engine, FamilyScores, Gpus, LoraConfig, Precision, Prompt, Sampling,
};

use crate::cuda::{bits, copy_to, near, state, step, weights, with_rounded_moments};
use crate::reference::{Numbers, configs, engine_on, forest};

/// The first GPUs, so many.
fn gpus(count: usize, precision: Precision) -> Option<Device> {
    let gpus = Gpus::first(count);
    if std::env::var("FGRPO_TEST_DEVICE").is_ok_and(|name| name == "cuda" || name.starts_with("cuda:")) {
        let found = fgrpo_nn::gpus().map_or(0, |found| found.len());
        return (found >= count).then_some(Device::Cuda {
            gpus,
            precision,
            moments: Precision::F32,
            exact: false,
        });
    }
    Some(Device::emulated(gpus, 1 << 30, precision))
}

fn emulated(numbers: &str, fault: Fault) -> Device {
    let (gpus, [precision, moments]) = (numbers.parse().unwrap(), [Precision::F32; 2]);
    Device::CudaEmulated { gpus, memory: 1 << 30, precision, moments, exact: false, fault: Some(fault) }
}

fn adapt(engine: &mut Engine) {
    let mut numbers = Numbers::new(12);
    let lora = LoraConfig { rank: 3, alpha: 6.0, ..LoraConfig::default() };
    engine.adapt(&lora, &mut || numbers.uniform()).unwrap();
}

/// Three steps: scores and norms, and the weights.
fn three_steps(device: &Device, adapted: bool) -> (Vec<(Vec<f32>, f64)>, Vec<f32>) {
    let (_, config) = configs().swap_remove(1);
    let mut engine = engine_on(&config, 5, device);
    if adapted {
        adapt(&mut engine);
    }
    assert!(engine.replicas_are_equal());
    let steps = (0..3).map(|number| {
        let found = step(&mut engine, number);
        assert!(engine.replicas_are_equal(), "{device:?}: step {number}");
        found
    });
    let steps = steps.collect();
    (steps, weights(&engine))
}

#[test]
fn steps_of_several_replicas_are_those_of_one_to_rounding_and_repeat_bit_for_bit() {
    for (precision, adapted, tolerance, counts) in [
        (Precision::F32, false, 1e-4, &[2, 3][..]),
        (Precision::F32, true, 1e-4, &[2]),
        (Precision::Bf16, false, 2e-2, &[2]),
    ] {
        let Some(one) = gpus(1, precision) else { return };
        let (wanted, wanted_weights) = three_steps(&one, adapted);
        for &count in counts {
            let Some(device) = gpus(count, precision) else { continue };
            let what = format!("{device:?}, adapters: {adapted}");
            let (found, found_weights) = three_steps(&device, adapted);
            for ((scores, norm), (wanted, wanted_norm)) in found.iter().zip(&wanted) {
                near(scores, wanted, tolerance, &what);
                assert!((norm / wanted_norm - 1.0).abs() < f64::from(tolerance), "{what}: {norm}");
            }
            near(&found_weights, &wanted_weights, 10.0 * tolerance, &what);
            let (again, again_weights) = three_steps(&device, adapted);
            assert_eq!(found, again, "{what}");
            assert_eq!(bits(&found_weights), bits(&again_weights), "{what}");
        }
    }
}

fn gradients(engine: &Engine) -> Vec<f32> {
    engine.gradients().flat_map(|(_, _, values)| values.into_owned()).collect()
}

/// Adds the gradient of a batch of several trees.
fn accumulate(engine: &mut Engine, seed: u64) {
    let batch = forest(&mut Numbers::new(seed), engine.config().vocab_size, 5, 6, 4);
    let loss = |family: FamilyScores<'_>| {
        family.predictions.iter().zip(family.dlogp).for_each(|(&index, d)| *d = (index % 5) as f32 - 2.0);
    };
    engine.accumulate(&batch, 1.0, &loss).unwrap();
}

#[test]
fn the_gradient_is_the_sum_over_replicas_and_its_norm_changes_nothing() {
    // In bf16 a sum of attention that rounds the other way changes an activation by its last place.
    for (precision, tolerance) in [(Precision::F32, 1e-6), (Precision::Bf16, 2e-2)] {
        let agree = |found: &[f32], wanted: &[f32], what: &str| {
            let square = |x: f32| f64::from(x).powi(2);
            let apart: f64 = found.iter().zip(wanted).map(|(f, w)| square(f - w)).sum();
            let off = (apart / wanted.iter().copied().map(square).sum::<f64>()).sqrt();
            assert!(
                off < tolerance,
                "{what} in {precision}: {off:.1e} of its norm off, wanted below {tolerance}"
            );
        };
        let (Some(one), Some(three)) = (gpus(1, precision), gpus(3, precision)) else { return };
        let (_, config) = configs().swap_remove(0);
        let [mut one, mut three] = [one, three].map(|device| engine_on(&config, 4, &device));
        for engine in [&mut one, &mut three] {
            assert_eq!(engine.gradient_norm(), 0.0);
            accumulate(engine, 40);
            accumulate(engine, 41);
        }
        let (wanted, found) = (gradients(&one), gradients(&three));
        agree(&found, &wanted, "the gradient");
        let norm = found.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        for _ in 0..2 {
            assert!((three.gradient_norm() / norm - 1.0).abs() < 1e-9);
            assert_eq!(bits(&gradients(&three)), bits(&found));
        }
        accumulate(&mut one, 42);
        accumulate(&mut three, 42);
        agree(&gradients(&three), &gradients(&one), "after another batch");
        three.zero_gradient();
        assert!(gradients(&three).iter().all(|&g| g == 0.0));
    }
}

#[test]
fn a_batch_of_one_tree_on_three_replicas_gives_what_one_gives_bit_for_bit() {
    let (Some(one), Some(three)) = (gpus(1, Precision::F32), gpus(3, Precision::F32)) else { return };
    let (_, config) = configs().swap_remove(0);
    let steps = |device: Device| {
        let mut engine = engine_on(&config, 4, &device);
        for seed in 0..2 {
            let batch = forest(&mut Numbers::new(seed), config.vocab_size, 1, 6, 4);
            engine.accumulate(&batch, 1.0, &|family| family.dlogp.fill(1.0)).unwrap();
            engine.update(&AdamW { lr: 1e-2, ..AdamW::default() }, None).unwrap();
        }
        assert!(engine.replicas_are_equal());
        (bits(&weights(&engine)), state(&engine))
    };
    let rounded = [one.clone(), three.clone()].map(with_rounded_moments).map(steps);
    let full = [one, three].map(steps);
    assert!(full[0] == full[1]);
    assert!(rounded[0] == rounded[1], "how moments are rounded depends on the number of GPUs");
    assert!(rounded[0].1 != full[0].1);
}

#[test]
fn several_replicas_draw_the_samples_of_one() {
    let uniform = |prompt: usize, sample: usize, position: usize| {
        Numbers::new((prompt as u64 * 1009 + sample as u64) * 4099 + position as u64).uniform()
    };
    let (_, config) = configs().swap_remove(0);
    let mut numbers = Numbers::new(7);
    let tokens: Vec<Vec<u32>> = [3, 21, 5, 9].map(|len| numbers.tokens(len, config.vocab_size)).into();
    let sampling = Sampling { max_new_tokens: 12, top_p: 0.9, temperature: 0.8, ..Sampling::default() };
    // Four prompts, and one whose samples are divided.
    for prompts in [4, 1] {
        let draw = |device: Device| {
            let all = tokens[..prompts].iter().map(|tokens| Prompt { tokens, samples: 0..4 });
            let mut done = BTreeMap::new();
            let mut take = |completion: Completion| {
                done.insert((completion.prompt, completion.sample), completion);
                ControlFlow::Continue(())
            };
            let mut engine = engine_on(&config, 8, &device);
            engine.generate(&all.collect::<Vec<_>>(), &sampling, &uniform, None, &mut take).unwrap();
            done
        };
        let Some(one) = gpus(1, Precision::F32) else { return };
        let wanted = draw(one);
        assert_eq!(wanted.len(), 4 * prompts);
        for count in [2, 3] {
            let Some(device) = gpus(count, Precision::F32) else { continue };
            let found = draw(device);
            assert_eq!(found.len(), wanted.len());
            for (key, wanted) in &wanted {
                assert_eq!(found[key].tokens, wanted.tokens, "{count} replicas, {key:?}");
                near(&found[key].logp, &wanted.logp, 1e-5, "log-probabilities");
            }
        }
    }
}

#[test]
fn state_moves_between_numbers_of_replicas_and_goes_on_bit_for_bit_on_as_many() {
    for (precision, rounded) in [(Precision::F32, false), (Precision::Bf16, false), (Precision::F32, true)] {
        let (Some(mut one), Some(mut two)) = (gpus(1, precision), gpus(2, precision)) else { return };
        if rounded {
            [one, two] = [one, two].map(with_rounded_moments);
        }
        let (_, config) = configs().swap_remove(1);
        let mut first = engine_on(&config, 6, &two);
        step(&mut first, 0);
        let mut on_one = copy_to(&one, &first);
        let on_cpu = copy_to(&Device::cpu(1), &on_one);
        let mut back = copy_to(&two, &on_cpu);
        for engine in [&on_one, &on_cpu, &back] {
            assert_eq!(bits(&weights(&first)), bits(&weights(engine)));
            assert_eq!(state(&first), state(engine));
        }
        let wanted = step(&mut first, 1);
        assert_eq!(wanted, step(&mut back, 1));
        assert_eq!(bits(&weights(&first)), bits(&weights(&back)));
        assert_eq!(state(&first), state(&back));
        let (scores, _) = step(&mut on_one, 1);
        near(&scores, &wanted.0, 1e-4, "scores on one");
    }
}

#[test]
fn moments_in_host_memory_give_the_same_bits_on_two_replicas() {
    let Some(two) = gpus(2, Precision::F32) else { return };
    let (_, config) = configs().swap_remove(0);
    for device in [two.clone(), with_rounded_moments(two)] {
        let [kept, offloaded] = [false, true].map(|offload| {
            let mut engine = engine_on(&config, 6, &device);
            engine.set_optimizer_offload(offload);
            let steps: Vec<_> = (0..3).map(|number| step(&mut engine, number)).collect();
            assert!(engine.replicas_are_equal());
            engine.set_optimizer_offload(!offload);
            (steps, bits(&weights(&engine)), state(&engine))
        });
        assert!(kept == offloaded, "{device:?}");
    }
}

#[test]
fn a_lost_gpu_is_named_and_what_was_reported_as_done_is_done() {
    let (_, config) = configs().swap_remove(0);
    // The norm of each step that was done and the weights after it, the error that ended them, and the engine.
    let train = |device: &Device| {
        let mut engine = engine_on(&config, 3, device);
        let mut done = Vec::new();
        for seed in 0..3 {
            let batch = forest(&mut Numbers::new(seed), config.vocab_size, 4, 2, 3);
            let updated = engine
                .accumulate(&batch, 1.0, &|family| family.dlogp.fill(1.0))
                .and_then(|_| engine.update(&AdamW { lr: 1e-2, ..AdamW::default() }, None));
            match updated {
                Ok(report) => done.push((report.gradient_norm, bits(&weights(&engine)))),
                Err(error) => return (done, Some(error), engine),
            }
        }
        (done, None, engine)
    };
    let (wanted, error, _) = train(&Device::emulated("3,5".parse().unwrap(), 1 << 30, Precision::F32));
    assert!(error.is_none() && wanted.len() == 3, "{error:?}");
    let mut failed = 0;
    for launches in (0..).step_by(97) {
        let fault = Fault::Lost { device: 1, launches };
        let (done, Some(error), mut engine) = train(&emulated("3,5", fault)) else { break };
        failed += 1;
        assert_eq!(done[..], wanted[..done.len()], "lost after {launches} launches");
        let message = error.to_string();
        assert!(message.starts_with("GPU 5: ") && message.contains("--resume"), "{message}");
        assert!(engine.update(&AdamW::default(), None).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| weights(&engine))).is_err(), "nothing is taken for numbers");
    }
    assert!(failed > 3, "{failed} runs with a lost GPU");
}

#[test]
fn too_little_memory_names_the_gpu() {
    let (_, config) = configs().swap_remove(0);
    let device = Device::emulated("2,4".parse().unwrap(), 1000, Precision::F32);
    let message = Engine::init(&config, 0.1, &|_| 0.1, &device).unwrap_err().to_string();
    assert!(message.starts_with("GPU 2: ") && message.contains("out of memory"), "{message}");
}

#[test]
fn replicas_that_do_not_wait_for_each_other_are_found() {
    // Of an update's six waits: two before gradients are copied and two after, and two before parameters are copied.
    let (_, config) = configs().swap_remove(0);
    let train = |device: &Device| {
        let mut engine = engine_on(&config, 3, device);
        for seed in 0..10 {
            let batch: Batch = forest(&mut Numbers::new(seed), config.vocab_size, 4, 2, 3);
            engine.accumulate(&batch, 1.0, &|family| family.dlogp.fill(1.0)).unwrap();
            engine.update(&AdamW { lr: 1e-2, ..AdamW::default() }, None).unwrap();
        }
        (engine.replicas_are_equal(), bits(&weights(&engine)))
    };
    let wanted = train(&Device::emulated(Gpus::first(2), 1 << 30, Precision::F32));
    assert!(wanted.0);
    for number in 0..6 {
        let found = train(&emulated("0,1", Fault::ForgottenWait { number, of: 6 }));
        assert!(found != wanted, "without wait {number}");
    }
}
