//! Layer checks: a value that isn't finite is reported with its pass, layer and operation, and nothing else changes.

use std::ops::ControlFlow;

use fgrpo_nn::config::{Architecture, Config};
use fgrpo_nn::{AdamW, Batch, CHECK_LAYERS, Completion, Engine, FamilyScores, LoraConfig, Prompt, Sampling};

use crate::reference::{Numbers, configs, engine, forest};

/// The untied decoder of three layers.
fn config() -> Config {
    configs().swap_remove(1).1
}

fn batch(config: &Config) -> Batch {
    forest(&mut Numbers::new(71), config.vocab_size, 2, 4, 5)
}

fn tensor(engine: &Engine, name: &str) -> Vec<f32> {
    engine.tensors().find(|tensor| tensor.0 == name).expect(name).2.into_owned()
}

/// Changes some values of a tensor.
fn change(engine: &mut Engine, name: &str, change: impl Fn(usize, &mut f32)) {
    let mut values = tensor(engine, name);
    values.iter_mut().enumerate().for_each(|(index, value)| change(index, value));
    engine.set_tensor(name, &values).unwrap();
}

fn generate(engine: &mut Engine, prompt: &[u32]) -> Result<Vec<Completion>, String> {
    let prompts = [Prompt { tokens: prompt, samples: 0..3 }];
    let sampling = Sampling { max_new_tokens: 6, temperature: 0.0, ..Sampling::default() };
    let mut done = Vec::new();
    let result = engine.generate(&prompts, &sampling, &|_, _, _| 0.5, None, &mut |completion| {
        done.push(completion);
        ControlFlow::Continue(())
    });
    done.sort_by_key(|completion| completion.sample);
    result.map(|()| done).map_err(|error| error.to_string())
}

fn accumulate(engine: &mut Engine, batch: &Batch, derivative: f32) -> Result<(), String> {
    let loss = |family: FamilyScores<'_>| family.dlogp.fill(derivative);
    engine.accumulate(batch, 1.0, &loss).map(|_| ()).map_err(|error| error.to_string())
}

#[track_caller]
fn names(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is missing: {message}");
    }
}

#[test]
fn a_weight_that_is_not_finite_is_named_with_layer_operation_and_tensor() {
    for (_, config) in configs().into_iter().filter(|(_, config)| config.num_hidden_layers > 1) {
        let batch = batch(&config);
        let layer = "model.layers.1.";
        let tensors = config.tensors().into_iter().map(|(name, _)| name);
        for name in tensors.filter(|name| name.starts_with(layer) && name.ends_with(".weight")) {
            let mut engine = engine(&config, 70, 1);
            change(&mut engine, &name, |index, value| {
                if index == 3 {
                    *value = f32::NAN;
                }
            });
            let plain = engine.score(&batch, 1.0).unwrap_err().to_string();
            names(&plain, &["lm_head", "NaN", &format!("{CHECK_LAYERS}=on")]);
            assert!(!plain.contains(layer), "{plain}");
            engine.set_layer_checks(true);
            let output = format!("layer 1: output of {}", name.strip_suffix(".weight").unwrap());
            let weight = format!("the weight {name} has NaN at index 3");
            let wanted = [&output[..], "row ", "column ", "NaN", &weight];
            let message = engine.score(&batch, 1.0).unwrap_err().to_string();
            names(&message, &wanted);
            names(&message, &["forward pass, layer 1"]);
            assert_eq!(accumulate(&mut engine, &batch, 1.0).unwrap_err(), message);
            names(&engine.logits(&batch).unwrap_err().to_string(), &wanted);
            let message = generate(&mut engine, &[1, 2]).unwrap_err();
            names(&message, &wanted);
            names(&message, &["forward pass over prompts, layer 1"]);
        }
    }
}

#[cfg(feature = "cuda-emulator")]
#[test]
fn a_number_of_16_bits_is_named_too() {
    use fgrpo_nn::{Device, Precision};
    let config = config();
    let device = Device::emulated(1 << 30, Precision::Bf16);
    let mut engine = crate::reference::engine_on(&config, 70, &device);
    engine.set_layer_checks(true);
    generate(&mut engine, &[1, 2]).unwrap();
    accumulate(&mut engine, &batch(&config), 1.0).unwrap();
    let name = "model.layers.2.mlp.up_proj.weight";
    change(&mut engine, name, |index, value| {
        if index == 100 {
            *value = f32::NEG_INFINITY;
        }
    });
    let message = engine.score(&batch(&config), 1.0).unwrap_err().to_string();
    names(&message, &["layer 2: output of model.layers.2.mlp.up_proj, predicting row 0 of ", "column 4: "]);
    names(&message, &[&format!("the weight {name} has -inf at index 100")]);
}

#[test]
fn a_number_that_grows_too_large_in_a_decoding_step_is_named_with_its_layer() {
    let config = config();
    let (d, prompt) = (config.hidden_size, [1, 2]);
    let mut engine = engine(&config, 72, 1);
    // Column 5 of the hidden states is 0 for all tokens except one, and a matrix of layer 1 has large values there.
    for name in ["self_attn.o_proj", "mlp.down_proj"] {
        let name = format!("model.layers.0.{name}.weight");
        let inputs = tensor(&engine, &name).len() / d;
        change(&mut engine, &name, |index, value| {
            if index / inputs == 5 {
                *value = 0.0;
            }
        });
    }
    change(&mut engine, "model.embed_tokens.weight", |index, value| {
        if index % d == 5 {
            *value = 0.0;
        }
    });
    change(&mut engine, "model.layers.1.self_attn.q_proj.weight", |index, value| {
        if index % d == 5 {
            *value = 3e38;
        }
    });
    engine.set_layer_checks(true);
    let drawn = generate(&mut engine, &prompt).unwrap()[0].tokens[0];
    assert!(!prompt.contains(&drawn));
    change(&mut engine, "model.embed_tokens.weight", |index, value| {
        if index == drawn as usize * d + 5 {
            *value = 1e18;
        }
    });
    let message = generate(&mut engine, &prompt).unwrap_err();
    names(&message, &["decoding step, layer 1: output of model.layers.1.self_attn.q_proj, row 0", "inf"]);
    names(&message, &["all weights are finite"]);
    // Logits that aren't finite, from finite activations.
    change(&mut engine, "model.embed_tokens.weight", |_, value| *value = value.clamp(-1.0, 1.0));
    change(&mut engine, "lm_head.weight", |_, value| *value = 3e38);
    let message = generate(&mut engine, &prompt).unwrap_err();
    names(&message, &["forward pass over prompts: lm_head: log-probabilities of predicting row 0", "finite"]);
    let message = engine.score(&batch(&config), 1.0).unwrap_err().to_string();
    names(&message, &["forward pass: lm_head: log-probabilities of predicting row 0"]);
}

#[test]
fn a_derivative_that_grows_too_large_is_named_with_its_layer() {
    let config = config();
    let batch = batch(&config);
    for checkpointing in [false, true] {
        let mut engine = engine(&config, 73, 1);
        engine.set_checkpointing(checkpointing);
        engine.set_layer_checks(true);
        let message = accumulate(&mut engine, &batch, f32::NAN).unwrap_err();
        names(
            &message,
            &[
                "backward pass: derivative of the loss with respect to the log-probability of prediction ",
                "NaN",
            ],
        );
        // The layer's MLP gives 0 in the forward pass, whatever its last matrix is.
        change(&mut engine, "model.layers.1.mlp.gate_proj.weight", |_, value| *value = 0.0);
        change(&mut engine, "model.layers.1.mlp.down_proj.weight", |_, value| *value = 3e38);
        engine.score(&batch, 1.0).unwrap();
        let message = accumulate(&mut engine, &batch, 1e4).unwrap_err();
        let operation = "backward pass, layer 1: input gradient of model.layers.1.mlp.down_proj, row ";
        names(&message, &[operation, "column ", "all weights are finite"]);
    }
}

#[test]
fn a_gradient_that_is_not_finite_is_an_error_that_names_its_tensor() {
    let config = config();
    let batch = batch(&config);
    let mut engine = engine(&config, 74, 1);
    let largest = |engine: &Engine| {
        engine.gradients().flat_map(|(_, _, values)| values.into_owned()).map(f32::abs).fold(0.0, f32::max)
    };
    accumulate(&mut engine, &batch, 1.0).unwrap();
    let scale = 2e37 / largest(&engine);
    engine.zero_gradient();
    engine.set_layer_checks(true);
    // Finite in each pass, but too large in sum.
    accumulate(&mut engine, &batch, scale).unwrap();
    let wanted = engine
        .gradients()
        .find(|(_, _, values)| values.iter().any(|value| !(20.0 * value).is_finite()))
        .map(|(name, ..)| name.to_string())
        .unwrap();
    (1..20).for_each(|_| accumulate(&mut engine, &batch, scale).unwrap());
    let before = tensor(&engine, "model.norm.weight");
    let message = engine.update(&AdamW::default(), Some(1.0)).unwrap_err().to_string();
    names(&message, &[&format!("update: gradient of {wanted}, index "), "inf"]);
    assert_eq!(tensor(&engine, "model.norm.weight"), before);
    assert_eq!(engine.gradient_norm(), 0.0);
}

#[test]
fn checks_change_no_bit() {
    for (name, config) in configs() {
        let batch = batch(&config);
        let run = |checks: bool, adapters: bool| {
            let mut engine = engine(&config, 75, 2);
            engine.set_layer_checks(checks);
            if adapters {
                let mut numbers = Numbers::new(76);
                let lora = LoraConfig { rank: 2, ..LoraConfig::default() };
                engine.adapt(&lora, &mut || numbers.uniform()).unwrap();
            }
            accumulate(&mut engine, &batch, 0.5).unwrap();
            let norm = engine.update(&AdamW { lr: 0.01, ..AdamW::default() }, Some(1.0)).unwrap();
            let logp = engine.score(&batch, 1.0).unwrap().logp;
            let samples = generate(&mut engine, &[3, 1, 4]).unwrap();
            let down =
                if config.architecture == Architecture::Lfm2 { "feed_forward.w2" } else { "mlp.down_proj" };
            (norm, logp, samples, tensor(&engine, &format!("model.layers.0.{down}.weight")))
        };
        for adapters in [false, true] {
            assert_eq!(run(true, adapters), run(false, adapters), "{name}, adapters: {adapters}");
        }
    }
}
