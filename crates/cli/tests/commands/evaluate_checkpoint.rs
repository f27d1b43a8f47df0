//! `fgrpo eval` on a checkpoint folder through the embedded engine.

use crate::support::{ends, file, lines};
use fgrpo_core::rng::Key;
use fgrpo_nn::config::{Architecture, Config, RopeScaling};
use fgrpo_nn::weights::{Dtype, write_checkpoint};
use fgrpo_nn::{Device, Engine};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

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

const MAZES: &str = "--task maze --maze-size 9 --maze-problems 6";

/// Returns stdout and stderr.
#[track_caller]
fn evaluate(code: i32, model: &Path, n: u64, out: &Path) -> (String, String) {
    let mazes = MAZES.split(' ');
    ends(
        code,
        command!("eval --max-tokens 12 --json -n", n.to_string(), ..mazes, "--model", model, "--out", out),
    )
}

fn samples(out: &Path) -> BTreeMap<(String, u64), String> {
    let sample = |line: &Value| {
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        ((text("problem"), line["sample"].as_u64().unwrap()), text("text"))
    };
    lines(&out.join("generations.jsonl")).iter().map(sample).collect()
}

#[test]
fn samples_of_a_checkpoint_do_not_depend_on_the_runs_they_came_in() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    checkpoint(&model, 1);
    let (once, twice) = (dir.path().join("once"), dir.path().join("twice"));
    let (whole, _) = evaluate(0, &model, 12, &once);
    evaluate(0, &model, 5, &twice);
    let (rest, _) = evaluate(0, &model, 12, &twice);
    assert_eq!(samples(&once).len(), 72);
    assert_eq!(samples(&once), samples(&twice));
    assert_eq!(whole, rest);
    let report: Value = serde_json::from_str(&whole).unwrap();
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
    evaluate(0, &model, 2, &out);
    // A checkpoint is its weights, not its path.
    std::fs::rename(&model, &moved).unwrap();
    evaluate(0, &moved, 3, &out);
    assert!(evaluate(2, &other, 3, &out).1.contains("model: the folder has"));
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
    let file = file(dir, "solved.jsonl", &lines.join("\n"));
    ends(0, command!("eval -n 1", ..MAZES.split(' '), "--samples", file, "--out", out));
}

#[test]
fn a_model_equal_to_the_base_has_no_increase_in_nll_and_another_one_has() {
    let dir = tempfile::tempdir().unwrap();
    let (base, other, out) = (dir.path().join("base"), dir.path().join("other"), dir.path().join("out"));
    checkpoint(&base, 1);
    checkpoint(&other, 2);
    solved(dir.path(), &out);
    let models =
        [("same", &base), ("other", &other)].map(|(name, path)| format!("{name}={}", path.display()));
    let models = models.iter().flat_map(|model| ["--model", model]);
    let mazes = ["--"].into_iter().chain(MAZES.split(' '));
    let (printed, _) =
        ends(0, command!("nll --json --share 0.5 --pool 1 --base", &base, &out, ..models, ..mazes));
    let found: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&found["correct"], &found["rare"], &found["prompts"]), (&6.into(), &3.into(), &6.into()));
    // With new weights the distribution is nearly uniform over 32 tokens.
    assert!((found["base_nll"].as_f64().unwrap() - 32f64.ln()).abs() < 0.5, "{found}");
    assert_eq!(found["models"][0]["increase"], 0.0);
    let increase = found["models"][1]["increase"].as_f64().unwrap();
    assert!(increase != 0.0 && increase.abs() < 0.5, "{found}");
    assert!(found["models"][1]["mass_higher"].as_u64().unwrap() <= 6, "{found}");
}
