//! Errors about values that come from a configuration or a reward function.
//!
//! Mistakes of the calling code panic instead, as each function's documentation describes.

/// Reason why a quantity can't be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A reward is neither the reward of a correct completion nor the reward of a wrong one, and no threshold is set.
    #[error(
        "reward of completion {completion}: expected {correct} (correct) or {wrong} (wrong), found {reward}; \
         for graded rewards, set a threshold from which a completion counts as correct, or use an estimator \
         that needs none (grpo, dr_grpo, rloo) with focal_gamma = 0"
    )]
    GradedReward {
        /// Position of the completion in the group.
        completion: usize,
        /// The reward.
        reward: f64,
        /// The configured reward of a correct completion.
        correct: f64,
        /// The configured reward of a wrong completion.
        wrong: f64,
    },
    /// A scored completion's reward is NaN or infinite.
    #[error("reward of completion {completion}: expected a finite number, found {reward}")]
    NonFiniteReward {
        /// Position in the group.
        completion: usize,
        /// The reward.
        reward: f64,
    },
    /// The estimator needs the cluster of each completion, but the group lacks clusters.
    #[error("clusters are missing: the estimator cue_grpo needs the cluster of each completion")]
    NoClusters,
    /// A logit of a simulated policy became NaN or infinite.
    #[error("step {step}: the logits are no longer finite (learning rate {lr}); use a smaller learning rate")]
    Diverged {
        /// Number of steps taken.
        step: u64,
        /// The learning rate of the simulation.
        lr: f64,
    },
    /// A setting or an argument has a value that its formula does not allow.
    #[error("{setting}: expected {expected}, found {value}")]
    Setting {
        /// Name of the argument, or the configuration key or its last part.
        setting: &'static str,
        /// The value, as the user would write it.
        value: String,
        /// Description of the allowed values.
        expected: String,
    },
}

/// Returns [`Error::Setting`] unless `holds`.
pub(crate) fn require(
    holds: bool,
    setting: &'static str,
    value: impl std::fmt::Display,
    expected: impl std::fmt::Display,
) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::setting(setting, value, expected.to_string())) }
}

impl Error {
    pub(crate) fn setting(setting: &'static str, value: impl ToString, expected: impl Into<String>) -> Self {
        Self::Setting { setting, value: value.to_string(), expected: expected.into() }
    }
}
