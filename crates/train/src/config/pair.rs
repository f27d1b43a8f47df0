//! Lists of exactly two numbers; a third number is an error.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// Reads a list of exactly two numbers.
pub(super) fn pair<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 2], D::Error> {
    let numbers = Vec::<f64>::deserialize(deserializer)?;
    numbers.try_into().map_err(|n: Vec<f64>| {
        D::Error::custom(format_args!("found a list of {} numbers, wanted 2", n.len()))
    })
}
