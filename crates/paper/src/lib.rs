//! The paper as data, and what sets found values beside it.
//!
//! [`data`] holds every table cell by cell and what the figures state. [`results`] reads what is there, [`plan`] says what is to
//! be trained and evaluated; training is the caller's. Either way [`made::Made`] comes out, which the caller prints and
//! draws. [`theory`] and [`simulate`] are the paper's theory and its categorical simulation.

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
pub mod theory;

pub use figures::SIMULATION;

use std::path::Path;

/// The text of a configuration under configs/.
fn config_text(file: &str) -> &'static str {
    fgrpo_train::config::builtin::builtin(file.trim_end_matches(".toml"))
        .expect("the data names a configuration")
}

/// Makes a table or figure behind which there are no trained models; `simulated` is the folder of the finished simulation,
/// where it is one.
pub fn without_results(item: &'static data::Item, simulated: &Path) -> anyhow::Result<made::Made> {
    if item.is_table() { Ok(table::of_words(item)) } else { figures::from_theory(item, simulated) }
}

/// Says what was found, and which rows of the item it is of, a line for each.
pub fn described(item: &data::Item, results: results::Results) -> anyhow::Result<Vec<String>> {
    Ok(rows::Rows::of(item, results, None)?.lines())
}
