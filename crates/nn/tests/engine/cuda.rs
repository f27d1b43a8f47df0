//! The emulated GPU compared with the CPU: the same values to rounding, states that move between them, and the GPU's errors.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fgrpo_nn::config::Config;
use fgrpo_nn::{
    AdamW, BaseFormat, Batch, Device, Engine, Error, GpuSettings, LoraConfig, Needs, OptimizerState,
    Precision, ProductFormat, Prompt, Sampling, StopFn, Workload,
};

use crate::lora::adapted;
use crate::optimizer::load_state;
use crate::reference::{
    BASES, GEMMA, MISTRAL, Numbers, configs, engine_on, engine_with_base, forest, seven_heads, with_recurrent,
};

const CPU: Device = Device::cpu(1);
const GPU: Device = Device::emulated(1 << 30, Precision::F32);
const GPU_BF16: Device = Device::emulated(1 << 30, Precision::Bf16);

/// A GPU with moments in bf16.
fn with_rounded_moments(device: Device) -> Device {
    let Device::CudaEmulated { memory, precision, exact, lost_after, .. } = device else {
        panic!("the emulated GPU, not {device:?}")
    };
    Device::CudaEmulated { memory, precision, moments: Precision::Bf16, exact, lost_after }
}

fn adamw() -> AdamW {
    AdamW { lr: 1e-2, ..AdamW::default() }
}

/// One step on a separate batch. Returns the scores and the gradient's norm.
fn step(engine: &mut Engine, number: u64) -> (Vec<f32>, f64) {
    let batch: Batch = forest(&mut Numbers::new(100 + number), engine.config().vocab_size, 3, 5, 5);
    let (scores, _) = engine
        .accumulate(&batch, 0.8, &|family| {
            for (i, &index) in family.predictions.iter().enumerate() {
                family.dlogp[i] = (index % 5) as f32 - 2.0 + 0.1 * family.logp[i];
                family.dentropy[i] = (index % 3) as f32 * 0.1;
            }
        })
        .unwrap();
    let report = engine.update(&adamw(), Some(1.0)).unwrap();
    assert!(report.applied);
    (scores.logp, report.gradient_norm)
}

fn weights(engine: &Engine) -> Vec<f32> {
    engine.tensors().flat_map(|(_, _, values)| values.into_owned()).collect()
}

/// A copy of the state, as in a checkpoint.
fn state(engine: &Engine) -> OptimizerState<'static> {
    let OptimizerState { step, tensors } = engine.optimizer_state();
    let own = |(name, shape, values): (String, Vec<usize>, std::borrow::Cow<'_, [f32]>)| {
        (name, shape, values.into_owned().into())
    };
    OptimizerState { step, tensors: tensors.into_iter().map(own).collect() }
}

/// An engine on a device with the state of another engine.
fn copy_to(device: &Device, from: &Engine) -> Engine {
    let mut to = Engine::init(from.config(), 0.0, &|_| 0.0, device).unwrap();
    for (name, _, values) in from.tensors() {
        to.set_tensor(name, &values).unwrap();
    }
    load_state(&mut to, &state(from)).unwrap();
    to
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn near(found: &[f32], wanted: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (i, (f, w)) in found.iter().zip(wanted).enumerate() {
        assert!((f - w).abs() <= tolerance * (1.0 + w.abs()), "{what}[{i}]: found {f}, wanted {w}");
    }
}

#[test]
fn steps_on_both_devices_are_equal_to_rounding_for_every_architecture_setting() {
    for (name, config) in configs() {
        let (mut cpu, mut gpu) = (engine_on(&config, 5, &CPU), engine_on(&config, 5, &GPU));
        assert_eq!(bits(&weights(&cpu)), bits(&weights(&gpu)), "{name}: the initial weights");
        for number in 0..3 {
            let ((a, norm_a), (b, norm_b)) = (step(&mut cpu, number), step(&mut gpu, number));
            near(&b, &a, 1e-4, name);
            assert!((norm_a / norm_b - 1.0).abs() < 1e-4, "{name}: norms {norm_a} and {norm_b}");
        }
        near(&weights(&gpu), &weights(&cpu), 1e-3, name);
    }
}

#[test]
fn a_resumed_engine_goes_on_bit_for_bit_and_state_moves_between_devices() {
    let (_, config) = configs().swap_remove(1);
    let mut gpu = engine_on(&config, 6, &GPU);
    step(&mut gpu, 0);
    let mut resumed = copy_to(&GPU, &gpu);
    let mut on_cpu = copy_to(&CPU, &gpu);
    let mut back = copy_to(&GPU, &on_cpu);
    for engine in [&resumed, &on_cpu, &back] {
        assert_eq!(bits(&weights(&gpu)), bits(&weights(engine)));
        assert_eq!(state(&gpu), state(engine));
    }
    let wanted = step(&mut gpu, 1);
    assert_eq!(wanted, step(&mut resumed, 1));
    assert_eq!(wanted, step(&mut back, 1));
    assert_eq!(bits(&weights(&gpu)), bits(&weights(&back)));
    let (scores, _) = step(&mut on_cpu, 1);
    near(&scores, &wanted.0, 1e-4, "scores on the processor");
}

#[test]
fn samples_on_both_devices_are_the_same_tokens() {
    let uniform = |prompt: usize, sample: usize, position: usize| {
        Numbers::new((prompt as u64 * 1009 + sample as u64) * 4099 + position as u64).uniform()
    };
    for (name, config) in configs() {
        let mut numbers = Numbers::new(7);
        let tokens: Vec<Vec<u32>> = [3, 21].map(|len| numbers.tokens(len, config.vocab_size)).into();
        let prompts: Vec<Prompt<'_>> = tokens.iter().map(|tokens| Prompt { tokens, samples: 0..4 }).collect();
        let sampling = Sampling { max_new_tokens: 12, top_p: 0.9, temperature: 0.8, ..Sampling::default() };
        let [cpu, gpu] = [CPU, GPU].map(|device| {
            let mut done = std::collections::BTreeMap::new();
            let mut take = |completion: fgrpo_nn::Completion| {
                done.insert((completion.prompt, completion.sample), completion);
                ControlFlow::Continue(())
            };
            engine_on(&config, 8, &device).generate(&prompts, &sampling, &uniform, None, &mut take).unwrap();
            done
        });
        assert_eq!(cpu.len(), 8);
        for (key, wanted) in &cpu {
            assert_eq!(gpu[key].tokens, wanted.tokens, "{name} {key:?}");
            near(&gpu[key].logp, &wanted.logp, 1e-4, name);
            near(&gpu[key].entropy, &wanted.entropy, 1e-4, name);
        }
    }
}

#[test]
fn too_little_memory_names_the_setting_to_lower() {
    let (_, config) = configs().swap_remove(0);
    let parameters: usize = weights(&engine_on(&config, 9, &CPU)).len();
    let message = |error: Error| {
        let message = error.to_string();
        assert!(message.contains("out of memory"), "{message}");
        message
    };
    let few = Device::emulated(2 * parameters, Precision::F32);
    let error = Engine::init(&config, 0.1, &|_| 0.1, &few).unwrap_err();
    assert!(message(error).contains("[lora]"));

    // Room for weights, gradient and moments, but not for a pass.
    let some = Device::emulated(16 * parameters + (300 << 10), Precision::F32);
    let mut engine = Engine::init(&config, 0.1, &|_| 0.1, &some).unwrap();
    let mut batch = Batch::default();
    batch.push_segment(&Numbers::new(10).tokens(3000, config.vocab_size), None);
    batch.predict(2999, 1);
    let error = engine.accumulate(&batch, 1.0, &|family| family.dlogp.fill(1.0)).unwrap_err();
    assert!(message(error).contains("update.micro_batch_tokens"));
    // A failed device stays failed, and none of its values is used.
    assert!(engine.score(&batch, 1.0).is_err());
    assert!(engine.update(&adamw(), None).is_err());
    let read = catch_unwind(AssertUnwindSafe(|| weights(&engine)));
    assert!(read.is_err());

    let mut engine = Engine::init(&config, 0.1, &|_| 0.1, &some).unwrap();
    let prompt = [1u32; 8];
    let sampling = Sampling { max_new_tokens: 2000, max_cached_tokens: Some(1 << 20), ..Sampling::default() };
    let prompts = [Prompt { tokens: &prompt, samples: 0..40 }];
    let error = engine
        .generate(
            &prompts,
            &sampling,
            &|_, s, p| ((s * 7919 + p * 104_729) % 1000) as f64 / 1000.0,
            None,
            &mut |_| ControlFlow::Continue(()),
        )
        .unwrap_err();
    assert!(message(error).contains("rollout.max_cached_tokens"));
}

#[test]
fn adapters_on_both_devices_are_equal_to_rounding() {
    for (form, base) in BASES.map(|base| (0, base)).into_iter().chain([(GEMMA, BASES[1])]) {
        let [cpu, gpu] = [CPU, GPU].map(|device| trained(form, base, &device));
        // The values of a base are the same on both, bit for bit.
        assert_eq!(bits(&cpu.0), bits(&gpu.0), "{form}, {base:?}");
        near(&gpu.1, &cpu.1, 1e-3, "merged weights");
    }
}

/// The weights without adapters, and after three steps with them.
fn trained(form: usize, base: Option<BaseFormat>, device: &Device) -> (Vec<f32>, Vec<f32>) {
    let (_, config) = configs().swap_remove(form);
    let lora = LoraConfig { rank: 3, alpha: 6.0, ..LoraConfig::default() };
    let mut engine = engine_with_base(&config, 11, base, device);
    let base = weights(&engine);
    let mut numbers = Numbers::new(12);
    engine.adapt(&lora, &mut || numbers.uniform()).unwrap();
    for number in 0..3 {
        step(&mut engine, number);
    }
    let merged = weights(&engine);
    engine.set_adapter_applied(false);
    assert_eq!(bits(&weights(&engine)), bits(&base), "without its adapter it is the base model");
    engine.set_adapter_applied(true);
    assert_eq!(bits(&weights(&engine)), bits(&merged));
    (base, merged)
}

#[test]
fn heads_beyond_the_kernels_and_devices_that_are_not_there_are_refused_by_name() {
    let (_, config) = configs().swap_remove(0);
    let large = Config { head_dim: 512, ..config.clone() };
    let message = Engine::init(&large, 0.1, &|_| 0.1, &GPU).unwrap_err().to_string();
    assert!(message.contains("head_dim") && message.contains("512"), "{message}");
    if fgrpo_nn::gpus().map_or(true, |found| found.len() < 64) {
        let message = Engine::init(
            &config,
            0.1,
            &|_| 0.1,
            &Device::Cuda { gpu: 63, precision: Precision::F32, moments: Precision::F32, exact: false },
        )
        .unwrap_err()
        .to_string();
        assert!(message.contains("CUDA") && message.contains("--device cpu"), "{message}");
    }
}

#[test]
fn in_bf16_weights_stay_exact_and_steps_agree_to_the_rounding_of_16_bits() {
    for (name, config) in configs() {
        let (mut exact, mut half) = (engine_on(&config, 5, &GPU), engine_on(&config, 5, &GPU_BF16));
        assert_eq!(bits(&weights(&exact)), bits(&weights(&half)), "{name}: all 32 bits are kept");
        for number in 0..3 {
            let before = weights(&half);
            let ((a, norm_a), (b, norm_b)) = (step(&mut exact, number), step(&mut half, number));
            // From equal weights the only difference is the rounding of 16 bits. AdamW turns it into whole steps if gradients are small, so
            // the two diverge from there on.
            if number == 0 {
                near(&b, &a, 0.02, name);
            }
            let apart = b.iter().zip(&a).map(|(b, a)| (b - a).abs()).sum::<f32>() / a.len() as f32;
            assert!(apart < 0.15, "{name}: step {number}: log-probabilities are {apart} apart");
            // A recurrent layer's norm divides by small values, and amplifies their rounding.
            let off = if config.is_recurrent() { 0.15 } else { 0.05 };
            assert!((norm_a / norm_b - 1.0).abs() < off, "{name}: norms {norm_a} and {norm_b}");
            let moved = weights(&half).iter().zip(&before).filter(|(a, b)| a != b).count();
            assert!(moved > before.len() / 2, "{name}: {moved} of {} weights moved", before.len());
        }
        // AdamW moves every weight by about lr per step, however large its gradient is.
        near(&weights(&half), &weights(&exact), 0.07, name);
    }
}

#[test]
fn in_bf16_gradients_through_tensor_cores_are_those_of_f32_to_the_rounding_of_16_bits() {
    for (form, head_dim, num_attention_heads) in [(1, 64, 4), (1, 128, 2), (MISTRAL, 64, 4)] {
        let (_, config) = configs().swap_remove(form);
        let config =
            Config { head_dim, num_attention_heads, num_key_value_heads: 2, num_hidden_layers: 2, ..config };
        // Trees with segments of up to 30 tokens: several tiles of attention.
        let batch = forest(&mut Numbers::new(31), config.vocab_size, 3, 4, 30);
        let [exact, half] = [CPU, GPU_BF16].map(|device| {
            let mut engine = engine_on(&config, 17, &device);
            engine
                .accumulate(&batch, 1.0, &|family| {
                    let own = family.predictions.iter().zip(family.dlogp);
                    own.for_each(|(&index, d)| *d = (index % 7) as f32 - 3.0);
                })
                .unwrap();
            let own = |(name, _, values): fgrpo_nn::NamedTensor<'_>| (name.to_owned(), values.into_owned());
            engine.gradients().map(own).collect::<Vec<_>>()
        });
        for ((name, exact), (_, half)) in exact.iter().zip(&half) {
            let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt();
            let off =
                norm(&mut exact.iter().zip(half).map(|(a, b)| a - b)) / norm(&mut exact.iter().copied());
            assert!(off < 0.03, "{form}, heads of {head_dim}: {name}: {off} of its norm off");
        }
    }
}

/// All values of an optimizer's state, first and second moments in turn.
fn moments(engine: &Engine) -> Vec<Vec<f32>> {
    state(engine).tensors.into_iter().map(|(_, _, values)| values.into_owned()).collect()
}

#[test]
fn moments_in_bf16_are_those_of_f32_to_their_rounding_and_resume_bit_for_bit() {
    let (_, config) = configs().swap_remove(1);
    for device in [GPU, GPU_BF16] {
        let rounded = with_rounded_moments(device.clone());
        let (mut full, mut half) = (engine_on(&config, 6, &device), engine_on(&config, 6, &rounded));
        // Weights are updated before moments are rounded, so the first step is the same.
        assert_eq!(step(&mut full, 0), step(&mut half, 0));
        assert_eq!(bits(&weights(&full)), bits(&weights(&half)));
        let mut moved = 0;
        for (full, half) in moments(&full).iter().zip(moments(&half)) {
            for (full, half) in full.iter().zip(half) {
                assert_eq!(half.to_bits() & 0xffff, 0, "{half}");
                assert!((full - half).abs() <= full.abs() / 128.0, "{half} for {full}");
                moved += usize::from(*full != half);
            }
        }
        assert!(moved > 1000, "{moved} numbers were rounded");

        // Via the f32 of a checkpoint and the CPU.
        step(&mut half, 1);
        let on_cpu = copy_to(&CPU, &half);
        let (mut resumed, mut again) = (copy_to(&rounded, &half), copy_to(&rounded, &on_cpu));
        for engine in [&on_cpu, &resumed, &again] {
            assert_eq!(state(&half), state(engine));
        }
        for number in 2..4 {
            let wanted = step(&mut half, number);
            for engine in [&mut resumed, &mut again] {
                assert_eq!(wanted, step(engine, number));
                assert_eq!(bits(&weights(&half)), bits(&weights(engine)));
                assert_eq!(state(&half), state(engine));
            }
        }
        // Moments in f32 are rounded to nearest when they are loaded.
        let loaded = copy_to(&rounded, &full);
        for (full, loaded) in moments(&full).iter().zip(moments(&loaded)) {
            for (full, loaded) in full.iter().zip(loaded) {
                assert_eq!(loaded.to_bits() & 0xffff, 0);
                assert!((full - loaded).abs() <= full.abs() / 256.0, "{loaded} for {full}");
            }
        }
        // And from bf16 they continue in f32.
        let mut back = copy_to(&device, &loaded);
        assert_eq!(state(&loaded), state(&back));
        step(&mut back, 1);
        assert!(moments(&back).iter().flatten().any(|value| value.to_bits() & 0xffff != 0));
    }
}

#[test]
fn moments_in_host_memory_give_the_same_bits_and_spare_the_device_8_bytes_per_parameter() {
    let (_, config) = configs().swap_remove(0);
    let lora = LoraConfig { rank: 3, alpha: 6.0, ..LoraConfig::default() };
    let cases = [(GPU, false), (GPU_BF16, false), (GPU, true)];
    let rounded = cases.clone().map(|(device, adapted)| (with_rounded_moments(device), adapted));
    for (device, adapted) in cases.into_iter().chain(rounded) {
        let [mut kept, mut offloaded] = [false, true].map(|offload| {
            let mut engine = engine_on(&config, 6, &device);
            engine.set_optimizer_offload(offload);
            if adapted {
                let mut numbers = Numbers::new(12);
                engine.adapt(&lora, &mut || numbers.uniform()).unwrap();
            }
            engine
        });
        for number in 0..4 {
            assert_eq!(step(&mut kept, number), step(&mut offloaded, number));
            assert_eq!(bits(&weights(&kept)), bits(&weights(&offloaded)), "step {number}");
        }
        assert_eq!(state(&kept), state(&offloaded));
        // Moved there and back, and resumed from each other's state.
        kept.set_optimizer_offload(true);
        offloaded.set_optimizer_offload(false);
        assert_eq!(state(&kept), state(&offloaded));
        assert_eq!(step(&mut kept, 4), step(&mut offloaded, 4));
        offloaded.set_optimizer_offload(true);
        load_state(&mut offloaded, &state(&kept)).unwrap();
        assert_eq!(step(&mut kept, 5), step(&mut offloaded, 5));
        assert_eq!(bits(&weights(&kept)), bits(&weights(&offloaded)));
    }

    // The smallest memory in which a step runs.
    let least = |moments: Precision, offload: bool| {
        let fits = |memory: usize| {
            let (precision, lost_after) = (Precision::F32, None);
            let device = Device::CudaEmulated { memory, precision, moments, exact: false, lost_after };
            let Ok(mut engine) = Engine::init(&config, 0.1, &|_| 0.1, &device) else { return false };
            engine.set_optimizer_offload(offload);
            let mut batch = Batch::default();
            batch.push_segment(&[1, 2], None);
            batch.predict(1, 1);
            engine.accumulate(&batch, 1.0, &|family| family.dlogp.fill(1.0)).is_ok()
                && engine.update(&adamw(), None).is_ok()
        };
        let (mut no, mut yes) = (0usize, 1 << 20);
        assert!(fits(yes));
        while yes - no > 256 {
            let middle = no.midpoint(yes);
            if fits(middle) { yes = middle } else { no = middle }
        }
        yes as f64
    };
    let parameters = engine_on(&config, 6, &CPU).parameters() as f64;
    // Both moments, except for the two buffers of a sixteenth of each.
    let [full, half] = [Precision::F32, Precision::Bf16].map(|moments| {
        let (kept, offloaded) = (least(moments, false), least(moments, true));
        let (spared, wanted) =
            ((kept - offloaded) / parameters, if moments == Precision::F32 { 8.0 } else { 4.0 });
        assert!((spared - wanted * (1.0 - 2.0 / 16.0)).abs() < 0.2, "{spared} bytes per parameter");
        kept
    });
    let spared = (full - half) / parameters;
    assert!((spared - 4.0).abs() < 0.2, "{spared} bytes per parameter");
}

#[test]
fn computed_needs_are_what_the_device_holds() {
    let (_, config) = configs().swap_remove(1);
    let config = Config {
        vocab_size: 256,
        hidden_size: 64,
        intermediate_size: 160,
        head_dim: 16,
        num_hidden_layers: 2,
        max_position_embeddings: 512,
        ..config
    };
    let (prompt_tokens, family_tokens, predicting_rows) = (60, 120, 40);
    // A step with a small rollout; a rollout in which keys and values are much of the memory; and one whose keys and values replace an update's
    // gradient and activations, because there is too little memory for both.
    let (full, half) = (Precision::F32, Precision::Bf16);
    let cases = [
        (full, full, false, true, 8, 20, None, false),
        (full, full, false, false, 12, 80, None, false),
        (half, half, false, true, 8, 20, None, false),
        (full, full, false, true, 40, 3900, None, false),
        (full, full, false, true, 8, 20, Some(BaseFormat::Nf4), false),
        (half, full, false, true, 8, 20, Some(BaseFormat::Bf16), false),
        (half, full, true, true, 8, 20, None, false),
        (half, half, false, true, 8, 20, None, true),
        (full, full, false, false, 16, 80, None, true),
    ];
    let (_, recurrent) = with_recurrent(0).swap_remove(1);
    let recurrent = Config {
        vocab_size: 256,
        hidden_size: 64,
        intermediate_size: 160,
        head_dim: 16,
        rms_norm_eps: config.rms_norm_eps,
        ..recurrent
    };
    for (precision, moments, exact, trains, samples, new_tokens, base, has_states) in cases {
        let lora = base.map(|_| LoraConfig { rank: 2, ..LoraConfig::default() });
        let workload = Workload {
            threads: 1,
            products: ProductFormat::F32,
            gpu: Some(GpuSettings { precision, moments, exact, memory: None }),
            chunk_tokens: 360,
            checkpointing: false,
            optimizer_offload: false,
            lora: lora.clone(),
            base,
            family_tokens: if trains { family_tokens } else { 0 },
            predicting_rows,
            prompts: 2,
            prompt_tokens,
            samples: 2 * samples,
            new_tokens,
            max_cached_tokens: None,
        };
        let config = if has_states { &recurrent } else { &config };
        let config = Config { max_position_embeddings: 512.max(2 * new_tokens), ..config.clone() };
        let needs = Needs::of(&config, &workload);
        let computed = needs.total();
        let overlaid = needs.cache > 64 << 20;
        let run = |memory: u64| -> Result<(), Error> {
            let (memory, lost_after) = (memory as usize, None);
            let device = Device::CudaEmulated { memory, precision, moments, exact, lost_after };
            let number = |i: u64| (i % 17) as f64 / 8.0 - 1.0;
            let mut engine = Engine::init_with_base(&config, 0.1, &number, base, &device)?;
            if let Some(lora) = &lora {
                engine.adapt(lora, &mut || 0.5)?;
            }
            engine.set_chunk_tokens(workload.chunk_tokens);
            let mut numbers = Numbers::new(3);
            for _ in 0..if overlaid { 2 } else { 1 } {
                if trains {
                    let mut batch = Batch::default();
                    for _ in 0..3 {
                        batch.push_segment(&numbers.tokens(family_tokens, config.vocab_size), None);
                        let rows = batch.tokens.len();
                        (rows - predicting_rows..rows).for_each(|row| _ = batch.predict(row, 1));
                    }
                    // The first family has no derivative, so the rows of the others move.
                    engine.accumulate(&batch, 1.0, &|family| {
                        let derivative = |index| if index < predicting_rows { 0.0 } else { 1e-3 };
                        family
                            .predictions
                            .iter()
                            .zip(family.dlogp)
                            .for_each(|(&index, d)| *d = derivative(index));
                    })?;
                    engine.update(&adamw(), Some(1.0))?;
                }
                let tokens = numbers.tokens(prompt_tokens, config.vocab_size);
                let prompts = [(); 2].map(|()| Prompt { tokens: &tokens, samples: 0..samples });
                // Without a limit, the cache would be the remaining memory.
                let sampling = Sampling {
                    max_new_tokens: new_tokens,
                    max_cached_tokens: Some(1 << 20),
                    ..Sampling::default()
                };
                let uniform = |p: usize, s: usize, t: usize| {
                    ((p * 7919 + s * 104_729 + t * 31 + 17) % 9973) as f64 / 9973.0
                };
                let stop = |tokens: &[u32]| tokens.len() == 80;
                let stop: Option<&StopFn<'_>> =
                    if overlaid { Some(&|tokens| tokens.len() == 3) } else { Some(&stop) };
                engine.generate(&prompts, &sampling, &uniform, stop, &mut |_| ControlFlow::Continue(()))?;
            }
            Ok(())
        };
        assert!(trains || 5 * needs.cache > 2 * computed, "{needs:?}");
        assert!(
            !overlaid
                || computed
                    < needs.weights + needs.gradient + needs.optimizer + needs.activations + needs.cache
        );
        run(computed).unwrap_or_else(|error| {
            panic!("{precision:?}, moments in {moments:?}, exact {exact}, {needs:?}: {error}")
        });
        // With a frozen base nearly all memory is activations, for which the bound is less exact, as it is for recurrent layers.
        let less = if base.is_some() || has_states { 6 } else { 8 };
        let error = run(computed * less / 10).expect_err(&format!("{precision:?}, {base:?}, {needs:?}"));
        assert!(error.to_string().contains("out of memory"), "{precision:?}: {error}");
    }
}

#[test]
fn a_base_in_a_format_takes_the_memory_computed_within_10_percent() {
    let (_, config) = configs().swap_remove(1);
    let config = Config {
        hidden_size: 256,
        intermediate_size: 1024,
        head_dim: 64,
        num_hidden_layers: 6,
        vocab_size: 64,
        ..config
    };
    for precision in [Precision::F32, Precision::Bf16] {
        for base in BaseFormat::ALL {
            let lora = LoraConfig { rank: 1, ..LoraConfig::default() };
            let workload = Workload {
                threads: 1,
                products: ProductFormat::F32,
                gpu: Some(GpuSettings { precision, moments: Precision::F32, exact: false, memory: None }),
                chunk_tokens: 1,
                checkpointing: false,
                optimizer_offload: false,
                lora: Some(lora.clone()),
                base: Some(base),
                family_tokens: 0,
                predicting_rows: 0,
                prompts: 0,
                prompt_tokens: 0,
                samples: 0,
                new_tokens: 0,
                max_cached_tokens: None,
            };
            let computed = Needs::of(&config, &workload).total();
            let run = |memory: u64| -> Result<(), Error> {
                let (memory, moments, lost_after) = (memory as usize, Precision::F32, None);
                let device = Device::CudaEmulated { memory, precision, moments, exact: false, lost_after };
                let number = |i: u64| (i % 17) as f64 / 8.0 - 1.0;
                let mut engine = Engine::init_with_base(&config, 0.1, &number, Some(base), &device)?;
                engine.adapt(&lora, &mut || 0.5)?;
                let mut batch = Batch::default();
                batch.push_segment(&[1, 2], None);
                batch.predict(1, 3);
                engine.score(&batch, 1.0).map(|_| ())
            };
            let most = computed * 11 / 10;
            run(most).unwrap_or_else(|error| panic!("{precision:?}, {base:?}, {computed}: {error}"));
            let error = run(computed * 9 / 10).unwrap_err().to_string();
            assert!(error.contains("out of memory"), "{precision:?}, {base:?}: {error}");
        }
    }
}

/// A step and a rollout: their results, and the gradient's norm.
fn round(
    engine: &mut Engine,
    number: u64,
    update: bool,
    samples: usize,
    max_cached_tokens: Option<usize>,
) -> Result<String, Error> {
    let vocabulary = engine.config().vocab_size;
    let batch = forest(&mut Numbers::new(100 + number), vocabulary, 3, 5, 5);
    let (scores, _) = engine.accumulate(&batch, 0.8, &|family| {
        family.predictions.iter().zip(family.dlogp).for_each(|(index, d)| *d = (index % 5) as f32 - 2.0);
    })?;
    if update {
        engine.update(&adamw(), Some(1.0))?;
    }
    let prompt = Numbers::new(number).tokens(9, vocabulary);
    let prompts = [Prompt { tokens: &prompt, samples: 0..samples }];
    let sampling = Sampling { max_new_tokens: 200, max_cached_tokens, ..Sampling::default() };
    let uniform =
        |_: usize, sample: usize, position: usize| Numbers::new((sample * 97 + position) as u64).uniform();
    let stop = |tokens: &[u32]| tokens.len() == 5 + tokens[0] as usize;
    let mut completions = Vec::new();
    engine.generate(&prompts, &sampling, &uniform, Some(&stop), &mut |completion| {
        completions.push(completion);
        ControlFlow::Continue(())
    })?;
    completions.sort_by_key(|completion| completion.sample);
    Ok(format!("{:?} {completions:?} {}", scores.logp, engine.gradient_norm()))
}

/// A small engine with this much memory.
fn engine_in(memory: usize, lora: bool) -> Result<Engine, Error> {
    let (_, config) = configs().swap_remove(1);
    let config = Config { num_hidden_layers: 1, ..config };
    let device = Device::emulated(memory, Precision::F32);
    let mut engine = Engine::init(&config, 0.2, &|i| (i % 17) as f64 / 8.0 - 1.0, &device)?;
    if lora {
        let mut numbers = Numbers::new(12);
        let lora = LoraConfig { rank: 2, alpha: 4.0, ..LoraConfig::default() };
        engine.adapt(&lora, &mut || numbers.uniform())?;
    }
    Ok(engine)
}

#[test]
fn a_rollout_in_the_place_of_an_update_changes_no_bit() {
    // The same limit, so that only the memory besides the cache differs.
    let rounds = |memory: usize, lora: bool, update: bool| -> Option<(Vec<String>, Vec<u32>)> {
        let mut engine = engine_in(memory, lora).ok()?;
        let results = (0..3)
            .map(|number| round(&mut engine, number, update, 6, Some(1 << 14)).ok())
            .collect::<Option<_>>()?;
        Some((results, bits(&weights(&engine))))
    };
    // Without updates the gradient is needed after the rollout, so it stays.
    for (lora, update) in [(false, true), (true, true), (false, false)] {
        let least = (1..).map(|n| n << 15).find_map(|memory| rounds(memory, lora, update));
        assert!(least == rounds(1 << 26, lora, update), "lora {lora}, updates {update}");
    }
}

#[test]
fn a_resumed_engine_samples_the_same_bits_where_memory_bounds_the_cache() {
    let round = |engine: &mut Engine, number| round(engine, number, true, 30, None).unwrap();
    // Room for the longest sample of all, but not for thirty samples.
    let memory = 1 << 19;
    let device = Device::emulated(memory, Precision::F32);
    let mut engine = engine_in(memory, false).unwrap();
    // The limit has an effect: with more memory there are fewer steps. The samples then share other sequences, which changes no bit.
    let mut roomy = engine_in(1 << 26, false).unwrap();
    assert_eq!(round(&mut engine, 0), round(&mut roomy, 0));
    assert!(engine.graph_counts().steps > roomy.graph_counts().steps);
    let mut resumed = copy_to(&device, &engine);
    assert_eq!(round(&mut engine, 1), round(&mut resumed, 1));
}

#[test]
fn without_a_bound_the_free_memory_holds_keys_and_values_in_their_precision() {
    let (_, config) = configs().swap_remove(0);
    let prompt = Numbers::new(15).tokens(8, config.vocab_size);
    let prompts = [Prompt { tokens: &prompt, samples: 0..5000 }];
    let sampling = Sampling { max_new_tokens: 64, ..Sampling::default() };
    // Number of samples that run when the first one ends.
    let [full, half] = [Precision::F32, Precision::Bf16].map(|precision| {
        let device = Device::emulated(4 << 20, precision);
        let mut engine = engine_on(&config, 16, &device);
        let (started, running) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let uniform = |_: usize, sample: usize, position: usize| {
            started.fetch_max(sample + 1, Relaxed);
            Numbers::new((sample * 97 + position) as u64).uniform()
        };
        let stop = |tokens: &[u32]| {
            if tokens.len() == 2 && running.load(Relaxed) == 0 {
                running.store(started.load(Relaxed), Relaxed);
            }
            tokens.len() == 2
        };
        engine.generate(&prompts, &sampling, &uniform, Some(&stop), &mut |_| ControlFlow::Break(())).unwrap();
        running.into_inner() as f64
    });
    // A sample is expected to take at most 6 pages of 16 tokens, with 24 values in each of 2 layers.
    let bytes = 6.0 * 16.0 * 24.0 * 2.0 * 4.0;
    assert!(full * bytes > (1 << 20) as f64 && full * bytes < (5 << 19) as f64, "{full} samples");
    // Half as many bytes per token. The results of attention over parts stay in f32.
    assert!((1.6..=2.1).contains(&(half / full)), "{half} samples in bf16, {full} in f32");
}

#[test]
fn in_bf16_a_resumed_engine_goes_on_bit_for_bit_and_its_adapter_comes_off() {
    let (_, config) = configs().swap_remove(0);
    let mut gpu = engine_on(&config, 6, &GPU_BF16);
    step(&mut gpu, 0);
    let mut resumed = copy_to(&GPU_BF16, &copy_to(&CPU, &gpu));
    assert_eq!(bits(&weights(&gpu)), bits(&weights(&resumed)));
    assert_eq!(step(&mut gpu, 1), step(&mut resumed, 1));
    assert_eq!(bits(&weights(&gpu)), bits(&weights(&resumed)));

    let base = weights(&gpu);
    let mut numbers = Numbers::new(12);
    gpu.adapt(&LoraConfig { rank: 3, alpha: 6.0, ..LoraConfig::default() }, &mut || numbers.uniform())
        .unwrap();
    step(&mut gpu, 2);
    assert_ne!(bits(&weights(&gpu)), bits(&base));
    gpu.set_adapter_applied(false);
    assert_eq!(bits(&weights(&gpu)), bits(&base));
}

#[test]
fn in_bf16_sampled_and_scored_log_probabilities_agree_to_the_rounding_of_16_bits() {
    // Heads of width 64, for which passes use tensor cores, and with more query heads per key head also decoding.
    let (_, config) = configs().swap_remove(1);
    let config = Config { head_dim: 64, num_hidden_layers: 2, ..config };
    let few = BASES.map(|base| (config.clone(), base));
    let many = [(seven_heads().1, None), (Config { num_attention_heads: 8, head_dim: 128, ..config }, None)];
    let windowed = [(configs().swap_remove(GEMMA).1, Some(BaseFormat::Nf4))];
    for (config, base) in few.into_iter().chain(many).chain(windowed) {
        let mut engine = engine_with_base(&config, 13, base, &GPU_BF16);
        if base.is_some() {
            let lora = LoraConfig { rank: 3, alpha: 6.0, ..LoraConfig::default() };
            engine = adapted(engine, &lora);
        }
        agree_to_16_bits(engine);
    }
}

fn agree_to_16_bits(mut engine: Engine) {
    let tokens = Numbers::new(14).tokens(9, engine.config().vocab_size);
    let prompts = [Prompt { tokens: &tokens, samples: 0..3 }];
    let sampling = Sampling { max_new_tokens: 6, ..Sampling::default() };
    let mut done = Vec::new();
    let uniform =
        |_: usize, sample: usize, position: usize| Numbers::new((sample * 97 + position) as u64).uniform();
    engine
        .generate(&prompts, &sampling, &uniform, None, &mut |completion| {
            done.push(completion);
            ControlFlow::Continue(())
        })
        .unwrap();
    for completion in &done {
        let mut batch = Batch::default();
        let indices = batch.push_group(&tokens, &[&completion.tokens]);
        let scores = engine.score(&batch, 1.0).unwrap();
        let scored: Vec<f32> = indices[0].iter().map(|&index| scores.logp[index]).collect();
        near(&completion.logp, &scored, 0.05, "log-probabilities");
    }
}

#[test]
fn a_gpu_lost_at_any_launch_ends_the_work_and_nothing_is_taken_for_numbers() {
    let (_, config) = configs().swap_remove(0);
    // The norm of each step, the error that ended the steps, and the engine.
    let train = |lost_after: Option<u64>| {
        let [precision, moments] = [Precision::F32; 2];
        let device = Device::CudaEmulated { memory: 1 << 30, precision, moments, exact: false, lost_after };
        let mut engine = engine_on(&config, 3, &device);
        let mut norms = Vec::new();
        for seed in 0..3 {
            let batch = forest(&mut Numbers::new(seed), config.vocab_size, 4, 2, 3);
            let updated = engine
                .accumulate(&batch, 1.0, &|family| family.dlogp.fill(1.0))
                .and_then(|_| engine.update(&adamw(), None));
            match updated {
                Ok(report) => norms.push(report.gradient_norm),
                Err(error) => return (norms, Some(error), engine),
            }
        }
        (norms, None, engine)
    };
    let (wanted, error, engine) = train(None);
    assert!(error.is_none() && wanted.len() == 3, "{error:?}");
    let wanted_weights = bits(&weights(&engine));
    let mut failed = 0;
    for launches in (0..).step_by(37) {
        let (norms, error, mut engine) = train(Some(launches));
        assert_eq!(norms[..], wanted[..norms.len()], "lost after {launches} launches");
        if let Ok(found) = catch_unwind(AssertUnwindSafe(|| bits(&weights(&engine)))) {
            assert!(error.is_none() && found == wanted_weights, "lost after {launches} launches: {error:?}");
            break;
        }
        failed += 1;
        assert!(error.is_none_or(|error| error.to_string().contains("last checkpoint")));
        assert!(engine.update(&adamw(), None).is_err());
    }
    assert!(failed > 3, "{failed} runs with a lost GPU");
}
