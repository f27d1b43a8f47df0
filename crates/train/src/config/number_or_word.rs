//! Values that are a number or one word: intervals such as `25` or `"epoch"`, and the number of checkpoints to keep.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An interval in steps, or the end of each epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number of steps or \"epoch\"")]
pub enum Every {
    /// This number of steps; 0 means never.
    Steps(u64),
    /// The end of each pass over the training problems; converted to steps once the number of problems is known.
    Epoch(Epoch),
}

/// The word `epoch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Epoch {
    /// `"epoch"`.
    Epoch,
}

/// Number of checkpoints to keep besides the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number of checkpoints or \"all\"")]
pub enum Keep {
    /// All checkpoints.
    All(All),
    /// This many of the newest.
    Newest(usize),
}

/// The word `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum All {
    /// `"all"`.
    All,
}

impl Every {
    /// Returns whether the interval is 0, which means never.
    pub fn is_never(self) -> bool {
        self == Self::Steps(0)
    }

    /// Converts to steps, with `epoch` steps per epoch.
    pub fn steps(self, epoch: u64) -> u64 {
        if let Self::Steps(steps) = self { steps } else { epoch }
    }
}
