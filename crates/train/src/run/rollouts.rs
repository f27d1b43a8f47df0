//! Logged completions.

use fgrpo_verify::verdict::Verdict;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A line of `rollouts.jsonl`. A non-finite number is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolloutLine {
    /// RL step, from 1.
    pub step: u64,
    /// The prompt's number among the training problems; for mazes, their index.
    pub prompt_id: u64,
    /// Its source, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Index in its group.
    #[serde(default)]
    pub sample: u64,
    /// The prompt as text.
    pub prompt: String,
    /// The completion as text.
    pub completion: String,
    /// The reference answer, if there is one.
    pub target: Option<String>,
    /// Its reward; `None` for an example in an evaluation.
    pub reward: Option<f64>,
    /// Several rewards by name, if the grader gives them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rewards: BTreeMap<String, f64>,
    /// The verifier's verdict.
    pub verdict: Verdict,
    /// Its reason code.
    pub reason: String,
    /// What the user's function printed, with the traceback if it raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<String>,
    /// Its advantage.
    pub advantage: Option<f64>,
    /// Number of tokens.
    pub length: Option<u64>,
    /// Mean log-probability of its tokens when sampled.
    pub old_logp_mean: Option<f64>,
}

impl RolloutLine {
    /// Whether the verdict is correct.
    pub fn is_correct(&self) -> bool {
        self.verdict == Verdict::Correct
    }
}
