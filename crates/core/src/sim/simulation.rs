//! Runs the simulation of a policy at one group size, gamma and seed, step by step.

use super::arithmetic::{MAX_MOVE, Rates};
use super::binomial::binomial;
use super::class::{Class, Rest};
use super::setup::{Optimizer, Setup, Surrogate};
use crate::error::{Error, require};
use crate::focal::focal_weight;
use crate::rng::Key;

/// Number of steps between two searches for actions that may rest.
const REST_EVERY: u64 = 32;

/// Number of steps after which weights are recomputed from their logits.
const EXACT_EVERY: u64 = 16;

/// Largest total future change of a logit that is neglected ([`Rest`]): a quarter of a unit in the last place of 1.
const NEGLIGIBLE: f64 = f64::EPSILON / 4.0;

/// The metrics of a simulated policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metrics {
    /// Total mass of the correct actions, `Q_pos`.
    pub q_pos: f64,
    /// Retained positive mass `M_ret`: 1 minus the mass that correct actions have lost since the start, relative to the
    /// correct mass at the start.
    pub retained: f64,
    /// Entropy of the policy in nats.
    pub entropy: f64,
}

/// A policy in training.
#[derive(Debug)]
pub struct Simulation {
    setup: Setup,
    group_size: u64,
    gamma: f64,
    key: Key,
    step: u64,
    classes: Vec<Class>,
    start: Vec<f64>,
    shift: f64,
    total: f64,
    scratch: Vec<f64>,
}

impl Simulation {
    /// Creates a policy before its first step.
    ///
    /// Random numbers are a function of `seed`, `group_size` and the step. Runs that differ only in gamma use the same random
    /// numbers, so their difference has less noise than either run.
    /// Fails if the setup, the group size (1 to 2^31) or gamma (finite, at least 0) is out of range.
    pub fn new(setup: &Setup, group_size: u64, gamma: f64, seed: u64) -> Result<Self, Error> {
        setup.check()?;
        let expected = format_args!("1 to {} draws per step", 1u64 << 31);
        require((1..=1 << 31).contains(&group_size), "group_size", group_size, expected)?;
        require(gamma.is_finite() && gamma >= 0.0, "gamma", gamma, "a finite number of at least 0")?;
        let shift = setup.kinds().map(|k| k.logit).fold(f64::NEG_INFINITY, f64::max);
        let mut first = 0;
        let classes: Vec<Class> = setup
            .kinds()
            .map(|kind| {
                let class = Class::new(kind, first, shift);
                first += kind.size as usize;
                class
            })
            .collect();
        let total = total(&classes);
        let start = setup.kinds().map(|k| (k.logit - shift).exp() / total).collect();
        Ok(Self {
            setup: setup.clone(),
            group_size,
            gamma,
            key: Key::new(seed).with(group_size),
            step: 0,
            classes,
            start,
            shift,
            total,
            scratch: Vec::new(),
        })
    }

    /// Returns the number of steps taken.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Draws a group and updates the policy.
    /// Fails with [`Error::Diverged`] if a logit has become infinite or NaN.
    pub fn step(&mut self) -> Result<(), Error> {
        let rest = self.rest_rule();
        if let Some(rest) = rest.filter(|_| self.step.is_multiple_of(REST_EVERY)) {
            self.classes.iter_mut().for_each(|c| c.rest(self.step, rest));
        }
        let correct = self.draw(rest);
        self.step += 1;
        self.update(correct);
        self.total = total(&self.classes);
        if !(1e-150..1e150).contains(&self.total) {
            self.rescale()?;
        }
        Ok(())
    }

    /// Draws the group and returns the number of correct draws.
    fn draw(&mut self, rest: Option<Rest>) -> u64 {
        let mut stream = self.key.with(self.step).stream();
        let weights: Vec<[f64; 3]> = self.classes.iter().map(Class::weights).collect();
        // Each part's weight as a fraction of the weight of this part and all later ones, exactly 1 for the last.
        let mut after = 0.0;
        let mut shares = vec![[0.0; 3]; weights.len()];
        for (share, weight) in shares.as_flattened_mut().iter_mut().zip(weights.as_flattened()).rev() {
            after += weight;
            *share = if after > 0.0 { weight / after } else { 0.0 };
        }
        let (mut remaining, mut correct) = (self.group_size, 0);
        for (class, share) in self.classes.iter_mut().zip(shares) {
            let counts = share.map(|share| {
                let here = binomial(remaining, share, &mut stream);
                remaining -= here;
                here
            });
            class.clear_draws();
            class.draw(counts, self.step, rest, &mut self.scratch, &mut stream);
            correct += if class.correct { counts.iter().sum() } else { 0 };
        }
        correct
    }

    /// Updates the policy after a group with `correct` correct draws. `self.step` already includes this step.
    fn update(&mut self, correct: u64) {
        let n = self.group_size as f64;
        let rate = correct as f64 / n;
        let span = self.setup.reward_correct - self.setup.reward_wrong;
        // R - mean, without subtracting nearly equal numbers.
        let advantage =
            |is_correct: bool| span * if is_correct { (self.group_size - correct) as f64 / n } else { -rate };
        let scale = focal_weight(rate, self.gamma) / n;
        let baseline = match self.setup.surrogate {
            // The advantages of a group add up to zero, so there is no common term.
            Surrogate::Ratio => 0.0,
            Surrogate::Probability => {
                let terms = self.classes.iter().map(|c| advantage(c.correct) * c.drawn_weight());
                scale * terms.sum::<f64>() / self.total
            }
        };
        let per_draw = |is_correct| scale * advantage(is_correct);
        let (lr, t) = (self.setup.lr, self.step as f64);
        let mut rates = Rates {
            per_draw: 0.0,
            baseline,
            per_weight: 1.0 / self.total,
            decay: 1.0 - lr * self.setup.weight_decay,
            rate: lr,
            beta1: 0.0,
            beta2: 0.0,
            root_beta2: 0.0,
            root: 0.0,
            eps: 0.0,
            shift: self.shift,
            exact: true,
        };
        if self.setup.optimizer == Optimizer::AdamW {
            let Setup { beta1, beta2, eps, .. } = self.setup;
            let (rate, root) = (lr / (1.0 - beta1.powf(t)), 1.0 / (1.0 - beta2.powf(t)).sqrt());
            // |m| <= ratio * s by the Cauchy-Schwarz inequality, which bounds the change of a logit.
            let ratio = (1.0 - beta1) / ((1.0 - beta2) * (1.0 - beta1 * beta1 / beta2)).sqrt();
            let small = rate * ratio / root <= MAX_MOVE && rates.decay == 1.0;
            let exact = !small || self.step.is_multiple_of(EXACT_EVERY);
            rates = Rates { rate, root, beta1, beta2, root_beta2: beta2.sqrt(), eps, exact, ..rates };
        }
        let step = match (self.setup.surrogate, self.setup.optimizer) {
            (Surrogate::Ratio, Optimizer::AdamW) => Class::update::<false, true>,
            (Surrogate::Ratio, Optimizer::Sgd) => Class::update::<false, false>,
            (Surrogate::Probability, Optimizer::AdamW) => Class::update::<true, true>,
            (Surrogate::Probability, Optimizer::Sgd) => Class::update::<true, false>,
        };
        for class in &mut self.classes {
            step(class, &Rates { per_draw: per_draw(class.correct), ..rates });
        }
    }

    /// Returns the condition under which an action rests after `self.step` steps, or `None` if actions can't rest: under the
    /// probability surrogate or weight decay, or if an undrawn action's momentum doesn't shrink faster than its scale.
    fn rest_rule(&self) -> Option<Rest> {
        if self.setup.surrogate == Surrogate::Probability || self.setup.weight_decay != 0.0 {
            return None;
        }
        if self.setup.optimizer == Optimizer::Sgd {
            return Some(Rest { limit: 0.0, beta1: 0.0, beta2: 0.0 });
        }
        let Setup { beta1, beta2, .. } = self.setup;
        let shrink = beta1 / beta2.sqrt();
        if self.step == 0 || shrink >= 1.0 {
            return None;
        }
        // The i-th future step without a draw changes the logit by at most rate |m| / sqrt(v) * shrink^i; eps and the
        // bias corrections only make it smaller. The sum of all these changes must be negligible.
        let rate = self.setup.lr / (1.0 - beta1.powf(self.step as f64));
        let first = NEGLIGIBLE * (1.0 - shrink) / (shrink * rate);
        Some(Rest { limit: first.min(f64::MAX), beta1, beta2 })
    }

    /// Shifts the exponents so that weights neither overflow nor underflow.
    /// Fails with [`Error::Diverged`] if a logit isn't finite.
    fn rescale(&mut self) -> Result<(), Error> {
        let tops: Vec<f64> = self.classes.iter().map(Class::top_logit).collect();
        if tops.iter().any(|z| !z.is_finite()) {
            return Err(Error::Diverged { step: self.step, lr: self.setup.lr });
        }
        self.shift = tops.into_iter().fold(f64::MIN, f64::max);
        self.classes.iter_mut().for_each(|c| c.reweigh(self.shift));
        self.total = total(&self.classes);
        Ok(())
    }

    /// Computes the metrics of the policy.
    pub fn metrics(&self) -> Metrics {
        let (mut positive, mut weight, mut energy, mut lost, mut start) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (class, &p0) in self.classes.iter().zip(&self.start) {
            let sums = class.sums(self.shift, if class.correct { p0 * self.total } else { 0.0 });
            weight += sums.weight;
            energy += sums.energy;
            lost += sums.lost;
            if class.correct {
                positive += sums.weight;
                start += f64::from(class.size) * p0;
            }
        }
        Metrics {
            q_pos: positive / weight,
            retained: 1.0 - lost / weight / start,
            entropy: weight.ln() - energy / weight,
        }
    }

    /// Returns the actions drawn in the last step, with their numbers of draws.
    ///
    /// Anchors come first in the numbering, then the other correct actions, then the wrong ones. Within such a class, whose
    /// actions are exchangeable at the start, actions are numbered in the order of their first draw.
    pub fn draws(&self) -> Vec<(usize, u32)> {
        let mut draws = Vec::new();
        for class in &self.classes {
            class.for_each_draw(|action, count| draws.push((action, count)));
        }
        draws
    }

    /// Returns the logits of all actions, numbered as in [`Simulation::draws`].
    pub fn logits(&self) -> Vec<f64> {
        let mut logits = vec![0.0; self.setup.actions];
        self.classes.iter().for_each(|c| c.write_logits(&mut logits));
        logits
    }

    /// Returns the number of actions that the next step updates one by one, which determines the cost of the step.
    pub fn moving(&self) -> usize {
        self.classes.iter().map(Class::moving).sum()
    }
}

fn total(classes: &[Class]) -> f64 {
    classes.iter().flat_map(Class::weights).sum()
}
