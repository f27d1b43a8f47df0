//! Selects the tokens of a mini-batch with the highest entropy. If `top_entropy_quantile` is below 1, only these tokens
//! count in the policy loss.
//!
//! Source: arXiv 2506.01939, with the threshold of TRL (`get_high_entropy_mask`). Departure: the entropies come from the
//! policy that sampled, and one threshold holds for the whole mini-batch, so that the selection doesn't depend on
//! micro-batches. In the first update after sampling, the sampling policy and the updated policy are the same.

use crate::error::{Error, require};
use crate::stats::bootstrap::Simulated;

/// Returns an error if `share` is outside (0, 1].
pub fn check(share: f64) -> Result<(), Error> {
    require(share > 0.0 && share <= 1.0, "top_entropy_quantile", share, "a number above 0 and at most 1")
}

/// Returns, for each token of the mini-batch, whether its entropy is at least the `1 - share` quantile (interpolated).
/// Returns `None` if `share` is 1, which selects all tokens.
///
/// `completions` has the entropies of each completion's tokens, in nats.
pub fn high_entropy<T>(share: f64, completions: &[&[T]]) -> Option<Vec<Vec<bool>>>
where
    T: Copy + Into<f64>,
{
    if share >= 1.0 {
        return None;
    }
    let all: Vec<f64> = completions.iter().flat_map(|c| c.iter().map(|&e| e.into())).collect();
    let threshold = if all.is_empty() { 0.0 } else { Simulated::new(all).quantile(1.0 - share) };
    let mask = |completion: &&[T]| completion.iter().map(|&e| e.into() >= threshold).collect();
    Some(completions.iter().map(mask).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_tokens_with_the_highest_entropy_is_kept() {
        let batch: [&[f64]; 2] = [&[0.5, 2.0, 0.25], &[1.0, 0.0]];
        // The quantile 0.8 of 0, 0.25, 0.5, 1, 2 is 1 + 0.2 (2 - 1).
        assert_eq!(high_entropy(0.2, &batch).unwrap(), [vec![false, true, false], vec![false, false]]);
        // The quantile 0.5 is a token's own entropy, which counts.
        assert_eq!(high_entropy(0.5, &batch).unwrap(), [vec![true, true, false], vec![true, false]]);
        assert_eq!(high_entropy(1.0, &batch), None);
        assert_eq!(high_entropy::<f64>(0.5, &[&[], &[]]).unwrap(), [vec![], Vec::<bool>::new()]);
        assert_eq!(high_entropy(0.2, &[&[0.5f64; 3]]).unwrap(), [[true; 3]], "equal ones are all kept");
        assert!(check(0.0).is_err() && check(1.5).is_err() && check(f64::NAN).is_err() && check(1.0).is_ok());
    }
}
