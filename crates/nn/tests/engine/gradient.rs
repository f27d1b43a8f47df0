//! Scores and gradients compared with the decoder's definition in f64, for every setting of the architecture.

use crate::device::{gradient_tolerance, is_emulated, tolerance};
use crate::reference::{Numbers, Weights, configs, engine, forest, path, score, weights, with_recurrent};
use fgrpo_nn::{AdamW, Batch, Engine, FamilyScores};
use proptest::prelude::*;

/// Derivatives for the loss `Σ a·logp + b·entropy`, by prediction.
fn linear_loss(a: &[f32], b: &[f32]) -> impl Fn(FamilyScores<'_>) + Sync {
    move |family| {
        for (i, &index) in family.predictions.iter().enumerate() {
            family.dlogp[i] = a[index];
            family.dentropy[i] = b[index];
        }
    }
}

fn coefficients(numbers: &mut Numbers, count: usize) -> (Vec<f32>, Vec<f32>) {
    (
        (0..count).map(|_| numbers.normal() as f32).collect(),
        (0..count).map(|_| numbers.normal() as f32).collect(),
    )
}

fn gradient(
    engine: &mut Engine,
    batch: &Batch,
    temperature: f32,
    loss: &(dyn Fn(FamilyScores<'_>) + Sync),
) -> Vec<(String, Vec<f32>)> {
    engine.zero_gradient();
    engine.accumulate(batch, temperature, loss).unwrap();
    engine.gradients().map(|(name, _, data)| (name.to_string(), data.into_owned())).collect()
}

#[test]
fn a_loss_gets_each_family_once_in_order_and_what_it_returns_comes_in_order() {
    let (_, config) = configs().swap_remove(0);
    let mut numbers = Numbers::new(3);
    let mut batch = Batch::default();
    let mut ends = Vec::new();
    for family in 0..7 {
        let prompt = numbers.tokens(1 + 5 * (family % 3), config.vocab_size);
        let completions: Vec<Vec<u32>> = (0..4).map(|i| numbers.tokens(2 + i, 3)).collect();
        let completions: Vec<&[u32]> = completions.iter().map(Vec::as_slice).collect();
        // A family without predictions in between.
        batch.push_group(&prompt, if family == 3 { &[] } else { &completions });
        ends.push(batch.predictions.len());
    }
    let wanted: Vec<(usize, Vec<usize>)> = (0..7)
        .map(|family| (family, (if family == 0 { 0 } else { ends[family - 1] }..ends[family]).collect()))
        .filter(|(_, predictions): &(usize, Vec<usize>)| !predictions.is_empty())
        .collect();
    for (threads, chunk_tokens) in [(1, 1), (1, 1 << 20), (2, 30)] {
        let mut engine = engine(&config, 5, threads);
        engine.set_chunk_tokens(chunk_tokens);
        let (scores, found) = engine
            .accumulate(&batch, 1.0, &|family| {
                assert!(family.dlogp.iter().chain(&*family.dentropy).all(|&d| d == 0.0));
                (family.family, family.predictions.to_vec(), family.logp.to_vec(), family.entropy.to_vec())
            })
            .unwrap();
        assert_eq!(found.len(), wanted.len());
        for ((family, predictions, logp, entropy), wanted) in found.into_iter().zip(&wanted) {
            let of = |all: &[f32]| predictions.iter().map(|&i| all[i]).collect::<Vec<f32>>();
            assert_eq!((of(&scores.logp), of(&scores.entropy)), (logp, entropy));
            assert_eq!((family, predictions), *wanted);
        }
    }
}

/// Largest difference divided by the largest element, for each tensor.
fn worst_difference(a: &[(String, Vec<f32>)], b: &[(String, Vec<f32>)]) -> f32 {
    let all = a.iter().flat_map(|tensor| &tensor.1);
    let scale = all.fold(0.0f32, |max, x| max.max(x.abs()));
    let pairs = a.iter().zip(b).flat_map(|(a, b)| a.1.iter().zip(&b.1));
    pairs.fold(0.0f32, |max, (a, b)| max.max((a - b).abs())) / scale
}

#[test]
fn scores_equal_the_definition_for_every_architecture_setting() {
    for (name, config) in configs() {
        let mut engine = engine(&config, 1, 2);
        let batch = forest(&mut Numbers::new(2), config.vocab_size, 2, 6, 5);
        for temperature in [1.0, 0.6] {
            let scores = engine.score(&batch, temperature).unwrap();
            let wanted = score(&config, &weights(&engine), &batch, f64::from(temperature));
            for (index, (logp, entropy)) in wanted.into_iter().enumerate() {
                let (found, entropy_found) =
                    (f64::from(scores.logp[index]), f64::from(scores.entropy[index]));
                assert!((found - logp).abs() < 2e-5, "{name}: logp {index}: {found}, wanted {logp}");
                assert!(
                    (entropy_found - entropy).abs() < 2e-5,
                    "{name}: entropy {index}: {entropy_found}, {entropy}"
                );
            }
        }
    }
}

#[test]
fn gradient_matches_finite_differences_of_the_definition_for_every_tensor_and_setting() {
    for (name, config) in configs() {
        for checkpointing in [false, true] {
            let mut engine = engine(&config, 3, 2);
            engine.set_checkpointing(checkpointing);
            let mut numbers = Numbers::new(4);
            let batch = forest(&mut numbers, config.vocab_size, 2, 4, 4);
            let (a, b) = coefficients(&mut numbers, batch.predictions.len());
            let temperature = 0.8;
            let gradient = gradient(&mut engine, &batch, temperature, &linear_loss(&a, &b));
            let weights = weights(&engine);
            let loss = |weights: &Weights| -> f64 {
                let scores = score(&config, weights, &batch, f64::from(temperature));
                let terms = scores.iter().zip(a.iter().zip(&b));
                terms.map(|((logp, entropy), (a, b))| f64::from(*a) * logp + f64::from(*b) * entropy).sum()
            };
            for (tensor, gradient) in &gradient {
                // In the direction of the gradient, in which an error of any element shows, and in a random direction.
                let random: Vec<f64> = gradient.iter().map(|_| numbers.normal()).collect();
                let along: Vec<f64> = gradient.iter().map(|&g| f64::from(g)).collect();
                for direction in [along, random] {
                    let length = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
                    assert!(length > 0.0, "{name}: {tensor} has no gradient");
                    let slope: f64 =
                        gradient.iter().zip(&direction).map(|(&g, d)| f64::from(g) * d).sum::<f64>() / length;
                    let step = 1e-4;
                    let at = |sign: f64| {
                        let mut moved = weights.clone();
                        let tensor = moved.get_mut(tensor).unwrap();
                        tensor.iter_mut().zip(&direction).for_each(|(w, d)| *w += sign * step * d / length);
                        loss(&moved)
                    };
                    let measured = (at(1.0) - at(-1.0)) / (2.0 * step);
                    let norm = gradient.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
                    assert!(
                        (slope - measured).abs() < 1e-4 * (1.0 + norm),
                        "{name}: {tensor}: slope {slope}, finite difference {measured}, norm {norm}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_prefix_tree_has_the_gradient_of_its_separate_sequences() {
    for (name, config) in configs() {
        let mut engine = engine(&config, 5, 2);
        let mut numbers = Numbers::new(6);
        let prompt = numbers.tokens(9, config.vocab_size);
        // Few tokens, so that completions share beginnings of all lengths; one completion is a beginning of another.
        let mut completions: Vec<Vec<u32>> = (0..12).map(|i| numbers.tokens(1 + i % 7, 2)).collect();
        completions.push(completions[6][..3].to_vec());
        let (a, b) = coefficients(&mut numbers, 13 * 8);
        let slices: Vec<&[u32]> = completions.iter().map(Vec::as_slice).collect();
        let mut tree = Batch::default();
        let indices = tree.push_group(&prompt, &slices);
        let mut separate = Batch::default();
        let (mut tree_a, mut tree_b) = (vec![0.0; tree.predictions.len()], vec![0.0; tree.predictions.len()]);
        let (mut separate_a, mut separate_b) = (Vec::new(), Vec::new());
        for (c, completion) in completions.iter().enumerate() {
            let alone = separate.push_group(&prompt, &[completion]);
            for (t, &index) in indices[c].iter().enumerate() {
                assert_eq!(alone[0][t], separate_a.len());
                tree_a[index] += a[c * 8 + t];
                tree_b[index] += b[c * 8 + t];
                separate_a.push(a[c * 8 + t]);
                separate_b.push(b[c * 8 + t]);
            }
        }
        assert!(
            tree.tokens.len() * 3 < separate.tokens.len(),
            "{} of {}",
            tree.tokens.len(),
            separate.tokens.len()
        );
        let shared = gradient(&mut engine, &tree, 1.0, &linear_loss(&tree_a, &tree_b));
        let alone = gradient(&mut engine, &separate, 1.0, &linear_loss(&separate_a, &separate_b));
        let worst = worst_difference(&shared, &alone);
        println!("{name}: {worst:e}");
        assert!(worst < gradient_tolerance(name, 2e-6), "{name}: {worst:e}");
        let scores = engine.score(&tree, 1.0).unwrap();
        let separate = engine.score(&separate, 1.0).unwrap();
        for (position, &index) in indices.iter().flatten().enumerate() {
            // A recurrent layer's norm divides by small values, and amplifies their rounding.
            let off = if config.is_recurrent() { 6e-6 } else { 2e-6 };
            assert!((scores.logp[index] - separate.logp[position]).abs() < tolerance(off), "{name}");
        }
    }
}

#[test]
fn gradient_does_not_depend_on_chunks_threads_checkpointing_or_calls_and_repeats_bit_for_bit() {
    for (_, config) in with_recurrent(1) {
        let mut numbers = Numbers::new(7);
        let batch = forest(&mut numbers, config.vocab_size, 6, 20, 6);
        let (a, b) = coefficients(&mut numbers, batch.predictions.len());
        let loss = linear_loss(&a, &b);
        let base = gradient(&mut engine(&config, 8, 1), &batch, 1.0, &loss);
        // Threads are the processor's.
        for threads in if is_emulated() { 1..2 } else { 1..4 } {
            for chunk_tokens in [1, 20, 10_000] {
                let mut engine = engine(&config, 8, threads);
                engine.set_chunk_tokens(chunk_tokens);
                let first = gradient(&mut engine, &batch, 1.0, &loss);
                let worst = worst_difference(&base, &first);
                assert!(worst < tolerance(2e-6), "{threads} threads, chunks of {chunk_tokens}: {worst:e}");
                assert_eq!(first, gradient(&mut engine, &batch, 1.0, &loss), "repeated");
                engine.set_checkpointing(true);
                assert_eq!(first, gradient(&mut engine, &batch, 1.0, &loss), "checkpointed");
                engine.zero_gradient();
                let half = |sign: f32| {
                    let halves: Vec<f32> = a.iter().map(|a| a * 0.5 * sign).collect();
                    let others: Vec<f32> = b.iter().map(|b| b * 0.5 * sign).collect();
                    (halves, others)
                };
                let (a, b) = half(1.0);
                engine.accumulate(&batch, 1.0, &linear_loss(&a, &b)).unwrap();
                engine.accumulate(&batch, 1.0, &linear_loss(&a, &b)).unwrap();
                let twice: Vec<(String, Vec<f32>)> =
                    engine.gradients().map(|(name, _, data)| (name.to_string(), data.into_owned())).collect();
                assert!(worst_difference(&base, &twice) < tolerance(2e-6));
                let norm: f64 =
                    twice.iter().flat_map(|t| &t.1).map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
                assert!((engine.gradient_norm() - norm).abs() < 1e-6 * norm);
            }
        }
    }
}

#[test]
fn families_without_derivative_change_nothing_wherever_they_stand_in_a_chunk() {
    for (name, config) in configs() {
        let mut numbers = Numbers::new(9);
        let batch = forest(&mut numbers, config.vocab_size, 5, 12, 5);
        let (mut a, mut b) = coefficients(&mut numbers, batch.predictions.len());
        // The family of a prediction is the root of its path. Segments 0 to 4 are the roots.
        let root = |row: usize| {
            let mut start = 0;
            let mut segment = 0;
            while start + batch.segments[segment].len <= row {
                start += batch.segments[segment].len;
                segment += 1;
            }
            while let Some(parent) = batch.segments[segment].parent {
                segment = parent;
            }
            segment
        };
        for (index, prediction) in batch.predictions.iter().enumerate() {
            if [0, 2, 4].contains(&root(prediction.row)) {
                (a[index], b[index]) = (0.0, 0.0);
            }
        }
        for checkpointing in [false, true] {
            let mut engine = engine(&config, 10, 1);
            engine.set_checkpointing(checkpointing);
            engine.set_chunk_tokens(100_000);
            let together = gradient(&mut engine, &batch, 1.0, &linear_loss(&a, &b));
            engine.set_chunk_tokens(1);
            let one_by_one = gradient(&mut engine, &batch, 1.0, &linear_loss(&a, &b));
            assert!(worst_difference(&together, &one_by_one) < 2e-6, "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if is_emulated() { 6 } else { 24 }))]

    #[test]
    fn random_forests_score_as_their_paths_alone(seed in 0u64..1_000_000, roots in 1usize..4, segments in 0usize..12, longest in 1usize..40) {
        let all = with_recurrent(seed as usize % 4);
        let (_, config) = &all[seed as usize / 4 % all.len()];
        let mut numbers = Numbers::new(seed);
        let batch = forest(&mut numbers, config.vocab_size, roots, segments, longest);
        let mut engine = engine(config, 11, 2);
        let scores = engine.score(&batch, 1.0).unwrap();
        let mut alone = Batch::default();
        for prediction in &batch.predictions {
            alone.push_segment(&path(&batch, prediction.row), None);
            alone.predict(alone.tokens.len() - 1, prediction.token);
        }
        let wanted = engine.score(&alone, 1.0).unwrap();
        for (found, wanted) in scores.logp.iter().zip(&wanted.logp) {
            prop_assert!((found - wanted).abs() < tolerance(1e-5), "{found}, alone {wanted}");
        }
    }
}

#[test]
fn attention_over_long_segments_crosses_blocks_correctly() {
    for (_, mut config) in with_recurrent(0) {
        config.num_hidden_layers = 1;
        let mut engine = engine(&config, 12, 1);
        let mut numbers = Numbers::new(13);
        let mut batch = Batch::default();
        let root = batch.push_segment(&numbers.tokens(300, config.vocab_size), None);
        let left = batch.push_segment(&numbers.tokens(70, config.vocab_size), Some(root));
        batch.push_segment(&numbers.tokens(130, config.vocab_size), Some(root));
        batch.push_segment(&numbers.tokens(5, config.vocab_size), Some(left));
        for row in (0..batch.tokens.len()).step_by(37) {
            batch.predict(row, numbers.below(config.vocab_size) as u32);
        }
        let scores = engine.score(&batch, 1.0).unwrap();
        let wanted = score(&config, &weights(&engine), &batch, 1.0);
        for (found, wanted) in scores.logp.iter().zip(&wanted) {
            assert!((f64::from(*found) - wanted.0).abs() < 2e-5, "{found}, wanted {}", wanted.0);
        }
        let (a, b) = coefficients(&mut numbers, batch.predictions.len());
        let tree = gradient(&mut engine, &batch, 1.0, &linear_loss(&a, &b));
        let mut alone = Batch::default();
        for prediction in &batch.predictions {
            alone.push_segment(&path(&batch, prediction.row), None);
            alone.predict(alone.tokens.len() - 1, prediction.token);
        }
        let separate = gradient(&mut engine, &alone, 1.0, &linear_loss(&a, &b));
        assert!(worst_difference(&tree, &separate) < 5e-6, "{:e}", worst_difference(&tree, &separate));
    }
}

#[test]
fn weights_that_are_not_finite_are_an_error_and_a_gradient_that_is_not_skips_the_update() {
    let (_, config) = configs().swap_remove(0);
    let mut engine = engine(&config, 14, 2);
    let batch = forest(&mut Numbers::new(15), config.vocab_size, 2, 3, 4);
    let before: Vec<Vec<f32>> = engine.tensors().map(|(_, _, data)| data.into_owned()).collect();
    engine.accumulate(&batch, 1.0, &|family| family.dlogp.fill(f32::NAN)).unwrap();
    let report = engine.update(&AdamW::default(), Some(1.0)).unwrap();
    assert!(!report.applied && !report.gradient_norm.is_finite());
    let after: Vec<Vec<f32>> = engine.tensors().map(|(_, _, data)| data.into_owned()).collect();
    assert_eq!(before, after);
    assert_eq!(engine.gradient_norm(), 0.0);
    assert_eq!(engine.optimizer_state().step, 0);
    let bad = vec![f32::NAN; config.hidden_size];
    engine.set_tensor("model.norm.weight", &bad).unwrap();
    let error = engine.score(&batch, 1.0).unwrap_err().to_string();
    assert!(error.contains("NaN") && error.contains("finite"), "{error}");
}

#[test]
fn a_vocabulary_of_several_tiles_and_rows_of_several_chunks_score_and_differentiate_as_defined() {
    let (_, mut config) = configs().swap_remove(1);
    config.vocab_size = 5000;
    config.num_hidden_layers = 1;
    let mut engine = engine(&config, 40, 1);
    engine.set_chunk_tokens(10_000);
    let mut numbers = Numbers::new(41);
    let mut batch = Batch::default();
    for _ in 0..30 {
        let first = batch.tokens.len();
        batch.push_segment(&numbers.tokens(10, config.vocab_size), None);
        for row in first..first + 10 {
            batch.predict(row, numbers.below(config.vocab_size) as u32);
        }
    }
    // Tokens at the edges of the tiles.
    for token in [0, 2047, 2048, 4095, 4096, 4999] {
        batch.predict(299, token);
    }
    let temperature = 0.7;
    let weights = weights(&engine);
    let wanted = score(&config, &weights, &batch, f64::from(temperature));
    let scores = engine.score(&batch, temperature).unwrap();
    for (index, (logp, entropy)) in wanted.into_iter().enumerate() {
        assert!((f64::from(scores.logp[index]) - logp).abs() < 2e-5, "{}, {logp}", scores.logp[index]);
        assert!(
            (f64::from(scores.entropy[index]) - entropy).abs() < 2e-5,
            "{}, {entropy}",
            scores.entropy[index]
        );
    }
    let (a, b) = coefficients(&mut numbers, batch.predictions.len());
    let gradient = gradient(&mut engine, &batch, temperature, &linear_loss(&a, &b));
    let loss = |weights: &Weights| -> f64 {
        let scores = score(&config, weights, &batch, f64::from(temperature));
        let terms = scores.iter().zip(a.iter().zip(&b));
        terms.map(|((logp, entropy), (a, b))| f64::from(*a) * logp + f64::from(*b) * entropy).sum()
    };
    for name in ["lm_head.weight", "model.norm.weight"] {
        let (_, gradient) = gradient.iter().find(|tensor| tensor.0 == name).unwrap();
        let norm = gradient.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        let at = |step: f64| {
            let mut moved = weights.clone();
            let pairs = moved.get_mut(name).unwrap().iter_mut().zip(gradient);
            pairs.for_each(|(w, &g)| *w += step * f64::from(g) / norm);
            loss(&moved)
        };
        let measured = (at(1e-4) - at(-1e-4)) / 2e-4;
        assert!((norm - measured).abs() < 1e-4 * norm, "{name}: slope {norm}, finite difference {measured}");
    }
}
