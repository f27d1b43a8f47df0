//! `fgrpo paper`, through the command line. Tests in crates/paper make tables and figures from results.

use crate::support::{self, done, refused, sets};
use std::fmt::Write;
use std::path::Path;

/// Writes a file of counts: problems with `n` samples, of which the i-th has `of(i)` correct ones.
fn counts(path: &Path, problems: u64, n: u64, of: impl Fn(u64) -> u64) {
    let mut text = String::new();
    for i in 0..problems {
        writeln!(text, "{{\"problem\": {i}, \"n\": {n}, \"c\": {}}}", of(i)).unwrap();
    }
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn the_list_has_a_row_for_every_table_and_figure() {
    let text = done(&["paper", "list"]);
    let names: Vec<&str> =
        text.lines().filter(|l| !l.starts_with(' ')).filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(text.matches(" laptop ").count(), 19, "{text}");
    assert_eq!(text.matches(" full ").count(), 19, "{text}");
    let mut wanted: Vec<String> = (1..=17).map(|i| format!("table-{i}")).collect();
    wanted.push("notation".to_owned());
    wanted.extend((1..=10).map(|i| format!("figure-{i}")));
    assert_eq!(names, wanted);
}

#[test]
fn names_are_found_in_every_spelling_and_flags_without_effect_are_refused() {
    for (name, wanted) in
        [("Table 9", "table-9"), ("fig3", "figure-3"), ("fig:tailmiss_detailed", "figure-3")]
    {
        let text = done(&["paper", name, "--dry-run"]);
        assert!(text.starts_with(&format!("{wanted}: ")), "{text}");
    }
    assert!(refused(&["paper", "figur-2"]).contains("did you mean figure-2?"));
    for (item, flag) in [
        ("table-1", &["--markdown"][..]),
        ("figure-3", &["--set", "steps=2"]),
        ("figure-3", &["--from", "x"]),
    ] {
        assert!(refused(&[&["paper", item], flag].concat()).contains(flag[0]));
    }
}

#[test]
fn items_without_trainings_come_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    for (name, states) in [("figure-3", 2), ("figure-4", 2), ("figure-5", 3)] {
        let text = done(&["paper", name, "--out", out]);
        assert_eq!(text.lines().filter(|l| l.ends_with(" yes")).count(), states, "{name}: {text}");
        for ending in ["svg", "md", "tex", "csv"] {
            let size = std::fs::metadata(folder.path().join(format!("{name}.{ending}"))).unwrap().len();
            assert!(size > 100, "{name}.{ending}");
        }
    }
    for (name, text) in [("table-6", "here: the same, "), ("notation", "focal_weight")] {
        assert!(done(&["paper", name, "--out", out]).contains(text), "{name}");
    }
}

#[test]
fn evaluation_folders_give_the_papers_table_beside_its_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (method, more) in [("GRPO", 0), ("F-GRPO", 3)] {
        for of in ["aime24", "aime25", "amc23", "math500", "minerva", "olympiad"] {
            let file = at(&format!("evaluations/Qwen2.5-7B/{method}/{of}.jsonl"));
            counts(&file, 40, 512, |i| if i % 2 == 0 { 100 + more } else { 0 });
        }
    }
    let (from, out) = (at("evaluations"), at("out"));
    let args = ["paper", "table-1", "--from", from.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let text = done(&args);
    assert!(
        text.contains("empty, because no samples of ifeval: Qwen2.5-7B/F-GRPO, Qwen2.5-7B/GRPO"),
        "{text}"
    );
    let without = text.lines().find(|l| l.starts_with("empty, because no results: ")).unwrap();
    assert!(without.contains("Qwen3-4B-Base/GRPO"), "{text}");
    // pass@1 of F-GRPO: half the problems have 103 correct of 512. Over all benchmarks the paired test finds a difference from GRPO,
    // but not at pass@256.
    assert!(
        text.contains("  *10.1 (38.6)*/50.0 (70.3)") && text.contains("  9.8 (37.3)/50.0 (64.1)"),
        "{text}"
    );
    assert!(text.contains("*1.0*: differs from the same setting without focal weight"), "{text}");
    let effect = text.lines().find(|l| l.contains("Math, pass@1 ")).unwrap();
    assert!(effect.contains("+0.3") && effect.contains("+1.3") && effect.ends_with("yes"), "{effect}");
    let csv = std::fs::read_to_string(at("out/table-1.csv")).unwrap();
    assert!(csv.contains("Qwen2.5-7B,F-GRPO,354,AIME24,1,10.058594,"), "{csv}");
    assert_eq!(csv.lines().count(), 1 + 18 * 11 * 2);
    let latex = std::fs::read_to_string(at("out/table-1.tex")).unwrap();
    assert!(latex.contains("\\textbf{10.1 (38.6)}/50.0 (70.3)"), "{latex}");
    assert!(
        std::fs::read_to_string(at("out/table-1.md"))
            .unwrap()
            .contains("| Qwen2.5-7B | GRPO | 9.8 (37.3) / 50.0 (64.1) |")
    );
}

#[test]
fn full_scale_lists_all_that_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let said = refused(&["paper", "table-1", "--scale", "full", "--root", root, "--out", root]);
    for missing in ["Qwen2.5-7B from huggingface.co", "deepscaler.json", "gpqa.jsonl", "13 of 13"] {
        assert!(said.contains(missing), "{missing}: {said}");
    }
}

#[test]
fn the_laptop_measures_the_nll_of_its_runs_evaluations() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    // Weak policies have a correct sample among 32 for sums this small.
    let tiny = sets(&[
        "steps=2",
        "save.every=2",
        "sft.steps=150",
        "rollout.prompts=2",
        "model.init.num_hidden_layers=1",
        "model.init.hidden_size=32",
        "eval.every=2",
        "eval.samples=32",
        "eval.k=[1, 8]",
        "task.train=200",
        "task.held_out=8",
        "task.most_operations=1",
        "task.fewest_operations=1",
        "task.largest=20",
    ]);
    let text = done(&[&["paper", "table-2", "--out", &out][..], &tiny].concat());
    assert!(text.contains("arithmetic (Avg. Math)") && text.contains("here with steps=2"), "{text}");
    let csv = std::fs::read_to_string(folder.path().join("out/table-2.csv")).unwrap();
    let filled = |column: &str| {
        let rows = csv.lines().filter(|l| l.contains(column));
        rows.filter(|l| !l.split(',').nth(4).unwrap().is_empty()).count()
    };
    // pass@1 and an increase of the NLL for each of the six settings.
    assert_eq!(filled("ΔNLL rare"), 6, "{csv}");
    assert_eq!(filled("arithmetic (Avg. Math),1,"), 6, "{csv}");
    // Another table uses the same runs. If their policies are too weak for it, the command says so.
    let (_, err, code) =
        support::run(support::fgrpo().args(["paper", "table-14", "--out", &out]).args(&tiny));
    assert!(err.contains("2 of 2 runs are finished"), "{err}");
    let weak = err.contains("no problem has 2 correct responses from every model");
    assert_eq!(code, if weak { 2 } else { 0 }, "{err}");
}
