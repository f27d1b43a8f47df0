//! `pass-at-k`, `compare`, `table` and `plan`, through the command line. Tests in crates/eval have the estimates and
//! comparisons.

use crate::support::{done, ends_with, file, json, refused};
use std::path::{Path, PathBuf};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn text(&self, name: &str, text: &str) -> PathBuf {
        file(self.path(), name, text)
    }

    /// Writes problems with `n` samples each, and these numbers of correct ones. Returns the path of the file.
    fn counts(&self, name: &str, n: u64, correct: &[u64]) -> String {
        let line = |(i, c): (usize, &u64)| format!("{{\"problem\":\"p{i}\",\"n\":{n},\"c\":{c}}}\n");
        let text: String = correct.iter().enumerate().map(line).collect();
        self.text(name, &text).display().to_string()
    }
}

#[test]
fn every_format_prints_the_same_values() {
    let dir = Folder::new();
    let path = dir.counts("a.jsonl", 4, &[2, 2]);
    for (format, wanted) in [
        ("text", "50.0 [50.0, 50.0]"),
        ("text", "a, pass^k"),
        ("text", "cover@50%"),
        ("csv", "a,2,pass,1,0.5,0.5,0.5"),
        ("csv", "a,2,cover,50,1,"),
        ("markdown", "| a | 2 | 50.0 [50.0, 50.0] |"),
        ("latex", "a & 2 & 50.0 "),
        ("json", "\"pass_at_k\":{\"1\":0.5}"),
        ("json", "\"pass_hat_k\":{\"1\":0.5}"),
    ] {
        let out = done(&["pass-at-k", &path, "-k", "1", "--hat", "--cover", "50", "--format", format]);
        assert!(out.contains(wanted), "{format}: {out}");
    }
    let plain = json(&["pass-at-k", &path, "-k", "1", "--json"]);
    assert!(plain.get("pass_hat_k").is_none() && plain.get("by_problem").is_none(), "{plain}");
    // Without one of its benchmarks, an average is left out.
    dir.counts("all/aime24.jsonl", 8, &[1]);
    dir.counts("all/aime25.jsonl", 8, &[1]);
    let said = ends_with(0, &["pass-at-k", dir.path().join("all").to_str().unwrap(), "-k", "1"]);
    assert!(said.contains("no average Math: "), "{said}");
}

#[test]
fn the_average_out_of_domain_leaves_out_what_was_trained_on() {
    let dir = Folder::new();
    for (i, name) in ["aime24", "aime25", "amc23", "math500", "ifeval", "gpqa", "synlogic"].iter().enumerate()
    {
        dir.counts(&format!("m/{name}.jsonl"), 16, &[2 * i as u64]);
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
fn bad_samples_end_with_two_and_uneven_ones_are_used_when_allowed() {
    let dir = Folder::new();
    let file = dir.text("n.jsonl", "{\"problem\":1,\"n\":4,\"c\":2}\n{\"problem\":2,\"n\":2,\"c\":2}");
    let file = file.to_str().unwrap();
    let uneven = ["pass-at-k", file, "-k", "1", "--json", "--uneven"];
    let said = refused(&uneven[..5]);
    assert!(said.contains("n.jsonl: problem 1 has 4 samples and problem 2 has 2"), "{said}");
    assert_eq!(json(&uneven)["pass_at_k"]["1"], 0.75);
}

#[test]
fn problems_without_a_scored_sample_are_named_by_every_command_that_needs_one() {
    let dir = Folder::new();
    let line = |problem: &str, verdict: &str| {
        format!("{{\"problem\": \"{problem}\", \"sample\": 0, \"verdict\": \"{verdict}\"}}\n")
    };
    let path = dir.text("a.jsonl", &(line("p0", "correct") + &line("p1", "unscorable")));
    let (file, method) = (path.to_str().unwrap(), format!("A={}", path.display()));
    for command in [
        &["compare", file, file][..],
        &["pass-at-k", file, "-k", "1"],
        &["pass-at-k", file],
        &["table", &method],
    ] {
        let said = refused(command);
        let why = "a.jsonl: 1 of 2 problems have no scored sample, such as problem p1";
        assert!(said.contains(why), "{command:?}: {said}");
    }
}

#[test]
fn compare_says_where_two_evaluations_were_sampled_otherwise() {
    let dir = Folder::new();
    for (side, temperature) in [("a", "1.0"), ("b", "0.6")] {
        dir.counts(&format!("{side}/samples.jsonl"), 8, &[1, 2, 3]);
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
fn compare_prints_every_measure_and_corrects_p_values_where_there_are_several_benchmarks() {
    let dir = Folder::new();
    for side in ["a", "b"] {
        for name in ["x", "y"] {
            dir.counts(&format!("{side}/{name}.jsonl"), 64, &[20, 30, 10]);
        }
    }
    let [a, b, page] = ["a", "b", "page.html"].map(|name| dir.path().join(name).display().to_string());
    assert!(done(&["compare", &a, &b, "-k", "1", "--html", &page]).contains("p (Holm)"));
    assert_eq!(std::fs::read_to_string(page).unwrap().matches("p (Holm)").count(), 2);
    let [a, b] = [a, b].map(|side| format!("{side}/x.jsonl"));
    assert!(!done(&["compare", &a, &b, "-k", "1"]).contains("p (Holm)"));
    let compare = ["compare", &a, &b, "-k", "2", "--cover", "75", "--m", "4", "--method", "monte-carlo"];
    let csv = done(&[&compare[..], &["--format", "csv"]].concat());
    assert!(csv.contains(",pass,2,") && csv.contains(",cover,75,"), "{csv}");
    let found = json(&[&compare[..], &["--json"]].concat());
    assert_eq!((&found[0]["k"], &found[1]["cover"]), (&2.into(), &75.into()), "{found}");
    assert_eq!((&found[0]["m"], &found[0]["method"]), (&4.into(), &"monte-carlo".into()), "{found}");
    assert!(refused(&["compare", &a, &b, "--cover", "0"]).contains("--cover"));
    assert!(refused(&["compare", &a, &b, "-k", "3", "--m", "2"]).contains("k <= m"));
}

#[test]
fn a_comparison_says_how_many_samples_it_leaves_out() {
    let dir = Folder::new();
    let rows = |name: &str, broken: u64| {
        let line = |(p, i): (u64, u64)| {
            let verdict = if i < broken { "unscorable" } else { "correct" };
            format!("{{\"problem\": \"{p}\", \"sample\": {i}, \"verdict\": \"{verdict}\"}}\n")
        };
        let all = (0..8).flat_map(|p| (0..8).map(move |i| (p, i)));
        dir.text(name, &all.map(line).collect::<String>()).display().to_string()
    };
    let (a, b) = (rows("a.jsonl", 0), rows("b.jsonl", 2));
    let said = ends_with(0, &["compare", &a, &b, "-k", "1", "--uneven"]);
    assert!(said.contains("25.0 % of b's samples could not be graded"), "{said}");
    assert!(!said.contains("of a's samples"), "{said}");
}

#[test]
fn files_of_one_benchmark_under_other_names_share_a_column() {
    let dir = Folder::new();
    let [b, g, other] = [("b", &[20, 30, 10][..]), ("g", &[50, 60, 40]), ("other", &[50, 60])]
        .map(|(name, correct)| format!("{name}={}", dir.counts(&format!("{name}.jsonl"), 64, correct)));
    let table = json(&["table", &b, &g, "-k", "1", "--format", "json"]);
    assert_eq!(table.as_array().unwrap().len(), 2, "{table}");
    assert_eq!(table[0].as_object().unwrap().len(), 2, "{table}");
    let marked = done(&["table", &b, &g, "--pair", "b,g", "-k", "1"]);
    assert!(marked.contains("_*78.1*_"), "{marked}");
    let message = refused(&["table", &b, &other, "-k", "1"]);
    assert!(message.contains("have different problems") && message.contains("1 only in"), "{message}");
}

#[test]
fn plan_suggests_a_group_size_and_the_size_of_a_comparison() {
    let dir = Folder::new();
    let path = dir.counts("s.jsonl", 1024, &[0, 20, 300, 512, 1024]);
    let found = json(&["plan", &path, "--json"]);
    assert!(found["suggested"]["group_size"].is_number() && found["never_solved"] == 1, "{found}");
    let path = dir.counts("power.jsonl", 4, &[4, 2, 0]);
    // p (1 - p) is 2 * 2 / (4 * 3), only for the second problem, so the mean is 1/9.
    let power = &json(&["plan", &path, "--detect", "5", "--json"])["power"];
    assert!((power["variance"].as_f64().unwrap() - 1.0 / 9.0).abs() < 1e-12, "{power}");
    assert!(done(&["plan", &path, "--detect", "5"]).contains("problems for 5.0 points"));
    assert!(refused(&["plan", &path, "--detect", "0"]).contains("detect: expected"));
    refused(&["plan", &path, "--tail", "0"]);
}

#[test]
fn table_marks_the_better_of_a_pair_and_underlines_what_is_significant() {
    let dir = Folder::new();
    for (method, shift) in [("base", 0), ("focal", 30)] {
        // A clear gain on one benchmark, a gain of two samples in 256 on another, none on the third.
        for (name, gain) in [("aime24", shift), ("amc23", shift / 15), ("ifeval", 0)] {
            let counts: Vec<u64> =
                (0..10).map(|i| 60 + i + if name == "amc23" && i > 0 { 0 } else { gain }).collect();
            dir.counts(&format!("{method}/{name}.jsonl"), 256, &counts);
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
