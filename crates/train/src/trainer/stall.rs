//! Detects a stalled run: consecutive steps in which all completions were wrong, all were correct, or all were
//! ungraded.
//!
//! The state is computed from the run's metrics, so a resumed run continues the count.

use crate::run::metrics::Metrics;
use fgrpo_eval::failure::{Advised, Remedy};
use fgrpo_nn::CHECK_LAYERS;

/// Number of consecutive uniform steps after which the run warns.
const WARN_AFTER: u64 = 5;

/// Reason why a step can't distinguish better completions from worse ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uniform {
    /// No completion was correct, and all rewards within each group were equal.
    Wrong,
    /// No completion was correct, and rewards within each group were equal, but advantages weren't 0.
    Shaped,
    /// No completion counted as correct, although rewards within groups differed.
    BelowThreshold,
    /// All completions were correct.
    Correct,
}

impl Uniform {
    fn of(m: &Metrics) -> Option<Self> {
        // A teacher's advantages differ even if rewards are equal.
        if m.teacher.is_some() {
            return None;
        }
        // Up to rounding.
        let learns = m.advantage_abs_mean > 1e-9;
        match (m.count("correct"), m.count("wrong") + m.count("unparsed")) {
            (0, 1..) if m.active_fraction == 0.0 && learns => Some(Self::Shaped),
            (0, 1..) if m.active_fraction == 0.0 => Some(Self::Wrong),
            (0, 1..) => Some(Self::BelowThreshold),
            (1.., 0) if !learns => Some(Self::Correct),
            _ => None,
        }
    }
}

/// Counts of the steps so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stall {
    steps: u64,
    /// Reason why the last step couldn't distinguish completions. `in_a_row` is the number of consecutive steps with
    /// this reason.
    uniform: Option<Uniform>,
    in_a_row: u64,
    /// Number of consecutive steps, up to the latest, in which nothing could be graded.
    nothing_graded: u64,
    /// Number of completions that couldn't be graded, out of `completions` in total.
    unscorable: u64,
    completions: u64,
    /// Number of updates skipped because the loss or gradient wasn't finite.
    skipped: u64,
    /// Whether an update has changed the policy.
    changed: bool,
}

impl Stall {
    pub(super) fn step(&mut self, m: &Metrics) {
        let (unscorable, all) = (m.count("unscorable"), m.completions());
        self.steps += 1;
        self.unscorable += unscorable;
        self.completions += all;
        self.skipped += m.skipped_updates;
        self.changed |= m.gradient_norm > 0.0;
        self.nothing_graded = if unscorable < all { 0 } else { self.nothing_graded + 1 };
        let uniform = Uniform::of(m);
        let previous = if uniform == self.uniform { self.in_a_row } else { 0 };
        self.in_a_row = previous + u64::from(uniform.is_some());
        self.uniform = uniform;
    }

    pub(super) fn warnings(&self, m: &Metrics) -> impl Iterator<Item = String> {
        let now = m.count("unscorable");
        let first = (now > 0 && now == self.unscorable).then(|| {
            format!(
                "warning: step {}: {now} of {} completions could not be graded and are ignored: {}. This warning is given once",
                m.step,
                m.completions(),
                reasons(m)
            )
        });
        first.into_iter().chain(self.uniform_warning(m))
    }

    fn uniform_warning(&self, m: &Metrics) -> Option<String> {
        let uniform = self.uniform.filter(|_| self.in_a_row == WARN_AFTER)?;
        Some(match uniform {
            Uniform::Wrong => format!(
                "warning: no completion has been correct for {WARN_AFTER} steps, so there has been nothing to learn from. {}",
                causes(m)
            ),
            Uniform::Shaped => format!(
                "warning: no completion has been correct for {WARN_AFTER} steps, so only algorithm.overlong, algorithm.shaping or the estimator trains the policy. {}",
                causes(m)
            ),
            Uniform::BelowThreshold => format!(
                "warning: rewards differ, but no completion has counted as correct for {WARN_AFTER} steps: pass@k stays 0, and the focal weight is 1 for every group. Lower correct_from (task.grader or task.verifier.command) or algorithm.correct_threshold to the lowest reward of a right answer"
            ),
            Uniform::Correct => format!(
                "warning: every completion has been correct for {WARN_AFTER} steps, so {}. Use harder problems, or check whether the grader accepts everything: rollouts.jsonl has completions with their rewards",
                if m.active_fraction > 0.0 {
                    "the focal weight of every group is 0"
                } else {
                    "there has been nothing to learn from"
                }
            ),
        })
    }

    /// Fails after `limit` consecutive steps in which nothing could be graded.
    pub(super) fn check(&self, limit: u64, m: &Metrics) -> anyhow::Result<()> {
        if self.nothing_graded >= limit {
            let text = format!(
                "no completion could be graded for {} steps (grade.max_unscorable = {limit}): {}. metrics.jsonl has the reasons of every step. Fix the grader",
                self.nothing_graded,
                reasons(m)
            );
            return Err(Advised { text, bad_input: false, remedies: &[Remedy::Resume] }.into());
        }
        Ok(())
    }

    /// Returns the warnings after the last step.
    pub(super) fn at_end(&self) -> anyhow::Result<impl Iterator<Item = String>> {
        if self.steps > 0 && self.nothing_graded == self.steps {
            anyhow::bail!("no completion could be graded in any of the {} steps", self.steps);
        }
        if 2 * self.unscorable > self.completions {
            anyhow::bail!(
                "{} of {} completions could not be graded and were ignored. metrics.jsonl has the reasons of every step",
                self.unscorable,
                self.completions
            );
        }
        if self.skipped > 0 && !self.changed {
            anyhow::bail!(
                "all {} updates were skipped because the loss or gradient wasn't finite, so the policy hasn't changed. Set {CHECK_LAYERS}=on to find the first layer or tensor with such a number",
                self.skipped
            );
        }
        let ungraded = (self.unscorable > 0).then(|| {
            format!(
                "warning: {} of {} completions could not be graded and were ignored; metrics.jsonl has the reasons of every step",
                self.unscorable, self.completions
            )
        });
        let always = self.uniform.filter(|_| self.in_a_row == self.steps).map(|uniform| {
            let (result, hint) = match uniform {
                Uniform::Wrong => (
                    "no completion was correct",
                    "the policy has learned nothing. Look at rollouts.jsonl, and check with `fgrpo data show` how the reference answers are read",
                ),
                Uniform::Shaped => (
                    "no completion was correct",
                    "only algorithm.overlong, algorithm.shaping or the estimator trained the policy. Look at rollouts.jsonl, and check with `fgrpo data show` how the reference answers are read",
                ),
                Uniform::BelowThreshold => {
                    ("no completion counted as correct", "pass@k and the focal weight are meaningless. Lower correct_from")
                }
                Uniform::Correct => ("no completion was wrong", "there was nothing to learn. Look at rollouts.jsonl"),
            };
            format!("warning: {result} in any of the {} steps: {hint}", self.steps)
        });
        Ok(ungraded.into_iter().chain(always))
    }
}

/// Returns the likely causes of a step without a correct completion, most likely first.
fn causes(m: &Metrics) -> String {
    let mut causes = Vec::new();
    if m.truncated_fraction > 0.5 {
        causes.push(format!(
            "{:.0} % of the completions are cut off by the length limit (rollout.max_new_tokens)",
            100.0 * m.truncated_fraction
        ));
    }
    if 2 * m.count("unparsed") > m.completions() {
        causes.push("most completions have no readable answer: the prompt must ask for the form that the verifier reads (task.preset, task.system, task.verifier)".to_owned());
    }
    causes.push("the reference answers are misread, or the verifier doesn't fit the data (`fgrpo data show CONFIG` shows both)".to_owned());
    causes.push(
        "the problems are too hard for this model: use easier ones, a larger group, or demonstrations first ([sft])"
            .to_owned(),
    );
    format!("The last step: {}. Likely causes: {}", reasons(m), causes.join("; "))
}

/// Describes the verdicts of a step and their most common reasons.
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
        for i in 1..=12 {
            let m = if i == 7 { &right } else { &wrong };
            stall.step(m);
            warned.extend(stall.warnings(m).next().map(|_| i));
        }
        assert_eq!(warned, [5, 12]);
        assert_eq!(stall.at_end().unwrap().next(), None, "one step had a correct completion");
    }

    #[test]
    fn rewards_below_the_threshold_and_completions_that_are_all_correct_have_different_warnings() {
        for (m, text) in [
            (Metrics { active_fraction: 0.5, ..step(&[("wrong", 4)]) }, "rewards differ, but no completion"),
            (step(&[("correct", 4)]), "so there has been nothing to learn from"),
            (Metrics { advantage_abs_mean: 0.2, ..step(&[("wrong", 4)]) }, "only algorithm.overlong"),
            (
                Metrics { active_fraction: 0.5, ..step(&[("correct", 4)]) },
                "the focal weight of every group is 0",
            ),
        ] {
            let mut stall = Stall::default();
            // A step of another kind begins the count again.
            stall.step(&step(&[("wrong", 4)]));
            for i in 1..=WARN_AFTER {
                assert_eq!(stall.warnings(&m).next(), None, "{i}");
                stall.step(&m);
            }
            let warning = stall.warnings(&m).next().unwrap();
            assert!(warning.contains(text), "{warning}");
            assert_eq!(stall.at_end().unwrap().next(), None, "the first step was of another kind");
            let mut stall = Stall::default();
            stall.step(&m);
            assert!(stall.at_end().unwrap().next().unwrap().contains("in any of the 1 steps"));
        }
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
        assert!(stall.check(1, &dead).is_ok());
        let error = stall.at_end().err().unwrap().to_string();
        assert!(error.contains("8 of 12 completions could not be graded"), "{error}");
        stall.step(&step(&[("wrong", 4)]));
        let warning = stall.at_end().unwrap().next().unwrap();
        assert!(warning.contains("8 of 16 completions could not be graded"), "{warning}");
    }

    #[test]
    fn a_run_whose_every_update_was_skipped_fails() {
        let skipped = Metrics { skipped_updates: 2, ..step(&[("wrong", 3), ("correct", 1)]) };
        let mut stall = Stall::default();
        stall.step(&skipped);
        // Without an update at all: no group had different rewards.
        stall.step(&step(&[("wrong", 4)]));
        let error = stall.at_end().err().unwrap().to_string();
        assert!(error.contains("all 2 updates were skipped"), "{error}");
        stall.step(&Metrics { gradient_norm: 0.5, ..skipped });
        assert!(stall.at_end().is_ok());
    }

    #[test]
    fn the_warning_about_ungraded_completions_is_given_once_in_addition_to_others() {
        let some = step(&[("wrong", 3), ("unscorable", 1)]);
        let mut stall = Stall::default();
        let mut warned = Vec::new();
        for _ in 0..=WARN_AFTER {
            stall.step(&some);
            warned.extend(stall.warnings(&some));
        }
        assert_eq!(warned.len(), 2, "{warned:?}");
        assert!(warned[0].contains("1 of 4 completions could not be graded"), "{}", warned[0]);
        assert!(warned[1].contains("no completion has been correct for 5 steps"), "{}", warned[1]);
    }
}
