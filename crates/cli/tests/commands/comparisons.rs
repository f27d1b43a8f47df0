//! Results of runs for comparisons: sweeps, selected checkpoints, evaluations, times. Results that can't be compared are
//! refused.

use crate::fault_server::{FaultServer, Manners, Policy};
use crate::support::{self, ends, ends_with, fgrpo, file, lines, model, small_run};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

fn config() -> String {
    small_run(&[
        "task.size=7",
        "task.train=50",
        "task.held_out=6",
        "rollout.max_new_tokens=8",
        "eval.every=1",
        "eval.k=[2, 4]",
        "compute.threads=2",
    ])
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::write(place.path("small.toml"), config()).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn train(&self, out: &str, more: &[&str]) {
        ends_with(0, &[&["train", &self.text("small.toml"), "--out", &self.text(out)][..], more].concat());
    }
}

#[test]
fn a_sweep_trains_what_is_missing_and_refuses_another_configuration_and_runs_that_count_twice() {
    let place = Place::new();
    let (config, out) = (place.text("small.toml"), place.text("two words"));
    let sweep = ["sweep", &config, "--out", &out, "--set", "steps=2", "--grid", "algorithm.focal_gamma=0,1"];
    ends_with(0, &sweep);
    assert!(ends_with(0, &sweep).contains("2 of 2 runs are finished"));
    let resumed = [&sweep[..], &["--resume"]].concat();
    for words in [&sweep[..], &resumed] {
        let said = ends_with(2, &[words, &["--set", "update.lr=0.5"]].concat());
        assert!(said.contains("another configuration") && said.contains("update.lr: 0.001 -> 0.5"), "{said}");
    }
    for twice in ["seed=1,1", "update.lr=0.1,1e-1"] {
        let said = ends_with(2, &["sweep", &config, "--out", &out, "--grid", twice]);
        assert!(said.contains("--grid") && said.contains("count twice"), "{said}");
    }
    // A signal in the last evaluation saves the last step, writes the report and leaves the evaluation out. A power cut leaves
    // zeros.
    let unevaluated = |text: &str| -> String {
        text.lines().filter(|l| !l.contains("\"step\":2,")).map(|l| format!("{l}\n")).collect()
    };
    let zeros = |text: &str| format!("{text}\0\0\0\n");
    let dropped = "1 lines that aren't JSON were dropped";
    let table = std::fs::read(place.path("two words/sweep.json")).unwrap();
    for (run, name, spoiled, expected) in [
        (1, "eval.jsonl", &unevaluated as &dyn Fn(&str) -> String, "1 of 2 runs are finished"),
        (0, "metrics.jsonl", &zeros, dropped),
        (1, "eval.jsonl", &zeros, dropped),
    ] {
        let path = place.path(&format!("two words/focal-gamma-{run}/{name}"));
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, spoiled(&whole)).unwrap();
        assert!(ends_with(2, &sweep).contains("unfinished run"));
        let said = ends_with(0, &resumed);
        assert!(said.contains(expected), "{said}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
        assert_eq!(std::fs::read(place.path("two words/sweep.json")).unwrap(), table);
    }
}

#[test]
fn a_stopped_sweep_prints_the_command_to_go_on_with() {
    let place = Place::new();
    let (config, out) = (place.text("small.toml"), place.text("long sweep"));
    let sweep = ["sweep", &config, "--out", &out, "--set", "steps=100000", "--grid", "seed=1,2"];
    let child = support::spawned(&sweep).spawn().unwrap();
    let metrics = place.path("long sweep/seed-1/metrics.jsonl");
    support::wait_until("a step", || std::fs::metadata(&metrics).is_ok_and(|m| m.len() > 0));
    support::signal(&child, libc::SIGTERM);
    let (code, said) = support::ended(child);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("--out '{out}'")) && said.contains("--grid seed=1,2 --resume"), "{said}");
}

#[test]
fn a_run_keeps_checkpoints_among_which_recorded_or_later_evaluations_select() {
    let place = Place::new();
    place.train("run", &["--set", "steps=6"]);
    let checkpoint = |step: u64| place.path(&format!("run/checkpoints/step-00000{step}"));
    for (step, optimizer) in [(2, false), (4, true), (6, true)] {
        let has = |name: &str| checkpoint(step).join(name).is_file();
        assert!(has("model.safetensors") && has("optimizer.safetensors") == optimizer, "step {step}");
    }
    for m in lines(&place.path("run/metrics.jsonl")) {
        let [saved, total] = ["save", "total"].map(|part| m["seconds"][part].as_f64().unwrap());
        assert_eq!(saved > 0.0, m["step"].as_u64().unwrap().is_multiple_of(2), "{m}");
        assert!(saved < total, "{m}");
    }
    let evaluations = lines(&place.path("run/eval.jsonl"));
    for e in &evaluations {
        let ks: Vec<&String> = e["pass_at_k"].as_object().unwrap().keys().collect();
        assert_eq!(ks, ["1", "2", "4"]);
        let correct = e["per_problem"].as_array().unwrap().iter().map(|c| c.as_f64().unwrap());
        let mean = correct.sum::<f64>() / 4.0 / 6.0;
        assert!((e["pass_at_k"]["1"].as_f64().unwrap() - mean).abs() < 1e-12, "{e}");
        assert_eq!(e["problem_set"], evaluations[0]["problem_set"]);
    }
    let bounded = ends_with(0, &["train", &place.text("small.toml"), "--dry-run", "--set", "save.keep=1"]);
    assert!(bounded.contains("disk") && bounded.contains("2 checkpoints of"), "{bounded}");

    let run = place.text("run");
    let select = |more: &[&str]| support::json(&[&["select", &run, "--json"], more].concat());
    // Evaluated after each of 6 steps, saved after 2, 4 and 6. Every checkpoint is retained.
    let found = select(&[]);
    assert!(found["chosen"][0]["candidates"] == 3 && found["chosen"][0]["start"].is_number(), "{found}");
    assert_eq!(select(&["--any-step"])["chosen"][0]["candidates"], 6);
    // pass@1 is there although eval.k doesn't contain 1.
    assert_eq!(found["metric"], "pass@1");
    let evaluate = |step: u64, temperature: &str| {
        let (model, out) = (checkpoint(step), place.path(&format!("evals/{step}")));
        let task = command!(
            "eval --task maze --maze-size 7 --maze-problems 5 --name maze -n 3 --model",
            model,
            "--out",
            out,
            "--temperature",
            temperature
        );
        ends(0, task);
    };
    evaluate(2, "1");
    evaluate(4, "1");
    let evals = place.text("evals");
    let found = select(&["--evals", &evals]);
    assert_eq!((&found["chosen"][0]["candidates"], &found["metric"]), (&json!(2), &json!("maze, pass@1")));
    let said = ends_with(2, &["select", &run, "--evals", &evals, "--part", "aime24"]);
    assert!(said.contains("aime24") && said.contains("maze"), "{said}");
    evaluate(6, "0.5");
    let said = ends_with(2, &["select", &run, "--evals", &evals]);
    assert!(said.contains("sampled differently: ") && said.contains("temperature"), "{said}");
    // With only the best policies there is no candidate.
    for step in [2, 4, 6] {
        std::fs::remove_dir_all(checkpoint(step)).unwrap();
    }
    let said = ends_with(2, &["select", &run]);
    assert!(said.contains("no checkpoint of save.every is evaluated"), "{said}");
}

#[test]
fn evaluation_without_held_out_problems_is_refused_before_any_work() {
    let place = Place::new();
    let rows = (0..30).map(|i| format!("{{\"problem\": \"{i} + 1?\", \"answer\": \"{}\"}}\n", i + 1));
    let data = file(place.0.path(), "data.jsonl", &rows.collect::<String>());
    let text = format!(
        "steps = 1\n[model]\npath = {:?}\n[task]\nkind = \"math\"\ndata = {data:?}\nheld_out_share = 0.0001\n[rollout]\nprompts = 2\ngroup_size = 2\nmax_new_tokens = 4\n",
        model()
    );
    let config = file(place.0.path(), "text.toml", &text);
    let said = ends_with(2, &["train", config.to_str().unwrap(), "--out", &place.text("none")]);
    assert!(said.contains("task.held_out: ") && said.contains("task.held_out_share"), "{said}");
    assert!(!place.path("none/metrics.jsonl").exists());
}

#[test]
fn a_report_never_compares_runs_over_different_problems() {
    let place = Place::new();
    let grpo = ["--set", "eval.every=4", "--set", "algorithm.focal_gamma=0"];
    place.train("a", &grpo);
    place.train("b", &["--set", "eval.every=4", "--set", "seed=2", "--set", "algorithm.focal_gamma=0.5"]);
    place.train("other", &[&grpo[..], &["--set", "task.seed=9"]].concat());
    let report = |runs: &[&str], out: &str| {
        let mut args = vec!["report".to_owned()];
        args.extend(runs.iter().map(|r| place.text(r)));
        args.extend(["--out".to_owned(), place.text(out)]);
        ends_with(0, &args.iter().map(String::as_str).collect::<Vec<_>>());
        std::fs::read_to_string(place.path(out)).unwrap()
    };
    let same = report(&["a", "b"], "same.html");
    assert!(
        same.contains("Against GRPO on held-out, F-GRPO, gamma 0.5 ends with pass@1"),
        "no opening sentence"
    );
    assert!(same.contains("Difference to GRPO"));
    let different = report(&["a", "other"], "different.html");
    let differ = "The runs differ in their problems, graders, sampling settings, data or start (held-out: seed 0; seed 9)";
    assert!(different.contains(differ), "not said");
    assert!(!different.contains("Difference to") && !different.contains("Against "));
    // Of three evaluations, the two over the same problems are compared.
    let three = report(&["a", "other", "b"], "three.html");
    assert!(three.contains(differ) && three.contains("Difference to GRPO, "), "{three}");
    let said = ends_with(2, &["select", &place.text("a"), &place.text("other")]);
    assert!(said.contains("problem set"), "{said}");
}

/// An OpenAI-compatible judge that gives every request the same answer, and the requests.
fn judge(content: &str, finish_reason: &str) -> (FaultServer, Arc<Mutex<Vec<Value>>>) {
    let answer = json!({"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}]});
    let seen = Arc::<Mutex<Vec<Value>>>::default();
    let bodies = seen.clone();
    let policy: Policy = Arc::new(move |body| {
        bodies.lock().unwrap().push(body.clone());
        Some(answer.clone())
    });
    (FaultServer::start(Manners { policy: Some(policy), ..Manners::default() }), seen)
}

#[test]
fn a_diversity_judge_sees_the_problem_and_its_useless_reply_is_shown_without_control_characters() {
    let place = Place::new();
    let problem = "What is 3 plus 4?";
    let data = format!("{}\n", json!({"problem": problem, "answer": "7"}));
    let data = file(place.0.path(), "sums.jsonl", &data).display().to_string();
    let way = |i| format!("{}\n", json!({"problem": problem, "response": format!("way {i}: \\boxed{{7}}")}));
    let made = file(place.0.path(), "made.jsonl", &(0..8).map(way).collect::<String>());
    let (made, out) = (made.display().to_string(), place.text("eval"));
    let eval = |n| {
        ends_with(0, &["eval", "--samples", &made, "--data", &data, "--task", "math", "-n", n, "--out", &out])
    };
    assert!(!eval("8").contains("more than"));
    assert!(eval("4").contains("problems with more than 4 samples, from earlier evaluations"));
    let diversity = |server: &FaultServer, more: &[&str]| {
        let url = server.url();
        let words = ["diversity", &out, "--by", "judge", "--server", &url, "--model", "j"];
        support::run(fgrpo().args(words).args(more))
    };
    // A reply with terminal control characters, and one that was cut off after a first score.
    for (content, finish, wanted) in [
        ("\u{9b}2J\u{1b}[31mnothing", "stop", "nothing"),
        ("Score: 1 would mean that they", "length", "would mean"),
    ] {
        let (server, _) = judge(content, finish);
        let (_, said, code) = diversity(&server, &["--data", &data]);
        assert!(code == 1 && said.contains("can't be used") && said.contains(wanted), "{code}: {said}");
        assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
    }
    let (server, seen) = judge("Score: 2", "stop");
    let (_, said, code) = diversity(&server, &[]);
    assert!(code == 2 && said.contains("data: missing"), "{said}");
    let asked = ["--data", &data, "--json"];
    let (first, said, code) = diversity(&server, &asked);
    assert_eq!(code, 0, "{said}");
    let body = seen.lock().unwrap().pop().unwrap();
    // The server's defaults have no effect, and the request is stored with the answer.
    let kept = &lines(&place.path("eval/judgements.jsonl"))[0]["sampling"];
    let printed: Value = serde_json::from_str(&first).unwrap();
    for (name, neutral) in [
        ("temperature", json!(0.0)),
        ("top_p", json!(1.0)),
        ("top_k", json!(-1)),
        ("min_p", json!(0.0)),
        ("repetition_penalty", json!(1.0)),
        ("presence_penalty", json!(0.0)),
    ] {
        for found in [&body[name], &kept[name], &printed["sampling"][name]] {
            assert_eq!(found, &neutral, "{name}");
        }
    }
    let user = body["messages"][1]["content"].as_str().unwrap();
    assert!(user.starts_with("### Problem\nWhat is 3 plus 4?\n\n### Solution 1"), "{user}");
    assert!(user.contains("### Solution 8"), "{user}");
    // The reply is stored.
    assert_eq!(diversity(&server, &asked).0, first);
    assert!(seen.lock().unwrap().is_empty(), "asked again");
    // Only the standard's fields, for servers that refuse others, make another request.
    let (_, said, code) = diversity(&server, &["--data", &data, "--server-api", "openai"]);
    assert_eq!(code, 0, "{said}");
    let body = seen.lock().unwrap().pop().unwrap();
    assert!(body.get("top_k").is_none() && body["top_p"] == 1.0, "{body}");
}

#[test]
fn a_wrong_key_of_a_grid_is_blamed_on_the_grid() {
    let place = Place::new();
    let (config, out) = (place.text("small.toml"), place.text("sweep"));
    let said = |grid: &str, set: &str| {
        ends_with(2, &["sweep", &config, "--grid", grid, "--set", set, "--out", &out])
    };
    let wrong = said("algorithm.focal_gama=0,1", "steps=2");
    assert!(
        wrong.contains("--grid algorithm.focal_gama=0: unknown key") && !wrong.contains("--set"),
        "{wrong}"
    );
    let wrong = said("algorithm.focal_gamma=0,1", "stepz=2");
    assert!(wrong.contains("--set stepz=2: unknown key") && !wrong.contains("--grid"), "{wrong}");
    let wrong = said("update.lr=fast,1e-3", "steps=2");
    assert!(wrong.contains("--grid update.lr=fast: expected a number"), "{wrong}");
}

#[test]
fn a_sweep_averages_over_seeds_of_every_stage() {
    let place = Place::new();
    let (config, out) = (place.text("small.toml"), place.text("sweep"));
    let sweep = ["sweep", &config, "--out", &out, "--set", "steps=1", "--set", "sft.steps=2"];
    ends_with(0, &[&sweep[..], &["--grid", "seed,sft.seed=1:1,2:2"]].concat());
    let table = std::fs::read_to_string(place.path("sweep/sweep.md")).unwrap();
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows.len() == 3 && rows[0].starts_with("| method | runs |"), "{table}");
    assert!(rows[2].starts_with("| F-GRPO, gamma 0.5 | 2 |"), "{table}");
}

#[test]
fn keys_that_vary_together_and_alternatives_make_one_sweep_from_one_start() {
    let place = Place::new();
    let (config, out) = (place.text("small.toml"), place.text("sweep"));
    let sweep = ["sweep", &config, "--out", &out, "--set", "steps=1", "--set", "sft={steps=2, seed=1}"];
    let runs =
        ["--grid", "rollout.group_size,rollout.prompts=2:4,4:2", "--alternative", "algorithm.kl_coef=0.01"];
    let said = ends_with(0, &[&sweep[..], &runs].concat());
    assert_eq!(std::fs::read_dir(place.path("sweep/sft-cache")).unwrap().count(), 1, "{said}");
    let written =
        std::fs::read_to_string(place.path("sweep/group-size-4_prompts-2_kl-coef-0.01/config.toml")).unwrap();
    for line in ["group_size = 4", "prompts = 2", "kl_coef = 0.01"] {
        assert!(written.lines().any(|l| l == line), "{line}: {written}");
    }
    let table = std::fs::read_to_string(place.path("sweep/sweep.md")).unwrap();
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 2 + 4, "{table}");
    assert!(
        rows[0].starts_with("| method | alternative | rollout.group_size | rollout.prompts | runs |"),
        "{table}"
    );
    assert!(rows[2].starts_with("| F-GRPO, gamma 0.5 | base | 2 | 4 | 1 |"), "{table}");
    assert!(
        rows[5].starts_with("| F-GRPO, gamma 0.5, KL penalty 0.01 | algorithm.kl_coef=0.01 | 4 | 2 | 1 |"),
        "{table}"
    );
    let refused = |more: &[&str]| ends_with(2, &[&sweep[..], more].concat());
    let unequal = refused(&["--grid", "rollout.group_size,rollout.prompts=2:4,4"]);
    assert!(
        unequal.contains("expected 2 values") && unequal.contains("rollout.group_size and rollout.prompts"),
        "{unequal}"
    );
    for bad in ["seed", "seed=", "=1", "seed=1,,2", "a,=1:2", "a,b=1:", "a,b=1", "a,b=1:2:3", "a,a=1:2"] {
        let said = refused(&["--grid", bad]);
        assert!(said.contains(&format!("--grid {bad}: ")), "{said}");
    }
    for first in ["seed=1", "a,seed=1:1"] {
        let twice = refused(&["--grid", first, "--grid", "seed=2"]);
        assert!(twice.contains("--grid seed=2: seed is also set by another --grid"), "{twice}");
    }
    let twice = refused(&["--grid", "seed=1,2", "--alternative", "seed=3"]);
    assert!(twice.contains("--alternative seed=3: seed is also set by another --grid"), "{twice}");
    let same = refused(&["--alternative", "algorithm.kl_coef=0.0"]);
    assert!(same.contains("base and kl-coef-0.0") && same.contains("count twice"), "{same}");
    let wrong = refused(&["--alternative", "algorithm.kl=0,1"]);
    assert!(wrong.contains("--alternative algorithm.kl=0"), "{wrong}");
    assert!(refused(&[]).contains("--grid"), "a sweep without runs");
}
