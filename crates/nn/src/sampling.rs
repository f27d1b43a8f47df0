//! Sampling of tokens: settings, a draw, and its result.
//!
//! The recorded log-probability and entropy are those of softmax(logits / temperature) before any truncation: that is the policy that is trained,
//! and what `Engine::score` gives. A sampled token is a function of the logits and of one uniform number.

use crate::error::Error;

/// Settings of sampling and of the end of a completion.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it. 0 selects the most likely token (the lowest id if equal), and records log-probabilities at temperature 1.
    pub temperature: f32,
    /// Keeps the most likely tokens until their mass reaches `top_p` of the mass that `top_k` left; in (0, 1], 1 keeps all.
    pub top_p: f32,
    /// Keeps the `top_k` most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps tokens at least `min_p` times as likely as the most likely one; in [0, 1), 0 keeps all.
    pub min_p: f32,
    /// Length limit of a completion, including the stop token; at least 1.
    pub max_new_tokens: usize,
    /// Tokens that end a completion; the end token is part of it.
    pub stop_tokens: Vec<u32>,
    /// Limit on cached tokens over all threads; fewer sequences run at once if necessary. `None` means as many as fit in a third of the memory that
    /// is left besides the model and its optimizer, at least 512 MiB; on a GPU in all of it. A recurrent state counts as the tokens whose keys and values take
    /// as much memory.
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
    /// Refuses settings outside their ranges.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |field, found: String, wanted: &str| Err(Error::request(field, found, wanted));
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return wrong("temperature", self.temperature.to_string(), "a finite number of at least 0");
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

/// The sizes of a `generate` call, or of the largest part of it that one executor gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rollout {
    pub(crate) prompts: usize,
    /// The longest of them.
    pub(crate) prompt_tokens: usize,
    /// Completions, over all prompts.
    pub(crate) samples: usize,
    pub(crate) new_tokens: usize,
    /// Tokens of a forward pass over prompts.
    pub(crate) chunk_tokens: usize,
    /// Tokens whose keys and values are cached at the same time, at most.
    pub(crate) cached_tokens: usize,
}

impl Rollout {
    /// Rows of the largest forward pass over prompts.
    pub(crate) fn prefilled(&self) -> usize {
        self.chunk_tokens.max(self.prompt_tokens).min(self.prompts * self.prompt_tokens)
    }
}

/// A draw from row `row` with the uniform number `uniform` in [0, 1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    pub(crate) row: usize,
    pub(crate) uniform: f64,
}

/// Its result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Drawn {
    pub(crate) token: u32,
    pub(crate) logp: f32,
    pub(crate) entropy: f32,
}
