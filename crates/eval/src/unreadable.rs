//! Counts samples in which the verifier can't read an answer, by reason, and recommends changes of settings.

use crate::table::percent;
use fgrpo_verify::verdict::Verdict;
use std::collections::BTreeMap;

/// Fraction of samples without a readable answer above which [`Unreadable::message`] returns a message.
const MOST: f64 = 0.2;

/// Settings, as the user writes them, with which more answers may be readable.
pub struct Remedies {
    /// Setting of the length limit.
    pub limit: &'static str,
    /// Setting that turns thinking off.
    pub no_thinking: &'static str,
    /// Advice that brings answers into the form that the verifier reads.
    pub form: &'static str,
}

/// Counts of samples by the reason why their answer can't be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unreadable {
    samples: u64,
    in_thoughts: u64,
    at_limit: u64,
    /// Numbers of samples that the verifier couldn't parse for other reasons, by its reason code.
    by_reason: BTreeMap<String, u64>,
}

impl Unreadable {
    /// Counts samples, each given by its verdict, the verdict's reason, and whether it ended at the length limit.
    pub fn of<'a>(samples: impl IntoIterator<Item = (Verdict, &'a str, bool)>) -> Self {
        let mut counts = Self::default();
        for (verdict, reason, at_limit) in samples {
            counts.samples += 1;
            match (verdict, reason) {
                (Verdict::Unparsed, "unfinished_thoughts") => counts.in_thoughts += 1,
                (Verdict::Unparsed, _) if at_limit => counts.at_limit += 1,
                (Verdict::Unparsed, reason) => *counts.by_reason.entry(reason.to_owned()).or_default() += 1,
                _ => {}
            }
        }
        counts
    }

    /// Describes the samples without a readable answer, with reasons and remedies, if they are more than 20 %.
    pub fn message(&self, remedies: &Remedies) -> Option<String> {
        let share = |count: u64| count as f64 / self.samples.max(1) as f64;
        let other: u64 = self.by_reason.values().sum();
        let all = share(self.in_thoughts + self.at_limit + other);
        if all <= MOST {
            return None;
        }
        let Remedies { limit, no_thinking, form } = remedies;
        let mut reasons: Vec<(&String, &u64)> = self.by_reason.iter().collect();
        reasons.sort_by(|a, b| b.1.cmp(a.1));
        let reasons: Vec<String> =
            reasons.iter().take(3).map(|(reason, n)| format!("{reason} {n}")).collect();
        let parts = [
            (self.at_limit, format!("end at the length limit (raise {limit})")),
            (self.in_thoughts, format!("end within their thoughts (raise {limit}, or {no_thinking})")),
            (
                other,
                format!(
                    "have no answer in the form that the verifier reads ({}; {form})",
                    reasons.join(", ")
                ),
            ),
        ];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> =
            parts.map(|(count, what)| format!("{} % {what}", percent(share(count)))).collect();
        Some(format!("{} % of the samples have no readable answer: {}", percent(all), parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMEDIES: Remedies =
        Remedies { limit: "--max-tokens", no_thinking: "--thinking off", form: "ask for it with --system" };

    #[test]
    fn more_than_a_fifth_is_told_with_each_reason_and_its_remedy() {
        let unparsed = |reason, at_limit| (Verdict::Unparsed, reason, at_limit);
        let mut samples = vec![(Verdict::Wrong, "different", true); 8];
        samples.extend([unparsed("no_box", false), unparsed("no_box", true)]);
        assert_eq!(
            Unreadable::of(samples.clone()).message(&REMEDIES),
            None,
            "a fifth isn't more than a fifth"
        );
        samples.push(unparsed("unfinished_thoughts", true));
        samples.push((Verdict::Unscorable, "time", false));
        let message = Unreadable::of(samples).message(&REMEDIES).unwrap();
        let parts = [
            "25.0 % of the samples have no readable answer",
            "8.3 % end at the length limit (raise --max-tokens)",
            "8.3 % end within their thoughts (raise --max-tokens, or --thinking off)",
            "(no_box 1; ask for it with --system)",
        ];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}
