//! Settings of the supervised stage, and its learning rate.

use super::ranges::{MANY, STEPS, betas, learning_rate, not_negative, pair, positive, whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Supervised fine-tuning on demonstrations; only the tokens of completions count in the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SftConfig {
    /// Optimizer steps. If both `steps` and `epochs` are set, the stage ends with the earlier one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Passes over the demonstrations, instead of `steps`; may be a fraction. Rounded up to whole steps: the last batch
    /// is filled with demonstrations of the next pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<f64>,
    /// Demonstrations per step.
    pub batch_size: usize,
    /// Peak learning rate.
    pub lr: f64,
    /// AdamW's betas.
    #[serde(deserialize_with = "pair")]
    pub betas: [f64; 2],
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Maximum global gradient norm.
    pub max_grad_norm: f64,
    /// Steps of linear warm-up.
    pub warmup_steps: u64,
    /// Learning-rate schedule after warm-up.
    pub schedule: Schedule,
    /// Interval in steps at which the loss on held-out demonstrations is evaluated, as it is after the last step; 0
    /// means never.
    pub eval_every: u64,
    /// Number of held-out demonstrations in that evaluation, starting with the first.
    pub eval_problems: usize,
    /// Checkpoint interval in steps, like `save.every`.
    pub save_every: u64,
    /// Seed of the demonstrations' order and the initial weights; by default, the run's seed. Runs with the same seed
    /// share the cached result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl Default for SftConfig {
    fn default() -> Self {
        Self {
            steps: None,
            epochs: None,
            batch_size: 32,
            lr: 5e-4,
            betas: [0.9, 0.95],
            weight_decay: 0.01,
            max_grad_norm: 1.0,
            warmup_steps: 0,
            schedule: Schedule::Constant,
            eval_every: 50,
            eval_problems: 256,
            save_every: 100,
            seed: None,
        }
    }
}

impl SftConfig {
    /// Returns the number of optimizer steps for this number of demonstrations.
    pub fn optimizer_steps(&self, demonstrations: u64) -> u64 {
        let epochs = self.epochs.map(|e| (e * demonstrations as f64 / self.batch_size as f64).ceil() as u64);
        match (self.steps, epochs) {
            (Some(steps), Some(epochs)) => steps.min(epochs),
            (steps, epochs) => steps.or(epochs).unwrap_or(0),
        }
        .max(1)
    }

    /// Describes the length of the stage in words.
    pub fn in_words(&self, demonstrations: u64) -> String {
        let (steps, size) = (self.optimizer_steps(demonstrations), self.batch_size);
        let epochs = (steps * size as u64) as f64 / demonstrations as f64;
        format!("{steps} steps of {size} ({epochs:.2} epochs)")
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.steps.is_none() && self.epochs.is_none() {
            bad_input!("sft: requires `steps` or `epochs`");
        }
        whole(
            "sft",
            [
                ("steps", self.steps.unwrap_or(1), 1..=STEPS),
                ("batch_size", self.batch_size as u64, 1..=MANY),
                ("warmup_steps", self.warmup_steps, 0..=STEPS),
                ("eval_problems", self.eval_problems as u64, 1..=u64::MAX),
            ],
        )?;
        if let Some(epochs) = self.epochs {
            positive("sft.epochs", epochs)?;
        }
        learning_rate("sft.lr", self.lr)?;
        betas("sft.betas", self.betas)?;
        positive("sft.max_grad_norm", self.max_grad_norm)?;
        not_negative("sft.weight_decay", self.weight_decay)
    }
}

/// Learning-rate schedule after warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Constant.
    #[default]
    Constant,
    /// Linear decay that would reach 0 one step after the last.
    Linear,
    /// Half-cosine decay that would reach 0 one step after the last.
    Cosine,
}

impl Schedule {
    /// Returns the factor of the learning rate at `step` (starting at 1) of `steps`.
    pub fn factor(self, step: u64, warmup_steps: u64, steps: u64) -> f64 {
        if step <= warmup_steps {
            return step as f64 / warmup_steps as f64;
        }
        let progress = (step - warmup_steps - 1) as f64 / (steps.saturating_sub(warmup_steps)).max(1) as f64;
        match self {
            Self::Constant => 1.0,
            Self::Linear => (1.0 - progress).max(0.0),
            Self::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress.min(1.0)).cos()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_become_steps_and_the_shorter_of_both_ends_the_stage() {
        let sft = |text: &str| toml::from_str::<SftConfig>(text).unwrap();
        // 100 demonstrations in batches of 8 are 12.5 steps per pass.
        assert_eq!(sft("epochs = 2\nbatch_size = 8").optimizer_steps(100), 25);
        assert_eq!(sft("epochs = 0.5\nbatch_size = 8").optimizer_steps(100), 7);
        assert_eq!(sft("epochs = 2\nsteps = 10\nbatch_size = 8").optimizer_steps(100), 10);
        assert_eq!(sft("steps = 40\nbatch_size = 8").optimizer_steps(100), 40);
        let neither = format!("{:#}", sft("lr = 1e-3").check().unwrap_err());
        assert!(neither.contains("`steps` or `epochs`"), "{neither}");
    }
}
