//! LoRA through the commands: training, resumes, merging, evaluation with an adapter, wrong settings.

use crate::support::{
    assert_same_files, count, demonstrated, ends, fgrpo, lines, spawned, sums_run, tells, wait_until,
};
use predicates::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A model of two layers, made once.
fn base() -> &'static Path {
    static MODEL: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let made = MODEL.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let model = demonstrated(folder.path(), 3, &["model.init.num_hidden_layers=2"]);
        (folder, model)
    });
    &made.1
}

/// The last checkpoint of a run.
const LAST: &str = "checkpoints/step-000006";

/// A stage before RL.
const SFT: &str = "sft={ steps = 9, batch_size = 4, save_every = 2, eval_every = 0 }";

fn config(folder: &Path, model: &Path, lora: &[&str]) -> PathBuf {
    let common = [
        "steps=6",
        "lora={ rank = 4, alpha = 8 }",
        "algorithm={ kl_coef = 0.05, entropy_coef = 0.01, reward_wrong = -1 }",
        "update={ lr = 1e-2, mini_batch = 2 }",
    ];
    sums_run(folder, model, &[&common[..], lora].concat())
}

fn train(config: &Path, out: &Path) {
    ends(0, command!("train", config, "--resume --out", out));
}

/// Kills a training run once `file` has as many lines.
fn kill_at(config: &Path, out: &Path, file: &str, wanted: usize) {
    let mut child = spawned(&["train"]).arg(config).args(["--resume", "--out"]).arg(out).spawn().unwrap();
    wait_until(file, || count(&out.join(file)) >= wanted || child.try_wait().unwrap().is_some());
    let _ = child.kill();
    child.wait().unwrap();
}

fn tensor(folder: &Path, name: &str) -> Vec<u8> {
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    safetensors::SafeTensors::deserialize(&bytes).unwrap().tensor(name).unwrap().data().to_vec()
}

#[test]
fn killed_and_resumed_lora_run_equals_the_uninterrupted_one_bit_for_bit() {
    for lora in [
        "rank = 4",
        "base = \"nf4\"",
        "base = \"int8\", save_merged = false, targets = [\"q_proj\", \"down_proj\"], use_rslora = true",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let model = base();
        let config = config(folder.path(), model, &[SFT, &format!("lora={{ alpha = 8, {lora} }}")]);
        // With a supervised stage, whose adapter RL continues and whose result is the reference.
        let (whole, killed) = (folder.path().join("a/whole"), folder.path().join("b/killed"));
        train(&config, &whole);
        kill_at(&config, &killed, "sft.jsonl", 5);
        for count in [1, 4] {
            kill_at(&config, &killed, "metrics.jsonl", count);
        }
        train(&config, &killed);
        let mut names =
            vec!["adapter/adapter_model.safetensors", "adapter/adapter_config.json", "optimizer.safetensors"];
        let merged = !lora.contains("save_merged");
        if merged {
            names.push("model.safetensors");
        }
        assert_same_files(&whole.join(LAST), &killed.join(LAST), &names);
        assert_eq!(whole.join("checkpoints/step-000006/model.safetensors").exists(), merged);
        assert_eq!(lines(&killed.join("metrics.jsonl")).len(), 6);
    }
}

#[test]
fn only_the_targets_change_and_the_base_is_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    let model = base();
    let config =
        config(folder.path(), model, &["lora.targets=[\"q_proj\", \"v_proj\"]", "update={ lr = 1e-2 }"]);
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    train(&config, &whole);
    let last = whole.join("checkpoints/step-000006");
    for (name, changes) in [("q_proj", true), ("v_proj", true), ("k_proj", false), ("o_proj", false)] {
        let name = format!("model.layers.1.self_attn.{name}.weight");
        assert_eq!(tensor(model, &name) != tensor(&last, &name), changes, "{name}");
    }
    assert_eq!(tensor(model, "model.embed_tokens.weight"), tensor(&last, "model.embed_tokens.weight"));
    // B is 0 at first, so in the only update of the first step the policy equals its reference.
    let metrics = lines(&whole.join("metrics.jsonl"));
    let kl = |m: &Value| m["kl_loss"].as_f64().unwrap();
    assert!(kl(&metrics[0]).abs() < 1e-9 && kl(&metrics[1]) > 1e-6, "{metrics:?}");
    kill_at(&config, &killed, "metrics.jsonl", 3);
    train(&config, &killed);
    assert_same_files(
        &whole.join(LAST),
        &killed.join(LAST),
        &["adapter/adapter_model.safetensors", "optimizer.safetensors", "model.safetensors"],
    );
}

#[test]
fn an_adapter_scores_evaluates_and_merges_as_the_merged_model_does() {
    let folder = tempfile::tempdir().unwrap();
    let model = base();
    let config = config(folder.path(), model, &[]);
    let run = folder.path().join("run");
    train(&config, &run);
    let last = run.join("checkpoints/step-000006");
    let adapter = last.join("adapter");
    let settings: Value =
        serde_json::from_slice(&std::fs::read(adapter.join("adapter_config.json")).unwrap()).unwrap();
    assert_eq!((&settings["r"], &settings["peft_type"]), (&4.into(), &"LORA".into()));
    assert_eq!(settings["base_model_name_or_path"].as_str(), model.to_str());

    let merged = folder.path().join("merged");
    let merge = || {
        let mut command = fgrpo();
        command
            .arg("merge")
            .arg("--model")
            .arg(model)
            .arg("--adapter")
            .arg(&adapter)
            .arg("--out")
            .arg(&merged);
        command
    };
    merge().assert().success();
    let read = |dir: &Path, name: &str| std::fs::read(dir.join(name)).unwrap();
    for name in ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"] {
        assert!(read(&merged, name) == read(&last, name), "{name} differs from the checkpoint's");
    }
    merge().assert().code(2).stderr(predicate::str::contains("exists already"));

    let sequences = folder.path().join("tokens.jsonl");
    std::fs::write(&sequences, "{\"tokens\": [5, 6, 7, 8]}\n").unwrap();
    let score = |more: &[&Path]| {
        let mut command = fgrpo();
        command.arg("score").arg("--model").arg(more[0]);
        if let Some(adapter) = more.get(1) {
            command.arg("--adapter").arg(adapter);
        }
        command.arg(&sequences).assert().success().get_output().stdout.clone()
    };
    assert_eq!(score(&[model, &adapter]), score(&[&merged]));
    assert_ne!(score(&[model]), score(&[&merged]));

    let data = folder.path().join("held-out.jsonl");
    std::fs::write(&data, "{\"problem\": \"Take 3. Add 1.\", \"answer\": \"4\"}\n").unwrap();
    let evaluate = |model: &Path, adapter: Option<&Path>, out: &str| {
        let mut command = fgrpo();
        command.args(["eval", "--task", "math", "-n", "8", "--max-tokens", "10", "--data"]).arg(&data);
        command.arg("--model").arg(model).arg("--out").arg(folder.path().join(out));
        if let Some(adapter) = adapter {
            command.arg("--adapter").arg(adapter);
        }
        command.assert()
    };
    evaluate(model, Some(&adapter), "with-adapter").success();
    evaluate(&merged, None, "merged").success();
    let texts = |out: &str| {
        let mut all = lines(&folder.path().join(out).join("generations.jsonl"));
        all.sort_by_key(|g| g["sample"].as_u64());
        all.iter().map(|g| g["text"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(texts("with-adapter"), texts("merged"));
    assert_eq!(texts("merged").len(), 8);
    // Another adapter makes another model.
    evaluate(model, None, "with-adapter").code(2).stderr(predicate::str::contains("model: the folder has"));
}

/// An adapter from PEFT for a model whose head is tied to its embedding: factors of the layers, and a head that was trained in full.
fn with_a_trained_head(folder: &Path, model: &Path) -> PathBuf {
    let bytes = std::fs::read(model.join("model.safetensors")).unwrap();
    let base = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let adapter = folder.join("trained-head");
    std::fs::create_dir(&adapter).unwrap();
    let mut tensors: Vec<(String, Vec<usize>)> = Vec::new();
    let shape = |name: &str| base.tensor(name).unwrap().shape().to_vec();
    tensors.push(("lm_head.weight".into(), shape("model.embed_tokens.weight")));
    for layer in 0..2 {
        let module = format!("model.layers.{layer}.self_attn.q_proj");
        let of = shape(&format!("{module}.weight"));
        tensors.push((format!("{module}.lora_A.weight"), vec![2, of[1]]));
        tensors.push((format!("{module}.lora_B.weight"), vec![of[0], 2]));
    }
    let values: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .into_iter()
        .map(|(name, shape)| {
            let values = (0..shape.iter().product::<usize>()).map(|i| (i as f32 * 0.7).sin() * 0.2);
            (format!("base_model.model.{name}"), shape, values.flat_map(f32::to_le_bytes).collect())
        })
        .collect();
    let views = values.iter().map(|(name, shape, bytes)| {
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes);
        (name.clone(), view.unwrap())
    });
    safetensors::serialize_to_file(views, None, &adapter.join("adapter_model.safetensors")).unwrap();
    let settings = serde_json::json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 4, "bias": "none",
        "target_modules": ["q_proj"], "modules_to_save": ["lm_head"], "base_model_name_or_path": model,
    });
    std::fs::write(adapter.join("adapter_config.json"), settings.to_string()).unwrap();
    adapter
}

#[test]
fn an_adapter_with_a_trained_head_scores_samples_and_merges_and_is_not_trained_further() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = ["model.init.num_hidden_layers=2", "model.init.tie_word_embeddings=true"];
    let model = demonstrated(folder.path(), 3, &sizes);
    let adapter = with_a_trained_head(folder.path(), &model);
    let merged = folder.path().join("merged");
    let with = |command: &str, model: &Path, adapter: Option<&Path>| {
        let mut command_ = fgrpo();
        command_.arg(command).arg("--model").arg(model);
        if let Some(adapter) = adapter {
            command_.arg("--adapter").arg(adapter);
        }
        command_
    };
    with("merge", &model, Some(&adapter)).arg("--out").arg(&merged).assert().success();
    let config: Value = serde_json::from_slice(&std::fs::read(merged.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["tie_word_embeddings"], false);
    assert_eq!(tensor(&merged, "model.embed_tokens.weight"), tensor(&model, "model.embed_tokens.weight"));
    assert_ne!(tensor(&merged, "lm_head.weight"), tensor(&merged, "model.embed_tokens.weight"));

    let sequences = folder.path().join("tokens.jsonl");
    std::fs::write(&sequences, "{\"tokens\": [5, 6, 7, 8]}\n").unwrap();
    let data = folder.path().join("held-out.jsonl");
    std::fs::write(&data, "{\"problem\": \"Take 3. Add 1.\", \"answer\": \"4\"}\n").unwrap();
    let output = |mut command: assert_cmd::Command| command.assert().success().get_output().stdout.clone();
    let all = |model: &Path, adapter: Option<&Path>, out: &str| {
        let mut score = with("score", model, adapter);
        score.arg(&sequences);
        let mut generate = with("generate", model, adapter);
        generate.args(["--max-tokens", "8", "--seed", "1", "Take 3. Add 1."]);
        let mut eval = with("eval", model, adapter);
        let out = folder.path().join(out);
        eval.args(["--task", "math", "-n", "4", "--max-tokens", "8", "--data"])
            .arg(&data)
            .arg("--out")
            .arg(&out);
        eval.assert().success();
        let mut samples = lines(&out.join("generations.jsonl"));
        samples.sort_by_key(|sample| sample["sample"].as_u64());
        let texts: Vec<Value> = samples.iter().map(|sample| sample["text"].clone()).collect();
        (output(score), output(generate), texts)
    };
    let adapted = all(&model, Some(&adapter), "adapted");
    assert_eq!(adapted, all(&merged, None, "merged-eval"));
    assert_ne!(adapted, all(&model, None, "base-eval"));
    // On a base from a GGUF file, and on one of 4 bits, whose merged model gives the same scores.
    let score = |model: &Path, adapter: Option<&Path>| -> Vec<f64> {
        let mut command = with("score", model, adapter);
        command.arg(&sequences);
        let line: Value = serde_json::from_slice(&output(command)).unwrap();
        line["logp"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let converted = |adapter: Option<&Path>, from: &Path, dtype: &str, name: &str| {
        let out = folder.path().join(name);
        with("merge", from, adapter).args(["--dtype", dtype]).arg("--out").arg(&out).assert().success();
        out
    };
    let gguf = converted(None, &model, "f32", "base.gguf");
    assert_eq!(score(&gguf, Some(&adapter)), score(&merged, None));
    let four = converted(None, &model, "nf4", "four");
    let (own, whole) = (score(&four, Some(&adapter)), converted(Some(&adapter), &four, "f32", "four-merged"));
    let off = own.iter().zip(score(&whole, None)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off < 1e-4 && own != score(&merged, None), "{off}");

    // A file that lacks tensors that the settings name, and weights in PyTorch's format.
    let settings = adapter.join("adapter_config.json");
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, text.replace("[\"lm_head\"]", "[\"lm_head\",\"embed_tokens\"]")).unwrap();
    let refused = |part: &'static str| {
        let mut command = with("score", &model, Some(&adapter));
        command.arg(&sequences).assert().code(2).stderr(predicate::str::contains(part));
    };
    refused("model.embed_tokens.weight");
    std::fs::write(&settings, text.replace("[\"lm_head\"]", "[\"classifier\"]")).unwrap();
    refused("classifier");
    std::fs::rename(adapter.join("adapter_model.safetensors"), adapter.join("adapter_model.bin")).unwrap();
    refused("python -c");
}

#[test]
fn a_base_of_4_bits_samples_and_trains_with_the_same_numbers_and_merges_into_its_values() {
    // Phi-3 has fused matrices.
    for (family, formats) in [("qwen2", &["nf4", "int8", "bf16"][..]), ("phi3", &["nf4"])] {
        let folder = tempfile::tempdir().unwrap();
        let family = format!("model.init.architecture=\"{family}\"");
        let model = demonstrated(folder.path(), 3, &["model.init.num_hidden_layers=2", &family]);
        formats.iter().for_each(|format| check_base(folder.path(), &model, format));
    }
}

fn check_base(folder: &Path, model: &Path, format: &str) {
    let config = config(folder, model, &[&format!("lora.base={format:?}")]);
    let run = folder.join(format);
    train(&config, &run);
    let metrics = lines(&run.join("metrics.jsonl"));
    for line in &metrics {
        let off = line["logp_difference_max"].as_f64().unwrap();
        assert!(off < 1e-4, "{format}: sampled and scored differ by {off}");
    }
    // B is 0 at first, so the reference is the base in its format.
    let kl = |line: &Value| line["kl_loss"].as_f64().unwrap();
    assert!(kl(&metrics[1]) > 1e-6, "{format}: nothing was trained");

    let last = run.join("checkpoints/step-000006");
    let merged = folder.join(format!("{format}-merged"));
    let mut command = fgrpo();
    command.arg("merge").arg("--model").arg(model).arg("--adapter").arg(last.join("adapter"));
    command.arg("--out").arg(&merged).assert().success();
    let name = "model.layers.1.mlp.down_proj.weight";
    assert_eq!(tensor(&merged, name), tensor(&last, name), "{format}");
    let embedding = "model.embed_tokens.weight";
    assert_eq!(tensor(&merged, embedding), tensor(model, embedding), "{format}");

    let sequences = folder.join("tokens.jsonl");
    std::fs::write(&sequences, "{\"tokens\": [5, 6, 7, 8, 9, 10]}\n").unwrap();
    let score = |model: &Path, adapter: Option<&Path>| -> Vec<f64> {
        let mut command = fgrpo();
        command.arg("score").arg("--model").arg(model).arg(&sequences);
        if let Some(adapter) = adapter {
            command.arg("--adapter").arg(adapter);
        }
        let line: Value = serde_json::from_slice(&command.assert().success().get_output().stdout).unwrap();
        line["logp"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let off = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let trained = score(model, Some(&last.join("adapter")));
    assert!(off(&trained, &score(&merged, None)) < 1e-4, "{format}: the merged model differs");
    assert!(off(&trained, &score(model, None)) > 1e-4, "{format}: the base is the same");
}

#[test]
fn a_model_written_in_4_bits_scores_trains_and_is_refused_as_another_format() {
    let folder = tempfile::tempdir().unwrap();
    let model = base();
    let convert = |from: &Path, dtype: &str, name: &str| {
        let out = folder.path().join(name);
        let mut command = fgrpo();
        command.arg("merge").arg("--model").arg(from).args(["--dtype", dtype]).arg("--out").arg(&out);
        command.assert().success();
        out
    };
    let four = convert(model, "nf4", "four");
    let config_of = |dir: &Path| -> Value {
        serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap()
    };
    assert_eq!(config_of(&four)["quantization_config"]["bnb_4bit_quant_type"], "nf4");
    let plain = convert(&four, "f32", "plain");
    assert!(config_of(&plain)["quantization_config"].is_null());
    // Codes that were read are written unchanged.
    let again = convert(&four, "nf4", "again");
    let weights = |dir: &Path| std::fs::read(dir.join("model.safetensors")).unwrap();
    assert!(weights(&four) == weights(&again), "codes have changed");
    let bytes = |dir: &Path| std::fs::metadata(dir.join("model.safetensors")).unwrap().len();
    assert!(bytes(&four) < bytes(&plain), "{} {}", bytes(&four), bytes(&plain));

    let sequences = folder.path().join("tokens.jsonl");
    std::fs::write(&sequences, "{\"tokens\": [5, 6, 7, 8, 9, 10]}\n").unwrap();
    let score = |model: &Path| -> Vec<f64> {
        let mut command = fgrpo();
        let command = command.arg("score").arg("--model").arg(model).arg(&sequences).assert().success();
        let line: Value = serde_json::from_slice(&command.get_output().stdout).unwrap();
        line["logp"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let off = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off(score(&four), score(&plain)) < 1e-4, "the values differ from the model");
    assert!(off(score(&four), score(model)) > 1e-5, "nothing was rounded");

    let config = config(folder.path(), &four, &["lora.base=\"nf4\""]);
    let run = folder.path().join("run");
    train(&config, &run);
    let line = lines(&run.join("metrics.jsonl")).pop().unwrap();
    assert!(line["logp_difference_max"].as_f64().unwrap() < 1e-4, "{line}");
    let mut command = fgrpo();
    command
        .arg("train")
        .arg(&config)
        .args(["--set", "lora.base=int8", "--out"])
        .arg(folder.path().join("int8"));
    command.assert().code(2).stderr(predicate::str::contains("nf4").and(predicate::str::contains("int8")));
}

#[test]
fn adapters_and_settings_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = base();
    let path = config(folder.path(), model, &[SFT, "lora.save_merged=false"]);
    for (set, says) in [
        ("lora.rank=0", "lora.rank"),
        ("lora.alpha=-1", "lora.alpha"),
        ("lora.targets=[\"lm_head\"]", "lm_head"),
        ("lora.targets=[]", "lora.targets"),
        ("lora.targets=all", "lora"),
        ("lora.dropout=0.1", "dropout"),
        ("lora.base=fp4", "nf4"),
    ] {
        let mut command = fgrpo();
        command.arg("train").arg(&path).args(["--dry-run", "--set", set]);
        command.assert().code(2).stderr(predicate::str::contains(says));
    }
    tells(
        2,
        command!("train arithmetic-quick --dry-run --set lora.rank=8"),
        "an adapter's base is a checkpoint",
    );

    // A checkpoint without merged weights is distinguished from a broken one.
    let run = folder.path().join("run");
    ends(0, command!("train", &path, "--set steps=1 --out", &run));
    let last = run.join("checkpoints/step-000001");
    let sequences = folder.path().join("tokens.jsonl");
    std::fs::write(&sequences, "{\"tokens\": [5, 6]}\n").unwrap();
    tells(2, command!("score --model", &last, &sequences), "has only an adapter");
    // An adapter of another rank, a missing one, and a run that continues without it.
    tells(
        2,
        command!("train", &path, "--set steps=2 --set lora.rank=2 --resume --accept-changes --out", &run),
        "lora.rank: 4 -> 2",
    );
    ends(0, command!("train", &path, "--set steps=1 --resume --out", &run));
    tells(
        2,
        command!(
            "merge --adapter /nonexistent/adapter --model",
            &model,
            "--out",
            folder.path().join("never")
        ),
        "/nonexistent/adapter",
    );
}
