//! Selects the tokens of a mini-batch with the largest covariance of advantage and log-probability. Raising the probability
//! of these tokens lowers the entropy fastest, so KL-Cov and Clip-Cov treat them separately.
//!
//! Source: arXiv 2505.22617, as verl implements it. Departure: the log-probabilities come from the policy that sampled, not
//! from the policy being updated, so that the selection doesn't depend on micro-batches. In the first update after
//! sampling, both policies are the same.

use super::PolicyLoss;
use crate::rng::Key;

/// Returns, for each token of the mini-batch, whether `policy` selects it, or `None` if the loss doesn't select tokens.
///
/// `completions` has the advantage and the tokens' `old_logp` of every completion of the mini-batch. Clip-Cov draws among
/// its candidates at random, with a key derived from the log-probabilities.
pub fn selected<T>(policy: &PolicyLoss, completions: &[(f64, &[T])]) -> Option<Vec<Vec<bool>>>
where
    T: Copy + Into<f64>,
{
    let share = match policy {
        PolicyLoss::KlCov { share, .. } | PolicyLoss::ClipCov { share, .. } => *share,
        _ => return None,
    };
    let tokens: Vec<(f64, f64)> =
        completions.iter().flat_map(|(a, logp)| logp.iter().map(|&l| (*a, l.into()))).collect();
    let n = tokens.len();
    let mean = |part: fn(&(f64, f64)) -> f64| tokens.iter().map(part).sum::<f64>() / n as f64;
    let (mean_advantage, mean_logp) = (mean(|t| t.0), mean(|t| t.1));
    let covariance: Vec<f64> = tokens.iter().map(|(a, l)| (a - mean_advantage) * (l - mean_logp)).collect();
    let mut order: Vec<usize> = match policy {
        PolicyLoss::ClipCov { covariance: [from, to], .. } => {
            (0..n).filter(|&i| *from < covariance[i] && covariance[i] < *to).collect()
        }
        _ => (0..n).collect(),
    };
    if let PolicyLoss::ClipCov { .. } = policy {
        let key = tokens.iter().fold(Key::new(0), |key, (_, logp)| key.with(logp.to_bits()));
        order.sort_by_key(|&i| key.bits(i as u64));
    } else {
        order.sort_by(|&i, &j| covariance[j].total_cmp(&covariance[i]));
    }
    let mut chosen = vec![false; n];
    order.into_iter().take(((share * n as f64) as usize).max(1)).for_each(|i| chosen[i] = true);
    let mut rest = chosen.into_iter();
    Some(completions.iter().map(|(_, logp)| rest.by_ref().take(logp.len()).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean advantage is 0.5 and the mean log-probability -2, so the covariances are 0.5 (1, -1) and -0.5 (1, -1).
    const BATCH: [(f64, &[f64]); 2] = [(1.0, &[-1.0, -3.0]), (0.0, &[-1.5, -2.5])];

    #[test]
    fn kl_cov_selects_the_largest_covariances() {
        let selection = |share| selected(&PolicyLoss::KlCov { share, coef: 1.0 }, &BATCH).unwrap();
        // 0.5, -0.5, -0.25, 0.25.
        assert_eq!(selection(0.01), [[true, false], [false, false]], "at least one");
        assert_eq!(selection(0.5), [[true, false], [false, true]]);
        assert_eq!(selected(&PolicyLoss::GRPO, &BATCH), None);
    }

    #[test]
    fn clip_cov_draws_among_those_between_its_bounds() {
        let loss = |share, from| PolicyLoss::ClipCov { clip: [0.2, 0.2], share, covariance: [from, 0.4] };
        assert_eq!(selected(&loss(1.0, 0.1), &BATCH).unwrap(), [[false, false], [false, true]]);
        assert_eq!(selected(&loss(1.0, 0.3), &BATCH).unwrap(), [[false, false], [false, false]]);
        let one = selected(&loss(0.25, -0.3), &BATCH).unwrap();
        assert_eq!(one[0], [false, false]);
        assert_eq!(one[1].iter().filter(|&&s| s).count(), 1, "one of two candidates");
        // Over many mini-batches each candidate is drawn.
        let drawn: Vec<bool> = (0..64)
            .map(|i| {
                let logp = [-1.5 - f64::from(i) * 1e-6, -2.5];
                selected(&loss(0.25, -0.3), &[(1.0, &[-1.0, -3.0]), (0.0, &logp)]).unwrap()[1][0]
            })
            .collect();
        let first = drawn.iter().filter(|&&d| d).count();
        assert!((16..48).contains(&first), "{first} of 64");
    }
}
