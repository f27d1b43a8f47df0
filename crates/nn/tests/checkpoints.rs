//! Checkpoint folders: written folders are read back, and every kind of damage is reported.

mod device;
mod golden;

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use device::device;
use fgrpo_nn::config::{Architecture, Config, GatedDeltaNet, Gemma4, LayerType, Multipliers, RopeScaling};
use fgrpo_nn::weights::{Checkpoint, Dtype, TensorFile, TensorWriter, write_checkpoint};
use fgrpo_nn::{Engine, Error, LoraConfig};
use proptest::prelude::*;
use serde_json::{Value, json};

fn config(architecture: Architecture, tied: bool) -> Config {
    let gemma = architecture == Architecture::Gemma3Text;
    let gemma4 = architecture == Architecture::Gemma4Text;
    let windows = gemma || gemma4 || architecture == Architecture::Olmo3;
    let recurrent = architecture == Architecture::Qwen3_5Text;
    let convolves = architecture == Architecture::Lfm2;
    let kinds = [
        (windows, LayerType::SlidingAttention),
        (recurrent, LayerType::LinearAttention),
        (convolves, LayerType::Conv),
    ];
    let kind = kinds.into_iter().find_map(|(has, kind)| has.then_some(kind));
    Config {
        layer_types: kind.map_or_else(Vec::new, |kind| vec![kind, LayerType::FullAttention]),
        linear_attention: recurrent.then_some(GatedDeltaNet {
            linear_conv_kernel_dim: 3,
            linear_key_head_dim: 5,
            linear_value_head_dim: 4,
            linear_num_key_heads: 2,
            linear_num_value_heads: 6,
        }),
        conv_l_cache: convolves.then_some(3),
        partial_rotary_factor: (recurrent || architecture == Architecture::Phi3).then_some(0.75),
        rope_local_base_freq: windows.then_some(1e3),
        query_pre_attn_scalar: gemma.then_some(5),
        multipliers: (architecture == Architecture::Granite).then_some(Multipliers {
            embedding_multiplier: 12.0,
            attention_multiplier: 0.25,
            residual_multiplier: 0.22,
            logits_scaling: 8.0,
        }),
        gemma4: gemma4.then_some(Gemma4 {
            global_head_dim: 8,
            num_global_key_value_heads: 1,
            attention_k_eq_v: true,
            num_kv_shared_layers: 0,
            use_double_wide_mlp: true,
            hidden_size_per_layer_input: 3,
            vocab_size_per_layer_input: 11,
            final_logit_softcapping: Some(30.0),
        }),
        sliding_window: gemma4.then_some(3),
        architecture,
        vocab_size: 11,
        hidden_size: 12,
        intermediate_size: 10,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 6,
        rms_norm_eps: 1e-6,
        rope_theta: 1e4,
        rope_scaling: RopeScaling::Default,
        tie_word_embeddings: tied,
        max_position_embeddings: 64,
        bos_token_id: Some(1),
        eos_token_id: vec![2, 3],
        pad_token_id: Some(4),
        ..Config::default()
    }
}

type Tensor = (String, Vec<usize>, Vec<f32>);

/// Values that f32, bf16 and f16 all represent exactly, and that are all different.
fn tensors(config: &Config) -> Vec<Tensor> {
    let mut n = 0u32;
    let mut fill = |shape: &[usize]| -> Vec<f32> {
        (0..shape.iter().product())
            .map(|_| {
                n += 1;
                (n % 251) as f32 / 64.0 - 1.0
            })
            .collect()
    };
    config.tensors().into_iter().map(|(name, shape)| (name, shape.clone(), fill(&shape))).collect()
}

fn write(dir: &Path, config: &Config, tensors: &[Tensor], dtype: Dtype, max: u64) -> Result<(), Error> {
    write_checkpoint(dir, config, tensors.iter().map(|(n, s, v)| (n, s, v.as_slice())), dtype, max)
}

fn message(dir: &Path) -> String {
    Checkpoint::open(dir).unwrap_err().to_string()
}

/// Names of the parts of multimodal models besides the text model.
const LEFT_OUT: [[&str; 2]; 2] = [
    ["model.visual.patch_embed.proj.weight", "mtp.fc.weight"],
    ["vision_tower.post_layernorm.weight", "multi_modal_projector.mm_input_projection_weight"],
];

#[test]
fn the_text_part_of_a_whole_model_is_read_and_the_rest_left_out() {
    let [qwen, llava] = LEFT_OUT;
    for (architecture, tied, whole, class, left_out) in [
        (Architecture::Qwen3_5Text, false, "qwen3_5", "Qwen3_5ForConditionalGeneration", qwen),
        (Architecture::Gemma3Text, true, "gemma3", "Gemma3ForConditionalGeneration", llava),
        (Architecture::Mistral, false, "mistral3", "Mistral3ForConditionalGeneration", llava),
    ] {
        let (dir, config) = (tempfile::tempdir().unwrap(), config(architecture, tied));
        write(dir.path(), &config, &tensors(&config), Dtype::F32, 1 << 20).unwrap();
        let plain = Checkpoint::open(dir.path()).unwrap();
        let text = fs::read(dir.path().join("config.json")).unwrap();
        let mut text: Value = serde_json::from_slice(&text).unwrap();
        if architecture == Architecture::Mistral {
            // transformers' default for a text part without a type.
            text.as_object_mut().unwrap().retain(|key, _| key != "model_type" && key != "architectures");
        }
        let settings = json!({"model_type": whole, "architectures": [class], "text_config": text});
        equals_as_a_whole(&plain, &settings, left_out);
    }
}

#[test]
fn ministral_3_inside_of_mistral_3_is_the_model_that_transformers_computes_alone() {
    let settings = fs::read(golden::folder().join("mistral3/config.json")).unwrap();
    equals_as_a_whole(
        &golden::checkpoint("ministral3"),
        &serde_json::from_slice(&settings).unwrap(),
        LEFT_OUT[1],
    );
}

fn write_tensors(path: &Path, all: &[Tensor]) {
    let declared: Vec<(String, Vec<usize>)> = all.iter().map(|(n, s, _)| (n.clone(), s.clone())).collect();
    let mut writer = TensorWriter::create(path, &declared, Dtype::F32, &[]).unwrap();
    all.iter().for_each(|(name, shape, values)| writer.put(name, shape, values).unwrap());
    writer.finish().unwrap();
}

/// Checks that a multimodal model with the tensors of `plain` has the same text model, whichever way transformers names it.
fn equals_as_a_whole(plain: &Checkpoint, settings: &Value, left_out: [&str; 2]) {
    let whole = tempfile::tempdir().unwrap();
    fs::write(whole.path().join("config.json"), settings.to_string()).unwrap();
    let save = |all: &[Tensor]| write_tensors(&whole.path().join("model.safetensors"), all);
    // In the model, and in most files, where the head is inside too.
    for (inner, head) in [("model.language_model.", ""), ("language_model.model.", "language_model.")] {
        let renamed = |name: &str| match name.strip_prefix("model.") {
            Some(rest) => format!("{inner}{rest}"),
            None => format!("{head}{name}"),
        };
        let tensors = plain.config().tensors().into_iter();
        let mut all: Vec<Tensor> =
            tensors.map(|(name, shape)| (renamed(&name), shape, plain.tensor(&name).unwrap())).collect();
        all.extend(left_out.map(|name| (name.to_string(), vec![2], vec![1.0, 2.0])));
        save(&all);
        let opened = Checkpoint::open(whole.path()).unwrap();
        assert_eq!(opened.config(), plain.config());
        for name in plain.names() {
            assert_eq!(opened.tensor(&name).unwrap(), plain.tensor(&name).unwrap(), "{name}");
        }
        // Any other is a part that nobody accounts for.
        all.push((format!("{inner}layers.0.mlp.experts.weight"), vec![1], vec![1.0]));
        save(&all);
        assert_names(&message(whole.path()), &["mlp.experts.weight", "does not account for"]);
        all.pop();
        save(&all);
    }
    adapters_have_the_names_of_the_whole(plain, whole.path(), left_out[0]);
}

/// Checks that an adapter of the multimodal model is named as PEFT names it there, and that adapters are read with any of the names.
fn adapters_have_the_names_of_the_whole(plain: &Checkpoint, whole: &Path, left_out: &str) {
    let lora =
        LoraConfig { rank: 2, targets: vec!["k_proj".into(), "up_proj".into()], ..LoraConfig::default() };
    let factors = |engine: &Engine| -> Vec<Tensor> {
        engine
            .adapter_tensors()
            .map(|(name, shape, data)| (name.into(), shape.into(), data.into_owned()))
            .collect()
    };
    let mut engine = Engine::open(&Checkpoint::open(whole).unwrap(), &device(1)).unwrap();
    engine.adapt(&lora, &mut || 0.75).unwrap();
    let expected = factors(&engine);
    let dir = tempfile::tempdir().unwrap();
    engine.write_adapter(dir.path(), "base").unwrap();
    let written = TensorFile::open(&dir.path().join("adapter_model.safetensors")).unwrap();
    let settings = fs::read(dir.path().join("adapter_config.json")).unwrap();
    let settings: Value = serde_json::from_slice(&settings).unwrap();
    let targets = settings["target_modules"].as_array().unwrap();
    assert_eq!(targets.len() * 2, expected.len());
    for (name, _, _) in &expected {
        let inner = name.strip_prefix("base_model.model.model.").unwrap();
        assert!(written.shape(&format!("base_model.model.model.language_model.{inner}")).is_some(), "{name}");
        let module = format!("model.language_model.{}", inner.split(".lora_").next().unwrap());
        assert!(targets.contains(&json!(module)), "{module}");
    }
    // Written for the text model, and by several versions of transformers; with all targets in full, as names or as a pattern.
    let tower = format!("{left_out}.layers.0.k_proj");
    let full = Value::Array([&targets[..], &[json!(tower)]].concat());
    for (inner, targets) in [
        ("model.", json!(["up_proj", "k_proj"])),
        ("model.language_model.", full),
        ("language_model.model.", json!("language_model.*(k_proj|up_proj)")),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings.clone();
        settings["target_modules"] = targets;
        fs::write(dir.path().join("adapter_config.json"), settings.to_string()).unwrap();
        let mut all: Vec<Tensor> = expected.clone();
        for (name, _, _) in &mut all {
            *name = name.replacen("model.layers.", &format!("{inner}layers."), 1);
        }
        let image = |factor: &str| {
            (format!("base_model.model.{tower}.lora_{factor}.weight"), vec![2, 2], vec![1.0; 4])
        };
        all.extend(["A", "B"].map(image));
        write_tensors(&dir.path().join("adapter_model.safetensors"), &all);
        let mut engine = Engine::open(plain, &device(1)).unwrap();
        engine.read_adapter(dir.path()).unwrap();
        assert_eq!(engine.lora(), Some(&lora), "{inner}");
        assert_eq!(factors(&engine), expected, "{inner}");
    }
}

#[track_caller]
fn assert_names(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn written_checkpoint_reads_back_equal_for_every_family_type_and_sharding() {
    for architecture in Architecture::ALL {
        for (dtype, tied) in [(Dtype::F32, true), (Dtype::BF16, false), (Dtype::F16, true)] {
            for max in [u64::MAX, 700] {
                let dir = tempfile::tempdir().unwrap();
                let config = config(architecture, tied);
                let tensors = tensors(&config);
                write(dir.path(), &config, &tensors, dtype, max).unwrap();
                let checkpoint = Checkpoint::open(dir.path()).unwrap();
                assert_eq!(checkpoint.config(), &config);
                assert_eq!(checkpoint.dtype(), dtype);
                for (name, shape, values) in &tensors {
                    assert_eq!(&checkpoint.tensor(name).unwrap(), values, "{name} {shape:?} {dtype:?} {max}");
                }
                let shards = names_in(dir.path()).iter().filter(|n| n.ends_with(".safetensors")).count();
                assert_eq!(shards > 1, max == 700, "{shards} shards");
            }
        }
    }
}

#[test]
fn shards_keep_to_their_limit_and_the_index_names_each_tensor_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(Architecture::Qwen3, false);
    write(dir.path(), &config, &tensors(&config), Dtype::F32, 1200).unwrap();
    let index: Value =
        serde_json::from_slice(&fs::read(dir.path().join("model.safetensors.index.json")).unwrap()).unwrap();
    assert_eq!(index["weight_map"].as_object().unwrap().len(), config.tensors().len());
    assert_eq!(index["metadata"]["total_size"], json!(config.parameters() * 4));
    for name in names_in(dir.path()).iter().filter(|n| n.ends_with(".safetensors")) {
        let file = TensorFile::open(&dir.path().join(name)).unwrap();
        let sizes: Vec<usize> = file.names().map(|t| file.raw(t).unwrap().0.len()).collect();
        assert!(sizes.len() == 1 || sizes.iter().sum::<usize>() <= 1200, "{name}: {sizes:?}");
        assert_eq!(file.metadata()["format"], "pt");
    }
}

#[test]
fn tensors_may_come_in_any_order_and_borrowed_or_owned() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(Architecture::Llama, true);
    let tensors = tensors(&config);
    let reversed = tensors.iter().rev().map(|(n, s, v)| (n.clone(), s.clone(), Cow::from(v.clone())));
    write_checkpoint(dir.path(), &config, reversed, Dtype::F32, 700).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    for (name, _, values) in &tensors {
        assert_eq!(&checkpoint.tensor(name).unwrap(), values);
    }
}

#[test]
fn what_is_not_a_checkpoint_folder_is_told_by_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    assert_names(&message(&dir.path().join("nowhere")), &["nowhere", "No such file"]);
    assert_names(&message(dir.path()), &["no config.json", "Hugging Face checkpoint folder"]);
    fs::write(dir.path().join("adapter_config.json"), "{}").unwrap();
    assert_names(&message(dir.path()), &["LoRA adapter"]);
    let config = config(Architecture::Qwen2, true);
    let text = Value::Object(config.to_json(Dtype::F32)).to_string();
    fs::write(dir.path().join("config.json"), text).unwrap();
    assert_names(&message(dir.path()), &["neither model.safetensors nor model.safetensors.index.json"]);
    fs::write(dir.path().join("pytorch_model.bin"), "x").unwrap();
    assert_names(&message(dir.path()), &["pytorch_model.bin", "safetensors", "save_pretrained"]);
    assert_names(&message(&dir.path().join("config.json")), &["found a file", "folder"]);
}

#[test]
fn damaged_files_are_named_with_their_lengths() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(Architecture::Qwen2, true);
    write(dir.path(), &config, &tensors(&config), Dtype::F32, u64::MAX).unwrap();
    let path = dir.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();

    fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    let lengths = (format!("found {} bytes", whole.len() - 5), format!("expected {} bytes", whole.len()));
    assert_names(&message(dir.path()), &["model.safetensors", &lengths.0, &lengths.1, "truncated"]);
    fs::write(&path, &whole[..100]).unwrap();
    assert_names(&message(dir.path()), &["model.safetensors", "found 100 bytes", "truncated"]);
    fs::write(&path, b"abc").unwrap();
    assert_names(&message(dir.path()), &["found 3 bytes"]);
    fs::write(&path, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n").unwrap();
    assert_names(&message(dir.path()), &["Git LFS pointer", "git lfs pull"]);
    let mut other = whole.clone();
    other[8] = b'!';
    fs::write(&path, &other).unwrap();
    assert_names(&message(dir.path()), &["model.safetensors", "invalid header"]);
}

#[test]
fn missing_shard_and_disagreeing_index_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(Architecture::Qwen3, false);
    write(dir.path(), &config, &tensors(&config), Dtype::F32, 2000).unwrap();
    let index = dir.path().join("model.safetensors.index.json");
    let names = names_in(dir.path());
    let shard = names.iter().rfind(|n| n.ends_with(".safetensors")).unwrap();
    let good = fs::read(&index).unwrap();

    let unlisted = "model.layers.0.self_attn.q_norm.weight";
    edit(&index, |v| drop(v["weight_map"].as_object_mut().unwrap().remove(unlisted)));
    assert_names(&message(dir.path()), &["-of-00", unlisted, "None", "match"]);
    fs::write(&index, &good).unwrap();
    edit(&index, |v| v["weight_map"]["ghost"] = json!(shard));
    assert_names(&message(dir.path()), &[shard, "ghost", "no such tensor"]);
    edit(&index, |v| v["weight_map"]["ghost"] = json!("../elsewhere.safetensors"));
    assert_names(&message(dir.path()), &["index.json", "../elsewhere.safetensors", "same folder"]);
    fs::write(&index, &good).unwrap();
    fs::remove_file(dir.path().join(shard)).unwrap();
    assert_names(&message(dir.path()), &[shard, "no such file", "index.json lists"]);
    fs::write(&index, "{}").unwrap();
    assert_names(&message(dir.path()), &["index.json", "no weight_map"]);
}

#[test]
fn missing_foreign_and_misshapen_tensors_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let tied = config(Architecture::Qwen2, true);
    write(dir.path(), &tied, &tensors(&tied), Dtype::F32, u64::MAX).unwrap();
    let path = dir.path().join("config.json");
    let good = fs::read(&path).unwrap();

    edit(&path, |v| v["tie_word_embeddings"] = json!(false));
    assert_names(
        &message(dir.path()),
        &["lm_head.weight", "no such tensor", "shape [11, 12]", "tie_word_embeddings"],
    );
    fs::write(&path, &good).unwrap();
    edit(&path, |v| v["num_hidden_layers"] = json!(3));
    assert_names(&message(dir.path()), &["model.layers.2.input_layernorm.weight", "11 more are missing"]);
    edit(&path, |v| v["num_hidden_layers"] = json!(1));
    assert_names(&message(dir.path()), &["model.layers.1.", "does not account for", "Qwen2ForCausalLM"]);
    fs::write(&path, &good).unwrap();
    edit(&path, |v| v["intermediate_size"] = json!(9));
    assert_names(
        &message(dir.path()),
        &["mlp.gate_proj.weight", "found shape [10, 12]", "expected shape [9, 12]"],
    );
}

/// A single-file checkpoint with the configuration's tensors and some additional ones.
fn with_tensors(dir: &Path, config: &Config, extra: &[(&str, Vec<usize>, Vec<f32>)]) {
    let mut all = tensors(config);
    all.extend(extra.iter().map(|(n, s, v)| (n.to_string(), s.clone(), v.clone())));
    let declared: Vec<_> = all.iter().map(|(n, s, _)| (n.clone(), s.clone())).collect();
    let path = dir.join("model.safetensors");
    let mut writer = TensorWriter::create(&path, &declared, Dtype::F32, &[("format", "pt")]).unwrap();
    for (name, shape, values) in &all {
        writer.put(name, shape, values).unwrap();
    }
    writer.finish().unwrap();
    fs::write(dir.join("config.json"), Value::Object(config.to_json(Dtype::F32)).to_string()).unwrap();
}

#[test]
fn tied_head_may_be_stored_too_if_it_equals_the_embedding() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(Architecture::Llama, true);
    let embedding = tensors(&config)[0].2.clone();
    let frequencies = ("model.layers.0.self_attn.rotary_emb.inv_freq", vec![3], vec![1.0, 0.1, 0.01]);
    with_tensors(dir.path(), &config, &[("lm_head.weight", vec![11, 12], embedding.clone()), frequencies]);
    Checkpoint::open(dir.path()).unwrap();
    let mut other = embedding;
    other[7] += 1.0;
    with_tensors(dir.path(), &config, &[("lm_head.weight", vec![11, 12], other)]);
    assert_names(&message(dir.path()), &["lm_head.weight", "tie_word_embeddings is true"]);
}

#[test]
fn unreadable_type_and_values_that_are_not_finite_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(Architecture::Qwen2, true);
    with_tensors(dir.path(), &config, &[]);
    let path = dir.path().join("model.safetensors");
    let good = fs::read(&path).unwrap();

    let text = String::from_utf8_lossy(&good[8..400]).to_string();
    let at = 8 + text.find("\"F32\"").unwrap();
    let mut other = good.clone();
    other[at..at + 5].copy_from_slice(b"\"I32\"");
    fs::write(&path, &other).unwrap();
    assert_names(&message(dir.path()), &["model.embed_tokens.weight", "type I32", "F32, BF16 or F16"]);

    let header = u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
    let mut other = good.clone();
    other[8 + header + 4 * 5..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&path, &other).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let message = checkpoint.tensor("model.embed_tokens.weight").unwrap_err().to_string();
    assert_names(&message, &["model.safetensors", "model.embed_tokens.weight", "NaN at index 5", "finite"]);
}

#[test]
fn generation_config_decides_the_end_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(Architecture::Qwen2, true);
    write(dir.path(), &config, &tensors(&config), Dtype::F32, u64::MAX).unwrap();
    fs::write(dir.path().join("generation_config.json"), r#"{"eos_token_id": [7, 9]}"#).unwrap();
    assert_eq!(Checkpoint::open(dir.path()).unwrap().config().eos_token_id, [7, 9]);
}

#[test]
fn failed_write_names_the_fault_and_leaves_nothing_behind() {
    let config = config(Architecture::Qwen2, true);
    let good = tensors(&config);
    let fail = |tensors: &[Tensor], dtype: Dtype| {
        let dir = tempfile::tempdir().unwrap();
        let error = write(dir.path(), &config, tensors, dtype, 700).unwrap_err();
        assert_eq!(names_in(dir.path()), Vec::<String>::new());
        error.to_string()
    };
    assert_names(&fail(&good[1..], Dtype::F32), &["model.embed_tokens.weight", "no values", "[11, 12]"]);
    let mut twice = good.clone();
    twice.push(good[3].clone());
    assert_names(&fail(&twice, Dtype::F32), &[&good[3].0, "a second time"]);
    let mut foreign = good.clone();
    foreign.push(("ghost".into(), vec![1], vec![0.0]));
    assert_names(&fail(&foreign, Dtype::F32), &["ghost", "undeclared"]);
    let mut misshapen = good.clone();
    misshapen[0].1 = vec![12, 11];
    assert_names(
        &fail(&misshapen, Dtype::F32),
        &["embed_tokens", "found shape [12, 11]", "expected shape [11, 12]"],
    );
    let mut diverged = good.clone();
    diverged[2].2[9] = f32::INFINITY;
    assert_names(&fail(&diverged, Dtype::BF16), &[&good[2].0, "inf at index 9", "finite in bfloat16"]);
    let mut large = good.clone();
    large[2].2[9] = 1e5;
    assert_names(&fail(&large, Dtype::F16), &[&good[2].0, "100000 at index 9", "finite in float16"]);
}

#[test]
fn existing_checkpoint_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(Architecture::Qwen2, true);
    write(dir.path(), &config, &tensors(&config), Dtype::F32, u64::MAX).unwrap();
    let before = fs::read(dir.path().join("model.safetensors")).unwrap();
    let error = write(dir.path(), &config, &tensors(&config), Dtype::BF16, 700).unwrap_err().to_string();
    assert_names(&error, &["model.safetensors", "found a checkpoint", "choose another"]);
    assert_eq!(fs::read(dir.path().join("model.safetensors")).unwrap(), before);
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_and_unwritable_folder_are_reported_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(Architecture::Qwen2, true);
    // The writer's temporary file leads to the device that is always full.
    let temporary = format!(".model.safetensors.{}.tmp", std::process::id());
    std::os::unix::fs::symlink("/dev/full", dir.path().join(temporary)).unwrap();
    let error = write(dir.path(), &config, &tensors(&config), Dtype::F32, u64::MAX).unwrap_err().to_string();
    assert_names(&error, &["cannot write", "model.safetensors", "No space left"]);
    assert_eq!(names_in(dir.path()), Vec::<String>::new());

    let folder = Path::new("/proc/no-such-folder/checkpoint");
    let error = write(folder, &config, &tensors(&config), Dtype::F32, u64::MAX).unwrap_err().to_string();
    assert_names(&error, &["cannot create folder", "/proc/no-such-folder/checkpoint"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Opening and reading a folder with damaged files never panics.
    #[test]
    fn no_damage_to_a_file_panics(
        which in 0usize..2,
        cut in 0.0f64..1.2,
        places in prop::collection::vec((0.0f64..1.0, any::<u8>()), 0..4),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let config = config(Architecture::Qwen2, true);
        write(dir.path(), &config, &tensors(&config), Dtype::F32, u64::MAX).unwrap();
        let path = dir.path().join(["config.json", "model.safetensors"][which]);
        let mut bytes = fs::read(&path).unwrap();
        // Damage to the header and its length, where it matters.
        let reach = bytes.len().min(2500) as f64;
        for (at, byte) in places {
            bytes[(at * reach) as usize] = byte;
        }
        bytes.truncate((cut * bytes.len() as f64) as usize);
        fs::write(&path, bytes).unwrap();
        if let Ok(checkpoint) = Checkpoint::open(dir.path()) {
            for name in checkpoint.names() {
                let _ = checkpoint.tensor(&name);
            }
        }
    }
}

/// Memory of this process in bytes.
#[cfg(target_os = "linux")]
fn held() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[cfg(target_os = "linux")]
#[test]
fn reading_a_file_tensor_by_tensor_holds_one_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    let tensors: Vec<(String, Vec<usize>)> = (0..16).map(|i| (format!("t{i}"), vec![2 << 20])).collect();
    let mut values = vec![1.0f32; 2 << 20];
    let mut writer = TensorWriter::create(&path, &tensors, Dtype::F32, &[]).unwrap();
    for (i, (name, shape)) in tensors.iter().enumerate() {
        values[0] = i as f32;
        writer.put(name, shape, &values).unwrap();
    }
    writer.finish().unwrap();
    let file = TensorFile::open(&path).unwrap();
    let before = held();
    for (i, (name, _)) in tensors.iter().enumerate() {
        file.read_into(name, &mut values).unwrap();
        assert_eq!((values[0], values[(2 << 20) - 1]), (i as f32, 1.0));
    }
    // Of 128 MB that were read. Other tests run at the same time.
    assert!(held() < before + (64 << 20), "{} MB more", (held() - before) >> 20);
    file.read_into("t3", &mut values).unwrap();
    assert_eq!(values[0], 3.0);
}

/// Changes a tensor's bytes and shape. Returns whether the tensor stays.
type Change = dyn Fn(&mut Vec<u8>, &mut Vec<usize>) -> bool;

#[test]
fn a_matrix_of_bitsandbytes_that_cannot_be_read_is_refused_by_name() {
    let golden = golden::folder().join("qlora_qwen2_base");
    let matrix = "model.layers.1.mlp.up_proj.weight";
    let state = format!("{matrix}.quant_state.bitsandbytes__nf4");
    // The same file with one tensor changed or left out.
    let with = |name: &str, change: &Change| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(golden.join("config.json"), dir.path().join("config.json")).unwrap();
        let bytes = std::fs::read(golden.join("model.safetensors")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let mut parts = Vec::new();
        for (own, view) in tensors.tensors() {
            let (mut data, mut shape) = (view.data().to_vec(), view.shape().to_vec());
            if own != name || change(&mut data, &mut shape) {
                parts.push((own, view.dtype(), shape, data));
            }
        }
        let views: Vec<(String, safetensors::tensor::TensorView<'_>)> = parts
            .iter()
            .map(|(own, dtype, shape, data)| {
                let view = safetensors::tensor::TensorView::new(*dtype, shape.clone(), data).unwrap();
                (own.clone(), view)
            })
            .collect();
        safetensors::serialize_to_file(views, None, &dir.path().join("model.safetensors")).unwrap();
        Checkpoint::open(dir.path()).map(|_| ()).map_err(|error| error.to_string())
    };
    let rewrite = |from: &'static str, to: &'static str| {
        move |data: &mut Vec<u8>, shape: &mut Vec<usize>| {
            let text = String::from_utf8(std::mem::take(data)).unwrap();
            assert!(text.contains(from), "{text}");
            *data = text.replace(from, to).into_bytes();
            *shape = vec![data.len()];
            true
        }
    };
    with(&state, &|_, _| true).unwrap();
    let absmax = format!("{matrix}.absmax");
    let map = format!("{matrix}.quant_map");
    let cases: [(&str, &Change, &[&str]); 7] = [
        (&state, &rewrite("\"blocksize\": 64", "\"blocksize\": 128"), &["blocksize 128", "64"]),
        (&state, &rewrite("\"nested_blocksize\": 256", "\"nested_blocksize\": 64"), &["nested_blocksize 64"]),
        (&state, &rewrite("[128, 64]", "[64, 128]"), &["shape [64, 128]", "[128, 64]"]),
        (&state, &rewrite("{", "["), &["invalid JSON"]),
        (&absmax, &|_, _| false, &["no such tensor"]),
        (
            &map,
            &|data, _| {
                data[0] ^= 1;
                true
            },
            &["at index 0", "bitsandbytes' map"],
        ),
        (
            matrix,
            &|data, shape| {
                data.truncate(4000);
                *shape = vec![4000, 1];
                true
            },
            &["4000 bytes", "4096"],
        ),
    ];
    for (name, change, parts) in cases {
        let message = with(name, change).unwrap_err();
        for part in parts.iter().chain([&name]) {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    }
    // Without their state, the codes are a tensor of a wrong type and shape.
    let message = with(&state, &|_, _| false).unwrap_err();
    assert!(message.contains(matrix) && message.contains("shape"), "{message}");
}

#[test]
fn gpus_refuse_gemma_4_by_name() {
    let message = config(Architecture::Gemma4Text, true).check_on_gpus().unwrap_err().to_string();
    assert_names(&message, &["gemma4_text", "layer_scalar", "per-layer input", "cpu"]);
}

#[test]
fn gpus_refuse_recurrent_layers_that_their_kernels_do_not_take() {
    let of = |key: usize, value: usize, taps: usize| {
        let mut config = config(Architecture::Qwen3_5Text, true);
        let sizes = config.linear_attention.as_mut().unwrap();
        sizes.linear_key_head_dim = key;
        sizes.linear_value_head_dim = value;
        sizes.linear_conv_kernel_dim = taps;
        config.check_on_gpus().map_err(|error| error.to_string())
    };
    assert!(of(128, 4, 8).is_ok());
    assert_names(&of(132, 4, 4).unwrap_err(), &["linear_key_head_dim 132", "up to 128", "multiples of 4"]);
    assert_names(&of(8, 6, 4).unwrap_err(), &["linear_value_head_dim 6"]);
    assert_names(&of(8, 8, 9).unwrap_err(), &["linear_conv_kernel_dim 9", "up to 8"]);
    let convolves = config(Architecture::Lfm2, true).check_on_gpus().unwrap_err().to_string();
    assert_names(&convolves, &["device", "a GPU for lfm2", "conv"]);
}
