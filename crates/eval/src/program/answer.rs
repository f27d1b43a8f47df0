//! Parses the answer line of a program that grades.

use crate::graded::{Graded, LARGEST_REWARD};
use fgrpo_core::group::lowest_correct;
use fgrpo_verify::verdict::Verdict;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Parses the answer to question `question_id` as a grade, which is correct if the score is at least `correct_from`.
///
/// # Errors
/// Returns a description of the error in the line.
pub(super) fn read(line: &[u8], question_id: u64, correct_from: f64) -> Result<Graded, String> {
    #[derive(Deserialize)]
    struct Answer {
        id: Option<u64>,
        score: Option<f64>,
        #[serde(default)]
        rewards: BTreeMap<String, f64>,
        unscorable: Option<String>,
        reason: Option<String>,
        test: Option<u32>,
        printed: Option<String>,
        feedback: Option<String>,
    }
    let excerpt = || String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
    let answer: Answer = serde_json::from_slice(line)
        .map_err(|_| format!("{:?}, which isn't {{\"score\": number}}", excerpt()))?;
    if answer.id.is_some_and(|id| id != question_id) {
        return Err(format!("{:?}, which isn't the answer to question {question_id}", excerpt()));
    }
    match (answer.score, answer.unscorable.or_else(|| answer.reason.clone())) {
        (Some(score), _) if answer.rewards.values().chain([&score]).all(|r| r.abs() <= LARGEST_REWARD) => {
            let verdict =
                if score >= lowest_correct(correct_from) { Verdict::Correct } else { Verdict::Wrong };
            let reason = answer.reason.map_or(Cow::Borrowed("score"), Cow::Owned);
            let graded = Graded::new(verdict, reason);
            let Answer { rewards, test, printed, feedback, .. } = answer;
            Ok(Graded { reward: Some(score), rewards, test, printed, feedback, ..graded })
        }
        (Some(_), _) => Err(format!(
            "{:?}, whose score or rewards aren't from -{LARGEST_REWARD} to {LARGEST_REWARD}",
            excerpt()
        )),
        (None, Some(reason)) => Ok(Graded { printed: answer.printed, ..Graded::unscorable(reason) }),
        _ => Err(format!("{:?}, which has neither a score nor a reason", excerpt())),
    }
}
