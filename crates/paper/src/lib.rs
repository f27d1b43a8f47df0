//! The paper as data, and the one engine that sets found values beside it.
//!
//! [`data`] holds every table cell by cell and what the figures state, and says what fills each. [`sources`] reads results,
//! [`make`] turns them into a [`made::Made`], which the caller prints and draws.
//! [`laptop`] and [`full`] plan the trainings that an item needs; training them is the caller's. [`theory`] and
//! [`simulate`] are the paper's theory and its categorical simulation.

mod checks;
pub mod data;
mod figures;
mod fill;
pub mod full;
pub mod laptop;
pub mod list;
pub mod made;
pub mod make;
mod measured;
mod reports;
pub mod runs;
mod seeds;
mod settings;
mod sheet;
pub mod simulate;
pub mod sources;
mod substitute;
pub mod theory;

pub use figures::SIMULATION;
