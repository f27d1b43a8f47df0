//! Selects the tokens of a mini-batch with the largest covariance of advantage and log-probability. Raising the probability
//! of these tokens lowers the entropy fastest, so KL-Cov and Clip-Cov treat them separately.
//!
//! Source: arXiv 2505.22617, as verl implements it. Departure: verl selects within each micro-batch, and here the selection is
//! over the mini-batch, so it doesn't depend on how the mini-batch is divided.

use super::PolicyLoss;
use crate::rng::Key;

/// Returns, for each token of the mini-batch, whether `policy` selects it, or `None` if the loss doesn't select tokens.
///
/// `completions` has the advantage of every completion of the mini-batch, and the log-probabilities of its tokens under
/// the policy being updated and under the policy that sampled. Clip-Cov draws among its candidates at random, with a key
/// derived from the latter; tokens without a gradient because they are clipped aren't candidates.
///
/// # Panics
/// If a completion's two lists of log-probabilities differ in length.
pub fn selected<T>(policy: &PolicyLoss, completions: &[(f64, &[T], &[T])]) -> Option<Vec<Vec<bool>>>
where
    T: Copy + Into<f64>,
{
    let share = match policy {
        PolicyLoss::KlCov { share, .. } | PolicyLoss::ClipCov { share, .. } => *share,
        _ => return None,
    };
    // The advantage, the log-probability, and whether the token is clipped.
    let of_completion = |&(advantage, logp, old_logp): &(f64, &'_ [T], &'_ [T])| {
        let losses = policy.completion(logp, old_logp, advantage);
        let both = logp.iter().zip(losses);
        both.map(|(&logp, loss)| (advantage, logp.into(), loss.clipped_low || loss.clipped_high))
            .collect::<Vec<(f64, f64, bool)>>()
    };
    let tokens: Vec<(f64, f64, bool)> = completions.iter().flat_map(of_completion).collect();
    let n = tokens.len();
    let mean = |part: fn(&(f64, f64, bool)) -> f64| tokens.iter().map(part).sum::<f64>() / n as f64;
    let (mean_advantage, mean_logp) = (mean(|t| t.0), mean(|t| t.1));
    let covariance: Vec<f64> =
        tokens.iter().map(|(a, l, _)| (a - mean_advantage) * (l - mean_logp)).collect();
    let mut order: Vec<usize> = (0..n).collect();
    if let PolicyLoss::ClipCov { covariance: [from, to], .. } = policy {
        order.retain(|&i| *from < covariance[i] && covariance[i] < *to && !tokens[i].2);
        let sampled = completions.iter().flat_map(|(_, _, old_logp)| old_logp.iter());
        let key = sampled.fold(Key::new(0), |key, &logp| key.with(Into::<f64>::into(logp).to_bits()));
        order.sort_by_key(|&i| key.bits(i as u64));
    } else {
        order.sort_by(|&i, &j| covariance[j].total_cmp(&covariance[i]));
    }
    let mut chosen = vec![false; n];
    order.into_iter().take(((share * n as f64) as usize).max(1)).for_each(|i| chosen[i] = true);
    let mut rest = chosen.into_iter();
    Some(completions.iter().map(|(_, logp, _)| rest.by_ref().take(logp.len()).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean advantage is 0.5 and the mean log-probability -2, so the covariances are 0.5 (1, -1) and -0.5 (1, -1).
    const BATCH: [(f64, &[f64]); 2] = [(1.0, &[-1.0, -3.0]), (0.0, &[-1.5, -2.5])];

    /// Selects from a batch whose policy hasn't changed since it sampled.
    fn selected(policy: &PolicyLoss, batch: &[(f64, &[f64])]) -> Option<Vec<Vec<bool>>> {
        let both: Vec<(f64, &[f64], &[f64])> = batch.iter().map(|&(a, logp)| (a, logp, logp)).collect();
        super::selected(policy, &both)
    }

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
