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
    /// The reason code; the metrics count completions by it.
    pub reason: Cow<'static, str>,
    /// A graded reward, if the verifier gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
    /// Several rewards by name, if the verifier gives them: what the reward is made of, or what else counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rewards: BTreeMap<String, f64>,
    /// Which instructions were followed, if the verifier was asked to explain its verdict.
    #[serde(flatten)]
    pub followed: Option<Followed>,
    /// The number of the first test that a program failed, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<u32>,
    /// What a user's function printed while it graded, with the traceback if it raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub printed: Option<String>,
}

/// Which of a problem's instructions a completion follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Followed {
    /// By the strict reading.
    pub strict: Vec<bool>,
    /// By the loose reading.
    pub loose: Vec<bool>,
}

impl Followed {
    /// The shares of what was followed over the samples of a data set; `None` without any.
    pub fn shares<'a>(samples: impl Iterator<Item = &'a Followed>) -> Option<FollowedShares> {
        let mut sums = FollowedShares::default();
        let (mut prompts, mut instructions) = (0.0, 0.0);
        for Followed { strict, loose } in samples {
            prompts += 1.0;
            instructions += strict.len() as f64;
            for (labels, prompt, each) in [
                (strict, &mut sums.prompt_strict, &mut sums.instruction_strict),
                (loose, &mut sums.prompt_loose, &mut sums.instruction_loose),
            ] {
                *prompt += f64::from(labels.iter().all(|followed| *followed));
                *each += labels.iter().filter(|followed| **followed).count() as f64;
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
    /// The reward: the score of the grader if there is one, or `correct` or `wrong` by the verdict. That of an unscorable completion
    /// has no meaning.
    pub fn reward_or(&self, correct: f64, wrong: f64) -> f64 {
        self.reward.unwrap_or(if self.verdict == Verdict::Correct { correct } else { wrong })
    }

    /// A grade without a reward of its own.
    pub fn new(verdict: Verdict, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            verdict,
            reason: reason.into(),
            reward: None,
            rewards: BTreeMap::new(),
            followed: None,
            test: None,
            printed: None,
        }
    }

    /// An unscorable grade.
    pub fn unscorable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Verdict::Unscorable, reason)
    }
}

impl From<Outcome> for Graded {
    fn from(outcome: Outcome) -> Self {
        Self::new(outcome.verdict, outcome.reason)
    }
}

/// A completion as verifiers get it.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// The whole text.
    pub text: &'a str,
    /// The part of it that is graded: what follows the thoughts.
    pub answer: &'a str,
}

/// A panic in a verifier makes one completion unscorable and doesn't stop the run.
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
