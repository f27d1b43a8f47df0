//! The paper's theory of finite groups: the effect of one prompt's N completions.
//!
//! - [`tail_miss`]: the probability that an update is active but samples nothing of a rare correct subset.
//! - [`mass`]: one surrogate step on a categorical policy, its change of correct and of
//!   unsampled-correct mass term by term, and the first-order subset-mass identity behind both.
//! - [`sampled`]: the distinct mass that a group samples, given its number of correct completions.
//! - [`advantage`]: the size of focal-weighted advantages by success rate, and the learning-rate multiplier with the
//!   same average effect.
//!
//! Every function takes plain numbers and refuses invalid ones with [`Error`], which names the argument, what was found
//! and what was expected.

pub mod advantage;
pub mod mass;
pub mod sampled;
pub mod tail_miss;

/// An argument outside a function's domain.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Not a probability.
    #[error("{name}: found {found}, wanted a probability in [0, 1]")]
    Probability {
        /// The argument.
        name: &'static str,
        /// Its value.
        found: f64,
    },
    /// The rare subset is part of the correct set, so it can't have a higher probability.
    #[error("tau: found {tau}, wanted at most mu = {mu} (the rare subset is a part of the correct set)")]
    TailAboveTotal {
        /// Probability of the rare correct subset.
        tau: f64,
        /// Probability of a correct completion.
        mu: f64,
    },
    /// A group has at least one completion.
    #[error("n: found 0, wanted a group size of at least 1")]
    EmptyGroup,
    /// The tail-miss probability has no maximum.
    #[error("the tail-miss probability has no peak for mu = {mu}, tau = {tau}: wanted 0 < tau < mu < 1")]
    NoPeak {
        /// Probability of a correct completion.
        mu: f64,
        /// Probability of the rare correct subset.
        tau: f64,
    },
    /// The maximum is at a group size beyond the integer range.
    #[error("the peak for mu = {mu}, tau = {tau} lies beyond a group size of 2^53")]
    PeakTooFar {
        /// Probability of a correct completion.
        mu: f64,
        /// Probability of the rare correct subset.
        tau: f64,
    },
    /// A number is not finite or outside its range.
    #[error("{name}: found {found}, wanted {wanted}")]
    Number {
        /// The argument.
        name: &'static str,
        /// Its value.
        found: f64,
        /// Its domain, in words.
        wanted: &'static str,
    },
    /// Probabilities of a policy must add up.
    #[error("probabilities: they add up to {found}, wanted 1 within 1e-9")]
    Sum {
        /// Their sum.
        found: f64,
    },
    /// Lists that belong together differ in length, or are empty.
    #[error("{name}: found {found} entries, wanted {wanted}")]
    Length {
        /// The list.
        name: &'static str,
        /// Its length.
        found: usize,
        /// The length wanted.
        wanted: usize,
    },
    /// An index beyond the action set.
    #[error("{name}: found action {found}, wanted one of 0..{actions}")]
    Action {
        /// The list.
        name: &'static str,
        /// The index.
        found: usize,
        /// Number of actions.
        actions: usize,
    },
    /// More correct completions than completions, or than the policy can produce.
    #[error("k: found {k} correct completions of {n}, which has probability 0 under this policy")]
    ImpossibleCount {
        /// Correct completions.
        k: u64,
        /// Group size.
        n: u64,
    },
    /// A success rate that no group of this size has.
    #[error("success_rate: found {found}, wanted a multiple of 1/{n} for a group of {n}")]
    NotAFraction {
        /// The success rate.
        found: f64,
        /// Group size.
        n: u64,
    },
}

fn probability(name: &'static str, p: f64) -> Result<f64, Error> {
    if (0.0..=1.0).contains(&p) { Ok(p) } else { Err(Error::Probability { name, found: p }) }
}

fn finite(name: &'static str, x: f64) -> Result<f64, Error> {
    if x.is_finite() { Ok(x) } else { Err(Error::Number { name, found: x, wanted: "a finite number" }) }
}

fn exponent(gamma: f64) -> Result<f64, Error> {
    if gamma.is_finite() && gamma >= 0.0 {
        Ok(gamma)
    } else {
        Err(Error::Number { name: "gamma", found: gamma, wanted: "a finite number of at least 0" })
    }
}

fn group_size(n: u64) -> Result<u64, Error> {
    if n > 0 { Ok(n) } else { Err(Error::EmptyGroup) }
}
