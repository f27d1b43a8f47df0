//! A language model trained end to end by the binary: tokenizer, demonstrations, verifier, checkpoints.

use crate::support::{assert_same_files, copy, ends, file, lines, sets, small_run, sums_run, tells};
use std::path::Path;

const TINY: [&str; 13] = [
    "steps=2",
    "sft.steps=3",
    "task.train=64",
    "task.held_out=4",
    "model.init.hidden_size=16",
    "model.init.intermediate_size=32",
    "model.init.num_hidden_layers=1",
    "rollout.prompts=4",
    "rollout.group_size=2",
    "rollout.max_new_tokens=12",
    "eval.every=1",
    "eval.samples=2",
    "eval.k=[1,2]",
];

#[test]
fn arithmetic_trains_and_its_checkpoint_reads_as_a_model_of_problems_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("runs/arithmetic");
    let (printed, _) = ends(0, command!("train arithmetic-quick", ..sets(&TINY), "--out", &out));
    assert!(printed.contains("pass@1"), "{printed}");
    let checkpoint = out.join("checkpoints/step-000002");
    for file in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"] {
        assert!(checkpoint.join(file).exists(), "{file}");
    }

    // The checkpoint is a model folder like any other: train it on problems from a file.
    let config = sums_run(
        folder.path(),
        &checkpoint,
        &["steps=1", "eval={ every = 1, samples = 2, k = [1] }", "task.held_out_share=0.2"],
    );
    tells(0, command!("train", &config, "--out", folder.path().join("runs/math")), "32 rows read");
}

/// Only Linux reports the available memory.
const FITS_NOT: &str = if cfg!(target_os = "linux") { "warning: not enough memory" } else { "" };

#[test]
fn a_dry_run_says_what_is_missing_and_succeeds() {
    for name in ["qwen2.5-7b-math", "qwen3-1.7b-synlogic"] {
        let (printed, said) = ends(0, command!("train", name, "--dry-run"));
        assert!(printed.contains("focal_gamma = 0.5"), "{printed}");
        for part in ["missing: models/", "tokens per step", "time per step", FITS_NOT] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

/// Two sources of problems with one tokenizer, and completions that end at a stop string.
fn mix(data: &Path) -> String {
    let arithmetic = r#"{kind = "arithmetic", train = 64, held_out = 3, weight = 2.0}"#;
    let options = format!(r#"{{name = "options", kind = "choice", data = {data:?}, held_out_share = 0.3}}"#);
    let task = format!(r#"task={{kind = "mix", stop = [" ="], parts = [{arithmetic}, {options}]}}"#);
    small_run(&[
        &task,
        r#"model.init.architecture="qwen3""#,
        "sft.steps=60",
        "sft.batch_size=8",
        "sft.lr=1e-2",
        "rollout.prompts=6",
        "rollout.group_size=2",
        "rollout.max_new_tokens=24",
        "eval.samples=2",
        "eval.k=[1, 2]",
        r#"eval.average="parts""#,
        "compute.threads=2",
        "log.rollout_share=1.0",
    ])
}

#[test]
fn a_mixed_run_resumes_bit_for_bit_evaluates_by_part_and_stops_at_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let row = |i: u32| {
        format!(
            r#"{{"Question": "Which is {i}?", "Correct Answer": "{i}", "Incorrect Answer 1": "x{i}", "Incorrect Answer 2": "y{i}", "Incorrect Answer 3": "z{i}"}}"#
        ) + "\n"
    };
    let data = file(folder.path(), "choices.jsonl", &(0..20).map(row).collect::<String>());
    let config = file(folder.path(), "mix.toml", &mix(&data));
    let (whole, resumed) = (folder.path().join("whole"), folder.path().join("resumed"));
    ends(0, command!("train", &config, "--out", &whole));
    copy(&whole, &resumed);
    std::fs::remove_dir_all(resumed.join("checkpoints/step-000004")).unwrap();
    ends(0, command!("train", &config, "--resume --out", &resumed));
    let names = ["rollouts.jsonl", "eval.jsonl", "checkpoints/step-000004/model.safetensors"];
    assert_same_files(&whole, &resumed, &names);
    let lines = |name: &str| lines(&whole.join(name));
    // In every step, 4 of 6 prompts come from the heavier part.
    let rollouts = lines("rollouts.jsonl");
    for step in 1..=4 {
        let of_step = rollouts.iter().filter(|r| r["step"] == step);
        let prompts: Vec<u64> =
            of_step.filter(|r| r["sample"] == 0).map(|r| r["prompt_id"].as_u64().unwrap()).collect();
        assert_eq!((prompts.len(), prompts.iter().filter(|&&id| id < 64).count()), (6, 4), "{prompts:?}");
    }
    for r in &rollouts {
        let wanted = if r["prompt_id"].as_u64().unwrap() < 64 { "arithmetic" } else { "options" };
        assert_eq!(r["part"], wanted);
    }
    let rewards = lines("metrics.jsonl").pop().unwrap()["reward_by_part"].as_object().unwrap().clone();
    assert_eq!(rewards.keys().collect::<Vec<_>>(), ["arithmetic", "options"]);
    let mut stopped = 0;
    for r in &rollouts {
        let text = r["completion"].as_str().unwrap();
        stopped += usize::from(text.ends_with(" ="));
        assert!(text.find(" =").is_none_or(|at| at + 2 == text.len()), "{text:?} goes on behind its end");
    }
    assert!(stopped > rollouts.len() / 4, "{stopped} of {} completions hold the text", rollouts.len());

    let last = lines("eval.jsonl").pop().unwrap();
    let part = |name: &str, what: &str| last["parts"][name][what].clone();
    assert_eq!(part("arithmetic", "problems"), 3);
    let total = 3 + part("options", "problems").as_u64().unwrap();
    assert_eq!(last["problems"].as_u64(), Some(total));
    // The counts of each part's problems, which give its pass@1.
    assert_eq!(last["average"], "parts");
    for name in ["arithmetic", "options"] {
        let correct: Vec<u64> = serde_json::from_value(part(name, "per_problem")).unwrap();
        assert_eq!(Some(correct.len() as u64), part(name, "problems").as_u64());
        let rate = correct.iter().sum::<u64>() as f64 / (2 * correct.len()) as f64;
        assert!((part(name, "pass_at_k")["1"].as_f64().unwrap() - rate).abs() < 1e-12);
    }
    let of = |name: &str| part(name, "pass_at_k")["1"].as_f64().unwrap();
    let mean = (of("arithmetic") + of("options")) / 2.0;
    assert!((last["pass_at_k"]["1"].as_f64().unwrap() - mean).abs() < 1e-12);
    let page = std::fs::read_to_string(whole.join("report.html")).unwrap();
    assert!(page.contains("held-out, options"), "the report shows each part");

    // The same string ends the responses of an evaluation, which don't contain it.
    let problem = r#"{"problem": "Start with 3. Add 4. What is the result?", "answer": "7"}"#;
    let problems = file(folder.path(), "sums.jsonl", problem);
    let model = whole.join("checkpoints/step-000004");
    let (eval, out) =
        (["--task", "math", "-n", "20", "--max-tokens", "24", "--stop", " ="], folder.path().join("eval"));
    ends(0, command!("eval", ..eval, "--model", model, "--data", problems, "--out", &out));
    let kept = std::fs::read_to_string(out.join("generations.jsonl")).unwrap();
    assert!(!kept.contains(" =") && kept.contains("\"finish\":\"stop\""), "{kept}");
}
