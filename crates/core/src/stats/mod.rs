//! Statistics of sampled evaluations: pass@k, majority votes, tests and intervals.

pub mod bootstrap;
mod fourier;
pub mod holm;
pub mod hypergeometric;
pub mod lattice;
pub mod majority;
pub mod measure;
pub mod paired;
pub mod pass_at_k;

/// Returns the mean of the values, or NaN for an empty sequence.
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}
