//! Probabilities that a group is active, and that it is active and misses a rare subset of the correct completions.
//!
//! A completion is correct with probability `mu`, and belongs to a target subset of the correct completions with
//! probability `tau <= mu`. A group of `n` is active if it has both correct and wrong completions. It has a tail miss if it
//! is active but lacks completions of the target subset.
//!
//! The differences of powers in the paper cancel for small probabilities and lose all digits at `tau = 1e-12`. This
//! module computes both probabilities without cancellation:
//!
//! `active(mu, n) = (1 - (1 - s)^n) - s^n` with `s = min(mu, 1 - mu)`, where the first part uses `exp_m1`; for `n >= 2`
//! the second part is at most a third of the first. And `tail_miss = (1 - tau)^n active(r, n)` with `r = (mu - tau) /
//! (1 - tau)`: given that the target was missed, a completion is correct with probability `r`.

use super::{Error, group_size, probability, require};

/// Returns the probability that a group of `n` has both correct and wrong completions, `1 - mu^n - (1 - mu)^n`.
///
/// `mu` is the probability of a correct completion. Exact to a few units in the last place relative to
/// the result, for every `mu` and any `n`.
///
/// Source: F-GRPO, section "Tail-miss probability and the group size trade-off", the active event.
/// Fails if `mu` is not a probability or `n` is 0.
pub fn active_probability(mu: f64, n: u64) -> Result<f64, Error> {
    probability("mu", mu)?;
    group_size(n)?;
    Ok(active(mu, 1.0 - mu, n))
}

/// Returns the probability that `n` samples are neither all correct nor all wrong. `correct` and `wrong` add up to 1.
fn active(correct: f64, wrong: f64, n: u64) -> f64 {
    if n == 1 {
        return 0.0;
    }
    let s = correct.min(wrong);
    let n = n as f64;
    -(n * (-s).ln_1p()).exp_m1() - s.powf(n)
}

/// Returns the probability that a group of `n` is active but samples nothing of a target subset of the correct completions,
/// `(1 - tau)^n - (mu - tau)^n - (1 - mu)^n`.
///
/// `mu` is the probability of a correct completion, `tau` the probability of the target subset. `tau = 0` gives the active
/// probability; `tau = mu` gives 0.
///
/// Source: F-GRPO, lemma of section "Tail-miss probability and the group size trade-off".
/// Fails if `mu` or `tau` is not a probability, `tau > mu`, or `n` is 0.
pub fn tail_miss_probability(mu: f64, tau: f64, n: u64) -> Result<f64, Error> {
    check(mu, tau)?;
    group_size(n)?;
    if tau == 1.0 {
        return Ok(0.0);
    }
    let (correct, wrong) = without_target(mu, tau);
    Ok((n as f64 * (-tau).ln_1p()).exp() * active(correct, wrong, n))
}

fn check(mu: f64, tau: f64) -> Result<(), Error> {
    probability("mu", mu)?;
    probability("tau", tau)?;
    let expected = format_args!("at most mu = {mu} (the rare subset is a part of the correct set)");
    require(tau <= mu, "tau", tau, expected)
}

/// Returns the probabilities of a correct and of a wrong completion, given that it is outside the target subset.
fn without_target(mu: f64, tau: f64) -> (f64, f64) {
    let outside = 1.0 - tau;
    ((mu - tau) / outside, (1.0 - mu) / outside)
}

/// The group size at which a tail miss is most likely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    /// The group size, or the smaller one if two have the same probability.
    pub n: u64,
    /// Tail-miss probability at this group size.
    pub tail_miss: f64,
}

/// Maximises [`tail_miss_probability`] over the group size, exactly over the integers.
///
/// The step from `n` to `n + 1` has the sign of `(1 - mu + tau) r^n + mu (1 - r)^n - tau`, which decreases with `n`. So the
/// peak is the first `n` at which this expression isn't positive, found by doubling and bisection.
///
/// Source: F-GRPO, appendix figure of the conditional tail-miss probability (the stars).
/// Fails if `mu` or `tau` isn't a probability, if `tau > mu`, if a peak doesn't exist (`tau = 0`, `tau = mu` or
/// `mu = 1`), or if the peak is beyond `2^53`.
pub fn peak(mu: f64, tau: f64) -> Result<Peak, Error> {
    check(mu, tau)?;
    let expected =
        format_args!("0 < tau < mu < 1 with mu = {mu} (otherwise the tail-miss probability has no peak)");
    require(tau != 0.0 && tau != mu && mu != 1.0, "tau", tau, expected)?;
    let (correct, wrong) = without_target(mu, tau);
    // The logarithm of a probability near 1 is accurate only if it is computed from the complement.
    let ln = |p: f64, complement: f64| if p > 0.5 { (-complement).ln_1p() } else { p.ln() };
    let (ln_correct, ln_wrong) = (ln(correct, wrong), ln(wrong, correct));
    let rises = |n: u64| {
        let n = n as f64;
        (1.0 - mu + tau) * (n * ln_correct).exp() + mu * (n * ln_wrong).exp() > tau
    };
    let mut low = 1;
    if !rises(low) {
        return Ok(Peak { n: 1, tail_miss: 0.0 });
    }
    let mut high = 2;
    while rises(high) {
        let expected =
            format_args!("a larger value with mu = {mu} (the peak lies beyond a group size of 2^53)");
        require(high < 1 << 53, "tau", tau, expected)?;
        (low, high) = (high, high * 2);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if rises(middle) { low = middle } else { high = middle }
    }
    Ok(Peak { n: high, tail_miss: tail_miss_probability(mu, tau, high)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(actual: f64, expected: f64, relative: f64) {
        let error = (actual - expected).abs() / expected.abs();
        assert!(error <= relative, "{actual:e} instead of {expected:e}, relative error {error:e}");
    }

    /// Computes (active, tail miss) by enumerating every sequence of n completions, each in one of the three regions:
    /// target, other correct, wrong.
    fn by_enumeration(mu: f64, tau: f64, n: u32) -> (f64, f64) {
        let chance = [tau, mu - tau, 1.0 - mu];
        let (mut active, mut miss) = (0.0, 0.0);
        for code in 0..3usize.pow(n) {
            let regions: Vec<usize> = (0..n).map(|i| code / 3usize.pow(i) % 3).collect();
            let p: f64 = regions.iter().map(|&r| chance[r]).product();
            let correct = regions.iter().filter(|&&r| r != 2).count() as u32;
            if correct > 0 && correct < n {
                active += p;
                if !regions.contains(&0) {
                    miss += p;
                }
            }
        }
        (active, miss)
    }

    #[test]
    fn probabilities_equal_the_sum_over_all_samples() {
        for (mu, tau) in [(0.5, 0.25), (0.64, 0.01), (0.9, 0.9), (0.3, 0.0), (1.0, 0.2), (0.0, 0.0)] {
            for n in 1..=9 {
                let (active, miss) = by_enumeration(mu, tau, n);
                let probability = active_probability(mu, n.into()).unwrap();
                assert!(
                    (probability - active).abs() < 1e-12,
                    "active({mu}, {n}): {probability} against {active}"
                );
                let probability = tail_miss_probability(mu, tau, n.into()).unwrap();
                assert!(
                    (probability - miss).abs() < 1e-12,
                    "tail_miss({mu}, {tau}, {n}): {probability} against {miss}"
                );
            }
        }
    }

    #[test]
    fn values_match_a_hundred_digit_computation() {
        for (mu, tau, n, expected) in GOLDEN {
            close(tail_miss_probability(mu, tau, n).unwrap(), expected, 5e-15);
        }
    }

    // Written by peers/tail_miss_golden.py: Python's decimal module at 100 digits. (mu, tau, n, tail miss)
    const GOLDEN: [(f64, f64, u64, f64); 15] = [
        (0.64, 6.3e-05, 2, 0.46075464),
        (0.64, 6.3e-05, 1_024, 0.9375229586475693),
        (0.64, 6.3e-05, 131_072, 0.0002592296723681254),
        (0.5, 1e-12, 1_000_000_000, 0.9990004998333745),
        (0.5, 1e-12, 2, 0.499999999999),
        (1e-12, 1e-15, 2, 1.997999999998002e-12),
        (1e-12, 5e-13, 1_000_000_000, 0.0004996251457946534),
        (0.999999999999, 1e-12, 2, 1.9999557565557572e-12),
        (0.999999999999, 0.001, 1_000, 3.6805534587772545e-10),
        (0.8, 0.0008, 7, 0.7861490318078254),
        (0.2, 1e-09, 1_000_000_000, 0.3678794409875026),
        (1e-09, 1e-12, 3, 2.996999997000003e-09),
        (0.3, 0.29999999, 5, 1.2005000336681103e-08),
        (0.9999999, 1e-08, 100_000_000, 0.3678627376412715),
        (0.9999999999999999, 1e-12, 1_000_000_000, 1.1091132949600044e-07),
    ];

    #[test]
    fn a_group_of_one_is_never_active_and_an_active_group_never_misses_the_whole_correct_set() {
        assert_eq!(active_probability(0.3, 1).unwrap(), 0.0);
        for (mu, tau, n) in [(0.3, 1e-9, 1), (0.4, 0.4, 10), (1.0, 1.0, 10)] {
            assert_eq!(tail_miss_probability(mu, tau, n).unwrap(), 0.0);
        }
    }

    #[test]
    fn bad_arguments_are_refused_by_name() {
        let text = |r: Result<f64, Error>| r.unwrap_err().to_string();
        assert_eq!(text(active_probability(1.5, 2)), "mu: expected a probability in [0, 1], found 1.5");
        for (result, prefix) in [
            (active_probability(f64::NAN, 2), "mu: "),
            (active_probability(0.5, 0), "n: "),
            (tail_miss_probability(0.5, -0.1, 2), "tau: "),
            (tail_miss_probability(0.5, 0.6, 2), "tau: expected at most mu = 0.5"),
        ] {
            assert!(text(result).starts_with(prefix));
        }
        for (mu, tau) in [(0.5, 0.0), (0.5, 0.5), (1.0, 0.5)] {
            assert!(peak(mu, tau).unwrap_err().to_string().contains("has no peak"), "{mu} {tau}");
        }
        assert!(peak(1e-40, 1e-41).unwrap_err().to_string().contains("beyond a group size"));
    }

    #[test]
    fn peak_equals_a_search_over_every_group_size() {
        for mu in [0.05, 0.2, 0.5, 0.8, 0.99] {
            for rho in [0.9, 0.5, 0.1, 0.01] {
                let tau = mu * rho;
                let value = |n| tail_miss_probability(mu, tau, n).unwrap();
                let best = (1..=5_000).fold(1, |best, n| if value(n) > value(best) { n } else { best });
                let peak = peak(mu, tau).unwrap();
                assert_eq!(peak, Peak { n: best, tail_miss: value(best) }, "mu {mu}, tau {tau}");
            }
        }
    }

    #[test]
    fn a_smaller_rare_fraction_moves_the_peak_right_and_up() {
        for mu in [0.8, 0.5, 0.2] {
            let peaks = [0.3, 0.1, 0.01, 1e-3, 1e-6].map(|rho| peak(mu, mu * rho).unwrap());
            let rises = |w: &[Peak]| w[0].n < w[1].n && w[0].tail_miss < w[1].tail_miss;
            assert!(peaks.windows(2).all(rises), "{peaks:?}");
        }
    }

    proptest! {
        #[test]
        fn tail_miss_rises_to_its_peak_and_falls_after_it(mu in 1e-4..0.9999f64, rho in 1e-6..0.99f64) {
            let tau = mu * rho;
            let top = peak(mu, tau).unwrap();
            let value = |n: u64| tail_miss_probability(mu, tau, n).unwrap();
            for n in [2, top.n / 3, top.n / 2, top.n.saturating_sub(2)] {
                if (2..top.n).contains(&n) {
                    prop_assert!(value(n) <= value(n + 1) * (1.0 + 1e-13));
                }
            }
            for n in [top.n, top.n + 1, top.n * 2, top.n * 10] {
                prop_assert!(value(n) * (1.0 + 1e-13) >= value(n + 1));
            }
        }

        #[test]
        fn tail_miss_lies_between_zero_and_active(mu in 0.0..=1.0f64, rho in 0.0..=1.0f64, n in 1u64..1_000_000) {
            let p = tail_miss_probability(mu, mu * rho, n).unwrap();
            let active = active_probability(mu, n).unwrap();
            prop_assert!((0.0..=1.0).contains(&active));
            prop_assert!(p >= 0.0 && p <= active * (1.0 + 1e-13), "{p} against {active}");
        }

        #[test]
        fn active_probability_rises_with_the_group_and_is_symmetric(mu in 0.0..=1.0f64, n in 1u64..100_000) {
            let p = active_probability(mu, n).unwrap();
            prop_assert!(p <= active_probability(mu, n + 1).unwrap() * (1.0 + 1e-13));
            prop_assert!((p - active_probability(1.0 - mu, n).unwrap()).abs() <= 1e-10 * p);
        }
    }
}
