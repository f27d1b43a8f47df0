//! The training loop, through the command line: small mazes, kills and wrong input.

use crate::support::{
    self, assert_same_files, count, ended, ends, fgrpo, file, signal, spawned, tells, timeless, wait_until,
};
use predicates::prelude::*;
use std::path::{Path, PathBuf};

fn config() -> String {
    support::small_run(&[
        "steps=6",
        "task.size=7",
        "task.train=50",
        "task.held_out=6",
        "model.init.num_hidden_layers=2",
        "sft={ steps = 20, batch_size = 8, lr = 5e-3 }",
        "rollout={ prompts = 6, group_size = 4, max_new_tokens = 8 }",
        "algorithm.focal_gamma=0.5",
        "update.mini_batch=3",
        "eval={ every = 3, samples = 4, k = [1, 4] }",
        "compute.threads=2",
        "log.rollout_share=0.5",
    ])
}

fn start(config: &Path, more: &[&str], out: &Path) -> std::process::Child {
    spawned(&["train"]).arg(config).args(more).arg("--out").arg(out).spawn().unwrap()
}

fn assert_same_run(a: &Path, b: &Path) {
    for name in ["metrics.jsonl", "eval.jsonl", "rollouts.jsonl"] {
        assert_eq!(timeless(&a.join(name)), timeless(&b.join(name)), "{name}");
    }
    let last = |run: &Path| run.join("checkpoints/step-000006");
    assert_same_files(
        &last(a),
        &last(b),
        &["model.safetensors", "optimizer.safetensors", "trainer_state.json"],
    );
}

#[test]
fn a_run_leaves_every_file_of_the_contract_and_guards_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", &self::config());
    let out = folder.path().join("run");
    fgrpo()
        .arg("train")
        .arg(&config)
        .arg("--out")
        .arg(&out)
        .assert()
        .success()
        .stdout(predicate::str::contains("pass@1 changed by"))
        .stderr(predicate::str::starts_with("method: F-GRPO, gamma 0.5\n"));
    assert!(std::fs::read_to_string(out.join("log.txt")).unwrap().contains("method: F-GRPO, gamma 0.5"));
    for name in [
        "config.toml",
        "metrics.jsonl",
        "sft.jsonl",
        "eval.jsonl",
        "rollouts.jsonl",
        "report.html",
        "events.out.tfevents.fgrpo",
        "log.txt",
        "checkpoints/step-000006/config.json",
        "checkpoints/step-000006/model.safetensors",
        "checkpoints/step-000006/tokenizer.json",
    ] {
        assert!(out.join(name).exists(), "{name} is missing");
    }
    let metrics = timeless(&out.join("metrics.jsonl"));
    let steps: Vec<u64> = metrics.iter().map(|m| m["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [1, 2, 3, 4, 5, 6]);
    for m in &metrics {
        let difference = m["logp_difference_max"].as_f64().unwrap();
        assert!(difference < 1e-4, "sampler and learner differ by {difference}");
    }
    // A second run in the same folder would mix two runs.
    fgrpo()
        .arg("train")
        .arg(&config)
        .arg("--out")
        .arg(&out)
        .assert()
        .code(2)
        .stderr(predicate::str::contains("--resume").and(predicate::str::contains("--out")));
    tells(
        2,
        command!("train", &config, "--set update.lr=1e-4 --resume --out", &out),
        "update.lr: 0.001 -> 0.0001",
    );
    let said = support::refused(&["train", config.to_str().unwrap(), "--set", "rollout.group_size=1"]);
    assert!(said.contains("rollout.group_size: expected at least 2, found 1"), "{said}");
    assert!(support::refused(&["train", "/nonexistent.toml"]).contains("/nonexistent.toml"));
}

#[test]
fn killed_and_resumed_run_equals_uninterrupted_run_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", &self::config());
    // Each in a separate folder, so that the killed run trains its supervised stage itself.
    let (whole, killed) = (folder.path().join("a/whole"), folder.path().join("b/killed"));
    ends(0, command!("train", &config, "--out", &whole));
    for seen in [0, 1, 3, 4, 5] {
        let mut child = start(&config, &["--resume"], &killed);
        wait_until("the moment to kill", || {
            let now = match seen {
                0 => killed.join("config.toml").exists(),
                n => count(&killed.join("metrics.jsonl")) >= n,
            };
            now || child.try_wait().unwrap().is_some()
        });
        let _ = child.kill();
        child.wait().unwrap();
    }
    ends(0, command!("train", &config, "--resume --out", &killed));
    assert_same_run(&whole, &killed);
}

/// Two runs with these settings: an uninterrupted one, and one that is resumed in the middle. They must be equal.
fn resumed_from_its_middle(folder: &Path, settings: &[&str]) -> PathBuf {
    let config = file(folder, "small.toml", &self::config());
    let (whole, resumed) = (folder.join("whole"), folder.join("resumed"));
    let run = |out: &Path, more: &[&str]| {
        ends(0, command!("train", &config, ..settings, ..more, "--out", out));
    };
    run(&whole, &[]);
    let copied = std::process::Command::new("cp").arg("-r").arg(&whole).arg(&resumed).status().unwrap();
    assert!(copied.success());
    std::fs::remove_dir_all(resumed.join("checkpoints/step-000006")).unwrap();
    run(&resumed, &["--resume"]);
    assert_same_run(&whole, &resumed);
    whole
}

#[test]
fn a_run_with_learned_weights_resumed_from_its_middle_equals_the_whole_run() {
    let folder = tempfile::tempdir().unwrap();
    // Learning rates at which a lost weight would show.
    let controls = [
        "--set=algorithm.daro=true",
        "--set=algorithm.daro_lr=0.5",
        "--set=algorithm.shaping=smoothing",
        "--set=update.low_lr_gamma=0.5",
        "--set=task.reward=reaches_goal",
        "--set=task.size=5",
        "--set=task.train=5000",
        "--set=sft.steps=80",
    ];
    let whole = resumed_from_its_middle(folder.path(), &controls);
    let metrics = timeless(&whole.join("metrics.jsonl"));
    let weights = |at: usize| metrics[at]["daro_weights"].as_array().unwrap().clone();
    assert_eq!(weights(0).len(), 3);
    assert!(weights(3) != weights(5), "no weight moved after the checkpoint: {:?}", weights(3));
    assert!((metrics[0]["lr"].as_f64().unwrap() - 0.679e-3).abs() < 1e-6);
}

#[test]
fn a_run_with_a_running_success_rate_resumed_from_its_middle_equals_the_whole_run() {
    let folder = tempfile::tempdir().unwrap();
    // A rate at which a restarted estimate would show.
    let controls = [
        "--set=algorithm.shaping={ kind = \"ha_dw\", eta = 1.0, window = 3 }",
        "--set=algorithm.advantage=avspo",
        "--set=task.reward=reaches_goal",
        "--set=task.size=5",
        "--set=sft.steps=80",
    ];
    let whole = resumed_from_its_middle(folder.path(), &controls);
    let metrics = timeless(&whole.join("metrics.jsonl"));
    let anchors: Vec<f64> = metrics.iter().map(|m| m["difficulty_anchor"].as_f64().unwrap()).collect();
    let rates = metrics.iter().map(|m| {
        let count = |verdict| m["verdicts"][verdict].as_f64().unwrap_or(0.0);
        count("correct") / (count("correct") + count("wrong") + count("unparsed"))
    });
    let rates: Vec<f64> = rates.collect();
    // The rate of the first step, then of the second: a single value deviates by 1.
    assert_eq!(anchors[..2], rates[..2]);
    assert!(anchors[2..].windows(2).all(|pair| pair[0] != pair[1]), "{anchors:?}");
}

#[test]
fn a_run_with_scheduled_values_resumed_from_its_middle_equals_the_whole_run() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", &self::config());
    let controls = [
        "--set=algorithm.focal_gamma=2",
        "--set=algorithm.advantage={ kind = \"pkpo\", k = 1 }",
        "--set=algorithm.schedule=[{ key = \"focal_gamma\", to = 0.0, over = 5 }, { key = \"advantage.k\", to = 4, over = 4 }, { key = \"loss.clip\", to = [0.1, 0.4], over = 3 }, { key = \"kl_coef\", to = 0.01, over = 6 }]",
        "--set=algorithm.top_entropy_quantile=0.5",
        "--set=task.reward=reaches_goal",
        "--set=task.size=5",
        "--set=sft.steps=80",
    ];
    let whole = resumed_from_its_middle(folder.path(), &controls);
    let of = |key: &str| -> Vec<f64> {
        timeless(&whole.join("metrics.jsonl")).iter().map(|m| m["scheduled"][key].as_f64().unwrap()).collect()
    };
    assert_eq!(of("focal_gamma"), [2.0, 1.5, 1.0, 0.5, 0.0, 0.0]);
    assert_eq!(of("advantage.k"), [1.0, 2.0, 3.0, 4.0, 4.0, 4.0]);
    assert_eq!((of("loss.clip.0")[2], of("loss.clip.1")[1]), (0.1, 0.2 * 0.5 + 0.4 * 0.5));
    let kl: Vec<f64> =
        timeless(&whole.join("metrics.jsonl")).iter().map(|m| m["kl_loss"].as_f64().unwrap()).collect();
    assert!(kl[0] == 0.0 && kl[3] > 0.0, "{kl:?}");
    // The weight is that of the step, not the configured one.
    let focal: Vec<f64> = timeless(&whole.join("metrics.jsonl"))
        .iter()
        .map(|m| m["focal_weight_mean"].as_f64().unwrap())
        .collect();
    assert!(focal[0] < 1.0 && focal[4] == 1.0 && focal[5] == 1.0, "{focal:?}");
    let mut dry = fgrpo();
    dry.arg("train").arg(&config).args(controls).arg("--dry-run");
    dry.assert().success().stdout(predicate::str::contains("key = \"focal_gamma\""));
}

#[test]
fn interrupted_run_saves_and_says_how_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", &self::config());
    let out = folder.path().join("run");
    let set = ["--set", "steps=100000", "--set", "save.every=0", "--set", "eval.every=0"];
    let child = start(&config, &set, &out);
    wait_until("three steps", || count(&out.join("metrics.jsonl")) >= 3);
    signal(&child, libc::SIGINT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(1));
    assert!(said.contains("Continue with:") && said.contains("--resume"), "{said}");
    let logged = count(&out.join("metrics.jsonl"));
    assert!(out.join(format!("checkpoints/step-{logged:06}")).exists(), "no checkpoint after step {logged}");
}

#[test]
fn two_processes_on_one_run_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", &self::config());
    let out = folder.path().join("run");
    let mut child = start(&config, &["--set", "steps=100000"], &out);
    wait_until("the run's configuration", || out.join("config.toml").exists());
    tells(
        2,
        command!("train", &config, "--resume --out", &out),
        format!("in use by another process (pid {})", child.id()),
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_flags_of_the_engine_change_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", &self::config());
    for command in ["train", "sft"] {
        let flags = ["--dry-run", "--threads", "3", "--products", "bf16x3", "--set", "sft.steps=1"];
        let output = fgrpo().arg(command).arg(&config).args(flags).assert().success();
        let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
        assert!(text.contains("threads = 3") && text.contains("products = \"bf16x3\""), "{text}");
    }
}

#[test]
fn dry_run_prints_a_configuration_that_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", &self::config());
    let output =
        fgrpo().arg("train").arg(&config).args(["--dry-run", "--set", "update.lr=2e-4"]).assert().success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    assert!(text.contains("lr = 0.0002"), "{text}");
    let again = folder.path().join("again.toml");
    std::fs::write(&again, &text).unwrap();
    fgrpo().arg("train").arg(&again).arg("--dry-run").assert().success().stdout(text);
}

/// The bytes of a line such as `memory   12.3 MB  at most`.
fn bytes(said: &str, name: &str) -> f64 {
    let line = said.lines().rfind(|l| l.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {said}"));
    let words: Vec<&str> = line[name.len()..].split_whitespace().collect();
    let unit = match words[1] {
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        other => panic!("{other} in {line}"),
    };
    words[0].parse::<f64>().unwrap() * unit
}

#[test]
fn a_run_takes_the_memory_that_its_dry_run_said() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", &self::config());
    // A model of 6 million parameters with hardly any training, whose completions differ and are long.
    let set = [
        "--set=model.init.hidden_size=256",
        "--set=model.init.intermediate_size=1024",
        "--set=model.init.num_hidden_layers=6",
        "--set=model.init.num_attention_heads=4",
        "--set=model.init.num_key_value_heads=4",
        "--set=steps=2",
        "--set=sft.steps=2",
    ];
    let run = |more: &[&str]| {
        let done = fgrpo().arg("train").arg(&config).args(set).args(more).assert().success();
        String::from_utf8(done.get_output().stderr.clone()).unwrap()
    };
    let said = run(&["--dry-run"]);
    assert!(said.contains("time per step") && said.contains("GFLOP/s"), "{said}");
    let said = bytes(&said, "memory ");
    let took = bytes(&run(&["--out", &folder.path().join("run").display().to_string()]), "memory:");
    assert!(took <= said && took > 0.5 * said, "said {said:e}, took {took:e}");
}

#[test]
fn a_folder_that_cannot_be_written_ends_with_one_and_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("file");
    std::fs::write(&blocked, "x").unwrap();
    tells(
        1,
        command!("train", file(folder.path(), "small.toml", &self::config()), "--out", blocked.join("run")),
        "file/run",
    );
}

#[test]
fn a_truncated_checkpoint_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", &self::config());
    let out = folder.path().join("run");
    ends(0, command!("train", &config, "--set steps=2 --out", &out));
    let weights = out.join("checkpoints/step-000002/model.safetensors");
    let bytes = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &bytes[..bytes.len() / 2]).unwrap();
    fgrpo()
        .arg("train")
        .arg(&config)
        .args(["--set", "steps=2", "--resume", "--out"])
        .arg(&out)
        .assert()
        .failure()
        .stderr(predicate::str::contains("model.safetensors"));
}

#[test]
fn gamma_zero_is_the_run_without_focal_weight_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("dr.toml");
    std::fs::write(&config, support::digits(folder.path())).unwrap();
    let train = |name: &str, set: &[&str]| {
        let out = folder.path().join(name);
        let always = ["steps=6", "save.every=6", "algorithm.advantage=dr_grpo"];
        let sets = set.iter().chain(&always).flat_map(|set| ["--set", set]);
        ends(0, command!("train", &config, ..sets, "--out", &out));
        out
    };
    let without = train("without", &[]);
    assert_same_run(&without, &train("zero", &["algorithm.focal_gamma=0"]));
    let focal = train("one", &["algorithm.focal_gamma=1"]);
    let metrics = |run: &Path| timeless(&run.join("metrics.jsonl"));
    assert_ne!(metrics(&without), metrics(&focal), "no group had both correct and wrong completions");
}

#[test]
fn a_sweep_resumes_and_ends_with_its_table() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", &self::config());
    let sweep = || {
        let mut command = fgrpo();
        command
            .arg("sweep")
            .arg(&config)
            .args(["--set", "steps=2", "--set", "sft.seed=1", "--grid", "algorithm.focal_gamma=0,1"])
            .args(["--grid", "seed=1,2", "--resume", "--out"])
            .arg(folder.path().join("a sweep"));
        command
    };
    let first = sweep().assert().success().stdout(predicate::str::contains("algorithm.focal_gamma"));
    let first = first.stdout(predicate::str::contains("Against GRPO (2 seeds) on "));
    // The two runs have the same seed, and their names can be pasted.
    let run = |gamma| format!("'{}/a sweep/focal-gamma-{gamma}_seed-1'", folder.path().display());
    let next = format!("next: fgrpo compare {} {}\n", run(0), run(1));
    let first = first.stderr(predicate::str::contains(next));
    let table = first.get_output().stdout.clone();
    assert_eq!(std::fs::read_dir(folder.path().join("a sweep/sft-cache")).unwrap().count(), 1);
    sweep().assert().success().stdout(table).stderr(predicate::str::contains("runs are finished"));
}

#[test]
fn inactive_groups_are_dropped_by_their_rewards_whatever_shaping_makes_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let norms = |name: &str, drop: bool| -> Vec<f64> {
        let out = folder.path().join(name);
        let drop = format!("algorithm.drop_inactive_groups={drop}");
        // Nothing has been learned, so all rewards are 0.
        let set = [
            "steps=2",
            "sft.steps=1",
            "rollout.prompts=2",
            "eval.every=0",
            "model.init.num_hidden_layers=1",
            "algorithm.shaping=smoothing",
            &drop,
        ];
        let mut train = fgrpo();
        train
            .args(["train", "maze-quick"])
            .args(set.iter().flat_map(|s| ["--set", s]))
            .arg("--out")
            .arg(&out);
        train.assert().success();
        let lines = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
        let steps = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        steps
            .map(|m| {
                assert_eq!(m["active_fraction"], 0.0, "{m}");
                m["gradient_norm"].as_f64().unwrap()
            })
            .collect()
    };
    assert!(norms("kept", false).iter().all(|norm| *norm > 0.0));
    assert_eq!(norms("dropped", true), [0.0, 0.0]);
}

#[test]
fn the_reward_rises_from_rare_to_nearly_always_with_each_usual_loss() {
    let folder = tempfile::tempdir().unwrap();
    let config = support::file(folder.path(), "config.toml", &support::digits(folder.path()));
    for loss in ["grpo", "dapo", "cispo", "sapo"] {
        let out = folder.path().join(loss);
        let set = format!("algorithm.loss={loss}");
        ends(0, command!("train", &config, "--set", &set, "--out", &out));
        let metrics = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
        let rewards: Vec<f64> = metrics
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["reward_mean"].as_f64().unwrap()
            })
            .collect();
        let mean = |steps: &[f64]| steps.iter().sum::<f64>() / steps.len() as f64;
        let (first, last) = (mean(&rewards[..3]), mean(&rewards[25..]));
        assert!(first < 0.3 && last > 0.8, "{loss}: {first} -> {last}");
    }
}
