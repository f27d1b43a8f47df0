//! The grade of a completion.

use fgrpo_verify::verdict::{Outcome, Verdict};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The largest absolute value of a reward, both in the configuration and from a verifier.
pub const LARGEST_REWARD: f64 = 1e6;

/// The grade of a completion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Graded {
    /// The verdict. `Unscorable` completions are excluded from the group's statistics.
    pub verdict: Verdict,
    /// Reason code of the verdict. The metrics count completions by this code.
    pub reason: Cow<'static, str>,
    /// A graded reward, if the verifier gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// Named rewards, if the verifier gives several. They are components of the reward, or other quantities to log.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rewards: BTreeMap<String, f64>,
    /// Instructions that were followed, if the verifier was asked to explain its verdict.
    #[serde(flatten)]
    pub followed: Option<Followed>,
    /// Index of the first test that a program failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<u32>,
    /// Output of a user's function while it graded, with the traceback if it raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub printed: Option<String>,
    /// The environment's feedback on its episode, if it was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
}

/// For each instruction of a problem, whether a completion follows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// Whether the completion follows each instruction by IFEval's strict reading.
    pub strict: Vec<bool>,
    /// Whether the completion follows each instruction by IFEval's loose reading.
    pub loose: Vec<bool>,
}

impl Followed {
    /// Computes the four accuracies over the samples of a data set, or `None` if the samples don't have instructions.
    pub fn shares<'a>(samples: impl Iterator<Item = &'a Followed>) -> Option<FollowedShares> {
        let mut sums = FollowedShares::default();
        let (mut prompts, mut instructions) = (0.0, 0.0);
        for Followed { strict, loose } in samples {
            prompts += 1.0;
            instructions += strict.len() as f64;
            for (labels, prompt, instruction) in [
                (strict, &mut sums.prompt_strict, &mut sums.instruction_strict),
                (loose, &mut sums.prompt_loose, &mut sums.instruction_loose),
            ] {
                *prompt += f64::from(labels.iter().all(|followed| *followed));
                *instruction += labels.iter().filter(|followed| **followed).count() as f64;
            }
        }
        (instructions > 0.0).then(|| FollowedShares {
            prompt_strict: sums.prompt_strict / prompts,
            prompt_loose: sums.prompt_loose / prompts,
            instruction_strict: sums.instruction_strict / instructions,
            instruction_loose: sums.instruction_loose / instructions,
        })
    }
}

/// The four accuracies of IFEval and IFBench, as fractions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct FollowedShares {
    pub prompt_strict: f64,
    pub prompt_loose: f64,
    pub instruction_strict: f64,
    pub instruction_loose: f64,
}

impl Graded {
    /// Returns the graded reward, or `correct` or `wrong` by the verdict if there isn't a graded reward. The result is
    /// meaningless for an unscorable completion.
    pub fn reward_or(&self, correct: f64, wrong: f64) -> f64 {
        self.reward.unwrap_or(if self.verdict == Verdict::Correct { correct } else { wrong })
    }

    /// Creates a grade without a graded reward.
    pub fn new(verdict: Verdict, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            verdict,
            reason: reason.into(),
            reward: None,
            rewards: BTreeMap::new(),
            followed: None,
            test: None,
            printed: None,
            feedback: None,
        }
    }

    /// Creates the grade of an unscorable completion.
    pub fn unscorable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Verdict::Unscorable, reason)
    }
}

impl From<Outcome> for Graded {
    fn from(outcome: Outcome) -> Self {
        Self::new(outcome.verdict, outcome.reason)
    }
}

/// A completion in the form that verifiers receive.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// The whole text.
    pub text: &'a str,
    /// The part that is graded: the text after the model's reasoning.
    pub answer: &'a str,
}

/// Runs a verifier. If it panics, the completion is unscorable and the run goes on.
pub fn guarded(check: impl FnOnce() -> Graded) -> Graded {
    crate::io::confined::catch(|| Ok(check())).unwrap_or_else(|_| Graded::unscorable("panic"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_makes_a_completion_unscorable() {
        assert_eq!(guarded(|| panic!("on purpose")), Graded::unscorable("panic"));
    }
}
