//! Samples completions of requests that are all known at the start, or that arrive while others are sampled.

use super::{Policy, refused};
use crate::language::Language;
use crate::language::stop::Stop;
use fgrpo_core::rng::Key;
use fgrpo_eval::io::server::sampling::RequestSampling;
use fgrpo_nn::{Completion, Prompt, PromptQueue, QueuedPrompt, Sampling as EngineSampling};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Minimum number of tokens that [`room`] returns.
const ROOM: usize = 2048;

/// A prompt and the samples to draw for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Tokens of the prompt: at least one, and fewer than the model has positions.
    pub prompt: Vec<u32>,
    /// Indices of the samples.
    pub samples: Range<usize>,
    /// Length limit of a completion in tokens. The model's positions may end it earlier.
    pub max_tokens: usize,
    /// Tokens and strings that end a completion. If `None`, the end tokens and strings of the policy's language.
    pub stop: Option<Stop>,
    /// Random key. The draw at a position of a sample is `key.with(sample).uniform(position)`.
    pub key: Key,
}

impl Request {
    /// Requests one sample of a prompt, up to the model's last position, with seed 0.
    pub fn new(prompt: impl Into<Vec<u32>>) -> Self {
        Self { prompt: prompt.into(), samples: 0..1, max_tokens: usize::MAX, stop: None, key: Key::new(0) }
    }

    /// Requests `n` samples, with the indices `0..n`.
    #[must_use]
    pub fn samples(self, n: usize) -> Self {
        Self { samples: 0..n, ..self }
    }

    /// Sets the length limit of a completion in tokens.
    #[must_use]
    pub fn max_tokens(self, tokens: usize) -> Self {
        Self { max_tokens: tokens, ..self }
    }

    /// Sets the random key. Requests with the same key use the same random numbers.
    #[must_use]
    pub fn key(self, key: Key) -> Self {
        Self { key, ..self }
    }

    /// Returns the length limit of a completion in a model with this many positions.
    pub fn limit(&self, positions: usize) -> usize {
        self.max_tokens.min(positions.saturating_sub(self.prompt.len()))
    }
}

/// Settings of sampling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Temperature. If 0, the most likely token is taken.
    pub temperature: f32,
    /// Samples from the most likely tokens whose total probability reaches `top_p`, in (0, 1].
    pub top_p: f32,
    /// Samples from the `top_k` most likely tokens. If 0, samples from all tokens.
    pub top_k: usize,
    /// Samples from tokens that are at least `min_p` times as likely as the most likely one, in [0, 1).
    pub min_p: f32,
    /// Whether keys and values stay cached after the call. Then only the new tokens of a later prompt that continues
    /// a sequence of this call are computed. The cache is dropped when the weights change.
    pub keep_cache: bool,
    /// Maximum number of cached tokens. If `None`, as many as fit in memory.
    pub max_cached_tokens: Option<usize>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            keep_cache: false,
            max_cached_tokens: None,
        }
    }
}

impl From<&RequestSampling> for Sampling {
    fn from(settings: &RequestSampling) -> Self {
        Self {
            temperature: settings.temperature as f32,
            top_p: settings.top_p as f32,
            top_k: settings.top_k,
            min_p: settings.min_p as f32,
            ..Self::default()
        }
    }
}

impl Sampling {
    fn engine(&self, stop: &Stop, max_new_tokens: usize) -> EngineSampling {
        let Self { temperature, top_p, top_k, min_p, max_cached_tokens, keep_cache: _ } = *self;
        let stop_tokens = stop.tokens.clone();
        EngineSampling { temperature, top_p, top_k, min_p, max_new_tokens, stop_tokens, max_cached_tokens }
    }
}

/// Source of requests that arrive while others are sampled. Several threads call the methods.
pub trait RequestQueue: Sync {
    /// Returns the next request if one has arrived. Its prompt and completion must fit in the `room` of
    /// [`Policy::sample_queued`].
    fn next(&self) -> Option<Request>;

    /// Receives one completion's tokens so far, after each token. `request` is the index of its request in the order of arrival. Returns whether sampling
    /// continues.
    fn drawn(&self, request: usize, tokens: &[u32]) -> bool;

    /// Returns whether nobody waits for a request any more, so that its completions end early.
    fn is_abandoned(&self, _request: usize) -> bool {
        false
    }
}

/// Returns the number of tokens that the cache reserves for a prompt with its completion, if the longest of the first
/// requests has `tokens`.
pub fn room(tokens: usize, positions: usize) -> usize {
    tokens.max(ROOM).next_power_of_two().min(positions)
}

impl Policy {
    /// Samples completions. Returns the completions of each request, ordered by the sample's index.
    ///
    /// A sample is a function of the weights, the prompt, the settings, the key, the sample's index and the position.
    /// Other requests don't affect it.
    ///
    /// ```
    /// # use fgrpo_train::policy::{Policy, Request, Sampling};
    /// # fn example(policy: &mut Policy, prompt: Vec<u32>) -> anyhow::Result<()> {
    /// let requests = [Request::new(prompt).samples(16).max_tokens(64)];
    /// let groups = policy.sample(&requests, &Sampling::default())?;
    /// println!("{}", policy.text(&groups[0][0])?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Bad input: a prompt that is empty, has tokens outside the vocabulary or leaves no room for a completion; a
    /// setting out of range. Errors from the engine, such as logits that aren't finite.
    pub fn sample(
        &mut self,
        requests: &[Request],
        sampling: &Sampling,
    ) -> anyhow::Result<Vec<Vec<Completion>>> {
        Ok(self.sample_while(requests, sampling, &|| true)?.expect("sampling isn't stopped"))
    }

    /// Samples like [`Policy::sample`] and calls `go_on` after each token. Stops and returns `None` once `go_on`
    /// returns `false`.
    ///
    /// # Errors
    /// As [`Policy::sample`].
    pub fn sample_while(
        &mut self,
        requests: &[Request],
        sampling: &Sampling,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> anyhow::Result<Option<Vec<Vec<Completion>>>> {
        let mut groups: Vec<Vec<Option<Completion>>> =
            requests.iter().map(|request| vec![None; request.samples.len()]).collect();
        let complete = self.sample_with(requests, sampling, &|_, _| go_on(), &mut |completion| {
            let (request, sample) = (completion.prompt, completion.sample);
            groups[request][sample - requests[request].samples.start] = Some(completion);
            ControlFlow::Continue(())
        })?;
        let all = |group: Vec<Option<Completion>>| {
            group.into_iter().map(|c| c.expect("the engine returns every sample once")).collect()
        };
        Ok((complete && go_on()).then(|| groups.into_iter().map(all).collect()))
    }

    /// Samples like [`Policy::sample`] and passes each completion to `on_completion` when it ends. Several threads
    /// call `drawn` after each token, with the request's index and the completion's tokens so far. Returns whether
    /// all samples were made.
    ///
    /// Sampling stops if `drawn` returns false or `on_completion` breaks. A completion that was cut short by `drawn` may then be passed to `on_completion`.
    ///
    /// # Errors
    /// As [`Policy::sample`].
    pub fn sample_with(
        &mut self,
        requests: &[Request],
        sampling: &Sampling,
        drawn: &(dyn Fn(usize, &[u32]) -> bool + Sync),
        on_completion: &mut dyn FnMut(Completion) -> ControlFlow<()>,
    ) -> anyhow::Result<bool> {
        for (index, request) in requests.iter().enumerate() {
            self.check_prompt(&format!("requests[{index}]"), &request.prompt)?;
        }
        let positions = self.positions();
        if sampling.keep_cache {
            let longest = requests.iter().map(|request| request.prompt.len() + request.limit(positions));
            let known = Known { requests, next: AtomicUsize::new(0), drawn };
            return self.sample_queued(
                &known,
                room(longest.max().unwrap_or(0), positions),
                sampling,
                on_completion,
            );
        }
        let Self { engine, language, .. } = self;
        let default = language.stop();
        let mut groups: BTreeMap<(usize, &Stop), Vec<usize>> = BTreeMap::new();
        for (index, request) in requests.iter().enumerate() {
            let stop = request.stop.as_ref().unwrap_or(default);
            groups.entry((request.limit(positions), stop)).or_default().push(index);
        }
        let (stopped, mut broken) = (AtomicBool::new(false), false);
        for ((limit, stop), members) in groups.into_iter().rev() {
            let prompt =
                |&i: &usize| Prompt { tokens: &requests[i].prompt, samples: requests[i].samples.clone() };
            let prompts: Vec<Prompt<'_>> = members.iter().map(prompt).collect();
            // The callback of the engine doesn't get the request's index. For `go_on`, the index of any member is
            // right.
            let ended = |tokens: &[u32]| ends(&stopped, drawn(members[0], tokens), language, stop, tokens);
            engine
                .generate(
                    &prompts,
                    &sampling.engine(stop, limit),
                    &|at, sample, position| draw(requests[members[at]].key, sample, position),
                    Some(&ended),
                    &mut |completion| {
                        let prompt = members[completion.prompt];
                        broken |= on_completion(Completion { prompt, ..completion }).is_break();
                        flow(broken || stopped.load(Ordering::Relaxed))
                    },
                )
                .map_err(refused)?;
            if broken || stopped.load(Ordering::Relaxed) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Samples like [`Policy::sample_with`], but takes requests as they arrive, until none is left. `room` is the
    /// maximum number of tokens of a prompt with its completion. Completions have the index of their request in the
    /// order of arrival.
    ///
    /// # Errors
    /// As [`Policy::sample`].
    ///
    /// # Panics
    /// If a request has an invalid prompt, or doesn't fit in `room`.
    pub fn sample_queued(
        &mut self,
        requests: &dyn RequestQueue,
        room: usize,
        sampling: &Sampling,
        on_completion: &mut dyn FnMut(Completion) -> ControlFlow<()>,
    ) -> anyhow::Result<bool> {
        let positions = self.positions();
        let Self { engine, language, .. } = self;
        let (arrived, stopped) = (RwLock::default(), AtomicBool::new(false));
        let queue = Queue { requests, positions, language, arrived, stopped };
        let mut broken = false;
        let none = Stop::default();
        let mut take = |completion: Completion| {
            broken |= on_completion(completion).is_break();
            flow(broken || queue.stopped.load(Ordering::Relaxed))
        };
        let settings = sampling.engine(&none, room);
        engine.generate_queued(&queue, room, &settings, sampling.keep_cache, &mut take).map_err(refused)?;
        Ok(!broken && !queue.stopped.into_inner())
    }
}

/// Returns the random number of a draw, in [0, 1).
fn draw(key: Key, sample: usize, position: usize) -> f64 {
    key.with(sample as u64).uniform(position as u64)
}

/// Returns whether a completion ends with its last token, or because sampling stops.
fn ends(stopped: &AtomicBool, go_on: bool, language: &Language, stop: &Stop, tokens: &[u32]) -> bool {
    if !go_on {
        stopped.store(true, Ordering::Relaxed);
    }
    stopped.load(Ordering::Relaxed)
        || tokens.last().is_some_and(|last| stop.tokens.contains(last))
        || language.ended_by(&stop.texts, tokens)
}

/// Requests that are all known at the start.
struct Known<'a> {
    requests: &'a [Request],
    next: AtomicUsize,
    drawn: &'a (dyn Fn(usize, &[u32]) -> bool + Sync),
}

impl RequestQueue for Known<'_> {
    fn next(&self) -> Option<Request> {
        self.requests.get(self.next.fetch_add(1, Ordering::Relaxed)).cloned()
    }

    fn drawn(&self, request: usize, tokens: &[u32]) -> bool {
        (self.drawn)(request, tokens)
    }
}

/// Passes requests to the engine.
struct Queue<'a> {
    requests: &'a dyn RequestQueue,
    positions: usize,
    language: &'a Language,
    /// Random key and stop conditions of each request that has arrived.
    arrived: RwLock<Vec<(Key, Option<Stop>)>>,
    stopped: AtomicBool,
}

impl PromptQueue for Queue<'_> {
    fn next(&self) -> Option<QueuedPrompt> {
        // The lock is held, so that indices are in the order of arrival.
        let mut arrived = self.arrived.write().expect("no panic");
        let request = self.requests.next()?;
        let max_new_tokens = request.limit(self.positions);
        let Request { prompt: tokens, samples, stop, key, .. } = request;
        arrived.push((key, stop));
        Some(QueuedPrompt { prompt: arrived.len() - 1, tokens, samples, max_new_tokens })
    }

    fn uniform(&self, prompt: usize, sample: usize, position: usize) -> f64 {
        draw(self.arrived.read().expect("no panic")[prompt].0, sample, position)
    }

    fn ended(&self, prompt: usize, tokens: &[u32]) -> bool {
        let go_on = self.requests.drawn(prompt, tokens);
        let arrived = self.arrived.read().expect("no panic");
        let stop = arrived[prompt].1.as_ref().unwrap_or(self.language.stop());
        ends(&self.stopped, go_on, self.language, stop, tokens) || self.requests.is_abandoned(prompt)
    }
}

fn flow(stop: bool) -> ControlFlow<()> {
    if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
