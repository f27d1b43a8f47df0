//! Sampling flags, shared by all commands that sample.

use super::overrides::given;
use fgrpo_eval::io::server::sampling::RequestSampling;
use fgrpo_train::config::Override;

#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "Sampling")]
#[group(id = "sampling")]
pub(crate) struct Flags {
    /// Sampling temperature, or 0 to pick the most likely token [default: 1].
    #[arg(long)]
    pub(crate) temperature: Option<f64>,
    /// Top-p (nucleus) sampling, or 1 to turn it off [default: 1].
    #[arg(long)]
    pub(crate) top_p: Option<f64>,
    /// Top-k sampling, or 0 to turn it off [default: 0].
    #[arg(long)]
    pub(crate) top_k: Option<usize>,
    /// Min-p sampling: minimum probability of a token as a fraction of the most likely token's, or 0 to turn it off [default: 0].
    #[arg(long)]
    pub(crate) min_p: Option<f64>,
}

impl Flags {
    /// Returns the keys of `[eval]` that the flags set.
    pub(crate) fn overrides(&self) -> impl Iterator<Item = Override> + use<> {
        let Self { temperature, top_p, top_k, min_p } = self;
        let all = [
            given("--temperature", "eval.temperature", temperature),
            given("--top-p", "eval.top_p", top_p),
            given("--top-k", "eval.top_k", top_k),
            given("--min-p", "eval.min_p", min_p),
        ];
        all.into_iter().flatten()
    }

    /// Returns the settings, with a maximum completion length of `max_tokens`.
    pub(crate) fn settings(&self, max_tokens: usize) -> anyhow::Result<RequestSampling> {
        let settings = RequestSampling {
            temperature: self.temperature.unwrap_or(1.0),
            top_p: self.top_p.unwrap_or(1.0),
            top_k: self.top_k.unwrap_or(0),
            min_p: self.min_p.unwrap_or(0.0),
            max_tokens,
        };
        settings.check(|field| format!("--{}", field.replace('_', "-")), 0.0)?;
        Ok(settings)
    }
}
