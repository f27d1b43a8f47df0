//! Holm's correction of p-values for multiple comparisons.

/// Returns the adjusted p-values, in the order of `p_values`. Comparing each with a level keeps the probability of any false
/// rejection below the level, for any dependence among the tests.
///
/// The i-th smallest of n becomes `max over j <= i of min(1, (n - j + 1) p_j)`.
///
/// Source: S. Holm, "A simple sequentially rejective multiple test procedure", 1979.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&i, &j| p_values[i].total_cmp(&p_values[j]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest: f64 = 0.0;
    for (rank, &i) in order.iter().enumerate() {
        largest = largest.max(((p_values.len() - rank) as f64 * p_values[i]).min(1.0));
        adjusted[i] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjusted_values_equal_a_hand_worked_example() {
        let values = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (f, w) in values.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((f - w).abs() < 1e-15, "{values:?}");
        }
    }

    #[test]
    fn adjusted_values_never_exceed_one_and_a_single_value_is_kept() {
        assert_eq!(holm(&[0.7, 0.9]), vec![1.0, 1.0]);
        assert_eq!(holm(&[0.2]), vec![0.2]);
        assert!(holm(&[]).is_empty());
    }
}
