//! The number of correct samples in a subsample: the hypergeometric distribution.

use super::lattice::Lattice;

/// Counts of one model's samples of one problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Counts {
    /// Number of scored samples, n.
    pub samples: u64,
    /// Number of correct samples, c, at most n.
    pub correct: u64,
}

/// Probability, relative to the mode's, below which a value is dropped. It is far below the resolution of `f64` sums.
const NEGLIGIBLE: f64 = 1e-40;

/// Returns the distribution of the number of correct samples among `m` drawn without replacement from `counts`.
///
/// The distribution is computed outward from the mode by ratios of neighbours, without factorials. The relative error
/// is about `1e-15` for each step from the mode.
///
/// # Panics
/// If `m` exceeds the number of samples, or the number of correct samples exceeds the number of samples.
pub fn subsample_distribution(counts: Counts, m: u64) -> Lattice {
    let Counts { samples: n, correct: c } = counts;
    assert!(c <= n, "correct samples: found {c} of {n}");
    assert!(m <= n, "subsample of {m} from {n} samples");
    let lowest = (m + c).saturating_sub(n);
    let highest = m.min(c);
    // The mode of the hypergeometric distribution, clamped to its support.
    let mode = (u128::from(m + 1) * u128::from(c + 1) / u128::from(n + 2)) as u64;
    let mode = mode.clamp(lowest, highest);
    // p(x + 1) / p(x)
    let ratio = |x: u64| (c - x) as f64 * (m - x) as f64 / ((x + 1) as f64 * (n + x + 1 - c - m) as f64);
    let mut up = Vec::new();
    let mut p = 1.0;
    for x in mode..highest {
        p *= ratio(x);
        if p < NEGLIGIBLE {
            break;
        }
        up.push(p);
    }
    let mut mass = Vec::new();
    p = 1.0;
    for x in (lowest..mode).rev() {
        p /= ratio(x);
        if p < NEGLIGIBLE {
            break;
        }
        mass.push(p);
    }
    let first = mode - mass.len() as u64;
    mass.reverse();
    mass.push(1.0);
    mass.extend(up);
    let total: f64 = mass.iter().sum();
    for p in &mut mass {
        *p /= total;
    }
    Lattice { first: first as i64, mass, dropped: 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(n: u64, k: u64) -> f64 {
        if k > n { 0.0 } else { (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product() }
    }

    #[test]
    fn subsample_probabilities_equal_the_counting_formula() {
        for n in 0..=12 {
            for c in 0..=n {
                for m in 0..=n {
                    let law = subsample_distribution(Counts { samples: n, correct: c }, m);
                    for x in 0..=m {
                        let expected = if x > c || m - x > n - c {
                            0.0
                        } else {
                            choose(c, x) * choose(n - c, m - x) / choose(n, m)
                        };
                        let actual = law.at(x as i64);
                        assert!(
                            (actual - expected).abs() < 1e-14,
                            "n={n} c={c} m={m} x={x}: {actual} {expected}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn mean_and_variance_are_the_textbook_ones_at_a_million_samples() {
        let (n, c, m) = (1_000_000u64, 123_456u64, 2_560u64);
        let law = subsample_distribution(Counts { samples: n, correct: c }, m);
        let (nf, p, mf) = (n as f64, c as f64 / n as f64, m as f64);
        let mean = law.mean();
        let variance = law.variance();
        assert!((mean - mf * p).abs() < 1e-9, "{mean}");
        let expected = mf * p * (1.0 - p) * (nf - mf) / (nf - 1.0);
        assert!((variance / expected - 1.0).abs() < 1e-10, "{variance} {expected}");
    }
}
