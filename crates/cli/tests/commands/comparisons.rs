//! Results of runs for comparisons: sweeps, selected checkpoints, evaluations, times. Results that can't be compared are
//! refused.

use crate::support::{self, ends, ends_with, fgrpo, lines, small_run};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::PathBuf;

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
fn a_sweep_refuses_runs_of_another_configuration_and_runs_that_count_twice() {
    let place = Place::new();
    let (config, out) = (place.text("small.toml"), place.text("sweep"));
    let sweep = ["sweep", &config, "--out", &out, "--set", "steps=2", "--grid", "algorithm.focal_gamma=0,1"];
    ends_with(0, &sweep);
    assert!(ends_with(0, &sweep).contains("2 of 2 runs are finished"));
    for resume in [&[][..], &["--resume"]] {
        let said = ends_with(2, &[&sweep[..], &["--set", "update.lr=0.5"], resume].concat());
        assert!(said.contains("another configuration") && said.contains("update.lr: 0.001 -> 0.5"), "{said}");
    }
    for twice in ["seed=1,1", "update.lr=0.1,1e-1"] {
        let said = ends_with(2, &["sweep", &config, "--out", &out, "--grid", twice]);
        assert!(said.contains("--grid") && said.contains("count twice"), "{said}");
    }
}

#[test]
fn a_sweep_goes_on_with_a_run_whose_last_evaluation_is_missing() {
    let place = Place::new();
    let (config, out) = (place.text("small.toml"), place.text("sweep"));
    let sweep = [
        "sweep",
        &config,
        "--out",
        &out,
        "--set",
        "steps=2",
        "--grid",
        "algorithm.focal_gamma=0,1",
        "--resume",
    ];
    ends_with(0, &sweep);
    let table = std::fs::read(place.path("sweep/sweep.json")).unwrap();
    // A signal in the last evaluation saves the last step, writes the report and leaves the evaluation out.
    let evaluations = place.path("sweep/focal-gamma-1/eval.jsonl");
    let all = std::fs::read_to_string(&evaluations).unwrap();
    let kept: Vec<&str> = all.lines().filter(|l| !l.contains("\"step\":2,")).collect();
    assert_eq!(kept.len() + 1, all.lines().count());
    std::fs::write(&evaluations, kept.join("\n") + "\n").unwrap();
    let unfinished = ends_with(2, &sweep[..8]);
    assert!(unfinished.contains("unfinished run"), "{unfinished}");
    let said = ends_with(0, &sweep);
    assert!(said.contains("1 of 2 runs are finished") && !said.contains("[1/2]"), "{said}");
    assert_eq!(std::fs::read_to_string(&evaluations).unwrap(), all);
    assert_eq!(std::fs::read(place.path("sweep/sweep.json")).unwrap(), table);
}

#[test]
fn a_sweep_goes_on_over_lines_that_a_power_cut_spoiled_and_prints_the_command_to_go_on_with() {
    let place = Place::new();
    let (config, out) = (place.text("small.toml"), place.text("two words"));
    let sweep = ["sweep", &config, "--out", &out, "--set", "steps=2", "--grid", "algorithm.focal_gamma=0,1"];
    ends_with(0, &sweep);
    let table = std::fs::read(place.path("two words/sweep.json")).unwrap();
    for (run, lines) in [("0", "metrics.jsonl"), ("1", "eval.jsonl")] {
        let path = place.path(&format!("two words/focal-gamma-{run}")).join(lines);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], b"\0\0\0\n"].concat()).unwrap();
        assert!(ends_with(2, &sweep).contains("unfinished run"));
        let said = ends_with(0, &[&sweep[..], &["--resume"]].concat());
        assert!(said.contains("1 lines that aren't JSON were dropped"), "{said}");
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        assert_eq!(std::fs::read(place.path("two words/sweep.json")).unwrap(), table);
    }
    let long = place.text("long sweep");
    let sweep = ["sweep", &config, "--out", &long, "--set", "steps=100000", "--grid", "seed=1,2"];
    let child = support::spawned(&sweep).spawn().unwrap();
    let metrics = place.path("long sweep/seed-1/metrics.jsonl");
    support::wait_until("a step", || std::fs::metadata(&metrics).is_ok_and(|m| m.len() > 0));
    support::signal(&child, libc::SIGTERM);
    let (code, said) = support::ended(child);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("--out '{long}'")) && said.contains("--grid seed=1,2 --resume"), "{said}");
}

#[test]
fn selected_checkpoints_are_those_of_save_every_by_recorded_or_later_evaluations() {
    let place = Place::new();
    place.train("run", &[]);
    let run = place.text("run");
    let select = |more: &[&str]| -> Value {
        let (found, said, code) = support::run(fgrpo().args(["select", &run, "--json"]).args(more));
        assert_eq!(code, 0, "{said}");
        serde_json::from_str(&found).unwrap()
    };
    // Evaluated after each of 4 steps, saved after 2 and 4. Every checkpoint is retained.
    let found = select(&[]);
    assert_eq!(found["chosen"][0]["candidates"], 2, "{found}");
    assert!(found["chosen"][0]["start"].is_number());
    assert_eq!(select(&["--any-step"])["chosen"][0]["candidates"], 4);
    // pass@1 is there although eval.k doesn't contain 1.
    assert_eq!(found["metric"], "pass@1");
    for (step, n) in [(2, "3"), (4, "3")] {
        let model = place.text(&format!("run/checkpoints/step-00000{step}"));
        let out = place.text(&format!("evals/{step}"));
        let task = ["--task", "maze", "--maze-size", "7", "--maze-problems", "5", "--name", "maze"];
        ends_with(0, &[&["eval", "--model", &model, "--out", &out, "-n", n][..], &task[..]].concat());
    }
    let evals = place.text("evals");
    let found = select(&["--evals", &evals]);
    assert_eq!((&found["chosen"][0]["candidates"], &found["metric"]), (&json!(2), &json!("maze, pass@1")));
    let said = ends_with(2, &["select", &run, "--evals", &evals, "--part", "aime24"]);
    assert!(said.contains("aime24") && said.contains("maze"), "{said}");
    // With only the best policies there is no candidate.
    for step in [2, 4] {
        std::fs::remove_dir_all(place.path(&format!("run/checkpoints/step-00000{step}"))).unwrap();
    }
    let said = ends_with(2, &["select", &run]);
    assert!(said.contains("no checkpoint of save.every is evaluated"), "{said}");
}

#[test]
fn a_run_keeps_checkpoints_and_says_when_and_how_long() {
    let place = Place::new();
    place.train("run", &["--set", "steps=6"]);
    let checkpoints = |name: &str| place.path(&format!("run/checkpoints/{name}"));
    for (step, optimizer) in [(2, false), (4, true), (6, true)] {
        let folder = checkpoints(&format!("step-00000{step}"));
        assert!(folder.join("model.safetensors").is_file(), "step {step}");
        assert_eq!(folder.join("optimizer.safetensors").is_file(), optimizer, "step {step}");
    }
    for m in lines(&place.path("run/metrics.jsonl")) {
        let (saved, total) =
            (m["seconds"]["save"].as_f64().unwrap(), m["seconds"]["total"].as_f64().unwrap());
        assert_eq!(saved > 0.0, m["step"].as_u64().unwrap() % 2 == 0, "{m}");
        assert!(saved < total, "{m}");
    }
    for e in lines(&place.path("run/eval.jsonl")) {
        let ks: Vec<&String> = e["pass_at_k"].as_object().unwrap().keys().collect();
        assert_eq!(ks, ["1", "2", "4"]);
        let mean =
            e["per_problem"].as_array().unwrap().iter().map(|c| c.as_f64().unwrap() / 4.0).sum::<f64>() / 6.0;
        assert!((e["pass_at_k"]["1"].as_f64().unwrap() - mean).abs() < 1e-12, "{e}");
        assert_eq!(e["problem_set"], lines(&place.path("run/eval.jsonl"))[0]["problem_set"]);
    }
    let bounded = ends_with(0, &["train", &place.text("small.toml"), "--dry-run", "--set", "save.keep=1"]);
    assert!(bounded.contains("disk") && bounded.contains("2 checkpoints of"), "{bounded}");
}

#[test]
fn evaluation_without_held_out_problems_is_refused_before_any_work() {
    let place = Place::new();
    let arithmetic = "arithmetic-quick";
    let small = ["--set", "task.train=30", "--set", "task.held_out=2", "--set", "model.init.hidden_size=16"];
    let data = place.text("problems.jsonl");
    ends(0, command!("data arithmetic", arithmetic, "--split train --out", &data, ..&small[..4]));
    let base = place.text("base");
    ends_with(0, &[&["sft", arithmetic, "--out", &base, "--set", "sft.steps=1"][..], &small[..]].concat());
    let config = place.path("text.toml");
    let base = place.text("base/checkpoints/step-000001");
    let toml = format!(
        "steps = 1\n[model]\npath = {base:?}\n[task]\nkind = \"math\"\ndata = {data:?}\nheld_out_share = 0.0001\n[rollout]\nprompts = 2\ngroup_size = 2\nmax_new_tokens = 4\n"
    );
    std::fs::write(&config, toml).unwrap();
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
    let differ = "The runs differ in their problems, graders, data or start (held-out: seed 0; seed 9)";
    assert!(different.contains(differ), "not said");
    assert!(!different.contains("Difference to") && !different.contains("Against "));
    // Of three evaluations, the two over the same problems are compared.
    let three = report(&["a", "other", "b"], "three.html");
    assert!(three.contains(differ) && three.contains("Difference to GRPO, "), "{three}");
    let said = ends_with(2, &["select", &place.text("a"), &place.text("other")]);
    assert!(said.contains("problem set"), "{said}");
}

/// A judge's answer.
fn reply(content: &str, finish_reason: &str) -> Value {
    json!({"choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}]})
}

/// An OpenAI-compatible judge that gives this many requests the same answer and returns the requests.
fn judge(requests: usize, answer: Value) -> (String, std::thread::JoinHandle<Vec<Value>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let mut seen = Vec::new();
        for stream in listener.incoming().take(requests) {
            let mut stream = stream.unwrap();
            let mut bytes = Vec::new();
            let mut buffer = [0; 4096];
            let body = loop {
                let n = stream.read(&mut buffer).unwrap();
                bytes.extend(&buffer[..n]);
                let head = String::from_utf8_lossy(&bytes).into_owned();
                let Some((head, _)) = head.split_once("\r\n\r\n") else { continue };
                let length = head.lines().find_map(|l| {
                    let (name, value) = l.split_once(':')?;
                    name.eq_ignore_ascii_case("content-length")
                        .then(|| value.trim().parse::<usize>().unwrap())
                });
                let wanted = head.len() + 4 + length.unwrap_or(0);
                if bytes.len() >= wanted {
                    break bytes[head.len() + 4..wanted].to_vec();
                }
            };
            seen.push(serde_json::from_slice(&body).unwrap());
            let answer = answer.to_string();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{answer}",
                answer.len()
            )
            .unwrap();
        }
        seen
    });
    (address, thread)
}

#[test]
fn a_diversity_judge_sees_the_problem() {
    let place = Place::new();
    let data = place.text("sums.jsonl");
    std::fs::write(&data, "{\"problem\": \"What is 3 plus 4?\", \"answer\": \"7\"}\n").unwrap();
    let samples: String = (0..8)
        .map(|i| {
            format!("{{\"problem\": \"What is 3 plus 4?\", \"response\": \"way {i}: \\\\boxed{{7}}\"}}\n")
        })
        .collect();
    std::fs::write(place.path("made.jsonl"), samples).unwrap();
    let (made, out) = (place.text("made.jsonl"), place.text("eval"));
    let eval = |n| {
        ends_with(0, &["eval", "--samples", &made, "--data", &data, "--task", "math", "-n", n, "--out", &out])
    };
    assert!(!eval("8").contains("more than"));
    assert!(eval("4").contains("problems with more than 4 samples, from earlier evaluations"));
    let without = ["diversity", &out, "--by", "judge", "--server", "http://127.0.0.1:9", "--model", "j"];
    assert!(ends_with(2, &without).contains("data: missing"));
    let (address, seen) = judge(1, reply("Score: 2", "stop"));
    let args =
        ["diversity", &out, "--by", "judge", "--server", &address, "--model", "j", "--data", &data, "--json"];
    let (first, said, code) = support::run(fgrpo().args(args));
    assert_eq!(code, 0, "{said}");
    let seen = seen.join().unwrap();
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
        for found in [&seen[0][name], &kept[name], &printed["sampling"][name]] {
            assert_eq!(found, &neutral, "{name}");
        }
    }
    let user = seen[0]["messages"][1]["content"].as_str().unwrap();
    assert!(user.starts_with("### Problem\nWhat is 3 plus 4?\n\n### Solution 1"), "{user}");
    assert!(user.contains("### Solution 8"), "{user}");
    // The reply is stored, and the server is stopped by now.
    assert_eq!(support::run(fgrpo().args(args)).0, first);
    // Only the standard's fields, for servers that refuse others, make another request.
    let (address, seen) = judge(1, reply("Score: 2", "stop"));
    let args = ["diversity", &out, "--by", "judge", "--server", &address, "--model", "j", "--data", &data];
    ends_with(0, &[&args[..], &["--server-api", "openai"]].concat());
    let body = &seen.join().unwrap()[0];
    assert!(body.get("top_k").is_none() && body["top_p"] == 1.0, "{body}");
}

#[test]
fn a_judges_useless_reply_is_shown_without_control_characters() {
    let place = Place::new();
    let data = place.text("sums.jsonl");
    std::fs::write(&data, "{\"problem\": \"What is 3 plus 4?\", \"answer\": \"7\"}\n").unwrap();
    let samples: String = (0..8)
        .map(|i| {
            format!("{{\"problem\": \"What is 3 plus 4?\", \"response\": \"way {i}: \\\\boxed{{7}}\"}}\n")
        })
        .collect();
    std::fs::write(place.path("made.jsonl"), samples).unwrap();
    let (made, out) = (place.text("made.jsonl"), place.text("eval"));
    ends_with(0, &["eval", "--samples", &made, "--data", &data, "--task", "math", "-n", "8", "--out", &out]);
    // A reply with terminal control characters, and one that was cut off after a first score.
    for (answer, wanted) in [
        (reply("\u{9b}2J\u{1b}[31mnothing", "stop"), "nothing"),
        (reply("Score: 1 would mean that they", "length"), "would mean"),
    ] {
        let (address, seen) = judge(4, answer);
        let message =
            ends(1, command!("diversity", &out, "--by judge --server", &address, "--model j --data", &data))
                .1;
        seen.join().unwrap();
        assert!(message.contains("can't be used") && message.contains(wanted), "{message}");
        assert!(!message.contains(|c: char| c.is_control() && c != '\n'), "{message:?}");
    }
}

#[test]
fn a_wrong_key_of_a_grid_is_blamed_on_the_grid() {
    let place = Place::new();
    let config = place.text("small.toml");
    std::fs::write(&config, self::config()).unwrap();
    let out = place.text("sweep");
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
fn keys_that_vary_together_and_alternatives_make_one_sweep_from_one_start() {
    let place = Place::new();
    let (config, out) = (place.text("small.toml"), place.text("sweep"));
    let sweep = ["sweep", &config, "--out", &out, "--set", "steps=1", "--set", "sft={steps=2, seed=1}"];
    let runs = [
        "--grid",
        "rollout.group_size,rollout.prompts=2:4,4:2",
        "--grid",
        "seed=1,2",
        "--alternative",
        "algorithm.kl_coef=0.01",
    ];
    let said = ends_with(0, &[&sweep[..], &runs].concat());
    assert_eq!(std::fs::read_dir(place.path("sweep/sft-cache")).unwrap().count(), 1, "{said}");
    let written =
        std::fs::read_to_string(place.path("sweep/group-size-4_prompts-2_seed-2_kl-coef-0.01/config.toml"))
            .unwrap();
    for line in ["group_size = 4", "prompts = 2", "kl_coef = 0.01", "seed = 2"] {
        assert!(written.lines().any(|l| l == line), "{line}: {written}");
    }
    let table = std::fs::read_to_string(place.path("sweep/sweep.md")).unwrap();
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 2 + 4, "{table}");
    assert!(
        rows[0].starts_with("| method | alternative | rollout.group_size | rollout.prompts | runs |"),
        "{table}"
    );
    assert!(rows[2].starts_with("| F-GRPO, gamma 0.5 | base | 2 | 4 | 2 |"), "{table}");
    assert!(
        rows[5].starts_with("| F-GRPO, gamma 0.5, KL penalty 0.01 | algorithm.kl_coef=0.01 | 4 | 2 | 2 |"),
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

#[test]
fn theory_mass_explains_every_row_and_draws_bars() {
    let args = ["theory", "mass", "--probabilities", "0.6,0.1,0.3", "--correct", "0,1", "--sample", "0,2"];
    let (said, ..) = support::run(fgrpo().args(args).args(["--subset", "1"]));
    let (json, ..) = support::run(fgrpo().args(args).arg("--json"));
    let value: Value = serde_json::from_str(&json).unwrap();
    let named = |table: &Value| {
        for (key, _) in table.as_object().unwrap().iter().filter(|(_, v)| v.is_number()) {
            let row = said.lines().find(|l| l.trim_start().starts_with(&format!("{key} ")));
            let row = row.unwrap_or_else(|| panic!("{key} is not explained:\n{said}"));
            assert!(row.split_whitespace().count() >= 4, "{row}");
        }
    };
    named(&value);
    named(&value["delta_q_pos"]);
    named(&value["delta_q_unsampled_pos"]);
    assert!(said.contains("change of the mass of --subset") && said.contains('\u{2588}'), "{said}");
    assert!(said.lines().all(|l| l.chars().count() <= 110), "{said}");
}
