//! Range checks with a uniform error message: key, found, wanted.
//!
//! Each whole number is a size: of memory, of a loop, or as a factor in a product. The maximum is far above any
//! sensible value and low enough that no computation with such numbers overflows.

use fgrpo_eval::graded::LARGEST_REWARD;
use std::ops::RangeInclusive;

/// Steps of a stage. Multiplied by the prompts of a step they still fit in 64 bits.
pub(super) const STEPS: u64 = 1 << 40;
/// Prompts or demonstrations of a step, problems of a held-out set that is kept in memory, samples of a problem.
pub(super) const MANY: u64 = 1 << 20;
/// Completions of a group.
pub(super) const GROUP: u64 = 1 << 16;
/// Completions of a step, prompts times group.
pub(super) const COMPLETIONS: u64 = 1 << 26;
/// Tokens of a prompt or a completion; ten times the longest context of published models.
pub(super) const TOKENS: u64 = 1 << 24;
/// Tokens in one pass, or in a cache.
pub(super) const TOKENS_AT_ONCE: u64 = 1 << 32;
/// Threads; a machine has hundreds of cores.
pub const THREADS: u64 = 1 << 10;

/// Checks the whole numbers of one table: key, value, allowed range.
pub(super) fn whole(
    table: &str,
    numbers: impl IntoIterator<Item = (&'static str, u64, RangeInclusive<u64>)>,
) -> anyhow::Result<()> {
    let dot = if table.is_empty() { "" } else { "." };
    for (key, found, allowed) in numbers {
        within(&format!("{table}{dot}{key}"), found, allowed)?;
    }
    Ok(())
}

/// Checks a whole number.
pub fn within(name: &str, found: u64, allowed: RangeInclusive<u64>) -> anyhow::Result<()> {
    if found < *allowed.start() {
        bad_input!("{name}: found {found}, wanted at least {}", allowed.start());
    }
    if found > *allowed.end() {
        bad_input!("{name}: found {found}, wanted at most {}", allowed.end());
    }
    Ok(())
}

pub(super) fn positive(name: &str, found: f64) -> anyhow::Result<()> {
    if !(found.is_finite() && found > 0.0) {
        bad_input!("{name}: found {found}, wanted a number above 0");
    }
    Ok(())
}

pub(super) fn not_negative(name: &str, found: f64) -> anyhow::Result<()> {
    if !(found.is_finite() && found >= 0.0) {
        bad_input!("{name}: found {found}, wanted a number of at least 0");
    }
    Ok(())
}

pub(super) fn learning_rate(name: &str, found: f64) -> anyhow::Result<()> {
    if !(found > 0.0 && found < 1.0) {
        bad_input!("{name}: found {found}, wanted a number between 0 and 1");
    }
    Ok(())
}

pub(super) fn betas(name: &str, found: [f64; 2]) -> anyhow::Result<()> {
    if found.iter().any(|b| !(0.0..1.0).contains(b)) {
        bad_input!("{name}: found {found:?}, wanted two numbers in [0, 1)");
    }
    Ok(())
}

/// Checks a factor of a loss or an advantage: the product must stay finite.
pub(super) fn coefficient(name: &str, found: f64) -> anyhow::Result<()> {
    let largest = LARGEST_REWARD;
    if !(0.0..=largest).contains(&found) {
        bad_input!("{name}: found {found}, wanted a number from 0 to {largest}");
    }
    Ok(())
}

/// Checks that a reward is small enough to compute advantages and metrics without overflow.
pub(super) fn reward(name: &str, found: f64) -> anyhow::Result<()> {
    let largest = LARGEST_REWARD;
    if !(-largest..=largest).contains(&found) {
        bad_input!("{name}: found {found}, wanted a number from -{largest} to {largest}");
    }
    Ok(())
}
