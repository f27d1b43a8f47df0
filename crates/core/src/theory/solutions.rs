//! Mass that a policy keeps on each correct completion of a problem whose correct completions can all be listed.
//!
//! The paper measures these quantities in a categorical simulation. They are exact for any policy that gives the
//! log-probability of each correct completion, so pass@k needs no samples and no estimator.
//!
//! Source: F-GRPO, appendix "Categorical Simulation", equation "retained mass".

use super::tail_miss::tail_miss_probability;
use super::{Error, require};

/// Probability of each correct completion of one problem.
#[derive(Debug, Clone, PartialEq)]
pub struct Solutions {
    probabilities: Vec<f64>,
}

/// Largest amount by which the probabilities may add up to more than 1, because the log-probabilities are rounded.
const ROUNDING: f64 = 1e-3;

impl Solutions {
    /// Creates the set of correct completions with these log-probabilities.
    ///
    /// Returns an error if the list is empty, or if an entry isn't the logarithm of a probability. Log-probabilities are
    /// rounded, so their probabilities may add up to slightly more than 1.
    pub fn new(logp: impl IntoIterator<Item = f64>) -> Result<Self, Error> {
        let probabilities: Vec<f64> = logp.into_iter().map(f64::exp).collect();
        require(!probabilities.is_empty(), "logp", "an empty list", "one value for each correct completion")?;
        let sum: f64 = probabilities.iter().sum();
        let holds = probabilities.iter().all(|p| p.is_finite()) && sum <= 1.0 + ROUNDING;
        require(holds, "logp", format_args!("probabilities that add up to {sum}"), "at most 1")?;
        Ok(Self { probabilities })
    }

    /// Returns the number of correct completions.
    pub fn count(&self) -> usize {
        self.probabilities.len()
    }

    /// Returns the mass on all correct completions, `Q_pos`: the probability that a sample is correct.
    pub fn mass(&self) -> f64 {
        self.probabilities.iter().sum::<f64>().min(1.0)
    }

    /// Returns the expected mass of the correct completions that a group of `n` doesn't sample, the mean of `Q_u,pos`.
    pub fn unsampled_mass(&self, n: u64) -> f64 {
        self.probabilities.iter().map(|&p| p * (n as f64 * (-p.min(1.0)).ln_1p()).exp()).sum()
    }

    /// Returns the probability that a group of `n` is active and leaves out a given correct completion, averaged over the
    /// correct completions.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn tail_miss(&self, n: u64) -> f64 {
        let miss =
            |&p: &f64| tail_miss_probability(self.mass(), p.min(self.mass()), n).expect("probabilities");
        self.probabilities.iter().map(miss).sum::<f64>() / self.count() as f64
    }

    /// Returns the retained mass `M_ret`: fraction of the initial probability of the correct completions that hasn't been lost,
    /// in `[0, 1]`. It is 1 if every completion has at least its initial probability, and if all initial probabilities are 0.
    ///
    /// # Panics
    /// If `start` has another number of completions.
    pub fn retained(&self, start: &Self) -> f64 {
        let lost: f64 = self.pairs(start).map(|(now, then)| (then - now).max(0.0)).sum();
        let initial: f64 = start.probabilities.iter().sum();
        if initial > 0.0 { 1.0 - lost / initial } else { 1.0 }
    }

    /// Returns the fraction of the correct completions with less than `fraction` of their probability at the start.
    ///
    /// # Panics
    /// If `start` has another number of completions.
    pub fn share_below(&self, start: &Self, fraction: f64) -> f64 {
        let below = self.pairs(start).filter(|(now, then)| *now < then * fraction).count();
        below as f64 / self.count() as f64
    }

    /// Returns the effective number of correct completions, the exponential of the entropy of their distribution: 1 if
    /// one has all the mass, and [`Solutions::count`] if all have the same mass. `None` if their mass is 0.
    pub fn effective(&self) -> Option<f64> {
        let total: f64 = self.probabilities.iter().sum();
        let share = |p: &f64| p / total;
        let entropy = self.probabilities.iter().map(share).filter(|&s| s > 0.0).map(|s| -s * s.ln());
        (total > 0.0).then(|| entropy.sum::<f64>().exp())
    }

    /// Returns the probability that at least one of `k` samples is correct, `1 - (1 - Q_pos)^k`. Accurate for small masses too.
    pub fn pass_at_k(&self, k: u64) -> f64 {
        -(k as f64 * (-self.mass()).ln_1p()).exp_m1()
    }

    fn pairs<'a>(&'a self, start: &'a Self) -> impl Iterator<Item = (f64, f64)> + 'a {
        assert_eq!(self.count(), start.count(), "the same correct completions");
        self.probabilities.iter().copied().zip(start.probabilities.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solutions(probabilities: &[f64]) -> Solutions {
        Solutions::new(probabilities.iter().map(|p| p.ln())).unwrap()
    }

    fn close(actual: f64, expected: f64) {
        assert!((actual - expected).abs() < 1e-12, "{actual} instead of {expected}");
    }

    #[test]
    fn quantities_have_the_values_worked_by_hand() {
        let (start, now) = (solutions(&[0.2, 0.1, 0.1]), solutions(&[0.5, 0.05, 0.009]));
        close(now.mass(), 0.559);
        // 0.05 and 0.091 of 0.4 are lost.
        close(now.retained(&start), 1.0 - 0.141 / 0.4);
        close(now.share_below(&start, 0.1), 1.0 / 3.0);
        close(now.unsampled_mass(2), 0.5 * 0.25 + 0.05 * 0.95 * 0.95 + 0.009 * 0.991 * 0.991);
        close(now.unsampled_mass(0), now.mass());
        close(solutions(&[1.0]).unsampled_mass(8), 0.0);
        close(solutions(&[0.25; 2]).tail_miss(2), 0.75 * 0.75 - 0.25 * 0.25 - 0.25);
        close(now.pass_at_k(2), 1.0 - 0.441 * 0.441);
        close(now.pass_at_k(0), 0.0);
        close(solutions(&[0.25; 4]).effective().unwrap(), 4.0);
        close(solutions(&[0.25; 4]).pass_at_k(3), 1.0);
        close(start.effective().unwrap(), (0.5f64 * 2f64.ln() + 0.5 * 4f64.ln()).exp());
    }

    #[test]
    fn nothing_is_lost_where_no_completion_has_less_mass() {
        let start = solutions(&[0.2, 0.1]);
        close(start.retained(&start), 1.0);
        close(solutions(&[0.3, 0.1]).retained(&start), 1.0);
        // The mass on the correct set grows, while half of what was there is gone.
        let concentrated = solutions(&[0.9, 0.0]);
        assert!(concentrated.mass() > start.mass());
        close(concentrated.retained(&start), 1.0 - 0.1 / 0.3);
    }

    #[test]
    fn extreme_masses_give_no_number_that_is_not_finite() {
        let none = solutions(&[0.0, 0.0]);
        assert_eq!((none.mass(), none.effective(), none.pass_at_k(256)), (0.0, None, 0.0));
        assert_eq!(none.retained(&none), 1.0);
        assert_eq!(solutions(&[0.5]).retained(&solutions(&[0.0])), 1.0);
        // 1 - 1e-18 is 1 in an f64, and 256 samples still have 256 times the chance of one.
        let rare = solutions(&[1e-18]);
        assert!((rare.pass_at_k(256) / 256e-18 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn values_that_are_no_log_probabilities_are_an_error() {
        for logp in [vec![], vec![f64::NAN], vec![0.1], vec![-0.1, -0.1], vec![f64::INFINITY]] {
            assert!(Solutions::new(logp.clone()).is_err(), "{logp:?}");
        }
        // f32 log-probabilities of a policy that has learned the task.
        close(Solutions::new([(0.6f64).ln() + 1e-6, (0.4f64).ln() + 1e-6]).unwrap().mass(), 1.0);
    }
}
