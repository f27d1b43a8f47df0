//! The evaluation folders of a run: every command can read them, and kills and resumes leave them correct.

use crate::support::{
    assert_same_files, ended, ends_with, file, json, lines, sets, signal, small_run, spawned, wait_until,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const PROBLEMS: usize = 3;

fn config() -> String {
    small_run(&[
        "task.size=7",
        "task.train=2000",
        "task.held_out=3",
        "sft.steps=300",
        "sft.batch_size=16",
        "sft.lr=5e-3",
        "rollout.max_new_tokens=20",
        "eval.every=1",
        "eval.samples=8",
        "eval.k=[1, 2, 4]",
    ])
}

fn step(run: &Path, step: u64) -> PathBuf {
    run.join(format!("evaluations/step-{step:06}"))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Writes the configuration into a folder beside the result of its supervised stage, which is trained once.
fn prepared(folder: &Path) -> PathBuf {
    static STAGE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let stage = STAGE.get_or_init(|| {
        let home = tempfile::tempdir().unwrap();
        let config = file(home.path(), "c.toml", &config());
        let run = home.path().join("run");
        let short = ["--set", "steps=1", "--set", "eval.every=0"];
        ends_with(0, &[&["train", text(&config), "--out", text(&run)][..], &short].concat());
        home
    });
    if !folder.join("sft-cache").exists() {
        let cache = stage.path().join("sft-cache");
        assert!(Command::new("cp").arg("-r").arg(cache).arg(folder).status().unwrap().success());
    }
    file(folder, "c.toml", &config())
}

fn train(folder: &Path, name: &str, more: &[&str]) -> PathBuf {
    let config = prepared(folder);
    let out = folder.join(name);
    ends_with(0, &[&["train", text(&config), "--out", text(&out)][..], more].concat());
    out
}

#[test]
fn every_command_reads_a_runs_evaluations_which_a_resume_keeps_up_to_its_step() {
    let folder = tempfile::tempdir().unwrap();
    let run = train(folder.path(), "run", &[]);
    let evaluations = lines(&run.join("eval.jsonl"));
    assert_eq!(evaluations.len(), 5);
    for e in &evaluations {
        let at = step(&run, e["step"].as_u64().unwrap());
        let counted = json(&["pass-at-k", text(&at), "-k", "1,2,4", "--json"]);
        for k in ["1", "2", "4"] {
            let (ours, theirs) = (&e["pass_at_k"][k], &counted["pass_at_k"][k]);
            assert!((ours.as_f64().unwrap() - theirs.as_f64().unwrap()).abs() < 1e-12, "{e} {counted}");
            assert_eq!(e["interval"][k], counted["interval"][k], "{e} {counted}");
        }
        let scores = lines(&at.join("samples.jsonl"));
        let samples = PROBLEMS * 8;
        let correct = scores.iter().filter(|s| s["correct"] == true).count() as u64;
        assert_eq!(
            e["per_problem"].as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>(),
            correct
        );
        let tokens: u64 = scores.iter().map(|s| s["tokens"].as_u64().unwrap()).sum();
        assert!(
            (e["completion_length_mean"].as_f64().unwrap() - tokens as f64 / samples as f64).abs() < 1e-12
        );
        assert_eq!((scores.len(), lines(&at.join("generations.jsonl")).len()), (samples, samples));
    }
    let (first, last) = (step(&run, 0), step(&run, 4));
    let compared = json(&["compare", text(&first), text(&last), "-k", "1", "--json"]);
    let gain = |e: &Value| e["pass_at_k"]["1"].as_f64().unwrap();
    let difference = gain(&evaluations[4]) - gain(&evaluations[0]);
    assert!((compared[0]["difference"].as_f64().unwrap() - difference).abs() < 1e-12, "{compared}");
    let models = [format!("before={}", text(&first)), format!("after={}", text(&last))];
    ends_with(0, &["table", &models[0], &models[1], "-k", "1,4"]);
    ends_with(0, &["plan", text(&first)]);
    let checkpoint = run.join("checkpoints/step-000004");
    let same = format!("same={}", text(&checkpoint));
    // Such a small policy doesn't have a correct sample in every evaluation.
    let solved = evaluations.iter().rfind(|e| gain(e) > 0.0).expect("some sample is correct");
    let solved = step(&run, solved["step"].as_u64().unwrap());
    ends_with(0, &["nll", text(&solved), "--base", text(&checkpoint), "--model", &same, "--share", "1"]);
    let chosen = json(&["select", text(&run), "--evals", text(&run.join("evaluations")), "--json"]);
    assert_eq!(chosen["chosen"][0]["candidates"], 2, "steps 2 and 4 were saved: {chosen}");
    let again = json(&["select", text(&run), "--json"]);
    assert_eq!(chosen["chosen"][0]["step"], again["chosen"][0]["step"]);

    // Without the texts, the scores stay.
    let without = train(folder.path(), "without", &["--set", "eval.keep_texts=false"]);
    for at in 0..=4 {
        assert!(!step(&without, at).join("generations.jsonl").exists());
        assert_same_files(&step(&run, at), &step(&without, at), &["samples.jsonl"]);
    }
    let textless = step(&without, 4);
    let nll = ["nll", text(&textless), "--base", text(&checkpoint), "--model", &same];
    let said = ends_with(2, &nll);
    assert!(said.contains("generations.jsonl") && said.contains("eval.keep_texts"), "{said}");

    // A resume from an earlier step drops the evaluations after it.
    let marks = [2, 3].map(|at| file(&step(&run, at), "mark", "x"));
    std::fs::remove_dir_all(&checkpoint).unwrap();
    train(folder.path(), "run", &["--resume"]);
    assert_eq!(marks.map(|mark| mark.exists()), [true, false]);
    assert_same_files(&step(&run, 3), &step(&without, 3), &["samples.jsonl"]);
    train(folder.path(), "run", &["--restart"]);
    assert!(!step(&run, 2).join("mark").exists());
}

#[test]
fn a_full_evaluation_beside_the_frequent_one_decides_which_policy_is_best() {
    let full = sets(&["eval.problems=2", "eval.full.every=2", "eval.full.samples=16", "eval.full.k=[1, 16]"]);
    let folder = tempfile::tempdir().unwrap();
    let run = train(folder.path(), "run", &full);
    let evaluations = lines(&run.join("eval.jsonl"));
    let of = |set: &str| -> Vec<&Value> { evaluations.iter().filter(|e| e["set"] == set).collect() };
    let sizes = |set: &str| -> Vec<[u64; 3]> {
        let size = |e: &&Value| ["step", "problems", "samples"].map(|name| e[name].as_u64().unwrap());
        of(set).iter().map(size).collect()
    };
    assert_eq!(sizes("held-out"), [0, 1, 2, 3, 4].map(|step| [step, 2, 8]));
    assert_eq!(sizes("held-out in full"), [0, 2, 4].map(|step| [step, PROBLEMS as u64, 16]));

    let deciding = of("held-out in full");
    let pass_at_1 = |e: &Value| e["pass_at_k"]["1"].as_f64().unwrap();
    let best = if pass_at_1(deciding[2]) > pass_at_1(deciding[1]) { 4 } else { 2 };
    assert!(run.join(format!("checkpoints/best-{best:06}")).is_dir(), "{deciding:?}");
    assert_eq!(json(&["select", text(&run), "--json"])["chosen"][0]["step"], best);

    let config = folder.path().join("c.toml");
    let again = folder.path().join("again");
    let (model, out) = (run.join("checkpoints/step-000004"), text(&again));
    let eval =
        [&["eval", text(&config), "--full", "--model", text(&model), "--out", out][..], &full].concat();
    ends_with(0, &eval);
    let scores = |folder: &Path| std::fs::read(folder.join("samples.jsonl")).unwrap();
    assert!(scores(&again) == scores(&run.join("full-evaluations/step-000004")));
    let none = ends_with(2, &["eval", text(&config), "--full", "--model", text(&model), "--out", out]);
    assert!(none.contains("--full requires") && none.contains("[eval.full]"), "{none}");

    let resumed = train(folder.path(), "resumed", &[&full[..], &["--set", "steps=2"]].concat());
    train(folder.path(), "resumed", &[&full[..], &["--resume", "--accept-changes"]].concat());
    assert_eq!(lines(&resumed.join("eval.jsonl")), evaluations);

    let wrong =
        ["train", text(&config), "--dry-run", "--set", "eval.full.samples=4", "--set", "eval.full.k=[8]"];
    let said = ends_with(2, &wrong);
    assert!(said.contains("eval.full.k: expected 1 to eval.full.samples = 4, found 8"), "{said}");
}

#[test]
fn an_evaluation_that_was_stopped_goes_on_from_its_samples() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["--set", "eval.samples=1000", "--set", "eval.every=4"];
    let whole = train(folder.path(), "whole", &more);
    let config = folder.path().join("c.toml");
    let scores = |run: &Path| std::fs::read(step(run, 4).join("samples.jsonl")).unwrap();
    for how in [libc::SIGTERM, libc::SIGKILL] {
        let run = folder.path().join(format!("stopped by {how}"));
        let args = [&["train", text(&config), "--out", text(&run), "--resume"][..], &more].concat();
        let made = || std::fs::read(step(&run, 4).join("generations.jsonl")).unwrap_or_default();
        let mut child = spawned(&args).spawn().unwrap();
        wait_until("samples", || made().len() > 20_000 || child.try_wait().unwrap().is_some());
        signal(&child, how);
        child.wait().unwrap();
        let before = made();
        assert!(
            before.len() > 20_000 && lines(&run.join("eval.jsonl")).len() == 1,
            "stopped at another place"
        );
        ends_with(0, &args);
        // If a run was killed, the step itself is repeated.
        if how == libc::SIGTERM {
            let stored = before.iter().rposition(|&b| b == b'\n').unwrap();
            assert!(made().starts_with(&before[..stored]), "samples were made twice");
        }
        assert!(scores(&whole) == scores(&run), "{how}");
        let evaluations = |run: &Path| std::fs::read(run.join("eval.jsonl")).unwrap();
        assert_eq!(evaluations(&whole), evaluations(&run));
    }
}

#[test]
fn an_evaluation_that_was_begun_with_other_settings_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let config = prepared(folder.path());
    let run = folder.path().join("run");
    let more = ["--set", "eval.samples=1000", "--set", "eval.every=4"];
    let args = [&["train", text(&config), "--out", text(&run)][..], &more].concat();
    let child = spawned(&args).spawn().unwrap();
    wait_until("samples", || step(&run, 4).join("generations.jsonl").is_file());
    signal(&child, libc::SIGTERM);
    ended(child);
    let changed =
        ["--resume", "--accept-changes", "--set", "eval.temperature=0.5", "--set", "eval.samples=8"];
    ends_with(0, &[&args[..], &changed].concat());
    let identity = std::fs::read_to_string(step(&run, 4).join("evaluation.json")).unwrap();
    assert!(identity.contains("\"temperature\": 0.5"), "{identity}");
    assert_eq!(lines(&step(&run, 4).join("generations.jsonl")).len(), PROBLEMS * 8);
}

#[test]
fn exact_measures_agree_with_samples_and_a_resumed_run_has_the_same_ones() {
    let folder = tempfile::tempdir().unwrap();
    let grids = [
        "task.solutions=\"all\"",
        "eval.exact=true",
        "eval.samples=400",
        "update.lr=1e-3",
        "task.solution_count=[6, 20]",
        "rollout.group_size=16",
    ];
    let set = sets(&grids);
    let whole = train(folder.path(), "whole", &set);
    train(folder.path(), "stopped", &[&set[..], &["--set", "steps=2"]].concat());
    let stopped = train(folder.path(), "stopped", &[&set[..], &["--resume", "--accept-changes"]].concat());
    let (evaluations, resumed) = (lines(&whole.join("eval.jsonl")), lines(&stopped.join("eval.jsonl")));
    assert_eq!(evaluations, resumed);
    for (e, first) in evaluations.iter().zip([true].into_iter().chain(std::iter::repeat(false))) {
        let exact = &e["exact"];
        let value = |key: &str| exact[key].as_f64().unwrap();
        let samples = (PROBLEMS * 400) as f64;
        // Four standard errors of a binomial with the mean rate, which are at least as wide as those of several problems.
        let error = 4.0 * (value("mass") * (1.0 - value("mass")) / samples).sqrt();
        let sampled = e["pass_at_k"]["1"].as_f64().unwrap();
        assert!((sampled - value("mass")).abs() < error, "{sampled} and {} +- {error}", value("mass"));
        assert_eq!(value("retained") == 1.0, first, "{exact}");
        assert!(value("unsampled_mass") < value("mass") && value("effective") <= value("solutions"));
    }
    assert!(evaluations[4]["exact"]["mass"] != evaluations[0]["exact"]["mass"]);
    let report = std::fs::read_to_string(whole.join("report.html")).unwrap();
    assert!(report.contains("Retained mass"));
    let changes = [&whole, &stopped].map(|run| -> Vec<Value> {
        let names = ["mass_change", "unsampled_mass_change", "direct_drift", "tail_miss_observed"];
        let steps = lines(&run.join("metrics.jsonl"));
        steps.iter().map(|m| names.iter().map(|&name| m[name].clone()).collect()).collect()
    });
    assert_eq!(changes[0], changes[1]);
    assert!(
        changes[0].iter().any(|step| step[0] != 0.0 && step[0].is_f64() && step[0] != step[1]),
        "{changes:?}"
    );
    // Changes of the mass are measured at every evaluation, also at one that a checkpoint causes.
    let rare = ["eval.every=0", "eval.at_checkpoints=true", "save.every=2"];
    let rare = train(folder.path(), "rare", &[&set[..], &sets(&rare)].concat());
    let rare = lines(&rare.join("metrics.jsonl"));
    assert_eq!(
        rare.iter().map(|m| m["mass_change"].is_f64()).collect::<Vec<_>>(),
        [false, true, false, true]
    );
    let (config, out) = (whole.join("config.toml"), folder.path().join("eval"));
    let checkpoint = whole.join("checkpoints/step-000004");
    let arguments =
        ["eval", text(&config), "--model", text(&checkpoint), "--out", text(&out), "--cover", "1,50"];
    ends_with(0, &arguments);
    let summary: Value =
        serde_json::from_str(&std::fs::read_to_string(out.join("summary.json")).unwrap()).unwrap();
    // The samples of the run's last evaluation.
    let correct = evaluations[4]["per_problem"].as_array().unwrap().iter().map(|c| c.as_u64().unwrap());
    let reached = |least: u64| correct.clone().filter(|&c| c >= least).count() as f64 / PROBLEMS as f64;
    let covers = |key: &str| summary[0]["cover"][key].as_f64().unwrap();
    assert_eq!((covers("1"), covers("50")), (reached(4), reached(200)));
    let [low, high] = [0, 1].map(|i| summary[0]["cover_interval"]["50"][i].as_f64().unwrap());
    assert!(low <= covers("50") && covers("50") <= high, "{summary}");
    let exact = &lines(&out.join("exact.json"))[0];
    assert_eq!(exact["logp"], evaluations[4]["exact"]["logp"]);
    assert!(exact["retained"].is_null(), "nobody says what the policy before RL was: {exact}");
}

#[test]
fn exact_measures_are_refused_where_correct_completions_cannot_be_listed() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "c.toml", &config());
    for set in [
        &["eval.exact=true", "task.reward=\"reaches_goal\""][..],
        &["task.walls=0.3"],
        &["task.solutions=\"all\"", "task.solution_count=[500, 600]"],
        &["task.solutions=\"all\"", "task.solution_count=[1, 100000]"],
    ] {
        let said = ends_with(2, &[&["train", text(&config), "--dry-run"], &sets(set)[..]].concat());
        let key = set[set.len() - 1].split('=').next().unwrap();
        assert!(
            said.contains(if set.len() == 2 && key == "task.reward" { "eval.exact" } else { key }),
            "{said}"
        );
    }
    let said = ends_with(2, &["train", "arithmetic-quick", "--dry-run", "--set", "eval.exact=true"]);
    assert!(said.contains("eval.exact: requires task.kind"), "{said}");
}
