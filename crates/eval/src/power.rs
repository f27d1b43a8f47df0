//! How many problems and samples a comparison of two models needs, from samples of one.

use crate::samples::{Benchmark, ProblemCounts};
use serde::Serialize;

/// The standard normal quantiles of a two-sided test at 5 % (0.975) and of a power of 80 %, added.
const QUANTILES: f64 = 1.959_963_984_540_054 + 0.841_621_233_572_914_3;

/// What can be found with a number of samples per problem.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Need {
    /// Samples per problem, of each model.
    pub samples: u64,
    /// Number of problems at which 80 % of comparisons find the difference.
    pub problems: u64,
    /// The difference of pass@1, as a fraction, that 80 % of comparisons on these problems find.
    pub detectable: f64,
}

/// What it takes to find a difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Power {
    /// The difference of pass@1, a fraction.
    pub difference: f64,
    /// Problems in the samples.
    pub problems: usize,
    /// Mean over problems of the variance of one sample's correctness, `p (1 - p)`, unbiased.
    pub variance: f64,
    /// By number of samples.
    pub needs: Vec<Need>,
}

/// Samples and problems that find a `difference` of pass@1 in four of five comparisons, by a two-sided paired test at 5 %.
///
/// The test conditions on the problems, as that of `fgrpo compare` does: the spread of the difference is that of sampling
/// alone, `2 v / (n P)` for `n` samples per model of each of `P` problems, where `v` is the mean of `p (1 - p)` over the
/// problems. The second model is assumed to have about the same `v`. A statement about other problems of the kind needs
/// more of them: the true difference varies between problems, which samples of one model don't show.
/// Fails if the difference isn't a fraction above 0, or no problem has two scored samples.
pub fn power(benchmarks: &[Benchmark], difference: f64, samples: &[u64]) -> anyhow::Result<Power> {
    if !(difference > 0.0 && difference < 1.0) {
        bad_input!("detect: found {}, wanted percentage points above 0 and below 100", 100.0 * difference);
    }
    let problems: Vec<&ProblemCounts> =
        benchmarks.iter().flat_map(|b| &b.problems).filter(|p| p.samples > 1).collect();
    if problems.is_empty() {
        bad_input!(
            "detect: found no problem with two scored samples, wanted some: one says nothing of their spread"
        );
    }
    let of = |p: &&ProblemCounts| {
        let (n, c) = (p.samples as f64, p.correct as f64);
        c * (n - c) / (n * (n - 1.0))
    };
    let variance = problems.iter().map(of).sum::<f64>() / problems.len() as f64;
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
        // p (1 - p) is 8 * 8 / (16 * 15) for a half and 0 for a solved problem: the mean is 2 / 15.
        let found = power(&[benchmark(&[(16, 8), (16, 16)])], 0.05, &[4, 16]).unwrap();
        assert!((found.variance - 2.0 / 15.0).abs() < 1e-15);
        let wanted = (QUANTILES / 0.05).powi(2) * 2.0 * (2.0 / 15.0) / 4.0;
        assert_eq!(found.needs[0].problems, wanted.ceil() as u64);
        // With these two problems and 16 samples: the standard error is sqrt(2 (2 / 15) / 32).
        assert!((found.needs[1].detectable - QUANTILES * (4.0 / 15.0 / 32.0f64).sqrt()).abs() < 1e-12);
        assert!(power(&[benchmark(&[(1, 1)])], 0.05, &[4]).is_err());
        assert!(power(&[benchmark(&[(4, 1)])], 0.0, &[4]).is_err());
    }

    /// Simulates comparisons: a true difference of the size that is called detectable is found four times in five.
    #[test]
    fn a_detectable_difference_is_found_four_times_in_five() {
        let rates = [0.2, 0.35, 0.5, 0.65];
        let (n, repeats) = (64u64, 12);
        let pilot = benchmark(&rates.map(|p| (1_000_000, (p * 1e6) as u64)));
        let mut large = Vec::new();
        (0..repeats).for_each(|_| large.extend(pilot.problems.iter().map(|p| (p.samples, p.correct))));
        let difference = power(&[benchmark(&large)], 0.01, &[n]).unwrap().needs[0].detectable;
        let drawn = |p: f64, key: Key| (0..n).filter(|&i| key.uniform(i) < p).count() as f64 / n as f64;
        let mut found = 0;
        for trial in 0..2_000 {
            let (mut sum, mut variance) = (0.0, 0.0);
            for (i, &(_, c)) in large.iter().enumerate() {
                let (p, key) = (c as f64 / 1e6, Key::new(trial).with(i as u64));
                let (a, b) = (drawn(p, key.with(1)), drawn(p + difference, key.with(2)));
                sum += b - a;
                variance += (a * (1.0 - a) + b * (1.0 - b)) / (n - 1) as f64;
            }
            found += u32::from(sum.abs() > 1.96 * variance.sqrt());
        }
        let share = f64::from(found) / 2_000.0;
        assert!((share - 0.8).abs() < 0.04, "{share} at a difference of {difference}");
    }
}
