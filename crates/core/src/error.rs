//! Errors of this crate: input for which a formula has no meaning.
//!
//! A caller's bug is a panic, documented at the function. This enum is for values from a configuration or a reward
//! function.

/// Why a quantity can't be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A reward is neither that of a correct nor that of a wrong completion, and there is no threshold.
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
    /// An estimator needs to know which completions are alike, and nobody says.
    #[error("clusters: found none, wanted one for each completion: the estimator cue_grpo reads them")]
    NoClusters,
    /// A logit of a simulated policy is not finite any more.
    #[error(
        "step {step}: the logits are no longer finite (learning rate {lr}); wanted a smaller learning rate"
    )]
    Diverged {
        /// The step after which this happened.
        step: u64,
        /// The learning rate.
        lr: f64,
    },
    /// A setting or an argument has a value that its formula does not allow.
    #[error("{setting}: found {found}, wanted {wanted}")]
    Setting {
        /// Name of the argument, or of the configuration key or its last part.
        setting: &'static str,
        /// The value, as the user would write it.
        found: String,
        /// The values allowed.
        wanted: String,
    },
}

/// Refuses the value of a setting for which a condition doesn't hold.
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
