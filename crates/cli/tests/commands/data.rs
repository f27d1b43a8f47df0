//! `fgrpo data`: generated problems are written to files that can be read again.

use crate::support::{ends, tells};
use fgrpo_eval::dataset::{Problem, load};
use fgrpo_eval::kind::TaskKind;
use fgrpo_train::config::{Config, TaskConfig};
use fgrpo_train::problem::generated;
use fgrpo_train::problem::words::Words;
use fgrpo_verify::synlogic::{Options, check};
use serde_json::Value;
use std::path::Path;

/// Writes SynLogic problems to a file; returns its text if it is text.
fn synlogic(path: &Path, task: &str, n: &str) -> String {
    let flags = "--difficulty 2 --seed 1 --with-solution --out";
    ends(0, command!("data synlogic --task", task, "--n", n, ..flags.split(' '), path));
    String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
}

fn read(path: &Path, kind: TaskKind) -> Vec<Problem> {
    load(path, kind, &Default::default()).unwrap().0
}

/// The stored parts of a problem.
fn known(p: &Problem) -> impl PartialEq + std::fmt::Debug + use<> {
    (p.id.clone(), p.messages.clone(), p.truth.clone(), p.solution.clone())
}

#[test]
fn written_problems_are_read_back_and_their_solutions_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.jsonl");
    let text = synlogic(&path, "all", "64");
    assert_eq!((text.lines().count(), read(&path, TaskKind::SynLogic).len()), (64, 64));
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let field = |pointer: &str| row.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        let outcome = check(
            &field("/data_source"),
            &field("/extra_info/game_data_str"),
            &field("/reward_model/ground_truth"),
            &Options::default(),
        );
        assert!(outcome.unwrap().is_correct(), "{line}");
    }
}

#[test]
fn parquet_holds_the_same_rows_as_json_lines() {
    let folder = tempfile::tempdir().unwrap();
    let [lines, parquet] = ["a.jsonl", "a.parquet"].map(|name| {
        let path = folder.path().join(name);
        synlogic(&path, "sudoku", "5");
        read(&path, TaskKind::SynLogic)
    });
    assert_eq!(lines.len(), 5);
    assert!(lines.iter().map(known).eq(parquet.iter().map(known)), "{lines:?}, {parquet:?}");
}

#[test]
fn fewer_problems_are_the_beginning_of_more() {
    let folder = tempfile::tempdir().unwrap();
    let text = |name: &str, n| synlogic(&folder.path().join(name), "survo", n);
    assert!(text("many.jsonl", "30").starts_with(&text("few.jsonl", "7")));
}

#[test]
fn wrong_tasks_and_file_types_are_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    for (task, name, wanted) in [
        ("chess", "a.jsonl", "chess"),
        ("cipher", "a.jsonl", "no generator"),
        ("sudoku", "a.txt", ".parquet"),
    ] {
        tells(2, command!("data synlogic --n 1 --task", task, "--out", folder.path().join(name)), wanted);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn files_of_arithmetic_and_of_words_read_back_as_the_problems_that_were_generated() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (config, set) = ("arithmetic-quick", ["task.train=30", "task.held_out=5"]);
    let TaskConfig::Arithmetic(task) = Config::load(Path::new(config), &set.map(str::to_owned)).unwrap().task
    else {
        panic!("another task");
    };
    let (train, held_out) = generated::problems(&task).unwrap();
    for (split, name, wanted) in
        [("train", "train.jsonl", &train[..20]), ("held-out", "held-out.jsonl", &held_out[..])]
    {
        let out = at(name);
        let sets = ["--set", set[0], "--set", set[1]];
        ends(0, command!("data arithmetic --limit 20", config, ..sets, "--split", split, "--out", &out));
        assert!(read(&out, TaskKind::Math).iter().map(known).eq(wanted.iter().map(known)), "{split}");
    }
    let out = at("words");
    ends(0, command!("data words --steps 2 --n 50 --held-out 10 --seed 4 --out", &out));
    let drawn = Words { steps: 2, problems: 60, seed: 4 }.draw().unwrap();
    for (name, wanted) in [("held-out.jsonl", &drawn[..10]), ("train.jsonl", &drawn[10..])] {
        let found = read(&out.join(name), TaskKind::Math);
        assert!(found.iter().map(known).eq(wanted.iter().map(known)), "{name}");
    }
}
