use super::Advantage::*;
use super::*;
use crate::group::group;
use proptest::prelude::*;

fn of(estimator: impl std::borrow::Borrow<Advantage>, rewards: &[f64], scored: &[bool]) -> Vec<f64> {
    let n = rewards.len();
    let group = Group {
        rewards,
        lengths: &vec![1; n],
        mean_old_logp: &vec![-1.0; n],
        scored,
        parts: &[],
        clusters: &vec![0; n],
    };
    estimator.borrow().advantages(&group, &Rewards::default()).unwrap()
}

fn assert_close(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (f, w) in actual.iter().zip(expected) {
        assert!((f - w).abs() < 1e-12, "{actual:?} instead of {expected:?}");
    }
}

#[test]
fn estimators_match_values_worked_by_hand() {
    // One correct of four: mean 1/4, squares 3/4, sample deviation 1/2, population sqrt(3)/4.
    let (r, s) = ([1.0, 0.0, 0.0, 0.0], [true; 4]);
    assert_close(
        &of(Advantage::GRPO, &r, &s),
        &[0.75 / 0.500001, -0.25 / 0.500001, -0.25 / 0.500001, -0.25 / 0.500001],
    );
    let third = 1.0 / 3f64.sqrt();
    assert_close(&of(Grpo { eps: 0.0, ddof: 0 }, &r, &s), &[3.0 * third, -third, -third, -third]);
    assert_close(&of(DrGrpo, &r, &s), &[0.75, -0.25, -0.25, -0.25]);
    assert_close(&of(Rloo, &r, &s), &[1.0, -1.0 / 3.0, -1.0 / 3.0, -1.0 / 3.0]);
    let d = 0.250001;
    assert_close(&of(MaxRl, &r, &s), &[0.75 / d, -0.25 / d, -0.25 / d, -0.25 / d]);
    // Two correct of four, k = 3: C(2,2)/C(3,2) = 1/3. k = 2: C(2,1)/C(3,1) = 2/3. k = 4: none.
    let r = [1.0, 0.0, 1.0, 0.0];
    assert_close(&of(Pkpo { k: 3 }, &r, &s), &[1.0 / 3.0, 0.0, 1.0 / 3.0, 0.0]);
    assert_close(&of(Pkpo { k: 2 }, &r, &s), &[2.0 / 3.0, 0.0, 2.0 / 3.0, 0.0]);
    assert_close(&of(Pkpo { k: 4 }, &r, &s), &[0.0; 4]);
}

#[test]
fn a_virtual_reward_gives_groups_of_equal_verdicts_an_advantage() {
    let avspo = Avspo { eps: 0.0 };
    // Three of four: mean 3/4, deviation 1/2.
    assert_close(&of(&avspo, &[1.0; 3], &[true; 3]), &[0.5; 3]);
    assert_close(&of(&avspo, &[0.0; 3], &[true; 3]), &[-0.5; 3]);
    let mixed = [1.0, 0.0, 0.0, 0.0];
    assert_eq!(of(Avspo { eps: 1e-6 }, &mixed, &[true; 4]), of(Advantage::GRPO, &mixed, &[true; 4]));
    // The virtual reward is of a completion of this task: wrong ones have -1 here.
    let group = group(&[1.0; 3]);
    let meaning = Rewards { wrong: -1.0, ..Rewards::default() };
    assert_close(&avspo.advantages(&group, &meaning).unwrap(), &[0.5; 3]);
}

#[test]
fn rloo_is_the_reward_less_the_mean_of_the_others() {
    let r = [0.3, 0.9, -0.4, 1.0, 0.0];
    let advantages = of(Rloo, &r, &[true; 5]);
    for i in 0..5 {
        let others = (r.iter().sum::<f64>() - r[i]) / 4.0;
        assert!((advantages[i] - (r[i] - others)).abs() < 1e-12);
    }
}

#[test]
fn group_with_equal_rewards_gets_zero_advantage() {
    // 0.1 three times: the rounded mean differs from 0.1.
    for estimator in [Grpo { eps: 0.0, ddof: 1 }, Advantage::GRPO, DrGrpo, Rloo] {
        assert_eq!(of(&estimator, &[0.1; 3], &[true; 3]), [0.0; 3]);
    }
    let alone = |e: &Advantage| !matches!(e, WReinforce { .. } | GrpoLead { .. } | Avspo { .. } | Bbg { .. });
    for estimator in Advantage::ALL.into_iter().filter(alone) {
        assert_eq!(of(&estimator, &[1.0; 3], &[true; 3]), [0.0; 3], "{estimator:?}, all correct");
        assert_eq!(of(&estimator, &[0.0; 3], &[true; 3]), [0.0; 3], "{estimator:?}, none correct");
    }
}

#[test]
fn unscorable_completions_leave_the_statistics_and_get_zero() {
    for estimator in Advantage::ALL {
        let advantages = of(&estimator, &[1.0, f64::NAN, 0.0, 0.0], &[true, false, true, true]);
        let scored_only = of(&estimator, &[1.0, 0.0, 0.0], &[true; 3]);
        assert_eq!(advantages, [scored_only[0], 0.0, scored_only[1], scored_only[2]], "{estimator:?}");
    }
}

#[test]
fn group_shrunk_to_one_gets_zero_advantage() {
    for estimator in [Advantage::ALL.as_slice(), &[Grpo { eps: 1e-6, ddof: 0 }, Pkpo { k: 1 }]].concat() {
        assert_eq!(of(&estimator, &[1.0, 1.0, 0.0], &[true, false, false]), [0.0; 3], "{estimator:?}");
        assert_eq!(of(&estimator, &[1.0, 1.0, 0.0], &[false; 3]), [0.0; 3], "{estimator:?}");
    }
}

#[test]
fn group_shrunk_below_k_has_no_pass_at_k_estimate() {
    let scored = [true, true, true, false];
    assert_eq!(of(Pkpo { k: 4 }, &[1.0, 0.0, 0.0, 0.0], &scored), [0.0; 4]);
    assert_eq!(of(Pkpo { k: 3 }, &[1.0, 0.0, 0.0, 0.0], &scored), [1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn max_rl_reads_correctness_so_a_negative_wrong_reward_changes_nothing() {
    let signed = Rewards { wrong: -1.0, ..Rewards::default() };
    let advantages = MaxRl.advantages(&group(&[1.0, -1.0, -1.0]), &signed).unwrap();
    assert_eq!(advantages, of(MaxRl, &[1.0, 0.0, 0.0], &[true; 3]));
}

/// MaxRL's expected weight of a correct completion, over the outcomes of the others, is the population weight (1 -
/// (1-p)^N) / p minus 1 for the baseline (here without the 1e-6).
#[test]
fn max_rl_has_the_population_weight_in_expectation() {
    let (n, p) = (6usize, 0.3f64);
    let mut correct = 0.0;
    for others in 0..1u32 << (n - 1) {
        let c = others.count_ones();
        let probability = p.powi(c as i32) * (1.0 - p).powi((n as u32 - 1 - c) as i32);
        let rewards: Vec<f64> =
            (0..n).map(|i| if i == 0 { 1.0 } else { f64::from(others >> (i - 1) & 1) }).collect();
        correct += probability * (of(MaxRl, &rewards, &[true; 6])[0] + 1.0);
    }
    let expected = (1.0 - (1.0 - p).powi(n as i32)) / p;
    assert!((correct - expected).abs() < 1e-4, "{correct} instead of {expected}");
}

/// PKPO's weights sum, over a group, to an unbiased estimate of p * d pass@k / dp; check the
/// expectation k p (1-p)^(k-1) by enumeration.
#[test]
fn pkpo_is_an_unbiased_gradient_of_pass_at_k() {
    let (n, p, k) = (5usize, 0.35f64, 3usize);
    let mut mean = 0.0;
    for outcome in 0..1u32 << n {
        let c = outcome.count_ones() as i32;
        let probability = p.powi(c) * (1.0 - p).powi(n as i32 - c);
        let rewards: Vec<f64> = (0..n).map(|i| f64::from(outcome >> i & 1)).collect();
        mean += probability * of(Pkpo { k }, &rewards, &[true; 5]).iter().sum::<f64>() / n as f64;
    }
    let expected = p * (1.0 - p).powi(k as i32 - 1);
    assert!((mean - expected).abs() < 1e-12, "{mean} instead of {expected}");
}

#[test]
fn impossible_settings_are_refused_by_name() {
    let message = |a: Advantage, n| a.check(n).unwrap_err().to_string();
    assert!(message(Advantage::GRPO, 1).starts_with("group_size: "));
    assert!(message(Pkpo { k: 9 }, 8).starts_with("advantage.k: "));
    assert!(message(Grpo { eps: -1.0, ddof: 1 }, 8).starts_with("advantage.eps"));
    assert!(message(Grpo { eps: 0.0, ddof: 2 }, 8).starts_with("advantage.ddof"));
    for (estimator, key) in [
        (Power { a: 9.0, b: 0.5, delta: 1.0 }, "advantage.a"),
        (Power { a: 0.5, b: f64::NAN, delta: 1.0 }, "advantage.b"),
        (Power { a: 0.5, b: 0.5, delta: 0.0 }, "advantage.delta"),
        (PasskTraining { k: 0 }, "advantage.k"),
        (Bbg { k: 0, tau: 0.01, positive: 1.0 }, "advantage.k"),
        (Bbg { k: 16, tau: 1.5, positive: 1.0 }, "advantage.tau"),
        (CueGrpo { alpha: 1.5 }, "advantage.alpha"),
        (Ucpo { tau: -0.1 }, "advantage.tau"),
        (GrpoPassk { eps: -1.0 }, "advantage.eps"),
        (Advantage::WReinforce { positive: -0.1, negative: 1.0 }, "advantage.positive"),
        (Advantage::WReinforce { positive: 0.0, negative: 0.0 }, "advantage.positive"),
        (RsGrpo { beta: f64::INFINITY }, "advantage.beta"),
        (Dgpo { temperature: -1.0 }, "advantage.temperature"),
    ] {
        let text = message(estimator, 8);
        assert!(text.starts_with(key), "{text}");
    }
    assert!(Advantage::ALL.iter().all(|a| a.check(2).is_ok()));
}

#[test]
fn a_reward_that_is_not_finite_is_refused() {
    let group = group(&[1.0, f64::NAN]);
    for estimator in Advantage::ALL {
        let error = estimator.advantages(&group, &Rewards::default()).unwrap_err();
        assert!(matches!(error, Error::NonFiniteReward { completion: 1, .. }), "{estimator:?}");
    }
}

proptest! {
    #[test]
    fn reordering_a_group_reorders_its_advantages(
        outcome in prop::collection::vec((any::<bool>(), prop::bool::weighted(0.8)), 2..12),
        rotate in 0usize..12,
    ) {
        let rewards: Vec<f64> = outcome.iter().map(|o| f64::from(u8::from(o.0))).collect();
        let scored: Vec<bool> = outcome.iter().map(|o| o.1).collect();
        let turn = |v: &mut dyn FnMut(usize)| v(rotate % rewards.len());
        for estimator in Advantage::ALL {
            let mut expected = of(&estimator, &rewards, &scored);
            let (mut r, mut s) = (rewards.clone(), scored.clone());
            turn(&mut |k| { r.rotate_left(k); s.rotate_left(k); expected.rotate_left(k); });
            // Sums of squares are rounded in the order of the group.
            for (actual, expected) in of(&estimator, &r, &s).iter().zip(&expected) {
                prop_assert!((actual - expected).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn centred_estimators_sum_to_zero(rewards in prop::collection::vec(-2.0f64..2.0, 2..20)) {
        let scored = vec![true; rewards.len()];
        for estimator in [Advantage::GRPO, DrGrpo, Rloo] {
            prop_assert!(of(&estimator, &rewards, &scored).iter().sum::<f64>().abs() < 1e-9);
        }
    }

    #[test]
    fn grpo_does_not_see_shift_or_scale_of_the_rewards(
        rewards in prop::collection::vec(-1.0f64..1.0, 3..10), shift in -3.0f64..3.0, scale in 0.5f64..4.0,
    ) {
        let scored = vec![true; rewards.len()];
        let estimator = Grpo { eps: 0.0, ddof: 1 };
        let moved: Vec<f64> = rewards.iter().map(|r| r * scale + shift).collect();
        for (a, b) in of(&estimator, &rewards, &scored).iter().zip(of(&estimator, &moved, &scored)) {
            prop_assert!((a - b).abs() < 1e-6 * (1.0 + a.abs()));
        }
    }
}

/// Returns the rewards, 1 or 0, of `n` completions of which `c` are correct.
fn binary(n: usize, c: usize) -> Vec<f64> {
    (0..n).map(|i| f64::from(u8::from(i < c))).collect()
}

fn assert_near(actual: &[f64], expected: impl IntoIterator<Item = f64>, share: f64) {
    for (f, w) in actual.iter().zip(expected) {
        assert!((f - w).abs() <= share * (1.0 + w.abs()), "{actual:?} instead of {w}");
    }
}

#[test]
fn power_reproduces_the_named_methods() {
    for n in [2usize, 8, 64] {
        let s = vec![true; n];
        for c in 0..=n {
            let r = binary(n, c);
            let p = c as f64 / n as f64;
            let power = |a, b| of(Power { a, b, delta: 1.0 }, &r, &s);
            assert_near(&power(0.0, 0.0), of(DrGrpo, &r, &s), 1e-15);
            let rloo = of(Rloo, &r, &s);
            assert_near(&power(0.0, 0.0), rloo.into_iter().map(|a| a * (n - 1) as f64 / n as f64), 1e-15);
            let grpo = of(Grpo { eps: 0.0, ddof: 0 }, &r, &s);
            assert_near(&power(0.5, 0.5), grpo.clone(), 1e-13);
            for gamma in [0.5, 1.0, 2.0] {
                let weight = crate::focal::focal_weight(p, gamma);
                assert_near(&power(0.5, 0.5 - gamma), grpo.iter().map(|a| a * weight), 1e-13);
            }
            // MaxRL adds 1e-6 to its denominator.
            let max_rl = of(MaxRl, &r, &s);
            let factor = if c == 0 { 0.0 } else { (p + 1e-6) / p };
            assert_near(&power(1.0, 0.0), max_rl.into_iter().map(|a| a * factor), 1e-13);
            // DGPO adds 1e-4 to its denominator, which is 2 n p (1 - p).
            let dgpo = of(Dgpo { temperature: 0.0 }, &r, &s);
            let extent = 2.0 * n as f64 * p * (1.0 - p);
            let factor = if c == 0 || c == n { 0.0 } else { 2.0 * (extent + 1e-4) / extent };
            assert_near(&power(1.0, 1.0), dgpo.into_iter().map(|a| a * factor), 1e-12);
        }
    }
}

#[test]
fn power_is_pkpo_less_its_mean_for_many_completions() {
    let (n, s) = (1 << 14, vec![true; 1 << 14]);
    for (c, k) in [(2000, 2), (9000, 4), (3000, 8)] {
        let r = binary(n, c);
        let pkpo = of(Pkpo { k }, &r, &s);
        let mean = pkpo.iter().sum::<f64>() / n as f64;
        let power = of(Power { a: 0.0, b: 1.0 - k as f64, delta: 1.0 }, &r, &s);
        for i in [0, n - 1] {
            let expected = pkpo[i] - mean;
            assert!((power[i] / expected - 1.0).abs() < 5e-3, "k {k}: {} instead of {expected}", power[i]);
        }
    }
}

#[test]
fn power_refuses_graded_rewards_without_a_threshold() {
    let group = group(&[1.0, 0.4, 0.0]);
    let power = Power { a: 0.5, b: 0.5, delta: 1.0 };
    assert!(matches!(power.advantages(&group, &Rewards::default()), Err(Error::GradedReward { .. })));
    let graded = Rewards { threshold: Some(0.4), ..Rewards::default() };
    assert_close(&power.advantages(&group, &graded).unwrap(), &of(power, &[1.0, 1.0, 0.0], &[true; 3]));
}

/// The advantage of pass@k training by its definition: the mean over all groups of k completions that contain this one,
/// where a group's reward is 1 if any of its completions is correct, less the mean of all groups, in standard deviations.
#[test]
fn passk_training_is_the_mean_over_all_groups_of_k() {
    for (n, c, k) in [(6usize, 2usize, 3usize), (5, 1, 2), (7, 4, 4), (6, 5, 3), (4, 2, 1)] {
        let groups: Vec<u32> = (0..1u32 << n).filter(|g| g.count_ones() as usize == k).collect();
        let reward = |g: u32| f64::from(u8::from(g & ((1 << c) - 1) != 0));
        let mean = groups.iter().map(|&g| reward(g)).sum::<f64>() / groups.len() as f64;
        let deviation =
            (groups.iter().map(|&g| (reward(g) - mean).powi(2)).sum::<f64>() / groups.len() as f64).sqrt();
        let advantages = of(PasskTraining { k }, &binary(n, c), &vec![true; n]);
        for (i, advantage) in advantages.into_iter().enumerate() {
            let rewards: Vec<f64> =
                groups.iter().filter(|&&g| g >> i & 1 == 1).map(|&g| reward(g) - mean).collect();
            let expected = rewards.iter().sum::<f64>() / rewards.len() as f64 / (deviation + 1e-6);
            assert!(
                (advantage - expected).abs() < 1e-12,
                "n {n}, c {c}, k {k}: {advantage} instead of {expected}"
            );
        }
    }
}

#[test]
fn batch_estimators_match_values_worked_by_hand() {
    let group = |rewards: &'static [f64], lengths| Group { lengths, ..group(rewards) };
    // One of two correct, both correct, none; and a lone completion, which counts nowhere.
    let groups = [
        group(&[1.0, 0.0], &[1, 3]),
        group(&[1.0, 1.0], &[2, 2]),
        group(&[0.0, 0.0], &[1, 1]),
        group(&[1.0], &[9]),
    ];
    let batch = |estimator: Advantage| estimator.of_batch(&groups, &Rewards::default()).unwrap();
    let gpg = batch(Gpg);
    assert_eq!(gpg, [vec![1.5, -1.5], vec![0.0; 2], vec![0.0; 2], vec![0.0]]);
    // Rewards 1 0 1 1 0 0: mean 1/2, squares 6/4, deviation sqrt(3/10).
    let scale = 0.3f64.sqrt() + 1e-6;
    let lite = batch(LitePpo);
    assert_close(&lite[0], &[0.5 / scale, -0.5 / scale]);
    assert_eq!(lite[1..], [vec![0.0; 2], vec![0.0; 2], vec![0.0]]);
    // Over ten tokens x is 1/2 once, -1/2 three times, else 0: mean -1/10, squares 1 - 10/100.
    let plus = batch(ReinforcePlusPlusBaseline);
    let scale = (0.9 / 9.0 + 1e-8f64).sqrt();
    assert_close(&plus[0], &[0.6 / scale, -0.4 / scale]);
    assert_close(&plus[1], &[0.1 / scale; 2]);
    assert_eq!(plus[3], [0.0]);
    let opo = batch(Opo);
    assert_eq!(opo[0], [0.75, -0.25]);
}

#[test]
fn dgpo_weights_unequal_groups_by_difficulty_and_the_weights_have_mean_one() {
    let (easy, hard) = (binary(4, 3), binary(4, 1));
    let groups = [group(&easy), group(&hard), group(&[1.0; 4])];
    let weighted = |temperature| Dgpo { temperature }.of_batch(&groups, &Rewards::default()).unwrap();
    let (plain, weighed) = (weighted(0.0), weighted(0.5));
    let weights = [0, 1].map(|g| weighed[g][0] / plain[g][0]);
    // exp(-3/2) and exp(-1/2) over their mean.
    let expected = 2.0 / (1.0 + 1f64.exp());
    assert!((weights[0] - expected).abs() < 1e-12 && (weights[0] + weights[1] - 2.0).abs() < 1e-12);
    assert_eq!(weighed[2], [0.0; 4]);
}

#[test]
fn risk_seeking_lifts_rare_success_and_large_exponents_stay_finite() {
    let r = [1.0, 0.0, 0.0, 0.0];
    let mean = (2f64.exp() + 3.0) / 4.0;
    let advantages = of(RsGrpo { beta: 2.0 }, &r, &[true; 4]);
    let wrong = (1.0 / mean - 1.0) / 2.0;
    assert_close(&advantages, &[(2f64.exp() / mean - 1.0) / 2.0, wrong, wrong, wrong]);
    assert_close(&of(RsGrpo { beta: 0.0 }, &r, &[true; 4]), &of(DrGrpo, &r, &[true; 4]));
    let far = of(RsGrpo { beta: 100.0 }, &[50.0, 0.0], &[true; 2]);
    assert!(far.iter().all(|a| a.is_finite()), "{far:?}");
}

#[test]
fn w_reinforce_has_no_baseline() {
    let estimator = Advantage::WReinforce { positive: 0.1, negative: 1.0 };
    assert_eq!(of(&estimator, &[1.0, 0.0], &[true; 2]), [0.1, -1.0]);
    assert_eq!(of(&estimator, &[0.0, 0.0], &[true; 2]), [-1.0, -1.0]);
}

#[test]
fn grpo_passk_rewards_the_only_best_completion() {
    let advantages = of(GrpoPassk { eps: 0.0 }, &[0.5, 2.0, 0.0, 1.5], &[true; 4]);
    let deviation = (2.5f64 / 3.0).sqrt();
    assert_close(&advantages, &[0.0, 0.5 / deviation, 0.0, 0.0]);
    assert_eq!(of(GrpoPassk { eps: 0.0 }, &[1.0, 1.0, 0.0], &[true; 3]), [0.0; 3]);
}

#[test]
fn gdpo_normalises_each_reward_and_leaves_out_what_is_unscorable() {
    let gdpo = Gdpo { eps: 0.0 };
    // The second reward is a thousand times the first, but both count equally.
    let (small, large) = ([0.0, 0.001, f64::NAN], [1.0, 0.0, f64::NAN]);
    let parts = [(&small, 2.0), (&large, 1.0)].map(|(rewards, weight)| Part { rewards, weight });
    let group = Group { scored: &[true, true, false], parts: &parts, ..group(&[1.0, 0.0, f64::NAN]) };
    // Normalised by ddof 1 they are -1/sqrt(2), 1/sqrt(2) and the reverse; the sums -+1/sqrt(2) have deviation 1.
    let half = 0.5f64.sqrt();
    assert_close(&gdpo.advantages(&group, &Rewards::default()).unwrap(), &[-half, half, 0.0]);
    // A group without spread has exactly 0 beside one with.
    let constant = [0.1; 3];
    let same = [Part { rewards: &constant, weight: 1.0 }, Part { rewards: &constant, weight: 1.0 }];
    let equal = Group { rewards: &constant, parts: &same, scored: &[true; 3], ..group };
    let batch = gdpo.of_batch(&[group, equal], &Rewards::default()).unwrap();
    assert_eq!(batch[1], [0.0; 3]);
    assert!(batch[0][0] < 0.0);
}

#[test]
fn delta_is_the_weight_of_correct_completions_over_that_of_wrong_ones() {
    // p = 1/4: a correct completion has (1 - p)^2, a wrong one -p (1 - p) / delta.
    let power = |delta| of(Power { a: 0.0, b: -1.0, delta }, &binary(4, 1), &[true; 4]);
    assert_close(&power(0.5), &[0.5625, -0.375, -0.375, -0.375]);
    assert_close(&power(1.0), &[0.5625, -0.1875, -0.1875, -0.1875]);
}

#[test]
fn curve_rl_weighs_a_group_by_the_share_of_its_rate_among_those_at_most_as_high() {
    let scored = [[true; 4], [true, true, true, false]];
    let advantages = |rows: &[([f64; 4], usize)]| {
        let groups: Vec<Group<'_>> =
            rows.iter().map(|(rewards, row)| Group { scored: &scored[*row], ..group(rewards) }).collect();
        CurveRl.of_batch(&groups, &Rewards::default()).unwrap()
    };
    let (one, three) = ([1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]);
    // Two of two groups have at most 1/4; one of three has at most 3/4.
    let by_group = advantages(&[(one, 0), (three, 0), (one, 0), ([1.0; 4], 0), ([0.0; 4], 0)]);
    assert_close(&by_group[0], &[0.75, -0.25, -0.25, -0.25]);
    assert_close(&by_group[1], &[0.25 / 3.0, 0.25 / 3.0, 0.25 / 3.0, -0.25]);
    assert_eq!(by_group[3..], [vec![0.0; 4], vec![0.0; 4]]);
    // A third, of three scored completions, is in the same fifth as a quarter, and two thirds as three quarters.
    let by_group = advantages(&[(one, 1), (one, 0), ([1.0, 1.0, 0.0, 1.0], 1), (three, 0)]);
    let third = 1.0 / 3.0;
    assert_close(&by_group[0], &[1.0 - third, -third, -third, 0.0]);
    assert_close(&by_group[2], &[third / 2.0, third / 2.0, -third, 0.0]);
}

#[test]
fn bbg_weighs_a_group_by_the_mean_derivative_of_pass_at_k_after_its_successes() {
    let bbg = |tau| Bbg { k: 2, tau, positive: 0.5 };
    // With k = 2 and n = 4 the weight is (5 - c) / 3; below tau (n + 1) it is 0.
    assert_close(&of(bbg(0.0), &binary(4, 1), &[true; 4]), &[2.0 / 3.0, -4.0 / 3.0, -4.0 / 3.0, -4.0 / 3.0]);
    assert_close(&of(bbg(0.0), &binary(4, 0), &[true; 4]), &[-5.0 / 3.0; 4]);
    assert_close(&of(bbg(0.2), &binary(4, 2), &[true; 4]), &[0.5, 0.5, -1.0, -1.0]);
    assert_eq!(of(bbg(0.2), &binary(4, 3), &[true; 4]), [0.0; 4]);
    // The mean of k (1 - x)^(k - 1) by the posterior's density, which is in proportion to x^c (1 - x)^(n - c).
    let (n, k, steps) = (8, 5, 20_000i32);
    for c in 0..=n {
        let at = |power: usize| {
            let x = |i| (f64::from(i) + 0.5) / f64::from(steps);
            (0..steps).map(|i| x(i).powi(c as i32) * (1.0 - x(i)).powi(power as i32)).sum::<f64>()
        };
        let expected = k as f64 * at(n - c + k - 1) / at(n - c);
        let advantages = of(Bbg { k, tau: 0.0, positive: 1.0 }, &binary(n, c), &vec![true; n]);
        assert!(
            (advantages[0].abs() - expected).abs() < 1e-6,
            "c {c}: {} instead of {expected}",
            advantages[0]
        );
    }
}

#[test]
fn credit_that_is_shared_out_keeps_its_sum() {
    let (rewards, scored) = ([1.0, 1.0, 1.0, 0.0, 1.0], [true, true, true, true, false]);
    let group = Group {
        mean_old_logp: &[3f64.ln(), 0.0, 0.0, 9.0, 9.0],
        scored: &scored,
        clusters: &[7, 7, 3, 3, 3],
        ..group(&rewards)
    };
    let advantages = |estimator: Advantage| estimator.advantages(&group, &Rewards::default()).unwrap();
    let grpo = advantages(Advantage::GRPO);
    let (right, wrong) = (grpo[0], grpo[3]);
    assert_eq!(advantages(CueGrpo { alpha: 0.0 }), grpo);
    // Of the three correct ones, two are alike: 1/2, 1/2 and 1 over their mean, 2/3.
    let cue = advantages(CueGrpo { alpha: 1.0 });
    assert_close(&cue, &[0.75 * right, 0.75 * right, 1.5 * right, wrong, 0.0]);
    let none = Group { clusters: &[], ..group };
    let error = CueGrpo { alpha: 1.0 }.advantages(&none, &Rewards::default()).unwrap_err();
    assert!(error.to_string().starts_with("clusters are missing"), "{error}");
    // q is 3/5, 1/5 and 1/5: 5/3, 5 and 5 over their mean, 35/9.
    let grpo = advantages(Grpo { eps: 1e-8, ddof: 1 });
    let (right, wrong) = (grpo[0], grpo[3]);
    assert_eq!(advantages(Ucpo { tau: 0.0 }), grpo);
    let (likely, rare) = (3.0 / 7.0 * right, 9.0 / 7.0 * right);
    assert_close(&advantages(Ucpo { tau: 1.0 }), &[likely, rare, rare, wrong, 0.0]);
    let half = |a: f64| 0.5 * right + 0.5 * a;
    assert_close(&advantages(Ucpo { tau: 0.5 }), &[half(likely), half(rare), half(rare), wrong, 0.0]);
}
