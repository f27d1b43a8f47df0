//! The first 100 steps of the categorical simulation, fast and plain.
//!
//! `cargo bench -p fgrpo-core --bench simulation`

#[path = "../tests/plain/mod.rs"]
mod plain;

use criterion::{Criterion, criterion_group, criterion_main};
use fgrpo_core::rng::Key;
use fgrpo_core::sim::{Setup, Simulation};
use plain::Plain;

fn first_steps(c: &mut Criterion) {
    let setup = Setup::default();
    let mut group = c.benchmark_group("first 100 steps");
    group.sample_size(10);
    for group_size in [32, 1_024, 16_384, 131_072] {
        // Correctness first: the same draws lead to the same policy.
        let mut fast = Simulation::new(&setup, group_size, 0.0, 0).expect("a valid setup");
        let mut plain = Plain::new(&setup, 0.0);
        for _ in 0..20 {
            fast.step().expect("converges");
            plain.update(&fast.draws());
        }
        let (a, b) = (fast.metrics(), plain.metrics());
        assert!((a.q_pos - b.q_pos).abs() < 1e-10 && (a.retained - b.retained).abs() < 1e-10);
        group.bench_function(format!("fast/{group_size}"), |b| {
            b.iter(|| {
                let mut run = Simulation::new(&setup, group_size, 0.0, 0).expect("a valid setup");
                (0..100).for_each(|_| run.step().expect("converges"));
                run
            });
        });
        group.bench_function(format!("plain/{group_size}"), |b| {
            b.iter(|| {
                let mut run = Plain::new(&setup, 0.0);
                let mut stream = Key::new(0).stream();
                for _ in 0..100 {
                    let draws = run.sample(group_size, &mut stream);
                    run.update(&draws);
                }
                run
            });
        });
    }
    group.finish();
}

criterion_group!(benches, first_steps);
criterion_main!(benches);
