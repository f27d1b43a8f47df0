//! The pure mathematics of F-GRPO: no I/O, clocks, threads or tensors.
//!
//! Group advantages ([`advantage`]), the focal weight ([`focal`]) and both together ([`credit`]), policy losses in
//! closed form ([`loss`]), the paper's theory ([`theory`]) and categorical simulation ([`sim`]), statistics of pass@k
//! ([`stats`]), the maze ([`maze`]) and counter-based randomness ([`rng`]).

pub mod advantage;
pub mod credit;
#[cfg(feature = "serde")]
pub mod default;
pub mod error;
pub mod focal;
pub mod group;
pub mod loss;
pub mod maze;
pub mod rng;
pub mod sim;
pub mod stats;
pub mod theory;
