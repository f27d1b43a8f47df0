//! The result of a verifier: a verdict and its reason.

use serde::{Deserialize, Serialize};

/// The outcome of checking one completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The completion answers the problem.
    Correct,
    /// The completion has an answer, and it is wrong.
    Wrong,
    /// No answer was found in the completion. It counts as wrong, and is also counted separately.
    Unparsed,
    /// No verdict is possible, for a reason that the completion can't cause: the reference answer can't be parsed or is
    /// too expensive by itself, or the grader failed. The completion is removed from its group. (A completion that
    /// exceeds the budget is wrong.)
    Unscorable,
}

impl Verdict {
    /// Returns the name of the verdict in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Correct => "correct",
            Self::Wrong => "wrong",
            Self::Unparsed => "unparsed",
            Self::Unscorable => "unscorable",
        }
    }
}

/// A verdict with its reason code, a short lower-case word such as `exact` or `budget`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, as a stable code that metrics count.
    pub reason: std::borrow::Cow<'static, str>,
}

impl Outcome {
    /// Creates an outcome with a fixed reason code.
    pub const fn new(verdict: Verdict, reason: &'static str) -> Self {
        Self { verdict, reason: std::borrow::Cow::Borrowed(reason) }
    }

    /// Returns whether the completion is correct.
    pub fn is_correct(&self) -> bool {
        self.verdict == Verdict::Correct
    }
}
