//! Tests of DARO, against the same update written without it and against values worked out by hand, and of the
//! restriction of the policy loss to some tokens.

use super::*;
use crate::policy::Sequence;
use crate::problem::Prompt;
use crate::rollout::Rollouts;
use fgrpo_core::credit::Assigned;
use fgrpo_core::rng::Key;
use fgrpo_eval::graded::Graded;
use fgrpo_nn::config::{Architecture, Config};
use fgrpo_nn::{Completion, Device, Engine};
use fgrpo_verify::verdict::Verdict;

const PROMPT: [u32; 3] = [3, 1, 4];

fn policy() -> Policy {
    let config = Config {
        architecture: Architecture::Qwen3,
        vocab_size: 17,
        hidden_size: 16,
        intermediate_size: 32,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 8,
        rms_norm_eps: 1e-6,
        rope_theta: 1e4,
        tie_word_embeddings: true,
        max_position_embeddings: 64,
        eos_token_id: vec![0],
        ..Config::default()
    };
    let engine = Engine::init(&config, 0.3, &|i| Key::new(7).nth_normal(i), &Device::cpu(1)).unwrap();
    Policy::of_tokens(engine)
}

/// Makes groups of four completions with on-policy log-probabilities, each group with a given success rate.
fn groups(policy: &mut Policy) -> Vec<Credited> {
    let mut group = |rate: f64, completions: [(&[u32], f64); 4]| {
        let completion = |(sample, (tokens, _)): (usize, &(&[u32], f64))| {
            let scores = policy.score(&[Sequence::completion(&PROMPT, tokens)], 1.0).unwrap();
            Completion {
                prompt: 0,
                sample,
                tokens: tokens.to_vec(),
                logp: scores[0].logp.clone(),
                entropy: vec![0.0; tokens.len()],
                finish: Finish::Stop,
                cached: 0,
            }
        };
        Credited {
            rollouts: Rollouts::new(
                Prompt::of_tokens(0, &PROMPT),
                completions.iter().enumerate().map(completion).collect(),
            ),
            grades: vec![Graded::new(Verdict::Wrong, "none"); 4],
            rewards: vec![0.0; 4],
            parts: Vec::new(),
            assigned: Assigned {
                advantages: completions.map(|(_, advantage)| advantage).to_vec(),
                success_rate: Some(rate),
                focal_weight: 1.0,
            },
        }
    };
    vec![
        group(0.25, [(&[5, 6, 0], 1.5), (&[5, 0], -0.5), (&[7, 0], -0.5), (&[8, 9, 9, 0], -0.5)]),
        group(0.75, [(&[5, 0], 0.5), (&[6, 2, 0], 0.5), (&[7, 0], 0.5), (&[0], -1.5)]),
        // Advantages that smoothing gives to a group whose completions are all correct.
        group(1.0, [(&[5, 0], 0.1), (&[6, 2, 0], 0.2), (&[7, 0], 0.1), (&[0], 0.3)]),
    ]
}

const OBJECTIVE: Objective = Objective { policy: PolicyLoss::CISPO, ..Objective::GRPO };

fn tokens(group: &Credited) -> f64 {
    (0..4).map(|i| group.length(i)).sum::<usize>() as f64
}

fn loss(objective: &Objective) -> LossSettings {
    LossSettings {
        objective: *objective,
        temperature: 1.0,
        mask_truncated: false,
        daro_lr: None,
        teacher_coef: 0.0,
    }
}

fn gradient(groups: &[Credited], daro: Option<&Daro>) -> Vec<f32> {
    gradient_of(groups, &OBJECTIVE, daro, false)
}

fn gradient_of(groups: &[Credited], objective: &Objective, daro: Option<&Daro>, unchanged: bool) -> Vec<f32> {
    let mut policy = policy();
    let groups: Vec<&Credited> = groups.iter().collect();
    let settings = loss(objective);
    let objective = settings.objective_after(u64::from(!unchanged));
    let loss = Loss::Policy { objective, daro: daro.cloned() };
    policy.forward_backward(&data(&groups, &settings, daro), &loss, 1.0).unwrap();
    policy.engine().gradients().flat_map(|(_, _, values)| values.into_owned()).collect()
}

#[test]
fn kl_cov_penalises_no_rounding_before_the_first_update() {
    let mut groups = groups(&mut policy());
    let completions = groups.iter_mut().flat_map(|group| &mut group.rollouts.completions);
    completions.flat_map(|completion| &mut completion.logp).for_each(|logp| *logp += 1e-6);
    let gradient = |coef, unchanged| {
        let policy = PolicyLoss::KlCov { share: 0.5, coef };
        gradient_of(&groups, &Objective { policy, ..OBJECTIVE }, None, unchanged)
    };
    assert_eq!(gradient(1.0, true), gradient(0.0, true));
    assert_ne!(gradient(1.0, false), gradient(0.0, false));
}

#[test]
fn clip_cov_draws_only_tokens_that_the_clip_has_not_silenced() {
    let mut groups = groups(&mut policy());
    let total: f64 = groups.iter().map(tokens).sum();
    // Each token of the first completion, whose advantage is positive, is now 2.7 times as likely as when it was sampled.
    let clipped = &mut groups[0].rollouts.completions[0].logp;
    clipped.iter_mut().for_each(|logp| *logp -= 1.0);
    let share = (total - clipped.len() as f64 + 0.5) / total;
    let policy = PolicyLoss::ClipCov { clip: [0.2, 0.2], share, covariance: [-100.0, 100.0] };
    let gradient = gradient_of(&groups, &Objective { policy, ..OBJECTIVE }, None, false);
    assert!(gradient.iter().all(|x| *x == 0.0), "a token that isn't clipped was not drawn");
}

#[test]
fn daro_gives_each_success_rate_its_weighted_token_mean_and_the_rest_nothing() {
    let groups = groups(&mut policy());
    let daro = Daro { raw: vec![0.3, 0.0, -0.5] };
    let all: f64 = groups.iter().map(tokens).sum();
    let mut by_hand = groups.clone();
    for group in &mut by_hand {
        let factor = match group.assigned.success_rate {
            Some(0.25) => daro.weight(0) * all / tokens(group),
            Some(0.75) => daro.weight(2) * all / tokens(group),
            _ => 0.0,
        };
        group.assigned.advantages.iter_mut().for_each(|advantage| *advantage *= factor);
    }
    let (computed, expected) = (gradient(&groups, Some(&daro)), gradient(&by_hand, None));
    let largest = expected.iter().fold(0f32, |a, x| a.max(x.abs()));
    assert!(largest > 1e-3, "the gradient is {largest}");
    for (x, y) in computed.iter().zip(&expected) {
        assert!((x - y).abs() < 1e-5 * largest, "{x} is not {y}");
    }
}

#[test]
fn the_policy_loss_counts_the_mini_batchs_tokens_of_highest_entropy_however_it_is_cut() {
    let mut groups = groups(&mut policy());
    let completions = || groups.iter().flat_map(|g| &g.rollouts.completions);
    let n: usize = completions().map(|c| c.tokens.len()).sum();
    // Distinct numbers in mixed order.
    let mut next = (0..n).map(|i| (i * 17 % 53) as f32);
    assert!(n <= 53);
    for completion in groups.iter_mut().flat_map(|g| &mut g.rollouts.completions) {
        completion.entropy = next.by_ref().take(completion.tokens.len()).collect();
    }
    let mut sorted: Vec<f32> =
        groups.iter().flat_map(|g| &g.rollouts.completions).flat_map(|c| c.entropy.clone()).collect();
    sorted.sort_by(f32::total_cmp);
    let lowest = sorted[(0.75 * (n - 1) as f64).ceil() as usize];
    let mut expected = 0.0;
    for group in &groups {
        for (c, advantage) in group.rollouts.completions.iter().zip(&group.assigned.advantages) {
            let counted = c.logp.iter().zip(&c.entropy).filter(|(_, e)| **e >= lowest);
            expected -= advantage * counted.map(|(l, _)| f64::from(*l)).sum::<f64>() / n as f64;
        }
    }
    let restricted = Objective { top_entropy_quantile: 0.25, ..OBJECTIVE };
    let groups: Vec<&Credited> = groups.iter().collect();
    let policy_loss = |objective: &Objective, budget| {
        let mut policy = policy();
        policy.set_pass_tokens(budget);
        let data = data(&groups, &loss(objective), None);
        let loss = Loss::Policy { objective: *objective, daro: None };
        policy.forward_backward(&data, &loss, 1.0).unwrap().sums.policy_loss
    };
    for budget in [1 << 16, 6] {
        let computed = policy_loss(&restricted, budget);
        assert!((computed - expected).abs() < 1e-5, "budget {budget}: {computed} is not {expected}");
    }
    assert!((policy_loss(&OBJECTIVE, 1 << 16) - expected).abs() > 1e-3, "the mask changes nothing");
}

#[test]
fn daro_weights_step_by_the_losses_of_the_same_pass() {
    let mut policy = policy();
    let groups = groups(&mut policy);
    let settings = LossSettings { daro_lr: Some(0.1), ..loss(&OBJECTIVE) };
    let start = vec![0.3, 0.0, -0.5];
    let mut state = UpdateState { skipped_in_a_row: 0, daro: Some(start.clone()) };
    let all: Vec<&Credited> = groups.iter().collect();
    let sums = update(&mut policy, &all, &settings, &UpdateConfig::default(), 1e-3, &mut state).unwrap();
    // On-policy the weight of CISPO is 1 and a token's loss is -A logp.
    let loss = |g: &Credited| -> f64 {
        let completion = |(c, advantage): (&Completion, &f64)| {
            -advantage * c.logp.iter().map(|&l| f64::from(l)).sum::<f64>()
        };
        g.rollouts.completions.iter().zip(&g.assigned.advantages).map(completion).sum()
    };
    let mean: Vec<f64> = groups.iter().map(|g| loss(g) / tokens(g)).collect();
    let softplus = |x: f64| (1.0 + x.exp()).ln() + 1e-8;
    let expected = softplus(0.3) * mean[0] + softplus(-0.5) * mean[1];
    let computed = sums.tokens.policy_loss;
    assert!((computed - expected).abs() < 1e-4, "{computed} is not {expected}");
    let stepped = |raw: f64, mean: f64| raw - 0.1 * (mean - 1.0 / softplus(raw)) / (1.0 + (-raw).exp());
    let raw = state.daro.unwrap();
    assert!((raw[0] - stepped(0.3, mean[0])).abs() < 1e-4, "{raw:?}");
    assert_eq!(raw[1], 0.0, "no group has two correct of four");
    assert!((raw[2] - stepped(-0.5, mean[1])).abs() < 1e-4, "{raw:?}");
}

#[test]
fn a_checkpoint_from_before_the_weights_opens() {
    let old = r#"{"step": 3, "skipped_in_a_row": 1, "best": null, "optimizer_step": 5}"#;
    let state: crate::run::checkpoint::TrainerState = serde_json::from_str(old).unwrap();
    assert_eq!(state.update, UpdateState { skipped_in_a_row: 1, daro: None });
    let again = serde_json::to_value(&state).unwrap();
    assert_eq!((&again["skipped_in_a_row"], again.get("daro")), (&serde_json::json!(1), None));
}

#[test]
fn a_mini_batch_without_a_verdict_leaves_the_policy_as_it_is() {
    let mut policy = policy();
    let mut groups = groups(&mut policy);
    let config = UpdateConfig { weight_decay: 0.1, ..UpdateConfig::default() };
    let mut weights_after = |groups: &[Credited], updates| {
        let groups: Vec<&Credited> = groups.iter().collect();
        let state = &mut UpdateState::default();
        let sums = update(&mut policy, &groups, &loss(&OBJECTIVE), &config, 1e-2, state).unwrap();
        assert_eq!((sums.applied, sums.skipped), (updates, 0));
        policy.engine().tensors().flat_map(|(_, _, values)| values.into_owned()).collect::<Vec<f32>>()
    };
    // The first update gives the optimizer its momentum.
    let first = weights_after(&groups, 1);
    for group in &mut groups {
        group.grades = vec![Graded::new(Verdict::Unscorable, "server"); 4];
    }
    assert_eq!(weights_after(&groups, 0), first);
}

#[test]
fn a_batch_is_divided_evenly_over_as_few_updates_as_the_mini_batch_allows() {
    let mut policy = policy();
    let group = groups(&mut policy).swap_remove(0);
    for (count, mini_batch, updates) in [(9, 4, 3), (5, 4, 2), (8, 4, 2), (3, 4, 1), (0, 4, 0)] {
        let config = UpdateConfig { mini_batch: Some(mini_batch), ..UpdateConfig::default() };
        let (mut state, groups) = (UpdateState::default(), vec![&group; count]);
        let sums = update(&mut policy, &groups, &loss(&OBJECTIVE), &config, 1e-9, &mut state).unwrap();
        assert_eq!(sums.applied, updates, "{count} groups");
    }
    assert_eq!([(9, 4), (5, 4), (8, 4), (3, 4), (0, 4)].map(|(n, size)| even_size(n, size)), [3, 3, 4, 3, 1]);
}
