//! One optimizer step of F-GRPO, F-DAPO and F-CISPO against PyTorch, from estimator to updated weights.
//!
//! The golden file comes from `crates/nn/tests/golden/make_rl.py`, which implements the published formulas again and leaves
//! the derivatives to autograd; that of a step with a teacher from `make_teacher.py` beside it.

use crate::golden::{self, Sequence};
use std::sync::Mutex;

use fgrpo_core::advantage::Advantage;
use fgrpo_core::credit::Assigned;
use fgrpo_core::focal::{focal_weight, success_rate};
use fgrpo_core::group::{Group, Rewards};
use fgrpo_core::loss::{Counts, Objective, PolicyLoss, Tokens};
use fgrpo_eval::graded::Graded;
use fgrpo_nn::weights::TensorFile;
use fgrpo_nn::{AdamW, Batch, Completion, Device, Engine, Finish};
use fgrpo_train::config::{Config, UpdateConfig};
use fgrpo_train::credit::Credited;
use fgrpo_train::policy::{Policy, Sequence as Scored};
use fgrpo_train::problem::{Split, Task};
use fgrpo_train::rollout::Rollouts;
use fgrpo_train::update::{LossSettings, Sums, UpdateState, update};
use fgrpo_verify::verdict::Verdict;

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

fn teacher_file() -> TensorFile {
    TensorFile::open(&golden::folder().join("teacher_step.safetensors")).unwrap()
}

fn policy(case: &str) -> Policy {
    Policy::of_tokens(Engine::open(&golden::checkpoint(case), &Device::cpu(2)).unwrap())
}

/// A group of completions, each with its log-probabilities when it was sampled, scored by the teacher of the golden file.
fn group(prompt: &[u32], completions: Vec<(Vec<u32>, Vec<f32>)>, assigned: Assigned) -> Credited {
    let all: Vec<Scored> = completions.iter().map(|(c, _)| Scored::completion(prompt, c)).collect();
    let scores = policy("qwen3_ratio_4").score(&all, 1.0).unwrap();
    let completion = |(sample, (tokens, logp)): (usize, (Vec<u32>, Vec<f32>))| Completion {
        prompt: 0,
        sample,
        entropy: vec![0.0; tokens.len()],
        tokens,
        logp,
        finish: Finish::Stop,
        cached: 0,
    };
    let config =
        "steps = 1\ntask = { kind = \"maze\", size = 5, train = 2, held_out = 2 }\nmodel.path = \"m\"";
    let task = Task::open(&Config::parse(config, &[]).unwrap()).unwrap();
    let mut any = task.prompt(Split::Train, 0);
    any.tokens = prompt.to_vec();
    let n = completions.len();
    let completions = completions.into_iter().enumerate().map(completion).collect();
    let teacher_logp = Some(scores.into_iter().map(|s| s.logp).collect());
    Credited {
        rollouts: Rollouts { teacher_logp, ..Rollouts::new(any, completions) },
        grades: vec![Graded::new(Verdict::Wrong, "none"); n],
        rewards: vec![0.0; n],
        parts: Vec::new(),
        assigned,
    }
}

/// Updates the policy of the golden file once. Returns sums over the tokens, and the weights.
fn update_with_teacher(
    groups: &[Credited],
    teacher_coef: f64,
    config: &UpdateConfig,
) -> (Sums, Vec<(String, Vec<f32>)>) {
    let settings = LossSettings {
        objective: Objective::GRPO,
        temperature: 1.0,
        mask_truncated: false,
        daro_lr: None,
        teacher_coef,
    };
    let groups: Vec<&Credited> = groups.iter().collect();
    let mut policy = policy("qwen2_tied");
    let sums =
        update(&mut policy, &groups, &settings, config, config.lr, &mut UpdateState::default()).unwrap();
    let weights = policy.engine().tensors().map(|(name, _, values)| (name.to_string(), values.into_owned()));
    (sums, weights.collect())
}

#[test]
fn one_step_with_rewards_and_a_teacher_equals_pytorch_in_loss_norm_and_weights() {
    let file = teacher_file();
    let field = |name: &str| golden::numbers(&file, name);
    let sequences = golden::sequences(&file);
    let mut advantages = advantages(&file, &sequences).into_iter();
    let mut old = file.tensor("old_logp").unwrap().into_iter();
    let mut rewards = file.tensor("rewards").unwrap().into_iter();
    let groups = sequences.chunk_by(|a, b| a.group == b.group).map(|sequences| {
        let n = sequences.len();
        let rate = f64::from(rewards.by_ref().take(n).sum::<f32>()) / n as f64;
        let assigned = Assigned {
            advantages: advantages.by_ref().take(n).collect(),
            success_rate: Some(rate),
            focal_weight: focal_weight(rate, field("gamma")[0]),
        };
        let completions = sequences
            .iter()
            .map(|s| (s.completion.clone(), old.by_ref().take(s.completion.len()).collect()))
            .collect();
        group(&sequences[0].prompt, completions, assigned)
    });
    let groups: Vec<Credited> = groups.collect();
    let teacher: Vec<f32> =
        groups.iter().flat_map(|g| g.rollouts.teacher_logp.iter().flatten().flatten().copied()).collect();
    assert!(golden::distance(&teacher, &file.tensor("teacher_logp").unwrap()).0 < 1e-5);
    let [lr, beta1, beta2, eps, weight_decay] = field("adamw")[..] else { panic!("five settings") };
    let max_grad_norm = field("max_norm")[0];
    let config = UpdateConfig {
        lr,
        betas: [beta1, beta2],
        eps,
        weight_decay,
        max_grad_norm,
        ..UpdateConfig::default()
    };
    let (sums, weights) = update_with_teacher(&groups, field("teacher_coef")[0], &config);
    let wanted = |name: &str| f64::from(file.tensor(name).unwrap()[0]);
    assert!((sums.tokens.loss - wanted("loss")).abs() < 1e-5, "{} {}", sums.tokens.loss, wanted("loss"));
    assert!((sums.gradient_norm / wanted("grad_norm") - 1.0).abs() < 1e-4, "{}", sums.gradient_norm);
    for (name, after) in weights {
        let (worst, at) = golden::distance(&after, &file.tensor(&format!("final.{name}")).unwrap());
        // A hundredth of one learning rate.
        assert!(worst < 1e-5, "{name}[{at}]: {}", after[at]);
    }
}

#[test]
fn the_expected_gradient_of_the_teachers_term_is_autograds_gradient_of_the_reverse_kl() {
    let file = teacher_file();
    let prompt: Vec<u32> = file.integers("prompt").unwrap().into_iter().map(|t| t as u32).collect();
    let mut start = policy("qwen2_tied");
    let tokens = start.engine().config().vocab_size as u32;
    let mut kl = 0.0;
    // A group of one completion for each token. The loss is a mean over all tokens; the weight of each is its probability.
    let groups: Vec<Credited> = (0..tokens)
        .map(|token| {
            let logp =
                start.score(&[Scored::completion(&prompt, &[token])], 1.0).unwrap().swap_remove(0).logp;
            let p = f64::from(logp[0]).exp();
            let focal_weight = p * f64::from(tokens);
            let assigned = Assigned { advantages: vec![0.0], success_rate: None, focal_weight };
            let group = group(&prompt, vec![(vec![token], logp.clone())], assigned);
            kl += p * f64::from(logp[0] - group.rollouts.teacher_logp.as_ref().unwrap()[0][0]);
            group
        })
        .collect();
    let wanted = f64::from(file.tensor("kl").unwrap()[0]);
    assert!((kl - wanted).abs() < 1e-5 * wanted, "{kl} {wanted}");
    // With so large an eps, AdamW's first step is -lr / eps times the gradient.
    let (lr, eps) = (50.0, 1e5);
    let config = UpdateConfig { lr, eps, weight_decay: 0.0, max_grad_norm: 1e9, ..UpdateConfig::default() };
    let (_, weights) = update_with_teacher(&groups, 1.0, &config);
    let mut largest = 0f32;
    for ((name, _, before), (_, after)) in start.engine().tensors().zip(weights) {
        let step = before.iter().zip(&after).map(|(before, after)| (before - after) * (eps / lr) as f32);
        let gradient = file.tensor(&format!("kl_gradient.{name}")).unwrap();
        let (worst, at) = golden::distance(&step.collect::<Vec<_>>(), &gradient);
        // The rounding of weights in f32 by the step.
        assert!(worst < 2e-3, "{name}[{at}]: the gradient is {}", gradient[at]);
        largest = gradient.iter().fold(largest, |largest, g| largest.max(g.abs()));
    }
    assert!(largest > 0.5, "{largest}");
}
