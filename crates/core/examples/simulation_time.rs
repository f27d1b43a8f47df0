//! Seconds of one run of the categorical simulation, for `peers/simulation_numpy.py`.
//!
//! `cargo run --release -p fgrpo-core --example simulation_time -- N [GAMMA] [SEED] [STEPS] [rest|no-rest|plain]`

#[path = "../tests/plain/mod.rs"]
mod plain;

use fgrpo_core::rng::Key;
use fgrpo_core::sim::{Setup, Simulation};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: f64| -> f64 {
        args.get(i).map_or(default, |a| {
            a.parse().unwrap_or_else(|_| panic!("argument {i}: found {a}, wanted a number"))
        })
    };
    let (n, gamma, seed, steps) =
        (number(0, 1024.0) as u64, number(1, 0.0), number(2, 0.0) as u64, number(3, 1e3));
    // A weight decay too small to change any logit keeps every drawn action moving.
    let weight_decay = if args.get(4).is_some_and(|a| a == "no-rest") { 1e-300 } else { 0.0 };
    let setup = Setup { weight_decay, ..Setup::default() };
    let start = Instant::now();
    if args.get(4).is_some_and(|a| a == "plain") {
        let mut policy = plain::Plain::new(&setup, gamma);
        let mut stream = Key::new(seed).stream();
        for _ in 0..steps as u64 {
            let draws = policy.sample(n, &mut stream);
            policy.update(&draws);
        }
        let (seconds, m) = (start.elapsed().as_secs_f64(), policy.metrics());
        println!("{{\"n\":{n},\"seconds\":{seconds},\"q_pos\":{},\"retained\":{}}}", m.q_pos, m.retained);
        return;
    }
    let mut policy = Simulation::new(&setup, n, gamma, seed).expect("a valid run");
    let mut moved = 0;
    let mut metrics = policy.metrics();
    for step in 1..=steps as u64 {
        policy.step().expect("a run that converges");
        moved += policy.moving();
        if step % 10 == 0 || step == steps as u64 {
            metrics = policy.metrics();
        }
    }
    println!(
        "{{\"n\":{n},\"seconds\":{},\"moved_per_step\":{},\"q_pos\":{},\"retained\":{},\"entropy\":{}}}",
        start.elapsed().as_secs_f64(),
        moved as f64 / steps,
        metrics.q_pos,
        metrics.retained,
        metrics.entropy
    );
}
