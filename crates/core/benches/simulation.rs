//! One step of the categorical simulation, fast and plain, in the middle of a run.
//!
//! `cargo bench -p fgrpo-core --bench simulation`

#[path = "../tests/plain/mod.rs"]
mod plain;

use criterion::{Criterion, criterion_group, criterion_main};
use fgrpo_core::rng::Key;
use fgrpo_core::sim::{Setup, Simulation};
use plain::Plain;
use std::hint::black_box;

fn steps(c: &mut Criterion) {
    let setup = Setup::default();
    let mut group = c.benchmark_group("step");
    group.sample_size(20);
    for group_size in [32, 1_024, 16_384, 131_072] {
        // Correctness first: the same draws lead to the same policy.
        let mut fast = Simulation::new(&setup, group_size, 0.0, 0).expect("a valid setup");
        let mut plain = Plain::new(&setup, 0.0);
        for _ in 0..30 {
            fast.step().expect("converges");
            plain.update(&fast.draws());
        }
        let (a, b) = (fast.metrics(), plain.metrics());
        assert!((a.q_pos - b.q_pos).abs() < 1e-10 && (a.retained - b.retained).abs() < 1e-10);
        for _ in 30..300 {
            fast.step().expect("converges");
        }
        group.bench_function(format!("fast/{group_size}"), |b| b.iter(|| fast.step().expect("converges")));
        let mut stream = Key::new(0).stream();
        group.bench_function(format!("plain/{group_size}"), |b| {
            b.iter(|| {
                let draws = plain.sample(group_size, &mut stream);
                plain.update(black_box(&draws));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
