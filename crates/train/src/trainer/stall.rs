//! Detects a stalled run: consecutive steps in which no completion was correct, or none could be graded.
//!
//! The state is computed from the run's metrics, so a resumed run continues the count.

use crate::run::metrics::Metrics;

/// Steps without a correct completion after which the run warns.
const WARN_AFTER: u64 = 5;

/// Counts of the steps so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stall {
    /// All steps.
    steps: u64,
    /// Consecutive steps up to now in which nothing was correct and no group had a learning signal.
    nothing_correct: u64,
    /// Consecutive steps up to now in which nothing could be graded.
    nothing_graded: u64,
}

impl Stall {
    /// Counts a step.
    pub(super) fn step(&mut self, m: &Metrics) {
        let count = |verdict: &str| m.verdicts.get(verdict).copied().unwrap_or(0);
        let graded = count("correct") + count("wrong") + count("unparsed");
        self.steps += 1;
        self.nothing_graded = if graded == 0 { self.nothing_graded + 1 } else { 0 };
        let fruitless = graded > 0 && count("correct") == 0 && m.active_fraction == 0.0;
        self.nothing_correct = if fruitless { self.nothing_correct + 1 } else { 0 };
    }

    /// The warning after a step, if any.
    pub(super) fn warning(&self, m: &Metrics) -> Option<String> {
        (self.nothing_correct == WARN_AFTER).then(|| {
            format!(
                "warning: no completion has been correct for {WARN_AFTER} steps, so there has been nothing to learn from. {}",
                causes(m)
            )
        })
    }

    /// Fails after `most` consecutive steps in which nothing could be graded.
    ///
    /// # Errors
    /// Contains the verifier's reasons.
    pub(super) fn check(&self, most: u64, m: &Metrics) -> anyhow::Result<()> {
        if self.nothing_graded >= most {
            anyhow::bail!(
                "no completion could be graded for {} steps (grade.max_unscorable = {most}): {}. The reasons of every step are in metrics.jsonl; fix the grader and continue with --resume",
                self.nothing_graded,
                reasons(m)
            );
        }
        Ok(())
    }

    /// The warning after the last step, if any.
    ///
    /// # Errors
    /// If nothing could be graded in the whole run.
    pub(super) fn at_end(&self) -> anyhow::Result<Option<String>> {
        if self.steps > 0 && self.nothing_graded == self.steps {
            anyhow::bail!("no completion could be graded in any of the {} steps", self.steps);
        }
        Ok((self.steps > 0 && self.nothing_correct == self.steps).then(|| {
            format!(
                "warning: no completion was correct in any of the {} steps: the policy has learned nothing. See rollouts.jsonl, and `fgrpo data show` for how the reference answers are read",
                self.steps
            )
        }))
    }
}

/// Likely causes of a step without a correct completion, most likely first.
fn causes(m: &Metrics) -> String {
    let count = |verdict: &str| m.verdicts.get(verdict).copied().unwrap_or(0);
    let all: u64 = m.verdicts.values().sum();
    let mut causes = Vec::new();
    if m.truncated_fraction > 0.5 {
        causes.push(format!(
            "{:.0} % of the completions are cut off by the length limit (rollout.max_new_tokens)",
            100.0 * m.truncated_fraction
        ));
    }
    if 2 * count("unparsed") > all {
        causes.push("no answer was found in most completions: the prompt must ask for the form that the verifier reads (task.preset, task.system, task.verifier)".to_owned());
    }
    causes.push("reference answers that are read wrongly, or a verifier that doesn't fit the data (`fgrpo data show CONFIG` shows both)".to_owned());
    causes.push(
        "problems too hard for this model: easier ones, a larger group, or demonstrations first ([sft])"
            .to_owned(),
    );
    format!("The last step: {}. Likely causes: {}", reasons(m), causes.join("; "))
}

/// The verdicts of a step and their most common reasons.
fn reasons(m: &Metrics) -> String {
    let verdicts: Vec<String> = m.verdicts.iter().map(|(v, n)| format!("{n} {v}")).collect();
    let mut reasons: Vec<(&String, &u64)> = m.reasons.iter().collect();
    reasons.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let reasons: Vec<String> = reasons.iter().take(3).map(|(r, n)| format!("{r} {n}")).collect();
    format!("{} (reasons: {})", verdicts.join(", "), reasons.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(verdicts: &[(&str, u64)]) -> Metrics {
        let verdicts = verdicts.iter().map(|(v, n)| ((*v).to_owned(), *n)).collect();
        Metrics { verdicts, reasons: [("none".to_owned(), 4)].into(), ..Metrics::default() }
    }

    #[test]
    fn a_warning_comes_once_after_five_steps_and_again_after_a_correct_one() {
        let (wrong, right) = (step(&[("wrong", 4)]), step(&[("correct", 1), ("wrong", 3)]));
        let mut stall = Stall::default();
        let mut warned = Vec::new();
        for (i, m) in [&wrong, &wrong, &wrong, &wrong, &wrong, &wrong, &right]
            .into_iter()
            .chain(std::iter::repeat_n(&wrong, 5))
            .enumerate()
        {
            stall.step(m);
            if stall.warning(m).is_some() {
                warned.push(i + 1);
            }
        }
        assert_eq!(warned, [5, 12]);
        assert_eq!(stall.at_end().unwrap(), None, "one step had a correct completion");
    }

    #[test]
    fn graded_rewards_that_differ_are_something_to_learn_from() {
        let mut stall = Stall::default();
        stall.step(&Metrics { active_fraction: 0.5, ..step(&[("wrong", 4)]) });
        assert_eq!(stall.nothing_correct, 0);
    }

    #[test]
    fn steps_without_a_verdict_stop_the_run_and_a_whole_run_without_one_fails() {
        let dead = step(&[("unscorable", 4)]);
        let mut stall = Stall::default();
        stall.step(&dead);
        assert!(stall.check(2, &dead).is_ok() && stall.at_end().is_err());
        stall.step(&dead);
        let error = stall.check(2, &dead).unwrap_err().to_string();
        assert!(error.contains("4 unscorable (reasons: none 4)"), "{error}");
        stall.step(&step(&[("wrong", 4)]));
        assert!(stall.check(1, &dead).is_ok() && stall.at_end().unwrap().is_none());
    }
}
