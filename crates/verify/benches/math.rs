//! Speed of the math verifier: `cargo bench -p fgrpo-verify --bench math`.
//!
//! Each case is checked for its verdict before it is timed.

use criterion::{Criterion, criterion_group, criterion_main};
use fgrpo_verify::math::{Memo, Options, Verifier};
use std::hint::black_box;

const CASES: &[(&str, &str, &str, bool)] = &[
    ("integer", "42", "The answer is $\\boxed{42}$.", true),
    ("integer, wrong", "42", "The answer is $\\boxed{43}$.", false),
    ("fraction", "\\frac{3}{4}", "The answer is $\\boxed{\\frac{6}{8}}$.", true),
    ("decimal", "\\frac{3}{4}", "The answer is $\\boxed{0.75}$.", true),
    ("set", "\\{1,2,3\\}", "The answer is $\\boxed{3, 1, 2}$.", true),
    ("tuple", "(1,2,3)", "The answer is $\\boxed{(1,2,4)}$.", false),
    ("interval", "(1,2]", "The answer is $\\boxed{(1, 2]}$.", true),
    ("surd", "2\\sqrt{2}", "The answer is $\\boxed{\\sqrt{8}}$.", true),
    ("polynomial", "x^2-3x+2", "The answer is $\\boxed{(x-1)(x-2)}$.", true),
    ("trigonometric", "\\sin 2x", "The answer is $\\boxed{2\\sin x\\cos x}$.", true),
    ("plain number", "42", "so it must be 42", true),
];

fn math(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("math");
    for (name, gold, response, correct) in CASES {
        let verifier = Verifier::new(gold, &Options::default());
        assert_eq!(verifier.check(response).is_correct(), *correct, "{name}");
        group.bench_function(*name, |bencher| {
            bencher.iter(|| black_box(&verifier).check(black_box(response)))
        });
    }
    for (name, gold, response, _) in
        CASES.iter().filter(|case| ["surd", "polynomial", "trigonometric"].contains(&case.0))
    {
        let verifier = Verifier::new(gold, &Options::default());
        let mut memo = Memo::new();
        let repeated = format!("{name}, met before");
        group.bench_function(repeated, |bencher| {
            bencher.iter(|| black_box(&verifier).check_with(black_box(response), &mut memo));
        });
    }
    let step = "First, we note that the sum of the terms is a constant, so we can write the expression in a simpler \
                form and continue with the next step of the derivation, where $a_n = 3n + 1$ holds.\n";
    let response = format!("{}Therefore the final answer is $\\boxed{{\\frac{{6}}{{8}}}}$.", step.repeat(12));
    let verifier = Verifier::new("\\frac{3}{4}", &Options::default());
    assert!(verifier.check(&response).is_correct());
    group.bench_function("full response", |bencher| {
        bencher.iter(|| black_box(&verifier).check(black_box(&response)))
    });
    group.finish();
}

criterion_group!(benches, math);
criterion_main!(benches);
