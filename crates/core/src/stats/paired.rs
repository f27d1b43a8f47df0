//! The paired m-out-of-n subsampling test of two models' pass@k or cover@tau.
//!
//! For each model, m of each problem's n samples are drawn without replacement, the measure is computed from these m samples, and
//! the differences B - A are averaged over problems. The p-value is based on how often this average falls on either side of
//! zero. The paper simulates 50,000 subsamples. The number of correct samples in a subsample is hypergeometric and
//! independent across problems and models, so the distribution is a convolution, which [`exact`] computes.
//! [`Subsampler`] simulates it as in the paper.
//!
//! The test is conditional on the problem set: it shows whether the models differ on *these* problems, not on other problems
//! of the same kind. Use it together with a bootstrap over problems ([`super::bootstrap`]). As in the paper, the difference
//! isn't rescaled by m/n.
//!
//! Source: F-GRPO, appendix "Statistical Significance".

use super::hypergeometric::{Counts, subsample_distribution};
use super::lattice::{self, Accuracy, Lattice};
use super::measure::Measure;
use crate::rng::Key;
use std::collections::HashMap;

/// Probability that may be removed at the ends of an exact distribution.
const CUT: f64 = 1e-20;
/// Probability that the error of a quantised distribution exceeds its bound.
const SLACK: f64 = 1e-8;
/// Approximate number of points of a quantised distribution.
const POINTS: f64 = 131_072.0;
/// For 1 < k < m: maximum number of points of an exact distribution, and of all terms of its sum together.
const EXACT_POINTS: (f64, f64) = (1_048_576.0, 4_194_304.0);

/// The samples of one problem under both models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Counts under model A.
    pub a: Counts,
    /// Counts under model B.
    pub b: Counts,
}

/// Distribution of the averaged difference B - A of a subsampled measure, as fractions.
#[derive(Debug, Clone)]
pub struct Difference {
    law: Lattice,
    /// Difference per lattice step.
    step: f64,
    /// Average rounding error of the values. 0 unless the distribution is quantised.
    drift: f64,
    /// Bound of the rounding error's deviation from `drift`, which holds except with probability `slack`.
    blur: f64,
    /// Bound of the probability that was removed or whose rounding error exceeds `blur`.
    slack: f64,
    /// Largest distance from zero that counts as a tie, because an average is rounded to a grid.
    tie: f64,
}

impl Difference {
    /// Returns the expected difference.
    pub fn mean(&self) -> f64 {
        self.law.mean() * self.step - self.drift
    }

    /// Returns the standard deviation of the difference.
    pub fn deviation(&self) -> f64 {
        self.law.variance().max(0.0).sqrt() * self.step
    }

    /// Returns whether the difference has more than one possible value.
    pub fn varies(&self) -> bool {
        self.law.atoms().filter(|(_, p)| *p > 0.0).nth(1).is_some()
    }

    /// Returns the computed values of P(D <= x) and P(D >= x). A point of the lattice at `x` counts in both.
    fn tails(&self, x: f64) -> (f64, f64) {
        // The tolerance of 1e-6 steps exceeds the rounding of the quotient and is far below the distance of two points.
        let steps = x / self.step;
        let (mut low, mut high) = (0.0, 0.0);
        for (at, p) in self.law.atoms() {
            let at = at as f64;
            if at <= steps + 1e-6 {
                low += p;
            }
            if at >= steps - 1e-6 {
                high += p;
            }
        }
        (low, high)
    }

    /// Returns the two-sided p-value, `min(1, 2 min(P(D <= 0), P(D >= 0)))`.
    pub fn two_sided_p(&self) -> f64 {
        let low = self.tails(self.drift + self.tie).0;
        let high = self.tails(self.drift - self.tie).1;
        (2.0 * low.min(high)).min(1.0)
    }

    /// Returns bounds of the exact p-value. If the lattice is exact, they are within about `1e-12` of it, and within `1e-15`
    /// for k = 1 and k = m. Otherwise they include the largest effect of rounding to the grid.
    pub fn p_bounds(&self) -> (f64, f64) {
        // The rounded value is D + e with e within drift +- blur, so D <= 0 lies between
        // "rounded <= drift - blur" and "rounded <= drift + blur".
        let (low_least, high_least) =
            (self.tails(self.drift - self.blur).0, self.tails(self.drift + self.blur).1);
        let (low_most, high_most) =
            (self.tails(self.drift + self.blur).0, self.tails(self.drift - self.blur).1);
        let lower = 2.0 * low_least.min(high_least) - 2.0 * self.slack;
        let upper = 2.0 * low_most.min(high_most) + 2.0 * self.slack;
        (lower.clamp(0.0, 1.0), upper.clamp(0.0, 1.0))
    }

    /// Returns the smallest value `x` with `P(D <= x) >= q`.
    pub fn quantile(&self, q: f64) -> f64 {
        let total: f64 = self.law.mass.iter().sum();
        let mut below = 0.0;
        let mut value = self.law.first;
        for (at, p) in self.law.atoms() {
            value = at;
            below += p;
            // The tolerance exceeds the rounding of the running sum.
            if below >= q * total - 1e-13 {
                break;
            }
        }
        value as f64 * self.step - self.drift
    }

    /// Returns the percentile interval that contains the middle fraction `level` of the distribution.
    pub fn interval(&self, level: f64) -> (f64, f64) {
        (self.quantile((1.0 - level) / 2.0), self.quantile(f64::midpoint(1.0, level)))
    }
}

/// Returns the measure for 0 to `m` correct samples of `m`. Panics if the arguments are invalid.
fn values(pairs: &[Pair], m: u64, measure: Measure) -> Vec<f64> {
    assert!(!pairs.is_empty(), "paired test: found no problems");
    let least = measure.fewest_samples();
    assert!((1..=m).contains(&least), "paired test: {measure}, m = {m}, wanted 1 <= k <= m");
    measure.values(m)
}

/// Computes the distribution of the difference without simulation.
///
/// With P problems, the lattice has the step 1/(m P) for pass@1 and 1/P for pass@m and cover@tau. These are exact except for
/// removed tails of `1e-20`. For other k, a lattice of step 1/(C(m, k) P) is exact and used if it has at most a million points:
/// for few problems or small m or k, where ties (a difference of exactly 0) are likely. Otherwise values are rounded to a grid
/// of about 130,000 points, which doesn't preserve such ties; [`Difference::p_bounds`] bounds the effect.
///
/// # Panics
/// If `pairs` is empty, k is 0 or above m, or m exceeds a problem's samples.
pub fn exact(pairs: &[Pair], m: u64, measure: Measure) -> Difference {
    let value = values(pairs, m, measure);
    let problems = pairs.len() as f64;
    let mut laws: HashMap<Counts, Lattice> = HashMap::new();
    for counts in pairs.iter().flat_map(|p| [p.a, p.b]) {
        laws.entry(counts).or_insert_with(|| subsample_distribution(counts, m));
    }
    let signed = |law: &dyn Fn(Counts) -> Lattice| -> Vec<Lattice> {
        pairs.iter().flat_map(|p| [law(p.b), law(p.a).negated()]).collect()
    };
    let is_rate = measure == Measure::PassAtK(1);
    let threshold = measure.threshold(m);
    if is_rate || threshold.is_some() {
        let terms = signed(&|counts| {
            let law = &laws[&counts];
            if is_rate {
                return law.clone();
            }
            let below = |(x, _): &(i64, f64)| threshold.is_some_and(|least| *x < least as i64);
            let fail = law.atoms().filter(below).map(|(_, p)| p).sum::<f64>().min(1.0);
            Lattice { first: 0, mass: vec![fail, 1.0 - fail], dropped: 0.0 }
        });
        let scale = if is_rate { m as f64 } else { 1.0 };
        let law = lattice::sum(terms, CUT, Accuracy::Relative);
        let slack = law.dropped + 1e-15;
        return Difference { law, step: 1.0 / (scale * problems), drift: 0.0, blur: 0.0, slack, tie: 0.0 };
    }
    // Relevant width of the sum's support: 12 standard deviations on either side.
    let mut variance = 0.0;
    for counts in pairs.iter().flat_map(|p| [p.a, p.b]) {
        let (mut first, mut second) = (0.0, 0.0);
        for (x, p) in laws[&counts].atoms() {
            let v = value[x as usize];
            first += v * p;
            second += v * v * p;
        }
        variance += (second - first * first).max(0.0);
    }
    let width = (24.0 * variance.sqrt() + 2.0).min(2.0 * problems);
    // pass@k in a subsample is a multiple of 1 / C(m, k).
    let draws = choose(m, measure.fewest_samples());
    let exact = draws * width <= EXACT_POINTS.0 && draws * 2.0 * problems <= EXACT_POINTS.1;
    // Otherwise a whole number of steps per unit, so that pass@k of 0 and 1 need no rounding.
    let per_unit = if exact { draws } else { (POINTS / width).floor().clamp(256.0, 65_536.0) };
    let rounded: Vec<f64> = value.iter().map(|v| (v * per_unit).round()).collect();
    let mut quantised: HashMap<Counts, Rounded> = HashMap::new();
    for (&counts, law) in &laws {
        quantised.insert(counts, Rounded::new(law, &value, &rounded, per_unit));
    }
    let law = lattice::sum(signed(&|counts| quantised[&counts].law.clone()), CUT, Accuracy::Absolute);
    let step = 1.0 / (per_unit * problems);
    if exact {
        let slack = law.dropped + 1e-12;
        return Difference { law, step, drift: 0.0, blur: 0.0, slack, tie: 0.0 };
    }
    let drift = pairs.iter().map(|p| quantised[&p.b].drift - quantised[&p.a].drift).sum::<f64>();
    // Bernstein's inequality for the sum of independent rounding errors, each of which is within a step of its mean.
    let spread: f64 = pairs.iter().map(|p| quantised[&p.a].spread + quantised[&p.b].spread).sum();
    let log = (2.0 / SLACK).ln();
    let reach = log / (3.0 * per_unit);
    let blur = reach + (reach * reach + 2.0 * spread * log).sqrt();
    let slack = law.dropped + SLACK + 1e-12;
    Difference { tie: 0.0, law, step, drift: drift / problems, blur: blur / problems, slack }
}

/// Returns C(m, k), rounded if it has more than 53 bits.
fn choose(m: u64, k: u64) -> f64 {
    // The product is a whole number after every factor.
    (0..k.min(m - k)).fold(1.0, |c, i| c * (m - i) as f64 / (i + 1) as f64)
}

/// One problem's pass@k in a subsample, rounded to the grid.
struct Rounded {
    law: Lattice,
    /// Expected rounding error.
    drift: f64,
    /// Variance of the rounding error.
    spread: f64,
}

impl Rounded {
    fn new(law: &Lattice, value: &[f64], rounded: &[f64], per_unit: f64) -> Self {
        let x = |at: i64| at as usize;
        let first = rounded[x(law.first)] as i64;
        let last = rounded[x(law.first) + law.mass.len() - 1] as i64;
        let mut mass = vec![0.0; (last - first) as usize + 1];
        let (mut drift, mut square) = (0.0, 0.0);
        for (at, p) in law.atoms() {
            mass[(rounded[x(at)] as i64 - first) as usize] += p;
            let error = rounded[x(at)] / per_unit - value[x(at)];
            drift += p * error;
            square += p * error * error;
        }
        Self {
            law: Lattice { first, mass, dropped: law.dropped },
            drift,
            spread: (square - drift * drift).max(0.0),
        }
    }
}

/// Computes the distribution of the average of independent differences, such as the differences of several benchmarks.
///
/// Each difference is rounded to a common grid. The bounds include the rounding error of at most half a step each.
///
/// # Panics
/// If `parts` is empty.
pub fn average(parts: &[Difference]) -> Difference {
    assert!(!parts.is_empty(), "average of differences: found none");
    let count = parts.len() as f64;
    let width: f64 = parts.iter().map(|d| d.law.mass.len() as f64 * d.step).sum();
    let finest = parts.iter().map(|d| d.step).fold(f64::INFINITY, f64::min);
    // The grid has at most POINTS points, and steps of at least a hundredth of the finest part's step.
    let grid = (width / POINTS).max(finest / 100.0);
    let terms = parts
        .iter()
        .map(|d| {
            let place = |at: i64| (at as f64 * d.step / grid).round() as i64;
            let first = place(d.law.first);
            let last = place(d.law.first + d.law.mass.len() as i64 - 1);
            let mut mass = vec![0.0; (last - first) as usize + 1];
            for (at, p) in d.law.atoms() {
                mass[(place(at) - first) as usize] += p;
            }
            Lattice { first, mass, dropped: d.law.dropped }
        })
        .collect();
    let law = lattice::sum(terms, CUT, Accuracy::Absolute);
    Difference {
        step: grid / count,
        drift: parts.iter().map(|d| d.drift).sum::<f64>() / count,
        blur: parts.iter().map(|d| d.blur + grid / 2.0).sum::<f64>() / count,
        tie: grid / 2.0 + parts.iter().map(|d| d.tie).sum::<f64>() / count,
        slack: parts.iter().map(|d| d.slack).sum::<f64>() + law.dropped + 1e-12,
        law,
    }
}

/// Draws from a finite distribution in constant time (Walker's alias method, Vose's construction).
struct Alias {
    /// For each column: the probability of the first value, the first value, and the second value.
    columns: Vec<(f64, f64, f64)>,
}

impl Alias {
    fn new(atoms: &[(f64, f64)]) -> Self {
        let n = atoms.len() as f64;
        let total: f64 = atoms.iter().map(|a| a.1).sum();
        let mut weight: Vec<f64> = atoms.iter().map(|a| a.1 / total * n).collect();
        let mut columns: Vec<(f64, f64, f64)> = atoms.iter().map(|a| (1.0, a.0, a.0)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..atoms.len()).partition(|&i| weight[i] < 1.0);
        while let (Some(s), Some(&l)) = (small.pop(), large.last()) {
            columns[s] = (weight[s], atoms[s].0, atoms[l].0);
            weight[l] -= 1.0 - weight[s];
            if weight[l] < 1.0 {
                large.pop();
                small.push(l);
            }
        }
        Self { columns }
    }

    fn draw(&self, bits: u64) -> f64 {
        // The upper 32 bits choose the column, the lower 32 bits one of its two values.
        let column = ((bits >> 32) * self.columns.len() as u64) >> 32;
        let (probability, value, other) = self.columns[column as usize];
        if ((bits & 0xffff_ffff) as f64) < probability * 4_294_967_296.0 { value } else { other }
    }
}

/// Simulates the difference as the paper does.
pub struct Subsampler {
    tables: Vec<Alias>,
    /// For each problem, the indices of the tables of A and B.
    pairs: Vec<(usize, usize)>,
}

impl Subsampler {
    /// Prepares the tables from which subsamples are drawn.
    ///
    /// # Panics
    /// If [`exact`] would panic.
    pub fn new(pairs: &[Pair], m: u64, measure: Measure) -> Self {
        let value = values(pairs, m, measure);
        let mut index: HashMap<Counts, usize> = HashMap::new();
        let mut tables = Vec::new();
        let mut table = |counts: Counts| {
            *index.entry(counts).or_insert_with(|| {
                let law = subsample_distribution(counts, m);
                let atoms: Vec<(f64, f64)> = law.atoms().map(|(x, p)| (value[x as usize], p)).collect();
                tables.push(Alias::new(&atoms));
                tables.len() - 1
            })
        };
        let pairs = pairs.iter().map(|p| (table(p.a), table(p.b))).collect();
        Self { tables, pairs }
    }

    /// Returns the difference in one simulated subsample. It depends only on `key` and `iteration`.
    pub fn draw(&self, key: Key, iteration: u64) -> f64 {
        let key = key.with(iteration);
        let mut total = 0.0;
        for (i, &(a, b)) in self.pairs.iter().enumerate() {
            let i = 2 * i as u64;
            total += self.tables[b].draw(key.bits(i + 1)) - self.tables[a].draw(key.bits(i));
        }
        total / self.pairs.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::bootstrap::Simulated;
    use super::*;
    use proptest::prelude::*;

    fn pair(n: u64, a: u64, b: u64) -> Pair {
        Pair { a: Counts { samples: n, correct: a }, b: Counts { samples: n, correct: b } }
    }

    fn unbiased(counts: Counts, k: u64) -> f64 {
        let Counts { samples: n, correct: c } = counts;
        if n - c < k {
            return 1.0;
        }
        1.0 - (0..k).map(|i| (n - c - i) as f64 / (n - i) as f64).product::<f64>()
    }

    /// Returns the measure of every subset of size m, by listing the subsets and then, for pass@k, the draws within each.
    fn subset_values(counts: Counts, m: u64, measure: Measure) -> Vec<f64> {
        let subsets = |mask: u32, size: u64| {
            (0u32..1 << mask.count_ones().max(32 - mask.leading_zeros()))
                .filter(move |s| s & !mask == 0 && u64::from(s.count_ones()) == size)
        };
        let correct = (1u32 << counts.correct) - 1;
        subsets((1 << counts.samples) - 1, m)
            .map(|subset| match measure {
                Measure::PassAtK(k) => {
                    let draws: Vec<u32> = subsets(subset, k).collect();
                    draws.iter().filter(|&&d| d & correct != 0).count() as f64 / draws.len() as f64
                }
                Measure::Cover(percent) => {
                    let rate = f64::from((subset & correct).count_ones()) / m as f64;
                    f64::from(rate >= percent as f64 / 100.0)
                }
            })
            .collect()
    }

    /// Returns every equally likely value of the averaged difference.
    fn by_enumeration(pairs: &[Pair], m: u64, measure: Measure) -> Vec<f64> {
        let mut sums = vec![0.0];
        for p in pairs {
            let (a, b) = (subset_values(p.a, m, measure), subset_values(p.b, m, measure));
            sums = sums
                .iter()
                .flat_map(|s| b.iter().flat_map(|y| a.iter().map(move |x| s + y - x)).collect::<Vec<f64>>())
                .collect();
        }
        sums.iter().map(|s| s / pairs.len() as f64).collect()
    }

    fn lower_quantile(sorted: &[f64], q: f64) -> f64 {
        let rank = (q * sorted.len() as f64 - 1e-9).ceil() as usize;
        sorted[rank.max(1) - 1]
    }

    #[test]
    fn exact_distribution_equals_enumeration_of_every_subset() {
        for pairs in [
            vec![pair(5, 2, 3)],
            vec![pair(5, 1, 3), pair(5, 4, 4)],
            vec![pair(4, 0, 1), pair(4, 2, 1), pair(4, 4, 4)],
        ] {
            for m in 2..=4 {
                for measure in (1..=m).map(Measure::PassAtK).chain([25, 50, 51, 100].map(Measure::Cover)) {
                    let mut all = by_enumeration(&pairs, m, measure);
                    all.sort_by(f64::total_cmp);
                    let expected = Simulated::new(all.clone()).two_sided_p();
                    let law = exact(&pairs, m, measure);
                    let p = law.two_sided_p();
                    assert!((p - expected).abs() < 1e-12, "{pairs:?} m={m} {measure}: {p} {expected}");
                    let (low, high) = law.p_bounds();
                    assert!(low <= expected + 1e-12 && expected <= high + 1e-12, "{low} {expected} {high}");
                    for q in [0.025, 0.3, 0.5, 0.975] {
                        let (actual, expected) = (law.quantile(q), lower_quantile(&all, q));
                        assert!(
                            (actual - expected).abs() < 1e-4,
                            "m={m} {measure} q={q}: {actual} {expected}"
                        );
                    }
                }
            }
        }
    }

    /// With few problems, a difference of exactly 0 isn't rare, even if the two sums consist of different values.
    #[test]
    fn ties_between_different_values_count_on_both_sides() {
        for (n, m, a, b, expected) in [
            // From integer convolutions in Python.
            (64, 16, vec![53, 38, 56], vec![56, 64, 54], 0.053_300),
            (16, 4, vec![13, 11, 6, 8, 8], vec![16, 10, 4, 14, 10], 0.942_0),
        ] {
            let pairs: Vec<Pair> = a.iter().zip(&b).map(|(&a, &b)| pair(n, a, b)).collect();
            let law = exact(&pairs, m, Measure::PassAtK(2));
            let (p, (low, high)) = (law.two_sided_p(), law.p_bounds());
            assert!((p - expected).abs() < 5e-5, "{p} {expected}");
            assert!(high - low < 1e-9, "{low} {high}");
        }
    }

    #[test]
    fn average_of_two_benchmarks_equals_enumeration() {
        let (first, second) =
            (vec![pair(5, 1, 3), pair(5, 2, 2)], vec![pair(4, 3, 1), pair(4, 2, 3), pair(4, 0, 1)]);
        for k in [1, 2, 3] {
            let parts = [exact(&first, 3, Measure::PassAtK(k)), exact(&second, 3, Measure::PassAtK(k))];
            let law = average(&parts);
            let ys = by_enumeration(&second, 3, Measure::PassAtK(k));
            let all: Vec<f64> = by_enumeration(&first, 3, Measure::PassAtK(k))
                .iter()
                .flat_map(|x| ys.iter().map(move |y| (x + y) / 2.0))
                .collect();
            let expected = Simulated::new(all).two_sided_p();
            let (low, high) = law.p_bounds();
            assert!(low <= expected + 1e-12 && expected <= high + 1e-12, "k={k}: {low} {expected} {high}");
            if k != 2 {
                assert!(
                    (law.two_sided_p() - expected).abs() < 1e-9,
                    "k={k}: {} {expected}",
                    law.two_sided_p()
                );
            }
            let mean = (parts[0].mean() + parts[1].mean()) / 2.0;
            assert!((law.mean() - mean).abs() < 1e-5, "{} {mean}", law.mean());
        }
    }

    #[test]
    fn equal_models_have_no_difference_and_p_one() {
        let pairs = vec![pair(64, 10, 10), pair(64, 3, 3), pair(64, 64, 64)];
        for k in [1, 4, 16] {
            let law = exact(&pairs, 16, Measure::PassAtK(k));
            assert_eq!(law.two_sided_p(), 1.0);
            assert!(law.mean().abs() < 1e-12);
        }
    }

    #[test]
    fn problems_that_no_draw_can_change_give_a_point() {
        let law = exact(&[pair(8, 0, 8), pair(8, 0, 0)], 4, Measure::PassAtK(2));
        assert_eq!(law.interval(0.95), (0.5, 0.5));
        assert!(law.two_sided_p() < 1e-11);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn exact_mean_is_the_unbiased_difference(
            raw in prop::collection::vec((0u64..=48, 0u64..=48), 1..24), m in 2u64..=24, pick in 0u64..1000
        ) {
            let pairs: Vec<Pair> = raw.iter().map(|&(a, b)| pair(48, a, b)).collect();
            for k in [1, 1 + pick % m, m] {
                let law = exact(&pairs, m, Measure::PassAtK(k));
                let expected = pairs.iter().map(|p| unbiased(p.b, k) - unbiased(p.a, k)).sum::<f64>()
                    / pairs.len() as f64;
                prop_assert!((law.mean() - expected).abs() < 1e-10, "k={} {} {}", k, law.mean(), expected);
            }
        }

        #[test]
        fn swapping_the_models_mirrors_the_distribution(
            raw in prop::collection::vec((0u64..=30, 0u64..=30), 1..12), k in 1u64..=10
        ) {
            let pairs: Vec<Pair> = raw.iter().map(|&(a, b)| pair(30, a, b)).collect();
            let swapped: Vec<Pair> = raw.iter().map(|&(a, b)| pair(30, b, a)).collect();
            let (law, mirror) = (exact(&pairs, 10, Measure::PassAtK(k)), exact(&swapped, 10, Measure::PassAtK(k)));
            prop_assert!((law.two_sided_p() - mirror.two_sided_p()).abs() < 1e-9);
            prop_assert!((law.mean() + mirror.mean()).abs() < 1e-10);
        }
    }

    #[test]
    fn simulation_agrees_with_the_exact_distribution_within_its_error() {
        let key = Key::new(6);
        let pairs: Vec<Pair> = (0..40)
            .map(|i| {
                let key = key.with(i);
                let a = key.below(0, 129);
                pair(128, a, (a + key.below(1, 7)).min(128))
            })
            .collect();
        for k in [1, 8, 32] {
            let law = exact(&pairs, 32, Measure::PassAtK(k));
            let sampler = Subsampler::new(&pairs, 32, Measure::PassAtK(k));
            let iterations = 20_000u32;
            let sample = Simulated::new((0..u64::from(iterations)).map(|i| sampler.draw(key, i)).collect());
            let scale = f64::from(iterations).sqrt();
            assert!((sample.mean() - law.mean()).abs() < 5.0 * law.deviation() / scale, "mean at k={k}");
            let p = law.two_sided_p();
            let error = 2.0 * (p / 2.0 * (1.0 - p / 2.0)).sqrt() / scale;
            let found_p = sample.two_sided_p();
            assert!((found_p - p).abs() < 5.0 * error + 1e-4, "k={k}: {found_p} {p}");
            let (actual, expected) = (sample.interval(0.95), law.interval(0.95));
            for (f, w) in [(actual.0, expected.0), (actual.1, expected.1)] {
                assert!((f - w).abs() < 0.1 * law.deviation(), "k={k}: {f} {w}");
            }
        }
    }

    #[test]
    fn quantised_grid_states_an_error_too_small_to_matter() {
        let key = Key::new(8);
        let pairs: Vec<Pair> = (0..300)
            .map(|i| {
                let a = key.with(i).below(0, 400);
                pair(1024, a, a + key.with(i).below(1, 12))
            })
            .collect();
        let law = exact(&pairs, 256, Measure::PassAtK(16));
        let (low, high) = law.p_bounds();
        assert!(low <= law.two_sided_p() && law.two_sided_p() <= high);
        assert!(high - low < 0.01, "p between {low} and {high}");
    }
}
