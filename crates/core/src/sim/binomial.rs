//! Binomial draws, exact in distribution, in bounded time for any number of trials.

use crate::rng::Stream;

/// Draws the number of successes in `n` trials with probability `p`, which is clamped to `[0, 1]`.
///
/// Uses inversion for means below 12, and otherwise transformed rejection with squeeze (algorithm BTRS: Hörmann, "The
/// generation of binomial random variates", 1993).
pub(super) fn binomial(n: u64, p: f64, stream: &mut Stream) -> u64 {
    if n == 0 || p <= 0.0 {
        0
    } else if p >= 1.0 {
        n
    } else if p > 0.5 {
        n - below_half(n, 1.0 - p, stream)
    } else {
        below_half(n, p, stream)
    }
}

fn below_half(n: u64, p: f64, stream: &mut Stream) -> u64 {
    if n as f64 * p < 12.0 { by_inversion(n, p, stream) } else { by_rejection(n, p, stream) }
}

fn by_inversion(n: u64, p: f64, stream: &mut Stream) -> u64 {
    let odds = p / (1.0 - p);
    let none = (n as f64 * (-p).ln_1p()).exp();
    let mut u = stream.uniform();
    let (mut k, mut chance) = (0, none);
    while u >= chance {
        u -= chance;
        k += 1;
        chance *= odds * ((n - k + 1) as f64 / k as f64);
        // Because of rounding, the terms may add up to less than 1. Beyond their sum, draw again.
        if k == n && u >= chance || chance == 0.0 {
            u = stream.uniform();
            (k, chance) = (0, none);
        }
    }
    k
}

fn by_rejection(n: u64, p: f64, stream: &mut Stream) -> u64 {
    let (trials, q) = (n as f64, 1.0 - p);
    let spread = (trials * p * q).sqrt();
    let b = 1.15 + 2.53 * spread;
    let a = -0.0873 + 0.0248 * b + 0.01 * p;
    let centre = trials * p + 0.5;
    let squeeze = 0.92 - 4.2 / b;
    let mode = ((trials + 1.0) * p).floor();
    loop {
        let u = stream.uniform() - 0.5;
        let v = stream.uniform();
        let us = 0.5 - u.abs();
        let k = ((2.0 * a / us + b) * u + centre).floor();
        if us >= 0.07 && v <= squeeze {
            return k as u64;
        }
        // Negated so that a NaN (us = 0) is rejected too.
        if !(0.0..=trials).contains(&k) {
            continue;
        }
        let alpha = (2.83 + 5.1 / b) * spread;
        if (v * alpha / (a / (us * us) + b)).ln() <= ln_ratio(trials, p / q, k, mode) {
            return k as u64;
        }
    }
}

/// Returns `ln(P(k) / P(mode))` for `odds = p / (1 - p)`. It is computed from ratios near 1, so it stays accurate for a
/// billion trials.
fn ln_ratio(n: f64, odds: f64, k: f64, mode: f64) -> f64 {
    let far = k - mode;
    (mode + 0.5) * (-far / (k + 1.0)).ln_1p()
        + (n - mode + 0.5) * (far / (n - k + 1.0)).ln_1p()
        + far * (odds * (n - k + 1.0) / (k + 1.0)).ln()
        + stirling_rest(mode)
        + stirling_rest(n - mode)
        - stirling_rest(k)
        - stirling_rest(n - k)
}

/// Returns the remainder of Stirling's approximation: `ln k! - (ln sqrt(2 pi) + (k + 1/2) ln(k + 1) - (k + 1))`.
fn stirling_rest(k: f64) -> f64 {
    let y = k + 1.0;
    if y < 16.0 {
        let factorial: f64 = (1..=k as u32).map(f64::from).product();
        return factorial.ln() - (0.5 * std::f64::consts::TAU.ln() + (k + 0.5) * y.ln() - y);
    }
    let x = 1.0 / (y * y);
    (1.0 / 12.0 - x * (1.0 / 360.0 - x * (1.0 / 1260.0 - x / 1680.0))) / y
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Key;

    /// Returns the exact probabilities of 0..=n by recurrence from the mode, normalised.
    fn chances(n: usize, p: f64) -> Vec<f64> {
        let mode = ((n + 1) as f64 * p).floor().min(n as f64) as usize;
        let mut chance = vec![0.0; n + 1];
        chance[mode] = 1.0;
        let odds = p / (1.0 - p);
        for k in mode + 1..=n {
            chance[k] = chance[k - 1] * odds * (n - k + 1) as f64 / k as f64;
        }
        for k in (0..mode).rev() {
            chance[k] = chance[k + 1] / odds * (k + 1) as f64 / (n - k) as f64;
        }
        let total: f64 = chance.iter().sum();
        chance.iter().map(|c| c / total).collect()
    }

    #[test]
    fn counts_follow_the_binomial_law() {
        let draws = 200_000;
        for (case, (n, p)) in [
            (1, 0.3),
            (7, 0.5),
            (40, 0.02),
            (100, 0.119),
            (100, 0.13),
            (60, 0.4),
            (1_000, 0.9),
            (5_000, 0.31),
        ]
        .into_iter()
        .enumerate()
        {
            let mut stream = Key::new(11).with(case as u64).stream();
            let mut seen = vec![0.0; n as usize + 1];
            for _ in 0..draws {
                seen[binomial(n, p, &mut stream) as usize] += 1.0;
            }
            // Chi-square over cells of at least 10 expected counts, neighbours pooled.
            let (mut chi, mut cells, mut expected, mut observed) = (0.0, -1.0, 0.0, 0.0);
            for (seen, chance) in seen.iter().zip(chances(n as usize, p)) {
                (expected, observed) = (expected + chance * f64::from(draws), observed + seen);
                if expected > 10.0 {
                    chi += (observed - expected) * (observed - expected) / expected;
                    cells += 1.0;
                    (expected, observed) = (0.0, 0.0);
                }
            }
            // Wilson-Hilferty: chi-square at 4.5 standard deviations.
            let f = 2.0 / (9.0 * cells);
            let bound = cells * (1.0f64 - f + 4.5 * f64::sqrt(f)).powi(3);
            assert!(
                chi < bound.max(22.0),
                "n {n}, p {p}: chi-square {chi} over {cells} cells, bound {bound}"
            );
        }
    }

    #[test]
    fn a_billion_trials_have_the_right_mean_and_variance() {
        let mut stream = Key::new(3).stream();
        let (n, p, draws) = (1_000_000_000u64, 0.37, 40_000);
        let (mean, sd) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt());
        let z: Vec<f64> = (0..draws).map(|_| (binomial(n, p, &mut stream) as f64 - mean) / sd).collect();
        let first = z.iter().sum::<f64>() / f64::from(draws);
        let second = z.iter().map(|z| z * z).sum::<f64>() / f64::from(draws);
        let fourth = z.iter().map(|z| z.powi(4)).sum::<f64>() / f64::from(draws);
        assert!(first.abs() < 0.025 && (second - 1.0).abs() < 0.035 && (fourth - 3.0).abs() < 0.25);
    }

    #[test]
    fn chances_of_zero_and_one_are_certain() {
        let mut stream = Key::new(3).stream();
        assert_eq!(binomial(9, 0.0, &mut stream), 0);
        assert_eq!(binomial(9, 1.0, &mut stream), 9);
        assert_eq!(binomial(0, 0.5, &mut stream), 0);
    }

    #[test]
    fn stirlings_rest_continues_its_table_smoothly() {
        for k in [15.0, 16.0, 30.0, 100.0] {
            let exact: f64 = (1..=k as u32).map(|i| f64::from(i).ln()).sum();
            let y: f64 = k + 1.0;
            let expected = exact - (0.5 * std::f64::consts::TAU.ln() + (k + 0.5) * y.ln() - y);
            assert!((stirling_rest(k) - expected).abs() < 1e-12, "k = {k}");
        }
    }
}
