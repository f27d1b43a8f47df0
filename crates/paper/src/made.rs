//! A table or figure made here, as data. Printing and drawing it is the caller's.

use super::data::Item;
use fgrpo_eval::figure::Figure;
use fgrpo_eval::table::Table;

/// A table or figure made here.
pub struct Made {
    /// What it is of.
    pub item: &'static Item,
    /// Number and title.
    pub heading: String,
    /// Figures, by the names of their files.
    pub figures: Vec<(String, Figure)>,
    /// The table beside the paper's, or what the paper states of the figure.
    pub table: Table,
    /// What explains its cells; may be empty.
    pub legend: String,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// The effects of the focal weight; may have no rows.
    pub effects: Table,
    /// Every value in a line of its own, by the names of their files.
    pub values: Vec<(String, Table)>,
}

impl Made {
    pub(super) fn new(item: &'static Item) -> Self {
        Self {
            item,
            heading: format!("{}: {}", item.numbered, item.title),
            figures: Vec::new(),
            table: Table::default(),
            legend: String::new(),
            notes: Vec::new(),
            effects: Table::default(),
            values: Vec::new(),
        }
    }
}

/// What bold values are.
pub const BOLD: &str =
    "differs from the same setting without focal weight, p < 0.05 by the paired subsampling test";

/// With its sign, without a negative zero.
pub(super) fn signed(value: f64, digits: usize) -> String {
    let text = format!("{value:+.digits$}");
    if text.trim_start_matches('-').chars().all(|c| "0.".contains(c)) { text.replace('-', "+") } else { text }
}
