//! On-policy distillation: a run with a teacher, its resume, an adapter as the teacher, and settings that are refused.

use crate::support::{
    assert_same_files, count, demonstrated, done, ends_with, file, lines, model, refused, sets, small_run,
    spawned, sums_run, timeless, wait_until,
};
use serde_json::Value;
use std::path::Path;

/// A run on mazes whose teacher is the last checkpoint of a longer one.
fn mazes(folder: &Path) -> String {
    let taught = file(
        folder,
        "teacher.toml",
        &small_run(&["sft={ steps = 60, batch_size = 8, lr = 1e-2 }", "seed=7"]),
    );
    let out = folder.join("teacher");
    done(&["sft", taught.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    let teacher = format!("teacher.path={out:?}");
    let text = small_run(&["steps=8", "algorithm.teacher_coef=1.0", &teacher]);
    file(folder, "run.toml", &text).to_str().unwrap().to_owned()
}

fn train(config: &str, out: &Path, set: &[&str]) -> Vec<Value> {
    done(&[&["train", config, "--out", out.to_str().unwrap()][..], &sets(set)].concat());
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
    let line =
        [&["train", config, "--resume", "--out", killed.to_str().unwrap()][..], &sets(&alone)].concat();
    let mut child = spawned(&line).spawn().unwrap();
    wait_until("steps", || count(&killed.join("metrics.jsonl")) >= 5 || child.try_wait().unwrap().is_some());
    let _ = child.kill();
    child.wait().unwrap();
    done(&line);
    let last = "checkpoints/step-000030";
    assert_same_files(&whole.join(last), &killed.join(last), &["model.safetensors", "optimizer.safetensors"]);
    assert_eq!(timeless(&whole.join("metrics.jsonl")), timeless(&killed.join("metrics.jsonl")));
    // Another teacher isn't taken for the old one.
    let teacher = folder.path().join("teacher/checkpoints/step-000060");
    std::fs::copy(whole.join(last).join("model.safetensors"), teacher.join("model.safetensors")).unwrap();
    let said = ends_with(2, &line);
    assert!(said.contains("the weights in teacher.path have changed"), "{said}");
}

#[test]
fn the_teachers_term_and_its_schedule_change_the_update_and_the_dry_run_counts_the_teacher() {
    let folder = tempfile::tempdir().unwrap();
    let config = &mazes(folder.path());
    let norms = |name: &str, set: &[&str]| {
        metric(
            &train(config, &folder.path().join(name), &[&["steps=3", "eval.every=0"], set].concat()),
            "gradient_norm",
        )
    };
    let constant = norms("constant", &[]);
    let rising = norms("rising", &["algorithm.schedule=[{ key = \"teacher_coef\", to = 2.0, over = 3 }]"]);
    assert_eq!(constant[0].to_bits(), rising[0].to_bits());
    assert_ne!(constant[1].to_bits(), rising[1].to_bits());
    assert_ne!(constant[0].to_bits(), norms("half", &["algorithm.teacher_coef=0.5"])[0].to_bits());
    // No completion is correct, so the focal weight is 1 and rewards give no advantages.
    assert_eq!(constant[0].to_bits(), norms("alone", &["teacher.rewards=false"])[0].to_bits());
    let dry = done(&["train", config, "--dry-run"]);
    assert!(dry.contains("[teacher]"), "{dry}");
    let said = ends_with(0, &["train", config, "--dry-run"]);
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
    done(&["sft", taught.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    let merged = out.join("checkpoints/step-000006");
    let config = sums_run(folder.path(), &base, &common);
    let config = config.to_str().unwrap();
    let run = |name: &str, teacher: &Path| {
        let set = format!("teacher.path={teacher:?}");
        let set = ["algorithm.teacher_coef=1", "algorithm.kl_coef=0.01", &set];
        train(config, &folder.path().join(name), &set)
    };
    let (shared, separate) = (run("shared", &merged.join("adapter")), run("separate", &merged));
    let [shared, separate] = [shared, separate].map(|lines| metric(&lines, "teacher_kl"));
    assert!(shared[0].abs() > 1e-3, "{shared:?}");
    for (shared, separate) in shared.iter().zip(&separate) {
        assert!((shared - separate).abs() < 1e-4 * (1.0 + separate.abs()), "{shared} {separate}");
    }
    let set = format!("teacher.path={:?}", merged.join("adapter"));
    let said =
        ends_with(0, &["train", config, "--dry-run", "--set", "algorithm.teacher_coef=1", "--set", &set]);
    assert!(!said.lines().any(|line| line.starts_with("teacher ")), "{said}");
    let other = ["train", config, "--out", folder.path().join("x").to_str().unwrap(), "--set", "lora.rank=2"]
        .map(str::to_owned);
    let other: Vec<&str> = other
        .iter()
        .map(String::as_str)
        .chain(["--set", "algorithm.teacher_coef=1", "--set", &set])
        .collect();
    let said = ends_with(2, &other);
    assert!(said.contains("adapter_config.json") && said.contains("rank: 2"), "{said}");
}

#[test]
fn settings_that_a_teacher_cannot_have_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let config = &mazes(folder.path());
    let other = format!("teacher.path={:?}", model());
    for (set, wanted) in [
        (&["algorithm.teacher_coef=0"][..], "teacher: has no effect with algorithm.teacher_coef = 0"),
        (&["algorithm.loss=gspo"], "algorithm.loss: can't be combined with [teacher]"),
        (&["algorithm.loss=kl_cov"], "algorithm.loss: can't be combined with [teacher]"),
        (&["algorithm.correction=tis"], "algorithm.correction: can't be combined with [teacher]"),
        (&["algorithm.daro=true"], "algorithm.daro: can't be combined with [teacher]"),
        (&["teacher.rewards=false", "algorithm.advantage=rloo"], "algorithm.advantage: remove this key"),
        (&["teacher.rewards=false", "algorithm.shaping=unlikely"], "algorithm.shaping: remove this key"),
        (&["teacher.hint=\"{answer}\""], "teacher.hint: can't be combined with mazes"),
        (&["algorithm.teacher_coef=-1"], "algorithm.teacher_coef: expected a number from 0"),
        (&[&other], "has another tokenizer than the task"),
        (&["task.size=17"], "positions"),
    ] {
        let said = refused_dry(config, set);
        assert!(said.contains(wanted), "{set:?}: {said}");
    }
    let out = folder.path().join("x");
    let missing = ["--set", "teacher.path=\"./nothing\"", "--out", out.to_str().unwrap()];
    let said = refused(&[&["train", config][..], &missing].concat());
    assert!(said.contains("teacher.path: ./nothing: no such file or folder"), "{said}");
    let plain = file(folder.path(), "plain.toml", &small_run(&[]));
    let said = refused_dry(plain.to_str().unwrap(), &["algorithm.teacher_coef=1"]);
    assert!(said.contains("algorithm.teacher_coef: requires a teacher; set teacher.path"), "{said}");
}

#[test]
fn a_policy_that_sees_the_answer_teaches_itself() {
    let folder = tempfile::tempdir().unwrap();
    let text = |more: &str| {
        format!(
            "steps = 4\n[task]\nkind = \"arithmetic\"\ntrain = 16\nheld_out = 4\n[model]\npath = {:?}\n[rollout]\nprompts = 4\n\
             group_size = 4\nmax_new_tokens = 10\n[algorithm]\nteacher_coef = 1.0\n[update]\nlr = 1e-3\n[eval]\nevery = 0\n{more}",
            model()
        )
    };
    let config =
        |hint: &str| file(folder.path(), "run.toml", &text(&format!("[teacher]\nhint = {hint:?}\n")));
    let run = |name: &str, hint: &str| {
        metric(&train(config(hint).to_str().unwrap(), &folder.path().join(name), &[]), "teacher_kl")
    };
    let (answer, other) = (run("answer", " The result is {answer}."), run("other", " It isn't {answer}."));
    // The same policy with other words in its prompt gives other probabilities.
    assert!(answer[0] != 0.0 && other[0] != 0.0 && answer[0] != other[0], "{answer:?} {other:?}");
    let path = folder.path().join("x");
    let refuses = |hint: &str, wanted: &str| {
        let said = refused(&["train", config(hint).to_str().unwrap(), "--out", path.to_str().unwrap()]);
        assert!(said.contains(wanted), "{said}");
    };
    refuses("Think.", "teacher.hint: expected a text with {answer}, {solution} or {feedback}");
    refuses("{feedback}", "teacher.hint: {feedback} requires task.environment; a grader gives no feedback");
    refuses(&format!("{{answer}}{}", " again".repeat(600)), "teacher: it has");
    let said = refused_dry(file(folder.path(), "none.toml", &text("[teacher]\n")).to_str().unwrap(), &[]);
    assert!(said.contains("teacher.path: required, unless teacher.hint is set"), "{said}");
}

/// Returns the message of a run and of its dry run, which must refuse these settings alike.
fn refused_dry(config: &str, set: &[&str]) -> String {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("run");
    let line = [&["train", config, "--out", out.to_str().unwrap()][..], &sets(set)].concat();
    let said = refused(&line);
    assert!(!out.exists(), "{said}");
    assert_eq!(
        ends_with(2, &[&line[..], &["--dry-run"]].concat()).contains("teacher"),
        said.contains("teacher")
    );
    said
}
