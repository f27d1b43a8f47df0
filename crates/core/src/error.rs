//! Errors of this crate: input for which a formula has no meaning.
//!
//! A caller's bug is a panic, documented at the function. [`Error`] is for values that come from a configuration or a
//! reward function.

/// Why a quantity can't be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A reward is neither the reward of a correct nor of a wrong completion, and no threshold is set.
    #[error(
        "reward of completion {completion}: found {found}, wanted {correct} (correct) or {wrong} (wrong); \
         graded rewards need a threshold from which a completion counts as correct, or an estimator \
         without one (grpo, dr_grpo, rloo) and focal_gamma = 0"
    )]
    GradedReward {
        /// Position in the group.
        completion: usize,
        /// The reward.
        found: f64,
        /// The configured reward of a correct completion.
        correct: f64,
        /// The configured reward of a wrong completion.
        wrong: f64,
    },
    /// A scored completion's reward is NaN or infinite.
    #[error("reward of completion {completion}: found {found}, wanted a finite number")]
    NonFiniteReward {
        /// Position in the group.
        completion: usize,
        /// The reward.
        found: f64,
    },
    /// The estimator needs the cluster of each completion, and the group has none.
    #[error("clusters are missing: the estimator cue_grpo needs the cluster of each completion")]
    NoClusters,
    /// A logit of a simulated policy is no longer finite.
    #[error("step {step}: the logits are no longer finite (learning rate {lr}); use a smaller learning rate")]
    Diverged {
        /// Number of steps taken.
        step: u64,
        /// The learning rate.
        lr: f64,
    },
    /// A setting or an argument has a value that its formula does not allow.
    #[error("{setting}: found {found}, wanted {wanted}")]
    Setting {
        /// Name of the argument, or the configuration key or its last part.
        setting: &'static str,
        /// The value, as the user would write it.
        found: String,
        /// The allowed values, in words.
        wanted: String,
    },
}

/// Returns [`Error::Setting`] unless `holds`.
pub(crate) fn require(
    holds: bool,
    setting: &'static str,
    found: impl std::fmt::Display,
    wanted: impl std::fmt::Display,
) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::setting(setting, found, wanted.to_string())) }
}

impl Error {
    pub(crate) fn setting(setting: &'static str, found: impl ToString, wanted: impl Into<String>) -> Self {
        Self::Setting { setting, found: found.to_string(), wanted: wanted.into() }
    }
}
