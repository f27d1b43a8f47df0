//! Settings of a server that samples completions instead of the embedded engine.

use super::ranges::number;
use super::schema;
use fgrpo_core::default::{ratio, whole};
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
    #[serde(default = "whole::<64>")]
    pub concurrency: usize,
    /// Environment variable with the API key; by default `OPENAI_API_KEY`, if that is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// Time limit for one attempt, in seconds.
    #[serde(default = "ratio::<1800, 1>")]
    pub timeout: f64,
    /// Attempts after the first.
    #[serde(default = "retries")]
    pub retries: u32,
    /// Seconds before the first retry; doubled for each further retry, up to 30.
    #[serde(default = "ratio::<1, 2>")]
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

fn retries() -> u32 {
    10
}

impl ServerConfig {
    /// Returns the retry policy for requests.
    pub fn retry(&self) -> RetryPolicy {
        RetryPolicy::of(self.timeout, self.retries, self.retry_wait)
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        let name = "rollout.server";
        check_address(&format!("{name}.url"), &self.url)?;
        for (key, value, range, unit) in [
            ("concurrency", self.concurrency as f64, 1.0..=4096.0, ""),
            ("timeout", self.timeout, 0.001..=1e6, " seconds"),
            ("retry_wait", self.retry_wait, 0.0..=30.0, " seconds"),
        ] {
            let expected = format!("{} to {}{unit}", range.start(), range.end());
            number(&format!("{name}.{key}"), value, range.contains(&value), &expected)?;
        }
        if self.on_checkpoint.as_ref().is_some_and(|c| !c.contains("{checkpoint}")) {
            bad_input!(
                "{name}.on_checkpoint: the command must contain {{checkpoint}}, which is replaced by the folder"
            );
        }
        Ok(())
    }
}
