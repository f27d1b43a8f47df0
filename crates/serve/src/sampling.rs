//! Sampling requests that wait together, as one batch of the engine; and log-probabilities of prompts.
//!
//! A sample is a function of the weights, the prompt, the settings, the seed and its index, whatever it is sampled with.

use crate::datum::Bounds;
use crate::request::{Sample, Stop};
use crate::wire::{self, DType, Encoding, SampleResponse, SampledSequence, StopReason, Tensor, TopkLogprobs};
use fgrpo_core::rng::Key;
use fgrpo_eval::io::interrupt;
use fgrpo_nn::{Batch, Completion, Engine, Error, Finish, Prompt, Sampling, StopFn};
use fgrpo_train::language::Language;
use fgrpo_train::language::stop::StopTexts;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

/// Logits that are in memory at once, as numbers.
const LOGITS: usize = 1 << 24;
/// What a top-k list has where the vocabulary has no more tokens.
const NOTHING: f32 = -99999.0;

/// Settings that all requests of a batch share.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    temperature: f32,
    top_k: usize,
    top_p: f32,
    min_p: f32,
    max_tokens: Option<usize>,
    stop: Stop,
}

/// Most tokens of a request's samples: what it asks for, within the model's positions.
fn longest(sample: &Sample, bounds: Bounds) -> usize {
    let room = bounds.positions - sample.prompt.len();
    sample.max_tokens.map_or(room, |most| most.min(room))
}

impl Group {
    /// The settings of a request.
    pub(crate) fn of(sample: &Sample) -> Self {
        Self {
            temperature: sample.temperature,
            top_k: sample.top_k,
            top_p: sample.top_p,
            min_p: sample.min_p,
            max_tokens: sample.max_tokens,
            stop: sample.stop.clone(),
        }
    }
}

/// The random numbers of a request.
fn key(server: Key, number: u64, sample: &Sample) -> Key {
    match (sample.seed, sample.place) {
        (Some(seed), _) => Key::new(seed),
        (None, Some(place)) => place.into_iter().fold(server.with(11), Key::with),
        (None, None) => server.with(12).with(number),
    }
}

/// The completions of a batch, by request and sample; `None` if a stop was requested. `grown` is called with a sample's tokens after each.
fn complete(
    group: &Group,
    batch: &[(u64, &Sample)],
    engine: &mut Engine,
    language: &Language,
    bounds: Bounds,
    server: Key,
    grown: &(dyn Fn(&[u32]) + Sync),
) -> Result<Option<Vec<Vec<Completion>>>, Error> {
    let (default, texts) = match &group.stop {
        Stop::Default => (language.stop_tokens().to_vec(), Vec::new()),
        Stop::Tokens(tokens) => (tokens.clone(), Vec::new()),
        Stop::Texts(texts) => (Vec::new(), texts.clone()),
        Stop::DefaultAnd(texts) => (language.stop_tokens().to_vec(), texts.clone()),
    };
    let sampling = Sampling {
        temperature: group.temperature,
        top_k: group.top_k,
        top_p: group.top_p,
        min_p: group.min_p,
        // A sample that outgrows its own limit beside a longer one is cut: what comes later doesn't change what came before.
        max_new_tokens: batch.iter().map(|(_, sample)| longest(sample, bounds)).max().unwrap_or(1),
        stop_tokens: default,
        max_cached_tokens: None,
    };
    let texts = StopTexts::new("stop", texts).expect("texts that aren't empty");
    let stop: &StopFn<'_> = &|tokens| {
        grown(tokens);
        interrupt::requested() || language.ended_by(&texts, tokens)
    };
    // Equal prompts are computed once. Each sample of a prompt is one of some request: (request, sample).
    let mut samples: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut prompts: Vec<Prompt<'_>> = Vec::new();
    let mut known: HashMap<&[u32], usize> = HashMap::new();
    for (request, &(_, sample)) in batch.iter().enumerate() {
        let prompt = *known.entry(&sample.prompt).or_insert(prompts.len());
        if prompt == prompts.len() {
            prompts.push(Prompt { tokens: &sample.prompt, samples: 0..0 });
            samples.push(Vec::new());
        }
        prompts[prompt].samples.end += sample.samples;
        samples[prompt].extend((0..sample.samples).map(|own| (request, own)));
    }
    let keys: Vec<Key> = batch.iter().map(|(number, sample)| key(server, *number, sample)).collect();
    let uniform = |prompt: usize, sample: usize, position: usize| {
        let (request, own) = samples[prompt][sample];
        keys[request].with(own as u64).uniform(position as u64)
    };
    let mut completions: Vec<Vec<Option<Completion>>> =
        batch.iter().map(|(_, sample)| vec![None; sample.samples]).collect();
    engine.generate(&prompts, &sampling, &uniform, Some(stop), &mut |mut completion| {
        if interrupt::requested() {
            return ControlFlow::Break(());
        }
        let (request, own) = samples[completion.prompt][completion.sample];
        let most = longest(batch[request].1, bounds);
        if completion.tokens.len() > most {
            completion.tokens.truncate(most);
            completion.logp.truncate(most);
            completion.entropy.truncate(most);
            completion.finish = Finish::Length;
        }
        completions[request][own] = Some(completion);
        ControlFlow::Continue(())
    })?;
    Ok(completions.into_iter().map(|own| own.into_iter().collect()).collect())
}

/// The answers to a batch, in its order; `None` if a stop was requested.
pub(crate) fn run(
    group: &Group,
    batch: &[(u64, &Sample)],
    engine: &mut Engine,
    language: &Language,
    bounds: Bounds,
    server: Key,
    grown: &(dyn Fn(&[u32]) + Sync),
) -> Result<Option<Vec<SampleResponse>>, Error> {
    let Some(completions) = complete(group, batch, engine, language, bounds, server, grown)? else {
        return Ok(None);
    };
    let mut prompts = score_prompts(batch, engine)?.into_iter();
    let mut answers = Vec::with_capacity(batch.len());
    let mut computed: HashSet<&[u32]> = HashSet::new();
    for (&(_, sample), completions) in batch.iter().zip(completions) {
        let (prompt_logprobs, target_prompt_logprobs) = prompts.next().expect("one for each request");
        let topk_prompt_logprobs = match sample.topk_prompt {
            0 => None,
            k => {
                // Position 0 has no context.
                let mut rows = vec![Vec::new()];
                rows.extend(topk(engine, &sample.prompt[..sample.prompt.len() - 1], 0, 1.0, k)?);
                Some(list(&rows, k))
            }
        };
        let mut sequences = Vec::with_capacity(completions.len());
        for completion in &completions {
            let topk_sampled_logprobs = match sample.topk_sample {
                0 => None,
                k => {
                    let temperature = if group.temperature == 0.0 { 1.0 } else { group.temperature };
                    let read = completion.tokens.len() - 1;
                    let all: Vec<u32> =
                        sample.prompt.iter().chain(&completion.tokens[..read]).copied().collect();
                    Some(list(&topk(engine, &all, sample.prompt.len() - 1, temperature, k)?, k))
                }
            };
            let stop_reason = match completion.finish {
                Finish::Stop => StopReason::Stop,
                Finish::Length => StopReason::Length,
            };
            sequences.push(SampledSequence {
                stop_reason: stop_reason as i32,
                tokens: wire::tokens(&completion.tokens),
                logprobs: Some(wire::floats(&completion.logp)),
                topk_sampled_logprobs,
            });
        }
        answers.push(SampleResponse {
            sequences,
            prompt_logprobs,
            topk_prompt_logprobs,
            prompt_cache_hit_tokens: if computed.insert(&sample.prompt) {
                0
            } else {
                sample.prompt.len() as i32
            },
            target_prompt_logprobs,
        });
    }
    Ok(Some(answers))
}

/// Log-probabilities of a prompt's tokens, and of the tokens that were asked for.
type PromptScores = (Option<Vec<u8>>, Option<Tensor>);

/// Log-probabilities of the prompts' tokens and of the tokens asked for, where a request wants them.
fn score_prompts(batch: &[(u64, &Sample)], engine: &mut Engine) -> Result<Vec<PromptScores>, Error> {
    let mut all = Batch::default();
    let mut places = Vec::with_capacity(batch.len());
    for (_, sample) in batch {
        let rows = sample.prompt.len() - 1;
        if (sample.prompt_logprobs.is_none() && sample.targets.is_none()) || rows == 0 {
            places.push((Vec::new(), Vec::new()));
            continue;
        }
        let first = all.tokens.len();
        all.push_segment(&sample.prompt[..rows], None);
        let own = rows - sample.prompt_logprobs.unwrap_or(0)..rows;
        let own: Vec<usize> = own.map(|t| all.predict(first + t, sample.prompt[t + 1])).collect();
        let cells = sample.targets.iter().flat_map(|targets| {
            (0..targets.numbers.len())
                .map(move |at| (at / targets.columns, targets.numbers[at], targets.is_given(at)))
        });
        let cells = cells.collect::<Vec<_>>().into_iter();
        let named =
            cells.map(|(row, token, given)| given.then(|| all.predict(first + row, token as u32))).collect();
        places.push((own, named));
    }
    let logp = if all.predictions.is_empty() { Vec::new() } else { engine.score(&all, 1.0)?.logp };
    let answers = batch.iter().zip(places).map(|((_, sample), (own, named))| {
        let prompt = sample.prompt_logprobs.map(|_| {
            let missing = sample.prompt.len() - own.len();
            let numbers: Vec<f32> =
                std::iter::repeat_n(f32::NAN, missing).chain(own.iter().map(|&place| logp[place])).collect();
            wire::floats(&numbers)
        });
        let targets = sample.targets.as_ref().map(|targets| {
            let numbers: Vec<f32> =
                named.iter().map(|place: &Option<usize>| place.map_or(0.0, |place| logp[place])).collect();
            Tensor {
                encoding: Some(Encoding::Dense(wire::floats(&numbers))),
                dtype: DType::Float32 as i32,
                shape: vec![targets.rows() as i64, targets.columns as i64],
            }
        });
        (prompt, targets)
    });
    Ok(answers.collect())
}

/// The `k` most likely next tokens after each token from `first` on, with their log-probabilities at `temperature`, by falling probability; equal ones
/// by id. The network runs once for each part of the logits that fits into memory.
pub(crate) fn topk(
    engine: &mut Engine,
    tokens: &[u32],
    first: usize,
    temperature: f32,
    k: usize,
) -> Result<Vec<Vec<(u32, f32)>>, Error> {
    let vocabulary = engine.config().vocab_size;
    let mut rows = Vec::with_capacity(tokens.len().saturating_sub(first));
    let part = (LOGITS / vocabulary).max(1);
    let mut start = first;
    while start < tokens.len() {
        let end = (start + part).min(tokens.len());
        let mut batch = Batch::default();
        batch.push_segment(&tokens[..end], None);
        for row in start..end {
            batch.predict(row, 0);
        }
        let logits = engine.logits(&batch)?;
        rows.extend(logits.chunks_exact(vocabulary).map(|logits| most_likely(logits, temperature, k)));
        start = end;
    }
    Ok(rows)
}

fn most_likely(logits: &[f32], temperature: f32, k: usize) -> Vec<(u32, f32)> {
    let scaled = |logit: f32| f64::from(logit) / f64::from(temperature);
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| (scaled(logit) - scaled(largest)).exp()).sum();
    let total = scaled(largest) + sum.ln();
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let falling = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    let k = k.min(order.len());
    if k < order.len() {
        order.select_nth_unstable_by(k, falling);
        order.truncate(k);
    }
    order.sort_unstable_by(falling);
    order.into_iter().map(|token| (token, (scaled(logits[token as usize]) - total) as f32)).collect()
}

fn list(rows: &[Vec<(u32, f32)>], k: usize) -> TopkLogprobs {
    let cells = rows.iter().flat_map(|row| (0..k).map(|rank| row.get(rank).copied().unwrap_or((0, NOTHING))));
    let (tokens, logprobs): (Vec<u32>, Vec<f32>) = cells.unzip();
    TopkLogprobs {
        token_ids: wire::tokens(&tokens),
        logprobs: wire::floats(&logprobs),
        k: k as u32,
        length: rows.len() as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Source;
    use fgrpo_nn::Device;
    use fgrpo_nn::config::{Architecture, Config, RopeScaling};

    fn engine(vocab_size: usize) -> Engine {
        let config = Config {
            architecture: Architecture::Qwen3,
            vocab_size,
            hidden_size: 16,
            intermediate_size: 32,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            num_key_value_heads: 1,
            head_dim: 8,
            rms_norm_eps: 1e-6,
            rope_theta: 1e4,
            rope_scaling: RopeScaling::Default,
            tie_word_embeddings: true,
            max_position_embeddings: 64,
            bos_token_id: None,
            eos_token_id: Vec::new(),
            pad_token_id: None,
        };
        Engine::init(&config, 0.3, &|i| Key::new(1).nth_normal(i), &Device::cpu(2)).unwrap()
    }

    #[test]
    fn requests_with_one_prompt_share_it_and_get_what_they_get_alone() {
        let language = Language::mazes();
        let mut engine = engine(language.vocab_size());
        let bounds = Bounds { vocab_size: language.vocab_size(), positions: 64 };
        let request = |prompt: &[u32], seed: u64, samples: usize| Sample {
            sampler: Source::Base,
            prompt: prompt.to_vec(),
            samples,
            max_tokens: Some(8),
            seed: Some(seed),
            place: None,
            stop: Stop::Tokens(Vec::new()),
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            prompt_logprobs: None,
            topk_prompt: 0,
            topk_sample: 0,
            targets: None,
        };
        let requests = [request(&[1, 2, 3], 4, 2), request(&[5, 6], 4, 1), request(&[1, 2, 3], 7, 3)];
        let mut sampled = |batch: &[&Sample]| {
            let batch: Vec<(u64, &Sample)> = batch.iter().map(|&sample| (0, sample)).collect();
            let group = Group::of(batch[0].1);
            run(&group, &batch, &mut engine, &language, bounds, Key::new(0), &|_| {}).unwrap().unwrap()
        };
        let together = sampled(&requests.each_ref());
        assert_eq!(together.iter().map(|a| a.prompt_cache_hit_tokens).collect::<Vec<_>>(), [0, 0, 3]);
        for (request, found) in requests.iter().zip(&together) {
            let alone = sampled(&[request]).remove(0);
            assert_eq!((alone.sequences.len(), found.sequences.len()), (request.samples, request.samples));
            for (alone, found) in alone.sequences.iter().zip(&found.sequences) {
                assert_eq!((&alone.tokens, alone.stop_reason), (&found.tokens, found.stop_reason));
                let numbers = |bytes: &Option<Vec<u8>>| -> Vec<f32> {
                    let bytes = bytes.as_ref().unwrap().chunks_exact(4);
                    bytes.map(|number| f32::from_le_bytes(number.try_into().unwrap())).collect()
                };
                let pairs = numbers(&alone.logprobs).into_iter().zip(numbers(&found.logprobs));
                assert!(pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) < 1e-5);
            }
        }
        // Seeds and indices are apart.
        let all: HashSet<&Vec<u8>> = together.iter().flat_map(|a| &a.sequences).map(|s| &s.tokens).collect();
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn the_most_likely_tokens_come_first_with_their_log_probabilities() {
        let logits = [1.0f32, 3.0, 2.0, 3.0];
        let sum: f64 = logits.iter().map(|&x| f64::from(x / 2.0).exp()).sum();
        let wanted = |x: f32| (f64::from(x / 2.0) - sum.ln()) as f32;
        let found = most_likely(&logits, 2.0, 3);
        assert_eq!(found.iter().map(|row| row.0).collect::<Vec<_>>(), [1, 3, 2]);
        for ((_, logp), logit) in found.iter().zip([3.0, 3.0, 2.0]) {
            assert!((logp - wanted(logit)).abs() < 1e-6);
        }
        assert_eq!(most_likely(&logits, 1.0, 9).len(), 4);
    }
}
