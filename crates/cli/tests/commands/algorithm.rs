//! Settings of `[algorithm]` that change rewards or the loss, checked by the files of short runs.

use crate::support::{self, ends, file, lines};
use std::path::{Path, PathBuf};

/// Returns the folder of a run on mazes with these settings.
fn mazes(folder: &Path, name: &str, set: &[&str]) -> PathBuf {
    let common = [
        "steps=1",
        "task.size=7",
        "rollout={ prompts = 6, group_size = 4, max_new_tokens = 8 }",
        "sft={ steps = 150, batch_size = 8, lr = 5e-3 }",
        "eval={ every = 0 }",
    ];
    of_config(folder, &support::small_run(&common), name, set)
}

/// Returns the folder of a run with [`support::digits`] and these settings.
fn digits(folder: &Path, name: &str, set: &[&str]) -> PathBuf {
    of_config(folder, &support::digits(folder), name, set)
}

fn of_config(folder: &Path, config: &str, name: &str, set: &[&str]) -> PathBuf {
    let (config, out) = (file(folder, "small.toml", config), folder.join(name));
    ends(0, command!("train", config, ..support::sets(set), "--out", &out));
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
        let all = ["rollout.max_new_tokens=1", "algorithm.shaping=smoothing"];
        mazes(folder.path(), name, &[&all[..], set].concat())
    };
    let graded = run("grade", &[]);
    assert_eq!(metric(&graded, "truncated_fraction"), [1.0]);
    assert_eq!(metric(&graded, "reward_mean"), [0.0]);
    assert!(metric(&graded, "gradient_norm")[0] > 0.0, "shaping gives wrong completions advantages");
    let masked = run("mask", &["algorithm.truncated=mask"]);
    assert_eq!(metric(&masked, "reward_mean"), [0.0]);
    let line = &lines(&masked.join("metrics.jsonl"))[0];
    assert!(line["gradient_norm"].is_null(), "no completion is left to learn from: {line}");
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
