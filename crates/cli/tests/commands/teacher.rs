//! On-policy distillation: a run with a teacher, its resume, an adapter as the teacher, and teachers that are refused.

use crate::support::{
    assert_same_run, copy, demonstrated, ends, file, finished, kill_at, lines, model, sets, small_run,
    spawned, sums_run, tells,
};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A run on mazes whose teacher is the last checkpoint of a longer one, which is made once.
fn mazes(folder: &Path) -> PathBuf {
    static MADE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let text = small_run(&["sft={ steps = 60, batch_size = 8, lr = 1e-2 }", "seed=7"]);
        let config = file(folder.path(), "teacher.toml", &text);
        ends(0, command!("sft", config, "--out", folder.path().join("teacher")));
        folder
    });
    let out = folder.join("teacher");
    copy(&made.path().join("teacher"), &out);
    let teacher = format!("teacher.path={out:?}");
    file(folder, "run.toml", &small_run(&["steps=8", "algorithm.teacher_coef=1.0", &teacher]))
}

fn train(config: &Path, out: &Path, set: &[&str]) -> Vec<Value> {
    ends(0, command!("train", config, "--out", out, ..sets(set)));
    lines(&out.join("metrics.jsonl"))
}

fn metric(lines: &[Value], name: &str) -> Vec<f64> {
    lines.iter().map(|line| line[name].as_f64().unwrap()).collect()
}

#[test]
fn a_teacher_alone_brings_the_policy_nearer_and_a_killed_run_resumes_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let config = &mazes(folder.path());
    let alone =
        ["teacher.rewards=false", "algorithm.focal_gamma=0", "update.lr=1e-2", "steps=30", "eval.every=0"];
    let whole = folder.path().join("whole");
    let metrics = train(config, &whole, &alone);
    let kl = metric(&metrics, "teacher_kl");
    assert!(kl[0] > 1.0 && kl[29] < 0.5 * kl[0], "{kl:?}");
    let disagrees = metric(&metrics, "teacher_disagreement");
    assert!(disagrees[0] > 0.3 && disagrees[29] < disagrees[0], "{disagrees:?}");
    // Advantages from rewards are 0, so the metric that leaves the teacher out is.
    assert!(metric(&metrics, "advantage_abs_mean").iter().all(|&advantage| advantage == 0.0));
    let killed = folder.path().join("killed");
    let start = || {
        let mut command = spawned(&["train", "--resume"]);
        command.arg(config).args(sets(&alone)).arg("--out").arg(&killed);
        command
    };
    kill_at(start, &killed.join("metrics.jsonl"), &[5]);
    let resume = || command!("train --resume", config, ..sets(&alone), "--out", &killed);
    ends(0, resume());
    assert_same_run(&whole, &killed, &["metrics.jsonl"], 30);
    // Another teacher isn't taken for the old one.
    let [policy, teacher] = ["whole/checkpoints/step-000030", "teacher/checkpoints/step-000060"]
        .map(|checkpoint| folder.path().join(checkpoint).join("model.safetensors"));
    std::fs::copy(policy, teacher).unwrap();
    tells(2, resume(), "the weights in teacher.path have changed");
}

#[test]
fn the_teachers_term_and_its_schedule_change_the_update_and_the_dry_run_counts_the_teacher() {
    let folder = tempfile::tempdir().unwrap();
    let config = &mazes(folder.path());
    let norms = |name: &str, set: &[&str]| {
        let set = [&["steps=2", "eval.every=0"], set].concat();
        metric(&train(config, &folder.path().join(name), &set), "gradient_norm")
    };
    let constant = norms("constant", &[]);
    let rising = norms("rising", &["algorithm.schedule=[{ key = \"teacher_coef\", to = 2.0, over = 3 }]"]);
    assert_eq!(constant[0].to_bits(), rising[0].to_bits());
    assert_ne!(constant[1].to_bits(), rising[1].to_bits());
    assert_ne!(constant[0].to_bits(), norms("half", &["algorithm.teacher_coef=0.5"])[0].to_bits());
    // No completion is correct, so the focal weight is 1 and rewards give no advantages.
    assert_eq!(constant[0].to_bits(), norms("alone", &["teacher.rewards=false"])[0].to_bits());
    let (dry, said) = ends(0, command!("train --dry-run", config));
    assert!(dry.contains("[teacher]"), "{dry}");
    assert!(said.lines().any(|line| line.starts_with("teacher ") && line.contains("teacher.path")), "{said}");
}

#[test]
fn an_adapter_on_the_same_base_teaches_as_the_merged_model_does() {
    let folder = tempfile::tempdir().unwrap();
    let base = demonstrated(folder.path(), 3, &["model.init.num_hidden_layers=2"]);
    let common = ["lora={ rank = 4, alpha = 8 }", "update.lr=1e-2"];
    let sft = "sft={ steps = 6, batch_size = 4, lr = 1e-2 }";
    let taught = sums_run(folder.path(), &base, &[&common[..], &[sft]].concat());
    let out = folder.path().join("teacher");
    ends(0, command!("sft", taught, "--out", &out));
    let merged = out.join("checkpoints/step-000006");
    let config = &sums_run(folder.path(), &base, &common);
    let run = |name: &str, teacher: &Path| {
        let set = format!("teacher.path={teacher:?}");
        let set = ["algorithm.teacher_coef=1", "algorithm.kl_coef=0.01", &set];
        metric(&train(config, &folder.path().join(name), &set), "teacher_kl")
    };
    let (shared, separate) = (run("shared", &merged.join("adapter")), run("separate", &merged));
    assert!(shared[0].abs() > 1e-3, "{shared:?}");
    for (shared, separate) in shared.iter().zip(&separate) {
        assert!((shared - separate).abs() < 1e-4 * (1.0 + separate.abs()), "{shared} {separate}");
    }
    let teacher = format!("teacher.path={:?}", merged.join("adapter"));
    let teacher = sets(&["algorithm.teacher_coef=1", &teacher]);
    let (_, said) = ends(0, command!("train --dry-run", config, ..&teacher));
    assert!(!said.lines().any(|line| line.starts_with("teacher ")), "{said}");
    let out = folder.path().join("x");
    let (_, said) = ends(2, command!("train --set lora.rank=2", config, ..&teacher, "--out", out));
    assert!(said.contains("adapter_config.json") && said.contains("rank: 2"), "{said}");
}

#[test]
fn a_policy_that_sees_the_answer_teaches_itself() {
    let folder = tempfile::tempdir().unwrap();
    let config = |hint: &str| {
        let hint = format!("teacher.hint={hint:?}");
        sums_run(folder.path(), model(), &["steps=1", "algorithm.teacher_coef=1.0", &hint])
    };
    let run = |name: &str, hint: &str| {
        metric(&train(&config(hint), &folder.path().join(name), &[]), "teacher_kl")[0]
    };
    let (answer, other) = (run("answer", " The result is {answer}."), run("other", " It isn't {answer}."));
    // The same policy with other words in its prompt gives other probabilities.
    assert!(answer != 0.0 && other != 0.0 && answer != other, "{answer:?} {other:?}");
    let long = config(&format!("{{answer}}{}", " again".repeat(600)));
    refuses(command!("train", long), "teacher: it has");
}

#[test]
fn a_teacher_of_another_tokenizer_or_with_too_few_positions_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (config, out) = finished(folder.path());
    let train = |path: &Path, more: &str| {
        let path = format!("teacher.path={path:?}");
        let set = ["--set", "algorithm.teacher_coef=1", "--set", &path];
        command!("train", &config, ..set, ..more.split(' '))
    };
    for dry in ["", " --dry-run"] {
        let says = "has another tokenizer than the task";
        refuses(train(model(), &format!("--set seed=1{dry}")), says);
        refuses(train(&out, &format!("--set task.size=17{dry}")), "positions");
    }
    let says = "teacher.path: ./nothing: no such file or folder";
    refuses(train(Path::new("./nothing"), "--set seed=1"), says);
}

/// Checks that a run is refused before it has a folder.
#[track_caller]
fn refuses(mut train: assert_cmd::Command, says: &str) {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("run");
    train.arg("--out").arg(&out);
    tells(2, train, says);
    assert!(!out.exists(), "{says}");
}
