//! Aggregation of the token losses of a mini-batch into one loss.

/// Sizes of a whole mini-batch, regardless of how it is split into micro-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Number of completion tokens that count in the loss.
    pub tokens: usize,
    /// Number of completions with at least one token that counts in the loss.
    pub sequences: usize,
}

impl Counts {
    /// Counts completions of these lengths in tokens.
    pub fn of(lengths: impl IntoIterator<Item = usize>) -> Self {
        lengths.into_iter().filter(|&n| n > 0).fold(Self { tokens: 0, sequences: 0 }, |c, n| Self {
            tokens: c.tokens + n,
            sequences: c.sequences + 1,
        })
    }
}

/// The rule by which token losses are aggregated into one loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Aggregation {
    /// Mean over all tokens of the mini-batch: every token has the same weight. The paper's setting.
    TokenMean,
    /// Sum within a completion, mean over completions.
    SeqMeanTokenSum,
    /// [`Aggregation::SeqMeanTokenSum`], divided by the maximum length of a completion: Dr. GRPO.
    SeqMeanTokenSumNorm,
    /// Mean within a completion, mean over completions: the objective as printed in the GRPO paper.
    SeqMeanTokenMean,
}

impl Aggregation {
    /// Returns the factor of each token's loss in a completion of `seq_len` tokens, which is 0 for an empty completion.
    /// `max_len` is the maximum length of a completion in tokens.
    ///
    /// The factor depends only on the completion and on the mini-batch's counts, so the gradient doesn't depend on the
    /// micro-batches.
    ///
    /// # Panics
    /// If the completion has more tokens than the mini-batch.
    pub fn weight(&self, seq_len: usize, counts: &Counts, max_len: usize) -> f64 {
        if seq_len == 0 {
            return 0.0;
        }
        assert!(
            seq_len <= counts.tokens && counts.sequences > 0,
            "a completion of {seq_len} tokens can't be part of a mini-batch with {counts:?}"
        );
        match *self {
            Self::TokenMean => 1.0 / counts.tokens as f64,
            Self::SeqMeanTokenSum => 1.0 / counts.sequences as f64,
            Self::SeqMeanTokenSumNorm => 1.0 / (counts.sequences as f64 * max_len as f64),
            Self::SeqMeanTokenMean => 1.0 / (counts.sequences as f64 * seq_len as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a completion of 9 tokens")]
    fn counts_of_a_micro_batch_are_refused_where_they_show() {
        Aggregation::TokenMean.weight(9, &Counts::of([8]), 10);
    }
}
