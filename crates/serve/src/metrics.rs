//! What the server has done, counted.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

/// Seconds that only grow, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Seconds(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Seconds {
    pub(crate) fn add(&self, time: Duration) {
        self.0.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64 / 1e6
    }
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Requests of HTTP.
    pub(crate) requests: Counter,
    /// Those that were refused, with a status from 400 to 499.
    pub(crate) refused: Counter,
    /// Sampled tokens.
    pub(crate) sampled_tokens: Counter,
    /// Tokens of sampling requests' prompts.
    pub(crate) prompt_tokens: Counter,
    /// Those that another request of the same batch had computed.
    pub(crate) shared_prompt_tokens: Counter,
    /// Tokens of passes.
    pub(crate) trained_tokens: Counter,
    /// Updates.
    pub(crate) updates: Counter,
    /// Changes of the engine's weights from one model or sampler to another.
    pub(crate) swaps: Counter,
    /// Time of sampling.
    pub(crate) sample_seconds: Seconds,
    /// Time of operations on models.
    pub(crate) train_seconds: Seconds,
}

impl Metrics {
    /// The text format of Prometheus. `now`: further values of this moment, (name, help, value).
    pub(crate) fn text(&self, now: &[(&str, &str, f64)]) -> String {
        let counters = [
            ("requests_total", "Requests of HTTP.", self.requests.get() as f64),
            ("requests_refused_total", "Requests that were refused.", self.refused.get() as f64),
            ("sampled_tokens_total", "Sampled tokens.", self.sampled_tokens.get() as f64),
            ("prompt_tokens_total", "Tokens of sampling requests' prompts.", self.prompt_tokens.get() as f64),
            (
                "shared_prompt_tokens_total",
                "Prompt tokens that another request of the same batch had computed.",
                self.shared_prompt_tokens.get() as f64,
            ),
            (
                "trained_tokens_total",
                "Tokens of forward and forward-backward passes.",
                self.trained_tokens.get() as f64,
            ),
            ("updates_total", "Updates of the optimizer.", self.updates.get() as f64),
            (
                "weight_swaps_total",
                "Changes of the engine's weights from one model or sampler to another.",
                self.swaps.get() as f64,
            ),
            ("sampling_seconds_total", "Time of sampling.", self.sample_seconds.get()),
            ("training_seconds_total", "Time of operations on models.", self.train_seconds.get()),
        ];
        let mut text = String::new();
        let kinds = counters.iter().map(|row| ("counter", row)).chain(now.iter().map(|row| ("gauge", row)));
        for (kind, (name, help, value)) in kinds {
            let _ = write!(
                text,
                "# HELP fgrpo_{name} {help}\n# TYPE fgrpo_{name} {kind}\nfgrpo_{name} {value}\n"
            );
        }
        text
    }
}
