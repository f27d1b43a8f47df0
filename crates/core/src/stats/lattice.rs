//! Distributions on equally spaced points and their sums.
//!
//! The distribution of a sum of independent variables is a convolution. Short convolutions are computed directly, which adds
//! only positive numbers and so keeps the *relative* accuracy of small tail probabilities. Long convolutions use a Fourier
//! transform, whose error is absolute (about `1e-15`).

use super::fourier::Transform;

/// Probabilities of the integers `first, first + 1, ...`.
#[derive(Debug, Clone, PartialEq)]
pub struct Lattice {
    /// The integer that `mass[0]` belongs to.
    pub first: i64,
    /// Probabilities, which sum to at least 1 minus `dropped`.
    pub mass: Vec<f64>,
    /// Upper bound of the probability removed at the two ends.
    pub dropped: f64,
}

impl Lattice {
    /// Returns the distribution with all mass on the integer `at`.
    pub fn point(at: i64) -> Self {
        Self { first: at, mass: vec![1.0], dropped: 0.0 }
    }

    /// Returns the probability of the integer `x`.
    pub fn at(&self, x: i64) -> f64 {
        usize::try_from(x - self.first).ok().and_then(|i| self.mass.get(i)).copied().unwrap_or(0.0)
    }

    /// Returns the integers with their probabilities, in increasing order.
    pub fn atoms(&self) -> impl Iterator<Item = (i64, f64)> + '_ {
        self.mass.iter().enumerate().map(|(i, &p)| (self.first + i as i64, p))
    }

    /// Returns the expected value.
    pub fn mean(&self) -> f64 {
        // Relative to the first point, so that a large offset doesn't reduce the accuracy.
        let total: f64 = self.mass.iter().sum();
        let moment: f64 = self.mass.iter().enumerate().map(|(i, p)| i as f64 * p).sum();
        self.first as f64 + moment / total
    }

    /// Returns the variance.
    pub fn variance(&self) -> f64 {
        let mean = self.mean() - self.first as f64;
        self.mass.iter().enumerate().map(|(i, p)| (i as f64 - mean).powi(2) * p).sum()
    }

    /// Returns the distribution of the negated variable.
    #[must_use]
    pub fn negated(mut self) -> Self {
        self.first = -(self.first + self.mass.len() as i64 - 1);
        self.mass.reverse();
        self
    }

    /// Removes at most the probability `budget` at each end.
    #[must_use]
    fn trimmed(mut self, budget: f64) -> Self {
        let cut = |masses: &mut dyn Iterator<Item = &f64>| {
            let (mut gone, mut count) = (0.0, 0);
            for &p in masses {
                if gone + p > budget {
                    break;
                }
                gone += p;
                count += 1;
            }
            (gone, count)
        };
        let (high, end) = cut(&mut self.mass.iter().rev());
        let length = self.mass.len() - end;
        self.mass.truncate(length.max(1));
        let (low, start) = cut(&mut self.mass[..self.mass.len() - 1].iter());
        self.mass.drain(..start);
        self.first += start as i64;
        self.dropped += low + high;
        self
    }

    fn plus(&self, other: &Self, transform: Option<&mut Transform>) -> Self {
        let mass = convolve(&self.mass, &other.mass, transform);
        Self { first: self.first + other.first, mass, dropped: self.dropped + other.dropped }
    }
}

/// The accuracy of a sum's probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accuracy {
    /// Relative accuracy of about `1e-13` per probability: uses direct products only.
    Relative,
    /// Absolute accuracy of about `1e-14` per probability: uses transforms if they are faster.
    Absolute,
}

/// Returns the distribution of the sum of independent variables, with at most the probability `budget` removed in total.
///
/// Distributions of similar length are added pairwise.
pub fn sum(mut terms: Vec<Lattice>, budget: f64, accuracy: Accuracy) -> Lattice {
    let mut transform = (accuracy == Accuracy::Absolute).then(Transform::default);
    if terms.is_empty() {
        return Lattice::point(0);
    }
    let per_trim = budget / (4.0 * terms.len() as f64);
    // A variable with a single value only shifts the sum.
    let mut shift = 0;
    terms.retain(|t| {
        if t.mass.len() == 1 {
            shift += t.first;
        }
        t.mass.len() > 1
    });
    for term in &mut terms {
        *term = std::mem::replace(term, Lattice::point(0)).trimmed(per_trim);
    }
    terms.sort_by_key(|t| t.mass.len());
    while terms.len() > 1 {
        let mut next = Vec::with_capacity(terms.len().div_ceil(2));
        let mut pairs = terms.chunks_exact(2);
        for pair in &mut pairs {
            next.push(pair[0].plus(&pair[1], transform.as_mut()).trimmed(per_trim));
        }
        next.extend(pairs.remainder().iter().cloned());
        terms = next;
    }
    let mut total = terms.pop().unwrap_or_else(|| Lattice::point(0));
    total.first += shift;
    total
}

fn convolve(a: &[f64], b: &[f64], transform: Option<&mut Transform>) -> Vec<f64> {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let padded = (a.len() + b.len() - 1).next_power_of_two();
    // Measured: one point of a transform costs as much per level as about 10 direct products.
    let direct = short.len() * long.len() <= 10 * padded * padded.trailing_zeros() as usize;
    match transform {
        Some(transform) if !direct => transform.convolve(short, long),
        _ => convolve_directly(short, long),
    }
}

/// Convolves directly, eight terms of `short` by eight outputs at a time, which the compiler keeps in vector registers.
fn convolve_directly(short: &[f64], long: &[f64]) -> Vec<f64> {
    const BLOCK: usize = 8;
    let length = short.len() + long.len() - 1;
    // `long` is padded with zeros on both sides, so that blocks at the ends aren't special cases.
    let rows = (long.len() + BLOCK - 1).next_multiple_of(BLOCK);
    let mut padded = vec![0.0; rows + BLOCK];
    padded[BLOCK - 1..BLOCK - 1 + long.len()].copy_from_slice(long);
    let mut out = vec![0.0; short.len().next_multiple_of(BLOCK) + rows];
    for (block, chunk) in short.chunks(BLOCK).enumerate() {
        let mut factors = [0.0; BLOCK];
        factors[..chunk.len()].copy_from_slice(chunk);
        let target = &mut out[block * BLOCK..block * BLOCK + rows];
        for (t, values) in target.chunks_exact_mut(BLOCK).enumerate() {
            let mut sums = [0.0; BLOCK];
            for (i, factor) in factors.iter().enumerate() {
                let from = t * BLOCK + BLOCK - 1 - i;
                let window = &padded[from..from + BLOCK];
                for (sum, x) in sums.iter_mut().zip(window) {
                    *sum += factor * x;
                }
            }
            for (value, sum) in values.iter_mut().zip(sums) {
                *value += sum;
            }
        }
    }
    out.truncate(length);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;

    fn random(key: Key, length: usize) -> Vec<f64> {
        let raw: Vec<f64> = (0..length as u64).map(|c| key.uniform(c)).collect();
        let total: f64 = raw.iter().sum();
        raw.iter().map(|x| x / total).collect()
    }

    #[test]
    fn both_convolutions_equal_the_double_sum() {
        for (la, lb) in [(1, 1), (1, 5), (2, 3), (7, 8), (8, 8), (9, 33), (40, 17), (100, 257)] {
            let a = random(Key::new(1).with(la as u64), la);
            let b = random(Key::new(2).with(lb as u64), lb);
            let mut expected = vec![0.0; la + lb - 1];
            for i in 0..la {
                for j in 0..lb {
                    expected[i + j] += a[i] * b[j];
                }
            }
            let direct = if la <= lb { convolve_directly(&a, &b) } else { convolve_directly(&b, &a) };
            for (method, convolution) in
                [("direct", direct), ("fourier", Transform::default().convolve(&a, &b))]
            {
                assert_eq!(convolution.len(), expected.len());
                for (i, (f, w)) in convolution.iter().zip(&expected).enumerate() {
                    assert!((f - w).abs() < 1e-15, "{method} {la}x{lb} at {i}: {f} {w}");
                }
            }
        }
    }

    #[test]
    fn sum_of_coins_is_binomial_with_accurate_far_tails() {
        let coin = Lattice { first: 0, mass: vec![0.5, 0.5], dropped: 0.0 };
        let total = sum(vec![coin; 60], 1e-300, Accuracy::Relative);
        assert!((total.at(0) * 2f64.powi(60) - 1.0).abs() < 1e-13, "{}", total.at(0));
        assert!((total.at(60) * 2f64.powi(60) - 1.0).abs() < 1e-13);
        assert!((total.mean() - 30.0).abs() < 1e-12);
        assert!((total.variance() - 15.0).abs() < 1e-11);
    }

    #[test]
    fn cut_off_probability_stays_within_the_budget() {
        let die = Lattice { first: 1, mass: vec![1.0 / 6.0; 6], dropped: 0.0 };
        let total = sum(vec![die; 200], 1e-6, Accuracy::Absolute);
        let mass: f64 = total.mass.iter().sum();
        assert!(total.dropped <= 1e-6 && total.dropped > 0.0, "{}", total.dropped);
        assert!((1.0 - mass - total.dropped).abs() < 1e-12 || 1.0 - mass <= total.dropped);
        assert!(total.mass.len() < 400, "{}", total.mass.len());
    }

    #[test]
    fn negation_mirrors_the_support() {
        let law = Lattice { first: 2, mass: vec![0.2, 0.3, 0.5], dropped: 0.0 }.negated();
        assert_eq!((law.first, law.at(-2), law.at(-4)), (-4, 0.2, 0.5));
    }
}
