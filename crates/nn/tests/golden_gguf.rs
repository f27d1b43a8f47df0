//! GGUF files: compared with transformers, which reads the same files; written and read again; and broken files.

mod golden;

use std::path::{Path, PathBuf};

use fgrpo_nn::config::{Config, RopeScaling};
use fgrpo_nn::weights::{Checkpoint, GgufType, Item, TensorFile, write_gguf};
use fgrpo_nn::{Batch, Device, Engine};

fn file(name: &str) -> PathBuf {
    golden::folder().join("gguf").join(format!("{name}.gguf"))
}

/// The logits of a file's model after each of these tokens.
fn logits(path: &Path, tokens: &[u32]) -> Vec<f32> {
    let mut engine = Engine::open(&Checkpoint::open(path).unwrap(), &Device::cpu(1)).unwrap();
    let mut batch = Batch::default();
    batch.push_segment(tokens, None);
    for row in 0..tokens.len() {
        batch.predict(row, 0);
    }
    engine.logits(&batch).unwrap()
}

fn expected() -> TensorFile {
    TensorFile::open(&golden::folder().join("gguf/expected.safetensors")).unwrap()
}

fn tokens_of(name: &str) -> Vec<u32> {
    expected().integers(&format!("{name}.tokens")).unwrap().iter().map(|&t| t as u32).collect()
}

#[test]
fn logits_equal_transformers_reading_the_same_file() {
    for name in ["llama", "qwen2", "qwen3"] {
        let found = logits(&file(name), &tokens_of(name));
        let wanted = expected().tensor(&format!("{name}.logits")).unwrap();
        let (worst, at) = golden::distance(&found, &wanted);
        assert!(worst < 2e-5, "{name}: logit {at} is {}, wanted {}", found[at], wanted[at]);
    }
}

/// Cases whose architecture, or scaling, wasn't compared with llama.cpp.
const NOT_COMPARED: [&str; 13] = [
    "mistral_window",
    "qwen3_yarn",
    "ministral3",
    "smollm3",
    "olmo2",
    "gemma3_text",
    "olmo3",
    "qwen3_5_text",
    "granite",
    "phi3",
    "lfm2",
    "gemma4_text",
    "gemma4_text_shared",
];

#[test]
fn what_was_not_compared_with_llama_cpp_is_refused_by_name_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    for case in NOT_COMPARED {
        let (from, path) = (golden::checkpoint(case), dir.path().join(format!("{case}.gguf")));
        let config = from.config();
        let tensors = config.tensors().into_iter().map(|(n, s)| (n.clone(), s, from.tensor(&n).unwrap()));
        let message = write_gguf(&path, config, Vec::new(), tensors, GgufType::F32).unwrap_err().to_string();
        let (field, found) = if case == "qwen3_yarn" {
            ("rope_type", "yarn")
        } else {
            ("model_type", config.architecture.model_type())
        };
        for part in [path.to_str().unwrap(), field, found, "a checkpoint folder supports any model"] {
            assert!(message.contains(part), "{case}: {message:?} lacks {part:?}");
        }
        assert!(!path.exists(), "{case}");
    }
    let bytes = std::fs::read(file("qwen3")).unwrap();
    let message = refusal(&with(&bytes, "general.architecture", 12, b"olmo2"));
    assert!(message.contains("general.architecture: expected llama, qwen2, qwen3, found olmo2"), "{message}");
}

/// Writes a checkpoint as a GGUF file and opens the file.
fn written(from: &Checkpoint, to: &Path, kind: GgufType) -> Checkpoint {
    let config = from.config();
    let tensors = config.tensors().into_iter().map(|(n, s)| (n.clone(), s, from.tensor(&n).unwrap()));
    let ends =
        config.eos_token_id.first().map(|&id| ("tokenizer.ggml.eos_token_id".into(), Item::Number(id)));
    write_gguf(to, config, ends.into_iter().collect(), tensors, kind).unwrap();
    Checkpoint::open(to).unwrap()
}

#[test]
fn a_checkpoint_written_as_gguf_opens_with_its_settings_and_tensors() {
    let dir = tempfile::tempdir().unwrap();
    for case in golden::CASES.into_iter().filter(|case| !NOT_COMPARED.contains(case)) {
        let from = golden::checkpoint(case);
        let to = written(&from, &dir.path().join(format!("{case}.gguf")), GgufType::F32);
        let (mut found, mut wanted) = (to.config().clone(), from.config().clone());
        // Their counterparts are in the tokenizer's metadata, which this test doesn't write.
        for config in [&mut found, &mut wanted] {
            (config.bos_token_id, config.pad_token_id) = (None, None);
            config.eos_token_id.truncate(1);
            config.rms_norm_eps = f64::from(config.rms_norm_eps as f32);
        }
        found.rms_norm_eps = f64::from(found.rms_norm_eps as f32);
        assert_eq!(found, wanted, "{case}");
        for name in from.names() {
            assert_eq!(to.tensor(&name).unwrap(), from.tensor(&name).unwrap(), "{case} {name}");
        }
    }
}

#[test]
fn number_types_of_a_written_file_round_as_their_names_say() {
    let dir = tempfile::tempdir().unwrap();
    let from = Checkpoint::open(file("qwen3")).unwrap();
    // Half a unit in the last place; in 8 bits, half a step and the rounding of the scale.
    let types =
        [(GgufType::F16, 1.0 / 2048.0), (GgufType::BF16, 1.0 / 256.0), (GgufType::Q8_0, 0.57 / 127.0)];
    for (kind, off) in types {
        let to = written(&from, &dir.path().join(format!("{kind:?}.gguf")), kind);
        for (name, shape) in from.config().tensors() {
            let (found, wanted) = (to.tensor(&name).unwrap(), from.tensor(&name).unwrap());
            let largest = wanted.iter().fold(0f32, |most, x| most.max(x.abs()));
            let worst = found.iter().zip(&wanted).fold(0f32, |most, (f, w)| most.max((f - w).abs()));
            let off = if shape.len() == 1 { 0.0 } else { off };
            assert!(worst <= off * largest, "{kind:?} {name}: off by {worst}, largest is {largest}");
        }
    }
}

/// A model of four heads, written with these additional keys and without the keys in `absent`: opened, or the refusal.
fn opened(more: &[(&str, Item)], absent: &[&str]) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let from = golden::checkpoint("qwen3_ratio_4");
    let config = from.config();
    let tensors = config.tensors().into_iter().map(|(n, s)| (n.clone(), s, from.tensor(&n).unwrap()));
    let more = more.iter().map(|(key, item)| (format!("qwen3.{key}"), item.clone())).collect();
    write_gguf(&path, config, more, tensors, GgufType::F32).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    for key in absent {
        // The same length in another section of the metadata, which isn't read.
        let key = format!("qwen3.{key}");
        let other = format!("{:.<1$}", "general.", key.len());
        let end = |key: &str| [&(key.len() as u64).to_le_bytes()[..], key.as_bytes()].concat();
        if let Some(at) = bytes.windows(key.len() + 8).position(|window| window == end(&key)) {
            bytes[at..at + key.len() + 8].copy_from_slice(&end(&other));
        }
    }
    std::fs::write(&path, bytes).unwrap();
    Checkpoint::open(&path).map(|checkpoint| checkpoint.config().clone()).map_err(|error| error.to_string())
}

#[test]
fn every_key_of_llama_cpp_is_read_without_effect_or_refused_by_name() {
    let plain = opened(&[], &[]).unwrap();
    let keys: Vec<&str> =
        include_str!("golden/gguf/keys.txt").lines().filter(|line| !line.starts_with('#')).collect();
    let written =
        |key: &str| opened(&[(key, Item::Number(3))], &[]).is_err_and(|message| message.contains("twice"));
    let mut accepted = Vec::new();
    for key in keys.into_iter().filter(|key| !written(key)) {
        match opened(&[(key, Item::Number(3))], &[]) {
            Ok(config) if config == plain => accepted.push(key),
            Ok(config) => assert!(key.starts_with("rope.scal"), "{key}: {config:?}"),
            Err(message) => assert!(message.contains(&format!("qwen3.{key}: ")), "{key}: {message}"),
        }
    }
    let without_effect = [
        "tensor_data_layout",
        "pooling_type",
        "rope.scaling.original_context_length",
        "rope.scaling.finetuned",
    ];
    assert_eq!(accepted, without_effect);
    for (key, off, on) in [
        ("attention.causal", Item::Flag(true), Item::Flag(false)),
        ("expert_count", Item::Number(0), Item::Number(8)),
        ("rope.scaling.attn_factor", Item::Real(1.0), Item::Real(0.5)),
    ] {
        assert_eq!(opened(&[(key, off)], &[]).as_ref(), Ok(&plain));
        assert!(opened(&[(key, on)], &[]).unwrap_err().contains(key));
    }
}

#[test]
fn linear_scaling_is_read_as_llama_cpp_reads_it() {
    let scaling = |more: &[(&str, Item)]| opened(more, &[]).unwrap().rope_scaling;
    let half = || Item::Real(2.5);
    let kind = |name: &str| ("rope.scaling.type", Item::Text(name.into()));
    let linear = RopeScaling::Linear { factor: 2.5 };
    assert_eq!(scaling(&[("rope.scale_linear", half())]), linear);
    assert_eq!(scaling(&[("rope.scaling.factor", half())]), linear);
    assert_eq!(scaling(&[("rope.scaling.factor", half()), ("rope.scale_linear", Item::Real(7.0))]), linear);
    assert_eq!(scaling(&[kind("linear"), ("rope.scaling.factor", half())]), linear);
    assert_eq!(scaling(&[kind("none"), ("rope.scaling.factor", half())]), RopeScaling::Default);
    assert_eq!(scaling(&[kind("linear")]), RopeScaling::Default);
    assert_eq!(scaling(&[("rope.scaling.factor", Item::Real(0.0))]), RopeScaling::Default);
    for other in ["yarn", "longrope"] {
        assert!(opened(&[kind(other)], &[]).unwrap_err().contains(&format!("found \"{other}\"")));
    }
}

#[test]
fn counts_may_be_lists_or_missing_if_one_value_serves_every_layer() {
    let plain = opened(&[], &[]).unwrap();
    let (heads, key_value) = (plain.num_attention_heads as i32, plain.num_key_value_heads as i32);
    assert_ne!(heads, key_value);
    let list = |key, numbers: [i32; 2]| opened(&[(key, Item::Numbers(numbers.into()))], &[key]);
    assert_eq!(list("attention.head_count_kv", [key_value; 2]).as_ref(), Ok(&plain));
    assert_eq!(list("attention.head_count", [heads; 2]).as_ref(), Ok(&plain));
    let message = list("attention.head_count_kv", [key_value, heads]).unwrap_err();
    assert!(message.contains("attention.head_count_kv: "), "{message}");
    let message = opened(&[], &["attention.head_count_kv"]).unwrap_err();
    // As many key heads as query heads, which doesn't fit the tensors.
    assert!(message.contains("k_proj"), "{message}");
    let message = opened(&[], &["attention.layer_norm_rms_epsilon"]).unwrap_err();
    assert!(message.contains("attention.layer_norm_rms_epsilon: "), "{message}");
}

/// The error of opening these bytes.
fn refusal(bytes: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    let message = Checkpoint::open(&path).unwrap_err().to_string();
    assert!(message.starts_with(&path.display().to_string()), "{message}");
    message
}

/// `bytes` with the part after the first `name` replaced.
fn with(bytes: &[u8], name: &str, behind: usize, new: &[u8]) -> Vec<u8> {
    let at = bytes.windows(name.len()).position(|w| w == name.as_bytes()).unwrap() + name.len() + behind;
    let mut bytes = bytes.to_vec();
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

#[test]
fn a_file_cut_anywhere_is_called_truncated() {
    let bytes = std::fs::read(file("qwen3")).unwrap();
    for length in (0..bytes.len()).step_by(97) {
        let message = refusal(&bytes[..length]);
        let wanted = if length < 4 { "expected a GGUF file" } else { "truncated" };
        assert!(message.contains(wanted), "{length}: {message}");
    }
}

#[test]
fn broken_headers_are_refused_with_what_is_wrong() {
    let bytes = std::fs::read(file("qwen3")).unwrap();
    let million = 1_000_000u64.to_le_bytes();
    let huge = u64::MAX.to_le_bytes();
    for (broken, wanted) in [
        (with(&bytes, "GGUF", 0, &1u32.to_le_bytes()), "version 1"),
        (with(&bytes, "GGUF", 4, &huge), "tensors and"),
        (with(&bytes, "blk.0.ffn_up.weight", 20, &10u32.to_le_bytes()), "found blk.0.ffn_up.weight in Q2_K"),
        (with(&bytes, "blk.0.ffn_up.weight", 20, &77u32.to_le_bytes()), "in type 77"),
        (with(&bytes, "blk.0.ffn_up.weight", 4, &33u64.to_le_bytes()), "rows in blocks of 32"),
        (
            with(&bytes, "blk.0.ffn_up.weight", 12, &32u64.to_le_bytes()),
            "expected shape [64, 32], found shape [32, 32]",
        ),
        (with(&bytes, "blk.0.ffn_up.weight", 12, &huge), "blk.0.ffn_up.weight of shape"),
        (with(&bytes, "blk.0.ffn_up.weight", 24, &huge[..]), "a multiple of 32"),
        (with(&bytes, "blk.0.ffn_up", 0, b".wei_ht"), "no such tensor"),
        (with(&bytes, "tokenizer.ggml.tokens", 8, &million), "truncated"),
        (with(&bytes, "tokenizer.ggml.token_type", 8, &huge), "tokenizer.ggml.token_type: "),
        (with(&bytes, "qwen3.block_count", 0, &13u32.to_le_bytes()), "a value of type 13"),
        (
            with(&bytes, "general.architecture", 12, b"gptx2"),
            "general.architecture: expected llama, qwen2, qwen3, found gptx2",
        ),
        (with(&bytes, "qwen3.block_coun", 0, b"x"), "qwen3.block_counx: "),
    ] {
        let message = refusal(&broken);
        assert!(message.contains(wanted), "{message:?} lacks {wanted:?}");
    }
}
