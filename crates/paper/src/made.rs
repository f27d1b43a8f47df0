//! A table or figure of the paper, made here, as data. Printing and drawing it is the caller's.

use super::data::Item;
use fgrpo_eval::figure::Figure;
use fgrpo_eval::table::Table;

/// A table or figure made here.
pub struct Made {
    /// What it is of.
    pub item: &'static Item,
    /// What a reader must know, said before all else.
    pub said: Vec<String>,
    /// Figures, by the names of their files.
    pub figures: Vec<(String, Figure)>,
    /// Every value in a line of its own, by the names of their files.
    pub values: Vec<(String, Table)>,
    /// The table beside the paper's, or what the paper states of the figure.
    pub page: Option<Page>,
}

/// A table with what explains it.
pub struct Page {
    /// Number and title.
    pub heading: String,
    /// The figure above it, as its title and the name of its file.
    pub image: Option<(String, String)>,
    /// The table.
    pub table: Table,
    /// What explains its cells.
    pub legend: Option<Legend>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// The effects of the focal weight.
    pub effects: Table,
    /// What a terminal shows in place of all that.
    pub text: Option<String>,
}

impl Page {
    /// A page with nothing but a table.
    pub(super) fn new(heading: String, table: Table) -> Self {
        let effects = Table::default();
        Self { heading, image: None, table, legend: None, notes: Vec::new(), effects, text: None }
    }
}

/// An explanation, with the table's marks in its middle.
pub struct Legend {
    /// Before the marks.
    pub before: String,
    /// What bold and underlined values and those with a dagger are.
    pub marks: [&'static str; 3],
    /// After them.
    pub after: String,
}
