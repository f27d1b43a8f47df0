//! Resumed runs after a change of their settings, data, grader, or model files.

use crate::support::{copy, ends, file, lines, model, prints, sets, small_run, tells};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The folder of a test.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn config(&self, changes: &[&str]) -> PathBuf {
        file(self.0.path(), "c.toml", &small_run(changes))
    }

    /// Writes a configuration on the problems of `data.jsonl`, and returns its path.
    fn on_data(&self, changes: &[&str]) -> PathBuf {
        let data =
            format!("task={{ kind = \"math\", data = {:?}, held_out_share = 0.5 }}", self.path("data.jsonl"));
        let model = format!("model={{ path = {:?} }}", model());
        let rollout = "rollout={ prompts = 2, group_size = 2, max_new_tokens = 4 }";
        let eval = "eval={ every = 1, samples = 2, k = [1, 2] }";
        let common = ["steps=2", &data, &model, rollout, eval, "save.every=1"];
        self.config(&[&common[..], changes].concat())
    }

    /// Writes a grader in Python, and returns the changes that use it.
    fn grader(&self, text: &str) -> [String; 2] {
        let grader = file(self.0.path(), "grade.py", text);
        ["task.kind=\"python\"".to_owned(), format!("task.grader=\"{}:reward\"", grader.display())]
    }

    /// A copy of the model's folder.
    fn copied(&self, name: &str) -> PathBuf {
        copy(model(), &self.path(name));
        self.path(name)
    }

    /// Sixteen problems, whose answers are their numbers plus `more`.
    fn problems(&self, more: u32) {
        let row = |i: u32| {
            let (answer, solution) = ((i + more).to_string(), format!("\\boxed{{{}}}", i + more));
            format!("{}\n", json!({"problem": format!("Say {i}"), "answer": answer, "solution": solution}))
        };
        file(self.0.path(), "data.jsonl", &(0..16).map(row).collect::<String>());
    }
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path.as_ref()).unwrap_or_else(|e| panic!("{}: {e}", path.as_ref().display()))
}

#[test]
fn a_restart_with_a_model_that_cannot_be_opened_keeps_the_run() {
    let place = Place::new();
    place.problems(0);
    let config = place.on_data(&["sft.steps=1"]);
    let broken = place.copied("broken");
    std::fs::remove_file(broken.join("model.safetensors")).unwrap();
    let path = format!("model.path={}", broken.display());
    for (name, kept) in [("train", "metrics.jsonl"), ("sft", "sft.jsonl")] {
        let out = place.path(name);
        ends(0, command!(name, &config, "--out", &out));
        let before = read(out.join(kept));
        tells(2, command!(name, &config, "--out", &out, "--restart --set", &path), "broken");
        assert_eq!(read(out.join(kept)), before);
    }
}

#[test]
fn what_a_run_started_from_does_not_change_after_its_first_checkpoint() {
    let place = Place::new();
    let config = place.config(&["sft.steps=2", "algorithm.kl_coef=0.01", "steps=2"]);
    let out = place.path("run");
    ends(0, command!("train", &config, "--out", &out));
    let resume = |set: &[&str], dry: &[&str]| {
        command!("train", &config, "--out", &out, "--resume --accept-changes", ..sets(set), ..dry)
    };
    let written = read(out.join("config.toml"));
    for (set, says) in [
        ("sft.lr=0.5", "sft.lr: 0.0005 -> 0.5"),
        ("model.init.hidden_size=32", "model.init.hidden_size: 16 -> 32"),
        ("seed=7", "seed: 1 -> 7"),
    ] {
        for dry in [&[][..], &["--dry-run"]] {
            let (_, said) = ends(2, resume(&[set], dry));
            assert!(said.contains(says) && said.contains("model.path="), "{said}");
        }
        assert_eq!(read(out.join("config.toml")), written);
    }
    // Without a penalty, the seed only affects later draws.
    ends(0, resume(&["algorithm.kl_coef=0", "seed=7", "steps=3"], &[]));
    // A run on demonstrations may continue with other RL settings.
    let out = place.path("demonstrations");
    ends(0, command!("sft", &config, "--out", &out));
    let more = sets(&["sft.steps=3", "sft.lr=1e-4"]);
    ends(0, command!("sft", &config, "--out", &out, "--resume --accept-changes", ..more));
}

#[test]
fn weights_that_a_run_reads_on_may_move_but_not_change() {
    let place = Place::new();
    place.problems(0);
    let config = place.on_data(&["eval={ every = 0 }"]);
    let moved = place.copied("moved");
    let path = format!("model.path={}", moved.display());
    let train = |name: &str, set: &str, steps: u32, more: &[&str]| {
        let steps = format!("steps={steps}");
        command!("train", &config, "--out", place.path(name), "--set", set, "--set", steps, ..more)
    };
    let on = ["--resume", "--accept-changes", "--set", &path];
    let reads = [("adapter", "lora.rank=2"), ("reference", "algorithm.kl_coef=0.01")];
    for (name, set) in reads.into_iter().chain([("own", "seed=2")]) {
        ends(0, train(name, set, 1, &[]));
        ends(0, train(name, set, 2, &on));
    }
    let weights = moved.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    for (name, set) in reads {
        tells(2, train(name, set, 3, &on), "the weights in model.path have changed");
    }
    // A run whose checkpoints contain all weights doesn't read these files.
    ends(0, train("own", "seed=2", 3, &on));
}

#[test]
fn a_checkpoint_keeps_how_its_start_is_sampled() {
    let place = Place::new();
    place.problems(0);
    let (config, start) = (place.on_data(&[]), place.copied("start"));
    let settings = start.join("generation_config.json");
    let mut changed: Value = serde_json::from_str(&read(&settings)).unwrap();
    changed["temperature"] = json!(0.6);
    std::fs::write(&settings, changed.to_string()).unwrap();
    let path = format!("model.path={}", start.display());
    ends(0, command!("sft", &config, "--out", place.path("run"), "--set sft.steps=1 --set", path));
    assert_eq!(read(place.path("run/checkpoints/step-000001/generation_config.json")), read(settings));
}

#[test]
fn changed_problems_are_refused_and_never_paired_with_the_old_ones() {
    let place = Place::new();
    place.problems(0);
    let config = place.on_data(&[]);
    let run = |name: &str, more: &str| command!(name, &config, "--out", place.path(name), ..more.split(' '));
    ends(0, run("train", "--set steps=2"));
    assert!(read(place.path("train/report.html")).contains("Change since step 0"));
    place.problems(1);
    let says = "the problems have changed since the run's last session";
    tells(2, run("train", "--resume --set steps=2"), says);
    let (printed, _) = ends(0, run("train", "--resume --accept-changes --set steps=3"));
    assert!(!printed.contains("pass@1 changed by"), "{printed}");
    let page = read(place.path("train/report.html"));
    assert!(!page.contains("Change since step") && !page.contains("since the first evaluation"));
    // The new grader is now the run's grader.
    ends(0, run("train", "--resume --set steps=3"));
    // The same holds for the demonstrations of `fgrpo sft`.
    ends(0, run("sft", "--set sft.steps=1"));
    place.problems(2);
    tells(2, run("sft", "--resume --set sft.steps=1"), "the problems have changed");
}

#[test]
fn the_best_policy_and_the_summary_compare_nothing_across_graders() {
    let place = Place::new();
    // A learning rate that changes nothing, and a grader that then accepts less. If the change of graders were ignored, the first
    // policy would stay the best.
    let config = place.config(&["update.lr=1e-30", "steps=2", "task.reward=\"reaches_goal\""]);
    let out = place.path("run");
    prints(0, command!("train", &config, "--out", &out), "pass@1 changed by");
    let more = sets(&["steps=4", "task.reward=exact"]);
    let (printed, _) =
        ends(0, command!("train", &config, "--out", &out, "--resume --accept-changes", ..more));
    assert!(!printed.contains("pass@1 changed by") && printed.contains("step 4"), "{printed}");
    let state: Value =
        serde_json::from_str(&read(out.join("checkpoints/step-000004/trainer_state.json"))).unwrap();
    assert_eq!(state["best"]["step"], 4);
    let graders: Vec<Value> = lines(&out.join("eval.jsonl")).iter().map(|e| e["graders"].clone()).collect();
    assert!(graders[0] == graders[1] && graders[1] != graders[2], "{graders:?}");
}

#[test]
fn without_its_full_evaluation_a_run_is_summed_up_by_the_other() {
    let place = Place::new();
    let out = place.path("run");
    let full = "eval.full={ every = 2, samples = 8, k = [1] }";
    let config = place.config(&["update.lr=1e-30", "steps=2", full]);
    prints(0, command!("train", config, "--out", &out), "held-out in full, 2 problems x 8 samples");
    let config = place.config(&["update.lr=1e-30"]);
    let (printed, _) = ends(0, command!("train", config, "--out", &out, "--resume --accept-changes"));
    assert!(printed.contains("held-out, 2 problems x 4 samples") && printed.contains("step 4"), "{printed}");
}

/// Counts its calls in a file, and returns no reward from the 25th on.
const FORGETFUL: &str = r#"
import os

def reward(completion, **columns):
    path = os.environ["CALLS"]
    with open(path, "a") as calls:
        calls.write(".")
    rewards = {"length": len(completion), "words": len(completion.split())}
    if os.path.getsize(path) >= 25:
        del rewards["words"]
    return {"score": 1, "rewards": rewards}
"#;

#[test]
fn a_grader_that_gives_other_rewards_is_named_and_the_steps_before_are_kept() {
    let place = Place::new();
    place.problems(0);
    let [kind, grader] = &place.grader(FORGETFUL);
    let changes = [
        "steps=3",
        kind,
        grader,
        "eval={ every = 0 }",
        "save.every=0",
        "rollout.group_size=8",
        "algorithm.advantage=\"gdpo\"",
    ];
    let mut train = command!("train", place.on_data(&changes), "--out", place.path("run"));
    train.env("CALLS", place.path("calls"));
    tells(2, train, "the grader (task.grader or task.verifier.command) returned the rewards");
    assert!(place.path("run/checkpoints/step-000001").exists());
}

#[test]
fn a_sweep_mixes_neither_graders_nor_the_problems_of_one_row() {
    let place = Place::new();
    place.problems(0);
    let script = "def reward(completion, **columns):\n    return len(completion) % 2\n";
    let [kind, grader] = &place.grader(script);
    let config = place.on_data(&["steps=1", kind, grader]);
    let sweep =
        |out: &str, seeds: &str| command!("sweep", &config, "--out", place.path(out), "--grid", seeds);
    for out in ["graders", "problems"] {
        ends(0, sweep(out, "seed=1,2"));
    }
    place.grader(&script.replace("% 2", "% 3 == 0"));
    let (_, said) = ends(2, sweep("graders", "seed=1,2,3"));
    for part in ["seed-1 and ", "seed-3 can't be", "different graders, python/"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let folders = ["seed-1", "seed-3"].map(|name| place.path("graders").join(name));
    tells(2, command!("select", ..&folders, "-k 1"), "graders");
    let page = place.path("report.html");
    ends(0, command!("report", ..&folders, "--out", &page));
    assert!(read(page).contains("(held-out: graders python/"));
    place.grader(script);
    place.problems(1);
    let (_, said) = ends(2, sweep("problems", "seed=1,2,3"));
    assert!(said.contains("seed-3 can't be") && said.contains("different problems"), "{said}");
}

#[test]
fn runs_on_other_data_or_from_another_start_are_not_compared() {
    let place = Place::new();
    place.problems(0);
    let held_out = |i: u32| format!("{}\n", json!({"problem": format!("Name {i}"), "answer": i.to_string()}));
    let held_out = file(place.0.path(), "held.jsonl", &(0..4).map(held_out).collect::<String>());
    let (start, other) = (place.copied("start"), place.path("other"));
    ends(0, command!("train", place.on_data(&["steps=1"]), "--out", &other));
    let (held_out, model) = (format!("task.held_out={held_out:?}"), format!("model.path={start:?}"));
    let config = place.on_data(&["steps=1", &held_out, &model]);
    let sweep = |out: &str, gammas: &str| {
        let grid = format!("algorithm.focal_gamma={gammas}");
        command!("sweep", &config, "--out", place.path(out), "--grid", grid)
    };
    for out in ["data", "start-changed"] {
        ends(0, sweep(out, "0,1"));
    }
    let refused = |out: &str, says: &str| {
        let (_, said) = ends(2, sweep(out, "0,1,2"));
        assert!(said.contains("focal-gamma-2 can't be in one table") && said.contains(says), "{said}");
        let folders = ["focal-gamma-0", "focal-gamma-2"].map(|name| place.path(out).join(name));
        let page = place.path("report.html");
        ends(0, command!("report", ..&folders, "--out", &page));
        let page = read(page);
        assert!(page.contains(says));
        page
    };
    place.problems(1);
    refused("data", "trained on different problems");
    place.problems(0);
    let weights = other.join("checkpoints/step-000001/model.safetensors");
    std::fs::copy(weights, start.join("model.safetensors")).unwrap();
    let page = refused("start-changed", "started from different weights");
    assert!(!page.contains("Difference to GRPO"));
}

#[test]
fn a_completion_ends_where_the_models_positions_end() {
    let place = Place::new();
    place.problems(0);
    // A vocabulary from which the end token is hardly ever drawn.
    let init = |name: &str, context: &str| {
        let sizes = "--hidden-size 16 --layers 1 --heads 2 --kv-heads 1 --vocab-size 20000 --arch qwen3";
        let out = place.path(name);
        ends(
            0,
            command!("init", ..sizes.split(' '), "--context", context, "--tokenizer", model(), "--out", &out),
        );
        let model = format!("model.path={out:?}");
        place.on_data(&["steps=1", "rollout.max_new_tokens=100", "eval={ every = 0 }", &model])
    };
    let out = place.path("run");
    tells(0, command!("train", init("short", "48"), "--out", &out), "note: the model's 48 positions");
    let metrics = &lines(&out.join("metrics.jsonl"))[0];
    assert!(metrics["completion_length_max"].as_u64().unwrap() < 48, "{metrics}");
    assert!(metrics["truncated_fraction"].as_f64().unwrap() > 0.0, "{metrics}");
    // A prompt that leaves no room for a completion is found before the run begins.
    let none = place.path("none");
    tells(2, command!("train", init("shortest", "4"), "--out", &none), "the model's 4 positions");
    assert!(!none.exists());
}

#[test]
fn a_new_model_has_positions_for_the_completions_that_are_sampled() {
    let place = Place::new();
    let rollout = "rollout={ prompts = 1, group_size = 2, max_new_tokens = 300 }";
    let config = place.config(&["steps=1", "eval={ every = 0 }", rollout]);
    ends(0, command!("train", config, "--out", place.path("run")));
    let sizes = read(place.path("run/checkpoints/step-000001/config.json"));
    let sizes: Value = serde_json::from_str(&sizes).unwrap();
    assert!(sizes["max_position_embeddings"].as_u64().unwrap() > 300, "{sizes}");
}
