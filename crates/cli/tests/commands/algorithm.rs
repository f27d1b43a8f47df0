//! Settings of `[algorithm]` that change rewards or the loss, checked by the files of short runs.

use crate::support::{self, fgrpo, lines};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn config() -> String {
    support::small_run(&[
        "task.size=7",
        "task.train=50",
        "task.held_out=6",
        "model.init.num_hidden_layers=2",
        "sft={ steps = 150, batch_size = 8, lr = 5e-3 }",
        "rollout={ prompts = 6, group_size = 4, max_new_tokens = 8 }",
        "eval={ every = 0 }",
        "save={}",
        "compute.threads=2",
        "log.rollout_share=1.0",
    ])
}

/// Returns the folder of a run with these settings.
fn train(folder: &Path, name: &str, set: &[&str]) -> PathBuf {
    of_config(folder, &config(), name, set)
}

/// The same with [`support::digits`].
fn digits(folder: &Path, name: &str, set: &[&str]) -> PathBuf {
    of_config(folder, &support::digits(folder), name, set)
}

fn of_config(folder: &Path, config: &str, name: &str, set: &[&str]) -> PathBuf {
    let file = folder.join("small.toml");
    std::fs::write(&file, config).unwrap();
    let out = folder.join(name);
    let mut run = fgrpo();
    run.arg("train").arg(file).args(support::sets(set)).arg("--out").arg(&out).assert().success();
    out
}

/// The values of a metric at every step.
fn metric(run: &Path, name: &str) -> Vec<f64> {
    lines(&run.join("metrics.jsonl")).iter().map(|line| line[name].as_f64().unwrap()).collect()
}

#[test]
fn the_penalty_of_every_kl_estimator_keeps_the_policy_near_its_reference() {
    let folder = tempfile::tempdir().unwrap();
    // The sampled KL, which k1 reports, in the last steps.
    let divergence = |name: &str, set: &[&str]| -> f64 {
        let run = digits(folder.path(), name, set);
        metric(&run, "kl_loss")[20..].iter().sum::<f64>() / 10.0
    };
    let free = divergence("free", &["algorithm.kl=k1", "algorithm.kl_coef=1e-9"]);
    for kl in ["k1", "k2", "k3"] {
        let set = [format!("algorithm.kl={kl}"), "algorithm.kl_coef=1".to_owned()];
        let found = divergence(kl, &set.each_ref().map(String::as_str));
        assert!(free > 1.0 && found.abs() < 0.2 * free, "{kl}: {found} with the penalty, {free} without");
    }
}

#[test]
fn truncated_completions_are_graded_masked_or_rewarded_as_the_setting_says() {
    let folder = tempfile::tempdir().unwrap();
    // No path has one token, so every completion is cut off.
    let run = |name: &str, set: &[&str]| {
        let all = ["steps=1", "rollout.max_new_tokens=1", "algorithm.shaping=smoothing"];
        train(folder.path(), name, &[&all[..], set].concat())
    };
    let graded = run("grade", &[]);
    assert_eq!(metric(&graded, "truncated_fraction"), [1.0]);
    assert_eq!(metric(&graded, "reward_mean"), [0.0]);
    assert!(metric(&graded, "gradient_norm")[0] > 0.0, "shaping gives wrong completions advantages");
    let masked = run("mask", &["algorithm.truncated=mask"]);
    assert_eq!((metric(&masked, "reward_mean"), metric(&masked, "gradient_norm")), (vec![0.0], vec![0.0]));
    let rewarded = run("reward", &["algorithm.truncated={ kind = \"reward\", reward = -0.5 }"]);
    assert_eq!(metric(&rewarded, "reward_mean"), [-0.5]);
    let line = &lines(&rewarded.join("metrics.jsonl"))[0];
    assert_eq!(line["success_rate_histogram"][0], 6, "a reward of its own counts as wrong: {line}");
}

#[test]
fn masked_completions_leave_the_gradient_of_the_others_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, set: &[&str]| {
        let out =
            digits(folder.path(), name, &[&["steps=1", "task.stop=[\"a\", \"e\", \"1\"]"][..], set].concat());
        (metric(&out, "truncated_fraction")[0], metric(&out, "gradient_norm")[0])
    };
    let (none, plain) = run("none", &["rollout.max_new_tokens=256"]);
    let (_, masked) = run("none-masked", &["rollout.max_new_tokens=256", "algorithm.truncated=mask"]);
    assert_eq!((none, plain.to_bits()), (0.0, masked.to_bits()), "nothing to mask changes nothing");
    let (some, cut) = run("some", &["rollout.max_new_tokens=12"]);
    let (_, masked) = run("some-masked", &["rollout.max_new_tokens=12", "algorithm.truncated=mask"]);
    assert!(0.0 < some && some < 1.0 && cut != masked, "{some}: {cut} {masked}");
}

#[test]
fn overlong_punishment_is_dapos_formula_and_leaves_verdicts_alone() {
    let folder = tempfile::tempdir().unwrap();
    let set = ["steps=2", "algorithm.advantage=dr_grpo", "algorithm.overlong={ length = 8, cache = 6 }"];
    let run = train(folder.path(), "run", &set);
    let rollouts = lines(&run.join("rollouts.jsonl"));
    let punished = |line: &Value| {
        let length = line["length"].as_u64().unwrap() as f64;
        line["reward"].as_f64().unwrap() + (-(length - 2.0) / 6.0).clamp(-1.0, 0.0)
    };
    let mut lengths = std::collections::BTreeSet::new();
    for group in rollouts.chunks(4) {
        assert!(group.iter().all(|line| line["prompt_id"] == group[0]["prompt_id"]));
        let mean = group.iter().map(punished).sum::<f64>() / 4.0;
        for line in group {
            lengths.insert(line["length"].as_u64().unwrap());
            let found = line["advantage"].as_f64().unwrap();
            assert!((found - (punished(line) - mean)).abs() < 1e-12, "{line}");
            let reward = if line["verdict"] == "correct" { 1.0 } else { 0.0 };
            assert_eq!(
                line["reward"].as_f64().unwrap(),
                reward,
                "the reward is logged without the punishment"
            );
        }
    }
    assert!(lengths.len() > 1, "{lengths:?}");
}

#[test]
fn other_trainers_names_and_impossible_values_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("small.toml");
    std::fs::write(&config, self::config()).unwrap();
    for (set, said) in [
        ("mask_truncated_completions=true", "did you mean `algorithm.truncated`?"),
        ("soft_punish_cache=4", "did you mean `algorithm.overlong.cache`?"),
        ("overlong_buffer.len=4", "did you mean `algorithm.overlong.length` or `algorithm.overlong.cache`?"),
        ("kl_loss_type=k1", "did you mean `algorithm.kl`?"),
        ("algorithm.truncated=drop", "expected one of \"grade\", \"mask\", \"reward\""),
        (
            "algorithm.truncated={ kind = \"reward\", reward = 1 }",
            "algorithm.truncated.reward: expected less than 1",
        ),
        ("algorithm.overlong={ length = 8 }", "`cache`"),
        ("algorithm.overlong={ length = 8, cache = 9 }", "algorithm.overlong.cache: expected"),
    ] {
        let mut run = fgrpo();
        let run = run.arg("train").arg(&config).args(["--dry-run", "--set", set]).assert().code(2);
        let found = String::from_utf8(run.get_output().stderr.clone()).unwrap();
        assert!(found.contains(said), "{set}: {found}");
    }
}
