//! A server that samples completions instead of the embedded engine.

use super::schema;
use fgrpo_eval::bad_input;
use fgrpo_eval::io::server::sampling::ServerApi;
use fgrpo_eval::io::server::{RetryPolicy, check_address};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An OpenAI-compatible server for sampling completions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// Its address, e.g. `http://localhost:8000`.
    pub url: String,
    /// Name of the served model; if absent, the only model that the server lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The server software: `vllm`, `sglang`, `llama.cpp`, or `openai` for only the standard fields.
    #[serde(default)]
    #[schemars(schema_with = "schema::word::<ServerApi>")]
    pub api: ServerApi,
    /// The distribution of the server's log-probabilities.
    #[serde(default)]
    pub logprobs: LogprobsOf,
    /// Number of concurrent requests.
    #[serde(default = "concurrency")]
    pub concurrency: usize,
    /// The environment variable with the server's API key; if absent, `OPENAI_API_KEY` if it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// Timeout of one attempt, in seconds.
    #[serde(default = "timeout")]
    pub timeout: f64,
    /// Number of retries.
    #[serde(default = "retries")]
    pub retries: u32,
    /// Seconds before the first retry; doubles with each retry, up to 30.
    #[serde(default = "retry_wait")]
    pub retry_wait: f64,
    /// A shell command that is run after each checkpoint and on resume, with `{checkpoint}` replaced by the folder.
    /// Use it to load the new weights into the server. The run continues when the command has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_checkpoint: Option<String>,
}

/// The distribution of a server's log-probabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogprobsOf {
    /// The model's own distribution, before temperature, top-p, top-k and min-p (vLLM's `raw_logprobs`, its default).
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
    /// The retry policy for requests.
    pub fn retry(&self) -> RetryPolicy {
        RetryPolicy::of(self.timeout, self.retries, self.retry_wait)
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        let name = "rollout.server";
        check_address(&format!("{name}.url"), &self.url)?;
        if self.concurrency == 0 || self.concurrency > 4096 {
            bad_input!("{name}.concurrency: found {}, wanted 1 to 4096", self.concurrency);
        }
        if !(0.001..=1e6).contains(&self.timeout) {
            bad_input!("{name}.timeout: found {}, wanted 0.001 to 1000000 seconds", self.timeout);
        }
        if !(0.0..=30.0).contains(&self.retry_wait) {
            bad_input!("{name}.retry_wait: found {}, wanted 0 to 30 seconds", self.retry_wait);
        }
        if self.on_checkpoint.as_ref().is_some_and(|c| !c.contains("{checkpoint}")) {
            bad_input!(
                "{name}.on_checkpoint: found no {{checkpoint}}, wanted a command that names the folder"
            );
        }
        Ok(())
    }
}
