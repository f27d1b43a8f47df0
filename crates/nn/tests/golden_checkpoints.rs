//! Checkpoints of this crate opened by transformers, and the reverse.

mod golden;

use std::io::Write;
use std::process::{Command, Stdio};

use fgrpo_nn::config::{LayerType, RopeScaling};
use fgrpo_nn::weights::{Dtype, write_checkpoint};
use serde_json::{Value, json};

#[test]
fn checkpoints_saved_by_transformers_5_open_with_their_settings() {
    for case in golden::CASES {
        let checkpoint = golden::checkpoint(case);
        let config = checkpoint.config();
        let model_type = config.architecture.model_type();
        assert!(case.starts_with(model_type), "{case}: {model_type}");
        let tied = ["qwen2_tied", "qwen3_tied_bf16", "llama3_scaled", "qwen3_yarn", "smollm3", "gemma3_text"];
        assert_eq!(config.tie_word_embeddings, tied.contains(&case), "{case}");
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
        assert_eq!(written, record["configs"][case], "{case}: wrote {written:#}");
    }
}

#[test]
#[ignore = "needs torch and transformers: FGRPO_PYTHON names a Python that has them"]
fn written_checkpoints_give_pytorchs_logits_in_transformers() {
    let python =
        std::env::var("FGRPO_PYTHON").expect("FGRPO_PYTHON names a Python with torch and transformers");
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
        let mut child = Command::new(&python)
            .arg(golden::folder().join("open_in_transformers.py"))
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(json!(inputs).to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        eprintln!("{case}: opened by transformers {}", answer["transformers"]);
        for (found, wanted) in answer["logits"].as_array().unwrap().iter().zip(last_rows) {
            let found: Vec<f32> =
                found.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect();
            let (worst, at) = golden::distance(&found, wanted);
            assert!(worst < 1e-5, "{case}: logit {at} is off by {worst}");
        }
    }
}
