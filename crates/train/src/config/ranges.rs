//! Range checks whose error messages have one form: the key, the allowed values, the value.
//!
//! Every whole number is a size of memory, the length of a loop, or a factor. Its maximum is far above any sensible
//! value, and low enough that no computation with such numbers overflows.

use fgrpo_eval::graded::LARGEST_REWARD;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::ops::RangeInclusive;

/// Maximum number of steps of a stage. Multiplied by the prompts of a step, it fits in 64 bits.
pub(super) const STEPS: u64 = 1 << 40;
/// Maximum number of prompts per step, demonstrations per step, held-out problems, or samples per problem.
pub(super) const MANY: u64 = 1 << 20;
/// Maximum number of completions of a group.
pub(super) const GROUP: u64 = 1 << 16;
/// Maximum number of completions of a step.
pub(super) const COMPLETIONS: u64 = 1 << 26;
/// Maximum number of tokens of a prompt or a completion: ten times the longest context of published models.
pub(super) const TOKENS: u64 = 1 << 24;
/// Maximum number of tokens in one pass, or in a cache.
pub(super) const TOKENS_AT_ONCE: u64 = 1 << 32;
/// Maximum number of threads.
pub const THREADS: u64 = 1 << 10;

/// Checks the whole numbers of one table: key, value, allowed range.
pub(super) fn whole(
    table: &str,
    numbers: impl IntoIterator<Item = (&'static str, u64, RangeInclusive<u64>)>,
) -> anyhow::Result<()> {
    let dot = if table.is_empty() { "" } else { "." };
    for (key, number, allowed) in numbers {
        within(&format!("{table}{dot}{key}"), number, allowed)?;
    }
    Ok(())
}

/// Checks a whole number.
pub fn within(name: &str, number: u64, allowed: RangeInclusive<u64>) -> anyhow::Result<()> {
    if number < *allowed.start() {
        bad_input!("{name}: expected at least {}, found {number}", allowed.start());
    }
    if number > *allowed.end() {
        bad_input!("{name}: expected at most {}, found {number}", allowed.end());
    }
    Ok(())
}

/// Returns an error for the key `name` unless `holds` is true. `expected` describes the allowed numbers.
pub(super) fn number(name: &str, number: f64, holds: bool, expected: &str) -> anyhow::Result<()> {
    if !holds {
        bad_input!("{name}: expected {expected}, found {number}");
    }
    Ok(())
}

pub(super) fn positive(name: &str, x: f64) -> anyhow::Result<()> {
    number(name, x, x.is_finite() && x > 0.0, "a number above 0")
}

pub(super) fn not_negative(name: &str, x: f64) -> anyhow::Result<()> {
    number(name, x, x.is_finite() && x >= 0.0, "a number of at least 0")
}

pub(super) fn learning_rate(name: &str, x: f64) -> anyhow::Result<()> {
    number(name, x, x > 0.0 && x < 1.0, "a number above 0 and below 1")
}

pub(super) fn betas(name: &str, betas: [f64; 2]) -> anyhow::Result<()> {
    if betas.iter().any(|b| !(0.0..1.0).contains(b)) {
        bad_input!("{name}: expected two numbers in [0, 1), found {betas:?}");
    }
    Ok(())
}

/// Checks a factor of a loss or an advantage, so that the product stays finite.
pub(super) fn coefficient(name: &str, x: f64) -> anyhow::Result<()> {
    let largest = LARGEST_REWARD;
    number(name, x, (0.0..=largest).contains(&x), &format!("a number from 0 to {largest}"))
}

/// Checks that a reward is small enough to compute advantages and metrics without overflow.
pub(super) fn reward(name: &str, x: f64) -> anyhow::Result<()> {
    let largest = LARGEST_REWARD;
    number(name, x, x.abs() <= largest, &format!("a number from -{largest} to {largest}"))
}

/// Reads a list of exactly two numbers.
pub(super) fn pair<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 2], D::Error> {
    let numbers = Vec::<f64>::deserialize(deserializer)?;
    numbers.try_into().map_err(|n: Vec<f64>| {
        D::Error::custom(format_args!("expected 2 numbers, found a list of {}", n.len()))
    })
}
