//! Estimators and losses, by their names in a configuration, compared with their published code.
//!
//! The golden file comes from `crates/core/tests/golden/make_methods.py`, which runs that code and leaves derivatives to
//! autograd.

use fgrpo_core::advantage::Advantage;
use fgrpo_core::group::{Group, Part, Rewards};
use fgrpo_core::loss::{Aggregation, Counts, PolicyLoss, covariance, high_entropy::high_entropy};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    estimators: Vec<Estimator>,
    losses: Vec<GoldenLoss>,
    masks: Vec<Mask>,
}

#[derive(Deserialize)]
struct Estimator {
    advantage: Advantage,
    source: String,
    rewards: Vec<Vec<f64>>,
    lengths: Vec<Vec<usize>>,
    advantages: Vec<Vec<f64>>,
    #[serde(default)]
    parts: Vec<WeightedPart>,
    #[serde(default)]
    mean_logp: Option<Vec<Vec<f64>>>,
}

/// One of several rewards, for each completion of each group.
#[derive(Deserialize)]
struct WeightedPart {
    rewards: Vec<Vec<f64>>,
    weight: f64,
}

#[derive(Deserialize)]
struct GoldenLoss {
    loss: PolicyLoss,
    aggregation: Aggregation,
    source: String,
    logp: Vec<Vec<f64>>,
    old_logp: Vec<Vec<f64>>,
    advantages: Vec<f64>,
    value: f64,
    dlogp: Vec<Vec<f64>>,
}

#[derive(Deserialize)]
struct Mask {
    share: f64,
    entropies: Vec<Vec<f64>>,
    kept: Vec<Vec<bool>>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../../core/tests/golden/methods.json")).unwrap()
}

fn close(found: f64, wanted: f64, what: &str) {
    assert!((found - wanted).abs() < 1e-7 * (1.0 + wanted.abs()), "{what}: found {found}, wanted {wanted}");
}

#[test]
fn estimators_equal_their_published_code() {
    let all = golden().estimators;
    for Estimator { advantage, source, rewards, lengths, advantages, parts, mean_logp } in &all {
        let of_group = |g: usize| -> Vec<Part<'_>> {
            parts.iter().map(|part| Part { rewards: &part.rewards[g], weight: part.weight }).collect()
        };
        let parts: Vec<Vec<Part<'_>>> = (0..rewards.len()).map(of_group).collect();
        let groups: Vec<Group<'_>> = rewards
            .iter()
            .zip(lengths)
            .zip(&parts)
            .enumerate()
            .map(|(g, ((rewards, lengths), parts))| Group {
                rewards,
                lengths,
                mean_old_logp: mean_logp.as_ref().map_or(&[0.0; 4][..], |logp| logp[g].as_slice()),
                scored: &[true; 4],
                parts,
                clusters: &[],
            })
            .collect();
        let found = advantage.of_batch(&groups, &Rewards::default()).unwrap();
        for (found, wanted) in found.iter().flatten().zip(advantages.iter().flatten()) {
            close(*found, *wanted, &format!("{advantage:?} of {rewards:?} ({source})"));
        }
    }
    for name in [
        "grpo_passk",
        "passk_training",
        "w_reinforce",
        "rs_grpo",
        "dgpo",
        "opo",
        "lite_ppo",
        "grpo_lead",
        "gdpo",
        "avspo",
        "curve_rl",
        "ucpo",
    ] {
        assert!(all.iter().any(|e| e.advantage.name() == name), "no golden values of {name}");
    }
}

#[test]
fn losses_equal_their_published_code() {
    for golden in golden().losses {
        let aggregation = golden.aggregation;
        assert!(matches!(aggregation, Aggregation::TokenMean | Aggregation::SeqMeanTokenMean));
        let (counts, policy) = (Counts::of(golden.logp.iter().map(Vec::len)), golden.loss);
        let logp = |i: usize| (golden.logp[i].as_slice(), golden.old_logp[i].as_slice());
        let all: Vec<(f64, &[f64], &[f64])> =
            golden.advantages.iter().enumerate().map(|(i, &a)| (a, logp(i).0, logp(i).1)).collect();
        let selected = covariance::selected(&policy, &all);
        let mut value = 0.0;
        for (i, logp) in golden.logp.iter().enumerate() {
            let weight = aggregation.weight(logp.len(), &counts, 1);
            let tokens = policy.completion(logp, &golden.old_logp[i], golden.advantages[i]);
            for (t, (mut token, wanted)) in tokens.zip(&golden.dlogp[i]).enumerate() {
                if selected.as_ref().is_some_and(|selected| selected[i][t]) {
                    token = policy.of_selected(token, logp[t], golden.old_logp[i][t]);
                }
                value += weight * token.loss;
                close(
                    weight * token.dlogp,
                    *wanted,
                    &format!("{:?}, completion {i} ({})", golden.loss, golden.source),
                );
            }
        }
        close(value, golden.value, &format!("{:?} ({})", golden.loss, golden.source));
    }
}

#[test]
fn tokens_of_high_entropy_are_trls() {
    let all = golden().masks;
    assert!(all.len() >= 8);
    for Mask { share, entropies, kept } in all {
        let completions: Vec<&[f64]> = entropies.iter().map(Vec::as_slice).collect();
        assert_eq!(high_entropy(share, &completions).unwrap(), kept, "{share} of {entropies:?}");
    }
}
