//! The training loop, through the command line: small mazes, kills and wrong input.

use crate::support::{
    self, assert_same_run, copy, ends, file, kill_at, spawned, tells, timeless, wait_until,
};
use serde_json::Value;
use std::path::{Path, PathBuf};

const LINES: [&str; 3] = ["metrics.jsonl", "eval.jsonl", "rollouts.jsonl"];

/// Writes the configuration of these tests into a folder.
fn config(folder: &Path) -> PathBuf {
    let text = support::small_run(&[
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
    ]);
    file(folder, "small.toml", &text)
}

#[test]
fn a_run_leaves_every_file_of_the_contract_and_guards_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let out = folder.path().join("run");
    let train = |more: &[&str]| command!("train", &config, "--out", &out, ..more);
    let (printed, said) = ends(0, train(&[]));
    assert!(printed.contains("pass@1 changed by"), "{printed}");
    assert!(said.starts_with("method: F-GRPO, gamma 0.5\n"), "{said}");
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
    let (_, said) = ends(2, train(&[]));
    assert!(said.contains("--resume") && said.contains("--out"), "{said}");
    tells(2, train(&["--set", "update.lr=1e-4", "--resume"]), "update.lr: 0.001 -> 0.0001");
    let said = support::refused(&["train", config.to_str().unwrap(), "--set", "rollout.group_size=1"]);
    assert!(said.contains("rollout.group_size: expected at least 2, found 1"), "{said}");
    assert!(support::refused(&["train", "/nonexistent.toml"]).contains("/nonexistent.toml"));
}

#[test]
fn killed_and_resumed_run_equals_uninterrupted_run_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    // Each in a separate folder, so that the killed run trains its supervised stage itself.
    let (whole, killed) = (folder.path().join("a/whole"), folder.path().join("b/killed"));
    ends(0, command!("train", &config, "--out", &whole));
    let start = || {
        let mut command = spawned(&["train", "--resume"]);
        command.arg(&config).arg("--out").arg(&killed);
        command
    };
    kill_at(start, &killed.join("config.toml"), &[1]);
    kill_at(start, &killed.join("metrics.jsonl"), &[1, 3, 4, 5]);
    ends(0, command!("train", &config, "--resume --out", &killed));
    assert_same_run(&whole, &killed, &LINES, 6);
}

/// Two runs with these settings: an uninterrupted one, and one that is resumed in the middle. They must be equal.
fn resumed_from_its_middle(folder: &Path, settings: &[&str]) -> Vec<Value> {
    let (config, settings) = (config(folder), support::sets(settings));
    let (whole, resumed) = (folder.join("whole"), folder.join("resumed"));
    ends(0, command!("train", &config, ..&settings, "--out", &whole));
    copy(&whole, &resumed);
    std::fs::remove_dir_all(resumed.join("checkpoints/step-000006")).unwrap();
    ends(0, command!("train", &config, ..&settings, "--resume --out", &resumed));
    assert_same_run(&whole, &resumed, &LINES, 6);
    timeless(&whole.join("metrics.jsonl"))
}

fn metric(metrics: &[Value], name: &str) -> Vec<f64> {
    metrics.iter().map(|m| m[name].as_f64().unwrap()).collect()
}

#[test]
fn a_run_with_learned_weights_resumed_from_its_middle_equals_the_whole_run() {
    let folder = tempfile::tempdir().unwrap();
    // Learning rates at which a lost weight would show.
    let metrics = resumed_from_its_middle(
        folder.path(),
        &[
            "algorithm.daro=true",
            "algorithm.daro_lr=0.5",
            "algorithm.shaping=smoothing",
            "update.low_lr_gamma=0.5",
            "task.reward=reaches_goal",
            "task.size=5",
            "task.train=5000",
            "sft.steps=80",
        ],
    );
    let weights = |at: usize| metrics[at]["daro_weights"].as_array().unwrap().clone();
    assert_eq!(weights(0).len(), 3);
    assert!(weights(3) != weights(5), "no weight moved after the checkpoint: {:?}", weights(3));
    assert!((metrics[0]["lr"].as_f64().unwrap() - 0.679e-3).abs() < 1e-6);
}

#[test]
fn a_run_with_a_running_success_rate_resumed_from_its_middle_equals_the_whole_run() {
    let folder = tempfile::tempdir().unwrap();
    // A rate at which a restarted estimate would show.
    let metrics = resumed_from_its_middle(
        folder.path(),
        &[
            "algorithm.shaping={ kind = \"ha_dw\", eta = 1.0, window = 3 }",
            "algorithm.advantage=avspo",
            "task.reward=reaches_goal",
            "task.size=5",
            "sft.steps=80",
        ],
    );
    let anchors = metric(&metrics, "difficulty_anchor");
    let rates = metrics.iter().map(|m| {
        let count = |verdict| m["verdicts"][verdict].as_f64().unwrap_or(0.0);
        count("correct") / (count("correct") + count("wrong") + count("unparsed"))
    });
    // The rate of the first step, then of the second: a single value deviates by 1.
    assert_eq!(anchors[..2], rates.collect::<Vec<f64>>()[..2]);
    assert!(anchors[2..].windows(2).all(|pair| pair[0] != pair[1]), "{anchors:?}");
}

#[test]
fn a_run_with_scheduled_values_resumed_from_its_middle_equals_the_whole_run() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = resumed_from_its_middle(
        folder.path(),
        &[
            "algorithm.focal_gamma=2",
            "algorithm.advantage={ kind = \"pkpo\", k = 1 }",
            "algorithm.schedule=[{ key = \"focal_gamma\", to = 0.0, over = 5 }, { key = \"advantage.k\", to = 4, over = 4 }, { key = \"loss.clip\", to = [0.1, 0.4], over = 3 }, { key = \"kl_coef\", to = 0.01, over = 6 }]",
            "algorithm.top_entropy_quantile=0.5",
            "task.reward=reaches_goal",
            "task.size=5",
            "sft.steps=80",
        ],
    );
    let of =
        |key: &str| -> Vec<f64> { metrics.iter().map(|m| m["scheduled"][key].as_f64().unwrap()).collect() };
    assert_eq!(of("focal_gamma"), [2.0, 1.5, 1.0, 0.5, 0.0, 0.0]);
    assert_eq!(of("advantage.k"), [1.0, 2.0, 3.0, 4.0, 4.0, 4.0]);
    assert_eq!((of("loss.clip.0")[2], of("loss.clip.1")[1]), (0.1, 0.2 * 0.5 + 0.4 * 0.5));
    let kl = metric(&metrics, "kl_loss");
    assert!(kl[0] == 0.0 && kl[3] > 0.0, "{kl:?}");
    // The weight is that of the step, not the configured one.
    let focal = metric(&metrics, "focal_weight_mean");
    assert!(focal[0] < 1.0 && focal[4] == 1.0 && focal[5] == 1.0, "{focal:?}");
}

#[test]
fn two_processes_on_one_run_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (config, out) = (config(folder.path()), folder.path().join("run"));
    let mut train = spawned(&["train", "--set", "steps=100000"]);
    let mut child = train.arg(&config).arg("--out").arg(&out).spawn().unwrap();
    wait_until("the run's configuration", || out.join("config.toml").exists());
    let says = format!("in use by another process (pid {})", child.id());
    tells(2, command!("train", &config, "--resume --out", &out), says);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_dry_run_prints_a_configuration_with_all_flags_that_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    for name in ["train", "sft"] {
        let flags = "--dry-run --threads 3 --products bf16x3 --set sft.steps=1 --set update.lr=2e-4";
        let (text, _) = ends(0, command!(name, &config, ..flags.split(' ')));
        for line in ["threads = 3", "products = \"bf16x3\"", "lr = 0.0002"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let again = file(folder.path(), "again.toml", &text);
        assert_eq!(ends(0, command!(name, &again, "--dry-run")).0, text);
    }
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
    let config = config(folder.path());
    // A model of 6 million parameters with hardly any training, whose completions differ and are long.
    let set = support::sets(&[
        "model.init.hidden_size=256",
        "model.init.intermediate_size=1024",
        "model.init.num_hidden_layers=6",
        "model.init.num_attention_heads=4",
        "model.init.num_key_value_heads=4",
        "steps=1",
        "sft.steps=1",
        "eval.every=0",
    ]);
    let (_, said) = ends(0, command!("train", &config, ..&set, "--dry-run"));
    assert!(said.contains("time per step") && said.contains("GFLOP/s"), "{said}");
    let said = bytes(&said, "memory ");
    let (_, took) = ends(0, command!("train", &config, ..&set, "--out", folder.path().join("run")));
    let took = bytes(&took, "memory:");
    assert!(took <= said && took > 0.5 * said, "said {said:e}, took {took:e}");
}

#[test]
fn a_folder_that_cannot_be_written_ends_with_one_and_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let out = file(folder.path(), "file", "x").join("run");
    tells(1, command!("train", config(folder.path()), "--out", out), "file/run");
}

#[test]
fn gamma_zero_is_the_run_without_focal_weight_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "dr.toml", &support::digits(folder.path()));
    let train = |name: &str, set: &[&str]| {
        let out = folder.path().join(name);
        let set = support::sets(&[&["steps=6", "save.every=6", "algorithm.advantage=dr_grpo"], set].concat());
        ends(0, command!("train", &config, ..set, "--out", &out));
        out
    };
    let without = train("without", &[]);
    assert_same_run(&without, &train("zero", &["algorithm.focal_gamma=0"]), &LINES, 6);
    let focal = train("one", &["algorithm.focal_gamma=1"]);
    let metrics = |run: &Path| timeless(&run.join("metrics.jsonl"));
    assert_ne!(metrics(&without), metrics(&focal), "no group had both correct and wrong completions");
}

#[test]
fn a_sweep_resumes_and_ends_with_its_table() {
    let folder = tempfile::tempdir().unwrap();
    let (config, out) = (config(folder.path()), folder.path().join("a sweep"));
    let grid = "--set steps=2 --set sft.seed=1 --grid algorithm.focal_gamma=0,1 --grid seed=1,2";
    let sweep = || ends(0, command!("sweep", &config, ..grid.split(' '), "--resume --out", &out));
    let (table, said) = sweep();
    for part in ["algorithm.focal_gamma", "Against GRPO (2 seeds) on "] {
        assert!(table.contains(part), "{part}: {table}");
    }
    // The two runs have the same seed, and their names can be pasted.
    let run = |gamma| format!("'{}/a sweep/focal-gamma-{gamma}_seed-1'", folder.path().display());
    assert!(said.contains(&format!("next: fgrpo compare {} {}\n", run(0), run(1))), "{said}");
    assert_eq!(std::fs::read_dir(out.join("sft-cache")).unwrap().count(), 1);
    let (again, said) = sweep();
    assert!(again == table && said.contains("runs are finished"), "{again}{said}");
}

#[test]
fn inactive_groups_are_dropped_by_their_rewards_whatever_shaping_makes_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let norms = |drop: &str| -> Vec<Option<f64>> {
        let out = folder.path().join(drop);
        let drop = format!("algorithm.drop_inactive_groups={drop}");
        // Nothing has been learned, so all rewards are 0.
        let set = ["steps=2", "eval={ every = 0 }", "algorithm.shaping=\"smoothing\"", &drop];
        let config = file(folder.path(), "small.toml", &support::small_run(&set));
        ends(0, command!("train", config, "--out", &out));
        let metrics = timeless(&out.join("metrics.jsonl"));
        assert_eq!(metric(&metrics, "active_fraction"), [0.0, 0.0]);
        metrics.iter().map(|m| m["gradient_norm"].as_f64()).collect()
    };
    assert!(norms("false").iter().all(|norm| *norm > Some(0.0)));
    // Without a group there is no update.
    assert_eq!(norms("true"), [None, None]);
}

#[test]
fn the_reward_rises_from_rare_to_nearly_always_with_each_usual_loss() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "config.toml", &support::digits(folder.path()));
    for loss in ["grpo", "dapo", "cispo", "sapo"] {
        let out = folder.path().join(loss);
        ends(0, command!("train", &config, "--set", format!("algorithm.loss={loss}"), "--out", &out));
        let rewards = metric(&timeless(&out.join("metrics.jsonl")), "reward_mean");
        let mean = |steps: &[f64]| steps.iter().sum::<f64>() / steps.len() as f64;
        let (first, last) = (mean(&rewards[..3]), mean(&rewards[25..]));
        assert!(first < 0.3 && last > 0.8, "{loss}: {first} -> {last}");
    }
}
