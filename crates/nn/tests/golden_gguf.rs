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

/// Names of the files in golden/llama_cpp, which `fgrpo merge` wrote from checkpoints of transformers. `expected.safetensors` has the
/// log-probabilities that llama.cpp computes from them.
fn llama_cpp() -> (TensorFile, Vec<(String, PathBuf)>) {
    let folder = golden::folder().join("llama_cpp");
    let expected = TensorFile::open(&folder.join("expected.safetensors")).unwrap();
    let names: Vec<String> =
        expected.names().filter_map(|name| Some(name.strip_suffix(".logp")?.to_owned())).collect();
    assert!(names.len() >= 14, "{names:?}");
    let files = names.into_iter().map(|name| (name.clone(), folder.join(format!("{name}.gguf")))).collect();
    (expected, files)
}

#[test]
fn log_probabilities_equal_llama_cpp_reading_the_same_file() {
    let (expected, files) = llama_cpp();
    for (name, path) in files {
        let tokens: Vec<u32> =
            expected.integers(&format!("{name}.tokens")).unwrap().iter().map(|&t| t as u32).collect();
        let wanted = expected.tensor(&format!("{name}.logp")).unwrap();
        let logits = logits(&path, &tokens);
        let logp: Vec<f32> = logits
            .chunks_exact(logits.len() / tokens.len())
            .flat_map(|row| {
                let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
                row.iter().map(move |&x| (f64::from(x) - sum.ln()) as f32)
            })
            .collect();
        let (worst, at) = golden::distance(&logp, &wanted);
        // llama.cpp looks GELU up in a table of f16.
        let bound = if name.starts_with("gemma") { 1e-2 } else { 5e-5 };
        assert!(worst < bound, "{name}: log-probability {at} is {}, wanted {}", logp[at], wanted[at]);
    }
}

#[test]
fn a_file_that_llama_cpp_reads_is_written_again_with_the_same_tensors() {
    let dir = tempfile::tempdir().unwrap();
    for (name, path) in llama_cpp().1 {
        let from = Checkpoint::open(&path).unwrap();
        let again = dir.path().join(format!("{name}.gguf"));
        let to = written(&from, &again, GgufType::F32);
        let settings = |config: &Config| Config {
            architecture: from.config().architecture,
            bos_token_id: None,
            eos_token_id: Vec::new(),
            ..config.clone()
        };
        assert_eq!(settings(to.config()), settings(from.config()), "{name}");
        // The tensors' bytes are at the ends of both files.
        let aligned = |shape: &[usize]| (shape.iter().product::<usize>() * 4).next_multiple_of(32);
        let length: usize = from.config().tensors().iter().map(|(_, shape)| aligned(shape)).sum();
        let values = |path: &Path| -> Vec<f32> {
            let bytes = std::fs::read(path).unwrap();
            let bytes = &bytes[bytes.len() - length..];
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
        };
        let (worst, at) = golden::distance(&values(&again), &values(&path));
        assert!(worst < 1e-6, "{name}: off by {worst} at {at}");
    }
}

/// Cases that llama.cpp would compute differently, with the field.
const NOT_REPRESENTABLE: [(&str, &str, &str); 5] = [
    ("mistral_window", "sliding_window", "found 7"),
    ("smollm3", "no_rope_layers", "found [1,0,1]"),
    ("gemma3_text", "query_pre_attn_scalar", "expected 8"),
    ("qwen3_5_text", "layer_types", "found [\"full_attention\",\"linear_attention\"]"),
    ("gemma4_text_shared", "num_kv_shared_layers", "found 2"),
];

#[test]
fn what_llama_cpp_would_compute_differently_is_refused_by_name_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    for (case, field, part) in NOT_REPRESENTABLE {
        let (from, path) = (golden::checkpoint(case), dir.path().join(format!("{case}.gguf")));
        let config = from.config();
        let tensors = config.tensors().into_iter().map(|(n, s)| (n.clone(), s, from.tensor(&n).unwrap()));
        let message = write_gguf(&path, config, Vec::new(), tensors, GgufType::F32).unwrap_err().to_string();
        for part in [path.to_str().unwrap(), field, part, "a checkpoint folder supports any model"] {
            assert!(message.contains(part), "{case}: {message:?} lacks {part:?}");
        }
        assert!(!path.exists(), "{case}");
    }
    let bytes = std::fs::read(file("qwen3")).unwrap();
    let message = refusal(&with(&bytes, "general.architecture", 12, b"dream"));
    assert!(message.contains("qwen2, qwen3, qwen35, smollm3, found dream"), "{message}");
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
    let is_left_out = |case: &str| NOT_REPRESENTABLE.iter().any(|(other, ..)| *other == case);
    for case in golden::CASES.into_iter().filter(|case| !is_left_out(case)) {
        let from = golden::checkpoint(case);
        let to = written(&from, &dir.path().join(format!("{case}.gguf")), GgufType::F32);
        let (mut found, mut wanted) = (to.config().clone(), from.config().clone());
        // Their counterparts are in the tokenizer's metadata, which this test doesn't write.
        for config in [&mut found, &mut wanted] {
            (config.bos_token_id, config.pad_token_id) = (None, None);
            config.eos_token_id.truncate(1);
            config.rms_norm_eps = f64::from(config.rms_norm_eps as f32);
            if let Some(gemma4) =
                config.gemma4.as_mut().filter(|gemma4| gemma4.hidden_size_per_layer_input == 0)
            {
                gemma4.vocab_size_per_layer_input = config.vocab_size;
            }
            if let RopeScaling::LongRope { attention_factor, .. } = &mut config.rope_scaling {
                *attention_factor = f64::from(*attention_factor as f32);
            }
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

/// Keys that change nothing in a file without scaling.
const WITHOUT_EFFECT: [&str; 4] =
    ["tensor_data_layout", "pooling_type", "rope.scaling.original_context_length", "rope.scaling.finetuned"];

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
    assert_eq!(accepted, WITHOUT_EFFECT);
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
fn every_key_of_llama_cpp_is_known_or_refused_in_every_family() {
    let keys: Vec<&str> =
        include_str!("golden/gguf/keys.txt").lines().filter(|line| !line.starts_with('#')).collect();
    let dir = tempfile::tempdir().unwrap();
    let more = dir.path().join("more.gguf");
    for (name, path) in llama_cpp().1 {
        let from = Checkpoint::open(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let architecture = "general.architecture";
        let at = bytes.windows(architecture.len()).position(|w| w == architecture.as_bytes()).unwrap();
        let at = at + architecture.len() + 4;
        let length = usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap();
        let architecture = std::str::from_utf8(&bytes[at + 8..at + 8 + length]).unwrap();
        for key in &keys {
            // The number 3 for a key, before the other metadata, and a string, so that the tensors move by a multiple of the alignment.
            let key = format!("{architecture}.{key}");
            let count = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) + 2;
            let text = |text: &[u8]| [&(text.len() as u64).to_le_bytes()[..], text].concat();
            let item = [text(key.as_bytes()), vec![4, 0, 0, 0, 3, 0, 0, 0]].concat();
            let mut other = [text(b"general.space"), vec![8, 0, 0, 0]].concat();
            let length = item.len() + other.len() + 8;
            other.extend(text(&vec![b' '; length.next_multiple_of(32) - length]));
            let changed = [&bytes[..16], &count.to_le_bytes(), &item, &other, &bytes[24..]].concat();
            std::fs::write(&more, changed).unwrap();
            match Checkpoint::open(&more) {
                Ok(opened) if opened.config() == from.config() => {
                    // The second is the older name of a key that these files have.
                    let known = WITHOUT_EFFECT.iter().chain(&["rope.scale_linear"]);
                    assert!(known.into_iter().any(|known| key.ends_with(known)), "{name}: {key}");
                }
                // An OLMo 2 with a window is an OLMo 3.
                Ok(opened) => assert!(
                    key.contains(".rope.scal") || key == "olmo2.attention.sliding_window",
                    "{key}: {:?}",
                    opened.config()
                ),
                Err(error) => {
                    // The others require a further key, or are in conflict with a tensor.
                    let message = error.to_string();
                    let named = [&*key, "olmo2.attention.sliding_window: ", "one scaling"];
                    assert!(named.iter().any(|part| message.contains(part)), "{name}: {message}");
                }
            }
        }
    }
}

/// A Qwen3.5 file with a layer after the last one, which has these tensors, and with this number of layers for the prediction of further tokens.
fn with_further_layer(path: &Path, layers: u32, tensors: &[&str], further: u32) -> Vec<u8> {
    let mut bytes = std::fs::read(path).unwrap();
    let text = |text: &[u8]| [&(text.len() as u64).to_le_bytes()[..], text].concat();
    let at = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).position(|w| w == part).unwrap();
    let count = text(b"qwen35.block_count");
    let count = at(&bytes, &count) + count.len() + 4;
    bytes[count..count + 4].copy_from_slice(&(layers + 1).to_le_bytes());
    // Vectors of two values, at the start of the data.
    let info = |name: &&str| {
        let about = [&1u32.to_le_bytes()[..], &2u64.to_le_bytes(), &0u32.to_le_bytes(), &0u64.to_le_bytes()];
        [text(format!("blk.{layers}.{name}").as_bytes()), about.concat()].concat()
    };
    let infos: Vec<u8> = tensors.iter().flat_map(info).collect();
    let key = [text(b"qwen35.nextn_predict_layers"), [4u32, further].map(u32::to_le_bytes).concat()].concat();
    // A string, so that the data move by a multiple of the alignment.
    let mut space = [text(b"general.space"), 8u32.to_le_bytes().to_vec()].concat();
    let length = infos.len() + key.len() + space.len() + 8;
    space.extend(text(&vec![b' '; length.next_multiple_of(32) - length]));
    let first = at(&bytes, &text(b"token_embd.weight"));
    let [has_tensors, has_keys] = [8, 16].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()));
    let counts = [has_tensors + tensors.len() as u64, has_keys + 2].map(u64::to_le_bytes).concat();
    [&bytes[..8], &counts, &key, &space, &bytes[24..first], &infos, &bytes[first..]].concat()
}

#[test]
fn layers_that_predict_further_tokens_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let plain = golden::folder().join("llama_cpp/qwen3_5_text.gguf");
    let layers = Checkpoint::open(&plain).unwrap().config().num_hidden_layers as u32;
    let write = |name: &str, tensors: &[&str], further: u32| {
        let path = dir.path().join(name);
        std::fs::write(&path, with_further_layer(&plain, layers, tensors, further)).unwrap();
        path
    };
    let parts = ["nextn.eh_proj.weight", "nextn.enorm.weight", "attn_q.weight"];
    let path = write("further.gguf", &parts, 1);
    let tokens: Vec<u32> = (0..9).collect();
    assert_eq!(Checkpoint::open(&path).unwrap().config(), Checkpoint::open(&plain).unwrap().config());
    assert_eq!(logits(&path, &tokens), logits(&plain, &tokens));
    // Without these tensors, the last layer is one of the model's.
    let key = "qwen35.nextn_predict_layers";
    for (parts, further, says) in [
        (&parts[1..], 1, key),
        (&parts, 2, key),
        (&parts, layers + 1, key),
        (&parts, u32::MAX, key),
        (&parts, 0, "no such tensor"),
    ] {
        let message = Checkpoint::open(write("refused.gguf", parts, further)).unwrap_err().to_string();
        assert!(message.contains(says), "{further}: {message}");
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
    assert_eq!(scaling(&[kind("yarn")]), RopeScaling::Default);
    for other in ["dynamic", "longrope"] {
        assert!(opened(&[kind(other)], &[]).unwrap_err().contains(&format!("found \"{other}\"")));
    }
}

#[test]
fn yarn_is_read_as_llama_cpp_reads_it() {
    let yarn = |more: &[(&str, Item)]| {
        let all = [
            &[("rope.scaling.type", Item::Text("yarn".into())), ("rope.scaling.factor", Item::Real(4.0))],
            more,
        ];
        opened(&all.concat(), &[]).map(|config| config.rope_scaling)
    };
    let usual = 0.1 * 4f64.ln() + 1.0;
    for (more, factor) in [(None, usual), (Some(2.0), 2.0 * usual)] {
        let more: Vec<_> = more.map(|x| ("rope.scaling.attn_factor", Item::Real(x))).into_iter().collect();
        let Ok(RopeScaling::Yarn {
            factor: 4.0,
            original_max_position_embeddings: 256,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
            attention_factor,
            llama_4_scaling_beta: None,
        }) = yarn(&more)
        else {
            panic!("{:?}", yarn(&more))
        };
        assert!((attention_factor - factor).abs() < 1e-12, "{attention_factor}");
    }
    // llama.cpp ignores these, and transformers doesn't.
    for (key, value) in [("yarn_beta_fast", 8.0), ("yarn_beta_slow", 2.0), ("yarn_attn_factor", 2.0)] {
        let key = format!("rope.scaling.{key}");
        assert!(yarn(&[(&key, Item::Real(value))]).unwrap_err().contains(&key));
    }
    yarn(&[("rope.scaling.yarn_attn_factor", Item::Real(usual as f32))]).unwrap();
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
        (with(&bytes, "general.architecture", 12, b"gptx2"), "qwen3, qwen35, smollm3, found gptx2"),
        (with(&bytes, "qwen3.block_coun", 0, b"x"), "qwen3.block_counx: "),
    ] {
        let message = refusal(&broken);
        assert!(message.contains(wanted), "{message:?} lacks {wanted:?}");
    }
}
