//! Checkpoints of this crate opened by transformers, and the reverse.

mod device;
mod golden;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use device::device;
use fgrpo_nn::config::{Config, Gemma4, LayerType, RopeScaling};
use fgrpo_nn::weights::{Dtype, write_checkpoint};
use fgrpo_nn::{Batch, Engine, Error, LoraConfig};
use serde_json::{Value, json};

#[test]
fn checkpoints_saved_by_transformers_5_open_with_their_settings() {
    for case in golden::CASES {
        let checkpoint = golden::checkpoint(case);
        let config = checkpoint.config();
        let model_type = config.architecture.model_type();
        assert!(case.starts_with(model_type), "{case}: {model_type}");
        let tied =
            "qwen2_tied qwen3_tied_bf16 llama3_scaled qwen3_yarn smollm3 gemma3_text granite lfm2 gemma4_text gemma4_text_shared".split(' ');
        assert_eq!(config.tie_word_embeddings, tied.clone().any(|name| name == case), "{case}");
        assert_eq!(checkpoint.dtype(), if case.ends_with("bf16") { Dtype::BF16 } else { Dtype::F32 });
        let values: usize =
            checkpoint.names().iter().map(|name| checkpoint.tensor(name).unwrap().len()).sum();
        assert_eq!(values as u64, config.parameters(), "{case}");
    }
    let scaling = RopeScaling::Llama3 {
        factor: 4.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 64,
    };
    assert_eq!(golden::checkpoint("llama3_scaled").config().rope_scaling, scaling);
    assert_eq!(golden::checkpoint("llama_linear").config().rope_scaling, RopeScaling::Linear { factor: 2.5 });
    assert_eq!(golden::checkpoint("mistral_window").config().sliding_window, Some(7));
    assert_eq!(golden::checkpoint("smollm3").config().no_rope_layers, [1, 0, 1]);
    let gemma = golden::checkpoint("gemma3_text");
    let (sliding, full) = (LayerType::SlidingAttention, LayerType::FullAttention);
    assert_eq!(gemma.config().layer_types, [sliding, full, sliding]);
    assert_eq!(gemma.config().rope_scaling, RopeScaling::Linear { factor: 2.0 });
    assert_eq!((gemma.config().rope_theta, gemma.config().rope_local_base_freq), (1e4, Some(100.0)));
    assert_eq!((gemma.config().sliding_window, gemma.config().query_pre_attn_scalar), (Some(7), Some(10)));
    let gemma = golden::checkpoint("gemma4_text");
    let scaling = RopeScaling::Proportional { factor: 1.0, partial_rotary_factor: 0.5 };
    assert_eq!((&gemma.config().rope_scaling, gemma.config().rope_local_base_freq), (&scaling, Some(100.0)));
    let expected = Gemma4 {
        global_head_dim: 12,
        num_global_key_value_heads: 1,
        attention_k_eq_v: true,
        num_kv_shared_layers: 0,
        use_double_wide_mlp: false,
        hidden_size_per_layer_input: 0,
        vocab_size_per_layer_input: 262_144,
        final_logit_softcapping: Some(4.0),
    };
    assert_eq!(gemma.config().gemma4, Some(expected));
    let expected = Gemma4 {
        num_global_key_value_heads: 2,
        attention_k_eq_v: false,
        num_kv_shared_layers: 2,
        use_double_wide_mlp: true,
        hidden_size_per_layer_input: 10,
        vocab_size_per_layer_input: 37,
        final_logit_softcapping: Some(6.0),
        ..expected
    };
    assert_eq!(golden::checkpoint("gemma4_text_shared").config().gemma4, Some(expected));
    let qwen = golden::checkpoint("qwen3_5_text");
    let linear = LayerType::LinearAttention;
    assert_eq!(qwen.config().layer_types, [full, linear]);
    assert_eq!(qwen.config().partial_rotary_factor, Some(0.25));
    let sizes = qwen.config().linear_attention.unwrap();
    assert_eq!((sizes.linear_num_key_heads, sizes.linear_num_value_heads), (3, 6));
    assert_eq!(
        (sizes.linear_key_head_dim, sizes.linear_value_head_dim, sizes.linear_conv_kernel_dim),
        (8, 8, 4)
    );
    let granite = golden::checkpoint("granite").config().multipliers.unwrap();
    assert_eq!((granite.embedding_multiplier, granite.attention_multiplier), (3.0, 0.3));
    assert_eq!((granite.residual_multiplier, granite.logits_scaling), (0.6, 1.7));
    let lfm2 = golden::checkpoint("lfm2");
    assert_eq!(lfm2.config().layer_types, [LayerType::Conv, full, LayerType::Conv]);
    assert_eq!((lfm2.config().conv_l_cache, lfm2.config().intermediate_size), (Some(3), 20));
    let phi3 = golden::checkpoint("phi3");
    assert_eq!((phi3.config().partial_rotary_factor, phi3.config().context()), (Some(0.5), 128));
    // As transformers 5.24 infers it from the factor, and from mscale.
    for (case, wanted) in [("qwen3_yarn", 0.1 * 4f64.ln() + 1.0), ("ministral3", 1.0)] {
        let RopeScaling::Yarn { attention_factor, .. } = golden::checkpoint(case).config().rope_scaling
        else {
            panic!("{case}")
        };
        assert_eq!(attention_factor, wanted, "{case}");
    }
}

/// `written_configs.json` has the configuration that this crate writes for each case. The versions of transformers that it names opened
/// it and gave PyTorch's logits. After a change of the writer, open them again (the test below does) and update the record.
#[test]
fn written_configs_are_those_that_transformers_4_and_5_opened() {
    let record = std::fs::read(golden::folder().join("written_configs.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    for case in golden::CASES {
        let checkpoint = golden::checkpoint(case);
        let written = Value::Object(checkpoint.config().to_json(checkpoint.dtype()));
        assert_eq!(parse(written.clone()).unwrap(), *checkpoint.config(), "{case}");
        assert_eq!(written, record["configs"][case], "{case}: wrote {written:#}");
    }
}

#[test]
#[ignore = "needs torch and transformers: FGRPO_PYTHON names a Python that has them"]
fn written_checkpoints_give_pytorchs_logits_in_transformers() {
    for case in golden::CASES {
        let (checkpoint, expected) = (golden::checkpoint(case), golden::expected(case));
        let config = checkpoint.config();
        let dir = tempfile::tempdir().unwrap();
        let tensors =
            config.tensors().into_iter().map(|(n, s)| (n.clone(), s, checkpoint.tensor(&n).unwrap()));
        write_checkpoint(dir.path(), config, tensors, checkpoint.dtype(), 9000).unwrap();

        let sequences = golden::sequences(&expected);
        let wanted = expected.tensor("logits").unwrap();
        let mut last_rows = Vec::new();
        let mut inputs = Vec::new();
        let mut row = 0;
        for s in sequences.iter().filter(|s| !s.completion.is_empty()) {
            row += s.completion.len();
            last_rows.push(&wanted[(row - 1) * config.vocab_size..row * config.vocab_size]);
            inputs.push([&s.prompt[..], &s.completion[..s.completion.len() - 1]].concat());
        }
        let answer = run(case, "open_in_transformers.py", &[dir.path()], &inputs);
        eprintln!("{case}: opened by transformers {}", answer["transformers"]);
        for (found, wanted) in rows(&answer["logits"]).iter().zip(last_rows) {
            let (worst, at) = golden::distance(found, wanted);
            assert!(worst < 1e-5, "{case}: logit {at} is off by {worst}");
        }
    }
}

#[test]
#[ignore = "needs torch, transformers and peft: FGRPO_PYTHON names a Python that has them"]
fn adapters_compute_in_peft_as_here_and_pefts_here_as_there() {
    for case in golden::CASES {
        let checkpoint = golden::checkpoint(case);
        let open = || Engine::open(&checkpoint, &device(2)).unwrap();
        let (mut ours, folder) = (open(), tempfile::tempdir().unwrap());
        let mut seed = 0u64;
        let mut uniform = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 11) as f64 / (1u64 << 53) as f64
        };
        ours.adapt(&LoraConfig { rank: 2, alpha: 3.0, ..LoraConfig::default() }, &mut uniform).unwrap();
        let mut factors: Vec<Vec<f32>> =
            ours.adapter_tensors().map(|(_, _, data)| data.into_owned()).collect();
        // `B` follows `A`, and is 0 so far.
        factors.iter_mut().skip(1).step_by(2).flatten().for_each(|x| *x = (uniform() - 0.5) as f32);
        ours.exchange_factors(&mut factors);
        let [adapter, other] = ["ours", "theirs"].map(|name| folder.path().join(name));
        let base = golden::folder().join(case);
        ours.write_adapter(&adapter, base.to_str().unwrap()).unwrap();
        let sequences: Vec<Vec<u32>> = golden::sequences(&golden::expected(case))
            .into_iter()
            .map(|sequence| [sequence.prompt, sequence.completion].concat())
            .collect();
        let answer = run(case, "open_in_peft.py", &[&base, &adapter, &other], &sequences);
        let theirs = Engine::open_adapted(checkpoint, None, &other, &device(2)).unwrap();
        let vocabulary = theirs.config().vocab_size;
        for (mut engine, name) in [(ours, "ours"), (theirs, "theirs")] {
            let mut at = 0;
            let (mut worst, mut effect) = (0.0f32, 0.0f32);
            let [wanted, plain] = [name, "base"].map(|name| rows(&answer[name]));
            for tokens in &sequences {
                let mut batch = Batch::default();
                batch.push_group(&tokens[..1], &[&tokens[1..]]);
                for (row, found) in engine.logits(&batch).unwrap().chunks(vocabulary).enumerate() {
                    worst = worst.max(golden::distance(found, &wanted[at + row]).0);
                    effect = effect.max(golden::distance(found, &plain[at + row]).0);
                }
                at += tokens.len();
            }
            eprintln!("{case}: {name} in peft {}: off by {worst:.1e}, effect {effect:.2}", answer["peft"]);
            assert!(worst < 1e-4 && effect > 1e-2, "{case}, {name}: off by {worst}, effect {effect}");
        }
    }
}

/// Runs a script of the golden folder and parses the JSON that it prints.
fn run(case: &str, script: &str, folders: &[&Path], input: &[Vec<u32>]) -> Value {
    let python = std::env::var("FGRPO_PYTHON").expect("FGRPO_PYTHON names a Python with the packages");
    let mut child = Command::new(&python)
        .arg(golden::folder().join(script))
        .args(folders)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(json!(input).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn rows(logits: &Value) -> Vec<Vec<f32>> {
    let row = |row: &Value| row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
    logits.as_array().unwrap().iter().map(row).collect()
}

fn parse(value: Value) -> Result<Config, Error> {
    Config::from_json(value.as_object().unwrap(), "config.json")
}

fn with(mut value: Value, field: &str, to: Value) -> Value {
    value[field] = to;
    value
}

/// Keys of transformers' classes that change no result: types of models ("*" for all), keys, and the reason.
const WITHOUT_EFFECT: [(&str, &str, &str); 16] = [
    (
        "*",
        "_name_or_path dtype finetuning_task prefix task_specific_params tokenizer_class transformers_version \
         bad_words_ids begin_suppress_tokens decoder_start_token_id diversity_penalty do_sample early_stopping \
         encoder_no_repeat_ngram_size exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id \
         length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences \
         output_scores remove_invalid_values repetition_penalty return_dict_in_generate sep_token_id \
         suppress_tokens temperature top_k top_p typical_p",
        "names, stored types, and settings of samplers, which a run sets itself",
    ),
    (
        "*",
        "chunk_size_feed_forward output_attentions output_hidden_states return_dict tf_legacy_loss torchscript \
         use_bfloat16 use_cache pretraining_tp",
        "how a pass is computed and what it returns, not its logits",
    ),
    (
        "*",
        "initializer_range attention_dropout",
        "new models, and dropout, which policies are trained without",
    ),
    ("*", "id2label label2id problem_type", "classifiers, which `architectures` excludes"),
    (
        "*",
        "add_cross_attention cross_attention_hidden_size is_decoder is_encoder_decoder pruned_heads tie_encoder_decoder",
        "an encoder's or other tensors, which the checkpoint's names and shapes exclude",
    ),
    (
        "gemma3 mistral3 qwen3_5",
        "boi_token_index eoi_token_index image_token_index image_token_id video_token_id vision_start_token_id \
         vision_end_token_id mm_tokens_per_image multimodal_projector_bias projector_hidden_act spatial_merge_size \
         vision_config vision_feature_layer",
        "the parts for images",
    ),
    ("gemma3 mistral3 qwen3_5", "architectures", "the types of the whole and of its text part decide"),
    ("qwen2 qwen3 smollm3", "sliding_window max_window_layers", "a layer that has a window is refused"),
    ("qwen2 qwen3", "use_sliding_window", "`layer_types` lists the layers"),
    ("phi3", "original_max_position_embeddings", "only scaled rotary frequencies depend on it"),
    ("phi3", "partial_rotary_factor", "`rope_parameters` has it"),
    ("smollm3", "no_rope_layer_interval", "`no_rope_layers` lists the layers"),
    (
        "gemma3_text",
        "_sliding_window_pattern rope_local_base_freq",
        "`layer_types` and `rope_parameters` have it",
    ),
    ("lfm2", "full_attn_idxs", "`layer_types` lists the layers"),
    (
        "gemma4",
        "boi_token_id eoi_token_id image_token_id video_token_id boa_token_id eoa_token_index audio_token_id vision_config \
         audio_config architectures",
        "the parts for images and audio; the types of the whole and of its text part decide",
    ),
    ("gemma4_text", "num_experts top_k_experts moe_intermediate_size", "experts are refused"),
];

/// A value of the same type that differs from `value`.
fn other(value: &Value) -> Value {
    match value {
        Value::Null => json!(3),
        Value::Bool(on) => json!(!on),
        Value::Number(number) => match number.as_i64() {
            Some(number) => json!(number * 2 + 2),
            None => json!(number.as_f64().unwrap() * 2.0 + 1.0),
        },
        Value::String(_) => json!("other"),
        Value::Array(list) => {
            let first = match list[0].as_i64() {
                Some(number) => json!(1 - number),
                None if list[0].is_f64() => json!(list[0].as_f64().unwrap() * 2.0 + 1.0),
                None if list[0] == "full_attention" => json!("sliding_attention"),
                None => json!("full_attention"),
            };
            Value::Array([&[first], &list[1..]].concat())
        }
        Value::Object(_) => json!({"model_type": "other", "rope_type": "dynamic", "factor": 2.0}),
    }
}

#[test]
fn every_key_of_transformers_changes_the_result_or_is_refused_or_has_a_reason_to_be_ignored() {
    let file: Value = serde_json::from_str(include_str!("golden/config_keys.json")).unwrap();
    let mut reasons = BTreeSet::new();
    let mut wrong = Vec::new();
    for (kind, defaults) in file["keys"].as_object().unwrap() {
        let mut base = defaults.clone();
        // transformers 4 has it there, with another default for OLMo 3; 5 has it in `rope_parameters`.
        base.as_object_mut().unwrap().remove("rope_theta");
        match base.get_mut("text_config") {
            Some(text) => {
                let inside = if kind == "mistral3" { "mistral".into() } else { format!("{kind}_text") };
                *text = json!({"model_type": inside});
            }
            None => assert_eq!(
                parse(json!({"model_type": kind})).unwrap(),
                parse(base.clone()).unwrap(),
                "the defaults of {kind}"
            ),
        }
        let expected = parse(base.clone()).unwrap();
        for (key, value) in defaults.as_object().unwrap() {
            let ignored = parse(with(base.clone(), key, other(value))).is_ok_and(|found| found == expected);
            let lists = |names: &str, name: &str| names.split(' ').any(|known| known == name);
            let row = WITHOUT_EFFECT
                .iter()
                .position(|(types, keys, _)| lists(keys, key) && (*types == "*" || lists(types, kind)));
            if ignored != row.is_some() {
                wrong.push(format!("{kind}.{key} ignored: {ignored}"));
            }
            reasons.extend(row.map(|row| (row, key.clone())));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    let listed = WITHOUT_EFFECT.iter().flat_map(|(_, keys, _)| keys.split(' ')).count();
    assert_eq!(reasons.len(), listed, "a listed key that no class has");
}

#[test]
fn a_key_of_the_rotary_scaling_has_an_effect_if_transformers_reads_it_for_this_type() {
    let all = json!({
        "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "attention_factor": 1.5, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": false,
        // Read only in longrope, without attention_factor, or for images.
        "short_factor": [1.0], "long_factor": [1.0], "mscale": 1.0, "mscale_all_dim": 0.5, "mrope_section": [8, 8],
    });
    for (kind, read) in [
        ("default", "rope_theta"),
        ("linear", "rope_theta factor"),
        ("llama3", "rope_theta factor original_max_position_embeddings low_freq_factor high_freq_factor"),
        (
            "yarn",
            "rope_theta factor original_max_position_embeddings attention_factor beta_fast beta_slow truncate",
        ),
    ] {
        let config = |rope: Value| {
            parse(json!({"model_type": "llama", "rope_parameters": with(rope, "rope_type", json!(kind))}))
        };
        let expected = config(all.clone()).unwrap();
        for (key, value) in all.as_object().unwrap() {
            let has_effect = config(with(all.clone(), key, other(value))).unwrap() != expected;
            assert_eq!(has_effect, read.split(' ').any(|known| known == key), "{kind}: {key}");
        }
        for (key, value) in [("partial_rotary_factor", 0.5), ("llama_4_scaling_beta", 0.1)] {
            let other = config(with(all.clone(), key, json!(value)));
            assert!(
                other.is_err_and(|error| error.to_string().contains(key))
                    || (kind, key) == ("yarn", "llama_4_scaling_beta")
            );
        }
    }
}
