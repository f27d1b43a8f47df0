//! maj@k: the probability that the most frequent answer among k samples is correct.

use crate::rng::Key;

/// The answers of one problem's samples.
///
/// All correct samples count as one answer, however the answer is written. Wrong samples are distinguished by their answers.
/// A sample without an answer is drawn but doesn't vote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Votes {
    /// Number of correct samples.
    pub correct: usize,
    /// Number of samples of each wrong answer.
    pub wrong: Vec<usize>,
    /// Number of samples without an answer.
    pub silent: usize,
}

impl Votes {
    /// Returns the number of samples.
    pub fn samples(&self) -> usize {
        self.correct + self.wrong.iter().sum::<usize>() + self.silent
    }
}

/// Estimates maj@k for each k of `sizes` from `orderings` random orders of the samples. The first k samples of an order are
/// a draw without replacement.
///
/// Ties are broken at random with equal probability. If no sample votes, the result is wrong. The value is exact for k = n,
/// and the fraction of correct samples for k = 1. Otherwise the standard error for one problem is at most
/// `0.5 / sqrt(orderings)`.
///
/// # Panics
/// If a size is 0 or exceeds the number of samples.
pub fn majority_at_k(votes: &Votes, sizes: &[usize], orderings: u64, key: Key) -> Vec<f64> {
    let n = votes.samples();
    for &k in sizes {
        assert!(k >= 1 && k <= n, "maj@{k} of {n} samples");
    }
    // Answer 0 is the correct one; `None` is a sample without an answer.
    let mut answers: Vec<Option<usize>> = vec![Some(0); votes.correct];
    for (i, &count) in votes.wrong.iter().enumerate() {
        answers.extend(std::iter::repeat_n(Some(i + 1), count));
    }
    answers.resize(n, None);
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&i| sizes[i]);
    let mut totals = vec![0.0; sizes.len()];
    let mut tally = vec![0usize; votes.wrong.len() + 1];
    for ordering in 0..orderings {
        key.with(ordering).stream().shuffle(&mut answers);
        tally.fill(0);
        let (mut seen, mut best, mut tied) = (0, 0, 0);
        for &i in &order {
            while seen < sizes[i] {
                if let Some(answer) = answers[seen] {
                    tally[answer] += 1;
                    if tally[answer] > best {
                        (best, tied) = (tally[answer], 1);
                    } else if tally[answer] == best {
                        tied += 1;
                    }
                }
                seen += 1;
            }
            if best > 0 && tally[0] == best {
                totals[i] += 1.0 / f64::from(tied);
            }
        }
    }
    let value = |(total, &k): (f64, &usize)| match k {
        1 => votes.correct as f64 / n as f64,
        _ => total / orderings as f64,
    };
    totals.into_iter().zip(sizes).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns maj@k, averaged over all subsets of k samples.
    fn by_enumeration(votes: &Votes, k: usize) -> f64 {
        let mut answers = vec![Some(0); votes.correct];
        for (i, &count) in votes.wrong.iter().enumerate() {
            answers.extend(std::iter::repeat_n(Some(i + 1), count));
        }
        answers.resize(votes.samples(), None);
        let (mut total, mut subsets) = (0.0, 0.0);
        for mask in 0u32..1 << answers.len() {
            if mask.count_ones() as usize != k {
                continue;
            }
            let mut tally = vec![0; votes.wrong.len() + 1];
            for (i, answer) in answers.iter().enumerate() {
                if let (1, Some(a)) = (mask >> i & 1, answer) {
                    tally[*a] += 1;
                }
            }
            let best = *tally.iter().max().unwrap();
            if best > 0 && tally[0] == best {
                total += 1.0 / tally.iter().filter(|&&t| t == best).count() as f64;
            }
            subsets += 1.0;
        }
        total / subsets
    }

    #[test]
    fn majority_agrees_with_every_subset_within_monte_carlo_error() {
        for (correct, wrong, silent) in
            [(3, vec![2, 2, 1], 2), (1, vec![4], 0), (5, vec![1, 1, 1], 1), (0, vec![3], 2)]
        {
            let votes = Votes { correct, wrong, silent };
            let sizes = [1, 2, 3, 5];
            let rates = majority_at_k(&votes, &sizes, 20_000, Key::new(4));
            for (&k, f) in sizes.iter().zip(rates) {
                let expected = by_enumeration(&votes, k);
                // Five standard errors.
                assert!(
                    (f - expected).abs() < 5.0 * 0.5 / 20_000f64.sqrt(),
                    "{votes:?} k={k}: {f} {expected}"
                );
            }
        }
    }

    #[test]
    fn the_vote_of_all_samples_and_that_of_one_are_exact() {
        let tie = Votes { correct: 3, wrong: vec![3, 1], silent: 4 };
        assert_eq!(majority_at_k(&tie, &[11], 10, Key::new(0)), vec![0.5]);
        assert_eq!(majority_at_k(&tie, &[1], 10, Key::new(0)), vec![3.0 / 11.0]);
        let silent = Votes { correct: 0, wrong: vec![], silent: 4 };
        assert_eq!(majority_at_k(&silent, &[4, 1], 10, Key::new(0)), vec![0.0, 0.0]);
    }
}
