//! The start and the update rule of a simulated policy.

use crate::error::{Error, require};

/// The surrogate objective that every step increases. `p` is the policy, `a_j` the advantage of draw `j`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Surrogate {
    /// `(1/N) sum_j a_j p_j / stopgrad(p_j)`: the gradient of a drawn action doesn't depend on its probability.
    Ratio,
    /// `(1/N) sum_j a_j p_j`, as printed in the paper: gradients are proportional to `p`.
    Probability,
}

/// The optimizer of the logits. Weight decay is decoupled in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Optimizer {
    /// AdamW with bias correction.
    AdamW,
    /// Plain gradient ascent.
    Sgd,
}

/// A simulated policy's start and its update rule.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Setup {
    /// Number of actions.
    pub actions: usize,
    /// Number of correct actions, anchors included.
    pub correct: usize,
    /// Number of anchors: correct actions that start with a higher probability than the others.
    pub anchors: usize,
    /// Starting logit of an anchor.
    pub anchor_logit: f64,
    /// Starting logit of the other correct actions.
    pub correct_logit: f64,
    /// Starting logit of the wrong actions.
    pub wrong_logit: f64,
    /// Reward of a correct action.
    pub reward_correct: f64,
    /// Reward of a wrong action, less than `reward_correct`.
    pub reward_wrong: f64,
    /// The surrogate objective.
    pub surrogate: Surrogate,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Learning rate, not negative.
    pub lr: f64,
    /// AdamW's decay of the gradient's mean, in `[0, 1)`.
    pub beta1: f64,
    /// AdamW's decay of the gradient's second moment, in `[0, 1)`.
    pub beta2: f64,
    /// AdamW's positive constant that is added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay: every step multiplies the logits by `1 - lr * weight_decay`.
    pub weight_decay: f64,
}

impl Default for Setup {
    /// Returns the paper's simulation, with the surrogate and optimizer that reproduce its figure.
    fn default() -> Self {
        Self {
            actions: 128_000,
            correct: 10_000,
            anchors: 1,
            anchor_logit: 5.0,
            correct_logit: 3.0,
            wrong_logit: 0.0,
            reward_correct: 1.0,
            reward_wrong: -1.0,
            surrogate: Surrogate::Ratio,
            optimizer: Optimizer::AdamW,
            lr: 1e-2,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
        }
    }
}

/// Starting probabilities of a policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Start {
    /// Total mass of the correct actions.
    pub q_pos: f64,
    /// Probability of one anchor.
    pub anchor: f64,
    /// Probability of one other correct action.
    pub correct: f64,
    /// Probability of one wrong action.
    pub wrong: f64,
}

/// Actions that start with the same logit and the same reward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Kind {
    pub(super) size: u32,
    pub(super) logit: f64,
    pub(super) correct: bool,
}

impl Setup {
    /// Returns an error that names the field and its value if the setup can't be simulated.
    pub fn check(&self) -> Result<(), Error> {
        let number = |field, value: f64, expected: &str, holds: bool| {
            require(holds && value.is_finite(), field, value, expected)
        };
        let count = |field, value: usize, low: u64, high: u64, why: &str| {
            let holds = (low..=high).contains(&(value as u64));
            require(holds, field, value, format_args!("{low} to {high} ({why})"))
        };
        count("actions", self.actions, 2, 1 << 31, "every drawn action needs memory")?;
        count(
            "correct",
            self.correct,
            1,
            self.actions as u64 - 1,
            "some actions must be correct, but not all",
        )?;
        count("anchors", self.anchors, 0, self.correct as u64, "anchors are correct actions")?;
        let logit = |field, z: f64| number(field, z, "a logit between -300 and 300", z.abs() <= 300.0);
        logit("anchor_logit", self.anchor_logit)?;
        logit("correct_logit", self.correct_logit)?;
        logit("wrong_logit", self.wrong_logit)?;
        number("reward_correct", self.reward_correct, "a finite number", true)?;
        let below = self.reward_wrong < self.reward_correct;
        number("reward_wrong", self.reward_wrong, "less than reward_correct", below)?;
        number("lr", self.lr, "a finite number of at least 0", self.lr >= 0.0)?;
        let decay = self.weight_decay;
        number("weight_decay", decay, "at least 0 and below 1 / lr", decay >= 0.0 && self.lr * decay < 1.0)?;
        if self.optimizer == Optimizer::AdamW {
            for (field, beta) in [("beta1", self.beta1), ("beta2", self.beta2)] {
                number(field, beta, "a number in [0, 1)", (0.0..1.0).contains(&beta))?;
            }
            number("eps", self.eps, "a positive number", self.eps > 0.0)?;
        }
        Ok(())
    }

    /// Returns the probabilities before the first step.
    ///
    /// Source: F-GRPO, appendix "Categorical Simulation Details".
    pub fn start(&self) -> Start {
        let top = self.kinds().map(|k| k.logit).fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = self.kinds().map(|k| f64::from(k.size) * (k.logit - top).exp()).sum();
        let p = |logit: f64| (logit - top).exp() / total;
        let q_pos = self.kinds().filter(|k| k.correct).map(|k| f64::from(k.size) * p(k.logit)).sum();
        Start {
            q_pos,
            anchor: p(self.anchor_logit),
            correct: p(self.correct_logit),
            wrong: p(self.wrong_logit),
        }
    }

    /// Returns the classes of exchangeable actions, in the order in which actions are numbered.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        let kind = |size: usize, logit, correct| Kind { size: size as u32, logit, correct };
        [
            kind(self.anchors, self.anchor_logit, true),
            kind(self.correct - self.anchors, self.correct_logit, true),
            kind(self.actions - self.correct, self.wrong_logit, false),
        ]
        .into_iter()
        .filter(|k| k.size > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_starts_from_its_stated_probabilities() {
        let start = Setup::default().start();
        assert_eq!(format!("{:.4}", start.q_pos), "0.6301");
        assert_eq!(format!("{:.2e}", start.anchor), "4.65e-4");
        assert_eq!(format!("{:.3e}", start.correct), "6.297e-5");
        // By hand: e^5, e^3 and e^0 over e^5 + 9999 e^3 + 118000.
        let total = 5f64.exp() + 9_999.0 * 3f64.exp() + 118_000.0;
        assert!((start.q_pos - (1.0 - 118_000.0 / total)).abs() < 1e-15);
        assert!((start.wrong - 1.0 / total).abs() < 1e-19);
    }

    #[test]
    fn impossible_setups_are_refused_by_field() {
        let refuse = |change: &dyn Fn(&mut Setup)| {
            let mut setup = Setup::default();
            change(&mut setup);
            setup.check().unwrap_err().to_string()
        };
        assert_eq!(
            refuse(&|s| s.correct = 128_001),
            "correct: expected 1 to 127999 (some actions must be correct, but not all), found 128001"
        );
        assert!(refuse(&|s| s.actions = 0).starts_with("actions: "));
        assert!(refuse(&|s| s.anchors = 10_001).starts_with("anchors: "));
        assert!(refuse(&|s| s.lr = f64::NAN).starts_with("lr: "));
        assert!(refuse(&|s| s.lr = -1.0).starts_with("lr: "));
        assert!(refuse(&|s| s.wrong_logit = f64::INFINITY).starts_with("wrong_logit"));
        assert!(refuse(&|s| s.reward_wrong = 1.0).starts_with("reward_wrong: "));
        assert!(refuse(&|s| s.weight_decay = 100.0).starts_with("weight_decay: "));
        assert!(refuse(&|s| s.beta1 = 1.0).starts_with("beta1: "));
        assert!(refuse(&|s| s.beta2 = f64::NAN).starts_with("beta2: "));
        assert!(refuse(&|s| s.eps = 0.0).starts_with("eps: "));
        assert!(Setup::default().check().is_ok());
    }
}
