//! The paper's categorical simulation: a softmax policy over many actions, trained by group-relative
//! updates. It measures how much probability the correct actions keep.
//!
//! A [`Setup`] defines the starting policy and the update rule. A [`Simulation`] runs it for one group size, gamma and
//! seed, step by step. A direct implementation would update every action at every step. This one computes the same trajectory (up
//! to rounding) and uses three observations:
//!
//! - **Exchangeable actions.** Actions that start from the same logit and were never drawn stay in equal states. Each
//!   class stores that state once, and only drawn actions get a slot (`class`). It doesn't matter which of the
//!   untouched actions is drawn, so they are numbered in the order of their first draw.
//! - **Counts instead of draws.** The update depends on a group of `N` draws only through the number of draws of each
//!   action. Counts of classes, then of blocks of 64 actions, are binomial (`binomial`); only within a block is each
//!   draw assigned to an action by search (`slots`).
//! - **Rest.** Under the ratio surrogate an action's gradient is zero unless it is drawn, and its movement by Adam's
//!   momentum shrinks by `beta1 / sqrt(beta2)` per step. Once all future movement is below rounding, the action rests
//!   until it is drawn again.
//!
//! The remaining work is vectorised over contiguous arrays (`arithmetic`) without fused operations, so results are bitwise
//! identical on every processor. A weight is updated by a short polynomial of its logit's change, and
//! recomputed from the logit every 16 steps, so errors don't accumulate.
//!
//! Departure from the paper, which states `(1/N) sum r_j p_j` with gradient ascent: the ratio surrogate with AdamW is the
//! default. docs/simulation.md explains why.

mod arithmetic;
mod binomial;
mod class;
mod setup;
mod simulation;
mod slots;

pub use crate::error::Error;
pub use setup::{Optimizer, Setup, Start, Surrogate};
pub use simulation::{Metrics, Simulation};
