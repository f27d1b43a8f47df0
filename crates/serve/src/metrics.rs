//! Counters of the server's requests, tokens and other work.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A counter, which only grows. The variants are in the order of [`COUNTERS`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    Requests,
    Refused,
    SampledTokens,
    PromptTokens,
    ReusedPromptTokens,
    Joined,
    TrainedTokens,
    Updates,
    Swaps,
    SampleTime,
    TrainTime,
}

/// Name, description and unit of each counter.
const COUNTERS: [(&str, &str, f64); 11] = [
    ("requests_total", "HTTP requests", 1.0),
    ("requests_refused_total", "Rejected requests, with a status from 400 to 499", 1.0),
    ("sampled_tokens_total", "Sampled tokens", 1.0),
    ("prompt_tokens_total", "Tokens of sampling requests' prompts", 1.0),
    ("reused_prompt_tokens_total", "Prompt tokens taken from the cache of an earlier request", 1.0),
    ("joined_requests_total", "Sampling requests that joined a running batch", 1.0),
    ("trained_tokens_total", "Tokens of forward and forward-backward passes", 1.0),
    ("updates_total", "Updates of the optimizer", 1.0),
    ("weight_swaps_total", "Changes of the engine's weights from one model or sampler to another", 1.0),
    ("sampling_seconds_total", "Seconds of sampling", MICROSECOND),
    ("training_seconds_total", "Seconds of operations on models", MICROSECOND),
];
const MICROSECOND: f64 = 1e-6;

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Metrics([AtomicU64; COUNTERS.len()]);

/// A current value: name, description and value.
pub(crate) type Gauge = (&'static str, &'static str, f64);

impl Metrics {
    pub(crate) fn add(&self, count: Count, n: usize) {
        self.0[count as usize].fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_time(&self, count: Count, time: Duration) {
        self.add(count, time.as_micros() as usize);
    }

    pub(crate) fn get(&self, count: Count) -> f64 {
        self.0[count as usize].load(Ordering::Relaxed) as f64 * COUNTERS[count as usize].2
    }

    /// Returns the name, description and value of each counter.
    pub(crate) fn counters(&self) -> impl Iterator<Item = Gauge> + '_ {
        let value = |number: &AtomicU64, unit: f64| number.load(Ordering::Relaxed) as f64 * unit;
        self.0.iter().zip(COUNTERS).map(move |(number, (name, help, unit))| (name, help, value(number, unit)))
    }

    /// Formats all values as text for Prometheus.
    pub(crate) fn text(&self, gauges: &[Gauge]) -> String {
        let counters = self.counters().map(|row| ("counter", row));
        let mut text = String::new();
        for (kind, (name, help, value)) in counters.chain(gauges.iter().map(|&row| ("gauge", row))) {
            let _ = write!(
                text,
                "# HELP fgrpo_{name} {help}.\n# TYPE fgrpo_{name} {kind}\nfgrpo_{name} {value}\n"
            );
        }
        text
    }
}
