//! The completions that a run logs.

use fgrpo_verify::verdict::Verdict;
use serde::{Deserialize, Serialize};

/// A line of `rollouts.jsonl`. A number that wasn't finite is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolloutLine {
    /// RL step, from 1.
    pub step: u64,
    /// The prompt's number among the training problems; of mazes their index.
    pub prompt_id: u64,
    /// Its source, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Index in its group.
    #[serde(default)]
    pub sample: u64,
    /// The prompt as text.
    pub prompt: String,
    /// The completion as text.
    pub completion: String,
    /// The reference answer, where there is one.
    pub target: Option<String>,
    /// Its reward; none in an evaluation's example.
    pub reward: Option<f64>,
    /// The verifier's verdict.
    pub verdict: Verdict,
    /// Its reason code.
    pub reason: String,
    /// Its advantage.
    pub advantage: Option<f64>,
    /// Tokens.
    pub length: Option<u64>,
    /// Mean log-probability of a token when it was sampled.
    pub old_logp_mean: Option<f64>,
}

impl RolloutLine {
    /// Whether the verifier found it correct.
    pub fn is_correct(&self) -> bool {
        self.verdict == Verdict::Correct
    }
}
