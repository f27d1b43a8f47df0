//! Sampling settings, and draws with their results.
//!
//! The recorded log-probability and entropy are of softmax(logits / temperature) before truncation: this is the policy that is trained and
//! that `Engine::score` evaluates. A sampled token is a function of the logits and one uniform random number.

use crate::error::Error;

/// The lowest temperature above 0. Below it, the rounding of the divided logits would decide what is sampled.
pub const COLDEST: f64 = 1e-6;

/// Settings of sampling, including the limits of a completion.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Divisor of the logits, at least [`COLDEST`]. 0 selects the most likely token (the lowest id if tied), and records log-probabilities at temperature 1.
    pub temperature: f32,
    /// Keeps the fewest most likely tokens whose probability reaches `top_p` of the total that `top_k` left; in (0, 1], where 1 keeps all.
    pub top_p: f32,
    /// Number of most likely tokens that are retained. If 0, all tokens are retained.
    pub top_k: usize,
    /// Keeps tokens that are at least `min_p` times as likely as the most likely token; in [0, 1), where 0 keeps all.
    pub min_p: f32,
    /// Maximum length of a completion, including the stop token; at least 1.
    pub max_new_tokens: usize,
    /// Tokens that end a completion. The completion includes the stop token.
    pub stop_tokens: Vec<u32>,
    /// Maximum number of cached tokens over all threads; fewer sequences run at once if necessary. `None` uses a third of the memory that the
    /// model and its optimizer leave free, but at least 512 MiB; on a GPU, all of it. A recurrent state counts as the number of tokens whose keys
    /// and values take as much memory.
    pub max_cached_tokens: Option<usize>,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            max_new_tokens: 256,
            stop_tokens: Vec::new(),
            max_cached_tokens: None,
        }
    }
}

impl Sampling {
    /// Returns an error if a setting is outside its range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |field, found: String, expected: &str| Err(Error::request(field, found, expected));
        if !(self.temperature == 0.0 || self.temperature >= COLDEST as f32 && self.temperature.is_finite()) {
            return wrong(
                "temperature",
                self.temperature.to_string(),
                &format!("0 or a finite number of at least {COLDEST:e}"),
            );
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return wrong("top_p", self.top_p.to_string(), "a number in (0, 1]");
        }
        if !(self.min_p >= 0.0 && self.min_p < 1.0) {
            return wrong("min_p", self.min_p.to_string(), "a number in [0, 1)");
        }
        if self.max_new_tokens == 0 {
            return wrong("max_new_tokens", "0".into(), "at least 1");
        }
        Ok(())
    }

    pub(crate) fn truncates(&self) -> bool {
        self.top_p < 1.0 || self.top_k > 0 || self.min_p > 0.0
    }
}

/// Sizes of a `generate` call, or of the largest share of it that one executor gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rollout {
    pub(crate) prompts: usize,
    /// Length of the longest prompt.
    pub(crate) prompt_tokens: usize,
    /// Number of completions of all prompts together.
    pub(crate) samples: usize,
    pub(crate) new_tokens: usize,
    /// Number of tokens in a forward pass over prompts.
    pub(crate) chunk_tokens: usize,
    /// Maximum number of tokens whose keys and values are cached at the same time.
    pub(crate) cached_tokens: usize,
}

impl Rollout {
    /// Returns the number of rows in the largest forward pass over prompts.
    pub(crate) fn prefilled(&self) -> usize {
        self.chunk_tokens.max(self.prompt_tokens).min(self.prompts * self.prompt_tokens)
    }
}

/// Request to sample from row `row` with the uniform random number `uniform`, in [0, 1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    pub(crate) row: usize,
    pub(crate) uniform: f64,
}

/// Sampled token with its log-probability, and the entropy of its distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Drawn {
    pub(crate) token: u32,
    pub(crate) logp: f32,
    pub(crate) entropy: f32,
}
