//! Time of SynLogic's checks on this project's own cases, after comparing every label with the reference's.

use criterion::{Criterion, criterion_group, criterion_main};
use fgrpo_verify::synlogic::{Mode, Options, Task, Verifier};
use serde_json::Value;
use std::hint::black_box;

struct Puzzle {
    task: Task,
    data: String,
    verifier: Verifier,
    cases: Vec<(String, bool)>,
}

fn puzzles() -> Vec<Puzzle> {
    include_str!("../tests/fixtures/synlogic.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["cases"].is_array())
        .map(|line| {
            let task: Task = line["task"].as_str().unwrap().parse().unwrap();
            let data = line["game_data_str"].as_str().unwrap().to_owned();
            let verifier = Verifier::parse(task, &data).unwrap();
            let case = |case: &Value| (case[0].as_str().unwrap().to_owned(), case[1] == 1);
            Puzzle {
                task,
                data,
                verifier,
                cases: line["cases"].as_array().unwrap().iter().map(case).collect(),
            }
        })
        .collect()
}

fn synlogic(c: &mut Criterion) {
    let puzzles = puzzles();
    let options = |mode| Options { mode, format_gate: false };
    for puzzle in &puzzles {
        for (response, correct) in &puzzle.cases {
            let outcome = puzzle.verifier.check(response, &options(Mode::Parity));
            assert_eq!(outcome.is_correct(), *correct, "{}: {response}", puzzle.task);
        }
    }
    let check_all = |mode| {
        let one = |puzzle: &Puzzle| {
            let correct = |(response, _): &&(String, bool)| {
                puzzle.verifier.check(black_box(response), &options(mode)).is_correct()
            };
            puzzle.cases.iter().filter(correct).count()
        };
        puzzles.iter().map(one).sum::<usize>()
    };
    let cases: usize = puzzles.iter().map(|puzzle| puzzle.cases.len()).sum();
    c.bench_function(&format!("synlogic: parity, all {cases} own cases"), |b| {
        b.iter(|| check_all(Mode::Parity))
    });
    c.bench_function(&format!("synlogic: strict, all {cases} own cases"), |b| {
        b.iter(|| check_all(Mode::Strict))
    });
    c.bench_function(&format!("synlogic: decoding, all {} own problems", puzzles.len()), |b| {
        b.iter(|| puzzles.iter().filter(|p| Verifier::parse(p.task, black_box(&p.data)).is_ok()).count());
    });
    let sudoku = puzzles.iter().find(|puzzle| puzzle.task == Task::Sudoku).unwrap();
    let (right, _) = sudoku.cases.iter().find(|(_, correct)| *correct).unwrap();
    c.bench_function("synlogic: one right sudoku", |b| {
        b.iter(|| sudoku.verifier.check(black_box(right), &options(Mode::Parity)));
    });
}

criterion_group!(benches, synlogic);
criterion_main!(benches);
