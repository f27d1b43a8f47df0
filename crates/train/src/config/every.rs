//! Intervals: a number of steps, or the end of each epoch.

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    /// This number of steps; 0 is never.
    Steps(u64),
    /// The end of each pass over the training problems; converted to steps once the number of problems is known.
    Epoch,
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

impl Serialize for Every {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Steps(steps) => serializer.serialize_u64(*steps),
            Self::Epoch => serializer.serialize_str("epoch"),
        }
    }
}

impl<'de> Deserialize<'de> for Every {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Every;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of steps or \"epoch\"")
            }

            fn visit_u64<E: Error>(self, steps: u64) -> Result<Every, E> {
                Ok(Every::Steps(steps))
            }

            fn visit_i64<E: Error>(self, steps: i64) -> Result<Every, E> {
                u64::try_from(steps)
                    .map(Every::Steps)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(steps), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Every, E> {
                match text {
                    "epoch" => Ok(Every::Epoch),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}
