//! Sampling with a cache that outlives its call: a prompt that continues an earlier one has only its new tokens computed, as
//! long as the weights stay.

use crate::language::Language;
use crate::language::stop::StopTexts;
use fgrpo_core::rng::Key;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_nn::{Arrival, Completion, Engine, Feed, Sampling};
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Least room of the cache for a prompt with its completion, in tokens.
const ROOM: usize = 2048;

/// A prompt with the samples that are wanted of it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Its tokens, at least one, and fewer than the model has positions.
    pub(crate) tokens: Vec<u32>,
    /// The samples' indices.
    pub(crate) samples: Range<usize>,
    /// The random draw at a position of a sample is of `key.with(sample)`.
    pub(crate) key: Key,
}

/// Samples of each request, in order; `sampling.max_new_tokens` is less where the model's positions end. A completion ends
/// with the model's end tokens, or with one of the texts. `None` if `go_on` returns false, which is called after each token.
///
/// # Errors
/// Bad input: a setting out of its range; errors from the engine.
pub(crate) fn draw(
    engine: &mut Engine,
    requests: &[Request],
    sampling: &Sampling,
    (language, stop): (&Language, &StopTexts),
    go_on: &(dyn Fn() -> bool + Sync),
) -> anyhow::Result<Option<Vec<Vec<Completion>>>> {
    let positions = engine.config().context();
    let most = |request: &Request| (request.tokens.len() + sampling.max_new_tokens).min(positions);
    let longest = requests.iter().map(most).max().unwrap_or(0).max(ROOM).next_power_of_two().min(positions);
    let next = AtomicUsize::new(0);
    let feed = Requests { requests, positions, next, sampling, language, stop, go_on };
    let wanted = |request: &Request| vec![None; request.samples.len()];
    let mut groups: Vec<Vec<Option<Completion>>> = requests.iter().map(wanted).collect();
    let mut stopped = false;
    let mut take = |completion: Completion| {
        stopped |= !go_on();
        let (request, sample) = (completion.prompt, completion.sample);
        groups[request][sample - requests[request].samples.start] = Some(completion);
        if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    engine.generate_fed(&feed, longest, sampling, true, &mut take).or_bad_input()?;
    if stopped || !go_on() {
        return Ok(None);
    }
    let all = |group: Vec<Option<Completion>>| {
        group.into_iter().map(|c| c.expect("the engine returns every sample once")).collect()
    };
    Ok(Some(groups.into_iter().map(all).collect()))
}

struct Requests<'a> {
    requests: &'a [Request],
    positions: usize,
    next: AtomicUsize,
    sampling: &'a Sampling,
    language: &'a Language,
    stop: &'a StopTexts,
    go_on: &'a (dyn Fn() -> bool + Sync),
}

impl Feed for Requests<'_> {
    fn next(&self) -> Option<Arrival> {
        let prompt = self.next.fetch_add(1, Ordering::Relaxed);
        let Request { tokens, samples, .. } = self.requests.get(prompt)?.clone();
        let max_new_tokens = self.sampling.max_new_tokens.min(self.positions - tokens.len());
        Some(Arrival { prompt, tokens, samples, max_new_tokens })
    }

    fn uniform(&self, prompt: usize, sample: usize, position: usize) -> f64 {
        self.requests[prompt].key.with(sample as u64).uniform(position as u64)
    }

    fn ended(&self, _: usize, tokens: &[u32]) -> bool {
        let last = tokens.last().is_some_and(|last| self.language.stop_tokens().contains(last));
        last || self.language.ended_by(self.stop, tokens) || !(self.go_on)()
    }
}
