//! Settings of the optimizer.

use super::Schedule;
use super::ranges::{STEPS, TOKENS_AT_ONCE, betas, learning_rate, not_negative, pair, positive, whole};
use fgrpo_core::theory::advantage::low_lr_multiplier;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the optimizer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateConfig {
    /// Peak learning rate.
    pub lr: f64,
    /// The low-LR control: multiply `lr` by `m_gamma`, the average factor by which a focal weight with this exponent
    /// reduces advantages (`fgrpo theory low-lr --gamma 0.5`); 0 is off.
    pub low_lr_gamma: f64,
    /// Maximum number of prompts per optimizer update; by default, the whole rollout batch. The prompts of a batch are
    /// divided evenly over as few updates as possible. With `algorithm.drop_inactive_groups` only those of the
    /// remaining groups are divided, so a step has fewer updates.
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
    /// Maximum global gradient norm.
    pub max_grad_norm: f64,
    /// Steps (rollout batches) of linear warm-up.
    pub warmup_steps: u64,
    /// Learning-rate schedule after warm-up.
    pub schedule: Schedule,
    /// Maximum number of tokens, of prompts and completions, in one forward and backward pass. It limits memory and
    /// changes the gradient only by rounding. By default 65536, or fewer if a run has less memory when it starts; the
    /// run records the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_batch_tokens: Option<usize>,
    /// Stop the run after this many updates in a row were skipped because the loss or gradient wasn't finite.
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
            micro_batch_tokens: None,
            max_skipped: 5,
        }
    }
}

impl UpdateConfig {
    /// Maximum number of tokens in one pass, if memory doesn't limit it.
    pub const MICRO_BATCH_TOKENS: usize = 1 << 16;

    /// Returns the maximum number of tokens in one pass, as configured or decided at the start of the run.
    pub fn micro_batch_tokens(&self) -> usize {
        self.micro_batch_tokens.unwrap_or(Self::MICRO_BATCH_TOKENS)
    }

    /// Returns the peak learning rate, including the low-LR control's factor.
    pub fn peak_lr(&self) -> f64 {
        match self.low_lr_gamma {
            0.0 => self.lr,
            gamma => self.lr * low_lr_multiplier(gamma).expect("the exponent was checked"),
        }
    }

    /// Returns the learning rate at `step` of `steps`.
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
                ("micro_batch_tokens", self.micro_batch_tokens() as u64, 1..=TOKENS_AT_ONCE),
                ("max_skipped", self.max_skipped, 1..=u64::MAX),
            ],
        )?;
        if let Some(m) = self.mini_batch
            && (m == 0 || m > prompts)
        {
            bad_input!("update.mini_batch: expected 1 to rollout.prompts = {prompts}, found {m}");
        }
        Ok(())
    }
}
