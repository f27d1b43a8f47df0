//! `pass-at-k`, `compare` and `plan`, through the command line.

use crate::support::{done, ends_with, json, refused};
use serde_json::{Value, json as value};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes problems as (id, n, c) lines.
    fn counts(&self, name: &str, problems: &[(String, u64, u64)]) -> PathBuf {
        let mut text = String::new();
        for (id, n, c) in problems {
            writeln!(text, "{{\"problem\":\"{id}\",\"n\":{n},\"c\":{c}}}").unwrap();
        }
        self.text(name, &text)
    }

    fn text(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

fn problems(n: u64, counts: &[u64]) -> Vec<(String, u64, u64)> {
    counts.iter().enumerate().map(|(i, &c)| (format!("p{i}"), n, c)).collect()
}

/// The list of numbers `name = [...]` of a page.
fn list(page: &str, name: &str) -> Vec<u64> {
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} = [")));
    let numbers = line.unwrap_or_else(|| panic!("the page has no {name}")).trim_end_matches(']');
    numbers.split(", ").map(|n| n.parse().unwrap()).collect()
}

#[test]
fn the_page_of_the_paired_test_says_what_its_commands_print() {
    let page = include_str!("../../../../docs/paired-test.md");
    let folder = Folder::new();
    let one = folder.counts("one.jsonl", &problems(16, &[1]));
    let found = json(&["pass-at-k", one.to_str().unwrap(), "-k", "16", "--json"]);
    assert_eq!(found["pass_at_k"]["16"], 1.0);
    let drawn = 1.0 - (1.0 - 1.0 / 16.0f64).powi(16);
    assert!(page.contains(&format!("# {drawn:.4}")));
    let sides =
        ["a", "b"].map(|side| folder.counts(&format!("{side}.jsonl"), &problems(32, &list(page, side))));
    let [a, b] = sides.each_ref().map(|path| path.to_str().unwrap());
    let alone = json(&["pass-at-k", a, b, "-k", "1", "--json"]);
    let interval = |i: usize| -> Vec<f64> {
        let side = &alone["benchmarks"][i];
        let ends = side["interval"]["1"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap());
        let ends: Vec<f64> = ends.collect();
        let percent = |x: f64| format!("{:.1}", 100.0 * x);
        let value = percent(side["pass_at_k"]["1"].as_f64().unwrap());
        let said = format!("{value} % [{}, {}]", percent(ends[0]), percent(ends[1]));
        assert!(page.contains(&said), "{said}");
        ends
    };
    let error = |ends: &[f64]| (ends[1] - ends[0]) / 3.92;
    let (of_a, of_b) = (error(&interval(0)), error(&interval(1)));
    let compared = |paths: [&str; 2], more: &[&str]| {
        json(&[&["compare", paths[0], paths[1], "-k", "1", "--json"], more].concat())[0].clone()
    };
    let together = compared([a, b], &[]);
    let z = together["difference"].as_f64().unwrap() / of_a.hypot(of_b);
    // The normal distribution's tail beyond 1.75 on both sides is 0.080.
    assert!((z - 1.75).abs() < 0.02 && page.contains("p = 0.08: "), "{z}");
    let p = together["bootstrap"]["p_value"].as_f64().unwrap();
    assert!(page.contains(&format!("has p = {p:.4}.")), "{p}");
    // Every problem five times, with and without clusters.
    let five = |side: &str| {
        let line = |(i, c): (usize, u64)| -> String {
            let of = |v| format!("{{\"problem\":\"{i}-{v}\",\"template\":{i},\"n\":32,\"c\":{c}}}\n");
            (0..5).map(of).collect()
        };
        let text: String = list(page, side).into_iter().enumerate().map(line).collect();
        folder.text(&format!("{side}5.jsonl"), &text)
    };
    let sides = ["a", "b"].map(five);
    let paths = sides.each_ref().map(|path| path.to_str().unwrap());
    let (narrow, clustered) = (compared(paths, &[]), compared(paths, &["--cluster", "template"]));
    let shown = |c: &Value| {
        let end = |i: usize| format!("{:+.1}", 100.0 * c["bootstrap"]["interval"][i].as_f64().unwrap());
        format!("it is {} to {}", end(0), end(1))
    };
    let narrow_said = shown(&narrow).replace("it is", "the difference is");
    assert!(
        page.contains(&narrow_said) && page.contains(&shown(&clustered)),
        "{narrow_said}; {}",
        shown(&clustered)
    );
    assert_eq!((&clustered["clusters"], narrow.get("clusters")), (&30.into(), None));
    for i in 0..2 {
        let of = |c: &Value| c["bootstrap"]["interval"][i].as_f64().unwrap();
        assert!((of(&clustered) - of(&together)).abs() < 1e-12);
    }
    // Only pass@k, and refused inputs.
    let alone = json(&["pass-at-k", paths[0], "-k", "1", "--cluster", "template", "--json"]);
    let plain = json(&["pass-at-k", a, "-k", "1", "--json"]);
    assert_eq!((&alone["clusters"], &alone["problems"]), (&30.into(), &150.into()));
    let end = |found: &Value| found["interval"]["1"][0].as_f64().unwrap();
    assert!((end(&alone) - end(&plain)).abs() < 1e-12);
    // Clusters with the same name in two benchmarks are different: all problems together give the result without copies.
    let both = json(&["pass-at-k", paths[0], paths[1], "-k", "1", "--cluster", "template", "--json"]);
    let wanted = json(&["pass-at-k", a, b, "-k", "1", "--json"]);
    assert!((end(&both) - end(&wanted)).abs() < 1e-12, "{} {}", end(&both), end(&wanted));
    let said = refused(&["compare", a, b, "-k", "1", "--cluster", "template"]);
    assert!(said.contains("cluster template: problem p0"), "{said}");
    let odd = "{\"problem\":1,\"sample\":0,\"correct\":true,\"t\":1}\n{\"problem\":1,\"sample\":1,\"correct\":true,\"t\":2}\n";
    let odd = folder.text("odd.jsonl", odd);
    let said = refused(&["pass-at-k", odd.to_str().unwrap(), "--cluster", "t"]);
    assert!(said.contains("line 2: t: problem 1 is in two clusters"), "{said}");
}

#[test]
fn pass_hat_k_and_the_size_of_a_comparison_are_printed_where_asked_for() {
    let folder = Folder::new();
    let samples = folder.counts("s.jsonl", &problems(4, &[4, 2, 0]));
    let path = samples.to_str().unwrap();
    let found = json(&["pass-at-k", path, "-k", "1,2", "--hat", "--json"]);
    // C(2, 2) / C(4, 2) for the second problem.
    let hat = found["pass_hat_k"]["2"].as_f64().unwrap();
    assert!((hat - (1.0 + 1.0 / 6.0) / 3.0).abs() < 1e-12, "{found}");
    assert!(done(&["pass-at-k", path, "-k", "1,2", "--hat"]).contains("s, pass^k"));
    assert!(json(&["pass-at-k", path, "-k", "1", "--json"]).get("pass_hat_k").is_none());
    // Success rates are 1, 1/2 and 0.
    let found = json(&["pass-at-k", path, "-k", "1", "--cover", "50,51,100", "--json"]);
    assert_eq!(found["cover"], serde_json::json!({"50": 2.0 / 3.0, "51": 1.0 / 3.0, "100": 1.0 / 3.0}));
    assert_eq!(found["cover_interval"]["50"], serde_json::json!([0.0, 1.0]));
    let text = done(&["pass-at-k", path, "-k", "1", "--cover", "50"]);
    assert!(text.contains("cover@50%") && text.contains("66.7 [0.0, 100.0]"), "{text}");
    let csv = done(&["pass-at-k", path, "-k", "1", "--cover", "51", "--format", "csv"]);
    assert!(csv.contains("s,3,cover,51,0.333"), "{csv}");
    // p (1 - p) is 2 * 2 / (4 * 3), only for the second problem, so the mean is 1/9.
    let power = &json(&["plan", path, "--detect", "5", "--json"])["power"];
    assert!((power["variance"].as_f64().unwrap() - 1.0 / 9.0).abs() < 1e-12, "{power}");
    let wanted = (2.801_585_218_112_969f64 / 0.05).powi(2) * 2.0 / 9.0 / 16.0;
    let needs = power["needs"].as_array().unwrap();
    let of_16 = needs.iter().find(|need| need["samples"] == 16).unwrap();
    assert_eq!(of_16["problems"].as_f64().unwrap(), wanted.ceil());
    assert!(done(&["plan", path, "--detect", "5"]).contains("problems for 5.0 points"));
    assert!(refused(&["plan", path, "--detect", "0"]).contains("detect: expected"));
}

#[test]
fn pass_at_k_prints_the_contracts_json() {
    let dir = Folder::new();
    let file = dir.counts("a.jsonl", &problems(4, &[2, 0, 4]));
    let found = json(&["pass-at-k", file.to_str().unwrap(), "-k", "1,2", "--json"]);
    assert_eq!(found["problems"], 3);
    // 1 - C(2,2)/C(4,2) = 5/6 for the first problem.
    assert!((found["pass_at_k"]["1"].as_f64().unwrap() - 0.5).abs() < 1e-12);
    assert!((found["pass_at_k"]["2"].as_f64().unwrap() - (5.0 / 6.0 + 1.0) / 3.0).abs() < 1e-12);
    let low = found["interval"]["1"][0].as_f64().unwrap();
    assert!((0.0..0.5).contains(&low), "{low}");
}

const MATH: [&str; 6] = ["AIME_2024", "aime25", "amc23", "MATH-500", "minerva", "olympiadbench"];

#[test]
fn several_files_are_benchmarks_with_the_papers_averages() {
    let dir = Folder::new();
    for (i, name) in MATH.iter().enumerate() {
        dir.counts(&format!("all/{name}.jsonl"), &problems(8, &[i as u64, i as u64]));
    }
    dir.counts("all/mine.jsonl", &problems(8, &[8, 8]));
    let all = dir.path().join("all");
    let args = ["pass-at-k", all.to_str().unwrap(), "-k", "1", "--json"];
    let found = json(&args);
    assert_eq!((found["benchmarks"].as_array().unwrap().len(), &found["problems"]), (7, &14.into()));
    assert!((found["averages"]["Math"]["pass_at_k"]["1"].as_f64().unwrap() - 15.0 / 48.0).abs() < 1e-12);
    // An average without all of its benchmarks is left out, with a note.
    std::fs::remove_file(all.join("minerva.jsonl")).unwrap();
    assert_eq!(json(&args)["averages"], serde_json::json!({}));
    let said = ends_with(0, &args);
    assert!(said.contains("no average Math: minerva missing"), "{said}");
}

#[test]
fn the_average_out_of_domain_leaves_out_what_was_trained_on() {
    let dir = Folder::new();
    for (i, name) in ["aime24", "aime25", "amc23", "math500", "ifeval", "gpqa", "synlogic"].iter().enumerate()
    {
        dir.counts(&format!("m/{name}.jsonl"), &problems(16, &[2 * i as u64]));
    }
    let of = format!("m={}", dir.path().join("m").display());
    let table = |more: &[&str]| {
        let args = [&["table", &of, "-k", "1", "--format", "csv"], more].concat();
        done(&args)
    };
    // SynLogic's average: 0, 2, 4, 6, 8 and 10 of 16. SynLogic's own 12 doesn't count in it.
    let trained = table(&["--trained-on", "synlogic"]);
    let header: Vec<&str> = trained.lines().next().unwrap().split(',').collect();
    assert!(header.contains(&"Avg. OOD") && !header.contains(&"Avg. Math"), "{trained}");
    let at = header.iter().position(|h| *h == "Avg. OOD").unwrap();
    assert_eq!(trained.lines().nth(1).unwrap().split(',').nth(at), Some("31.2"), "{trained}");
    // The average after training on mathematics: IFEval, SynLogic and GPQA. The average of mathematics lacks two and stays empty.
    let math = table(&[]);
    let header: Vec<&str> = math.lines().next().unwrap().split(',').collect();
    let cell = |name: &str| {
        math.lines().nth(1).unwrap().split(',').nth(header.iter().position(|h| *h == name).unwrap())
    };
    assert_eq!((cell("Avg. OOD"), cell("Avg. Math")), (Some("62.5"), Some("--")), "{math}");
}

#[test]
fn samples_give_subjects_majority_and_truncation() {
    let dir = Folder::new();
    let mut text = String::new();
    for i in 0..8 {
        // Three of eight are right; the wrong ones have the same answer, "7".
        let correct = i < 3;
        writeln!(
            text,
            "{{\"problem\":\"x\",\"sample\":{i},\"correct\":{correct},\"answer\":\"{}\",\"subject\":\"Algebra\",\"tokens\":10,\"finish\":\"{}\"}}",
            if correct { "5" } else { "7" },
            if i == 7 { "length" } else { "stop" }
        )
        .unwrap();
    }
    let file = dir.text("s.jsonl", &text);
    let found = json(&["pass-at-k", file.to_str().unwrap(), "-k", "1,8", "--json"]);
    assert_eq!(found["maj_at_k"]["8"], 0.0);
    assert!((found["maj_at_k"]["1"].as_f64().unwrap() - 0.375).abs() < 1e-12);
    assert!((found["subjects"]["Algebra"]["pass_at_k"]["1"].as_f64().unwrap() - 0.375).abs() < 1e-12);
    assert_eq!(found["truncated"], 0.125);
    assert_eq!(found["tokens_per_problem"], 80.0);
}

#[test]
fn a_correct_sample_without_an_answer_has_no_vote() {
    let dir = Folder::new();
    let majority = |answers: &[(bool, Value)]| {
        let rows = answers.iter().enumerate().map(|(i, (correct, answer))| {
            format!("{}\n", value!({"problem": "x", "sample": i, "correct": correct, "answer": answer}))
        });
        let file = dir.text("s.jsonl", &rows.collect::<String>());
        json(&["pass-at-k", file.to_str().unwrap(), "-k", "3", "--json"])["maj_at_k"]["3"].as_f64()
    };
    let wrong = (false, "7".into());
    assert_eq!(majority(&[(true, "5".into()), (true, "5".into()), wrong.clone()]), Some(1.0));
    let few =
        [vec![(true, "5".into()); 199], vec![(true, Value::Null); 1], vec![wrong.clone(); 100]].concat();
    assert!(majority(&few).unwrap() > 0.6);
    // The verifier found correct answers that don't vote, so a majority would be too low.
    assert_eq!(majority(&[(true, Value::Null), (true, Value::Null), wrong]), None);
    // Puzzles whose answers can't be extracted have no majority vote, which would otherwise equal pass@k.
    assert_eq!(majority(&[(true, Value::Null), (false, Value::Null), (false, Value::Null)]), None);
}

#[test]
fn every_format_prints_the_same_value() {
    let dir = Folder::new();
    let file = dir.counts("a.jsonl", &problems(4, &[2, 2]));
    for (format, wanted) in [
        ("text", "50.0 [50.0, 50.0]"),
        ("csv", "a,2,pass,1,0.5,0.5,0.5"),
        ("markdown", "| a | 2 | 50.0 [50.0, 50.0] |"),
        ("latex", "a & 2 & 50.0 \\\\"),
        ("json", "\"pass_at_k\":{\"1\":0.5}"),
    ] {
        let args = ["pass-at-k", file.to_str().unwrap(), "-k", "1", "--format", format];
        let out = done(&args);
        assert!(out.contains(wanted), "{format}: {out}");
    }
}

#[test]
fn a_run_that_was_stopped_within_an_evaluation_stands_for_the_one_before() {
    let folder = Folder::new();
    folder.text("run/config.toml", "");
    folder.text("run/checkpoints/step-000004/config.json", "{}");
    folder.text("run/evaluations/step-000004/generations.jsonl", "{}\n");
    folder.text("run/evaluations/step-000002/samples.jsonl", "{\"problem\": 1, \"n\": 4, \"c\": 4}\n");
    let run = folder.path().join("run");
    let table = json(&["pass-at-k", run.to_str().unwrap(), "-k", "1", "--json"]);
    assert!(table.to_string().contains("\"1\":1.0"), "{table}");
}

#[test]
fn lines_of_samples_and_of_counts_say_the_same_by_verdict_and_benchmark() {
    let dir = Folder::new();
    let found = |text: &str| {
        let file = dir.text("s.jsonl", text);
        json(&["pass-at-k", file.to_str().unwrap(), "-k", "1", "--json", "--by-problem"])
    };
    let counts = |report: &Value| {
        let problem = &report["by_problem"][0];
        [&problem["n"], &problem["c"], &report["unscorable"], &report["samples"]].map(|n| n.as_u64().unwrap())
    };
    let lines = "{\"problem\":\"a\",\"sample\":0,\"correct\":true}\n\n{\"problem\":\"a\",\"sample\":2,\"correct\":0}\n{\"problem\":\"a\",\"sample\":1,\"correct\":null}\n";
    assert_eq!(counts(&found(lines)), [2, 1, 1, 3]);
    assert_eq!(counts(&found("{\"problem\":\"a\",\"n\":2,\"c\":1,\"unscorable\":1}")), [2, 1, 1, 3]);
    // A verdict takes precedence over `correct`, and a failure of the verifier isn't a wrong answer.
    let report = found(
        "{\"problem\":1,\"sample\":0,\"correct\":false,\"verdict\":\"unscorable\"}\n{\"problem\":\"1\",\"sample\":1,\"verdict\":\"unparsed\",\"answer\":null,\"tokens\":7,\"finish\":\"length\"}\n",
    );
    assert_eq!((counts(&report), &report["truncated"]), ([1, 0, 1, 2], &1.0.into()));
    assert!(report.get("maj_at_k").is_none() && report.get("tokens_per_problem").is_none(), "{report}");
    let report = found(
        "{\"benchmark\":\"x\",\"problem\":1,\"n\":4,\"c\":1}\n{\"benchmark\":\"y\",\"problem\":1,\"n\":4,\"c\":2}\n",
    );
    let of =
        |i: usize| (&report["benchmarks"][i]["benchmark"], &report["benchmarks"][i]["by_problem"][0]["c"]);
    assert_eq!([of(0), of(1)], [(&"x".into(), &1.into()), (&"y".into(), &2.into())]);
}

#[test]
fn bad_samples_end_with_two_and_say_where() {
    let dir = Folder::new();
    let good = dir.counts("good.jsonl", &problems(4, &[1, 2]));
    let good = good.to_str().unwrap();
    for (name, text, args, wanted) in [
        ("c.jsonl", "{\"problem\":1,\"n\":4,\"c\":5}", vec!["-k", "1"], "c = 5"),
        ("k.jsonl", "{\"problem\":1,\"n\":4,\"c\":1}", vec!["-k", "8"], "problem 1 has 4"),
        (
            "n.jsonl",
            "{\"problem\":1,\"n\":4,\"c\":1}\n{\"problem\":2,\"n\":5,\"c\":1}",
            vec![],
            "problem 2 has 5",
        ),
        ("e.jsonl", "", vec![], "empty"),
        ("l.jsonl", "{\"problem\":1,\"sample\":0}", vec![], "\"correct\""),
        ("l.jsonl", "{\"problem\":1,\"sample\":0,\"correct\":0.5}", vec![], "found 0.5"),
        (
            "l.jsonl",
            "{\"problem\":1,\"correct\":true}\n{\"problem\":1,\"sample\":1,\"correct\":true}",
            vec![],
            "problem 1: some lines have \"sample\"",
        ),
        ("l.jsonl", "{\"problem\":1,\"n\":4}", vec![], "\"n\" and \"c\""),
        ("l.jsonl", "{\"problem\":1,\"sam", vec![], "line 1: the JSON is cut off at byte 17"),
        ("l.jsonl", "{\"sample\":1,\"correct\":true}", vec![], "line 1: problem: missing"),
        (
            "l.jsonl",
            "{\"problem\":1,\"n\":4,\"c\":1}\n{\"problem\":1,\"n\":4,\"c\":1}",
            vec![],
            "problem 1 appears twice",
        ),
        ("l.jsonl", "{\"problem\":1,\"n\":0,\"c\":0}", vec![], "problem 1 has no samples"),
        ("z.jsonl", "{\"problem\":1,\"n\":4,\"c\":1}", vec!["-k", "0"], "found 0"),
        (
            "d.jsonl",
            "{\"problem\":1,\"sample\":3,\"correct\":true}\n{\"problem\":1,\"sample\":3,\"correct\":true}",
            vec![],
            "sample 3 appears twice",
        ),
    ] {
        let file = dir.text(name, text);
        let mut all = vec!["pass-at-k", file.to_str().unwrap()];
        all.extend(args);
        let message = refused(&all);
        assert!(message.contains(wanted) && message.contains(name) | (name == "z.jsonl"), "{message}");
    }
    let missing = refused(&["pass-at-k", "no-such-file.jsonl"]);
    assert!(missing.contains("no-such-file.jsonl"), "{missing}");
    for (args, wanted) in [
        (vec!["compare", good, good, "--m", "5"], "1 <= m <= 4"),
        (vec!["compare", good, good, "--m", "2", "-k", "3"], "k <= m"),
    ] {
        let message = refused(&args);
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn uneven_samples_are_used_when_allowed() {
    let dir = Folder::new();
    let file = dir.text("n.jsonl", "{\"problem\":1,\"n\":4,\"c\":2}\n{\"problem\":2,\"n\":2,\"c\":2}");
    let found = json(&["pass-at-k", file.to_str().unwrap(), "-k", "1", "--json", "--uneven"]);
    assert_eq!(found["pass_at_k"]["1"], 0.75);
}

#[test]
fn problems_without_a_scored_sample_are_named_by_every_command_that_needs_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jsonl");
    let line = |problem: usize, sample: usize, verdict: &str| {
        format!("{{\"problem\": \"p{problem}\", \"sample\": {sample}, \"verdict\": \"{verdict}\"}}\n")
    };
    let rows = |verdicts: [&str; 2]| -> String {
        verdicts.iter().enumerate().map(|(p, v)| line(p, 0, v) + &line(p, 1, v)).collect()
    };
    let file = path.to_str().unwrap();
    let method = format!("A={file}");
    for (verdicts, share) in [(["unscorable"; 2], "2 of 2"), (["correct", "unscorable"], "1 of 2")] {
        std::fs::write(&path, rows(verdicts)).unwrap();
        for command in [
            &["compare", file, file][..],
            &["pass-at-k", file, "-k", "1"],
            &["pass-at-k", file],
            &["table", &method],
        ] {
            let said = refused(command);
            assert!(
                said.contains(&format!("{share} problems have no scored sample"))
                    && said.contains("all 2 are unscorable")
                    && said.contains("a.jsonl"),
                "{command:?}: {said}"
            );
        }
    }
}

#[test]
fn compare_names_the_problems_that_only_one_side_has() {
    let dir = Folder::new();
    let a = dir.counts("a.jsonl", &problems(8, &[1, 2, 3]));
    let b = dir.counts("b.jsonl", &problems(8, &[1, 2]));
    let message = refused(&["compare", a.to_str().unwrap(), b.to_str().unwrap(), "-k", "1"]);
    assert!(message.contains("1 only in") && message.contains("a.jsonl: p2"), "{message}");
}

#[test]
fn a_table_refuses_methods_over_different_problems() {
    let dir = Folder::new();
    let a = dir.counts("a/aime24.jsonl", &problems(8, &[1, 2, 3]));
    let b = dir.counts("b/aime24.jsonl", &problems(8, &[1, 2]));
    let (a, b) = (format!("a={}", a.display()), format!("b={}", b.display()));
    let message = refused(&["table", &a, &b, "-k", "1"]);
    assert!(message.contains("1 only in") && message.contains("a/aime24.jsonl: p2"), "{message}");
}

#[test]
fn compare_says_where_two_evaluations_were_sampled_otherwise() {
    let dir = Folder::new();
    for (side, temperature) in [("a", "1.0"), ("b", "0.6")] {
        dir.counts(&format!("{side}/samples.jsonl"), &problems(8, &[1, 2, 3]));
        let identity = format!(
            "{{\"model\": \"{side}\", \"sampling\": {{\"temperature\": {temperature}, \"seed\": null}}}}"
        );
        dir.text(&format!("{side}/evaluation.json"), &identity);
    }
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let said = ends_with(0, &["compare", a.to_str().unwrap(), b.to_str().unwrap(), "-k", "1"]);
    assert!(
        said.contains("A and B were sampled differently, A -> B: sampling.temperature: 1.0 -> 0.6"),
        "{said}"
    );
}

#[test]
fn compare_refuses_two_benchmarks_that_are_not_the_same() {
    let dir = Folder::new();
    let (a, b) = (
        dir.counts("aime24.jsonl", &problems(8, &[1, 2])),
        dir.counts("aime25.jsonl", &problems(8, &[2, 2])),
    );
    let message = refused(&["compare", a.to_str().unwrap(), b.to_str().unwrap(), "-k", "1"]);
    assert!(message.contains("aime24") && message.contains("aime25"), "{message}");
}

#[test]
fn compare_prints_the_contracts_json_by_either_method() {
    let dir = Folder::new();
    let a: Vec<u64> = (0..30).map(|i| i * 8).collect();
    let b: Vec<u64> = (0..30).map(|i| i * 8 + 24 + 5 * (i % 3)).collect();
    let (a, b) = (dir.counts("a.jsonl", &problems(512, &a)), dir.counts("b.jsonl", &problems(512, &b)));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let exact = json(&["compare", a, b, "-k", "1,8,128", "--m", "128", "--json"]);
    let simulated =
        json(&["compare", a, b, "-k", "1,8,128", "--m", "128", "--method", "monte-carlo", "--json"]);
    for (e, s) in exact.as_array().unwrap().iter().zip(simulated.as_array().unwrap()) {
        let number = |v: &Value, key: &str| v[key].as_f64().unwrap();
        assert_eq!(e["k"], s["k"]);
        assert!((number(e, "difference") - (number(e, "b") - number(e, "a"))).abs() < 1e-12);
        assert_eq!((&e["method"], &s["method"]), (&"exact".into(), &"monte-carlo".into()));
        // With 50,000 iterations, five standard errors of a p-value of 0.5 are 0.02.
        assert!((number(e, "p_value") - number(s, "p_value")).abs() < 0.02, "{e} {s}");
        let width = e["interval"][1].as_f64().unwrap() - e["interval"][0].as_f64().unwrap();
        for side in 0..2 {
            let (x, y) = (e["interval"][side].as_f64().unwrap(), s["interval"][side].as_f64().unwrap());
            assert!((x - y).abs() < 0.05 * width, "{e} {s}");
        }
        assert!(e["bootstrap"]["p_value"].is_number() && e["bootstrap"]["interval"][1].is_number());
        assert!(e["p_bounds"][0].as_f64().unwrap() <= number(e, "p_value") + 1e-12);
    }
    // A gain of 30 in 512 on nearly every problem isn't due to chance.
    assert!(exact[0]["p_value"].as_f64().unwrap() < 1e-6);
    assert!(
        exact[0]["verdict"].as_str().unwrap().contains("b +")
            && exact[0]["verdict"].as_str().unwrap().contains(", significant (p < 0.0001)"),
        "{}",
        exact[0]["verdict"]
    );
    assert_eq!(exact[2]["gained"], serde_json::json!(["p0"]));
}

#[test]
fn compare_tests_cover_by_the_same_subsamples_as_pass_at_k() {
    let folder = Folder::new();
    let [a, b] = [("a.jsonl", [4, 2, 0]), ("b.jsonl", [4, 4, 0])]
        .map(|(name, correct)| folder.counts(name, &problems(4, &correct)).to_str().unwrap().to_owned());
    let arguments = ["compare", &a, &b, "-k", "2", "--cover", "75", "--m", "2"];
    let found = json(&[&arguments[..], &["--json"]].concat());
    let (pass, cover) = (&found[0], &found[1]);
    assert!(
        pass["k"] == 2 && pass.get("cover").is_none() && cover["cover"] == 75 && cover.get("k").is_none()
    );
    assert_eq!((cover["a"].as_f64(), cover["b"].as_f64()), (Some(1.0 / 3.0), Some(2.0 / 3.0)));
    // With probability 1 / C(4, 2) both of two samples of A's second problem are correct, and then nothing differs.
    assert!((cover["p_value"].as_f64().unwrap() - 2.0 / 6.0).abs() < 1e-12, "{cover}");
    assert_eq!(cover["interval"], serde_json::json!([0.0, 1.0 / 3.0]));
    assert!(cover["verdict"].as_str().unwrap().starts_with("cover@75%: b +33.3 points"), "{cover}");
    let simulated = json(&[&arguments[..], &["--method", "monte-carlo", "--json"]].concat());
    assert!((simulated[1]["p_value"].as_f64().unwrap() - 1.0 / 3.0).abs() < 0.02, "{simulated}");
    assert!(done(&arguments).contains("cover@75%"));
    let csv = done(&[&arguments[..], &["--format", "csv"]].concat());
    assert!(csv.contains(",pass,2,") && csv.contains(",cover,75,"), "{csv}");
    assert!(refused(&["compare", &a, &b, "--cover", "0"]).contains("--cover"));
}

#[test]
fn compare_of_folders_corrects_over_benchmarks_and_averages() {
    let dir = Folder::new();
    for (side, extra) in [("a", 0), ("b", 12)] {
        for (name, base) in [("aime24", 40), ("aime25", 60), ("ifeval", 200), ("gpqa", 10)] {
            let counts: Vec<u64> = (0..20).map(|i| base + i + extra * u64::from(name != "gpqa")).collect();
            dir.counts(&format!("{side}/{name}.jsonl"), &problems(256, &counts));
        }
    }
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let found = json(&[
        "compare",
        a.to_str().unwrap(),
        b.to_str().unwrap(),
        "-k",
        "1",
        "--m",
        "64",
        "--json",
        "--average",
        "AIME=aime24,aime25",
    ]);
    let list = found.as_array().unwrap();
    let names: Vec<&str> = list.iter().map(|c| c["benchmark"].as_str().unwrap()).collect();
    assert_eq!(names, ["aime24", "aime25", "gpqa", "ifeval", "AIME"]);
    for c in &list[..4] {
        assert!(c["holm_p_value"].as_f64().unwrap() >= c["p_value"].as_f64().unwrap());
    }
    assert_eq!(list[2]["p_value"], 1.0);
    assert!((list[4]["difference"].as_f64().unwrap() - 12.0 / 256.0).abs() < 1e-12);
    assert!(list[4]["p_value"].as_f64().unwrap() < 0.01, "{}", list[4]);
    std::fs::remove_file(b.join("gpqa.jsonl")).unwrap();
    let message = refused(&["compare", a.to_str().unwrap(), b.to_str().unwrap(), "-k", "1"]);
    assert!(message.contains("benchmark gpqa is in A but not in B"), "{message}");
}

#[test]
fn p_values_are_corrected_where_there_are_several_benchmarks_on_the_page_too() {
    let dir = Folder::new();
    for side in ["a", "b"] {
        std::fs::create_dir(dir.path().join(side)).unwrap();
        for name in ["x", "y"] {
            dir.counts(&format!("{side}/{name}.jsonl"), &problems(64, &[20, 30, 10]));
        }
    }
    let [a, b, page] = ["a", "b", "page.html"].map(|name| dir.path().join(name));
    let [a, b, page] = [&a, &b, &page].map(|path| path.to_str().unwrap());
    assert!(done(&["compare", a, b, "-k", "1", "--html", page]).contains("p (Holm)"));
    assert_eq!(std::fs::read_to_string(page).unwrap().matches("p (Holm)").count(), 2);
    let x = |side: &str| format!("{side}/x.jsonl");
    assert!(!done(&["compare", &x(a), &x(b), "-k", "1"]).contains("p (Holm)"));
}

#[test]
fn samples_of_two_graders_are_not_compared() {
    let dir = Folder::new();
    let graded = |name: &str, by: &str| {
        let line = |i: u32| {
            format!("{{\"problem\": \"p\", \"sample\": {i}, \"correct\": true, \"verifier\": {by}}}\n")
        };
        let path = dir.path().join(name);
        std::fs::write(&path, (0..4).map(line).collect::<String>()).unwrap();
        path
    };
    let (a, b, other) = (
        graded("a.jsonl", "\"python/1\""),
        graded("b.jsonl", "\"python/1\""),
        graded("c.jsonl", "\"python/2\""),
    );
    let [a, b, other] = [&a, &b, &other].map(|p| p.to_str().unwrap());
    assert!(done(&["compare", a, b, "-k", "1"]).contains("no difference"));
    let message = refused(&["compare", a, other, "-k", "1"]);
    assert!(message.contains("graded by python/1 and") && message.contains("by python/2"), "{message}");
    let message = refused(&["table", &format!("A={a}"), &format!("B={other}"), "-k", "1"]);
    assert!(message.contains("python/2"), "{message}");
    // In files of other programs the field has another meaning.
    let theirs = graded("d.jsonl", "{}");
    assert!(done(&["compare", a, theirs.to_str().unwrap(), "-k", "1"]).contains("no difference"));
}

#[test]
fn a_comparison_says_how_many_samples_it_leaves_out() {
    let dir = Folder::new();
    let rows = |name: &str, broken: u64| {
        let line = |(p, i): (u64, u64)| {
            let verdict = if i < broken { "unscorable" } else { "correct" };
            format!("{{\"problem\": \"{p}\", \"sample\": {i}, \"verdict\": \"{verdict}\"}}\n")
        };
        let path = dir.path().join(name);
        std::fs::write(&path, (0..8).flat_map(|p| (0..8).map(move |i| (p, i))).map(line).collect::<String>())
            .unwrap();
        path
    };
    let (a, b) = (rows("a.jsonl", 0), rows("b.jsonl", 2));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fgrpo"));
    let output = command.arg("compare").args([&a, &b]).args(["-k", "1", "--uneven"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("25.0 % of b's samples could not be graded"), "{said}");
    assert!(!said.contains("of a's samples"), "{said}");
}

#[test]
fn one_cluster_or_one_problem_says_nothing_of_others() {
    let dir = Folder::new();
    let rows = |name: &str, correct: u64| {
        let line = |(p, i): (u64, u64)| {
            format!("{{\"problem\": \"{p}\", \"sample\": {i}, \"correct\": {}, \"t\": \"x\"}}\n", i < correct)
        };
        let path = dir.path().join(name);
        let all = (0..8).flat_map(|p| (0..16).map(move |i| (p, i)));
        std::fs::write(&path, all.map(line).collect::<String>()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (a, b) = (rows("a.jsonl", 4), rows("b.jsonl", 12));
    let found = json(&["compare", &a, &b, "-k", "1", "--cluster", "t", "--json"]);
    let verdict = found[0]["verdict"].as_str().unwrap();
    assert!(verdict.contains("one cluster of problems says nothing about others"), "{verdict}");
    assert_eq!(found[0]["bootstrap"]["p_value"], 1.0);
    // Eight better problems occur by chance once in 128 times; 100 resamples can't show less than 0.02.
    let found = json(&["compare", &a, &b, "-k", "1", "--json"]);
    assert_eq!(found[0]["bootstrap"]["p_value"], 1.0 / 128.0);
    let found = json(&["compare", &a, &b, "-k", "1", "--resamples", "100", "--json"]);
    assert_eq!(found[0]["bootstrap"]["p_value"], 0.02);
}

#[test]
fn subsamples_of_every_sample_are_no_test_and_change_no_other_test() {
    let dir = Folder::new();
    let (a, b) = (
        dir.counts("a.jsonl", &problems(64, &[20, 30, 10, 25, 35, 15])),
        dir.counts("b.jsonl", &problems(64, &[21, 31, 11, 26, 36, 16])),
    );
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let alone = json(&["compare", a, b, "-k", "1", "--json"]);
    let both = json(&["compare", a, b, "-k", "1,64", "--json"]);
    assert_eq!((&alone[0]["m"], &both[0]["m"], &both[1]["m"]), (&32.into(), &32.into(), &64.into()));
    assert_eq!(alone[0]["p_value"], both[0]["p_value"]);
    let verdict = both[0]["verdict"].as_str().unwrap();
    assert!(
        verdict.contains("not significant")
            && verdict.contains("it is uncertain: the test finds no difference"),
        "{verdict}"
    );
    // pass@64 of 64 samples doesn't vary: it is 1 on both sides.
    assert_eq!(both[1]["p_value"], 1.0);
    let whole = json(&["compare", a, b, "-k", "1", "--m", "64", "--json"]);
    assert!(whole[0]["p_value"].is_null() && whole[0]["holm_p_value"].is_null(), "{whole}");
    assert!(whole[0]["verdict"].as_str().unwrap().contains("not tested"), "{whole}");
    assert!(whole[0]["interval"].is_null() && whole[0].get("p_bounds").is_none(), "{whole}");
    // 10 of 64 in one problem, and all in the others: the interval has width 0, and p is 2 C(54, 32) / C(64, 32).
    let certain = dir.counts("certain.jsonl", &problems(64, &[0, 0, 64]));
    let one = dir.counts("one.jsonl", &problems(64, &[10, 0, 64]));
    let (certain, one) = (certain.to_str().unwrap(), one.to_str().unwrap());
    let found = json(&["compare", certain, one, "-k", "32", "--json"]);
    assert_eq!(found[0]["interval"][0], found[0]["interval"][1]);
    assert!((found[0]["p_value"].as_f64().unwrap() - 0.000_852).abs() < 1e-6, "{found}");
    let (a, b) = (format!("A={a}"), format!("B={b}"));
    for format in ["text", "latex"] {
        let printed = done(&["table", &a, &b, "--pair", "A,B", "--format", format]);
        assert!(!printed.contains('_') && !printed.contains("underline"), "{printed}");
    }
}

#[test]
fn files_of_one_benchmark_under_other_names_share_a_column() {
    let dir = Folder::new();
    dir.counts("b.jsonl", &problems(64, &[20, 30, 10]));
    dir.counts("g.jsonl", &problems(64, &[50, 60, 40]));
    dir.counts("other.jsonl", &problems(64, &[50, 60]));
    let [b, g, other] =
        ["b", "g", "other"].map(|name| format!("{name}={}", dir.path().join(name).display()) + ".jsonl");
    let table = json(&["table", &b, &g, "-k", "1", "--format", "json"]);
    assert_eq!(table.as_array().unwrap().len(), 2, "{table}");
    assert_eq!(table[0].as_object().unwrap().len(), 2, "{table}");
    let marked = done(&["table", &b, &g, "--pair", "b,g", "-k", "1"]);
    assert!(marked.contains("_*78.1*_"), "{marked}");
    let message = refused(&["table", &b, &other, "-k", "1"]);
    assert!(message.contains("have different problems") && message.contains("only in"), "{message}");
}

#[test]
fn plan_suggests_a_group_size_from_samples() {
    let dir = Folder::new();
    let file = dir.counts("s.jsonl", &problems(1024, &[0, 20, 300, 512, 1024]));
    let found = json(&["plan", file.to_str().unwrap(), "--json"]);
    let sizes = found["group_sizes"].as_array().unwrap();
    let active: Vec<f64> = sizes.iter().map(|s| s["active"].as_f64().unwrap()).collect();
    assert!(active.windows(2).all(|w| w[0] <= w[1] + 1e-12), "{active:?}");
    // Few samples: groups larger than their number can't be less active.
    let few = dir.counts("few.jsonl", &problems(64, &[1, 63, 1, 20, 2, 0, 64]));
    let said = json(&["plan", few.to_str().unwrap(), "--json"]);
    let few: Vec<(f64, bool)> = said["group_sizes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (s["active"].as_f64().unwrap(), s["at_least"].as_bool().unwrap()))
        .collect();
    assert!(few.windows(2).all(|w| w[0].0 <= w[1].0 + 1e-12), "{few:?}");
    assert_eq!((few[5].1, few[6].1), (false, true), "{few:?}");
    assert_eq!((&found["never_solved"], &found["always_solved"]), (&1.into(), &1.into()));
    assert!(found["suggested"]["group_size"].is_number(), "{found}");
    refused(&["plan", file.to_str().unwrap(), "--tail", "0"]);
}

#[test]
fn table_marks_the_better_of_a_pair_and_underlines_what_is_significant() {
    let dir = Folder::new();
    for (method, shift) in [("base", 0), ("focal", 30)] {
        // A clear gain on one benchmark, a gain of two samples in 256 on another, none on the third.
        for (name, gain) in [("aime24", shift), ("amc23", shift / 15), ("ifeval", 0)] {
            let counts: Vec<u64> =
                (0..10).map(|i| 60 + i + if name == "amc23" && i > 0 { 0 } else { gain }).collect();
            dir.counts(&format!("{method}/{name}.jsonl"), &problems(256, &counts));
        }
    }
    let of = |name: &str| format!("{name}={}", dir.path().join(name).display());
    let (base, focal) = (of("base"), of("focal"));
    let args = ["table", &base, &focal, "--pair", "base,focal", "-k", "1", "--m", "64"];
    let args = [&args[..], &["--average", "Two=aime24,amc23"]].concat();
    let latex = done(&[&args[..], &["--format", "latex"]].concat());
    assert!(
        latex.contains(
            "\\textbf{Avg. Math} & \\textbf{aime24} & \\textbf{amc23} & \\textbf{Avg. Two} & \\textbf{ifeval}"
        ),
        "{latex}"
    );
    // pass@1 on aime24: 645/2560 and 945/2560; on amc23 2 of 2560 more; ifeval equal.
    assert!(latex.contains("focal & -- & \\underline{\\textbf{36.9}} & \\textbf{25.3} & \\underline{\\textbf{31.1}} & 25.2 \\\\"), "{latex}");
    let best = done(&["table", &base, &focal, "-k", "1", "--format", "markdown"]);
    assert!(best.contains("| focal | -- | **36.9** | **25.3** | **25.2** |"), "{best}");
    let said = done(&args);
    assert!(said.contains("pass@1 in percent; *1.0*: better of its pair; _1.0_: p < 0.05"), "{said}");
    let message = refused(&["table", &base, "--pair", "base,nobody"]);
    assert!(message.contains("unknown method nobody"), "{message}");
}
