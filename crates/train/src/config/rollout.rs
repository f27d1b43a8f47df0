//! Settings of sampling for training.

use super::ranges::{COMPLETIONS, GROUP, MANY, TOKENS, TOKENS_AT_ONCE, whole, within};
use super::server::{LogprobsOf, ServerConfig};
use fgrpo_eval::io::server::sampling::RequestSampling;
use fgrpo_nn::COLDEST;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sampling of completions for training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RolloutConfig {
    /// Prompts per step, the paper's global batch.
    pub prompts: usize,
    /// Completions per prompt, `N`.
    pub group_size: usize,
    /// Sampling temperature; the loss uses the log-probabilities at this temperature.
    pub temperature: f32,
    /// Nucleus sampling; 1 is off.
    pub top_p: f32,
    /// Sample from the k likeliest tokens; 0 is off.
    pub top_k: usize,
    /// Sample from tokens whose probability is at least this fraction of the likeliest one's; 0 is off.
    pub min_p: f32,
    /// Length limit of a completion, in tokens; by default, the task's limit. Completions also end at the model's
    /// last position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_new_tokens: Option<usize>,
    /// Maximum number of tokens in the key/value cache. By default, as many as fit in a third of the memory that the
    /// model leaves free, at least 512 MiB; on a GPU, in all of that memory. The cache must hold the longest prompt
    /// with a completion of full length, once for each of two threads or for each GPU. If the cache is full, fewer
    /// completions run at once, which changes the samples only by rounding. A recurrent state counts as the number of
    /// tokens that take as much memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cached_tokens: Option<usize>,
    /// A server that samples instead of the embedded engine; the trainer computes the log-probabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerConfig>,
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self {
            prompts: 256,
            group_size: 8,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            max_new_tokens: None,
            max_cached_tokens: None,
            server: None,
        }
    }
}

impl RolloutConfig {
    /// Returns the sampling settings, with this limit on a completion's length.
    pub fn sampling(&self, max_tokens: usize) -> RequestSampling {
        RequestSampling {
            temperature: f64::from(self.temperature),
            top_p: f64::from(self.top_p),
            top_k: self.top_k,
            min_p: f64::from(self.min_p),
            max_tokens,
        }
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.group_size < 2 {
            bad_input!(
                "rollout.group_size: expected at least 2, found {}: the group-relative advantage of a single completion is always 0",
                self.group_size
            );
        }
        whole(
            "rollout",
            [
                ("prompts", self.prompts as u64, 1..=MANY),
                ("group_size", self.group_size as u64, 2..=GROUP),
                ("max_new_tokens", self.max_new_tokens.unwrap_or(1) as u64, 1..=TOKENS),
                ("max_cached_tokens", self.max_cached_tokens.unwrap_or(1) as u64, 1..=TOKENS_AT_ONCE),
            ],
        )?;
        let completions = (self.prompts * self.group_size) as u64;
        within("rollout.prompts times rollout.group_size", completions, 1..=COMPLETIONS)?;
        // At 0 there would be no log-probabilities to learn from.
        self.sampling(1).check(|field| format!("rollout.{field}"), COLDEST)?;
        self.server.as_ref().map_or(Ok(()), |server| server.check().and_then(|()| self.fits(server)))
    }

    /// Fails if the server doesn't support the sampling settings, or its log-probabilities can't be compared with the
    /// trainer's.
    fn fits(&self, server: &ServerConfig) -> anyhow::Result<()> {
        let name = "rollout.server";
        let truncated = self.top_p < 1.0 || self.top_k > 0 || self.min_p > 0.0;
        match server.logprobs {
            LogprobsOf::Raw if self.temperature != 1.0 => bad_input!(
                "{name}.logprobs: expected processed with rollout.temperature = {}, found raw: log-probabilities at temperature 1 can't be compared with the trainer's (vLLM: --logprobs-mode processed_logprobs)",
                self.temperature
            ),
            LogprobsOf::Processed if truncated => bad_input!(
                "{name}.logprobs: expected raw with top_p, top_k or min_p in [rollout], found processed: the trainer's log-probabilities are those of the whole distribution"
            ),
            _ => {}
        }
        self.sampling(1).check_api("rollout.server.api", Some(server.api))
    }
}
