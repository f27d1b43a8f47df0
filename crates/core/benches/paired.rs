//! The paired test at the size of the paper's largest benchmark: 675 problems, n = 1024, m = 256.

use criterion::{Criterion, criterion_group, criterion_main};
use fgrpo_core::rng::Key;
use fgrpo_core::stats::hypergeometric::Counts;
use fgrpo_core::stats::measure::Measure;
use fgrpo_core::stats::paired::{Pair, Subsampler, exact};
use std::hint::black_box;

fn problems() -> Vec<Pair> {
    (0..675)
        .map(|i| {
            let key = Key::new(1).with(i);
            let a = key.below(0, 1025);
            let counts = |correct| Counts { samples: 1024, correct };
            Pair { a: counts(a), b: counts((a + key.below(1, 40)).min(1024)) }
        })
        .collect()
}

fn paired(c: &mut Criterion) {
    let pairs = problems();
    // Correctness first: the mean is the unbiased difference.
    let wanted = pairs.iter().map(|p| p.b.correct as f64 - p.a.correct as f64).sum::<f64>() / 1024.0 / 675.0;
    assert!((exact(&pairs, 256, Measure::PassAtK(1)).mean() - wanted).abs() < 1e-12);
    let mut group = c.benchmark_group("paired, 675 problems");
    group.sample_size(10);
    for k in [1, 8, 256] {
        group.bench_function(format!("exact k={k}"), |b| {
            b.iter(|| exact(black_box(&pairs), 256, Measure::PassAtK(k)).two_sided_p())
        });
    }
    let sampler = Subsampler::new(&pairs, 256, Measure::PassAtK(8));
    group.bench_function("simulated k=8, 50,000 iterations, one thread", |b| {
        b.iter(|| (0..50_000).map(|i| sampler.draw(Key::new(2), i)).sum::<f64>());
    });
    group.finish();
}

criterion_group!(benches, paired);
criterion_main!(benches);
