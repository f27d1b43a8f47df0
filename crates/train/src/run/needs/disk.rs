//! Disk space for a run's checkpoints and evaluations.

use super::Lengths;
use super::Memory;
use crate::config::{Config, EvalConfig, Every, Keep};
use crate::run::checkpoint::RESUMABLE;
use fgrpo_nn::config::Config as ModelConfig;

/// Bytes per token of a sample's text.
const TOKEN: f64 = 4.0;
/// Bytes of a sample's line besides the text.
const SAMPLE_LINE: f64 = 140.0;
/// Bytes of the line with a sample's score.
const SCORE_LINE: f64 = 260.0;

/// The disk space of a run's checkpoints and evaluations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// Number of checkpoints at the end of the run.
    pub checkpoints: u64,
    /// Bytes of one policy.
    pub policy: u64,
    /// Bytes of the evaluations' samples and scores, for completions of typical length.
    pub evaluations: u64,
    /// Upper bound of the total in bytes.
    pub total: u64,
}

impl Disk {
    /// Estimates the disk space for a configuration and a model.
    pub fn of(config: &Config, model: &ModelConfig, memory: &Memory, lengths: &Lengths) -> Self {
        // An epoch's length is unknown if the data doesn't exist.
        let times = |every: Every| match (every, config.epochs) {
            (Every::Steps(0), _) => 0,
            (Every::Steps(n), _) => config.steps.div_ceil(n),
            (Every::Epoch(_), epochs) => epochs.unwrap_or(1),
        };
        let saved = times(config.save.every).max(1);
        let checkpoints = match config.save.keep {
            Keep::All(_) => saved,
            Keep::Newest(n) => saved.min((n as u64).saturating_add(1)),
        };
        // AdamW stores two numbers for each trained parameter.
        let (optimizer, trained) = (memory.engine.moments, memory.engine.moments / 2);
        let whole = 4 * model.parameters();
        let policy = match &config.lora {
            None => whole,
            Some(lora) if lora.save_merged => whole + trained,
            Some(_) => trained,
        };
        let best = u64::from(config.eval.is_enabled());
        // A new checkpoint is complete before an old one is deleted.
        let resumable = saved.min(RESUMABLE as u64 + 1);
        let samples = |(eval, problems): (EvalConfig, usize)| {
            let at_checkpoints = if eval.at_checkpoints { saved } else { 0 };
            let evaluations = 1 + times(eval.every).max(at_checkpoints);
            evaluations as f64 * (problems * eval.samples) as f64
        };
        let samples: f64 = lengths.evaluations(config).into_iter().map(samples).sum();
        let text = if config.eval.keep_texts { SAMPLE_LINE + TOKEN * lengths.completion_likely } else { 0.0 };
        let evaluations = (samples * (SCORE_LINE + text)) as u64;
        let total = (checkpoints + best) * policy + resumable * optimizer + evaluations;
        Self { checkpoints, policy, evaluations, total }
    }
}
