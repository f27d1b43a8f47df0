//! pass@k over problems and, if a setting was trained with several seeds, over seeds. Intervals come from the bootstrap of
//! `estimate` over both. Two settings are compared on the same resampled problems.

use super::data::benchmarks;
use fgrpo_eval::benchmarks::canonical;
use fgrpo_eval::estimate::{Curve, Measured, RESAMPLES, resamples};
use fgrpo_eval::samples::{Benchmark, ProblemCounts};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A value in percent and its 95 % interval.
pub(super) type Percent = (f64, (f64, f64));

/// pass@k over problems and seeds.
#[derive(Debug, Clone)]
pub(super) struct Estimate {
    measured: Measured,
    /// Names of the benchmarks, with the ids of their problems.
    problems: Vec<(String, Rc<BTreeSet<String>>)>,
}

impl Estimate {
    /// Returns the mean over problems and seeds, in percent.
    pub(super) fn value(&self) -> f64 {
        100.0 * self.measured.value
    }

    pub(super) fn interval(&self) -> (f64, f64) {
        let [low, high] = self.measured.interval;
        (100.0 * low, 100.0 * high)
    }

    pub(super) fn percent(&self) -> Percent {
        (self.value(), self.interval())
    }

    /// Subtracts another estimate resample by resample, or returns the reason if the problems differ.
    pub(super) fn minus(&self, other: &Self) -> Result<Self, String> {
        let differing = self.problems.iter().zip(&other.problems).filter(|((_, a), (_, b))| a != b);
        let differences = differing.map(|((benchmark, a), (_, b))| {
            let both = a.intersection(b).count();
            format!("{benchmark} ({} and {} problems, {both} in both)", a.len(), b.len())
        });
        let differences: Vec<String> = differences.collect();
        if !differences.is_empty() {
            return Err(format!("different problems: {}", differences.join(", ")));
        }
        Ok(Self { measured: self.measured.minus(&other.measured), problems: self.problems.clone() })
    }

    /// Lists the benchmarks whose number of problems differs from the paper's.
    pub(super) fn of_other_size(&self) -> Vec<String> {
        let other = |(benchmark, ids): &(String, Rc<BTreeSet<String>>)| {
            let paper = benchmarks().iter().find(|b| b.name == *benchmark)?.problems?;
            let here = ids.len() as u64;
            (here != paper).then(|| format!("{benchmark} ({here} problems, the paper {paper})"))
        };
        self.problems.iter().filter_map(other).collect()
    }

    pub(super) fn mean(all: &[Self]) -> Self {
        let values: Vec<&Measured> = all.iter().map(|e| &e.measured).collect();
        let problems = all.iter().flat_map(|e| e.problems.clone()).collect();
        Self { measured: Measured::mean(&values), problems }
    }
}

/// Estimates pass@k of one benchmark over at least one seed, or returns the reason why it is missing. `index` is the
/// benchmark's position in an average.
pub(super) fn pass_at_k(seeds: &[&Benchmark], k: u64, index: u64) -> Result<Estimate, String> {
    let in_order = |b: &&'_ Benchmark| -> BTreeMap<String, ProblemCounts> {
        b.problems.iter().map(|p| (p.id.clone(), p.clone())).collect()
    };
    let problems: Vec<BTreeMap<String, ProblemCounts>> = seeds.iter().map(in_order).collect();
    for (b, by_id) in seeds.iter().zip(&problems) {
        let path = b.path.display();
        if !by_id.keys().eq(problems[0].keys()) {
            return Err(format!("{} and {path} hold different problems", seeds[0].path.display()));
        }
        let (first, planned) = (&b.problems[0], b.problems[0].planned());
        if let Some(other) = b.problems.iter().find(|p| p.planned() != planned) {
            let (first, other, samples) = (&first.id, &other.id, other.planned());
            return Err(format!(
                "{path}: problem {first} has {planned} samples and problem {other} has {samples}; finish the evaluation"
            ));
        }
    }
    let fewest = seeds.iter().map(|b| b.fewest()).min().unwrap_or(0);
    if fewest < k {
        return Err(format!("pass@{k} needs {k} scored samples of every problem, found {fewest}"));
    }
    let counts: Vec<Vec<&ProblemCounts>> = problems.iter().map(|m| m.values().collect()).collect();
    let name = &seeds[0].name;
    let mut curve = Curve::over_seeds(name, &counts, &[k], RESAMPLES, resamples(0, index));
    let measured = curve.points.remove(&k).expect("it was asked for");
    let ids = Rc::new(problems[0].keys().cloned().collect());
    Ok(Estimate { measured, problems: vec![(canonical(name), ids)] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_of_the_same_draws() {
        let value = |correct: [u64; 3]| {
            let problem = |(i, c): (usize, u64)| ProblemCounts::counted(i.to_string(), 10, c);
            let problems = correct.into_iter().enumerate().map(problem).collect();
            pass_at_k(&[&Benchmark { name: "x".into(), path: "x".into(), problems }], 1, 0).unwrap()
        };
        // Each problem is better by one sample of ten, so the difference is constant, although the values vary.
        let (difference, (low, high)) = value([1, 5, 10]).minus(&value([0, 4, 9])).unwrap().percent();
        for bound in [difference, low, high] {
            assert!((bound - 10.0).abs() < 1e-9, "{bound}");
        }
    }
}
