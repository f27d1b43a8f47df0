//! One optimizer step of F-GRPO, F-DAPO and F-CISPO against PyTorch, from estimator to updated weights.
//!
//! The golden file comes from `crates/nn/tests/golden/make_rl.py`, which implements the published formulas again and leaves
//! the derivatives to autograd.

#[path = "../../../nn/tests/golden/mod.rs"]
mod golden;

use std::sync::Mutex;

use fgrpo_core::advantage::Advantage;
use fgrpo_core::focal::{focal_weight, success_rate};
use fgrpo_core::group::{Group, Rewards};
use fgrpo_core::loss::{Counts, Objective, PolicyLoss, Tokens};
use fgrpo_nn::weights::TensorFile;
use fgrpo_nn::{AdamW, Batch, Device, Engine};
use golden::Sequence;

fn file() -> TensorFile {
    TensorFile::open(&golden::folder().join("rl_step.safetensors")).unwrap()
}

/// The focal-weighted advantage of each sequence.
fn advantages(file: &TensorFile, sequences: &[Sequence]) -> Vec<f64> {
    let gamma = golden::numbers(file, "gamma")[0];
    let rewards: Vec<f64> = file.tensor("rewards").unwrap().into_iter().map(f64::from).collect();
    let mut all = Vec::new();
    for sequences in sequences.chunk_by(|a, b| a.group == b.group) {
        let rewards = &rewards[all.len()..][..sequences.len()];
        let lengths: Vec<usize> = sequences.iter().map(|s| s.completion.len()).collect();
        let mean_old_logp = vec![0.0; rewards.len()];
        let scored = vec![true; rewards.len()];
        let group = Group {
            rewards,
            lengths: &lengths,
            mean_old_logp: &mean_old_logp,
            scored: &scored,
            parts: &[],
            clusters: &[],
        };
        let weight = focal_weight(success_rate(&group, &Rewards::default()).unwrap().unwrap(), gamma);
        let plain = Advantage::GRPO.advantages(&group, &Rewards::default()).unwrap();
        all.extend(plain.into_iter().map(|a| a * weight));
    }
    all
}

#[test]
fn focal_weighted_advantages_equal_the_formula_in_pytorch() {
    let file = file();
    let wanted = file.tensor("advantages").unwrap();
    for (found, wanted) in advantages(&file, &golden::sequences(&file)).into_iter().zip(wanted) {
        assert!((found - f64::from(wanted)).abs() < 1e-6, "found {found}, wanted {wanted}");
    }
}

/// Runs one step with the whole batch in `micro` calls. Returns loss, gradient norm, tokens without gradient, and weights.
fn step(policy: PolicyLoss, micro: usize) -> (f64, f64, usize, Vec<(String, Vec<f32>)>) {
    let file = file();
    let sequences = golden::sequences(&file);
    let advantages = advantages(&file, &sequences);
    let old_logp = file.tensor("old_logp").unwrap();
    let counts = Counts::of(sequences.iter().map(|s| s.completion.len()));
    let objective = Objective { policy, ..Objective::GRPO };
    let mut engine = Engine::open(&golden::checkpoint("qwen2_tied"), &Device::cpu(2)).unwrap();
    let (mut first_sequence, mut first_token) = (0, 0);
    let totals = Mutex::new((0.0, 0));
    let groups: Vec<&[Sequence]> = sequences.chunk_by(|a, b| a.group == b.group).collect();
    for part in groups.chunks(groups.len().div_ceil(micro)) {
        let mut batch = Batch::default();
        let mut predictions = Vec::new();
        for group in part {
            let completions: Vec<&[u32]> = group.iter().map(|s| s.completion.as_slice()).collect();
            predictions.extend(batch.push_group(&group[0].prompt, &completions));
        }
        // (sequence, its position in old_logp) of this part's completions.
        let mut places = Vec::new();
        for sequence in &predictions {
            places.push((first_sequence, first_token));
            first_sequence += 1;
            first_token += sequence.len();
        }
        engine
            .accumulate(&batch, 1.0, &|family| {
                let at = |prediction: &usize| family.predictions.iter().position(|i| i == prediction);
                for (sequence, &(which, old)) in predictions.iter().zip(&places) {
                    let Some(mine) = sequence.iter().map(at).collect::<Option<Vec<usize>>>() else {
                        continue;
                    };
                    let logp: Vec<f32> = mine.iter().map(|&i| family.logp[i]).collect();
                    let tokens = Tokens {
                        selected: None,
                        high_entropy: None,
                        logp: &logp,
                        old_logp: &old_logp[old..old + logp.len()],
                        entropy: None,
                        ref_logp: None,
                        rollout_logp: None,
                        advantage: advantages[which],
                    };
                    let mut totals = totals.lock().unwrap();
                    let scale = objective.scale(logp.len(), &counts);
                    objective.completion(&tokens, [scale; 2], |t, term| {
                        family.dlogp[mine[t]] += term.dlogp as f32;
                        totals.0 += term.loss;
                        totals.1 += usize::from(term.dlogp == 0.0 && advantages[which] != 0.0);
                    });
                }
            })
            .unwrap();
    }
    let [lr, beta1, beta2, eps, weight_decay] = golden::numbers(&file, "adamw")[..] else {
        panic!("five settings")
    };
    let adamw = AdamW { lr, beta1, beta2, eps, weight_decay, ..AdamW::default() };
    let report = engine.update(&adamw, Some(golden::numbers(&file, "max_norm")[0])).unwrap();
    assert!(report.applied);
    let (loss, cut) = *totals.lock().unwrap();
    let weights = engine.tensors().map(|(name, _, values)| (name.to_string(), values.into_owned())).collect();
    (loss, report.gradient_norm, cut, weights)
}

const METHODS: [(&str, PolicyLoss); 3] =
    [("grpo", PolicyLoss::GRPO), ("dapo", PolicyLoss::DAPO), ("cispo", PolicyLoss::CISPO)];

#[test]
fn one_step_of_each_method_equals_pytorch_in_loss_norm_clipping_and_weights() {
    let file = file();
    for (name, policy) in METHODS {
        for micro in [1, 3] {
            let (loss, norm, cut, weights) = step(policy, micro);
            let wanted = |what: &str| f64::from(file.tensor(&format!("{what}.{name}")).unwrap()[0]);
            assert!((loss - wanted("loss")).abs() < 1e-5, "{name}: loss {loss}, wanted {}", wanted("loss"));
            assert!(
                (norm / wanted("grad_norm") - 1.0).abs() < 1e-4,
                "{name}: norm {norm}, wanted {}",
                wanted("grad_norm")
            );
            assert_eq!(
                cut as i64,
                file.integers(&format!("clipped.{name}")).unwrap()[0],
                "{name}: clipped tokens"
            );
            for (tensor, found) in weights {
                let wanted = file.tensor(&format!("final.{name}.{tensor}")).unwrap();
                let (worst, at) = golden::distance(&found, &wanted);
                // A hundredth of one learning rate.
                assert!(worst < 1e-5, "{name} {tensor}[{at}]: found {}, wanted {}", found[at], wanted[at]);
            }
        }
    }
}
