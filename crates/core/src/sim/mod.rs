//! The paper's categorical simulation: a softmax policy over many actions, trained by group-relative
//! updates, watched for which correct actions keep their probability.
//!
//! A [`Setup`] says where the policy starts and how it is updated; a [`Simulation`] of it is one
//! (group size, gamma, seed), advanced step by step. The plain program would touch every action at
//! every step. This one computes the same trajectory (to rounding) from three observations:
//!
//! - **Exchangeable actions.** Actions that start from the same logit and were never drawn have equal
//!   state for ever. Each class keeps that state once, and only drawn actions get a slot of their own
//!   (`class`). Which of the untouched actions is drawn doesn't matter either, so they are named in the
//!   order of their first draw.
//! - **Counts instead of draws.** A group of `N` draws enters the update only through how often each
//!   action was drawn. Counts of classes, then of blocks of 64 actions, are binomial (`binomial`); only
//!   within a block does every draw look for its action (`slots`).
//! - **Rest.** Under the ratio surrogate an action's gradient is zero unless it is drawn, and what Adam's
//!   momentum still moves it shrinks by `beta1 / sqrt(beta2)` a step. Once all movement to come is
//!   below rounding, the action rests until it is drawn again.
//!
//! What is left runs over contiguous arrays, vectorised (`arithmetic`) without fused operations, so
//! results are equal bit for bit on every processor. A weight follows its logit's movement by a short
//! polynomial and is computed anew from the logit every 16 steps, so nothing accumulates.
//!
//! Where this departs from the paper: it prints `(1/N) sum r_j p_j` with gradient ascent; see
//! docs/simulation.md for why the ratio surrogate with AdamW is the default.

mod arithmetic;
mod binomial;
mod class;
mod setup;
mod simulation;
mod slots;

pub use setup::{Error, Optimizer, Setup, Start, Surrogate};
pub use simulation::{Metrics, Simulation};
