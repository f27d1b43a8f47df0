//! The supervised stage and its learning rate.

use super::defaults;
use super::ranges::{at_least, betas, learning_rate, not_negative, positive};
use serde::{Deserialize, Serialize};

/// Supervised fitting of demonstrations; loss on the completion only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SftConfig {
    /// Optimizer steps.
    pub steps: u64,
    /// Demonstrations per step.
    #[serde(default = "defaults::sft_batch")]
    pub batch_size: usize,
    /// Peak learning rate.
    #[serde(default = "defaults::sft_lr")]
    pub lr: f64,
    /// Adam's betas.
    #[serde(default = "defaults::sft_betas")]
    pub betas: [f64; 2],
    /// Decoupled weight decay.
    #[serde(default = "defaults::weight_decay")]
    pub weight_decay: f64,
    /// Largest global gradient norm.
    #[serde(default = "defaults::max_grad_norm")]
    pub max_grad_norm: f64,
    /// Steps of linear warm-up.
    #[serde(default)]
    pub warmup_steps: u64,
    /// What the learning rate does after warm-up.
    #[serde(default)]
    pub schedule: Schedule,
    /// Seed of the demonstrations' order and of the initial weights; the run's own where absent.
    /// Runs that differ in seed but share this one share the cached result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl SftConfig {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        at_least("sft.steps", self.steps, 1)?;
        at_least("sft.batch_size", self.batch_size as u64, 1)?;
        learning_rate("sft.lr", self.lr)?;
        betas("sft.betas", self.betas)?;
        positive("sft.max_grad_norm", self.max_grad_norm)?;
        not_negative("sft.weight_decay", self.weight_decay)
    }
}

/// What the learning rate does after warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Stays.
    #[default]
    Constant,
    /// Falls linearly to 0 at the last step.
    Linear,
    /// Falls as a half cosine to 0 at the last step.
    Cosine,
}

impl Schedule {
    /// The factor on the learning rate at `step` (from 1) of `steps`.
    pub fn factor(self, step: u64, warmup_steps: u64, steps: u64) -> f64 {
        if step <= warmup_steps {
            return step as f64 / warmup_steps as f64;
        }
        let done = (step - warmup_steps - 1) as f64 / (steps.saturating_sub(warmup_steps)).max(1) as f64;
        match self {
            Self::Constant => 1.0,
            Self::Linear => (1.0 - done).max(0.0),
            Self::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done.min(1.0)).cos()),
        }
    }
}
