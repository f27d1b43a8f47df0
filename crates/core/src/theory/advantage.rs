//! Computes the size of focal-weighted advantages by success rate, and the learning-rate multiplier with the same average
//! effect.

use super::{Error, exponent, group_size, probability, require};
use crate::focal::focal_weight;

/// The advantages of a correct and of a wrong completion at a given success rate, including the focal weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaledAdvantage {
    /// Advantage of a correct completion, at least 0.
    pub correct: f64,
    /// Advantage of a wrong completion, at most 0.
    pub wrong: f64,
    /// Focal weight `(1 - success_rate)^gamma`, which both advantages include.
    pub weight: f64,
}

/// Returns the focal-weighted advantages in the population: `(1-mu)^gamma sqrt((1-mu)/mu)` for correct completions,
/// minus `(1-mu)^gamma sqrt(mu/(1-mu))` for wrong ones.
///
/// A success rate of 0 or 1 gives advantages of 0, because all rewards are equal.
///
/// Source: F-GRPO, appendix "Focal Weight Visualization".
/// Fails if `success_rate` is not a probability, or `gamma` is negative or not finite.
pub fn population_advantage(success_rate: f64, gamma: f64) -> Result<ScaledAdvantage, Error> {
    let mu = probability("success_rate", success_rate)?;
    let weight = focal_weight(mu, exponent(gamma)?);
    if mu == 0.0 || mu == 1.0 {
        return Ok(ScaledAdvantage { correct: 0.0, wrong: 0.0, weight });
    }
    let odds = ((1.0 - mu) / mu).sqrt();
    Ok(ScaledAdvantage { correct: weight * odds, wrong: -weight / odds, weight })
}

/// Returns the focal-weighted advantages of a group of `n`, as the trainer computes them: rewards 1 and 0, sample
/// standard deviation (`ddof = 1`) plus 1e-6.
///
/// `success_rate` must be a multiple of `1/n`. Groups with equal rewards get 0, and so does a group of one.
/// Fails as [`population_advantage`] does, if `n` is 0, or if a group of `n` can't have this success rate.
pub fn group_advantage(success_rate: f64, n: u64, gamma: f64) -> Result<ScaledAdvantage, Error> {
    let rate = probability("success_rate", success_rate)?;
    exponent(gamma)?;
    let size = group_size(n)? as f64;
    let correct = (rate * size).round();
    let expected = format_args!("a multiple of 1/{n} for a group of {n}");
    require((rate * size - correct).abs() <= 1e-6, "success_rate", rate, expected)?;
    let mean = correct / size;
    let weight = focal_weight(mean, gamma);
    if correct == 0.0 || correct == size {
        return Ok(ScaledAdvantage { correct: 0.0, wrong: 0.0, weight });
    }
    let deviation = (mean * (1.0 - mean) * size / (size - 1.0)).sqrt();
    let scale = weight / (deviation + 1e-6);
    Ok(ScaledAdvantage { correct: scale * (1.0 - mean), wrong: -scale * mean, weight })
}

/// Returns the learning-rate multiplier of the low-LR control, which is the factor by which the focal weight reduces the
/// advantage magnitude `sqrt(mu (1-mu))`, averaged over success rates:
/// `m_gamma = (4/sqrt(pi)) Gamma(gamma + 3/2) / Gamma(gamma + 3)`.
///
/// `gamma = 0` gives 1, 0.5 gives 0.679, 1 gives 1/2.
///
/// Source: F-GRPO, appendix "Regularization and Update-Scale Controls".
/// Fails if `gamma` is negative or not finite.
pub fn low_lr_multiplier(gamma: f64) -> Result<f64, Error> {
    // Gamma(a) / Gamma(b) = (b/a) Gamma(a+1) / Gamma(b+1) until Stirling's series converges.
    let (mut a, mut b) = (exponent(gamma)? + 1.5, gamma + 3.0);
    let mut ratio = 4.0 / std::f64::consts::PI.sqrt();
    while a < 20.0 {
        ratio *= b / a;
        (a, b) = (a + 1.0, b + 1.0);
    }
    // ln Gamma(a) - ln Gamma(b) with b = a + 3/2, without cancellation of large terms.
    let series = |x: f64| {
        let y = 1.0 / (x * x);
        (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y * (1.0 / 1680.0 - y / 1188.0)))) / x
    };
    let ln = (a - 0.5) * (-1.5 / b).ln_1p() + 1.5 + series(a) - series(b);
    Ok(ratio * ln.exp() / (b * b.sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn low_lr_multiplier_matches_closed_forms() {
        // Gamma at halves and integers: m_0 = 1, m_1/2 = 32/(15 pi), m_1 = 1/2, m_3/2 = 128/(105 pi), m_2 = 5/16.
        let pi = std::f64::consts::PI;
        for (gamma, expected) in
            [(0.0, 1.0), (0.5, 32.0 / (15.0 * pi)), (1.0, 0.5), (1.5, 128.0 / (105.0 * pi)), (2.0, 0.3125)]
        {
            let multiplier = low_lr_multiplier(gamma).unwrap();
            assert!(
                (multiplier - expected).abs() < 4e-15 * expected,
                "m_{gamma}: {multiplier} instead of {expected}"
            );
        }
        // The paper: 1e-6 becomes 6.8e-7.
        assert_eq!(format!("{:.1e}", 1e-6 * low_lr_multiplier(0.5).unwrap()), "6.8e-7");
    }

    #[test]
    fn low_lr_multiplier_equals_the_ratio_of_integrals() {
        // mu = sin^2(t) makes the integrand smooth and periodic, so the plain sum converges fast.
        let integral = |gamma: f64| {
            let steps = 20_000;
            (0..steps)
                .map(|i| {
                    let t = (f64::from(i) + 0.5) / f64::from(steps) * std::f64::consts::FRAC_PI_2;
                    (t.sin() * t.cos()).powi(2) * t.cos().powf(2.0 * gamma)
                })
                .sum::<f64>()
        };
        for gamma in [0.0, 0.1, 0.5, 0.77, 1.0, 2.0, 5.0, 19.3, 100.0] {
            let (multiplier, expected) = (low_lr_multiplier(gamma).unwrap(), integral(gamma) / integral(0.0));
            assert!(
                (multiplier - expected).abs() < 1e-11 * expected,
                "m_{gamma}: {multiplier} instead of {expected}"
            );
        }
    }

    #[test]
    fn population_advantages_match_values_worked_by_hand() {
        let advantage = population_advantage(0.2, 1.0).unwrap();
        assert!((advantage.correct - 1.6).abs() < 1e-15 && (advantage.wrong + 0.4).abs() < 1e-15);
        assert_eq!(advantage.weight, 0.8);
        for rate in [0.0, 1.0] {
            let advantage = population_advantage(rate, 0.5).unwrap();
            assert_eq!((advantage.correct, advantage.wrong), (0.0, 0.0));
        }
    }

    #[test]
    fn bad_arguments_are_refused() {
        for (rate, gamma) in [(-0.1, 0.0), (1.1, 0.0), (f64::NAN, 0.0), (0.5, -1.0), (0.5, f64::NAN)] {
            assert!(population_advantage(rate, gamma).is_err());
            assert!(group_advantage(rate, 4, gamma).is_err());
        }
        let message = |rate, n| group_advantage(rate, n, 0.0).unwrap_err().to_string();
        assert_eq!(message(0.3, 4), "success_rate: expected a multiple of 1/4 for a group of 4, found 0.3");
        assert_eq!(message(0.5, 0), "n: expected a group size of at least 1, found 0");
        assert!(low_lr_multiplier(-0.5).is_err() && low_lr_multiplier(f64::INFINITY).is_err());
    }

    #[test]
    fn a_groups_advantages_add_up_to_zero_and_approach_the_populations() {
        for gamma in [0.0, 0.5, 2.0] {
            let advantage = group_advantage(0.25, 8, gamma).unwrap();
            assert!((2.0 * advantage.correct + 6.0 * advantage.wrong).abs() < 1e-14);
            let (large, limit) = (group_advantage(0.25, 1 << 40, gamma), population_advantage(0.25, gamma));
            assert!((large.unwrap().correct - limit.unwrap().correct).abs() < 1e-5);
        }
    }

    proptest! {
        #[test]
        fn gamma_zero_leaves_advantages_alone_and_more_gamma_shrinks_them(rate in 0.001..0.999f64, gamma in 0.0..5.0f64) {
            let plain = population_advantage(rate, 0.0).unwrap();
            prop_assert_eq!(plain.weight, 1.0);
            let scaled = population_advantage(rate, gamma).unwrap();
            prop_assert!(scaled.correct <= plain.correct && scaled.wrong >= plain.wrong);
            // The paper's magnitude: the mean absolute advantage is 2 sqrt(mu (1-mu)) times the weight.
            let mean = rate * scaled.correct - (1.0 - rate) * scaled.wrong;
            prop_assert!((mean - 2.0 * scaled.weight * (rate * (1.0 - rate)).sqrt()).abs() < 1e-12);
        }
    }
}
