//! Samples the completions of several requests together, including requests that arrive meanwhile, and computes the
//! log-probabilities of prompts.
//!
//! A sample is a function of the weights, the prompt, the settings, the seed and the sample's index, whatever is
//! sampled together with it.

use crate::catalogue::Source;
use crate::datum::Matrix;
use crate::ledger::{Job, Reply};
use crate::metrics::{Count, Metrics};
use crate::request::{Sample, Work};
use crate::sampled::{PromptScores, Sampled, Sequence, Targets, TopK};
use fgrpo_core::rng::Key;
use fgrpo_eval::io::interrupt;
use fgrpo_nn::{Batch, Completion, Engine, Error};
use fgrpo_train::language::Language;
use fgrpo_train::language::stop::{Stop, StopTexts};
use fgrpo_train::policy::{self, Bounds, Policy, Request, RequestQueue, Sampling, Target};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, RwLock};

/// Maximum number of logits in memory.
const LOGITS: usize = 1 << 24;
/// Maximum number of requests per generation, which bounds the memory for their results.
const MOST: usize = 4096;

/// A sampling request that waits or runs.
pub(crate) struct Waiting {
    pub(crate) number: u64,
    pub(crate) sample: Sample,
    pub(crate) reply: Option<Reply>,
}

impl Waiting {
    /// Returns whether the client has disconnected.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.reply.as_ref().is_some_and(|reply| reply.answer.is_closed())
    }
}

/// Settings that all requests of a generation share.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    temperature: f32,
    top_k: usize,
    top_p: f32,
    min_p: f32,
    /// Whether the network scores prompts or samples after the generation.
    pub(crate) scored: bool,
}

impl Group {
    /// Returns the settings of a request.
    pub(crate) fn of(sample: &Sample) -> Self {
        let Sample { temperature, top_k, top_p, min_p, .. } = *sample;
        let scored = sample.prompt_logprobs.is_some() || sample.targets.is_some();
        Self {
            temperature,
            top_k,
            top_p,
            min_p,
            scored: scored || sample.topk_prompt + sample.topk_sample > 0,
        }
    }
}

/// Returns the index of a request's first sample. With a seed, the index is the seed: sample `j` of seed `s` is the sample of
/// seed `s + j`, so a client may ask for samples in one request or in several.
fn first(sample: &Sample) -> usize {
    sample.seed.map_or(0, |seed| (seed & (u64::MAX >> 1)) as usize)
}

/// Returns the random key of a request's samples. It is derived from the seed, or else from `place`, or else from `number`.
fn key(server: Key, number: u64, sample: &Sample) -> Key {
    match (sample.seed, &sample.place) {
        // The highest bit isn't part of the index, so that an index can't overflow.
        (Some(seed), _) => Key::new(seed >> 63),
        (None, Some(place)) => place.iter().copied().fold(server.with(11), Key::with),
        (None, None) => server.with(12).with(number),
    }
}

/// The requests of a generation, and the requests that may join it.
pub(crate) struct Queue<'a> {
    group: Group,
    source: Source,
    language: Arc<Language>,
    bounds: Bounds,
    server: Key,
    /// Maximum length of a prompt with its completion, in tokens.
    room: usize,
    jobs: &'a Mutex<Receiver<Job>>,
    metrics: &'a Metrics,
    state: Mutex<State>,
    /// For each prompt index, the sender to its sample's stream, or `None` if the sample isn't streamed.
    pieces: RwLock<Vec<Option<Pieces>>>,
}

/// Sender to the stream of one sample. For each sampled token, it sends the sample's length so far and the token.
type Pieces = tokio::sync::mpsc::UnboundedSender<(usize, u32)>;

struct State {
    waiting: VecDeque<Waiting>,
    /// Requests that the engine has, by index of the prompt. An answered request is `None`.
    active: Vec<Option<Waiting>>,
    /// Whether arriving requests may join.
    open: bool,
    /// Arrived requests that can't join this generation. The first of them closes it.
    others: Vec<Job>,
}

/// Requests that remain when a generation has ended.
pub(crate) struct Left {
    /// Requests without a result.
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) others: Vec<Job>,
}

impl<'a> Queue<'a> {
    /// Creates a queue with requests of one group. `open` is whether arriving requests may join.
    pub(crate) fn new(
        waiting: VecDeque<Waiting>,
        jobs: &'a Mutex<Receiver<Job>>,
        language: Arc<Language>,
        metrics: &'a Metrics,
        bounds: Bounds,
        server: Key,
        open: bool,
    ) -> Self {
        let (group, source) = (Group::of(&waiting[0].sample), waiting[0].sample.sampler.clone());
        let all = |waiting: &Waiting| waiting.sample.prompt.len() + waiting.sample.longest(bounds);
        let room = policy::room(waiting.iter().map(all).max().unwrap_or(0), bounds.positions);
        let open = open && !group.scored;
        let state = State { waiting, active: Vec::new(), open, others: Vec::new() };
        let (state, pieces) = (Mutex::new(state), RwLock::default());
        Self { group, source, language, bounds, server, room, jobs, metrics, state, pieces }
    }

    /// Handles a request that has just arrived.
    fn arrive(&self, state: &mut State, job: Job) {
        let fits = |sample: &Sample| {
            Group::of(sample) == self.group
                && sample.sampler == self.source
                && sample.prompt.len() + sample.longest(self.bounds) <= self.room
        };
        match job {
            Job { number, work: Work::Sample(sample), reply, .. } if fits(&sample) => {
                self.metrics.add(Count::Joined, 1);
                state.waiting.push_back(Waiting { number, sample, reply });
            }
            other => {
                state.open = false;
                state.others.push(other);
            }
        }
    }

    /// Generates until all requests are finished or a stop is requested. Calls `done` with each request and its result;
    /// requests without a result remain. `keep` is whether prompts stay in the engine's cache.
    pub(crate) fn run(
        self,
        policy: &mut Policy,
        keep: bool,
        mut done: impl FnMut(Waiting, Sampled),
    ) -> (Left, anyhow::Result<()>) {
        let mut completions: Vec<Vec<Option<Completion>>> = Vec::new();
        let Group { temperature, top_k, top_p, min_p, scored } = self.group;
        let sampling =
            Sampling { temperature, top_k, top_p, min_p, keep_cache: keep, max_cached_tokens: None };
        let result = policy.sample_queued(&self, self.room, &sampling, &mut |completion| {
            if interrupt::requested() {
                return ControlFlow::Break(());
            }
            let mut state = self.state.lock().expect("no panic");
            let (prompt, sample) = (completion.prompt, completion.sample);
            completions.resize_with(state.active.len(), Vec::new);
            let asked = &state.active[prompt].as_ref().expect("its samples are missing").sample;
            completions[prompt].resize(asked.samples, None);
            completions[prompt][sample - first(asked)] = Some(completion);
            if !scored && completions[prompt].iter().all(Option::is_some) {
                let waiting = state.active[prompt].take().expect("a request ends once");
                let samples = std::mem::take(&mut completions[prompt]);
                done(waiting, response(&samples.into_iter().flatten().collect::<Vec<_>>()));
            }
            ControlFlow::Continue(())
        });
        let mut result = result.map(drop);
        let mut state = self.state.into_inner().expect("no panic");
        if scored && result.is_ok() && !interrupt::requested() {
            let requests: Vec<(&Sample, Vec<Completion>)> = state
                .active
                .iter()
                .flatten()
                .zip(completions)
                .map(|(waiting, samples)| (&waiting.sample, samples.into_iter().flatten().collect()))
                .collect();
            match score(&requests, policy) {
                Ok(responses) => {
                    let waiting = state.active.drain(..).flatten();
                    waiting.zip(responses).for_each(|(waiting, response)| done(waiting, response));
                }
                Err(error) => result = Err(error),
            }
        }
        let waiting = state.active.into_iter().flatten().chain(state.waiting).collect();
        (Left { waiting, others: state.others }, result)
    }
}

impl RequestQueue for Queue<'_> {
    fn next(&self) -> Option<Request> {
        let mut state = self.state.lock().expect("no panic");
        state.open &= state.active.len() < MOST;
        while state.waiting.is_empty()
            && state.open
            && let Ok(job) = self.jobs.lock().expect("no panic").try_recv()
        {
            self.arrive(&mut state, job);
        }
        let waiting = state.waiting.pop_front()?;
        let Waiting { number, ref sample, ref reply } = waiting;
        let tokens = sample.stop.tokens.as_deref().unwrap_or(self.language.stop_tokens());
        let texts = StopTexts::new("stop", sample.stop.texts.clone()).expect("the strings aren't empty");
        let request = Request {
            prompt: sample.prompt.clone(),
            samples: first(sample)..first(sample) + sample.samples,
            max_tokens: sample.longest(self.bounds),
            stop: Some(Stop { tokens: tokens.to_vec(), texts }),
            key: key(self.server, number, sample),
        };
        // Pieces don't name their sample, so only a single sample is streamed.
        let pieces = reply.as_ref().and_then(|reply| reply.pieces.clone()).filter(|_| sample.samples == 1);
        self.pieces.write().expect("no panic").push(pieces);
        state.active.push(Some(waiting));
        Some(request)
    }

    fn drawn(&self, prompt: usize, tokens: &[u32]) -> bool {
        if let Some(pieces) = &self.pieces.read().expect("no panic")[prompt] {
            // The client may have disconnected.
            let _ = pieces.send((tokens.len(), *tokens.last().expect("a token was drawn")));
        }
        !interrupt::requested()
    }

    fn is_abandoned(&self, prompt: usize) -> bool {
        self.state.lock().expect("no panic").active[prompt].as_ref().is_some_and(Waiting::is_abandoned)
    }
}

/// Collects the samples of a request.
fn response(completions: &[Completion]) -> Sampled {
    let sequence = |completion: &Completion| Sequence {
        tokens: completion.tokens.clone(),
        logp: completion.logp.clone(),
        finish: completion.finish,
        topk: None,
    };
    Sampled {
        sequences: completions.iter().map(sequence).collect(),
        cached: completions.first().map_or(0, |first| first.cached),
        ..Sampled::default()
    }
}

/// Collects the samples of requests, with the log-probabilities that the network computes after sampling. If a request asks
/// for the most likely tokens, the log-probabilities of its own tokens come from the same logits, so that equal tokens
/// have equal values.
fn score(requests: &[(&Sample, Vec<Completion>)], policy: &mut Policy) -> anyhow::Result<Vec<Sampled>> {
    let prompts = score_prompts(requests, policy)?;
    let engine = policy.engine_mut();
    let mut answers = Vec::with_capacity(requests.len());
    for ((sample, completions), prompt) in requests.iter().zip(prompts) {
        let mut answer = Sampled { prompt, ..response(completions) };
        if sample.topk_prompt > 0 {
            // Position 0 has no context, and positions before the requested ones stay empty.
            let rows = sample.prompt.len() - 1;
            let first = rows - sample.prompt_logprobs.unwrap_or(rows).min(rows);
            let k = sample.topk_prompt;
            let mut all = vec![Vec::new(); 1 + first];
            let (logp, rows) = topk(engine, &sample.prompt, first, 1.0, k)?;
            all.extend(rows);
            answer.prompt_topk = Some(TopK { k, rows: all });
            if let Some(tokens) = &mut answer.prompt.tokens {
                tokens[1 + first..].copy_from_slice(&logp);
            }
        }
        if sample.topk_sample > 0 {
            let temperature = if sample.temperature == 0.0 { 1.0 } else { sample.temperature };
            for (completion, sequence) in completions.iter().zip(&mut answer.sequences) {
                let all = [&sample.prompt[..], &completion.tokens].concat();
                let k = sample.topk_sample;
                let (logp, rows) = topk(engine, &all, sample.prompt.len() - 1, temperature, k)?;
                (sequence.logp, sequence.topk) = (logp, Some(TopK { k, rows }));
            }
        }
        answers.push(answer);
    }
    Ok(answers)
}

/// Scores the prompts' tokens and the requested target tokens, for the requests that ask for them.
fn score_prompts(
    batch: &[(&Sample, Vec<Completion>)],
    policy: &mut Policy,
) -> anyhow::Result<Vec<PromptScores>> {
    // Each request has one sequence for the prompt's tokens and one for the target tokens.
    let mut sequences = Vec::with_capacity(2 * batch.len());
    for (sample, _) in batch {
        let rows = sample.prompt.len() - 1;
        // `topk` scores a prompt whose most likely tokens are requested.
        let scored = sample.prompt_logprobs.filter(|_| sample.topk_prompt == 0).unwrap_or(0);
        let prompt = rows - scored.min(rows)..rows;
        let prompt = prompt.map(|after| Target { after, token: sample.prompt[after + 1] }).collect();
        for targets in [prompt, sample.targets.as_ref().map(Matrix::targets).unwrap_or_default()] {
            let tokens = sample.prompt[..rows.max(1)].to_vec();
            sequences.push(policy::Sequence { tokens, targets });
        }
    }
    let scores = policy.score(&sequences, 1.0)?;
    let answers = batch.iter().zip(scores.chunks_exact(2)).map(|((sample, _), scores)| {
        let tokens = sample.prompt_logprobs.map(|_| {
            let logp = &scores[0].logp;
            let missing = sample.prompt.len() - logp.len();
            std::iter::repeat_n(f32::NAN, missing).chain(logp.iter().copied()).collect()
        });
        let targets = sample.targets.as_ref().map(|targets| {
            let logp = targets.filled(&scores[1].logp);
            Targets { logp, shape: [targets.rows(), targets.columns] }
        });
        PromptScores { tokens, targets }
    });
    Ok(answers.collect())
}

/// Tokens with their log-probabilities.
type Row = Vec<(u32, f32)>;

/// Returns the log-probability of each token after index `first` at `temperature`, and the `k` most likely tokens at its
/// position. They are sorted by decreasing probability, and equally likely tokens by id. The network runs once for
/// each block of logits that fits into memory.
fn topk(
    engine: &mut Engine,
    tokens: &[u32],
    first: usize,
    temperature: f32,
    k: usize,
) -> Result<(Vec<f32>, Vec<Row>), Error> {
    let vocabulary = engine.config().vocab_size;
    let last = tokens.len() - 1;
    let mut scored = (Vec::new(), Vec::new());
    let part = (LOGITS / vocabulary).max(1);
    let mut start = first;
    while start < last {
        let end = (start + part).min(last);
        let mut batch = Batch::default();
        batch.push_segment(&tokens[..end], None);
        for row in start..end {
            batch.predict(row, 0);
        }
        let logits = engine.logits(&batch)?;
        let rows = tokens[start + 1..].iter().zip(logits.chunks_exact(vocabulary));
        scored.extend(rows.map(|(&token, logits)| most_likely(logits, token, temperature, k)));
        start = end;
    }
    Ok(scored)
}

/// Returns the log-probability of `token`, and the `k` most likely tokens.
fn most_likely(logits: &[f32], token: u32, temperature: f32, k: usize) -> (f32, Row) {
    let scale = |logit: f32| f64::from(logit) / f64::from(temperature);
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| (scale(logit) - scale(largest)).exp()).sum();
    let total = scale(largest) + sum.ln();
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let falling = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    let k = k.min(order.len());
    if k < order.len() {
        order.select_nth_unstable_by(k, falling);
        order.truncate(k);
    }
    order.sort_unstable_by(falling);
    let logp = |token: u32| (scale(logits[token as usize]) - total) as f32;
    (logp(token), order.into_iter().map(|token| (token, logp(token))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fgrpo_nn::Device;
    use fgrpo_nn::config::Config;
    use std::sync::mpsc::channel;

    fn engine(vocab_size: usize) -> Engine {
        let config =
            Config { vocab_size, hidden_size: 16, head_dim: 4, ..fgrpo_nn::kernels::small_decoder(32) };
        Engine::init(&config, 0.3, &|i| Key::new(1).nth_normal(i), &Device::cpu(2)).unwrap()
    }

    /// Returns a request for one sample of `prompt` with default settings.
    fn sample(prompt: &[u32], seed: u64) -> Sample {
        Sample {
            sampler: Source::Base,
            prompt: prompt.to_vec(),
            samples: 1,
            max_tokens: None,
            seed: Some(seed),
            place: None,
            stop: crate::request::Stop { tokens: Some(Vec::new()), texts: Vec::new() },
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            prompt_logprobs: None,
            topk_prompt: 0,
            topk_sample: 0,
            targets: None,
        }
    }

    #[test]
    fn what_does_not_fit_a_generation_closes_it_and_is_left() {
        let language = Arc::new(Language::mazes());
        let bounds = Bounds { vocab_size: language.vocab_size(), positions: 64 };
        let sample = |temperature: f32| Sample { max_tokens: Some(4), temperature, ..sample(&[1, 2], 1) };
        let (sender, receiver) = channel();
        for (number, temperature) in [(2, 1.0), (3, 0.5), (4, 1.0)] {
            let work = Work::Sample(sample(temperature));
            sender.send(Job { number, work, finished: false, reply: None }).unwrap();
        }
        let jobs = Mutex::new(receiver);
        let first = Waiting { number: 1, sample: sample(1.0), reply: None };
        let metrics = Metrics::default();
        let mut policy = Policy::new(engine(language.vocab_size()), Arc::clone(&language));
        let queue = Queue::new([first].into(), &jobs, language, &metrics, bounds, Key::new(0), true);
        let mut done = Vec::new();
        let (rest, result) = queue.run(&mut policy, true, |waiting, _| done.push(waiting.number));
        result.unwrap();
        done.sort_unstable();
        assert_eq!((done, metrics.get(Count::Joined)), (vec![1, 2], 1.0));
        assert_eq!(rest.others.iter().map(|job| job.number).collect::<Vec<_>>(), [3]);
        assert_eq!(jobs.lock().unwrap().try_recv().unwrap().number, 4);
    }

    #[test]
    fn the_most_likely_tokens_come_first_with_their_log_probabilities() {
        let logits = [1.0f32, 3.0, 2.0, 3.0];
        let sum: f64 = logits.iter().map(|&x| f64::from(x / 2.0).exp()).sum();
        let expected = |x: f32| (f64::from(x / 2.0) - sum.ln()) as f32;
        let (logp, top) = most_likely(&logits, 2, 2.0, 3);
        assert_eq!(logp, top[2].1);
        assert_eq!(top.iter().map(|row| row.0).collect::<Vec<_>>(), [1, 3, 2]);
        for ((_, logp), logit) in top.iter().zip([3.0, 3.0, 2.0]) {
            assert!((logp - expected(logit)).abs() < 1e-6);
        }
        assert_eq!(most_likely(&logits, 0, 1.0, 9).1.len(), 4);
    }
}
