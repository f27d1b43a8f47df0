//! The paper's theory of finite groups: how an update from N completions of one prompt changes the policy.
//!
//! - [`tail_miss`]: the probability that an update is active but doesn't sample a rare correct subset.
//! - [`mass`]: one surrogate step on a categorical policy, its change of correct and of unsampled-correct mass term by
//!   term, and the first-order subset-mass identity from which both follow.
//! - [`sampled`]: the distinct mass that a group samples, given its number of correct completions.
//! - [`advantage`]: the size of focal-weighted advantages by success rate, and the learning-rate multiplier with the
//!   same average effect.
//! - [`solutions`]: the mass that a policy keeps on each correct completion, if all correct completions can be listed.
//!
//! Every function takes plain numbers. If one is invalid, it returns an [`Error`] that names the argument, the value and the
//! allowed values.

pub mod advantage;
pub mod mass;
pub mod sampled;
pub mod solutions;
pub mod tail_miss;

pub use crate::error::Error;
use crate::error::require;

fn probability(name: &'static str, p: f64) -> Result<f64, Error> {
    require((0.0..=1.0).contains(&p), name, p, "a probability in [0, 1]").map(|()| p)
}

fn finite(name: &'static str, x: f64) -> Result<f64, Error> {
    require(x.is_finite(), name, x, "a finite number").map(|()| x)
}

fn exponent(gamma: f64) -> Result<f64, Error> {
    let holds = gamma.is_finite() && gamma >= 0.0;
    require(holds, "gamma", gamma, "a finite number of at least 0").map(|()| gamma)
}

fn group_size(n: u64) -> Result<u64, Error> {
    require(n > 0, "n", n, "a group size of at least 1").map(|()| n)
}
