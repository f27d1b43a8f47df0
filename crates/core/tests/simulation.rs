//! The fast simulation compared with the plain program, and with the paper's start and regimes.

mod plain;

use fgrpo_core::rng::Key;
use fgrpo_core::sim::{Error, Metrics, Optimizer, Setup, Simulation, Surrogate};
use plain::Plain;

fn small() -> Setup {
    Setup { actions: 2_000, correct: 160, anchors: 2, ..Setup::default() }
}

/// Runs both with the draws of the fast one, and compares every logit and metric.
fn compare(setup: &Setup, group_size: u64, gamma: f64, steps: u64) -> Simulation {
    let mut fast = Simulation::new(setup, group_size, gamma, 7).unwrap();
    let mut plain = Plain::new(setup, gamma);
    let name = format!("{setup:?}, N = {group_size}, gamma = {gamma}");
    for step in 1..=steps {
        fast.step().unwrap();
        let draws = fast.draws();
        assert_eq!(draws.iter().map(|&(_, c)| u64::from(c)).sum::<u64>(), group_size, "{name}");
        plain.update(&draws);
        if step % 50 == 0 || step == steps {
            let scale = 1.0 + plain.z.iter().fold(0.0f64, |m, z| m.max(z.abs()));
            for (action, (fast, plain)) in fast.logits().iter().zip(&plain.z).enumerate() {
                let error = (fast - plain).abs();
                assert!(error < 1e-11 * scale, "{name}: step {step}, logit {action}: {fast} against {plain}");
            }
            let (fast, plain) = (fast.metrics(), plain.metrics());
            for (fast, plain) in
                [(fast.q_pos, plain.q_pos), (fast.retained, plain.retained), (fast.entropy, plain.entropy)]
            {
                assert!((fast - plain).abs() < 1e-10 * scale, "{name}: step {step}: {fast} against {plain}");
            }
        }
    }
    fast
}

#[test]
fn default_simulation_equals_the_plain_program_on_its_draws() {
    // 1,000 steps: long enough for actions to rest and to be drawn again.
    for gamma in [0.0, 1.0] {
        for group_size in [1, 2, 32, 500] {
            compare(&small(), group_size, gamma, 1_000);
        }
        compare(&small(), 60_000, gamma, 120);
    }
}

#[test]
fn every_surrogate_and_optimizer_equals_the_plain_program_on_its_draws() {
    let adam = |beta1, beta2, eps| Setup { beta1, beta2, eps, ..small() };
    let sgd = Setup { optimizer: Optimizer::Sgd, lr: 0.5, ..small() };
    for surrogate in [Surrogate::Ratio, Surrogate::Probability] {
        for base in [adam(0.9, 0.999, 1e-8), adam(0.0, 0.99, 1e-3), adam(0.95, 0.5, 1e-4), sgd.clone()] {
            for weight_decay in [0.0, 0.1] {
                let setup = Setup { surrogate, weight_decay, ..base.clone() };
                for group_size in [3, 200] {
                    compare(&setup, group_size, 0.5, 300);
                }
            }
        }
    }
}

#[test]
fn other_starts_and_rewards_equal_the_plain_program_on_its_draws() {
    let base = small();
    for setup in [
        Setup { anchors: 0, ..base.clone() },
        Setup { anchors: 160, ..base.clone() },
        Setup { correct: 1_999, ..base.clone() },
        Setup { actions: 2, correct: 1, anchors: 0, ..base.clone() },
        Setup { reward_wrong: 0.0, correct_logit: -4.0, wrong_logit: 2.5, ..base.clone() },
        // The range of the logits is so large that their exponentials don't fit into a double.
        Setup { lr: 30.0, correct_logit: 290.0, wrong_logit: -290.0, ..base.clone() },
        Setup { lr: 0.0, ..base },
    ] {
        for group_size in [2, 100, 5_000] {
            compare(&setup, group_size, 0.0, 200);
        }
    }
}

#[test]
fn resting_actions_are_left_out_of_the_work() {
    let fast = compare(&small(), 16, 0.0, 1_500);
    // Every correct action that is still drawn moves. The rest of the 2,000 must not take time.
    assert!(fast.moving() < 700, "{} actions still move", fast.moving());
}

#[test]
fn metrics_have_the_plain_programs_distribution() {
    let setup = small();
    let seeds = 48;
    for group_size in [8, 128] {
        let runs: Vec<[Metrics; 2]> = (0..seeds)
            .map(|seed| {
                let mut fast = Simulation::new(&setup, group_size, 0.0, seed).unwrap();
                let mut plain = Plain::new(&setup, 0.0);
                let mut stream = Key::new(1_000 + seed).stream();
                for _ in 0..150 {
                    fast.step().unwrap();
                    let draws = plain.sample(group_size, &mut stream);
                    plain.update(&draws);
                }
                [fast.metrics(), plain.metrics()]
            })
            .collect();
        let metrics: [fn(&Metrics) -> f64; 3] = [|m| m.q_pos, |m| m.retained, |m| m.entropy];
        for metric in metrics {
            let [fast, plain] = [0, 1].map(|which| {
                let x: Vec<f64> = runs.iter().map(|r| metric(&r[which])).collect();
                let mean = x.iter().sum::<f64>() / x.len() as f64;
                let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (x.len() as f64 - 1.0);
                (mean, variance / x.len() as f64)
            });
            let z = (fast.0 - plain.0) / (fast.1 + plain.1).sqrt();
            assert!(z.abs() < 4.0, "N = {group_size}: means {} and {}, z = {z}", fast.0, plain.0);
            let f = fast.1 / plain.1;
            assert!((0.35..2.9).contains(&f), "N = {group_size}: variances differ by {f}");
        }
    }
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = |seed| {
        let mut s = Simulation::new(&small(), 64, 1.0, seed).unwrap();
        (0..50).for_each(|_| s.step().unwrap());
        s.logits()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn the_first_metrics_are_the_start() {
    let setup = Setup::default();
    let (start, found) = (setup.start(), Simulation::new(&setup, 2, 0.0, 0).unwrap().metrics());
    assert!((found.q_pos - start.q_pos).abs() < 1e-14);
    assert_eq!(found.retained, 1.0);
    let entropy = -start.anchor * start.anchor.ln()
        - 9_999.0 * start.correct * start.correct.ln()
        - 118_000.0 * start.wrong * start.wrong.ln();
    assert!((found.entropy - entropy).abs() < 1e-12, "{} against {entropy}", found.entropy);
}

#[test]
fn the_paper_s_regimes_come_out() {
    // (N, gamma) -> Q_pos, M_ret, entropy after 1,000 steps, of one seed of an independent program.
    for (group_size, gamma, wanted) in [
        (2, 0.0, [0.633, 0.994, 10.77]),
        (2, 1.0, [0.633, 0.994, 10.77]),
        (32, 0.0, [0.703, 0.962, 10.53]),
        (32, 1.0, [0.700, 0.965, 10.55]),
        (1_024, 0.0, [0.997, 0.033, 0.35]),
        (1_024, 1.0, [0.985, 0.123, 1.23]),
        (131_072, 0.0, [0.993, 0.995, 9.21]),
        (131_072, 1.0, [0.971, 1.000, 9.40]),
    ] {
        let mut run = Simulation::new(&Setup::default(), group_size, gamma, 0).unwrap();
        (0..1_000).for_each(|_| run.step().unwrap());
        let found = run.metrics();
        // Seeds differ by up to this much (docs/simulation.md).
        let spread = if group_size == 1_024 { [0.004, 0.04, 0.4] } else { [0.004, 0.004, 0.03] };
        for ((found, wanted), spread) in
            [found.q_pos, found.retained, found.entropy].into_iter().zip(wanted).zip(spread)
        {
            assert!((found - wanted).abs() < spread, "N = {group_size}, gamma = {gamma}: {found}, {wanted}");
        }
    }
}

#[test]
fn a_policy_that_left_the_numbers_says_so() {
    let setup = Setup { lr: 1e308, reward_correct: 1e10, optimizer: Optimizer::Sgd, ..small() };
    let mut run = Simulation::new(&setup, 64, 0.0, 0).unwrap();
    let error = (0..100).find_map(|_| run.step().err()).expect("diverges");
    assert!(matches!(error, Error::Diverged { .. }), "{error}");
}

#[test]
fn impossible_runs_are_refused() {
    let refuse = |n, gamma| Simulation::new(&small(), n, gamma, 0).unwrap_err().to_string();
    assert!(refuse(0, 0.0).contains("found 0"));
    assert!(refuse(2, f64::NAN).contains("found NaN"));
    assert!(refuse(2, -1.0).contains("found -1"));
}
