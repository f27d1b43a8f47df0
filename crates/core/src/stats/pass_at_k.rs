//! Unbiased pass@k from n samples of which c are correct: `1 - C(n-c, k) / C(n, k)`.
//!
//! Source: F-GRPO, appendix "Evaluation Protocol" (the estimator of arXiv 2107.03374).

/// Returns the unbiased pass@k of one problem.
///
/// Computed as `-expm1(sum of ln_1p(-max(c, k) / (n - i)) over i < min(c, k))`, without overflow or cancellation. It is
/// exactly 1 if fewer than `k` samples are wrong, and exactly `c / n` for k = 1.
///
/// # Panics
/// If `k` is 0 or above `n`, or `c` is above `n`.
pub fn pass_at_k(n: usize, c: usize, k: usize) -> f64 {
    check(n, k);
    assert!(c <= n, "pass@{k}: {c} correct of {n} samples");
    if n - c < k {
        return 1.0;
    }
    let (few, many) = (c.min(k), c.max(k) as f64);
    if few == 1 {
        return many / n as f64;
    }
    let mut sum = Sum::default();
    for i in 0..few {
        sum.add((-many / (n - i) as f64).ln_1p());
    }
    rises_from_zero(&sum)
}

/// Returns pass^k of one problem: `C(c, k) / C(n, k)`, the unbiased estimate of the probability that all `k` samples are correct.
///
/// Source: tau-bench (arXiv 2406.12045).
///
/// # Panics
/// If [`pass_at_k`] would panic.
pub fn pass_hat_k(n: usize, c: usize, k: usize) -> f64 {
    check(n, k);
    assert!(c <= n, "pass^{k}: {c} correct of {n} samples");
    if c < k {
        return 0.0;
    }
    (0..k).map(|i| (c - i) as f64 / (n - i) as f64).product()
}

/// Returns `1 - exp(sum)`, and 0 rather than -0 for an empty sum.
fn rises_from_zero(sum: &Sum) -> f64 {
    0.0 - sum.total().exp_m1()
}

fn check(n: usize, k: usize) {
    assert!((1..=n).contains(&k), "pass@{k} from {n} samples: k must be from 1 to {n}");
}

/// Returns pass@k for each number of correct samples from 0 to `n`, in time proportional to `n`.
///
/// # Panics
/// If `k` is 0 or above `n`.
pub fn pass_at_k_table(n: usize, k: usize) -> Vec<f64> {
    check(n, k);
    // C(n-c-1, k) / C(n-c, k) = 1 - k / (n-c), so each further correct sample adds one term.
    let mut sum = Sum::default();
    let value = |c: usize| {
        if n - c < k {
            return 1.0;
        }
        if c > 0 {
            sum.add((-(k as f64) / (n - c + 1) as f64).ln_1p());
        }
        match c.min(k) {
            1 => c.max(k) as f64 / n as f64,
            _ => rises_from_zero(&sum),
        }
    };
    (0..=n).map(value).collect()
}

/// Returns the values of k in tables and plots: 1, 2, 4, ... up to `n`, and `n` itself.
pub fn powers_of_two_up_to(n: usize) -> Vec<usize> {
    let mut ks: Vec<usize> =
        std::iter::successors(Some(1usize), |k| k.checked_mul(2)).take_while(|&k| k <= n).collect();
    if n > 0 && ks.last() != Some(&n) {
        ks.push(n);
    }
    ks
}

/// Neumaier's compensated sum, because a sum can have up to a million terms.
#[derive(Debug, Default)]
struct Sum {
    value: f64,
    lost: f64,
}

impl Sum {
    fn add(&mut self, x: f64) {
        let sum = self.value + x;
        self.lost +=
            if self.value.abs() >= x.abs() { (self.value - sum) + x } else { (x - sum) + self.value };
        self.value = sum;
    }

    fn total(&self) -> f64 {
        self.value + self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns C(n, k) as an integer, for n up to 120.
    fn binomial(n: u128, k: u128) -> u128 {
        if k > n {
            return 0;
        }
        let mut all = 1u128;
        for i in 0..k.min(n - k) {
            // all * (n - i) is C(n, i + 1) * (i + 1): the division leaves no rest.
            all = all * (n - i) / (i + 1);
        }
        all
    }

    #[test]
    fn pass_hat_k_is_the_complement_of_pass_at_k_of_the_failures_and_unbiased() {
        for (n, c, k) in [(8, 5, 3), (8, 8, 8), (8, 2, 3), (64, 60, 16), (5, 0, 1)] {
            let value = pass_hat_k(n, c, k);
            assert!((value - (1.0 - pass_at_k(n, n - c, k))).abs() < 1e-12, "{n} {c} {k}: {value}");
        }
        // Over the outcomes of 6 samples with p = 0.7, the mean is p^3.
        let p = 0.7f64;
        let mean: f64 = (0..1u32 << 6)
            .map(|outcome| {
                let c = outcome.count_ones() as usize;
                p.powi(c as i32) * (1.0 - p).powi(6 - c as i32) * pass_hat_k(6, c, 3)
            })
            .sum();
        assert!((mean - p.powi(3)).abs() < 1e-12, "{mean}");
    }

    #[test]
    fn equals_exact_rational_arithmetic_for_every_k_and_c() {
        for n in [1u128, 2, 3, 7, 16, 40, 100] {
            for k in 1..=n {
                let (all, table) = (binomial(n, k), pass_at_k_table(n as usize, k as usize));
                for c in 0..=n {
                    // One rounding each: numerator, denominator, quotient.
                    let expected = (all - binomial(n - c, k)) as f64 / all as f64;
                    let direct = pass_at_k(n as usize, c as usize, k as usize);
                    for value in [direct, table[c as usize]] {
                        assert!(
                            (value - expected).abs() <= 4e-15 * expected,
                            "{n} {c} {k}: {value}, {expected}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn no_correct_sample_gives_zero_and_not_minus_zero() {
        for (n, k) in [(1, 1), (8, 1), (8, 3), (8, 8)] {
            for value in [pass_at_k(n, 0, k), pass_at_k_table(n, k)[0]] {
                assert_eq!(value.to_bits(), 0.0f64.to_bits(), "n {n}, k {k}: {value}");
            }
        }
    }

    #[test]
    fn keeps_its_digits_with_a_million_samples() {
        let n = 1_000_000u128;
        for k in 1..=5u32 {
            let table = pass_at_k_table(n as usize, k as usize);
            for c in [1u128, 2, 10, 1_000, 500_000, 999_990] {
                let falling = |m: u128| (0..u128::from(k)).map(|i| m - i).product::<u128>();
                let (all, wrong) = (falling(n), falling(n - c));
                let expected = (all - wrong) as f64 / all as f64;
                for value in [pass_at_k(n as usize, c as usize, k as usize), table[c as usize]] {
                    assert!(
                        (value - expected).abs() <= 1e-13 * expected,
                        "c {c}, k {k}: {value}, {expected}"
                    );
                }
            }
        }
        // One correct sample: pass@k is k / n whatever k.
        for k in [1usize, 1_000, 999_999, 1_000_000] {
            assert!((pass_at_k(1_000_000, 1, k) - k as f64 / 1e6).abs() <= 1e-13);
        }
    }

    #[test]
    fn table_and_direct_form_agree_at_sizes_beyond_rational_arithmetic() {
        for (n, k) in [(1024usize, 256usize), (2048, 1024), (100_000, 777)] {
            let table = pass_at_k_table(n, k);
            for c in [0, 1, 3, 17, n / 10, n / 2, n - k, n - k + 1, n] {
                let direct = pass_at_k(n, c, k);
                assert!((table[c] - direct).abs() <= 1e-12 * direct, "n {n}, c {c}, k {k}");
            }
        }
    }

    #[test]
    fn ks_are_powers_of_two_and_the_number_of_samples() {
        assert_eq!(powers_of_two_up_to(8), [1, 2, 4, 8]);
        assert_eq!(powers_of_two_up_to(12), [1, 2, 4, 8, 12]);
        assert!(powers_of_two_up_to(0).is_empty());
    }

    #[test]
    #[should_panic(expected = "pass@9 from 8 samples")]
    fn k_above_n_is_a_bug() {
        pass_at_k(8, 1, 9);
    }

    proptest! {
        #[test]
        fn rises_with_k_and_with_c(n in 1usize..300, c in 0usize..300, k in 1usize..300) {
            let (c, k) = (c.min(n), k.min(n));
            let here = pass_at_k(n, c, k);
            prop_assert!((0.0..=1.0).contains(&here));
            if c < n { prop_assert!(pass_at_k(n, c + 1, k) >= here - 1e-15); }
            if k < n { prop_assert!(pass_at_k(n, c, k + 1) >= here - 1e-15); }
            prop_assert!((pass_at_k(n, c, 1) - c as f64 / n as f64).abs() < 1e-14);
        }
    }
}
