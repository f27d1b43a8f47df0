//! A finished table or figure, as data. The caller prints and draws it.

use super::data::Item;
use fgrpo_eval::figure::Figure;
use fgrpo_eval::table::Table;

/// A finished table or figure.
pub struct Made {
    /// The table or figure of the paper.
    pub item: &'static Item,
    /// Number and title of the item.
    pub heading: String,
    /// Names of files, and the figure to draw in each.
    pub figures: Vec<(String, Figure)>,
    /// Of a table: the measured and the paper's values. Of a figure: the paper's statements with their findings.
    pub table: Table,
    /// Explanation of the table's cells, which may be empty.
    pub legend: String,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The effects of the focal weight. Empty for a figure, and for a table without comparable results.
    pub effects: Table,
    /// Names of files, and the table to write in each, with one value in a line.
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

/// Meaning of bold values.
pub const BOLD: &str =
    "differs from the same setting without focal weight, p < 0.05 by the paired subsampling test";

/// Formats a value with its sign. A value that rounds to 0 has a plus sign.
pub(super) fn signed(value: f64, digits: usize) -> String {
    let text = format!("{value:+.digits$}");
    if text.trim_start_matches('-').chars().all(|c| "0.".contains(c)) { text.replace('-', "+") } else { text }
}
