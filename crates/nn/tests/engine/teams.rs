//! Teams of threads give the same result as one thread, and a single family gets all threads.

use fgrpo_nn::config::{Architecture, Config};
#[cfg(not(feature = "cuda-emulator"))]
use fgrpo_nn::config::{GatedDeltaNet, LayerType};
use fgrpo_nn::kernels::small_decoder;
use fgrpo_nn::{Batch, Device, Engine, ProductFormat};

use crate::reference::{Numbers, engine, engine_on};

/// Large enough that teams share the work of every operation.
fn configs() -> Vec<(&'static str, Config)> {
    let qwen3 = Config {
        architecture: Architecture::Qwen3,
        vocab_size: 700,
        num_attention_heads: 6,
        ..small_decoder(300)
    };
    vec![
        ("qwen2", Config { num_hidden_layers: 2, ..small_decoder(300) }),
        ("qwen3", Config { num_hidden_layers: 2, ..qwen3 }),
        #[cfg(not(feature = "cuda-emulator"))]
        (
            "qwen3_5_text",
            Config {
                architecture: Architecture::Qwen3_5Text,
                num_hidden_layers: 2,
                layer_types: vec![LayerType::LinearAttention, LayerType::FullAttention],
                partial_rotary_factor: Some(0.25),
                linear_attention: Some(GatedDeltaNet {
                    linear_conv_kernel_dim: 4,
                    linear_key_head_dim: 40,
                    linear_value_head_dim: 24,
                    linear_num_key_heads: 5,
                    linear_num_value_heads: 10,
                }),
                ..small_decoder(300)
            },
        ),
    ]
}

/// Families of a prompt and completions with a common beginning.
fn batch(config: &Config, families: usize) -> Batch {
    let mut numbers = Numbers::new(60);
    let mut batch = Batch::default();
    for family in 0..families {
        let prompt = numbers.tokens(150 + 40 * family, config.vocab_size);
        let mut completions: Vec<Vec<u32>> = (0..6).map(|_| numbers.tokens(70, config.vocab_size)).collect();
        let beginning = completions[0][..20].to_vec();
        completions[1][..20].copy_from_slice(&beginning);
        let completions: Vec<&[u32]> = completions.iter().map(Vec::as_slice).collect();
        batch.push_group(&prompt, &completions);
    }
    batch
}

/// The results of a batch: scores and the gradient.
fn results(engine: &mut Engine, batch: &Batch) -> [Vec<f32>; 2] {
    let (scores, _) = engine
        .accumulate(batch, 0.9, &|family| {
            for (i, &index) in family.predictions.iter().enumerate() {
                family.dlogp[i] = (index % 7) as f32 - 3.0;
                family.dentropy[i] = (index % 3) as f32 * 0.1;
            }
        })
        .unwrap();
    let gradient = engine.gradients().flat_map(|(_, _, data)| data.into_owned()).collect();
    [[scores.logp, scores.entropy].concat(), gradient]
}

fn bits(results: &[Vec<f32>; 2]) -> Vec<u32> {
    results.iter().flatten().map(|x| x.to_bits()).collect()
}

#[test]
fn a_team_computes_what_two_threads_compute_bit_for_bit() {
    for (name, config) in configs() {
        let batch = batch(&config, 4);
        let two = results(&mut engine(&config, 61, 2), &batch);
        for threads in [4, 16] {
            let many = results(&mut engine(&config, 61, threads), &batch);
            assert!(bits(&two) == bits(&many), "{name}: {threads} threads");
        }
    }
}

#[test]
fn one_family_on_all_threads_gives_what_one_thread_gives_bit_for_bit() {
    for (name, config) in configs() {
        for checkpointing in [false, true] {
            let batch = batch(&config, 1);
            let run = |threads: usize| {
                let mut engine = engine(&config, 62, threads);
                engine.set_checkpointing(checkpointing);
                results(&mut engine, &batch)
            };
            let one = run(1);
            for threads in [2, 3, 5] {
                assert!(
                    bits(&one) == bits(&run(threads)),
                    "{name}: {threads} threads, checkpointing {checkpointing}"
                );
            }
        }
    }
}

/// Largest relative difference of gradients whose sums have other orders. Without vector instructions it is 1.6e-5.
const ROUNDING: f32 = 3e-5;

#[test]
fn a_gradient_by_the_systems_blas_is_ours_to_rounding_and_scores_are_ours_bit_for_bit() {
    if ProductFormat::Blas.unit().is_none() {
        eprintln!("skipped: there is no BLAS library: install libopenblas0, or set FGRPO_BLAS");
        return;
    }
    for (name, config) in configs() {
        let batch = batch(&config, 4);
        for threads in [1, 3] {
            let [(scores, [pass, gradient]), (blas_scores, [blas_pass, blas_gradient])] =
                [ProductFormat::F32, ProductFormat::Blas].map(|products| {
                    let mut engine = engine_on(&config, 63, &Device::Cpu { threads, products });
                    (engine.score(&batch, 0.9).unwrap().logp, results(&mut engine, &batch))
                });
            assert_eq!(scores, blas_scores, "{name}: scores by other products");
            assert_ne!(gradient, blas_gradient, "{name}: BLAS multiplied nothing");
            for (ours, blas) in [(pass, blas_pass), (gradient, blas_gradient)] {
                let length = ours.iter().map(|x| x * x).sum::<f32>().sqrt();
                let off = ours.iter().zip(&blas).map(|(x, y)| (x - y) * (x - y)).sum::<f32>().sqrt();
                assert!(off <= ROUNDING * length, "{name}, {threads} threads: off by {off} of {length}");
            }
        }
    }
}
