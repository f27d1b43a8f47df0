//! AdamW, clipping and exact resume.

use fgrpo_nn::{AdamW, Batch, Engine, Error, OptimizerState};

use crate::reference::{Numbers, configs, engine, forest, with_recurrent};

fn step(engine: &mut Engine, batch: &Batch, adamw: &AdamW, max_norm: Option<f64>) -> f64 {
    engine.accumulate(batch, 1.0, &|family| family.dlogp.fill(-1.0)).unwrap();
    engine.update(adamw, max_norm).unwrap().gradient_norm
}

pub(crate) fn load_state(engine: &mut Engine, state: &OptimizerState<'_>) -> Result<(), Error> {
    let tensors: Vec<(&str, usize)> =
        state.tensors.iter().map(|(name, _, values)| (name.as_str(), values.len())).collect();
    engine.load_optimizer(state.step, &tensors, &mut |index, out| {
        out.copy_from_slice(&state.tensors[index].2);
        Ok(())
    })
}

fn tensors(engine: &Engine) -> Vec<Vec<f32>> {
    engine.tensors().map(|(_, _, data)| data.into_owned()).collect()
}

/// The update rule by definition, in f64.
#[test]
fn three_updates_equal_the_rule_with_clipping_and_decoupled_decay() {
    let (_, config) = configs().swap_remove(1);
    for (max_norm, decay_norms_and_biases) in [(None, true), (Some(0.5), true), (Some(0.5), false)] {
        let adamw =
            AdamW { lr: 3e-3, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, decay_norms_and_biases };
        let mut engine = engine(&config, 20, 2);
        let batch = forest(&mut Numbers::new(21), config.vocab_size, 2, 4, 5);
        let names: Vec<String> = engine.tensors().map(|tensor| tensor.0.to_string()).collect();
        let mut w: Vec<Vec<f64>> =
            tensors(&engine).iter().map(|t| t.iter().map(|&x| f64::from(x)).collect()).collect();
        let mut m: Vec<Vec<f64>> = w.iter().map(|t| vec![0.0; t.len()]).collect();
        let mut v = m.clone();
        for t in 1..=3 {
            engine.accumulate(&batch, 1.0, &|family| family.dlogp.fill(-1.0)).unwrap();
            let gradient: Vec<Vec<f32>> = engine.gradients().map(|(_, _, data)| data.into_owned()).collect();
            let norm = gradient.iter().flatten().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
            let report = engine.update(&adamw, max_norm).unwrap();
            assert!(report.applied && (report.gradient_norm - norm).abs() < 1e-6 * norm);
            assert!(norm > 0.5, "clipping must bite, norm {norm}");
            let clip = max_norm.map_or(1.0, |max| (max / (norm + 1e-6)).min(1.0));
            for tensor in 0..w.len() {
                let matrix = !names[tensor].ends_with("bias") && !names[tensor].contains("norm");
                let decay =
                    if matrix || decay_norms_and_biases { adamw.lr * adamw.weight_decay } else { 0.0 };
                for i in 0..w[tensor].len() {
                    let g = f64::from(gradient[tensor][i]) * clip;
                    let (w, m, v) = (&mut w[tensor][i], &mut m[tensor][i], &mut v[tensor][i]);
                    *w -= *w * decay;
                    *m = 0.9 * *m + 0.1 * g;
                    *v = 0.95 * *v + 0.05 * g * g;
                    let (m, v) = (*m / (1.0 - 0.9f64.powi(t)), *v / (1.0 - 0.95f64.powi(t)));
                    *w -= adamw.lr * m / (v.sqrt() + 1e-8);
                }
            }
            for (tensor, (found, wanted)) in tensors(&engine).iter().zip(&w).enumerate() {
                for (found, wanted) in found.iter().zip(wanted) {
                    let close = (f64::from(*found) - wanted).abs() < 2e-6;
                    assert!(close, "{} after step {t}: {found}, wanted {wanted}", names[tensor]);
                }
            }
        }
    }
}

#[test]
fn training_resumed_from_saved_state_equals_uninterrupted_training_bit_for_bit() {
    for (_, config) in with_recurrent(0) {
        let batch = forest(&mut Numbers::new(22), config.vocab_size, 4, 8, 5);
        let adamw = AdamW::default();
        let mut through = engine(&config, 23, 2);
        for _ in 0..3 {
            step(&mut through, &batch, &adamw, Some(1.0));
        }
        let mut resumed = engine(&config, 99, 2);
        for (name, _, data) in through.tensors() {
            resumed.set_tensor(name, &data).unwrap();
        }
        load_state(&mut resumed, &through.optimizer_state()).unwrap();
        assert_eq!(resumed.optimizer_state(), through.optimizer_state());
        for _ in 0..3 {
            let norms = (
                step(&mut through, &batch, &adamw, Some(1.0)),
                step(&mut resumed, &batch, &adamw, Some(1.0)),
            );
            assert_eq!(norms.0.to_bits(), norms.1.to_bits());
        }
        assert_eq!(tensors(&through), tensors(&resumed));
        assert_eq!(resumed.optimizer_state(), through.optimizer_state());
    }
}

#[test]
fn a_state_of_another_model_is_refused_and_changes_nothing() {
    let mut all = configs();
    let (_, other) = all.swap_remove(1);
    let (_, config) = all.swap_remove(0);
    let batch = forest(&mut Numbers::new(24), other.vocab_size, 1, 1, 5);
    let mut foreign = engine(&other, 25, 1);
    step(&mut foreign, &batch, &AdamW::default(), None);
    let mut engine = engine(&config, 26, 1);
    let error = load_state(&mut engine, &foreign.optimizer_state()).unwrap_err().to_string();
    assert!(error.contains("optimizer state"), "{error}");
    assert_eq!(engine.optimizer_state().step, 0);
    assert!(
        engine.set_tensor("model.norm.weight", &[1.0]).unwrap_err().to_string().contains("model.norm.weight")
    );
    assert!(engine.set_tensor("nothing", &[1.0]).unwrap_err().to_string().contains("nothing"));
}

#[test]
fn training_lowers_the_loss_on_what_it_is_trained_on() {
    let (_, config) = configs().swap_remove(0);
    let mut engine = engine(&config, 27, 2);
    let batch = forest(&mut Numbers::new(28), config.vocab_size, 3, 5, 5);
    let mean = |engine: &mut Engine| {
        let logp = engine.score(&batch, 1.0).unwrap().logp;
        logp.iter().sum::<f32>() / logp.len() as f32
    };
    let before = mean(&mut engine);
    for _ in 0..30 {
        step(&mut engine, &batch, &AdamW { lr: 1e-2, ..AdamW::default() }, Some(1.0));
    }
    let after = mean(&mut engine);
    assert!(after > before + 1.0, "mean logp {before} before, {after} after");
}
