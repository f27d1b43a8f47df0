//! Samples and vectors from other programs: how they are matched with problems, and which are refused.

use crate::support::{self, ends_with, fgrpo, file, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

fn lines(rows: impl IntoIterator<Item = Value>) -> String {
    rows.into_iter().map(|row| format!("{row}\n")).collect()
}

fn boxed(n: usize) -> String {
    format!("so \\boxed{{{n}}}")
}

/// Problems "i+1?" with answer i + 1.
fn sums(range: impl IntoIterator<Item = usize>) -> Vec<Value> {
    range.into_iter().map(|i| json!({"problem": format!("{i}+1?"), "answer": (i + 1).to_string()})).collect()
}

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

/// Runs `fgrpo diversity` with these arguments in a folder. Returns the value of the first data set, stderr and the exit code.
fn diversity(root: &Path, args: &[&str]) -> (Option<f64>, String, i32) {
    let (printed, said, code) =
        run(fgrpo().current_dir(root).args(["diversity", "--json", "eval"]).args(args));
    let report: Value = serde_json::from_str(&printed).unwrap_or_default();
    (report["diversity"][0]["values"][0].as_f64(), said, code)
}

#[test]
fn scored_samples_of_other_programs_are_read_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let all = |problem: &str, sample: Option<&str>, correct: &str| {
        lines((0..12u64).map(|i| {
            let mut row =
                json!({problem: format!("HumanEval/{}", i / 4), "completion": "x", correct: i % 4 < i / 4});
            if let Some(sample) = sample {
                row[sample] = json!(i % 4);
            }
            row
        }))
    };
    for (problem, sample, correct) in [
        ("problem", Some("sample"), "correct"),
        ("task_id", None, "passed"),
        ("task_id", Some("completion_id"), "passed"),
        ("question_id", None, "is_correct"),
        ("problem_id", Some("sample_index"), "success"),
    ] {
        let path = file(folder.path(), "scored.jsonl", &all(problem, sample, correct));
        let (out, said, code) = run(fgrpo().arg("pass-at-k").arg(&path).args(["-k", "1,4", "--json"]));
        assert_eq!(code, 0, "{problem}: {said}");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["pass_at_k"]["4"].as_f64(), Some(2.0 / 3.0), "{problem}: {report}");
    }
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
fn the_number_of_a_problem_is_that_of_its_row_with_rejected_rows_counted() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    // The third row is a copy of the second, and the last one has no answer.
    let mut rows = sums([0, 1, 1, 2, 3]);
    rows.push(json!({"problem": "Why?", "answer": null}));
    file(root, "data.jsonl", &lines(rows));
    let answers = [1, 2, 2, 3, 4, 9];
    let samples =
        answers.iter().enumerate().map(|(i, &a)| json!({"problem": i, "sample": 0, "text": boxed(a)}));
    file(root, "made.jsonl", &lines(samples));
    let (share, said, code) = eval(root, "made.jsonl", 1, "out", &[]);
    assert_eq!((share, code), (Some(1.0), 0), "{said}");
    let wanted = "4 new samples, 0 known, 0 of problems not in the data, 2 of rows that were rejected or aren't evaluated";
    assert!(said.contains(wanted), "{said}");
    // With a limit, the later rows are left out.
    let (share, said, code) = eval(root, "made.jsonl", 1, "fewer", &["--limit", "2"]);
    assert_eq!((share, code), (Some(1.0), 0), "{said}");
    assert!(said.contains("2 new samples") && said.contains("4 of rows"), "{said}");
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
fn numbers_of_rows_name_no_problem_where_the_data_has_ids() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let with_ids = |ids: [Value; 4]| {
        let rows = sums(0..4).into_iter().zip(ids).map(|(mut row, id)| {
            row["id"] = id;
            row
        });
        file(root, "data.jsonl", &lines(rows));
    };
    with_ids([json!(5), json!(6), json!(7), json!(8)]);
    // Right as ids, but wrong if the ids were taken for row numbers.
    let samples = (0..10usize).map(|id| json!({"problem": id, "text": boxed(id.saturating_sub(4))}));
    file(root, "made.jsonl", &lines(samples));
    let (share, said, code) = eval(root, "made.jsonl", 1, "out", &[]);
    assert_eq!((share, code), (Some(1.0), 0), "{said}");
    assert!(said.contains("4 new samples, 0 known, 6 of problems not in the data"), "{said}");
    // Rows without an id don't turn other programs' ids into row numbers.
    with_ids([json!(5), json!(6), Value::Null, Value::Null]);
    let (_, said, code) = eval(root, "made.jsonl", 1, "some", &[]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("2 of 4 samples of data are still missing"), "{said}");
    // A number column with missing values contains 5.0.
    file(root, "floats.jsonl", "{\"problem\": 5.0, \"text\": \"x\"}\n");
    assert!(eval(root, "floats.jsonl", 1, "floats", &[]).1.contains("1 new samples"));
    file(root, "foreign.jsonl", "{\"problem\": 0, \"text\": \"x\"}\n");
    let (_, said, code) = eval(root, "foreign.jsonl", 1, "foreign", &[]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("none of the 1 samples belongs") && said.contains("\"5\""), "{said}");
}

#[test]
fn a_problem_has_one_name_in_a_file_and_a_name_means_one_problem() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    file(root, "data.jsonl", &lines(sums(0..3)));
    let samples = [json!({"problem": 1, "text": boxed(2)}), json!({"problem": "1+1?", "text": boxed(2)})];
    file(root, "made.jsonl", &lines(samples));
    let (_, said, code) = eval(root, "made.jsonl", 2, "out", &[]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("made.jsonl line 2: problem \"1+1?\" is called \"1\" in line 1"), "{said}");
    assert_eq!(
        std::fs::read(root.join("out/generations.jsonl")).unwrap(),
        b"",
        "a refused file stores nothing"
    );
    let twice = sums(0..2).into_iter().map(|mut row| {
        row["id"] = "same".into();
        row
    });
    file(root, "data.jsonl", &lines(twice));
    file(root, "made.jsonl", "{\"problem\": \"same\", \"text\": \"x\"}\n");
    let (_, said, code) = eval(root, "made.jsonl", 1, "shared", &[]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("made.jsonl line 1: problem: \"same\" names several problems"), "{said}");
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
fn a_table_that_is_cut_off_within_quotes_is_refused_by_the_line_of_the_quote() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    file(root, "data.jsonl", &lines(sums(0..2)));
    let whole = "problem,sample,text\n0,0,\"so\n\\boxed{1}\"\n1,0,\"so\n\\boxed{2}\"\n";
    file(root, "made.csv", whole);
    assert_eq!(eval(root, "made.csv", 1, "whole", &[]).0, Some(1.0));
    file(root, "made.csv", &whole[..whole.len() - 6]);
    let (share, said, code) = eval(root, "made.csv", 1, "torn", &[]);
    assert_eq!((share, code), (None, 2), "{said}");
    assert!(said.contains("made.csv: line 4: "), "{said}");
    // Data are read the same way.
    file(root, "d.tsv", "problem\tanswer\n1+1?\t2\n2+1?\t\"3");
    let said = ends_with(2, &["data", "show", root.join("d.tsv").to_str().unwrap()]);
    assert!(said.contains("d.tsv: line 3: "), "{said}");
}

/// Makes an evaluation folder with three correct samples of one problem. Returns the problem's hash.
fn evaluated(root: &Path) -> String {
    file(root, "data.jsonl", &lines(sums([0])));
    let texts = ["one", "another way", "and a third"].map(|way| format!("{way} \\boxed{{1}}"));
    file(root, "made.jsonl", &lines([json!({"problem": 0, "texts": texts})]));
    assert_eq!(eval(root, "made.jsonl", 3, "eval", &[]).0, Some(1.0));
    support::lines(&root.join("eval/samples.jsonl"))[0]["problem"].as_str().unwrap().to_owned()
}

#[test]
fn vectors_of_other_lengths_empty_ones_and_repeated_samples_are_refused_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let problem = evaluated(root);
    let vectors = |rows: &[(u64, &[f64])]| {
        lines(rows.iter().map(|(i, v)| json!({"problem": problem, "sample": i, "embedding": v})))
    };
    let measured = ["--by", "embeddings", "--embeddings", "vectors.jsonl"];
    file(root, "vectors.jsonl", &vectors(&[(0, &[1.0, 0.0]), (1, &[0.0, 1.0]), (2, &[1.0, 0.0])]));
    let (value, said, code) = diversity(root, &measured);
    assert_eq!(code, 0, "{said}");
    assert!((value.unwrap() - 2.0 / 3.0).abs() < 1e-12, "{value:?}");
    for (rows, wanted) in [
        (&[(0, &[1.0, 0.0][..]), (1, &[0.0, 1.0, 0.5]), (2, &[1.0, 0.0])], "expected 2 numbers"),
        (&[(0, &[1.0, 0.0]), (1, &[]), (2, &[1.0, 0.0])], "empty"),
        (&[(0, &[1.0, 0.0]), (0, &[0.0, 1.0]), (2, &[1.0, 0.0])], "sample 0 of problem"),
    ] {
        file(root, "vectors.jsonl", &vectors(rows));
        let (value, said, code) = diversity(root, &measured);
        assert_eq!((value, code), (None, 2), "{said}");
        assert!(said.contains("vectors.jsonl line 2: ") && said.contains(wanted), "{wanted}: {said}");
    }
    // A second file has vectors of the same model.
    file(root, "vectors.jsonl", &vectors(&[(0, &[1.0]), (1, &[0.5]), (2, &[0.25])]));
    file(root, "longer.jsonl", &vectors(&[(0, &[1.0, 1.0]), (1, &[0.5, 1.0]), (2, &[0.25, 1.0])]));
    let (_, said, code) =
        diversity(root, &[&["eval"][..], &measured, &["--embeddings", "longer.jsonl"]].concat());
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("longer.jsonl line 1: embedding: expected 1 number"), "{said}");
    // A measure that needs no vectors would ignore them.
    let (_, said, code) = diversity(root, &["--embeddings", "vectors.jsonl"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("embeddings: files of embeddings require"), "{said}");
}

#[test]
fn correct_samples_without_their_text_are_counted_and_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    evaluated(root);
    assert_eq!(diversity(root, &[]).2, 0);
    let generations = root.join("eval/generations.jsonl");
    let all = std::fs::read_to_string(&generations).unwrap();
    std::fs::write(&generations, all.lines().take(2).map(|l| format!("{l}\n")).collect::<String>()).unwrap();
    let (value, said, code) = diversity(root, &[]);
    assert_eq!((value, code), (None, 2), "{said}");
    assert!(
        said.contains(
            "generations.jsonl: the texts of 1 of the 3 correct samples are missing, such as sample 2"
        ),
        "{said}"
    );
    // A sample that is listed twice would be at distance 0 from itself.
    std::fs::write(&generations, &all).unwrap();
    let scores = root.join("eval/samples.jsonl");
    let all = std::fs::read_to_string(&scores).unwrap();
    std::fs::write(&scores, format!("{all}{}\n", all.lines().next().unwrap())).unwrap();
    let (value, said, code) = diversity(root, &[]);
    assert_eq!((value, code), (None, 2), "{said}");
    assert!(said.contains("samples.jsonl: sample 0 of problem") && said.contains("appears twice"), "{said}");
}

/// An OpenAI-compatible server whose n-th vector has n numbers.
fn growing(requests: usize) -> (String, std::thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        for (n, stream) in (1..=requests).zip(listener.incoming()) {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while stream.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            stream.read_exact(&mut vec![0; length]).unwrap();
            let answer = json!({"data": [{"embedding": vec![1.0; n]}]}).to_string();
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", answer.len());
            stream.get_mut().write_all((head + &answer).as_bytes()).unwrap();
        }
    };
    (address, std::thread::spawn(serve))
}

#[test]
fn a_servers_vectors_of_several_lengths_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let problem = evaluated(root);
    let (address, server) = growing(3);
    let (value, said, code) =
        diversity(root, &["--by", "embeddings", "--server", &address, "--model", "e", "--concurrency", "1"]);
    server.join().unwrap();
    assert_eq!((value, code), (None, 2), "{said}");
    let wanted = format!("embeddings.jsonl: problem {problem} has embeddings of different lengths, 1 and 2");
    assert!(said.contains(&wanted), "{said}");
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

/// `golden/inspect/inspect_log.py` describes the contents of the real log.
const INSPECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/inspect/inspect_log.json");

#[test]
fn a_log_of_inspect_is_read_with_its_scorers_verdicts() {
    let found: Value =
        serde_json::from_str(&support::done(&["pass-at-k", INSPECT, "-k", "1,2", "--by-problem", "--json"]))
            .unwrap();
    assert_eq!((&found["benchmark"], &found["unscorable"]), (&"sums".into(), &1.into()), "{found}");
    let of = |id: &str| {
        let all = found["by_problem"].as_array().unwrap();
        let p = all.iter().find(|p| p["problem"] == id).unwrap();
        (p["n"].as_u64().unwrap(), p["c"].as_u64().unwrap())
    };
    assert_eq!([of("one"), of("2"), of("3")], [(4, 3), (4, 2), (3, 0)]);

    let dir = tempfile::tempdir().unwrap();
    let log = std::fs::read_to_string(INSPECT).unwrap();
    for (name, text, words) in [
        (
            "a.json",
            log.replace(r#""success""#, r#""cancelled""#),
            r#"status: expected "success", found "cancelled""#,
        ),
        ("b.json", log.replacen(r#""value": "C""#, r#""value": "P""#, 1), r#"found "P""#),
        ("c.eval", "PK".to_owned(), "inspect log dump"),
    ] {
        let path = file(dir.path(), name, &text);
        let said = ends_with(2, &["pass-at-k", path.to_str().unwrap(), "-k", "1"]);
        assert!(said.contains(words), "{said}");
    }
}
