//! What this crate refuses: input that has no meaning for the formula asked for.
//!
//! A caller's bug is a panic, documented at the function; this enum is for values that come from a
//! configuration or from a reward function.

/// Why a quantity can't be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A reward is neither the correct nor the wrong one and no threshold says which it counts as.
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
    /// A setting has a value that its formula does not allow.
    #[error("{setting}: found {found}, wanted {wanted}")]
    Setting {
        /// Name of the configuration key, or its last part.
        setting: &'static str,
        /// The value, as the user would write it.
        found: String,
        /// What would do.
        wanted: String,
    },
}

impl Error {
    pub(crate) fn setting(setting: &'static str, found: impl ToString, wanted: impl Into<String>) -> Self {
        Self::Setting { setting, found: found.to_string(), wanted: wanted.into() }
    }
}
