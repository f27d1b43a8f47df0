//! `fgrpo eval --suite paper`, through the command line.

use crate::support::{done, ends_with, file, model, refused};
use std::path::Path;

/// Two problems of some benchmarks, in files with their usual names.
fn data(root: &Path) {
    let math = "{\"problem\": \"What is 1 + 1?\", \"answer\": \"2\"}\n{\"problem\": \"What is 2 + 3?\", \"answer\": \"5\"}\n";
    for name in ["aime_2024.jsonl", "aime25.jsonl", "MATH-500.jsonl", "OlympiadBench/test.jsonl"] {
        file(root, name, math);
    }
    let ifeval = "{\"key\": 1, \"prompt\": \"Say yes.\", \"instruction_id_list\": [\"punctuation:no_comma\"], \"kwargs\": [{}]}\n";
    file(root, "IFEval.jsonl", ifeval);
    let gpqa =
        "Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3\nWhich?,a,b,c,d\n";
    file(root, "gpqa_diamond.csv", gpqa);
    let conflict = "{\"problem\": \"a?\", \"answer\": \"1\"}\n{\"problem\": \"a?\", \"answer\": \"2\"}\n{\"problem\": \"b?\", \"answer\": \"3\"}\n";
    file(root, "deepscaler.json", conflict);
}

#[test]
fn a_dry_run_says_of_every_file_whether_it_is_there_and_has_the_papers_problems() {
    let folder = tempfile::tempdir().unwrap();
    data(folder.path());
    let root = folder.path().to_str().unwrap();
    let text = done(&["eval", "--suite", "paper", "--data-root", root, "--dry-run"]);
    let line =
        |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    for (name, words) in [
        ("aime24 ", ["2", "30", "differs", "aime_2024.jsonl"]),
        ("olympiad ", ["2", "674", "differs", "OlympiadBench"]),
        ("gpqa ", ["1", "198", "differs", "gpqa_diamond.csv"]),
        ("amc23 ", ["--", "40", "missing", "--"]),
    ] {
        assert!(words.iter().all(|w| line(name).contains(w)), "{}", line(name));
    }
    // The missing files with their sources, and why the training data has another size.
    assert!(line("amc23: not in").contains("from huggingface.co/datasets/math-ai/amc23"), "{text}");
    assert!(line("DeepScaleR (training)").contains("39202"), "{text}");
    assert!(
        text.contains("2  copies with conflicting answers\n          row 1: answer \"1\"; row 2 has answer"),
        "{text}"
    );
    assert!(text.contains("2 rejected: copies with conflicting answers (rows 1, 2)"), "{text}");
    assert!(text.contains("1024 samples per problem; prompts of qwen2.5"), "{text}");
    let said =
        refused(&["eval", "--suite", "paper", "--data-root", root, "--preset", "qwen3", "--out", root]);
    assert!(said.contains("9 of 9 files can't be used") && said.contains("synlogic: not in"), "{said}");
}

#[test]
fn a_suite_is_resumed_and_its_folders_are_rows_of_the_papers_tables() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    data(&folder.path().join("data"));
    let named = ["GRPO-KL", "F-GRPO"].map(|name| format!("{name}={}", model().display()));
    let (root, evals) = (at("data"), at("evals"));
    let suite = ["eval", "--suite", "paper", "--data-root", &root, "--out", &evals, "-n", "2"];
    let chosen = ["--benchmark", "aime24", "--benchmark", "IFEval", "--accept-counts", "--max-tokens", "8"];
    let models = ["--models", &named[0], "--models", &named[1]];
    let args = [&suite[..], &chosen, &models].concat();
    done(&args);
    for one in ["GRPO-KL/aime24", "GRPO-KL/ifeval", "F-GRPO/aime24", "F-GRPO/ifeval"] {
        assert!(folder.path().join("evals").join(one).join("samples.jsonl").is_file(), "{one}");
    }
    let first = std::fs::read(folder.path().join("evals/F-GRPO/aime24/generations.jsonl")).unwrap();
    let said = ends_with(0, &args);
    assert!(said.contains("4 of 4 are stored"), "{said}");
    assert_eq!(first, std::fs::read(folder.path().join("evals/F-GRPO/aime24/generations.jsonl")).unwrap());
    let table =
        done(&["table", &format!("GRPO={}", at("evals/GRPO-KL")), &format!("F-GRPO={}", at("evals/F-GRPO"))]);
    assert!(table.contains("aime24") && table.contains("ifeval"), "{table}");
    let paper = done(&["paper", "table-13", "--from", &at("evals"), "--out", &at("out")]);
    assert!(paper.lines().any(|l| l.starts_with("GRPO-KL ") && l.contains("0 (13.2")), "{paper}");
    // The prompts are those of the checkpoint's model family.
    let evaluation =
        std::fs::read_to_string(folder.path().join("evals/F-GRPO/aime24/evaluation.json")).unwrap();
    assert!(evaluation.contains("qwen3"), "{evaluation}");
}

#[test]
fn flags_of_one_data_set_and_unknown_names_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    for (more, wanted) in [
        (vec!["--data", "x.jsonl", "--task", "math"], "--suite can't be used with --data, --task"),
        (vec!["--benchmark", "aime99"], "expected one of aime24, aime25"),
        (vec!["--server", "http://localhost:1"], "the name of the served model"),
        (vec!["--models", "../x=y"], "found \"../x\""),
        (vec!["--models", "x=nowhere"], "x: nowhere is neither"),
        (vec!["--server", "http://localhost:1", "--model", "m"], "--preset is required"),
    ] {
        let said = refused(&[&["eval", "--suite", "paper", "--data-root", root], &more[..]].concat());
        assert!(said.contains(wanted), "{more:?}: {said}");
    }
    refused(&["eval", "--dry-run"]);
}
