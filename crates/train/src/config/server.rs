//! Settings of a server that samples completions instead of the embedded engine.

use super::schema;
use fgrpo_eval::io::server::sampling::ServerApi;
use fgrpo_eval::io::server::{RetryPolicy, check_address};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An OpenAI-compatible server for sampling completions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// Address, such as `http://localhost:8000`.
    pub url: String,
    /// Name of the served model; by default, the only one that the server lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The server software: `vllm`, `sglang`, `llama.cpp`, or `openai` for only the standard fields.
    #[serde(default)]
    #[schemars(schema_with = "schema::word::<ServerApi>")]
    pub api: ServerApi,
    /// Distribution of the server's log-probabilities: `raw` is the model's distribution, `processed` is the one that
    /// tokens are sampled from.
    #[serde(default)]
    pub logprobs: LogprobsOf,
    /// Maximum number of concurrent requests.
    #[serde(default = "concurrency")]
    pub concurrency: usize,
    /// Environment variable with the API key; by default `OPENAI_API_KEY`, if that is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// Time limit for one attempt, in seconds.
    #[serde(default = "timeout")]
    pub timeout: f64,
    /// Attempts after the first.
    #[serde(default = "retries")]
    pub retries: u32,
    /// Seconds before the first retry; doubled for each further retry, up to 30.
    #[serde(default = "retry_wait")]
    pub retry_wait: f64,
    /// Shell command to run after each checkpoint and when a run is resumed, for example to load the weights into the
    /// server; `{checkpoint}` is replaced by the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_checkpoint: Option<String>,
}

/// The distribution of a server's log-probabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogprobsOf {
    /// The model's distribution, before temperature, top-p, top-k and min-p (vLLM's `raw_logprobs`, its default).
    #[default]
    Raw,
    /// The distribution that tokens are sampled from (vLLM's `--logprobs-mode processed_logprobs`).
    Processed,
}

fn concurrency() -> usize {
    64
}

fn timeout() -> f64 {
    1800.0
}

fn retries() -> u32 {
    10
}

fn retry_wait() -> f64 {
    0.5
}

impl ServerConfig {
    /// Retry policy for requests.
    pub fn retry(&self) -> RetryPolicy {
        RetryPolicy::of(self.timeout, self.retries, self.retry_wait)
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        let name = "rollout.server";
        check_address(&format!("{name}.url"), &self.url)?;
        if self.concurrency == 0 || self.concurrency > 4096 {
            bad_input!("{name}.concurrency: expected 1 to 4096, found {}", self.concurrency);
        }
        if !(0.001..=1e6).contains(&self.timeout) {
            bad_input!("{name}.timeout: expected 0.001 to 1000000 seconds, found {}", self.timeout);
        }
        if !(0.0..=30.0).contains(&self.retry_wait) {
            bad_input!("{name}.retry_wait: expected 0 to 30 seconds, found {}", self.retry_wait);
        }
        if self.on_checkpoint.as_ref().is_some_and(|c| !c.contains("{checkpoint}")) {
            bad_input!(
                "{name}.on_checkpoint: the command must contain {{checkpoint}}, which is replaced by the folder"
            );
        }
        Ok(())
    }
}
