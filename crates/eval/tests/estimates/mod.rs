//! Files of samples: estimates, comparisons, and lines that are refused.

use crate::Folder;
use fgrpo_eval::benchmarks::{Average, Averages, Domain, parse};
use fgrpo_eval::clusters;
use fgrpo_eval::compare::{self, Method, matched};
use fgrpo_eval::dumps;
use fgrpo_eval::estimate::{self, PassAtK, RESAMPLES};
use fgrpo_eval::samples::Benchmark;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

impl Folder {
    /// Writes problems with `n` samples each, and these numbers of correct ones.
    fn counts(&self, name: &str, n: u64, correct: &[u64]) -> PathBuf {
        let line = |(i, c): (usize, &u64)| json!({"problem": format!("p{i}"), "n": n, "c": c});
        self.lines(name, correct.iter().enumerate().map(line))
    }
}

/// Reads samples as `fgrpo pass-at-k` and `fgrpo compare` do, with clusters by a field.
fn read(paths: &[&Path], cluster: Option<&str>) -> anyhow::Result<Vec<Benchmark>> {
    let paths: Vec<PathBuf> = paths.iter().map(|path| path.to_path_buf()).collect();
    let mut benchmarks = dumps::read_all(&paths, false, None)?;
    cluster.map_or(Ok(()), |field| clusters::assign(&mut benchmarks, &paths, field))?;
    benchmarks.iter().try_for_each(Benchmark::require_equal_samples)?;
    Ok(benchmarks)
}

fn averages(further: &[&str]) -> Averages {
    let further: Vec<Average> = further.iter().map(|text| parse(text).unwrap()).collect();
    Averages { trained_on: Domain::Math, further }
}

/// Estimates pass@k. The JSON of one benchmark is its report alone.
fn estimated(paths: &[&Path], ks: &[u64], cluster: Option<&str>) -> anyhow::Result<Value> {
    let settings = estimate::Settings {
        ks: ks.to_vec(),
        resamples: RESAMPLES,
        seed: 0,
        averages: averages(&[]),
        hat: true,
        cover: vec![50, 51, 100],
    };
    let all = serde_json::to_value(PassAtK::of(&read(paths, cluster)?, &settings)?)?;
    Ok(if all["benchmarks"][1].is_null() { all["benchmarks"][0].clone() } else { all })
}

/// Compares two models.
fn compared(
    [a, b]: [&Path; 2],
    ks: &[u64],
    set: impl FnOnce(&mut compare::Settings),
) -> anyhow::Result<Value> {
    clustered([a, b], ks, None, &[], set)
}

fn clustered(
    [a, b]: [&Path; 2],
    ks: &[u64],
    cluster: Option<&str>,
    further: &[&str],
    set: impl FnOnce(&mut compare::Settings),
) -> anyhow::Result<Value> {
    let pairs = matched(read(&[a], cluster)?, read(&[b], cluster)?)?;
    let mut settings = compare::Settings::test_alone(ks.to_vec(), None);
    (settings.resamples, settings.labels) = (10_000, ["a", "b"].map(str::to_owned));
    set(&mut settings);
    Ok(serde_json::to_value(compare::compare(&pairs, &settings, &averages(further).all())?)?)
}

fn said<T>(result: anyhow::Result<T>) -> String {
    format!("{:#}", result.err().unwrap())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[track_caller]
fn close(found: &Value, wanted: f64) {
    assert!((number(found) - wanted).abs() < 1e-12, "found {found}, wanted {wanted}");
}

/// The list of numbers `name = [...]` of a page.
fn list(page: &str, name: &str) -> Vec<u64> {
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} = [")));
    let numbers = line.unwrap_or_else(|| panic!("the page has no {name}")).trim_end_matches(']');
    numbers.split(", ").map(|n| n.parse().unwrap()).collect()
}

#[test]
fn the_page_of_the_paired_test_says_what_is_computed() {
    let page = include_str!("../../../../docs/paired-test.md");
    let folder = Folder::new();
    let one = folder.counts("one.jsonl", 16, &[1]);
    assert_eq!(estimated(&[&one], &[16], None).unwrap()["pass_at_k"]["16"], 1.0);
    let drawn = 1.0 - (1.0 - 1.0 / 16.0f64).powi(16);
    assert!(page.contains(&format!("# {drawn:.4}")));
    let sides = ["a", "b"].map(|side| folder.counts(&format!("{side}.jsonl"), 32, &list(page, side)));
    let [a, b] = sides.each_ref().map(PathBuf::as_path);
    let both = estimated(&[a, b], &[1], None).unwrap();
    let error = |i: usize| {
        let side = &both["benchmarks"][i];
        let [low, high] = [0, 1].map(|end| number(&side["interval"]["1"][end]));
        let percent = |x: f64| format!("{:.1}", 100.0 * x);
        let value = percent(number(&side["pass_at_k"]["1"]));
        let shown = format!("{value} % [{}, {}]", percent(low), percent(high));
        assert!(page.contains(&shown), "{shown}");
        (high - low) / 3.92
    };
    let standard_error = error(0).hypot(error(1));
    let together = compared([a, b], &[1], |_| ()).unwrap();
    let z = number(&together[0]["difference"]) / standard_error;
    // The normal distribution's tail beyond 1.75 on both sides is 0.080.
    assert!((z - 1.75).abs() < 0.02 && page.contains("p = 0.08: "), "{z}");
    let p = number(&together[0]["bootstrap"]["p_value"]);
    assert!(page.contains(&format!("has p = {p:.4}.")), "{p}");
    // Every problem five times, with and without clusters.
    let five = ["a", "b"].map(|side| {
        let copies = list(page, side).into_iter().enumerate().flat_map(|(i, c)| {
            (0..5).map(move |v| json!({"problem": format!("{i}-{v}"), "template": i, "n": 32, "c": c}))
        });
        folder.lines(&format!("{side}5.jsonl"), copies)
    });
    let paths = five.each_ref().map(PathBuf::as_path);
    let narrow = compared(paths, &[1], |_| ()).unwrap();
    let wide = clustered(paths, &[1], Some("template"), &[], |_| ()).unwrap();
    let shown = |c: &Value| {
        let end = |i: usize| format!("{:+.1}", 100.0 * number(&c[0]["bootstrap"]["interval"][i]));
        format!("it is {} to {}", end(0), end(1))
    };
    let narrow_said = shown(&narrow).replace("it is", "the difference is");
    assert!(page.contains(&narrow_said) && page.contains(&shown(&wide)), "{narrow_said}; {}", shown(&wide));
    assert_eq!((&wide[0]["clusters"], &narrow[0]["clusters"]), (&30.into(), &Value::Null));
    for i in 0..2 {
        close(&wide[0]["bootstrap"]["interval"][i], number(&together[0]["bootstrap"]["interval"][i]));
    }
    // Only pass@k.
    let alone = estimated(&paths[..1], &[1], Some("template")).unwrap();
    let plain = estimated(&[a], &[1], None).unwrap();
    assert_eq!((&alone["clusters"], &alone["problems"]), (&30.into(), &150.into()));
    close(&alone["interval"]["1"][0], number(&plain["interval"]["1"][0]));
    // Clusters with the same name in two benchmarks are different: all problems together give the result without copies.
    let pooled = estimated(&paths, &[1], Some("template")).unwrap();
    close(&pooled["interval"]["1"][0], number(&both["interval"]["1"][0]));
    let why = said(clustered([a, b], &[1], Some("template"), &[], |_| ()));
    assert!(why.contains("cluster template: problem p0"), "{why}");
    let line = |i: u32| json!({"problem": 1, "sample": i, "correct": true, "t": i});
    let odd = folder.lines("odd.jsonl", [line(0), line(1)]);
    let why = said(estimated(&[&odd], &[1], Some("t")));
    assert!(why.contains("line 2: t: problem 1 is in two clusters"), "{why}");
}

#[test]
fn a_report_has_pass_hat_k_cover_and_the_papers_averages() {
    let folder = Folder::new();
    let found = estimated(&[&folder.counts("s.jsonl", 4, &[4, 2, 0])], &[1, 2], None).unwrap();
    close(&found["pass_at_k"]["2"], (1.0 + 5.0 / 6.0) / 3.0);
    // C(2, 2) / C(4, 2) for the second problem.
    close(&found["pass_hat_k"]["2"], (1.0 + 1.0 / 6.0) / 3.0);
    // Success rates are 1, 1/2 and 0.
    assert_eq!(found["cover"], json!({"50": 2.0 / 3.0, "51": 1.0 / 3.0, "100": 1.0 / 3.0}));
    assert_eq!(found["cover_interval"]["50"], json!([0.0, 1.0]));
    let names = ["AIME_2024", "aime25", "amc23", "MATH-500", "minerva", "olympiadbench", "mine"];
    for (i, name) in (0..).zip(names) {
        folder.counts(&format!("all/{name}.jsonl"), 8, &[i, i]);
    }
    let all = estimated(&[&folder.at("all")], &[1], None).unwrap();
    assert_eq!((all["benchmarks"].as_array().unwrap().len(), &all["problems"]), (7, &14.into()));
    close(&all["averages"]["Math"]["pass_at_k"]["1"], 15.0 / 48.0);
    // An average without all of its benchmarks is left out.
    std::fs::remove_file(folder.at("all/minerva.jsonl")).unwrap();
    assert_eq!(estimated(&[&folder.at("all")], &[1], None).unwrap()["averages"], json!({}));
}

#[test]
fn samples_give_subjects_majority_and_truncation() {
    let folder = Folder::new();
    // Three of eight are right; the wrong ones have the same answer.
    let line = |i: u32| {
        let (answer, finish) = (if i < 3 { "5" } else { "7" }, if i == 7 { "length" } else { "stop" });
        json!({"problem": "x", "sample": i, "correct": i < 3, "answer": answer, "subject": "Algebra", "tokens": 10, "finish": finish})
    };
    let found = estimated(&[&folder.lines("s.jsonl", (0..8).map(line))], &[1, 8], None).unwrap();
    assert_eq!(found["maj_at_k"]["8"], 0.0);
    close(&found["maj_at_k"]["1"], 0.375);
    close(&found["subjects"]["Algebra"]["pass_at_k"]["1"], 0.375);
    assert_eq!((&found["truncated"], &found["tokens_per_problem"]), (&0.125.into(), &80.0.into()));
}

#[test]
fn a_correct_sample_without_an_answer_has_no_vote() {
    let folder = Folder::new();
    let majority = |answers: &[(bool, Option<&str>)]| {
        let rows = answers.iter().enumerate().map(
            |(i, (correct, answer))| json!({"problem": "x", "sample": i, "correct": correct, "answer": answer}),
        );
        estimated(&[&folder.lines("s.jsonl", rows)], &[3], None).unwrap()["maj_at_k"]["3"].as_f64()
    };
    let (right, silent, wrong) = ((true, Some("5")), (true, None), (false, Some("7")));
    assert_eq!(majority(&[right, right, wrong]), Some(1.0));
    assert!(majority(&[vec![right; 199], vec![silent], vec![wrong; 100]].concat()).unwrap() > 0.6);
    // The verifier found correct answers that don't vote, so a majority would be too low.
    assert_eq!(majority(&[silent, silent, wrong]), None);
    // Puzzles whose answers can't be extracted have no majority vote, which would otherwise equal pass@k.
    assert_eq!(majority(&[silent, (false, None), (false, None)]), None);
}

#[test]
fn lines_of_samples_and_of_counts_say_the_same_by_verdict_and_benchmark() {
    let folder = Folder::new();
    let found = |text: &str| estimated(&[&folder.write("s.jsonl", text)], &[1], None).unwrap();
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
fn bad_samples_are_refused_by_file_and_place() {
    let folder = Folder::new();
    for (text, ks, wanted) in [
        (r#"{"problem":1,"n":4,"c":5}"#, &[1][..], "c = 5"),
        (r#"{"problem":1,"n":4,"c":1}"#, &[8], "problem 1 has 4"),
        ("{\"problem\":1,\"n\":4,\"c\":1}\n{\"problem\":2,\"n\":5,\"c\":1}", &[], "problem 2 has 5"),
        ("", &[], "empty"),
        (r#"{"problem":1,"sample":0}"#, &[], "\"correct\""),
        (r#"{"problem":1,"sample":0,"correct":0.5}"#, &[], "found 0.5"),
        (
            "{\"problem\":1,\"correct\":true}\n{\"problem\":1,\"sample\":1,\"correct\":true}",
            &[],
            "problem 1: some lines have \"sample\"",
        ),
        (r#"{"problem":1,"n":4}"#, &[], "\"n\" and \"c\""),
        (r#"{"problem":1,"sam"#, &[], "line 1: the JSON is cut off at byte 17"),
        (r#"{"sample":1,"correct":true}"#, &[], "line 1: problem: missing"),
        ("{\"problem\":1,\"n\":4,\"c\":1}\n{\"problem\":1,\"n\":4,\"c\":1}", &[], "problem 1 appears twice"),
        (r#"{"problem":1,"n":0,"c":0}"#, &[], "problem 1 has no samples"),
        (
            "{\"problem\":1,\"sample\":3,\"correct\":true}\n{\"problem\":1,\"sample\":3,\"correct\":true}",
            &[],
            "sample 3 appears twice",
        ),
        (
            "{\"problem\":1,\"sample\":0,\"verdict\":\"unscorable\"}\n{\"problem\":2,\"sample\":0,\"correct\":true}",
            &[],
            "1 of 2 problems have no scored sample, such as problem 1: all 1 are unscorable",
        ),
    ] {
        let why = said(estimated(&[&folder.write("bad.jsonl", text)], ks, None));
        assert!(why.contains(wanted) && why.contains("bad.jsonl"), "wanted {wanted:?} in: {why}");
    }
    let zero = said(estimated(&[&folder.counts("z.jsonl", 4, &[1])], &[0], None));
    assert!(zero.contains("found 0"), "{zero}");
    assert!(said(estimated(&[Path::new("no-such-file.jsonl")], &[1], None)).contains("no-such-file.jsonl"));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let folder = Folder::new();
    let [a, b] = [("a", &[1, 2, 3][..]), ("b", &[1, 2])]
        .map(|(name, correct)| folder.counts(&format!("{name}.jsonl"), 8, correct));
    let why = said(compared([&a, &b], &[1], |_| ()));
    assert!(why.contains("1 only in") && why.contains("a.jsonl: p2"), "{why}");
    assert!(said(compared([&a, &a], &[], |s| s.m = Some(9))).contains("1 <= m <= 8"));
    assert!(said(compared([&a, &a], &[3], |s| s.m = Some(2))).contains("k <= m"));
    let years = ["aime24.jsonl", "aime25.jsonl"].map(|name| folder.counts(name, 8, &[1, 2]));
    let why = said(compared(years.each_ref().map(PathBuf::as_path), &[1], |_| ()));
    assert!(why.contains("aime24") && why.contains("aime25"), "{why}");
    let graded = |name: &str, by: Value| {
        let line = |i: u32| json!({"problem": "p", "sample": i, "correct": true, "verifier": by});
        folder.lines(name, (0..4).map(line))
    };
    let [a, b, other, theirs] =
        [("e", json!("python/1")), ("f", json!("python/1")), ("g", json!("python/2")), ("h", json!({}))]
            .map(|(name, by)| graded(&format!("{name}.jsonl"), by));
    let why = said(compared([&a, &other], &[1], |_| ()));
    assert!(why.contains("graded by python/1 and") && why.contains("by python/2"), "{why}");
    // In files of other programs the field has another meaning.
    for same in [&b, &theirs] {
        assert_eq!(compared([&a, same], &[1], |_| ()).unwrap()[0]["difference"], 0.0);
    }
}

#[test]
fn both_methods_find_the_same_differences() {
    let folder = Folder::new();
    let a: Vec<u64> = (0..30).map(|i| i * 8).collect();
    let b: Vec<u64> = (0..30).map(|i| i * 8 + 24 + 5 * (i % 3)).collect();
    let (a, b) = (folder.counts("a.jsonl", 512, &a), folder.counts("b.jsonl", 512, &b));
    let by = |method: Method| {
        let set = |settings: &mut compare::Settings| {
            (settings.method, settings.iterations, settings.m) = (method, 50_000, Some(128));
        };
        compared([&a, &b], &[1, 8, 128], set).unwrap()
    };
    let (exact, simulated) = (by(Method::Exact), by(Method::MonteCarlo));
    for (e, s) in exact.as_array().unwrap().iter().zip(simulated.as_array().unwrap()) {
        assert_eq!(e["k"], s["k"]);
        close(&e["difference"], number(&e["b"]) - number(&e["a"]));
        assert_eq!((&e["method"], &s["method"]), (&"exact".into(), &"monte-carlo".into()));
        // With 50,000 iterations, five standard errors of a p-value of 0.5 are 0.02.
        assert!((number(&e["p_value"]) - number(&s["p_value"])).abs() < 0.02, "{e} {s}");
        let width = number(&e["interval"][1]) - number(&e["interval"][0]);
        for side in 0..2 {
            let (x, y) = (number(&e["interval"][side]), number(&s["interval"][side]));
            assert!((x - y).abs() < 0.05 * width, "{e} {s}");
        }
        assert!(e["bootstrap"]["p_value"].is_number() && e["bootstrap"]["interval"][1].is_number());
        assert!(number(&e["p_bounds"][0]) <= number(&e["p_value"]) + 1e-12);
    }
    // A gain of 30 in 512 on nearly every problem isn't due to chance.
    assert!(number(&exact[0]["p_value"]) < 1e-6);
    let verdict = exact[0]["verdict"].as_str().unwrap();
    assert!(verdict.contains("b +") && verdict.contains(", significant (p < 0.0001)"), "{verdict}");
    assert_eq!(exact[2]["gained"], json!(["p0"]));
}

#[test]
fn cover_is_tested_by_the_same_subsamples_as_pass_at_k() {
    let folder = Folder::new();
    let (a, b) = (folder.counts("a.jsonl", 4, &[4, 2, 0]), folder.counts("b.jsonl", 4, &[4, 4, 0]));
    let cover = |settings: &mut compare::Settings| (settings.cover, settings.m) = (vec![75], Some(2));
    let found = compared([&a, &b], &[2], cover).unwrap();
    let (pass, cover_75) = (&found[0], &found[1]);
    assert!(pass["k"] == 2 && pass.get("cover").is_none());
    assert!(cover_75["cover"] == 75 && cover_75.get("k").is_none());
    assert_eq!((number(&cover_75["a"]), number(&cover_75["b"])), (1.0 / 3.0, 2.0 / 3.0));
    // With probability 1 / C(4, 2) both of two samples of A's second problem are correct, and then nothing differs.
    close(&cover_75["p_value"], 2.0 / 6.0);
    assert_eq!(cover_75["interval"], json!([0.0, 1.0 / 3.0]));
    assert!(cover_75["verdict"].as_str().unwrap().starts_with("cover@75%: b +33.3 points"), "{cover_75}");
    let simulated = compared([&a, &b], &[2], |settings| {
        cover(settings);
        (settings.method, settings.iterations) = (Method::MonteCarlo, 50_000);
    });
    assert!((number(&simulated.unwrap()[1]["p_value"]) - 1.0 / 3.0).abs() < 0.02);
}

#[test]
fn compare_of_folders_corrects_over_benchmarks_and_averages() {
    let folder = Folder::new();
    for (side, extra) in [("a", 0), ("b", 12)] {
        for (name, base) in [("aime24", 40), ("aime25", 60), ("ifeval", 200), ("gpqa", 10)] {
            let counts: Vec<u64> = (0..20).map(|i| base + i + extra * u64::from(name != "gpqa")).collect();
            folder.counts(&format!("{side}/{name}.jsonl"), 256, &counts);
        }
    }
    let (a, b) = (folder.at("a"), folder.at("b"));
    let found = clustered([&a, &b], &[1], None, &["AIME=aime24,aime25"], |s| s.m = Some(64)).unwrap();
    let list = found.as_array().unwrap();
    let names: Vec<&str> = list.iter().map(|c| c["benchmark"].as_str().unwrap()).collect();
    assert_eq!(names, ["aime24", "aime25", "gpqa", "ifeval", "AIME"]);
    for c in &list[..4] {
        assert!(number(&c["holm_p_value"]) >= number(&c["p_value"]));
    }
    assert_eq!(list[2]["p_value"], 1.0);
    close(&list[4]["difference"], 12.0 / 256.0);
    assert!(number(&list[4]["p_value"]) < 0.01, "{}", list[4]);
    std::fs::remove_file(b.join("gpqa.jsonl")).unwrap();
    let why = said(compared([&a, &b], &[1], |_| ()));
    assert!(why.contains("benchmark gpqa is in A but not in B"), "{why}");
}

#[test]
fn one_cluster_or_one_problem_says_nothing_of_others() {
    let folder = Folder::new();
    let rows = |name: &str, correct: u64| {
        let all = (0..8).flat_map(|p| (0..16).map(move |i| (p, i)));
        let line = |(p, i): (u64, u64)| json!({"problem": p.to_string(), "sample": i, "correct": i < correct, "t": "x"});
        folder.lines(name, all.map(line))
    };
    let (a, b) = (rows("a.jsonl", 4), rows("b.jsonl", 12));
    let found = clustered([&a, &b], &[1], Some("t"), &[], |_| ()).unwrap();
    let verdict = found[0]["verdict"].as_str().unwrap();
    assert!(verdict.contains("one cluster of problems says nothing about others"), "{verdict}");
    assert_eq!(found[0]["bootstrap"]["p_value"], 1.0);
    // Eight better problems occur by chance once in 128 times; 100 resamples can't show less than 0.02.
    let p = |resamples: u64| {
        compared([&a, &b], &[1], |s| s.resamples = resamples).unwrap()[0]["bootstrap"]["p_value"].clone()
    };
    assert_eq!((p(10_000), p(100)), (json!(1.0 / 128.0), json!(0.02)));
}

#[test]
fn subsamples_of_every_sample_are_no_test_and_change_no_other_test() {
    let folder = Folder::new();
    let a = folder.counts("a.jsonl", 64, &[20, 30, 10, 25, 35, 15]);
    let b = folder.counts("b.jsonl", 64, &[21, 31, 11, 26, 36, 16]);
    let alone = compared([&a, &b], &[1], |_| ()).unwrap();
    let both = compared([&a, &b], &[1, 64], |_| ()).unwrap();
    assert_eq!((&alone[0]["m"], &both[0]["m"], &both[1]["m"]), (&32.into(), &32.into(), &64.into()));
    assert_eq!(alone[0]["p_value"], both[0]["p_value"]);
    let verdict = both[0]["verdict"].as_str().unwrap();
    assert!(verdict.contains("not significant"), "{verdict}");
    assert!(verdict.contains("it is uncertain: the test finds no difference"), "{verdict}");
    // pass@64 of 64 samples doesn't vary: it is 1 on both sides.
    assert_eq!(both[1]["p_value"], 1.0);
    let whole = &compared([&a, &b], &[1], |s| s.m = Some(64)).unwrap()[0];
    assert!(whole["p_value"].is_null() && whole["holm_p_value"].is_null(), "{whole}");
    assert!(whole["verdict"].as_str().unwrap().contains("not tested"), "{whole}");
    assert!(whole["interval"].is_null() && whole.get("p_bounds").is_none(), "{whole}");
    // 10 of 64 in one problem, and all in the others: the interval has width 0, and p is 2 C(54, 32) / C(64, 32).
    let certain = folder.counts("certain.jsonl", 64, &[0, 0, 64]);
    let one = folder.counts("one.jsonl", 64, &[10, 0, 64]);
    let found = &compared([&certain, &one], &[32], |_| ()).unwrap()[0];
    assert_eq!(found["interval"][0], found["interval"][1]);
    assert!((number(&found["p_value"]) - 0.000_852).abs() < 1e-6, "{found}");
}

#[test]
fn logs_of_lm_eval_and_verl_are_graded_by_the_answers_after_the_thoughts() {
    let folder = Folder::new();
    let texts =
        ["<think>\\boxed{12}</think> \\boxed{13}", "<think>\\boxed{13}", "\\boxed{13}</think> \\boxed{12}"];
    let texts = || texts.iter().enumerate();
    let lm_eval = texts()
        .map(|(i, text)| json!({"doc_id": i, "doc": {}, "target": "13", "resps": [[text]], "filter": "f"}));
    let lm_eval = folder.lines("samples_a_2026-01-01T00-00-00.000000.jsonl", lm_eval);
    let verl = texts().map(
        |(i, text)| json!({"input": format!("q{i}"), "output": text, "gts": "13", "score": 0.0, "step": 1}),
    );
    for log in [lm_eval, folder.lines("1.jsonl", verl)] {
        close(&estimated(&[&log], &[1], None).unwrap()["pass_at_k"]["1"], 1.0 / 3.0);
    }
}
