//! LoRA: its gradient compared with the full one and with finite differences, frozen weights, resume, refusals.

use fgrpo_nn::config::Architecture;
use fgrpo_nn::{AdamW, BaseFormat, Batch, Engine, LoraConfig};

use crate::device::device;
use crate::optimizer::load_state;
use crate::reference::{
    BASES, Numbers, configs, engine, engine_with_base, forest, score, weights, with_recurrent,
};

fn lora(targets: &[&str]) -> LoraConfig {
    let targets = targets.iter().map(|target| target.to_string()).collect();
    LoraConfig { rank: 3, alpha: 5.0, targets, use_rslora: false }
}

/// `engine` with adapters, both factors random.
pub(crate) fn adapted(mut engine: Engine, lora: &LoraConfig) -> Engine {
    let mut numbers = Numbers::new(50);
    engine.adapt(lora, &mut || numbers.uniform()).unwrap();
    let mut values = |len: usize| (0..len).map(|_| numbers.normal() as f32 * 0.2).collect();
    let mut factors: Vec<Vec<f32>> =
        engine.adapter_tensors().map(|(_, _, data)| values(data.len())).collect();
    engine.exchange_factors(&mut factors);
    engine
}

fn accumulate(engine: &mut Engine, batch: &Batch) {
    engine
        .accumulate(batch, 0.9, &|family| {
            for (i, &index) in family.predictions.iter().enumerate() {
                family.dlogp[i] = (index % 5) as f32 - 2.0;
                family.dentropy[i] = (index % 3) as f32 - 1.0;
            }
        })
        .unwrap();
}

type Named = Vec<(String, Vec<usize>, Vec<f32>)>;

fn gradients(engine: &mut Engine, batch: &Batch) -> Named {
    engine.zero_gradient();
    accumulate(engine, batch);
    engine.gradients().map(|(name, shape, data)| (name.into(), shape.to_vec(), data.into_owned())).collect()
}

fn bits<'a>(tensors: impl Iterator<Item = fgrpo_nn::NamedTensor<'a>>) -> Vec<Vec<u32>> {
    tensors.map(|(_, _, data)| data.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn gradient_of_the_factors_is_the_whole_gradient_projected() {
    for (name, config) in configs() {
        for (base, checkpointing) in BASES.into_iter().flat_map(|base| [(base, false), (base, true)]) {
            let fresh = engine_with_base(&config, 51, base, &device(2));
            let mut low = adapted(fresh, &lora(&LoraConfig::TARGETS));
            low.set_checkpointing(checkpointing);
            // The same weights in an engine without adapters.
            let mut whole = engine(&config, 51, 2);
            for (name, _, data) in low.tensors() {
                whole.set_tensor(name, &data).unwrap();
            }
            let batch = forest(&mut Numbers::new(52), config.vocab_size, 3, 9, 5);
            let whole = gradients(&mut whole, &batch);
            let factors: Named = low
                .adapter_tensors()
                .map(|(name, shape, data)| (name.into(), shape.to_vec(), data.into_owned()))
                .collect();
            let found = gradients(&mut low, &batch);
            let matrix =
                |(name, shape): &(String, Vec<usize>)| name.starts_with("model.layers.") && shape.len() == 2;
            assert_eq!(found.len(), 2 * config.tensors().iter().filter(|tensor| matrix(tensor)).count());
            for (pair, factor) in found.chunks(2).zip(factors.chunks(2)) {
                let [(a_name, a_shape, da), (_, b_shape, db)] = pair else { panic!("pairs") };
                let (&[_, inputs], &[outputs, rank]) = (&a_shape[..], &b_shape[..]) else {
                    panic!("matrices")
                };
                let tensor = a_name.replace("base_model.model.", "").replace(".lora_A", "");
                let (_, _, dw) = whole.iter().find(|(name, ..)| *name == tensor).unwrap();
                let (a, b, scale) = (&factor[0].2, &factor[1].2, 5.0 / 3.0);
                let size = dw.iter().fold(0.0f32, |max, x| max.max(x.abs()));
                for r in 0..rank {
                    for i in 0..inputs {
                        let wanted: f32 =
                            (0..outputs).map(|o| b[o * rank + r] * dw[o * inputs + i]).sum::<f32>() * scale;
                        let off = (da[r * inputs + i] - wanted).abs();
                        assert!(off < 2e-5 * size, "{name}: {tensor} A[{r}, {i}] off by {off} of {size}");
                    }
                    for o in 0..outputs {
                        let wanted: f32 =
                            (0..inputs).map(|i| a[r * inputs + i] * dw[o * inputs + i]).sum::<f32>() * scale;
                        let off = (db[o * rank + r] - wanted).abs();
                        assert!(off < 2e-5 * size, "{name}: {tensor} B[{o}, {r}] off by {off} of {size}");
                    }
                }
            }
        }
    }
}

#[test]
fn gradient_of_the_factors_matches_finite_differences_of_the_definition() {
    BASES.into_iter().for_each(matches_finite_differences);
}

fn matches_finite_differences(base: Option<BaseFormat>) {
    let (_, config) = configs().swap_remove(1);
    let fresh = engine_with_base(&config, 53, base, &device(2));
    let mut engine = adapted(fresh, &lora(&["k_proj", "up_proj", "o_proj"]));
    let batch = forest(&mut Numbers::new(54), config.vocab_size, 2, 4, 4);
    let gradient = gradients(&mut engine, &batch);
    let base = {
        engine.set_adapter_applied(false);
        let base = weights(&engine);
        engine.set_adapter_applied(true);
        base
    };
    let factors: Named = engine
        .adapter_tensors()
        .map(|(name, shape, data)| (name.into(), shape.to_vec(), data.into_owned()))
        .collect();
    let loss = |moved: usize, direction: &[f64], step: f64| -> f64 {
        let mut weights = base.clone();
        for pair in 0..factors.len() / 2 {
            let value = |which: usize, index: usize| {
                let at = 2 * pair + which;
                f64::from(factors[at].2[index]) + if at == moved { step * direction[index] } else { 0.0 }
            };
            let (&[rank, inputs], &[outputs, _]) = (&factors[2 * pair].1[..], &factors[2 * pair + 1].1[..])
            else {
                panic!("matrices")
            };
            let tensor = factors[2 * pair].0.replace("base_model.model.", "").replace(".lora_A", "");
            let w = weights.get_mut(&tensor).unwrap();
            for o in 0..outputs {
                for i in 0..inputs {
                    w[o * inputs + i] += 5.0 / 3.0
                        * (0..rank).map(|r| value(1, o * rank + r) * value(0, r * inputs + i)).sum::<f64>();
                }
            }
        }
        let scores = score(&config, &weights, &batch, f64::from(0.9f32));
        let term = |(i, (logp, entropy)): (usize, &(f64, f64))| {
            ((i % 5) as f64 - 2.0) * logp + ((i % 3) as f64 - 1.0) * entropy
        };
        scores.iter().enumerate().map(term).sum()
    };
    for (index, (name, _, gradient)) in gradient.iter().enumerate() {
        let norm = gradient.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        assert!(norm > 0.0, "{name} has no gradient");
        let along: Vec<f64> = gradient.iter().map(|&g| f64::from(g) / norm).collect();
        let measured = (loss(index, &along, 1e-4) - loss(index, &along, -1e-4)) / 2e-4;
        assert!(
            (measured - norm).abs() < 1e-4 * (1.0 + norm),
            "{name}: {norm}, finite difference {measured}"
        );
    }
}

#[test]
fn fresh_adapters_change_nothing_and_training_them_changes_only_their_matrices() {
    for ((name, config), format) in configs().into_iter().zip(BASES.into_iter().cycle()) {
        let fresh = || engine_with_base(&config, 55, format, &device(2));
        let (base, mut adapted) = (fresh(), fresh());
        let v = if config.architecture == Architecture::Phi3 { "qkv_proj" } else { "v_proj" };
        let down = if config.architecture == Architecture::Lfm2 { "w2" } else { "down_proj" };
        let lora = lora(&[v, down]);
        let mut numbers = Numbers::new(56);
        adapted.adapt(&lora, &mut || numbers.uniform()).unwrap();
        assert_eq!(bits(base.tensors()), bits(adapted.tensors()), "{name}");
        assert_eq!(adapted.trained_parameters() as u64, lora.parameters(&config));
        for (name, shape, data) in adapted.adapter_tensors() {
            let bound = 1.0 / (shape[1] as f32).sqrt();
            let most = data.iter().fold(0.0f32, |max, x| max.max(x.abs()));
            let fine =
                if name.contains("lora_A") { most > 0.5 * bound && most <= bound } else { most == 0.0 };
            assert!(fine, "{name}: largest {most}, bound {bound}");
        }
        let batch = forest(&mut Numbers::new(57), config.vocab_size, 3, 9, 5);
        for _ in 0..2 {
            accumulate(&mut adapted, &batch);
            assert!(adapted.update(&AdamW { lr: 1e-2, ..AdamW::default() }, Some(1.0)).unwrap().applied);
        }
        for ((tensor, _, before), (_, _, after)) in base.tensors().zip(adapted.tensors()) {
            let touched = tensor.contains("v_proj.weight") || tensor.contains(down);
            assert_eq!(before != after, touched, "{name}: {tensor}");
        }
        let trained = bits(adapted.tensors());
        adapted.set_adapter_applied(false);
        assert_eq!(bits(base.tensors()), bits(adapted.tensors()), "{name}");
        adapted.set_adapter_applied(true);
        assert_eq!(trained, bits(adapted.tensors()), "{name}");
        // Another adapter on the same base, with factors of 0, and back.
        let zeros: Vec<Vec<f32>> =
            adapted.adapter_tensors().map(|(_, _, data)| vec![0.0; data.len()]).collect();
        let mut factors = zeros.clone();
        adapted.exchange_factors(&mut factors);
        assert_eq!(bits(base.tensors()), bits(adapted.tensors()), "{name}");
        adapted.exchange_factors(&mut factors);
        assert_eq!((trained, zeros), (bits(adapted.tensors()), factors), "{name}");
    }
}

#[test]
fn training_resumed_from_a_saved_adapter_equals_uninterrupted_training_bit_for_bit() {
    for (_, config) in with_recurrent(0) {
        let batch = forest(&mut Numbers::new(58), config.vocab_size, 4, 8, 5);
        let adamw = AdamW { lr: 1e-2, ..AdamW::default() };
        let formats = BASES.into_iter().map(|format| (format, false)).chain([(None, true)]);
        for (format, base_in_16_bits) in formats {
            let base = || {
                let mut engine = engine_with_base(&config, 59, format, &device(2));
                if base_in_16_bits {
                    let cut = |x: &f32| f32::from_bits(x.to_bits() & 0xffff_0000);
                    let tensors: Vec<(String, Vec<f32>)> = engine
                        .tensors()
                        .map(|(n, _, data)| (n.into(), data.iter().map(cut).collect()))
                        .collect();
                    tensors.iter().for_each(|(name, data)| engine.set_tensor(name, data).unwrap());
                }
                engine
            };
            let mut through = adapted(base(), &lora(&LoraConfig::TARGETS));
            let step = |engine: &mut Engine| {
                accumulate(engine, &batch);
                assert!(engine.update(&adamw, Some(1.0)).unwrap().applied);
            };
            (0..3).for_each(|_| step(&mut through));
            let dir = tempfile::tempdir().unwrap();
            through.write_adapter(dir.path(), "base").unwrap();
            assert_eq!(LoraConfig::trained_on(dir.path()).unwrap(), format);
            let mut resumed = base();
            resumed.read_adapter(dir.path()).unwrap();
            load_state(&mut resumed, &through.optimizer_state()).unwrap();
            assert_eq!(bits(through.tensors()), bits(resumed.tensors()));
            (0..3).for_each(|_| {
                step(&mut through);
                step(&mut resumed);
            });
            assert_eq!(bits(through.tensors()), bits(resumed.tensors()));
            assert_eq!(bits(through.adapter_tensors()), bits(resumed.adapter_tensors()));
            assert_eq!(through.optimizer_state(), resumed.optimizer_state());
            assert_eq!(through.optimizer_state().tensors.len(), 2 * through.adapter_tensors().count());
        }
    }
}

/// Three passes and two updates. `aside` runs after each pass.
fn trained(engine: &mut Engine, batch: &Batch, mut aside: impl FnMut(&mut Engine)) {
    for pass in 0..3 {
        accumulate(engine, batch);
        engine.gather_gradient();
        aside(engine);
        if pass != 1 {
            let adamw = AdamW { lr: 1e-2, ..AdamW::default() };
            assert!(engine.update(&adamw, Some(1.0)).unwrap().applied);
            aside(engine);
        }
    }
}

#[test]
fn models_that_take_turns_in_an_engine_train_as_alone_bit_for_bit() {
    let (_, config) = configs().swap_remove(0);
    let batch = forest(&mut Numbers::new(58), config.vocab_size, 4, 8, 5);
    let base = || engine(&config, 59, 2);
    let settings = [
        lora(&LoraConfig::TARGETS),
        LoraConfig { rank: 2, ..lora(&["q_proj", "down_proj"]) },
        LoraConfig { rank: 5, ..lora(&["v_proj"]) },
    ];
    let alone = settings.each_ref().map(|lora| {
        let mut engine = adapted(base(), lora);
        trained(&mut engine, &batch, |_| {});
        engine.training_state()
    });
    let untouched = bits(base().tensors());
    let mut engine = base();
    let mut states: Vec<_> = settings.iter().map(|lora| adapted(base(), lora).training_state()).collect();
    for index in 0..states.len() {
        engine.set_training_state(&states[index]).unwrap();
        let others = states.clone();
        trained(&mut engine, &batch, |engine| {
            // Between any two operations, another model and the base use the engine.
            let own = engine.training_state();
            engine.set_training_state(&others[(index + 1) % others.len()]).unwrap();
            accumulate(engine, &batch);
            engine.remove_adapters();
            assert!(bits(engine.tensors()) == untouched);
            engine.set_training_state(&own).unwrap();
        });
        states[index] = engine.training_state();
        assert!(states[index] == alone[index], "model {index}");
    }
    // Without adapters the state has all weights.
    let mut whole = base();
    trained(&mut whole, &batch, |_| {});
    let mut engine = base();
    trained(&mut engine, &batch, |engine| {
        let own = engine.training_state();
        engine.set_training_state(&others_weights(&config)).unwrap();
        engine.set_training_state(&own).unwrap();
    });
    assert!(engine.training_state() == whole.training_state());
    let wider = fgrpo_nn::config::Config { intermediate_size: 80, ..config.clone() };
    let of_another_model = self::engine(&wider, 59, 2).training_state();
    assert!(engine.set_training_state(&of_another_model).is_err());
}

/// The state of a model with other weights.
fn others_weights(config: &fgrpo_nn::config::Config) -> fgrpo_nn::TrainingState {
    engine(config, 7, 2).training_state()
}

#[test]
fn the_names_of_all_mlp_matrices_adapt_those_that_a_model_has() {
    for (name, config) in configs() {
        let engine = adapted(engine(&config, 62, 1), &lora(&LoraConfig::TARGETS[LoraConfig::MIXER.end..]));
        let is_mlp = |tensor: &str| {
            [".mlp.", ".feed_forward.", ".per_layer_"].iter().any(|part| tensor.contains(part))
        };
        assert!(engine.adapter_tensors().all(|(tensor, ..)| is_mlp(tensor)), "{name}");
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut all = configs();
    let (_, other) = all.swap_remove(1);
    let (_, config) = all.swap_remove(0);
    let dir = tempfile::tempdir().unwrap();
    adapted(engine(&other, 60, 1), &lora(&["q_proj"])).write_adapter(dir.path(), "other").unwrap();
    let mut engine = engine(&config, 61, 1);
    let message = engine.read_adapter(dir.path()).unwrap_err().to_string();
    assert!(message.contains("q_proj.lora_B.weight") && message.contains("shape"), "{message}");
    assert!(engine.lora().is_none());
    let message = engine.adapt(&lora(&["lm_head"]), &mut || 0.5).unwrap_err().to_string();
    assert!(message.contains("lora.targets") && message.contains("lm_head"), "{message}");
    let message = engine.adapt(&lora(&["k_proj", "in_proj_z"]), &mut || 0.5).unwrap_err().to_string();
    assert!(
        message.contains("lora.targets: expected matrices that the model has, found in_proj_z"),
        "{message}"
    );
    engine.adapt(&lora(&["k_proj"]), &mut || 0.5).unwrap();
    let message = engine.adapt(&lora(&["k_proj"]), &mut || 0.5).unwrap_err().to_string();
    assert!(message.contains("has adapters"), "{message}");
    let message = engine.read_adapter(dir.path()).unwrap_err().to_string();
    assert!(message.contains("q_proj") && message.contains("k_proj"), "{message}");
    let adapted = "model.layers.0.self_attn.k_proj.weight";
    let len = engine.tensors().find(|tensor| tensor.0 == adapted).unwrap().2.len();
    let message = engine.set_tensor(adapted, &vec![0.0; len]).unwrap_err().to_string();
    assert!(message.contains("has adapters"), "{message}");
    let message = engine.read_adapter(std::path::Path::new("/nowhere")).unwrap_err().to_string();
    assert!(message.contains("adapter_config.json"), "{message}");
}

#[test]
fn quantized_matrices_need_adapters_of_their_format_to_be_trained() {
    let (_, config) = configs().swap_remove(0);
    let dir = tempfile::tempdir().unwrap();
    let on = |base| engine_with_base(&config, 62, base, &device(1));
    let mut engine = on(Some(BaseFormat::Nf4));
    assert_eq!(engine.base(), Some(BaseFormat::Nf4));
    let batch = forest(&mut Numbers::new(63), config.vocab_size, 1, 3, 3);
    let message = engine.accumulate(&batch, 1.0, &|_| ()).unwrap_err().to_string();
    assert!(message.contains("nf4") && message.contains("adapters"), "{message}");
    assert!(engine.score(&batch, 1.0).is_ok());
    adapted(engine, &lora(&["q_proj"])).write_adapter(dir.path(), "base").unwrap();
    for base in [None, Some(BaseFormat::Int8)] {
        let mut other = on(base);
        let message = other.read_adapter(dir.path()).unwrap_err().to_string();
        assert!(message.contains("the format nf4"), "{message}");
        assert!(other.lora().is_none());
    }
    // An adapter of PEFT names no format, and fits any.
    let peft = tempfile::tempdir().unwrap();
    adapted(on(None), &lora(&["q_proj"])).write_adapter(peft.path(), "base").unwrap();
    on(Some(BaseFormat::Nf4)).read_adapter(peft.path()).unwrap();
}
