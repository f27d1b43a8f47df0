//! Lines of `rollouts.jsonl`: logged completions.

use fgrpo_verify::verdict::Verdict;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A line of `rollouts.jsonl`. A non-finite number is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolloutLine {
    /// RL step, from 1.
    pub step: u64,
    /// Index of the prompt among the training problems; for mazes, the maze's index.
    pub prompt_id: u64,
    /// Source of the problem, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Index of the completion in its group.
    #[serde(default)]
    pub sample: u64,
    /// Text of the prompt.
    pub prompt: String,
    /// Text of the completion.
    pub completion: String,
    /// The reference answer, if there is one.
    pub target: Option<String>,
    /// Reward, or `None` for an unscorable completion and for an example in an evaluation.
    pub reward: Option<f64>,
    /// Rewards by name, if the grader returns several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rewards: BTreeMap<String, f64>,
    /// The verifier's verdict.
    pub verdict: Verdict,
    /// The verifier's reason code.
    pub reason: String,
    /// Output of a custom function, with the traceback if it raised an exception.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<String>,
    /// The environment's feedback, if the teacher's hint has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
    /// Advantage, including the focal weight.
    pub advantage: Option<f64>,
    /// Number of tokens.
    pub length: Option<u64>,
    /// Mean log-probability of the tokens when they were sampled.
    pub old_logp_mean: Option<f64>,
}

impl RolloutLine {
    /// Returns whether the verdict is correct.
    pub fn is_correct(&self) -> bool {
        self.verdict == Verdict::Correct
    }
}
