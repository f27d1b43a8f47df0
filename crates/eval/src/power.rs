//! Computes how many problems and samples a comparison of two models needs, from samples of one model.

use crate::samples::{Benchmark, ProblemCounts};
use serde::Serialize;

/// Sum of two standard normal quantiles: 0.975 for a two-sided test at 5 %, and 0.8 for a power of 80 %.
const QUANTILES: f64 = 1.959_963_984_540_054 + 0.841_621_233_572_914_3;

/// Requirements for one number of samples per problem.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Need {
    /// Number of samples per problem from each model.
    pub samples: u64,
    /// Number of problems with which 80 % of comparisons detect the difference.
    pub problems: u64,
    /// The difference of pass@1, as a fraction, that 80 % of comparisons on these problems detect.
    pub detectable: f64,
}

/// Requirements for detecting a difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Power {
    /// The difference of pass@1 between the models that a comparison should detect, as a fraction.
    pub difference: f64,
    /// Number of problems with at least two scored samples.
    pub problems: usize,
    /// Mean over problems of the variance of a sample's correctness, `p (1 - p)`, estimated without bias.
    pub variance: f64,
    /// Requirements for each number of samples per problem.
    pub needs: Vec<Need>,
}

/// Computes the samples and problems with which 80 % of comparisons detect a `difference` of pass@1, by a two-sided
/// paired test at 5 %.
///
/// The test treats the problems as fixed, as in `fgrpo compare`. So the variance of the difference comes from sampling
/// alone. It is `2 v / (n P)` for `n` samples per model of each of `P` problems, where `v` is the mean of `p (1 - p)` over
/// the problems. The second model is assumed to have about the same `v`. A statement about other problems of the same
/// kind needs more problems, because the true difference varies between problems. Samples of one model don't show this
/// variation.
///
/// Returns bad input if the difference isn't between 0 and 1, or if no problem has two scored samples.
pub fn power(benchmarks: &[Benchmark], difference: f64, samples: &[u64]) -> anyhow::Result<Power> {
    if !(difference > 0.0 && difference < 1.0) {
        bad_input!("detect: expected percentage points above 0 and below 100, found {}", 100.0 * difference);
    }
    let problems: Vec<&ProblemCounts> =
        benchmarks.iter().flat_map(|b| &b.problems).filter(|p| p.samples > 1).collect();
    if problems.is_empty() {
        bad_input!("detect: no problem has two scored samples, which the variance needs");
    }
    let sample_variance = |p: &&ProblemCounts| {
        let (n, c) = (p.samples as f64, p.correct as f64);
        c * (n - c) / (n * (n - 1.0))
    };
    let variance = problems.iter().map(sample_variance).sum::<f64>() / problems.len() as f64;
    let need = |&n: &u64| Need {
        samples: n,
        problems: ((QUANTILES / difference).powi(2) * 2.0 * variance / n as f64).ceil().max(1.0) as u64,
        detectable: QUANTILES * (2.0 * variance / (n as f64 * problems.len() as f64)).sqrt(),
    };
    Ok(Power { difference, problems: problems.len(), variance, needs: samples.iter().map(need).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fgrpo_core::rng::Key;
    use std::path::PathBuf;

    fn benchmark(correct: &[(u64, u64)]) -> Benchmark {
        let problem = |(i, &(n, c)): (usize, &(u64, u64))| ProblemCounts::counted(i.to_string(), n, c);
        Benchmark {
            name: String::new(),
            path: PathBuf::new(),
            problems: correct.iter().enumerate().map(problem).collect(),
        }
    }

    #[test]
    fn numbers_match_values_worked_by_hand() {
        // p (1 - p) is estimated as 8 * 8 / (16 * 15) for the half-solved problem and 0 for the solved one, so the mean
        // is 2 / 15.
        let power = super::power(&[benchmark(&[(16, 8), (16, 16)])], 0.05, &[4, 16]).unwrap();
        assert!((power.variance - 2.0 / 15.0).abs() < 1e-15);
        let problems = (QUANTILES / 0.05).powi(2) * 2.0 * (2.0 / 15.0) / 4.0;
        assert_eq!(power.needs[0].problems, problems.ceil() as u64);
        // With these two problems and 16 samples, the standard error is sqrt(2 (2 / 15) / 32).
        assert!((power.needs[1].detectable - QUANTILES * (4.0 / 15.0 / 32.0f64).sqrt()).abs() < 1e-12);
        assert!(super::power(&[benchmark(&[(1, 1)])], 0.05, &[4]).is_err());
        assert!(super::power(&[benchmark(&[(4, 1)])], 0.0, &[4]).is_err());
    }

    /// Simulates comparisons with a true difference of the detectable size.
    #[test]
    fn a_detectable_difference_is_found_four_times_in_five() {
        let rates = [0.2, 0.35, 0.5, 0.65];
        let (n, repeats) = (64u64, 12);
        let pilot = benchmark(&rates.map(|p| (1_000_000, (p * 1e6) as u64)));
        let mut large = Vec::new();
        (0..repeats).for_each(|_| large.extend(pilot.problems.iter().map(|p| (p.samples, p.correct))));
        let difference = power(&[benchmark(&large)], 0.01, &[n]).unwrap().needs[0].detectable;
        let share = |p: f64, key: Key| (0..n).filter(|&i| key.uniform(i) < p).count() as f64 / n as f64;
        let mut detected = 0;
        for trial in 0..2_000 {
            let (mut sum, mut variance) = (0.0, 0.0);
            for (i, &(_, c)) in large.iter().enumerate() {
                let (p, key) = (c as f64 / 1e6, Key::new(trial).with(i as u64));
                let (a, b) = (share(p, key.with(1)), share(p + difference, key.with(2)));
                sum += b - a;
                variance += (a * (1.0 - a) + b * (1.0 - b)) / (n - 1) as f64;
            }
            detected += u32::from(sum.abs() > 1.96 * variance.sqrt());
        }
        let share = f64::from(detected) / 2_000.0;
        assert!((share - 0.8).abs() < 0.04, "{share} at a difference of {difference}");
    }
}
