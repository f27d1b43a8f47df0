//! How tokens are drawn, as flags: the same for every command that samples.

use super::overrides::given;
use fgrpo_eval::io::server::sampling::RequestSampling;
use fgrpo_train::config::Override;

#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "Sampling")]
#[group(id = "sampling")]
pub(crate) struct Flags {
    /// Sampling temperature; 0 picks the most likely token [default: 1].
    #[arg(long)]
    pub(crate) temperature: Option<f64>,
    /// Top-p (nucleus) sampling; 1 is off [default: 1].
    #[arg(long)]
    pub(crate) top_p: Option<f64>,
    /// Top-k sampling; 0 is off [default: 0].
    #[arg(long)]
    pub(crate) top_k: Option<usize>,
    /// Min-p sampling: tokens need at least this fraction of the most likely token's probability; 0 is off [default: 0].
    #[arg(long)]
    pub(crate) min_p: Option<f64>,
}

impl Flags {
    /// The values that the flags set in `[eval]`.
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

    /// The settings, with this limit on a completion's length.
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
