//! How many checkpoints are kept.

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How many checkpoints are kept besides the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// All of them.
    All,
    /// This number of the newest.
    Newest(usize),
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

impl Serialize for Keep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::Newest(n) => serializer.serialize_u64(*n as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Keep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Keep;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of checkpoints or \"all\"")
            }

            fn visit_u64<E: Error>(self, n: u64) -> Result<Keep, E> {
                usize::try_from(n)
                    .map(Keep::Newest)
                    .map_err(|_| E::invalid_value(Unexpected::Unsigned(n), &self))
            }

            fn visit_i64<E: Error>(self, n: i64) -> Result<Keep, E> {
                usize::try_from(n)
                    .map(Keep::Newest)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(n), &self))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Keep, E> {
                match text {
                    "all" => Ok(Keep::All),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}
