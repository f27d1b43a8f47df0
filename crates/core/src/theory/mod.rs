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

pub use crate::error::Error;

fn probability(name: &'static str, p: f64) -> Result<f64, Error> {
    let is = (0.0..=1.0).contains(&p);
    if is { Ok(p) } else { Err(Error::setting(name, p, "a probability in [0, 1]")) }
}

fn finite(name: &'static str, x: f64) -> Result<f64, Error> {
    if x.is_finite() { Ok(x) } else { Err(Error::setting(name, x, "a finite number")) }
}

fn exponent(gamma: f64) -> Result<f64, Error> {
    let is = gamma.is_finite() && gamma >= 0.0;
    if is { Ok(gamma) } else { Err(Error::setting("gamma", gamma, "a finite number of at least 0")) }
}

fn group_size(n: u64) -> Result<u64, Error> {
    if n > 0 { Ok(n) } else { Err(Error::setting("n", n, "a group size of at least 1")) }
}
