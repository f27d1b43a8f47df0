//! The paper as data, and the comparison of measured values with it.
//!
//! [`data`] holds every table cell by cell and the statements about the figures. [`results`] reads existing results, and
//! [`plan`] lists the trainings and evaluations that an item needs, which the caller runs. Both lead to a [`made::Made`],
//! which the caller prints and draws. [`theory`] has the figures of the paper's theory, and [`simulate`] its categorical
//! simulation.

#[macro_use]
extern crate fgrpo_eval;

mod checks;
pub mod data;
mod figures;
pub mod list;
pub mod made;
mod measured;
pub mod plan;
pub mod results;
mod rows;
mod settings;
pub mod simulate;
mod table;
#[cfg(test)]
mod tests;
pub mod theory;

pub use figures::SIMULATION;

use std::path::Path;

/// Returns the content of a configuration under configs/.
fn config_text(file: &str) -> &'static str {
    fgrpo_train::config::builtin::builtin(file.trim_end_matches(".toml"))
        .expect("the data names a configuration")
}

/// Makes a table or figure that doesn't need trained models. `simulated` is the folder of the finished simulation, which
/// only the figure of the simulation reads.
pub fn without_results(item: &'static data::Item, simulated: &Path) -> anyhow::Result<made::Made> {
    if item.is_table() { Ok(table::of_words(item)) } else { figures::from_theory(item, simulated) }
}

/// Lists the results of each row of the item, one line for each, and then the notes.
pub fn described(item: &data::Item, results: results::Results) -> anyhow::Result<Vec<String>> {
    Ok(rows::Rows::of(item, results, None)?.lines())
}
