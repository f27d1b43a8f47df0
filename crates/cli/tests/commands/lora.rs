//! LoRA through the commands: training, resumes, merging, evaluation with an adapter, wrong settings.

use crate::support::{assert_same_files, demonstrated, ends, file, kill_at, lines, spawned, sums_run, tells};
use serde_json::Value;
use std::ffi::OsStr;
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

fn tensor(folder: &Path, name: &str) -> Vec<u8> {
    let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
    safetensors::SafeTensors::deserialize(&bytes).unwrap().tensor(name).unwrap().data().to_vec()
}

/// A model folder, and an adapter for it.
#[derive(Clone, Copy)]
struct Model<'a>(&'a Path, Option<&'a Path>);

impl<'a> Model<'a> {
    /// The flags that name both.
    fn flags(self) -> Vec<&'a OsStr> {
        let mut flags = vec![OsStr::new("--model"), self.0.as_os_str()];
        flags.extend(self.1.into_iter().flat_map(|adapter| [OsStr::new("--adapter"), adapter.as_os_str()]));
        flags
    }

    /// Writes the merged model, and returns its path.
    fn merged(self, out: PathBuf, dtype: &str) -> PathBuf {
        ends(0, command!("merge", ..self.flags(), "--dtype", dtype, "--out", &out));
        out
    }

    /// Log-probabilities of some tokens.
    fn score(self) -> Vec<f64> {
        let mut command = command!("score -", ..self.flags());
        command.write_stdin("{\"tokens\": [5, 6, 7, 8, 9, 10]}\n");
        let line: Value = serde_json::from_str(&ends(0, command).0).unwrap();
        serde_json::from_value(line["logp"].clone()).unwrap()
    }

    /// Samples of an evaluation into a folder.
    fn samples(self, out: &Path) -> Vec<Value> {
        let data = "{\"problem\": \"Take 3. Add 1.\", \"answer\": \"4\"}\n";
        let data = file(out.parent().unwrap(), "held-out.jsonl", data);
        let eval = "eval --task math -n 8 --max-tokens 10 --data";
        ends(0, command!(..eval.split(' '), &data, ..self.flags(), "--out", out));
        let mut samples = lines(&out.join("generations.jsonl"));
        assert_eq!(samples.len(), 8);
        samples.sort_by_key(|sample| sample["sample"].as_u64());
        samples.iter().map(|sample| sample["text"].clone()).collect()
    }
}

/// Largest difference of two models' scores.
fn difference(a: Model<'_>, b: Model<'_>) -> f64 {
    a.score().iter().zip(b.score()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn killed_and_resumed_lora_run_equals_the_uninterrupted_one_bit_for_bit() {
    let model = base();
    for lora in [
        "targets = [\"q_proj\", \"v_proj\"]",
        "base = \"int8\", save_merged = false, targets = [\"q_proj\", \"down_proj\"], use_rslora = true",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let lora = [SFT, &format!("lora={{ alpha = 8, {lora} }}"), "update={ lr = 1e-2 }"];
        let config = config(folder.path(), model, &lora);
        // With a supervised stage, whose adapter RL continues and whose result is the reference.
        let (whole, killed) = (folder.path().join("a/whole"), folder.path().join("b/killed"));
        train(&config, &whole);
        let start = || {
            let mut command = spawned(&["train", "--resume"]);
            command.arg(&config).arg("--out").arg(&killed);
            command
        };
        kill_at(start, &killed.join("sft.jsonl"), &[5]);
        kill_at(start, &killed.join("metrics.jsonl"), &[1, 4]);
        train(&config, &killed);
        let last = [&whole, &killed].map(|run| run.join("checkpoints/step-000006"));
        let mut names =
            vec!["adapter/adapter_model.safetensors", "adapter/adapter_config.json", "optimizer.safetensors"];
        let merged = !lora[1].contains("save_merged");
        names.extend(merged.then_some("model.safetensors"));
        assert_same_files(&last[0], &last[1], &names);
        assert_eq!(last[0].join("model.safetensors").exists(), merged);
        // The only update of the first step starts at the reference.
        let metrics = lines(&killed.join("metrics.jsonl"));
        let kl: Vec<f64> = metrics.iter().map(|m| m["kl_loss"].as_f64().unwrap()).collect();
        assert!(kl.len() == 6 && kl[0].abs() < 1e-9 && kl[1] > 1e-6, "{kl:?}");
        if merged {
            for (name, changes) in [("q_proj", true), ("v_proj", true), ("k_proj", false), ("o_proj", false)]
            {
                let name = format!("model.layers.1.self_attn.{name}.weight");
                assert_eq!(tensor(model, &name) != tensor(&last[0], &name), changes, "{name}");
            }
            let embedding = "model.embed_tokens.weight";
            assert_eq!(tensor(model, embedding), tensor(&last[0], embedding));
        }
    }
}

#[test]
fn an_adapter_scores_evaluates_and_merges_as_the_merged_model_does() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let model = base();
    train(&config(folder.path(), model, &["steps=2"]), &at("run"));
    let last = at("run/checkpoints/step-000002");
    let adapter = last.join("adapter");
    let settings: Value =
        serde_json::from_slice(&std::fs::read(adapter.join("adapter_config.json")).unwrap()).unwrap();
    assert_eq!((&settings["r"], &settings["peft_type"]), (&4.into(), &"LORA".into()));
    assert_eq!(settings["base_model_name_or_path"].as_str(), model.to_str());

    let adapted = Model(model, Some(&adapter));
    let merge = || command!("merge", ..adapted.flags(), "--out", at("merged"));
    ends(0, merge());
    let names = ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"];
    assert_same_files(&at("merged"), &last, &names);
    tells(2, merge(), "exists already");
    let merged = at("merged");
    let merged = Model(&merged, None);
    assert_eq!(adapted.score(), merged.score());
    assert_ne!(Model(model, None).score(), merged.score());
    assert_eq!(adapted.samples(&at("with-adapter")), merged.samples(&at("merged-eval")));
    // Another adapter makes another model.
    let eval = "eval --task math -n 8 --max-tokens 10 --data";
    let other =
        command!(..eval.split(' '), at("held-out.jsonl"), "--model", model, "--out", at("with-adapter"));
    tells(2, other, "model: the folder has");
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
    let at = |name: &str| folder.path().join(name);
    let sizes = ["model.init.num_hidden_layers=2", "model.init.tie_word_embeddings=true"];
    let model = demonstrated(folder.path(), 3, &sizes);
    let adapter = with_a_trained_head(folder.path(), &model);
    let adapted = Model(&model, Some(&adapter));
    let whole = adapted.merged(at("merged"), "f32");
    let merged = Model(&whole, None);
    let config: Value = serde_json::from_slice(&std::fs::read(whole.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["tie_word_embeddings"], false);
    assert_eq!(tensor(&whole, "model.embed_tokens.weight"), tensor(&model, "model.embed_tokens.weight"));
    assert_ne!(tensor(&whole, "lm_head.weight"), tensor(&whole, "model.embed_tokens.weight"));
    let generated = |model: Model<'_>| {
        let prompt = "Take 3. Add 1.";
        ends(0, command!("generate --max-tokens 8 --seed 1", prompt, ..model.flags())).0
    };
    assert_eq!(adapted.score(), merged.score());
    assert_eq!(generated(adapted), generated(merged));
    assert_eq!(adapted.samples(&at("adapted")), merged.samples(&at("merged-eval")));
    assert_ne!(adapted.score(), Model(&model, None).score());
    // On a base from a GGUF file, and on one of 4 bits, whose merged model gives the same scores.
    let gguf = Model(&model, None).merged(at("base.gguf"), "f32");
    assert_eq!(Model(&gguf, Some(&adapter)).score(), merged.score());
    let four = Model(&model, None).merged(at("four"), "nf4");
    let adapted = Model(&four, Some(&adapter));
    let off = difference(adapted, Model(&adapted.merged(at("four-merged"), "f32"), None));
    assert!(off < 1e-4 && adapted.score() != merged.score(), "{off}");

    // A file that lacks tensors that the settings name, and weights in PyTorch's format.
    let settings = adapter.join("adapter_config.json");
    let text = std::fs::read_to_string(&settings).unwrap();
    let tokens = file(folder.path(), "tokens.jsonl", "{\"tokens\": [5, 6]}\n");
    let refused = |modules: &str, part: &str| {
        std::fs::write(&settings, text.replace("[\"lm_head\"]", modules)).unwrap();
        tells(2, command!("score", &tokens, ..Model(&model, Some(&adapter)).flags()), part);
    };
    refused("[\"lm_head\",\"embed_tokens\"]", "model.embed_tokens.weight");
    refused("[\"classifier\"]", "classifier");
    std::fs::rename(adapter.join("adapter_model.safetensors"), adapter.join("adapter_model.bin")).unwrap();
    refused("[\"lm_head\"]", "python -c");
}

#[test]
fn a_base_of_4_bits_samples_and_trains_with_the_same_numbers_and_merges_into_its_values() {
    let folder = tempfile::tempdir().unwrap();
    ["nf4", "int8", "bf16"].iter().for_each(|format| check_base(folder.path(), base(), format));
    // Phi-3 has fused matrices.
    let folder = tempfile::tempdir().unwrap();
    let phi3 = ["model.init.num_hidden_layers=2", "model.init.architecture=\"phi3\""];
    check_base(folder.path(), &demonstrated(folder.path(), 3, &phi3), "nf4");
}

fn check_base(folder: &Path, model: &Path, format: &str) {
    let base = format!("lora.base={format:?}");
    let run = folder.join(format);
    train(&config(folder, model, &["steps=2", &base]), &run);
    let metrics = lines(&run.join("metrics.jsonl"));
    for line in &metrics {
        let off = line["logp_difference_max"].as_f64().unwrap();
        assert!(off < 1e-4, "{format}: sampled and scored differ by {off}");
    }
    // B is 0 at first, so the reference is the base in its format.
    assert!(metrics[1]["kl_loss"].as_f64().unwrap() > 1e-6, "{format}: nothing was trained");

    let last = run.join("checkpoints/step-000002");
    let adapter = last.join("adapter");
    let trained = Model(model, Some(&adapter));
    let merged = trained.merged(folder.join(format!("{format}-merged")), "f32");
    let name = "model.layers.1.mlp.down_proj.weight";
    assert_eq!(tensor(&merged, name), tensor(&last, name), "{format}");
    let embedding = "model.embed_tokens.weight";
    assert_eq!(tensor(&merged, embedding), tensor(model, embedding), "{format}");
    assert!(difference(trained, Model(&merged, None)) < 1e-4, "{format}: the merged model differs");
    assert!(difference(trained, Model(model, None)) > 1e-4, "{format}: the base is the same");
}

#[test]
fn a_model_written_in_4_bits_scores_trains_and_is_refused_as_another_format() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let model = base();
    let four = Model(model, None).merged(at("four"), "nf4");
    let plain = Model(&four, None).merged(at("plain"), "f32");
    let format = |dir: &Path| -> Value {
        let config: Value = serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap();
        config["quantization_config"].clone()
    };
    assert_eq!(format(&four)["bnb_4bit_quant_type"], "nf4");
    assert!(format(&plain).is_null());
    // Codes that were read are written unchanged.
    let again = Model(&four, None).merged(at("again"), "nf4");
    assert_same_files(&four, &again, &["model.safetensors"]);
    let bytes = |dir: &Path| std::fs::metadata(dir.join("model.safetensors")).unwrap().len();
    assert!(bytes(&four) < bytes(&plain), "{} {}", bytes(&four), bytes(&plain));
    let scored = Model(&four, None);
    assert!(difference(scored, Model(&plain, None)) < 1e-4, "the values differ from the model");
    assert!(difference(scored, Model(model, None)) > 1e-5, "nothing was rounded");

    let config = config(folder.path(), &four, &["steps=1", "lora.base=\"nf4\""]);
    train(&config, &at("run"));
    let line = lines(&at("run/metrics.jsonl")).remove(0);
    assert!(line["logp_difference_max"].as_f64().unwrap() < 1e-4, "{line}");
    let (_, said) = ends(2, command!("train", &config, "--set lora.base=int8 --out", at("int8")));
    assert!(said.contains("nf4") && said.contains("int8"), "{said}");
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let model = base();
    let path = config(folder.path(), model, &["lora.save_merged=false"]);
    tells(
        2,
        command!("train arithmetic-quick --dry-run --set lora.rank=8"),
        "an adapter's base is a checkpoint",
    );
    // A checkpoint without merged weights is distinguished from a broken one.
    let run = folder.path().join("run");
    ends(0, command!("train", &path, "--set steps=1 --out", &run));
    let last = run.join("checkpoints/step-000001");
    let tokens = file(folder.path(), "tokens.jsonl", "{\"tokens\": [5, 6]}\n");
    tells(2, command!("score", tokens, "--model", &last), "has only an adapter");
    // An adapter of another rank, a missing one, and a run that continues without it.
    let resume = |more: &str| command!("train", &path, "--resume --out", &run, ..more.split(' '));
    tells(2, resume("--set steps=2 --set lora.rank=2 --accept-changes"), "lora.rank: 4 -> 2");
    ends(0, resume("--set steps=1"));
    let missing = Model(model, Some(Path::new("/nonexistent/adapter")));
    tells(
        2,
        command!("merge", ..missing.flags(), "--out", folder.path().join("never")),
        "/nonexistent/adapter",
    );
}
