//! Values that are a number or one word: intervals such as `25` or `"epoch"`, and the number of checkpoints to keep.

use serde::{Deserialize, Serialize};
use toml::Value;

/// An interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Every {
    /// This number of steps; 0 means never.
    Steps(u64),
    /// The end of each pass over the training problems; converted to steps once the number of problems is known.
    Epoch,
}

/// Number of checkpoints to keep besides the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum Keep {
    /// All checkpoints.
    All,
    /// This many of the newest.
    Newest(usize),
}

impl Every {
    /// Whether the action never happens.
    pub fn is_never(self) -> bool {
        self == Self::Steps(0)
    }

    /// Converts to steps, with `epoch` steps per epoch.
    pub fn steps(self, epoch: u64) -> u64 {
        match self {
            Self::Steps(steps) => steps,
            Self::Epoch => epoch,
        }
    }
}

impl Keep {
    /// Whether a checkpoint is kept if `newer` checkpoints are newer than it.
    pub fn keeps(self, newer: usize) -> bool {
        match self {
            Self::All => true,
            Self::Newest(n) => newer <= n,
        }
    }
}

/// Reads a number, or `None` for the word.
fn read(value: &Value, number: &str, word: &str) -> Result<Option<u64>, String> {
    match value {
        Value::Integer(n) if *n >= 0 => Ok(Some(n.unsigned_abs())),
        Value::String(text) if text == word => Ok(None),
        other => Err(format!("expected {number} or \"{word}\", found {other}")),
    }
}

fn written(number: Option<u64>, word: &str) -> Value {
    // A configuration read from TOML has no larger number.
    number.map_or_else(|| word.into(), |n| Value::Integer(i64::try_from(n).unwrap_or(i64::MAX)))
}

impl TryFrom<Value> for Every {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        Ok(read(&value, "a number of steps", "epoch")?.map_or(Self::Epoch, Self::Steps))
    }
}

impl From<Every> for Value {
    fn from(every: Every) -> Self {
        written(if let Every::Steps(steps) = every { Some(steps) } else { None }, "epoch")
    }
}

impl TryFrom<Value> for Keep {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let newest = read(&value, "a number of checkpoints", "all")?;
        Ok(newest.map_or(Self::All, |n| Self::Newest(n as usize)))
    }
}

impl From<Keep> for Value {
    fn from(keep: Keep) -> Self {
        written(if let Keep::Newest(n) = keep { Some(n as u64) } else { None }, "all")
    }
}
