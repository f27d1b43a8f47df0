//! A language model trained end to end by the binary: tokenizer, demonstrations, verifier, checkpoints.

use assert_cmd::Command;
use predicates::prelude::*;
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

fn fgrpo() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fgrpo"))
}

#[test]
fn arithmetic_trains_and_its_checkpoint_reads_as_a_model_of_problems_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let out = folder.path().join("runs/arithmetic");
    let mut command = fgrpo();
    command.arg("train").arg(configs.join("arithmetic-quick.toml")).arg("--out").arg(&out);
    for set in TINY {
        command.args(["--set", set]);
    }
    command.assert().success().stdout(predicate::str::contains("pass@1"));
    let checkpoint = out.join("checkpoints/step-000002");
    for file in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"] {
        assert!(checkpoint.join(file).exists(), "{file}");
    }

    // The checkpoint is a model folder like any other: train it on problems from a file.
    let data = folder.path().join("problems.jsonl");
    let rows: Vec<String> = (1..40)
        .map(|i| format!(r#"{{"problem": "Start with {i}. Add 1.", "answer": "{}"}}"#, i + 1))
        .collect();
    std::fs::write(&data, rows.join("\n")).unwrap();
    let config = folder.path().join("math.toml");
    std::fs::write(
        &config,
        format!(
            "steps = 1\n[task]\nkind = \"math\"\ndata = {data:?}\nheld_out_share = 0.2\n[model]\npath = {checkpoint:?}\n\
             [rollout]\nprompts = 4\ngroup_size = 2\nmax_new_tokens = 8\n[eval]\nsamples = 2\nk = [1]\n"
        ),
    )
    .unwrap();
    fgrpo()
        .arg("train")
        .arg(&config)
        .arg("--out")
        .arg(folder.path().join("runs/math"))
        .assert()
        .success()
        .stderr(predicate::str::contains("39 rows read"));
}

#[test]
fn a_dry_run_says_what_is_missing_and_succeeds() {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    for name in ["qwen2.5-7b-math", "qwen3-4b-base-math", "llama-3.2-3b-math", "qwen3-1.7b-synlogic"] {
        fgrpo()
            .arg("train")
            .arg(configs.join(format!("{name}.toml")))
            .arg("--dry-run")
            .assert()
            .success()
            .stdout(predicate::str::contains("focal_gamma = 0.5"))
            .stderr(
                predicate::str::contains("not there yet: models/")
                    .and(predicate::str::contains("tokens per step")),
            );
    }
}
