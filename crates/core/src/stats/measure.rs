//! Measures of a model on one problem, computed from the number of its correct samples.

use super::pass_at_k::{pass_at_k, pass_at_k_table};
use std::fmt;

/// Measure of one problem, in `[0, 1]`. The reported value is the mean over problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Measure {
    /// Unbiased pass@k, for this k.
    #[cfg_attr(feature = "serde", serde(rename = "k"))]
    PassAtK(u64),
    /// cover@tau, for tau in percent: 1 if at least this percentage of the samples is correct, else 0. Its mean is the
    /// fraction of the problems that the model solves this reliably.
    ///
    /// Source: arXiv 2510.08325.
    #[cfg_attr(feature = "serde", serde(rename = "cover"))]
    Cover(u64),
}

impl Measure {
    /// Returns the minimum number of samples that the measure needs.
    pub fn fewest_samples(self) -> u64 {
        match self {
            Self::PassAtK(k) => k,
            Self::Cover(_) => 1,
        }
    }

    /// Returns the number of correct samples, of `n`, at which the measure rises from 0 to 1, or `None` if the measure
    /// also has values between 0 and 1.
    pub fn threshold(self, n: u64) -> Option<u64> {
        match self {
            Self::PassAtK(k) => (k == n).then_some(1),
            Self::Cover(percent) => Some((percent * n).div_ceil(100)),
        }
    }

    /// Computes the measure with `c` of `n` samples correct.
    ///
    /// # Panics
    /// If pass@k has a `k` of 0 or above `n`, or `c` is above `n`.
    pub fn of(self, n: u64, c: u64) -> f64 {
        match self {
            Self::PassAtK(k) => pass_at_k(n as usize, c as usize, k as usize),
            Self::Cover(percent) => f64::from(100 * c >= percent * n),
        }
    }

    /// Computes the measure for each number of correct samples of `n`, from 0 to `n`.
    ///
    /// # Panics
    /// If pass@k has a `k` of 0 or above `n`.
    pub fn values(self, n: u64) -> Vec<f64> {
        match self {
            Self::PassAtK(k) => pass_at_k_table(n as usize, k as usize),
            Self::Cover(_) => (0..=n).map(|c| self.of(n, c)).collect(),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PassAtK(k) => write!(f, "pass@{k}"),
            Self::Cover(percent) => write!(f, "cover@{percent}%"),
        }
    }
}
