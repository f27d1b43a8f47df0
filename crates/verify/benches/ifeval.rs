//! Time of IFEval's checks on this project's own cases, after comparing every label.

use criterion::{Criterion, criterion_group, criterion_main};
use fgrpo_verify::ifeval::Verifier;
use serde_json::Value;
use std::hint::black_box;

struct Case {
    verifier: Verifier,
    response: String,
    strict: Vec<bool>,
    loose: Vec<bool>,
}

fn cases() -> Vec<Case> {
    let flags = |value: &Value| -> Vec<bool> {
        value.as_array().unwrap().iter().map(|v| v.as_bool().unwrap()).collect()
    };
    include_str!("../tests/fixtures/ifeval.jsonl")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let case: Value = serde_json::from_str(line).unwrap();
            let ids: Vec<&str> =
                case["instruction_id_list"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
            Case {
                verifier: Verifier::new(&ids, case["kwargs"].as_array().unwrap()).unwrap(),
                response: case["response"].as_str().unwrap().to_owned(),
                strict: flags(&case["strict"]),
                loose: flags(&case["loose"]),
            }
        })
        .collect()
}

fn ifeval(c: &mut Criterion) {
    let cases = cases();
    for case in &cases {
        let checked = case.verifier.check_both(&case.response);
        assert_eq!((&checked.strict, &checked.loose), (&case.strict, &case.loose));
    }
    c.bench_function("ifeval: strict, all own cases", |b| {
        b.iter(|| {
            cases.iter().filter(|case| case.verifier.check(black_box(&case.response)).is_correct()).count()
        });
    });
    c.bench_function("ifeval: strict and loose, all own cases", |b| {
        b.iter(|| {
            cases
                .iter()
                .map(|case| case.verifier.check_both(black_box(&case.response)).loose.len())
                .sum::<usize>()
        });
    });
}

criterion_group!(benches, ifeval);
criterion_main!(benches);
