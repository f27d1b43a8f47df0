//! Generation: agreement with scoring, independence of the batch, stopping, limits.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use fgrpo_nn::config::Config;
use fgrpo_nn::{
    AdamW, BaseFormat, Batch, Completion, Engine, Error, Finish, LoraConfig, Prompt, PromptQueue,
    QueuedPrompt, Sampling,
};

use crate::device::{device, is_emulated, on_cpu, tolerance};
use crate::lora::adapted;
use crate::reference::{Numbers, configs, configs_to_sample, engine, engine_with_base, with_recurrent};

/// The uniform number of a draw, a hash of its coordinates.
fn uniform(prompt: usize, sample: usize, position: usize) -> f64 {
    Numbers::new((prompt as u64 * 1009 + sample as u64) * 4099 + position as u64).uniform()
}

/// Bound on |sampled - scored| of log-probabilities and entropies. The largest difference seen in this test is 1.7e-6, at temperature 0.7.
const WORST_DIFFERENCE: f32 = 1e-5;

pub(crate) type Samples = BTreeMap<(usize, usize), Completion>;

pub(crate) fn sample(engine: &mut Engine, prompts: &[Prompt<'_>], sampling: &Sampling) -> Samples {
    let mut done = Samples::new();
    engine
        .generate(prompts, sampling, &uniform, None, &mut |completion| {
            let key = (completion.prompt, completion.sample);
            assert!(done.insert(key, completion).is_none(), "{key:?} came twice");
            ControlFlow::Continue(())
        })
        .unwrap();
    done
}

fn prompts(config: &Config) -> Vec<Vec<u32>> {
    let mut numbers = Numbers::new(30);
    [3, 17, 40, 1, 9].iter().map(|&len| numbers.tokens(len, config.vocab_size)).collect()
}

fn requests(prompts: &[Vec<u32>], samples: usize) -> Vec<Prompt<'_>> {
    prompts.iter().map(|tokens| Prompt { tokens, samples: 0..samples }).collect()
}

fn settings() -> Sampling {
    Sampling { max_new_tokens: 20, stop_tokens: vec![4, 7], ..Sampling::default() }
}

/// The largest |sampled - scored| of the log-probabilities and entropies of prompts' samples.
fn worst_difference(engine: &mut Engine, prompts: &[Vec<u32>], samples: &Samples, temperature: f32) -> f32 {
    let mut worst = 0.0f32;
    for (index, prompt) in prompts.iter().enumerate() {
        let group: Vec<&Completion> = samples.range((index, 0)..(index + 1, 0)).map(|pair| pair.1).collect();
        let slices: Vec<&[u32]> = group.iter().map(|completion| completion.tokens.as_slice()).collect();
        let mut batch = Batch::default();
        let indices = batch.push_group(prompt, &slices);
        let scores = engine.score(&batch, temperature).unwrap();
        for (completion, indices) in group.iter().zip(&indices) {
            assert_eq!(completion.tokens.len(), completion.logp.len());
            for (t, &at) in indices.iter().enumerate() {
                worst = worst.max((completion.logp[t] - scores.logp[at]).abs());
                worst = worst.max((completion.entropy[t] - scores.entropy[at]).abs());
            }
        }
    }
    worst
}

#[test]
fn recorded_logp_and_entropy_equal_scored_ones_to_rounding() {
    // Also with adapters on a base in each format.
    let adapters = LoraConfig { rank: 3, alpha: 5.0, ..LoraConfig::default() };
    let with_base = |config: &Config, base: BaseFormat| {
        adapted(engine_with_base(config, 31, Some(base), &device(2)), &adapters)
    };
    for ((name, config), base) in configs_to_sample().into_iter().zip(BaseFormat::ALL.into_iter().cycle()) {
        let bases = [(1.0, with_base(&config, base))];
        let plain = [1.0, 0.7].map(|temperature| (temperature, engine(&config, 31, 2)));
        for (temperature, mut engine) in plain.into_iter().chain(bases) {
            let prompts = prompts(&config);
            let sampling = Sampling { temperature, top_p: 0.95, ..settings() };
            let samples = sample(&mut engine, &requests(&prompts, 9), &sampling);
            assert_eq!(samples.len(), 45);
            let worst = worst_difference(&mut engine, &prompts, &samples, temperature);
            println!(
                "{name}, temperature {temperature}, base {:?}: largest difference {worst:e}",
                engine.base()
            );
            assert!(worst < tolerance(WORST_DIFFERENCE), "{name}: largest difference {worst:e}");
        }
    }
}

#[test]
fn a_sample_does_not_depend_on_its_batch_threads_order_or_cache_bound() {
    for (_, config) in with_recurrent(0) {
        depends_on_nothing_else(&config, &|threads| engine(&config, 32, threads));
        let adapters = LoraConfig { rank: 3, alpha: 5.0, ..LoraConfig::default() };
        depends_on_nothing_else(&config, &|threads| {
            adapted(engine_with_base(&config, 32, Some(BaseFormat::Nf4), &device(threads)), &adapters)
        });
    }
}

fn depends_on_nothing_else(config: &Config, engine: &dyn Fn(usize) -> Engine) {
    let prompts = prompts(config);
    let all = sample(&mut engine(1), &requests(&prompts, 7), &settings());
    let same = |samples: &Samples, why: &str| {
        for (key, found) in samples {
            let wanted = &all[key];
            assert_eq!((&found.tokens, found.finish), (&wanted.tokens, wanted.finish), "{key:?}: {why}");
            for (a, b) in found.logp.iter().zip(&wanted.logp) {
                assert!((a - b).abs() < tolerance(1e-5), "{key:?}: {why}: {a} and {b}");
            }
        }
    };
    // GPUs have no threads.
    for threads in if on_cpu() { &[2, 3, 8][..] } else { &[] } {
        let samples = sample(&mut engine(*threads), &requests(&prompts, 7), &settings());
        assert_eq!(samples.len(), all.len());
        same(&samples, "threads");
    }
    let mut engine = engine(2);
    // A state takes the memory of some tokens.
    let bounds = if config.is_recurrent() { [384, 700, 1500] } else { [224, 300, 1000] };
    for max_cached_tokens in bounds {
        let bounded = Sampling { max_cached_tokens: Some(max_cached_tokens), ..settings() };
        let samples = sample(&mut engine, &requests(&prompts, 7), &bounded);
        assert_eq!(samples.len(), all.len());
        same(&samples, "cache bound");
    }
    engine.set_chunk_tokens(1);
    same(&sample(&mut engine, &requests(&prompts, 7), &settings()), "prefill one by one");
    for index in [4, 0, 2] {
        let alone: Vec<Prompt<'_>> = prompts
            .iter()
            .enumerate()
            .map(|(i, tokens)| Prompt { tokens, samples: if i == index { 5..6 } else { 0..0 } })
            .collect();
        let samples = sample(&mut engine, &alone, &settings());
        assert_eq!(samples.len(), 1);
        same(&samples, "alone");
    }
    let again = sample(&mut engine, &requests(&prompts, 7), &settings());
    assert_eq!(again, sample(&mut engine, &requests(&prompts, 7), &settings()), "bit for bit");
}

#[test]
fn completions_end_with_a_stop_token_a_stop_condition_or_the_length() {
    let (_, config) = configs().swap_remove(2);
    let mut engine = engine(&config, 33, 2);
    let prompts = prompts(&config);
    let mut seen = [0, 0, 0];
    let stop = |tokens: &[u32]| tokens.len() >= 5 && tokens[tokens.len() - 1].is_multiple_of(2);
    engine
        .generate(&requests(&prompts, 30), &settings(), &uniform, Some(&stop), &mut |completion| {
            let tokens = &completion.tokens;
            let last = tokens[tokens.len() - 1];
            let stops = |token: u32| token == 4 || token == 7;
            assert!(!tokens[..tokens.len() - 1].iter().any(|&token| stops(token)), "{tokens:?}");
            assert!((1..tokens.len()).all(|len| !stop(&tokens[..len])), "{tokens:?}");
            match completion.finish {
                Finish::Stop if stops(last) => seen[0] += 1,
                Finish::Stop => {
                    assert!(stop(tokens));
                    seen[1] += 1;
                }
                Finish::Length => {
                    assert_eq!(tokens.len(), 20);
                    seen[2] += 1;
                }
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(seen.iter().sum::<i32>(), 150);
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn greedy_samples_take_the_most_likely_token_at_every_position() {
    let (_, config) = configs().swap_remove(0);
    let mut engine = engine(&config, 34, 1);
    let prompts = prompts(&config);
    let sampling = Sampling { temperature: 0.0, stop_tokens: vec![], ..settings() };
    let samples = sample(&mut engine, &requests(&prompts, 2), &sampling);
    for (index, prompt) in prompts.iter().enumerate() {
        let completion = &samples[&(index, 1)];
        let mut batch = Batch::default();
        let mut sequence = prompt.clone();
        sequence.extend(&completion.tokens);
        batch.push_segment(&sequence[..sequence.len() - 1], None);
        for row in prompt.len() - 1..batch.tokens.len() {
            batch.predict(row, 0);
        }
        let logits = engine.logits(&batch).unwrap();
        for (row, &token) in logits.chunks(config.vocab_size).zip(&completion.tokens) {
            let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert!(best - row[token as usize] < 1e-5);
        }
    }
}

#[test]
fn sampled_first_tokens_have_the_frequencies_of_the_softmax() {
    let (_, config) = configs().swap_remove(0);
    let mut engine = engine(&config, 35, 2);
    let prompt = Numbers::new(36).tokens(6, config.vocab_size);
    let mut batch = Batch::default();
    batch.push_segment(&prompt, None);
    for token in 0..config.vocab_size as u32 {
        batch.predict(5, token);
    }
    let scores = engine.score(&batch, 1.0).unwrap();
    const N: usize = 20_000;
    let prompts = [Prompt { tokens: &prompt, samples: 0..N }];
    let samples = sample(&mut engine, &prompts, &Sampling { max_new_tokens: 1, ..Sampling::default() });
    let mut counts = vec![0.0; config.vocab_size];
    samples.values().for_each(|completion| counts[completion.tokens[0] as usize] += 1.0);
    for (token, count) in counts.iter().enumerate() {
        let p = f64::from(scores.logp[token]).exp();
        let deviation = (p * (1.0 - p) / N as f64).sqrt();
        assert!(
            (count / N as f64 - p).abs() < 5.0 * deviation + 1e-9,
            "token {token}: {count} of {N}, p {p}"
        );
    }
}

#[test]
fn breaking_ends_generation_early() {
    let (_, config) = configs().swap_remove(0);
    let prompts = prompts(&config);
    let mut count = 0;
    engine(&config, 37, 2)
        .generate(&requests(&prompts, 50), &settings(), &uniform, None, &mut |_| {
            count += 1;
            if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(count, 3);
}

#[test]
fn impossible_requests_name_the_setting_and_what_would_do() {
    let (_, config) = configs().swap_remove(0);
    let mut engine = engine(&config, 38, 2);
    let prompts = prompts(&config);
    let mut error = |sampling: Sampling| -> String {
        engine
            .generate(&requests(&prompts, 1), &sampling, &uniform, None, &mut |_| ControlFlow::Continue(()))
            .unwrap_err()
            .to_string()
    };
    let message = error(Sampling { max_cached_tokens: Some(50), ..settings() });
    assert!(message.contains("max_cached_tokens") && message.contains("50"), "{message}");
    for (sampling, field) in [
        (Sampling { temperature: f32::NAN, ..settings() }, "temperature"),
        (Sampling { temperature: 1e-7, ..settings() }, "temperature"),
        (Sampling { top_p: 0.0, ..settings() }, "top_p"),
        (Sampling { min_p: 1.0, ..settings() }, "min_p"),
        (Sampling { max_new_tokens: 0, ..settings() }, "max_new_tokens"),
    ] {
        let message = error(sampling);
        assert!(message.contains(field), "{message}");
    }
}

#[test]
fn weights_that_are_not_finite_stop_generation_with_an_error() {
    let (_, config) = configs().swap_remove(0);
    let mut engine = engine(&config, 39, 2);
    let bad = vec![f32::INFINITY; config.hidden_size];
    engine.set_tensor("model.norm.weight", &bad).unwrap();
    let prompts = prompts(&config);
    let result = engine
        .generate(&requests(&prompts, 2), &settings(), &uniform, None, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(result, Err(Error::NonFinite { .. })));
}

#[test]
fn samples_are_drawn_with_the_current_weights_also_after_these_change() {
    for (name, config) in configs_to_sample() {
        let (prompts, mut engine) = (prompts(&config), engine(&config, 40, 2));
        for round in 0..3 {
            let samples = sample(&mut engine, &requests(&prompts, 5), &settings());
            let worst = worst_difference(&mut engine, &prompts, &samples, 1.0);
            assert!(worst < tolerance(WORST_DIFFERENCE), "{name}, round {round}: {worst:e}");
            if round == 0 {
                let mut batch = Batch::default();
                batch.push_segment(&prompts[1], None);
                batch.predict(16, 3);
                engine.accumulate(&batch, 1.0, &|family| family.dlogp.fill(-1.0)).unwrap();
                assert!(engine.update(&AdamW { lr: 0.05, ..AdamW::default() }, None).unwrap().applied);
            } else {
                let halves: Vec<f32> = engine.tensors().next().unwrap().2.iter().map(|x| x / 2.0).collect();
                engine.set_tensor("model.embed_tokens.weight", &halves).unwrap();
            }
        }
    }
}

#[test]
fn samples_taken_out_for_want_of_room_are_drawn_again_alike() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for (name, config) in with_recurrent(0) {
        let mut engine = engine(&config, 41, 2);
        let prompts = prompts(&config);
        // Most completions end immediately, so that many are admitted; the others all reach their maximum length.
        let stop = |tokens: &[u32]| tokens.len() == 1 && !tokens[0].is_multiple_of(4);
        let mut run = |max_cached_tokens: Option<usize>| -> (Samples, usize) {
            let first_draws = AtomicUsize::new(0);
            let counting = |prompt: usize, sample: usize, position: usize| {
                first_draws.fetch_add(usize::from(position == 0), Ordering::Relaxed);
                uniform(prompt, sample, position)
            };
            let sampling =
                Sampling { max_new_tokens: 60, stop_tokens: vec![], max_cached_tokens, ..settings() };
            let mut done = Samples::new();
            engine
                .generate(&requests(&prompts, 60), &sampling, &counting, Some(&stop), &mut |completion| {
                    let key = (completion.prompt, completion.sample);
                    assert!(done.insert(key, completion).is_none(), "{key:?} came twice");
                    ControlFlow::Continue(())
                })
                .unwrap();
            (done, first_draws.into_inner())
        };
        let (wanted, once) = run(None);
        assert_eq!((wanted.len(), once), (300, 300));
        let mut most = 0;
        let bounds = if config.is_recurrent() { [600, 1500, 3000] } else { [320, 700, 1500] };
        // The smallest bound takes out most.
        for &bound in if is_emulated() { &bounds[..1] } else { &bounds[..] } {
            let (found, draws) = run(Some(bound));
            most = most.max(draws);
            assert_eq!(found.len(), 300, "bound {bound}");
            for (key, found) in &found {
                let wanted = &wanted[key];
                assert_eq!((&found.tokens, found.finish), (&wanted.tokens, wanted.finish), "{key:?}");
                let off = found.logp.iter().zip(&wanted.logp).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(off < tolerance(1e-5), "{name}: {key:?}: off by {off:e}");
            }
        }
        assert!(most > 300, "no sample was taken out: {most} first draws");
    }
}

/// Prompts that arrive one after another, each after a number of drawn tokens.
struct Arriving {
    waiting: Mutex<std::vec::IntoIter<(usize, QueuedPrompt)>>,
    held: Mutex<Option<(usize, QueuedPrompt)>>,
    drawn: AtomicUsize,
}

impl Arriving {
    fn new(prompts: &[Vec<u32>], samples: usize, every: usize) -> Arriving {
        let max_new_tokens = settings().max_new_tokens;
        let arrival = |(prompt, tokens): (usize, &Vec<u32>)| {
            (
                every * prompt,
                QueuedPrompt { prompt, tokens: tokens.clone(), samples: 0..samples, max_new_tokens },
            )
        };
        let all: Vec<_> = prompts.iter().enumerate().map(arrival).collect();
        let (held, drawn) = (Mutex::default(), AtomicUsize::new(0));
        Arriving { waiting: Mutex::new(all.into_iter()), held, drawn }
    }
}

impl PromptQueue for Arriving {
    fn next(&self) -> Option<QueuedPrompt> {
        let mut held = self.held.lock().unwrap();
        if held.is_none() {
            *held = self.waiting.lock().unwrap().next();
        }
        let now = self.drawn.load(Ordering::SeqCst);
        held.take_if(|(after, _)| *after <= now).map(|(_, arrival)| arrival)
    }

    fn uniform(&self, prompt: usize, sample: usize, position: usize) -> f64 {
        uniform(prompt, sample, position)
    }

    fn ended(&self, _: usize, _: &[u32]) -> bool {
        self.drawn.fetch_add(1, Ordering::SeqCst);
        false
    }
}

pub(crate) fn queued(
    engine: &mut Engine,
    prompts: &[Vec<u32>],
    samples: usize,
    every: usize,
    keep: bool,
) -> Samples {
    fed_within(engine, prompts, samples, every, keep, None)
}

fn fed_within(
    engine: &mut Engine,
    prompts: &[Vec<u32>],
    samples: usize,
    every: usize,
    keep: bool,
    max_cached_tokens: Option<usize>,
) -> Samples {
    queued_until(engine, &Arriving::new(prompts, samples, every), keep, max_cached_tokens, 160)
}

/// Samples of a prompt, which may have this many tokens with a completion.
fn fed_up_to(engine: &mut Engine, prompt: &[u32], samples: usize, keep: bool, longest: usize) -> Samples {
    queued_until(engine, &Arriving::new(&[prompt.to_vec()], samples, 0), keep, None, longest)
}

fn queued_until(
    engine: &mut Engine,
    queue: &Arriving,
    keep: bool,
    max_cached_tokens: Option<usize>,
    longest: usize,
) -> Samples {
    let mut done = Samples::new();
    let sampling = Sampling { max_new_tokens: 1000, max_cached_tokens, ..settings() };
    engine
        .generate_queued(queue, longest, &sampling, keep, &mut |completion| {
            let key = (completion.prompt, completion.sample);
            assert!(done.insert(key, completion).is_none(), "{key:?} came twice");
            ControlFlow::Continue(())
        })
        .unwrap();
    done
}

fn assert_same(found: &Samples, wanted: &Samples, why: &str) {
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>(), "{why}");
    for (key, wanted) in wanted {
        let found = &found[key];
        assert_eq!((&found.tokens, found.finish), (&wanted.tokens, wanted.finish), "{key:?}: {why}");
        for (a, b) in found.logp.iter().zip(&wanted.logp).chain(found.entropy.iter().zip(&wanted.entropy)) {
            assert!((a - b).abs() < tolerance(1e-5), "{key:?}: {why}: {a} and {b}");
        }
    }
}

#[test]
fn prompts_that_join_get_what_they_get_together() {
    for (_, config) in with_recurrent(0) {
        let prompts = prompts(&config);
        let wanted = sample(&mut engine(&config, 32, 2), &requests(&prompts, 7), &settings());
        let mut engine = engine(&config, 32, 2);
        for keep in [false, true] {
            // All at once, early enough to join, and each after the end of the one before.
            for every in [0, 30, 1 << 20] {
                let mut all = queued(&mut engine, &prompts, 7, every, keep);
                if every > 30 {
                    // Prompts that arrived when there was no other work.
                    assert!(all.len() == 7);
                    let rest = wanted.iter().filter(|((prompt, _), _)| *prompt > 0);
                    all.extend(rest.map(|(key, completion)| (*key, completion.clone())));
                }
                assert_same(&all, &wanted, &format!("keep {keep}, every {every}"));
            }
        }
    }
}

#[test]
fn a_prompt_that_continues_an_earlier_one_is_not_computed_again() {
    let (_, config) = configs().swap_remove(0);
    let mut numbers = Numbers::new(77);
    let first = numbers.tokens(45, config.vocab_size);
    let mut kept = engine(&config, 32, 2);
    let turn = |engine: &mut Engine, prompt: &[u32]| queued(engine, &[prompt.to_vec()], 3, 0, true);
    let answers = turn(&mut kept, &first);
    assert_eq!(answers[&(0, 0)].cached, 0);
    // The next turn after each answer, the turn after that, and another question after the same beginning.
    for sample in 0..3 {
        let answer = &answers[&(0, sample)];
        let mut second = [&first[..], &answer.tokens].concat();
        let known = second.len() - 1;
        second.extend(numbers.tokens(19, config.vocab_size));
        let found = turn(&mut kept, &second);
        let wanted = turn(&mut engine(&config, 32, 2), &second);
        assert_same(&found, &wanted, "the second turn");
        // Completions separate at any token; in a shared completion only whole pages are found.
        assert!(
            (known - 16..=known).contains(&found[&(0, 0)].cached),
            "{} of {known}",
            found[&(0, 0)].cached
        );
        let mut third = [&second[..], &found[&(0, 1)].tokens].concat();
        third.extend(numbers.tokens(2, config.vocab_size));
        let again = turn(&mut kept, &third);
        assert_same(&again, &turn(&mut engine(&config, 32, 2), &third), "the third turn");
        assert!(again[&(0, 2)].cached >= second.len(), "{}", again[&(0, 2)].cached);
    }
    let other = [&first[..37], &numbers.tokens(9, config.vocab_size)].concat();
    let found = turn(&mut kept, &other);
    assert_eq!(found[&(0, 0)].cached, 32);
    assert_same(&found, &turn(&mut engine(&config, 32, 2), &other), "another question");
    // The same prompt again: all but its end is found.
    let found = turn(&mut kept, &first);
    assert_eq!(found[&(0, 0)].cached, 32);
    assert_same(&found, &answers, "the same prompt");
    // New weights empty the cache.
    kept.accumulate(
        &{
            let mut batch = Batch::default();
            batch.push_group(&first, &[&[3, 4]]);
            batch
        },
        1.0,
        &|family| family.dlogp.fill(-1.0),
    )
    .unwrap();
    kept.update(&AdamW { lr: 0.05, ..AdamW::default() }, None).unwrap();
    let found = turn(&mut kept, &first);
    assert_eq!(found[&(0, 0)].cached, 0);
    assert_ne!(found[&(0, 0)].logp, answers[&(0, 0)].logp);
}

#[test]
fn a_prompt_continues_a_recurrent_state_where_a_stored_sequence_ends() {
    for (_, config) in with_recurrent(0).into_iter().skip(1) {
        let mut numbers = Numbers::new(79);
        let first = numbers.tokens(45, config.vocab_size);
        let mut kept = engine(&config, 32, 2);
        let turn = |engine: &mut Engine, prompt: &[u32]| queued(engine, &[prompt.to_vec()], 3, 0, true);
        let answers = turn(&mut kept, &first);
        let answer = &answers[&(0, 1)].tokens;
        // After the answer, whose last token has no state; after that again, with more tokens than a part of a prompt has; and after the prompt with another answer.
        let second = [&first[..], answer, &numbers.tokens(300, config.vocab_size)].concat();
        let found = fed_up_to(&mut kept, &second, 3, true, 700);
        assert_same(
            &found,
            &fed_up_to(&mut engine(&config, 32, 2), &second, 3, true, 700),
            "the second turn",
        );
        let third = [&second[..], &found[&(0, 1)].tokens, &numbers.tokens(2, config.vocab_size)].concat();
        let again = fed_up_to(&mut kept, &third, 3, true, 700);
        assert_same(&again, &fed_up_to(&mut engine(&config, 32, 2), &third, 3, true, 700), "the third turn");
        assert!(again[&(0, 2)].cached >= second.len(), "{}", again[&(0, 2)].cached);
        let other = [&first[..], &numbers.tokens(9, config.vocab_size)].concat();
        let found = turn(&mut kept, &other);
        assert_eq!(found[&(0, 0)].cached, 45);
        assert_same(&found, &turn(&mut engine(&config, 32, 2), &other), "another answer");
        // There are no states inside a sequence.
        let other = [&first[..37], &numbers.tokens(9, config.vocab_size)].concat();
        let found = turn(&mut kept, &other);
        assert_eq!(found[&(0, 0)].cached, 0);
        assert_same(&found, &turn(&mut engine(&config, 32, 2), &other), "another question");
    }
}

#[test]
fn a_full_cache_forgets_what_was_not_needed_for_longest() {
    for (_, config) in with_recurrent(0) {
        let mut numbers = Numbers::new(78);
        let engine_of = || engine(&config, 32, 2);
        let mut bounded = engine_of();
        // Prompts of two families in turns, in a cache with room for few of them.
        let mut roots = [numbers.tokens(40, config.vocab_size), numbers.tokens(33, config.vocab_size)];
        let mut cached = 0;
        let bound = if config.is_recurrent() { 600 } else { 288 };
        for turn in 0..12 {
            let mut prompt = roots[turn % 2].clone();
            prompt.extend(numbers.tokens(3 + 5 * turn % 17, config.vocab_size));
            if config.is_recurrent() {
                // A state exists where a prompt ended.
                roots[turn % 2] = prompt.clone();
            }
            let prompts = [prompt];
            let found = fed_within(&mut bounded, &prompts, 5, 0, true, Some(bound));
            assert_same(&found, &queued(&mut engine_of(), &prompts, 5, 0, false), &format!("turn {turn}"));
            cached += found[&(0, 0)].cached;
        }
        assert!(cached > 0);
        // Several at a time, some of which are beginnings of others.
        let mut prompts: Vec<Vec<u32>> = (1..6).map(|i| roots[0][..7 * i].to_vec()).collect();
        prompts.extend((1..4).map(|i| [&roots[1][..], &roots[0][..i]].concat()));
        let found = fed_within(&mut bounded, &prompts, 4, 4, true, Some(bound));
        assert_same(&found, &sample(&mut engine_of(), &requests(&prompts, 4), &settings()), "together");
    }
}
