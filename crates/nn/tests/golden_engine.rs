//! The engine compared with PyTorch: logits, log-probabilities, entropies, gradients and optimizer steps of `golden/make.py`.

mod device;
mod golden;
mod levels;

use device::{device, gradient_tolerance, tolerance};
use fgrpo_nn::weights::{Checkpoint, Dtype, TensorFile, write_checkpoint};
use fgrpo_nn::{AdamW, Batch, Engine};
use golden::Sequence;

/// The cases that the device supports.
fn cases() -> impl Iterator<Item = &'static str> {
    golden::CASES.into_iter().filter(|case| device::supports(case))
}

/// The layout of the sequences in a batch. The result must not depend on it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Packing {
    /// Each sequence is a separate segment.
    Separate,
    /// Each group is a prefix tree.
    Tree,
}

/// The batch, and for each completion token, in the order of sequences, the index of its prediction.
fn pack(sequences: &[Sequence], packing: Packing) -> (Batch, Vec<usize>) {
    let mut batch = Batch::default();
    let mut stands_for = Vec::new();
    match packing {
        Packing::Separate => {
            for s in sequences.iter().filter(|s| !s.completion.is_empty()) {
                let first = batch.tokens.len() + s.prompt.len() - 1;
                let all = [&s.prompt[..], &s.completion[..s.completion.len() - 1]].concat();
                batch.push_segment(&all, None);
                stands_for.extend(
                    s.completion.iter().enumerate().map(|(i, &token)| batch.predict(first + i, token)),
                );
            }
        }
        Packing::Tree => {
            for group in sequences.chunk_by(|a, b| a.group == b.group) {
                let completions: Vec<&[u32]> = group.iter().map(|s| s.completion.as_slice()).collect();
                stands_for.extend(batch.push_group(&group[0].prompt, &completions).concat());
            }
        }
    }
    (batch, stands_for)
}

fn temperature(file: &TensorFile) -> f32 {
    golden::numbers(file, "temperature")[0] as f32
}

/// `values[of[i]]` for each completion token.
fn spread(values: &[f32], of: &[usize], width: usize) -> Vec<f32> {
    of.iter().flat_map(|&p| values[p * width..(p + 1) * width].iter().copied()).collect()
}

#[track_caller]
fn assert_near(what: &str, found: &[f32], wanted: &[f32], off: f32) {
    let tolerance = tolerance(off);
    let (worst, at) = golden::distance(found, wanted);
    assert!(worst <= tolerance, "{what}[{at}]: found {}, wanted {}, off by {worst}", found[at], wanted[at]);
}

#[test]
fn logits_equal_transformers_for_every_architecture_packed_either_way() {
    for case in cases() {
        let (checkpoint, expected) = (golden::checkpoint(case), golden::expected(case));
        let mut engine = Engine::open(&checkpoint, &device(2)).unwrap();
        for packing in [Packing::Separate, Packing::Tree] {
            let (batch, of) = pack(&golden::sequences(&expected), packing);
            let logits = engine.logits(&batch).unwrap();
            let found = spread(&logits, &of, checkpoint.config().vocab_size);
            let wanted = expected.tensor("logits").unwrap();
            let worst = found.iter().zip(&wanted).map(|(f, w)| (f - w).abs()).fold(0.0, f32::max);
            println!("{case} {packing:?}: logits are off by {worst:e}");
            assert!(worst < tolerance(1e-4), "{case} {packing:?}: logits are off by {worst}");
        }
    }
}

#[test]
fn log_probabilities_and_entropies_equal_pytorchs_for_every_architecture() {
    for case in cases() {
        let expected = golden::expected(case);
        let mut engine = Engine::open(&golden::checkpoint(case), &device(2)).unwrap();
        for packing in [Packing::Separate, Packing::Tree] {
            let (batch, of) = pack(&golden::sequences(&expected), packing);
            let scores = engine.score(&batch, temperature(&expected)).unwrap();
            let what = |name: &str| format!("{case} {packing:?} {name}");
            let logp = expected.tensor("logp").unwrap();
            assert_near(&what("logp"), &spread(&scores.logp, &of, 1), &logp, 1e-5);
            let entropy = expected.tensor("entropy").unwrap();
            assert_near(&what("entropy"), &spread(&scores.entropy, &of, 1), &entropy, 1e-5);
        }
    }
}

/// Adds the gradient of sum(a logp + c / 2 logp^2 + b entropy) over completion tokens. Returns that sum.
fn accumulate(engine: &mut Engine, expected: &TensorFile, packing: Packing) -> f64 {
    let (batch, of) = pack(&golden::sequences(expected), packing);
    let coefficients = ["a", "b", "c"].map(|name| expected.tensor(name).unwrap());
    let [a, b, c] = &coefficients;
    let mut tokens_of = vec![Vec::new(); batch.predictions.len()];
    for (token, &prediction) in of.iter().enumerate() {
        tokens_of[prediction].push(token);
    }
    let (scores, _) = engine
        .accumulate(&batch, temperature(expected), &|family| {
            for (i, &prediction) in family.predictions.iter().enumerate() {
                family.dlogp[i] = tokens_of[prediction].iter().map(|&t| a[t] + c[t] * family.logp[i]).sum();
                family.dentropy[i] = tokens_of[prediction].iter().map(|&t| b[t]).sum();
            }
        })
        .unwrap();
    let terms = of.iter().enumerate().map(|(t, &p)| {
        let (logp, entropy) = (f64::from(scores.logp[p]), f64::from(scores.entropy[p]));
        f64::from(a[t]) * logp + f64::from(c[t]) / 2.0 * logp * logp + f64::from(b[t]) * entropy
    });
    terms.sum()
}

#[test]
fn gradients_equal_pytorchs_tensor_by_tensor_packed_either_way() {
    for case in cases() {
        let (checkpoint, expected) = (golden::checkpoint(case), golden::expected(case));
        let mut engine = Engine::open(&checkpoint, &device(2)).unwrap();
        for packing in [Packing::Separate, Packing::Tree] {
            engine.zero_gradient();
            let loss = accumulate(&mut engine, &expected, packing);
            let wanted: f64 = expected.metadata()["loss"].parse().unwrap();
            assert!(
                (loss - wanted).abs() < f64::from(tolerance(1e-5)) * (1.0 + wanted.abs()),
                "{case}: loss {loss}, wanted {wanted}"
            );
            let mut seen = 0;
            let mut squares = 0.0;
            for (name, shape, found) in engine.gradients() {
                let wanted = expected.tensor(&format!("grad.{name}")).unwrap();
                assert_eq!(shape.iter().product::<usize>(), wanted.len(), "{name}");
                // Relative to the size of the tensor, because a gradient that is a hundred times too small must not pass.
                let size = wanted.iter().map(|x| x.abs()).fold(0.0, f32::max);
                let worst = found.iter().zip(&wanted).map(|(f, w)| (f - w).abs()).fold(0.0, f32::max);
                assert!(
                    worst <= gradient_tolerance(case, 2e-5) * size,
                    "{case} {packing:?} {name}: off by {worst}, largest is {size}"
                );
                squares += wanted.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
                seen += 1;
            }
            let trained = checkpoint.names().into_iter().filter(|name| !name.ends_with("layer_scalar"));
            assert_eq!(seen, trained.count(), "{case}: tensors with a gradient");
            let norm = engine.gradient_norm();
            assert!(
                (norm / squares.sqrt() - 1.0).abs() < f64::from(tolerance(1e-5)),
                "{case}: norm {norm}, wanted {}",
                squares.sqrt()
            );
        }
    }
}

#[test]
fn four_clipped_adamw_steps_follow_pytorchs_losses_norms_and_weights() {
    let optimized = "qwen2_tied qwen3_ratio_4 olmo2 gemma3_text qwen3_5_text granite phi3 lfm2 gemma4_text gemma4_text_shared";
    for case in cases().filter(|case| optimized.split(' ').any(|name| name == *case)) {
        let expected = golden::expected(case);
        let mut engine = Engine::open(&golden::checkpoint(case), &device(2)).unwrap();
        let [lr, beta1, beta2, eps, weight_decay] = golden::numbers(&expected, "adamw")[..] else {
            panic!("five settings")
        };
        let adamw = AdamW { lr, beta1, beta2, eps, weight_decay, ..AdamW::default() };
        let max_norm: Option<f64> = expected.metadata()["max_norm"].parse().ok();
        let (losses, norms) = (expected.tensor("loss").unwrap(), expected.tensor("grad_norm").unwrap());
        for step in 0..losses.len() {
            let loss = accumulate(&mut engine, &expected, Packing::Tree);
            assert_near(&format!("{case} loss of step {step}"), &[loss as f32], &[losses[step]], 1e-4);
            let report = engine.update(&adamw, max_norm).unwrap();
            assert!(report.applied, "{case} step {step}");
            let norm = report.gradient_norm as f32;
            assert_near(&format!("{case} norm of step {step}"), &[norm], &[norms[step]], 1e-4);
        }
        for (name, _, found) in engine.tensors() {
            let wanted = expected.tensor(&format!("final.{name}")).unwrap();
            // AdamW divides an element's gradient by its size, so an element that is nearly 0 moves by the fraction that is rounding, and a GPU's kernels round
            // in another order than PyTorch and the CPU.
            let off = if device::on_cpu() { 1e-4 } else { 5e-4 };
            assert_near(&format!("{case} {name}"), &found, &wanted, off);
        }
    }
}

#[test]
fn checkpoint_written_after_updates_reopens_with_the_same_logits_bit_for_bit() {
    for case in cases() {
        let expected = golden::expected(case);
        let mut engine = Engine::open(&golden::checkpoint(case), &device(2)).unwrap();
        accumulate(&mut engine, &expected, Packing::Tree);
        assert!(engine.update(&AdamW::default(), Some(1.0)).unwrap().applied);
        let dir = tempfile::tempdir().unwrap();
        write_checkpoint(dir.path(), engine.config(), engine.tensors(), Dtype::F32, 9000).unwrap();
        let mut reopened = Engine::open(&Checkpoint::open(dir.path()).unwrap(), &device(2)).unwrap();
        assert_eq!(reopened.config(), engine.config());
        let (batch, _) = pack(&golden::sequences(&expected), Packing::Tree);
        let (before, after) = (engine.logits(&batch).unwrap(), reopened.logits(&batch).unwrap());
        assert!(before.iter().zip(&after).all(|(a, b)| a.to_bits() == b.to_bits()), "{case}");
        assert_ne!(
            before,
            Engine::open(&golden::checkpoint(case), &device(2)).unwrap().logits(&batch).unwrap()
        );
    }
}

#[test]
fn products_of_kind_bf16x3_pass_these_tests_within_twenty_times_the_tolerance() {
    if device::on_cpu() {
        levels::pass_with_products(
            "bf16x3",
            &["", "plain"],
            &[
                "logits_equal_transformers_for_every_architecture_packed_either_way",
                "log_probabilities_and_entropies_equal_pytorchs_for_every_architecture",
                "gradients_equal_pytorchs_tensor_by_tensor_packed_either_way",
                "four_clipped_adamw_steps_follow_pytorchs_losses_norms_and_weights",
                "checkpoint_written_after_updates_reopens_with_the_same_logits_bit_for_bit",
            ],
        );
    }
}

#[test]
fn every_instruction_set_passes_these_tests() {
    if device::on_cpu() {
        levels::pass_all_other_tests("every_instruction_set_passes_these_tests");
    }
}
