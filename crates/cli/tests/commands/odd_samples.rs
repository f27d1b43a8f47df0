//! Samples that are easily counted wrong: unusual dumps of other programs, folders of mixed files, and misleading names and
//! numbers.

use crate::support::{done, ends_with, fgrpo, run};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::PathBuf;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes values as lines, compressed if the file name says so.
    #[track_caller]
    fn write(&self, name: &str, rows: &[Value]) -> String {
        let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
        self.text(name, &text)
    }

    #[track_caller]
    fn text(&self, name: &str, text: &str) -> String {
        let path = PathBuf::from(self.at(name));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.extension().is_some_and(|e| e == "gz") {
            let file = std::fs::File::create(&path).unwrap();
            let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap();
        } else {
            std::fs::write(&path, text).unwrap();
        }
        self.at(name)
    }
}

#[track_caller]
fn pass_at_1(paths: &[&str]) -> Value {
    let text = done(&[&["pass-at-k", "-k", "1", "--json"], paths].concat());
    serde_json::from_str(&text).unwrap()
}

/// Checks that a command is refused, with all of these words in the message.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let said = ends_with(2, args);
    for word in words {
        assert!(said.contains(word), "{args:?}: no {word:?} in {said}");
    }
}

fn logged(doc_id: u64, target: &str, responses: &[&str]) -> Value {
    json!({"doc_id": doc_id, "doc": {}, "target": target, "resps": [responses], "filter": "f"})
}

fn dumped(input: &str, gts: &str, step: u64) -> Value {
    json!({"input": input, "output": format!("\\boxed{{{gts}}}"), "gts": gts, "step": step, "data_source": "aime24"})
}

fn sample(problem: &str, index: u64) -> Value {
    json!({"problem": problem, "sample": index, "correct": true})
}

#[test]
fn a_worked_answer_is_the_reference_of_a_dump_as_of_a_data_set() {
    let folder = Folder::new();
    let worked = "48+24 = <<48+24=72>>72 clips.\n#### 72";
    let log = folder.write("gs.jsonl", &[logged(0, worked, &["so \\boxed{72}", "#### 72"])]);
    assert_eq!(pass_at_1(&[&log])["pass_at_k"]["1"], 1.0);
    let dump = json!({"input": "?", "output": "\\boxed{1234}", "gts": "#### 1,234"});
    assert_eq!(pass_at_1(&[&folder.write("verl.jsonl", &[dump])])["pass_at_k"]["1"], 1.0);
    let listed = json!({"doc_id": 0, "target": ["72"], "resps": [["\\boxed{72}"]]});
    assert_eq!(pass_at_1(&[&folder.write("list.jsonl", &[listed])])["pass_at_k"]["1"], 1.0);
    let empty = folder.write("empty.jsonl", &[logged(0, "", &["\\boxed{72}"])]);
    refused(&["pass-at-k", &empty], &["empty.jsonl", "reference answer is empty"]);
}

#[test]
fn ids_that_lose_digits_are_refused_and_those_of_dumps_lose_none() {
    let folder = Folder::new();
    for number in ["100000000000000000000001", "1e30", "0.1", "-100000000000000000000001"] {
        let line = format!("{{\"problem\":1,\"n\":1,\"c\":1}}\n{{\"problem\":{number},\"n\":1,\"c\":1}}\n");
        let path = folder.text("ids.jsonl", &line);
        refused(&["pass-at-k", &path], &["ids.jsonl line 2: problem: ", "2^64"]);
    }
    let whole = "{\"problem\":18446744073709551615,\"n\":1,\"c\":1}\n{\"problem\":18446744073709551614,\"n\":1,\"c\":1}\n{\"problem\":-1,\"n\":1,\"c\":1}\n";
    assert_eq!(pass_at_1(&[&folder.text("ids.jsonl", whole)])["problems"], 3);
    let logs = [1, 2].map(|last| {
        format!(
            "{{\"doc_id\":10000000000000000000000{last},\"target\":\"1\",\"resps\":[[\"1\"]],\"acc\":NaN}}\n"
        )
    });
    assert_eq!(pass_at_1(&[&folder.text("log.jsonl", &logs.concat())])["problems"], 2, "all digits count");
}

#[test]
fn two_spellings_of_one_benchmark_in_one_model_are_refused_with_both_files() {
    let folder = Folder::new();
    for model in ["a", "b"] {
        for name in ["AIME_2024", "aime24"] {
            folder.write(&format!("{model}/{name}.jsonl"), &[sample("p", 0)]);
        }
    }
    let (a, b) = (folder.at("a"), folder.at("b"));
    let words = ["AIME_2024.jsonl", "aime24.jsonl", "same benchmark"];
    refused(&["compare", &a, &b], &words);
    refused(&["table", &format!("a={a}")], &words);
    refused(&["pass-at-k", &a], &words);
    // Names may have characters outside ASCII.
    folder.write("other/数学.jsonl", &[sample("p", 0)]);
    folder.write("other/代数.jsonl", &[sample("p", 0)]);
    assert_eq!(pass_at_1(&[&folder.at("other")])["problems"], 2);
}

#[test]
fn dumps_of_several_steps_are_refused() {
    let folder = Folder::new();
    for step in [0, 10] {
        folder.write(&format!("steps/step_{step}.jsonl"), &[dumped("1+1", "2", step)]);
        folder.write(&format!("names/{step}th.jsonl"), &[dumped("1+1", "2", step)]);
    }
    refused(&["pass-at-k", &folder.at("steps")], &["step_0.jsonl", "step_10.jsonl"]);
    refused(&["pass-at-k", &folder.at("names")], &["0th.jsonl", "10th.jsonl", "same benchmark"]);
    let both = folder.write("both.jsonl", &[dumped("1+1", "2", 0), dumped("1+1", "2", 10)]);
    refused(&["pass-at-k", &both], &["both.jsonl line 2: step: ", "steps 0 and 10"]);
}

#[test]
fn one_prompt_with_two_reference_answers_is_two_problems() {
    let folder = Folder::new();
    let rows = [dumped("1+1", "2", 5), dumped("1+1", "3", 5), dumped("2+2", "4", 5)];
    let dump = folder.write("5.jsonl", &rows);
    let found: Value =
        serde_json::from_str(&done(&["pass-at-k", &dump, "-k", "1", "--json", "--by-problem"])).unwrap();
    let ids: Vec<&str> =
        found["by_problem"].as_array().unwrap().iter().map(|p| p["problem"].as_str().unwrap()).collect();
    assert_eq!(ids, ["1+1 (reference answer 2)", "1+1 (reference answer 3)", "2+2"]);
}

#[test]
fn a_problem_of_lm_eval_without_responses_or_logged_twice_is_refused() {
    let folder = Folder::new();
    for none in [json!([]), json!([[]])] {
        let without = json!({"doc_id": 7, "target": "1", "resps": none});
        let log = folder.write("log.jsonl", &[logged(0, "1", &["\\boxed{1}"]), without]);
        refused(&["pass-at-k", &log], &["log.jsonl line 2: resps", "doc_id 7"]);
    }
    let twice = [logged(0, "1", &["\\boxed{1}"]), logged(0, "1", &["\\boxed{2}"])];
    refused(
        &["pass-at-k", &folder.write("log.jsonl", &twice)],
        &["log.jsonl line 2: doc_id: 0 is listed twice"],
    );
    // Old versions don't name the filter that repeats a problem.
    let repeated = [logged(0, "1", &["\\boxed{1}"]), logged(0, "1", &["\\boxed{1}"])];
    assert_eq!(pass_at_1(&[&folder.write("log.jsonl", &repeated)])["samples"], 1);
}

#[test]
fn a_file_named_twice_is_refused() {
    let folder = Folder::new();
    let path = folder.write("d/a.jsonl", &[sample("p", 0), sample("q", 0)]);
    let spelled = folder.at("d/../d/a.jsonl");
    std::os::unix::fs::symlink(&path, folder.at("link.jsonl")).unwrap();
    for other in [&path, &spelled, &folder.at("d"), &folder.at("link.jsonl")] {
        for command in ["pass-at-k", "plan"] {
            refused(&[command, &path, other], &["a.jsonl", "give it once"]);
        }
    }
    // Two files of the same name are two sets of samples.
    let other = folder.write("e/a.jsonl", &[sample("p", 0)]);
    assert_eq!(pass_at_1(&[&path, &other])["problems"], 3);
}

#[test]
fn merge_sees_through_compression_and_folders() {
    let folder = Folder::new();
    let (a, b) =
        (folder.write("p1.jsonl.gz", &[sample("p", 0)]), folder.write("p2.jsonl.gz", &[sample("p", 1)]));
    refused(&["pass-at-k", &a, &b, "--merge"], &["a merge joins lines", "p1, p2"]);
    folder.write("parts/p1.jsonl", &[sample("p", 0)]);
    folder.write("parts/p2.jsonl", &[sample("p", 1)]);
    refused(&["pass-at-k", &folder.at("parts"), "--merge"], &["a merge joins lines", "p1, p2"]);
    folder.write("one/x.jsonl", &[sample("p", 0)]);
    folder.write("two/x.jsonl.gz", &[sample("p", 1)]);
    let found = pass_at_1(&[&folder.at("one"), &folder.at("two"), "--merge"]);
    assert_eq!((&found["problems"], &found["samples"]), (&1.into(), &2.into()));
}

#[test]
fn every_file_of_a_folder_is_read_or_the_folder_is_refused() {
    let folder = Folder::new();
    folder.write("packed/a.jsonl", &[sample("p", 0)]);
    folder.write("packed/p1.jsonl.gz", &[sample("q", 0)]);
    assert_eq!(pass_at_1(&[&folder.at("packed")])["problems"], 2);
    folder.write("dumps/0.jsonl.gz", &[dumped("1+1", "2", 0)]);
    assert_eq!(pass_at_1(&[&folder.at("dumps")])["benchmark"], "aime24");
    for (name, files) in [
        ("programs", [("0.jsonl", dumped("1+1", "2", 0)), ("aime25.jsonl", sample("p", 0))]),
        ("depths", [("x.jsonl", sample("p", 0)), ("sub/samples.jsonl", sample("p", 0))]),
        ("below", [("x.jsonl", sample("p", 0)), ("sub/log.jsonl", logged(0, "1", &["1"]))]),
        ("logs", [("x.jsonl", logged(0, "1", &["1"])), ("sub/y.jsonl", logged(0, "1", &["1"]))]),
        ("evaluated", [("sub/samples.jsonl", sample("p", 0)), ("log/y.jsonl", logged(0, "1", &["1"]))]),
        ("deeper", [("a/samples.jsonl", sample("p", 0)), ("b/c/samples.jsonl", sample("p", 0))]),
    ] {
        let paths: Vec<String> = files
            .iter()
            .map(|(file, row)| folder.write(&format!("{name}/{file}"), std::slice::from_ref(row)))
            .collect();
        refused(&["pass-at-k", &folder.at(name)], &[&paths[0], &paths[1]]);
    }
    // An empty file would leave its benchmark out.
    folder.write("hole/a.jsonl", &[sample("p", 0)]);
    folder.write("hole/b.jsonl", &[]);
    refused(&["pass-at-k", &folder.at("hole")], &["b.jsonl", "empty"]);
    folder.write("alone/sub/3.jsonl", &[dumped("1+1", "2", 0)]);
    refused(&["pass-at-k", &folder.at("alone")], &["3.jsonl", "folder of one model"]);
}

#[test]
fn an_average_of_the_command_line_is_whole_or_an_error() {
    let folder = Folder::new();
    let [a, b] = ["p12", "p13"].map(|name| folder.write(&format!("{name}.jsonl"), &[sample("p", 0)]));
    let with = |average: &'static str| ["pass-at-k", "-k", "1", "--json", &a, &b, "--average", average];
    refused(&with("X=p12,nosuch"), &["average X: ", "no benchmark nosuch", "p12, p13"]);
    refused(&with("X=p12,p14"), &["did you mean p1"]);
    refused(&with("X=p12,P-12"), &["--average", "p12", "twice"]);
    let twice = [&with("X=p12")[..], &["--average", "X=p13"]].concat();
    refused(&twice, &["average X: another average"]);
    let found: Value = serde_json::from_str(&done(&with("X=p12,p13"))).unwrap();
    assert_eq!(found["averages"]["X"]["pass_at_k"]["1"], 1.0);
    // With files of two models it isn't clear which is meant.
    let other = folder.write("other/p12.jsonl", &[sample("p", 0)]);
    let args = [&with("X=p12,p13")[..], &[&other]].concat();
    refused(&args, &["average X: ", "2 benchmarks p12"]);
}

#[test]
fn an_average_of_the_paper_over_two_models_files_is_none_and_says_so() {
    let folder = Folder::new();
    let mut paths: Vec<String> = ["ifeval", "synlogic", "gpqa"]
        .iter()
        .map(|name| folder.write(&format!("a/{name}.jsonl"), &[sample("p", 0)]))
        .collect();
    paths.push(folder.write("b/ifeval.jsonl", &[sample("p", 0)]));
    let mut command = fgrpo();
    let (out, said, code) = run(command.args(["pass-at-k", "-k", "1", "--json"]).args(&paths));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("no average OOD: there are several benchmarks ifeval"), "{said}");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["averages"], json!({}));
}

#[test]
fn plan_says_what_it_leaves_out() {
    let folder = Folder::new();
    let path = folder.text(
        "s.jsonl",
        "{\"problem\":1,\"n\":3,\"c\":1,\"unscorable\":1}\n{\"problem\":2,\"n\":0,\"c\":0,\"unscorable\":4}\n",
    );
    let (_, said, code) = run(fgrpo().args(["plan", &path, "--group-sizes", "2"]));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("s: 62.5 % of the samples are unscorable and left out"), "{said}");
    assert!(said.contains("s: 1 of 2 problems have no scored sample and are left out"), "{said}");
}

#[test]
fn tokens_are_reported_only_where_every_sample_has_them() {
    let folder = Folder::new();
    let mut rows: Vec<Value> = (0..4).map(|i| sample(if i < 2 { "p" } else { "q" }, i)).collect();
    rows[0]["tokens"] = 100.into();
    assert!(pass_at_1(&[&folder.write("some.jsonl", &rows)]).get("tokens_per_problem").is_none());
    rows.iter_mut().for_each(|row| row["tokens"] = 100.into());
    assert_eq!(pass_at_1(&[&folder.write("all.jsonl", &rows)])["tokens_per_problem"], 200.0);
    let counted = json!({"problem": "p", "n": 3, "c": 1, "unscorable": 1, "tokens": 40});
    assert_eq!(pass_at_1(&[&folder.write("counts.jsonl", &[counted])])["tokens_per_problem"], 40.0);
}

#[test]
fn logs_of_other_problems_under_the_same_numbers_are_not_compared() {
    let folder = Folder::new();
    let a = folder.write("a/log.jsonl", &[logged(0, "1", &["\\boxed{1}"]), logged(1, "2", &["\\boxed{1}"])]);
    let b = folder.write("b/log.jsonl", &[logged(0, "7", &["\\boxed{7}"]), logged(1, "8", &["\\boxed{8}"])]);
    refused(&["compare", &a, &b, "-k", "1"], &["problem 0: ", "\"1\" in", "\"7\" in"]);
}

#[test]
fn a_byte_order_mark_at_the_beginning_is_no_part_of_the_first_line() {
    let folder = Folder::new();
    let file = folder.text("a.jsonl", "\u{feff}{\"problem\":1,\"n\":4,\"c\":4}\n");
    assert_eq!(pass_at_1(&[&file])["pass_at_k"]["1"], 1.0);
}
