//! `fgrpo eval` on a checkpoint folder through the embedded engine.

use fgrpo_core::rng::Key;
use fgrpo_nn::config::{Architecture, Config, RopeScaling};
use fgrpo_nn::weights::{Dtype, write_checkpoint};
use fgrpo_nn::{Device, Engine};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

/// A maze policy with random weights.
fn checkpoint(dir: &Path, seed: u64) {
    let config = Config {
        architecture: Architecture::Qwen2,
        vocab_size: 32,
        hidden_size: 16,
        intermediate_size: 32,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 8,
        rms_norm_eps: 1e-6,
        rope_theta: 1e6,
        rope_scaling: RopeScaling::Default,
        tie_word_embeddings: true,
        max_position_embeddings: 256,
        bos_token_id: Some(1),
        eos_token_id: vec![2],
        pad_token_id: Some(0),
        ..Config::default()
    };
    let key = Key::new(seed);
    let engine = Engine::init(&config, 0.02, &|i| key.nth_normal(i), &Device::cpu(1)).unwrap();
    let tensors = engine.tensors().map(|(name, shape, values)| (name.to_owned(), shape.to_vec(), values));
    write_checkpoint(dir, &config, tensors, Dtype::F32, u64::MAX).unwrap();
}

fn evaluate(model: &Path, n: &str, out: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fgrpo"))
        .args([
            "eval",
            "--task",
            "maze",
            "--maze-size",
            "9",
            "--maze-problems",
            "6",
            "--max-tokens",
            "12",
            "--json",
            "-n",
            n,
        ])
        .arg("--model")
        .arg(model)
        .arg("--out")
        .arg(out)
        .output()
        .unwrap()
}

fn samples(out: &Path) -> BTreeMap<(String, u64), String> {
    let text = std::fs::read_to_string(out.join("generations.jsonl")).unwrap();
    text.lines()
        .map(|l| {
            let l: Value = serde_json::from_str(l).unwrap();
            let key = (l["problem"].as_str().unwrap().to_owned(), l["sample"].as_u64().unwrap());
            (key, l["text"].as_str().unwrap().to_owned())
        })
        .collect()
}

#[test]
fn samples_of_a_checkpoint_do_not_depend_on_the_runs_they_came_in() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    checkpoint(&model, 1);
    let (once, twice) = (dir.path().join("once"), dir.path().join("twice"));
    let whole = evaluate(&model, "12", &once);
    assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));
    assert!(evaluate(&model, "5", &twice).status.success());
    let rest = evaluate(&model, "12", &twice);
    assert!(rest.status.success());
    assert_eq!(samples(&once).len(), 72);
    assert_eq!(samples(&once), samples(&twice));
    assert_eq!(whole.stdout, rest.stdout);
    let report: Value = serde_json::from_slice(&whole.stdout).unwrap();
    assert_eq!((&report["benchmark"], &report["problems"]), (&"maze-9".into(), &6.into()));
    assert!(report["pass_at_k"]["8"].is_number() && report["truncated"].is_number(), "{report}");
}

#[test]
fn another_checkpoint_does_not_mix_with_a_folders_samples() {
    let dir = tempfile::tempdir().unwrap();
    let (model, moved, other) =
        (dir.path().join("model"), dir.path().join("moved"), dir.path().join("other"));
    checkpoint(&model, 1);
    checkpoint(&other, 2);
    let out = dir.path().join("out");
    assert!(evaluate(&model, "2", &out).status.success());
    std::fs::rename(&model, &moved).unwrap();
    assert!(evaluate(&moved, "3", &out).status.success(), "a checkpoint is its weights, not its path");
    let refused = evaluate(&other, "3", &out);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("model: the folder has"));
}

#[test]
fn a_training_configuration_names_its_held_out_mazes() {
    let dir = tempfile::tempdir().unwrap();
    let (model, out, config) =
        (dir.path().join("model"), dir.path().join("out"), dir.path().join("train.toml"));
    checkpoint(&model, 1);
    let text = "steps = 5\n[model.init]\nhidden_size = 8\nintermediate_size = 8\nnum_hidden_layers = 1\nnum_attention_heads = 1\nnum_key_value_heads = 1\n[task]\nkind = \"maze\"\nsize = 7\nheld_out = 3\nreward = \"reaches_goal\"\n[eval]\nsamples = 4\nk = [1, 4]\n";
    std::fs::write(&config, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fgrpo"))
        .arg("eval")
        .arg(&config)
        .args(["--json", "--max-tokens", "20", "--model"])
        .arg(&model)
        .arg("--out")
        .arg(&out)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["benchmark"], &report["problems"], &report["samples"]),
        (&"maze-7".into(), &3.into(), &12.into())
    );
}

/// Samples of 9x9 mazes from another program: the shortest path of each maze.
fn solved(dir: &Path, out: &Path) {
    use fgrpo_core::maze::{Split, generate, tokens};
    let lines: Vec<String> = (0..6)
        .map(|i| {
            let maze = generate(9, 0, Split::HeldOut.index(i));
            let path = tokens::spell(&tokens::completion(&maze.solve().unwrap()));
            format!("{{\"problem\":{i},\"sample\":0,\"text\":\"{path}\"}}")
        })
        .collect();
    let file = dir.join("solved.jsonl");
    std::fs::write(&file, lines.join("\n")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fgrpo"))
        .args(["eval", "--task", "maze", "--maze-size", "9", "--maze-problems", "6", "-n", "1", "--samples"])
        .arg(&file)
        .arg("--out")
        .arg(out)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_model_equal_to_the_base_has_no_increase_in_nll_and_another_one_has() {
    let dir = tempfile::tempdir().unwrap();
    let (base, other, out) = (dir.path().join("base"), dir.path().join("other"), dir.path().join("out"));
    checkpoint(&base, 1);
    checkpoint(&other, 2);
    solved(dir.path(), &out);
    let output = Command::new(env!("CARGO_BIN_EXE_fgrpo"))
        .arg("nll")
        .arg(&out)
        .args(["--json", "--share", "0.5", "--pool", "1", "--base"])
        .arg(&base)
        .args([
            "--model",
            &format!("same={}", base.display()),
            "--model",
            &format!("other={}", other.display()),
        ])
        .args(["--", "--task", "maze", "--maze-size", "9", "--maze-problems", "6"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["correct"], &found["rare"], &found["prompts"]), (&6.into(), &3.into(), &6.into()));
    // With new weights the distribution is nearly uniform over 32 tokens.
    assert!((found["base_nll"].as_f64().unwrap() - 32f64.ln()).abs() < 0.5, "{found}");
    assert_eq!(found["models"][0]["increase"], 0.0);
    let increase = found["models"][1]["increase"].as_f64().unwrap();
    assert!(increase != 0.0 && increase.abs() < 0.5, "{found}");
    assert!(found["models"][1]["mass_higher"].as_u64().unwrap() <= 6, "{found}");
}
