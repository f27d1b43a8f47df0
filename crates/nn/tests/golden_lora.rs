//! LoRA compared with PEFT and PyTorch: logits, merged logits, gradients and optimizer steps of `golden/make_lora.py` and `golden/make_qlora.py`.

mod device;
mod golden;
mod levels;

use device::device;
use fgrpo_nn::weights::{Dtype, TensorFile};
use fgrpo_nn::{AdamW, BaseFormat, Batch, Engine, LoraConfig};

/// Merged into the weights, and on a base of bitsandbytes in 4 bits.
const CASES: [&str; 5] = ["lora_qwen2", "lora_qwen3_rs", "qlora_qwen2", "qlora_qwen3_plain", "qlora_phi3"];

fn adapted(case: &str) -> (Engine, TensorFile) {
    let expected = golden::expected(case);
    let base = golden::checkpoint(&expected.metadata()["base"]);
    assert_eq!(base.base().is_some(), case.starts_with("qlora"));
    let mut engine = Engine::open_with_base(&base, base.base(), &device(2)).unwrap();
    engine.read_adapter(&golden::folder().join(case)).unwrap();
    (engine, expected)
}

/// The batch as prefix trees, and for each completion token its prediction.
fn batch(expected: &TensorFile) -> (Batch, Vec<usize>) {
    let (mut batch, mut of) = (Batch::default(), Vec::new());
    for group in golden::sequences(expected).chunk_by(|a, b| a.group == b.group) {
        let completions: Vec<&[u32]> = group.iter().map(|s| s.completion.as_slice()).collect();
        of.extend(batch.push_group(&group[0].prompt, &completions).concat());
    }
    (batch, of)
}

/// Adds the gradient of make.py's scalar function. Returns its value.
fn accumulate(engine: &mut Engine, expected: &TensorFile) -> f64 {
    let (batch, of) = batch(expected);
    let [a, b, c] = ["a", "b", "c"].map(|name| expected.tensor(name).unwrap());
    let temperature = golden::numbers(expected, "temperature")[0] as f32;
    let mut tokens_of = vec![Vec::new(); batch.predictions.len()];
    for (token, &prediction) in of.iter().enumerate() {
        tokens_of[prediction].push(token);
    }
    let (scores, _) = engine
        .accumulate(&batch, temperature, &|family| {
            for (i, &prediction) in family.predictions.iter().enumerate() {
                family.dlogp[i] = tokens_of[prediction].iter().map(|&t| a[t] + c[t] * family.logp[i]).sum();
                family.dentropy[i] = tokens_of[prediction].iter().map(|&t| b[t]).sum();
            }
        })
        .unwrap();
    let term = |(t, &p): (usize, &usize)| {
        let (logp, entropy) = (f64::from(scores.logp[p]), f64::from(scores.entropy[p]));
        f64::from(a[t]) * logp + f64::from(c[t]) / 2.0 * logp * logp + f64::from(b[t]) * entropy
    };
    of.iter().enumerate().map(term).sum()
}

#[track_caller]
fn assert_near(what: &str, found: &[f32], wanted: &[f32], tolerance: f32) {
    let (worst, at) = golden::distance(found, wanted);
    assert!(worst <= tolerance, "{what}[{at}]: found {}, wanted {}, off by {worst}", found[at], wanted[at]);
}

#[test]
fn logits_equal_pefts_adapted_and_its_merged_model() {
    for case in CASES {
        let (mut engine, expected) = adapted(case);
        let (batch, of) = batch(&expected);
        let logits = engine.logits(&batch).unwrap();
        let v = engine.config().vocab_size;
        let found: Vec<f32> = of.iter().flat_map(|&p| logits[p * v..(p + 1) * v].iter().copied()).collect();
        let merges = expected.shape("merged_logits").is_some();
        assert_eq!(merges, engine.base().is_none());
        for name in ["logits"].into_iter().chain(merges.then_some("merged_logits")) {
            assert_near(&format!("{case} {name}"), &found, &expected.tensor(name).unwrap(), 2e-5);
        }
    }
}

/// Whole modules, and factors of embedding, head and per-layer projection, for models that tie these and models that don't.
const OUTSIDE: [&str; 9] = [
    "lora_saved",
    "lora_saved_head_of_tied",
    "lora_saved_embedding_of_tied",
    "lora_saved_and_tied",
    "lora_head_and_embedding",
    "lora_head_of_tied",
    "lora_embedding_of_tied",
    "lora_tied_to_the_embedding",
    "lora_per_layer_projection",
];

#[test]
fn adapters_that_train_more_than_the_layers_matrices_compute_as_in_peft_and_cannot_be_trained() {
    for case in OUTSIDE {
        let (dir, expected) = (golden::folder().join(case), golden::expected(case));
        if !device::supports(&expected.metadata()["base"]) {
            continue;
        }
        let base = || golden::checkpoint(&expected.metadata()["base"]);
        let mut engine = Engine::open_adapted(base(), None, &dir, &device(2)).unwrap();
        let (batch, of) = batch(&expected);
        let logits = engine.logits(&batch).unwrap();
        let v = engine.config().vocab_size;
        let found: Vec<f32> = of.iter().flat_map(|&p| logits[p * v..(p + 1) * v].iter().copied()).collect();
        assert_near(case, &found, &expected.tensor("logits").unwrap(), 5e-5);
        let message = LoraConfig::read(&dir).unwrap_err().to_string();
        assert!(message.contains("fgrpo merge"), "{message}");
        assert!(message.contains("modules_to_save") || message.contains("target_modules"), "{message}");
        Engine::open(&base(), &device(1)).unwrap().read_adapter(&dir).unwrap_err();
    }
}

#[test]
fn a_module_that_is_not_there_is_refused_by_name() {
    let golden = golden::folder().join("lora_saved");
    let dir = tempfile::tempdir().unwrap();
    let copied = |name: &str| std::fs::read(golden.join(name)).unwrap();
    std::fs::write(dir.path().join("adapter_model.safetensors"), copied("adapter_model.safetensors"))
        .unwrap();
    let mut settings: serde_json::Value = serde_json::from_slice(&copied("adapter_config.json")).unwrap();
    let mut refused = |saved: serde_json::Value| {
        settings["modules_to_save"] = saved;
        std::fs::write(dir.path().join("adapter_config.json"), settings.to_string()).unwrap();
        let base = golden::checkpoint("qwen3_ratio_4");
        Engine::open_adapted(base, None, dir.path(), &device(1)).unwrap_err().to_string()
    };
    // A module that the model doesn't have; one in the file but not in the settings; one in the settings but not in the file.
    for (saved, part) in [
        (vec!["lm_head", "classifier"], "classifier"),
        (vec!["embed_tokens", "lm_head"], "norm"),
        (vec!["embed_tokens", "lm_head", "norm", "down_proj"], "layers.0.mlp.down_proj.weight"),
    ] {
        let message = refused(saved.into());
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn gradients_of_the_factors_and_four_adamw_steps_follow_peft() {
    for case in CASES {
        let (mut engine, expected) = adapted(case);
        accumulate(&mut engine, &expected);
        let mut seen = 0;
        for (name, shape, found) in engine.gradients() {
            let wanted = expected.tensor(&format!("grad.{name}")).unwrap();
            assert_eq!(shape.iter().product::<usize>(), wanted.len(), "{name}");
            let size = wanted.iter().map(|x| x.abs()).fold(0.0, f32::max);
            let worst = found.iter().zip(&wanted).map(|(f, w)| (f - w).abs()).fold(0.0, f32::max);
            assert!(worst <= 2e-5 * size, "{case} {name}: off by {worst}, largest is {size}");
            seen += 1;
        }
        assert_eq!(seen, engine.adapter_tensors().count());
        engine.zero_gradient();
        let [lr, beta1, beta2, eps, weight_decay] = golden::numbers(&expected, "adamw")[..] else {
            panic!("five settings")
        };
        let adamw = AdamW { lr, beta1, beta2, eps, weight_decay, ..AdamW::default() };
        let max_norm: Option<f64> = expected.metadata()["max_norm"].parse().ok();
        let (losses, norms) = (expected.tensor("loss").unwrap(), expected.tensor("grad_norm").unwrap());
        for step in 0..losses.len() {
            let loss = accumulate(&mut engine, &expected);
            assert_near(&format!("{case} loss of step {step}"), &[loss as f32], &[losses[step]], 1e-4);
            let report = engine.update(&adamw, max_norm).unwrap();
            let norm = report.gradient_norm as f32;
            assert_near(&format!("{case} norm of step {step}"), &[norm], &[norms[step]], 1e-4);
        }
        for (name, _, found) in engine.adapter_tensors() {
            let wanted = expected.tensor(&format!("final.{name}")).unwrap();
            assert_near(&format!("{case} {name}"), &found, &wanted, 1e-4);
        }
    }
}

#[test]
fn a_checkpoint_of_bitsandbytes_has_its_values_with_a_base_and_without() {
    for case in ["qlora_qwen2_base", "qlora_qwen3_plain_base"] {
        let checkpoint = golden::checkpoint(case);
        assert_eq!(checkpoint.base(), Some(BaseFormat::Nf4));
        let (kept, full) = (
            Engine::open_with_base(&checkpoint, checkpoint.base(), &device(1)).unwrap(),
            Engine::open(&checkpoint, &device(1)).unwrap(),
        );
        for ((name, _, kept), (_, _, full)) in kept.tensors().zip(full.tensors()) {
            assert!(kept == full && kept[..] == checkpoint.tensor(name).unwrap(), "{name}");
        }
        let other = Engine::open_with_base(&checkpoint, Some(BaseFormat::Int8), &device(1));
        let message = other.unwrap_err().to_string();
        assert!(message.contains("nf4") && message.contains("int8"), "{message}");
    }
}

#[test]
fn a_checkpoint_with_a_matrix_that_is_not_quantized_has_no_format_and_keeps_its_numbers() {
    let golden = golden::folder().join("qlora_qwen2_base");
    let (dir, name) = (tempfile::tempdir().unwrap(), "model.layers.0.mlp.down_proj.weight");
    std::fs::copy(golden.join("config.json"), dir.path().join("config.json")).unwrap();
    let bytes = std::fs::read(golden.join("model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    // Values that NF4 can't represent.
    let numbers: Vec<f32> = (0..64 * 128).map(|i| (i as f32 * 0.37).sin()).collect();
    let plain: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let plain = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![64, 128], &plain).unwrap();
    let others = tensors.tensors().into_iter().filter(|(own, _)| !own.starts_with(name));
    let all: Vec<_> = others.chain([(name.to_string(), plain)]).collect();
    safetensors::serialize_to_file(all, None, &dir.path().join("model.safetensors")).unwrap();
    let checkpoint = fgrpo_nn::weights::Checkpoint::open(dir.path()).unwrap();
    assert_eq!(checkpoint.base(), None);
    let engine = Engine::open(&checkpoint, &device(1)).unwrap();
    let values = |engine: &Engine| engine.tensors().find(|tensor| tensor.0 == name).unwrap().2.into_owned();
    assert!(values(&engine) == numbers);
    // On request, all matrices are in the format.
    let engine = Engine::open_with_base(&checkpoint, Some(BaseFormat::Nf4), &device(1)).unwrap();
    assert!(values(&engine) != numbers);
    let other = Engine::open_with_base(&checkpoint, Some(BaseFormat::Bf16), &device(1));
    assert!(other.unwrap_err().to_string().contains("13 matrices in the format nf4"));
}

#[test]
fn a_base_in_4_bits_is_written_as_transformers_and_bitsandbytes_write_it() {
    for case in ["qlora_qwen2_base", "qlora_qwen3_plain_base"] {
        let checkpoint = golden::checkpoint(case);
        let engine = Engine::open_with_base(&checkpoint, checkpoint.base(), &device(1)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        engine.write_in_4_bits(dir.path(), Dtype::F32).unwrap();
        let [own, theirs] = [dir.path().to_path_buf(), golden::folder().join(case)].map(|dir| {
            let json = |name: &str| std::fs::read(dir.join(name)).unwrap();
            let config: serde_json::Value = serde_json::from_slice(&json("config.json")).unwrap();
            (json("model.safetensors"), config["quantization_config"].clone())
        });
        let [a, b] = [&own.0, &theirs.0].map(|bytes| safetensors::SafeTensors::deserialize(bytes).unwrap());
        assert_eq!(a.len(), b.len(), "{case}");
        for (name, wanted) in b.tensors() {
            let found = a.tensor(&name).unwrap();
            assert_eq!(found.dtype(), wanted.dtype(), "{name}");
            if name.contains("quant_state") {
                let json = |data: &[u8]| serde_json::from_slice::<serde_json::Value>(data).unwrap();
                assert_eq!(json(found.data()), json(wanted.data()), "{name}");
            } else {
                assert_eq!(found.shape(), wanted.shape(), "{name}");
                assert!(found.data() == wanted.data(), "{case}: {name} differs");
            }
        }
        for (field, wanted) in theirs.1.as_object().unwrap() {
            // Ours names the head, which transformers by default doesn't quantize.
            let same = own.1[field] == *wanted || field == "llm_int8_skip_modules";
            assert!(same, "{case}: {field} is {}, not {wanted}", own.1[field]);
        }
        let again = engine.write_in_4_bits(dir.path(), Dtype::F32).unwrap_err().to_string();
        assert!(again.contains("a folder without weights"), "{again}");
    }
}

#[test]
fn an_adapter_written_again_has_the_same_values_and_settings() {
    for case in CASES {
        let (engine, _) = adapted(case);
        let dir = tempfile::tempdir().unwrap();
        engine.write_adapter(dir.path(), "base").unwrap();
        let (read, base) = LoraConfig::read(dir.path()).unwrap();
        assert_eq!((Some(&read), base.as_deref()), (engine.lora(), Some("base")));
        let [ours, pefts] = [dir.path().to_path_buf(), golden::folder().join(case)]
            .map(|dir| TensorFile::open(&dir.join("adapter_model.safetensors")).unwrap());
        let mut names: Vec<&str> = pefts.names().collect();
        names.sort_unstable();
        let mut own: Vec<&str> = ours.names().collect();
        own.sort_unstable();
        assert_eq!(own, names);
        for name in names {
            assert_eq!(ours.shape(name), pefts.shape(name), "{name}");
            assert_eq!(ours.tensor(name).unwrap(), pefts.tensor(name).unwrap(), "{name}");
        }
        let message = engine.write_adapter(dir.path(), "base").unwrap_err().to_string();
        assert!(message.contains("an adapter") && message.contains("remove it"), "{message}");
    }
}

#[test]
fn every_instruction_set_passes_these_tests() {
    if device::on_cpu() {
        levels::pass_all_other_tests("every_instruction_set_passes_these_tests");
    }
}
