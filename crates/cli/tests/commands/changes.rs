//! Resumed runs after a change of their settings, data, grader, or model files.

use crate::support::{done, ends_with, fgrpo, file, lines, model, run, sets, small_run};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a configuration on the problems of `data.jsonl`, and returns its path.
    fn on_data(&self, task: &str, more: &str) -> String {
        let text = format!(
            "steps = 2\n[task]\ndata = {:?}\nheld_out_share = 0.5\n{task}\n[model]\npath = {:?}\n[rollout]\nprompts = 2\n\
             group_size = 2\nmax_new_tokens = 4\n[update]\nlr = 1e-3\n[save]\nevery = 1\n[compute]\nthreads = 1\n\
             [eval]\nevery = 1\nsamples = 2\nk = [1, 2]\n{more}",
            self.text("data.jsonl"),
            model()
        );
        file(self.0.path(), "run.toml", &text).to_str().unwrap().to_owned()
    }

    /// A copy of the model's folder.
    fn copied(&self, name: &str) -> PathBuf {
        let folder = self.path(name);
        std::fs::create_dir(&folder).unwrap();
        for entry in std::fs::read_dir(model()).unwrap().map(|entry| entry.unwrap().path()) {
            std::fs::copy(&entry, folder.join(entry.file_name().unwrap())).unwrap();
        }
        folder
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
    let config = place.on_data("kind = \"math\"", "");
    let broken = place.copied("broken");
    std::fs::remove_file(broken.join("model.safetensors")).unwrap();
    let path = format!("model.path={}", broken.display());
    for (command, kept) in [("train", "metrics.jsonl"), ("sft", "sft.jsonl")] {
        let out = place.text(command);
        let line = [command, &config, "--out", &out, "--set", "sft.steps=1"];
        ends_with(0, &line);
        let before = read(place.path(command).join(kept));
        let said = ends_with(2, &[&line[..], &["--restart", "--set", &path]].concat());
        assert!(said.contains("broken"), "{said}");
        assert_eq!(read(place.path(command).join(kept)), before);
    }
}

#[test]
fn what_a_run_started_from_does_not_change_after_its_first_checkpoint() {
    let place = Place::new();
    let small = small_run(&["sft.steps=2", "algorithm.kl_coef=0.01", "steps=2"]);
    let config = file(place.0.path(), "c.toml", &small);
    let out = place.text("run");
    let line = ["train", config.to_str().unwrap(), "--out", &out];
    ends_with(0, &line);
    let written = read(place.path("run/config.toml"));
    for (set, says) in [
        ("sft.lr=0.5", "sft.lr: 0.0005 -> 0.5"),
        ("model.init.hidden_size=32", "model.init.hidden_size: 16 -> 32"),
        ("seed=7", "seed: 1 -> 7"),
    ] {
        for dry in [&[][..], &["--dry-run"]] {
            let changed = [&line[..], &["--resume", "--accept-changes", "--set", set], dry].concat();
            let said = ends_with(2, &changed);
            assert!(said.contains(says) && said.contains("model.path="), "{said}");
        }
        assert_eq!(read(place.path("run/config.toml")), written);
    }
    // Without a penalty, the seed only affects later draws.
    let more = sets(&["algorithm.kl_coef=0", "seed=7", "steps=3"]);
    ends_with(0, &[&line[..], &["--resume", "--accept-changes"], &more].concat());
    // A run on demonstrations may continue with other RL settings.
    let out = place.text("demonstrations");
    let line = ["sft", config.to_str().unwrap(), "--out", &out];
    ends_with(0, &line);
    let more = sets(&["sft.steps=3", "sft.lr=1e-4"]);
    ends_with(0, &[&line[..], &["--resume", "--accept-changes"], &more].concat());
}

#[test]
fn weights_that_a_run_reads_on_may_move_but_not_change() {
    let place = Place::new();
    place.problems(0);
    let config = place.on_data("kind = \"math\"", "");
    let moved = place.copied("moved");
    let path = format!("model.path={}", moved.display());
    let train = |code: i32, name: &str, set: &str, steps: u32, more: &[&str]| {
        let (out, steps) = (place.text(name), format!("steps={steps}"));
        let line = ["train", &config, "--out", &out, "--set", set, "--set", &steps];
        ends_with(code, &[&line[..], more].concat())
    };
    let on = ["--resume", "--accept-changes", "--set", &path];
    let reads = [("adapter", "lora.rank=2"), ("reference", "algorithm.kl_coef=0.01")];
    for (name, set) in reads.into_iter().chain([("own", "seed=2")]) {
        train(0, name, set, 2, &[]);
        train(0, name, set, 3, &on);
    }
    let weights = moved.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    for (name, set) in reads {
        let said = train(2, name, set, 4, &on);
        assert!(said.contains("the weights in model.path have changed"), "{said}");
    }
    // A run whose checkpoints contain all weights doesn't read these files.
    train(0, "own", "seed=2", 4, &on);
}

#[test]
fn a_checkpoint_keeps_how_its_start_is_sampled() {
    let place = Place::new();
    place.problems(0);
    let (config, start) = (place.on_data("kind = \"math\"", ""), place.copied("start"));
    let file = start.join("generation_config.json");
    let mut settings: Value = serde_json::from_str(&read(&file)).unwrap();
    settings["temperature"] = json!(0.6);
    std::fs::write(&file, settings.to_string()).unwrap();
    let (out, path) = (place.text("run"), format!("model.path={}", start.display()));
    ends_with(0, &["sft", &config, "--out", &out, "--set", "sft.steps=1", "--set", &path]);
    assert_eq!(read(place.path("run/checkpoints/step-000001/generation_config.json")), read(file));
}

#[test]
fn changed_problems_are_refused_and_never_paired_with_the_old_ones() {
    let place = Place::new();
    place.problems(0);
    let config = place.on_data("kind = \"math\"", "");
    let out = place.text("run");
    let line = ["train", &config, "--out", &out];
    ends_with(0, &line);
    assert!(read(place.path("run/report.html")).contains("Change since step 0"));
    place.problems(1);
    let resume = [&line[..], &["--resume", "--set", "steps=2"]].concat();
    let said = ends_with(2, &resume);
    assert!(said.contains("the problems have changed since the run's last session"), "{said}");
    let resume = [&line[..], &["--resume", "--accept-changes", "--set", "steps=3"]].concat();
    let said = done(&resume);
    assert!(!said.contains("pass@1 changed by"), "{said}");
    let page = read(place.path("run/report.html"));
    assert!(!page.contains("Change since step") && !page.contains("since the first evaluation"));
    // The new grader is now the run's grader.
    ends_with(0, &[&line[..], &["--resume", "--set", "steps=3"]].concat());
    // The same holds for the demonstrations of `fgrpo sft`.
    let out = place.text("demonstrations");
    let line = ["sft", &config, "--out", &out, "--set", "sft.steps=1"];
    ends_with(0, &line);
    place.problems(2);
    let said = ends_with(2, &[&line[..], &["--resume"]].concat());
    assert!(said.contains("the problems have changed"), "{said}");
}

#[test]
fn the_best_policy_and_the_summary_compare_nothing_across_graders() {
    let place = Place::new();
    // A learning rate that changes nothing, and a grader that then accepts less. If the change of graders were ignored, the first
    // policy would stay the best.
    let small = small_run(&["update.lr=1e-30", "steps=2", "task.reward=\"reaches_goal\""]);
    let config = file(place.0.path(), "c.toml", &small);
    let out = place.text("run");
    let line = ["train", config.to_str().unwrap(), "--out", &out];
    assert!(done(&line).contains("pass@1 changed by"));
    let more = sets(&["steps=4", "task.reward=exact"]);
    let said = done(&[&line[..], &["--resume", "--accept-changes"], &more].concat());
    assert!(!said.contains("pass@1 changed by") && said.contains("step 4"), "{said}");
    let state: Value =
        serde_json::from_str(&read(place.path("run/checkpoints/step-000004/trainer_state.json"))).unwrap();
    assert_eq!(state["best"]["step"], 4);
    let graders: Vec<Value> =
        lines(&place.path("run/eval.jsonl")).iter().map(|e| e["graders"].clone()).collect();
    assert!(graders[0] == graders[1] && graders[1] != graders[2], "{graders:?}");
}

#[test]
fn without_its_full_evaluation_a_run_is_summed_up_by_the_other() {
    let place = Place::new();
    let config = |name: &str, changes: &[&str]| {
        let changes = [changes, &["update.lr=1e-30"]].concat();
        file(place.0.path(), name, &small_run(&changes)).to_str().unwrap().to_owned()
    };
    let full =
        config("full.toml", &["steps=2", "eval.full.every=2", "eval.full.samples=8", "eval.full.k=[1]"]);
    let usual = config("usual.toml", &["steps=4"]);
    let out = place.text("run");
    assert!(done(&["train", &full, "--out", &out]).contains("held-out in full, 2 problems x 8 samples"));
    let said = done(&["train", &usual, "--out", &out, "--resume", "--accept-changes"]);
    assert!(said.contains("held-out, 2 problems x 4 samples") && said.contains("step 4"), "{said}");
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
    let grader = file(place.0.path(), "grade.py", FORGETFUL);
    let config = place.on_data(&format!("kind = \"python\"\ngrader = \"{}:reward\"", grader.display()), "");
    let out = place.text("run");
    let more = sets(&[
        "steps=3",
        "eval.every=0",
        "save.every=0",
        "rollout.group_size=8",
        "algorithm.advantage=gdpo",
    ]);
    let mut train = fgrpo();
    train.args(["train", &config, "--out", &out]).args(more).env("CALLS", place.path("calls"));
    let (_, said, code) = run(train);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("the grader (task.grader or task.verifier.command) returned the rewards"),
        "{said}"
    );
    assert!(place.path("run/checkpoints/step-000001").exists(), "{said}");
}

#[test]
fn a_sweep_mixes_neither_graders_nor_the_problems_of_one_row() {
    let place = Place::new();
    place.problems(0);
    let script = "def reward(completion, **columns):\n    return len(completion) % 2\n";
    let grader = file(place.0.path(), "grade.py", script);
    let config = place.on_data(&format!("kind = \"python\"\ngrader = \"{}:reward\"", grader.display()), "");
    let sweep = |out: &str, seeds: &str| {
        let (_, said, code) =
            run(fgrpo().args(["sweep", &config, "--out", &place.text(out), "--grid", seeds]));
        (said, code)
    };
    for out in ["graders", "problems"] {
        assert_eq!(sweep(out, "seed=1,2").1, 0);
    }
    std::fs::write(&grader, script.replace("% 2", "% 3 == 0")).unwrap();
    let (said, code) = sweep("graders", "seed=1,2,3");
    assert!(code == 2 && said.contains("seed-1 and ") && said.contains("seed-3 can't be"), "{code}: {said}");
    assert!(said.contains("different graders, python/"), "{said}");
    let folders = ["seed-1", "seed-3"].map(|name| place.text(&format!("graders/{name}")));
    let said = ends_with(2, &["select", &folders[0], &folders[1], "-k", "1"]);
    assert!(said.contains("graders"), "{said}");
    let page = place.path("report.html");
    ends_with(0, &["report", &folders[0], &folders[1], "--out", page.to_str().unwrap()]);
    assert!(read(page).contains("The runs differ in their problems, graders, data or start"));
    std::fs::write(&grader, script).unwrap();
    place.problems(1);
    let (said, code) = sweep("problems", "seed=1,2,3");
    assert!(
        code == 2 && said.contains("seed-3 can't be") && said.contains("different problems"),
        "{code}: {said}"
    );
}

#[test]
fn runs_on_other_data_or_from_another_start_are_not_compared() {
    let place = Place::new();
    place.problems(0);
    let held_out = |i: u32| format!("{}\n", json!({"problem": format!("Name {i}"), "answer": i.to_string()}));
    let held_out = file(place.0.path(), "held.jsonl", &(0..4).map(held_out).collect::<String>());
    let (start, other) = (place.copied("start"), place.path("other"));
    ends_with(0, &["train", &place.on_data("kind = \"math\"", ""), "--out", other.to_str().unwrap()]);
    let config = place.on_data("kind = \"math\"", "");
    let text = read(&config).replace("held_out_share = 0.5", &format!("held_out = {held_out:?}"));
    std::fs::write(&config, text.replace(&format!("{:?}", model()), &format!("{start:?}"))).unwrap();
    let sweep = |out: &str, gammas: &str| {
        let grid = format!("algorithm.focal_gamma={gammas}");
        run(fgrpo().args(["sweep", &config, "--out", &place.text(out), "--grid", &grid]))
    };
    for out in ["data", "start-changed"] {
        assert_eq!(sweep(out, "0,1").2, 0);
    }
    let report = |out: &str| {
        let folders = ["focal-gamma-0", "focal-gamma-2"].map(|name| place.text(&format!("{out}/{name}")));
        let page = place.path("report.html");
        ends_with(0, &["report", &folders[0], &folders[1], "--out", page.to_str().unwrap()]);
        read(page)
    };
    place.problems(1);
    let (_, said, code) = sweep("data", "0,1,2");
    assert!(code == 2 && said.contains("focal-gamma-2 can't be in one table"), "{code}: {said}");
    assert!(said.contains("trained on different problems"), "{said}");
    assert!(report("data").contains("trained on different problems"));
    place.problems(0);
    let weights = other.join("checkpoints/step-000002/model.safetensors");
    std::fs::copy(weights, start.join("model.safetensors")).unwrap();
    let (_, said, code) = sweep("start-changed", "0,1,2");
    assert!(code == 2 && said.contains("focal-gamma-2 can't be in one table"), "{code}: {said}");
    assert!(said.contains("started from different weights"), "{said}");
    let page = report("start-changed");
    assert!(page.contains("started from different weights") && !page.contains("Difference to GRPO"));
}

#[test]
fn a_completion_ends_where_the_models_positions_end() {
    let place = Place::new();
    place.problems(0);
    // A vocabulary from which the end token is hardly ever drawn.
    let short = place.text("short");
    let sizes = ["--hidden-size", "16", "--layers", "1", "--heads", "2", "--kv-heads", "1"];
    let init = |context: &str| {
        let mut init = fgrpo();
        init.args(["init", "--arch", "qwen3", "--context", context, "--vocab-size", "20000"]);
        init.args(sizes).arg("--tokenizer").arg(model()).args(["--out", &short]).assert().success();
    };
    init("48");
    let config = place.on_data("kind = \"math\"", "");
    let path = format!("model.path={short}");
    let more = sets(&[&path, "steps=1", "rollout.max_new_tokens=100", "eval.every=0"]);
    let said = ends_with(0, &[&["train", &config, "--out", &place.text("run")][..], &more].concat());
    assert!(said.contains("note: the model's 48 positions"), "{said}");
    let metrics = &lines(&place.path("run/metrics.jsonl"))[0];
    assert!(metrics["completion_length_max"].as_u64().unwrap() < 48, "{metrics}");
    assert!(metrics["truncated_fraction"].as_f64().unwrap() > 0.0, "{metrics}");
    // A prompt that leaves no room for a completion is found before the run begins.
    std::fs::remove_dir_all(&short).unwrap();
    init("4");
    let said = ends_with(2, &[&["train", &config, "--out", &place.text("none")][..], &more].concat());
    assert!(said.contains("the model's 4 positions"), "{said}");
    assert!(!place.path("none").exists());
}

#[test]
fn a_new_model_has_positions_for_the_completions_that_are_sampled() {
    let place = Place::new();
    let set = [
        "steps=1",
        "eval.every=0",
        "rollout.prompts=1",
        "rollout.group_size=2",
        "rollout.max_new_tokens=300",
    ];
    let config = file(place.0.path(), "c.toml", &small_run(&set));
    ends_with(0, &["train", config.to_str().unwrap(), "--out", &place.text("run")]);
    let sizes: Value =
        serde_json::from_str(&read(place.path("run/checkpoints/step-000001/config.json"))).unwrap();
    assert!(sizes["max_position_embeddings"].as_u64().unwrap() > 300, "{sizes}");
}
