//! The functions of `docs/explore.html`: [`fgrpo_core`]'s theory and simulation as a WebAssembly module without imports.
//!
//! Numbers outside their domain give NaN, which the page leaves out of a curve. `scripts/explore` builds the page.

use fgrpo_core::sim::{Setup, Simulation};
use fgrpo_core::theory::advantage::population_advantage;
use fgrpo_core::theory::tail_miss::{active_probability, tail_miss_probability};
use std::cell::RefCell;

/// Returns the probability that a group of `n` has both correct and wrong completions.
#[unsafe(no_mangle)]
pub extern "C" fn active(mu: f64, n: f64) -> f64 {
    active_probability(mu, n as u64).unwrap_or(f64::NAN)
}

/// Returns the probability that a group of `n` is active but misses a rare subset of the correct completions, of
/// probability `tau`.
#[unsafe(no_mangle)]
pub extern "C" fn tail_miss(mu: f64, tau: f64, n: f64) -> f64 {
    tail_miss_probability(mu, tau, n as u64).unwrap_or(f64::NAN)
}

/// Returns the advantage of a correct completion in a large group of this success rate, times the focal weight.
#[unsafe(no_mangle)]
pub extern "C" fn advantage_correct(success_rate: f64, gamma: f64) -> f64 {
    population_advantage(success_rate, gamma).map_or(f64::NAN, |a| a.correct)
}

/// Returns the advantage of a wrong completion in a large group of this success rate, times the focal weight.
#[unsafe(no_mangle)]
pub extern "C" fn advantage_wrong(success_rate: f64, gamma: f64) -> f64 {
    population_advantage(success_rate, gamma).map_or(f64::NAN, |a| a.wrong)
}

thread_local! {
    /// The page's two simulations: GRPO and F-GRPO.
    static RUNNING: RefCell<[Option<Simulation>; 2]> = const { RefCell::new([None, None]) };
}

/// Starts the paper's simulation in slot 0 or 1. Returns 1, or 0 for a setting outside its domain.
#[unsafe(no_mangle)]
pub extern "C" fn start(slot: u32, group_size: f64, gamma: f64, seed: f64) -> u32 {
    let new = Simulation::new(&Setup::default(), group_size as u64, gamma, seed as u64).ok();
    let started = new.is_some();
    RUNNING.with_borrow_mut(|all| all[slot as usize % 2] = new);
    started.into()
}

/// Takes one step of a simulation. Returns the number of steps, or NaN if no simulation runs in the slot or it diverged.
#[unsafe(no_mangle)]
pub extern "C" fn step(slot: u32) -> f64 {
    let advance = |sim: &mut Simulation| sim.step().ok().map(|()| sim.steps() as f64);
    RUNNING.with_borrow_mut(|all| all[slot as usize % 2].as_mut().and_then(advance)).unwrap_or(f64::NAN)
}

/// Returns the mass of all correct actions.
#[unsafe(no_mangle)]
pub extern "C" fn correct_mass(slot: u32) -> f64 {
    measure(slot, |sim| sim.metrics().q_pos)
}

/// Returns the retained positive mass: 1 minus the mass that correct actions have lost, relative to the correct mass at
/// the start.
#[unsafe(no_mangle)]
pub extern "C" fn retained_mass(slot: u32) -> f64 {
    measure(slot, |sim| sim.metrics().retained)
}

fn measure(slot: u32, metric: impl Fn(&Simulation) -> f64) -> f64 {
    RUNNING.with_borrow(|all| all[slot as usize % 2].as_ref().map_or(f64::NAN, metric))
}
