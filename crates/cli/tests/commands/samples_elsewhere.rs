//! Samples from other programs in `fgrpo eval --samples`. How they are read and matched is tested in their crate.

use crate::files::{boxed, lines, sums};
use crate::support::{ends, fgrpo, file, run};
use serde_json::{Value, json};
use std::path::Path;

/// Runs `fgrpo eval --samples samples --data data.jsonl` in a folder. Returns the report, stderr and the exit code.
fn eval(root: &Path, samples: &str, n: usize, out: &str, more: &[&str]) -> (Option<f64>, String, i32) {
    let mut command = fgrpo();
    command.current_dir(root).args(["eval", "--data", "data.jsonl", "--task", "math", "--json"]);
    command.args(["-n", &n.to_string(), "--out", out]).args(more);
    if !samples.is_empty() {
        command.args(["--samples", samples]);
    }
    let (printed, said, code) = run(command);
    let report: Value = serde_json::from_str(&printed).unwrap_or_default();
    (report["pass_at_k"]["1"].as_f64(), said, code)
}

#[test]
fn problems_that_one_side_solves_are_named_as_the_data_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let named = |i: usize| json!({"id": format!("aime-{i}"), "problem": format!("{i}+1?"), "answer": (i + 1).to_string()});
    file(root, "data.jsonl", &lines((0..3).map(named)));
    for (side, solved) in [("a", 1), ("b", 2)] {
        let samples = (0..3).flat_map(|i| (0..4).map(move |s| (i, s))).map(|(i, sample)| {
            json!({"problem": format!("aime-{i}"), "sample": sample, "text": boxed(if i == solved { i + 1 } else { 0 })})
        });
        file(root, &format!("{side}.jsonl"), &lines(samples));
        let (_, said, code) = eval(root, &format!("{side}.jsonl"), 4, &format!("eval-{side}"), &[]);
        assert_eq!(code, 0, "{said}");
    }
    let (out, said, code) = run(fgrpo().current_dir(root).args(["compare", "eval-a", "eval-b", "-k", "1"]));
    assert_eq!(code, 0, "{said}");
    assert!(out.contains("solved by eval-b alone: 1 (aime-2); by eval-a alone: 1 (aime-1)"), "{out}");
}

#[test]
fn the_page_of_an_evaluation_begins_with_what_came_out_and_escapes_what_others_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    file(root, "data.jsonl", &lines([json!({"problem": "1<2?", "answer": "yes"})]));
    file(root, "made.jsonl", &lines([json!({"problem": 0, "sample": 0, "text": "<no>"})]));
    let (share, said, code) = eval(root, "made.jsonl", 1, "a<b", &[]);
    assert_eq!((share, code), (Some(0.0), 0), "{said}");
    let html = std::fs::read_to_string(root.join("a<b/report.html")).unwrap();
    for part in ["a&lt;b", "1&lt;2?", "&lt;no&gt;"] {
        assert!(html.contains(part), "{part} is missing: {html}");
    }
    let places = ["pass@1 is ", "<thead>", "<svg"].map(|part| html.find(part).expect(part));
    assert!(places.is_sorted(), "what came out comes first: {places:?}");
    let outside = html.replace("http://www.w3.org", "");
    assert!(!outside.contains("http://") && !outside.contains("<no>"), "{html}");
}

#[test]
fn a_complete_folder_still_reads_the_file_and_refuses_other_texts() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    file(root, "data.jsonl", &lines(sums(0..3)));
    let made = |name: &str, n: usize, off: usize| {
        let rows = (0..n).flat_map(|j| {
            (0..3).map(move |i| json!({"problem": i, "sample": j, "text": boxed(i + 1 + if i == 2 { off } else { 0 })}))
        });
        file(root, name, &lines(rows))
    };
    made("made.jsonl", 1, 0);
    let (share, said, code) = eval(root, "made.jsonl", 1, "out", &[]);
    assert_eq!((share, code), (Some(1.0), 0), "{said}");
    let before = std::fs::read(root.join("out/generations.jsonl")).unwrap();
    // The same file again.
    let (share, said, code) = eval(root, "made.jsonl", 1, "out", &[]);
    assert_eq!((share, code), (Some(1.0), 0), "{said}");
    assert!(said.contains("0 new samples, 3 known"), "{said}");
    // Another file of the same name, with additional samples.
    std::fs::create_dir(root.join("other")).unwrap();
    made("other/made.jsonl", 2, 5);
    let (share, said, code) = eval(root, "other/made.jsonl", 2, "out", &[]);
    assert_eq!((share, code), (None, 2), "{said}");
    for wanted in ["other/made.jsonl line 3: sample 0 of problem \"2\"", "choose another folder with --out"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert_eq!(std::fs::read(root.join("out/generations.jsonl")).unwrap(), before, "nothing is stored");
    // A file that has grown.
    made("made.jsonl", 2, 0);
    let (share, said, code) = eval(root, "made.jsonl", 2, "out", &[]);
    assert_eq!((share, code), (Some(1.0), 0), "{said}");
    assert!(said.contains("3 new samples, 3 known"), "{said}");
    // A file that has some of the stored samples.
    made("made.jsonl", 1, 0);
    let (_, said, code) = eval(root, "made.jsonl", 2, "out", &[]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("0 new samples, 3 known, 0 of problems not in the data; 3 stored samples are not"),
        "{said}"
    );
    // A missing file is an error, unless only stored samples are requested.
    std::fs::remove_file(root.join("made.jsonl")).unwrap();
    let (share, said, code) = eval(root, "made.jsonl", 2, "out", &[]);
    assert_eq!((share, code), (None, 2), "{said}");
    assert!(said.contains("--samples made.jsonl: "), "{said}");
    assert_eq!(eval(root, "made.jsonl", 2, "out", &["--score-only"]).0, Some(1.0));
    assert_eq!(eval(root, "", 2, "out", &["--score-only"]).0, Some(1.0), "a source isn't required");
    let (_, said, code) = eval(root, "", 2, "new", &["--score-only"]);
    assert!(code == 2 && said.contains("new has no stored samples"), "{said}");
    eval(root, "typo.jsonl", 2, "new", &[]);
    assert!(!root.join("new").exists(), "a wrong path makes no folder");
}

#[test]
fn flags_that_would_change_nothing_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    file(root, "data.jsonl", &lines(sums(0..2)));
    file(root, "samples.jsonl", &lines((0..2).map(|i| json!({"problem": i, "text": boxed(i + 1)}))));
    for (flags, wanted) in [
        (&["--command", "./yes.py"][..], "--command has no effect here; it is for command"),
        (&["--choice", "letter-or-content"], "--choice has no effect here; it is for choice"),
        (&["--format-gate", "off"], "--format-gate has no effect here; it is for synlogic"),
        (
            &["--percent-as-number", "on"],
            "--percent-as-number: task.verifier.percent_as_number: has no effect in mode parity",
        ),
        (&["--accept-unfinished", "off"], "--accept-unfinished has no effect in mode parity"),
        (&["--maze-size", "9"], "--maze-size has no effect here; it is for mazes"),
        (&["--per-request", "2"], "--per-request requires --server"),
        (&["--key-env", "KEY"], "--key-env requires --server"),
    ] {
        let (_, said, code) = eval(root, "samples.jsonl", 1, "out", flags);
        assert_eq!(code, 2, "{flags:?}: {said}");
        assert!(said.contains(wanted), "{flags:?}: {said}");
        assert!(!root.join("out").exists(), "{flags:?}");
    }
    let (found, said, code) = eval(
        root,
        "samples.jsonl",
        1,
        "out",
        &["--mode", "strict", "--percent-as-number", "on", "--accept-unfinished", "off"],
    );
    assert_eq!((found, code), (Some(1.0), 0), "{said}");
}

#[test]
fn plan_says_what_it_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [
        json!({"problem": 1, "n": 3, "c": 1, "unscorable": 1}),
        json!({"problem": 2, "n": 0, "c": 0, "unscorable": 4}),
    ];
    let samples = file(folder.path(), "s.jsonl", &lines(rows));
    let (_, said) = ends(0, command!("plan --group-sizes 2", samples));
    assert!(said.contains("s: 62.5 % of the samples are unscorable and left out"), "{said}");
    assert!(said.contains("s: 1 of 2 problems have no scored sample and are left out"), "{said}");
}
