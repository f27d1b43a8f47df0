//! Resampling of problems, and statistics of simulated values.

use crate::rng::Key;

/// Values closer to zero than this count as ties, because they can be differences of the same sum in another order.
const TIE: f64 = 1e-12;

/// Simulated values of a statistic, sorted.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated(Vec<f64>);

impl Simulated {
    /// Creates the distribution of values, which may be in any order.
    ///
    /// # Panics
    /// If `values` is empty.
    pub fn new(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "simulated values: found none");
        values.sort_unstable_by(f64::total_cmp);
        Self(values)
    }

    /// Returns the average of the values.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// Returns the `q`-quantile, `q` in `[0, 1]`, linear between order statistics (NumPy's default).
    pub fn quantile(&self, q: f64) -> f64 {
        let position = q * (self.0.len() - 1) as f64;
        let below = position.floor() as usize;
        let above = (below + 1).min(self.0.len() - 1);
        self.0[below] + (position - below as f64) * (self.0[above] - self.0[below])
    }

    /// Returns the percentile interval that contains the middle fraction `level` of the values.
    pub fn interval(&self, level: f64) -> (f64, f64) {
        (self.quantile((1.0 - level) / 2.0), self.quantile(f64::midpoint(1.0, level)))
    }

    /// Returns the two-sided p-value `min(1, 2 min(P(x <= 0), P(x >= 0)))`.
    pub fn two_sided_p(&self) -> f64 {
        let at_most = self.0.partition_point(|&x| x <= TIE);
        let at_least = self.0.len() - self.0.partition_point(|&x| x < -TIE);
        (2.0 * at_most.min(at_least) as f64 / self.0.len() as f64).min(1.0)
    }
}

/// Fills `times` with the number of times that each problem is drawn in resample `iteration`. A resample has as many draws
/// as there are problems, with replacement. It depends only on `key` and `iteration`.
pub fn resample(key: Key, iteration: u64, times: &mut [u32]) {
    times.fill(0);
    let key = key.with(iteration);
    for draw in 0..times.len() as u64 {
        times[key.below(draw, times.len() as u64) as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_linear_between_order_statistics() {
        let s = Simulated::new(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!(s.quantile(0.0), 1.0);
        assert_eq!(s.quantile(1.0), 4.0);
        assert!((s.quantile(0.25) - 1.75).abs() < 1e-15);
        assert!((s.mean() - 2.5).abs() < 1e-15);
    }

    #[test]
    fn p_value_counts_ties_on_both_sides() {
        assert_eq!(Simulated::new(vec![0.0; 10]).two_sided_p(), 1.0);
        assert_eq!(Simulated::new(vec![1.0, 1.0, 1.0, -1.0]).two_sided_p(), 0.5);
        assert_eq!(Simulated::new(vec![1.0, 1.0, 1.0, 0.0]).two_sided_p(), 0.5);
        assert_eq!(Simulated::new(vec![1.0, 2.0]).two_sided_p(), 0.0);
        assert_eq!(Simulated::new(vec![1e-17, 2.0]).two_sided_p(), 1.0);
    }

    #[test]
    fn spread_of_resampled_means_is_the_standard_error() {
        let values: Vec<f64> = (0..100).map(|i| f64::from(i % 2)).collect();
        let mut times = vec![0; values.len()];
        let mut mean = |i| {
            resample(Key::new(3), i, &mut times);
            assert_eq!(times.iter().sum::<u32>(), 100);
            values.iter().zip(&times).map(|(v, &t)| v * f64::from(t)).sum::<f64>() / 100.0
        };
        let variance = (0..20_000).map(|i| (mean(i) - 0.5).powi(2)).sum::<f64>() / 20_000.0;
        assert!((variance / 0.0025 - 1.0).abs() < 0.05, "{variance}");
    }
}
