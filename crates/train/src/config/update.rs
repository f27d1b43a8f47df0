//! The optimizer's side of a step.

use super::Schedule;
use super::pair::pair;
use super::ranges::{STEPS, TOKENS_AT_ONCE, betas, learning_rate, not_negative, positive, whole};
use crate::bad_input;
use fgrpo_core::theory::advantage::low_lr_multiplier;
use serde::{Deserialize, Serialize};

/// The optimizer's side of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateConfig {
    /// Peak learning rate.
    pub lr: f64,
    /// The low-LR control: `lr` times `m_gamma`, the average factor by which a focal weight of this exponent
    /// shrinks advantages (0.679 at 0.5); 0 leaves `lr` alone.
    pub low_lr_gamma: f64,
    /// Prompts per optimizer update; the whole rollout batch where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mini_batch: Option<usize>,
    /// Passes over each rollout batch.
    pub epochs: usize,
    /// AdamW's betas.
    #[serde(deserialize_with = "pair")]
    pub betas: [f64; 2],
    /// AdamW's epsilon.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Largest global gradient norm.
    pub max_grad_norm: f64,
    /// Steps (rollout batches) of linear warm-up.
    pub warmup_steps: u64,
    /// What the learning rate does after warm-up.
    pub schedule: Schedule,
    /// Tokens that one prompt and its completions may take together in one piece of work; a larger
    /// group is cut. Bounds memory, never changes the gradient beyond rounding.
    pub micro_batch_tokens: usize,
    /// Updates skipped in a row for a gradient that isn't finite, after which the run stops.
    pub max_skipped: u64,
}

impl Default for UpdateConfig {
    fn default() -> Self {
        Self {
            lr: 1e-6,
            low_lr_gamma: 0.0,
            mini_batch: None,
            epochs: 1,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.01,
            max_grad_norm: 1.0,
            warmup_steps: 0,
            schedule: Schedule::Constant,
            micro_batch_tokens: 1 << 16,
            max_skipped: 5,
        }
    }
}

impl UpdateConfig {
    /// The peak learning rate, the low-LR control's factor included.
    pub fn peak_lr(&self) -> f64 {
        match self.low_lr_gamma {
            0.0 => self.lr,
            gamma => self.lr * low_lr_multiplier(gamma).expect("the exponent was checked"),
        }
    }

    /// The learning rate of a step out of so many.
    pub fn lr_at(&self, step: u64, steps: u64) -> f64 {
        self.peak_lr() * self.schedule.factor(step, self.warmup_steps, steps)
    }

    pub(super) fn check(&self, prompts: usize) -> anyhow::Result<()> {
        learning_rate("update.lr", self.lr)?;
        not_negative("update.low_lr_gamma", self.low_lr_gamma)?;
        betas("update.betas", self.betas)?;
        positive("update.eps", self.eps)?;
        positive("update.max_grad_norm", self.max_grad_norm)?;
        not_negative("update.weight_decay", self.weight_decay)?;
        whole(
            "update",
            [
                ("epochs", self.epochs as u64, 1..=1 << 16),
                ("warmup_steps", self.warmup_steps, 0..=STEPS),
                ("micro_batch_tokens", self.micro_batch_tokens as u64, 1..=TOKENS_AT_ONCE),
                ("max_skipped", self.max_skipped, 1..=u64::MAX),
            ],
        )?;
        if let Some(m) = self.mini_batch
            && (m == 0 || m > prompts)
        {
            bad_input!("update.mini_batch: found {m}, wanted 1 to rollout.prompts = {prompts}");
        }
        Ok(())
    }
}
